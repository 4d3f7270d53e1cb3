"""The switch as a virtual router (VRRP): it receives at the address of a macvlan while the macvlan is the master's.

keepalived runs in the namespace of the VRF and beside a router of the kernel, which takes over. Needs root and the package keepalived
(`scripts/setup.sh routers`).
"""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

import namespaces
from namespaces import inside
from switches import end, run, wait_for
from test_router import HOSTS, VRF, Router, network, reaches

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

OTHER = "mr-vrrp"
# The ports of the other router, in VLAN 10 and in VLAN 20.
PORTS = """
[[bridge.port]]
name = "p3"
number = 3
device = "kernel:mr-rn3"
vlan = 10
[[bridge.port]]
name = "p4"
number = 4
device = "kernel:mr-rn4"
vlan = 20
"""
VIRTUAL = {4: "10.0.10.254", 6: "fe80::a"}
# RFC 9568, section 7.3, for the virtual router 10.
MACS = {4: "00:00:5e:00:01:0a", 6: "00:00:5e:00:02:0a"}
FAR = {4: "10.0.20.2", 6: "2001:db8:20::2"}
INSTANCE = """
vrrp_instance v10-{version} {{
  state BACKUP
  interface {interface}
  version 3
  use_vmac vrrp{version}
  vmac_xmit_base
  virtual_router_id 10
  priority {priority}
  advert_int 0.2
  virtual_ipaddress {{
    {address}
  }}
}}
"""


class Keepalived:
    """keepalived in a namespace, for one virtual router of each version of IP."""

    def __init__(self, folder, namespace, interface, priority):
        folder.mkdir()
        self.folder, self.namespace = folder, namespace
        instances = (INSTANCE.format(version=version, interface=interface, priority=priority, address=VIRTUAL[version]) for version in (4, 6))
        (folder / "conf").write_text("global_defs {\n  vrrp_version 3\n}\n" + "".join(instances))
        self.start()

    def start(self):
        command = ["keepalived", "--dont-fork", "--log-console", "--vrrp", "-f", self.folder / "conf", "-p", self.folder / "pid",
                   "-r", self.folder / "vrrp-pid"]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(["ip", "netns", "exec", self.namespace, *command], stdout=log, stderr=log)

    def stop(self):
        """Ends it as an operator does: it tells the other router."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def macs(switch):
    """Returns the addresses of macvlans at which the interface of VLAN 10 receives."""
    return {entry["name"]: entry["other_macs"] for entry in switch.show("interfaces")}["v10"]


def first_router(version):
    """Returns the address of the first router on the way from the first host to the second, or None."""
    asked = subprocess.run(["ip", "netns", "exec", HOSTS[0], "ping", "-n", "-c", "1", "-W", "1", "-t", "1", FAR[version]],
                           capture_output=True, text=True, timeout=60)
    found = re.search(r"From (\S+?):? .*(?:exceeded|Time to live|Hop limit)", asked.stdout)
    return found and found[1]


def neighbour(version):
    """Returns the MAC address that the first host has of the virtual router."""
    entries = json.loads(inside(HOSTS[0], "ip", "-j", f"-{version}", "neigh", "show", VIRTUAL[version], "dev", "eth0"))
    return entries[0].get("lladdr")


def use_virtual_router():
    """The first host's default routes are by the virtual router."""
    inside(HOSTS[0], "ip", "route", "replace", "default", "via", VIRTUAL[4])
    inside(HOSTS[0], "ip", "-6", "route", "replace", "default", "via", VIRTUAL[6], "dev", "eth0")


@pytest.fixture
def other():
    """A router of the kernel with an interface in each VLAN of the switch."""
    with namespaces.made(OTHER):
        try:
            for number in (3, 4):
                near, vlan = f"mr-rn{number}", 10 * (number - 2)
                run("ip", "link", "del", near, check=False)
                run("ip", "link", "add", near, "type", "veth", "peer", "name", f"eth{number - 3}", "netns", OTHER)
                run("ip", "link", "set", near, "up")
                inside(OTHER, "ip", "addr", "add", f"10.0.{vlan}.3/24", "dev", f"eth{number - 3}")
                inside(OTHER, "ip", "addr", "add", f"2001:db8:{vlan}::3/64", "dev", f"eth{number - 3}", "nodad")
                inside(OTHER, "ip", "link", "set", f"eth{number - 3}", "up")
            inside(OTHER, "ip", "link", "set", "lo", "up")
            for knob in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
                inside(OTHER, "sysctl", "-q", "-w", f"{knob}=1")
            yield
        finally:
            for number in (3, 4):
                run("ip", "link", "del", f"mr-rn{number}", check=False)


