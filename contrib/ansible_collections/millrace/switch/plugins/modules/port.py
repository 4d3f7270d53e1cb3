#!/usr/bin/python
# Copyright The Millrace maintainers. Apache License 2.0.
"""A port of a Millrace switch."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: port
short_description: A port of a Millrace switch
version_added: 0.1.0
description:
  - Adds, changes or removes a port of a bridge in one transaction.
author: The Millrace maintainers (@millrace)
extends_documentation_fragment:
  - millrace.switch.connection
  - millrace.switch.connection.change
options:
  bridge:
    description: The bridge of the port.
    type: str
    required: true
  name:
    description: The name of the port.
    type: str
    required: true
  number:
    description: The OpenFlow port number; needed for a new port.
    type: int
  device:
    description: The device, such as V(kernel:eth1); needed for a new port.
    type: str
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
- name: A port on VLAN 10
  millrace.switch.port:
    bridge: br0
    name: p1
    number: 1
    device: kernel:eth1
    settings: {vlan: 10}
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
from ansible_collections.millrace.switch.plugins.module_utils.rest import CHANGE, CONNECTION, Refused, find, merge, put, run


def main():
    """Runs the module."""
    spec = {
        "bridge": {"type": "str", "required": True},
        "name": {"type": "str", "required": True},
        "number": {"type": "int"},
        "device": {"type": "str"},
        "settings": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    }
    module = AnsibleModule(argument_spec={**CONNECTION, **CHANGE, **spec}, supports_check_mode=True)
    name = module.params["name"]
    given = {key: module.params[key] for key in ("number", "device") if module.params[key] is not None}

    def edit(config):
        bridge = find(config.get("bridge", []), module.params["bridge"])
        if module.params["state"] == "absent":
            if bridge is not None:
                bridge["port"] = [port for port in bridge.get("port", []) if port["name"] != name]
            return config, False
        if bridge is None:
            raise Refused(404, {"detail": f"no bridge `{module.params['bridge']}` is configured"})
        put(bridge.setdefault("port", []), {**module.params["settings"], **given, "name": name}, merge)
        return config, False

    run(module, edit)


if __name__ == "__main__":
    main()
