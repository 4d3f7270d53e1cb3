"""The switch as a router: hosts in two VLANs, the kernel's tools and programs as neighbours."""

import contextlib
import ipaddress
import json
import os
import random
import re
import signal
import subprocess

import pytest

import namespaces
from namespaces import Pings, inside, unanswered
from switches import TARGET, Millrace, run, wait_for
from test_kernel_tunnels import transfer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

VRF = "mr-blue"
HOSTS = ("mr-r1", "mr-r2")
# A namespace to which interfaces are moved.
AWAY = "mr-away"
NEAR = ("mr-rn1", "mr-rn2")
VLANS = (10, 20)

CONFIG = """
[system]
state_dir = "{folder}/state"
[api]
socket = "{folder}/api.sock"
[[bridge]]
name = "br0"
fail_mode = "standalone"
{bridge}
[[bridge.port]]
name = "p1"
number = 1
device = "kernel:{near[0]}"
vlan = 10
[[bridge.port]]
name = "p2"
number = 2
device = "kernel:{near[1]}"
vlan = 20
[[vrf]]
name = "blue"
netns = "{vrf}"
[[interface]]
name = "v10"
vrf = "blue"
bridge = "br0"
vlan = 10
address = ["10.0.10.1/24", "2001:db8:10::1/64"]
{v10}
[[interface]]
name = "v20"
vrf = "blue"
bridge = "br0"
vlan = 20
address = ["10.0.20.1/24", "2001:db8:20::1/64"]
{v20}
{extra}
"""


class Router(Millrace):
    """A bridge with a host in each of two VLANs, and an interface of the router in each."""

    def __init__(self, folder, bridge="", v10="", v20="", extra=""):
        super().__init__(folder)
        self.values = {"folder": self.folder, "near": NEAR, "vrf": VRF}
        self.write(bridge=bridge, v10=v10, v20=v20, extra=extra)

    def write(self, bridge="", v10="", v20="", extra=""):
        self.config.write_text(CONFIG.format(bridge=bridge, v10=v10, v20=v20, extra=extra, **self.values))

    def millrace(self, *words):
        """Runs `millrace`, and returns what it prints."""
        return run(TARGET / "millrace", *words, env=self.environment)

    def show(self, *words):
        """The JSON of `millrace show`."""
        return json.loads(self.millrace("--json", "show", *words))


def mac(number):
    return f"02:00:00:00:01:{number:02x}"


@contextlib.contextmanager
def network(mtu=1500):
    """The namespace of the VRF, and a host in each VLAN whose default gateway is the router."""
    with namespaces.made(VRF, AWAY, *HOSTS):
        try:
            for number, (host, near) in enumerate(zip(HOSTS, NEAR), 1):
                run("ip", "link", "del", near, check=False)
                run("ip", "link", "add", near, "mtu", str(mtu), "type", "veth",
                    "peer", "name", "eth0", "netns", host, "mtu", str(mtu), "address", mac(number))
                run("ip", "link", "set", near, "up")
                inside(host, "ip", "link", "set", "lo", "up")
                inside(host, "ip", "addr", "add", f"10.0.{number}0.2/24", "dev", "eth0")
                inside(host, "ip", "-6", "addr", "add", f"2001:db8:{number}0::2/64", "dev", "eth0", "nodad")
                inside(host, "ip", "link", "set", "eth0", "up")
                inside(host, "ip", "route", "add", "default", "via", f"10.0.{number}0.1")
                inside(host, "ip", "-6", "route", "add", "default", "via", f"2001:db8:{number}0::1")
            yield
        finally:
            for near in NEAR:
                run("ip", "link", "del", near, check=False)


@pytest.fixture
def router(tmp_path):
    with network(), Router(tmp_path / "m") as switch:
        yield switch


def reaches(host, address, *options):
    """Returns true once a ping is answered."""
    return subprocess.run(["ip", "netns", "exec", host, "ping", "-c", "1", "-W", "1", *options, address],
                          capture_output=True, timeout=60).returncode == 0


def wait_until_it_routes():
    for to in ("10.0.20.2", "2001:db8:20::2"):
        wait_for(f"a ping to {to}", lambda: reaches(HOSTS[0], to))


