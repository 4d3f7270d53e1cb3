"""Two sites of an exchange on one machine: a `millraced` for each, trunks between them, and members' routers in namespaces.

```text
 namespace aoba            this namespace                                         namespace castor
 lan --- aoba-lan  [ millraced of Otemachi ]  north-a == north-b  [ millraced of Makuhari ]  castor-lan --- lan
                                              south-a == south-b
```

The connections of an exchange file are named MEMBER-INTERFACE: `aoba-lan` is the switch's end of a link, and `lan` its other end,
in the namespace `aoba`. A trunk has a kernel bridge in its middle, which can drop silently.
"""

import contextlib
import dataclasses
import json
import pathlib
import tomllib

from namespaces import inside, made
from switches import TARGET, Millrace, run, wait_for

TRUNK_MTU = 1700
# The namespace of the engine, if it has an address in the peering LAN, and both ends of the network between it and the switches.
ENGINE = "ix"
MANAGEMENT = ("10.255.0.1", "10.255.0.2")


def ip_batch(*lines, namespace=None):
    """Executes commands of ip(8)."""
    where = ["-n", namespace] if namespace else []
    run("ip", *where, "-batch", "-", input="\n".join(lines) + "\n")


@contextlib.contextmanager
def quiet_ipv6():
    """Makes new interfaces of this namespace send nothing by themselves."""
    knob = pathlib.Path("/proc/sys/net/ipv6/conf/default/disable_ipv6")
    before = knob.read_text()
    knob.write_text("1")
    try:
        yield
    finally:
        knob.write_text(before)


@dataclasses.dataclass(frozen=True)
class Member:
    """A member of the peering LAN, as the exchange file describes it."""

    name: str  # the namespace
    account: str
    asn: int
    mac: str
    switch: str
    v4: str
    v6: str = ""

    @property
    def number(self):
        """Returns the last part of the IPv4 address."""
        return int(self.v4.rsplit(".", 1)[1])

    @property
    def prefix4(self):
        """Returns the prefix that the member announces."""
        return f"198.18.{self.number}.0/24"

    @property
    def prefix6(self):
        """Returns the IPv6 prefix that the member announces."""
        return f"2001:db8:{self.number:x}::/48"


def members(document):
    """Returns the members of the peering LAN of an exchange file, if it has one."""
    switches = {(one["account"], one["name"]): one["ports"][0].split(":")[0] for one in document["connection"]}
    lans = [service for service in document.get("service", []) if service["kind"] == "exchange_lan"]
    return [
        Member(end["connection"][1].split("-")[0], end["connection"][0], end["asns"][0], end["macs"][0],
               switches[tuple(end["connection"])], *end["ips"])
        for lan in lans for end in lan["end"]
    ]


class Wire:
    """A trunk's fibre: a kernel bridge between two links, so that it can also fail without a sign."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        lines = [f"link add {self.name} mtu {TRUNK_MTU} type bridge mcast_snooping 0", f"link set {self.name} up"]
        for end in "ab":
            lines += [
                f"link add {self.name}-{end} mtu {TRUNK_MTU} type veth peer name {self.name}-t{end} mtu {TRUNK_MTU}",
                f"link set {self.name}-t{end} master {self.name} up",
                f"link set {self.name}-t{end} type bridge_slave learning off",
                f"link set {self.name}-{end} up",
            ]
        ip_batch(*lines)
        return self

    def __exit__(self, *_):
        for link in (f"{self.name}-a", f"{self.name}-b", self.name):
            run("ip", "link", "del", link, check=False)

    def carried(self):
        """Returns the number of frames that have come from the first end."""
        return int(pathlib.Path(f"/sys/class/net/{self.name}-ta/statistics/rx_packets").read_text())

    def cut(self):
        """Takes the carrier away from both ends."""
        ip_batch(f"link set {self.name}-ta down", f"link set {self.name}-tb down")

    def mend(self):
        """Gives the carrier back, and returns when the fibre carries frames: it loses those that come between."""
        ip_batch(f"link set {self.name}-ta up", f"link set {self.name}-tb up")
        for end in "ab":
            wait_for("the fibre carries frames", lambda end=end: self._state(end) == "forwarding")

    def _state(self, end):
        """Returns the state of a port of the kernel's bridge."""
        [link] = json.loads(run("ip", "-j", "-d", "link", "show", f"{self.name}-t{end}"))
        return link["linkinfo"]["info_slave_data"]["state"]

    def silence(self, end, silent=True):
        """Drops all frames towards an end, whose carrier stays; or lets them pass again."""
        flood = "off" if silent else "on"
        ip_batch(f"link set {self.name}-t{end} type bridge_slave flood {flood} mcast_flood {flood} bcast_flood {flood}")


