"""Access lists of the router beside nftables: the same random rules in both, and the same random packets, each of which passes both or
neither. `make routing` sends 100,000.

```
  mr-r1 --- br0: v10, acl_in --- v20, acl_out --- mr-r2
  mr-n1 --- mr-nft: a kernel that forwards, nftables --- mr-n2
```

Rules and packets draw their values from the same few, so that most packets meet several rules. A packet carries its number in the
identification of IPv4 or the flow label of IPv6. A packet whose verdicts differ is sent again, alone, before it counts: a device of a
busy machine may have dropped it.
"""

import contextlib
import os
import random
import shutil
import socket
import struct

import pytest

import namespaces
from namespaces import inside, packet_socket
from switches import run, wait_for
from test_router import HOSTS, Router, mac, network, wait_until_it_routes

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not shutil.which("nft"), reason="nft is missing: scripts/setup.sh routers installs it"),
]

PACKETS = 100_000 if os.environ.get("MILLRACE_ROUTING_LONG") == "1" else 10_000
# Packets between two marks. The queues of all devices hold them.
BATCH = 200
RULES = 160
WAIT_S = 60
KERNEL, KERNEL_HOSTS = "mr-nft", ("mr-n1", "mr-n2")
KERNEL_MAC = "02:00:00:00:02:01"
ICMP, TCP, UDP, GRE, ICMPV6, SCTP = 1, 6, 17, 47, 58, 132
HOP_BY_HOP, FRAGMENT, DESTINATION_OPTIONS = 0, 44, 60
NAMES = {(4, TCP): "tcp", (4, UDP): "udp", (4, SCTP): "sctp", (4, ICMP): "icmp", (6, TCP): "tcp6", (6, UDP): "udp6", (6, SCTP): "sctp6",
         (6, ICMPV6): "icmp6"}
PORTS = (22, 53, 80, 443, 4096, 4097, 5000, 65535)
TYPES = {ICMP: (0, 3, 8, 11), ICMPV6: (1, 3, 128, 129)}
SOURCES = {4: ("192.0.2.1", "192.0.2.2", "192.0.2.130", "10.0.10.2", "198.18.0.1"),
           6: ("2001:db8:10::2", "2001:db8:a::1", "2001:db8:a::2", "2001:db8:a:8000::1", "2001:db8:b::1")}
TARGETS = {4: ("198.51.100.1", "198.51.100.2", "198.51.100.200", "203.0.113.1", "203.0.113.77"),
           6: ("2001:db8:64::1", "2001:db8:64::2", "2001:db8:64:ff::1", "2001:db8:65::1", "2001:db8:65:8000::1")}
LENGTHS = {4: (8, 16, 24, 25, 32), 6: (16, 32, 48, 49, 64, 128)}
# Keys of rules that no later fragment can match.
LAYER4 = {"tp_src", "tp_dst", "icmp_type", "icmp_code", "tcp_flags"}
# The mark of the end of a batch, which the first rule of each list permits.
MARK_PORT = 9
MARK_NUMBER = 0xFFFF


