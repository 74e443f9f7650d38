# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

import http.server
import json
import threading
import urllib.parse

import pytest

from plugins.plugin_utils import kubeapi, kubeconfig


class Server(http.server.ThreadingHTTPServer):
    """Answers the n-th request with the n-th of its answers: (status, body). None is no answer until the test ends."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.paths, self.queries, self.headers = [], [], [], []
        self.enough = threading.Event()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        self.server.paths.append(url.path)
        self.server.queries.append(dict(urllib.parse.parse_qsl(url.query)))
        self.server.headers.append(self.headers)
        answer = self.server.answers.pop(0)
        if answer is None:
            self.server.enough.wait()
            return
        status, body = answer
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        """Keep the output of the tests clean."""


@pytest.fixture
def server():
    s = Server()
    thread = threading.Thread(target=s.serve_forever, args=(0.01,))
    thread.start()
    yield s
    s.enough.set()
    s.shutdown()
    thread.join()
    s.server_close()


def ask(server, timeout=60, **kwargs):
    client = kubeapi.Client(kubeconfig.Access(server="http://127.0.0.1:%d" % server.server_address[1]), timeout)
    return client.list("example.com", "v1", "things", **kwargs)


def page(*names, more=None):
    return 200, {"items": [{"name": name} for name in names], "metadata": {"continue": more} if more else {}}


def test_pages_are_asked_for_until_there_is_none(server):
    server.answers = [page("a", "b", more="next"), page("c")]
    assert ask(server, namespace="n", selector="x in (y)", limit=2) == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert server.paths == ["/apis/example.com/v1/namespaces/n/things"] * 2
    assert server.queries == [{"limit": "2", "labelSelector": "x in (y)"}, {"limit": "2", "labelSelector": "x in (y)", "continue": "next"}]


def test_all_namespaces_are_one_request(server):
    server.answers = [page()]
    assert ask(server) == []
    assert server.paths == ["/apis/example.com/v1/things"]


def test_a_namespace_cannot_lead_elsewhere(server):
    server.answers = [page()]
    ask(server, namespace="../../secrets?x=")
    assert server.paths == ["/apis/example.com/v1/namespaces/..%2F..%2Fsecrets%3Fx%3D/things"]


def test_a_list_that_expires_is_read_again_from_its_start(server):
    server.answers = [page("old", more="gone"), (410, {"message": "expired"}), page("new")]
    assert ask(server) == [{"name": "new"}]


@pytest.mark.parametrize(
    "answers, want",
    [
        ([(400, {"message": "unable to parse"})], "400, unable to parse; see `label_selector`"),
        ([(401, {"message": "Unauthorized"})], "see `api_key`"),
        ([(403, {"message": "forbidden"})], "403, forbidden; the account needs the verb list"),
        ([(404, b"404 page not found")], "the CRDs of CAPLV are not installed there"),
        ([(500, {"message": "a\x1b[31m\nb"})], r"500, a \[31m b$"),
        ([(301, b"")], "the server redirects, which is not followed"),
        ([(200, b"<html>")], "not JSON; is this a Kubernetes API server"),
        ([(200, [])], "not JSON"),
        ([(200, {"kind": "Status"})], "not a list of objects"),
        ([page("a", more="same"), page("a", more="same")], "the same page again and again"),
        ([page("a", more="x"), (410, {})] * 3, "expired three times"),
    ],
)
def test_an_answer_that_is_no_use_says_of_whom_it_was_asked_and_what_to_do(server, answers, want):
    server.answers = answers
    with pytest.raises(kubeapi.ApiError, match=want) as e:
        ask(server)
    assert str(e.value).startswith("asking http://127.0.0.1:")
    assert server.paths == ["/apis/example.com/v1/things"] * len(server.paths)


def test_a_server_that_stays_silent_is_not_waited_for_for_ever(server):
    server.answers = [None]
    with pytest.raises(kubeapi.ApiError, match=r"no answer within 0\.2 s \(`timeout`\)"):
        ask(server, timeout=0.2)


def test_a_server_that_is_not_there_is_named(server):
    port = server.server_address[1]
    server.socket.close()
    with pytest.raises(kubeapi.ApiError, match="127.0.0.1:%d.*no connection: .*see `host`" % port):
        ask(server)


def test_a_page_has_a_largest_size(server, monkeypatch):
    monkeypatch.setattr(kubeapi, "MAX_PAGE_BYTES", 10)
    server.answers = [page("a")]
    with pytest.raises(kubeapi.ApiError, match="lower `page_size`"):
        ask(server)


@pytest.mark.parametrize(
    "access, want",
    [
        ({"ca": b"nonsense"}, "the certificate authority is not PEM"),
        ({"certificate": b"nonsense", "key": b"nonsense"}, "are not PEM, do not belong together, or the key is encrypted"),
        ({"proxy": "socks5://proxy"}, "proxy-url must begin with"),
    ],
)
def test_what_cannot_be_used_is_found_before_anything_is_sent(access, want):
    with pytest.raises(kubeconfig.ConfigError, match=want):
        kubeapi.Client(kubeconfig.Access(server="https://127.0.0.1:1", **access), 1)
