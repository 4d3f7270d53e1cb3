"""Mininet, unchanged, over Millrace in the place of ovs-vswitchd."""

import os
import re
import shutil

import pytest

from ovsdb import Following
from switches import run

#: The long form has a larger tree, and iperf (make management).
LONG = os.environ.get("MILLRACE_OVSDB_LONG")
RUN_DIR = "/run/openvswitch"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("mn") is None, reason="Mininet is missing: scripts/setup.sh management installs it"),
    pytest.mark.skipif(shutil.which("ovs-testcontroller") is None,
                       reason="ovs-testcontroller is missing: scripts/setup.sh management installs it"),
    pytest.mark.skipif(os.path.exists(f"{RUN_DIR}/db.sock"), reason=f"{RUN_DIR} has a database: scripts/apart.sh gives an own /run"),
]


#: Lines for Mininet's prompt: a transfer between the first host and the last one.
TRANSFER = "h1 iperf -s -D\\nh{last} iperf -c 10.0.0.1 -t 2\\n"


@pytest.mark.parametrize(("controller", "options"), [("ovsc", ""), ("none", ",failMode=standalone")], ids=["controller", "standalone"])
def test_every_host_of_a_tree_reaches_every_other(tmp_path, controller, options):
    topology, last = ("tree,2,3", 9) if LONG else ("tree,2,2", 4)
    mininet = f"mn --switch ovs,protocols=OpenFlow13,datapath=user{options} --controller {controller} --topo {topology}"
    # Mininet and its tools know one place of the database.
    with Following(tmp_path, run_dir=RUN_DIR) as switch:
        shown = run("sh", "-c", f"exec {mininet} --test pingall 2>&1", timeout=300, env=switch.environment)
        assert re.search(r"Results: 0% dropped \((\d+)/\1 received\)", shown), shown
        assert switch.rows("Bridge") == [], "Mininet removes its bridges"
        if LONG:
            lines = TRANSFER.format(last=last)
            shown = run("sh", "-c", f"printf '{lines}' | {mininet} 2>&1", timeout=300, env=switch.environment)
            assert re.search(r"[\d.]+ [KMG]bits/sec", shown), shown
        shown = switch.shown_current()
        assert not [fault for fault in shown["faults"] if fault["refused"]], shown
