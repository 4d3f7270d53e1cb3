"""RSTP with Open vSwitch over two cables, and STP with the bridge of the kernel: one cable carries packets at any time, whichever
bridge is the root. A dissector reads the BPDUs.
"""

import json
import os
import re
import shutil

import pytest

from namespaces import cables, packet_socket_here, receive
from switches import Millrace, OpenVSwitch, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
OURS, THEIRS = ("mr-rs0", "mr-rs2"), ("mr-rs1", "mr-rs3")
FIRST, LAST = 4096, 61440


class Peer(OpenVSwitch):
    """Open vSwitch at the other ends of the cables, with RSTP."""

    def start(self):
        return self.start_netdev("ovs-rs", "rstp_enable=true", *(part for name in THEIRS for part in ("--", "add-port", "ovs-rs", name)))

    def roles(self):
        """Returns the sorted roles of the ports, as Open vSwitch names them."""
        text = self.appctl("rstp/show", "ovs-rs")
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


def kernel_states():
    """Returns the sorted states of the ports of the kernel's bridge."""
    links = json.loads(run("ip", "-j", "-d", "link", "show", "master", "mr-rsb"))
    return sorted(link["linkinfo"]["info_slave_data"]["state"] for link in links)


def test_the_kernels_bridge_and_this_one_speak_stp_and_block_one_cable(tmp_path):
    """The kernel knows STP only. Its delay is the shortest that it takes, so that a cable takes over within 8 s.

    `MILLRACE_ROUTING_LONG=1` makes the kernel's bridge the root, too (`make routing`).
    """
    switch = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS[0]}"), (2, f"kernel:{OURS[1]}")],
                      fail_mode="standalone", extra=f"rstp = {{ priority = {FIRST}, forward_delay_s = 4, max_age_s = 6, hello_time_s = 1 }}")
    with cables(*zip(OURS, THEIRS)):
        run("ip", "link", "del", "mr-rsb", check=False)
        # In hundredths of a second.
        run("ip", "link", "add", "mr-rsb", "type", "bridge", "stp_state", "1", "forward_delay", "400", "hello_time", "100", "max_age", "600")
        try:
            for name in THEIRS:
                run("ip", "link", "set", name, "master", "mr-rsb")
            run("ip", "link", "set", "mr-rsb", "up")
            with switch:
                # This bridge is the root.
                wait_for("our ports forward", lambda: states(switch) == [("designated", "forwarding")] * 2)
                wait_for("the kernel blocks one cable", lambda: kernel_states() == ["blocking", "forwarding"])
                assert {port["sends"] for port in ports(switch).values()} == {"stp"}
                # The cable in use fails, and the other takes over.
                links = json.loads(run("ip", "-j", "-d", "link", "show", "master", "mr-rsb"))
                used = next(link["ifname"] for link in links if link["linkinfo"]["info_slave_data"]["state"] == "forwarding")
                run("ip", "link", "set", OURS[THEIRS.index(used)], "down")
                wait_for("the other cable", lambda: "forwarding" in kernel_states() and "blocking" not in kernel_states())
                if os.environ.get("MILLRACE_ROUTING_LONG") != "1":
                    return
                run("ip", "link", "set", OURS[THEIRS.index(used)], "up")
                wait_for("one cable is blocked again", lambda: kernel_states() == ["blocking", "forwarding"])
                # The kernel becomes the root.
                switch.change(lambda config: config["bridge"][0]["rstp"].update(priority=LAST))
                wait_for("one of our ports is blocked", lambda: states(switch) == [("alternate", "discarding"), ("root", "forwarding")])
                wait_for("the kernel's ports forward", lambda: kernel_states() == ["forwarding"] * 2)
        finally:
            run("ip", "link", "del", "mr-rsb", check=False)


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed (apt-get install tshark)")
def test_bpdus_are_what_a_dissector_expects(tmp_path):
    ours = Millrace(tmp_path / "millrace", ports=[(1, f"kernel:{OURS[0]}")], extra=f"rstp = {{ priority = {FIRST} }}")
    with cables((OURS[0], THEIRS[0])), packet_socket_here(THEIRS[0]) as line, ours:
        frame = receive(line, lambda frame: frame[:6] == bytes.fromhex("0180c2000000"))
    capture = tmp_path / "rstp.pcap"
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    capture.write_bytes(header + bytes(8) + len(frame).to_bytes(4, "little") * 2 + frame)
    text = run("tshark", "-n", "-V", "-r", capture)
    assert "Malformed" not in text and "Expert Info" not in text, text
    assert re.search(r"Rapid Spanning Tree \(2\)", text) and re.search(rf"Root Bridge Priority: {FIRST}\b", text), text
