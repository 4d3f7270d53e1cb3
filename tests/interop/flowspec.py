"""An oracle of Flowspec (RFC 8955, RFC 8956): random rules, the packets that they mean, and their order. It shares no code and no
encoding with the engine: rules are structures here, and text for ExaBGP."""

import collections
import dataclasses
import functools
import ipaddress
import itertools
import random

TCP, UDP = 6, 17
FLAGS = {"fin": 1, "syn": 2, "rst": 4, "push": 8, "ack": 16, "urgent": 32}
WHOLE, FIRST, LATER, LAST = "whole", "first", "later", "last"

_address, _network = functools.cache(ipaddress.ip_address), functools.cache(ipaddress.ip_network)


@dataclasses.dataclass(frozen=True)
class Packet:
    """A packet; a later fragment has no ports, flags and ICMP type."""

    source: str
    destination: str
    protocol: int
    sport: int = 0
    dport: int = 0
    icmp: tuple = (0, 0)
    flags: int = 0
    fragment: str = WHOLE
    dscp: int = 0

    @property
    def has_header(self):
        return self.fragment in (WHOLE, FIRST)


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule: prefixes, and for each other component a list of groups, one of which must be true; all members of a group must be."""

    destination: str
    source: str = None
    protocol: tuple = ()
    port: tuple = ()
    dport: tuple = ()
    sport: tuple = ()
    icmp_type: tuple = ()
    icmp_code: tuple = ()
    flags: tuple = ()
    length: tuple = ()
    dscp: tuple = ()
    fragment: tuple = ()
    drops: bool = True

    # Component numbers of RFC 8955, section 4.2.2, in ascending order, with the words of ExaBGP.
    WORDS = ((3, "protocol", "protocol"), (4, "port", "port"), (5, "dport", "destination-port"), (6, "sport", "source-port"),
             (7, "icmp_type", "icmp-type"), (8, "icmp_code", "icmp-code"), (9, "flags", "tcp-flags"),
             (10, "length", "packet-length"), (11, "dscp", "dscp"), (12, "fragment", "fragment"))

    def text(self):
        """Returns the rule as a command of ExaBGP."""
        six = ":" in self.destination
        parts = [f"destination {self.destination}"] + ([f"source {self.source}"] if self.source else [])
        for _, field, word in self.WORDS:
            groups = getattr(self, field)
            if not groups:
                continue
            if field in ("flags", "fragment"):
                parts.append(f"{word} [ {' '.join('&'.join(members) for members in groups)} ]")
                continue
            if six:
                word = {"protocol": "next-header", "dscp": "traffic-class"}.get(word, word)
            parts.append(f"{word} [ {' '.join('&'.join(sign + str(value) for sign, value in group) for group in groups)} ]")
        action = "discard" if self.drops else "rate-limit 1000000000000"
        return f"flow route {{ match {{ {'; '.join(parts)}; }} then {{ {action}; }} }}"

    def bird(self):
        """Returns the match of the rule as BIRD's configuration has it."""
        six = ":" in self.destination
        words = {"protocol": "next header" if six else "proto", "icmp_type": "icmp type", "icmp_code": "icmp code"}
        parts = [f"dst {self.destination}"] + ([f"src {self.source}"] if self.source else [])
        for _, field, _ in self.WORDS:
            groups = getattr(self, field)
            if field == "flags" and groups:
                # A value and a mask: all of its bits are set.
                tests = (FLAGS[word.lstrip("=")] for [word] in groups)
                parts.append("tcp flags " + " || ".join(f"{bits:#x}/{bits:#x}" for bits in tests))
            elif field == "fragment" and groups:
                parts.append("fragment " + " || ".join(word.replace("-", "_") for [word] in groups))
            elif groups:
                test = " || ".join(" && ".join(f"{sign} {value}" for sign, value in group) for group in groups)
                parts.append(f"{words.get(field, field)} {test}")
        return "; ".join(parts) + ";"

    def gobgp(self):
        """Returns the rule as the arguments of `gobgp global rib add`."""
        parts = ["match", "destination", self.destination] + (["source", self.source] if self.source else [])
        for _, field, word in self.WORDS:
            groups = getattr(self, field)
            if groups:
                if field == "flags":
                    parts += [word, *("=" + {"syn": "S", "ack": "A", "rst": "R"}[name.lstrip("=")] for [name] in groups)]
                    continue
                if field == "fragment":
                    parts += [word, *(name for [name] in groups)]
                    continue
                signs = {"=": "=="}
                parts += [word, *("&".join(f"{signs.get(sign, sign)}{value}" for sign, value in group) for group in groups)]
        action = "discard" if self.drops else "rate-limit 1000000000000"
        return [*parts, "then", *action.split()]

    def refused(self):
        """Returns true if a switch cannot have the rule."""
        if self.length:
            return True
        # The bits of a fragment that no OpenFlow switch tells apart.
        return any(word in ("dont-fragment", "last-fragment") for group in self.fragment for word in group)

    def matches(self, packet):
        """Returns true if the packet matches every component."""
        def within(address, prefix):
            return _address(address) in _network(prefix)

        def number(groups, value):
            signs = {"=": value.__eq__, "<": value.__lt__, ">": value.__gt__, "<=": value.__le__, ">=": value.__ge__,
                     "!=": value.__ne__}
            return any(all(signs[sign](other) for sign, other in group) for group in groups)
        if not within(packet.destination, self.destination) or (self.source and not within(packet.source, self.source)):
            return False
        if self.protocol and not number(self.protocol, packet.protocol):
            return False
        transport = packet.protocol in (TCP, UDP) and packet.has_header
        if self.port and not (transport and (number(self.port, packet.sport) or number(self.port, packet.dport))):
            return False
        if self.dport and not (transport and number(self.dport, packet.dport)):
            return False
        if self.sport and not (transport and number(self.sport, packet.sport)):
            return False
        icmp = packet.protocol == (58 if ":" in packet.destination else 1) and packet.has_header
        if self.icmp_type and not (icmp and number(self.icmp_type, packet.icmp[0])):
            return False
        if self.icmp_code and not (icmp and number(self.icmp_code, packet.icmp[1])):
            return False
        if self.flags:
            if packet.protocol != TCP or not packet.has_header:
                return False
            # ExaBGP writes "=syn" as a match of all bits and "syn" as a match of any.
            if not any(all(bool(packet.flags & FLAGS[word.lstrip("=!")]) != word.startswith("!") for word in group)
                       for group in self.flags):
                return False
        if self.dscp and not number(self.dscp, packet.dscp):
            return False
        if self.fragment:
            states = {"not-a-fragment": packet.fragment == WHOLE, "is-fragment": packet.fragment in (LATER, LAST),
                      "first-fragment": packet.fragment == FIRST}
            if not any(all(states[word] for word in group) for group in self.fragment):
                return False
        return True

    def is_contradictory(self):
        """Returns true if no packet matches. It tries each component at the edges of its numbers, and at those beside them."""
        def edges(groups, most, *more):
            beside = {value + step for group in groups for _, value in group for step in (-1, 0, 1)}
            return sorted(value for value in {0, most, *more, *beside} if value <= most and value >= 0) if groups else [0]
        ports = [edges(self.port + one, 65535) for one in (self.sport, self.dport)]
        icmp = list(itertools.product(edges(self.icmp_type, 255), edges(self.icmp_code, 255)))
        # The bits that a group wants and no others match it, if anything does.
        flags = {0, *(sum(FLAGS[word.lstrip("=")] for word in group if word[0] != "!") for group in self.flags)}
        addresses = [str(ipaddress.ip_network(prefix or self.destination)[0]) for prefix in (self.source, self.destination)]
        tries = itertools.product(edges(self.protocol or ((("=", 0),),), 255, TCP, UDP, 1, 58), *ports, icmp,
                                  flags, (WHOLE, FIRST, LATER, LAST) if self.fragment else [WHOLE],
                                  edges(self.dscp, 63))
        return not any(self.matches(Packet(*addresses, *one)) for one in tries)

    def components(self):
        """Returns (number, value) of each component; prefixes as networks, others as the bytes of their operators."""
        found = [(1, ipaddress.ip_network(self.destination))]
        if self.source:
            found.append((2, ipaddress.ip_network(self.source)))
        for component, field, _ in self.WORDS:
            groups = getattr(self, field)
            if groups:
                found.append((component, operators(field, groups)))
        return found


