"""Open vSwitch's howto "Connecting VMs Using Tunnels (Userspace)", command by command: the machine routes the tunnel, over the local
port of a bridge. The other end is a VXLAN device of a Linux kernel, or a real Open vSwitch that gets the same commands.

```
  mr-tv1                    mr-th1                                      mr-th2                       mr-tv2
  eth0 -- vm0  br-int  vxlan0 - - - route - - - br-phy  eth1 ---- eth1  br-phy - - - vxlan0  br-int  vm0 -- eth0
  192.168.1.1                            172.31.1.1               172.31.1.2                          192.168.1.2
```
"""

import contextlib
import json
import os
import re
import shutil
import subprocess

import pytest

from namespaces import Pings, inside, made, unanswered
from ovsdb import Following, Real
from switches import run, wait_for
from test_kernel_tunnels import transfer

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(shutil.which("ovs-vsctl") is None, reason="Open vSwitch is missing: scripts/setup.sh installs it"),
]

HOSTS = ("mr-th1", "mr-th2")
MACHINES = ("mr-tv1", "mr-tv2")
# Room for the outer headers.
INNER_MTU = "1400"


def script(here, there, options):
    """Returns the commands of the howto for a host: those of ovs-vsctl, and those for the kernel."""
    return [
        "ovs-vsctl --may-exist add-br br-int -- set Bridge br-int datapath_type=netdev"
        " -- br-set-external-id br-int bridge-id br-int -- set bridge br-int fail-mode=standalone",
        "ovs-vsctl add-port br-int vm0",
        f"ovs-vsctl add-port br-int vxlan0 -- set interface vxlan0 {options.format(here=here, there=there)}",
        "ovs-vsctl --may-exist add-br br-phy -- set Bridge br-phy datapath_type=netdev"
        " -- br-set-external-id br-phy bridge-id br-phy -- set bridge br-phy fail-mode=standalone"
        " other_config:hwaddr={mac}",
        "ovs-vsctl --timeout 10 add-port br-phy eth1",
        f"ip addr add {here}/{64 if ':' in here else 24} dev br-phy" + (" nodad" if ":" in here else ""),
        "ip link set br-phy up",
        "ip addr flush dev eth1",
        "ip link set eth1 up",
    ]


def mac_of(host, link):
    [shown] = json.loads(inside(host, "ip", "-j", "link", "show", link))
    return shown["address"]


def play(switch, host, here, there, options):
    """Runs the commands of the howto."""
    for line in script(here, there, options):
        command, *arguments = line.format(mac=mac_of(host, "eth1")).split()
        if command == "ovs-vsctl":
            switch.vsctl(*arguments)
        else:
            inside(host, command, *arguments)


@contextlib.contextmanager
def network(links=1):
    """Two hosts with cables between them, and a machine at each of them."""
    with made(*HOSTS, *MACHINES):
        for at in range(1, links + 1):
            run("ip", "-n", HOSTS[0], "link", "add", f"eth{at}", "type", "veth", "peer", "name", f"eth{at}", "netns", HOSTS[1])
        for host, machine, number in zip(HOSTS, MACHINES, (1, 2)):
            run("ip", "-n", host, "link", "add", "vm0", "type", "veth", "peer", "name", "eth0", "netns", machine)
            for link in ("lo", "vm0", *(f"eth{at}" for at in range(1, links + 1))):
                run("ip", "-n", host, "link", "set", link, "up")
            for link in ("lo", "eth0"):
                run("ip", "-n", machine, "link", "set", link, "up")
            run("ip", "-n", machine, "link", "set", "eth0", "mtu", INNER_MTU)
            run("ip", "-n", machine, "addr", "add", f"192.168.1.{number}/24", "dev", "eth0")
        yield


