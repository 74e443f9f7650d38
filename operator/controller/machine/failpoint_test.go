// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// declaredStepKinds reads the values of all constants of type StepKind from the package's source.
func declaredStepKinds(g *WithT) []StepKind {
	files, err := filepath.Glob("*.go")
	g.Expect(err).NotTo(HaveOccurred())
	var kinds []StepKind
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		g.Expect(err).NotTo(HaveOccurred())
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if of, ok := spec.Type.(*ast.Ident); !ok || of.Name != "StepKind" {
				return true
			}
			for _, value := range spec.Values {
				literal, ok := value.(*ast.BasicLit)
				g.Expect(ok).To(BeTrue(), "%s: a StepKind is not a literal", file)
				kind, err := strconv.Unquote(literal.Value)
				g.Expect(err).NotTo(HaveOccurred())
				kinds = append(kinds, StepKind(kind))
			}
			return true
		})
	}
	return kinds
}

func TestEveryStepKindIsListed(t *testing.T) {
	g := NewWithT(t)
	declared := declaredStepKinds(g)
	g.Expect(declared).NotTo(BeEmpty())
	g.Expect(StepKinds()).To(ConsistOf(declared), "a step that StepKinds does not list has no fail point that a test must come to")
}

func TestALifePassesItsFailPointsInPairs(t *testing.T) {
	b := newBench(t, func(o *objects) { o.lmachine.Finalizers = nil })
	var passed []FailPoint
	b.r.FailPoint = func(p FailPoint) { passed = append(passed, p) }
	b.reconcile()
	b.reconcile()
	b.delete()
	lm, _ := b.reconcile()
	b.Expect(lm).To(BeNil())

	var want []FailPoint
	for _, what := range []string{
		"StoreFinalizer",
		"ClaimHost", "RefreshPool", "RecordIdentity", "DefineDomain", "StageDirectory", "CreateVolume", "StartDomain", "WriteStatus",
		"DestroyDomain", "DeleteVolume", "RemoveDirectory", "UndefineDomain", "ReleaseHost", "RemoveFinalizer",
	} {
		want = append(want, before(what), after(what))
	}
	b.Expect(passed).To(Equal(want))
	b.Expect(FailPoints()).To(ContainElements(want))
}

func TestAStepThatFailsHasNoPointAfterIt(t *testing.T) {
	b := newBench(t, nil)
	b.connector.host.failAt = 1
	var passed []FailPoint
	b.r.FailPoint = func(p FailPoint) { passed = append(passed, p) }
	b.reconcile()
	b.Expect(passed).To(ContainElement(before("DefineDomain")))
	b.Expect(passed).NotTo(ContainElement(after("DefineDomain")))
}
