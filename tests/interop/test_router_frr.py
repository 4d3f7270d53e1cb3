"""Millrace in the place of a router of the topology: the same FRR, the same configurations, the same routes and paths as with the
forwarding of the kernel (test_router_topology.py). Needs root and the package frr (`scripts/setup.sh routers`).
"""

import json
import os
import signal
import subprocess

import pytest

import router_topology
from namespaces import inside
from router_topology import Topology, address, interface, is_installed, link_address, loopback, network
from switches import TARGET, Millrace, opened, run, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not is_installed(), reason="FRR is not installed: scripts/setup.sh routers"),
]


class Router(router_topology.Router):
    """A router that Millrace forwards for: each interface is that of a bridge with one port."""

    forwards = False
    routes_from = "netlink"

    def __init__(self, name, namespace, folder):
        super().__init__(name, namespace, folder)
        # FRR may write to the folder of the router, and nobody else to that of a switch.
        self.switch = Millrace(self.folder.parent / f"{name}-switch")

    def near(self, peer):
        """Returns the interface of this namespace that is the port to a peer."""
        return f"mr-{self.name}{peer}"

    def wire(self, peer, peer_namespace):
        run("ip", "link", "del", self.near(peer), check=False)
        run("ip", "link", "add", self.near(peer), "type", "veth", "peer", "name", interface(peer, self.name), "netns", peer_namespace)
        run("ip", "link", "set", self.near(peer), "up")

    def addresses(self, peer):
        """Returns the addresses of the interface to a peer or a host."""
        if peer in self.peers:
            return [f"{link_address(self.name, peer)}/30"]
        return [f"{address(peer, version, of_router=True)}/{network(peer, version).partition('/')[2]}" for version in (4, 6)]

    def prepare(self):
        folder = self.switch.folder
        text = (f'[system]\nstate_dir = "{folder}/state"\n[api]\nsocket = "{folder}/api.sock"\n'
                f'[[vrf]]\nname = "main"\nnetns = "{self.namespace}"\nroutes = "{self.routes_from}"\n')
        for peer in self.peers + self.hosts:
            text += (f'[[bridge]]\nname = "{self.name}{peer}"\nfail_mode = "standalone"\n'
                     f'[[bridge.port]]\nname = "p1"\nnumber = 1\ndevice = "kernel:{self.near(peer)}"\n'
                     f'[[interface]]\nname = "{interface(self.name, peer)}"\nvrf = "main"\nbridge = "{self.name}{peer}"\n'
                     f"address = {json.dumps(self.addresses(peer))}\n")
        self.switch.config.write_text(text)
        self.switch.start()
        self.prepare_loopback()

    def set_link(self, peer, up):
        run("ip", "link", "set", self.near(peer), "up" if up else "down")

    def millrace(self, *words):
        """Returns the JSON of `millrace`."""
        return json.loads(run(TARGET / "millrace", "--json", *words, env=self.switch.environment))

    def stop(self):
        super().stop()
        self.switch.stop()
        for peer in self.peers + self.hosts:
            run("ip", "link", "del", self.near(peer), check=False)


class FpmRouter(Router):
    """The same with routes that zebra sends by FPM."""

    routes_from = "fpm:127.0.0.1:2620"

    def zebra_options(self):
        return ["-M", "dplane_fpm_nl"]

    def start(self):
        super().start()
        self.configure("fpm address 127.0.0.1 port 2620")


@pytest.mark.parametrize("kind", [Router, FpmRouter])
def test_millrace_forwards_as_the_kernel_does_for_ospf_and_bgp(tmp_path_factory, kind):
    with Topology(opened(tmp_path_factory.mktemp("routers")), prefix="mr-rf", kinds={"r1": kind}) as topology:
        topology.wait_converged()
        router = topology.routers["r1"]
        for version in (4, 6):
            wait_for("the first answer", lambda: topology.ping("h1", address("h2", version)))
            assert topology.ping("h1", address("h2", version), count=200) == 200
            assert topology.ping("r1", loopback("r3", version)) == 1
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

        topology.cut("r1", "r2")
        for version in (4, 6):
            topology.wait_routes("r1", version, network("h2", version), {"r1-r3"})
            wait_for("the path by r3", lambda: topology.ping("h1", address("h2", version)))
            assert topology.ping("h1", address("h2", version), count=50) == 50
        assert len(topology.trace("h1", address("h2", 4))) == 4
        topology.mend("r1", "r2")
        topology.wait_converged()
        assert topology.ping("h1", address("h2", 4), count=20) >= 19


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
        ping = subprocess.Popen(["ip", "netns", "exec", topology.names["h1"], "ping", "-q", "-i", "0.01", "-c", "400", "198.51.100.1"],
                                stdout=subprocess.PIPE, text=True)
        for daemon in ("bgpd", "zebra"):
            router.processes[daemon].send_signal(signal.SIGKILL)
            router.processes[daemon].wait(timeout=60)
        text, _ = ping.communicate(timeout=120)
        assert " 0% packet loss" in text, text
