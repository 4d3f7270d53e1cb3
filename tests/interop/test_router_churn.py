"""A router of FRR under everything at once: changes of routes without a pause, links that flap, daemons that are killed, resets
of FPM, lost notifications. After each phase the switch has the routes of zebra or of the kernel within seconds, and the packets of routes that
nobody changes all arrive. Needs root and the package frr (`scripts/setup.sh routers`).

One phase with the routes of FPM and 100 changes a second; `MILLRACE_ROUTING_LONG=1` runs thirty minutes with 1,000, half of them with the
routes of the kernel (`make routing`).
"""

import contextlib
import ctypes
import itertools
import os
import random
import socket
import threading
import time

import pytest

from namespaces import SO_RCVBUFFORCE, Pings
from router_graceful import (
    ByFpm,
    ByKernel,
    Neighbour,
    kernel_tables,
    kill_daemons,
    start_daemons,
    tables,
    vrf,
    wait_for_session,
    wait_until_whole,
)
from router_topology import Topology, address, is_installed, link_address, loopback
from switches import opened, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not is_installed(), reason="FRR is not installed: scripts/setup.sh routers"),
]

IS_LONG = os.environ.get("MILLRACE_ROUTING_LONG") == "1"
# The time in s after which no other phase begins.
RUN_S = 900 if IS_LONG else 0
# The short form shares its machine with other tests, and FRR takes a processor for 1,000 changes a second.
CHANGES_PER_S = 1000 if IS_LONG else 100
# The time in s after a phase in which the switch has the right routes. The short form shares its machine.
QUIET_S = 5 if IS_LONG else 60
SMALL_BUFFER = 4096
BUFFER = 128 << 20
# The protocols of routes that FPM does not carry.
KERNELS = {"connected", "local", "kernel"}
# The address of r2 that a static route of r1 leads to.
STABLE = "198.51.100.1"
SYS_PIDFD_GETFD = 438


class Static:
    """A static route to `STABLE` by r2, before a class of routers."""

    def configurations(self):
        texts = super().configurations()
        return {"zebra": texts.pop("zebra"), "staticd": f"ip route {STABLE}/32 {link_address('r2', self.name)}\n"} | texts


class StaticByFpm(Static, ByFpm):
    """Millrace, with the routes of FPM."""


class StaticByKernel(Static, ByKernel):
    """Millrace, with the routes of the kernel."""


KINDS = [StaticByFpm, StaticByKernel] if IS_LONG else [StaticByFpm]


@pytest.fixture(scope="module", params=KINDS)
def topology(request, tmp_path_factory):
    kinds = {"r1": request.param, "r2": Neighbour, "r3": Neighbour}
    with Topology(opened(tmp_path_factory.mktemp("routers")), prefix="mr-rc", kinds=kinds) as topology:
        wait_until_whole(topology)
        topology.inside("r2", "ip", "address", "add", f"{STABLE}/32", "dev", "lo")
        wait_for("the static route", lambda: topology.ping("h1", STABLE))
        yield topology


