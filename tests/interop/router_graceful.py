"""The topology of routers whose daemons restart gracefully (RFC 4724), with Millrace as r1, and what the switch and the kernel have
of its routes."""

import json
import re
import signal

import router_topology
from millrace_router import FpmRouter, Router
from router_topology import CONVERGED_MAX_S, DEAD_S, HELLO_S, address, link_address, loopback, network, number
from switches import wait_for

# The time in s for which the routes of daemons that were killed are kept: the start of all of them takes longer than a minute on a busy
# machine.
RESTART_S = 300


class Graceful:
    """BGP with graceful restart, and a zebra that takes its routes in the kernel over, before a class of routers."""

    def configurations(self):
        """FRR 8.4.4 begins no graceful restart of sessions whose addresses it must first discover: they are configured here."""
        peers = "".join(f" neighbor {link_address(peer, self.name)} remote-as {65000 + number(peer)}\n"
                        f" neighbor {link_address(peer, self.name)} timers connect 1\n" for peer in self.peers)
        networks = "".join(f"  network {network(host, 4)}\n" for host in self.hosts)
        text = (f"router bgp {65000 + number(self.name)}\n bgp router-id {loopback(self.name, 4)}\n no bgp ebgp-requires-policy\n"
                f" bgp graceful-restart\n bgp graceful-restart restart-time {RESTART_S}\n bgp graceful-restart preserve-fw-state\n"
                f" timers bgp {HELLO_S} {DEAD_S}\n bgp bestpath as-path multipath-relax\n{peers}"
                f" address-family ipv4 unicast\n{networks} exit-address-family\n")
        return super().configurations() | {"bgpd": text}

    def zebra_options(self):
        return [*super().zebra_options(), "-K", str(RESTART_S)]

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


def wait_until_whole(topology):
    """Waits until all routers have all routes of IPv4, all sessions are established, and the hosts reach each other."""
    def is_converged(name):
        routes = topology.routers[name].routes(4)
        hops = {prefix: {hop.interface for hop in routes[prefix][1]} for prefix in routes}
        return all(hops.get(prefix) == {interface} for prefix, interface in topology.expected(name, 4).items())
    wait_for("the routers converge", lambda: all(is_converged(name) for name in topology.routers), CONVERGED_MAX_S)
    wait_for("the sessions", lambda: all(established(topology, name) for name in topology.routers), CONVERGED_MAX_S)
    wait_for("all routes in the switch", lambda: has_learned(topology))
    wait_for("the end of the replay", lambda: vrf(topology)["state"] == "synchronised")
    wait_for("an answer", lambda: topology.ping("h1", address("h2", 4)))


def vrf(topology):
    return topology.routers["r1"].millrace("show", "vrfs")[0]


def wait_for_session(topology, before):
    """Waits for a new session of FPM, if the routes come by FPM."""
    if isinstance(topology.routers["r1"], ByFpm):
        wait_for("a session of FPM", lambda: vrf(topology)["source_counters"]["fpm_sessions"] > before)


def kill_daemons(topology):
    """Kills all daemons of r1, and returns their names."""
    router = topology.routers["r1"]
    daemons = list(router.processes)
    router.kill(*daemons)
    return daemons


def start_daemons(topology, daemons):
    """Starts daemons of r1, as `watchfrr` does when zebra has died, and waits for the session of FPM."""
    router, sessions = topology.routers["r1"], vrf(topology)["source_counters"]["fpm_sessions"]
    for daemon in daemons:
        router.spawn(daemon)
    if isinstance(router, ByFpm):
        router.configure("fpm address 127.0.0.1 port 2620")
    wait_for_session(topology, sessions)


def established(topology, router="r1"):
    """Returns true if all BGP sessions of a router are established and have sent all routes (End-of-RIB)."""
    text = topology.routers[router].vtysh("show bgp summary", daemon="bgpd", check=False)
    peers = [line.split() for line in text.splitlines() if re.match(r"10\.0\.\d+\.\d ", line)]
    return bool(peers) and all(fields[9].isdigit() for fields in peers)


def tables(router):
    """Returns the routes that the switch has, by prefix, with their interfaces."""
    routes = router.millrace("show", "routes", "main")["main"]
    return {route["prefix"]: {hop["interface"] for hop in route["nexthops"]} for route in routes if not route["prefix"].startswith("fe80:")}


def kernel_tables(router):
    """Returns the unicast routes of the kernel's table main to others, by prefix, with their interfaces."""
    objects = {one["id"]: one for one in json.loads(router.on("ip", "-j", "nexthop") or "[]")}

    def interfaces(route):
        if "nhid" not in route:
            return {hop["dev"] for hop in route.get("nexthops", [route])}
        one = objects[route["nhid"]]
        return {objects[member["id"]]["dev"] for member in one.get("group", [{"id": one["id"]}])}
    found = {}
    for version in (4, 6):
        everything = "0.0.0.0/0" if version == 4 else "::/0"
        for route in json.loads(router.on("ip", "-j", f"-{version}", "-d", "route", "show", "table", "main")):
            prefix = everything if route["dst"] == "default" else route["dst"]
            is_forwarded = route.get("type", "unicast") == "unicast" and route.get("dev") != "lo"
            if is_forwarded and not prefix.startswith("fe80:"):
                prefix = prefix if "/" in prefix else f"{prefix}/{32 if version == 4 else 128}"
                # The kernel lists the route with the smallest metric first, and uses it.
                found.setdefault(prefix, interfaces(route))
    return found


def has_learned(topology):
    found = tables(topology.routers["r1"])
    return all(found.get(prefix) == {interface} for prefix, interface in topology.expected("r1", 4).items())
