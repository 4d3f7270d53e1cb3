"""Three routers with FRR and two hosts, each in a namespace of its own, and links that can be cut.

```
              h1                                 h2
               | 10.1.1.0/24, 2001:db8:1:1::/64   | 10.1.2.0/24, 2001:db8:1:2::/64
              r1 ------------------------------- r2
                \\                               /
                 +------------- r3 ------------+
```

OSPF (version 2 and 3) carries the loopbacks of the routers, 10.255.0.N and 2001:db8:255::N, over links 10.0.12.0/30 and so on.
BGP over addresses of the link (RFC 5549: IPv4 over next hops of IPv6) carries the networks of the hosts; each router has an AS of
its own. The kernels forward.
A test of a switch in the place of a router gives a class of its own for it (`kinds`): `Router.wire` makes the link of an interface,
`Router.forwards` is false, and FRR and its configuration stay the same.
"""

import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import subprocess

from namespaces import inside, made, unanswered
from switches import end, opened, run, wait_for

FRR = pathlib.Path("/usr/lib/frr")
ROUTERS, HOSTS = ("r1", "r2", "r3"), ("h1", "h2")
BETWEEN = (("r1", "r2"), ("r1", "r3"), ("r2", "r3"))
# The time in s between two hellos, and the time of silence after which a neighbour is gone. A link that is cut has no carrier, which all
# daemons notice at once; a daemon that a busy machine does not run for seconds must not lose its neighbours.
HELLO_S, DEAD_S = 1, 15
# The time in s in which routers converge on a busy machine.
CONVERGED_MAX_S = 180


def is_installed():
    """Returns true if FRR is there."""
    return (FRR / "zebra").exists() and shutil.which("vtysh") is not None


def number(name):
    """Returns the number of a router or a host: r3 is 3."""
    return int(name[1:])


def interface(name, peer):
    """Returns the name of a router's interface to a peer."""
    return f"{name}-{peer}"


def loopback(router, version):
    """Returns the address of a router's loopback."""
    return f"10.255.0.{number(router)}" if version == 4 else f"2001:db8:255::{number(router)}"


def address(host, version, of_router=False):
    """Returns the address of a host, or of its router in the network of the host."""
    last = 1 if of_router else 2
    return f"10.1.{number(host)}.{last}" if version == 4 else f"2001:db8:1:{number(host)}::{last}"


def link_address(router, peer):
    """Returns the IPv4 address of a router on its link to a peer."""
    low, high = sorted((number(router), number(peer)))
    return f"10.0.{low}{high}.{1 if number(router) == low else 2}"


def network(host, version):
    """Returns the network of a host."""
    return f"10.1.{number(host)}.0/24" if version == 4 else f"2001:db8:1:{number(host)}::/64"


@dataclasses.dataclass(frozen=True)
class Hop:
    """A next hop as zebra shows it: the interface, and the address of the gateway without that of the link."""

    interface: str
    gateway: str


