"""A judge of the parser that knows neither the model nor the RTL: it walks frames as the RFCs say, and computes where headers
are, the innermost 5-tuple, and from it the flow hash. Frames come from scapy.

Sources: IEEE 802.1Q-2018 9.6 (tags), 802.1ah (I-TAG), RFC 3032 2.1 and RFC 4385 3 (MPLS, control word), RFC 791 3.1, RFC 8200 3
and 4, RFC 4302 2.2, RFC 2784 and 2890 (GRE), RFC 7348 5 (VXLAN), RFC 8926 3.4 (Geneve), 3GPP TS 29.281 5 (GTP-U), RFC 792 and
4443 (quoted packets), RFC 1071 (checksum).
"""

import random
import struct
from dataclasses import dataclass, field

from scapy.contrib.geneve import GENEVE
from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP, ICMPerror
from scapy.layers.inet6 import ICMPv6TimeExceeded, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop
from scapy.layers.l2 import ARP, GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

MASK64 = (1 << 64) - 1
TAGS = (0x8100, 0x88A8, 0x9100)
WITH_PORTS = (6, 17, 33, 132, 136)


def be(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at:at + size], "big")


@dataclass
class Walk:
    """What is found: offsets in bytes (0: none), and the innermost flow."""

    l3: int = 0
    l4: int = 0
    inner_l3: int = 0
    inner_l4: int = 0
    tags: int = 0
    labels: int = 0
    ends: tuple = ((0, 48), (0, 48))
    ports: tuple = (0, 0)
    kind: int = 0
    network: list = field(default_factory=list)
    outermost: bool = True


def good_ip(data: bytes) -> bool:
    """True for bytes that can only be an IP header below a label stack."""
    if not data:
        return False
    if data[0] >> 4 == 4:
        size = (data[0] & 15) * 4
        if size < 20 or len(data) < size or be(data, 2, 2) < size:
            return False
        total = sum(be(data, at, 2) for at in range(0, size, 2))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return total == 0xFFFF
    known = (0, 6, 17, 43, 44, 47, 50, 58, 60, 89, 132)
    return data[0] >> 4 == 6 and len(data) >= 40 and data[6] in known


def good_ethernet(data: bytes) -> bool:
    if len(data) < 14:
        return False
    kind = be(data, 12, 2)
    if kind in (0x0800, 0x86DD):
        return good_ip(data[14:]) and data[14] >> 4 == (4 if kind == 0x0800 else 6)
    return kind in (0x0806, 0x8100, 0x88A8, 0x9100, 0x88E7, 0x8847, 0x8848)


def walk(data: bytes) -> Walk:
    """Returns what is in a frame that is whole and has fewer than 128 bytes of headers."""
    found = Walk()
    ethernet(data[:128], 0, found)
    return found


def ethernet(data: bytes, at: int, found: Walk) -> None:
    if len(data) < at + 14:
        return
    found.ends = ((be(data, at, 6), 48), (be(data, at + 6, 6), 48))
    found.ports = (0, 0)
    found.kind = be(data, at + 12, 2)
    typed(data, at + 14, found.kind, found)


def typed(data: bytes, at: int, kind: int, found: Walk) -> None:
    if kind in TAGS:
        if len(data) < at + 4:
            return
        if kind == 0x9100:
            found.outermost = False
        found.tags += 1
        found.network.append(be(data, at, 2) & 0xFFF)
        found.kind = be(data, at + 2, 2)
        typed(data, at + 4, found.kind, found)
    elif kind == 0x88E7:
        if len(data) < at + 18:
            return
        if found.outermost:
            found.l3 = at
        found.outermost = False
        found.network.append(be(data, at + 1, 3))
        ethernet(data, at + 4, found)
    elif kind in (0x8847, 0x8848):
        stack(data, at, found)
    elif kind == 0x6558:
        found.outermost = False
        ethernet(data, at, found)
    elif kind == 0x0800:
        ipv4(data, at, found)
    elif kind == 0x86DD:
        ipv6(data, at, found)
    elif kind == 0x0806 and found.outermost and data[at:at + 6] == bytes([0, 1, 8, 0, 6, 4]) and len(data) >= at + 28:
        found.l3 = at


