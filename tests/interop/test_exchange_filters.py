"""Filters that members order by BGP: RTBH and Flowspec from real routers become entries in the switches of both sites, if
the member may filter, and are removed with their routes. The tests with interfaces need root."""

import collections
import ipaddress
import json
import os
import random
import re
import shutil
import statistics
import time

import pytest
import scapy.all as scapy

import flowspec
import namespaces
import routing
from exchange import Control, Exchange
from switches import Millrace, free_port, wait_for
from test_exchange import socket_on

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="virtual Ethernet needs root")
LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
PAIRS = [("flt-v", "flt-sv"), ("flt-a", "flt-sa"), ("flt-b", "flt-sb"), ("flt-t1", "flt-t2")]
NETWORK, VICTIM, BESIDE = "203.0.113.0/24", "203.0.113.7", "203.0.113.8"
NETWORK6 = "2001:db8:113::/48"
# An address that no rule of the tests concerns.
OUTSIDE = "192.0.2.99"


class World:
    """Two switches with a trunk. The victim is at site 1 with VLAN 101 for the attacker at its own site, and VLAN 102 for the one
    at the other."""

    def __init__(self, folder, sections):
        self.exchange = Exchange(folder / "ix", engine="match_extensions = true\n" + sections)
        self.folder = folder
        self.stack = []

    def __enter__(self):
        exchange = self.exchange
        for manager in (namespaces.cables(*PAIRS), exchange):
            manager.__enter__()
            self.stack.append(manager)
        ports = {1: [(1, "kernel:flt-sv"), (2, "kernel:flt-sa"), (9, "kernel:flt-t1")],
                 2: [(1, "kernel:flt-sb"), (9, "kernel:flt-t2")]}
        self.switches = {}
        for number, devices in ports.items():
            switch = Millrace(self.folder / f"switch{number}", ports=devices, controllers=[exchange.target])
            switch.config.write_text(switch.config.read_text().replace('"0000000000000001"', f'"{number:016x}"'))
            switch.__enter__()
            self.stack.append(switch)
            self.switches[number] = switch
        _, one = exchange.create_site("Otemachi", 1, [1, 2, 9])
        _, two = exchange.create_site("Makuhari", 2, [1, 9])
        exchange.order({"operation": "create_trunk", "name": "north", "kind": "s_tag", "ends": [f"{one}:9", f"{two}:9"],
                        "capacity_mbps": 1000, "mtu": 1700})
        created = exchange.order(
            {"operation": "create_account", "name": "V", "kind": "member", "asns": [routing.ASN], "as_set": "AS-V"},
            {"operation": "create_connection", "account": "ac-0", "name": "v", "kind": "standalone", "ports": [f"{one}:1"]},
        )["applied"]["created"]
        self.account, victim = (next(id for id in created if id.startswith(kind)) for kind in ("ac-", "cn-"))
        for vlan, (name, port) in {101: ("A", f"{one}:2"), 102: ("B", f"{two}:1")}.items():
            attacker, [connection] = exchange.create_member(name, port)
            exchange.order(
                {"operation": "create_service", "account": self.account, "kind": "p2p_vc", "name": name, "peer": attacker},
                {"operation": "configure_end", "service": "sv-0", "connection": victim, "vlan": {"type": "dot1q", "vlan": vlan}},
                {"operation": "configure_end", "service": "sv-0", "connection": connection, "vlan": {"type": "port"}})
        exchange.wait_in_sync()
        self.victim, self.a, self.b = (socket_on(name) for name in ("flt-v", "flt-a", "flt-b"))
        return self

    def __exit__(self, *error):
        for manager in reversed(self.stack):
            manager.__exit__(None, None, None)

    def filters(self):
        """Returns the filters by identifier."""
        return self.exchange.objects("fi")

    def states(self):
        """Returns state and comment of each filter of BGP."""
        return sorted((filter["state"]["name"], filter["comment"]) for filter in self.filters().values())

    def refusals(self):
        """Returns the number of refused filters by the code of their reason."""
        states = (filter["state"] for filter in self.filters().values())
        return collections.Counter(state["coded"][0]["code"] for state in states if state["name"] == "refused")

    def session(self, speaker):
        return next(one for one in self.exchange.ask("sessions") if one["peer"] == speaker.address)

    def wait_session(self, speaker):
        wait_for(f"{speaker.name}: {speaker.log}", lambda: self.session(speaker)["state"] == "established", bound=60)

    def check_passes(self, destination):
        """Fails if a packet to a destination does not arrive from an ingress."""
        for name, sender in (("A", self.a), ("B", self.b)):
            mark = send_marked(sender, destination)
            assert namespaces.receive(self.victim, lambda frame, mark=mark: mark in frame), (name, self.states())

    def check_drops(self, destination):
        """Fails if a packet to a destination arrives from an ingress ahead of one that nothing filters."""
        for name, sender in (("A", self.a), ("B", self.b)):
            mark, behind = send_marked(sender, destination), send_marked(sender, BESIDE)
            got = namespaces.receive(self.victim, lambda frame, marks=(mark, behind): any(one in frame for one in marks))
            assert got and behind in got, (name, got, self.states())

    def wait_in_place(self, control, number):
        """Waits until there are so many filters, and both switches have confirmed the change. It asks over a connection of its own: a
        listing of a switch by ovs-ofctl takes half a second on a busy machine, which is not the time of a filter."""
        def is_in_place():
            return len(control.ask("objects", prefix="fi")) == number and not control.ask("status")["changes"]
        wait_for(f"{number} filters in place", is_in_place)

    def wait_entries(self, number, bound=60):
        """Waits until each switch has this number of filter entries; a failure shows filters, sessions and entries."""
        try:
            wait_for(f"{number} entries", lambda: self.entries() == [number, number], bound)
        except AssertionError as error:
            shown = [line for line in self.switches[1].ofctl("dump-flows").splitlines() if "table=5" in line]
            raise AssertionError(f"{error}: {self.entries()} {self.states()} {self.exchange.ask('sessions')} {shown}") from error

    def counts(self):
        """Returns the packets of each filter, over all of its entries in both switches, ascending, without zeros."""
        found = collections.Counter()
        for switch in self.switches.values():
            for line in switch.ofctl("dump-flows").splitlines():
                if "table=5" in line and "cookie=0x585" in line:
                    fields = dict(part.split("=", 1) for part in line.replace(",", " ").split() if "=" in part)
                    found[int(fields["cookie"], 16) >> 20 & 0xffff_ffff] += int(fields["n_packets"])
        return sorted(filter(None, found.values()))

    def entries(self):
        """Returns the number of filter entries of each switch: 0x58 is the owner in a cookie, and 5 the kind of a filter."""
        dumps = [switch.ofctl("dump-flows") for switch in self.switches.values()]
        return [sum("table=5" in line and "cookie=0x585" in line for line in dump.splitlines()) for dump in dumps]


