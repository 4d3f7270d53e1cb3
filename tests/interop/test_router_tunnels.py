"""Tunnels that a VRF carries: the kernel is the other end, behind the router, and hosts of two further bridges are its customers.

```
  customers mr-q1, mr-q2      br1, br2: VXLAN 42 and 43 from 10.0.10.1       br0: VRF blue, v10 and v20
       eth0 ------------------ c1   vx - - - - - - - - - - - - - - - - - - - - - routes - - - VLAN 20 --- tun in mr-r2
```
"""

import contextlib
import json
import os
import re
import subprocess

import pytest

import namespaces
from namespaces import inside, unanswered
from ovsdb import Following
from switches import TARGET, run, wait_for
from test_kernel_tunnels import is_known, transfer
from test_router import CONFIG, HOSTS, NEAR, VRF, Router, network, reaches, wait_until_it_routes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

CUSTOMERS = ("mr-q1", "mr-q2")
BRIDGE = """
[[bridge]]
name = "br{at}"
fail_mode = "standalone"
[[bridge.port]]
name = "c1"
number = 1
device = "kernel:mr-qn{at}"
[[bridge.port]]
name = "vx"
number = 2
device = "{kind}:remote={remote},local={local},underlay=vrf:blue,key={key}{options}"
"""
LOCAL = {4: "10.0.10.1", 6: "2001:db8:10::1"}
REMOTE = {4: "10.0.20.2", 6: "2001:db8:20::2"}
# The encapsulation, the IP version outside, options of the port, and those of `ip link add` at the other end.
KINDS = {
    "vxlan": ("vxlan", 4, "", "type vxlan id {key} dstport 4789 local {here} remote {there}"),
    "vxlan over IPv6": ("vxlan", 6, ",csum=true", "type vxlan id {key} dstport 4789 local {here} remote {there} udp6zerocsumrx"),
    "gretap": ("gre", 4, "", "type gretap key {key} local {here} remote {there}"),
}
TUN = "02:00:00:00:09:02"


@contextlib.contextmanager
def customers():
    """A host at each of the further bridges, whose packets have room for the outer headers."""
    with namespaces.made(*CUSTOMERS):
        try:
            for at, host in enumerate(CUSTOMERS, 1):
                run("ip", "link", "del", f"mr-qn{at}", check=False)
                run("ip", "link", "add", f"mr-qn{at}", "type", "veth", "peer", "name", "eth0", "netns", host)
                run("ip", "link", "set", f"mr-qn{at}", "up")
                inside(host, "ip", "link", "set", "lo", "up")
                inside(host, "ip", "link", "set", "eth0", "mtu", "1400", "up")
                inside(host, "ip", "addr", "add", f"10.9.{at}.1/24", "dev", "eth0")
            yield
        finally:
            for at, _ in enumerate(CUSTOMERS, 1):
                run("ip", "link", "del", f"mr-qn{at}", check=False)


def bridges(kind="vxlan", version=4, options="", remote=None, local=None, count=2):
    """Returns the configuration of the further bridges, each with a tunnel of its own key."""
    values = {"kind": kind, "options": options, "remote": remote or REMOTE[version], "local": local or LOCAL[version]}
    return "".join(BRIDGE.format(at=at, key=41 + at, **values) for at in range(1, count + 1))


def far_end(host, link, version=4, at=1, here=None):
    """Makes the other end of the tunnel of a bridge in a host."""
    options = link.format(key=41 + at, here=here or REMOTE[version], there=LOCAL[version]).split()
    inside(host, "ip", "link", "add", f"tun{at}", "address", TUN, *options)
    inside(host, "ip", "link", "set", f"tun{at}", "mtu", "1400", "up")
    inside(host, "ip", "addr", "add", f"10.9.{at}.2/24", "dev", f"tun{at}")


def received(host, at=1):
    """Returns the packets that the other end of a tunnel received."""
    [link] = json.loads(inside(host, "ip", "-j", "-s", "link", "show", f"tun{at}"))
    return link["stats64"]["rx"]["packets"]


def link_of(switch, bridge="br1"):
    ports = switch.rest.get(f"{switch.url}/bridges/{bridge}/ports", timeout=60).json()
    return next(port["link"] for port in ports if port["name"] == "vx")


