"""Two VRFs with the same addresses in one switch, in two network namespaces; and two tables of one namespace."""

import contextlib
import json
import os
import socket
import threading

import pytest

import namespaces
from namespaces import inside
from switches import TARGET, Millrace, run, wait_for
from test_router import reaches

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

VRFS = ("mr-vblue", "mr-vred")
# The hosts of each VRF, in the VLANs 10 and 20 of blue, and 11 and 21 of red: the addresses are the same.
HOSTS = {"mr-vblue": ("mr-vb1", "mr-vb2"), "mr-vred": ("mr-vr1", "mr-vr2")}
FAR = {4: "10.0.20.2", 6: "2001:db8:20::2"}
PORT = 4711


class Router(Millrace):
    """A bridge with four ports and two VRFs."""

    def __init__(self, folder, system="", tables=(254, 254), namespaces_of=VRFS):
        super().__init__(folder)
        text = (f'[system]\nstate_dir = "{self.folder}/state"\n{system}\n[api]\nsocket = "{self.folder}/api.sock"\n'
                '[[bridge]]\nname = "br0"\nfail_mode = "standalone"\n')
        for at, vrf in enumerate(VRFS):
            for to, _ in enumerate(HOSTS[vrf]):
                number = 2 * at + to + 1
                text += (f'[[bridge.port]]\nname = "p{number}"\nnumber = {number}\ndevice = "kernel:{near(vrf, to)}"\n'
                         f"vlan = {10 * (to + 1) + at}\n")
        for at, (vrf, table, netns) in enumerate(zip(VRFS, tables, namespaces_of)):
            text += f'[[vrf]]\nname = "{vrf}"\nnetns = "{netns}"\ntable = {table}\n'
            for to in range(2):
                vlan = 10 * (to + 1) + at
                text += (f'[[interface]]\nname = "v{vlan}"\nvrf = "{vrf}"\nbridge = "br0"\nvlan = {vlan}\n'
                         f'address = ["10.0.{to + 1}0.1/24", "2001:db8:{to + 1}0::1/64"]\n')
        self.config.write_text(text)

    def show(self, *words):
        return json.loads(run(TARGET / "millrace", "--json", "show", *words, env=self.environment))


def near(vrf, to):
    return f"{HOSTS[vrf][to]}n"


@contextlib.contextmanager
def hosts():
    """Four hosts, two for each VRF, whose default routes are by the router."""
    names = [name for pair in HOSTS.values() for name in pair]
    with namespaces.made(*VRFS, *names):
        try:
            for vrf, pair in HOSTS.items():
                for to, host in enumerate(pair):
                    run("ip", "link", "del", near(vrf, to), check=False)
                    run("ip", "link", "add", near(vrf, to), "type", "veth", "peer", "name", "eth0", "netns", host)
                    run("ip", "link", "set", near(vrf, to), "up")
                    inside(host, "ip", "addr", "add", f"10.0.{to + 1}0.2/24", "dev", "eth0")
                    inside(host, "ip", "addr", "add", f"2001:db8:{to + 1}0::2/64", "dev", "eth0", "nodad")
                    for device in ("lo", "eth0"):
                        inside(host, "ip", "link", "set", device, "up")
                    inside(host, "ip", "route", "add", "default", "via", f"10.0.{to + 1}0.1")
                    inside(host, "ip", "-6", "route", "add", "default", "via", f"2001:db8:{to + 1}0::1")
            yield
        finally:
            for vrf in VRFS:
                for to in range(2):
                    run("ip", "link", "del", near(vrf, to), check=False)


@contextlib.contextmanager
def named_servers(servers=tuple(host for _, host in HOSTS.values())):
    """Each server, which is the second host of each VRF unless told otherwise, tells its name to everybody who connects."""
    listeners = []
    try:
        for host in servers:
            with namespaces.entered(host):
                listener = socket.create_server(("::", PORT), family=socket.AF_INET6, dualstack_ipv6=True, backlog=64)
            listeners.append(listener)
            threading.Thread(target=tell, args=(listener, host), daemon=True).start()
        yield
    finally:
        for listener in listeners:
            # A thread in accept() does not see that its socket is closed.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()


def tell(listener, name):
    with contextlib.suppress(OSError):
        while True:
            with listener.accept()[0] as connection:
                connection.sendall(name.encode())


def asked(host, version, address=None):
    """Returns the name of the server that answers a host, or None. The address is the one of the second host unless told otherwise."""
    with namespaces.entered(host):
        opened = socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET)
    with opened, contextlib.suppress(OSError):
        opened.settimeout(5)
        opened.connect((address or FAR[version], PORT))
        return opened.recv(64).decode()
    return None


