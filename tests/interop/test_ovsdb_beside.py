"""Columns, commands and frames of Millrace beside those of a real Open vSwitch 3.1, which gets the same commands."""

import collections
import contextlib
import os
import re
import shutil
import struct
import subprocess
import time

import pytest

from namespaces import inside, packet_socket, received
from ovsdb import Following, Real
from switches import run, wait_for
from test_ovsdb import PAIRS, QUIET_S, Ends, frame, wired

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is missing: scripts/setup.sh installs it"),
]


class Two:
    """Millrace and Open vSwitch, each with a database and a namespace."""

    def __init__(self, ours, real):
        self.ours, self.real = ours, real
        self.both = (ours, real)

    def vsctl(self, *arguments):
        """Gives both the same command."""
        return [switch.vsctl(*arguments) for switch in self.both]

    def wait_for_equal(self, what, seen):
        """Waits until both show the same, and returns it."""
        def equal():
            mine, theirs = seen(self.ours), seen(self.real)
            return (mine,) if mine == theirs else None
        try:
            return wait_for(f"equal {what}", equal)[0]
        except AssertionError as error:
            raise AssertionError(f"{what}: {seen(self.ours)} and {seen(self.real)}") from error


@pytest.fixture
def two(tmp_path):
    with wired("mr-ours", PAIRS), wired("mr-real", PAIRS), \
            Following(tmp_path / "ours", namespace="mr-ours") as ours, Real(tmp_path / "real", namespace="mr-real") as real:
        yield Two(ours, real)


def namespace_of(two, switch):
    return "mr-ours" if switch is two.ours else "mr-real"


def columns(switch, table, names, *wanted):
    """Returns columns of rows by name."""
    rows = {row["name"]: row for row in switch.rows(table)}
    return {name: {column: rows[name][column] for column in wanted} for name in names}


def test_mac_addresses_are_those_of_rows_and_ports_and_the_datapath_id_follows(two):
    for namespace in ("mr-ours", "mr-real"):
        for name, mac in (("e1", "00:16:3e:00:00:11"), ("e2", "00:16:3e:00:00:10"), ("e3", "00:16:3e:00:00:12")):
            run("ip", "-n", namespace, "link", "set", name, "address", mac)

    def addresses(switch):
        macs = columns(switch, "Interface", [row["name"] for row in switch.rows("Interface")], "mac_in_use")
        # Addresses that nothing decides are random.
        fixed = {name: row["mac_in_use"] for name, row in macs.items() if row["mac_in_use"].startswith(("00:16", "02:00:00:00"))}
        return fixed, [row["datapath_id"] for row in switch.rows("Bridge") if row["datapath_id"].startswith("000000163e")]

    two.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    own = [(switch.get("Bridge", "br0", "datapath_id"), switch.get("Interface", "br0", "mac_in_use")) for switch in two.both]
    assert all(dpid.strip('"') == "0000" + mac.strip('"').replace(":", "") for dpid, mac in own), own
    two.vsctl("add-port", "br0", "e1")
    macs, dpids = two.wait_for_equal("addresses", addresses)
    assert (macs["br0"], dpids) == ("00:16:3e:00:00:11", ["000000163e000011"]), (macs, dpids)
    two.vsctl("add-port", "br0", "e2", "tag=5", "--", "add-port", "br0", "i1", "--", "set", "Interface", "i1", "type=internal")
    two.vsctl("add-br", "fake0", "br0", "5", "--", "add-port", "br0", "e3")
    macs, dpids = two.wait_for_equal("addresses", addresses)
    assert (macs["br0"], macs["fake0"], dpids) == ("00:16:3e:00:00:10",) * 2 + (["000000163e000010"],), (macs, dpids)
    for switch in two.both:
        switch.vsctl("set", "Interface", "i1", 'mac="02:00:00:00:00:77"')
        switch.vsctl("wait-until", "Interface", "i1", 'mac_in_use="02:00:00:00:00:77"')
    two.vsctl("set", "Bridge", "br0", 'other_config:hwaddr="00:16:3e:00:00:99"')
    two.vsctl("wait-until", "Interface", "br0", 'mac_in_use="00:16:3e:00:00:99"')
    _, dpids = two.wait_for_equal("addresses", addresses)
    assert dpids == ["000000163e000099"]
    two.vsctl("set", "Port", "e3", 'mac="00:16:3e:00:00:01"', "--", "remove", "Bridge", "br0", "other_config", "hwaddr")
    macs, dpids = two.wait_for_equal("addresses", addresses)
    assert (macs["br0"], dpids) == ("00:16:3e:00:00:01", ["000000163e000001"]), (macs, dpids)
    assert not two.ours.shown_current()["faults"], two.ours.shown()
    # An address that cannot be is named, and the row keeps what it had.
    two.vsctl("set", "Interface", "i1", 'mac="03:00:00:00:00:77"')
    assert any("mac=03:" in fault["reason"] for fault in two.ours.shown_current()["faults"])


