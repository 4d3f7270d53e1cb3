#!/usr/bin/python
# Copyright The Millrace maintainers. Apache License 2.0.
"""The confirmation of a change."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: confirm
short_description: Confirm a change of a Millrace switch, or roll it back
version_added: 0.1.0
description:
  - Ends the wait of a change that was made with O(millrace.switch.config#module:confirm_within).
  - If nothing waits, nothing is changed, unless O(revision) is given and waits no longer without being the newest.
author: The Millrace maintainers (@millrace)
extends_documentation_fragment:
  - millrace.switch.connection
options:
  state:
    description: V(confirmed) keeps the change, V(cancelled) rolls it back at once.
    type: str
    choices: [confirmed, cancelled]
    default: confirmed
  revision:
    description: The revision that must be the one that waits.
    type: int
  comment:
    description: The reason for a rollback.
    type: str
    default: ansible
  lock_token:
    description: The token of the lock on the configuration, if this play holds it.
    type: str
attributes:
  check_mode:
    description: Reports if a change waits.
    support: full
  diff_mode:
    description: There is no difference to show.
    support: none
"""

EXAMPLES = r"""
- name: Keep the change, now that the switch is still reachable
  millrace.switch.confirm:
"""

RETURN = r"""
revision:
  description: The newest revision.
  returned: success
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.millrace.switch.plugins.module_utils.rest import CONNECTION, Refused, Switch, fail


def main():
    """Runs the module."""
    spec = {
        "state": {"type": "str", "choices": ["confirmed", "cancelled"], "default": "confirmed"},
        "revision": {"type": "int"},
        "comment": {"type": "str", "default": "ansible"},
        "lock_token": {"type": "str", "no_log": True},
    }
    module = AnsibleModule(argument_spec={**CONNECTION, **spec}, supports_check_mode=True)
    switch = Switch(module.params)
    is_confirmed = module.params["state"] == "confirmed"
    query = {"revision": module.params["revision"]}
    if not is_confirmed:
        query.update(author="ansible", comment=module.params["comment"])
    try:
        pending = switch.get("config/confirm")["pending"]
        if pending is None or module.check_mode:
            newest = switch.get("revisions?limit=1")["revisions"][0]["number"]
            wanted = module.params["revision"]
            if is_confirmed and pending is None and wanted is not None and wanted != newest:
                module.fail_json(msg=f"revision {wanted} waits for no confirmation: the newest revision is {newest}")
            module.exit_json(changed=pending is not None, revision=newest)
        method = "POST" if is_confirmed else "DELETE"
        revision = switch.ask(method, "/api/v1/config/confirm", query=query)[0]
    except Refused as refused:
        fail(module, refused)
    module.exit_json(changed=True, revision=revision["number"])


if __name__ == "__main__":
    main()
