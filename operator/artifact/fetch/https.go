// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caplv/caplv/operator/artifact/fault"
)

type httpsFile struct {
	client      *http.Client
	url         string
	credentials Credentials
	place       string
}

func (c *Client) newHTTPS(s Source, l HTTPS) (opener, error) {
	u, err := url.Parse(l.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(fault.InvalidSource, fault.Location, "this is not a URL that begins with https:// and names a file")
	}
	if u.User != nil {
		return nil, fault.New(fault.InvalidSource, fault.Location, "the URL has a user in it, which everybody could read; put username and password into a Secret")
	}
	return &httpsFile{client: c.http(s, false), url: l.URL, credentials: s.Credentials, place: u.Host}, nil
}

func (f *httpsFile) Open(ctx context.Context, ask Ask) (*Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, http.NoBody)
	if err != nil {
		return nil, fault.New(fault.InvalidSource, fault.Location, "the URL cannot be used").Because(err)
	}
	if f.credentials.Username != "" || f.credentials.Password != "" {
		request.SetBasicAuth(f.credentials.Username, f.credentials.Password)
	}
	setConditions(request.Header, ask)
	response, err := f.client.Do(request)
	if err != nil {
		return nil, describe(err, f.place)
	}
	answer, err := readAnswer(response, ask, f.place, f.credentials != Credentials{})
	if err != nil || answer.NotModified {
		response.Body.Close()
	}
	return answer, err
}

func setConditions(header http.Header, ask Ask) {
	header.Set("User-Agent", "caplv")
	header.Set("Accept-Encoding", "identity")
	if k := ask.Known; k != nil {
		// A server looks at the second one only if it knows no ETag.
		setIf(header, "If-None-Match", k.ETag)
		setIf(header, "If-Modified-Since", k.LastModified)
	}
	if r := ask.Resume; r != nil && r.Resumable && ask.Offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", ask.Offset))
		if strong(r.ETag) {
			header.Set("If-Range", r.ETag)
		} else {
			header.Set("If-Range", r.LastModified)
		}
	}
}

func setIf(header http.Header, name, value string) {
	if value != "" {
		header.Set(name, value)
	}
}

func strong(etag string) bool { return etag != "" && !strings.HasPrefix(etag, "W/") }

// readAnswer judges a response to a request with the conditions of ask.
func readAnswer(response *http.Response, ask Ask, place string, authenticated bool) (*Answer, error) {
	switch response.StatusCode {
	case http.StatusNotModified:
		if ask.Known == nil {
			return nil, fault.New(fault.ServerFailed, fault.Location, "%s says that nothing was modified, without being asked", place)
		}
		return &Answer{Version: *ask.Known, NotModified: true}, nil
	case http.StatusOK:
		return &Answer{Version: versionOf(response.Header, response.ContentLength), Body: response.Body}, nil
	case http.StatusPartialContent:
		start, size, err := parseContentRange(response.Header.Get("Content-Range"))
		if err != nil || ask.Resume == nil || start != ask.Offset {
			return nil, fault.New(fault.ServerFailed, fault.Location, "%s answered with another part of the file than was asked for", place)
		}
		answer := &Answer{Version: versionOf(response.Header, size), Offset: start, Body: response.Body}
		if !answer.Version.Same(*ask.Resume) {
			return nil, ErrReplaced
		}
		return answer, nil
	case http.StatusRequestedRangeNotSatisfiable:
		if ask.Offset > 0 {
			return nil, ErrReplaced
		}
		return nil, statusFault(response, place, authenticated)
	default:
		return nil, statusFault(response, place, authenticated)
	}
}

// versionOf reads the validators. A date identifies bytes only if it lies clearly before the answer: RFC 9110, section 8.8.2.2.
func versionOf(header http.Header, size int64) Version {
	v := Version{ETag: header.Get("ETag"), LastModified: header.Get("Last-Modified"), Size: size}
	modified, err1 := http.ParseTime(v.LastModified)
	date, err2 := http.ParseTime(header.Get("Date"))
	if err1 != nil {
		v.LastModified = ""
	}
	v.Resumable = strong(v.ETag) || (v.ETag == "" && err1 == nil && err2 == nil && date.Sub(modified) >= time.Second)
	return v
}

// parseContentRange reads "bytes START-END/SIZE". SIZE is -1 when the server does not know it.
func parseContentRange(text string) (start, size int64, err error) {
	bad := fmt.Errorf("not a content range: %q", text)
	unit, rest, found := strings.Cut(text, " ")
	if !found || !strings.EqualFold(unit, "bytes") {
		return 0, 0, bad
	}
	span, total, found := strings.Cut(rest, "/")
	first, last, found2 := strings.Cut(span, "-")
	if !found || !found2 {
		return 0, 0, bad
	}
	from, err1 := strconv.ParseUint(first, 10, 63)
	to, err2 := strconv.ParseUint(last, 10, 63)
	if err1 != nil || err2 != nil || to < from {
		return 0, 0, bad
	}
	if total == "*" {
		return int64(from), -1, nil
	}
	n, err := strconv.ParseUint(total, 10, 63)
	if err != nil || n != to+1 {
		return 0, 0, bad
	}
	return int64(from), int64(n), nil
}
