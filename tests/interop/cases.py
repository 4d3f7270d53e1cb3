"""Seeded packets, and lists of actions that are valid for them, in ovs-ofctl's syntax.

A case is a frame and the actions of the one flow entry that it matches. The entry matches the frame's source address,
which identifies the case, and the prerequisites of the actions. The last four bytes of the frame identify the case, too:
they survive every action, so that the packets that two switches sent can be paired even if one of them dropped a packet.
"""

import dataclasses
import random
import struct

from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.packet import Raw


@dataclasses.dataclass
class Case:
    """One packet and the actions applied to it."""

    number: int
    frame: bytes
    match: str
    actions: list

    @property
    def flow(self):
        """Returns the flow entry for both switches."""
        actions = ",".join([*self.actions, "output:2"])
        return f"priority=10,in_port=1,dl_src={source(self.number)}{self.match},actions={actions}"


def source(number):
    """Returns the source address that identifies a case."""
    return "02:aa:%02x:%02x:%02x:%02x" % tuple(struct.pack("!I", number))


def number_of(frame):
    """Returns the case of a frame."""
    return struct.unpack("!I", frame[-4:])[0]


def make_cases(seed, count):
    """Returns the same cases for the same seed."""
    rng = random.Random(seed)
    return [make_case(rng, number) for number in range(count)]


def make_case(rng, number):
    kind = rng.choice(["tcp", "udp", "icmp", "sctp", "tcp6", "udp6", "icmp6", "nd", "arp", "mpls", "other"])
    state = State(kind)
    ether = Ether(src=source(number), dst=mac(rng))
    if kind != "mpls" and rng.random() < 0.4:
        state.vlans = rng.choice([1, 1, 2])
    layers = ether
    for depth in range(state.vlans):
        layers = layers / Dot1Q(vlan=rng.randrange(1, 4095), prio=rng.randrange(8))
        if depth == 0 and state.vlans == 2:
            ether.type = 0x88A8
    layers = layers / payload(rng, state)
    layers = layers / Raw(rng.randbytes(rng.choice([14, 18, 60, 400])) + struct.pack("!I", number))
    match = state.match()
    actions = [step(rng, state) for _ in range(rng.randrange(1, 6))]
    return Case(number, bytes(layers), match, [action for action in actions if action])


def payload(rng, state):
    ports = {"sport": rng.randrange(1, 65536), "dport": rng.randrange(1, 65536)}
    ip = IP(src=ip4(rng), dst=ip4(rng), ttl=rng.randrange(16, 256), tos=rng.randrange(256), flags=rng.choice([0, 2]),
            id=rng.randrange(65536))
    ip6 = IPv6(src=ip6_(rng), dst=ip6_(rng), hlim=rng.randrange(16, 256), tc=rng.randrange(256), fl=rng.randrange(1 << 20))
    match state.kind:
        case "tcp":
            return ip / TCP(**ports)
        case "udp":
            # One in four has no checksum, which IPv4 allows.
            return ip / (UDP(**ports, chksum=0) if rng.random() < 0.25 else UDP(**ports))
        case "icmp":
            return ip / ICMP(type=8, id=rng.randrange(65536))
        case "sctp":
            return ip / SCTP(**ports)
        case "tcp6":
            return ip6 / TCP(**ports)
        case "udp6":
            return ip6 / UDP(**ports)
        case "icmp6":
            return ip6 / ICMPv6EchoRequest(id=rng.randrange(65536))
        case "nd":
            ip6.hlim = 255
            return ip6 / ICMPv6ND_NS(tgt=ip6_(rng)) / ICMPv6NDOptSrcLLAddr(lladdr=mac(rng))
        case "arp":
            return ARP(op=rng.choice([1, 2]), hwsrc=mac(rng), hwdst=mac(rng), psrc=ip4(rng), pdst=ip4(rng))
        case "mpls":
            state.labels = rng.choice([1, 2])
            stack = None
            for depth in range(state.labels):
                shim = MPLS(label=rng.randrange(16, 1 << 20), cos=rng.randrange(8), s=int(depth == state.labels - 1),
                            ttl=rng.randrange(16, 256))
                stack = stack / shim if stack else shim
            return stack / ip / UDP(**ports)
        case _:
            return Raw(b"")


class State:
    """The headers of the packet after the actions so far, which determine the valid actions."""

    def __init__(self, kind):
        self.kind = kind
        self.vlans = 0
        self.labels = 0
        self.hidden_tag = False
        # Headers below a label stack, or exposed again by a pop, are not set any more.
        self.bare = kind != "mpls"

    def match(self):
        """Returns the prerequisites of the actions, in ovs-ofctl's syntax."""
        name = {"nd": "icmp6,icmp_type=135", "mpls": "mpls", "other": ""}.get(self.kind, self.kind)
        vlan = ",vlan_tci=0x1000/0x1000" if self.vlans else ""
        return (f",{name}" if name else "") + vlan


