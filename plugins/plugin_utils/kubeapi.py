# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Lists objects of a Kubernetes API server with nothing but Python's standard library."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import tempfile
import typing as t
import urllib.error
import urllib.parse
import urllib.request

from .kubeconfig import Access, ConfigError

# A page of 500 LibvirtHosts is about 2 MB.
MAX_PAGE_BYTES = 64 << 20


class ApiError(Exception):
    """A request without a usable answer; the text says what was asked of whom, why it failed, and what to do."""


class _Expired(Exception):
    """The server has forgotten the list that a continue token belongs to."""


class _NamedContext(ssl.SSLContext):
    """Verifies the server's certificate against another name than that in its address."""

    name: str | None = None

    def wrap_socket(self, *args: t.Any, server_hostname: t.Any = None, **kwargs: t.Any) -> ssl.SSLSocket:
        return super().wrap_socket(*args, server_hostname=self.name or server_hostname, **kwargs)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects: the token would go along."""

    def redirect_request(self, *args: t.Any, **kwargs: t.Any) -> None:
        return None


class Client:
    """A client of one API server. timeout is in seconds, for each step of a request that waits for the server."""

    def __init__(self, access: Access, timeout: float) -> None:
        self._access = access
        self._timeout = timeout
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.HTTPSHandler(context=_tls(access))]
        if access.proxy:
            if urllib.parse.urlsplit(access.proxy).scheme not in ("http", "https"):
                raise ConfigError("kubeconfig: proxy-url must begin with http:// or https://")
            handlers.append(urllib.request.ProxyHandler({"http": access.proxy, "https": access.proxy}))
        self._opener = urllib.request.build_opener(*handlers)

    def list(self, group: str, version: str, resource: str, namespace: str | None = None, selector: str = "", limit: int = 500) -> list[dict[str, t.Any]]:
        """Return every object of a resource, in one namespace or, for None, in all. limit is how many are asked for at a time."""
        path = "/apis/%s/%s/" % (group, version)
        if namespace is not None:
            path += "namespaces/%s/" % urllib.parse.quote(namespace, safe="")
        path += resource
        for _attempt in range(3):
            try:
                return self._pages(path, {"limit": str(limit), **({"labelSelector": selector} if selector else {})})
            except _Expired:
                # Objects came and went for minutes while pages were read; from the start, then.
                continue
        raise ApiError("%s: the list expired three times while it was read; raise `page_size`" % self._where(path))

    def _pages(self, path: str, query: dict[str, str]) -> list[dict[str, t.Any]]:
        items: list[dict[str, t.Any]] = []
        seen = set()
        while True:
            answer = self._get(path, query)
            if not isinstance(answer.get("items"), list):
                raise ApiError("%s: the answer is not a list of objects; is this a Kubernetes API server?" % self._where(path))
            items += [item for item in answer["items"] if isinstance(item, dict)]
            metadata = answer.get("metadata")
            token = metadata.get("continue") if isinstance(metadata, dict) else None
            if not token:
                return items
            if token in seen:
                raise ApiError("%s: the server gives the same page again and again" % self._where(path))
            seen.add(token)
            query = {**query, "continue": token}

    def _get(self, path: str, query: dict[str, str]) -> dict[str, t.Any]:
        request = urllib.request.Request("%s%s?%s" % (self._access.server, path, urllib.parse.urlencode(query)), headers={"Accept": "application/json"})
        if self._access.token:
            request.add_unredirected_header("Authorization", "Bearer " + self._access.token)
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                body = response.read(MAX_PAGE_BYTES + 1)
        except urllib.error.HTTPError as e:
            if e.code == 410 and "continue" in query:
                raise _Expired from None
            raise ApiError("%s: %s" % (self._where(path), _explain_status(e))) from None
        except urllib.error.URLError as e:
            raise ApiError("%s: %s" % (self._where(path), _explain(e.reason, self._timeout))) from None
        except (OSError, http.client.HTTPException) as e:
            raise ApiError("%s: %s" % (self._where(path), _explain(e, self._timeout))) from None
        if len(body) > MAX_PAGE_BYTES:
            raise ApiError("%s: a page is larger than %d MiB; lower `page_size`" % (self._where(path), MAX_PAGE_BYTES >> 20))
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ApiError("%s: the answer is not JSON; is this a Kubernetes API server?" % self._where(path))
        return answer

    def _where(self, path: str) -> str:
        return "asking %s for %s" % (self._access.server, path)


def _explain_status(error: urllib.error.HTTPError) -> str:
    said = error.reason
    with contextlib.suppress(ValueError, OSError, AttributeError, http.client.HTTPException):
        said = json.loads(error.read(1 << 16)).get("message") or said
    advice = {
        400: "see `label_selector`",
        401: "the server does not accept the credentials: see `api_key` (K8S_AUTH_API_KEY), or the user in the kubeconfig",
        403: "the account needs the verb list on libvirthosts, in each of `namespaces`, or by a ClusterRole where `namespaces` is empty",
        404: "the CRDs of CAPLV are not installed there",
    }.get(error.code, "the server redirects, which is not followed; name the server itself" if 300 <= error.code < 400 else "")
    text = "%d, %s" % (error.code, "".join(c if c.isprintable() else " " for c in str(said))[:300])
    return "%s; %s" % (text, advice) if advice else text


def _explain(reason: t.Any, timeout: float) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "its certificate is not trusted (%s): see `ca_cert` (K8S_AUTH_SSL_CA_CERT), or certificate-authority in the kubeconfig" % reason.verify_message
    if isinstance(reason, TimeoutError):
        return "no answer within %g s (`timeout`)" % timeout
    return "no connection: %s; see `host` (K8S_AUTH_HOST), or the server in the kubeconfig" % reason


def _tls(access: Access) -> ssl.SSLContext:
    context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.name = access.tls_server_name
    if not access.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif access.ca:
        try:
            context.load_verify_locations(cadata=access.ca.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise ConfigError("the certificate authority is not PEM (`ca_cert`, K8S_AUTH_SSL_CA_CERT, or certificate-authority in the kubeconfig)") from None
    else:
        context.load_default_certs()
    if access.certificate and access.key:
        try:
            with _file(access.certificate) as certificate, _file(access.key) as key:
                # An encrypted key would have OpenSSL ask the terminal.
                context.load_cert_chain(certificate, key, password=lambda: "")
        except (ssl.SSLError, ValueError):
            raise ConfigError(
                "the client certificate and its key are not PEM, do not belong together, or the key is encrypted "
                "(`client_cert` and `client_key`, or the kubeconfig)"
            ) from None
    return context


@contextlib.contextmanager
def _file(content: bytes) -> t.Iterator[str]:
    """Give the name of a file with a content, since OpenSSL takes certificates from files alone: in memory where the system can."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with os.fdopen(os.memfd_create("caplv"), "wb") as f:
            f.write(content)
            f.flush()
            yield "/proc/self/fd/%d" % f.fileno()
    else:
        with tempfile.NamedTemporaryFile() as f:
            f.write(content)
            f.flush()
            yield f.name
