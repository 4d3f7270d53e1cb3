"""Tunnels of the kernel through `kernel:` ports, with the offloads that virtual Ethernet has by default: the kernel leaves the
segmentation of the packets inside of its tunnels to the switch. A Linux bridge in the place of the switch is the reference.

Types of tunnels that this kernel does not have are skipped; `crates/base/wire/tests/it/segment_tunnels.rs` has all of them as frames.
"""

import contextlib
import hashlib
import os
import random
import subprocess
import sys

import pytest

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


def transfer(tmp_path, address):
    """A file arrives at an address of host 2 unchanged from host 1."""
    data = random.Random(1).randbytes(SIZE)
    (tmp_path / "file").write_bytes(data)
    receiver = subprocess.Popen(["ip", "netns", "exec", HOSTS[1], sys.executable, "-c", RECEIVE, address],
                                stdout=subprocess.PIPE, text=True)
    try:
        assert receiver.stdout.readline() == "listens\n"
        namespaces.inside(HOSTS[0], sys.executable, "-c", SEND, address, tmp_path / "file", timeout=120)
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