def crosses(at=1, count=20, bound=60):
    """Returns true if all pings of a customer through its tunnel are answered within `bound` seconds."""
    return not unanswered(CUSTOMERS[at - 1], f"10.9.{at}.2", count, bound=bound)


# Workers know no encapsulation: one kind shows that two of them work.
@pytest.mark.parametrize("kind, system", [*((kind, "") for kind in KINDS), ("vxlan", "workers = 2")])
def test_customers_of_two_bridges_reach_the_kernels_ends_of_their_tunnels(tmp_path, kind, system):
    encapsulation, version, options, link = KINDS[kind]
    if not is_known(link.format(key=1, here=LOCAL[version], there=REMOTE[version])):
        pytest.skip(f"this kernel has no {link.split()[1]}")
    with network(), customers():
        switch = Router(tmp_path / "m", extra=bridges(encapsulation, version, options))
        switch.config.write_text(switch.config.read_text().replace("[system]\n", f"[system]\n{system}\n"))
        with switch:
            wait_until_it_routes()
            for at in (1, 2):
                far_end(HOSTS[1], link, version, at)
            for at in (1, 2):
                wait_for(f"tunnel {at}", lambda at=at: reaches(CUSTOMERS[at - 1], f"10.9.{at}.2"))
                assert crosses(at)
            # The first that is asked is the far end: the TTL is untouched, as a packet of the router itself has it.
            assert link_of(switch) == "up"
            transfer(tmp_path, "10.9.1.2", source=CUSTOMERS[0], target=HOSTS[1])
            assert not unanswered(HOSTS[1], "10.9.2.1", count=5)
            # The networks stay apart: each key is one bridge's.
            assert not reaches(CUSTOMERS[0], "10.9.2.2")
            # The kernel still gets what is not a tunnel's.
            assert reaches(HOSTS[1], "10.0.10.1", "-W", "20")


def test_a_tunnel_follows_its_route_and_is_down_without_one(tmp_path):
    """The remote end is an address of both hosts; the route of the VRF says which of them gets the packets."""
    link = KINDS["vxlan"][3]
    with network(), customers(), Router(tmp_path / "m", extra=bridges(remote="192.0.2.2", count=1)) as switch:
        wait_until_it_routes()
        for host in HOSTS:
            inside(host, "ip", "addr", "add", "192.0.2.2/32", "dev", "lo")
            far_end(host, link, here="192.0.2.2")
        assert link_of(switch) == "down", "without a route"
        inside(VRF, "ip", "route", "add", "192.0.2.2", "via", "10.0.20.2")
        wait_for("the link of the tunnel", lambda: link_of(switch) == "up")
        wait_for("the first host", lambda: reaches(CUSTOMERS[0], "10.9.1.2"))
        assert received(HOSTS[1]) and not received(HOSTS[0])

        # The next hop changes: no packet is lost, and all later ones arrive at the other host.
        inside(VRF, "ip", "route", "replace", "192.0.2.2", "via", "10.0.10.2")
        wait_for("the second host", lambda: crosses(count=1, bound=5) and received(HOSTS[0]))
        before = received(HOSTS[1])
        assert crosses()
        assert received(HOSTS[1]) == before and received(HOSTS[0]) >= 20
        # A group of both: each flow takes one of them.
        inside(VRF, "ip", "route", "replace", "192.0.2.2", "nexthop", "via", "10.0.10.2", "nexthop", "via", "10.0.20.2")
        assert crosses()
        # A cut cable takes one of them away, and the tunnel stays.
        run("ip", "link", "set", NEAR[1], "down")
        wait_for("the other next hop", lambda: crosses(count=5, bound=5))
        assert link_of(switch) == "up"
        run("ip", "link", "set", NEAR[1], "up")

        inside(VRF, "ip", "route", "del", "192.0.2.2")
        wait_for("the link of the tunnel is down", lambda: link_of(switch) == "down")
        assert not reaches(CUSTOMERS[0], "10.9.1.2")
        wait_for("v20 has a link", lambda: "LOWER_UP" in inside(VRF, "ip", "link", "show", "v20"))
        inside(VRF, "ip", "route", "add", "192.0.2.2", "via", "10.0.20.2")
        wait_for("the tunnel is back", lambda: reaches(CUSTOMERS[0], "10.9.1.2"))