def send_marked(sender, destination):
    """Sends a packet with a mark, and returns the mark."""
    mark = os.urandom(8).hex().encode()
    sender.send(bytes(scapy.Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:01") / scapy.IP(src="198.51.100.9", dst=destination)
                      / scapy.UDP(sport=123, dport=4000) / mark))
    return mark


def present(speakers):
    return [speaker for speaker in speakers if speaker.is_installed()]


def test_a_blackhole_of_each_speaker_drops_at_both_ingresses_until_it_is_withdrawn(tmp_path):
    speakers = present(routing.SPEAKERS if LONG else routing.SPEAKERS[:3])
    assert speakers, "none of bird, exabgp and gobgpd is installed: run scripts/setup.sh"
    port, rounds = free_port(), 20 if LONG else 3
    with routing.Registry() as registry:
        registry.sets["AS-V"], registry.origins[routing.ASN] = ["AS64501"], [NETWORK]
        sections = routing.settings(port, {speaker.address: "V" for speaker in speakers}, registry)
        with World(tmp_path, sections) as world, Control(world.exchange.socket) as control:
            world.check_passes(VICTIM)
            for kind in speakers:
                with kind(tmp_path / kind.name, port) as speaker:
                    speaker.announce(NETWORK)
                    world.wait_session(speaker)
                    down, up = [], []
                    for _ in range(rounds):
                        started = time.monotonic()
                        speaker.announce(f"{VICTIM}/32", "65535:666")
                        world.wait_in_place(control, 1)
                        down.append(time.monotonic() - started)
                        assert world.entries() == [1, 1]
                        world.check_drops(VICTIM)
                        world.check_passes(BESIDE)
                        assert world.states() == [("active", f"blackhole {VICTIM}/32")]
                        started = time.monotonic()
                        speaker.withdraw(f"{VICTIM}/32")
                        world.wait_in_place(control, 0)
                        up.append(time.monotonic() - started)
                        assert world.entries() == [0, 0]
                        world.check_passes(VICTIM)
                    print(f"{kind.name}: dropped after {statistics.median(down) * 1000:.0f} ms (worst {max(down) * 1000:.0f}), "
                          f"passes after {statistics.median(up) * 1000:.0f} ms (worst {max(up) * 1000:.0f})")
                    if LONG:
                        assert sorted(down)[int(len(down) * 0.95) - 1] < 1 and sorted(up)[int(len(up) * 0.95) - 1] < 1
                    # The session ends by a notification: its filters go at once.
                    speaker.announce(f"{VICTIM}/32", "65535:666")
                    world.wait_entries(1)
                    changes = world.exchange.ask("changes")[0]["id"]
                    # The same route again changes nothing.
                    if kind is routing.ExaBgp:
                        speaker.changed(f"{VICTIM}/32", True)
                        time.sleep(0.3)
                        assert world.exchange.ask("changes")[0]["id"] == changes
                    speaker.withdraw(f"{VICTIM}/32")
                    world.wait_entries(0)


