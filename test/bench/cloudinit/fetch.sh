#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks cloud-init into the cache unless it is there, and prints the directory that Python finds it in. It comes from
# Debian's archive, so it runs on Debian. The package is not installed: at the next boot it would configure the machine.
#
#   fetch.sh
set -euo pipefail

readonly package=cloud-init
cache=${CAPLV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/caplv}/$package
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! command -v apt-get >/dev/null; then
	echo "fetch.sh: $package comes from Debian's archive; there is no apt-get" >&2
	exit 1
fi
"$here/../packages.sh"

candidate() { LC_ALL=C apt-cache policy "$package" | awk '$1 == "Candidate:" && $2 != "(none)" { print $2 }'; }

version=$(candidate)
if [ -z "$version" ] && [ "$(id -u)" = 0 ]; then
	apt-get update >&2
	version=$(candidate)
fi
[ -n "$version" ] || { echo "fetch.sh: apt knows no $package; run apt-get update" >&2 && exit 1; }

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if ! [ -d "$cache/$version" ]; then
	# Unpacked beside its final name and renamed: what has that name is complete.
	partial=$(mktemp -d "$cache/.XXXXXX")
	trap 'rm -rf "$partial"' EXIT
	cd "$partial"
	# Root's apt-get downloads as another user, who may not write here.
	apt-get -q -o APT::Sandbox::User=root download "$package=$version" >&2
	dpkg -x "$package"_*.deb root
	mv root "$cache/$version"
fi
echo "$cache/$version/usr/lib/python3/dist-packages"
