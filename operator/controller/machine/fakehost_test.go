// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"libvirt.org/go/libvirtxml"

	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/virsh"
)

// fakeHost is a host in memory, with libvirt's rules as far as plans depend on them. It speaks the interface that the
// reconciler uses; the end-to-end tests use a real one.
type fakeHost struct {
	hosts.Host

	domains     map[string]*fakeDomain
	pools       map[string]*fakePool
	networks    map[string]bool
	directories map[string]hostctl.StageRequest
	// steps lists what was done; failAt makes the step of this index fail before it has an effect.
	steps  []string
	failAt int
	mu     sync.Mutex // It guards steps for who looks on.
	// stubborn guests do not listen to their power button.
	stubborn bool
	// cloning, if it is not nil, holds up copies until it is closed.
	cloning chan struct{}
}

type fakeDomain struct {
	xml     string
	running bool
	// other is what is observed instead of running or shut off; resuming the domain ends it.
	other *virsh.DomainInfo
}

type fakePool struct {
	xml     string
	active  bool
	volumes map[string]string
	// lost says that the pool's directory is gone.
	lost bool
	// unlisted are volumes that only a refresh brings to light.
	unlisted map[string]string
}

var errInjected = errors.New("injected")

const (
	baseVolumeXML = `<volume type='file'><name>base.qcow2</name><capacity unit='bytes'>1048576</capacity><target><path>/images/base.qcow2</path><format type='qcow2'/></target></volume>`
	defaultPool   = `<pool type='dir'><name>default</name><uuid>11111111-1111-1111-1111-111111111111</uuid><target><path>/images</path></target></pool>`
)

func newFakeHost() *fakeHost {
	return &fakeHost{
		domains:     map[string]*fakeDomain{},
		pools:       map[string]*fakePool{"default": {xml: defaultPool, active: true, volumes: map[string]string{"base.qcow2": baseVolumeXML}}},
		networks:    map[string]bool{},
		directories: map[string]hostctl.StageRequest{},
		failAt:      -1,
	}
}

func (f *fakeHost) step(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failAt == len(f.steps) {
		f.failAt = -1
		return errInjected
	}
	f.steps = append(f.steps, what)
	return nil
}

// did lists what was done, while more may be done.
func (f *fakeHost) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steps)
}

func (f *fakeHost) Observe(_ context.Context, q virsh.Query) (virsh.Observation, error) {
	obs := virsh.Observation{Pools: map[string]virsh.PoolInfo{}, Volumes: map[virsh.VolumeRef]string{}, Networks: map[string]bool{}}
	if d := f.domains[q.Domain]; d != nil {
		obs.Domain = &virsh.DomainInfo{XML: d.xml, State: virsh.StateShutOff, Reason: "unknown"}
		if d.running {
			obs.Domain.State = virsh.StateRunning
		}
		if d.other != nil {
			obs.Domain = new(*d.other)
			obs.Domain.XML = d.xml
		}
	}
	for _, name := range q.Pools {
		if p := f.pools[name]; p != nil {
			obs.Pools[name] = virsh.PoolInfo{Active: p.active, XML: p.xml}
		}
	}
	for _, ref := range q.Volumes {
		if p := f.pools[ref.Pool]; p != nil && p.active {
			if xml, ok := p.volumes[ref.Name]; ok {
				obs.Volumes[ref] = xml
			}
		}
	}
	for _, name := range q.Networks {
		if active, ok := f.networks[name]; ok {
			obs.Networks[name] = active
		}
	}
	return obs, nil
}

func (f *fakeHost) DefineDomain(_ context.Context, xml string) error {
	seen, err := domain.Parse(xml)
	if err != nil {
		return err
	}
	if err := f.step("define " + seen.Name); err != nil {
		return err
	}
	if old := f.domains[seen.Name]; old != nil {
		// As libvirt does: the same UUID replaces the definition, another one is refused.
		if was, err := domain.Parse(old.xml); err != nil || was.UUID != seen.UUID {
			return &virsh.Error{Reason: virsh.DomainExists, Command: "define", Message: "already exists with uuid"}
		}
		old.xml = xml
		return nil
	}
	f.domains[seen.Name] = &fakeDomain{xml: xml}
	return nil
}

func (f *fakeHost) StartDomain(_ context.Context, name string) error {
	if err := f.step("start " + name); err != nil {
		return err
	}
	seen, err := domain.Parse(f.domains[name].xml)
	if err != nil {
		return err
	}
	for _, disk := range seen.Disks {
		if disk.Volume == "" {
			continue // A file, such as the seed of cloud-init.
		}
		if p := f.pools[disk.Pool]; p == nil || !p.active || p.volumes[disk.Volume] == "" {
			return fmt.Errorf("disk %s/%s is missing", disk.Pool, disk.Volume)
		}
	}
	if _, staged := f.directories[name]; !staged {
		return fmt.Errorf("no directory of %s is staged", name)
	}
	f.domains[name].running, f.domains[name].other = true, nil
	return nil
}

func (f *fakeHost) ResumeDomain(_ context.Context, name string) error {
	if err := f.step("resume " + name); err != nil {
		return err
	}
	f.domains[name].running, f.domains[name].other = true, nil
	return nil
}

func (f *fakeHost) ShutdownDomain(_ context.Context, name string) error {
	if err := f.step("shutdown " + name); err != nil {
		return err
	}
	f.domains[name].running = f.stubborn
	return nil
}

func (f *fakeHost) DestroyDomain(_ context.Context, name string) error {
	if err := f.step("destroy " + name); err != nil {
		return err
	}
	f.domains[name].running, f.domains[name].other = false, nil
	return nil
}