def ownership_oracle(destination, world):
    """Says who may filter, without the engine's code: returns `allowed`, or the kind of object that is missing."""
    target = ipaddress.ip_network(destination)

    def covers(prefix):
        prefix = ipaddress.ip_network(prefix)
        return prefix.version == target.version and target.subnet_of(prefix)
    asns = {routing.ASN, *world["set"]}
    payloads = [asn for prefix, _, asn in world["payloads"] if covers(prefix)]
    if payloads:
        if not asns & set(payloads):
            return "ROA"
    elif not any(covers(prefix) for asn in asns for prefix in world["origins"].get(asn, [])):
        return "object or ROA"

    def is_invalid(prefix):
        length = ipaddress.ip_network(prefix).prefixlen
        wider = [(bits, asn) for other, bits, asn in world["payloads"]
                 if ipaddress.ip_network(other).version == ipaddress.ip_network(prefix).version
                 and ipaddress.ip_network(prefix).subnet_of(ipaddress.ip_network(other))]
        return bool(wider) and not any(asn == routing.ASN and length <= bits for bits, asn in wider)
    if not any(covers(prefix) and not is_invalid(prefix) for prefix in world["live"]):
        return "BGP route"
    return "allowed"


def test_ownership_by_roas_route_objects_and_live_routes_equals_an_oracle(tmp_path):
    """300 cases: worlds of payloads, route objects and routes, each with destinations inside and outside of them."""
    rng = random.Random(21)
    speakers = present((routing.ExaBgp, routing.Bird))
    assert speakers and shutil.which("stayrtr"), "install exabgp and stayrtr: run scripts/setup.sh"
    port = free_port()
    with routing.Registry() as registry, routing.StayRtr(tmp_path / "rtr") as cache:
        registry.sets["AS-V"] = ["AS64501", "AS64510"]
        sections = routing.settings(port, {speakers[0].address: "V"}, registry, [cache])
        with Exchange(tmp_path / "ix", engine=sections) as exchange, speakers[0](tmp_path / "speaker", port) as speaker:
            [account] = exchange.order({"operation": "create_account", "name": "V", "kind": "member",
                                        "asns": [routing.ASN], "as_set": "AS-V"})["applied"]["created"]
            wait_for("a session", lambda: exchange.ask("sessions")[0]["state"] == "established", bound=60)
            bases = [f"203.{number}.0.0/16" for number in range(6)] + [f"2001:db8:{number:x}::/48" for number in range(3)]
            cases, verdicts, wrong = 0, {}, []
            worlds, per_world = (20, 40) if LONG else (5, 60)
            for number in range(worlds):
                def some(longest):
                    base = rng.choice(bases)
                    if ":" in base:
                        return base if longest < 24 else f"{base[:-4]}{rng.randrange(4):x}::/64".replace("::/48", "")
                    return base if longest < 24 else f"{base.rsplit('.', 2)[0]}.{rng.randrange(4)}.0/24"
                world = {
                    "set": [64501, 64510],
                    "payloads": [(prefix, int(prefix.split("/")[1]) + rng.choice([0, 0, 8]), rng.choice([64501, 64510, 64999]))
                                 for prefix in {some(rng.choice([16, 24])) for _ in range(5)}],
                    "origins": {asn: [some(rng.choice([16, 24])) for _ in range(3)] for asn in (64501, 64510, 64999)},
                    "live": sorted({some(rng.choice([16, 24])) for _ in range(5)}),
                }
                registry.origins = world["origins"]
                cache.write(world["payloads"])
                cache.process.send_signal(1)
                for prefix in list(speaker.routes):
                    speaker.withdraw(prefix)
                for prefix in world["live"]:
                    speaker.announce(prefix)
                marker = f"10.{number}.0.0/16"
                speaker.announce(marker)
                wait_for("the routes", lambda: exchange.ask("sessions")[0]["prefixes"] == len(world["live"]) + 1, bound=60)
                exchange.command("recheck", account)
                for _ in range(per_world):
                    base = rng.choice(bases)
                    if ":" in base:
                        destination = f"{base[:-4]}{rng.randrange(4):x}:{rng.randrange(9):x}::1/128"
                    else:
                        destination = f"{base.rsplit('.', 2)[0]}.{rng.randrange(5)}.{rng.randrange(255)}/32"
                    expected = ownership_oracle(destination, world)

                    # The cache, the registry and the session of a new world take effect within seconds.
                    def settled(destination=destination, expected=expected):
                        found = exchange.ask("check-filter", account, f'{{"destination": "{destination}"}}')
                        kind = "allowed" if found["allowed"] else found["missing"] or found["reason"]
                        return kind if expected in kind else None
                    try:
                        kind = wait_for(destination, settled, bound=60)
                    except AssertionError as error:
                        wrong.append((destination, expected, str(error)[-300:], world))
                        assert len(wrong) < 3, wrong
                    cases += 1
                    verdicts[expected] = verdicts.get(expected, 0) + 1
            print(f"{cases} cases: {verdicts}")
            assert not wrong, wrong[:3]
            assert len(verdicts) == 4, verdicts


