"""Hostile neighbours of the router: forged ARP and neighbour discovery, router advertisements, redirects, packets whose TTL runs
out, gleans of many addresses, LLDP of 64 KiB. The traffic of others loses less than 2 %, memory is bounded, and each drop has a
name. BPDUs: test_router_bpdus.py; LACPDUs: test_lag.py.

`MILLRACE_ROUTING_LONG=1` gleans 100,000 addresses and floods for longer (`make routing`).
"""

import ipaddress
import itertools
import json
import os
import pathlib
import re
import threading

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import (ICMPv6ND_NA, ICMPv6ND_RA, ICMPv6ND_Redirect, ICMPv6NDOptDstLLAddr, ICMPv6NDOptPrefixInfo,
                                ICMPv6NDOptSrcLLAddr, IPv6)
from scapy.layers.l2 import ARP, Ether

from namespaces import inside, packet_socket, unanswered
from switches import wait_for
from test_router import HOSTS, VRF, Router, mac, network, reaches, wait_until_it_routes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

IS_LONG = os.environ.get("MILLRACE_ROUTING_LONG") == "1"
GLEANS = 100_000 if IS_LONG else 5000
FLOOD_S = 20 if IS_LONG else 3
# The growth of the daemon's memory under attack in KiB: queues and tables of neighbours are bounded.
GROWTH_KIB = 32 << 10
MALLORY = "02:00:00:00:66:66"
BROADCAST = "ff:ff:ff:ff:ff:ff"
EVIL = "02:00:00:00:66:01"


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    # LLDP of 64 KiB needs a link that carries it.
    with network(mtu=65535), Router(tmp_path_factory.mktemp("m") / "m", bridge="lldp = {}") as switch:
        wait_until_it_routes()
        yield switch


@pytest.fixture(scope="module")
def wire(router):
    """A raw socket of the attacker, who is in the VLAN of the first host."""
    with packet_socket(HOSTS[0], "eth0") as opened:
        yield opened


def router_mac(router, name="v10"):
    return next(interface for interface in router.show("interfaces") if interface["name"] == name)["mac"]


def drops_of(router, name="v10"):
    """Returns the packets that an interface dropped, by reason."""
    interface = next(interface for interface in router.show("interfaces", "--drops") if interface["name"] == name)
    return {drop["reason"]: drop["packets"] for drop in interface["drops"]}