def stack(data: bytes, at: int, found: Walk) -> None:
    outside = list(found.network)
    if found.outermost:
        found.l3 = at
    found.outermost = False
    while True:
        if len(data) < at + 4:
            return
        entry = be(data, at, 4)
        found.labels += 1
        found.network.append(entry >> 12)
        at += 4
        if entry & 0x100:
            break
    rest = data[at:]
    if good_ip(rest):
        found.network = outside
        typed(data, at, 0x0800 if rest[0] >> 4 == 4 else 0x86DD, found)
    elif good_ethernet(rest):
        found.network = outside
        ethernet(data, at, found)
    elif rest and rest[0] >> 4 == 0 and good_ethernet(rest[4:]):
        found.network = outside
        ethernet(data, at + 4, found)


def ipv4(data: bytes, at: int, found: Walk) -> None:
    size, total = (data[at] & 15) * 4, be(data, at + 2, 2)
    if found.outermost:
        found.l3 = at
    found.inner_l3 = at
    found.ends = ((be(data, at + 12, 4), 48), (be(data, at + 16, 4), 48))
    found.ports = (0, 0)
    found.kind = data[at + 9]
    fragment = be(data, at + 6, 2) & 0x3FFF
    if fragment:
        if fragment == 0x2000 and found.outermost and data[at + 9] in (6, 17, 132):
            found.l4 = at + size
        return
    transport(data[:at + total], at + size, data[at + 9], found)


def ipv6(data: bytes, at: int, found: Walk) -> None:
    if found.outermost:
        found.l3 = at
    found.inner_l3 = at
    found.ends = ((be(data, at + 8, 16), 128), (be(data, at + 24, 16), 128))
    found.ports = (0, 0)
    kind = found.kind = data[at + 6]
    end = at + 40 + be(data, at + 4, 2)
    at += 40
    while kind in (0, 43, 44, 51, 60):
        following = data[at]
        size = 8 if kind == 44 else 4 * (data[at + 1] + 2) if kind == 51 else 8 * (data[at + 1] + 1)
        found.kind = following
        if kind == 44:
            first = be(data, at + 2, 2) & 0xFFF8 == 0
            if first and found.outermost and following in (6, 17, 132):
                found.l4 = at + 8
            return
        kind, at = following, at + size
    transport(data[:end], at, kind, found)


def transport(data: bytes, at: int, kind: int, found: Walk) -> None:
    if kind in WITH_PORTS:
        if found.outermost and kind in (6, 17, 132):
            found.l4 = at
        found.outermost = False
        found.inner_l4 = at
        found.ports = (be(data, at, 2), be(data, at + 2, 2))
        if kind == 17:
            tunnel(data, at + 8, found.ports[1], found)
    elif kind in (1, 58):
        if found.outermost:
            found.l4 = at
        found.outermost = False
        if kind == 1 and data[at] in (3, 4, 5, 11, 12):
            typed(data, at + 8, 0x0800, found)
        if kind == 58 and 1 <= data[at] <= 4:
            typed(data, at + 8, 0x86DD, found)
    elif kind in (4, 41):
        found.outermost = False
        typed(data, at, 0x0800 if kind == 4 else 0x86DD, found)
    elif kind == 47:
        found.outermost = False
        flags = be(data, at, 2)
        if flags & 0x4007 == 0:
            options = sum(1 for bit in (0x8000, 0x2000, 0x1000) if flags & bit)
            typed(data, at + 4 + 4 * options, be(data, at + 2, 2), found)


