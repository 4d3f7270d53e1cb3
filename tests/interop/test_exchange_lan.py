"""A peering LAN on a real switch: quarantine, admission, ARP and neighbour discovery as unicast, and the swap of a router.
The tests need root for their interfaces."""

import ipaddress
import os
import random
import time

import pytest
import scapy.all as scapy
from scapy.contrib.lacp import LACP, SlowProtocol
from scapy.contrib.lldp import LLDPDUChassisID, LLDPDUEndOfLLDPDU, LLDPDUPortID, LLDPDUTimeToLive

import namespaces
from exchange import Exchange
from switches import Millrace, run, wait_for
from test_exchange import socket_on

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="virtual Ethernet needs root")
pytestmark = needs_root
LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
PAIRS = [("lan-a", "lan-sa"), ("lan-b", "lan-sb"), ("lan-c", "lan-sc")]
NETWORKS = ["192.0.2.0/24", "2001:db8:1::/64"]
BROADCAST = "ff:ff:ff:ff:ff:ff"


def mac(number):
    return f"02:00:00:00:01:{number:02x}"


def v4(number):
    return f"192.0.2.{number}"


def v6(number):
    return f"2001:db8:1::{number:x}"


class Lan:
    """A switch with a peering LAN; member N is at port N with VLAN 100 + N, but member 1, whose frames have no tag."""

    def __init__(self, exchange, members, quarantine_secs, waive=()):
        self.exchange = exchange
        _, self.switch = exchange.create_site("Otemachi", 1, range(1, members + 1))
        self.policy = {"name": "peering", "ethertypes": [0x800, 0x806, 0x86DD], "macs_max": 1, "broadcast_pps": 50,
                       "multicast_pps": 50, "arp": "unicast", "quarantine_secs": quarantine_secs}
        created = exchange.order(
            {"operation": "create_policy", "policy": self.policy},
            {"operation": "create_account", "name": "exchange", "kind": "exchange"},
            {"operation": "create_service", "account": "ac-0", "kind": "exchange_lan", "name": "peering",
             "policy": "po-0", "networks": NETWORKS})["applied"]["created"]
        self.service = next(id for id in created if id.startswith("sv-"))
        self.policy_id = next(id for id in created if id.startswith("po-"))
        self.ends = {}
        for number in range(1, members + 1):
            _, [connection] = exchange.create_member(f"member {number}", f"{self.switch}:{number}")
            vlan = {"type": "port"} if number == 1 else {"type": "dot1q", "vlan": 100 + number}
            created = exchange.order(
                {"operation": "configure_end", "service": self.service, "connection": connection, "vlan": vlan},
                {"operation": "add_mac", "config": "nc-0", "address": mac(number)},
                {"operation": "add_ip", "config": "nc-0", "address": v4(number)},
                {"operation": "add_ip", "config": "nc-0", "address": v6(number)})["applied"]["created"]
            self.ends[number] = next(id for id in created if id.startswith("nc-"))
            if number in waive:
                exchange.order({"operation": "waive_quarantine", "config": self.ends[number], "reason": "a test"})
        exchange.wait_in_sync()

    def set_quarantine_secs(self, seconds):
        """Changes the time without a fault after which an end passes."""
        self.policy["quarantine_secs"] = seconds
        self.exchange.order({"operation": "update_policy", "id": self.policy_id, "policy": self.policy})

    def checklist(self, number):
        """Returns what the quarantine has found at an end; None if it is over."""
        lists = [end for end in self.exchange.ask("quarantine") if end["end"] == self.ends[number]]
        return lists[0] if lists else None

    def found(self, number):
        """Returns the points of the checklist that failed."""
        return {finding["check"]: finding["text"] for finding in (self.checklist(number) or {"findings": []})["findings"]}


def tag(number, frame):
    """Returns the frame with the tag of a member."""
    if number == 1:
        return bytes(frame)
    raw = bytes(frame)
    return raw[:12] + b"\x81\x00" + (100 + number).to_bytes(2, "big") + raw[12:]


def ether(number, dst=BROADCAST, src=None, **kwargs):
    return scapy.Ether(src=src or mac(number), dst=dst, **kwargs)


def arp_request(number, target, **fields):
    fields = {"op": 1, "hwsrc": mac(number), "psrc": v4(number), "pdst": target} | fields
    return ether(number) / scapy.ARP(**fields)


