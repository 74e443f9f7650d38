# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what goes into an authorized_keys file: C(ssh_public_key) and C(ssh_source)."""

import base64
import binascii
import ipaddress
import re
import struct

# Kinds that a program can use: a key in hardware (sk-…) wants to be touched.
KINDS = ("ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
MIN_RSA_BITS = 2048


def fields(blob):
    """Return the strings of a key in wire format (RFC 4253, section 6.6). Raises ValueError for anything else."""
    found = []
    while blob:
        if len(blob) < 4:
            raise ValueError("it ends early")
        (length,) = struct.unpack(">I", blob[:4])
        if len(blob) < 4 + length:
            raise ValueError("it ends early")
        found.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return found


def ssh_public_key(line):
    """Whether a string is one public key as in a .pub file: kind, key, and perhaps a comment; no options in front."""
    if not isinstance(line, str):
        return False
    match = re.match(r"([a-z0-9-]+) ([A-Za-z0-9+/]+={0,2})( [ -~\u00a0-\uffff]*)?\Z", line)
    if not match or match.group(1) not in KINDS:
        return False
    try:
        parts = fields(base64.b64decode(match.group(2), validate=True))
    except (binascii.Error, ValueError):
        return False
    kind = match.group(1)
    if not parts or parts[0] != kind.encode():
        return False
    if kind == "ssh-ed25519":
        return len(parts) == 2 and len(parts[1]) == 32
    if kind == "ssh-rsa":
        return len(parts) == 3 and int.from_bytes(parts[2], "big").bit_length() >= MIN_RSA_BITS
    return len(parts) == 3 and parts[1] == kind[len("ecdsa-sha2-") :].encode()


def ssh_source(pattern):
    """Whether a string may stand in from="…": an address, a network without host bits, or the name of a host with * and ?.

    sshd refuses a key altogether for a network that it cannot read.
    """
    if not isinstance(pattern, str):
        return False
    pattern = pattern[1:] if pattern.startswith("!") else pattern
    if "/" in pattern or ":" in pattern or re.match(r"[0-9.]+\Z", pattern):
        try:
            ipaddress.ip_network(pattern, strict=True)
        except ValueError:
            return False
        # The module also knows masks such as 255.255.255.0, and sshd does not.
        return re.search(r"/(?![0-9]{1,3}\Z)", pattern) is None
    return re.match(r"(?=.{1,253}\Z)[A-Za-z0-9*?]([A-Za-z0-9.*?_-]*[A-Za-z0-9*?])?\Z", pattern) is not None


class TestModule:
    """Offers the tests to templates."""

    def tests(self):
        return {"ssh_public_key": ssh_public_key, "ssh_source": ssh_source}
