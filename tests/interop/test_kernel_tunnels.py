"""Tunnels of the kernel through `kernel:` ports, with the offloads that virtual Ethernet has by default: the kernel leaves the
segmentation of the packets inside of its tunnels to the switch. A Linux bridge in the place of the switch is the reference.

A kernel that lacks a type of tunnel cannot make such packets. The user of a tap device can: frames with the virtio-net header that
AF_PACKET shows for them come from there, and scapy builds the segments that have to leave.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import random
import struct
import subprocess
import sys

import pytest
from scapy.contrib.geneve import GENEVE, GeneveOptions
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

import namespaces
from switches import Millrace, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
NEAR = ("mr-t1", "mr-t2")
HOSTS = ("mr-tun1", "mr-tun2")
SIZE = 5_000_000
# The options of `ip link add` of each tunnel, with the addresses of this host and of the other.
TUNNELS = {
    "vxlan": "type vxlan id 7 dstport 4789 local 10.8.0.{here} remote 10.8.0.{there}",
    "vxlan with checksum": "type vxlan id 7 dstport 8472 local 10.8.0.{here} remote 10.8.0.{there} udpcsum",
    "vxlan over IPv6": "type vxlan id 7 dstport 4789 local fd08::{here} remote fd08::{there}",
    "geneve": "type geneve id 7 remote 10.8.0.{there}",
    "gretap": "type gretap local 10.8.0.{here} remote 10.8.0.{there}",
    "gretap with checksum and key": "type gretap local 10.8.0.{here} remote 10.8.0.{there} csum key 9",
    "gre": "type gre local 10.8.0.{here} remote 10.8.0.{there}",
    "ip6gretap": "type ip6gretap local fd08::{here} remote fd08::{there}",
    "ipip": "type ipip local 10.8.0.{here} remote 10.8.0.{there}",
    "sit": "type sit local 10.8.0.{here} remote 10.8.0.{there}",
    "ip6tnl": "type ip6tnl mode any local fd08::{here} remote fd08::{there}",
}
SEND = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family) as s, open(sys.argv[2], "rb") as f:
    s.settimeout(60)
    s.connect((sys.argv[1], 9000))
    s.sendall(f.read())
"""
RECEIVE = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family) as s:
    s.bind((sys.argv[1], 9000))
    s.listen()
    print("listens", flush=True)
    s.settimeout(60)
    c, _ = s.accept()
    c.settimeout(60)
    h = hashlib.sha256()
    while d := c.recv(65536):
        h.update(d)
