"""What dies under FRR: the switch, zebra, bgpd, the connection of FPM. Stable routes lose no packet where the daemons restart
gracefully (RFC 4724), and the rest converges. Needs root and the package frr (`scripts/setup.sh routers`).

The routes come by FPM; `MILLRACE_ROUTING_LONG=1` runs the tests with the routes of the kernel, too (`make routing`).
"""

import os
import re
import signal

import pytest

import router_topology
from millrace_router import FpmRouter, Router
from namespaces import Pings
from router_topology import Topology, address, is_installed, link_address, loopback, network, number
from switches import opened, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not is_installed(), reason="FRR is not installed: scripts/setup.sh routers"),
]


class Graceful:
    """BGP with graceful restart, and a zebra that takes its routes in the kernel over, before a class of routers."""

    def configurations(self):
        """FRR 8.4.4 begins no graceful restart of sessions whose addresses it must first discover: they are configured here."""
        peers = "".join(f" neighbor {link_address(peer, self.name)} remote-as {65000 + number(peer)}\n"
                        f" neighbor {link_address(peer, self.name)} timers connect 1\n" for peer in self.peers)
        networks = "".join(f"  network {network(host, 4)}\n" for host in self.hosts)
        text = (f"router bgp {65000 + number(self.name)}\n bgp router-id {loopback(self.name, 4)}\n no bgp ebgp-requires-policy\n"
                " bgp graceful-restart\n bgp graceful-restart preserve-fw-state\n timers bgp 1 4\n"
                f" bgp bestpath as-path multipath-relax\n{peers} address-family ipv4 unicast\n{networks} exit-address-family\n")
        return super().configurations() | {"bgpd": text}

    def zebra_options(self):
        return [*super().zebra_options(), "-K", "60"]

    def spawn(self, daemon):
        # Another run of pytest closes the folder of all runs when it starts.
        opened(self.folder.parent)
        super().spawn(daemon)

    def kill(self, *daemons):
        for daemon in daemons:
            self.processes[daemon].send_signal(signal.SIGKILL)
        for daemon in daemons:
            self.processes.pop(daemon).wait(timeout=60)


class Neighbour(Graceful, router_topology.Router):
    """A router of the kernel that helps its neighbours to restart."""


class ByKernel(Graceful, Router):
    """Millrace, with the routes of the kernel."""


class ByFpm(Graceful, FpmRouter):
    """Millrace, with the routes of FPM."""


KINDS = [ByFpm, ByKernel] if os.environ.get("MILLRACE_ROUTING_LONG") == "1" else [ByFpm]


@pytest.fixture(scope="module", params=KINDS)
def topology(request, tmp_path_factory):
    """Three routers that have converged; each test leaves them so."""
    kinds = {"r1": request.param, "r2": Neighbour, "r3": Neighbour}
    with Topology(opened(tmp_path_factory.mktemp("routers")), prefix="mr-rr", kinds=kinds) as topology:
        wait_until_whole(topology)
        yield topology


def wait_until_whole(topology):
    """Waits until all routers have all routes of IPv4, all sessions are established, and the hosts reach each other."""
    def is_converged(name):
        routes = topology.routers[name].routes(4)
        hops = {prefix: {hop.interface for hop in routes[prefix][1]} for prefix in routes}
        return all(hops.get(prefix) == {interface} for prefix, interface in topology.expected(name, 4).items())
    wait_for("the routers converge", lambda: all(is_converged(name) for name in topology.routers))
    wait_for("the sessions", lambda: all(established(topology, name) for name in topology.routers))
    wait_for("all routes in the switch", lambda: has_learned(topology))
    wait_for("the end of the replay", lambda: vrf(topology)["state"] == "synchronised")
    wait_for("an answer", lambda: topology.ping("h1", address("h2", 4)))


def vrf(topology):
    return topology.routers["r1"].millrace("show", "vrfs")[0]


