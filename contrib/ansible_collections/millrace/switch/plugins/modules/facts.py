#!/usr/bin/python
# Copyright The Millrace maintainers. Apache License 2.0.
"""Facts of a switch."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: facts
short_description: Gather facts of a Millrace switch
version_added: 0.1.0
description:
  - Returns versions, the state of the configuration, bridges with their ports, and the owners of objects.
author: The Millrace maintainers (@millrace)
extends_documentation_fragment:
  - millrace.switch.connection
attributes:
  check_mode:
    description: Nothing is changed.
    support: full
  diff_mode:
    description: There is no difference to show.
    support: none
"""

EXAMPLES = r"""
- name: Ask the switch
  millrace.switch.facts:

- name: Fail if a part does not run
  ansible.builtin.assert:
    that: ansible_facts.millrace.status.problems == []
"""

RETURN = r"""
ansible_facts:
  description: The facts, in C(millrace).
  returned: success
  type: dict
  contains:
    millrace:
      description: The keys C(version), C(status), C(bridges) with C(ports), C(owners) and C(confirmation), as REST returns them.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.millrace.switch.plugins.module_utils.rest import CONNECTION, Refused, Switch, escape, fail


def main():
    """Runs the module."""
    module = AnsibleModule(argument_spec=dict(CONNECTION), supports_check_mode=True)
    switch = Switch(module.params)
    try:
        bridges = switch.get("bridges")
        for bridge in bridges:
            bridge["ports"] = switch.get(f"bridges/{escape(bridge['name'])}/ports")
        facts = {
            "version": switch.get("version"),
            "status": switch.get("status"),
            "bridges": bridges,
            "owners": {owned["object"]: owned["owner"] for owned in switch.get("owners")["objects"]},
            "confirmation": switch.get("config/confirm")["pending"],
        }
    except Refused as refused:
        fail(module, refused)
    module.exit_json(changed=False, ansible_facts={"millrace": facts})


if __name__ == "__main__":
    main()