def test_an_as_set_is_asked_for_in_its_registry_and_one_that_nobody_has_is_named(tmp_path):
    port = free_port()
    with routing.Registry() as registry:
        registry.sets = {("RADB", "AS-V"): ["AS64599"], ("RIPE", "AS-V"): ["AS64510"], ("RADB", "AS-W"): ["AS64520"]}
        with Exchange(tmp_path, engine=routing.settings(port, {}, registry)) as exchange:
            for name, asn, as_set, expected in (("V", 64501, "RIPE::AS-V", {64501, 64510}), ("W", 64502, "AS-W", {64502, 64520}),
                                                ("X", 64503, "RIPE::AS-W", {64503}), ("Y", 64504, "ARIN::AS-W", {64504})):
                registry.queries.clear()
                exchange.order({"operation": "create_account", "name": name, "kind": "member", "asns": [asn], "as_set": as_set})
                wait_for(f"the queries about {as_set}", lambda: "!q" in registry.queries)
                assert {int(query[4:]) for query in registry.queries if query.startswith("!g")} == expected, registry.queries
                assert registry.sources_of[f"!gAS{asn}"] == registry.usual, "route objects are those of the usual sources"
                is_missing = expected == {asn}
                assert (f"as_set={as_set}" in exchange.log.read_text()) == is_missing, as_set