def kernel_end(here="172.31.1.2", there="172.31.1.1", key=0, more=()):
    """Makes the second host the kernel's end of the tunnel, with the inner address, in place of the one that it had."""
    host = HOSTS[1]
    inside(host, "ip", "link", "del", "vxlan0", check=False)
    inside(host, "ip", "addr", "replace", f"{here}/{64 if ':' in here else 24}", "dev", "eth1",
           *(["nodad"] if ":" in here else []))
    inside(host, "ip", "link", "add", "vxlan0", "address", "02:00:00:00:09:02", "type", "vxlan", "id", str(key), "dstport", "4789",
           "local", here, "remote", there, *more)
    inside(host, "ip", "link", "set", "vxlan0", "mtu", INNER_MTU, "up")
    inside(host, "ip", "addr", "add", "192.168.1.2/24", "dev", "vxlan0")


def answers(source, address):
    return subprocess.run(["ip", "netns", "exec", source, "ping", "-n", "-c", "1", "-W", "1", address],
                          capture_output=True, timeout=60).returncode == 0


def transfers(tmp_path, here="172.31.1.1", there="172.31.1.2"):
    """Files arrive unchanged at the addresses of the hosts themselves: the bridge is their network, too."""
    transfer(tmp_path, here, source=HOSTS[1], target=HOSTS[0])
    transfer(tmp_path, there, source=HOSTS[0], target=HOSTS[1])


def status(switch, name="vxlan0"):
    return dict(next(row for row in switch.rows("Interface") if row["name"] == name)["status"][1])


def link_state(switch, name="vxlan0"):
    return switch.get("Interface", name, "link_state")


def drops(switch, reason):
    """Returns the number of packets dropped for a reason."""
    shown = switch.rest.get(f"{switch.url}/drops", timeout=60).json()
    return sum(row["packets"] for row in shown if row["reason"] == reason)


# The options of the interface, the addresses of both hosts, and the key and the options of the kernel's device.
KERNEL_ENDS = {
    "as in the howto": ("type=vxlan options:remote_ip={there}", "172.31.1.1", "172.31.1.2", 0, ()),
    "two workers": ("type=vxlan options:remote_ip={there}", "172.31.1.1", "172.31.1.2", 0, ()),
    "local address and key": ("type=vxlan options:remote_ip={there} options:local_ip={here} options:key=7 options:df_default=true",
                              "172.31.1.1", "172.31.1.2", 7, ()),
    "IPv6": ("type=vxlan options:remote_ip={there} options:csum=true", "fd31::1", "fd31::2", 0, ("udp6zerocsumrx",)),
}


@pytest.mark.parametrize("kind", KERNEL_ENDS)
def test_the_howto_reaches_a_kernels_vxlan_device(tmp_path, kind):
    options, here, there, key, more = KERNEL_ENDS[kind]
    following = Following(tmp_path, namespace=HOSTS[0])
    if kind == "two workers":
        following.config.write_text(following.config.read_text().replace("[system]\n", "[system]\nworkers = 2\n"))
    with network(), following as switch:
        kernel_end(there, here, key, more)
        play(switch, HOSTS[0], here, there, options)
        wait_for("the tunnel", lambda: answers(MACHINES[0], "192.168.1.2"))
        assert not unanswered(MACHINES[0], "192.168.1.2")
        assert not unanswered(HOSTS[1], "192.168.1.1")
        transfer(tmp_path, "192.168.1.2", source=MACHINES[0], target=HOSTS[1])
        transfer(tmp_path, "192.168.1.1", source=HOSTS[1], target=MACHINES[0])
        transfers(tmp_path, here, there)
        wait_for("the columns", lambda: link_state(switch) == "up")
        assert status(switch) == {"tunnel_egress_iface": "br-phy", "tunnel_egress_iface_carrier": "up"}
        assert switch.get("Interface", "vxlan0", "error") == "[]"


REAL_ENDS = {
    "vxlan": "type=vxlan options:remote_ip={there} options:local_ip={here}",
    "gre": "type=gre options:remote_ip={there} options:key=9",
}


