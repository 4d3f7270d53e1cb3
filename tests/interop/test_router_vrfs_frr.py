"""Two VRFs of one switch, each with FRR of its own: OSPF, BGP and BFD with a router behind a port. All addresses are the same in both.

```
  host --- VLAN 11 (21) --- VRF, FRR: AS 65001 --- VLAN 10 (20), 10.0.0.0/30 --- peer: a kernel that forwards, FRR: AS 65002
  10.1.0.2, 2001:db8:1::2                                                        10.2.0.1, 2001:db8:2::1 (lo, by BGP), 10.255.0.2 (OSPF)
```
"""

import contextlib
import os
import signal

import pytest

import namespaces
import router_topology
from namespaces import Pings, inside
from router_topology import is_installed
from switches import Millrace, opened, run, wait_for
from test_router import reaches
from test_router_vrfs import asked, named_servers

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not is_installed(), reason="FRR is not installed: scripts/setup.sh routers"),
]

VRFS = ("mr-wb", "mr-wr")
BLUE, RED = VRFS
VLANS = {BLUE: 10, RED: 20}
FAR = {4: "10.2.0.1", 6: "2001:db8:2::1"}
NETWORKS = {4: "10.2.0.0/24", 6: "2001:db8:2::/64"}
LOOPBACKS = {"near": "10.255.0.1", "peer": "10.255.0.2"}
# A network that the peer of one VRF has.
ONLY_RED = "198.51.100.0/24"
# BFD notices a silent neighbour after 15 s, in which a busy machine runs each bfdd; BGP and OSPF alone after 3 minutes.
BFD = "bfd\n profile quick\n  receive-interval 1000\n  transmit-interval 1000\n  detect-multiplier 15\n"
HOLD_S = 180


def peer_of(vrf):
    return f"{vrf}p"


def host_of(vrf):
    return f"{vrf}h"


class Frr(router_topology.Router):
    """FRR of a VRF (`near`) or of its peer."""

    def __init__(self, role, namespace, folder, link, networks):
        self.name, self.namespace, self.link, self.networks = namespace, namespace, link, networks
        self.role, self.folder, self.processes = role, folder / namespace, {}
        self.folder.mkdir()
        # FRR's daemons run as a user of their own.
        self.folder.chmod(0o777)

    def configurations(self):
        asn, other, neighbours = (65001, 65002, ("10.0.0.2", "2001:db8::2")) if self.role == "near" else (
            65002, 65001, ("10.0.0.1", "2001:db8::1"))
        ident = LOOPBACKS[self.role]
        sessions = "".join(f" neighbor {one} remote-as {other}\n neighbor {one} bfd profile quick\n neighbor {one} timers connect 1\n"
                           for one in neighbours)
        families = "".join(
            f" address-family ipv{version} unicast\n  neighbor {neighbour} activate\n"
            + "".join(f"  network {network}\n" for network in self.networks if (":" in network) == (version == 6))
            + " exit-address-family\n" for version, neighbour in zip((4, 6), neighbours))
        return {
            "zebra": "",
            "bfdd": BFD,
            "ospfd": f"interface {self.link}\n ip ospf area 0\n ip ospf network point-to-point\n ip ospf hello-interval 1\n"
                     f" ip ospf dead-interval {HOLD_S}\n ip ospf bfd\n ip ospf bfd profile quick\n"
                     f"interface lo\n ip ospf area 0\nrouter ospf\n ospf router-id {ident}\n timers throttle spf 10 50 500\n",
            "bgpd": f"router bgp {asn}\n bgp router-id {ident}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n"
                    f" timers bgp 60 {HOLD_S}\n{sessions}{families}",
        }


class Switch(Millrace):
    """A bridge with two VRFs, and two ports for each."""

    def __init__(self, folder):
        super().__init__(folder)
        text = (f'[system]\nstate_dir = "{self.folder}/state"\n[api]\nsocket = "{self.folder}/api.sock"\n'
                '[[bridge]]\nname = "br0"\nfail_mode = "standalone"\n')
        for at, vrf in enumerate(VRFS):
            for to, device in enumerate((f"{vrf}l", f"{vrf}n")):
                text += (f'[[bridge.port]]\nname = "p{2 * at + to + 1}"\nnumber = {2 * at + to + 1}\ndevice = "kernel:{device}"\n'
                         f"vlan = {VLANS[vrf] + to}\n")
        for vrf in VRFS:
            text += f'[[vrf]]\nname = "{vrf}"\nnetns = "{vrf}"\n'
            for to, addresses in enumerate(('"10.0.0.1/30", "2001:db8::1/126"', '"10.1.0.1/24", "2001:db8:1::1/64"')):
                text += (f'[[interface]]\nname = "v{VLANS[vrf] + to}"\nvrf = "{vrf}"\nbridge = "br0"\nvlan = {VLANS[vrf] + to}\n'
                         f"address = [{addresses}]\n")
        self.config.write_text(text)

    def protocols(self, vrf):
        """Returns the protocol of each route of a VRF, by prefix."""
        shown = self.rest.get(f"{self.url}/vrfs/{vrf}/routes", timeout=60).json()["routes"]
        return {route["prefix"]: route["protocol"] for route in shown}


def add_addresses(namespace, device, *addresses):
    for address in addresses:
        inside(namespace, "ip", "address", "add", address, "dev", device, *(["nodad"] if ":" in address else []))


