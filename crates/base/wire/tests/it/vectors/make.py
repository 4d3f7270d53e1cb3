#!/usr/bin/env python3
"""Creates scapy.txt: frames before and after one change, as scapy builds them (pip install scapy==2.8.0).

Each line has name, change, frame before, frame after. scapy computes every length and checksum, so that the expected
values are independent of our code. Run it in this folder when a frame is added: python3 make.py > scapy.txt
"""

import copy

from scapy.all import (
    AH, ARP, Dot1Q, Dot1AD, Ether, ICMP, ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptSrcLLAddr, IP, IPOption_RR, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting, PadN, Raw, SCTP, SCTPChunkInit, TCP, UDP, load_contrib,
)

load_contrib("mpls")
from scapy.contrib.mpls import MPLS  # noqa: E402

ETH = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
V4 = IP(src="10.1.2.3", dst="10.4.5.6", tos=0x2A, ttl=61, id=7)
V6 = IPv6(src="2001:db8::1", dst="2001:db8::2", tc=0x2A, fl=0x12345, hlim=61)
DATA = Raw(bytes(range(37)))
OLD, NEW = "02:00:00:00:00:01", "0a:0b:0c:0d:0e:0f"

L2 = [("eth_src", NEW, lambda p: setattr(p, "src", NEW)), ("eth_dst", NEW, lambda p: setattr(p, "dst", NEW))]
ON_V4 = [
    ("ipv4_src", "192.0.2.77", lambda p: setattr(p[IP], "src", "192.0.2.77")),
    ("ipv4_dst", "255.255.255.255", lambda p: setattr(p[IP], "dst", "255.255.255.255")),
    ("ip_dscp", 63, lambda p: setattr(p[IP], "tos", 0xFE)),
    ("ip_ecn", 1, lambda p: setattr(p[IP], "tos", 0x29)),
    ("ip_ttl", 255, lambda p: setattr(p[IP], "ttl", 255)),
]
ON_V6 = [
    ("ipv6_src", "fe80::1:2:3", lambda p: setattr(p[IPv6], "src", "fe80::1:2:3")),
    ("ipv6_dst", "2001:db8:ffff::9", lambda p: setattr(p[IPv6], "dst", "2001:db8:ffff::9")),
    ("ipv6_flow_label", 0xFFFFF, lambda p: setattr(p[IPv6], "fl", 0xFFFFF)),
    ("ip_dscp", 1, lambda p: setattr(p[IPv6], "tc", 0x06)),
    ("ip_ecn", 3, lambda p: setattr(p[IPv6], "tc", 0x2B)),
    ("ip_ttl", 1, lambda p: setattr(p[IPv6], "hlim", 1)),
]


def ports(layer):
    return [
        ("l4_src", 65535, lambda p: setattr(p[layer], "sport", 65535)),
        ("l4_dst", 1, lambda p: setattr(p[layer], "dport", 1)),
    ]


ICMP4 = [
    ("icmpv4_type", 0, lambda p: setattr(p[ICMP], "type", 0)),
    ("icmpv4_code", 200, lambda p: setattr(p[ICMP], "code", 200)),
]
VLAN = [
    ("vlan_vid", 4095, lambda p: setattr(p.payload, "vlan", 4095)),
    ("vlan_pcp", 6, lambda p: setattr(p.payload, "prio", 6)),
]
LABEL = [
    ("mpls_label", 0xFFFFF, lambda p: setattr(p[MPLS], "label", 0xFFFFF)),
    ("mpls_tc", 5, lambda p: setattr(p[MPLS], "cos", 5)),
    ("mpls_ttl", 200, lambda p: setattr(p[MPLS], "ttl", 200)),
]
ON_ARP = [
    ("arp_op", 2, lambda p: setattr(p[ARP], "op", 2)),
    ("arp_spa", "192.0.2.1", lambda p: setattr(p[ARP], "psrc", "192.0.2.1")),
    ("arp_tpa", "192.0.2.2", lambda p: setattr(p[ARP], "pdst", "192.0.2.2")),
    ("arp_sha", NEW, lambda p: setattr(p[ARP], "hwsrc", NEW)),
    ("arp_tha", NEW, lambda p: setattr(p[ARP], "hwdst", NEW)),
]
NS = ETH / V6 / ICMPv6ND_NS(tgt="2001:db8::9") / ICMPv6NDOptSrcLLAddr(lladdr=OLD)
NA = ETH / V6 / ICMPv6ND_NA(tgt="2001:db8::9", R=1, S=1) / ICMPv6NDOptDstLLAddr(lladdr=OLD)
TCP_ = TCP(sport=1234, dport=80, seq=1, ack=2, flags="PA", options=[("MSS", 1460), ("NOP", None), ("WScale", 7)])
EXT = IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)]) / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)])
ROUTED = IPv6ExtHdrRouting(type=4, segleft=0, addresses=["2001:db8::7"])

