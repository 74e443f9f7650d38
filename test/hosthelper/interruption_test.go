// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// interrupt sends the first half of a request's payload, waits until the helper has begun to write it, and ends the helper:
// with a signal, or with the end of the connection alone.
func (s *sandbox) interrupt(g *WithT, whole string, signal os.Signal) {
	s.t.Helper()
	cmd := s.command(s.helper)
	stdin, err := cmd.StdinPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cmd.Start()).To(Succeed())
	_, err = io.WriteString(stdin, whole[:len(whole)/2])
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() string { return s.sh("find /run/caplv -name '.vm.??????' -size +0") }, 20*time.Second, 20*time.Millisecond).ShouldNot(BeEmpty())
	if signal != nil {
		g.Expect(cmd.Process.Signal(signal)).To(Succeed())
	}
	g.Expect(stdin.Close()).To(Succeed())
	g.Expect(cmd.Wait()).NotTo(Succeed(), "half a payload was taken for a whole one")
}

func TestAnUploadThatIsInterruptedLeavesNothingToUse(t *testing.T) {
	whole := strings.Repeat("the whole payload ", 60000)
	for _, end := range []struct {
		name   string
		signal os.Signal
	}{
		{"the connection ends", nil},
		{"the session is hung up", syscall.SIGHUP},
		{"the helper is terminated", syscall.SIGTERM},
		{"the helper is killed", syscall.SIGKILL},
	} {
		for _, ephemeral := range []string{"ephemeral=yes", "ephemeral=no"} {
			t.Run(end.name+", "+ephemeral, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				s := newSandbox(t)
				upload := stage(whole, "name=vm", ephemeral)
				s.interrupt(g, upload, end.signal)
				g.Expect(s.sh("ls /run/caplv")).To(BeEmpty(), "a directory that looks like a machine's was left")

				// What a killed helper could not take back is in nobody's way, and goes with the machine.
				g.Expect(s.send(upload)).To(Equal(result{Stdout: "staged=created\n"}))
				g.Expect(s.sh("cat /run/caplv/vm/ignition.json")).To(Equal(whole))
				g.Expect(s.send(upload)).To(Equal(result{Stdout: "staged=unchanged\n"}))
				g.Expect(s.send(request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=yes\n"}))
				g.Expect(s.tree()).To(Equal("d 711 caplv \n"))
			})
		}
	}
}

func TestAnUploadThatIsInterruptedLeavesTheMachinesFileAsItWas(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	g.Expect(s.send(stage("before", "name=vm", "ephemeral=yes"))).To(HaveField("Exit", 0))
	s.interrupt(g, stage(strings.Repeat("after", 200000), "name=vm", "ephemeral=yes"), syscall.SIGKILL)
	g.Expect(s.sh("cat /run/caplv/vm/*")).To(Equal("before"))
}
