# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

import base64
import json
import os
import stat

import pytest

from plugins.plugin_utils import credential, kubeconfig

CONFIG = {
    "current-context": "one",
    "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}, {"name": "two", "context": {"cluster": "c", "user": "v"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://api.example.com:6443/", "certificate-authority-data": base64.b64encode(b"CA").decode()}}],
    "users": [{"name": "u", "user": {"token": "sesame"}}, {"name": "v", "user": {"tokenFile": "token"}}],
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def with_user(user):
    return {**CONFIG, "users": [{"name": "u", "user": user}]}


def resolve(options=None, environ=None, **kwargs):
    return kubeconfig.resolve(options or {}, environ or {}, **kwargs)


def test_a_host_with_a_token_needs_no_file(tmp_path):
    ca = write(tmp_path / "ca.crt", "CA")
    access = resolve({"host": "https://api:6443/", "api_key": "sesame\n", "ca_cert": ca, "validate_certs": True})
    assert (access.server, access.token, access.ca, access.verify) == ("https://api:6443", "sesame", b"CA", True)


def test_a_kubeconfig_gives_its_current_context(tmp_path):
    access = resolve({"kubeconfig": write(tmp_path / "k", CONFIG)})
    assert (access.server, access.token, access.ca, access.who, access.verify) == ("https://api.example.com:6443", "sesame", b"CA", "user u", True)


def test_files_in_it_are_relative_to_it(tmp_path):
    write(tmp_path / "d" / "token", "from-file\n")
    assert resolve({"kubeconfig": write(tmp_path / "d" / "k", CONFIG), "context": "two"}).token == "from-file"


def test_the_first_of_several_files_counts_for_each_name(tmp_path):
    first = write(tmp_path / "1", {"current-context": "one", "users": [{"name": "u", "user": {"token": "first"}}]})
    second = write(tmp_path / "2", CONFIG)
    access = resolve(environ={"KUBECONFIG": os.pathsep.join([first, str(tmp_path / "absent"), second])})
    assert (access.server, access.token) == ("https://api.example.com:6443", "first")


def test_the_file_in_the_home_directory_comes_before_the_service_account_of_the_pod(tmp_path, home):
    write(tmp_path / "sa" / "token", "pod")
    write(tmp_path / "sa" / "ca.crt", "CA")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = resolve(environ=environ, service_account=str(tmp_path / "sa"))
    assert (access.server, access.token, access.ca) == ("https://[fd00::1]:443", "pod", b"CA")
    write(home / ".kube" / "config", CONFIG)
    assert resolve(environ=environ, service_account=str(tmp_path / "sa")).token == "sesame"


@pytest.mark.parametrize("said, verify", [(True, False), (False, True), ("true", True), (None, True)])
def test_verification_is_off_only_where_that_is_said(tmp_path, said, verify):
    cluster = {**CONFIG["clusters"][0]["cluster"], "insecure-skip-tls-verify": said}
    path = write(tmp_path / "k", {**CONFIG, "clusters": [{"name": "c", "cluster": cluster}]})
    assert resolve({"kubeconfig": path}).verify is verify
    assert resolve({"kubeconfig": path, "validate_certs": True}).verify is True
    assert resolve({"kubeconfig": path, "validate_certs": False}).verify is False


@pytest.mark.parametrize(
    "options, content, want",
    [
        ({}, None, "no Kubernetes API server to ask: set `host`"),
        ({"host": "api:6443"}, None, "must begin with https://"),
        ({"host": "http://api:8080", "api_key": "sesame"}, None, "credentials are not sent in the clear"),
        ({"host": "https://api", "api_key": "a b"}, None, "the token holds a space"),
        ({"host": "https://api", "ca_cert": "/absent"}, None, "ca_cert: cannot read /absent"),
        ({"host": "https://api", "client_cert": os.devnull, "client_key": None}, None, None),
        ({"kubeconfig": "/absent"}, None, "cannot read /absent"),
        ({}, "a: [", r"is not YAML \(line 1\)"),
        ({}, "- a", "holds no mapping"),
        ({}, {"contexts": []}, "no current-context; set `context`"),
        ({"context": "three"}, CONFIG, "no context 'three'; it has: one, two"),
        ({}, {**CONFIG, "clusters": []}, "no cluster 'c'; it has: none"),
        ({}, with_user({"client-certificate-data": "%%%"}), "client-certificate-data is not base64"),
        ({}, with_user({"client-certificate-data": "QQ=="}), "no key for it"),
        ({}, with_user({"client-key-data": "QQ=="}), "no certificate for it"),
        ({}, with_user({"auth-provider": {"name": "x"}}), "auth-provider is not supported"),
        ({}, with_user({"tokenFile": "absent"}), "tokenFile: cannot read"),
    ],
)
def test_what_is_wrong_is_named_and_no_secret_is(tmp_path, options, content, want):
    if content is not None:
        options = {"kubeconfig": write(tmp_path / "k", content), **options}
    if want is None:
        # An empty file is no certificate, and without one there is nothing that needs a key.
        assert resolve(options).certificate == b""
        return
    with pytest.raises(kubeconfig.ConfigError, match=want) as e:
        resolve(options)
    assert "sesame" not in str(e.value)


def test_secrets_are_not_in_what_is_printed(tmp_path):
    assert "sesame" not in repr(resolve({"kubeconfig": write(tmp_path / "k", CONFIG)}))


def plugin(tmp_path, script, **entry):
    """Return the access of a user whose credential plugin is a shell script."""
    path = tmp_path / "plugin"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(stat.S_IRWXU)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", **entry}}
    return resolve({"kubeconfig": write(tmp_path / "k", with_user(user))})


def test_a_credential_plugin_is_run_beside_its_kubeconfig_with_its_environment(tmp_path):
    access = plugin(
        tmp_path,
        """test "$1" = word && echo "$KUBERNETES_EXEC_INFO" | grep -q '"interactive": false' && echo '{"status": {"token": "'$GIVEN'"}}'""",
        args=["word"],
        env=[{"name": "GIVEN", "value": "fresh"}],
    )
    assert access.token is None
    assert credential.complete(access, 60).token == "fresh"


@pytest.mark.parametrize(
    "script, entry, want",
    [
        ("echo sesame", {}, "printed no ExecCredential"),
        ("echo '{}'", {}, "printed no ExecCredential"),
        ("echo '{\"status\": {}}'", {}, "neither a token nor a certificate"),
        ("echo login first >&2; exit 3", {}, "ended with status 3: login first"),
        ("exec sleep 60", {}, "no answer within 0.5 s"),
        ("", {"interactiveMode": "Always"}, "has to talk to somebody"),
        ("", {"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "apiVersion must be one of"),
        ("", {"command": "caplv-no-such-plugin", "installHint": "get it"}, "no command caplv-no-such-plugin; get it"),
    ],
)
def test_a_credential_plugin_that_fails_is_named(tmp_path, script, entry, want):
    with pytest.raises(kubeconfig.ConfigError, match=want) as e:
        credential.complete(plugin(tmp_path, script, **entry), 0.5 if "sleep" in script else 60)
    assert "sesame" not in str(e.value)


def test_a_token_of_the_options_has_no_plugin_run(tmp_path):
    access = plugin(tmp_path, "exit 1")
    path = str(tmp_path / "k")
    assert credential.complete(resolve({"kubeconfig": path, "api_key": "given"}), 1).token == "given"
    assert access.plugin is not None
