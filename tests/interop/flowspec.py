"""An oracle of Flowspec (RFC 8955, RFC 8956): random rules, the packets that they mean, and their order. It shares no code and no
encoding with the engine: rules are structures here, and text for ExaBGP."""

import dataclasses
import functools
import ipaddress
import random

TCP, UDP = 6, 17
WHOLE, FIRST, LATER, LAST = "whole", "first", "later", "last"


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
    """A rule: prefixes, and for each other component a list of groups, of which one must be true; all members of a group must be."""

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

    def refused(self):
        """Returns true if a switch cannot have the rule."""
        if self.length:
            return True
        # The bits of a fragment that no OpenFlow switch tells apart.
        return any(word in ("dont-fragment", "last-fragment") for group in self.fragment for word in group)

    def matches(self, packet):
        """Returns true if the packet matches every component."""
        def within(address, prefix):
            return ipaddress.ip_address(address) in ipaddress.ip_network(prefix)

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
            bits = {"fin": 1, "syn": 2, "rst": 4, "push": 8, "ack": 16, "urgent": 32}
            if packet.protocol != TCP or not packet.has_header:
                return False
            # ExaBGP writes "=syn" as a match of all bits and "syn" as a match of any.
            if not any(all(bool(packet.flags & bits[word.lstrip("=!")]) != word.startswith("!") for word in group)
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
            bits = {"fin": 1, "syn": 2, "rst": 4, "push": 8, "ack": 16, "urgent": 32}
            code = (1 if member.startswith("=") else 0) | (2 if member.startswith("!") else 0)
            value = bits[member.lstrip("=!")]
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


def random_rule(rng, network):
    """Returns a random rule for destinations in a /24."""
    base = network.rsplit(".", 1)[0]
    destination = rng.choice([network, f"{base}.{rng.choice([0, 64, 128])}/26", f"{base}.{rng.randrange(8)}/32"])
    fields = {}
    if rng.random() < 0.4:
        fields["source"] = rng.choice(["198.51.100.0/24", "198.51.100.9/32", "198.51.0.0/16", "198.51.100.8/29"])

    def numbers(values):
        sign = rng.choice(["=", "=", "=", "<", ">", "<=", ">=", "!="])
        value = rng.choice(values)
        if rng.random() < 0.3:
            low, high = sorted((rng.choice(values), rng.choice(values)))
            return ((((">=", low)), ("<=", high)),)
        groups = (((sign, value),),)
        return groups + ((("=", rng.choice(values)),),) if rng.random() < 0.3 else groups
    ports = [0, 53, 80, 123, 443, 1024, 4000, 65535]
    kind = rng.random()
    if kind < 0.5:
        fields["protocol"] = ((("=", rng.choice([TCP, UDP, UDP, 1, 47])),),)
    elif kind < 0.6:
        fields["protocol"] = ((("=", TCP),), (("=", UDP),))
    if rng.random() < 0.5:
        fields[rng.choice(["port", "dport", "sport"])] = numbers(ports)
    if rng.random() < 0.1:
        fields["icmp_type"] = numbers([0, 3, 8, 11])
    if rng.random() < 0.1:
        fields["flags"] = rng.choice([(("=syn",),), (("=ack",),), (("=syn",), ("=rst",))])
    if rng.random() < 0.1:
        fields["dscp"] = numbers([0, 10, 46])
    if rng.random() < 0.15:
        fields["fragment"] = rng.choice([(("is-fragment",),), (("first-fragment",),), (("is-fragment",), ("first-fragment",)),
                                         (("last-fragment",),), (("dont-fragment",),)])
    if rng.random() < 0.05:
        fields["length"] = ((("=", 100),),)
    return Rule(destination, drops=rng.random() < 0.6, **fields)


def random_packet(rng, network):
    """Returns a random packet to a /24."""
    base = network.rsplit(".", 1)[0]
    ports = [0, 53, 80, 123, 443, 1024, 4000, 65535]
    return Packet(
        source=rng.choice(["198.51.100.9", "198.51.100.20", "198.51.7.7", "192.0.2.77"]),
        destination=f"{base}.{rng.choice([0, 1, 3, 7, 65, 130, 200])}",
        protocol=rng.choice([TCP, TCP, UDP, UDP, UDP, 1, 47]),
        sport=rng.choice(ports), dport=rng.choice(ports), icmp=(rng.choice([0, 3, 8, 11]), 0),
        flags=rng.choice([2, 16, 18, 4, 0]), fragment=rng.choice([WHOLE, WHOLE, WHOLE, FIRST, LATER, LAST]),
        dscp=rng.choice([0, 0, 10, 46]))


__all__ = ["Packet", "Rule", "compare", "passes", "random", "random_packet", "random_rule"]
