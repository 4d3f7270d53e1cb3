"""Many ports by ovs-vsctl, one by one, beside a real Open vSwitch."""

import os
import shutil
import time

import pytest

from ovsdb import Following, Real
from test_ovsdb import wired

#: The number of ports; the long form has those of the acceptance list (make management).
LONG = os.environ.get("MILLRACE_OVSDB_LONG")
COUNT = 500 if LONG else 20
# The longest time in s that a command may wait, as the acceptance list has it, and the ratio to a real Open vSwitch. Other tests
# run beside the short form, with a build that is not optimised: it has a bound for hangs only.
COMMAND_MAX_S = 1 if LONG else 20
RATIO_MAX = 1.5 if LONG else None

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is missing: scripts/setup.sh installs it"),
]


def times(database):
    """Adds and removes ports, and returns the time of each command in s."""
    database.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    result = []
    commands = [["add-port", "br0", f"t{number}", "--", "set", "Interface", f"t{number}", "type=internal"] for number in range(COUNT)]
    commands += [["del-port", "br0", f"t{number}"] for number in range(COUNT)]
    for number, command in enumerate(commands):
        if number == COUNT:
            assert len(database.ofctl("show", "br0").split("addr:")) == COUNT + 2
        start = time.monotonic()
        database.vsctl(*command)
        result.append(time.monotonic() - start)
    return result


def test_ports_are_added_and_removed_one_by_one_about_as_fast_as_by_open_vswitch(tmp_path):
    with wired("mr-ours", []), Following(tmp_path / "ours", namespace="mr-ours") as ours:
        mine = times(ours)
        assert ours.shown_current()["cur_cfg"] == int(ours.get("Open_vSwitch", ".", "cur_cfg"))
    with wired("mr-real", []), Real(tmp_path / "real", namespace="mr-real") as real:
        theirs = times(real)
    said = f"{COUNT} ports: {sum(mine):.1f} s, longest {max(mine):.2f} s; Open vSwitch {sum(theirs):.1f} s, longest {max(theirs):.2f} s"
    print(said)
    assert max(mine) < COMMAND_MAX_S, said
    assert RATIO_MAX is None or sum(mine) < RATIO_MAX * sum(theirs), said