def wait_for_session(topology, before):
    """Waits for a new session of FPM, if the routes come by FPM."""
    if isinstance(topology.routers["r1"], ByFpm):
        wait_for("a session of FPM", lambda: vrf(topology)["source_counters"]["fpm_sessions"] > before)


def established(topology, router="r1"):
    """Returns true if all BGP sessions of a router are established and have sent all routes (End-of-RIB)."""
    text = topology.routers[router].vtysh("show bgp summary", daemon="bgpd", check=False)
    peers = [line.split() for line in text.splitlines() if re.match(r"10\.0\.\d+\.\d ", line)]
    return bool(peers) and all(fields[9].isdigit() for fields in peers)


def tables(router):
    """Returns the routes that the switch has, by prefix, with their interfaces."""
    routes = router.millrace("show", "routes", "main")["main"]
    return {route["prefix"]: {hop["interface"] for hop in route["nexthops"]} for route in routes if not route["prefix"].startswith("fe80:")}


def has_learned(topology):
    found = tables(topology.routers["r1"])
    return all(found.get(prefix) == {interface} for prefix, interface in topology.expected("r1", 4).items())


def test_a_killed_switch_is_back_with_its_adjacencies_and_routes(topology):
    router = topology.routers["r1"]
    router.switch.stop(signal.SIGKILL)
    # The links have no carrier now, so the others turn away from r1.
    topology.wait_routes("r2", 4, f"{loopback('r1', 4)}/32", set())
    router.switch.start()
    wait_until_whole(topology)
    assert not topology.lost("h1", address("h2", 4), count=100)
    assert not topology.lost("r1", loopback("r3", 4))


def test_a_killed_bgpd_costs_its_routes_no_packet_and_one_that_starts_brings_them_again(topology):
    """FRR 8.4.4 takes the routes away for about a second when its bgpd is back, also with the forwarding of the kernel: the
    switch follows, and loses nothing before."""
    router = topology.routers["r1"]
    with Pings(topology.names["h1"], address("h2", 4)) as pings:
        router.kill("bgpd")
        wait_for("the neighbours notice", lambda: not established(topology, "r2"))
        assert tables(router)[network("h2", 4)] == {"r1-r2"}, "the route stays"
        assert not pings.lost()
    router.spawn("bgpd")
    wait_until_whole(topology)


def test_all_daemons_killed_and_started_again_cost_bgp_routes_no_packet(topology):
    """As `watchfrr` does when zebra dies: the daemons that talk to it start again, too."""
    router = topology.routers["r1"]
    before, sessions = tables(router), vrf(topology)["source_counters"]["fpm_sessions"]
    with Pings(topology.names["h1"], address("h2", 4)) as pings:
        daemons = list(router.processes)
        router.kill(*daemons)
        assert tables(router) == before, "nothing tells the switch to forget"
        for daemon in daemons:
            router.spawn(daemon)
        if isinstance(router, ByFpm):
            router.configure("fpm address 127.0.0.1 port 2620")
        wait_for_session(topology, sessions)
        # Also after the sweep of what the new session has not named.
        wait_until_whole(topology)
        assert not pings.lost()


def test_a_reset_of_fpm_costs_no_packet_and_what_is_gone_meanwhile_is_swept(topology):
    router = topology.routers["r1"]
    if not isinstance(router, ByFpm):
        pytest.skip("the kernel has the routes")
    sessions = vrf(topology)["source_counters"]["fpm_sessions"]
    with Pings(topology.names["h1"], address("h2", 4)) as pings:
        router.configure("no fpm address")
        # The route changes while nobody listens.
        topology.cut("r1", "r3")
        topology.wait_routes("r1", 4, f"{loopback('r3', 4)}/32", {"r1-r2"})
        router.configure("fpm address 127.0.0.1 port 2620")
        wait_for_session(topology, sessions)
        wait_for("the route of now", lambda: tables(router).get(f"{loopback('r3', 4)}/32") == {"r1-r2"})
        topology.mend("r1", "r3")
        wait_until_whole(topology)
        assert not pings.lost()
