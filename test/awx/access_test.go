// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"

	"github.com/caplv/caplv/test/awx"
)

// mayLaunch says whether the owner of a token sees all job templates and may start them.
func mayLaunch(server *awx.Server, token string) bool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(server.CA)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequest(http.MethodGet, server.URL+awx.AWXPrefix+"/job_templates/", http.NoBody)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
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