FRAMES = [
    ("tcp", ETH / V4 / TCP_ / DATA, L2 + ON_V4 + ports(TCP)),
    ("tcp_options", ETH / IP(src="10.1.2.3", dst="10.4.5.6", tos=0x2A, options=[IPOption_RR(length=7, routers=["1.2.3.4"])]) / TCP_, ON_V4 + ports(TCP)),
    ("udp", ETH / V4 / UDP(sport=53, dport=5353) / DATA, ON_V4 + ports(UDP)),
    ("icmp", ETH / V4 / ICMP(id=3, seq=4) / DATA, ON_V4 + ICMP4),
    ("sctp", ETH / V4 / SCTP(sport=5, dport=6, tag=7) / SCTPChunkInit(), ON_V4 + ports(SCTP)),
    ("vlan_tcp", ETH / Dot1Q(vlan=5, prio=1, id=1) / V4 / TCP_, VLAN + ON_V4 + ports(TCP)),
    ("qinq_udp", ETH / Dot1AD(vlan=7, prio=2) / Dot1Q(vlan=8) / V6 / UDP(sport=1, dport=2), VLAN + ON_V6 + ports(UDP)),
    ("tcp6", ETH / V6 / TCP_ / DATA, L2 + ON_V6 + ports(TCP)),
    ("udp6", ETH / V6 / UDP(sport=53, dport=5353) / DATA, ON_V6 + ports(UDP)),
    ("sctp6", ETH / V6 / SCTP(sport=5, dport=6, tag=7) / SCTPChunkInit(), ON_V6 + ports(SCTP)),
    ("echo6", ETH / V6 / ICMPv6EchoRequest(id=1, seq=2, data=b"ping"), ON_V6 + [("icmpv6_code", 9, lambda p: setattr(p[ICMPv6EchoRequest], "code", 9)), ("icmpv6_type", 129, lambda p: setattr(p[ICMPv6EchoRequest], "type", 129))]),
    ("solicit", NS, ON_V6 + [("nd_target", "fe80::5", lambda p: setattr(p[ICMPv6ND_NS], "tgt", "fe80::5")), ("nd_sll", NEW, lambda p: setattr(p[ICMPv6NDOptSrcLLAddr], "lladdr", NEW))]),
    ("advert", NA, ON_V6 + [("nd_target", "fe80::5", lambda p: setattr(p[ICMPv6ND_NA], "tgt", "fe80::5")), ("nd_tll", NEW, lambda p: setattr(p[ICMPv6NDOptDstLLAddr], "lladdr", NEW))]),
    ("udp6_extensions", ETH / V6 / EXT / UDP(sport=1, dport=2) / DATA, ON_V6 + ports(UDP)),
    ("tcp6_atomic", ETH / V6 / IPv6ExtHdrFragment(id=9) / TCP_, ON_V6 + ports(TCP)),
    ("tcp6_routed", ETH / V6 / ROUTED / TCP_, ON_V6 + ports(TCP)),
    # scapy leaves the checksum after an authentication header at zero.
    ("tcp_authenticated", ETH / V6 / AH(nh=6, payloadlen=4, icv=b"\1" * 12) / TCP_, []),
    ("arp", ETH / ARP(hwsrc=OLD, psrc="10.1.2.3", pdst="10.4.5.6"), ON_ARP),
    ("mpls", ETH / MPLS(label=16, cos=1, s=0, ttl=9) / MPLS(label=17, s=1, ttl=8) / V4 / UDP(sport=1, dport=2), LABEL),
]

for name, frame, changes in FRAMES:
    before = bytes(frame).hex()
    print(name, "none=0", before, before)
    for field, value, change in changes:
        after = copy.deepcopy(frame)
        change(after)
        print(name, f"{field}={value}", before, bytes(after).hex())