def step(rng, state):
    """Returns one more action that is valid at this point."""
    choices = [
        lambda: f"set_field:{mac(rng)}->eth_dst",
        lambda: f"set_field:{mac(rng)}->eth_src",
    ]
    if state.vlans:
        choices += [
            lambda: f"set_field:{0x1000 | rng.randrange(1, 4095)}->vlan_vid",
            lambda: f"set_field:{rng.randrange(8)}->vlan_pcp",
        ]
    if state.vlans and not state.labels:
        choices.append(lambda: pop_vlan(state))
    if state.vlans < 2 and not state.labels and state.kind != "other":
        choices.append(lambda: push_vlan(rng, state))
    if state.labels:
        choices += [
            lambda: f"set_field:{rng.randrange(16, 1 << 20)}->mpls_label",
            lambda: f"set_field:{rng.randrange(8)}->mpls_tc",
            lambda: f"set_mpls_ttl({rng.randrange(16, 256)})",
            lambda: "dec_mpls_ttl",
        ]
    ip4_kind = state.kind in ("tcp", "udp", "icmp", "sctp")
    ip6_kind = state.kind in ("tcp6", "udp6", "icmp6", "nd")
    if state.bare and not state.labels:
        if ip4_kind:
            choices += [
                lambda: f"set_field:{ip4(rng)}->ip_src",
                lambda: f"set_field:{ip4(rng)}->ip_dst",
            ]
        if ip6_kind:
            choices += [
                lambda: f"set_field:{ip6_(rng)}->ipv6_src",
                lambda: f"set_field:{ip6_(rng)}->ipv6_dst",
                lambda: f"set_field:{rng.randrange(1 << 20)}->ipv6_label",
            ]
        if ip4_kind or ip6_kind:
            choices += [
                lambda: f"set_field:{rng.randrange(64)}->ip_dscp",
                lambda: f"set_field:{rng.randrange(4)}->nw_ecn",
                lambda: f"mod_nw_ttl:{rng.randrange(16, 256)}",
                lambda: "dec_ttl",
            ]
        transport = state.kind.rstrip("6")
        if transport in ("tcp", "udp", "sctp"):
            choices += [
                lambda: f"set_field:{rng.randrange(1, 65536)}->{transport}_src",
                lambda: f"set_field:{rng.randrange(1, 65536)}->{transport}_dst",
            ]
        if state.kind == "arp":
            choices += [
                lambda: f"set_field:{rng.choice([1, 2])}->arp_op",
                lambda: f"set_field:{ip4(rng)}->arp_spa",
                lambda: f"set_field:{ip4(rng)}->arp_tpa",
                lambda: f"set_field:{mac(rng)}->arp_sha",
                lambda: f"set_field:{mac(rng)}->arp_tha",
            ]
        if state.kind == "nd":
            choices += [
                lambda: f"set_field:{ip6_(rng)}->nd_target",
                lambda: f"set_field:{mac(rng)}->nd_sll",
            ]
        # Open vSwitch pushes the shim after an existing VLAN tag, OpenFlow 1.3.5 (section 5.12) in front of it.
        if (ip4_kind or ip6_kind) and not state.vlans and not state.hidden_tag:
            choices.append(lambda: push_mpls(rng, state))
    return rng.choice(choices)()


def push_vlan(rng, state):
    state.vlans += 1
    # Open vSwitch pushes an empty tag; OpenFlow 1.3.5 (section 5.12.1) copies the fields of the tag below. Setting the
    # fields makes both equal.
    return (f"push_vlan:{rng.choice(['0x8100', '0x88a8'])},set_field:{0x1000 | rng.randrange(1, 4095)}->vlan_vid"
            f",set_field:{rng.randrange(8)}->vlan_pcp")


def pop_vlan(state):
    # A check of the actions before any packet arrives cannot know of a tag below it.
    state.hidden_tag = state.vlans > 1
    state.vlans = 0
    return "pop_vlan"


def push_mpls(rng, state):
    state.labels += 1
    state.bare = False
    # Open vSwitch takes label and traffic class from IP (explicit null, DSCP); OpenFlow 1.3.5 (section 5.12.1) from
    # another shim, or not at all. Setting the fields makes both equal.
    return (f"push_mpls:0x8847,set_field:{rng.randrange(8)}->mpls_tc"
            f",set_field:{rng.randrange(16, 1 << 20)}->mpls_label")


def mac(rng):
    return "02:%02x:%02x:%02x:%02x:%02x" % tuple(rng.randbytes(5))


def ip4(rng):
    return "10.%d.%d.%d" % tuple(rng.randbytes(3))


def ip6_(rng):
    return "fd00::" + ":".join("%x" % rng.randrange(1, 65536) for _ in range(3))