def frame(packet, mark):
    """Returns the frame of a packet, with a mark in its payload."""
    is_six = ":" in packet.destination
    offset = {flowspec.WHOLE: 0, flowspec.FIRST: 0, flowspec.LATER: 100, flowspec.LAST: 200}[packet.fragment]
    more = packet.fragment in (flowspec.FIRST, flowspec.LATER)
    if is_six:
        is_part = packet.fragment != flowspec.WHOLE
        ip = scapy.IPv6(src=packet.source, dst=packet.destination, tc=packet.dscp << 2, nh=44 if is_part else packet.protocol)
        ip = ip / scapy.IPv6ExtHdrFragment(nh=packet.protocol, offset=offset, m=int(more), id=7) if is_part else ip
    else:
        ip = scapy.IP(src=packet.source, dst=packet.destination, proto=packet.protocol, tos=packet.dscp << 2,
                      frag=offset, flags="MF" if more else 0)
    if offset:
        body = scapy.Raw(b"\xff" * 24 + mark)
    elif packet.protocol == flowspec.TCP:
        body = scapy.TCP(sport=packet.sport, dport=packet.dport, flags=packet.flags) / mark
    elif packet.protocol == flowspec.UDP:
        body = scapy.UDP(sport=packet.sport, dport=packet.dport) / mark
    elif packet.protocol == 58:
        body = scapy.Raw(bytes([packet.icmp[0], packet.icmp[1], 0, 0, 0, 0, 0, 0]) + mark)
    elif packet.protocol == 1:
        body = scapy.ICMP(type=packet.icmp[0], code=packet.icmp[1]) / mark
    else:
        body = scapy.Raw(b"\0" * 8 + mark)
    return bytes(scapy.Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:01") / ip / body)


def check_outcomes(world, held, packets):
    """Sends packets, each with its mark, and checks that those arrive which the rules let pass, and that each filter counts what it
    decides and nothing else."""
    received = set()
    for begin in range(0, len(packets), 50):
        for index, (packet, mark) in enumerate(packets[begin:begin + 50]):
            (world.a if index % 2 else world.b).send(frame(packet, mark))
        behind = {send_marked(sender, OUTSIDE) for sender in (world.a, world.b)}
        while behind:
            got = namespaces.receive(world.victim)
            assert got, "the packets that no rule concerns arrive"
            received |= {mark for _, mark in packets if mark in got}
            behind -= {mark for mark in behind if mark in got}
    wrong = [(packet, mark in received) for packet, mark in packets if (mark in received) != flowspec.passes(held, packet)]
    assert not wrong, (wrong[:3], [rule.text() for rule in held if rule.matches(wrong[0][0])],
                       [fi for fi in world.filters().values() if fi["state"]["name"] == "refused"][:3])
    wanted = flowspec.counts(held, [packet for packet, _ in packets])
    wait_for(f"the counters are {wanted}: {world.counts()}", lambda: world.counts() == wanted)


@pytest.mark.parametrize("network", [NETWORK, NETWORK6], ids=["ipv4", "ipv6"])
def test_the_outcome_of_packets_under_random_flowspec_rules_equals_an_oracle(tmp_path, network):
    if not shutil.which("exabgp"):
        pytest.skip("exabgp is not installed: run scripts/setup.sh")
    rng = random.Random(18)
    port, rounds, count = free_port(), 10 if LONG else 1, 100
    with routing.Registry() as registry:
        registry.sets["AS-V"], registry.origins[routing.ASN] = ["AS64501"], [network]
        sections = routing.settings(port, {routing.ExaBgp.address: "V"}, registry, more="changes_per_sec = 1000")
        with World(tmp_path, sections) as world, routing.ExaBgp(tmp_path / "exabgp", port) as speaker:
            speaker.announce(network)
            world.wait_session(speaker)
            sent, refused = 0, collections.Counter()
            for number in range(rounds):
                rules = []
                while len(rules) < count:
                    rule = flowspec.random_rule(rng, network)
                    # Two rules with the same components are one route.
                    if all(flowspec.compare(rule, other) != 0 for other in rules):
                        rules.append(rule)
                speaker.say(*(f"announce {rule.text()}" for rule in rules))

                def announced():
                    states = [state for state, _ in world.states()]
                    return len(states) == count
                try:
                    wait_for("all rules are filters", announced, bound=60)
                except AssertionError as error:
                    raise AssertionError(f"{error}: {world.session(speaker)} {len(world.states())}") from error
                world.exchange.wait_in_sync()
                held = [rule for rule in rules if not rule.refused()]
                reasons = world.refusals()
                refused += reasons
                assert reasons["flowspec-length"] + reasons["flowspec-fragment-bits"] == count - len(held), reasons
                # A rule that no packet can match is refused, too: it changes no outcome.
                assert reasons["flowspec-contradiction"] == sum(rule.is_contradictory() for rule in held), reasons
                assert reasons.keys() <= {"flowspec-length", "flowspec-fragment-bits", "flowspec-contradiction"}, reasons
                packets = [(flowspec.random_packet(rng, network), f"{number:04x}{index:08x}".encode()) for index in range(400)]
                check_outcomes(world, held, packets)
                sent += len(packets)
                speaker.say(*(f"withdraw {rule.text()}" for rule in rules))
                wait_for("all rules are gone", lambda: world.states() == [], bound=60)
            world.wait_entries(0)
            print(f"{network}: {rounds * count} rules, {refused.total()} refused ({dict(refused)}), {sent} packets, 0 differences")


@pytest.mark.parametrize("kind", [kind for kind in routing.SPEAKERS if kind is not routing.ExaBgp], ids=lambda kind: kind.name)
def test_packets_under_the_rules_of_another_speaker_have_the_outcome_of_the_oracle(tmp_path, kind):
    """BIRD and GoBGP announce rules of both families; some have TCP flags, some fragments."""
    if not shutil.which(kind.program):
        pytest.skip(f"{kind.program} is not installed: run scripts/setup.sh")
    rng, port, count = random.Random(181), free_port(), 100 if LONG else 20
    with routing.Registry() as registry:
        registry.sets["AS-V"], registry.origins[routing.ASN] = ["AS64501"], [NETWORK, NETWORK6]
        sections = routing.settings(port, {kind.address: "V"}, registry, more="changes_per_sec = 1000")
        with World(tmp_path, sections) as world, kind(tmp_path / kind.name, port) as speaker:
            rules = {network: [] for network in (NETWORK, NETWORK6)}
            for network, chosen in rules.items():
                while len(chosen) < count:
                    rule = flowspec.random_rule(rng, network)
                    # Half of the rules have flags or fragments that a switch can have.
                    if len(chosen) % 2 and not (rule.flags or rule.fragment) or rule.refused():
                        continue
                    if all(flowspec.compare(rule, other) for other in chosen):
                        chosen.append(rule)
                speaker.announce(network)
            wait_for(f"{kind.name}: {speaker.log}", lambda: any(
                one["peer"] == speaker.address and one["prefixes"] == 2 for one in world.exchange.ask("sessions")), bound=60)
            speaker.flows([rule for chosen in rules.values() for rule in chosen])
            wait_for(f"all rules are filters: {speaker.log}", lambda: len(world.states()) == 2 * count, bound=60)
            world.exchange.wait_in_sync()
            packets = [(flowspec.random_packet(rng, network), f"{index:012x}".encode())
                       for index, network in enumerate([NETWORK, NETWORK6] * (400 if LONG else 100))]
            check_outcomes(world, [rule for chosen in rules.values() for rule in chosen], packets)
            print(f"{kind.name}: {2 * count} rules, {len(packets)} packets, 0 differences")


def test_each_speakers_rules_become_the_same_filters(tmp_path):
    """ExaBGP, BIRD 2 and 3, and GoBGP announce the same rules, whose components are written in the language of each."""
    speakers = present(routing.SPEAKERS)
    if len(speakers) < 2:
        pytest.skip("two of bird, exabgp and gobgpd are needed: run scripts/setup.sh")
    rng, port, count = random.Random(180), free_port(), 200 if LONG else 30
    rules = []
    while len(rules) < count:
        rule = flowspec.random_rule(rng, rng.choice([NETWORK, NETWORK6]))
        if not rule.flags and not rule.fragment and all(flowspec.compare(rule, other) for other in rules
                                                        if (":" in rule.destination) == (":" in other.destination)):
            rules.append(rule)
    with routing.Registry() as registry:
        registry.sets["AS-V"], registry.origins[routing.ASN] = ["AS64501"], [NETWORK, NETWORK6]
        sections = routing.settings(port, {speaker.address: "V" for speaker in speakers}, registry, more="changes_per_sec = 1000")
        with Exchange(tmp_path / "ix", engine="match_extensions = true\n" + sections) as exchange:
            exchange.order({"operation": "create_account", "name": "V", "kind": "member", "asns": [routing.ASN], "as_set": "AS-V"})

            def found():
                names = ("matching", "alternatives", "action", "state", "order", "rank")
                return sorted(json.dumps({name: one.get(name) for name in names}, sort_keys=True)
                              for one in exchange.objects("fi").values())
            seen = {}
            for kind in speakers:
                with kind(tmp_path / kind.name, port) as speaker:
                    for network in (NETWORK, NETWORK6):
                        speaker.announce(network)
                    wait_for(f"{kind.name}: {speaker.log}", lambda speaker=speaker: any(
                        one["peer"] == speaker.address and one["prefixes"] == 2 for one in exchange.ask("sessions")), bound=60)
                    speaker.flows(rules)
                    wait_for(f"all rules of {kind.name} are filters: {speaker.log}", lambda: len(exchange.objects("fi")) == count,
                             bound=60)
                    seen[kind.name] = found()
                wait_for("the rules ended with the session", lambda: not exchange.objects("fi"), bound=200)
            first = next(iter(seen))
            for name, filters in seen.items():
                differing = [pair for pair in zip(seen[first], filters) if pair[0] != pair[1]]
                assert not differing, f"{first} and {name}: {differing[:2]}"
            print(f"{count} rules of IPv4 and IPv6 from {', '.join(seen)}: the same filters, "
                  f"{sum('refused' in text for text in seen[first])} of them refused")

def test_a_restarted_cache_replaces_its_payloads(tmp_path):
    """RFC 8210, section 5.1: what a router knows of a cache means nothing to the cache after its restart."""
    assert shutil.which("stayrtr"), "install stayrtr: run scripts/setup.sh"
    cache = routing.StayRtr(tmp_path / "rtr")
    cache.write([("192.0.2.0/24", 24, routing.ASN)])
    with cache, Exchange(tmp_path / "exchange", routing.settings_of(free_port(), {}, caches=[cache])) as exchange:
        def loads():
            """Returns the numbers of payloads that the engine has reported."""
            text = re.sub(r"\x1b\[[0-9;]*m", "", exchange.log.read_text())
            return [int(number) for number in re.findall(r"RPKI cache=\S+ payloads=(\d+)", text)]

        wait_for("one payload", lambda: loads() == [1])
        cache.stop()
        cache.write([("198.51.100.0/24", 24, routing.ASN), ("203.0.113.0/24", 24, routing.ASN)])
        cache.start()
        # The new connection does not report the payloads of before as if they were new.
        wait_for("the payloads of the restarted cache", lambda: loads() == [1, 2])
        cache.stop()
        cache.write([])
        cache.start()
        wait_for("an empty cache", lambda: loads() == [1, 2, 0])
