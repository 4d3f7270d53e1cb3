"""The router's core beside the kernel's forwarding: the same frames, compared byte by byte.

The router runs in a small program (`crates/routing/router/examples/forwarded.rs`), the kernel in a namespace with the same
addresses, routes and neighbours. What differs on purpose is masked, and only that:

* the identification of an ICMP error's own IPv4 header, and the checksum that covers it (RFC 6864 leaves it to the sender);
* the flow label of an ICMPv6 error's own header (RFC 6437: the kernel draws one).

The cases in which the router is stricter are in `STRICTER`.
"""

import contextlib
import itertools
import os
import random
import socket
import subprocess
import time
from pathlib import Path

import pytest
from namespaces import inside, made, packet_socket
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoRequest,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    HBHOptUnknown,
    PadN,
    RouterAlert,
)
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import checksum
from switches import run

ROOT = Path(__file__).resolve().parents[2]
# Random changes of headers that are compared; `make routing` compares 2,000.
RANDOM_PROVOCATIONS = 2000 if os.environ.get("MILLRACE_ROUTING_LONG") == "1" else 400
PROGRAM = Path(os.environ.get("MILLRACE_TARGET", ROOT / "target/debug")) / "examples" / "forwarded"
ROUTER = {"a": "02:00:00:00:00:10", "b": "02:00:00:00:00:11"}
HOST = {"a": "02:00:00:00:00:20", "b": "02:00:00:00:00:21"}
A4, B4, A6, B6 = "10.0.0.2", "10.0.1.2", "2001:db8::2", "2001:db8:1::2"
# A datagram that both forward, by which the end of a provocation's outcome is known.
MARK = b"the end of the outcome"
WAIT_S = 60
# The kernel's outcomes of a frame that are compared until one is that of the core, and the time in s between two of them.
ATTEMPTS, AGAIN_S = 5, 0.2
# Where the router is stricter than the kernel, and why.
STRICTER = {
    "source ::ffff:10.0.0.2": "IPv4-mapped addresses are never on the wire (RFC 4942, section 2.2); the kernel forwards them",
    "destination 0.0.0.1": "network 0 has no hosts (RFC 1812, section 5.3.7); the kernel looks for a route",
}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


def frame(packet, dst=None, src=None):
    """The bytes of a frame from host a to the router."""
    return bytes(Ether(dst=dst or ROUTER["a"], src=src or HOST["a"]) / packet)


def frame4(packet):
    """The bytes of a frame whose content says nothing of its type."""
    return bytes(Ether(dst=ROUTER["a"], src=HOST["a"], type=0x800) / packet)


MARKER = frame(IP(src=A4, dst=B4, id=0xFFFF, ttl=9) / UDP(sport=1, dport=2) / Raw(MARK))


