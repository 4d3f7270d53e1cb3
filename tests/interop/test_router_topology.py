"""The topology of three routers with FRR converges with the forwarding of the kernel: what a switch in the place of a router must
equal. Needs root and the package frr (`scripts/setup.sh routers`).
"""

import os

import pytest

from router_topology import HOSTS, ROUTERS, Topology, address, interface, is_installed, loopback, network
from switches import opened, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not is_installed(), reason="FRR is not installed: scripts/setup.sh routers"),
]


@pytest.fixture(scope="module")
def topology(tmp_path_factory):
    # FRR's daemons, which run as a user of their own, reach their sockets in it.
    with Topology(opened(tmp_path_factory.mktemp("routers"))) as topology:
        topology.wait_converged()
        yield topology


def test_ospf_and_bgp_bring_the_routes_of_all_routers(topology):
    for router in ROUTERS:
        for version in (4, 6):
            routes = topology.routers[router].routes(version)
            length = 32 if version == 4 else 128
            for other in ROUTERS:
                if other != router:
                    protocol, hops = routes[f"{loopback(other, version)}/{length}"]
                    assert protocol == ("ospf" if version == 4 else "ospf6")
                    assert {hop.interface for hop in hops} == {interface(router, other)}
    # An IPv4 route whose gateway is an address of IPv6.
    protocol, hops = topology.routers["r1"].routes(4)[network("h2", 4)]
    assert protocol == "bgp"
    assert {(hop.interface, hop.gateway) for hop in hops} == {("r1-r2", "fe80::")}


def test_hosts_and_routers_reach_each_other_by_the_shortest_path(topology):
    one, other = HOSTS
    for version in (4, 6):
        assert not topology.lost(one, address(other, version), count=20)
        for router in ROUTERS:
            assert not topology.lost(router, loopback("r3", version))
    path = topology.trace("h1", address("h2", 4))
    assert path[0] == address("h1", 4, of_router=True)
    assert path[-1] == address("h2", 4) and len(path) == 3


def test_a_cut_link_moves_the_routes_and_a_mended_one_brings_them_back(topology):
    before = topology.tables()
    topology.cut("r1", "r2")
    for version in (4, 6):
        length = 32 if version == 4 else 128
        topology.wait_routes("r1", version, network("h2", version), {"r1-r3"})
        topology.wait_routes("r1", version, f"{loopback('r2', version)}/{length}", {"r1-r3"})
        topology.wait_routes("r2", version, network("h1", version), {"r2-r3"})
        assert not topology.lost("h1", address("h2", version), count=20)
    assert len(topology.trace("h1", address("h2", 4))) == 4
    topology.mend("r1", "r2")
    topology.wait_converged()
    wait_for("the tables are as before", lambda: topology.tables() == before)
