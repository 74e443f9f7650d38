# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Where the Kubernetes API server is and who asks it: from options, kubeconfig files, or a Pod's service account.

Nothing is sent from here. Credential plugins of a kubeconfig are not run here either, so that an answer from a cache needs none.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import os
import typing as t

import yaml

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT_KUBECONFIG = "~/.kube/config"


class ConfigError(Exception):
    """A setting that cannot be used; the text names the setting, or the file and the entry in it."""


@dataclasses.dataclass
class Access:
    """How to reach an API server. Certificates and keys are PEM. repr() shows no secret."""

    server: str
    # Who asks, in words that are not secret; part of the key of a cache, since rights decide what is seen.
    who: str = "anonymous"
    ca: bytes | None = None
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    certificate: bytes | None = dataclasses.field(default=None, repr=False)
    key: bytes | None = dataclasses.field(default=None, repr=False)
    # The `exec` entry of a kubeconfig, and the directory that a relative command in it is relative to.
    plugin: dict[str, t.Any] | None = dataclasses.field(default=None, repr=False)
    directory: str = "."


def resolve(options: t.Mapping[str, t.Any], environ: t.Mapping[str, str], service_account: str = SERVICE_ACCOUNT) -> Access:
    """Find the API server. options are those of the inventory plugin of the same names; absent and None are the same.

    The order: host; kubeconfig, or the files in KUBECONFIG; ~/.kube/config if it exists; the service account of the Pod. Options
    for credentials and trust win over what a kubeconfig says.
    """
    files = _kubeconfigs(options, environ)
    if options.get("host"):
        access = Access(server=options["host"].rstrip("/"), who="options")
    elif files:
        access = _from_kubeconfig(files, options.get("context"))
    elif environ.get("KUBERNETES_SERVICE_HOST") and os.path.exists(os.path.join(service_account, "token")):
        access = _from_service_account(environ, service_account)
    else:
        raise ConfigError(
            "there is no Kubernetes API server to ask: set `host` with `api_key` (K8S_AUTH_HOST, K8S_AUTH_API_KEY), or `kubeconfig` "
            "(K8S_AUTH_KUBECONFIG, KUBECONFIG); there is no %s and this is no Pod" % DEFAULT_KUBECONFIG
        )
    _override(access, options)
    _check(access)
    return access


def _kubeconfigs(options: t.Mapping[str, t.Any], environ: t.Mapping[str, str]) -> list[str]:
    if options.get("kubeconfig"):
        return [os.path.expanduser(options["kubeconfig"])]
    if environ.get("KUBECONFIG"):
        # As kubectl does: files that do not exist are passed over, as long as one does.
        named = [path for path in environ["KUBECONFIG"].split(os.pathsep) if path]
        return [path for path in named if os.path.exists(path)] or named
    default = os.path.expanduser(DEFAULT_KUBECONFIG)
    return [default] if os.path.exists(default) else []


def _from_service_account(environ: t.Mapping[str, str], directory: str) -> Access:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    access = Access(server="https://%s:%s" % ("[%s]" % host if ":" in host else host, port), who="service account of the Pod")
    access.token = _read(os.path.join(directory, "token"), "the Pod's service account").decode().strip()
    access.ca = _read(os.path.join(directory, "ca.crt"), "the Pod's service account")
    return access


class _Entries:
    """The entries of several kubeconfigs: of two with the same name, the first counts."""

    def __init__(self, files: t.Sequence[str]) -> None:
        self.files = files
        self.current = ""
        self._found: dict[tuple[str, str], tuple[dict[str, t.Any], str]] = {}
        for path in files:
            self._load(path)

    def _load(self, path: str) -> None:
        try:
            content = yaml.safe_load(_read(path, "kubeconfig"))
        except yaml.YAMLError as e:
            mark = getattr(e, "problem_mark", None)
            # What the parser quotes may be part of a key.
            raise ConfigError("kubeconfig %s is not YAML%s" % (path, " (line %d)" % (mark.line + 1) if mark else "")) from None
        if not isinstance(content, dict):
            raise ConfigError("kubeconfig %s holds no mapping" % path)
        self.current = self.current or content.get("current-context") or ""
        for kind in ("cluster", "user", "context"):
            for entry in content.get(kind + "s") or []:
                if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                    self._found.setdefault((kind, entry["name"]), (entry.get(kind) or {}, os.path.dirname(os.path.abspath(path))))

    def get(self, kind: str, name: str) -> tuple[dict[str, t.Any], str]:
        """Return an entry, and the directory that its file names are relative to."""
        try:
            return self._found[kind, name]
        except KeyError:
            known = ", ".join(sorted(n for k, n in self._found if k == kind)) or "none"
            raise ConfigError("kubeconfig %s has no %s %r; it has: %s" % (os.pathsep.join(self.files), kind, name, known)) from None