@contextlib.contextmanager
def kernel():
    """A kernel that forwards between hosts a and b. Yields packet sockets at both hosts, by name."""
    with made("oracle", "hosts"), contextlib.ExitStack() as stack:
        run("ip", "link", "add", "host-a", "netns", "hosts", "type", "veth", "peer", "name", "ra", "netns", "oracle")
        run("ip", "link", "add", "host-b", "netns", "hosts", "type", "veth", "peer", "name", "rb", "netns", "oracle")
        for knob, value in {
            "net.ipv4.ip_forward": 1,
            "net.ipv4.conf.all.rp_filter": 0,
            "net.ipv4.conf.default.rp_filter": 0,
            "net.ipv4.conf.all.send_redirects": 0,
            "net.ipv4.conf.default.send_redirects": 0,
            "net.ipv4.icmp_ratelimit": 0,
            "net.ipv4.icmp_ratemask": 0,
            "net.ipv4.icmp_msgs_per_sec": 1_000_000,
            "net.ipv4.icmp_msgs_burst": 1_000_000,
            "net.ipv4.icmp_errors_use_inbound_ifaddr": 1,
            "net.ipv6.conf.all.forwarding": 1,
            "net.ipv6.conf.default.accept_dad": 0,
            "net.ipv6.conf.all.accept_dad": 0,
            "net.ipv6.icmp.ratelimit": 0,
        }.items():
            inside("oracle", "sysctl", "-q", "-w", f"{knob}={value}", check=False)
        for namespace, names in (("hosts", ("host-a", "host-b")), ("oracle", ("ra", "rb"))):
            for name in names:
                if namespace == "hosts":
                    inside(namespace, "sysctl", "-q", "-w", f"net.ipv6.conf.{name}.disable_ipv6=1")
                inside(namespace, "ethtool", "-K", name, "gro", "off", "tx", "off", "rx", "off", check=False)
        for name, subnet in (("a", 0), ("b", 1)):
            inside("oracle", "ip", "link", "set", f"r{name}", "address", ROUTER[name], "mtu", str(1500 - 100 * subnet))
            inside("hosts", "ip", "link", "set", f"host-{name}", "address", HOST[name], "up")
            inside("oracle", "ip", "link", "set", f"r{name}", "up")
            prefix = "2001:db8::" if subnet == 0 else "2001:db8:1::"
            inside("oracle", "ip", "address", "add", f"10.0.{subnet}.1/24", "dev", f"r{name}")
            inside("oracle", "ip", "address", "add", f"{prefix}1/64", "dev", f"r{name}", "nodad")
            hosts = [f"10.0.{subnet}.{host}" for host in range(2, 255)] + [f"{prefix}2"]
            lines = [f"neigh replace {host} lladdr {HOST[name]} dev r{name} nud permanent" for host in hosts]
            inside("oracle", "ip", "-batch", "-", input="\n".join(lines))
        # The neighbour of a source of the link, to which the router answers without asking.
        inside("oracle", "ip", "neigh", "replace", "fe80::2", "lladdr", HOST["a"], "dev", "ra", "nud", "permanent")
        for kind, prefixes in (
            ("unreachable", ("198.51.100.0/24", "2001:db8:a::/48")),
            ("prohibit", ("198.51.101.0/24", "2001:db8:b::/48")),
            ("blackhole", ("198.51.102.0/24", "2001:db8:c::/48")),
        ):
            for prefix in prefixes:
                inside("oracle", "ip", "route", "add", kind, prefix)
        sockets = {name: stack.enter_context(packet_socket("hosts", f"host-{name}")) for name in "ab"}
        yield sockets


def outcome_of_kernel(sockets, provocation):
    """The frames that leave to each host, for one frame from host a."""
    for host in sockets.values():
        host.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                host.recv(70_000)
    sockets["a"].send(provocation)
    sockets["a"].send(MARKER)
    sent, is_over = [], False
    sockets["b"].settimeout(WAIT_S)
    while not is_over:
        received, origin = sockets["b"].recvfrom(70_000)
        if is_of_router(received, "b", origin):
            is_over = received.endswith(MARK)
            if not is_over:
                sent.append(("b", received))
    sockets["a"].setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            received, origin = sockets["a"].recvfrom(70_000)
            if is_of_router(received, "a", origin):
                sent.append(("a", received))
    return sorted(sent)


def is_of_router(received, name, origin):
    """True for a frame that the router sent and that forwarding caused: no neighbour discovery of its own."""
    if origin[2] == socket.PACKET_OUTGOING or received[6:12] != bytes.fromhex(ROUTER[name].replace(":", "")):
        return False
    is_v6 = received[12:14] == b"\x86\xdd"
    is_multicast = received[0] & 1
    is_discovery = is_v6 and received[20] == 58 and 133 <= received[54] <= 137
    return received[12:14] in (b"\x08\x00", b"\x86\xdd") and not is_multicast and not is_discovery


