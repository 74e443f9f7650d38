// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"encoding/json"
	"os"
	"testing"

	. "github.com/onsi/gomega"
)

// contract is the file of cases that verify_host must decide in the same words; test/unit/ansible/test_session.py reads it too.
const contract = "testdata/contract.json"

type contractCase struct {
	Name     string   `json:"name"`
	Facts    string   `json:"facts"`
	VirtType string   `json:"virt_type"`
	Bridges  []string `json:"bridges"`
	Missing  []struct {
		Piece   string `json:"piece"`
		Problem string `json:"problem"`
		Remedy  string `json:"remedy"`
	} `json:"missing"`
}

func TestTheOperatorDecidesAsTheContractWithVerifyHostSays(t *testing.T) {
	g := NewWithT(t)
	data, err := os.ReadFile(contract)
	g.Expect(err).NotTo(HaveOccurred())
	var cases []contractCase
	g.Expect(json.Unmarshal(data, &cases)).To(Succeed())
	named := map[string]bool{}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			g := NewWithT(t)
			want := []Piece{}
			for _, m := range c.Missing {
				want = append(want, Piece{m.Piece, m.Problem, m.Remedy})
				named[m.Piece] = true
			}
			err := Probe(t.Context(), answer{stdout: c.Facts}, Query{VirtType: c.VirtType, Bridges: c.Bridges})
			g.Expect(MissingOf(err)).To(HaveExactElements(want))
			g.Expect(err == nil).To(Equal(len(want) == 0))
		})
	}
	for _, piece := range []string{
		PieceRuntimeDirectory, PieceLinger, PieceBridgeHelper, PieceBridgeACL, PieceTun, PieceKVM, PieceDaemon, PieceBridge,
	} {
		g.Expect(named).To(HaveKey(piece), "no case of the contract names it")
	}
}

func TestVerifyHostRunsTheOperatorsOwnScript(t *testing.T) {
	g := NewWithT(t)
	// go:embed cannot leave its package, and a role has its files with it: there are two copies.
	copied, err := os.ReadFile("../../roles/verify_host/files/facts.sh")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(copied)).To(Equal(script))
}
