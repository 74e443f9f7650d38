// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/caplv/caplv/test/awx"
)

// launch launches a job template with answers to its survey, as a person does, and returns the number of the job.
func launch(t *testing.T, server *awx.Server, template int, answers map[string]any) int {
	t.Helper()
	body, err := json.Marshal(map[string]any{"limit": "localhost", "extra_vars": answers})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, fmt.Sprintf("%s%s/job_templates/%d/launch/", server.URL, awx.AWXPrefix, template), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+server.Token)
	response, err := trusting(server).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var launched struct{ Job int }
	if err := json.NewDecoder(response.Body).Decode(&launched); err != nil || launched.Job == 0 {
		t.Fatal(response.Status, err)
	}
	return launched.Job
}

func trusting(server *awx.Server) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(server.CA)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}}
}

// mayLaunch says whether the owner of a token sees all job templates and may start them.
func mayLaunch(server *awx.Server, token string) bool {
	request, err := http.NewRequest(http.MethodGet, server.URL+awx.AWXPrefix+"/job_templates/", http.NoBody)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := trusting(server).Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	var page struct {
		Results []struct {
			Summary struct {
				Capabilities struct{ Start bool } `json:"user_capabilities"`
			} `json:"summary_fields"`
		}
	}
	if json.NewDecoder(response.Body).Decode(&page) != nil {
		return false
	}
	may := len(page.Results) == len(awx.Playbooks)
	for _, template := range page.Results {
		may = may && template.Summary.Capabilities.Start
	}
	return may
}