class Core:
    """The router's program."""

    def __init__(self):
        assert PROGRAM.exists(), f"{PROGRAM} is missing: cargo build -p millrace-router --example forwarded"
        self.process = subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def outcome(self, provocation):
        """The frames that leave, and the other events."""
        print(provocation.hex(), file=self.process.stdin, flush=True)
        sent, events = [], []
        while (line := self.process.stdout.readline().strip()) != ".":
            assert line, "the program ended"
            kind, _, rest = line.partition(" ")
            if kind in "ab":
                sent.append((kind, bytes.fromhex(rest)))
            else:
                events.append(line)
        return sorted(sent), events


def masked(name, received):
    """A frame without what differs on purpose."""
    received = bytearray(received)
    if name == "a" and received[12:14] == b"\x08\x00" and received[23] == 1 and received[34] in (3, 11, 12):
        received[18:20] = received[24:26] = b"\0\0"
    if name == "a" and received[12:14] == b"\x86\xdd" and received[20] == 58 and received[54] < 128:
        received[15:18] = b"\0\0\0"
    return name, bytes(received)


def outcomes(sockets, core, provocation):
    """Returns the frames of the kernel and those of the core for one frame, without what differs on purpose, and the core's events.

    The kernel gets a frame again whose outcomes differ: a busy machine may process it behind the marker that follows it.
    """
    sent, events = core.outcome(provocation)
    sent = [masked(*one) for one in sent]
    for _ in range(ATTEMPTS):
        expected = [masked(*one) for one in outcome_of_kernel(sockets, provocation)]
        if expected == sent:
            break
        time.sleep(AGAIN_S)
    return expected, sent, events


# The kernel answers a few packets without a route of each source at once (net.ipv4.route.error_burst, which no namespace can
# change), so each such packet has a source of its own.
sources = itertools.cycle(f"10.0.0.{host}" for host in range(2, 255))


def udp4(dst=B4, size=30, **fields):
    return IP(src=fields.pop("src", None) or next(sources), dst=dst, id=7, **fields) / UDP(sport=1000, dport=2000) / Raw(b"u" * size)


def udp6(dst=B6, size=30, **fields):
    return IPv6(src=fields.pop("src", A6), dst=dst, **fields) / UDP(sport=1000, dport=2000) / Raw(b"u" * size)


def raw_options(data):
    """A datagram with these bytes as options of IPv4."""
    plain = bytes(udp4(size=20))
    header = bytearray(plain[:20] + data)
    header[0] = 0x40 | len(header) // 4
    header[2:4] = (len(plain) + len(data)).to_bytes(2, "big")
    header[10:12] = b"\0\0"
    header[10:12] = checksum(bytes(header)).to_bytes(2, "big")
    return Raw(bytes(header) + plain[20:])