def test_a_new_mac_address_loses_no_packet_and_no_controller_entry_and_a_device_that_was_deleted_has_it_again(tmp_path):
    with wired("mr-ours", PAIRS), Following(tmp_path / "ours", namespace="mr-ours") as switch:
        switch.vsctl("add-br", "br0", "--", "add-port", "br0", "e1", "--", "add-port", "br0", "e2",
                     "--", "add-port", "br0", "i1", "--", "set", "Interface", "i1", "type=internal", 'mac="02:00:00:00:00:01"')
        switch.ofctl("add-flow", "br0", "priority=7,in_port=9,actions=drop")
        with contextlib.closing(packet_socket("mr-ours", "x1")) as sender, contextlib.closing(packet_socket("mr-ours", "x2")) as receiver:
            changes = [("set", "Interface", "i1", 'mac="02:00:00:00:00:02"'), ("set", "Bridge", "br0", 'other_config:hwaddr="02:00:00:00:00:99"')]
            got, count = 0, 0
            for change in changes:
                command = ["ovs-vsctl", f"--db=unix:{switch.socket}", "--timeout=60", *change]
                with subprocess.Popen(command, env=switch.environment) as process:
                    while process.poll() is None:
                        sender.send(frame(1))
                        count += 1
                        time.sleep(0.001)
                assert process.returncode == 0, change
            deadline = time.monotonic() + 60
            while got < count and time.monotonic() < deadline:
                got += sum(b"\x88\xb5" in data[12:20] for data, _ in received(receiver, 0.2))
            assert got == count, f"{got} of {count} frames"
        assert "in_port=9" in switch.ofctl("dump-flows", "br0")
        assert "02:00:00:00:00:99" in inside("mr-ours", "cat", "/sys/class/net/br0/address")
        for name, mac in (("i1", "02:00:00:00:00:02"), ("br0", "02:00:00:00:00:99")):
            inside("mr-ours", "ip", "link", "del", name)
            wait_for(f"{name} with its address", lambda name=name, mac=mac: mac in run(
                "sh", "-c", f"ip -n mr-ours link show dev {name} 2>&1 || true"))
            switch.vsctl("wait-until", "Interface", name, f'mac_in_use="{mac}"')


#: Settings that end the discarding of STP after 8 s.
QUICK_STP = ("other_config:stp-forward-delay=4", "other_config:stp-max-age=6", "other_config:stp-hello-time=1")


