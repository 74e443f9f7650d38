// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// defaultRegion is what stores other than Amazon's take for any region.
const defaultRegion = "us-east-1"

type s3Object struct {
	core          minio.Core
	location      S3
	authenticated bool
}

func (c *Client) newS3(s Source, l S3) (opener, error) {
	lookup := minio.BucketLookupAuto
	if l.PathStyle {
		lookup = minio.BucketLookupPath
	}
	region := l.Region
	if region == "" {
		// Without one, the client would ask the store for it, which takes a permission of its own.
		if region = s3utils.GetRegionFromURL(url.URL{Host: l.Endpoint}); region == "" {
			region = defaultRegion
		}
	}
	k := s.Credentials
	kind := credentials.SignatureV4
	if k.AccessKeyID == "" {
		kind = credentials.SignatureAnonymous
	}
	client, err := minio.New(l.Endpoint, &minio.Options{
		Creds:  credentials.NewStatic(k.AccessKeyID, k.SecretAccessKey, k.SessionToken, kind),
		Secure: !l.PlainHTTP, Transport: c.http(s, l.PlainHTTP).Transport, Region: region, BucketLookup: lookup, MaxRetries: 1,
	})
	if err != nil {
		return nil, fault.New(fault.InvalidSource, fault.Location, "the endpoint must be HOST[:PORT], without a scheme").Because(err)
	}
	return &s3Object{core: minio.Core{Client: client}, location: l, authenticated: k.AccessKeyID != ""}, nil
}

func (o *s3Object) Open(ctx context.Context, ask Ask) (*Answer, error) {
	var options minio.GetObjectOptions
	options.Set("Accept-Encoding", "identity")
	if ask.Known != nil && ask.Known.ETag != "" {
		options.Set("If-None-Match", ask.Known.ETag)
	}
	if ask.Resume != nil && ask.Offset > 0 {
		options.Set("Range", fmt.Sprintf("bytes=%d-", ask.Offset))
		options.Set("If-Match", ask.Resume.ETag)
	}
	body, info, header, err := o.core.GetObject(ctx, o.location.Bucket, o.location.Key, options)
	if err != nil {
		return o.failure(err, ask)
	}
	version := versionOf(header, info.Size)
	answer := &Answer{Version: version, Body: body}
	if contentRange := header.Get("Content-Range"); contentRange != "" {
		start, size, err := parseContentRange(contentRange)
		answer.Offset, answer.Version.Size = start, size
		if err != nil || start != ask.Offset || ask.Resume == nil || !answer.Version.Same(*ask.Resume) {
			body.Close()
			return nil, ErrReplaced
		}
	}
	return answer, nil
}

// failure judges an error of the client, which also has answers that are none.
func (o *s3Object) failure(err error, ask Ask) (*Answer, error) {
	response, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok || response.StatusCode == 0 {
		return nil, describe(err, o.location.Endpoint)
	}
	switch {
	case response.StatusCode == http.StatusNotModified && ask.Known != nil:
		return &Answer{Version: *ask.Known, NotModified: true}, nil
	case response.StatusCode == http.StatusPreconditionFailed, response.StatusCode == http.StatusRequestedRangeNotSatisfiable && ask.Offset > 0:
		return nil, ErrReplaced
	default:
		return nil, statusCode(response.StatusCode, o.location.Endpoint, o.authenticated).Because(err)
	}
}
