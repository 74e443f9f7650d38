// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/csr"
)

// resolveTimeout bounds how long the API server's names are looked up.
const resolveTimeout = 2 * time.Second

// apiService is the Service of the API server, and the EndpointSlice with the addresses of all its instances.
var apiService = client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// identities are the names and addresses of the API server, as the Pods, the operator and the machines of a cluster know it. A
// certificate for one of them, signed by the cluster's own authority, would let its holder be the API server.
func (r *Reconciler) identities(ctx context.Context, cluster *clusterv1.Cluster) (csr.Identities, error) {
	found := csr.Identities{Names: []string{"localhost"}}
	for _, suffix := range []string{"", ".default", ".default.svc", ".default.svc.cluster.local"} {
		found.Names = append(found.Names, apiService.Name+suffix)
	}
	if err := r.addServiceAddresses(ctx, &found); err != nil {
		return csr.Identities{}, err
	}
	hosts, err := r.endpointHosts(ctx, cluster)
	if err != nil {
		return csr.Identities{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	for _, host := range hosts {
		if address, err := netip.ParseAddr(host); err == nil {
			found.Addresses = append(found.Addresses, address.Unmap().WithZone(""))
			continue
		}
		found.Names = append(found.Names, host)
		addresses, err := r.Resolver.LookupNetIP(ctx, "ip", host)
		for _, address := range addresses {
			found.Addresses = append(found.Addresses, address.Unmap().WithZone(""))
		}
		var notFound *net.DNSError
		// A name without an address is nobody's address.
		if err != nil && (!errors.As(err, &notFound) || !notFound.IsNotFound) {
			found.Unknown = fmt.Sprintf("looking up %s: %v", host, err)
		}
	}
	return found, nil
}

// addServiceAddresses adds the address of the API server's Service and those of its instances.
func (r *Reconciler) addServiceAddresses(ctx context.Context, found *csr.Identities) error {
	service, slice := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	for _, object := range []client.Object{service, slice} {
		if err := r.APIReader.Get(ctx, apiService, object); err != nil {
			if !apierrors.IsNotFound(err) {
				return err
			}
			found.Unknown = fmt.Sprintf("%T %s does not exist", object, apiService)
		}
	}
	texts := append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...)
	for _, endpoint := range slice.Endpoints {
		texts = append(texts, endpoint.Addresses...)
	}
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			found.Addresses = append(found.Addresses, address.Unmap())
		}
	}
	return nil
}

// endpointHosts are the hosts at which the operator reaches the API server, and at which the machines of the cluster do.
func (r *Reconciler) endpointHosts(ctx context.Context, cluster *clusterv1.Cluster) ([]string, error) {
	var hosts []string
	if server, err := url.Parse(r.APIServer); err == nil && server.Hostname() != "" {
		hosts = append(hosts, server.Hostname())
	}
	if cluster == nil {
		return hosts, nil
	}
	hosts = append(hosts, cluster.Spec.ControlPlaneEndpoint.Host)
	if ref := cluster.Spec.InfrastructureRef; ref.Kind == "LibvirtCluster" && ref.APIGroup == infrav1.GroupVersion.Group {
		lc := &infrav1.LibvirtCluster{}
		err := client.IgnoreNotFound(r.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, lc))
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, lc.Spec.ControlPlaneEndpoint.Host)
	}
	return compact(hosts), nil
}

// compact leaves out empty texts and repetitions.
func compact(texts []string) []string {
	var kept []string
	seen := map[string]bool{"": true}
	for _, text := range texts {
		text = strings.Trim(text, "[]")
		if !seen[text] {
			seen[text] = true
			kept = append(kept, text)
		}
	}
	return kept
}

// egressIPList is the kind of OVN-Kubernetes' EgressIPs. Their status says which Node has which address.
var egressIPList = schema.GroupVersionKind{Group: "k8s.ovn.org", Version: "v1", Kind: "EgressIPList"}

// egressIPs are the egress IPs of a Node, where the cluster's network has any.
func (r *Reconciler) egressIPs(ctx context.Context, node string) (csr.EgressIPs, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(egressIPList)
	if err := r.APIReader.List(ctx, list); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return csr.EgressIPs{}, nil
		}
		return csr.EgressIPs{}, fmt.Errorf("listing EgressIPs: %w", err)
	}
	found := csr.EgressIPs{Served: true}
	for i := range list.Items {
		found.Assigned = append(found.Assigned, assigned(&list.Items[i], node)...)
	}
	return found, nil
}

// assigned are the addresses that an EgressIP's status gives to a Node.
func assigned(egressIP *unstructured.Unstructured, node string) []netip.Addr {
	items, _, err := unstructured.NestedSlice(egressIP.Object, "status", "items")
	if err != nil {
		return nil
	}
	var addresses []netip.Addr
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok || fields["node"] != node {
			continue
		}
		text, ok := fields["egressIP"].(string)
		if !ok {
			continue
		}
		if address, err := netip.ParseAddr(text); err == nil {
			addresses = append(addresses, address.Unmap())
		}
	}
	return addresses
}
