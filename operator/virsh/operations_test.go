// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"encoding/base64"
	"maps"
	"testing"

	. "github.com/onsi/gomega"
)

const invalid = "error: Angeforderte Operation ist nicht gültig: "

// TestADaemonThatSpeaksGermanChangesNothing has the words of a daemon under LANG=de_DE.UTF-8 to a client under LC_ALL=C.
func TestADaemonThatSpeaksGermanChangesNothing(t *testing.T) {
	type call func(context.Context, *Shell) error
	start := func(ctx context.Context, s *Shell) error { return s.StartDomain(ctx, "a") }
	destroy := func(ctx context.Context, s *Shell) error { return s.DestroyDomain(ctx, "a") }
	shutdown := func(ctx context.Context, s *Shell) error { return s.ShutdownDomain(ctx, "a") }
	define := func(ctx context.Context, s *Shell) error {
		return s.DefineDomain(ctx, "<domain><name>a</name><uuid>11111111-1111-1111-1111-111111111111</uuid></domain>")
	}
	definePool := func(ctx context.Context, s *Shell) error {
		return s.DefinePool(ctx, "<pool><name>a</name><uuid>11111111-1111-1111-1111-111111111111</uuid></pool>")
	}
	defined := "error: Failed to define domain from definition.xml\n" +
		"error: Operation schlug fehl: Domain 'a' ist bereits mit UUID eeb80496-8951-4369-9ba1-6bc13ab88f3e definiert\n"
	for _, row := range []struct {
		name   string
		do     call
		stderr string
		after  map[string]reply
		want   Reason // Empty for success.
	}{
		{"a domain that runs is started", start, invalid + "Domain läuft bereits\n", map[string]reply{"list --name": {stdout: "a\n\n"}}, ""},
		{"a domain cannot be started", start, invalid + "etwas\n", map[string]reply{"list --name": {stdout: "b\n\n"}}, Unknown},
		{"a domain that does not run is destroyed", destroy, "error: Failed to destroy domain 'a'\n" + invalid + "Domain läuft nicht\n", nil, ""},
		{"a domain that does not run is shut down", shutdown, "error: Failed to shutdown domain 'a'\n" + invalid + "Domain läuft nicht\n", nil, ""},
		{"a domain cannot be shut down", shutdown, "error: Failed to shutdown domain 'a'\nerror: etwas\n", map[string]reply{"list --name": {stdout: "a\n"}}, Unknown},
		{"a domain cannot be destroyed", destroy, "error: Failed to destroy domain 'a'\nerror: etwas\n", map[string]reply{"list --name": {stdout: "a\n"}}, Unknown},
		{"a pool that is active is started", func(ctx context.Context, s *Shell) error { return s.StartPool(ctx, "a") },
			"error: Failed to start pool a\n" + invalid + "Speicher-Pool 'a' ist bereits aktiv\n", map[string]reply{"pool-list --name": {stdout: "a\n"}}, ""},
		{"a pool that is inactive is destroyed", func(ctx context.Context, s *Shell) error { return s.DestroyPool(ctx, "a") },
			"error: Failed to destroy pool a\n" + invalid + "Speicher-Pool 'a' ist nicht aktiv\n", map[string]reply{"pool-list --name": {stdout: "ab\n"}}, ""},
		{"a pool that is gone is undefined", func(ctx context.Context, s *Shell) error { return s.UndefinePool(ctx, "a") },
			"error: failed to get pool 'a'\nerror: Speicher-Pool nicht gefunden: Kein Pool mit passendem Namen 'a'\n", nil, ""},
		{"a volume that is gone is deleted", func(ctx context.Context, s *Shell) error { return s.DeleteVolume(ctx, "p", "a") },
			"error: failed to get vol 'a'\nerror: Speicher-Datenträger nicht gefunden\n", map[string]reply{"vol-list": {stdout: " a.x   /p/a.x\n"}}, ""},
		{"a volume in an inactive pool is deleted", func(ctx context.Context, s *Shell) error { return s.DeleteVolume(ctx, "p", "a") },
			"error: failed to get vol 'a'\n",
			map[string]reply{"vol-list": {stderr: "error: Failed to list volumes\n" + invalid + "Speicher-Pool 'p' ist nicht aktiv\n"}}, VolumeNotFound},
		{"a foreign domain has the name", define, defined,
			map[string]reply{"list --all --name": {stdout: "a\n"}, "domuuid": {stdout: "eeb80496-8951-4369-9ba1-6bc13ab88f3e\n\n"}}, DomainExists},
		{"the machine's own domain is refused for something else", define, defined,
			map[string]reply{"list --all --name": {stdout: "a\n"}, "domuuid": {stdout: "11111111-1111-1111-1111-111111111111\n\n"}}, Unknown},
		{"a new domain is refused", define, "error: Failed to define domain from definition.xml\nerror: Nicht unterstützt\n", nil, Unknown},
		{"a foreign pool has the name", definePool, "error: Failed to define pool from definition.xml\nerror: Operation schlug fehl\n",
			map[string]reply{"pool-list --all --name": {stdout: "a\n"}, "pool-uuid": {stdout: "eeb80496-8951-4369-9ba1-6bc13ab88f3e\n"}}, PoolExists},
		{"a volume has the name", func(ctx context.Context, s *Shell) error {
			return s.CreateVolume(ctx, "p", "<volume><name>a</name></volume>")
		},
			"error: Failed to create vol a\nerror: etwas gibt es schon\n", map[string]reply{"vol-list": {stdout: " a   /p/a\n"}}, VolumeExists},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			host := &fakeHost{}
			host.answer = func(line string) reply {
				if len(host.given()) > 0 && line == lastChange(host.given()) {
					return reply{stderr: row.stderr}
				}
				return answers(row.after)(line)
			}
			err := row.do(t.Context(), New(host.start, ModeSystem, Options{}))
			g.Expect(ReasonOf(err)).To(Equal(row.want), "%v", err)
			if row.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
			}
		})
	}
}