def operators(field, groups):
    """Returns the bytes of operators, in the shortest form, as ExaBGP writes them."""
    out, members = b"", [(index > 0, member) for group in groups for index, member in enumerate(group)]
    for place, (joined, member) in enumerate(members):
        last = 0x80 if place == len(members) - 1 else 0
        if field == "flags":
            code = (1 if member.startswith("=") else 0) | (2 if member.startswith("!") else 0)
            value = FLAGS[member.lstrip("=!")]
        elif field == "fragment":
            code, value = 0, {"not-a-fragment": 0, "is-fragment": 2, "first-fragment": 4, "last-fragment": 8,
                              "dont-fragment": 1}[member]
        else:
            code = {"=": 1, ">": 2, ">=": 3, "<": 4, "<=": 5, "!=": 6}[member[0]]
            value = member[1]
        size = 0 if value < 256 else 1
        out += bytes([last | (0x40 if joined else 0) | size << 4 | code]) + value.to_bytes(1 << size, "big")
    return out


def compare(one, other):
    """Compares two rules as RFC 8955, appendix A, does: negative if the first applies first."""
    ones, others = one.components(), other.components()
    for index in range(max(len(ones), len(others))):
        if index >= len(ones):
            return 1
        if index >= len(others):
            return -1
        (kind, value), (other_kind, other_value) = ones[index], others[index]
        if kind != other_kind:
            return kind - other_kind
        if kind in (1, 2):
            if value.version != other_value.version:
                # Rules of two families meet no packet of each other.
                return value.version - other_value.version
            if value.overlaps(other_value):
                if value.prefixlen != other_value.prefixlen:
                    return other_value.prefixlen - value.prefixlen
            elif value != other_value:
                return 1 if value > other_value else -1
        elif value != other_value:
            common = min(len(value), len(other_value))
            if value[:common] != other_value[:common]:
                return 1 if value[:common] > other_value[:common] else -1
            return len(other_value) - len(value)
    return 0


