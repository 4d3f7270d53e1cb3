"""Millrace in the place of a router of the topology: the same FRR, the same configurations (router_topology.py)."""

import json
import os

import router_topology
from router_topology import address, interface, link_address, network
from switches import TARGET, Millrace, run


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

    def take_link(self, peer):
        """Takes the end of a link that another switch made: it lies in the namespace, where it has the name of the interface."""
        links = [link["ifname"] for link in json.loads(self.on("ip", "-j", "link"))]
        if interface(self.name, peer) in links:
            run("ip", "link", "del", self.near(peer), check=False)
            self.on("ip", "link", "set", interface(self.name, peer), "name", self.near(peer), "netns", str(os.getpid()))
            run("ip", "link", "set", self.near(peer), "up")

    def prepare(self):
        for peer in self.peers:
            self.take_link(peer)
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


class IsisRouter(router_topology.Isis, Router):
    """The same with IS-IS, whose packets have no header of IP."""


class FpmRouter(Router):
    """The same with routes that zebra sends by FPM."""

    routes_from = "fpm:127.0.0.1:2620"

    def zebra_options(self):
        return ["-M", "dplane_fpm_nl"]

    def start(self):
        super().start()
        self.configure("fpm address 127.0.0.1 port 2620")