// lastChange is the first line that is no file: what comes after it looks at its effect.
func lastChange(lines []string) string {
	for _, line := range lines {
		if line[0] != '@' {
			return line
		}
	}
	return ""
}

func TestWhatIsListedIsNotGone(t *testing.T) {
	// virsh has said so word for word when it had lost the daemon.
	const said = "error: failed to get domain 'a'\n"
	for _, row := range []struct {
		name    string
		listing reply
		want    Reason
	}{
		{"the domain is listed", reply{stdout: "a\n"}, DomainNotFound},
		{"the daemon turns out to be lost", reply{stderr: "error: Disconnected from qemu:///system due to end of file\n"}, LibvirtUnavailable},
		{"the listing fails", reply{stderr: "error: Failed to list domains\n"}, DomainNotFound},
	} {
		t.Run(row.name, func(t *testing.T) {
			host := &fakeHost{answer: answers(map[string]reply{"undefine": {stderr: said}, "list --all --name": row.listing})}
			err := New(host.start, ModeSystem, Options{}).UndefineDomain(t.Context(), "a")
			NewWithT(t).Expect(ReasonOf(err)).To(Equal(row.want), "%v", err)
		})
	}
}

func TestAVolumeIsFoundByItsListing(t *testing.T) {
	const output = " a b            /p/a b\n c              /p/c\n root.qcow2     /p/root.qcow2\n rbd            pool/rbd\n"
	for name, want := range map[string]bool{
		"c": true, "a b": true, "root.qcow2": true, "rbd": true, "a": false, "b": false, "root": false, "": false, "/p/c": false, "root.qcow": false,
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(listsVolume(output, name)).To(Equal(want))
		})
	}
}

