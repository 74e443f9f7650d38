#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs inside of the file system that rocky.sh makes, once /srv/packages has packages for dnf: makes the rest look as on Rocky
# Linux 8 to somebody who sets the host up. Debian's package manager goes.
set -euo pipefail

identify() {
	rm -f /etc/os-release /etc/debian_version
	cat >/etc/os-release <<-RELEASE
		NAME="Rocky Linux"
		VERSION="8.10 (Green Obsidian)"
		ID="rocky"
		ID_LIKE="rhel centos fedora"
		VERSION_ID="8.10"
		PLATFORM_ID="platform:el8"
		PRETTY_NAME="Rocky Linux 8.10 (Green Obsidian)"
		CPE_NAME="cpe:/o:rocky:rocky:8:GA"
	RELEASE
	echo 'Rocky Linux release 8.10 (Green Obsidian)' >/etc/redhat-release
	ln -s redhat-release /etc/rocky-release
	ln -s redhat-release /etc/system-release
}

# On Debian, the database of packages is in the home of whoever calls rpm.
configure_dnf() {
	mkdir -p /etc/rpm /etc/yum.repos.d
	echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros
	printf '[bench]\nname=Packages of the bench\nbaseurl=file:///srv/packages\ngpgcheck=0\n' >/etc/yum.repos.d/bench.repo
	rpm --initdb
	dnf --quiet --assumeyes --releasever=8 install rocky-release libcap sudo util-linux
	mkdir -p /usr/libexec
	ln -s /usr/bin/python3 /usr/libexec/platform-python
}

configure_systemd() {
	mkdir -p /usr/lib/systemd/system-preset
	printf 'enable %s\n' dbus.service sshd.service libvirtd.service virtlogd.socket virtlockd.socket >/usr/lib/systemd/system-preset/90-default.preset
	echo 'disable *' >/usr/lib/systemd/system-preset/99-default-disable.preset
}

# OpenSSH of RHEL 8 has no Include yet, and its unit another name.
configure_sshd() {
	rm -rf /etc/ssh/sshd_config.d
	cat >/etc/ssh/sshd_config <<-CONFIG
		HostKey /etc/ssh/ssh_host_ed25519_key
		SyslogFacility AUTHPRIV
		PermitRootLogin yes
		AuthorizedKeysFile .ssh/authorized_keys
		PasswordAuthentication yes
		ChallengeResponseAuthentication no
		GSSAPIAuthentication yes
		GSSAPICleanupCredentials no
		UsePAM yes
		X11Forwarding yes
		PrintMotd no
		AcceptEnv LANG LC_CTYPE LC_NUMERIC LC_TIME LC_COLLATE LC_MONETARY LC_MESSAGES
		Subsystem sftp /usr/lib/openssh/sftp-server
	CONFIG
	systemctl disable ssh.service
	mv /usr/lib/systemd/system/ssh.service /usr/lib/systemd/system/sshd.service
	sed -i '/^Alias=/d' /usr/lib/systemd/system/sshd.service
	systemctl enable sshd.service
}

configure_accounts() {
	groupadd --system --gid 10 wheel 2>/dev/null || groupadd --system wheel
	cat >/etc/sudoers <<-'SUDOERS'
		Defaults !visiblepw
		Defaults always_set_home
		Defaults match_group_by_gid
		Defaults env_reset
		Defaults secure_path = /sbin:/bin:/usr/sbin:/usr/bin
		root ALL=(ALL) ALL
		%wheel ALL=(ALL) ALL
		#includedir /etc/sudoers.d
	SUDOERS
	visudo --check --quiet
	sed -i -e '/^#\?HOME_MODE/d' -e '/^UMASK/d' /etc/login.defs
	printf 'HOME_MODE 0700\nUMASK 022\n' >>/etc/login.defs
}

identify
configure_dnf
configure_systemd
configure_sshd
configure_accounts
rm -rf /etc/libvirt /etc/apt /etc/dpkg /var/lib/apt /var/lib/dpkg /var/cache/apt /usr/bin/apt* /usr/bin/dpkg* /var/cache/dnf