def _from_kubeconfig(files: t.Sequence[str], context: str | None) -> Access:
    entries = _Entries(files)
    name = context or entries.current
    if not name:
        raise ConfigError("kubeconfig %s has no current-context; set `context`" % os.pathsep.join(files))
    chosen, _unused = entries.get("context", name)
    cluster, directory = entries.get("cluster", chosen.get("cluster") or "")
    if not cluster.get("server"):
        raise ConfigError("kubeconfig %s: cluster %r has no server" % (os.pathsep.join(files), chosen.get("cluster")))
    access = Access(server=cluster["server"].rstrip("/"), who="user %s" % chosen.get("user", "anonymous"))
    access.ca = _pem(cluster, "certificate-authority", directory)
    access.verify = cluster.get("insecure-skip-tls-verify") is not True
    access.tls_server_name = cluster.get("tls-server-name")
    access.proxy = cluster.get("proxy-url")
    if chosen.get("user"):
        _identify(access, *entries.get("user", chosen["user"]))
    return access


def _identify(access: Access, user: dict[str, t.Any], directory: str) -> None:
    for unsupported in ("auth-provider", "username"):
        if user.get(unsupported):
            raise ConfigError("kubeconfig, %s: %s is not supported; use a token, a client certificate or exec" % (access.who, unsupported))
    access.token = user.get("token")
    if not access.token and user.get("tokenFile"):
        access.token = _read(os.path.join(directory, user["tokenFile"]), "kubeconfig, %s, tokenFile" % access.who).decode().strip()
    access.certificate = _pem(user, "client-certificate", directory)
    access.key = _pem(user, "client-key", directory)
    access.plugin, access.directory = user.get("exec"), directory


def _override(access: Access, options: t.Mapping[str, t.Any]) -> None:
    if options.get("api_key"):
        access.token, access.plugin = options["api_key"].strip(), None
    if options.get("ca_cert"):
        access.ca = _read(os.path.expanduser(options["ca_cert"]), "ca_cert")
    if options.get("client_cert"):
        access.certificate, access.plugin = _read(os.path.expanduser(options["client_cert"]), "client_cert"), None
        access.key = None
    if options.get("client_key"):
        access.key = _read(os.path.expanduser(options["client_key"]), "client_key")
    if options.get("validate_certs") is not None:
        access.verify = options["validate_certs"]


def _check(access: Access) -> None:
    scheme = access.server.partition("://")[0]
    if scheme not in ("http", "https"):
        raise ConfigError("the address of the API server, %r, must begin with https://" % access.server)
    if scheme == "http" and (access.token or access.certificate or access.plugin):
        raise ConfigError("the address of the API server, %s, is not https://, and credentials are not sent in the clear" % access.server)
    if access.certificate and not access.key:
        raise ConfigError("there is a client certificate and no key for it: set `client_key` (K8S_AUTH_KEY_FILE), or client-key in the kubeconfig")
    if access.key and not access.certificate:
        raise ConfigError("there is a client key and no certificate for it: set `client_cert` (K8S_AUTH_CERT_FILE), or client-certificate in the kubeconfig")
    if access.token and any(c.isspace() or not c.isprintable() for c in access.token):
        raise ConfigError("the token holds a space, a line break or a control character (`api_key`, K8S_AUTH_API_KEY, or the kubeconfig)")


def _pem(entry: t.Mapping[str, t.Any], name: str, directory: str) -> bytes | None:
    """Return what NAME-data holds, or the file that NAME is."""
    if entry.get(name + "-data"):
        try:
            return base64.b64decode(entry[name + "-data"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise ConfigError("kubeconfig: %s-data is not base64" % name) from None
    return _read(os.path.join(directory, entry[name]), "kubeconfig, " + name) if entry.get(name) else None


def _read(path: str, setting: str) -> bytes:
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise ConfigError("%s: cannot read %s: %s" % (setting, path, e.strerror)) from None
