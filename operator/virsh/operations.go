// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"encoding/xml"
	"errors"
	"strconv"
	"strings"
)

// xmlFile is the file in the script's directory that definitions travel in.
const xmlFile = "definition.xml"

// DefineDomain implements Client.
func (s *Shell) DefineDomain(ctx context.Context, xml string) error {
	return s.change(ctx, cmd("define", "", xmlFile), xml, rival(DomainExists, xml, cmd("list", "--all --name"), "domuuid"))
}

// StartDomain implements Client.
func (s *Shell) StartDomain(ctx context.Context, name string) error {
	return s.change(ctx, domainCmd("start", "", name), "", present(cmd("list", "--name"), name))
}

// ResumeDomain implements Client.
func (s *Shell) ResumeDomain(ctx context.Context, name string) error {
	return s.change(ctx, domainCmd("resume", "", name), "", present(cmd("list", "--state-running --name"), name))
}

// ShutdownDomain implements Client.
func (s *Shell) ShutdownDomain(ctx context.Context, name string) error {
	return s.change(ctx, domainCmd("shutdown", "--mode acpi", name), "", absent(cmd("list", "--name"), name))
}

// DestroyDomain implements Client.
func (s *Shell) DestroyDomain(ctx context.Context, name string) error {
	return s.change(ctx, domainCmd("destroy", "", name), "", absent(cmd("list", "--name"), name))
}

// UndefineDomain implements Client.
func (s *Shell) UndefineDomain(ctx context.Context, name string) error {
	const flags = "--nvram --managed-save --snapshots-metadata --checkpoints-metadata"
	err := s.change(ctx, domainCmd("undefine", flags+" --tpm", name), "", absent(cmd("list", "--all --name"), name))
	if ReasonOf(err) == optionUnknown {
		// virsh has the option since libvirt 8.9; before, libvirt kept nothing of a TPM's state.
		err = s.change(ctx, domainCmd("undefine", flags, name), "", absent(cmd("list", "--all --name"), name))
	}
	return err
}

// DefinePool implements Client.
func (s *Shell) DefinePool(ctx context.Context, xml string) error {
	return s.change(ctx, cmd("pool-define", "", xmlFile), xml, rival(PoolExists, xml, cmd("pool-list", "--all --name"), "pool-uuid"))
}

// StartPool implements Client.
func (s *Shell) StartPool(ctx context.Context, name string) error {
	return s.change(ctx, cmd("pool-start", "", name), "", present(cmd("pool-list", "--name"), name))
}

// RefreshPool implements Client.
func (s *Shell) RefreshPool(ctx context.Context, name string) error {
	return s.change(ctx, cmd("pool-refresh", "", name), "")
}

// DestroyPool implements Client.
func (s *Shell) DestroyPool(ctx context.Context, name string) error {
	return s.change(ctx, cmd("pool-destroy", "", name), "", absent(cmd("pool-list", "--name"), name))
}

// UndefinePool implements Client.
func (s *Shell) UndefinePool(ctx context.Context, name string) error {
	return s.change(ctx, cmd("pool-undefine", "", name), "", absent(cmd("pool-list", "--all --name"), name))
}

// CreateVolume implements Client.
func (s *Shell) CreateVolume(ctx context.Context, pool, xml string) error {
	return s.change(ctx, cmd("vol-create", "", pool, xmlFile), xml, rival(VolumeExists, xml, cmd("vol-list", "", pool), ""))
}

// CloneVolume implements Client.
func (s *Shell) CloneVolume(ctx context.Context, pool, xml string, fromPool, fromVolume string) error {
	return s.change(ctx, cmd("vol-create-from", "--inputpool", fromPool, pool, xmlFile, fromVolume), xml,
		rival(VolumeExists, xml, cmd("vol-list", "", pool), ""))
}

// ResizeVolume implements Client.
func (s *Shell) ResizeVolume(ctx context.Context, pool, name string, bytes uint64) error {
	return s.change(ctx, cmd("vol-resize", "--pool", pool, name, strconv.FormatUint(bytes, 10)), "")
}

// DeleteVolume implements Client.
func (s *Shell) DeleteVolume(ctx context.Context, pool, name string) error {
	return s.change(ctx, cmd("vol-delete", "--pool", pool, name), "", absent(cmd("vol-list", "", pool), name))
}

// judge looks on the host at what became of a change that failed. It returns the failure as it is to be reported, nil if
// the change has its effect all the same. err is an error of the process.
type judge func(ctx context.Context, p *process, failure error) (verdict, err error)

// present finds that a failure is none when the name is listed, as a domain that runs already is.
func present(listing command, name string) judge { return goal(listing, name, true) }

// absent finds that a failure is none when the name is not listed, as a domain that is gone already is not.
func absent(listing command, name string) judge { return goal(listing, name, false) }

func goal(listing command, name string, want bool) judge {
	return func(ctx context.Context, p *process, failure error) (error, error) {
		found, known, err := p.lookUp(ctx, listing, name)
		if err != nil || !known || found != want {
			return failure, err
		}
		return nil, nil
	}
}

// rival gives a failure without a known cause its reason when another object has the name that xml defines: one with
// another UUID, which the verb uuid prints, or any if there is no such verb.
func rival(reason Reason, definition string, listing command, uuid string) judge {
	return func(ctx context.Context, p *process, failure error) (error, error) {
		var wanted struct {
			Name string `xml:"name"`
			UUID string `xml:"uuid"`
		}
		e, ok := errors.AsType[*Error](failure)
		if !ok || e.Reason != Unknown || xml.Unmarshal([]byte(definition), &wanted) != nil {
			return failure, nil
		}
		found, known, err := p.lookUp(ctx, listing, wanted.Name)
		if err != nil || !known || !found {
			return failure, err
		}
		if uuid != "" {
			c := cmd(uuid, "", wanted.Name)
			outputs, err := p.do(ctx, c)
			if err != nil || outputs[0].failure(c) != nil || strings.EqualFold(strings.TrimSpace(outputs[0].stdout), wanted.UUID) {
				return failure, err
			}
		}
		return &Error{Reason: reason, Command: e.Command, Message: e.Message}, nil
	}
}

// lookUp says whether a listing holds a name. It is not known if the listing fails.
func (p *process) lookUp(ctx context.Context, listing command, name string) (found, known bool, err error) {
	outputs, err := p.do(ctx, listing)
	if err != nil || outputs[0].failure(listing) != nil {
		return false, false, err
	}
	if listing.verb == "vol-list" {
		return listsVolume(outputs[0].stdout, name), true, nil
	}
	return lists(outputs[0].stdout, name), true, nil
}