def solicitation(number, target, dst=None):
    group = ipaddress.ip_address(target).packed[-3:]
    address = "ff02::1:ff%02x:%02x%02x" % tuple(group)
    return (ether(number, dst or "33:33:ff:%02x:%02x:%02x" % tuple(group)) / scapy.IPv6(src=v6(number), dst=address, hlim=255)
            / scapy.ICMPv6ND_NS(tgt=target) / scapy.ICMPv6NDOptSrcLLAddr(lladdr=mac(number)))


def snap(number, dst, code, body):
    """Returns a frame with LLC and SNAP of Cisco's."""
    payload = bytes.fromhex("aaaa0300000c") + code.to_bytes(2, "big") + body
    return ether(number, dst, type=len(payload)) / payload


def wrong_set_ups(number):
    """Returns the frames of routers that are set up wrongly, by the point of the checklist that they fail."""
    ip = lambda **fields: ether(number, mac(99)) / scapy.IP(src=v4(number), dst=v4(99)) # noqa: E731
    multicast6 = lambda dst: ether(number, "33:33:00:00:00:01") / scapy.IPv6(src=v6(number), dst=dst, hlim=255) # noqa: E731
    lldp = LLDPDUChassisID(subtype=4, id=b"\2\0\0\0\0\1") / LLDPDUPortID(subtype=5, id="p1") / LLDPDUTimeToLive(ttl=120) \
        / LLDPDUEndOfLLDPDU()
    return {
        "mac": ether(number, mac(99), src="02:00:00:00:09:09") / scapy.IP(src=v4(number), dst=v4(99)),
        "stp": scapy.Dot3(src=mac(number), dst="01:80:c2:00:00:00") / scapy.LLC(dsap=0x42, ssap=0x42, ctrl=3) / scapy.STP(),
        "lacp": ether(number, "01:80:c2:00:00:02", type=0x8809) / SlowProtocol() / LACP(),
        "lldp": ether(number, "01:80:c2:00:00:0e", type=0x88CC) / lldp,
        "cdp": snap(number, "01:00:0c:cc:cc:cc", 0x2000, b"\x02\xb4\0\0"),
        "dhcp": ether(number) / scapy.IP(src=v4(number), dst="255.255.255.255") / scapy.UDP(sport=67, dport=68)
                / scapy.BOOTP(op=2) / scapy.DHCP(options=[("message-type", "offer"), "end"]),
        "ra": multicast6("ff02::1") / scapy.ICMPv6ND_RA(),
        "redirect": ip() / scapy.ICMP(type=5, code=1, gw=v4(7)) / scapy.IP(dst=v4(8)),
        "arp": arp_request(number, "203.0.113.1"),
        "nd": ether(number, mac(99)) / scapy.IPv6(src=v6(number), dst=v6(99), hlim=255)
              / scapy.ICMPv6ND_NA(tgt=v6(66), R=1, S=1, O=1) / scapy.ICMPv6NDOptDstLLAddr(lladdr=mac(number)),
        "multicast": ether(number, "01:00:5e:00:00:05") / scapy.IP(src=v4(number), dst="224.0.0.5", proto=89) / (b"\2\1" + b"\0" * 30),
        "ethertype": ether(number, "cf:00:00:00:00:00", type=0x9000) / (b"\0" * 46),
        "tag": ether(number, mac(99), type=0x8100) / scapy.Dot1Q(vlan=7) / scapy.IP(src=v4(number), dst=v4(99)),
    }


