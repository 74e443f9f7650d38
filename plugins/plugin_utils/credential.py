# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""Credential plugins: the `exec` entry of a kubeconfig user (client.authentication.k8s.io)."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import typing as t

from .kubeconfig import Access, ConfigError

_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


def complete(access: Access, timeout: float) -> Access:
    """Return the access with the token or certificate that its plugin gives; without a plugin, as it is."""
    plugin = access.plugin
    if not plugin or access.token or access.certificate:
        return access
    what = "kubeconfig, %s, exec" % access.who
    if plugin.get("apiVersion") not in _VERSIONS:
        raise ConfigError("%s: apiVersion must be one of %s" % (what, ", ".join(_VERSIONS)))
    if plugin.get("interactiveMode") == "Always":
        raise ConfigError("%s: %s has to talk to somebody (interactiveMode: Always), and an inventory cannot" % (what, plugin.get("command")))
    status = _run(plugin, access.directory, timeout, what)
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not status.get("token") and not (certificate and key):
        raise ConfigError("%s: %s gave neither a token nor a certificate with its key" % (what, plugin.get("command")))
    return dataclasses.replace(
        access, plugin=None, token=status.get("token"), certificate=certificate.encode() if certificate else None, key=key.encode() if key else None
    )


def _run(plugin: dict[str, t.Any], directory: str, timeout: float, what: str) -> dict[str, t.Any]:
    command = plugin.get("command")
    if not isinstance(command, str) or not command:
        raise ConfigError("%s: there is no command" % what)
    if os.sep in command:
        command = os.path.join(directory, command)
    environ = dict(os.environ)
    environ.update({e["name"]: e["value"] for e in plugin.get("env") or []})
    environ["KUBERNETES_EXEC_INFO"] = json.dumps({"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}})
    try:
        done = subprocess.run(
            [command, *(plugin.get("args") or [])], env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=True
        )
        status = json.loads(done.stdout)["status"]
    except FileNotFoundError:
        raise ConfigError("%s: there is no command %s; %s" % (what, command, plugin.get("installHint") or "install it, or mend the kubeconfig")) from None
    except OSError as e:
        raise ConfigError("%s: cannot run %s: %s" % (what, command, e.strerror)) from None
    except subprocess.TimeoutExpired:
        raise ConfigError("%s: %s gave no answer within %g s (`timeout`)" % (what, command, timeout)) from None
    except subprocess.CalledProcessError as e:
        said = e.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError("%s: %s ended with status %d: %s" % (what, command, e.returncode, said[-1][:300] if said else "it said nothing")) from None
    except (ValueError, KeyError, TypeError):
        # What it printed may be a credential in another form.
        raise ConfigError("%s: %s printed no ExecCredential with a status" % (what, command)) from None
    if not isinstance(status, dict):
        raise ConfigError("%s: %s printed no ExecCredential with a status" % (what, command))
    return status
