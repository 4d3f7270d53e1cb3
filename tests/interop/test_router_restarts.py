"""What dies under FRR: the switch, zebra, bgpd, the connection of FPM. Stable routes lose no packet where the daemons restart
gracefully (RFC 4724), and the rest converges. Needs root and the package frr (`scripts/setup.sh routers`).

The routes come by FPM; `MILLRACE_ROUTING_LONG=1` runs the tests with the routes of the kernel, too (`make routing`).
"""

import os
import signal

import pytest

from namespaces import Pings
from router_graceful import (
    ByFpm,
    ByKernel,
    Neighbour,
    established,
    kill_daemons,
    start_daemons,
    tables,
    vrf,
    wait_for_session,
    wait_until_whole,
)
from router_topology import Topology, address, is_installed, loopback, network
from switches import opened, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not is_installed(), reason="FRR is not installed: scripts/setup.sh routers"),
]


KINDS = [ByFpm, ByKernel] if os.environ.get("MILLRACE_ROUTING_LONG") == "1" else [ByFpm]


@pytest.fixture(scope="module", params=KINDS)
def topology(request, tmp_path_factory):
    """Three routers that have converged; each test leaves them so."""
    kinds = {"r1": request.param, "r2": Neighbour, "r3": Neighbour}
    with Topology(opened(tmp_path_factory.mktemp("routers")), prefix="mr-rr", kinds=kinds) as topology:
        wait_until_whole(topology)
        yield topology


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
    before = tables(router)
    with Pings(topology.names["h1"], address("h2", 4)) as pings:
        daemons = kill_daemons(topology)
        assert tables(router) == before, "nothing tells the switch to forget"
        start_daemons(topology, daemons)
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