def test_quarantine_finds_each_wrong_set_up_and_passes_a_right_one(tmp_path):
    with namespaces.cables(*PAIRS[:2]), Exchange(tmp_path / "ix") as exchange:
        ports = [(1, "kernel:lan-sa"), (2, "kernel:lan-sb")]
        with Millrace(tmp_path / "switch", ports=ports, controllers=[exchange.target]):
            lan = Lan(exchange, 2, quarantine_secs=900)
            sockets = {1: socket_on("lan-a"), 2: socket_on("lan-b")}
            slowest = {}
            for number, opened in sockets.items():
                for check, frame in wrong_set_ups(number).items():
                    # A protocol between bridges has no tag, although the end has one.
                    untagged = check in ("stp", "lacp", "lldp", "cdp")
                    sent = bytes(frame) if untagged else tag(number, frame)
                    if check == "tag":
                        sent = bytes(frame)
                    started = time.monotonic()
                    opened.send(sent)

                    def seen(check=check, number=number):
                        return check in lan.found(number)
                    wait_for(f"{check} is found at member {number}: {lan.found(number)}", seen, bound=60)
                    slowest[check, number] = time.monotonic() - started
            # A proxy answers for addresses that are not its own, and the engine asks for such addresses itself.
            def asked(frame):
                return frame[12:14] == b"\x08\x06" and frame[21] == 1
            question = scapy.Ether(namespaces.receive(sockets[1], asked))
            answer = ether(1, question.src) / scapy.ARP(
                op=2, hwsrc=mac(1), psrc=question[scapy.ARP].pdst, hwdst=question.src, pdst=question[scapy.ARP].psrc)
            started = time.monotonic()
            sockets[1].send(bytes(answer))
            wait_for("proxy ARP is found", lambda: "proxy_arp" in lan.found(1), bound=60)
            slowest["proxy_arp", 1] = time.monotonic() - started
            # None of these frames has reached the other member.
            assert not namespaces.receive(sockets[2], lambda frame: frame[6:12] == bytes.fromhex(mac(1).replace(":", "")), bound=0.3)
            print(f"{len(slowest)} wrong set-ups found, the slowest after {max(slowest.values()):.2f} s")
            # Now both routers are right. Each passes after five clean seconds, and reaches the other.
            assert {lan.checklist(number) is None for number in sockets} == {False}
            lan.set_quarantine_secs(5)

            def passed():
                for number, opened in sockets.items():
                    opened.send(tag(number, arp_request(number, v4(3 - number))))
                return all(lan.checklist(number) is None for number in sockets)
            wait_for("both ends pass", passed, bound=60)
            exchange.wait_in_sync()
            sockets[1].send(tag(1, arp_request(1, v4(2))))
            wanted = bytes.fromhex(mac(2).replace(":", ""))
            received = namespaces.receive(sockets[2], lambda frame: frame[:6] == wanted)
            # The kernel takes the receiver's tag off.
            assert received and received[12:14] == b"\x08\x06", "the request is unicast"