func TestACopyNamesBothPoolsAndTravelsAsAFile(t *testing.T) {
	g := NewWithT(t)
	host := &fakeHost{answer: answers(nil)}
	s := New(host.start, ModeSystem, Options{})
	g.Expect(s.CloneVolume(t.Context(), "fast", "<volume/>", "default", `b"ase.qcow2`)).To(Succeed())
	g.Expect(s.ResizeVolume(t.Context(), "fast", "root.qcow2", 100<<30)).To(Succeed())
	g.Expect(host.given()).To(Equal([]string{
		"@ definition.xml " + base64.StdEncoding.EncodeToString([]byte("<volume/>")),
		`vol-create-from --inputpool "default" "fast" "definition.xml" "b\"ase.qcow2"`,
		`vol-resize --pool "fast" "root.qcow2" "107374182400"`,
	}))
}

func TestACopyEndsWithItsContext(t *testing.T) {
	g := NewWithT(t)
	begun, never := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(never) })
	host := &fakeHost{answer: func(line string) reply {
		if line[0] == 'v' {
			close(begun)
			<-never
		}
		return reply{}
	}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	err := New(host.start, ModeSystem, Options{}).CloneVolume(ctx, "fast", "<volume/>", "default", "base.qcow2")
	g.Expect(err).To(MatchError(context.Canceled))
}

func TestAnOldVirshUndefinesWithoutTheOptionThatItLacks(t *testing.T) {
	g := NewWithT(t)
	host := &fakeHost{answer: func(line string) reply {
		switch line {
		case `list --all --name`:
			return reply{stdout: "a\n"}
		case `undefine --nvram --managed-save --snapshots-metadata --checkpoints-metadata --tpm "a"`:
			return reply{stderr: "error: command 'undefine' doesn't support option --tpm\n"}
		}
		return reply{}
	}}
	g.Expect(New(host.start, ModeSystem, Options{}).UndefineDomain(t.Context(), "a")).To(Succeed())
	g.Expect(host.given()[len(host.given())-1]).To(Equal(`undefine --nvram --managed-save --snapshots-metadata --checkpoints-metadata "a"`))
}

func TestADefinitionTravelsAsAFile(t *testing.T) {
	g := NewWithT(t)
	host := &fakeHost{answer: answers(nil)}
	const definition = "<volume><name>`id`; $(reboot) \"'</name>\n</volume>"
	g.Expect(New(host.start, ModeSystem, Options{}).CreateVolume(t.Context(), `p"; list; "`, definition)).To(Succeed())
	g.Expect(host.given()).To(Equal([]string{
		"@ definition.xml " + base64.StdEncoding.EncodeToString([]byte(definition)),
		`vol-create "p\"; list; \"" "definition.xml"`,
	}))
}

func TestANameThatVirshWouldTakeForANumberOrUUIDIsNeverSent(t *testing.T) {
	for _, name := range []string{"1", "007", "550e8400-e29b-41d4-a716-446655440000", "-a", "a\nlist"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			host := &fakeHost{answer: answers(nil)}
			s := New(host.start, ModeSystem, Options{})
			g.Expect(ReasonOf(s.DestroyDomain(t.Context(), name))).To(Equal(InvalidDefinition))
			_, err := s.Observe(t.Context(), Query{Domain: name})
			g.Expect(ReasonOf(err)).To(Equal(InvalidDefinition))
			starts, _ := host.count()
			g.Expect(starts).To(BeZero())
		})
	}
}

