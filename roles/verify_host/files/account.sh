# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Prints what libvirt and CAPLV's helper say to the calling account, as lines KEY=VALUE. It changes nothing.
#
#   sh -s URI VIRT-TYPE POOL...

LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH
say() { printf '%s=%s\n' "$1" "$2"; }
uri=$1 type=$2
shift 2
ask() { timeout 60 virsh -q -c "$uri" "$@" 2>&1 </dev/null; }
# one TEXT makes one line of several.
one() { printf %s "$1" | tr '\n' ' ' | cut -c1-400; }

if answer=$(ask version); then
	say daemon ok
	say version "$(printf '%s\n' "$answer" | sed -n 's/^Using library: libvirt //p')"
	if answer=$(ask domcapabilities --virttype "$type"); then
		say virttype ok
	else
		say virttype "$(one "$answer")"
	fi
	active=$(ask pool-list --name)
	automatic=$(ask pool-list --name --all --autostart)
	all=$(ask pool-list --name --all)
	for pool in "$@"; do
		state=missing start=no path=
		# virsh pads names.
		has() { printf '%s\n' "$1" | sed 's/[[:blank:]]*$//' | grep -q -x -F -e "$pool"; }
		if has "$all"; then
			state=inactive
			if has "$active"; then state=active; fi
			if has "$automatic"; then start=yes; fi
			path=$(ask pool-dumpxml "$pool" | sed -n 's:.*<path>\(.*\)</path>.*:\1:p' | head -n 1)
		fi
		say pool "$pool $state $start $path"
	done
else
	say daemon "$(one "$answer")"
fi

if answer=$(printf 'caplv-hostctl/1\nprobe\n\n' | timeout 60 sudo -n /usr/libexec/caplv/caplv-hostctl 2>&1); then
	if printf '%s\n' "$answer" | grep -q -x version=1; then say hostctl ok; else say hostctl "$(one "$answer")"; fi
else
	say hostctl "$(one "${answer:-no answer}")"
fi
say end yes
