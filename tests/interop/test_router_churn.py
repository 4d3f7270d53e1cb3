"""A router of FRR under everything at once: a thousand changes of routes a second, links that flap, daemons that are killed, resets
of FPM, lost notifications. After each phase the switch has the routes of the kernel within seconds, and the packets of routes that
nobody changes all arrive. Needs root and the package frr (`scripts/setup.sh routers`).

Two phases with the routes of FPM; `MILLRACE_ROUTING_LONG=1` runs thirty minutes, half of them with the routes of the kernel
(`make routing`).
"""

import contextlib
import ctypes
import os
import random
import socket
import subprocess
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
KINDS = [ByFpm, ByKernel] if IS_LONG else [ByFpm]
RUN_S = 900 if IS_LONG else 1
CHANGES_PER_S = 1000
# The time in s after the last change in which the switch has the routes of the kernel; on a busy machine, the bound of other tests.
QUIET_S = 5 if IS_LONG else 60
SMALL_BUFFER = 4096
BUFFER = 128 << 20
# The address of r2 that a static route of r1 leads to.
STABLE = "198.51.100.1"
SYS_PIDFD_GETFD = 438


@pytest.fixture(scope="module", params=KINDS)
def topology(request, tmp_path_factory):
    kinds = {"r1": request.param, "r2": Neighbour, "r3": Neighbour}
    with Topology(opened(tmp_path_factory.mktemp("routers")), prefix="mr-rc", kinds=kinds) as topology:
        wait_until_whole(topology)
        topology.inside("r2", "ip", "address", "add", f"{STABLE}/32", "dev", "lo")
        topology.inside("r1", "ip", "route", "add", f"{STABLE}/32", "via", link_address("r2", "r1"))
        wait_for("the static route", lambda: topology.ping("h1", STABLE))
        yield topology


class Churn:
    """Changes of routes of r1 by `ip -batch`, `CHANGES_PER_S` a second, for a `with` statement: additions, replacements and deletions of
    overlapping prefixes of both families, by both links and by both at once."""

    def __init__(self, topology, seed):
        self.rng = random.Random(seed)
        self.ends = threading.Event()
        self.changes = 0
        self.command = ["ip", "netns", "exec", topology.names["r1"], "ip", "-force", "-batch", "-"]
        self.hops = [f"via {link_address(peer, 'r1')}" for peer in ("r2", "r3")]
        self.hops.append(" ".join(f"nexthop {hop}" for hop in self.hops))

    def line(self):
        length = self.rng.choice((16, 20, 24, 24, 24, 32))
        value = (172 << 24 | 16 << 16 | self.rng.getrandbits(14) << 6) >> (32 - length) << (32 - length)
        prefix = f"{socket.inet_ntoa(value.to_bytes(4, 'big'))}/{length}"
        if self.rng.random() < 0.1:
            return f"route replace blackhole 2001:db8:ff{self.rng.randrange(64):02x}::/48"
        if self.rng.random() < 0.4:
            return f"route del {prefix}"
        return f"route replace {prefix} {self.rng.choice(self.hops)}"

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        self.thread = threading.Thread(target=self.write)
        self.thread.start()
        return self

    def write(self):
        due = time.monotonic()
        while not self.ends.is_set():
            self.process.stdin.write("".join(f"{self.line()}\n" for _ in range(CHANGES_PER_S // 10)))
            self.process.stdin.flush()
            self.changes += CHANGES_PER_S // 10
            due = max(due + 0.1, time.monotonic() - 1)
            self.ends.wait(max(0, due - time.monotonic()))

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join(60)
        self.process.stdin.close()
        # The last changes are made when `ip` has read all of them.
        self.process.wait(timeout=60)


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
    """Gives the switch a receive buffer so small that notifications are lost, until it says so."""
    before = vrf(topology)["overruns"]
    with contextlib.ExitStack() as stack:
        for reader in netlink_sockets(topology):
            stack.enter_context(reader)
            reader.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SMALL_BUFFER)
            stack.callback(reader.setsockopt, socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        wait_for("notifications are lost", lambda: vrf(topology)["overruns"] > before)


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


def differences(topology):
    """Returns the prefixes of which the switch has other next hops than the kernel."""
    of_kernel, of_switch = kernel_tables(topology.routers["r1"]), tables(topology.routers["r1"])
    return {prefix: (hops, of_switch.get(prefix)) for prefix, hops in of_kernel.items() if of_switch.get(prefix) != hops}


def test_everything_at_once_costs_stable_routes_no_packet_and_ends_as_the_kernel_has_it(topology):
    rng, begun, phases, lags = random.Random(43), time.monotonic(), 0, []
    kinds = [flap, restart, reset_fpm, overrun]
    with Pings(topology.names["h1"], STABLE) as fixed, Pings(topology.names["h1"], address("h2", 4)) as learned:
        while phases < 2 or time.monotonic() < begun + RUN_S:
            with Churn(topology, phases) as churn:
                for disturb in rng.sample(kinds, len(kinds)):
                    disturb(topology, rng)
                wait_for("a second of changes", lambda churn=churn: churn.changes > CHANGES_PER_S)
            wait_until_whole(topology)
            quiet = time.monotonic()
            wait_for("the routes of the kernel", lambda: not differences(topology), QUIET_S)
            lags.append(time.monotonic() - quiet)
            phases += 1
            assert not fixed.lost(), f"phase {phases}: packets of the static route"
            assert not learned.lost(), f"phase {phases}: packets of the route of BGP"
        assert topology.ping("r1", loopback("r3", 4))
    print(f"{phases} phases; routes of the kernel after at most {max(lags):.1f} s of quiet; of {fixed.last()} and {learned.last()} packets 0 lost")
