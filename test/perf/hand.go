// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/naming"
	"github.com/caplv/caplv/test/bench/host"
)

const (
	// handName is the domain that is made by hand.
	handName  = "byhand"
	tmpfsSize = "256M"
	virshCall = "virsh -q -c qemu:///system "
	helper    = "sudo -n /usr/libexec/caplv/caplv-hostctl"
	began     = "began"
)

// hand is the SSH connection that a person would use.
type hand struct {
	client *ssh.Client
	// dialed is how long connecting took.
	dialed time.Duration
}

func dialByHand(ctx context.Context, address, fingerprint string, key []byte) (*hand, error) {
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: host.Account, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if seen := ssh.FingerprintSHA256(key); seen != fingerprint {
				return fmt.Errorf("the host's key is %s and not %s", seen, fingerprint)
			}
			return nil
		},
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &hand{client: ssh.NewClient(c, channels, requests), dialed: time.Since(start)}, nil
}

// script runs a bash script over the connection and returns its output.
func (h *hand) script(text string) (string, error) {
	session, err := h.client.NewSession()
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }()
	var stdout, stderr bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = strings.NewReader(text), &stdout, &stderr
	if err := session.Run("exec bash -s"); err != nil {
		return "", fmt.Errorf("by hand: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// recipe is everything that a machine is made of, under the name handName.
type recipe struct {
	ephemeral                  bool
	pool                       string
	domainXML, volumeXML       string
	poolXML, stage, removeFile string
}

// copyRecipe takes the definitions from a machine that the operator has made.
func (b *bench) copyRecipe(ctx context.Context, name string, ephemeral bool) (recipe, error) {
	dump, err := b.host.Exec(ctx, "virsh", "-q", "-c", "qemu:///system", "dumpxml", "--inactive", name)
	if err != nil {
		return recipe{}, err
	}
	var seen struct {
		UUID string `xml:"uuid"`
	}
	if err := xml.Unmarshal([]byte(dump), &seen); err != nil || seen.UUID == "" {
		return recipe{}, errors.Join(fmt.Errorf("the XML of domain %s has no UUID", name), err)
	}
	config, err := b.host.Exec(ctx, "cat", hostctl.Directory(name)+"/ignition.json")
	if err != nil {
		return recipe{}, err
	}
	r := recipe{ephemeral: ephemeral, pool: "default"}
	r.domainXML = strings.NewReplacer(name, handName, seen.UUID, uuid.NewString()).Replace(dump)
	if r.volumeXML, err = domain.VolumeXML(domain.VolumeSpec{
		Name: naming.RootVolume(handName), CapacityBytes: rootBytes, Backing: &domain.Backing{Path: imagePath, Format: "qcow2"},
	}); err != nil {
		return recipe{}, err
	}
	keys := "name=" + handName + "\nephemeral=no\n"
	if ephemeral {
		r.pool = handName
		keys = "name=" + handName + "\nephemeral=yes\nsize=" + tmpfsSize + "\n"
		if r.poolXML, err = domain.PoolXML(handName, uuid.NewString(), hostctl.Directory(handName)); err != nil {
			return recipe{}, err
		}
	}
	digest := sha256.Sum256([]byte(config))
	r.stage = fmt.Sprintf("caplv-hostctl/1\nstage\n%sfile=ignition.json\nbytes=%d\nsha256=%s\n\n%s",
		keys, len(config), hex.EncodeToString(digest[:]), config)
	r.removeFile = "caplv-hostctl/1\nremove\nname=" + handName + "\n\n"
	return r, nil
}

// handStep is a command of virsh.
type handStep struct{ step, command string }

func (r recipe) virshSteps() (define handStep, others []handStep) {
	if r.ephemeral {
		others = append(others, handStep{"DefinePool", "pool-define pool.xml"}, handStep{"StartPool", "pool-start " + r.pool})
	}
	return handStep{"DefineDomain", "define domain.xml"}, append(others,
		handStep{"CreateVolume", "vol-create " + r.pool + " volume.xml"},
		handStep{"StartDomain", "start " + handName},
	)
}

// create is the script that makes the machine: one virsh for each command, with the time after each; or a single virsh
// for all.
func (r recipe) create(once bool) string {
	var s strings.Builder
	s.WriteString("set -eu\nexport LC_ALL=C\nd=$(mktemp -d /dev/shm/byhand.XXXXXX)\ntrap 'rm -rf \"$d\"' EXIT\ncd \"$d\"\n" +
		"note() { printf '%s %s\\n' \"$1\" \"$EPOCHREALTIME\"; }\nnote " + began + "\n")
	for _, f := range []struct{ name, content string }{
		{"domain.xml", r.domainXML}, {"volume.xml", r.volumeXML}, {"pool.xml", r.poolXML},
	} {
		fmt.Fprintf(&s, "cat >%s <<'END-OF-FILE'\n%s\nEND-OF-FILE\n", f.name, f.content)
	}
	stage := helper + " <<'END-OF-FILE' >/dev/null\n" + r.stage + "\nEND-OF-FILE\nnote StageDirectory\n"
	define, others := r.virshSteps()
	if once {
		s.WriteString(stage + virshCall + "<<'END-OF-FILE' >/dev/null\n" + define.command + "\n")
		for _, o := range others {
			s.WriteString(o.command + "\n")
		}
		s.WriteString("END-OF-FILE\nnote virsh\n")
		return s.String()
	}
	call := func(h handStep) {
		s.WriteString(virshCall + h.command + " </dev/null >/dev/null\nnote " + h.step + "\n")
	}
	call(define)
	s.WriteString(stage)
	for _, o := range others {
		call(o)
	}
	return s.String()
}

func (r recipe) remove() string {
	s := "set -eu\n" + virshCall + "destroy " + handName + " </dev/null >/dev/null\n" +
		virshCall + "vol-delete --pool " + r.pool + " " + naming.RootVolume(handName) + " </dev/null >/dev/null\n"
	if r.ephemeral {
		s += virshCall + "pool-destroy " + r.pool + " </dev/null >/dev/null\n" + virshCall + "pool-undefine " + r.pool + " </dev/null >/dev/null\n"
	}
	return s + helper + " <<'END-OF-FILE' >/dev/null\n" + r.removeFile + "\nEND-OF-FILE\n" + virshCall + "undefine " + handName + " </dev/null >/dev/null\n"
}

// byHand makes the machine, checks that it runs, and removes it.
func (b *bench) byHand(_ context.Context, r recipe, once bool) (round, error) {
	start := time.Now()
	out, err := b.hand.script(r.create(once))
	if err != nil {
		return round{}, err
	}
	made := round{total: time.Since(start)}
	if made.steps, err = readNotes(out); err != nil {
		return round{}, err
	}
	state, err := b.hand.script(virshCall + "domstate " + handName + " </dev/null\n")
	if err != nil {
		return round{}, err
	}
	if strings.TrimSpace(state) != "running" {
		return round{}, fmt.Errorf("by hand: the domain is %q", strings.TrimSpace(state))
	}
	_, err = b.hand.script(r.remove())
	return made, err
}

// readNotes turns lines of a name and a time in seconds into how long each step took.
func readNotes(out string) (map[string]time.Duration, error) {
	steps := map[string]time.Duration{}
	last := 0.0
	for line := range strings.Lines(out) {
		name, at, _ := strings.Cut(strings.TrimSpace(line), " ")
		t, err := strconv.ParseFloat(at, 64)
		if err != nil {
			return nil, fmt.Errorf("by hand: %q is not a step and a time", line)
		}
		if name != began {
			steps[name] = seconds(t - last)
		}
		last = t
	}
	return steps, nil
}