class Rule:
    """A rule, as text of an access list and of nftables."""

    def __init__(self, draw, is_narrow):
        self.permits = draw.random() < 0.5
        version = draw.choice((4, 6))
        icmp = ICMP if version == 4 else ICMPV6
        protocol = draw.choice((None, TCP, TCP, UDP, UDP, SCTP, icmp, GRE))
        self.ours = [NAMES.get((version, protocol), "ip" if version == 4 else "ipv6")]
        self.theirs = [f"meta nfproto ipv{version}"]
        if protocol is not None:
            self.theirs.append(f"meta l4proto {protocol}")
        if protocol == GRE:
            self.ours.append(f"nw_proto={GRE}")
        fields = [self.addresses, self.addresses, self.class_of_service, self.ecn]
        fields += {TCP: [self.ports, self.ports, self.flags], UDP: [self.ports, self.ports], SCTP: [self.ports, self.ports],
                   icmp: [self.types, self.types]}.get(protocol, [])
        self.used = set()
        for add in draw.sample(fields, draw.choice((2, 3) if is_narrow else (0, 1, 1))):
            add(draw, version, protocol)

    def add(self, ours, theirs):
        name = ours.partition("=")[0]
        if name not in self.used:
            self.used.add(name)
            self.ours.append(ours)
            self.theirs.append(theirs)

    def addresses(self, draw, version, _):
        end = draw.choice(("src", "dst"))
        address = draw.choice((SOURCES if end == "src" else TARGETS)[version])
        length = draw.choice(LENGTHS[version])
        family, name = ("ip", f"nw_{end}") if version == 4 else ("ip6", f"ipv6_{end}")
        # nftables takes a prefix without bits of the host only.
        size = 32 if version == 4 else 128
        kind = socket.AF_INET if version == 4 else socket.AF_INET6
        value = int.from_bytes(socket.inet_pton(kind, address), "big") >> (size - length) << (size - length)
        prefix = f"{socket.inet_ntop(kind, value.to_bytes(size // 8, 'big'))}/{length}"
        self.add(f"{name}={prefix}", f"{family} {end[0]}addr {prefix}")

    def ports(self, draw, _, protocol):
        end, port = draw.choice(("src", "dst")), draw.choice(PORTS)
        name = {TCP: "tcp", UDP: "udp", SCTP: "sctp"}[protocol]
        if draw.random() < 0.4:
            mask = draw.choice((0xF000, 0xFFFE, 0xFF00, 0x0001))
            self.add(f"tp_{end}={port & mask:#x}/{mask:#x}", f"{name} {end[0]}port & {mask} == {port & mask}")
        else:
            self.add(f"tp_{end}={port}", f"{name} {end[0]}port {port}")

    def types(self, draw, version, protocol):
        name, kind = ("icmp", ICMP) if version == 4 else ("icmpv6", ICMPV6)
        assert protocol == kind
        if draw.random() < 0.6:
            value = draw.choice(TYPES[kind])
            self.add(f"icmp_type={value}", f"{name} type {value}")
        else:
            value = draw.randrange(3)
            self.add(f"icmp_code={value}", f"{name} code {value}")

    def class_of_service(self, draw, version, _):
        value = draw.choice((0, 10, 46))
        self.add(f"ip_dscp={value}", f"{'ip' if version == 4 else 'ip6'} dscp {value}")

    def ecn(self, draw, version, _):
        value = draw.randrange(4)
        self.add(f"ip_ecn={value}", f"{'ip' if version == 4 else 'ip6'} ecn {value}")

    def flags(self, draw, *_):
        text, mask, value = draw.choice((("+syn-ack", 0x12, 0x02), ("+ack", 0x10, 0x10), ("-rst", 0x04, 0), ("+fin+psh-urg", 0x29, 0x09)))
        self.add(f"tcp_flags={text}", f"tcp flags & {mask:#x} == {value:#x}")

    def text(self):
        """Returns the rule as a string of the configuration."""
        return f'"{"permit" if self.permits else "deny"} {",".join(self.ours)}"'

    def nft(self):
        """Returns the rule as a line of nftables."""
        return f"{' '.join(self.theirs)} {'accept' if self.permits else 'drop'}"

    def is_of_layer4(self):
        """Returns true if the rule names something that later fragments do not have."""
        return not LAYER4.isdisjoint(self.used)


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def transport(draw, protocol):
    """Returns the header of a random packet of a protocol, and some data. Its checksum is no router's matter."""
    source, target = draw.choice(PORTS), draw.choice(PORTS)
    if protocol == TCP:
        return struct.pack(">HHIIHHHH", source, target, 1, 2, 5 << 12 | draw.choice((0x02, 0x12, 0x10, 0x18, 0x04, 0x11, 0x29, 0x00)), 1024, 0, 0)
    if protocol == UDP:
        return struct.pack(">HHHH", source, target, 8, 0)
    if protocol == SCTP:
        return struct.pack(">HHII", source, target, 3, 4)
    if protocol in (ICMP, ICMPV6):
        return struct.pack(">BBHI", draw.choice(TYPES[protocol]), draw.randrange(3), 0, 5)
    return b"\0\0\x08\0"


def ipv4(number, service, fragment, protocol, source, target, content):
    """Returns a packet of IPv4, from the EtherType on. `fragment` holds the flags and the offset."""
    header = struct.pack(">BBHHHBBH4s4s", 0x45, service, 20 + len(content), number, fragment, 64, protocol, 0, socket.inet_aton(source),
                         socket.inet_aton(target))
    return b"\x08\0" + header[:10] + struct.pack(">H", checksum(header)) + header[12:] + content


