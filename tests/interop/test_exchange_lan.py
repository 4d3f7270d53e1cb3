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
from switches import Millrace, wait_for
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
        policy = {"name": "peering", "ethertypes": [0x800, 0x806, 0x86DD], "macs_max": 1, "broadcast_pps": 50,
                  "multicast_pps": 50, "arp": "unicast", "quarantine_secs": quarantine_secs}
        created = exchange.order(
            {"operation": "create_policy", "policy": policy},
            {"operation": "create_account", "name": "exchange", "kind": "exchange"},
            {"operation": "create_service", "account": "ac-0", "kind": "exchange_lan", "name": "peering",
             "policy": "po-0", "networks": NETWORKS})["applied"]["created"]
        self.service = next(id for id in created if id.startswith("sv-"))
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
    fields = {"hwsrc": mac(number), "psrc": v4(number), "pdst": target} | fields
    return ether(number) / scapy.ARP(op=1, **fields)


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
            lan = Lan(exchange, 2, quarantine_secs=5)
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
                    wait_for(f"{check} is found at member {number}: {lan.found(number)}", seen, bound=30)
                    slowest[check, number] = time.monotonic() - started
            # A proxy answers for addresses that are not its own, and the engine asks for such addresses itself.
            def asked(frame):
                return frame[12:14] == b"\x08\x06" and frame[21] == 1
            question = scapy.Ether(namespaces.receive(sockets[1], asked, bound=30))
            answer = ether(1, question.src) / scapy.ARP(
                op=2, hwsrc=mac(1), psrc=question[scapy.ARP].pdst, hwdst=question.src, pdst=question[scapy.ARP].psrc)
            started = time.monotonic()
            sockets[1].send(bytes(answer))
            wait_for("proxy ARP is found", lambda: "proxy_arp" in lan.found(1), bound=30)
            slowest["proxy_arp", 1] = time.monotonic() - started
            # Nothing of all this has reached the other member.
            assert not namespaces.receive(sockets[2], lambda frame: frame[6:12] == bytes.fromhex(mac(1).replace(":", "")), bound=0.3)
            print(f"{len(slowest)} wrong set-ups found, the slowest after {max(slowest.values()):.2f} s")
            # Now both routers are right. Each passes after five clean seconds, and reaches the other.
            assert {lan.checklist(number) is None for number in sockets} == {False}

            def passed():
                for number, opened in sockets.items():
                    opened.send(tag(number, arp_request(number, v4(3 - number))))
                return all(lan.checklist(number) is None for number in sockets)
            wait_for("both ends pass", passed, bound=30)
            exchange.wait_in_sync()
            sockets[1].send(tag(1, arp_request(1, v4(2))))
            wanted = bytes.fromhex(mac(2).replace(":", ""))
            received = namespaces.receive(sockets[2], lambda frame: frame[:6] == wanted, bound=5)
            # The kernel takes the receiver's tag off.
            assert received and received[12:14] == b"\x08\x06", "the request is unicast"