@pytest.mark.parametrize("protocol", ["rstp", "stp"])
def test_a_spanning_tree_is_in_the_columns_and_commands_of_open_vswitch(two, protocol):
    settings = QUICK_STP if protocol == "stp" else ()

    def numbered(*names):
        # The numbers of ports in BPDUs are those of OpenFlow here, and others there.
        commands = [("--", "set", "Port", name, f"other_config:{protocol}-port-num={number}") for number, name in enumerate(names, 1)]
        return [word for command in commands for word in command]

    two.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", f"{protocol}_enable=true", *settings,
              'other_config:hwaddr="02:00:00:00:01:00"', "--", "add-port", "br0", "e1", "--", "add-port", "br0", "e2",
              "--", "add-port", "br0", "i1", "--", "set", "Interface", "i1", "type=internal",
              "--", "add-port", "br0", "e3", "--", "set", "Port", "e3", f"other_config:{protocol}-enable=false", *numbered("e1", "e2"))
    two.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=netdev", f"{protocol}_enable=true", *settings,
              f"other_config:{protocol}-priority=40960", 'other_config:hwaddr="02:00:00:00:02:00"', "--", "add-port", "br1", "x1",
              "--", "add-port", "br1", "x2", "--", "set", "Port", "x2", f"other_config:{protocol}-path-cost=777", *numbered("x1", "x2"))


    def plain(value):
        """A map without counts and seconds."""
        counted = ("stp_sec_in_state", "rstp_uptime", "_count")
        return {key: "number" if key.endswith(counted) else text for key, text in value[1]}

    def tree(switch):
        bridges = columns(switch, "Bridge", ["br0", "br1"], "status", "rstp_status")
        ports = columns(switch, "Port", ["br0", "e1", "e2", "e3", "i1", "x1", "x2"], "status", "statistics", "rstp_status", "rstp_statistics")
        return {(name, column): plain(value) for rows in (bridges, ports) for name, row in rows.items() for column, value in row.items()}

    def has_converged(switch):
        states = [value for row in tree(switch).values() for key, value in row.items() if key.endswith("state")]
        return sorted(state.lower() for state in states if state != "number") == sorted(
            ["forwarding"] * 3 + ["discarding" if protocol == "rstp" else "blocking"])

    for switch in two.both:
        wait_for("the tree", lambda switch=switch: has_converged(switch))
    found = two.wait_for_equal("trees", tree)
    assert found["i1", "status"] == found["e3", "rstp_status"] == {}

    def shown(switch, bridge):
        lines = run("ovs-appctl", "-t", control_of(two, switch), f"{protocol}/show", bridge, env=switch.environment).splitlines()
        # The order of the ports is that of a hash table there.
        at = next(number for number, line in enumerate(lines) if line.startswith("  ------"))
        return lines[:at + 1], sorted(line for line in lines[at + 1:] if line)

    for bridge in ("br0", "br1"):
        two.wait_for_equal(f"{protocol}/show {bridge}", lambda switch, bridge=bridge: shown(switch, bridge))
    two.vsctl("set", "Bridge", "br1", f"{protocol}_enable=false")
    found = two.wait_for_equal("a bridge without a tree", lambda switch: columns(switch, "Port", ["x1", "x2"], "rstp_status", "status"))
    assert found["x1"]["status"] == ["map", []]


def control_of(two, switch):
    """Returns what `ovs-appctl -t` takes for a switch."""
    return str(switch.run_dir / "vs.ctl") if switch is two.real else "ovs-vswitchd"


def test_commands_of_ovs_appctl_have_the_answers_of_open_vswitch(two):
    two.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "--", "add-port", "br0", "e1",
              "--", "add-port", "br0", "i1", "--", "set", "Interface", "i1", "type=internal")
    two.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=netdev",
              "--", "add-port", "br1", "p1", "--", "set", "Interface", "p1", "type=patch", "options:peer=p0",
              "--", "add-port", "br0", "p0", "--", "set", "Interface", "p0", "type=patch", "options:peer=p1")

    def said(switch, *command):
        answer = subprocess.run(["ovs-appctl", "-t", control_of(two, switch), *command], capture_output=True, text=True, timeout=60,
                                env=switch.environment)
        errors = answer.stderr.replace(control_of(two, switch), "SOCKET")
        # The datapath there has numbers of its own, and counts otherwise.
        text = re.sub(r"hit:\d+ missed:\d+", "COUNTS", re.sub(r"(\d+)/(\d+|none):", r"\1:", answer.stdout))
        if command[0] == "fdb/show":
            # The order there is that of a hash table.
            text = "\n".join(sorted(text.splitlines()))
        return answer.returncode, text, re.sub(r"ovs-appctl: \S+: ", "ovs-appctl: SOCKET: ", errors)

    for command in [
        ("ofproto/list",), ("dpif/show",), ("dpif/dump-dps",), ("ofproto/list", "x"), ("nosuch", "x"),
        ("fdb/add", "br0", "e1", "5", "00:11:22:33:44:55"), ("fdb/add", "br0", "e1", "0", "00:11:22:33:44:56"),
        ("fdb/add", "br0", "e1", "5"), ("fdb/add", "br9", "e1", "5", "00:11:22:33:44:55"), ("fdb/add", "br0", "e1", "5", "nomac"),
        ("fdb/show", "br0"), ("fdb/del", "br0", "5", "00:11:22:33:44:55"), ("fdb/del", "br0", "5", "00:11:22:33:44:55"),
        ("fdb/del", "br9", "5", "00:11:22:33:44:55"), ("fdb/del", "br0", "5", "nomac"), ("fdb/show", "br0"), ("fdb/show", "br0", "x"),
        ("vlog/set", "ANY:file:dbg"), ("vlog/set", "info"), ("vlog/set",), ("vlog/set", "nosuch:file:dbg"), ("vlog/reopen",), ("vlog/close",),
        ("rstp/show",), ("stp/show",), ("rstp/show", "br0"), ("stp/show", "br9"), ("bond/show", "x"), ("lacp/show", "x"), ("bond/list",),
    ]:
        mine, theirs = said(two.ours, *command), said(two.real, *command)
        assert mine == theirs, (command, mine, theirs)
    lines = said(two.ours, "vlog/list")[1].splitlines()
    assert lines[:2] == said(two.real, "vlog/list")[1].splitlines()[:2] and lines[2].split() == ["millrace"] + ["INFO"] * 3, lines
    said(two.ours, "vlog/set", "dbg")
    assert "debug" in two.ours.cli("log")
    for switch in two.both:
        assert said(switch, "exit")[0] == 0
        assert switch.process.wait(timeout=60) == 0


