// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/bootstrap"
)

const (
	bootstrapValueKey  = "value"
	bootstrapFormatKey = "format"
)

// secretFormats are the names that bootstrap providers have for each format in the Secret's key "format".
var secretFormats = map[infrav1.BootstrapFormat][]string{
	infrav1.BootstrapFormatIgnition:  {"ignition"},
	infrav1.BootstrapFormatCloudInit: {"cloud-config", "cloud-init"},
}

// phaseBootstrap reads the bootstrap data and writes the machine's identity into it. A machine that has run does not
// need it any more.
func (r *Reconciler) phaseBootstrap(ctx context.Context, s *scope) error {
	if s.provisioned() {
		return nil
	}
	s.bootstrapChecked = true
	data, problem, err := r.readBootstrapData(ctx, s)
	if err != nil {
		return err
	}
	if problem == nil {
		s.desired.BootstrapData, problem = s.injectIdentity(data)
	}
	if problem != nil {
		s.bootstrapProblem = problem
		return errStop
	}
	return nil
}

func (r *Reconciler) readBootstrapData(ctx context.Context, s *scope) ([]byte, *Blocker, error) {
	name := ptr.Deref(s.owner.Spec.Bootstrap.DataSecretName, "")
	if name == "" {
		return nil, &Blocker{infrav1.WaitingForBootstrapDataReason, fmt.Sprintf("Machine %q names no bootstrap data Secret yet", s.owner.Name)}, nil
	}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: name}
	secret := &corev1.Secret{}
	if err := r.APIReader.Get(ctx, key, secret); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("reading bootstrap data Secret %s: %w", key, err)
		}
		return nil, &Blocker{infrav1.WaitingForBootstrapDataReason, fmt.Sprintf("bootstrap data Secret %s does not exist", key)}, nil
	}
	if format := string(secret.Data[bootstrapFormatKey]); format != "" && !slices.Contains(secretFormats[s.machine.Spec.BootstrapFormat], format) {
		return nil, &Blocker{infrav1.InvalidBootstrapDataReason, fmt.Sprintf(
			"bootstrap data Secret %s has the format %q and spec.bootstrapFormat is %q; they must agree", key, format, s.machine.Spec.BootstrapFormat)}, nil
	}
	data := secret.Data[bootstrapValueKey]
	if len(data) == 0 {
		return nil, &Blocker{infrav1.InvalidBootstrapDataReason, fmt.Sprintf(
			"bootstrap data Secret %s has no data under the key %q; the bootstrap provider must put them there", key, bootstrapValueKey)}, nil
	}
	return data, nil, nil
}

func (s *scope) injectIdentity(data []byte) ([]byte, *Blocker) {
	network, err := networkOf(s.machine)
	if err != nil {
		return nil, &Blocker{infrav1.InvalidBootstrapDataReason, err.Error()}
	}
	id := bootstrap.Identity{Hostname: s.desired.Name, InstanceID: s.desired.UUID, ProviderID: providerID(s.machine), Network: network}
	var out []byte
	switch {
	case s.machine.Spec.BootstrapFormat == infrav1.BootstrapFormatCloudInit:
		out, err = bootstrap.CloudInit(data, id)
	case s.bootsDirectly() || s.machine.Spec.IgnitionDelivery == infrav1.IgnitionDeliveryPlain:
		// A disk is read in linear time.
		out, err = bootstrap.Ignition(data, id, bootstrap.Plain)
	default:
		out, err = bootstrap.Ignition(data, id, bootstrap.Compact)
	}
	if err != nil {
		return nil, &Blocker{infrav1.InvalidBootstrapDataReason, err.Error()}
	}
	return out, nil
}

// networkOf turns the spec's network into addresses. The API server has checked their form; a mistake is named all the
// same.
func networkOf(lm *infrav1.LibvirtMachine) (bootstrap.Network, error) {
	spec := lm.Spec.Network
	n := bootstrap.Network{MAC: macOf(lm)}
	for _, a := range spec.Addresses {
		prefix, err := netip.ParsePrefix(string(a))
		if err != nil {
			return n, fmt.Errorf("spec.network.addresses: %w", err)
		}
		n.Addresses = append(n.Addresses, prefix)
	}
	for _, field := range []struct {
		name      string
		addresses []infrav1.IPAddress
		into      *[]netip.Addr
	}{
		{"gateway", nonEmpty(spec.Gateway), &n.Gateways},
		{"ipv6Gateway", nonEmpty(spec.IPv6Gateway), &n.Gateways},
		{"dns.nameservers", spec.DNS.Nameservers, &n.Nameservers},
	} {
		for _, a := range field.addresses {
			addr, err := netip.ParseAddr(string(a))
			if err != nil {
				return n, fmt.Errorf("spec.network.%s: %w", field.name, err)
			}
			*field.into = append(*field.into, addr)
		}
	}
	for _, d := range spec.DNS.SearchDomains {
		n.SearchDomains = append(n.SearchDomains, string(d))
	}
	return n, nil
}

func nonEmpty(a infrav1.IPAddress) []infrav1.IPAddress {
	if a == "" {
		return nil
	}
	return []infrav1.IPAddress{a}
}
