// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package ansible

// RolesVersion is the version of the roles that belong to this operator, that of galaxy.yml.
const RolesVersion = "0.1.0"
