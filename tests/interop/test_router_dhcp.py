"""DHCP relays on the interfaces of a VRF: clients in VLAN 10 get addresses from a server in VLAN 20, by the programs of Debian.

```
  mr-r1: dhclient, and mr-r3 (a macvlan over its cable)    mr-blue: relay on v10, v20          mr-r2: dnsmasq, 10.0.20.2
        VLAN 10  ------------------------------------------ the router ------------------------------ VLAN 20
```

Requests and answers of the relay are packets for the kernel: broadcasts and groups of VLAN 10, and datagrams to the address of the
relay. A client that gives its IPv4 address back tells the server itself, and its datagram is forwarded.
"""

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess

import pytest

import namespaces
from namespaces import inside
from switches import end, run, wait_for
from test_router import HOSTS, VRF, Router, network, reaches

PROGRAMS = ("dhclient", "dhcrelay", "dnsmasq")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason=f"{', '.join(PROGRAMS)}: scripts/setup.sh routers installs them"),
]

SECOND = "mr-r3"
CLIENTS = (HOSTS[0], SECOND)
SERVER = HOSTS[1]
SERVERS = {4: "10.0.20.2", 6: "2001:db8:20::2"}
RELAYS = {4: "10.0.10.1", 6: "2001:db8:10::1"}
# The addresses that the server gives away in VLAN 10.
RANGES = {4: ("10.0.10.100", "10.0.10.199"), 6: ("2001:db8:10::100", "2001:db8:10::1ff")}
# dhclient tells a script what it learned. That of Debian would change the resolver of this machine.
SCRIPT = """#!/bin/sh
case $reason in
BOUND|RENEW|REBIND|REBOOT)
    ip address replace "$new_ip_address/24" dev "$interface"
    ip route replace default via "$new_routers";;
BOUND6|RENEW6|REBIND6)
    ip address replace "$new_ip6_address/64" dev "$interface" nodad
    ip -6 route replace default via 2001:db8:10::1;;
EXPIRE|FAIL|RELEASE|STOP|EXPIRE6|RELEASE6|STOP6)
    ip address flush dev "$interface" scope global;;
esac
exit 0
"""
# Times in s: the first discovery leaves at once, and is soon sent again.
CONFIG = "initial-interval 1; backoff-cutoff 2; retry 1; timeout 120; initial-delay 0;\n"


@contextlib.contextmanager
def clients():
    """The hosts, of which those in VLAN 10 have no addresses of IPv4 and only the one of their link of IPv6."""
    with network(), namespaces.made(SECOND):
        inside(HOSTS[0], "ip", "link", "add", "second", "link", "eth0", "netns", SECOND, "type", "macvlan", "mode", "bridge")
        inside(SECOND, "ip", "link", "set", "second", "name", "eth0")
        inside(HOSTS[0], "ip", "address", "flush", "dev", "eth0", "scope", "global")
        for client in CLIENTS:
            inside(client, "ip", "link", "set", "lo", "up")
            inside(client, "ip", "link", "set", "eth0", "up")
        for client in CLIENTS:
            wait_for(f"the address of the link in {client}", lambda client=client: addresses(client, "link"))
        yield


def addresses(client, scope="global"):
    """Returns the addresses of a client that are not tentative, by IP version."""
    [link] = json.loads(inside(client, "ip", "-j", "address", "show", "dev", "eth0"))
    known = [one for one in link["addr_info"] if one["scope"] == scope and not one.get("tentative")]
    return {6 if one["family"] == "inet6" else 4: one["local"] for one in known}


@contextlib.contextmanager
def running(folder, namespace, name, *command):
    """Runs a program in a namespace, and yields what it has printed so far, as a function."""
    log = folder / f"{name}.log"
    with log.open("w") as output:
        process = subprocess.Popen(["ip", "netns", "exec", namespace, *map(str, command)], stdout=output, stderr=output)
    try:
        yield log.read_text
    finally:
        end(process)


@contextlib.contextmanager
def server(folder):
    """dnsmasq as the server. Yields its leases as a function: the addresses by IP version."""
    leases = folder / "leases"
    ranges = [f"--dhcp-range={','.join(RANGES[4])},255.255.255.0,1h", f"--dhcp-range={','.join(RANGES[6])},64,1h"]
    command = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--log-facility=-", "--log-dhcp",
               "--no-ping", "--interface=eth0", f"--dhcp-leasefile={leases}", f"--dhcp-option=option:router,{RELAYS[4]}",
               f"--pid-file={folder}/server.pid", *ranges]

    def given():
        # A line has time, hardware address or identifier, address, name and client; one begins with the server's identifier.
        lines = [line.split() for line in leases.read_text().splitlines()] if leases.exists() else []
        found = [ipaddress.ip_address(line[2]) for line in lines if len(line) == 5]
        return {version: {str(address) for address in found if address.version == version} for version in (4, 6)}

    with running(folder, SERVER, "server", *command):
        wait_for_ports(SERVER)
        yield given


