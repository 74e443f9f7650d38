#!/usr/bin/python
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""A list of objects below an object of AWX, such as the credentials of a job template."""

DOCUMENTATION = r"""
module: awx_members
short_description: Puts objects into a list below an object of AWX
description:
  - Adds what is missing, and with O(exact) takes out what else is there.
options:
  url:
    description: Where AWX is, as V(https://HOST). Its certificate is always verified.
    type: str
    required: true
  api_prefix:
    description: The path of its API. Ansible Automation Platform 2.5 and newer has it at V(/api/controller/v2).
    type: str
    default: /api/v2
  token:
    description: An OAuth2 token with the scope write.
    type: str
    required: true
  ca_path:
    description: File with the certificate authorities (PEM) that AWX is verified against; those of the system by default.
    type: path
  timeout:
    description: Seconds to wait for each answer.
    type: int
    default: 30
  resource:
    description: The list that the object is in, such as V(job_templates).
    type: str
    required: true
  id:
    description: The object's number. In check mode, 0 stands for one that is yet to be made.
    type: int
    required: true
  list:
    description: The list below it, such as V(credentials).
    type: str
    required: true
  members:
    description: Numbers of the objects to be in it.
    type: list
    elements: int
    required: true
  exact:
    description: Take all others out.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: Says what would change.
  diff_mode:
    support: full
    description: Shows the numbers before and after.
author:
  - The CAPLV Authors (@caplv)
"""

EXAMPLES = r"""
- name: The team may execute the job template
  caplv.caplv.awx_members:
    url: https://awx.example.com
    token: "{{ token }}"
    resource: teams
    id: 4
    list: roles
    members: [117]
"""

RETURN = r"""
members:
  description: Numbers of the objects in the list.
  type: list
  elements: int
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.caplv.caplv.plugins.module_utils import awx


def run(module, client):
    """Return the members before and after. Raises AwxError."""
    params = module.params
    path = "%s/%d/%s/" % (params["resource"], params["id"], params["list"])
    before = sorted(member["id"] for member in client.all(path)) if params["id"] else []
    # First out, then in: of some kinds there may be only one.
    gone = [number for number in before if params["exact"] and number not in params["members"]]
    new = [number for number in params["members"] if number not in before]
    if not module.check_mode:
        for number in gone:
            client.request("POST", path, {"id": number, "disassociate": True})
        for number in new:
            client.request("POST", path, {"id": number})
    return before, sorted(set(before) - set(gone) | set(new))


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            awx.ARGUMENTS,
            resource={"type": "str", "required": True},
            id={"type": "int", "required": True},
            list={"type": "str", "required": True},
            members={"type": "list", "elements": "int", "required": True},
            exact={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    if not module.check_mode and 0 in [module.params["id"]] + module.params["members"]:
        module.fail_json(msg="0 is the number of no object")
    try:
        before, after = run(module, awx.Client(module.params))
    except awx.AwxError as e:
        module.fail_json(msg=str(e))
    module.exit_json(changed=before != after, members=after, diff={"before": {"members": before}, "after": {"members": after}})


if __name__ == "__main__":
    main()
