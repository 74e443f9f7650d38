#!/usr/bin/python3
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads a seed image as cloud-init does and prints, as JSON, what it makes of it.

    nocloud.py IMAGE MAC TEMPLATE

MAC is the address of the only interface, called enp1s0; TEMPLATE is rendered with the instance's data. cloud-init is found
by PYTHONPATH. What belongs to this machine (its kernel command line, firmware tables, disks and interfaces) is hidden from
it. The image is no disk here, so blkid is asked about the file and bsdtar unpacks it; the rest is cloud-init.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile

import cloudinit.net.netplan
import cloudinit.net.network_manager
import cloudinit.net.network_state
import cloudinit.net.sysconfig
from cloudinit import dmi, helpers, util
from cloudinit.distros import rhel
from cloudinit.handlers import jinja_template
from cloudinit.sources import DataSourceNoCloud

INTERFACE = "enp1s0"
NETPLAN, KEYFILES = "etc/netplan/50-cloud-init.yaml", "etc/NetworkManager/system-connections/"


def hide_this_machine(image, mac):
    """Makes cloud-init see a machine whose only disk is the image and whose only interface has the address."""

    def find_devs_with(criteria):
        key, value = criteria.split("=", 1)
        found = subprocess.run(["blkid", "-p", "-o", "value", "-s", key, image], stdout=subprocess.PIPE, check=True)
        return [image] if found.stdout.decode().strip() == value else []

    def mount_cb(device, callback, data):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run(["bsdtar", "-xf", device, "-C", directory], check=True)
            return callback(directory, data)

    util.get_cmdline = lambda: ""
    util.is_lxd = lambda: False
    util.find_devs_with = find_devs_with
    util.mount_cb = mount_cb
    dmi.read_dmi_data = lambda key: None
    state = cloudinit.net.network_state
    state.get_interfaces_by_mac = lambda: {mac: INTERFACE}
    state.find_interface_name_from_mac = lambda address: INTERFACE if address == mac else None


def files_below(directory):
    files = {}
    for parent, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, encoding="utf-8") as file:
                files[os.path.relpath(path, directory)] = file.read()
    return files


def rendered(config):
    """Returns the files that each of the renderers writes, by path."""
    state = cloudinit.net.network_state.parse_net_config_data(config)
    files = {}
    for renderer in (
        cloudinit.net.netplan.Renderer({"netplan_path": NETPLAN, "postcmds": False}),
        cloudinit.net.network_manager.Renderer(),
        cloudinit.net.sysconfig.Renderer(rhel.Distro.renderer_configs["sysconfig"]),
    ):
        with tempfile.TemporaryDirectory() as target:
            os.makedirs(os.path.join(target, KEYFILES))
            renderer.render_network_state(state, target=target)
            files.update(files_below(target))
    return files


def parts(message):
    """Returns the type and the content of each part of processed user-data or vendor-data."""
    return [
        {"type": part.get_content_type(), "content": base64.b64encode(part.get_payload(decode=True)).decode()}
        for part in message.walk()
        if part.get_content_maintype() != "multipart"
    ]


def main(image, mac, template):
    hide_this_machine(image, mac)
    with tempfile.TemporaryDirectory() as directory:
        paths = helpers.Paths({"cloud_dir": directory, "run_dir": directory})
        source = DataSourceNoCloud.DataSourceNoCloud({}, None, paths)
        if not source.get_data():
            sys.exit("the datasource has found nothing")
        instance = os.path.join(directory, "instance-data-sensitive.json")
        if not os.path.exists(instance):
            instance = os.path.join(directory, "instance-data.json")
        json.dump(
            {
                "seed": source.seed,
                "instanceID": source.get_instance_id(),
                "hostname": str(source.get_hostname()),
                "userData": base64.b64encode(source.get_userdata_raw()).decode(),
                "userParts": parts(source.get_userdata()),
                "vendorParts": parts(source.get_vendordata()),
                "template": jinja_template.render_jinja_payload_from_file(template, "template", instance),
                "files": rendered(source.network_config),
            },
            sys.stdout,
        )


main(*sys.argv[1:])