@contextlib.contextmanager
def wired():
    """The namespaces, and the cables of the switch to hosts and peers."""
    everyone = [name for vrf in VRFS for name in (vrf, peer_of(vrf), host_of(vrf))]
    cables = [f"{vrf}{end}" for vrf in VRFS for end in "ln"]
    with namespaces.made(*everyone):
        try:
            for vrf in VRFS:
                peer, host = peer_of(vrf), host_of(vrf)
                for cable, far in ((f"{vrf}l", peer), (f"{vrf}n", host)):
                    run("ip", "link", "del", cable, check=False)
                    run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", far)
                    run("ip", "link", "set", cable, "up")
                    for device in ("lo", "eth0"):
                        inside(far, "ip", "link", "set", device, "up")
                inside(vrf, "ip", "link", "set", "lo", "up")
                add_addresses(vrf, "lo", f"{LOOPBACKS['near']}/32")
                for knob in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
                    inside(peer, "sysctl", "-qw", f"{knob}=1")
                add_addresses(peer, "eth0", "10.0.0.2/30", "2001:db8::2/126")
                add_addresses(peer, "lo", f"{LOOPBACKS['peer']}/32", "10.2.0.1/24", "2001:db8:2::1/64")
                add_addresses(host, "eth0", "10.1.0.2/24", "2001:db8:1::2/64")
                inside(host, "ip", "route", "add", "default", "via", "10.1.0.1")
                inside(host, "ip", "route", "add", "default", "via", "2001:db8:1::1")
            add_addresses(peer_of(RED), "lo", "198.51.100.1/24")
            yield
        finally:
            for cable in cables:
                run("ip", "link", "del", cable, check=False)


@contextlib.contextmanager
def daemons(folder):
    """FRR of both VRFs and of their peers, by VRF and role."""
    with contextlib.ExitStack() as stack:
        found = {}
        for vrf in VRFS:
            more = [ONLY_RED] if vrf == RED else []
            for one in (Frr("near", vrf, folder, f"v{VLANS[vrf]}", ["10.1.0.0/24", "2001:db8:1::/64"]),
                        Frr("peer", peer_of(vrf), folder, "eth0", [*NETWORKS.values(), *more])):
                stack.callback(one.stop)
                one.start()
                found[vrf, one.role] = one
        yield found


def learned(switch, vrf):
    """Returns true if a VRF has the routes that its peer tells by BGP and by OSPF."""
    protocols = switch.protocols(vrf)
    return (all(protocols.get(network) == "bgp" for network in NETWORKS.values())
            and protocols.get(f"{LOOPBACKS['peer']}/32") == "ospf")


def forgot(switch, vrf):
    return not {*NETWORKS.values(), f"{LOOPBACKS['peer']}/32"} & switch.protocols(vrf).keys()


def sessions_up(router):
    """Returns the number of sessions of BFD that are up."""
    return router.vtysh("show bfd peers", daemon="bfdd").count("Status: up")


def test_ospf_bgp_and_bfd_of_two_vrfs_with_the_same_addresses_stay_apart(tmp_path_factory):
    folder = opened(tmp_path_factory.mktemp("vrfs"))
    with wired(), Switch(folder / "m") as switch, daemons(folder) as frr, named_servers([peer_of(vrf) for vrf in VRFS]):
        for vrf in VRFS:
            wait_for(f"the routes of {vrf}", lambda vrf=vrf: learned(switch, vrf))
            # One for each version of IP: OSPF and BGP share that of IPv4.
            wait_for(f"BFD in {vrf}", lambda vrf=vrf: sessions_up(frr[vrf, "near"]) == 2)
        # Zebra and the switch have the same routes, and each VRF reaches the peer that is its own.
        for vrf in VRFS:
            shown = switch.protocols(vrf)
            for version in (4, 6):
                for prefix, (protocol, _) in frr[vrf, "near"].routes(version).items():
                    if protocol in ("bgp", "ospf"):
                        assert shown[prefix] == protocol, prefix
                wait_for(f"an answer in {vrf}", lambda vrf=vrf, version=version: asked(host_of(vrf), version, FAR[version]))
                assert {asked(host_of(vrf), version, FAR[version]) for _ in range(10)} == {peer_of(vrf)}
            assert (ONLY_RED in shown) == (vrf == RED)
            assert reaches(host_of(vrf), "198.51.100.1", "-W", "20") == (vrf == RED)

        # The bfdd of one peer falls silent: its VRF alone forgets the routes, long before BGP and OSPF would.
        silent = frr[BLUE, "peer"].processes["bfdd"]
        with Pings(host_of(RED), FAR[4], 0.02) as pings:
            silent.send_signal(signal.SIGSTOP)
            try:
                wait_for("the end of the routes", lambda: forgot(switch, BLUE))
                wait_for("no answer in blue", lambda: not reaches(host_of(BLUE), FAR[4]))
                assert learned(switch, RED) and sessions_up(frr[RED, "near"]) == 2
            finally:
                silent.send_signal(signal.SIGCONT)
            assert not pings.lost(max(51, pings.last() + 1))
        wait_for("the routes of blue again", lambda: learned(switch, BLUE))
        wait_for("an answer in blue", lambda: reaches(host_of(BLUE), FAR[4]))
