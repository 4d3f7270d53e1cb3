"""The model of the NIC against scapy: offsets, kinds and counts of headers, and one hash for both directions of a flow.

The model runs as `records --model` (crates/io/nic-model/examples/records.rs), which takes the records of docs/nic-interface.md.
"""

import random
import struct
import subprocess

import pytest
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

from switches import TARGET

FRAMES = 2000
WINDOW = 128
COMPLETION = struct.Struct("<IIHHHHI8BI")
FENCE, HASH, COMPLETE, IP_CHECKSUM, TRUNCATED = 2, 8, 16, 32, 128
KIND_V4, KIND_V6, KIND_ARP, KIND_MPLS = 1, 2, 4, 8
MODEL = TARGET / "examples" / "records"

pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="the example `records` of millrace-nic-model is not built")


def record(kind, body=b""):
    return struct.pack("<IB", 1 + len(body), kind) + body


def configuration(seed):
    """Returns the CONFIG records of a device with keys of the seed, and the tags and tunnels of the switch."""
    keys = random.Random(seed)
    registers = [(0x020 + 4 * at, keys.getrandbits(32)) for at in range(28)]
    registers += [(0x090, 0x18100), (0x094, 0x188A8), (0x098, 0x09100)]
    tunnels = [(2152, 3), (4789, 1), (6081, 2), (6635, 4), (8472, 1)]
    registers += [(0x0A0 + 4 * at, kind << 16 | port) for at, (port, kind) in enumerate(tunnels)]
    registers.append((0x018, 1))
    return b"".join(record(7, struct.pack("<HI", offset, value)) for offset, value in registers)


def completions(frames):
    """Returns the completion of each frame, as a tuple in the order of the documentation."""
    data = configuration(1)
    for frame in frames:
        data += record(3, struct.pack("<BH", 0, 7)) + record(1, struct.pack("<BBH", 0, 0, 0) + frame)
        data += record(4, struct.pack("<BH", 0, 1))
    done = subprocess.run([MODEL, "--model"], input=data + record(8), capture_output=True, timeout=120, check=True)
    out, at = [], 0
    while at < len(done.stdout):
        (size,) = struct.unpack_from("<I", done.stdout, at)
        if done.stdout[at + 4] == 0x81:
            out.append(COMPLETION.unpack(done.stdout[at + 6:at + 4 + size]))
        at += 4 + size
    assert len(out) == len(frames)
    return out


def type_of(packet):
    """Returns the EtherType of a header; scapy does not know every pair of headers."""
    types = {IP: 0x0800, IPv6: 0x86DD, Dot1Q: 0x8100, Dot1AD: 0x88A8, MPLS: 0x8847, Ether: 0x6558}
    return types[type(packet)]


def ethernet(number, packet):
    macs = {"src": f"02:00:00:00:00:{number:02x}", "dst": f"02:00:00:00:01:{number:02x}"}
    return Ether(type=type_of(packet), **macs) / packet


class Flow:
    """The innermost packet of a flow, and a stack of headers around it; the rest is noise."""

    def __init__(self, choice):
        self.v6, self.transport = choice.random() < 0.3, choice.choice([TCP, UDP, SCTP])
        self.ends = [choice.randrange(1, 250), choice.randrange(1, 250)]
        self.ports = [choice.randrange(10000, 20000), choice.randrange(20000, 30000)]
        self.around = [choice.choice(["tag", "service tag", "labels", "pseudowire", "gre", "vxlan", "geneve", "ipip"])
                       for _ in range(choice.randrange(0, 4))]
        self.numbers = [choice.randrange(1, 4000) for _ in range(8)]

    def frame(self, noise, back=False):
        """Returns scapy's packet, in one of both directions."""
        (one, two), ports = self.ends[::-1 if back else 1], self.ports[::-1 if back else 1]
        if self.v6:
            ip = IPv6(src=f"2001:db8::{one:x}", dst=f"2001:db8::{two:x}", hlim=noise.randrange(2, 255))
        else:
            ip = IP(src=f"10.0.0.{one}", dst=f"10.0.0.{two}", ttl=noise.randrange(2, 255), id=noise.randrange(65536))
        packet = ip / self.transport(sport=ports[0], dport=ports[1]) / Raw(bytes(noise.randrange(256) for _ in range(20)))
        for number, around in zip(self.numbers, self.around):
            outer = IP(src="192.0.2.1", dst="192.0.2.2", ttl=noise.randrange(2, 255), id=noise.randrange(65536))
            udp = {"sport": 0xC000 | noise.randrange(0x3FFF)}
            if around in ("tag", "service tag"):
                tag = Dot1Q if around == "tag" else Dot1AD
                packet = tag(vlan=number, prio=noise.randrange(8), type=type_of(packet)) / packet
            elif around in ("labels", "pseudowire"):
                inside = ethernet(1, packet) if around == "pseudowire" else packet
                if around == "labels" and not isinstance(packet, (IP, IPv6)):
                    continue
                packet = MPLS(label=number, s=0, ttl=9) / MPLS(label=number + 1, s=1, ttl=noise.randrange(1, 255)) / inside
            elif around == "gre":
                packet = outer / GRE(proto=type_of(packet)) / packet
            elif around == "vxlan":
                packet = outer / UDP(dport=4789, **udp) / VXLAN(vni=number) / ethernet(3, packet)
            elif around == "geneve":
                packet = outer / UDP(dport=6081, **udp) / GENEVE(proto=0x6558, vni=number) / ethernet(4, packet)
            elif isinstance(packet, (IP, IPv6)):
                packet = outer / packet
        return ethernet(5, packet)


