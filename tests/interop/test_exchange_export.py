"""An exchange as text, applied to an empty database and empty switches: the switches get the same entries but for numbers, and a second
`apply` sends them nothing.

The short form has 100 services. `make exchange-check` has gate A40 (docs/gates.md) with 10,000.
"""

import contextlib
import json
import os
import random
import re

import pytest

from exchange import Control, Exchange
from fabrics import switch_config, trunk_ports
from sites import Site, Wire
from switches import wait_for
from test_exchange_load import SERVICES, exchange_file

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
# Operations before the export, so that numbers have gaps: a share of the services is deleted, made, moved or shut down.
CHANGES = SERVICES // 10
SEED = 40
# The width of the fields in the metadata: service, by trunk, in, out (crates/exchange/ix-plan/src/layout.rs).
IN_BITS, OUT_BITS = 19, 20
# Numbers from here on are not those of ends, and made of the numbers of trunks.
PROBE_METERS = 1 << 29


@contextlib.contextmanager
def running(folder, file, ports):
    """An engine with an empty database and two empty switches, to which a file was applied."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(Wire("north"))
        exchange = stack.enter_context(Exchange(folder / "ix"))
        members = {number: (f"m{number}", f"link:l{at // 2}") for at, number in enumerate(ports)}
        switches = []
        for dpid, (site, end) in enumerate((("one", "a"), ("two", "b")), 1):
            config = switch_config(dpid, {**members, **trunk_ports(end)}, bfd=False)
            switches.append(stack.enter_context(Site(folder / site, config, exchange.target)))
        exchange.ask("apply", file, timeout=600)
        exchange.wait_in_sync(600)
        for switch in switches:
            wait_for("the trunk is up", lambda switch=switch: switch.is_live("north"))
        yield exchange, switches


def change_randomly(exchange):
    """Deletes, makes, moves and shuts down services."""
    rng = random.Random(SEED)
    ends = {}
    for end in exchange.objects("nc").values():
        ends.setdefault(end["service"], []).append(end)
    services = list(exchange.objects("sv").values())
    rng.shuffle(services)
    with Control(exchange.socket) as control:
        for number, service in enumerate(services[:CHANGES]):
            one, two = ends[service["id"]]
            if number % 4 == 0:
                control.order({"operation": "delete", "target": service["id"]})
                # The new one gets other numbers: those that became free rest.
                made = [{"operation": "create_service", "account": service["account"], "kind": "p2p_vc", "name": f"again {number}",
                         "peer": service["peer"]}]
                made += [{"operation": "configure_end", "service": "sv-0", "connection": end["connection"],
                          "vlan": {"type": "dot1q", "vlan": 3000 + number}, "capacity_mbps": 2} for end in (one, two)]
                control.order(*made)
            elif number % 4 == 1:
                vlan = {"type": "dot1q", "vlan": 3000 + number}
                control.order({"operation": "move_end", "config": one["id"], "connection": one["connection"], "vlan": vlan})
            elif number % 4 == 2:
                control.order({"operation": "shut_down", "config": two["id"], "shut_down": True})
            else:
                control.order({"operation": "delete", "target": service["id"]})
    exchange.wait_in_sync(300)


class Names:
    """The names behind the numbers that an exchange has given its objects."""

    def __init__(self, exchange):
        connections = {id: (one["account"], one["name"]) for id, one in exchange.objects("cn").items()}
        accounts = {id: one["name"] for id, one in exchange.objects("ac").items()}
        services = exchange.objects("sv")
        self.services = {one["index"]: one["name"] for one in services.values()}
        self.wires = {one["wire_id"]: one["name"] for one in services.values() if one["wire_id"] is not None}
        self.groups = {one["group"]: one["name"] for one in exchange.objects("sw").values()}
        self.trunks = [int(id.removeprefix("tr-")) for id in exchange.objects("tr")]
        self.ends, self.meters = {}, {}
        for end in exchange.objects("nc").values():
            account, name = connections[end["connection"]]
            text = f"{accounts[account]}/{name}/{json.dumps(end['vlan'], sort_keys=True)}"
            service = services[end["service"]]
            self.ends[service["index"], end["index"]] = text
            self.meters[end["meter"]] = f"{service['name']}: {text}"

    def of_metadata(self, value, mask):
        """Returns the fields of a word of metadata by name; those that the mask leaves out are absent."""
        service, rest = value >> (IN_BITS + OUT_BITS + 1), value & ((1 << (IN_BITS + OUT_BITS + 1)) - 1)
        trunk, entered, out = rest >> (IN_BITS + OUT_BITS), rest >> OUT_BITS & ((1 << IN_BITS) - 1), rest & ((1 << OUT_BITS) - 1)

        def end(number):
            return self.ends[service, number] if number else "-"
        if service == 0 and out and mask == (1 << OUT_BITS) - 1:
            # Table 3 or 4 writes the end by which a frame leaves; the service is that of the match.
            return lambda of: f"out={self.ends[of, out]}"
        # Frames that came by trunk have the generation of the path in the place of the end by which they entered.
        return f"{self.services.get(service, service)}|{trunk}|{'-' if trunk else end(entered)}|{end(out)}"

    def of_meter(self, number):
        if number >= PROBE_METERS:
            return f"probes of trunk {self.trunks.index(number - PROBE_METERS)}" if number - PROBE_METERS in self.trunks else "probes"
        return self.meters[number]

    def entry(self, line):
        """Returns an entry of `ovs-ofctl dump-flows` without cookie and counters, and with names in the place of numbers."""
        text = re.sub(r"(cookie|duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*, ?", "", line).strip()
        matched = re.search(r"[ ,]metadata=(0x[0-9a-f]+)", text)
        of = int(matched[1], 16) >> (IN_BITS + OUT_BITS + 1) if matched else 0

        def metadata(found):
            value, mask = (int(part, 16) if part else (1 << 64) - 1 for part in (found[2], found[3]))
            name = self.of_metadata(value, mask)
            return f"{found[1]}={name(of) if callable(name) else name}/{found[3]}"
        text = re.sub(r"(write_metadata|metadata)[=:](0x[0-9a-f]+)(?:/(0x[0-9a-f]+))?", metadata, text)
        text = re.sub(r"meter:(\d+)", lambda found: f"meter:{self.of_meter(int(found[1]))}", text)
        text = re.sub(r"group:(\d+)", lambda found: f"group:{self.groups[int(found[1])]}", text)
        text = re.sub(r"set_field:(0x[0-9a-f]+)->tun_id", r"tun_id=\1", text)
        return re.sub(r"tun_id=(0x[0-9a-f]+)", lambda found: f"tun_id={self.wires.get(int(found[1], 16), found[1])}", text)

    def contents(self, switch):
        """Returns the entries, groups and meters of a switch by name."""
        entries = sorted(self.entry(line) for line in switch.ofctl("dump-flows", timeout=300).splitlines() if "n_packets" in line)
        groups = sorted(re.sub(r"group_id=(\d+)", lambda found: f"group_id={self.groups[int(found[1])]}", line.strip())
                        for line in switch.ofctl("dump-groups").splitlines() if "group_id=" in line)
        text = switch.ofctl("dump-meters", timeout=300)
        meters = sorted((self.of_meter(int(number)), kind, " ".join(bands.split()))
                        for number, kind, bands in re.findall(r"meter=(\d+) (\w+) [^\n]*\n((?:type=[^\n]*\n?)+)", text))
        assert meters
        return entries, groups, meters


def test_an_export_fills_empty_switches_with_the_same_entries_and_applied_again_changes_nothing(tmp_path):
    text, ports = exchange_file()
    file, exported = tmp_path / "exchange.toml", tmp_path / "exported.toml"
    file.write_text(text)
    with running(tmp_path / "first", file, ports) as (exchange, switches):
        change_randomly(exchange)
        exported.write_text(exchange.command("export", timeout=600))
        names = Names(exchange)
        numbers = names.services
        before = [names.contents(switch) for switch in switches]
    # An empty exchange has another revision than the one that the text comes from.
    whole = re.sub(r"\[base\]\n(?:\w+ = .*\n)+", "", exported.read_text())
    exported.write_text(whole)
    with running(tmp_path / "second", exported, ports) as (exchange, switches):
        names = Names(exchange)
        after = [names.contents(switch) for switch in switches]
        assert names.services != numbers, "the numbers are others"
        for site, one, other in zip(("one", "two"), before, after):
            for kind, mine, theirs in zip(("entries", "groups", "meters"), one, other):
                differing = set(mine) ^ set(theirs)
                assert mine == theirs, f"{len(differing)} {kind} of {site} differ, such as {sorted(differing)[:4]}"

        def durable():
            return exchange.log.read_text().count("commit switch="), [
                sorted(re.sub(r"(duration|n_packets|n_bytes)=[^,]*, ?", "", line) for line in switch.ofctl("dump-flows", timeout=300).splitlines()[1:])
                for switch in switches]
        sent = durable()
        again = exchange.ask("apply", exported, timeout=600)
        exchange.wait_in_sync(60)
        assert durable() == sent, f"the second apply changed something: {again}"
        count = sum(len(entries) for entries, _, _ in before)
        print(f"{len(names.services)} services, {count} entries in both switches: the same in empty ones; applied again: nothing sent")
