"""Faucet stacks three switches in a ring: it finds the links by LLDP, floods along a spanning tree, learns hosts across
switches, routes between two VLANs, and uses the other direction of the ring when a link fails.

The switches are three bridges of one `millraced`, joined by internal links; hosts are behind tap devices.
"""

import os
from contextlib import contextmanager

import pytest

import faucet_parts
from namespaces import made
from switches import Millrace, end, free_port, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

# One host on each switch; the third is in another VLAN.
HOSTS = {1: ("office", "10.0.100.1"), 2: ("office", "10.0.100.2"), 3: ("guest", "10.0.200.3")}
GATEWAYS = {"office": "10.0.100.254", "guest": "10.0.200.254"}
HOST, CLOCKWISE, COUNTER = 1, 2, 3

SWITCH = """
  sw{number}:
    dp_id: {number}
    hardware: Lagopus
    {priority}
    lldp_beacon: {{send_interval: 2, max_per_interval: 5}}
    interfaces:
      1: {{native_vlan: {vlan}, acls_in: [no-telnet]}}
      2: {{stack: {{dp: sw{after}, port: 3}}}}
      3: {{stack: {{dp: sw{before}, port: 2}}}}
"""


def after(number):
    """Returns the next switch in the ring."""
    return number % 3 + 1


def namespace(number):
    return f"mr-stack{number}"


class Ring(Millrace):
    """Three bridges in a ring, and their controller."""

    def __init__(self, folder):
        self.controller_port = free_port()
        self.passive = {number: free_port() for number in HOSTS}
        super().__init__(folder)
        controllers = f'controllers = ["tcp:127.0.0.1:{self.controller_port}"]'
        lines = self.config.read_text().split("[[bridge]]")[0].splitlines()
        for number in HOSTS:
            lines += ["[[bridge]]", f'name = "sw{number}"', f'dpid = "{number:016x}"', 'fail_mode = "secure"',
                      f'listen = ["ptcp:{self.passive[number]}"]', controllers]
            devices = {HOST: f"tap:mr-st{number}", CLOCKWISE: f"link:ring{number}",
                       COUNTER: f"link:ring{(number + 1) % 3 + 1}"}
            for port, device in devices.items():
                lines += ["[[bridge.port]]", f'name = "p{port}"', f"number = {port}", f'device = "{device}"']
        self.config.write_text("\n".join(lines) + "\n")

    def on(self, number, command, *arguments):
        """Returns the output of `ovs-ofctl` for one of the switches."""
        return run("ovs-ofctl", "-O", "OpenFlow13", command, f"tcp:127.0.0.1:{self.passive[number]}", *arguments)


@contextmanager
def hosts():
    """A namespace for each host, with the tap device of its switch in it."""
    with made(*map(namespace, HOSTS)):
        for number, (vlan, address) in HOSTS.items():
            run("ip", "link", "set", f"mr-st{number}", "netns", namespace(number))
            ip = ["ip", "-n", namespace(number)]
            run("ip", "netns", "exec", namespace(number), "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            run(*ip, "address", "add", f"{address}/24", "dev", f"mr-st{number}")
            run(*ip, "link", "set", f"mr-st{number}", "up")
            run(*ip, "route", "add", "default", "via", GATEWAYS[vlan])
        yield


@contextmanager
def faucet(folder, port):
    """Faucet, which controls all three switches; yields a function that reads its log."""
    log = folder / "faucet.log"
    switches = "".join(
        SWITCH.format(number=number, after=after(number), before=after(after(number)), vlan=vlan,
                      priority="stack: {priority: 1}" if number == 1 else "")
        for number, (vlan, _) in HOSTS.items()
    )
    process = faucet_parts.start(folder, switches, port, arguments=["--ofp-listen-host", "127.0.0.1"])
    try:
        yield lambda: log.read_text() if log.exists() else ""
    finally:
        end(process)


def reaches(source, target):
    command = ["ip", "netns", "exec", namespace(source), "ping", "-c1", "-W1", HOSTS[target][1]]
    return "1 received" in run(*command, check=False)


def connects(source, target, port):
    return faucet_parts.connects(namespace(source), namespace(target), HOSTS[target][1], port)


def everybody_reaches_everybody(why):
    for source in HOSTS:
        for target in HOSTS:
            if source != target:
                wait_for(f"h{source} reaches h{target} {why}", lambda: reaches(source, target), 120)


def test_faucet_stacks_three_switches_in_a_ring(tmp_path):
    with Ring(tmp_path / "ring") as ring, hosts(), faucet(tmp_path, ring.controller_port) as said:
        wait_for("Faucet has all three", lambda: said().count("Cold start") >= len(HOSTS), 120)
        everybody_reaches_everybody("over the stack")
        assert not connects(1, 2, 23), "the access list denies it, on the switch of the host"
        for target, how in [(2, "switched"), (3, "routed")]:
            wait_for(f"h1 connects to h{target}, {how}", lambda: connects(1, target, 80), 120)

        # The link between the first two switches, which carries their packets.
        ring.on(1, "mod-port", str(CLOCKWISE), "down")
        everybody_reaches_everybody("the other way round")
        ring.on(1, "mod-port", str(CLOCKWISE), "up")
        everybody_reaches_everybody("when the link is back")

        since = said().split("Cold start", 1)[1]
        assert "OFPErrorMsg" not in since, since