def wait_for_answers(vrf):
    first, second = HOSTS[vrf]
    for version in (4, 6):
        wait_for(f"an answer in {vrf}", lambda: asked(first, version) == second)


def routes(switch, vrf):
    return {route["prefix"] for route in switch.show("routes", vrf)[vrf]}


@pytest.mark.parametrize("system", ["", "workers = 2"], ids=["one worker", "two workers"])
def test_vrfs_with_the_same_addresses_do_not_see_each_other(tmp_path, system):
    blue, red = VRFS
    with hosts(), Router(tmp_path / "m", system) as switch, named_servers():
        for vrf in VRFS:
            wait_for_answers(vrf)
        # Many connections, so that both workers have some; the answers come from the own VRF.
        for vrf in VRFS:
            first, second = HOSTS[vrf]
            assert {asked(first, version) for version in (4, 6) for _ in range(25)} == {second}

        # A route, and the neighbour that it needs, are of one VRF.
        inside(HOSTS[red][1], "ip", "addr", "add", "198.51.100.1/32", "dev", "lo")
        inside(red, "ip", "route", "add", "198.51.100.0/24", "via", "10.0.20.2")
        wait_for("the route", lambda: reaches(HOSTS[red][0], "198.51.100.1"))
        assert "198.51.100.0/24" in routes(switch, red) and "198.51.100.0/24" not in routes(switch, blue)
        assert not reaches(HOSTS[blue][0], "198.51.100.1")

        # The end of a namespace ends its VRF alone, and its return brings it back.
        interface = next(entry for entry in switch.show("interfaces") if entry["name"] == "v11")
        assert interface["vrf"] == red
        inside(red, "ip", "route", "add", "blackhole", "10.0.20.2/32")
        wait_for("no answer in red", lambda: asked(HOSTS[red][0], 4) is None)
        assert asked(HOSTS[blue][0], 4) == HOSTS[blue][1]
        inside(red, "ip", "route", "del", "blackhole", "10.0.20.2/32")
        wait_for_answers(red)
        run("ip", "netns", "del", red)
        wait_for("the problem", lambda: any(red in json.dumps(problem) for problem in switch.rest.get(f"{switch.url}/status", timeout=60).json()["problems"]))
        for version in (4, 6):
            assert asked(HOSTS[blue][0], version) == HOSTS[blue][1]
        run("ip", "netns", "add", red)
        wait_for_answers(red)
        wait_for_answers(blue)


def test_a_vrf_of_another_table_has_the_routes_of_that_table_only(tmp_path):
    blue, red = VRFS
    with hosts(), contextlib.ExitStack() as stack:
        # In one namespace, the second VRF has other addresses: the kernel has one address once.
        switch = Router(tmp_path / "m", tables=(254, 100), namespaces_of=(blue, blue))
        text = switch.config.read_text()
        start = text.index(f'[[vrf]]\nname = "{red}"')
        switch.config.write_text(text[:start] + text[start:].replace("10.0.", "10.1.").replace("2001:db8:", "2001:db8:1"))
        for to, host in enumerate(HOSTS[red]):
            inside(host, "ip", "addr", "flush", "dev", "eth0")
            inside(host, "ip", "addr", "add", f"10.1.{to + 1}0.2/24", "dev", "eth0")
            inside(host, "ip", "route", "add", "default", "via", f"10.1.{to + 1}0.1")
        stack.enter_context(switch)
        stack.enter_context(named_servers())
        wait_for_answers(blue)
        # The kernel puts the routes of links into the table main; an operator adds those of the second table.
        for to in range(2):
            wait_for("the interface", lambda: f"v{to + 1}1" in inside(blue, "ip", "link"))
            inside(blue, "ip", "route", "add", f"10.1.{to + 1}0.0/24", "dev", f"v{to + 1}1", "table", "100")
        wait_for("the routes", lambda: {"10.1.10.0/24", "10.1.20.0/24"} <= routes(switch, red))
        wait_for("an answer in red", lambda: reaches(HOSTS[red][0], "10.1.20.2"))
        assert "10.0.10.0/24" not in routes(switch, red)
        assert not reaches(HOSTS[red][0], "10.0.20.2"), "the table has no route to the other VRF"
        inside(blue, "ip", "route", "del", "10.1.20.0/24", "table", "100")
        wait_for("no route", lambda: "10.1.20.0/24" not in routes(switch, red))
        assert not reaches(HOSTS[red][0], "10.1.20.2")
