#!/usr/bin/python
# Copyright The Millrace maintainers. Apache License 2.0.
"""A layer-3 interface of a Millrace switch."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: interface
short_description: A layer-3 interface of a Millrace switch
version_added: 0.1.0
description:
  - Adds, changes or removes an interface (C([[interface]])) in one transaction.
author: The Millrace maintainers (@millrace)
extends_documentation_fragment:
  - millrace.switch.connection
  - millrace.switch.connection.change
options:
  name:
    description: The name of the interface.
    type: str
    required: true
  settings:
    description: Further keys, as in docs/configuration.md; keys that are not given keep their values.
    type: dict
    default: {}
  state:
    description: V(present) adds or changes it, V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: An interface in VLAN 10
  millrace.switch.interface:
    name: v10
    settings: {vrf: blue, bridge: br0, vlan: 10, address: ["10.0.10.1/24"]}
"""

RETURN = r"""
revision:
  description: The newest revision; in check mode, the revision before the change.
  returned: success
  type: int
changes:
  description: The differences, one line each.
  returned: success
  type: list
  elements: str
left_alone:
  description: Objects that belong to other front ends and stay as they are.
  returned: success
  type: list
  elements: dict
pending:
  description: The confirmation that the change waits for.
  returned: success
  type: dict
problems:
  description: Parts of the configuration that do not run after O(wait).
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.millrace.switch.plugins.module_utils.rest import CHANGE, CONNECTION, merge, put, run


def main():
    """Runs the module."""
    spec = {
        "name": {"type": "str", "required": True},
        "settings": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    }
    module = AnsibleModule(argument_spec={**CONNECTION, **CHANGE, **spec}, supports_check_mode=True)
    name = module.params["name"]

    def edit(config):
        interfaces = config.setdefault("interface", [])
        if module.params["state"] == "absent":
            config["interface"] = [interface for interface in interfaces if interface["name"] != name]
        else:
            put(interfaces, {**module.params["settings"], "name": name}, merge)
        return config, False

    run(module, edit)


if __name__ == "__main__":
    main()
