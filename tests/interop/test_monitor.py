"""Flow monitors (ONF extension 187): `ovs-ofctl monitor watch:` prints the same for Millrace and Open vSwitch."""

import os
import re
import subprocess
import threading

import pytest

from switches import Millrace, OpenVSwitch, wait_for

# Changes during a monitor, and the number of updates that each makes.
STEPS = [
    (["add-flow", "priority=7,in_port=1,cookie=9,idle_timeout=30,hard_timeout=40,actions=output:1"], 1),
    (["mod-flows", "in_port=1,actions=output:2"], 1),
    (["add-flow", "priority=7,in_port=1,cookie=10,actions=output:1"], 1),
    (["del-flows", "in_port=1"], 1),
    (["add-flow", "priority=1,tcp,actions=goto_table:3"], 1),
    (["add-flow", "priority=1,tcp,vlan_vid=0x1005/0x1fff,nw_src=10.0.0.0/8,actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:1"], 1),
    (["add-group", "group_id=1,type=all,bucket=output:1"], 0),
    (["add-flow", "priority=3,udp,actions=group:1"], 1),
    (["del-groups"], 1),
    (["del-flows", "table=3"], 1),
]


class Watcher:
    """`ovs-ofctl monitor`, and the updates that it prints."""

    def __init__(self, target, *what):
        environment = os.environ | {"OVS_RUNDIR": "/tmp"}
        self.process = subprocess.Popen(
            ["ovs-ofctl", "-O", "OpenFlow13", "monitor", target, *what], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env=environment)
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def updates(self):
        return [line for line in self.lines if line.startswith("event=")]

    def stop(self):
        self.process.kill()
        self.process.wait(timeout=60)


def watched(switch, target, what):
    switch.ofctl("del-flows")
    switch.ofctl("add-flow", "table=3,priority=9,tcp,tp_dst=80,cookie=5,actions=output:2")
    watcher = Watcher(target, what)
    try:
        initial = 0 if "!initial" in what else 1
        if initial:
            wait_for("what was there", watcher.updates)
        else:
            wait_for("the monitor", lambda: any("FLOW_MONITOR reply" in line for line in watcher.lines))
        expected = initial
        for command, updates in STEPS:
            switch.ofctl(*command)
            if "table=3" not in what:
                expected += updates
                wait_for(f"the updates of {command}", lambda: len(watcher.updates()) >= expected)
        if "table=3" in what:
            wait_for("the end of table 3", lambda: "event=DELETED" in " ".join(watcher.updates()))
        return [re.sub(r"set_field:4101->vlan_vid|set_vlan_vid:5", "set vlan 5", line) for line in watcher.updates()]
    finally:
        watcher.stop()


@pytest.mark.parametrize("what", ["watch:", "watch:!initial,!actions", "watch:table=3"])
def test_ovs_ofctl_hears_the_same_of_our_switch_as_of_open_vswitch(tmp_path, what):
    with OpenVSwitch(tmp_path / "ovs") as peer:
        theirs = watched(peer, f"unix:{peer.folder}/br0.mgmt", what)
    with Millrace(tmp_path / "millrace", ports=[(1, "link:a"), (2, "link:a")]) as switch:
        ours = watched(switch, switch.target, what)
    assert ours == theirs and len(ours) > 1
