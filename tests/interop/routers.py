"""Members' routers: BIRD 2, FRR's bgpd and GoBGP, in the namespaces of their members.

Their configurations are the templates `demo/exchange/bird.conf`, `frr.conf` and `gobgpd.toml`. `@name@` is a field of the member,
`@peer.name@` a field of a peer; lines between "for each peer" and "end" are repeated.
"""

import json
import pathlib
import re
import shutil
import subprocess
import time

from namespaces import inside
from switches import ROOT, end, wait_for

TEMPLATES = ROOT / "demo" / "exchange"
LOOP = re.compile(r"^[#!] for each peer\n(.*?)^[#!] end\n", re.MULTILINE | re.DOTALL)


def fields(member):
    """Returns the values that a template may name."""
    names = ("name", "asn", "mac", "v4", "v6", "prefix4", "prefix6")
    return {name: str(getattr(member, name)) for name in names}


def render(template, member, peers):
    """Returns a configuration."""
    def replace(text, prefix, values):
        return re.sub(rf"@{prefix}(\w+)@", lambda found: values[found[1]], text)

    def repeat(found):
        return "".join(replace(found[1], r"peer\.", fields(peer)) for peer in peers)

    return replace(LOOP.sub(repeat, template), "", fields(member))


class Router:
    """A router in the namespace of its member, with a session to each of its peers over IPv4 and over IPv6."""

    template = program = ""

    def __init__(self, member, peers, folder):
        self.member, self.peers = member, [peer for peer in peers if peer != member]
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes = []
        self.config = self.folder / self.template
        self.config.write_text(render((TEMPLATES / self.template).read_text(), member, self.peers))

    @classmethod
    def is_installed(cls):
        """Returns true if the program is there."""
        return shutil.which(cls.program) is not None

    def on(self, *command, **kwargs):
        """Runs a command in the member's namespace."""
        return inside(self.member.name, *command, **kwargs)

    def spawn(self, *command):
        """Starts a program in the member's namespace."""
        with (self.folder / "log").open("a") as log:
            self.processes.append(subprocess.Popen(
                ["ip", "netns", "exec", self.member.name, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            end(process)

    def has_died(self):
        """Returns the log if a process of the router has ended."""
        if all(process.poll() is None for process in self.processes):
            return None
        return (self.folder / "log").read_text()[-2000:]


class Bird(Router):
    """BIRD 2."""

    template, program, name = "bird.conf", "bird", "BIRD 2"

    def start(self):
        self.spawn("bird", "-f", "-c", self.config, "-s", self.folder / "control", "-P", self.folder / "pid")

    def control(self, *command, **kwargs):
        """Returns the answer of `birdc`."""
        return self.on("birdc", "-s", self.folder / "control", *command, **kwargs)

    def established(self):
        """Returns the number of sessions that are established."""
        lines = self.control("show", "protocols", check=False).splitlines()
        return sum(line.startswith("as") and "Established" in line for line in lines)

    def routes(self):
        """Returns the number of prefixes received from peers."""
        text = self.control("show", "route", "count", check=False)
        return sum(int(found) for found in re.findall(r"(\d+) of \d+ routes for", text)) - 2

    def add_to_config(self, text):
        """Adds lines to the configuration, and makes the router read it."""
        self.change_config(self.config.read_text() + text)

    def remove_from_config(self, text):
        """Removes lines that were added, and makes the router read the rest."""
        self.change_config(self.config.read_text().replace(text, ""))

    def change_config(self, text):
        """Makes the router read another configuration."""
        self.config.write_text(text)
        answer = self.control("configure")
        assert "econfigur" in answer, answer


class Frr(Router):
    """FRR's bgpd, without zebra: it has its routes in memory only."""

    template, program, name = "frr.conf", "/usr/lib/frr/bgpd", "FRR"

    def start(self):
        # FRR gives its files to its own user.
        self.folder.chmod(0o777)
        self.spawn(self.program, "--no_zebra", "--skip_runas", "--config_file", self.config, "--pid_file", self.folder / "pid",
                   "--vty_socket", self.folder, "--vty_port", "0", "--log", "stdout", "--log-level", "warnings")

    def control(self, command, **kwargs):
        """Returns the answer of `vtysh`."""
        return self.on("vtysh", "--vty_socket", self.folder, "-c", command, **kwargs)

    def peers_of(self, family):
        """Returns the state of the sessions of an address family, by address."""
        text = self.control(f"show bgp {family} unicast summary json", check=False)
        try:
            return json.loads(text).get("peers", {})
        except json.JSONDecodeError:
            return {}

    def established(self):
        """Returns the number of sessions that are established."""
        return sum(peer["state"] == "Established" for family in ("ipv4", "ipv6") for peer in self.peers_of(family).values())

    def routes(self):
        """Returns the number of prefixes received from peers."""
        return sum(peer.get("pfxRcd", 0) for family in ("ipv4", "ipv6") for peer in self.peers_of(family).values())


class GoBgp(Router):
    """GoBGP."""

    template, program, name = "gobgpd.toml", "gobgpd", "GoBGP"

    def start(self):
        self.spawn("gobgpd", "-f", self.config, "--api-hosts", "127.0.0.1:50051", "--log-plain", "--log-level", "warn")

        def is_added():
            assert self.has_died() is None, self.has_died()
            self.control("global", "rib", "add", self.member.prefix4)
            self.control("global", "rib", "add", "-a", "ipv6", self.member.prefix6)
            return True

        def try_to_add():
            try:
                return is_added()
            except AssertionError:
                return False

        wait_for("GoBGP takes the member's prefixes", try_to_add)

    def control(self, *command, **kwargs):
        """Returns the answer of `gobgp`."""
        return self.on("gobgp", *command, **kwargs)

    def neighbours(self):
        """Returns the neighbours, as GoBGP prints them."""
        try:
            return json.loads(self.control("-j", "neighbor", check=False)) or []
        except json.JSONDecodeError:
            return []

    def established(self):
        """Returns the number of sessions that are established."""
        return sum(neighbour["state"].get("session_state") == 6 for neighbour in self.neighbours())

    def routes(self):
        """Returns the number of prefixes received from peers."""
        families = [family["state"] for neighbour in self.neighbours() for family in neighbour.get("afi_safis", [])]
        return sum(family.get("received", 0) for family in families)


KINDS = {"bird": Bird, "frr": Frr, "gobgp": GoBgp}


def wait_established(routers, bound=60):
    """Waits until every session of every router is established; returns the number of sessions."""
    waiting = set(routers)

    def are_established():
        for router in list(waiting):
            assert router.has_died() is None, router.has_died()
            if router.established() == 2 * len(router.peers):
                waiting.discard(router)
        time.sleep(0.2 if waiting else 0)
        return not waiting

    wait_for(f"sessions are established ({len(routers)} routers)", are_established, bound)
    return sum(2 * len(router.peers) for router in routers) // 2