class Router:
    """A router: a namespace whose kernel forwards, and FRR in it."""

    forwards = True

    def __init__(self, name, namespace, folder):
        self.name, self.namespace = name, namespace
        self.folder = pathlib.Path(folder) / name
        self.folder.mkdir(parents=True)
        # FRR's daemons run as a user of their own.
        self.folder.chmod(0o777)
        self.peers = [one if other == name else other for one, other in BETWEEN if name in (one, other)]
        self.hosts = [host for host in HOSTS if number(host) == number(name)]
        self.processes = {}

    def wire(self, peer, peer_namespace):
        """Makes the link to a peer, which has its end already if it is a router that was wired before."""
        own, far = interface(self.name, peer), interface(peer, self.name)
        run("ip", "link", "add", own, "netns", self.namespace, "type", "veth", "peer", "name", far, "netns", peer_namespace)

    def on(self, *command, **kwargs):
        """Runs a command in the namespace of the router."""
        return inside(self.namespace, *command, **kwargs)

    def prepare(self):
        """Sets what the kernel needs to know: forwarding, the loopback, the addresses of the networks of hosts."""
        for setting in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            self.on("sysctl", "-qw", f"{setting}={int(self.forwards)}")
        self.prepare_loopback()
        self.prepare_links()

    def prepare_loopback(self):
        """Sets the addresses of the router that belong to no link."""
        self.on("ip", "link", "set", "lo", "up")
        for version, length in ((4, 32), (6, 128)):
            self.on("ip", "address", "add", f"{loopback(self.name, version)}/{length}", "dev", "lo")

    def prepare_links(self):
        """Sets the addresses of the router's interfaces, and sets the interfaces up."""
        for host in self.hosts:
            own = interface(self.name, host)
            for version in (4, 6):
                length = network(host, version).partition("/")[2]
                nodad = ["nodad"] if version == 6 else []
                self.on("ip", "address", "add", f"{address(host, version, of_router=True)}/{length}", "dev", own, *nodad)
        for peer in self.peers:
            self.on("ip", "address", "add", f"{link_address(self.name, peer)}/30", "dev", interface(self.name, peer))
        for peer in self.peers + self.hosts:
            self.on("ip", "link", "set", interface(self.name, peer), "up")

    def set_link(self, peer, up):
        """Gives the link to a peer its carrier, or takes it."""
        self.on("ip", "link", "set", interface(self.name, peer), "up" if up else "down")

    def configurations(self):
        """Returns the configuration of each daemon, in the order in which they start."""
        links = [interface(self.name, peer) for peer in self.peers]
        ospf = "".join(f"interface {link}\n ip ospf area 0\n ip ospf network point-to-point\n ip ospf hello-interval {HELLO_S}\n"
                       f" ip ospf dead-interval {DEAD_S}\n" for link in links)
        ospf6 = "".join(f"interface {link}\n ipv6 ospf6 area 0\n ipv6 ospf6 network point-to-point\n ipv6 ospf6 hello-interval {HELLO_S}\n"
                        f" ipv6 ospf6 dead-interval {DEAD_S}\n" for link in links)
        neighbours = "".join(f" neighbor {link} interface v6only remote-as external\n neighbor {link} timers connect 1\n" for link in links)

        def family(version):
            activated = "".join(f"  neighbor {link} activate\n" for link in links)
            networks = "".join(f"  network {network(host, version)}\n" for host in self.hosts)
            return f" address-family ipv{version} unicast\n{activated}{networks} exit-address-family\n"

        ident = loopback(self.name, 4)
        return {
            "zebra": "",
            "ospfd": f"{ospf}interface lo\n ip ospf area 0\nrouter ospf\n ospf router-id {ident}\n timers throttle spf 10 50 500\n",
            "ospf6d": f"{ospf6}interface lo\n ipv6 ospf6 area 0\nrouter ospf6\n ospf6 router-id {ident}\n"
                      " timers throttle spf 10 50 500\n",
            "bgpd": f"router bgp {65000 + number(self.name)}\n bgp router-id {ident}\n no bgp ebgp-requires-policy\n"
                    f" timers bgp {HELLO_S} {DEAD_S}\n bgp bestpath as-path multipath-relax\n{neighbours}{family(4)}{family(6)}",
        }

    def zebra_options(self):
        """Returns further arguments of zebra: `-M dplane_fpm_nl` for a switch that takes routes by FPM."""
        return []

    def start(self):
        """Starts the daemons."""
        for daemon, text in self.configurations().items():
            (self.folder / f"{daemon}.conf").write_text(f"log stdout\nservice integrated-vtysh-config\n{text}")
            self.spawn(daemon)

    def spawn(self, daemon):
        """Starts a daemon, and waits until it answers."""
        folder = self.folder
        # Another run of pytest closes the folder of all runs when it starts.
        opened(folder.parent)
        options = self.zebra_options() if daemon == "zebra" else []
        with (folder / f"{daemon}.log").open("a") as log:
            self.processes[daemon] = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, FRR / daemon, "-f", folder / f"{daemon}.conf", "-i", folder / f"{daemon}.pid",
                 "-z", folder / "zserv", "--vty_socket", folder, "-P", "0", *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_for(f"{daemon} of {self.name} answers", lambda: self.answers(daemon))

    def answers(self, daemon):
        """Returns true if a daemon answers; fails with its log if it has ended."""
        assert self.processes[daemon].poll() is None, (self.folder / f"{daemon}.log").read_text()[-2000:]
        return "FRRouting" in self.vtysh("show version", daemon=daemon, check=False)

    def vtysh(self, *commands, daemon=None, **kwargs):
        """Returns the answer of `vtysh`."""
        only = ["-d", daemon] if daemon else []
        arguments = [part for command in commands for part in ("-c", command)]
        return self.on("vtysh", "--vty_socket", str(self.folder), *only, *arguments, **kwargs)

    def configure(self, *lines):
        """Changes the configuration of the daemons that run."""
        self.vtysh("configure terminal", *lines)

    def routes(self, version):
        """Returns the routes that zebra has installed: protocol and next hops by prefix."""
        command = "show ip route json" if version == 4 else "show ipv6 route json"
        found = {}
        for prefix, routes in json.loads(self.vtysh(command)).items():
            for route in routes:
                if route.get("selected") and route.get("installed"):
                    hops = {self.hop(hop) for hop in route["nexthops"] if hop.get("active")}
                    found[prefix] = (route["protocol"], frozenset(hops))
        return found

    def state(self):
        """Returns what tells why a router has not converged: its addresses, and its neighbours."""
        shown = [self.vtysh(f"show {of}", check=False) for of in ("ip ospf neighbor", "ipv6 ospf6 neighbor", "bgp summary")]
        return "\n".join([f"{self.name}:", self.on("ip", "-6", "address", check=False), *shown])

    @staticmethod
    def hop(hop):
        """Returns a next hop. Addresses of a link differ from run to run, as MAC addresses do."""
        gateway = hop.get("ip", "")
        return Hop(hop.get("interfaceName", ""), "fe80::" if gateway.startswith("fe80:") else gateway)

    def stop(self):
        """Ends the daemons."""
        for process in reversed(self.processes.values()):
            end(process)
        self.processes.clear()


