# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

"""A mirror of images on loopback: real HTTPS with a CA of its own, ranges, basic authentication, and faults."""

import base64
import contextlib
import hashlib
import http.server
import re
import ssl
import subprocess
import threading
import time


def make_certificate(directory):
    """Make a certificate for localhost and its key, in one file. It is its own CA."""
    key, certificate = directory / "key.pem", directory / "ca.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        + ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key


class Mirror:
    """What a server has, how it fails, and what it was asked for.

    files       content by path
    redirects   target by path
    cut         bytes after which the next answers, one each, break off
    slow        seconds between blocks of 64 KiB
    silent      whether an answer stops after its first block, and the connection stays
    password    what basic authentication wants, as user:password
    requests    path and headers of each request
    """

    def __init__(self, port):
        self.url = "https://localhost:%d" % port
        self.files, self.redirects, self.cut, self.requests = {}, {}, [], []
        self.slow, self.silent, self.password, self.etag = 0, False, None, True

    def ranges(self):
        return [headers.get("Range") for _, headers in self.requests]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        mirror = self.server.mirror
        mirror.requests.append((self.path, dict(self.headers)))
        if self.path in mirror.redirects:
            return self.answer(302, Location=mirror.redirects[self.path])
        if mirror.password and self.headers.get("Authorization") != "Basic " + base64.b64encode(mirror.password.encode()).decode():
            return self.answer(401)
        if self.path not in mirror.files:
            return self.answer(404)
        content = mirror.files[self.path]
        etag = '"%s"' % hashlib.sha256(content).hexdigest()[:8]
        headers = {"ETag": etag} if mirror.etag else {}
        start = 0
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and self.headers.get("If-Range") == etag:
            start = int(asked.group(1))
            self.answer(206, Content_Length=len(content) - start, Content_Range="bytes %d-%d/%d" % (start, len(content) - 1, len(content)), **headers)
        else:
            self.answer(200, Content_Length=len(content), **headers)
        return self.send(mirror, content[start:])

    def send(self, mirror, content):
        whole = len(content)
        if mirror.cut:
            content = content[: mirror.cut.pop(0)]
        for at in range(0, len(content), 1 << 16):
            self.wfile.write(content[at : at + (1 << 16)])
            while mirror.silent:
                time.sleep(0.05)
            time.sleep(mirror.slow)
        self.close_connection = len(content) < whole


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        # Clients that go away are part of the tests.
        pass


@contextlib.contextmanager
def serve(certificate, key):
    """Run a mirror."""
    server = _Server(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.mirror = Mirror(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.mirror
    finally:
        server.mirror.silent = False
        server.shutdown()
        server.server_close()