def test_hosts_of_two_vlans_reach_each_other_and_the_router(router):
    wait_until_it_routes()
    for host, addresses in ((HOSTS[0], ("10.0.10.1", "10.0.20.1", "10.0.20.2", "2001:db8:10::1", "2001:db8:20::2")),
                            (HOSTS[1], ("10.0.20.1", "10.0.10.1", "10.0.10.2", "2001:db8:20::1", "2001:db8:10::2"))):
        for address in addresses:
            assert not unanswered(host, address), (host, address)
    ttl = re.search(r"ttl=(\d+)", inside(HOSTS[0], "ping", "-c", "1", "10.0.20.2"))
    assert ttl[1] == "63", "the router takes one from the TTL"


def test_those_who_follow_events_see_neighbours_and_metrics_name_what_the_router_does(router):
    wait_until_it_routes()

    def followed():
        state = router.rest.get(f"{router.url}/state?kinds=neighbours", timeout=60).json()["state"]
        return {(value["interface"], value["address"]) for value in state["neighbours"].values()}

    wait_for("both hosts", lambda: {address for _, address in followed()} >= {"10.0.10.2", "10.0.20.2"})
    metrics = router.rest.get("http://localhost/metrics", timeout=60).text
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    found = {name.split("{")[0] for name in values}
    assert {"millrace_vrf_routes", "millrace_interface_up", "millrace_router_fib_bytes"} <= found, sorted(found)
    punted = {name: value for name, value in values.items() if name.startswith("millrace_interface_punted_packets_total")}
    assert any('class="neighbours"' in name and float(value) > 0 for name, value in punted.items()), punted
    synchronised = [value for name, value in values.items() if name.startswith("millrace_vrf_synchronised")]
    assert synchronised == ["1"], synchronised


def test_traceroute_shows_the_router_and_the_host(router):
    wait_until_it_routes()
    for version, address, hops in (("-4", "10.0.20.2", ["10.0.10.1", "10.0.20.2"]),
                                   ("-6", "2001:db8:20::2", ["2001:db8:10::1", "2001:db8:20::2"])):
        for ttl, hop in enumerate(hops, 1):
            text = subprocess.run(["ip", "netns", "exec", HOSTS[0], "ping", version, "-c", "1", "-W", "20", "-t", str(ttl), address],
                                  capture_output=True, text=True, timeout=60).stdout
            assert hop in text, text
            assert ttl == len(hops) or re.search("Time to live exceeded|Hop limit", text, re.I), text


def test_the_kernel_has_an_interface_of_the_same_name_for_each(router):
    links = json.loads(inside(VRF, "ip", "-j", "addr", "show"))
    by_name = {link["ifname"]: link for link in links}
    for name, address in (("v10", "10.0.10.1"), ("v20", "10.0.20.1")):
        link = by_name[name]
        assert address in [info["local"] for info in link["addr_info"]]
        shown = next(interface for interface in router.show("interfaces") if interface["name"] == name)
        assert shown["mac"] == link["address"] and shown["mtu"] == link["mtu"] == 1500
    run("ip", "link", "set", NEAR[0], "down")
    wait_for("the kernel sees that the VLAN has no link",
             lambda: "NO-CARRIER" in inside(VRF, "ip", "link", "show", "v10"))
    run("ip", "link", "set", NEAR[0], "up")
    wait_for("the link is back", lambda: "NO-CARRIER" not in inside(VRF, "ip", "link", "show", "v10"))
    wait_until_it_routes()


def test_a_large_table_is_read_in_pages_by_rest_and_by_the_command_line(router):
    wait_until_it_routes()
    count = 300
    prefixes = [f"172.16.{number >> 6}.{(number & 63) << 2}/30" for number in range(count)]
    for verb in ("add", "del"):
        text = "".join(f"route {verb} {prefix} via 10.0.20.2\n" for prefix in prefixes)
        inside(VRF, "ip", "-batch", "-", input=text)
        expected = prefixes if verb == "add" else []

        def within():
            return [route["prefix"] for route in router.show("routes", "blue", "--within", "172.16.0.0/12")["blue"]]
        wait_for(f"{len(expected)} routes", lambda expected=expected: within() == expected)
        if verb == "del":
            return
        everything = router.show("routes", "blue")["blue"]
        read, after, pages = [], None, 0
        while pages == 0 or after:
            params = {"limit": 7} | ({"after": after} if after else {})
            page = router.rest.get(f"{router.url}/vrfs/blue/routes", params=params, timeout=60).json()
            assert 0 < len(page["routes"]) <= 7
            read, after, pages = read + page["routes"], page.get("next"), pages + 1
        assert read == everything and pages > count / 7
        # The text has headings once, and the rows of the pages in order.
        rows = router.cli("show", "routes", "blue", "--after", prefixes[100], "--within", "172.16.0.0/12").splitlines()
        assert rows[0].split()[0] == "PREFIX" and [row.split()[0] for row in rows[1:]] == prefixes[101:]