def memory_kib(router):
    """Returns the resident memory of the switch."""
    text = pathlib.Path(f"/proc/{router.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1])


def lost_share(source, destination, attack):
    """Returns the share of echo requests that are not answered while `attack` is called 50 times a second: some 5,000 frames, more
    than the rates of all classes, and less than a port of a debug build on a busy machine receives."""
    count = FLOOD_S * 50
    stop = threading.Event()

    def flood():
        while not stop.wait(0.02):
            attack()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        return len(unanswered(source, destination, count, bound=FLOOD_S * 20 + 60)) / count
    finally:
        stop.set()
        thread.join()


def neighbour(address, device="v20"):
    """Returns the MAC address that the router's kernel has for a neighbour."""
    found = json.loads(inside(VRF, "ip", "-j", "neigh", "show", address, "dev", device))
    return found[0].get("lladdr") if found else None


def test_forged_arp_of_another_vlan_changes_no_neighbour(router, wire):
    """A host of VLAN 10 says that it is one of VLAN 20, that it is the router, and that the router's neighbours are elsewhere."""
    before = neighbour("10.0.20.2")
    assert before == mac(2)
    forged = [
        Ether(src=MALLORY, dst=BROADCAST) / ARP(op=2, hwsrc=MALLORY, psrc="10.0.20.2", hwdst=BROADCAST, pdst="10.0.20.2"),
        Ether(src=MALLORY, dst=BROADCAST) / ARP(op=1, hwsrc=MALLORY, psrc="10.0.20.1", pdst="10.0.20.1"),
        Ether(src=MALLORY, dst=router_mac(router)) / ARP(op=2, hwsrc=MALLORY, psrc="10.0.20.2", hwdst=router_mac(router), pdst="10.0.10.1"),
        # Its own address belongs to the router, as a sender that it is not.
        Ether(src=MALLORY, dst=BROADCAST) / ARP(op=1, hwsrc=MALLORY, psrc="10.0.10.1", pdst="10.0.10.1"),
    ]
    frames = [bytes(frame) for frame in forged]
    lost = lost_share(HOSTS[0], "10.0.20.2", lambda: [wire.send(frame) for frame in frames])
    assert lost < 0.02
    assert neighbour("10.0.20.2") == before
    assert neighbour("10.0.10.1", "v10") is None, "the router does not learn its own address from others"


def test_forged_neighbour_advertisements_of_another_link_change_no_neighbour(router, wire):
    before = neighbour("2001:db8:20::2")
    assert before == mac(2)
    forged = [Ether(src=MALLORY, dst="33:33:00:00:00:01") / IPv6(src="fe80::66", dst="ff02::1", hlim=255)
              / ICMPv6ND_NA(tgt=target, R=0, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=MALLORY)
              for target in ("2001:db8:20::2", "2001:db8:20::1", "2001:db8:10::1")]
    # A hop limit below 255 has crossed a router (RFC 4861, section 7.1.2).
    far = Ether(src=MALLORY, dst="33:33:00:00:00:01") / IPv6(src="fe80::66", dst="ff02::1", hlim=64) / ICMPv6ND_NA(
        tgt="2001:db8:10::2", R=0, S=0, O=1) / ICMPv6NDOptDstLLAddr(lladdr=MALLORY)
    frames = [bytes(frame) for frame in [*forged, far]]
    lost = lost_share(HOSTS[0], "2001:db8:20::2", lambda: [wire.send(frame) for frame in frames])
    assert lost < 0.02
    assert neighbour("2001:db8:20::2") == before
    assert neighbour("2001:db8:10::2", "v10") in (None, mac(1))


def test_router_advertisements_and_redirects_change_no_route(router, wire):
    routes = [inside(VRF, "ip", version, "route", "show", "table", "all") for version in ("-4", "-6")]
    shown = router.show("routes", "blue")
    to = router_mac(router)
    advertisement = (Ether(src=MALLORY, dst="33:33:00:00:00:01") / IPv6(src="fe80::66", dst="ff02::1", hlim=255)
                     / ICMPv6ND_RA(routerlifetime=9000, prf=1) / ICMPv6NDOptSrcLLAddr(lladdr=MALLORY)
                     / ICMPv6NDOptPrefixInfo(prefix="2001:db8:666::", prefixlen=64, L=1, A=1, validlifetime=9000, preferredlifetime=9000))
    redirect6 = (Ether(src=mac(1), dst=to) / IPv6(src="fe80::66", dst="2001:db8:10::1", hlim=255)
                 / ICMPv6ND_Redirect(tgt="fe80::66", dst="2001:db8:20::2") / ICMPv6NDOptDstLLAddr(lladdr=MALLORY))
    inner = IP(src="10.0.10.1", dst="10.0.20.2") / UDP(sport=1, dport=2)
    redirect4 = Ether(src=mac(1), dst=to) / IP(src="10.0.10.2", dst="10.0.10.1") / ICMP(type=5, code=1, gw="10.0.10.66") / inner
    frames = [bytes(frame) for frame in (advertisement, redirect6, redirect4)]
    assert lost_share(HOSTS[0], "10.0.20.2", lambda: [wire.send(frame) for frame in frames]) < 0.02
    def without_times(texts):
        return [re.sub(r" (expires|pref|hoplimit) \S+", "", text) for text in texts]

    assert without_times([inside(VRF, "ip", version, "route", "show", "table", "all") for version in ("-4", "-6")]) == without_times(routes)
    assert router.show("routes", "blue") == shown
    assert "2001:db8:666" not in inside(VRF, "ip", "-6", "addr")


def test_a_flood_of_packets_whose_ttl_runs_out_costs_others_little(router, wire):
    to = router_mac(router)
    frames = [bytes(Ether(src=EVIL, dst=to) / IP(src="10.0.10.2", dst=f"10.0.20.{last}", ttl=1) / UDP(sport=7, dport=last))
              for last in range(2, 100)]
    before, memory = drops_of(router), memory_kib(router)
    lost = lost_share(HOSTS[1], "10.0.10.2", lambda: [wire.send(frame) for frame in frames])
    assert lost < 0.02
    found = drops_of(router)
    assert found["route_ttl"] - before.get("route_ttl", 0) > 100, found
    assert memory_kib(router) - memory < GROWTH_KIB
    interface = next(interface for interface in router.show("interfaces") if interface["name"] == "v10")
    # At most 1,000 errors a second of this class and worker, and 50 at once.
    assert interface["icmp_errors"] < found["route_ttl"] + 100


def test_gleans_of_many_addresses_cost_others_little_and_bounded_memory(router, wire):
    """A scan of a large subnet: each packet is for a neighbour that is not there."""
    inside(VRF, "ip", "route", "add", "172.16.0.0/12", "dev", "v20", "scope", "link")
    try:
        wait_for("the route", lambda: any(route["prefix"] == "172.16.0.0/12" for route in router.show("routes", "blue")["blue"]))
        to = router_mac(router)
        first = int(ipaddress.ip_address("172.16.0.1"))
        frame = bytearray(bytes(Ether(src=EVIL, dst=to) / IP(src="10.0.10.2", dst="172.16.0.1", ttl=9) / UDP(sport=7, dport=9)))
        # The sum of the header without the destination, so that a frame is made without scapy.
        header = frame[14:34]
        base = sum(int.from_bytes(header[at:at + 2]) for at in range(0, 16, 2)) - int.from_bytes(header[10:12])
        sent = 0

        def scan():
            nonlocal sent
            for _ in range(100):
                destination = first + sent % GLEANS
                total = base + (destination >> 16) + (destination & 0xffff)
                while total >> 16:
                    total = (total & 0xffff) + (total >> 16)
                frame[24:26] = (~total & 0xffff).to_bytes(2)
                frame[30:34] = destination.to_bytes(4)
                wire.send(frame)
                sent += 1

        before, memory = drops_of(router), memory_kib(router)
        lost = lost_share(HOSTS[0], "10.0.20.2", scan)
        while sent < GLEANS:
            scan()
        assert lost < 0.02
        assert memory_kib(router) - memory < GROWTH_KIB
        wait_for("the waiting packets are given up", lambda: drops_of(router).get("route_neighbour", 0) > before.get("route_neighbour", 0))
        named = {reason: count - before.get(reason, 0) for reason, count in drops_of(router).items()}
        assert set(named) <= {"route_neighbour", "route_punt_limit", "route_ttl"}, named
        # Hosts that are there are reached as before.
        wait_until_it_routes()
    finally:
        inside(VRF, "ip", "route", "del", "172.16.0.0/12", "dev", "v20", check=False)


def test_lldp_of_64_kib_and_floods_of_it_are_bounded(router, wire):
    memory = memory_kib(router)

    def tlv(kind, value):
        return (kind << 9 | len(value)).to_bytes(2) + value

    head = bytes.fromhex("0180c200000e") + bytes.fromhex(MALLORY.replace(":", "")) + b"\x88\xcc"
    begin = tlv(1, b"\x04" + bytes(6)) + tlv(2, b"\x05p") + tlv(3, (120).to_bytes(2))
    # 125 TLVs of the greatest size: 64 KiB in all.
    large = (head + begin + tlv(127, b"\x00\x80\xc2\x03" + bytes(507)) * 125)[:65000] + tlv(0, b"")
    neighbours = [head + tlv(1, b"\x07" + number.to_bytes(4)) + tlv(2, b"\x05p") + tlv(3, (120).to_bytes(2)) + tlv(0, b"")
                  for number in range(500)]

    frames = itertools.cycle([large, *neighbours])

    def attack():
        for frame in itertools.islice(frames, 100):
            wire.send(frame)

    lost = lost_share(HOSTS[1], "10.0.10.2", attack)
    assert lost < 0.02
    assert memory_kib(router) - memory < GROWTH_KIB
    shown = router.show("lldp")
    assert len(shown) <= 16 * 2, "16 neighbours of each port"
