"""Mirrors of ovs-vsctl: the same commands and frames for a real Open vSwitch and for Millrace, and the copies of both."""

import collections
import contextlib
import json
import os
import shutil
import struct
import threading
import time

import pytest

from namespaces import inside, made, packet_socket, received
from ovsdb import Following, Real
from switches import run, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is missing: scripts/setup.sh installs it"),
]

PORTS = range(1, 6)
#: The port of the monitor.
MONITOR = 5
#: The time in s after which a frame that has not arrived was dropped.
QUIET_S = 0.2
BROADCAST = b"\xff" * 6
BPDU = bytes.fromhex("0180c2000000")
#: EtherType of test frames (IEEE 802, local experiments).
KIND = b"\x88\xb5"


def frame(number, vlan=None, to=BROADCAST, size=60):
    """Returns a frame of host `number`, with the number in its payload."""
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    head = to + host(number) + tag + KIND + bytes([number])
    return head + bytes(size - len(head))


def host(number):
    return bytes([2, 0, 0, 0, 0, number])


def whole(data, control):
    """Returns a frame with the tag that the kernel took out of it."""
    for _, kind, auxiliary in control:
        status, *_, tci, tpid = struct.unpack("IIIHHHH", auxiliary) if kind == 8 else (0, 0, 0)
        if status & 0x10:
            return data[:12] + struct.pack("!HH", tpid or 0x8100, tci) + data[12:]
    return data


