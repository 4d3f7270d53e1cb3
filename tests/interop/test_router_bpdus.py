"""A hostile neighbour of the router that speaks RSTP: the traffic of others loses less than 2 %, memory is bounded, and the root stays.
"""

import itertools
import os

import pytest

from namespaces import packet_socket
from switches import wait_for
from test_router import HOSTS, Router, network, reaches
from test_router_hostile import GROWTH_KIB, MALLORY, lost_share, memory_kib

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def test_a_flood_of_bpdus_costs_others_little_and_moves_no_root(tmp_path):
    """BPDUs of a bridge that is worse than this one, of one that is better at a port with root guard, and broken ones."""
    def bpdu(priority, kind=2, size=36):
        body = bytes([0, 0, 2, kind, 0x3c]) + priority.to_bytes(2) + bytes.fromhex("020000006666") + bytes(4)
        body += priority.to_bytes(2) + bytes.fromhex("020000006666") + b"\x80\x01" + bytes.fromhex("0000140002000f00") + b"\0"
        body = body[:size]
        return bytes.fromhex("0180c2000000") + bytes.fromhex(MALLORY.replace(":", "")) + (3 + len(body)).to_bytes(2) + b"\x42\x42\x03" + body

    frames = itertools.cycle([bpdu(0xf000), bpdu(0), bpdu(0xf000, kind=9), bpdu(0xf000, size=20)])

    def attack():
        for frame in itertools.islice(frames, 100):
            line.send(frame)

    with network(), Router(tmp_path / "m", bridge="rstp = {}") as switch:
        # The attacker has a port of its own, which a host of VLAN 10 would not have.
        switch.change(lambda config: config["bridge"][0]["port"][0].update(rstp={"root_guard": True}))
        with packet_socket(HOSTS[0], "eth0") as line:
            def ports():
                return {port["port"]: port["rstp"] for port in switch.show("rstp", "br0")["br0"]}
            line.send(bpdu(0xf000))
            wait_for("the other port forwards", lambda: ports()["p2"]["state"] == "forwarding")
            wait_for("the router answers", lambda: reaches(HOSTS[1], "10.0.20.1"))
            memory, root = memory_kib(switch), ports()["p2"]["root"]
            lost = lost_share(HOSTS[1], "10.0.20.1", attack)
            assert lost < 0.02
            found = ports()
            assert (found["p2"]["role"], found["p2"]["state"], found["p2"]["root"]) == ("designated", "forwarding", root), found
            assert found["p1"]["role"] != "root" and found["p1"]["root_guarded"], found
            assert found["p1"]["rx_discarded"] > 0, "broken ones are counted"
            assert memory_kib(switch) - memory < GROWTH_KIB