def wait_for_ports(namespace):
    """Waits for a server or relay of both versions of DHCP."""
    for port in (67, 547):
        wait_for(f"port {port} in {namespace}", lambda port=port: inside(namespace, "ss", "-Hlun", f"sport = :{port}"))


@contextlib.contextmanager
def isc_relays(folder):
    """dhcrelay: one process for each version of IP, on the shadows of both VLANs."""
    four = ["dhcrelay", "-4", "-d", "--no-pid", "-id", "v10", "-iu", "v20", SERVERS[4]]
    six = ["dhcrelay", "-6", "-d", "--no-pid", "-l", "v10", "-u", f"{SERVERS[6]}%v20"]
    with running(folder, VRF, "relay4", *four), running(folder, VRF, "relay6", *six):
        wait_for_ports(VRF)
        yield


@contextlib.contextmanager
def dnsmasq_relay(folder):
    """dnsmasq: one process for both."""
    relays = [f"--dhcp-relay={RELAYS[version]},{SERVERS[version]}" for version in (4, 6)]
    with running(folder, VRF, "relay", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root",
                 "--log-facility=-", "--log-dhcp", f"--pid-file={folder}/relay.pid", f"--dhcp-leasefile={folder}/none", *relays):
        wait_for_ports(VRF)
        yield


def dhclient(folder, client, version, *more):
    """Returns the command of a client. It writes no file with its number, and thus ends no process by one."""
    script, config = folder / "script", folder / "dhclient.conf"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    config.write_text(CONFIG)
    leases = folder / f"{client}-{version}.leases"
    return ["dhclient", f"-{version}", "-v", "--no-pid", "-sf", script, "-cf", config, "-lf", leases, *more, "eth0"]


def in_range(address, version):
    low, high = map(ipaddress.ip_address, RANGES[version])
    return low <= ipaddress.ip_address(address) <= high


@pytest.mark.parametrize("relays", [isc_relays, dnsmasq_relay], ids=["dhcrelay", "dnsmasq"])
def test_clients_of_a_vlan_get_addresses_from_a_server_in_another_by_a_relay(tmp_path, relays):
    with clients(), Router(tmp_path / "m") as switch, server(tmp_path) as given:
        wait_for("the router", lambda: reaches(SERVER, RELAYS[4]) and reaches(SERVER, RELAYS[6]))
        with relays(tmp_path), contextlib.ExitStack() as stack:
            for client in CLIENTS:
                for version in (4, 6):
                    stack.enter_context(running(tmp_path, client, f"{client}-{version}", *dhclient(tmp_path, client, version, "-d")))
            try:
                for client in CLIENTS:
                    wait_for(f"the addresses of {client}", lambda client=client: set(addresses(client)) == {4, 6})
            except AssertionError as error:
                logs = "".join(f"--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted(tmp_path.glob("*.log")))
                raise AssertionError(f"{error}\n{logs}") from None
            held = {client: addresses(client) for client in CLIENTS}
            for version in (4, 6):
                have = {held[client][version] for client in CLIENTS}
                assert len(have) == 2 and all(in_range(address, version) for address in have)
                # The server writes its file after it has answered.
                wait_for(f"the leases of IPv{version}", lambda version=version, have=have: given()[version] == have)
                # The addresses are good for packets that the router forwards.
                for client in CLIENTS:
                    wait_for(f"{client} reaches the server", lambda client=client, version=version: reaches(client, SERVERS[version]))
        # The client itself tells the server that it is done: a packet that the router forwards (IPv4), or the relay (IPv6).
        with relays(tmp_path):
            for version in (4, 6):
                inside(HOSTS[0], *map(str, dhclient(tmp_path, HOSTS[0], version, "-r")), timeout=120)
            for version in (4, 6):
                wait_for(f"the lease of IPv{version} is given back", lambda version=version: given()[version] == {held[SECOND][version]})
        drops = {drop["reason"] for one in switch.show("interfaces", "--drops") for drop in one["drops"]}
        assert not drops & {"route_punt_limit", "route_punt_full", "route_martian_source", "route_malformed", "route_checksum"}, drops