def passes(rules, packet):
    """Returns true if the packet passes: the first rule in order that matches decides, and without one it passes."""
    for rule in sorted(rules, key=functools.cmp_to_key(compare)):
        if rule.matches(packet):
            return not rule.drops
    return True


def counts(rules, packets):
    """Returns the number of packets that each rule decides, ascending, without zeros."""
    ordered, found = sorted(rules, key=functools.cmp_to_key(compare)), collections.Counter()
    for packet in packets:
        found[next((rule for rule in ordered if rule.matches(packet)), None)] += 1
    return sorted(number for rule, number in found.items() if rule)


class Plan:
    """The addresses of random rules and packets in a network: a /24 of IPv4 or a /48 of IPv6."""

    def __init__(self, network):
        self.network, self.is_six = network, ":" in network
        if self.is_six:
            base = network.split("::")[0]
            self.parts = [network, *(f"{base}:{part:x}::/64" for part in (0, 64, 128))]
            self.hosts = [f"{base}::{number}" for number in range(8)]
            self.targets = [*(f"{base}::{number}" for number in (0, 1, 3, 7)), f"{base}:40::1", f"{base}:80::1", f"{base}:c8::1"]
            self.from_networks = ["2001:db8:51::/48", "2001:db8:51::9/128", "2001:db8::/32", "2001:db8:51::8/125"]
            self.sources = ["2001:db8:51::9", "2001:db8:51::20", "2001:db8:7::7", "2001:dead::77"]
        else:
            base = network.rsplit(".", 1)[0]
            self.parts = [network, *(f"{base}.{part}/26" for part in (0, 64, 128))]
            self.hosts = [f"{base}.{number}" for number in range(8)]
            self.targets = [f"{base}.{number}" for number in (0, 1, 3, 7, 65, 130, 200)]
            self.from_networks = ["198.51.100.0/24", "198.51.100.9/32", "198.51.0.0/16", "198.51.100.8/29"]
            self.sources = ["198.51.100.9", "198.51.100.20", "198.51.7.7", "192.0.2.77"]
        self.icmp = 58 if self.is_six else 1


