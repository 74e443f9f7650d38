# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
name: libvirthosts
short_description: Hosts from LibvirtHost objects
description:
  - Asks a Kubernetes API server for LibvirtHost objects (C(infrastructure.cluster.x-k8s.io/v1alpha1)) and makes a host of each, called NAME.NAMESPACE.
  - The configuration is a YAML file whose name ends in C(libvirthosts.yml) or C(libvirthosts.yaml).
  - Needs no Python package beside ansible-core, and no right but to list V(libvirthosts). Secrets are not read.
  - >-
    The account in an object's URI is the service account, which may not become root. It is in the variable C(caplv_user), not in
    C(ansible_user); the account that a playbook connects as comes from elsewhere, such as a machine credential in AWX or O(compose).
  - >-
    Values of objects are data and are never evaluated as templates. Annotations and messages of conditions, which can hold any text,
    do not get into the inventory.
extends_documentation_fragment:
  - constructed
  - inventory_cache
options:
  plugin:
    description: Must be V(caplv.caplv.libvirthosts).
    type: str
    required: true
    choices: [caplv.caplv.libvirthosts]
  host:
    description:
      - Address of the API server, such as V(https://api.example.com:6443).
      - Without it, O(kubeconfig) counts, then the files that the environment variable E(KUBECONFIG) names, then C(~/.kube/config), then the
        service account of the Pod.
    type: str
    env: [{name: K8S_AUTH_HOST}]
  api_key:
    description: Bearer token. Do not write it into the file; AWX and shells have environments for it.
    type: str
    env: [{name: K8S_AUTH_API_KEY}]
  ca_cert:
    description: File with the certificate authorities (PEM) that the API server is verified against.
    type: path
    aliases: [ssl_ca_cert]
    env: [{name: K8S_AUTH_SSL_CA_CERT}]
  client_cert:
    description: File with a client certificate (PEM).
    type: path
    env: [{name: K8S_AUTH_CERT_FILE}]
  client_key:
    description: File with the key (PEM, not encrypted) of O(client_cert).
    type: path
    env: [{name: K8S_AUTH_KEY_FILE}]
  validate_certs:
    description:
      - V(false) has any certificate of the API server accepted. Whoever is in between then gets the token.
      - Without it, what the kubeconfig says counts, and verification is on where that says nothing.
    type: bool
    aliases: [verify_ssl]
    env: [{name: K8S_AUTH_VERIFY_SSL}]
  kubeconfig:
    description: Path of a kubeconfig. Its users may have a token, a client certificate, or a credential plugin (C(exec)) that asks nobody anything.
    type: path
    env: [{name: K8S_AUTH_KUBECONFIG}]
  context:
    description: Context of the kubeconfig; its current-context by default.
    type: str
    env: [{name: K8S_AUTH_CONTEXT}]
  namespaces:
    description: Namespaces to list. All of them by default, which needs a ClusterRole.
    type: list
    elements: str
    default: []
  label_selector:
    description: Only objects with these labels, such as V(topology.kubernetes.io/zone in (a,b),!retired).
    type: str
    default: ''
  group_by:
    description:
      - V(mode) makes the groups C(system_hosts) and C(session_hosts); V(namespace) makes C(namespace_NAMESPACE).
      - V(readiness) makes C(ready), C(not_ready) and, for hosts that are not ready, C(reason_REASON) with the reason of the condition Ready.
      - V(label) makes C(label_KEY_VALUE) for each label.
      - What cannot be in the name of a group becomes an underscore.
    type: list
    elements: str
    choices: [mode, namespace, readiness, label]
    default: [mode, namespace, readiness, label]
  timeout:
    description: Seconds to wait for each answer.
    type: int
    default: 30
  page_size:
    description: How many objects are asked for at a time.
    type: int
    default: 500
author:
  - The CAPLV Authors (@caplv)
"""

EXAMPLES = r"""
# caplv.libvirthosts.yml: every host of the current context.
plugin: caplv.caplv.libvirthosts

---
# Two namespaces with one label, kept for ten minutes, connected to as an administrator.
plugin: caplv.caplv.libvirthosts
namespaces: [site-a, site-b]
label_selector: environment=production
cache: true
cache_plugin: jsonfile
cache_connection: ~/.cache/caplv-inventory
cache_timeout: 600
compose:
  ansible_user: "'admin'"
keyed_groups:
  - key: libvirthost_labels['topology.kubernetes.io/zone']
    prefix: site
"""

import hashlib
import json
import os
import typing as t

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.caplv.caplv.plugins.plugin_utils import credential, kubeapi, kubeconfig, libvirthost

# Changes with what libvirthost.record keeps, so that no cache of an earlier version is read.
_CACHE_FORMAT = "1"

_ACCESS_OPTIONS = ("host", "api_key", "ca_cert", "client_cert", "client_key", "validate_certs", "kubeconfig", "context")


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Asks for the objects, or has them from the cache, and puts hosts, variables and groups into the inventory."""

    NAME = "caplv.caplv.libvirthosts"

    def verify_file(self, path):
        return super().verify_file(path) and path.endswith(("libvirthosts.yml", "libvirthosts.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        self._check_options()
        try:
            objects = self._objects(path, cache)
        except (kubeconfig.ConfigError, kubeapi.ApiError) as e:
            raise AnsibleParserError(str(e)) from None
        for item in objects:
            try:
                self._add(libvirthost.describe(item, self.get_option("group_by")))
            except libvirthost.InvalidObject as e:
                # One object that is no use must not take the others away.
                if self.get_option("strict"):
                    raise AnsibleParserError(str(e)) from None
                self.display.warning("%s; it is left out" % e)

    def _check_options(self):
        unknown = sorted(set(self.get_option("group_by")) - set(libvirthost.GROUP_BY))
        if unknown:
            raise AnsibleParserError("group_by has %s; it can have %s" % (", ".join(map(repr, unknown)), ", ".join(libvirthost.GROUP_BY)))
        for name in ("timeout", "page_size"):
            if self.get_option(name) < 1:
                raise AnsibleParserError("%s is %d; it must be at least 1" % (name, self.get_option(name)))

    def _objects(self, path: str, cache: bool) -> list[dict[str, t.Any]]:
        access = kubeconfig.resolve({name: self.get_option(name) for name in _ACCESS_OPTIONS}, os.environ)
        if not self.get_option("cache"):
            return self._ask(access)
        key = self._key(path, access)
        if cache:
            try:
                return self._cache[key]
            except KeyError:
                pass
        objects = self._ask(access)
        self._cache[key] = objects
        return objects

    def _key(self, path: str, access: kubeconfig.Access) -> str:
        """Return the key of the cache: what was asked, where, and as whom."""
        asked = [_CACHE_FORMAT, access.server, access.who, sorted(self.get_option("namespaces")), self.get_option("label_selector")]
        return "%s_%s" % (self.get_cache_key(path), hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12])

    def _ask(self, access: kubeconfig.Access) -> list[dict[str, t.Any]]:
        if not access.verify:
            self.display.warning("The certificate of %s is not verified (validate_certs, K8S_AUTH_VERIFY_SSL, or the kubeconfig)" % access.server)
        timeout = self.get_option("timeout")
        client = kubeapi.Client(credential.complete(access, timeout), timeout)
        found = []
        for namespace in sorted(set(self.get_option("namespaces"))) or [None]:
            found += client.list(
                libvirthost.GROUP, libvirthost.VERSION, libvirthost.RESOURCE, namespace, self.get_option("label_selector"), self.get_option("page_size")
            )
        return [libvirthost.record(item) for item in found]

    def _add(self, host: libvirthost.Host) -> None:
        self.inventory.add_host(host.name)
        for name, value in host.variables.items():
            self.inventory.set_variable(host.name, name, wrap_var(value))
        for group in host.groups:
            self.inventory.add_child(self.inventory.add_group(group), host.name)
        strict = self.get_option("strict")
        variables = self.inventory.get_host(host.name).get_vars()
        self._set_composite_vars(self.get_option("compose"), variables, host.name, strict=strict)
        variables = self.inventory.get_host(host.name).get_vars()
        self._add_host_to_composed_groups(self.get_option("groups"), variables, host.name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, host.name, strict=strict)
