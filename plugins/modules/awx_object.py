#!/usr/bin/python
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
"""One object of AWX, made or changed so that it has the given fields."""

DOCUMENTATION = r"""
module: awx_object
short_description: Makes or changes one object of AWX
description:
  - Finds an object by what identifies it, makes it where there is none, and changes fields that are otherwise. Other fields stay as they are.
  - It needs nothing but the REST API, so it works with AWX and with Ansible Automation Platform.
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
    description: The list that the object is in, as the API calls it, such as V(job_templates).
    type: str
    required: true
  identity:
    description:
      - Fields that no other object has the same of. They are set in a new object.
      - In check mode, the number 0 stands for an object that is yet to be made.
    type: dict
    required: true
  fields:
    description: Fields that the object is to have. Variables may be a dictionary where AWX has a text.
    type: dict
    default: {}
  once:
    description: Fields that are only set in a new object, such as the secrets of a credential, which AWX never shows.
    type: dict
    default: {}
  survey:
    description: The questions of a template's survey. AWX has them apart from the other fields.
    type: list
    elements: dict
  state:
    description: With V(found), nothing is made or changed, and an object that is missing is an error.
    type: str
    choices: [present, found]
    default: present
  wait:
    description: Seconds to wait for the object's status to be successful, as that of a project is once it was fetched. 0 does not wait.
    type: int
    default: 0
attributes:
  check_mode:
    support: full
    description: Says what would change.
  diff_mode:
    support: full
    description: Shows the fields before and after.
author:
  - The CAPLV Authors (@caplv)
"""

EXAMPLES = r"""
- name: The inventory is there
  caplv.caplv.awx_object:
    url: https://awx.example.com
    token: "{{ token }}"
    resource: inventories
    identity: {name: CAPLV hosts, organization: 1}
    fields: {description: Hosts of virtual machines}
"""

RETURN = r"""
id:
  description: The object's number; 0 in check mode for one that is yet to be made.
  type: int
  returned: always
roles:
  description: Numbers of the roles on the object, by their names, such as V(execute_role).
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.caplv.caplv.plugins.module_utils import awx


class Object(object):
    """The object, and what was changed of it."""

    def __init__(self, module, client):
        self.module, self.client = module, client
        self.params = module.params
        self.before, self.after = {}, {}

    def run(self):
        """Return the object as it is afterwards, or {} where it is yet to be made. Raises AwxError."""
        found = self._find()
        if self.params["state"] == "found":
            if found is None:
                raise awx.AwxError(
                    "AWX shows none of %s with %s: make it first, or give the user of the token a right on it"
                    % (self.params["resource"], self.module.jsonify(self.params["identity"]))
                )
            return found
        found = self._create() if found is None else self._change(found)
        if self.params["wait"] and found and not self.module.check_mode:
            found = self.client.wait(self.params["resource"], found["id"], self.params["wait"])
        if self.params["survey"] is not None:
            self._survey(found)
        return found

    def _find(self):
        identity = self.params["identity"]
        if self.module.check_mode and 0 in [value for value in identity.values() if not isinstance(value, bool)]:
            return None
        return self.client.find(self.params["resource"], identity)

    def _create(self):
        fields = dict(self.params["identity"], **self.params["fields"])
        self.after.update(fields)
        if self.module.check_mode:
            return {}
        return self.client.request("POST", self.params["resource"] + "/", awx.as_sent(dict(fields, **self.params["once"])))

    def _change(self, found):
        changes = awx.differs(self.params["fields"], found)
        self.before.update((name, found.get(name)) for name in changes)
        self.after.update(changes)
        if not changes or self.module.check_mode:
            return found
        return self.client.request("PATCH", "%s/%d/" % (self.params["resource"], found["id"]), awx.as_sent(changes))

    def _survey(self, found):
        path = "%s/%d/survey_spec/" % (self.params["resource"], found["id"]) if found else None
        wanted = self.params["survey"]
        present = (self.client.request("GET", path) or {}).get("spec", []) if path else []
        # AWX adds fields to questions, and their order is that of the form.
        if len(wanted) == len(present) and not any(awx.differs(w, p) for w, p in zip(wanted, present)):
            return
        self.before["survey"], self.after["survey"] = present, wanted
        if path and not self.module.check_mode:
            self.client.request("POST", path, {"name": "", "description": "", "spec": wanted})


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            awx.ARGUMENTS,
            resource={"type": "str", "required": True},
            identity={"type": "dict", "required": True},
            fields={"type": "dict", "default": {}},
            once={"type": "dict", "default": {}, "no_log": True},
            survey={"type": "list", "elements": "dict"},
            state={"type": "str", "choices": ["present", "found"], "default": "present"},
            wait={"type": "int", "default": 0},
        ),
        supports_check_mode=True,
    )
    try:
        target = Object(module, awx.Client(module.params))
        found = target.run()
    except awx.AwxError as e:
        module.fail_json(msg=str(e))
    roles = dict((name, role["id"]) for name, role in found.get("summary_fields", {}).get("object_roles", {}).items())
    module.exit_json(
        changed=bool(target.before or target.after), id=found.get("id", 0), roles=roles, diff={"before": target.before, "after": target.after}
    )


if __name__ == "__main__":
    main()
