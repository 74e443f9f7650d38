# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""Changes a string that is compiled into a program of Debian to the one that RHEL has compiled in:

    compiled.py FILE THEIRS OURS [SACRIFICED]

It must be there exactly once. Where OURS is longer, SACRIFICED names the string behind THEIRS that may lose its beginning.
"""
import sys


def main(path, theirs, ours, sacrificed=None):
    before = b"\0" + theirs.encode() + b"\0"
    after = b"\0" + ours.encode() + b"\0"
    if sacrificed is not None:
        before += sacrificed.encode().decode("unicode_escape").encode() + b"\0"
    with open(path, "rb") as file:
        program = file.read()
    if program.count(before) != 1 or len(after) > len(before):
        sys.exit(f"{path} is not as expected: it has {theirs} {program.count(before)} times")
    with open(path, "wb") as file:
        # The end stays: linkers let other strings be the end of a longer one.
        file.write(program.replace(before, after + before[len(after):]))


if __name__ == "__main__":
    main(*sys.argv[1:])