def provocations():
    """Names and frames: what a router forwards, answers and drops."""
    for ttl in (0, 1, 2, 64, 255):
        yield f"ttl {ttl}", frame(udp4(ttl=ttl))
        yield f"hop limit {ttl}", frame(udp6(hlim=ttl))
    for size in (0, 8, 519, 520, 521, 1200, 1440):
        yield f"ttl 1, {size} bytes", frame(udp4(ttl=1, size=size))
        yield f"hop limit 1, {size} bytes", frame(udp6(hlim=1, size=size))
    for tos in (0x10, 0x1E, 0x20, 0xB8, 0xFF):
        yield f"tos {tos}", frame(udp4(ttl=1, tos=tos))
        yield f"class {tos}", frame(udp6(hlim=1, tc=tos))
    for name, four, six in (
        ("no route", "203.0.113.1", "2001:db8:ff::1"),
        ("unreachable", "198.51.100.1", "2001:db8:a::1"),
        ("prohibited", "198.51.101.1", "2001:db8:b::1"),
        ("blackhole", "198.51.102.1", "2001:db8:c::1"),
    ):
        yield name, frame(udp4(dst=four))
        yield f"{name}, IPv6", frame(udp6(dst=six))
        yield f"{name}, ttl 1", frame(udp4(dst=four, ttl=1))
        yield f"{name}, hop limit 1", frame(udp6(dst=six, hlim=1))
        yield f"{name}, in a broadcast frame", frame(udp4(dst=four), dst="ff:ff:ff:ff:ff:ff")
        yield f"{name}, TCP", frame(IP(src=next(sources), dst=four) / TCP(sport=1, dport=2))
    for size in (1371, 1372, 1373, 1400, 1472):
        yield f"{size} bytes, DF", frame(udp4(size=size, flags="DF"))
        yield f"{size} bytes", frame(udp4(size=size))
        yield f"{size} bytes, MF", frame(udp4(size=size - size % 8, flags="MF"))
        yield f"{size} bytes, offset", frame(udp4(size=size, frag=100))
        yield f"{size} bytes, DF, ttl 1", frame(udp4(size=size, flags="DF", ttl=1))
    for size in (1351, 1352, 1353, 1452):
        yield f"{size} bytes, IPv6", frame(udp6(size=size))
    for kind in (0, 3, 4, 5, 8, 11, 12, 13, 17, 18):
        yield f"ICMP type {kind}, ttl 1", frame(IP(src=A4, dst=B4, ttl=1) / ICMP(type=kind) / Raw(b"i" * 28))
    yield "fragment, ttl 1", frame(udp4(ttl=1, flags="MF"))
    yield "later fragment, ttl 1", frame(udp4(ttl=1, frag=3))
    for layer, name in (
        (ICMPv6DestUnreach(), "unreachable"),
        (ICMPv6TimeExceeded(), "time exceeded"),
        (ICMPv6EchoRequest(data=b"e"), "echo request"),
    ):
        yield f"ICMPv6 {name}, hop limit 1", frame(IPv6(src=A6, dst=B6, hlim=1) / layer / Raw(b"i" * 8))
    fragment = IPv6ExtHdrFragment(nh=17, id=1)
    yield "IPv6 first fragment", frame(IPv6(src=A6, dst=B6, hlim=1) / fragment / Raw(b"f" * 40))
    for name, options in (
        ("record", b"\x07\x07\x04\0\0\0\0\0"),
        ("record, full", b"\x07\x07\x08\x01\x02\x03\x04\0"),
        ("router alert", b"\x94\x04\0\0"),
        ("no operation", b"\x01\x01\x01\x01"),
        ("source route", b"\x83\x07\x04\x0a\0\x01\x02\0"),
    ):
        yield f"option {name}", frame4(raw_options(options))
    for name, options in (
        ("length 1", b"\x82\x01\0\0"),
        ("beyond the header", b"\x82\x09\0\0"),
        ("record without pointer", b"\x07\x02\0\0"),
        ("record, pointer 3", b"\x07\x07\x03\0\0\0\0\0"),
        ("record, pointer in an address", b"\x07\x07\x06\0\0\0\0\0"),
        ("stamp, pointer 4", b"\x44\x08\x04\0\0\0\0\0"),
        ("stamp, overflow", b"\x44\x04\x05\xf0"),
        ("router alert, length 3", b"\x94\x03\0\0"),
    ):
        yield f"bad option {name}", frame4(raw_options(options))
    for kind in (0x3E, 0x7E, 0xBE, 0xFE):
        option = HBHOptUnknown(otype=kind, optdata=b"\0\0\0\0")
        packet = IPv6(src=A6, dst=B6) / IPv6ExtHdrHopByHop(options=[option]) / UDP(sport=1, dport=2)
        yield f"hop-by-hop option {kind:#x}", frame(packet)
    packet = IPv6(src=A6, dst=B6) / IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0\0"), RouterAlert()]) / UDP()
    yield "hop-by-hop router alert", frame(packet)
    yield "destination option", frame(IPv6(src=A6, dst=B6) / IPv6ExtHdrDestOpt(options=[HBHOptUnknown(otype=0xBE)]) / UDP())
    for src in ("127.0.0.1", "224.0.0.1", "255.255.255.255", "10.0.1.1", "0.0.0.0"):
        yield f"source {src}", frame(udp4(src=src))
    for src in ("::1", "ff02::1", "::ffff:10.0.0.2"):
        yield f"source {src}", frame(udp6(src=src))
    for dst in ("127.0.0.1", "0.0.0.1", "10.0.1.255", "239.1.1.1"):
        yield f"destination {dst}", frame(udp4(dst=dst))
    for dst in ("::1", "ff05::1"):
        yield f"destination {dst}", frame(udp6(dst=dst))
    yield "broadcast frame", frame(udp4(), dst="ff:ff:ff:ff:ff:ff")
    yield "multicast frame, IPv6", frame(udp6(), dst="33:33:00:00:00:01")
    yield "padding", frame(udp4(size=1)) + b"\xee" * 17
    yield "bad checksum", frame(IP(src=A4, dst=B4, chksum=1) / UDP())
    yield "total length beyond the frame", frame(IP(src=A4, dst=B4, len=200) / UDP())
    yield "total length of a header", frame(IP(src=A4, dst=B4, len=19) / UDP())
    yield "version 5", frame(IP(src=A4, dst=B4, version=5) / UDP())
    yield "IPv6 payload beyond the frame", frame(IPv6(src=A6, dst=B6, plen=200) / UDP())