def expected(packet):
    """Walks scapy's layers, and returns (l3, l4, inner_l3, inner_l4, kind, tags, labels), offsets in bytes."""
    size, outer, l3, l4, inner_l3, inner_l4, kind, tags, labels = len(bytes(packet)), True, 0, 0, 0, 0, 0, 0, 0
    layer = packet.payload
    while isinstance(layer, Packet) and layer.name != "NoPayload":
        at = size - len(bytes(layer))
        if isinstance(layer, (Dot1Q, Dot1AD)):
            tags += 1
        elif isinstance(layer, MPLS):
            labels += 1
            if outer:
                l3, kind, outer = at, KIND_MPLS, False
        elif isinstance(layer, (IP, IPv6)):
            inner_l3, inner_l4 = at, 0
            if outer:
                l3, kind, outer = at, KIND_V4 if isinstance(layer, IP) else KIND_V6, False
                if isinstance(layer.payload, (TCP, UDP, SCTP)):
                    l4 = size - len(bytes(layer.payload))
        elif isinstance(layer, (TCP, UDP, SCTP)):
            inner_l4 = at
        layer = layer.payload
    return l3, l4, inner_l3, inner_l4, kind, tags, labels


def test_offsets_kinds_and_counts_are_those_of_scapy_and_both_directions_have_one_hash():
    choice, frames, packets = random.Random(5), [], []
    while len(frames) < FRAMES:
        flow = Flow(choice)
        pair = [flow.frame(choice), flow.frame(choice, back=True)]
        other = Flow.__new__(Flow)
        other.__dict__ = {**flow.__dict__, "ports": [flow.ports[0] + 1, flow.ports[1]]}
        pair.append(other.frame(choice))
        # The model stops at the end of the window; the innermost ports are to be in it.
        if len(bytes(pair[0])) <= WINDOW:
            packets += pair
            frames += [bytes(packet) for packet in pair]
    seen = completions(frames)
    walked = 0
    for packet, frame, got in zip(packets, frames, seen):
        _, _, _, length, _, flags, _, l3, l4, inner_l3, inner_l4, kind, tags, labels, _, _ = got
        assert length == len(frame) and flags & HASH and flags & COMPLETE and not flags & (FENCE | TRUNCATED), packet.summary()
        found = (2 * l3, 2 * l4, 2 * inner_l3, 2 * inner_l4, kind, tags, labels)
        assert found == expected(packet), f"{packet.summary()}\n{frame.hex()}"
        assert bool(flags & IP_CHECKSUM) == bool(kind & KIND_V4), packet.summary()
        walked += labels > 0 or tags > 0
    assert walked > FRAMES // 3
    for one in range(0, len(seen), 3):
        there, back, other = seen[one:one + 3]
        assert there[1] == back[1] and there[4] == back[4] == there[1] >> 22, packets[one].summary()
        assert there[1] != other[1], packets[one].summary()


def test_arp_is_a_kind_and_a_cut_packet_is_truncated():
    whole = bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / Raw(b"x" * 40))
    arp, cut = completions([bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ARP(pdst="10.0.0.1")), whole[:-1]])
    assert arp[11] == KIND_ARP and arp[7] * 2 == 14
    assert cut[5] & TRUNCATED and cut[11] == KIND_V4