def frame_of(number, tags=(), to=b"\xff" * 6):
    """A frame from a port with these tags, each a pair of its type and VLAN, the outermost first."""
    header = b"".join(struct.pack("!HH", kind, vlan) for kind, vlan in tags)
    return to + bytes([2, 0, 0, 0, 0, number]) + header + b"\x88\xb5" + bytes([number]) + bytes(50)


class Tagged(Ends):
    """The other ends of ports, with all tags of the frames that arrive, by the number at the end of a frame."""

    def __init__(self, namespace, ports):
        super().__init__(namespace, ports)
        self.arrived = collections.defaultdict(set)

    def send(self, number, sent):
        self.sockets[number].send(sent)

    def look(self, bound=0.0):
        for port, opened in self.sockets.items():
            for got, control in received(opened, bound):
                tags = []
                for _, kind, data in control:
                    status, _, _, _, _, tci, tag_type = struct.unpack("IIIHHHH", data) if kind == 8 else (0,) * 7
                    if status & 0x10:
                        tags.append((tag_type if status & 0x40 else 0x8100, tci & 0xFFF))
                at = 12
                while (tag_type := int.from_bytes(got[at:at + 2])) in (0x8100, 0x88A8):
                    tags.append((tag_type, int.from_bytes(got[at + 2:at + 4]) & 0xFFF))
                    at += 4
                if tag_type == 0x88B5:
                    self.arrived[got[-SERIAL_SIZE:]].add((port, tuple(tags)))
        return self.arrived


C, S = 0x8100, 0x88A8
#: The bytes of the number at the end of a frame.
SERIAL_SIZE = 4


def assert_equal_arrivals(two, ports, frames, is_compared=lambda number, sent, port: True):
    """Sends frames, each with the number of its port, through both switches; they must arrive at the same ports with the same tags."""
    with Tagged("mr-ours", ports) as mine, Tagged("mr-real", ports) as theirs:
        for at, (number, sent) in enumerate(frames):
            serial = at.to_bytes(SERIAL_SIZE, "big")
            # Entries of the datapath there mistake a frame for one with other tags that came before.
            run("ovs-appctl", "-t", control_of(two, two.real), "dpctl/del-flows", env=two.real.environment)
            for ends in (mine, theirs):
                ends.send(number, sent[:-SERIAL_SIZE] + serial)
            time.sleep(QUIET_S)

            def compared(found, number=number, sent=sent, serial=serial):
                return {(port, tags) for port, tags in found[serial] if is_compared(number, sent, port)}
            with contextlib.suppress(AssertionError):
                wait_for("equal arrivals", lambda compared=compared: compared(mine.look()) == compared(theirs.look()))
            assert compared(mine.arrived) == compared(theirs.arrived), \
                f"port {number}, {sent[:22].hex(' ')}: {mine.arrived[serial]}, there {theirs.arrived[serial]}"
        # A frame that arrived late is with its own number.
        return {frame: mine.look()[at.to_bytes(SERIAL_SIZE, "big")] for at, frame in enumerate(frames)}


class RealWithTwoTags(Real):
    """An Open vSwitch that reads two tags, which it must know when it starts."""

    def start_database(self):
        super().start_database()
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:vlan-limit=2")


@pytest.fixture
def two_with_tags(tmp_path):
    with wired("mr-ours", PAIRS), wired("mr-real", PAIRS), Following(tmp_path / "ours", namespace="mr-ours") as ours, \
            RealWithTwoTags(tmp_path / "real", namespace="mr-real") as real:
        yield Two(ours, real)


