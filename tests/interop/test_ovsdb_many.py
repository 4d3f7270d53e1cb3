"""Many ports: by ovs-vsctl, one by one, beside a real Open vSwitch; and by ovsdbapp, 2,000 of them, which cost little at rest."""

import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest

from ovsdb import Following, Real
from switches import run, wait_for
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


#: Ports that ovsdbapp makes, and the bounds of the acceptance list: the time in s in which a switch that starts has all rows, and the share of a
#: core that it uses when nothing happens.
APP_COUNT = 2000
REPLICA_MAX_S, IDLE_MAX = 2, 0.01
REST_S = 30
PYTHON = "/usr/bin/python3"


def has_ovsdbapp():
    return subprocess.run([PYTHON, "-c", "import ovsdbapp"], capture_output=True, timeout=60).returncode == 0


def processor_time(pid):
    """Returns the time in s that the threads of a process have had, other than its workers."""
    spent = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        text = (task / "stat").read_text()
        fields = text[text.rindex(")") + 2 :].split()
        if not (task / "comm").read_text().startswith("worker"):
            spent += int(fields[11]) + int(fields[12])
    return spent / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not LONG, reason="a long form: make management")
@pytest.mark.skipif(not has_ovsdbapp(), reason="python3-ovsdbapp is missing: scripts/setup.sh management installs it")
def test_two_thousand_ports_are_read_in_seconds_and_cost_little_at_rest(tmp_path):
    with wired("mr-many", []), Following(tmp_path, namespace="mr-many") as switch:
        script = pathlib.Path(__file__).with_name("ovsdb_many.py")
        said = json.loads(run(PYTHON, script, f"unix:{switch.socket}", str(APP_COUNT), timeout=600, env=switch.environment).splitlines()[-1])
        assert said["ports"] == APP_COUNT
        wait_for("the switch is up to date", lambda: switch.shown_current(), 300)
        ofports = {row["name"]: row["ofport"] for row in switch.rows("Interface")}
        assert len(ofports) == APP_COUNT + 2 and all(isinstance(number, int) and number > 0 for number in ofports.values())
        before = processor_time(switch.process.pid)
        time.sleep(REST_S)
        idle = (processor_time(switch.process.pid) - before) / REST_S
        # The server goes, and comes back: the whole replica is read anew.
        switch.kill_database()
        wait_for("the switch notices", lambda: switch.shown()["state"] != "following")
        began = time.monotonic()
        switch.start_database()
        switch.wait_until_following()
        replica = time.monotonic() - began
        wait_for("the switch is up to date", lambda: switch.shown_current(), 60)
        assert ofports == {row["name"]: row["ofport"] for row in switch.rows("Interface")}
    text = (f"{APP_COUNT} ports by ovsdbapp: added in {said['added']:.1f} s, its replica in {said['replica']:.2f} s; the switch's replica in "
            f"{replica:.2f} s, at rest {100 * idle:.2f} % of a core")
    print(text)
    assert said["replica"] < REPLICA_MAX_S and replica < REPLICA_MAX_S and idle < IDLE_MAX, text
