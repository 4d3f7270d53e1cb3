"""Millrace in the place of a router of the topology: the same FRR, the same configurations, the same routes and paths as with the
forwarding of the kernel (test_router_topology.py). Needs root and the package frr (`scripts/setup.sh routers`).
"""

import os
import random
import signal

import pytest

import router_topology
from millrace_router import FpmRouter, IsisRouter, Router
from namespaces import Pings, inside
from router_topology import HOSTS, ROUTERS, Topology, address, is_installed, link_address, loopback, network
from switches import opened, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not is_installed(), reason="FRR is not installed: scripts/setup.sh routers"),
]


# Pings between random pairs, each pair a hundred times; `make routing` sends 10,000.
RANDOM_PINGS = 10_000 if os.environ.get("MILLRACE_ROUTING_LONG") == "1" else 1_000
PINGS_OF_PAIR = 100


def lost_random_pings(topology):
    """Pings between random pairs of hosts and routers, IPv4 and IPv6; returns the pairs that lost some."""
    rng, found = random.Random(11), []
    for _ in range(RANDOM_PINGS // PINGS_OF_PAIR):
        source, target = rng.sample(ROUTERS + HOSTS, 2)
        version = rng.choice((4, 6))
        destination = address(target, version) if target in HOSTS else loopback(target, version)
        lost = topology.lost(source, destination, count=PINGS_OF_PAIR)
        if lost:
            found.append((source, destination, lost))
    return found


@pytest.mark.parametrize("kind", [Router, FpmRouter, IsisRouter])
def test_millrace_forwards_as_the_kernel_does_for_daemons_of_routing(tmp_path_factory, kind):
    others = router_topology.IsisRouter if kind is IsisRouter else router_topology.Router
    kinds = {"r1": kind, "r2": others, "r3": others}
    with Topology(opened(tmp_path_factory.mktemp("routers")), prefix="mr-rf", kinds=kinds) as topology:
        topology.wait_converged()
        router = topology.routers["r1"]
        for version in (4, 6):
            wait_for("the first answer", lambda: topology.ping("h1", address("h2", version)))
            assert not topology.lost("h1", address("h2", version), count=200)
            assert not topology.lost("r1", loopback("r3", version))
        assert not lost_random_pings(topology)
        path = topology.trace("h1", address("h2", 4))
        assert path[0] == address("h1", 4, of_router=True) and path[-1] == address("h2", 4) and len(path) == 3

        shown = {route["prefix"]: route for route in router.millrace("show", "routes", "main")["main"]}
        for version in (4, 6):
            for prefix, (_, hops) in router.routes(version).items():
                # A link-local prefix is on each link, and one of them is shown.
                if not prefix.startswith("fe80:") and shown.get(prefix, {}).get("nexthops"):
                    names = {hop["interface"] for hop in shown[prefix]["nexthops"] if hop["interface"]}
                    assert names == {hop.interface for hop in hops}, prefix
            assert shown[network("h2", version)]["protocol"] == "bgp"
            inner = f"{loopback('r3', version)}/{32 if version == 4 else 128}"
            assert shown[inner]["protocol"] == ("isis" if kind is IsisRouter else "ospf")

        topology.cut("r1", "r2")
        for version in (4, 6):
            topology.wait_routes("r1", version, network("h2", version), {"r1-r3"})
            wait_for("the path by r3", lambda: topology.ping("h1", address("h2", version)))
            assert not topology.lost("h1", address("h2", version), count=50)
        assert len(topology.trace("h1", address("h2", 4))) == 4
        topology.mend("r1", "r2")
        topology.wait_converged()
        # The daemons have their routes before the switch has read them.
        wait_for("the direct path", lambda: len(topology.trace("h1", address("h2", 4))) == 3)
        assert not topology.lost("h1", address("h2", 4), count=20)


def test_traffic_of_stable_routes_survives_the_daemons_of_routing(tmp_path_factory):
    with Topology(opened(tmp_path_factory.mktemp("routers")), prefix="mr-rf", kinds={"r1": Router}) as topology:
        topology.wait_converged()
        router = topology.routers["r1"]
        # A route that no daemon has set stays while they are killed.
        router.on("ip", "route", "add", "198.51.100.0/24", "via", link_address("r2", "r1"))
        inside(topology.names["r2"], "ip", "address", "add", "198.51.100.1/32", "dev", "lo")
        # The answers must not need what r1's bgpd tells.
        inside(topology.names["r2"], "ip", "route", "add", network("h1", 4), "via", link_address("r1", "r2"), "metric", "5")
        wait_for("the static route", lambda: topology.ping("h1", "198.51.100.1"))
        with Pings(topology.names["h1"], "198.51.100.1") as pings:
            for daemon in ("bgpd", "zebra"):
                router.processes[daemon].send_signal(signal.SIGKILL)
                router.processes[daemon].wait(timeout=60)
            assert not pings.lost(400)