print(h.hexdigest())
"""


def is_known(options):
    """Returns true if this kernel has the type of tunnel."""
    done = subprocess.run(["unshare", "-n", "ip", "link", "add", "probe", *options.format(here=1, there=2).split()],
                          capture_output=True, text=True, timeout=60)
    return done.returncode == 0


@contextlib.contextmanager
def hosts(options):
    """Two hosts with a link each to this namespace, and a tunnel between them."""
    with namespaces.made(*HOSTS):
        try:
            for here, (host, near) in enumerate(zip(HOSTS, NEAR), 1):
                run("ip", "link", "del", near, check=False)
                run("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", host)
                run("ip", "link", "set", near, "up")

                def inside(*command, host=host):
                    namespaces.inside(host, *command)

                for device in ("lo", "eth0"):
                    inside("ip", "link", "set", device, "up")
                inside("ip", "addr", "add", f"10.8.0.{here}/24", "dev", "eth0")
                inside("ip", "addr", "add", f"fd08::{here}/64", "dev", "eth0", "nodad")
                inside("ip", "link", "add", "tun", *options.format(here=here, there=3 - here).split())
                inside("ip", "link", "set", "tun", "up")
                if not options.startswith("type sit"):
                    inside("ip", "addr", "add", f"10.9.0.{here}/24", "dev", "tun")
                if not options.startswith("type ipip"):
                    inside("ip", "addr", "add", f"fd09::{here}/64", "dev", "tun", "nodad")
            yield
        finally:
            for near in NEAR:
                run("ip", "link", "del", near, check=False)


@contextlib.contextmanager
def linux_bridge():
    """The reference: a bridge of the kernel between both links."""
    try:
        run("ip", "link", "add", "mr-tbr", "type", "bridge")
        for near in NEAR:
            run("ip", "link", "set", near, "master", "mr-tbr")
        run("ip", "link", "set", "mr-tbr", "up")
        yield None
    finally:
        run("ip", "link", "del", "mr-tbr", check=False)


def transfer(tmp_path, address, source=HOSTS[0], target=HOSTS[1]):
    """A file arrives unchanged at an address of a host."""
    data = random.Random(1).randbytes(SIZE)
    (tmp_path / "file").write_bytes(data)
    receiver = subprocess.Popen(["ip", "netns", "exec", target, sys.executable, "-c", RECEIVE, address],
                                stdout=subprocess.PIPE, text=True)
    try:
        assert receiver.stdout.readline() == "listens\n"
        namespaces.inside(source, sys.executable, "-c", SEND, address, tmp_path / "file", timeout=120)
        assert receiver.communicate(timeout=120)[0].strip() == hashlib.sha256(data).hexdigest()
    finally:
        receiver.kill()
        receiver.wait(timeout=60)


@pytest.mark.parametrize("kind", TUNNELS)
def test_tcp_inside_of_a_kernels_tunnel_goes_whole_through_kernel_ports(tmp_path, kind):
    options = TUNNELS[kind]
    if not is_known(options):
        pytest.skip(f"this kernel has no {options.split()[1]}")
    addresses = [address for address, lacks in (("10.9.0.2", "type sit"), ("fd09::2", "type ipip"))
                 if not options.startswith(lacks)]
    with hosts(options):
        with linux_bridge():
            for address in addresses:
                transfer(tmp_path, address)
        ports = [(1, f"kernel:{NEAR[0]}"), (2, f"kernel:{NEAR[1]}")]
        with Millrace(tmp_path / "m", ports=ports, fail_mode="standalone") as switch:
            for address in addresses:
                transfer(tmp_path, address)
            received, _ = switch.port_packets(1)
            # With one packet for each segment of 1,400 bytes, there would be 3,500 for each address.
            assert received < len(addresses) * SIZE / 1400 / 2, received
            assert "bad_offload" not in switch.cli("show", "drops")


# The kernel's end of a tunnel, and the port of the switch that is the other end.
ENDS = {
    "vxlan": ("vxlan", "vxlan:remote=10.8.0.2,local=10.8.0.1,underlay=p2,key=7"),
    "vxlan with checksum": ("vxlan with checksum", "vxlan:remote=10.8.0.2,local=10.8.0.1,underlay=p2,key=7,port=8472,csum=true"),
    # The kernel drops datagrams of IPv6 without a checksum unless it is told otherwise (udp6zerocsumrx).
    "vxlan over IPv6": ("vxlan over IPv6", "vxlan:remote=fd08::2,local=fd08::1,underlay=p2,key=7,csum=true"),
    "gretap": ("gretap", "gre:remote=10.8.0.2,local=10.8.0.1,underlay=p2"),
    "gretap with checksum and key": ("gretap with checksum and key", "gre:remote=10.8.0.2,local=10.8.0.1,underlay=p2,key=9,csum=true"),
    "ip6gretap": ("ip6gretap", "gre:remote=fd08::2,local=fd08::1,underlay=p2"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_a_port_of_the_switch_is_the_other_end_of_a_kernels_tunnel(tmp_path, kind):
    """Host 1 has no tunnel. Host 2 leaves the segmentation inside of its tunnel to the switch, which ends the tunnel."""
    name, device = ENDS[kind]
    options = TUNNELS[name]
    if not is_known(options):
        pytest.skip(f"this kernel has no {options.split()[1]}")
    with hosts(options):
        namespaces.inside(HOSTS[0], "ip", "link", "del", "tun")
        namespaces.inside(HOSTS[0], "ip", "addr", "flush", "dev", "eth0")
        namespaces.inside(HOSTS[0], "ip", "addr", "add", "10.9.0.1/24", "dev", "eth0")
        # The headers of the tunnel have to fit, too.
        namespaces.inside(HOSTS[0], "ip", "link", "set", "eth0", "mtu", "1400")
        ports = [(1, f"kernel:{NEAR[0]}"), (2, f"kernel:{NEAR[1]}"), (3, device)]
        with Millrace(tmp_path / "m", ports=ports) as switch:
            switch.ofctl("add-flow", "in_port=1,actions=output:3")
            switch.ofctl("add-flow", "in_port=3,actions=output:1")
            wait_for("the next hop is known", lambda: switch.ofctl("show").count("LIVE") == 3)
            transfer(tmp_path, "10.9.0.2")
            before, _ = switch.port_packets(2)
            transfer(tmp_path, "10.9.0.1", source=HOSTS[1], target=HOSTS[0])
            after, _ = switch.port_packets(2)
            # With one packet for each segment of 1,350 bytes, there would be 3,700.
            assert after - before < SIZE / 1350 / 2, after - before
            drops = switch.cli("show", "drops")
            assert not [line for line in drops.splitlines() if "tunnel_malformed" in line or "bad_offload" in line], drops


TUNSETIFF, TAP, NO_PI, VNET_HDR = 0x400454CA, 2, 0x1000, 0x4000
NEEDS_CSUM, GSO = 1, {(6, 4): 1, (6, 6): 4, (17, 4): 5, (17, 6): 5}
OUTSIDE = Ether(dst="02:00:00:00:0b:02", src="02:00:00:00:0b:01")
INSIDE = Ether(dst="02:00:00:00:0c:02", src="02:00:00:00:0c:01")
SOURCES = [bytes.fromhex("020000000b01"), bytes.fromhex("020000000c01")]
# The data of a segment in bytes, and that of a packet: three segments and a rest.
SEGMENT, DATA = 1000, random.Random(7).randbytes(3300)


def ip(version, net, number):
    """An IP header. The kernel counts the identification of IPv4 up from segment to segment."""
    if version == 6:
        return IPv6(src=f"fd{net:02}::1", dst=f"fd{net:02}::2")
    return IP(src=f"10.{net}.0.1", dst=f"10.{net}.0.2", id=1000 * net + number)


def udp(port, **fields):
    return UDP(sport=40000, dport=port, **fields)


# The version of IP outside and inside, the inner protocol, and how the inner IP packet is wrapped.
FRAMES = {
    "geneve": (4, 4, 6, lambda outer, inner: outer / udp(6081, chksum=0) / GENEVE(vni=7) / INSIDE / inner),
    "geneve with option and checksum": (4, 6, 6, lambda outer, inner: outer / udp(6081) / GENEVE(
        vni=7, options=[GeneveOptions(classid=0x102, type=3, data=b"abcd")]) / INSIDE / inner),
    "geneve over IPv6": (6, 4, 6, lambda outer, inner: outer / udp(6081) / GENEVE(vni=7) / INSIDE / inner),
    "geneve of a tagged frame": (4, 4, 6, lambda outer, inner: outer / udp(6081, chksum=0) / GENEVE(vni=7) / INSIDE / Dot1Q(vlan=9)
                                 / inner),
    "geneve of datagrams": (4, 4, 17, lambda outer, inner: outer / udp(6081) / GENEVE(vni=7) / INSIDE / inner),
    "vxlan": (4, 4, 6, lambda outer, inner: outer / udp(4789, chksum=0) / VXLAN(vni=7, flags="Instance") / INSIDE / inner),
    "fou": (4, 4, 6, lambda outer, inner: outer / udp(5555) / inner),
    "gre": (4, 4, 6, lambda outer, inner: outer / GRE() / inner),
    "gre with checksum and key": (4, 6, 6, lambda outer, inner: outer / GRE(chksum_present=1, key_present=1, key=9) / inner),
    "gretap": (4, 4, 6, lambda outer, inner: outer / GRE(proto=0x6558) / INSIDE / inner),
    "gretap with checksum and key": (4, 4, 6, lambda outer, inner: outer / GRE(proto=0x6558, chksum_present=1, key_present=1, key=9)
                                     / INSIDE / inner),
    "ip6gretap": (6, 6, 6, lambda outer, inner: outer / GRE(proto=0x6558) / INSIDE / inner),
    "ipip": (4, 4, 6, lambda outer, inner: outer / inner),
    "sit": (4, 6, 6, lambda outer, inner: outer / inner),
    "ip4ip6": (6, 4, 6, lambda outer, inner: outer / inner),
    "ip6ip6": (6, 6, 6, lambda outer, inner: outer / inner),
    "vxlan in gre": (4, 4, 6, lambda outer, inner: outer / GRE() / ip(4, 11, 0) / udp(4789, chksum=0) / VXLAN(vni=7, flags="Instance")
                     / INSIDE / inner),
}


def packet(kind, outside, number, begin, data):
    """A packet of a tunnel with a part of the data."""
    outer, inner, protocol, wrap = FRAMES[kind]
    flags = "PA" if begin + len(data) == len(DATA) else "A"
    transport = TCP(sport=1024, dport=80, seq=9 + begin, flags=flags) if protocol == 6 else UDP(sport=1024, dport=443)
    return outside / wrap(ip(outer, 8, number), ip(inner, 9, number) / transport / Raw(data))


def segments(kind, outside):
    """The packets that the kernel would have sent if it had segmented the packet itself."""
    parts = [(begin, DATA[begin : begin + SEGMENT]) for begin in range(0, len(DATA), SEGMENT)]
    made = [packet(kind, outside, number, begin, part) for number, (begin, part) in enumerate(parts)]
    if kind == "vxlan in gre":
        for number, one in enumerate(made):
            one[GRE][IP].id += number
    return made


def folded(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def unsegmented(kind, outside):
    """The packet as a kernel hands it over: its virtio-net header, the frame, and in the innermost header a partial checksum."""
    _, inner, protocol, _ = FRAMES[kind]
    frame = bytearray(bytes(packet(kind, outside, 0, 0, DATA)))
    size = len(DATA) + (20 if protocol == 6 else 8)
    at, field = len(frame) - size, 16 if protocol == 6 else 6
    addresses = frame[at - (8 if inner == 4 else 32) : at]
    partial = folded(addresses + struct.pack("!HH", protocol, size))
    frame[at + field : at + field + 2] = struct.pack("!H", partial)
    head = len(frame) - len(DATA)
    return struct.pack("<BBHHHH", NEEDS_CSUM, GSO[protocol, inner], head, SEGMENT, at, field) + frame


@contextlib.contextmanager
def driver(name):
    """The user of a tap device, who writes frames as the driver of a NIC hands them to a kernel."""
    with open("/dev/net/tun", "r+b", buffering=0) as nic:
        fcntl.ioctl(nic, TUNSETIFF, struct.pack("16sH22x", name.encode(), TAP | NO_PI | VNET_HDR))
        pathlib.Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        run("ip", "link", "set", name, "up")
        yield nic


def sent_by(source, cable, frame, count):
    """Writes a frame, and returns the next frames of the test that come by a cable."""
    source.write(frame)
    arrived = (got for got, _ in namespaces.received(cable, 60) if got[6:12] in SOURCES)
    return list(itertools.islice(arrived, count))


@contextlib.contextmanager
def bench(folder, number, in_port, more=()):
    """A switch between a tap device at port 1 and a cable at port 2, which gets the packets of a port."""
    name, near, far = (f"mr-t{part}{number}" for part in ("nic", "near", "far"))
    with driver(name) as nic, namespaces.cables((near, far)), namespaces.packet_socket_here(far) as cable:
        with Millrace(folder, ports=[(1, f"kernel:{name}"), (2, f"kernel:{near}"), *more]) as switch:
            switch.ofctl("add-flow", f"in_port={in_port},actions=output:2")
            wait_for("both links are up", lambda: switch.ofctl("show").count("LIVE") >= 2)
            [shown] = json.loads(run("ip", "-j", "link", "show", name))
            yield switch, nic, cable, shown["address"]


@pytest.fixture(scope="module")
def wire(tmp_path_factory):
    with bench(tmp_path_factory.mktemp("wire"), 0, in_port=1) as made:
        yield made


@pytest.mark.parametrize("kind", FRAMES)
def test_packets_of_tunnels_that_a_kernel_may_lack_are_segmented_as_it_would(wire, kind):
    switch, nic, cable, _ = wire
    expected = [bytes(one) for one in segments(kind, OUTSIDE)]
    assert sent_by(nic, cable, unsegmented(kind, OUTSIDE), len(expected)) == expected, switch.cli("show", "drops")


@pytest.mark.parametrize("kind, device", [
    ("vxlan", "vxlan:remote=10.8.0.1,local=10.8.0.2,underlay=p1,key=7"),
    ("gretap", "gre:remote=10.8.0.1,local=10.8.0.2,underlay=p1"),
    ("gretap with checksum and key", "gre:remote=10.8.0.1,local=10.8.0.2,underlay=p1,key=9,csum=true"),
    ("ip6gretap", "gre:remote=fd08::1,local=fd08::2,underlay=p1"),
])
def test_a_tunnel_that_a_kernel_may_lack_ends_in_a_port_of_the_switch(tmp_path, kind, device):
    with bench(tmp_path, 1, in_port=3, more=[(3, device)]) as (switch, nic, cable, address):
        outside = Ether(dst=address, src=OUTSIDE.src)
        expected = [bytes(one.getlayer(Ether, 2)) for one in segments(kind, outside)]
        assert sent_by(nic, cable, unsegmented(kind, outside), len(expected)) == expected, switch.cli("show", "drops")


CONTRADICTION = """
import socket, struct
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
s.bind(("eth0", 0))
frame = bytes.fromhex("020000000002020000000001") + struct.pack("!H", 0x0800)
frame += struct.pack("!BBHHHBBHII", 0x45, 0, 20 + 20 + 3000, 0, 0, 64, 6, 0, 0x0a080001, 0x0a080002)
frame += struct.pack("!HHIIHHHH", 1, 2, 0, 0, 0x5010, 100, 0, 0) + bytes(3000)
# A train of segments longer than the MTU of the link.
s.send(struct.pack("<BBHHHH", 1, 1, 54, 2900, 34, 16) + frame)
"""


def test_frames_that_do_not_fit_their_offloads_are_dropped_by_name_with_a_remedy(tmp_path):
    with hosts(TUNNELS["vxlan"]):
        ports = [(1, f"kernel:{NEAR[0]}"), (2, f"kernel:{NEAR[1]}")]
        with Millrace(tmp_path / "m", ports=ports, fail_mode="standalone") as switch:
            def is_dropped():
                namespaces.inside(HOSTS[0], sys.executable, "-c", CONTRADICTION)
                return "bad_offload" in switch.cli("show", "drops")

            wait_for("the drop", is_dropped)
            log = switch.log.read_text()
            assert "ethtool -K" in log and "port=p1" in log.replace('"', ""), log[-2000:]
