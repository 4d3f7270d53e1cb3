#!/usr/bin/python
# Copyright The Millrace maintainers. Apache License 2.0.
"""The configuration of a switch as a whole."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: config
short_description: Configure a Millrace switch
version_added: 0.1.0
description:
  - Changes the configuration of a switch in one transaction, all or nothing.
  - The switch validates, compares and commits. A second run changes nothing.
  - Objects that belong to another front end, such as an Open vSwitch database, are refused if the task changes them, and left
    alone by O(state=overridden).
author: The Millrace maintainers (@millrace)
extends_documentation_fragment:
  - millrace.switch.connection
  - millrace.switch.connection.change
options:
  config:
    description: Tables and keys as in docs/configuration.md.
    type: dict
    default: {}
  state:
    description:
      - V(merged) merges O(config) in. Tables are merged by key, lists of tables with a C(name) by name; other values are replaced.
      - V(replaced) replaces each given table, and each given item of a list with a C(name), as a whole. Others stay.
      - V(overridden) makes O(config) the whole configuration; C(system) and C(api) stay unless they are given.
      - V(deleted) removes the items that O(config) names, and sets given tables to their defaults.
      - V(gathered) changes nothing and returns the configuration in RV(config).
    type: str
    choices: [merged, replaced, overridden, deleted, gathered]
    default: merged
"""

EXAMPLES = r"""
- name: A bridge with two ports
  millrace.switch.config:
    config:
      bridge:
        - name: br0
          fail_mode: standalone
          port:
            - {name: p1, number: 1, device: "kernel:eth1"}
            - {name: p2, number: 2, device: "kernel:eth2"}

- name: Remove a bridge, and return if nobody confirms within a minute
  millrace.switch.config:
    config: {bridge: [{name: br1}]}
    state: deleted
    confirm_within: 60
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
config:
  description: The configuration.
  returned: O(state=gathered)
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.millrace.switch.plugins.module_utils.rest import (
    CHANGE,
    CONNECTION,
    Refused,
    Switch,
    by_name,
    fail,
    merge,
    put,
    run,
)


def replaced(old, new):
    """Returns the configuration in which the given tables and named items are as given."""
    for key, value in new.items():
        if isinstance(old.get(key), list) and by_name(value):
            for item in value:
                put(old[key], item, lambda _known, given: given)
        else:
            old[key] = value
    return old


def deleted(old, new):
    """Returns the configuration without the named items and the given tables."""
    for key, value in new.items():
        if isinstance(old.get(key), list) and by_name(value):
            names = {item["name"] for item in value}
            old[key] = [item for item in old[key] if item.get("name") not in names]
        else:
            old.pop(key, None)
    return old


def overridden(old, new):
    """Returns the given configuration, with the process settings of the present one unless they are given."""
    return {**{key: old[key] for key in ("system", "api") if key in old}, **new}


def main():
    """Runs the module."""
    choices = ["merged", "replaced", "overridden", "deleted", "gathered"]
    spec = {
        "config": {"type": "dict", "default": {}},
        "state": {"type": "str", "choices": choices, "default": "merged"},
    }
    module = AnsibleModule(argument_spec={**CONNECTION, **CHANGE, **spec}, supports_check_mode=True)
    state, given = module.params["state"], module.params["config"]
    if state == "gathered":
        try:
            config, tag = Switch(module.params).config()
        except Refused as refused:
            fail(module, refused)
        module.exit_json(changed=False, config=config, revision=int(tag.strip('"')))
    edits = {"merged": merge, "replaced": replaced, "overridden": overridden, "deleted": deleted}
    run(module, lambda config: (edits[state](config, given), state == "overridden"))


if __name__ == "__main__":
    main()