class Site(Millrace):
    """A `millraced` with a configuration of its own, in which FOLDER and CONTROLLER are filled in."""

    def __init__(self, folder, config, controller, namespace=None):
        super().__init__(folder)
        self.config.write_text(config.replace("FOLDER", str(self.folder)).replace("CONTROLLER", controller))
        if namespace:
            self.command = ["ip", "netns", "exec", namespace, *self.command]

    def ofctl(self, command, *arguments, **kwargs):
        """Returns the output of `ovs-ofctl`."""
        return run("ovs-ofctl", "-O", "OpenFlow13", command, f"unix:{self.folder}/openflow.sock", *arguments, **kwargs)

    def is_live(self, port):
        """Returns true if groups may use a port."""
        text = self.ofctl("show")
        return "LIVE" in text[text.index(f"({port}):") :].split("state:", 1)[1].splitlines()[0]

    def entries(self, table=255, cookie=None):
        """Returns the entries of a table, or of all, as dictionaries of cookie, packets and text."""
        found = []
        for line in self.ofctl("dump-flows", *([f"table={table}"] if table != 255 else [])).splitlines():
            fields = dict(part.split("=", 1) for part in line.replace(",", " ").split() if "=" in part)
            if "n_packets" in fields and cookie in (None, int(fields["cookie"], 16)):
                found.append({"cookie": int(fields["cookie"], 16), "packets": int(fields["n_packets"]), "text": line.strip()})
        return found


class Sites:
    """The links, trunks and namespaces of an exchange file. The daemons are started by the caller."""

    def __init__(self, document):
        self.document = document
        # The engine's own address in the LAN, if the file has one, is not a member's.
        self.members = [member for member in members(document) if member.name != ENGINE]
        self.hosts = [member for member in members(document) if member.name == ENGINE]
        self.wires = {trunk["name"]: Wire(trunk["name"]) for trunk in document["trunk"]}
        self.links = [one["name"] for one in document["connection"]]
        self.stack = contextlib.ExitStack()

    @classmethod
    def of_file(cls, path):
        """Returns the sites of an exchange file."""
        return cls(tomllib.loads(pathlib.Path(path).read_text()))

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(quiet_ipv6())
            spaces = sorted({link.split("-")[0] for link in self.links})
            self.stack.enter_context(made(*spaces))
            self.stack.callback(lambda: [run("ip", "link", "del", link, check=False) for link in self.links])
            for wire in self.wires.values():
                self.stack.enter_context(wire)
            lines = []
            for link in self.links:
                space, interface = link.split("-")
                lines += [f"link add {link} type veth peer name {interface} netns {space}", f"link set {link} up"]
            ip_batch(*lines)
            for space in spaces:
                ip_batch("link set lo up", namespace=space)
            for member in self.members + self.hosts:
                self.on(member, "sysctl", "-q", "-w", "net.ipv6.conf.lan.router_solicitations=0",
                        *([] if member.v6 else ["net.ipv6.conf.lan.disable_ipv6=1"]))
                addresses = [f"address add {member.v4}/24 dev lan"]
                addresses += [f"address add {member.v6}/64 dev lan nodad"] if member.v6 else []
                ip_batch(f"link set lan address {member.mac}", "link set lan up", *addresses, namespace=member.name)
            if ENGINE in spaces:
                ours, theirs = MANAGEMENT
                ip_batch(f"link add mgmt type veth peer name mgmt netns {ENGINE}", f"address add {ours}/30 dev mgmt",
                         "link set mgmt up")
                self.stack.callback(run, "ip", "link", "del", "mgmt", check=False)
                ip_batch(f"address add {theirs}/30 dev mgmt", "link set mgmt up", namespace=ENGINE)
        return self

    def __exit__(self, *_):
        self.stack.close()

    def on(self, member, *command, **kwargs):
        """Runs a command in the namespace of a member."""
        return inside(getattr(member, "name", member), *command, **kwargs)


def waive_quarantine(exchange, reason, connections=None):
    """Admits the ends in quarantine, or those of some connections, as an operator."""
    names = {id: one["name"] for id, one in exchange.objects("cn").items()}
    waiting = [end for end, config in exchange.objects("nc").items()
               if config["quarantine"]["phase"] == "running" and (not connections or names[config["connection"]] in connections)]
    if waiting:
        exchange.order(*({"operation": "waive_quarantine", "config": end, "reason": reason} for end in waiting))
    return len(waiting)


__all__ = ["ENGINE", "MANAGEMENT", "TARGET", "Member", "Site", "Sites", "Wire", "members", "waive_quarantine"]
