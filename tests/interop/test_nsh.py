"""Service paths (RFC 8300) between two switches: headers equal scapy's byte for byte, scapy's packets are accepted, and a path
leads through a chain in each of two switches. Ports are tap devices in namespaces.
"""

import os

import pytest
from scapy.contrib.nsh import NSH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from namespaces import inside, made, packet_socket, receive
from switches import Millrace, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
HOST, UNDER = "mr-host", "mr-wire"
THEIRS = "02:00:00:00:01:02"
MARK = b"millrace nsh!"
MACS = dict(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")


@pytest.fixture(autouse=True)
def namespaces():
    with made(HOST, UNDER):
        yield


def attach(interface, namespace):
    run("ip", "link", "set", interface, "netns", namespace)
    inside(namespace, "ip", "link", "set", interface, "addrgenmode", "none")
    inside(namespace, "ip", "link", "set", interface, "up")


def mac(switch, number):
    """Returns the address of a port."""
    text = switch.ofctl("show")
    return text[text.index(f" {number}(p{number})") :].split("addr:", 2)[1].split()[0]


def packet(number=1):
    return Ether(**MACS) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=number, dport=2) / Raw(MARK)


def has_mark(frame):
    return MARK in frame


@pytest.mark.parametrize("more", ["", ",ttl=9,context=000102030405060708090a0b0c0d0e0f"])
def test_headers_are_those_of_scapy_and_what_scapy_builds_comes_in(tmp_path, more):
    device = f"nsh:remote={THEIRS},underlay=p2,out=42/255,in=43/254{more}"
    switch = Millrace(tmp_path, ports=[(1, "tap:mr-in"), (2, "tap:mr-un"), (3, device)])
    switch.start()
    attach("mr-in", HOST)
    attach("mr-un", UNDER)
    with packet_socket(HOST, "mr-in") as host, packet_socket(UNDER, "mr-un") as under:
        switch.ofctl("add-flow", "in_port=1,actions=output:3")
        switch.ofctl("add-flow", "in_port=3,actions=output:1")
        ours = mac(switch, 2)
        fixed = dict(mdtype=1, context_header=bytes(range(16)), ttl=9) if more else dict(mdtype=2)

        def sends():
            host.send(bytes(packet()))
            return receive(under, has_mark, 1)
        sent = wait_for("a packet with a header", sends)
        assert sent == bytes(Ether(dst=THEIRS, src=ours, type=0x894F) / NSH(spi=42, si=255, **fixed) / packet())
        back = Ether(dst=ours, src=THEIRS, type=0x894F) / NSH(spi=43, si=254, mdtype=1, context_header=b"x" * 16)
        under.send(bytes(back / packet(7)))
        assert receive(host, has_mark) == bytes(packet(7))

        def dropped(reason):
            return reason in switch.cli("show", "drops")
        for reason, header in (
            ("nsh_unknown", dict(spi=43, si=253)),
            ("nsh_ttl", dict(spi=43, si=254, ttl=1)),
            ("nsh_index", dict(spi=43, si=0)),
            ("nsh_malformed", dict(spi=43, si=254, mdtype=0, length=2)),
        ):
            under.send(bytes(Ether(dst=ours, src=THEIRS, type=0x894F) / NSH(**{"mdtype": 2, **header}) / packet()))
            wait_for(reason, lambda: dropped(reason))
    assert switch.stop() == 0


def test_two_switches_each_run_a_half_of_a_service_path(tmp_path):
    """The chain of the first switch counts packets of a host; the chain of the second one exchanges addresses, and the path
    returns with the decremented index."""
    first = Millrace(tmp_path / "first", ports=[(1, "tap:mr-in"), (2, "tap:mr-one")])
    second = Millrace(tmp_path / "second", ports=[(2, "tap:mr-two")])
    for switch in (first, second):
        switch.start()
    # A bridge of the kernel is the wire.
    attach("mr-in", HOST)
    inside(UNDER, "ip", "link", "add", "wire", "type", "bridge")
    inside(UNDER, "ip", "link", "set", "wire", "addrgenmode", "none")
    inside(UNDER, "ip", "link", "set", "wire", "up")
    for interface in ("mr-one", "mr-two"):
        attach(interface, UNDER)
        inside(UNDER, "ip", "link", "set", interface, "master", "wire")
    # Broadcast: the kernel's bridge would keep packets for the address of one of its interfaces, which is that of the port.
    for switch, path, function in ((first, "in=42/253,out=42/254", "monitor"), (second, "in=42/254,out=42/253", "macswap")):
        device = f"nsh:remote=ff:ff:ff:ff:ff:ff,underlay=p2,{path}"
        hops = [{"name": "fn", "function": function}]

        def add(config):
            bridge = config["bridge"][0]
            bridge["port"].append({"name": "path", "number": 3, "device": device})
            bridge["chain"] = [{"name": "half", "number": 100, "far": 101, "hop": hops}]
        switch.change(add)
    for flow in ("in_port=1,actions=output:100", "in_port=101,actions=output:3", "in_port=3,actions=output:1"):
        first.ofctl("add-flow", flow)
    for flow in ("in_port=3,actions=output:100", "in_port=101,actions=output:3"):
        second.ofctl("add-flow", flow)
    with packet_socket(HOST, "mr-in") as host:
        def passes():
            host.send(bytes(packet()))
            frame = receive(host, lambda frame: MARK in frame and frame != bytes(packet()), 1)
            return frame and Ether(frame)
        came = wait_for("a packet comes back", passes)
        assert (came.dst, came.src) == (MACS["src"], MACS["dst"])
        assert bytes(came)[12:] == bytes(packet())[12:]
    assert first.stop() == 0 and second.stop() == 0