@pytest.mark.skipif(not shutil.which("keepalived"), reason="keepalived is not installed: scripts/setup.sh routers")
def test_keepalived_moves_a_virtual_router_between_the_switch_and_a_router_of_the_kernel(tmp_path, other):
    with network(), Router(tmp_path / "m", extra=PORTS) as switch:
        wait_for("the interface", lambda: "v10" in inside(VRF, "ip", "link"))
        use_virtual_router()
        # Otherwise each macvlan answers for the addresses of all others.
        for namespace in (VRF, OTHER):
            inside(namespace, "sysctl", "-q", "-w", "net.ipv4.conf.all.arp_ignore=1")
        backup = Keepalived(tmp_path / "backup", OTHER, "eth0", 100)
        master = Keepalived(tmp_path / "master", VRF, "v10", 200)
        try:
            for turn in range(2):
                wait_for("the switch is the master", lambda: macs(switch) == sorted(MACS.values()))
                for version in (4, 6):
                    wait_for("an answer by the switch", lambda: reaches(HOSTS[0], FAR[version]))
                    own = {4: "10.0.10.1", 6: "2001:db8:10::1"}[version]
                    wait_for("the switch on the way", lambda: first_router(version) == own)
                    assert neighbour(version) == MACS[version]
                if turn:
                    break
                master.stop()
                wait_for("the switch is no master", lambda: macs(switch) == [])
                for version in (4, 6):
                    wait_for("an answer by the other router", lambda: reaches(HOSTS[0], FAR[version]))
                    own = {4: "10.0.10.3", 6: "2001:db8:10::3"}[version]
                    wait_for("the other router on the way", lambda: first_router(version) == own)
                    assert neighbour(version) == MACS[version], "hosts do not see the change"
                master.start()
        finally:
            end(master.process)
            end(backup.process)


def test_the_address_of_a_macvlan_follows_its_carrier_its_addresses_and_the_interface(tmp_path):
    with network(), Router(tmp_path / "m") as switch:
        wait_for("the interface", lambda: "v10" in inside(VRF, "ip", "link"))
        mac, address = "00:00:5e:00:01:07", "10.0.10.7"

        def add():
            inside(VRF, "sysctl", "-q", "-w", "net.ipv4.conf.v10.arp_ignore=1")
            inside(VRF, "ip", "link", "add", "link", "v10", "name", "vr7", "address", mac, "type", "macvlan", "mode", "bridge")
            inside(VRF, "ip", "link", "set", "vr7", "up")
        add()
        assert macs(switch) == [], "without an address it is a backup's"
        inside(VRF, "ip", "addr", "add", f"{address}/32", "dev", "vr7")
        wait_for("the address", lambda: macs(switch) == [mac])
        inside(HOSTS[0], "ip", "route", "replace", "default", "via", address)
        wait_for("an answer", lambda: reaches(HOSTS[0], FAR[4]))
        assert json.loads(inside(HOSTS[0], "ip", "-j", "neigh", "show", address))[0]["lladdr"] == mac
        # FRR takes the carrier of a backup's macvlan.
        inside(VRF, "ip", "link", "set", "vr7", "protodown", "on")
        wait_for("no address", lambda: macs(switch) == [])
        assert not reaches(HOSTS[0], FAR[4])
        inside(VRF, "ip", "link", "set", "vr7", "protodown", "off")
        wait_for("the address again", lambda: macs(switch) == [mac])
        wait_for("an answer again", lambda: reaches(HOSTS[0], FAR[4]))
        # A change of the configuration keeps it; one that makes the interface anew takes the macvlan with it.
        switch.write(v10='acl_in = "open"', extra='[[acl]]\nname = "open"\nrules = ["permit ip"]')
        switch.millrace("apply", switch.config)
        assert macs(switch) == [mac] and reaches(HOSTS[0], FAR[4], "-W", "20")
        switch.write(v10="mtu = 1400")
        switch.millrace("apply", switch.config)
        wait_for("no address", lambda: macs(switch) == [])
        add()
        inside(VRF, "ip", "addr", "add", f"{address}/32", "dev", "vr7")
        wait_for("an answer by the new one", lambda: reaches(HOSTS[0], FAR[4]))
        assert macs(switch) == [mac]