@pytest.mark.parametrize("kind", REAL_ENDS)
def test_the_howto_reaches_an_open_vswitch_that_gets_the_same_commands(tmp_path, kind):
    with network(), Following(tmp_path / "ours", namespace=HOSTS[0]) as ours, Real(tmp_path / "real", namespace=HOSTS[1]) as real:
        # The datapath of Open vSwitch 3.1 in user space computes no checksums for the kernel.
        for machine in (*MACHINES, *HOSTS):
            for link in json.loads(inside(machine, "ip", "-j", "link", "show", "type", "veth")):
                inside(machine, "ethtool", "-K", link["ifname"], "tx", "off")
        play(ours, HOSTS[0], "172.31.1.1", "172.31.1.2", REAL_ENDS[kind])
        play(real, HOSTS[1], "172.31.1.2", "172.31.1.1", REAL_ENDS[kind])
        wait_for("the tunnel", lambda: answers(MACHINES[0], "192.168.1.2"))
        for machine, address in zip(MACHINES, ("192.168.1.2", "192.168.1.1")):
            assert not unanswered(machine, address)
        transfer(tmp_path, "192.168.1.2", source=MACHINES[0], target=MACHINES[1])
        transfer(tmp_path, "192.168.1.1", source=MACHINES[1], target=MACHINES[0])
        transfers(tmp_path)
        for column in ("status", "link_state", "error"):
            wait_for(f"equal columns {column}",
                     lambda column=column: ours.get("Interface", "vxlan0", column) == real.get("Interface", "vxlan0", column))
        for switch, here, there in ((ours, "172.31.1.1", "172.31.1.2"), (real, "172.31.1.2", "172.31.1.1")):
            routes = switch.appctl("ovs/route/show").splitlines()
            assert [routes[0], *(line for line in routes if "172.31" in line)] == [
                "Route Table:", f"Cached: {here}/32 dev br-phy SRC {here} local", f"Cached: 172.31.1.0/24 dev br-phy SRC {here}"]
            title, line, *neighbours = switch.appctl("tnl/neigh/show").splitlines()
            host = HOSTS[there == "172.31.1.2"]
            assert f"{there:<46}{mac_of(host, 'br-phy'):<20}br-phy" in neighbours
            assert (title, line) == ("IP                                            MAC                 Bridge", "=" * 74)
            [heading, listener] = switch.appctl("tnl/ports/show").splitlines()
            names = {"vxlan": "vxlan_sys_4789", "gre": "gre_sys"}
            assert heading == "Listening ports:" and re.fullmatch(rf"{names[kind]} \(\d+\) ref_cnt=1", listener), listener


@contextlib.contextmanager
def tunnel(tmp_path, options="type=vxlan options:remote_ip={there}", links=1):
    """The howto on Millrace, with a kernel's device at the other end, once packets pass."""
    with network(links), Following(tmp_path, namespace=HOSTS[0]) as switch:
        kernel_end()
        play(switch, HOSTS[0], "172.31.1.1", "172.31.1.2", options)
        passes("the tunnel")
        yield switch


def passes(what):
    wait_for(what, lambda: answers(MACHINES[0], "192.168.1.2"))


