"""Links that go down and up: controllers receive PORT_STATUS, and a fast failover group changes the bucket by itself; PORT_DESC
shows the same as `ethtool`.
"""

import contextlib
import fcntl
import os
import socket
import struct
import time

import pytest

import namespaces
import openflow as of
from switches import Millrace, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="DPDK's devices and interfaces need root")
ETH_P_ALL = 3
LINK_DOWN, LIVE = 1, 4
SIOCGIFFLAGS, IFF_RUNNING = 0x8913, 0x40
# OFPPF_10GB_FD and OFPPF_COPPER: the kernel's values for a veth pair.
TEN_GIGABIT, COPPER = 1 << 6, 1 << 11
FRAME = bytes.fromhex("02000000000202000000000188b5") + bytes(46)


@pytest.fixture
def cables():
    """Three pairs of interfaces: the switch has the first of each."""
    pairs = [(f"mr-l{number}a", f"mr-l{number}b") for number in (1, 2, 3)]
    with namespaces.cables(*pairs):
        yield pairs


@pytest.fixture
def switch(tmp_path, cables):
    ports = [(number, f"net_af_packet{number},iface={near}") for number, (near, _) in enumerate(cables, 1)]
    with Millrace(tmp_path, ports=ports, system="memory_mib = 128", dpdk=True) as switch:
        wait_for("all links are up", lambda: switch.ofctl("show").count("LIVE") == 3)
        yield switch


FLAPPING = ("mr-l2a", "mr-l2b", "mr-l2far")
# A number that no other interface has in either namespace.
INDEX = "3002"
DRIVERS = {"kernel": "kernel:{near}", "net_af_packet": "net_af_packet{number},iface={near}", "net_pcap": "net_pcap_p{number},iface={near}"}


@contextlib.contextmanager
def late_cables():
    """Three pairs of interfaces. The kernel announces the link of the second pair a second late while it flaps, since both ends
    have the same number, in two namespaces: it takes them for no virtual link (net/core/link_watch.c).
    """
    near, far, namespace = FLAPPING
    still = [("mr-l1a", "mr-l1b"), ("mr-l3a", "mr-l3b")]
    with namespaces.cables(*still), namespaces.made(namespace):
        try:
            run("ip", "link", "del", near, check=False)
            run("ip", "link", "add", near, "index", INDEX, "type", "veth", "peer", "name", far, "index", INDEX, "netns", namespace)
            run("ip", "link", "set", near, "up")
            set_far("up")
            yield [still[0], (near, far), still[1]]
        finally:
            run("ip", "link", "del", near, check=False)


def set_far(state):
    """Sets the far end of the link that flaps up or down."""
    _, far, namespace = FLAPPING
    namespaces.inside(namespace, "ip", "link", "set", far, state)


def is_announced_up(interface):
    """Returns true if the kernel's last announcement is that the link is up (IFF_RUNNING)."""
    with socket.socket() as asks:
        answer = fcntl.ioctl(asks, SIOCGIFFLAGS, struct.pack("16sH22x", interface.encode(), 0))
    return struct.unpack_from("16xH", answer)[0] & IFF_RUNNING != 0


@pytest.mark.measures
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_link_that_flaps_is_left_within_100_ms(tmp_path, driver):
    with late_cables() as pairs:
        ports = [(number, DRIVERS[driver].format(number=number, near=near)) for number, (near, _) in enumerate(pairs, 1)]
        system = "" if driver == "kernel" else "memory_mib = 128"
        with contextlib.ExitStack() as stack:
            switch = stack.enter_context(Millrace(tmp_path, ports=ports, system=system, dpdk=driver != "kernel"))
            sender, third = (stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)) for _ in range(2))
            sender.bind((pairs[0][1], ETH_P_ALL))
            third.bind((pairs[2][1], ETH_P_ALL))
            third.setblocking(False)
            switch.ofctl("add-group", "group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3")
            switch.ofctl("add-flow", "in_port=1,actions=group:1")
            took = []

            def arrives():
                sender.send(FRAME)
                return hears(third)

            for _ in range(5):
                # After it has announced a loss, the kernel by itself announces no other one for a second.
                set_far("down")
                wait_for("the kernel announces the loss", lambda: not is_announced_up(FLAPPING[0]))
                set_far("up")
                wait_for("all links are up", lambda: switch.ofctl("show").count("LIVE") == 3)
                while hears(third):
                    pass
                set_far("down")
                down = time.monotonic()
                wait_for("packets come by port 3", arrives)
                took.append(time.monotonic() - down)
                set_far("up")
            print(f"moved after {[round(seconds * 1000) for seconds in took]} ms")
            # ADR 63; a busy machine makes some of the looks late.
            assert min(took) <= 0.1, took


def port_state(whole):
    """Returns (number, state) of a PORT_STATUS."""
    return struct.unpack_from("!I", whole, 16)[0], struct.unpack_from("!I", whole, 16 + 36)[0]


def hears(receiver):
    """Returns true if a frame of the test is received; other frames are skipped."""
    while True:
        try:
            if receiver.recv(2048)[12:14] == FRAME[12:14]:
                return True
        except OSError:
            # No frame; or, once, the error that the interface was down.
            return False


def test_a_fast_failover_group_leaves_a_link_that_goes_down_and_controllers_hear_of_it(switch, cables):
    switch.ofctl("add-group", "group_id=1,type=ff,bucket=watch_port:2,output:2,bucket=watch_port:3,output:3")
    switch.ofctl("add-flow", "in_port=1,actions=group:1")
    client = of.Client(switch.openflow_port)
    sockets = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in cables]
    try:
        for opened, (_, far) in zip(sockets, cables):
            opened.bind((far, ETH_P_ALL))
            opened.setblocking(False)
        sender, second, third = sockets

        def arrives(receiver):
            sender.send(FRAME)
            return hears(receiver)

        wait_for("packets come by port 2", lambda: arrives(second))
        client.barrier()
        before = time.monotonic()
        run("ip", "link", "set", cables[1][1], "down")
        wait_for("packets come by port 3", lambda: arrives(third))
        moved = time.monotonic()
        assert port_state(client.until(of.PORT_STATUS)[3]) == (2, LINK_DOWN)
        told = time.monotonic()
        print(f"moved after {moved - before:.3f} s, told after {told - before:.3f} s")
        assert "LINK_DOWN" in switch.ofctl("show")
        run("ip", "link", "set", cables[1][1], "up")
        assert port_state(client.until(of.PORT_STATUS)[3]) == (2, LIVE)
        while hears(second):
            pass
        wait_for("packets come by port 2 again", lambda: arrives(second))
    finally:
        client.close()
        for opened in sockets:
            opened.close()


def test_port_desc_says_what_the_kernel_says_of_the_interface(switch):
    with of.Client(switch.openflow_port) as client:
        client.send(of.message(18, struct.pack("!HH4x", 13, 0), xid=7))
        body = client.until(19)[3][16:]
    assert len(body) == 3 * 64
    current, advertised, supported, peer, now, most = struct.unpack_from("!6I", body, 40)
    assert current == TEN_GIGABIT | COPPER, hex(current)
    assert (advertised, supported, peer) == (0, 0, 0)
    assert (now, most) == (10_000_000, 10_000_000)