def in_seconds(seconds):
    """Returns the time some seconds from now, in the format of orders."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def received_by(opened, seconds=0.4):
    """Returns the frames that arrive within a time."""
    frames, deadline = [], time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        frame = namespaces.receive(opened, bound=left)
        if frame:
            frames.append(frame)
    return frames


def hostile(number, victim, seed=5):
    """Returns 60 kinds of frames that a member must not send, by name."""
    rng = random.Random(seed)
    own, other, unknown = mac(number), mac(victim), "02:00:00:00:0f:0f"
    ip = scapy.IP(src=v4(number), dst=v4(victim))
    ip6 = scapy.IPv6(src=v6(number), dst=v6(victim), hlim=255)
    udp = scapy.UDP(sport=9, dport=9) / b"hostile"

    def nd(message, src=None, dst=other, to=None):
        return ether(number, dst) / scapy.IPv6(src=src or v6(number), dst=to or v6(victim), hlim=255) / message

    def headers(*extension):
        packet = scapy.IPv6(src=v6(number), dst="ff02::1", hlim=255)
        for header in extension:
            packet = packet / header
        return ether(number, "33:33:00:00:00:01") / packet / scapy.ICMPv6ND_RA()

    frames = {
        # Addresses that are not the sender's.
        "spoofed MAC": ether(number, other, src=unknown) / ip / udp,
        "the victim's MAC": ether(number, other, src=other) / ip / udp,
        "a third member's MAC": ether(number, other, src=mac(3)) / ip / udp,
        "multicast source": ether(number, other, src="01:00:5e:00:00:01") / ip / udp,
        "zero source": ether(number, other, src="00:00:00:00:00:00") / ip / udp,
        "broadcast source": ether(number, other, src=BROADCAST) / ip / udp,
        # ARP.
        "ARP request from the victim's address": arp_request(number, v4(3), psrc=v4(victim)),
        "ARP request with another hardware address": arp_request(number, v4(victim), hwsrc=unknown),
        "ARP reply for the victim": ether(number, other) / scapy.ARP(op=2, hwsrc=own, psrc=v4(3), hwdst=other, pdst=v4(victim)),
        "gratuitous ARP for the victim": arp_request(number, v4(victim), psrc=v4(victim)),
        "gratuitous ARP for a third": arp_request(number, v4(3), psrc=v4(3)),
        "ARP for nobody": arp_request(number, v4(250)),
        "ARP for an address outside": arp_request(number, "203.0.113.1"),
        "ARP of an unknown operation to all": arp_request(number, v4(victim), op=9),
        "reverse ARP": ether(number, type=0x8035) / bytes(28),
        "ARP reply to all": ether(number) / scapy.ARP(op=2, hwsrc=own, psrc=v4(number), hwdst=BROADCAST, pdst=v4(victim)),
        # Neighbour discovery.
        "NA for the victim": nd(scapy.ICMPv6ND_NA(tgt=v6(victim)) / scapy.ICMPv6NDOptDstLLAddr(lladdr=own)),
        "NA for a third": nd(scapy.ICMPv6ND_NA(tgt=v6(3)) / scapy.ICMPv6NDOptDstLLAddr(lladdr=own)),
        "NA with another hardware address": nd(scapy.ICMPv6ND_NA(tgt=v6(number)) / scapy.ICMPv6NDOptDstLLAddr(lladdr=unknown)),
        "NA to all": nd(scapy.ICMPv6ND_NA(tgt=v6(number)) / scapy.ICMPv6NDOptDstLLAddr(lladdr=own), dst="33:33:00:00:00:01", to="ff02::1"),
        "NS from the victim": nd(scapy.ICMPv6ND_NS(tgt=v6(3)) / scapy.ICMPv6NDOptSrcLLAddr(lladdr=own), src=v6(victim)),
        "NS with another hardware address": nd(scapy.ICMPv6ND_NS(tgt=v6(victim)) / scapy.ICMPv6NDOptSrcLLAddr(lladdr=unknown)),
        "NS for nobody": solicitation(number, v6(250)),
        "NS to all nodes": solicitation(number, v6(victim), dst="33:33:00:00:00:01"),
        # Router and host configuration.
        "RA": nd(scapy.ICMPv6ND_RA(), dst="33:33:00:00:00:01", to="ff02::1"),
        "RA to the victim": nd(scapy.ICMPv6ND_RA()),
        "RS": nd(scapy.ICMPv6ND_RS(), dst="33:33:00:00:00:02", to="ff02::2"),
        "redirect": nd(scapy.ICMPv6ND_Redirect(tgt=v6(number), dst=v6(3))),
        "RA behind hop-by-hop options": headers(scapy.IPv6ExtHdrHopByHop()),
        "RA behind destination options": headers(scapy.IPv6ExtHdrDestOpt()),
        "RA behind a routing header": headers(scapy.IPv6ExtHdrRouting()),
        "RA behind a fragment header": headers(scapy.IPv6ExtHdrFragment()),
        "RA behind four headers": headers(*[scapy.IPv6ExtHdrDestOpt()] * 4),
        "DHCP offer": ether(number, other) / ip / scapy.UDP(sport=67, dport=68) / scapy.BOOTP(op=2) / scapy.DHCP(options=["end"]),
        "DHCP discover": ether(number) / scapy.IP(src="0.0.0.0", dst="255.255.255.255") / scapy.UDP(sport=68, dport=67) / scapy.BOOTP(),
        "DHCPv6 advertise": ether(number, other) / ip6 / scapy.UDP(sport=547, dport=546) / bytes([2, 0, 0, 0]),
        "DHCPv6 solicit": ether(number, "33:33:00:01:00:02") / scapy.IPv6(src=v6(number), dst="ff02::1:2") / scapy.UDP(sport=546, dport=547),
        # Protocols between bridges.
        "STP": scapy.Dot3(src=own, dst="01:80:c2:00:00:00") / scapy.LLC(dsap=0x42, ssap=0x42, ctrl=3) / scapy.STP(),
        "STP to the victim": scapy.Dot3(src=own, dst=other) / scapy.LLC(dsap=0x42, ssap=0x42, ctrl=3) / scapy.STP(),
        "PVST": snap(number, "01:00:0c:cc:cc:cd", 0x010B, bytes(35)),
        "LACP": ether(number, "01:80:c2:00:00:02", type=0x8809) / SlowProtocol() / LACP(),
        "LACP to the victim": ether(number, other, type=0x8809) / SlowProtocol() / LACP(),
        "LLDP": ether(number, "01:80:c2:00:00:0e", type=0x88CC) / bytes(40),
        "LLDP to all": ether(number, type=0x88CC) / bytes(40),
        "CDP": snap(number, "01:00:0c:cc:cc:cc", 0x2000, bytes(40)),
        "pause": ether(number, "01:80:c2:00:00:01", type=0x8808) / bytes([0, 1, 255, 255]),
        "loop detection": ether(number, "cf:00:00:00:00:00", type=0x9000) / bytes(46),
        # Broadcast and multicast.
        "broadcast IPv4": ether(number) / scapy.IP(src=v4(number), dst="192.0.2.255") / udp,
        "OSPF": ether(number, "01:00:5e:00:00:05") / scapy.IP(src=v4(number), dst="224.0.0.5", proto=89) / bytes(40),
        "mDNS": ether(number, "01:00:5e:00:00:fb") / scapy.IP(src=v4(number), dst="224.0.0.251") / scapy.UDP(sport=5353, dport=5353),
        "multicast IPv6": ether(number, "33:33:00:00:00:01") / scapy.IPv6(src=v6(number), dst="ff02::1") / udp,
        # Frames that are none of the LAN's.
        "MPLS": ether(number, other, type=0x8847) / bytes.fromhex("00001140") / bytes(ip / udp),
        "PPPoE": ether(number, other, type=0x8864) / bytes(40),
        "802.1X": ether(number, other, type=0x888E) / bytes(40),
        "IS-IS": scapy.Dot3(src=own, dst="01:80:c2:00:00:14") / scapy.LLC(dsap=0xFE, ssap=0xFE, ctrl=3) / bytes(40),
        "an unknown EtherType": ether(number, other, type=0x88B5) / bytes(46),
        "a frame to itself": ether(number, own) / ip / udp,
        "a frame to nobody": ether(number, "02:00:00:00:0e:0e") / ip / udp,
        "noise": ether(number, other, type=0x1234) / rng.randbytes(200),
    }
    return {name: tag(number, frame) for name, frame in frames.items()}


def test_a_lan_of_hostile_members_passes_what_is_right_and_nothing_else(tmp_path):
    pairs = PAIRS
    with namespaces.cables(*pairs), Exchange(tmp_path / "ix") as exchange:
        # The second member can send frames above the MTU of the other ports.
        for link in pairs[1]:
            run("ip", "link", "set", link, "mtu", "9100")
        ports = [(number, f"kernel:{other}") for number, (_, other) in enumerate(pairs, 1)]
        with Millrace(tmp_path / "switch", ports=ports, controllers=[exchange.target]) as switch:
            lan = Lan(exchange, 3, quarantine_secs=900, waive=(1, 2, 3))
            exchange.wait_in_sync()
            sockets = {number: socket_on(one) for number, (one, _) in enumerate(pairs, 1)}

            # ARP and neighbour discovery reach the owner of the address, as unicast, and nobody else.
            for number in (1, 2, 3):
                for target in {1, 2, 3} - {number}:
                    for question in (arp_request(number, v4(target)), solicitation(number, v6(target))):
                        sockets[number].send(tag(number, question))
                        wanted = bytes.fromhex(mac(target).replace(":", ""))
                        frame = namespaces.receive(sockets[target], lambda frame: frame[:6] == wanted)
                        assert frame and frame[6:12] == bytes.fromhex(mac(number).replace(":", "")), (number, target, question)
            # Nobody has received a request for the address of somebody else.
            assert [received_by(opened) for opened in sockets.values()] == [[], [], []]

            # Hostile frames: none passes, and the counters say that the switch has seen them.
            kinds = hostile(2, 1)
            kinds["a frame without a tag"] = bytes(ether(2, mac(1)) / scapy.IP(src=v4(2), dst=v4(1)) / b"x")
            for vlan in (1, 101, 103, 4095):
                kinds[f"VLAN {vlan}"] = bytes(ether(2, mac(1)) / scapy.Dot1Q(vlan=vlan) / scapy.IP(src=v4(2), dst=v4(1)) / b"x")
            kinds["two tags"] = tag(2, ether(2, mac(1)) / scapy.Dot1Q(vlan=101) / scapy.IP(src=v4(2), dst=v4(1)) / b"x")
            kinds["the inside tag"] = tag(2, ether(2, mac(1)) / scapy.Dot1Q(vlan=1) / scapy.IP(src=v4(2), dst=v4(1)) / b"x")
            kinds["a runt"] = tag(2, ether(2, mac(1)))[:20]
            kinds["an empty frame"] = tag(2, ether(2, mac(1), type=0x800))
            # The port of the victim has an MTU of 1,500.
            for size in (1519, 1523, 1600, 9000):
                right = tag(2, ether(2, mac(1)) / scapy.IP(src=v4(2), dst=v4(1), len=size - 18) / scapy.UDP(sport=1, dport=2))
                kinds[f"a giant of {size} bytes"] = right.ljust(size, b"x")
            passed = {}
            for name, frame in kinds.items():
                sockets[2].send(frame)
            marker = tag(2, ether(2, mac(1)) / scapy.IP(src=v4(2), dst=v4(1)) / scapy.UDP(sport=1, dport=2) / b"behind all of them")
            sockets[2].send(marker)
            received = []
            while not received or b"behind all of them" not in received[-1]:
                frame = namespaces.receive(sockets[1])
                assert frame, "the frame behind the hostile ones arrives"
                received.append(frame)
            passed[1], passed[3] = received[:-1], received_by(sockets[3])
            # An IPv4 frame without a packet in it is IPv4 by its type, and harms nobody.
            assert switch.port_packets(2)[0] > len(kinds), "the switch has received all of them"
            harmless = [frame for frame in passed[1] if len(frame.rstrip(b"\0")) <= 14]
            assert [frame.hex() for frame in passed[1] if frame not in harmless] + [frame.hex() for frame in passed[3]] == []
            assert len(kinds) >= 60, len(kinds)

            # A storm of another member, with new addresses in each frame, does not touch the traffic of a victim.
            sources, victims, lost = *((100_000, 2000) if LONG else (1000, 300)), 0
            for number in range(sources):
                raw = bytearray(tag(2, ether(2, BROADCAST) / scapy.ARP()) if number == 0 else raw)
                raw[6:12] = (0x020000000000 + random.getrandbits(32)).to_bytes(6, "big")
                sockets[2].send(bytes(raw))
                if number % (sources // victims or 1) == 0:
                    text = b"numbered %08d" % number
                    sockets[1].send(tag(1, ether(1, mac(3)) / scapy.IP(src=v4(1), dst=v4(3)) / scapy.UDP(sport=1, dport=2) / text))
                    lost += not namespaces.receive(sockets[3], lambda frame, text=text: text in frame)
            assert lost <= victims // 1000
            print(f"{len(kinds)} kinds of hostile frames: 0 pass; {sources} MAC addresses: {lost} of {victims} frames of a victim lost")

            # The swap of a router: a second address, announced at once; both are admitted; the first one goes.
            old, new = mac(3), "02:00:00:00:03:99"
            held = next(id for id, one in exchange.objects("mc").items() if one["address"] == old)
            started = time.monotonic()
            exchange.order({"operation": "set_mac_end", "mac": held, "valid_until": in_seconds(600)},
                           {"operation": "add_mac", "config": lan.ends[3], "address": new})
            told = {}

            def told_all():
                for number in (1, 2):
                    frame = namespaces.receive(sockets[number], lambda frame: frame[6:12] == bytes.fromhex(new.replace(":", "")), bound=0.1)
                    if frame:
                        kind = "ARP" if frame[12:14] == b"\x08\x06" else "NA"
                        told.setdefault((number, kind), time.monotonic() - started)
                return len(told) == 4
            wait_for(f"both others are told of IPv4 and IPv6: {told}", told_all, bound=60)
            print(f"router swap: the others are told after {max(told.values()):.2f} s")
            assert max(told.values()) <= 3 or not LONG
            for source in (old, new):
                text = b"from " + source.encode()
                sockets[3].send(tag(3, ether(3, mac(1), src=source) / scapy.IP(src=v4(3), dst=v4(1)) / scapy.UDP(sport=1, dport=2) / text))
                assert namespaces.receive(sockets[1], lambda frame, text=text: text in frame), source
            # A request for the address reaches the new router.
            sockets[1].send(tag(1, arp_request(1, v4(3))))
            assert namespaces.receive(sockets[3], lambda frame: frame[:6] == bytes.fromhex(new.replace(":", "")))
            exchange.order({"operation": "set_mac_end", "mac": held, "valid_until": in_seconds(10)})
            wait_for("the old address is over", lambda: old not in [one["address"] for one in exchange.objects("mc").values()], bound=60)
            exchange.wait_in_sync()
            for source, text in ((old, b"too late"), (new, b"behind it")):
                sockets[3].send(tag(3, ether(3, mac(1), src=source) / scapy.IP(src=v4(3), dst=v4(1)) / scapy.UDP(sport=1, dport=2) / text))
            assert b"behind it" in namespaces.receive(sockets[1], lambda frame: b"too late" in frame or b"behind it" in frame)
            assert switch.process.poll() is None