PORTS = [0, 53, 80, 123, 443, 1024, 4000, 65535]


def random_rule(rng, network):
    """Returns a random rule for destinations in a network."""
    plan = Plan(network)
    host = rng.choice(plan.hosts) + ("/128" if plan.is_six else "/32")
    destination = rng.choice([network, rng.choice(plan.parts[1:]), host])
    fields = {}
    if rng.random() < 0.4:
        fields["source"] = rng.choice(plan.from_networks)

    def numbers(values):
        sign = rng.choice(["=", "=", "=", "<", ">", "<=", ">=", "!="])
        value = rng.choice(values)
        if rng.random() < 0.3:
            low, high = sorted((rng.choice(values), rng.choice(values)))
            return ((((">=", low)), ("<=", high)),)
        groups = (((sign, value),),)
        return groups + ((("=", rng.choice(values)),),) if rng.random() < 0.3 else groups
    kind = rng.random()
    if kind < 0.5:
        fields["protocol"] = ((("=", rng.choice([TCP, UDP, UDP, plan.icmp, 47])),),)
    elif kind < 0.6:
        fields["protocol"] = ((("=", TCP),), (("=", UDP),))
    if rng.random() < 0.5:
        fields[rng.choice(["port", "dport", "sport"])] = numbers(PORTS)
    if rng.random() < 0.1:
        fields["icmp_type"] = numbers([0, 3, 8, 11])
    if rng.random() < 0.1:
        fields["flags"] = rng.choice([(("=syn",),), (("=ack",),), (("=syn",), ("=rst",))])
    if rng.random() < 0.1:
        fields["dscp"] = numbers([0, 10, 46])
    if rng.random() < 0.15:
        states = [(("is-fragment",),), (("first-fragment",),), (("is-fragment",), ("first-fragment",)), (("last-fragment",),)]
        # IPv6 has no such flag (RFC 8956, section 3.7).
        fields["fragment"] = rng.choice(states if plan.is_six else [*states, (("dont-fragment",),)])
    if rng.random() < 0.05:
        fields["length"] = ((("=", 100),),)
    return Rule(destination, drops=rng.random() < 0.6, **fields)


def random_packet(rng, network):
    """Returns a random packet to a network."""
    plan = Plan(network)
    return Packet(
        source=rng.choice(plan.sources), destination=rng.choice(plan.targets),
        protocol=rng.choice([TCP, TCP, UDP, UDP, UDP, plan.icmp, 47]),
        sport=rng.choice(PORTS), dport=rng.choice(PORTS), icmp=(rng.choice([0, 3, 8, 11]), 0),
        flags=rng.choice([2, 16, 18, 4, 0]), fragment=rng.choice([WHOLE, WHOLE, WHOLE, FIRST, LATER, LAST]),
        dscp=rng.choice([0, 0, 10, 46]))


__all__ = ["Packet", "Rule", "compare", "passes", "random", "random_packet", "random_rule"]
