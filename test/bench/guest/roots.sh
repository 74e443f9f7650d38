# shellcheck shell=bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The part of build.sh that makes the guests' root file systems, of packages that are unpacked but not installed. The
# working directory is build.sh's, and $here the directory of this file.

# update_lists PACKAGE fetches the lists of packages, as root, if apt does not know a package.
update_lists() {
	[ -z "$(apt-cache -q0 show "$1" 2>/dev/null)" ] || return 0
	[ "$(id -u)" = 0 ] || { echo "build.sh: apt knows no $1; run apt-get update" >&2 && exit 1; }
	apt-get update >&2
}

# download PACKAGE DIR unpacks one package below a directory.
download() {
	local file
	# Root's apt-get downloads as another user, who may write here.
	apt-get -q -o APT::Sandbox::User=root download "$1" >&2
	file=$(find . -maxdepth 1 -name "$1_*.deb")
	mkdir -p "$2"
	dpkg -x "$file" "$2"
	rm "$file"
}

# unpack_kernel PACKAGE DIR unpacks the kernel that a package depends on, which is all that the package is for.
unpack_kernel() {
	local image
	image=$(apt-cache depends --important "$1" | awk '$1 == "Depends:" { print $2; exit }')
	[ -n "$image" ] || { echo "build.sh: apt knows no $1; run apt-get update" >&2 && exit 1; }
	rm -rf "$2"
	download "$image" "$2"
}

# unpack_with_dependencies DIR PACKAGE… unpacks packages and all that they need. apt resolves that for a machine on which
# nothing is installed.
unpack_with_dependencies() {
	local dir=$1 options file
	shift
	mkdir -p archives/partial "$dir"
	: >status
	options=(-q -y -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o "Dir::State::status=$PWD/status"
		-o "Dir::Cache::archives=$PWD/archives" --no-install-recommends)
	# Before they are there: what is downloaded already is not listed any more.
	apt-get "${options[@]}" --print-uris -o Dir::Cache::archives=/nonexistent install "$@" | awk '/^.http/ { print $2 }' >"$dir.list"
	apt-get "${options[@]}" --download-only install "$@" >&2
	while read -r file; do dpkg -x "archives/$file" "$dir"; done <"$dir.list"
}

# run_in DIR PROGRAM [ARGUMENT…] runs a program of an unpacked system with that system's libraries.
run_in() {
	local dir=$1
	shift
	"$dir"/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path "$dir/lib/x86_64-linux-gnu:$dir/usr/lib/x86_64-linux-gnu" "$@"
}

# copy_program FROM TO PATH copies a program and its libraries, each to the same place.
copy_program() {
	local from=$1 to=$2 file
	{
		echo "$3"
		run_in "$from" --list "$from$3" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sed "s|^$from||"
	} | while read -r file; do
		[ -e "$to$file" ] || install -D -m 755 "$from$file" "$to$file"
	done
	# It is an absolute link in its package.
	[ -e "$to/lib64" ] || install -D -m 755 "$from/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$to/lib64/ld-linux-x86-64.so.2"
}

# make_base DIR makes what every root has: busybox's programs, a root account, and NetworkManager's configuration.
make_base() {
	local program
	mkdir -p "$1"/{bin,sbin,etc/NetworkManager/system-connections,usr/bin,usr/sbin,proc,sys,dev,run,tmp,var/tmp,root}
	cp /bin/busybox "$1/bin/"
	for program in $(busybox --list); do
		[ -e "$1/bin/$program" ] || ln -s busybox "$1/bin/$program"
	done
	echo 'root:x:0:0:root:/root:/bin/sh' >"$1/etc/passwd"
	echo 'root:x:0:' >"$1/etc/group"
	# Real machines have it to keep the profiles of their administrator.
	printf '[main]\nplugins=keyfile\nno-auto-default=*\n' >"$1/etc/NetworkManager/NetworkManager.conf"
}

# make_ignition_root DIR makes a root with Ignition and NetworkManager alone.
make_ignition_root() {
	local all=$PWD/all
	unpack_with_dependencies "$all" ignition network-manager
	make_base "$1"
	copy_program "$all" "$1" /usr/sbin/NetworkManager
	install -D -m 755 "$all/usr/lib/dracut/modules.d/30ignition/ignition" "$all/usr/bin/ignition"
	copy_program "$all" "$1" /usr/bin/ignition
	# Debian's Ignition insists on labels.
	mkdir "$1/etc/selinux"
	printf 'SELINUX=disabled\nSELINUXTYPE=none\n' >"$1/etc/selinux/config"
	build_ignition2 "$1/usr/bin/ignition2"
	copy_program "$1" "$1" /usr/bin/ignition2
}

# build_ignition2 FILE builds Ignition of spec 2.x, with the library that it links taken from its package.
build_ignition2() {
	local libraries
	download libblkid-dev blkid
	libraries=$(dirname "$(find "$PWD/blkid" -name libblkid.a)")
	(cd "$here/ignition2" && CGO_ENABLED=1 CGO_CFLAGS="-I$work/blkid/usr/include" CGO_LDFLAGS="-L$libraries" \
		go build -trimpath -ldflags '-s -w -X github.com/coreos/ignition/internal/version.Raw=0.35.0' -o "$work/ignition2" \
		github.com/coreos/ignition/internal)
	install -D -m 755 ignition2 "$1"
}

# make_cloudinit_root DIR makes a root with cloud-init, its Python, and NetworkManager.
make_cloudinit_root() {
	local dir=$1 path
	unpack_with_dependencies "$PWD/$dir" cloud-init network-manager iproute2 util-linux
	for path in usr/share/{doc,man,locale,info,perl,perl5,i18n,zoneinfo,lintian,bash-completion,polkit-1} usr/lib/x86_64-linux-gnu/{perl,perl-base,gconv} \
		usr/lib/{udev,systemd} lib/{udev,systemd} usr/bin/perl*; do
		rm -rf "${dir:?}"/$path
	done
	make_base "$dir"
	cp "$here/cloud.cfg" "$dir/etc/cloud/cloud.cfg.d/99-guest.cfg"
	# Python would compile them at every boot.
	PYTHONHOME=$PWD/$dir/usr run_in "$PWD/$dir" "$PWD/$dir/usr/bin/python3" -m compileall -q \
		--invalidation-mode unchecked-hash "$dir/usr/lib/python3" "$dir"/usr/lib/python3.* >&2
}
