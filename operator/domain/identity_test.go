// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/uuid"
	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/domain"
)

func TestUUIDsAreOfOurNamespaceAndNeverChange(t *testing.T) {
	g := NewWithT(t)
	namespace := uuid.NewSHA1(uuid.NameSpaceURL, []byte(domain.XMLNamespace))
	g.Expect(domain.UUID(uid)).To(Equal(uuid.NewSHA1(namespace, []byte(uid)).String()))
	g.Expect(domain.UUID(uid)).To(Equal("d358dea2-9263-53ee-b1d6-78017f5f3c03"), "a changed UUID disowns every machine that exists")
	g.Expect(domain.PoolUUID(uid)).To(Equal("f74dfcc6-98f9-59c2-b7f3-0a7b48955d13"), "a changed UUID disowns every pool that exists")
	g.Expect(uuid.MustParse(domain.UUID(uid)).Version()).To(Equal(uuid.Version(5)))
	g.Expect(domain.UUID("another")).NotTo(Equal(domain.UUID(uid)))
}

func TestMACAddressesAreStableUnicastAndLocallyAdministered(t *testing.T) {
	g := NewWithT(t)
	g.Expect(domain.MAC(uid)).To(Equal("e2:6a:41:99:25:0a"), "a changed address cuts off machines that boot again")
	seen := map[string]bool{}
	for i := range 4096 {
		text := domain.MAC(fmt.Sprintf("uid-%d", i))
		mac, err := net.ParseMAC(text)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(mac).To(HaveLen(6))
		g.Expect(mac[0]&0x0f).To(Equal(byte(0x02)), text)
		g.Expect(strings.HasPrefix(text, "52:54:00")).To(BeFalse(), text)
		g.Expect(seen).NotTo(HaveKey(text))
		seen[text] = true
	}
}