def packet4(draw, number):
    protocol = draw.choice((TCP, TCP, TCP, UDP, UDP, SCTP, ICMP, GRE))
    content = transport(draw, protocol) + draw.randbytes(draw.choice((0, 1, 40)))
    # Whole packets, first fragments, and later ones, whose data may look like ports.
    more, offset = draw.choice(((0, 0), (0, 0), (0, 0), (0, 0), (1, 0), (1, 100), (0, 7)))
    if more:
        content = content.ljust((len(content) + 7) // 8 * 8, b"\0")
    return ipv4(number, draw.choice((0, 10, 46)) << 2 | draw.randrange(4), more << 13 | offset, protocol, draw.choice(SOURCES[4]),
                draw.choice(TARGETS[4]), content)


def packet6(draw, number):
    protocol = draw.choice((TCP, TCP, TCP, UDP, UDP, SCTP, ICMPV6, GRE))
    content = transport(draw, protocol) + draw.randbytes(draw.choice((0, 1, 40)))
    following = protocol
    # Extension headers, from the last to the first.
    more, offset = draw.choice(((None, 0),) * 5 + ((1, 0), (1, 100), (0, 7)))
    if more is not None:
        content = content.ljust((len(content) + 7) // 8 * 8, b"\0")
        content = struct.pack(">BBHI", following, 0, offset << 3 | more, number) + content
        following = FRAGMENT
    for kind in (DESTINATION_OPTIONS, HOP_BY_HOP):
        if draw.random() < 0.15:
            # One option: six bytes of padding.
            content = struct.pack(">BBBB4x", following, 0, 1, 4) + content
            following = kind
    word = 6 << 28 | (draw.choice((0, 10, 46)) << 2 | draw.randrange(4)) << 20 | number
    addresses = (socket.inet_pton(socket.AF_INET6, draw.choice(of[6])) for of in (SOURCES, TARGETS))
    return b"\x86\xdd" + struct.pack(">IHBB16s16s", word, len(content), following, 64, *addresses) + content


def number_of(frame):
    """Returns the number of a packet in a frame."""
    if frame[12:14] == b"\x08\0":
        return struct.unpack_from(">H", frame, 18)[0]
    return struct.unpack_from(">I", frame, 14)[0] & 0xFFFFF


def permitted(number):
    """Returns a packet that every list permits."""
    return ipv4(number, 0, 0, UDP, "192.0.2.1", "198.51.100.1", struct.pack(">HHHH", MARK_PORT, MARK_PORT, 8, 0))


MARK = permitted(MARK_NUMBER)


class Path:
    """Two hosts and what is between them."""

    def __init__(self, stack, names, router, far):
        self.near, self.far = (stack.enter_context(contextlib.closing(packet_socket(name, "eth0"))) for name in names)
        self.head = bytes.fromhex((router + mac(1)).replace(":", ""))
        self.from_router = bytes.fromhex(far.replace(":", ""))

    def passed(self, packets):
        """Returns the numbers of the packets that arrive."""
        for packet in [*packets, MARK]:
            self.near.send(self.head + packet)
        arrived = set()
        self.far.settimeout(WAIT_S)
        while True:
            frame = self.far.recv(2048)
            if frame[6:12] != self.from_router or frame[12:14] not in (b"\x08\0", b"\x86\xdd"):
                continue
            number = number_of(frame)
            if number == MARK_NUMBER:
                return arrived
            arrived.add(number)


@contextlib.contextmanager
def kernel(rules, hook):
    """A kernel that forwards from the first host to the second, with the rules in nftables."""
    with namespaces.made(KERNEL, *KERNEL_HOSTS):
        for knob, value in {"net.ipv4.ip_forward": 1, "net.ipv6.conf.all.forwarding": 1, "net.ipv4.conf.all.rp_filter": 0,
                            "net.ipv4.conf.default.rp_filter": 0, "net.ipv4.conf.all.send_redirects": 0}.items():
            inside(KERNEL, "sysctl", "-qw", f"{knob}={value}")
        for at, host in enumerate(KERNEL_HOSTS, 1):
            run("ip", "link", "add", f"k{at}", "netns", KERNEL, "address", KERNEL_MAC, "type", "veth",
                "peer", "name", "eth0", "netns", host, "address", mac(at))
            inside(host, "ip", "link", "set", "eth0", "up")
            inside(KERNEL, "ip", "link", "set", f"k{at}", "up")
            inside(KERNEL, "ip", "address", "add", f"10.0.{at}0.1/24", "dev", f"k{at}")
            inside(KERNEL, "ip", "address", "add", f"2001:db8:{at}0::1/64", "dev", f"k{at}", "nodad")
        for gateway in ("10.0.20.2", "2001:db8:20::2"):
            inside(KERNEL, "ip", "neigh", "replace", gateway, "lladdr", mac(2), "dev", "k2", "nud", "permanent")
            inside(KERNEL, "ip", "route", "add", "default", "via", gateway)
        # A later fragment has no ports. Linux 6.18 takes its first bytes for them (seen), so it gets a chain without such rules.
        every = "\n".join(rule.nft() for rule in rules)
        later = "\n".join(rule.nft() for rule in rules if not rule.is_of_layer4())
        inside(KERNEL, "nft", "-f", "-", input=f"""
            table inet acl {{
                chain later {{
                    {later}
                    drop
                }}
                chain every {{
                    type filter hook {hook} priority 0; policy drop;
                    iifname != "k1" accept
                    icmpv6 type {{ 133, 134, 135, 136 }} accept
                    meta nfproto ipv4 udp sport {MARK_PORT} udp dport {MARK_PORT} accept
                    ip frag-off & 0x1fff != 0 goto later
                    frag frag-off != 0 goto later
                    {every}
                }}
            }}
            """)
        yield


@pytest.mark.parametrize("acl, hook, seed", [("acl_in", "prerouting", 7), ("acl_out", "forward", 8)])
def test_every_packet_has_the_verdict_of_nftables(tmp_path, acl, hook, seed):
    draw = random.Random(seed)
    # The last rules match much, and would hide others behind them.
    rules = [Rule(draw, is_narrow=at < RULES * 3 // 4) for at in range(RULES)]
    texts = [f'"permit udp,tp_src={MARK_PORT},tp_dst={MARK_PORT}"', *(rule.text() for rule in rules)]
    interface, other = ("v10", "v20") if acl == "acl_in" else ("v20", "v10")
    section = f'[[acl]]\nname = "random"\nrules = [{", ".join(texts)}]\n'
    with contextlib.ExitStack() as stack:
        stack.enter_context(network())
        stack.enter_context(kernel(rules, hook))
        switch = stack.enter_context(Router(tmp_path / "m", extra=section))
        # Before the list is there, the neighbours of the router get known.
        wait_until_it_routes()
        for gateway in ("10.0.20.2", "2001:db8:20::2"):
            inside("mr-blue", "ip", "route", "add", "default", "via", gateway)
        switch.write(**{interface: f'{acl} = "random"', other: "", "extra": section})
        switch.millrace("apply", str(switch.config))
        macs = {one["name"]: one["mac"] for one in switch.show("interfaces")}
        ours = Path(stack, HOSTS, macs["v10"], macs["v20"])
        theirs = Path(stack, KERNEL_HOSTS, KERNEL_MAC, KERNEL_MAC)
        wait_for("the route", lambda: ours.passed([permitted(1)]) == theirs.passed([permitted(1)]) == {1})

        passes, differences = 0, []
        for batch in range(PACKETS // BATCH):
            # A late packet of one batch is none of the next.
            numbers = range(batch % 100 * BATCH, (batch % 100 + 1) * BATCH)
            packets = {number: draw.choice((packet4, packet6))(draw, number) for number in numbers}
            verdicts = [path.passed(packets.values()) & packets.keys() for path in (ours, theirs)]
            for number in verdicts[0] ^ verdicts[1]:
                alone = [path.passed([packets[number]]) == {number} for path in (ours, theirs)]
                if alone[0] != alone[1]:
                    differences.append(f"{packets[number].hex()}: router {alone[0]}, nftables {alone[1]}")
            passes += len(verdicts[1])
        assert not differences, f"{len(differences)} of {PACKETS} differ:\n" + "\n".join(differences[:20]) + f"\n{texts}"
        assert 0.2 < passes / PACKETS < 0.8, f"{passes} of {PACKETS} pass: the lists decide little"
        reason = f"route_{acl}"
        drops = {drop["reason"]: drop["packets"] for one in switch.show("interfaces", "--drops") for drop in one["drops"]}
        assert drops[reason] >= PACKETS - passes, drops
        print(f"{acl}: {PACKETS} packets, {passes} pass, 0 differ")