func (f *fakeHost) UndefineDomain(_ context.Context, name string) error {
	if err := f.step("undefine " + name); err != nil {
		return err
	}
	delete(f.domains, name)
	return nil
}

func (f *fakeHost) DefinePool(_ context.Context, xml string) error {
	seen, err := domain.ParsePool(xml)
	if err != nil {
		return err
	}
	if err := f.step("define pool " + seen.Name); err != nil {
		return err
	}
	f.pools[seen.Name] = &fakePool{xml: xml, volumes: map[string]string{}}
	return nil
}

func (f *fakeHost) StartPool(_ context.Context, name string) error {
	if err := f.step("start pool " + name); err != nil {
		return err
	}
	if f.pools[name].lost {
		return &virsh.Error{Reason: virsh.FileNotFound, Command: "pool-start", Message: "cannot open directory"}
	}
	f.pools[name].active = true
	return nil
}

func (f *fakeHost) RefreshPool(_ context.Context, name string) error {
	if err := f.step("refresh pool " + name); err != nil {
		return err
	}
	maps.Copy(f.pools[name].volumes, f.pools[name].unlisted)
	return nil
}

func (f *fakeHost) DestroyPool(_ context.Context, name string) error {
	if err := f.step("destroy pool " + name); err != nil {
		return err
	}
	f.pools[name].active = false
	return nil
}

func (f *fakeHost) UndefinePool(_ context.Context, name string) error {
	if err := f.step("undefine pool " + name); err != nil {
		return err
	}
	delete(f.pools, name)
	return nil
}

func (f *fakeHost) CreateVolume(_ context.Context, pool, xml string) error {
	var seen libvirtxml.StorageVolume
	if err := seen.Unmarshal(xml); err != nil {
		return err
	}
	if err := f.step("create volume " + pool + "/" + seen.Name); err != nil {
		return err
	}
	if f.pools[pool].volumes[seen.Name] != "" {
		return fmt.Errorf("volume %s exists", seen.Name)
	}
	f.pools[pool].volumes[seen.Name] = xml
	return nil
}

// CloneVolume leaves a torso when it fails, as libvirt does when it is killed.
func (f *fakeHost) CloneVolume(ctx context.Context, pool, xml, fromPool, fromVolume string) error {
	var seen libvirtxml.StorageVolume
	if err := seen.Unmarshal(xml); err != nil {
		return err
	}
	if f.pools[fromPool].volumes[fromVolume] == "" {
		return &virsh.Error{Reason: virsh.VolumeNotFound, Command: "vol-create-from", Message: "no storage vol"}
	}
	if f.pools[pool].volumes[seen.Name] != "" {
		return &virsh.Error{Reason: virsh.VolumeExists, Command: "vol-create-from", Message: "exists already"}
	}
	if f.cloning != nil {
		select {
		case <-f.cloning:
		case <-ctx.Done():
			f.pools[pool].volumes[seen.Name] = volumeXML(seen.Name, 1)
			return ctx.Err()
		}
	}
	if err := f.step("clone " + fromPool + "/" + fromVolume + " to " + pool + "/" + seen.Name); err != nil {
		f.pools[pool].volumes[seen.Name] = volumeXML(seen.Name, 1)
		return err
	}
	f.pools[pool].volumes[seen.Name] = volumeXML(seen.Name, seen.Capacity.Value)
	return nil
}

func (f *fakeHost) ResizeVolume(_ context.Context, pool, name string, bytes uint64) error {
	if err := f.step(fmt.Sprintf("resize volume %s/%s to %d", pool, name, bytes)); err != nil {
		return err
	}
	f.pools[pool].volumes[name] = volumeXML(name, bytes)
	return nil
}

// withPath completes a definition as a host would: with the volume's path.
func withPath(definition string) string {
	var v libvirtxml.StorageVolume
	if err := v.Unmarshal(definition); err != nil {
		return err.Error()
	}
	v.Target.Path = "/images/" + v.Name
	out, err := v.Marshal()
	if err != nil {
		return err.Error()
	}
	return out
}

func volumeXML(name string, bytes uint64) string {
	return fmt.Sprintf(`<volume type='file'><name>%s</name><capacity unit='bytes'>%d</capacity><target><path>/images/%[1]s</path><format type='qcow2'/></target></volume>`, name, bytes)
}

func (f *fakeHost) DeleteVolume(_ context.Context, pool, name string) error {
	if err := f.step("delete volume " + pool + "/" + name); err != nil {
		return err
	}
	delete(f.pools[pool].volumes, name)
	return nil
}

func (f *fakeHost) Stage(_ context.Context, r hostctl.StageRequest) (bool, error) {
	if err := f.step("stage " + r.Name); err != nil {
		return false, err
	}
	_, existed := f.directories[r.Name]
	f.directories[r.Name] = r
	return !existed, nil
}

func (f *fakeHost) RemoveDirectory(_ context.Context, name string) error {
	if err := f.step("remove directory " + name); err != nil {
		return err
	}
	if p := f.pools[name]; p != nil && p.active && strings.Contains(p.xml, hostctl.Directory(name)) {
		return errors.New("busy")
	}
	delete(f.directories, name)
	return nil
}

// inventory lists everything on the host, to be compared.
func (f *fakeHost) inventory() []string {
	var all []string
	for name := range f.domains {
		all = append(all, "domain "+name)
	}
	for name, p := range f.pools {
		all = append(all, fmt.Sprintf("pool %s active=%v", name, p.active))
		for volume := range p.volumes {
			all = append(all, "volume "+name+"/"+volume)
		}
	}
	for name := range f.directories {
		all = append(all, "directory "+name)
	}
	slices.Sort(all)
	return all
}
