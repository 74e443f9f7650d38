// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caplv/caplv/operator/csr"
)

const (
	// requestByNode lists pending requests that are in order by nodeKey.
	requestByNode = "pending.node"
	// requestPending lists pending requests for kubelets' certificates; its one value is isPending.
	requestPending = "pending"
	isPending      = "true"
	// nodeByAddress lists Nodes by each of their addresses.
	nodeByAddress = "status.addresses.address"
)

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &certificatesv1.CertificateSigningRequest{}, requestByNode, nodeOfRequest); err != nil {
		return err
	}
	if err := indexer.IndexField(ctx, &certificatesv1.CertificateSigningRequest{}, requestPending, func(o client.Object) []string {
		if request, ok := o.(*certificatesv1.CertificateSigningRequest); ok && isLoad(request) {
			return []string{isPending}
		}
		return nil
	}); err != nil {
		return err
	}
	return indexer.IndexField(ctx, &corev1.Node{}, nodeByAddress, addressesOfNode)
}

// isLoad returns whether a request for a kubelet's certificate is pending, whoever may approve it.
func isLoad(request *certificatesv1.CertificateSigningRequest) bool {
	known, _ := csr.Signer(request.Spec.SignerName)
	return known && csr.Pending(request)
}

func nodeKey(node string, serving bool) string { return node + "/" + strconv.FormatBool(serving) }

func nodeOfRequest(o client.Object) []string {
	object, ok := o.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return nil
	}
	request, _ := csr.Parse(object)
	if request == nil {
		return nil
	}
	return []string{nodeKey(request.NodeName, request.Serving)}
}

func addressesOfNode(o client.Object) []string {
	node, ok := o.(*corev1.Node)
	if !ok {
		return nil
	}
	var all []string
	for _, a := range node.Status.Addresses {
		if address, err := netip.ParseAddr(a.Address); err == nil {
			all = append(all, address.Unmap().String())
		}
	}
	return all
}

// pendingFor are the pending requests for one kind of certificate of a node. They are the cache's own: to be read only.
func (r *Reconciler) pendingFor(ctx context.Context, node string, serving bool) ([]certificatesv1.CertificateSigningRequest, error) {
	requests := &certificatesv1.CertificateSigningRequestList{}
	err := r.Client.List(ctx, requests, client.MatchingFields{requestByNode: nodeKey(node, serving)}, client.UnsafeDisableDeepCopy)
	return requests.Items, err
}

// newerThan returns the newest pending request for the same certificate, if that is not the request itself.
func (r *Reconciler) newerThan(ctx context.Context, request *csr.Request) (string, error) {
	requests, err := r.pendingFor(ctx, request.NodeName, request.Serving)
	if err != nil {
		return "", err
	}
	newest, at := request.Name, request.Created
	for i := range requests {
		name, created := requests[i].Name, requests[i].CreationTimestamp.Time
		// Creation is counted in seconds; the name makes sure that one of two is the newer one.
		if created.After(at) || created.Equal(at) && name > newest {
			newest, at = name, created
		}
	}
	if newest == request.Name {
		return "", nil
	}
	return newest, nil
}

// creations are when the pending requests were made.
func (r *Reconciler) creations(ctx context.Context) ([]time.Time, error) {
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := r.Client.List(ctx, requests, client.MatchingFields{requestPending: isPending}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	created := make([]time.Time, 0, len(requests.Items))
	for i := range requests.Items {
		created = append(created, requests.Items[i].CreationTimestamp.Time)
	}
	return created, nil
}