class Switch:
    """A switch and the other ends of its ports."""

    def __init__(self, database, namespace):
        self.database = database
        self.ends = {port: packet_socket(namespace, f"x{port}") for port in PORTS}
        self.arrived = collections.Counter()

    def close(self):
        for end in self.ends.values():
            end.close()

    def look(self):
        """Returns the frames that arrived since the last call of `forget`, each with its port."""
        for port, end in self.ends.items():
            for data, control in received(end, 0.0):
                if KIND in data[12:20]:
                    self.arrived[port, whole(data, control)] += 1
        return self.arrived

    def forget(self):
        self.look()
        self.arrived = collections.Counter()

    def configure(self, lines):
        """Makes a bridge with all ports, and runs further commands of ovs-vsctl."""
        self.clear()
        ports = [word for port in PORTS for word in (
            "--", "add-port", "br0", f"e{port}", "--", "set", "Interface", f"e{port}", f"ofport_request={port}")]
        self.database.vsctl("--", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", *ports)
        for line in lines:
            self.database.vsctl(*line.split())

    def clear(self):
        self.database.vsctl("--if-exists", "del-br", "br0")

    def outcome(self, sent, count):
        """Sends frames into ports, and returns what arrives: at least `count` frames."""
        self.forget()
        for port, data in sent:
            destination = data[:6]
            if destination != BROADCAST and destination in (other[6:12] for source, other in sent if source != MONITOR):
                wait_for("the MAC address", lambda: destination.hex(":") in self.database.appctl("fdb/show", "br0"))
            self.ends[port].send(data)
        return self.settled(count)

    def settled(self, count):
        """Returns what has arrived as soon as `count` frames have, and no more follow."""
        wait_for("the frames", lambda: sum(self.look().values()) >= count)
        time.sleep(QUIET_S)
        return self.look()


@pytest.fixture(scope="module")
def switches(tmp_path_factory):
    """A real Open vSwitch and Millrace, each in a namespace with the same interfaces."""
    folder = tmp_path_factory.mktemp("mirrors")
    with contextlib.ExitStack() as stack:
        found = []
        for name, kind in (("real", Real), ("ours", Following)):
            namespace = f"mr-mirror-{name}"
            stack.enter_context(made(namespace))
            for knob in ("all", "default"):
                inside(namespace, "sysctl", "-qw", f"net.ipv6.conf.{knob}.disable_ipv6=1")
            for port in PORTS:
                run("ip", "-n", namespace, "link", "add", f"e{port}", "type", "veth", "peer", "name", f"x{port}")
                for end in (f"e{port}", f"x{port}"):
                    run("ip", "-n", namespace, "link", "set", end, "up")
            database = stack.enter_context(kind(folder / name, namespace=namespace))
            switch = Switch(database, namespace)
            stack.callback(switch.close)
            found.append(switch)
        yield found


def mirror(columns, name="m0", port=f"e{MONITOR}"):
    """Returns a command that adds a mirror whose columns name ports as @eN."""
    ports = sorted({word for word in columns.replace(",", " ").replace("=", " ").split() if word.startswith("@")} | {f"@{port}"})
    get = " ".join(f"-- --id={name} get Port {name[1:]}" for name in ports)
    output = "" if "output-vlan" in columns else f"output-port=@{port}"
    return f"{get} -- --id=@m create Mirror name={name} {columns} {output} -- add Bridge br0 mirrors @m"


#: A broadcast from each of the first ports, untagged and in VLAN 10.
SOME = [(1, frame(1)), (2, frame(2)), (2, frame(3, vlan=10)), (1, frame(4, vlan=20))]
ACCESS = ["set port e1 tag=10", "set port e2 tag=10", "set port e3 tag=20"]
SECURE = ["set-fail-mode br0 secure"]

#: By name: commands, flow entries, frames, the number of frames that arrive in all.
SCENARIOS = {
    "select-all": ([mirror("select-all=true")], [], SOME, 16),
    "known host": ([mirror("select-all=true")], [], [(2, frame(2)), (1, frame(1, to=host(2)))], 6),
    "select-src": ([mirror("select-src-port=@e1")], [], SOME, 14),
    "select-dst": ([mirror("select-dst-port=@e2")], [], SOME, 14),
    "select-dst of two": ([mirror("select-dst-port=@e2,@e3")], [], SOME, 16),
    "select-src and select-dst": ([mirror("select-src-port=@e1 select-dst-port=@e2")], [], SOME, 14),
    "access ports": ([*ACCESS, mirror("select-all=true")], [], SOME + [(3, frame(5)), (3, frame(6, vlan=20))], 8),
    "select-dst of an access port": ([*ACCESS, mirror("select-dst-port=@e2")], [], SOME + [(4, frame(5, vlan=10))], 8),
    "select-vlan": ([*ACCESS, mirror("select-all=true select-vlan=10")], [], SOME + [(3, frame(5)), (4, frame(6, vlan=10))], 10),
    "select-vlan 0": ([mirror("select-all=true select-vlan=0")], [], SOME, 14),
    "select-vlan of select-dst": ([*ACCESS, mirror("select-dst-port=@e4 select-vlan=10,11")], [], SOME + [(3, frame(5))], 7),
    "output port in a VLAN": ([*ACCESS, "set port e5 tag=30", mirror("select-all=true")], [], SOME + [(3, frame(5)), (4, frame(6, vlan=30))], 9),
    "output port of the same VLAN": ([*ACCESS, "set port e5 tag=10", mirror("select-src-port=@e1")], [], SOME, 5),
    "output trunk": ([*ACCESS, "set port e5 trunks=20", mirror("select-all=true")], [], SOME, 6),
    "output native": ([*ACCESS, "set port e5 tag=10 trunks=20 vlan_mode=native-untagged", mirror("select-all=true")], [], SOME + [(3, frame(5))], 8),
    "frames into the output port": ([mirror("select-src-port=@e1")], [], [(5, frame(5)), (2, frame(2, to=host(5)))], 3),
    "output-vlan": ([*ACCESS, "set port e4 trunks=10,90", "set port e5 tag=90", mirror("select-src-port=@e1 output-vlan=90")], [], SOME + [(1, frame(5))], 10),
    "output-vlan of all": ([*ACCESS, "set port e4 trunks=90", "set port e5 tag=90", mirror("select-all=true output-vlan=90")], [], SOME + [(4, frame(6, vlan=90)), (5, frame(7))], 8),
    "snaplen": ([mirror("select-all=true snaplen=64")], [], [(1, frame(1, size=500)), (1, frame(2, size=62)), (2, frame(3, vlan=10, size=500))], 12),
    "snaplen with a tag": ([*ACCESS, mirror("select-all=true snaplen=64")], [], [(1, frame(1, size=500)), (1, frame(2, size=62))], 6),
    "dropped by the tables": ([*SECURE, mirror("select-all=true")], [], SOME, 4),
    "dropped by an entry": ([*SECURE, mirror("select-all=true")], ["in_port=1,actions=drop", "in_port=2,actions=output:3"], SOME, 6),
    "rewritten, select-src": ([*SECURE, mirror("select-src-port=@e1")], ["actions=mod_dl_dst:02:00:00:00:00:77,output:2"], SOME, 4),
    "rewritten, select-dst": ([*SECURE, mirror("select-dst-port=@e2")], ["actions=mod_dl_dst:02:00:00:00:00:77,output:2"], SOME, 4),
    "rewritten between two outputs": ([*SECURE, mirror("select-dst-port=@e3")], ["actions=output:2,mod_dl_dst:02:00:00:00:00:77,output:3,mod_dl_dst:02:00:00:00:00:78,output:4"], SOME, 14),
    "twice to one port": ([*SECURE, mirror("select-dst-port=@e2,@e3")], ["actions=output:2,mod_dl_dst:02:00:00:00:00:77,output:3"], SOME, 10),
    "pushed tag": ([*SECURE, mirror("select-dst-port=@e2")], ["in_port=1,actions=push_vlan:0x8100,set_field:4106->vlan_vid,output:2"], [(1, frame(1))], 2),
    "tag out of an access port": ([*SECURE, *ACCESS, mirror("select-dst-port=@e2")], ["in_port=4,actions=output:2"], [(4, frame(1, vlan=10)), (4, frame(2))], 3),
    "two mirrors of one output": ([mirror("select-src-port=@e1"), mirror("select-dst-port=@e2", name="m1")], [], SOME, 14),
    "two outputs": ([mirror("select-src-port=@e1"), mirror("select-dst-port=@e2", name="m1", port="e4")], [], SOME, 12),
    "frames that bridges keep": ([mirror("select-all=true")], [], [(1, frame(1, to=BPDU)), (2, frame(2, to=BPDU, vlan=10))], 2),
    "no packets of others": ([mirror("select-src-port=@e3")], [], SOME, 12),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_copies_are_those_of_a_real_open_vswitch(switches, name):
    lines, entries, sent, count = SCENARIOS[name]
    outcomes = []
    for switch in switches:
        switch.configure(lines)
        try:
            for entry in entries:
                switch.database.ofctl("add-flow", "br0", entry)
            outcomes.append(switch.outcome(sent, count))
        finally:
            switch.clear()
    real, ours = outcomes
    assert_equal(*outcomes)
    assert sum(outcomes[0].values()) == count


def assert_equal(real, ours):
    """Compares what arrived at two switches."""
    missing = {(port, data.hex()): n for (port, data), n in (real - ours).items()}
    more = {(port, data.hex()): n for (port, data), n in (ours - real).items()}
    assert not missing and not more, f"missing {missing}\nmore {more}"


def test_packet_outs_are_copied_as_by_a_real_open_vswitch(switches):
    sent = [("controller", "2"), ("controller", "3"), ("1", "3"), ("1", "2"), ("2", "in_port"), ("3", "table")]
    outcomes = []
    for switch in switches:
        switch.configure([*SECURE, mirror("select-src-port=@e1,@e3 select-dst-port=@e2")])
        try:
            switch.database.ofctl("add-flow", "br0", "in_port=3,actions=output:4")
            switch.forget()
            for number, (in_port, output) in enumerate(sent, 1):
                switch.database.ofctl("packet-out", "br0", f"in_port={in_port} packet={frame(number).hex()} actions={output}")
            outcomes.append(switch.settled(11))
        finally:
            switch.clear()
    assert_equal(*outcomes)


def statistics(switch):
    """Returns the statistics of all mirrors by name."""
    rows = switch.database.rows("Mirror")
    return {row["name"]: dict(row["statistics"][1]) for row in rows}


def test_statistics_are_those_of_a_real_open_vswitch(switches):
    found = []
    for switch in switches:
        switch.configure([*ACCESS, mirror("select-all=true snaplen=64"), mirror("select-src-port=@e3", name="m1", port="e4"),
                          "-- --id=@e3 get Port e3 -- --id=@m create Mirror name=none select-src-port=@e3 -- add Bridge br0 mirrors @m"])
        try:
            switch.outcome([(1, frame(1, size=500)), (3, frame(2)), (1, frame(3, vlan=10))], 4)
            wanted = {"m0": {"tx_packets": 2, "tx_bytes": 560}, "m1": {"tx_packets": 1, "tx_bytes": 60}, "none": {}}
            wait_for("the statistics", lambda: statistics(switch) == wanted)
            found.append(statistics(switch))
        finally:
            switch.clear()
    assert found[0] == found[1]


def test_a_mirror_is_shown_and_counted_by_the_tools_of_the_switch(switches):
    switch = switches[1]
    switch.configure([mirror("select-src-port=@e1 select-vlan=0,10 snaplen=100", name="a_mirror_with_a_long_name"), mirror("select-all=true", name="m0", port="e4")])
    try:
        switch.outcome([(1, frame(1))], 4)
        shown = json.loads(switch.database.cli("show", "mirrors", "--json"))["br0"]
        assert [mirror["packets"] for mirror in shown] == [1, 1], shown
        assert shown[0]["name"].startswith("mirror-") and shown[1]["name"] == "m0", shown
        text = switch.database.cli("show", "mirrors")
        assert "received by e1, VLAN 0,10" in text and "port e5, 100 bytes" in text, text
        metrics = switch.database.rest.get("http://localhost/metrics", timeout=60).text
        assert 'millrace_mirror_packets_total{bridge="br0",mirror="m0"} 1' in metrics, metrics
        # A frame into the output port is dropped.
        switch.ends[MONITOR].send(frame(2))

        def drops():
            return {drop["reason"]: drop["packets"] for drop in json.loads(switch.database.cli("show", "drops", "--json"))}
        wait_for("the drop", lambda: drops()["mirror_port"] >= 1)
    finally:
        switch.clear()


def test_mirrors_change_under_traffic_without_loss(switches):
    switch = switches[1]
    switch.configure([])
    changes = [mirror("select-all=true"), "clear Bridge br0 mirrors", mirror("select-src-port=@e1", port="e4"), "clear Bridge br0 mirrors"]
    sent, done = 0, threading.Event()

    def send():
        nonlocal sent
        while not done.wait(0.001):
            sent += 1
            switch.ends[1].send(frame(1) + struct.pack("!I", sent))

    sender = threading.Thread(target=send)
    try:
        switch.forget()
        sender.start()
        for change in changes * 3:
            switch.database.vsctl(*change.split())
        done.set()
        sender.join()
        # No mirror has the port x2 as its output: it gets each frame once.
        wait_for("all frames", lambda: sum(n for (port, _), n in switch.look().items() if port == 2) == sent)
        assert all(n == 1 for (port, _), n in switch.look().items() if port == 2)
        assert any(port == 5 for port, _ in switch.look()), "nothing was copied"
    finally:
        done.set()
        switch.clear()