def test_routes_of_the_kernel_are_those_of_the_router(router):
    wait_until_it_routes()
    # The switch reads changes in their order.
    inside(VRF, "ip", "route", "add", "blackhole", "198.51.100.0/24")
    inside(VRF, "ip", "route", "add", "192.0.2.0/24", "via", "10.0.20.2")
    inside(HOSTS[1], "ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
    wait_for("a ping by the new route", lambda: reaches(HOSTS[0], "192.0.2.1"))
    routes = {route["prefix"]: route for route in router.show("routes", "blue")["blue"]}
    assert routes["192.0.2.0/24"]["nexthops"][0]["gateway"] == "10.0.20.2"
    assert routes["192.0.2.0/24"]["nexthops"][0]["interface"] == "v20"
    assert routes["198.51.100.0/24"]["kind"] == "blackhole"
    best = router.show("routes", "blue", "--to", "192.0.2.77")["blue"]
    assert [route["prefix"] for route in best] == ["192.0.2.0/24"]
    inside(VRF, "ip", "route", "del", "192.0.2.0/24")
    wait_for("no answer without the route", lambda: not reaches(HOSTS[0], "192.0.2.1"))
    text = subprocess.run(["ip", "netns", "exec", HOSTS[0], "ping", "-c", "1", "-W", "20", "192.0.2.1"],
                          capture_output=True, text=True, timeout=60).stdout
    assert "Net Unreachable" in text, text


def test_a_mac_address_and_an_mtu_that_an_administrator_gives_the_kernels_interface_hold(router):
    wait_until_it_routes()
    inside(VRF, "ip", "link", "set", "v20", "address", "02:00:00:00:aa:01", "mtu", "1300")
    # Hosts ask for the router again, and are told the new address.
    inside(HOSTS[1], "ip", "neigh", "flush", "dev", "eth0")
    inside(HOSTS[1], "ip", "-6", "neigh", "flush", "dev", "eth0")
    wait_until_it_routes()
    assert "02:00:00:00:aa:01" in inside(HOSTS[1], "ip", "neigh", "show", "10.0.20.1")
    shown = next(interface for interface in router.show("interfaces") if interface["name"] == "v20")
    assert shown["other_macs"] == ["02:00:00:00:aa:01"] and shown["mtu"] == 1300, shown
    told = subprocess.run(["ip", "netns", "exec", HOSTS[0], "ping", "-c", "1", "-W", "20", "-M", "do", "-s", "1400", "10.0.20.2"],
                          capture_output=True, text=True, timeout=60)
    assert "mtu = 1300" in told.stdout + told.stderr or "mtu=1300" in told.stdout + told.stderr, told
    inside(VRF, "ip", "link", "set", "v20", "address", shown["mac"], "mtu", "1500")
    inside(HOSTS[1], "ip", "neigh", "flush", "dev", "eth0")
    inside(HOSTS[1], "ip", "-6", "neigh", "flush", "dev", "eth0")
    wait_until_it_routes()


def test_what_others_take_from_the_kernels_interfaces_comes_back(router):
    wait_until_it_routes()
    for what, commands in {
        "addresses that were removed": ["addr flush dev v20"],
        "IPv6 addresses of an interface that was down": ["link set v20 down", "link set v20 up"],
        "an interface that was removed": ["link del v20"],
        "an interface that has another name": ["link set v20 down", "link set v20 name other"],
        "one that was moved to another namespace": [f"link set v20 netns {AWAY}"],
        "one that was moved there and back": [f"link set v20 netns {AWAY}", f"-n {AWAY} link set v20 netns {VRF}"],
        "one whose name another interface took for a while": ["link del v20", "link add v20 type bridge", "link del v20"],
        "all of them at once": ["addr flush dev v10", "link del v10", "link del v20"],
    }.items():
        for command in commands:
            # What comes back at once has the name before another has it, or is not moved back.
            inside(VRF, "ip", *command.split(), check=command == commands[0])
        for to in ("10.0.20.2", "2001:db8:20::2"):
            wait_for(f"{what}: {to}", lambda to=to: reaches(HOSTS[0], to))
        links = [link["ifname"] for link in json.loads(inside(VRF, "ip", "-j", "link"))]
        assert sorted(links) == ["lo", "v10", "v20"], (what, links)
        assert "v20" not in inside(AWAY, "ip", "-br", "link"), what
    # A namespace that is removed and made again, also at once.
    run("ip", "netns", "del", VRF)
    wait_for("the namespace is missed", lambda: VRF in router.cli("show", "status"))
    run("ip", "netns", "add", VRF)
    wait_until_it_routes()
    run("ip", "netns", "del", VRF)
    run("ip", "netns", "add", VRF)
    wait_for("the interfaces are in the new one", lambda: "v20" in inside(VRF, "ip", "-br", "link"))
    wait_until_it_routes()


@pytest.mark.parametrize("device", ["kernel", "tap"])
def test_what_others_take_from_the_ports_comes_back(tmp_path, device):
    """The interface of a port, `kernel:` or `tap:`, of which the second host is a part or the other end."""
    with network():
        switch = Router(tmp_path / "m")
        if device == "tap":
            run("ip", "link", "del", NEAR[1])
            switch.config.write_text(switch.config.read_text().replace(f"kernel:{NEAR[1]}", f"tap:{NEAR[1]}"))

        def connect():
            """Makes the port's interface, if that is not the switch's to do, and gives the host its end."""
            if device == "kernel":
                run("ip", "link", "add", NEAR[1], "type", "veth", "peer", "name", "eth0", "netns", HOSTS[1])
                run("ip", "link", "set", NEAR[1], "up")
            else:
                wait_for("the tap device is there", lambda: NEAR[1] in run("ip", "-br", "link"))
                run("ip", "link", "set", NEAR[1], "netns", HOSTS[1], "name", "eth0")
            for command in (f"link set eth0 address {mac(2)} up", "addr add 10.0.20.2/24 dev eth0", "-6 addr add 2001:db8:20::2/64 dev eth0 nodad",
                            "route add default via 10.0.20.1", "-6 route add default via 2001:db8:20::1"):
                inside(HOSTS[1], "ip", *command.split())

        with switch:
            if device == "tap":
                connect()
            wait_until_it_routes()
            inside(HOSTS[1], "ip", "link", "del", "eth0")
            connect()
            wait_until_it_routes()
            # The end of a container takes its interfaces along.
            run("ip", "netns", "del", HOSTS[1])
            run("ip", "netns", "add", HOSTS[1])
            connect()
            wait_until_it_routes()
            if device == "tap":
                # It is the file, and not the name, that connects the port.
                inside(HOSTS[1], "ip", "link", "set", "eth0", "down")
                inside(HOSTS[1], "ip", "link", "set", "eth0", "name", "eth7")
                inside(HOSTS[1], "ip", "link", "set", "eth7", "up")
                for to in (["route", "replace", "default", "via", "10.0.20.1"], ["-6", "addr", "replace", "2001:db8:20::2/64", "dev", "eth7", "nodad"],
                           ["-6", "route", "replace", "default", "via", "2001:db8:20::1"]):
                    inside(HOSTS[1], "ip", *to)
            else:
                for commands in ([["link", "set", NEAR[1], "netns", AWAY], ["-n", AWAY, "link", "set", NEAR[1], "netns", str(os.getpid())]],
                                 [["link", "set", NEAR[1], "down"], ["link", "set", NEAR[1], "name", "mr-other"],
                                  ["link", "set", "mr-other", "name", NEAR[1]]]):
                    for command in [*commands, ["link", "set", NEAR[1], "up"]]:
                        run("ip", *command)
                    wait_until_it_routes()
            wait_until_it_routes()
            assert not [problem for problem in switch.rest.get(f"{switch.url}/status", timeout=60).json()["problems"]]


def test_static_neighbours_of_the_operator_stay_while_packets_and_routes_need_them(router):
    wait_until_it_routes()
    # A host that answers no ARP is only reached by static neighbours.
    [link] = json.loads(inside(VRF, "ip", "-j", "link", "show", "v20"))
    inside(HOSTS[1], "ip", "link", "set", "eth0", "arp", "off")
    inside(HOSTS[1], "ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
    inside(HOSTS[1], "ip", "neigh", "replace", "10.0.20.1", "lladdr", link["address"], "nud", "permanent", "dev", "eth0")
    inside(VRF, "ip", "neigh", "flush", "dev", "v20")
    ping = subprocess.Popen(["ip", "netns", "exec", HOSTS[0], "ping", "-q", "-i", "0.002", "192.0.2.1"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for number in range(20):
            # The route makes its gateway one that the kernel is asked to keep fresh, and no longer when it goes.
            inside(VRF, "ip", "neigh", "replace", "10.0.20.2", "lladdr", mac(2), "nud", "permanent", "dev", "v20")
            inside(VRF, "ip", "route", "add", "192.0.2.0/24", "via", "10.0.20.2")
            wait_for(f"an answer, round {number}", lambda: reaches(HOSTS[0], "192.0.2.1"))
            inside(VRF, "ip", "route", "del", "192.0.2.0/24")
            assert "10.0.20.2" in inside(VRF, "ip", "neigh", "show", "nud", "permanent", "dev", "v20")
    finally:
        ping.kill()
        ping.wait(timeout=60)


def test_churn_of_other_routes_costs_established_traffic_nothing_and_ends_as_the_kernel_has_it(router):
    """Thousands of changes of routes, groups, links and addresses, seeded; then the route of random addresses as `ip route get`
    has it. Longer churn without traffic: crates/routing/rib/tests/kernel."""
    wait_until_it_routes()
    rng = random.Random(7)
    prefixes = [f"172.{16 + rng.randrange(4)}.{rng.randrange(4) * 64}.0/{rng.choice((16, 18, 20, 24))}" for _ in range(60)]
    prefixes = sorted({str(ipaddress.ip_network(prefix, strict=False)) for prefix in prefixes})
    gateways = ("10.0.10.2", "10.0.20.2")
    setup = "".join(f"nexthop replace id {at} via {gateway} dev v{at}0\n" for at, gateway in enumerate(gateways, 1))

    def change():
        kind, prefix = rng.randrange(20), rng.choice(prefixes)
        if kind < 9:
            return f"route replace {prefix} via {rng.choice(gateways)}"
        if kind < 12:
            return f"route replace {prefix} nhid 10"
        if kind < 17:
            return f"route del {prefix}"
        if kind == 17:
            return f"nexthop replace id 10 group {rng.choice(('1', '2', '1/2', '1,3/2'))}"
        if kind == 18:
            return f"link {rng.choice(('add link v20 name mv0 type macvlan', 'del mv0'))}"
        return f"address {rng.choice(('add', 'del'))} 192.0.2.{rng.randrange(4)}/32 dev lo"
    lines = setup + "nexthop replace id 10 group 1/2\n" + "\n".join(change() for _ in range(5000)) + "\n"
    with Pings(HOSTS[0], "10.0.20.2") as pings:
        # Some changes fail: what is to be deleted is not there.
        inside(VRF, "ip", "-batch", "-", "-force", input=lines, check=False)
        assert not pings.lost()
    networks = [ipaddress.ip_network(prefix) for prefix in prefixes]
    addresses = [str(network[rng.randrange(network.num_addresses)]) for network in networks]

    def of_kernel(address):
        found = json.loads(inside(VRF, "ip", "-j", "-d", "route", "get", "fibmatch", address, check=False) or "[{}]")[0]
        if "nhid" in found:
            objects = {one["id"]: one for one in json.loads(inside(VRF, "ip", "-j", "nexthop"))}
            return {objects[member["id"]]["gateway"] for member in objects[found["nhid"]]["group"]}
        return {found["gateway"]} if "gateway" in found else set()

    def of_switch(address):
        answer = router.rest.get(f"{router.url}/vrfs/blue/routes", params={"to": address}, timeout=60).json()["routes"]
        return {hop["gateway"] for route in answer for hop in route["nexthops"] if hop["gateway"]}

    def differences():
        return [(address, of_kernel(address), of_switch(address)) for address in addresses if of_kernel(address) != of_switch(address)]
    wait_for("the routes are the kernel's", lambda: not differences())
    assert any(of_switch(address) for address in addresses)


def test_the_kernel_forwards_nothing_itself(router):
    for family in ("ipv4", "ipv6"):
        value = inside(VRF, "cat", f"/proc/sys/net/{family}/conf/all/forwarding").strip()
        assert value == "0", family


def test_the_senders_of_packets_that_are_too_large_are_told(tmp_path):
    with network(), Router(tmp_path / "m", v20="mtu = 1280") as switch:
        wait_until_it_routes()
        text = subprocess.run(["ip", "netns", "exec", HOSTS[0], "ping", "-c", "1", "-W", "20", "-M", "do", "-s", "1400", "10.0.20.2"],
                              capture_output=True, text=True, timeout=60)
        assert "mtu = 1280" in text.stdout + text.stderr, text
        # The host learned the MTU of the path, and sends fragments.
        wait_for("an answer in fragments", lambda: reaches(HOSTS[0], "2001:db8:20::2", "-s", "1400"))
        inside(HOSTS[0], "ip", "route", "flush", "cache")
        assert reaches(HOSTS[0], "10.0.20.2", "-M", "dont", "-s", "1400", "-W", "20"), "the router fragments"
        interfaces = {interface["name"]: interface for interface in switch.show("interfaces")}
        assert interfaces["v10"]["icmp_errors"] >= 2


@pytest.mark.parametrize("address", ["10.0.20.2", "2001:db8:20::2"])
def test_tcp_finds_the_mtu_of_a_path_with_a_smaller_one(tmp_path, address):
    """The host sends segments of its own MTU, unsegmented as its link lets it, and is told that they are too large."""
    with network(), Router(tmp_path / "m", v20="mtu = 1280") as switch:
        wait_until_it_routes()
        transfer(tmp_path, address, source=HOSTS[0], target=HOSTS[1])
        v10, v20 = ({one["name"]: one for one in switch.show("interfaces", "--drops")}[name] for name in ("v10", "v20"))
        assert v10["icmp_errors"] >= 1 and "route_mtu" in {drop["reason"] for drop in v10["drops"]}, v10
        assert v20["fragments"] == 0, "TCP forbids them"


def test_an_access_list_permits_and_denies(tmp_path):
    acl = '[[acl]]\nname = "edge"\nrules = ["deny icmp,nw_dst=10.0.20.2", "permit ip", "permit ipv6"]\n'
    with network(), Router(tmp_path / "m", v10='acl_in = "edge"', extra=acl) as switch:
        wait_for("IPv6 is permitted", lambda: reaches(HOSTS[0], "2001:db8:20::2"))
        wait_for("the router answers", lambda: reaches(HOSTS[0], "10.0.20.1"))
        assert not reaches(HOSTS[0], "10.0.20.2")
        drops = next(interface for interface in switch.show("interfaces") if interface["name"] == "v10")["drops"]
        assert [drop["reason"] for drop in drops] == ["route_acl_in"], drops


def test_tcp_is_routed_with_offloads_and_at_full_size(router):
    if not run("which", "iperf3", check=False):
        pytest.skip("iperf3 is not installed")
    wait_until_it_routes()
    server = subprocess.Popen(["ip", "netns", "exec", HOSTS[1], "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        wait_for("the server listens", lambda: inside(HOSTS[1], "ss", "-Hltn", "sport = :5201"))
        text = inside(HOSTS[0], "iperf3", "-J", "-c", "10.0.20.2", "-n", "20M", timeout=120)
    finally:
        server.kill()
        server.wait(timeout=60)
    assert json.loads(text)["end"]["sum_sent"]["bytes"] >= 20 << 20


def test_a_restart_leaves_nothing_and_routes_again(router):
    wait_until_it_routes()
    router.stop(signal.SIGKILL)
    router.start()
    wait_until_it_routes()
    assert router.stop() == 0
    links = inside(VRF, "ip", "-br", "link")
    assert "v10" not in links and "v20" not in links


def test_interfaces_come_and_go_with_the_configuration(router):
    wait_until_it_routes()
    router.write(v10="mtu = 1400")
    router.millrace("apply", str(router.config))
    wait_for("the MTU in the kernel", lambda: "mtu 1400" in inside(VRF, "ip", "link", "show", "v10"))
    wait_until_it_routes()
    text = router.config.read_text()
    start = text.index("[[interface]]\nname = \"v20\"")
    router.config.write_text(text[:start])
    router.millrace("apply", str(router.config))
    wait_for("v20 is gone", lambda: "v20" not in inside(VRF, "ip", "-br", "link"))
    assert [interface["name"] for interface in router.show("interfaces")] == ["v10"]
    assert reaches(HOSTS[0], "10.0.10.1", "-W", "20")


def test_a_trace_tells_the_route_and_the_icmp_error(router):
    wait_until_it_routes()
    to = next(interface for interface in router.show("interfaces") if interface["name"] == "v10")["mac"]

    def trace(fields):
        return router.millrace("trace", "br0", f"in_port=1,icmp,dl_src={mac(1)},dl_dst={to},nw_src=10.0.10.2,{fields}")

    text = trace("nw_dst=10.0.20.2,nw_ttl=64")
    for words in ("received at interface v10", "time to live 64 -> 63", f"neighbour {mac(2)}", "interface v20"):
        assert words in text, text
    text = trace("nw_dst=10.0.20.2,nw_ttl=1")
    assert "ICMP error from 10.0.10.1" in text and "route_ttl" in text or "time exceeded" in text, text
    assert "no route to 203.0.113.9" in trace("nw_dst=203.0.113.9,nw_ttl=64")


def test_an_interface_over_a_lag_has_its_link_and_routes_by_each_member(tmp_path):
    with network(), contextlib.ExitStack() as stack:
        # A second cable of the first host, which has no link yet. In mode "on" nobody speaks LACP.
        run("ip", "link", "del", "mr-rn5", check=False)
        run("ip", "link", "add", "mr-rn5", "type", "veth", "peer", "name", "eth1", "netns", HOSTS[0])
        stack.callback(run, "ip", "link", "del", "mr-rn5", check=False)
        run("ip", "link", "set", "mr-rn5", "up")
        switch = Router(tmp_path / "m")
        members = "".join(f'[[bridge.lag.member]]\nname = "m{at}"\nnumber = {10 + at}\ndevice = "kernel:{device}"\n'
                          for at, device in ((1, NEAR[0]), (2, "mr-rn5")))
        text = switch.config.read_text().replace(f'device = "kernel:{NEAR[0]}"', 'device = "lag:both"')
        switch.config.write_text(text + f'[[bridge.lag]]\nname = "both"\nmode = "on"\n{members}')
        stack.enter_context(switch)
        wait_until_it_routes()

        def link():
            return {entry["name"]: entry["up"] for entry in switch.show("interfaces")}["v10"]

        # The host has its address at the other cable.
        inside(HOSTS[0], "ip", "link", "set", "eth0", "down")
        inside(HOSTS[0], "ip", "addr", "flush", "dev", "eth0")
        inside(HOSTS[0], "ip", "addr", "add", "10.0.10.2/24", "dev", "eth1")
        inside(HOSTS[0], "ip", "link", "set", "eth1", "up")
        inside(HOSTS[0], "ip", "route", "add", "default", "via", "10.0.10.1")
        wait_for("an answer by the second member", lambda: reaches(HOSTS[0], "10.0.20.2"))
        assert link()
        inside(HOSTS[0], "ip", "link", "set", "eth1", "down")
        wait_for("no link", lambda: not link())
        wait_for("no carrier in the kernel", lambda: "NO-CARRIER" in inside(VRF, "ip", "link", "show", "v10"))
        inside(HOSTS[0], "ip", "link", "set", "eth1", "up")
        inside(HOSTS[0], "ip", "route", "replace", "default", "via", "10.0.10.1")
        wait_for("an answer again", lambda: reaches(HOSTS[0], "10.0.20.2"))
