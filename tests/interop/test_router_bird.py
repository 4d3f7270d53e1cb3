"""BIRD 2 as the daemon of a router of Millrace, between two routers of FRR: OSPF of both versions, BGP over addresses of the link with
IPv4 over next hops of IPv6 (RFC 8950), and routes that BIRD sets in the kernel. Needs root, and the packages bird2 and frr
(`scripts/setup.sh routers`).
"""

import ipaddress
import json
import os
import shutil
import signal
import subprocess

import pytest

from millrace_router import Router
from namespaces import Pings
from router_topology import DEAD_S, HELLO_S, Hop, Topology, address, interface, is_installed, link_address, loopback, network, number
from switches import end, opened, run, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not is_installed() or not shutil.which("bird"), reason="BIRD or FRR is not installed: scripts/setup.sh routers"),
]


class Bird(Router):
    """Millrace, with BIRD in the place of FRR."""

    def text(self):
        links = [interface(self.name, peer) for peer in self.peers]
        of_hosts = " ".join(f'"{interface(self.name, host)}",' for host in self.hosts).rstrip(",")
        timers = f"type ptp; hello {HELLO_S}; dead {DEAD_S};"
        # OSPFv3 runs on no interface without an address of the link.
        areas = {version: "".join(f'interface "{link}" {{ {timers} }}; ' for link in links) + stub for version, stub in (
            (2, 'interface "lo" { stub; };'), (3, f"stubnet {loopback(self.name, 6)}/128;"))}
        # BIRD finds no neighbours by their router advertisements, but takes sessions from any of them, and FRR finds BIRD by its own.
        sessions = "".join(f"""
protocol bgp from_{peer} {{
  local as {65000 + number(self.name)}; neighbor range fe80::/10 external; interface "{interface(self.name, peer)}"; hold time {DEAD_S};
  error wait time 1, 2; connect delay time 1; connect retry time 1; dynamic name "{peer}_"; graceful restart on;
  ipv4 {{ import all; export filter hosts; extended next hop; next hop self; }};
  ipv6 {{ import all; export filter hosts; next hop self; }};
}}""" for peer in self.peers)
        advertised = "".join(f'interface "{link}" {{ min ra interval 3; max ra interval 4; }}; ' for link in links)
        return f"""
log "{self.folder}/bird.log" all;
router id {loopback(self.name, 4)};
graceful restart wait 30;
filter hosts {{ if source = RTS_BGP || source = RTS_DEVICE then accept; reject; }}
protocol device {{ scan time 1; }}
protocol direct {{ ipv4; ipv6; interface {of_hosts}; }}
protocol radv {{ {advertised}}}
protocol kernel {{ scan time 5; ipv4 {{ import none; export where source != RTS_DEVICE; }}; merge paths; persist; graceful restart; }}
protocol kernel {{ scan time 5; ipv6 {{ import none; export where source != RTS_DEVICE; }}; merge paths; persist; graceful restart; }}
protocol ospf v2 {{ ipv4 {{ import all; export none; }}; area 0 {{ {areas[2]} }}; }}
protocol ospf v3 {{ ipv6 {{ import all; export none; }}; area 0 {{ {areas[3]} }}; }}
{sessions}
"""

    def start(self):
        (self.folder / "bird.conf").write_text(self.text())
        self.spawn_bird()

    def spawn_bird(self, *options):
        self.processes["bird"] = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, "bird", "-f", *options, "-c", self.folder / "bird.conf", "-s", self.folder / "control",
             "-P", self.folder / "bird.pid"], stdin=subprocess.DEVNULL)
        wait_for("bird answers", lambda: "BIRD 2" in self.birdc("show", "status"))

    def birdc(self, *words):
        return run("birdc", "-s", self.folder / "control", *words, check=False)

    def state(self):
        neighbours = [self.birdc("show", "ospf", "neighbors", protocol) for protocol in ("ospf1", "ospf2")]
        shown = [self.on("ip", "-6", "address", check=False), self.birdc("show", "protocols"), *neighbours]
        return "\n".join([f"{self.name}:", *shown, (self.folder / "bird.log").read_text()[-3000:]])

    def routes(self, version):
        """Returns the routes that BIRD has set in the kernel: protocol and next hops by prefix."""
        found = {}
        for route in json.loads(self.on("ip", "-j", f"-{version}", "route", "show", "proto", "bird")):
            hops = (Hop(hop["dev"], (hop.get("via") or {"host": hop.get("gateway", "")})["host"]) for hop in route.get("nexthops", [route]))
            found[str(ipaddress.ip_network(route["dst"]))] = ("bird", frozenset(hops))
        return found

    def stop(self):
        if bird := self.processes.pop("bird", None):
            end(bird)
        super().stop()


@pytest.fixture(scope="module")
def topology(tmp_path_factory):
    with Topology(opened(tmp_path_factory.mktemp("routers")), prefix="mr-rb", kinds={"r1": Bird}) as topology:
        topology.wait_converged()
        yield topology


def shown(topology):
    return {route["prefix"]: route for route in topology.routers["r1"].millrace("show", "routes", "main")["main"]}


def test_millrace_forwards_by_the_routes_of_bird(topology):
    for version in (4, 6):
        wait_for("the first answer", lambda: topology.ping("h1", address("h2", version)))
        assert not topology.lost("h1", address("h2", version), count=200)
        assert not topology.lost("r1", loopback("r3", version))
    path = topology.trace("h1", address("h2", 4))
    assert path[0] == address("h1", 4, of_router=True) and path[-1] == address("h2", 4) and len(path) == 3
    routes = shown(topology)
    for version in (4, 6):
        for prefix, link in topology.expected("r1", version).items():
            assert {hop["interface"] for hop in routes[prefix]["nexthops"]} == {link}, prefix
            assert routes[prefix]["protocol"] == "bird", prefix
    # IPv4 over a next hop of IPv6, as the kernel has it.
    [hop] = routes[network("h2", 4)]["nexthops"]
    assert hop["gateway"].startswith("fe80:")


def test_a_cut_link_is_left_and_taken_again(topology):
    topology.cut("r1", "r2")
    for version in (4, 6):
        topology.wait_routes("r1", version, network("h2", version), {"r1-r3"})
        wait_for("the path by r3", lambda: topology.ping("h1", address("h2", version)))
        assert not topology.lost("h1", address("h2", version), count=50)
    topology.mend("r1", "r2")
    topology.wait_converged()
    wait_for("the direct path", lambda: len(topology.trace("h1", address("h2", 4))) == 3)


def test_a_killed_bird_costs_its_routes_no_packet_and_one_that_recovers_takes_them_over(topology):
    router = topology.routers["r1"]
    # The neighbours' routes back do not depend on r1's daemon.
    topology.inside("r2", "ip", "route", "add", network("h1", 4), "via", link_address("r1", "r2"), "metric", "5")
    with Pings(topology.names["h1"], address("h2", 4)) as pings:
        router.processes["bird"].send_signal(signal.SIGKILL)
        router.processes.pop("bird").wait(timeout=60)
        assert not pings.lost(pings.last() + 100)
        router.spawn_bird("-R")
        topology.wait_converged()
        assert not pings.lost()
