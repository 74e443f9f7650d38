#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Turns `go test -json` on standard input into something to read: a line for each package, the output of what failed,
# the reason of what was skipped.
#
#   go test -json … | hack/test-report.sh COUNTS      COUNTS: the file that receives the totals, as one line
set -euo pipefail
counts=${1:?usage: test-report.sh COUNTS}

# Events are flat JSON objects, one a line.
awk -v counts="$counts" '
function unescape(v) {
	gsub(/\\\\/, "\001", v)
	gsub(/\\n/, "\n", v); gsub(/\\r/, "", v); gsub(/\\t/, "\t", v); gsub(/\\"/, "\"", v)
	gsub(/\\u003c/, "<", v); gsub(/\\u003e/, ">", v); gsub(/\\u0026/, "\\&", v); gsub(/\\u001b\[[0-9;]*m/, "", v)
	gsub(/\001/, "\\", v)
	return v
}
# field returns a string or number of the current event, or nothing. A quote inside a string is escaped, so that
# the name in quotes is found only where it is a key.
function field(name,    v) {
	if (!match($0, "\"" name "\":(\"([^\"\\\\]|\\\\.)*\"|[0-9.]+)")) return ""
	v = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
	if (v ~ /^"/) v = substr(v, 2, length(v) - 2)
	return unescape(v)
}
{
	action = field("Action"); package = field("Package"); test = field("Test")
	id = package " " test
}
action == "build-output" { printf "%s", field("Output"); next }
action == "output" {
	line = field("Output")
	if (line !~ /^=== (RUN|PAUSE|CONT|NAME)/) text[id] = text[id] line
	next
}
action == "pass" && test != "" { passed++; delete text[id]; next }
action == "skip" && test != "" {
	skipped++
	printf "SKIP  %s\n%s", id, text[id]
	delete text[id]
	next
}
action == "fail" && test != "" {
	failed++
	printf "FAIL  %s\n%s", id, text[id]
	delete text[id]
	next
}
action == "pass" { printf "ok    %s (%s s)\n", package, field("Elapsed"); delete text[id]; fflush(); next }
action == "fail" {
	# A package can fail without a failed test: it does not build, panics, or runs into the timeout.
	broken++
	printf "FAIL  %s (%s s)\n%s", package, field("Elapsed"), text[id]
	for (other in text) if (index(other, package " ") == 1 && other != id) printf "%s", text[other]
	fflush()
	next
}
END {
	printf "%d passed, %d failed, %d skipped", passed, failed, skipped > counts
	if (broken) printf ", %d packages failed", broken > counts
	printf "\n" > counts
}
'