class Churn:
    """Changes of static routes of r1, `CHANGES_PER_S` a second, for a `with` statement: additions, replacements and deletions of
    overlapping prefixes of both families, by both links and by both at once. FRR 8.4.4 sends no routes of `ip` by FPM: staticd makes
    them then."""

    def __init__(self, topology, seed):
        self.router, self.rng = topology.routers["r1"], random.Random(seed)
        self.gateways = [link_address(peer, "r1") for peer in ("r2", "r3")]
        self.ends, self.changes = threading.Event(), 0

    def change(self):
        """Returns a prefix and its gateways; a blackhole has none, and a route that is deleted `None`."""
        if self.rng.random() < 0.1:
            return f"2001:db8:ff{self.rng.randrange(64):02x}::/48", self.rng.choice(((), None))
        value = (172 << 24 | 16 << 16 | self.rng.getrandbits(14) << 6)
        length = self.rng.choice((16, 20, 24, 24, 24, 32))
        prefix = f"{socket.inet_ntoa((value >> (32 - length) << (32 - length)).to_bytes(4, 'big'))}/{length}"
        return prefix, self.rng.choice((None, self.gateways, self.gateways[:1], self.gateways[1:]))

    def __enter__(self):
        self.thread = threading.Thread(target=self.write)
        self.thread.start()
        return self

    def write(self):
        due = time.monotonic()
        while not self.ends.is_set():
            self.make([self.change() for _ in range(CHANGES_PER_S // 10)])
            self.changes += CHANGES_PER_S // 10
            due = max(due + 0.1, time.monotonic() - 1)
            self.ends.wait(max(0, due - time.monotonic()))

    def make(self, changes):
        if isinstance(self.router, ByFpm):
            # What is to be deleted may not be there, and no staticd.
            self.router.vtysh("configure terminal", *itertools.chain(*itertools.starmap(vtysh_lines, changes)), daemon="staticd", check=False)
        else:
            lines = "".join(f"{ip_line(*change)}\n" for change in changes)
            self.router.on("ip", "-force", "-batch", "-", input=lines, check=False)

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join(60)


def ip_line(prefix, gateways):
    """Returns the line of `ip -batch` for a change."""
    if gateways is None:
        return f"route del {prefix}"
    if not gateways:
        return f"route replace blackhole {prefix}"
    return f"route replace {prefix} " + " ".join(f"nexthop via {gateway}" for gateway in gateways)


def vtysh_lines(prefix, gateways):
    """Returns the lines of staticd for a change: a route has a line for each next hop."""
    verb = "ipv6 route" if ":" in prefix else "ip route"
    if gateways is None:
        return [f"no {verb} {prefix} blackhole"] if ":" in prefix else [f"no {verb} {prefix} {link_address(peer, 'r1')}" for peer in ("r2", "r3")]
    return [f"{verb} {prefix} {hop}" for hop in gateways or ["blackhole"]]


def flap(topology, rng):
    topology.cut("r1", "r3")
    time.sleep(rng.uniform(0.05, 1))
    topology.mend("r1", "r3")


def restart(topology, _):
    # Without the routes of all neighbours, FRR ends a graceful restart when its own time is over.
    wait_until_whole(topology)
    start_daemons(topology, kill_daemons(topology))
    wait_until_whole(topology)


def reset_fpm(topology, _):
    router = topology.routers["r1"]
    if isinstance(router, ByFpm):
        sessions = vrf(topology)["source_counters"]["fpm_sessions"]
        router.configure("no fpm address")
        router.configure("fpm address 127.0.0.1 port 2620")
        wait_for_session(topology, sessions)


def overrun(topology, _):
    """Gives the switch a receive buffer so small that notifications of routes that come and go at once are lost, until it says so."""
    before = vrf(topology)["overruns"]
    burst = "".join(f"route {verb} blackhole 10.{64 + (number >> 8)}.{number & 255}.0/24\n" for verb in ("add", "del") for number in range(2000))

    def is_lost():
        topology.inside("r1", "ip", "-force", "-batch", "-", input=burst)
        return vrf(topology)["overruns"] > before
    with contextlib.ExitStack() as stack:
        for reader in netlink_sockets(topology):
            stack.enter_context(reader)
            reader.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SMALL_BUFFER)
            stack.callback(reader.setsockopt, socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        wait_for("notifications are lost", is_lost)


def netlink_sockets(topology):
    """Returns the sockets of routing that the switch has in the namespace of r1, taken from its process."""
    pid = topology.routers["r1"].switch.process.pid
    rows = [row.split() for row in topology.inside("r1", "cat", "/proc/net/netlink").splitlines()[1:]]
    # Columns: address, protocol (0 is NETLINK_ROUTE), port, groups, …, inode.
    inodes = {row[9] for row in rows if row[1] == "0" and int(row[3], 16)}
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(pid)
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            link = os.readlink(f"/proc/{pid}/fd/{number}")
            if link.startswith("socket:[") and link[8:-1] in inodes:
                taken = libc.syscall(SYS_PIDFD_GETFD, handle, int(number), 0)
                assert taken >= 0, os.strerror(ctypes.get_errno())
                found.append(socket.socket(fileno=taken))
    os.close(handle)
    assert found, "the switch listens to the kernel"
    return found


def wanted(router):
    """Returns the routes that the switch should have, by prefix, with their interfaces: those of zebra, or of the kernel. After a flap,
    FRR 8.4.4 may have two next hops where the kernel, which has taken one of them away, keeps the other alone."""
    if not isinstance(router, ByFpm):
        return kernel_tables(router)
    found = router.routes(4) | router.routes(6)
    hops = {prefix: {hop.interface for hop in hops} - {""} for prefix, (protocol, hops) in found.items() if protocol not in KERNELS}
    return {prefix: names for prefix, names in hops.items() if names and not prefix.startswith("fe80:")}


def differences(topology):
    """Returns the prefixes of which the switch has other next hops than it should."""
    expected, found = wanted(topology.routers["r1"]), tables(topology.routers["r1"])
    return {prefix: (hops, found.get(prefix)) for prefix, hops in expected.items() if found.get(prefix) != hops}


def wait_for_right_routes(topology):
    left = {}

    def are_equal():
        nonlocal left
        left = differences(topology)
        return not left
    try:
        wait_for("the right routes", are_equal, QUIET_S)
    except AssertionError as error:
        raise AssertionError(f"{error}; {len(left)} prefixes, expected and found: {dict(itertools.islice(left.items(), 10))}") from None


def test_everything_at_once_costs_stable_routes_no_packet_and_ends_right(topology):
    rng, begun, phases, lags = random.Random(43), time.monotonic(), 0, []
    kinds = [flap, restart, reset_fpm, overrun]
    with Pings(topology.names["h1"], STABLE) as fixed, Pings(topology.names["h1"], address("h2", 4)) as learned:
        while phases == 0 or time.monotonic() < begun + RUN_S:
            with Churn(topology, phases) as churn:
                for disturb in rng.sample(kinds, len(kinds)):
                    disturb(topology, rng)
                wait_for("a second of changes", lambda churn=churn: churn.changes > CHANGES_PER_S)
            wait_until_whole(topology)
            quiet = time.monotonic()
            wait_for_right_routes(topology)
            lags.append(time.monotonic() - quiet)
            phases += 1
            assert not fixed.lost(), f"phase {phases}: packets of the static route"
            assert not learned.lost(), f"phase {phases}: packets of the route of BGP"
        assert topology.ping("r1", loopback("r3", 4))
    print(f"{phases} phases; the right routes after at most {max(lags):.1f} s of quiet; of {fixed.last()} and {learned.last()} packets 0 lost")
