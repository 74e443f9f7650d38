// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/virsh"
)

func TestACopyHasAVirshOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	shared := virsh.New(func(context.Context, string) (virsh.Process, error) {
		return nil, errors.New("the shared virsh was started")
	}, virsh.ModeSession, virsh.Options{})
	var commands []string
	h := &host{Client: shared, mode: virsh.ModeSession, start: func(_ context.Context, command string) (virsh.Process, error) {
		commands = append(commands, command)
		return nil, errors.New("its own virsh was started")
	}}
	err := h.CloneVolume(t.Context(), "fast", "<volume/>", "default", "base.qcow2")
	g.Expect(err).To(MatchError("its own virsh was started"))
	g.Expect(commands).To(HaveLen(1))
	g.Expect(strings.Contains(commands[0], "qemu:///session")).To(BeTrue(), "the mode must be the host's")
	g.Expect(h.ResizeVolume(t.Context(), "fast", "root.qcow2", 1)).To(MatchError("the shared virsh was started"))
}
