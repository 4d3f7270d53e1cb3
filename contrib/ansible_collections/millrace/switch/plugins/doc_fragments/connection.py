"""Options of all modules."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type


class ModuleDocFragment:
    """The address of the switch, and how to change it."""

    DOCUMENTATION = r"""
options:
  api:
    description:
      - The address of the daemon, V(unix:PATH), V(http://HOST:PORT) or V(https://HOST:PORT).
      - The module runs on the managed host; V(unix:PATH) is a socket there.
    type: str
    default: unix:/run/millrace/millraced.sock
  token:
    description: The bearer token for TCP, the first line of C(api-token) in the state directory of the switch.
    type: str
  ca:
    description: A PEM file with the certificate of the authority that signed the certificate of the switch.
    type: path
"""

    CHANGE = r"""
options:
  confirm_within:
    description:
      - Roll the change back after this number of seconds, 1 to 86400, unless M(millrace.switch.confirm) confirms it.
    type: int
  comment:
    description: The reason for the change, stored with the revision.
    type: str
    default: ansible
  lock_token:
    description: The token of the lock on the configuration, if this play holds it.
    type: str
  wait:
    description:
      - The longest time in seconds to wait until the change runs; 0 does not wait.
      - Parts that do not run at its end are warnings, and in RV(problems).
    type: int
    default: 5
attributes:
  check_mode:
    description: The switch checks the change, as it checks the change itself.
    support: full
  diff_mode:
    description: The differences are those that the switch computes.
    support: full
"""
