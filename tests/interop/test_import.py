"""Bridges of Linux imported by `millrace import linux`: the switch with that configuration forwards as the bridge did."""

import contextlib
import json
import os
import pathlib
import subprocess

import pytest

from namespaces import ETH_P_ALL, cables
from switches import TARGET, Millrace, run

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="bridges need root")
MILLRACE = TARGET / "millrace"
# Ports of the bridge, and the far ends at which the test sends and receives.
BRIDGE = "imported"
ENDS = {"ba": "ta", "bb": "tb", "bc": "tc", "bd": "td"}
BROADCAST = b"\xff" * 6
TYPE = b"\x88\xb5"
# The time in s for frames to arrive once one has.
REST = 0.3
# The time in s in which frames arrive that do.
ARRIVAL_MAX_S = 60
BOUND = 60


def frame(source, vlan, number):
    """Returns a frame with a host as its source, perhaps with a tag, and a number as its content."""
    tag = b"" if vlan is None else b"\x81\x00" + vlan.to_bytes(2, "big")
    return BROADCAST + bytes([2, 0, 0, 0, 0, source]) + tag + TYPE + number.to_bytes(4, "big") + bytes(50)


class Ends:
    """Raw sockets at the far ends."""

    def __init__(self):
        import socket
        self.sockets = {}
        for end in ENDS.values():
            opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            opened.bind((end, 0))
            # The kernel removes a tag and passes it beside the frame (PACKET_AUXDATA).
            opened.setsockopt(263, 8, 1)
            self.sockets[end] = opened

    def close(self):
        for opened in self.sockets.values():
            opened.close()

    def received(self, number, expected):
        """Returns the ends that received a frame with this number, each with its VLAN tag or None, once the expected ones have."""
        import select
        import time
        found, wanted = set(), TYPE + number.to_bytes(4, "big")
        deadline = time.monotonic() + REST
        last = time.monotonic() + ARRIVAL_MAX_S
        while (left := deadline - time.monotonic()) > 0 or (not found >= expected and time.monotonic() < last):
            ready = select.select(list(self.sockets.values()), [], [], max(left, REST))[0]
            for end, opened in self.sockets.items():
                if opened in ready:
                    data, control, _, sender = opened.recvmsg(2048, 256)
                    if sender[2] == 4 or wanted not in data:
                        continue
                    tags = [int.from_bytes(value[16:18], "little") for _, kind, value in control
                            if kind == 8 and int.from_bytes(value[:4], "little") & 0x10]
                    found.add((end, tags[0] & 0xFFF if tags else None))
                    deadline = time.monotonic() + REST
        return frozenset(found)

    def forwarding(self, expected=None):
        """Returns which ends receive what, for a broadcast of each end with each tag. A busy machine may forward what is expected later."""
        table, number = {}, 0
        for index, end in enumerate(self.sockets):
            for vlan in (None, 1, 10, 20, 30):
                number += 1
                self.sockets[end].send(frame(index + 1, vlan, number))
                table[end, vlan] = self.received(number, (expected or {}).get((end, vlan), frozenset()))
        return table


def imported():
    """Runs the command; returns its output, its findings and its status."""
    done = subprocess.run([MILLRACE, "import", "linux"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 4), done.stderr
    return done.stdout, done.stderr, done.returncode


@contextlib.contextmanager
def bridge(*settings):
    """A bridge of the kernel with all ends, of a name that no other test's network device has."""
    run("ip", "link", "add", BRIDGE, "type", "bridge", *settings)
    try:
        run("ip", "link", "set", BRIDGE, "up")
        for port in ENDS:
            run("ip", "link", "set", port, "master", BRIDGE)
        yield
    finally:
        run("ip", "link", "del", BRIDGE, check=False)


def forwards(folder, before, text):
    """Starts a switch with the configuration; asserts that it forwards as the bridge did."""
    switch = Millrace(folder)
    own = f'[system]\nstate_dir = "{switch.folder / "state"}"\n[api]\nsocket = "{switch.api_socket}"\n'
    switch.config.write_text(own + text)
    run(TARGET / "millraced", "--no-dpdk", "--check", "--config", switch.config)
    ends = Ends()
    with switch:
        try:
            after = ends.forwarding(before)
        finally:
            ends.close()
    assert after == before, {key: (sorted(map(str, before[key])), sorted(map(str, after[key]))) for key in before if before[key] != after[key]}


def can_filter():
    """Returns true if the kernel's bridges know VLANs."""
    with bridge():
        return pathlib.Path(f"/sys/class/net/{BRIDGE}/bridge/vlan_filtering").exists()


@pytest.mark.parametrize("filters", [True, False], ids=["vlan-aware", "plain"])
def test_the_switch_forwards_as_the_bridge_did(tmp_path, filters):
    with cables(*ENDS.items()):
        if filters and not can_filter():
            pytest.skip("the kernel has no CONFIG_BRIDGE_VLAN_FILTERING")
        with bridge(*(["vlan_filtering", "1"] if filters else [])):
            if filters:
                for port, vlan in (("ba", "10"), ("bb", "10")):
                    run("bridge", "vlan", "del", "dev", port, "vid", "1")
                    run("bridge", "vlan", "add", "dev", port, "vid", vlan, "pvid", "untagged")
                run("bridge", "vlan", "add", "dev", "bc", "vid", "10")
                run("bridge", "vlan", "add", "dev", "bc", "vid", "20-30")
                run("bridge", "vlan", "del", "dev", "bd", "vid", "1")
                run("bridge", "vlan", "add", "dev", "bd", "vid", "20")
            ends = Ends()
            before = ends.forwarding()
            ends.close()
            assert any(before.values())
            text, findings, status = imported()
        assert status == 0, findings
        forwards(tmp_path, before, text)


def test_what_a_bridge_does_and_the_switch_does_not_is_a_difference(tmp_path):
    with cables(*ENDS.items()), bridge():
        run("bridge", "link", "set", "dev", "ba", "isolated", "on")
        run("bridge", "fdb", "add", "02:00:00:00:00:77", "dev", "bb", "master", "static")
        run("ip", "link", "add", "vx0", "type", "vxlan", "id", "42", "remote", "192.0.2.1", "local", "192.0.2.2", "dstport", "4789")
        run("ip", "link", "set", "vx0", "master", BRIDGE)
        try:
            text, findings, status = imported()
        finally:
            run("ip", "link", "del", "vx0")
        assert status == 4
        for part in (f"{BRIDGE}, ba: isolated on", "the static entry 02:00:00:00:00:77 at bb", "vxlan:remote=192.0.2.1,local=192.0.2.2,underlay=PORT,key=42"):
            assert part in findings and f"# {findings.splitlines()[0]}" in text, findings
        assert 'device = "kernel:vx0"' in text
        done = run(MILLRACE, "--json", "import", "linux", check=False)
        assert {finding["weight"] for finding in json.loads(done)["findings"]} == {"note", "difference"}