func TestProbe(t *testing.T) {
	facts := func(more map[string]reply) map[string]reply {
		table := map[string]reply{
			"version":      {stdout: "Compiled against library: libvirt 9.0.0\nUsing library: libvirt 9.0.0\nUsing API: QEMU 9.0.0\nRunning hypervisor: QEMU 7.2.22\n"},
			"nodeinfo":     {stdout: "CPU model:           x86_64\nCPU(s):              8\nMemory size:         5976880 KiB\n"},
			"nodememstats": {stdout: "total  :             24684208 KiB\n"},
		}
		maps.Copy(table, more)
		return table
	}
	const kvmMissing = "error: failed to get emulator capabilities\nerror: Ungültiges Argument: etwas\n"
	capabilities := func(stdout string) map[string]reply {
		return facts(map[string]reply{"domcapabilities": {stderr: kvmMissing}, "capabilities": {stdout: stdout}})
	}
	for _, row := range []struct {
		name   string
		table  map[string]reply
		want   Reason
		memory uint
	}{
		{"a host tells what it is", facts(nil), "", 24105},
		{"a host without memory statistics", facts(map[string]reply{"nodememstats": {stderr: "error: Unable to get memory stats\n"}}), "", 5836},
		{"a German host without KVM", capabilities("<domain type='qemu'/>"), VirtTypeUnsupported, 0},
		{"a host with KVM fails otherwise", capabilities("<domain type='kvm'/>"), Unknown, 0},
		{"a host does not tell its size", facts(map[string]reply{"nodeinfo": {stdout: "?"}}), Unknown, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			host := &fakeHost{answer: answers(row.table)}
			h, err := New(host.start, ModeSystem, Options{}).Probe(t.Context(), "kvm")
			g.Expect(ReasonOf(err)).To(Equal(row.want), "%v", err)
			if row.want == "" {
				g.Expect(h).To(Equal(Hypervisor{LibvirtVersion: "9.0.0", HypervisorVersion: "7.2.22", CPUs: 8, MemoryMiB: row.memory}))
			}
		})
	}
}

func TestTheBoardIsKnownByItsUUIDToTheSystemsDaemonOnly(t *testing.T) {
	const uuid = "a6526e0c-3d7b-41da-85a5-1026100cd748"
	for _, row := range []struct {
		name         string
		mode         Mode
		capabilities string
		want         string
	}{
		{"the system's daemon reads it", ModeSystem, "<capabilities>\n\n  <host>\n    <uuid>A6526E0C-3d7b-41da-85a5-1026100cd748</uuid>\n  </host></capabilities>", uuid},
		{"a session's daemon makes another one up at each start", ModeSession, "<capabilities><host><uuid>" + uuid + "</uuid></host></capabilities>", ""},
		{"a host without one", ModeSystem, "<capabilities><host/></capabilities>", ""},
		{"no XML", ModeSystem, "?", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			host := &fakeHost{answer: answers(map[string]reply{
				"nodeinfo":     {stdout: "CPU(s):              8\nMemory size:         5976880 KiB\n"},
				"capabilities": {stdout: row.capabilities},
			})}
			h, err := New(host.start, row.mode, Options{}).Probe(t.Context(), "kvm")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(h.SystemUUID).To(Equal(row.want))
		})
	}
}

func TestAVolumeThatIsListedWithoutAFileIsThereWithoutADefinition(t *testing.T) {
	for _, row := range []struct {
		name, stderr string
		want         Reason
	}{
		{"a copy that has just begun", "error: Storage volume not found: no storage vol with matching path '/p/a'\n", ""},
		{"a file that may not be read", "error: cannot open file '/p/a': Permission denied\n", PermissionDenied},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			host := &fakeHost{answer: answers(map[string]reply{
				"pool-list":   {stdout: "p\n"},
				"vol-list":    {stdout: " a   /p/a\n"},
				"vol-dumpxml": {stderr: row.stderr},
			})}
			obs, err := New(host.start, ModeSystem, Options{}).Observe(t.Context(), Query{Domain: "m1", Pools: []string{"p"}, Volumes: []VolumeRef{{"p", "a"}}})
			g.Expect(ReasonOf(err)).To(Equal(row.want), "%v", err)
			if row.want == "" {
				g.Expect(obs.Volumes).To(Equal(map[VolumeRef]string{{"p", "a"}: ""}))
			}
		})
	}
}
