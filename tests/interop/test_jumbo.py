"""Frames of up to 9,600 bytes, in several buffers, leave byte for byte: unchanged, with one more tag, and with a rewritten address;
and they reach the controller complete.
"""

import os
import random
import socket
import struct

import pytest
from scapy.utils import PcapReader, wrpcap
from scapy.packet import Raw

import namespaces
import openflow as of
from switches import Millrace, wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="DPDK's devices and interfaces need root")
ETH_P_ALL = 3
SIZES = [60, 64, 1514, 2030, 2048, 2049, 4096, 4097, 6000, 9000, 9599, 9600]
PUSH_VLAN = struct.pack("!HHH2x", 17, 8, 0x8100)
SET_VLAN_5 = struct.pack("!HHHBBH6x", 25, 16, 0x8000, 6 << 1, 2, 0x1005)
SET_ETH_DST = struct.pack("!HHHBB6s2x", 25, 16, 0x8000, 3 << 1, 6, b"\x02\0\0\0\0\x77")


def frames():
    """Returns a frame of each size, with an EtherType that no kernel answers."""
    rng = random.Random(3)
    head = bytes.fromhex("02000000000202000000000188b5")
    return [head + struct.pack("!H", number) + rng.randbytes(size - 16) for number, size in enumerate(SIZES)]


def tagged(frame):
    return frame[:12] + bytes.fromhex("81000005") + frame[12:]


def rewritten(frame):
    return b"\x02\0\0\0\0\x77" + frame[6:]


CASES = [
    pytest.param(b"", lambda frame: frame, id="as it is"),
    pytest.param(PUSH_VLAN + SET_VLAN_5, tagged, id="with a tag"),
    pytest.param(SET_ETH_DST, rewritten, id="rewritten"),
]


def install(switch, actions):
    """Adds entries from port 1 to port 2 and, with the whole packet, to the controller."""
    client = of.Client(switch.openflow_port)
    client.send(
        of.message(of.SET_CONFIG, struct.pack("!HH", 0, 0xFFFF)),
        of.flow_add(of.oxm_match((0, struct.pack("!I", 1))), actions + of.output(2) + of.output(of.CONTROLLER)),
    )
    assert not [got for got in client.barrier() if got[1] == of.ERROR]
    return client


def add_port(switch, number, device, mtu=9578):
    """Adds a port at run time: it loses no packet, because the entries exist already."""
    port = {"name": f"p{number}", "number": number, "device": device, "mtu": mtu}
    switch.change(lambda config: config["bridge"][0].setdefault("port", []).append(port))
    wait_for("the port runs", lambda: settled(switch))


def settled(switch):
    status = switch.rest.get(f"{switch.url}/status", timeout=60).json()
    assert not status["problems"], status
    return status["state"] == "settled"


def packet_ins(client, count):
    """Returns the frames of the next packet_ins."""
    got = []
    while len(got) < count:
        whole = client.until(of.PACKET_IN)[3]
        match_size = struct.unpack_from("!H", whole, 26)[0]
        got.append(whole[24 + match_size + (-match_size % 8) + 2 :])
    return got


@pytest.mark.parametrize("actions, expected", CASES)
@pytest.mark.parametrize(
    "device, dpdk",
    [
        ("pcap:{0}x={1}", False),
        pytest.param("net_pcap{2},{0}x_pcap={1}", True, marks=needs_root),
    ],
)
def test_long_frames_go_from_file_to_file(tmp_path, device, dpdk, actions, expected):
    source, sink = tmp_path / "in.pcap", tmp_path / "out.pcap"
    wrpcap(str(source), [Raw(frame) for frame in frames()], linktype=1, snaplen=65535)
    with Millrace(tmp_path / "millrace", system="memory_mib = 128", dpdk=dpdk) as switch:
        client = install(switch, actions)
        add_port(switch, 2, device.format("t", sink, 2))
        add_port(switch, 1, device.format("r", source, 1))
        want = [expected(frame) for frame in frames()]
        assert packet_ins(client, len(want)) == want
        wait_for("all are sent", lambda: switch.port_packets(2)[1] == len(want))
    assert [bytes(packet) for packet in PcapReader(str(sink))] == want


@pytest.fixture
def cables():
    """Creates two silent pairs of interfaces for long frames."""
    pairs = [("mr-ja0", "mr-ja1"), ("mr-jb0", "mr-jb1")]
    with namespaces.cables(*pairs, mtu=9600):
        yield pairs


@needs_root
@pytest.mark.parametrize("actions, expected", CASES)
def test_long_frames_go_from_interface_to_interface(tmp_path, cables, actions, expected):
    devargs = "net_af_packet{},iface={}"
    with Millrace(tmp_path / "millrace", system="memory_mib = 256", dpdk=True) as switch:
        client = install(switch, actions)
        for number, (near, _) in enumerate(cables, 1):
            add_port(switch, number, devargs.format(number, near))
        # With protocol 0 the sockets receive nothing until they are bound to their interface.
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender, socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, 0
        ) as receiver:
            sender.bind((cables[0][1], 0))
            receiver.bind((cables[1][1], ETH_P_ALL))
            receiver.settimeout(60)
            # The kernel passes a removed tag beside the frame.
            receiver.setsockopt(263, 8, 1)
            for frame in frames():
                sender.send(frame)
                want = expected(frame)
                assert packet_ins(client, 1) == [want]
                data, ancillary, _, _ = receiver.recvmsg(16384, 256)
                for level, kind, value in ancillary:
                    status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", value)
                    if (level, kind) == (263, 8) and status & 0x10:
                        data = data[:12] + struct.pack("!HH", tpid, tci) + data[12:]
                assert data == want, f"{len(frame)} bytes"