@pytest.fixture(scope="module")
def peers():
    with kernel() as sockets:
        core = Core()
        yield sockets, core
        core.process.stdin.close()
        core.process.wait(WAIT_S)


def test_the_core_forwards_answers_and_drops_as_the_kernel_does(peers):
    sockets, core = peers
    differences, errors = [], 0
    for name, provocation in provocations():
        expected, sent, events = outcomes(sockets, core, provocation)
        errors += sum(host == "a" for host, _ in expected)
        if name in STRICTER:
            assert expected and not sent, f"{name} is no longer different: {STRICTER[name]}"
        elif sent != expected:
            show = lambda frames: "\n    ".join(f"{host} {data.hex()}" for host, data in frames) or "nothing"
            differences.append(f"{name}:\n  kernel\n    {show(expected)}\n  router {events}\n    {show(sent)}")
    assert not differences, f"{len(differences)} differ\n" + "\n".join(differences)
    assert errors >= 50, f"only {errors} errors were compared"


def test_random_changes_of_headers_have_the_kernels_outcome(peers):
    sockets, core = peers
    draw = random.Random(1812)
    for number in range(RANDOM_PROVOCATIONS):
        build, size = draw.choice((udp4, udp6)), draw.choice((40, 1440))
        changed = bytearray(frame(build(size=size)))
        is_v4 = changed[12:14] == b"\x08\x00"
        # Not the size of the header, the protocol, or the source: options, extensions and ways back have cases of their own.
        places = [1, 6, 7, 8, 16, 17, 18, 19] if is_v4 else [1, 2, 3, 7, *range(24, 40)]
        for _ in range(draw.randint(1, 2)):
            changed[14 + draw.choice(places)] = draw.randrange(256)
        if is_v4:
            header = IP(bytes(changed[14:34]))
            del header.chksum
            changed[14:34] = bytes(header)[:20]
        destination = changed[30:34] if is_v4 else changed[38:54]
        if is_local_matter(bytes(destination)):
            continue
        expected, sent, events = outcomes(sockets, core, bytes(changed))
        assert sent == expected, f"{number}: {changed.hex()} {events}"


def is_local_matter(destination):
    """True for destinations about which the kernel has more to say than forwarding: its own, neighbours that it asks for."""
    if len(destination) == 4:
        return destination[:3] in (b"\x0a\0\0", b"\x0a\0\x01") and destination != socket.inet_aton(B4)
    return destination[:8] in (socket.inet_pton(socket.AF_INET6, "2001:db8::")[:8], socket.inet_pton(socket.AF_INET6, "2001:db8:1::")[:8]) and destination != socket.inet_pton(socket.AF_INET6, B6) or destination[0] == 0xFE
