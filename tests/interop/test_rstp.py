"""RSTP with Open vSwitch over two cables: one of them carries packets at any time, whichever bridge is the root."""

import json
import os

import pytest

from namespaces import cables
from switches import Millrace, OpenVSwitch, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
OURS, THEIRS = ("mr-rs0", "mr-rs2"), ("mr-rs1", "mr-rs3")
FIRST, LAST = 4096, 61440


class Peer(OpenVSwitch):
    """Open vSwitch at the other ends of the cables, with RSTP."""

    def start(self):
        database = self._start_database()
        self._spawn("ovs-vswitchd", database, "--disable-system", f"--unixctl={self.folder}/vs.ctl")
        self._vsctl("--timeout=50", "add-br", "ovs-rs", "--", "set", "bridge", "ovs-rs", "datapath_type=netdev",
                    "rstp_enable=true", *(part for name in THEIRS for part in ("--", "add-port", "ovs-rs", name)))
        return self

    def roles(self):
        """Returns the sorted roles of the ports, as Open vSwitch names them."""
        text = run("ovs-appctl", "-t", f"{self.folder}/vs.ctl", "rstp/show", "ovs-rs")
        return sorted(line.split()[1] for line in text.splitlines() if line.split()[:1] and line.split()[0] in THEIRS)


def ports(switch):
    found = json.loads(switch.cli("show", "rstp", "br0", "--json"))["br0"]
    return {port["port"]: port["rstp"] for port in found}


def states(switch):
    """Returns the sorted (role, state) of our ports."""
    return sorted((port["role"], port["state"]) for port in ports(switch).values())


def blocked(switch):
    """Returns the number of ports that OpenFlow reports as blocked."""
    return switch.ofctl("show").count("BLOCKED")


def test_one_cable_to_open_vswitch_carries_packets_whichever_bridge_is_the_root(tmp_path):
    switch = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS[0]}"), (2, f"kernel:{OURS[1]}")],
                      fail_mode="standalone", extra=f"rstp = {{ priority = {FIRST} }}")
    with cables(*zip(OURS, THEIRS)), switch, Peer(tmp_path / "ovs") as peer:
        forwarding = [("designated", "forwarding")] * 2
        wait_for("both ports forward: this bridge is the root", lambda: states(switch) == forwarding)
        wait_for("Open vSwitch blocks one cable", lambda: peer.roles() == ["Alternate", "Root"])
        wait_for("OpenFlow's view", lambda: blocked(switch) == 0)
        assert all(port["sends"] == "rstp" for port in ports(switch).values())
        # Open vSwitch becomes the root.
        switch.change(lambda config: config["bridge"][0]["rstp"].update(priority=LAST))
        one_blocked = [("alternate", "discarding"), ("root", "forwarding")]
        wait_for("one port is blocked", lambda: states(switch) == one_blocked)
        wait_for("OpenFlow's view", lambda: blocked(switch) == 1)
        assert "alternate" in switch.cli("show", "rstp")
        # The cable in use fails, and the other takes over.
        root = next(name for name, port in ports(switch).items() if port["role"] == "root")
        cut = OURS[int(root[1]) - 1]
        run("ip", "link", "set", cut, "down")
        other = "p1" if root == "p2" else "p2"
        wait_for("the other cable", lambda: (port := ports(switch)[other])["role"] == "root"
                 and port["state"] == "forwarding")
        assert ports(switch)[root]["role"] == "disabled"
        run("ip", "link", "set", cut, "up")
        wait_for("one port is blocked again", lambda: states(switch) == one_blocked)
        # Without RSTP, both ports forward and take no BPDUs.
        switch.change(lambda config: config["bridge"][0]["port"][1].update(rstp={"enabled": False}))
        wait_for("only one port has RSTP", lambda: list(ports(switch)) == ["p1"])
        wait_for("OpenFlow's view", lambda: blocked(switch) == 0 or states(switch) == [("alternate", "discarding")])


def test_bpdu_guard_blocks_a_port_with_a_bridge_behind_it(tmp_path):
    switch = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS[0]}"), (2, f"kernel:{OURS[1]}")],
                      extra="rstp = {}")
    with cables(*zip(OURS, THEIRS)), switch, Peer(tmp_path / "ovs"):
        guard = {"bpdu_guard": True, "edge": "yes"}
        switch.change(lambda config: config["bridge"][0]["port"][0].update(rstp=guard))
        wait_for("the guard", lambda: ports(switch)["p1"]["bpdu_guarded"])
        wait_for("OpenFlow's view", lambda: blocked(switch) >= 1)
        switch.change(lambda config: config["bridge"][0]["port"][0].pop("rstp"))
        wait_for("the port takes part again", lambda: ports(switch)["p1"]["role"] in ("root", "alternate", "designated"))
