"""IP fragments, made by scapy: forwarded as they are, dropped, reassembled; the mode is read and set by `ovs-ofctl`."""

import random

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import PcapReader, wrpcap

from switches import Millrace, wait_for
from test_jumbo import add_port

ETHER = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")


def payload(size):
    return Raw(random.Random(size).randbytes(size))


def whole_packets():
    """Returns packets that are too long for a link, and their fragments."""
    packets = [
        IP(src="10.0.0.1", dst="10.0.0.2", id=7) / UDP(sport=7, dport=8) / payload(5000),
        IP(src="10.0.0.1", dst="10.0.0.2", id=8, options=b"\x94\x04\0\0") / ICMP() / payload(3000),
        IP(src="10.0.0.1", dst="10.0.0.2", id=9, tos=0xB8) / TCP(sport=1, dport=2) / payload(9000),
        IPv6(src="fd00::1", dst="fd00::2") / IPv6ExtHdrDestOpt() / IPv6ExtHdrFragment(id=5) / UDP(sport=7, dport=8)
        / payload(5000),
    ]
    for packet in packets:
        if IPv6 in packet:
            # Parsed from bytes, so that checksums are those of the whole packet.
            pieces = [IPv6(bytes(piece)) for piece in fragment6(IPv6(bytes(packet)), 1280)]
            del packet[IPv6ExtHdrDestOpt].nh
            inside = packet[UDP].copy()
            whole = IPv6(src="fd00::1", dst="fd00::2") / IPv6ExtHdrDestOpt() / inside
        else:
            pieces = fragment(IP(bytes(packet)), 1400)
            whole = packet
        yield bytes(ETHER / Dot1Q(vlan=9) / whole), [bytes(ETHER / Dot1Q(vlan=9) / piece) for piece in pieces]


def forwarded(tmp_path, mode, frames):
    """Returns the frames that leave port 2 when these enter port 1, and the drops by name."""
    tmp_path.mkdir(exist_ok=True)
    source, sink = tmp_path / "in.pcap", tmp_path / "out.pcap"
    wrpcap(str(source), [Raw(frame) for frame in frames], linktype=1, snaplen=65535)
    with Millrace(tmp_path / "millrace") as switch:
        assert "normal" in switch.ofctl("get-frags")
        switch.ofctl("set-frags", mode)
        assert mode in switch.ofctl("get-frags")
        switch.ofctl("add-flow", "in_port=1,actions=output:2")
        add_port(switch, 2, f"pcap:tx={sink}")
        add_port(switch, 1, f"pcap:rx={source}")
        wait_for("all are received", lambda: switch.port_packets(1)[0] == len(frames))
        switch.ofctl("dump-flows")
        drops = switch.cli("show", "drops")
    return [bytes(packet) for packet in PcapReader(str(sink))], drops


@pytest.mark.parametrize("shuffled", [False, True])
def test_what_scapy_cut_is_put_together_byte_for_byte(tmp_path, shuffled):
    wholes, frames = [], []
    for whole, pieces in whole_packets():
        wholes.append(whole)
        frames += pieces
    assert len(frames) > 12
    if shuffled:
        random.Random(5).shuffle(frames)
    got, _ = forwarded(tmp_path, "reassemble", frames)
    assert sorted(got) == sorted(wholes)


def test_fragments_are_dropped_by_name_or_pass_as_they_are(tmp_path):
    frames = [piece for _, pieces in whole_packets() for piece in pieces]
    small = bytes(ETHER / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=7, dport=8) / payload(30))
    got, drops = forwarded(tmp_path / "drop", "drop", [*frames, small])
    assert got == [small]
    assert any("fragment" in line and str(len(frames)) in line for line in drops.splitlines()), drops
    got, _ = forwarded(tmp_path / "normal", "normal", frames)
    assert got == frames


def test_the_configuration_says_what_happens_until_a_controller_does(tmp_path):
    with Millrace(tmp_path, extra='fragments = "drop"') as switch:
        assert "drop" in switch.ofctl("get-frags")
        switch.ofctl("set-frags", "normal")
        assert "normal" in switch.ofctl("get-frags")
        switch.change(lambda config: config["bridge"][0].update(fragments="reassemble"))
        wait_for("the new configuration", lambda: "reassemble" in switch.ofctl("get-frags"))