class Isis:
    """IS-IS in the place of OSPF, before a class of routers: level 2, one topology for both versions of IP (RFC 1195, RFC 5308)."""

    def configurations(self):
        texts = super().configurations()
        del texts["ospfd"], texts["ospf6d"]
        circuit = " ip router isis mr\n ipv6 router isis mr\n"
        links = "".join(f"interface {interface(self.name, peer)}\n{circuit} isis network point-to-point\n isis hello-interval {HELLO_S}\n"
                        f" isis hello-multiplier {DEAD_S // HELLO_S}\n" for peer in self.peers)
        return texts | {"isisd": f"{links}interface lo\n{circuit} isis passive\nrouter isis mr\n"
                                 f" net 49.0001.0000.0000.{number(self.name):04}.00\n is-type level-2-only\n spf-interval 1\n"}


class IsisRouter(Isis, Router):
    """A router of the kernel with IS-IS."""


class Topology:
    """The namespaces, links and daemons, for a `with` statement. `kinds` gives the classes of routers that are not `Router`."""

    def __init__(self, folder, prefix="mr-rt", kinds=None):
        self.names = {name: f"{prefix}-{name}" for name in ROUTERS + HOSTS}
        kinds = kinds or {}
        self.routers = {name: kinds.get(name, Router)(name, self.names[name], folder) for name in ROUTERS}
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(made(*self.names.values()))
            for one, other in BETWEEN:
                # The router that is of another kind makes the link, if there is one.
                first, second = sorted((self.routers[one], self.routers[other]), key=lambda router: router.forwards)
                first.wire(second.name, second.namespace)
            for host in HOSTS:
                self.start_host(host)
            for router in self.routers.values():
                router.prepare()
            for router in self.routers.values():
                stack.callback(router.stop)
                router.start()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start_host(self, host):
        """Connects a host to its router."""
        name = self.names[host]
        router = self.routers[f"r{number(host)}"]
        router.wire(host, name)
        own = interface(host, router.name)
        inside(name, "ip", "link", "set", "lo", "up")
        inside(name, "ip", "link", "set", own, "up")
        for version in (4, 6):
            length = network(host, version).partition("/")[2]
            nodad = ["nodad"] if version == 6 else []
            inside(name, "ip", "address", "add", f"{address(host, version)}/{length}", "dev", own, *nodad)
            inside(name, "ip", f"-{version}", "route", "add", "default", "via", address(host, version, of_router=True))

    def expected(self, router, version):
        """Returns the prefixes that a router learns from others, and the interface of each while no link is cut."""
        length = 32 if version == 4 else 128
        found = {f"{loopback(other, version)}/{length}": other for other in ROUTERS if other != router}
        found |= {network(host, version): f"r{number(host)}" for host in HOSTS if host not in self.routers[router].hosts}
        return {prefix: interface(router, owner) for prefix, owner in found.items()}

    def wait_converged(self, bound=CONVERGED_MAX_S):
        """Waits until each router has a route to each prefix of the others, by the link between the two."""
        def wrong():
            found = set()
            for name, router in self.routers.items():
                for version in (4, 6):
                    routes = router.routes(version)
                    for prefix, wanted in self.expected(name, version).items():
                        _, hops = routes.get(prefix, ("", frozenset()))
                        if {hop.interface for hop in hops} != {wanted}:
                            found.add((name, prefix, tuple(hops)))
            return found

        left = set()

        def is_converged():
            nonlocal left
            left = wrong()
            return not left

        try:
            wait_for("the routers converge", is_converged, bound)
        except AssertionError as error:
            states = "\n".join(self.routers[name].state() for name in sorted({name for name, _, _ in left}))
            raise AssertionError(f"{error}: {sorted(left, key=str)}\n{states}") from None

    def wait_routes(self, router, version, prefix, interfaces, bound=CONVERGED_MAX_S):
        """Waits until a prefix has next hops at exactly these interfaces."""
        def is_so():
            _, hops = self.routers[router].routes(version).get(prefix, ("", frozenset()))
            return {hop.interface for hop in hops} == set(interfaces)

        wait_for(f"{router} has {prefix} at {interfaces}", is_so, bound)

    def tables(self):
        """Returns the routes of all routers, to compare two topologies."""
        return {(name, version): router.routes(version) for name, router in self.routers.items() for version in (4, 6)}

    def inside(self, name, *command, **kwargs):
        """Runs a command in the namespace of a router or a host."""
        return inside(self.names[name], *command, **kwargs)

    def ping(self, source, destination):
        """Returns true if an echo request from a host or router to an address is answered within 2 s."""
        return " 1 received" in inside(self.names[source], "ping", "-q", "-n", "-c", "1", "-W", "2", destination, check=False)

    def lost(self, source, destination, count=1):
        """Returns the numbers of the echo requests from a host or router to an address that are not answered."""
        return unanswered(self.names[source], destination, count, interval=0.005)

    def trace(self, source, destination):
        """Returns the addresses of the routers on the path, and of its end, by packets with a small TTL."""
        path = []
        for ttl in range(1, 10):
            output = inside(self.names[source], "ping", "-n", "-c", "1", "-t", str(ttl), "-W", "2", destination, check=False)
            found = re.search(r"[Ff]rom ([0-9a-f.:]+?):? ", output)
            path.append(found[1] if found else "")
            if path[-1] == destination:
                break
        return path

    def cut(self, one, other):
        """Takes the carrier from the link of two routers, at the end of the first."""
        self.routers[one].set_link(other, up=False)

    def mend(self, one, other):
        """Gives the link its carrier again."""
        self.routers[one].set_link(other, up=True)