def tunnel(data: bytes, at: int, port: int, found: Walk) -> None:
    if port in (4789, 8472) and data[at] & 8:
        found.network.append(be(data, at + 4, 3))
        ethernet(data, at + 8, found)
    elif port == 6081 and data[at] >> 6 == 0:
        found.network.append(be(data, at + 4, 3))
        typed(data, at + 8 + 4 * (data[at] & 0x3F), be(data, at + 2, 2), found)
    elif port == 6635:
        stack(data, at, found)
    elif port == 2152 and data[at] >> 4 == 3 and data[at + 1] == 255:
        flags, kind = data[at] & 7, data[at + 11] if data[at] & 4 else 0
        at += 12 if flags else 8
        while kind:
            size = 4 * data[at]
            kind, at = data[at + size - 1], at + size
        typed(data, at, 0x0800 if data[at] >> 4 == 4 else 0x86DD if data[at] >> 4 == 6 else 0, found)


def mix(one: int, two: int) -> int:
    product = one * two
    return (product & MASK64) ^ (product >> 64)


def flow_hash(found: Walk, keys: list[int]) -> int:
    network = 0
    for number in found.network:
        network = ((network << 21 | network >> 43) & MASK64) ^ number
    ends = 0
    for (address, width), port in zip(found.ends, found.ports):
        if width == 128:
            address = mix((address >> 64) ^ keys[2], (address & MASK64) ^ keys[3]) >> 16
        ends += mix((address << 16 | port) ^ keys[0], keys[1])
    ends = (ends & MASK64) ^ (found.kind * keys[3] & MASK64)
    return mix(ends ^ keys[4], network ^ keys[5])


# ---- Frames ----

def inner_ip(chance: random.Random):
    """Returns an IP packet with ports, of any kind."""
    sport, dport = chance.randrange(10000, 60000), chance.choice([80, 443, 5000])
    transport = chance.choice([UDP(sport=sport, dport=dport), TCP(sport=sport, dport=dport), SCTP(sport=sport, dport=dport)])
    if chance.random() < 0.4:
        ip = IPv6(src=f"2001:db8::{chance.randrange(1, 65535):x}", dst=f"2001:db8:1::{chance.randrange(1, 65535):x}")
        if chance.random() < 0.2:
            ip = ip / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt()
    else:
        ip = IP(src=f"10.0.{chance.randrange(256)}.{chance.randrange(1, 255)}", dst=f"10.1.{chance.randrange(256)}.7",
                tos=chance.randrange(256), ttl=chance.randrange(1, 255))
        if chance.random() < 0.2:
            ip.options = [b"\x01\x01\x01\x01" * chance.randrange(1, 6)]
    return ip / transport / Raw(bytes(chance.randrange(256) for _ in range(chance.randrange(0, 30))))


def ether(chance: random.Random) -> Ether:
    return Ether(src=f"02:00:00:00:{chance.randrange(256):02x}:01", dst=f"02:00:00:01:{chance.randrange(256):02x}:02")