def test_native_tagged_ports_and_ports_of_customers_carry_what_those_of_open_vswitch_do(two_with_tags):
    two = two_with_tags
    two.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "--", "add-port", "br0", "e1",
              "--", "add-port", "br0", "e2", "tag=10", "vlan_mode=native-tagged",
              "--", "add-port", "br0", "e3", "tag=200", "vlan_mode=dot1q-tunnel",
              "--", "add-port", "br0", "e4", "tag=200", "vlan_mode=dot1q-tunnel", "cvlans=30,40", "other_config:qinq-ethtype=802.1q",
              "--", "add-port", "br0", "e5", "tag=200",
              "--", "add-port", "br0", "e6", "tag=10", "trunks=10,30", "vlan_mode=native-tagged")
    tags = [(), ((C, 10),), ((C, 20),), ((C, 30),), ((C, 200),), ((S, 200),), ((S, 200), (C, 30)), ((S, 200), (C, 20)), ((C, 200), (C, 40))]
    # Of three tags, Open vSwitch loses one.
    frames = [(number, frame_of(number, stack)) for number in range(1, 7) for stack in tags if len(stack) < 2 or number not in (3, 4)]

    def is_compared(number, sent, port):
        # An access port gets frames with two tags of a trunk without the outer one, as with Open vSwitch's default, vlan-limit=1.
        return port != 5 or number in (3, 4) or len(sent) < len(frame_of(1, tags[-1]))
    arrived = assert_equal_arrivals(two, range(1, 7), frames, is_compared)
    assert (1, ((S, 200), (C, 30))) in arrived[3, frame_of(3, ((C, 30),))], "the customer's tag is inside"
    assert (2, ((C, 10),)) in arrived[6, frame_of(6)], "the packets of the native VLAN have a tag"
    # Known destinations, among them one behind a port of the same customer.
    to = {number: bytes([2, 0, 0, 0, 0, number]) for number in range(1, 7)}
    known = [(4, frame_of(4, ((C, 30),))), (3, frame_of(3, ((C, 30),), to[4])), (4, frame_of(4, ((C, 40),), to[3])), (1, frame_of(1, ((S, 200), (C, 30)), to[3])),
             (6, frame_of(6, (), to[2])), (2, frame_of(2, ((C, 10),), to[6]))]
    assert_equal_arrivals(two, range(1, 7), known, is_compared)
    refused = [fault for fault in two.ours.shown_current()["faults"] if fault["refused"]]
    assert not refused, refused


def test_protected_ports_flooded_vlans_and_bpdus_are_forwarded_as_by_open_vswitch(two):
    two.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "flood_vlans=7",
              "--", "add-port", "br0", "e1", "--", "set", "Port", "e1", "protected=true",
              "--", "add-port", "br0", "e2", "--", "set", "Port", "e2", "protected=true", "--", "add-port", "br0", "e3")
    to = {number: bytes([2, 0, 0, 0, 0, number]) for number in range(1, 4)}
    group = b"\x01\x80\xc2\x00\x00\x0e"
    frames = [(number, frame_of(number, stack)) for number in (1, 2, 3) for stack in ((), ((C, 7),))]
    known = [(number, frame_of(number, stack, to[other])) for number in (1, 2, 3) for other in (1, 2, 3) if number != other for stack in ((), ((C, 7),))]
    arrived = assert_equal_arrivals(two, (1, 2, 3), [*frames, *known, (1, frame_of(1, (), group))])
    assert {port for port, _ in arrived[1, frame_of(1)]} == {3}
    assert {port for port, _ in arrived[3, frame_of(3, ((C, 7),), to[1])]} == {1, 2}, "nothing is learned in VLAN 7"
    assert arrived[1, frame_of(1, (), group)] == set()
    two.vsctl("set", "Bridge", "br0", "other_config:forward-bpdu=true", "--", "clear", "Bridge", "br0", "flood_vlans",
              "--", "set", "Port", "e1", "protected=false")
    arrived = assert_equal_arrivals(two, (1, 2, 3), [(1, frame_of(1, (), group)), *frames, *known])
    assert {port for port, _ in arrived[1, frame_of(1, (), group)]} == {2, 3}
    assert not two.ours.shown_current()["faults"]
