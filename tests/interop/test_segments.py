"""GSO packets of virtio drivers: a driver that accepts them receives them unsegmented, every other port receives segments, which
scapy checks.
"""

import re
import struct

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

import vhost_user as vu
from switches import Millrace, wait_for
from test_vnics import SYSTEM, pytestmark  # noqa: F401 - pytest reads it

SENDER, TAKER, PLAIN, REFUSER = 1, 2, 3, 4
SEGMENT = 1400
DATA = bytes(at * 7 % 251 for at in range(40_000))
ALL = vu.VERSION_1 | vu.OFFLOADS
# Longer than any packet.
LONG = 66_000


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    paths = {number: folder / f"s{number}" for number in (SENDER, TAKER, PLAIN, REFUSER)}
    ports = [(number, f"vhost:{path}{'' if number == PLAIN else ',tso=on'}") for number, path in paths.items()]
    switch = Millrace(folder / "millrace", ports=ports, system=SYSTEM, dpdk=True).start()
    wait_for("the sockets", lambda: all(path.exists() for path in paths.values()))
    try:
        yield switch, paths
    finally:
        assert switch.stop() == 0, switch.log.read_text()[-4000:]


def long_packet(version, flags="PA", options=(("Timestamp", (1, 2)),), front=Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")):
    """Returns a packet as a driver sends it: with the checksum of the pseudo-header instead of TCP's."""
    address = IP(src="10.0.0.1", dst="10.0.0.2", id=65530) if version == 4 else IPv6(src="fd00::1", dst="fd00::2")
    tcp = TCP(sport=1000, dport=80, seq=2**32 - 5000, ack=9, flags=flags, options=list(options))
    frame = bytes(front / address / tcp / Raw(DATA))
    l3 = len(front)
    l4 = l3 + (20 if version == 4 else 40)
    hdr = len(frame) - len(DATA)
    pseudo = frame[l3 + 12 : l3 + 20] if version == 4 else frame[l3 + 8 : l3 + 40]
    pseudo += struct.pack(">HH", 6, len(frame) - l4)
    total = sum(struct.unpack(f">{len(pseudo) // 2}H", pseudo))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    frame = frame[: l4 + 16] + struct.pack(">H", total) + frame[l4 + 18 :]
    header = struct.pack("<BBHHHHH", 1, 1 if version == 4 else 4, hdr, SEGMENT, l4, 16, 0)
    return header, frame


def is_right(frame):
    """Returns true if checksums and lengths equal those that scapy computes."""
    packet = Ether(frame)
    for layer, fields in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (TCP, ("chksum",))):
        if layer in packet:
            for field in fields:
                delattr(packet[layer], field)
    return bytes(packet) == frame


def check_segments(frames, flags):
    """Checks that segments are in order, correct, and of the requested size, and returns their data."""
    segments = [Ether(frame) for frame in frames]
    assert all(is_right(frame) for frame in frames)
    assert [len(packet[Raw].load) for packet in segments] == [SEGMENT] * (len(DATA) // SEGMENT) + [len(DATA) % SEGMENT]
    assert b"".join(packet[Raw].load for packet in segments) == DATA
    assert [packet[TCP].seq for packet in segments] == [(2**32 - 5000 + at * SEGMENT) % 2**32 for at in range(len(segments))]
    if IP in segments[0]:
        assert [packet[IP].id for packet in segments] == [(65530 + at) % 65536 for at in range(len(segments))]
    for at, packet in enumerate(segments):
        gone = ("" if at == 0 else "C") + ("" if at == len(segments) - 1 else "FP")
        assert set(str(packet[TCP].flags)) == set(flags) - set(gone), at
        assert packet[TCP].options == segments[0][TCP].options and packet[TCP].ack == 9


def steer(switch, *actions):
    switch.ofctl("del-flows")
    switch.ofctl("add-flow", f"in_port={SENDER},actions={','.join(actions)}")


def is_up(switch, number):
    """Returns true if the port has detected its driver."""
    text = switch.ofctl("dump-ports-desc")
    return "LINK_DOWN" not in re.search(rf"\(p{number}\):.*?state: *(\S+)", text, re.DOTALL)[1]


def received(driver, count):
    frames = [driver.receive(60) for _ in range(count)]
    assert all(frames), f"{sum(map(bool, frames))} of {count} came"
    return frames


COUNT = -(-len(DATA) // SEGMENT)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("flags", ["A", "FPA", "CEA"])
def test_a_driver_that_takes_none_gets_the_segments_whatever_its_port_is(net, version, flags):
    switch, paths = net
    for to, features in ((PLAIN, ALL), (REFUSER, vu.VERSION_1)):
        steer(switch, f"output:{to}")
        with vu.Driver(paths[SENDER], buffer=LONG, features=ALL).run() as sender:
            with vu.Driver(paths[to], features=features).run() as receiver:
                wait_for("the link", lambda: is_up(switch, to))
                header, frame = long_packet(version, flags)
                sender.send(frame, header)
                check_segments(received(receiver, COUNT), flags)


@pytest.mark.parametrize("version", [4, 6])
def test_a_driver_that_takes_them_gets_them_whole_and_is_told_how_to_cut_them(net, version):
    switch, paths = net
    steer(switch, "push_vlan:0x8100", "set_field:4196->vlan_vid", f"output:{TAKER}")
    with vu.Driver(paths[SENDER], buffer=LONG, features=ALL).run() as sender:
        with vu.Driver(paths[TAKER], buffer=LONG, features=ALL).run() as taker:
            wait_for("the link", lambda: is_up(switch, TAKER))
            header, frame = long_packet(version)
            for _ in range(20):
                sender.send(frame, header)
                whole = taker.receive(60)
                packet = Ether(whole)
                assert packet[Dot1Q].vlan == 100 and packet[Raw].load == DATA
                l4 = 18 + (20 if version == 4 else 40)
                told = struct.unpack("<BBHHHH", taker.header[:10])
                assert told == (1, 1 if version == 4 else 4, l4 + 32, SEGMENT, l4, 16)


def test_congestion_is_said_once(net):
    """The virtio-net header cannot express that only the first segment carries CWR: such a packet is segmented."""
    switch, paths = net
    steer(switch, f"output:{TAKER}")
    with vu.Driver(paths[SENDER], buffer=LONG, features=ALL).run() as sender:
        with vu.Driver(paths[TAKER], buffer=LONG, features=ALL).run() as taker:
            wait_for("the link", lambda: is_up(switch, TAKER))
            header, frame = long_packet(4, "CA")
            sender.send(frame, header)
            check_segments(received(taker, COUNT), "CA")


def test_a_port_without_the_option_offers_nothing_of_it(net):
    switch, paths = net
    for number, wanted in ((PLAIN, 0), (SENDER, vu.HOST_TSO4 | vu.HOST_TSO6)):
        with vu.Driver(paths[number]) as driver:
            assert driver.begin() & (vu.HOST_TSO4 | vu.HOST_TSO6) == wanted