def build(chance: random.Random) -> bytes:
    """Returns a frame; one of each header that the parser knows comes up within a few dozen."""
    packet = inner_ip(chance)
    outer_ip = chance.choice([IP(src="192.0.2.1", dst="192.0.2.2"), IPv6(src="2001:db8:f::1", dst="2001:db8:f::2")])
    udp = UDP(sport=chance.randrange(49152, 65535))
    label = [MPLS(label=chance.randrange(16, 1 << 20), s=0) for _ in range(chance.randrange(0, 3))]
    bottom = MPLS(label=chance.randrange(16, 1 << 20), s=1)
    ip_type = 0x86DD if packet.version == 6 else 0x0800
    # scapy guesses what follows a label, so the payload goes in as bytes.
    cases = {
        "plain": lambda: ether(chance) / packet,
        "tags": lambda: ether(chance) / Dot1AD(vlan=chance.randrange(4095)) / Dot1Q(vlan=chance.randrange(4095)) / packet,
        "old tag": lambda: Ether(bytes(ether(chance))[:12] + b"\x91\x00" + struct.pack(">HH", 77, ip_type) + bytes(packet)),
        "mpls": lambda: layered(ether(chance), label, bottom / Raw(bytes(packet))),
        "pseudowire": lambda: layered(ether(chance), label, bottom / Raw(bytes(ether(chance) / packet))),
        "control word": lambda: layered(ether(chance), label, bottom / Raw(bytes(4) + bytes(ether(chance) / packet))),
        "unknown below labels": lambda: layered(ether(chance), label, bottom / Raw(b"\xf0" * 40)),
        "pbb": lambda: Raw(bytes(ether(chance))[:12] + b"\x88\xe7" + struct.pack(">I", chance.randrange(1 << 24))
                           + bytes(ether(chance) / packet)),
        "gre": lambda: ether(chance) / outer_ip / GRE(key_present=1, key=9, seqnum_present=1, proto=ip_type) / packet,
        "gre tap": lambda: ether(chance) / outer_ip / GRE(proto=0x6558) / ether(chance) / packet,
        "vxlan": lambda: ether(chance) / outer_ip / udp / VXLAN(vni=chance.randrange(1 << 24), flags=8) / ether(chance) / packet,
        "geneve": lambda: ether(chance) / outer_ip / udp / GENEVE(vni=chance.randrange(1 << 24), proto=0x6558)
        / ether(chance) / packet,
        "gtp": lambda: ether(chance) / outer_ip / udp / GTP_U_Header(teid=7, gtp_type=255) / packet,
        "mpls over udp": lambda: ether(chance) / outer_ip / UDP(sport=50000, dport=6635) / Raw(bytes(bottom / Raw(bytes(packet)))),
        "ip in ip": lambda: ether(chance) / IP(src="192.0.2.1", dst="192.0.2.2", proto=41 if ip_type == 0x86DD else 4) / packet,
        "icmp error": lambda: ether(chance) / IP(src="192.0.2.9", dst="10.0.0.1") / ICMP(type=11) / Raw(
            bytes(IP(src="10.0.0.1", dst="10.9.0.1", id=3) / UDP(sport=4000, dport=53))),
        "icmpv6 error": lambda: ether(chance) / IPv6(src="2001:db8::9", dst="2001:db8::1") / ICMPv6TimeExceeded() / Raw(
            bytes(IPv6(src="2001:db8::1", dst="2001:db8::2") / TCP(sport=4000, dport=53))),
        "echo": lambda: ether(chance) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP() / Raw(bytes(20)),
        "arp": lambda: ether(chance) / ARP(psrc="10.0.0.1", pdst="10.0.0.2"),
        "first fragment": lambda: ether(chance) / IP(src="10.0.0.1", dst="10.0.0.2", flags="MF") / UDP(sport=1, dport=2) / Raw(bytes(24)),
        "later fragment": lambda: ether(chance) / IP(src="10.0.0.1", dst="10.0.0.2", frag=3, proto=17) / Raw(bytes(24)),
        "ipv6 fragment": lambda: ether(chance) / IPv6(src="2001:db8::1", dst="2001:db8::2")
        / IPv6ExtHdrFragment(offset=chance.choice([0, 5]), m=1) / UDP(sport=1, dport=2) / Raw(bytes(24)),
    }
    return bytes(cases[chance.choice(sorted(cases))]())


def layered(first, labels: list, rest):
    for label in labels:
        first = first / label
    return first / rest


def corpus(seed: int, number: int) -> list[bytes]:
    """Returns frames whose headers are within 128 bytes, padded to the minimum of Ethernet."""
    chance, frames = random.Random(seed), []
    while len(frames) < number:
        data = build(chance)
        if len(data) <= 128:
            frames.append(data.ljust(60, b"\0"))
    return frames