def test_drops_traces_and_problems_of_a_tunnel_over_a_vrf_have_names(tmp_path):
    with network(), customers(), Router(tmp_path / "m", extra=bridges()) as switch:
        wait_until_it_routes()
        far_end(HOSTS[1], KINDS["vxlan"][3])
        wait_for("the tunnel", lambda: reaches(CUSTOMERS[0], "10.9.1.2"))
        text = switch.millrace("trace", "br1", f"in_port=1,icmp,dl_src=02:00:00:00:00:07,dl_dst={TUN},nw_src=10.9.1.1,nw_dst=10.9.1.2")
        for words in ("a packet of this machine, VRF", "interface v20"):
            assert words in text, text
        # Another key: the bridges know it not, and the drop says so.
        far_end(HOSTS[1], KINDS["vxlan"][3], at=9)
        def unknown():
            drops = switch.show("drops", "--all")
            return sum(drop["packets"] for drop in drops if drop["reason"] == "tunnel_unknown")
        inside(HOSTS[1], "ping", "-c", "1", "-W", "1", "10.9.9.1", check=False)
        wait_for("the drop", unknown)

        # A local address that the VRF lacks.
        text = switch.config.read_text()
        switch.config.write_text(text.replace("local=10.0.10.1", "local=10.0.99.1"))
        # The command tells it, too, by its status.
        shown = subprocess.run([TARGET / "millrace", "apply", switch.config], env=switch.environment, capture_output=True, text=True, timeout=60)
        assert shown.returncode != 0 and "10.0.99.1 is no address of VRF blue" in shown.stdout + shown.stderr, shown

        def problem():
            found = json.dumps(switch.rest.get(f"{switch.url}/status", timeout=60).json()["problems"])
            return re.search(r"10\.0\.99\.1 is no address of VRF blue", found)
        wait_for("the problem", problem)
        wait_for("the link", lambda: link_of(switch) == "down")
        switch.config.write_text(text)
        switch.millrace("apply", str(switch.config))
        wait_for("the tunnel", lambda: not problem() and reaches(CUSTOMERS[0], "10.9.1.2"))

        # A VRF that is not there is told before anything changes.
        switch.config.write_text(text.replace("underlay=vrf:blue", "underlay=vrf:red"))
        with pytest.raises(AssertionError, match="there is no VRF `red`"):
            switch.millrace("apply", str(switch.config))
        # Without the bridges the router is as before.
        switch.config.write_text(text[: text.index('[[bridge]]\nname = "br1"')])
        switch.millrace("apply", str(switch.config))
        assert not reaches(CUSTOMERS[0], "10.9.1.2")
        wait_until_it_routes()


def test_a_tunnel_of_the_ovsdb_is_carried_by_a_vrf_of_the_configuration(tmp_path):
    # The sections of the router, without those that the database's switch has.
    router = CONFIG.format(folder="", near=NEAR, vrf=VRF, bridge="", v10="", v20="", extra="")
    with network(), customers(), Following(tmp_path / "o", extra=router[router.index("[[bridge]]"):]) as switch:
        wait_until_it_routes()
        far_end(HOSTS[1], KINDS["vxlan"][3])
        tunnel = ("type=vxlan", "options:remote_ip=10.0.20.2", "options:local_ip=10.0.10.1", "options:underlay=vrf:blue", "options:key=42")
        switch.vsctl("add-br", "br1", "--", "set", "Bridge", "br1", "fail_mode=standalone", "--", "add-port", "br1", "mr-qn1",
                     "--", "add-port", "br1", "vx", "--", "set", "Interface", "vx", *tunnel)
        wait_for("the tunnel", lambda: reaches(CUSTOMERS[0], "10.9.1.2"))
        assert crosses()
        wait_for("the link in the database", lambda: switch.vsctl("get", "Interface", "vx", "link_state").strip() == "up")
        inside(VRF, "ip", "link", "set", "v20", "down")
        wait_for("no link in the database", lambda: switch.vsctl("get", "Interface", "vx", "link_state").strip() == "down")