def test_a_tunnel_follows_what_the_kernel_says(tmp_path):
    with tunnel(tmp_path, links=2) as switch:
        def is_down(said):
            wait_for(f"the link is down: {said}",
                     lambda: link_state(switch) == "down" and said in status(switch).get("tunnel_problem", ""))
            problems = switch.rest.get(f"{switch.url}/status", timeout=60).json()["problems"]
            assert any(said in str(problem) for problem in problems), problems
            assert not answers(MACHINES[0], "192.168.1.2")

        host = HOSTS[0]
        # Another key at the other end: what arrives is no packet of the tunnel.
        kernel_end(key=8)
        before = drops(switch, "tunnel_unknown")
        assert not answers(HOSTS[1], "192.168.1.1")
        wait_for("the drop has a name", lambda: drops(switch, "tunnel_unknown") > before)
        kernel_end()
        passes("the same key")

        # The address goes, and comes back.
        inside(host, "ip", "addr", "flush", "dev", "br-phy")
        is_down("no route to 172.31.1.2")
        inside(host, "ip", "addr", "add", "172.31.1.1/24", "dev", "br-phy")
        passes("the address is back")

        # The MAC address changes.
        switch.vsctl("set", "Bridge", "br-phy", "other_config:hwaddr=02:00:00:00:31:99")
        wait_for("the kernel has it", lambda: mac_of(host, "br-phy") == "02:00:00:00:31:99")
        passes("the new MAC address")

        # An interface that is no port carries the route.
        inside(host, "ip", "addr", "add", "172.31.2.1/24", "dev", "eth2")
        inside(HOSTS[1], "ip", "addr", "add", "172.31.2.2/24", "dev", "eth2")
        inside(host, "ip", "route", "add", "172.31.1.2", "via", "172.31.2.2")
        is_down("leaves by eth2, which is no local port of a bridge")

        # An internal port of a second bridge does, and the local address is its own. The other end expects it.
        inside(host, "ip", "addr", "flush", "dev", "eth2")
        switch.vsctl("add-br", "br-phy2", "--", "add-port", "br-phy2", "eth2",
                     "--", "add-port", "br-phy2", "int2", "--", "set", "Interface", "int2", "type=internal")
        inside(host, "ip", "addr", "add", "172.31.2.1/24", "dev", "int2")
        inside(host, "ip", "link", "set", "int2", "up")
        inside(host, "ip", "route", "replace", "172.31.1.2", "via", "172.31.2.2")
        kernel_end(there="172.31.2.1")
        passes("the second bridge")
        wait_for("the columns", lambda: status(switch).get("tunnel_egress_iface") == "int2")

        # It goes while packets pass, and the first one, made anew, is the way again.
        with Pings(MACHINES[0], "192.168.1.2") as pings:
            wait_for("packets", lambda: pings.last() > 20)
            switch.vsctl("del-br", "br-phy2", "--", "del-br", "br-phy")
            is_down("no route to 172.31.1.2")
        kernel_end()
        switch.vsctl("add-br", "br-phy", "--", "add-port", "br-phy", "eth1")
        inside(host, "ip", "addr", "add", "172.31.1.1/24", "dev", "br-phy")
        inside(host, "ip", "link", "set", "br-phy", "up")
        passes("the bridge that was made anew")

        # A local address that is none of the machine.
        switch.vsctl("set", "Interface", "vxlan0", "options:local_ip=172.31.1.9")
        is_down("172.31.1.9 is no address of this machine")
        switch.vsctl("remove", "Interface", "vxlan0", "options", "local_ip")
        passes("the address that the kernel chooses")

        # Nothing stays.
        switch.vsctl("del-port", "vxlan0")
        wait_for("no VRF", lambda: not switch.rest.get(f"{switch.url}/vrfs", timeout=60).json())
        transfers(tmp_path)
        for bridge in ("br-int", "br-phy"):
            switch.vsctl("del-br", bridge)
        links = {link["ifname"] for link in json.loads(inside(host, "ip", "-j", "link"))}
        assert links == {"lo", "eth1", "eth2", "vm0"}
        assert not switch.rest.get(f"{switch.url}/status", timeout=60).json()["problems"]


def test_flow_entries_of_the_bridge_below_see_the_packets_of_the_tunnel(tmp_path):
    """As in Open vSwitch: what leaves enters the tables at the local port, and what an entry sends to the local port arrives."""
    with tunnel(tmp_path) as switch:
        switch.vsctl("set-fail-mode", "br-phy", "secure")
        switch.ofctl("del-flows", "br-phy")
        eth1 = switch.get("Interface", "eth1", "ofport")
        switch.ofctl("add-flow", "br-phy", f"arp,in_port=LOCAL,actions=output:{eth1}")
        switch.ofctl("add-flow", "br-phy", f"arp,in_port={eth1},actions=LOCAL")
        assert not answers(MACHINES[0], "192.168.1.2")
        out = "udp,in_port=LOCAL,nw_src=172.31.1.1,nw_dst=172.31.1.2,tp_dst=4789"
        switch.ofctl("add-flow", "br-phy", f"{out},actions=output:{eth1}")
        switch.ofctl("add-flow", "br-phy", f"udp,in_port={eth1},nw_dst=172.31.1.1,tp_dst=4789,actions=LOCAL")
        passes("entries for the tunnel")
        assert not unanswered(MACHINES[0], "192.168.1.2")
        counted = switch.ofctl("dump-flows", "br-phy", out)
        assert int(counted.split("n_packets=")[1].split(",")[0]) >= 20, counted
