"""Tunnels as logical ports: encapsulated packets equal scapy's, scapy's packets are decapsulated, and Open vSwitch's user-space
datapath is the other end. Ports are tap devices in namespaces; the tests run without DPDK.
"""

import os
import struct
import subprocess

import pytest
from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

import openflow as of
from namespaces import inside, made, packet_socket, receive
from switches import Millrace, OpenVSwitch, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
UNDER, HOST = "mr-under", "mr-inside"
OURS, THEIRS = "192.0.2.1", "192.0.2.2"
OURS6, THEIRS6 = "fd00:1::1", "fd00:1::2"
MACS = dict(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")


@pytest.fixture
def namespaces():
    with made(UNDER, HOST):
        yield


class Lab:
    """A switch with a host at port 1, an underlay at port 2 and a tunnel at port 3; the machine at the other end has the addresses
    of the underlay."""

    def __init__(self, folder, tunnel, is_v6=False):
        ours, theirs = (OURS6, THEIRS6) if is_v6 else (OURS, THEIRS)
        kind, _, more = tunnel.partition(",")
        device = f"{kind}:remote={theirs},local={ours},underlay=p2" + (f",{more}" if more else "")
        ports = [(1, "tap:mr-in"), (2, "tap:mr-un"), (3, device)]
        self.switch = Millrace(folder, ports=ports)
        self.ours, self.theirs = ours, theirs

    def __enter__(self):
        self.switch.start()
        for interface, namespace in (("mr-in", HOST), ("mr-un", UNDER)):
            run("ip", "link", "set", interface, "netns", namespace)
            if namespace == HOST:
                # The kernel of the host must send no packets of its own, which would be counted.
                inside(namespace, "ip", "link", "set", interface, "addrgenmode", "none")
            inside(namespace, "ip", "link", "set", interface, "up")
        inside(UNDER, "ip", "address", "add", "192.0.2.2/24", "dev", "mr-un")
        inside(UNDER, "ip", "address", "add", f"{THEIRS6}/64", "dev", "mr-un", "nodad")
        self.host, self.under = packet_socket(HOST, "mr-in"), packet_socket(UNDER, "mr-un")
        wait_for("the next hop is known", lambda: "LIVE" in self.port_desc(3))
        self.their_mac = inside(UNDER, "cat", "/sys/class/net/mr-un/address").strip()
        return self

    def port_desc(self, number):
        text = self.switch.ofctl("show")
        return text[text.index(f" {number}(p{number})") :].split("addr:", 2)[1]

    @property
    def our_mac(self):
        return self.port_desc(2).split()[0]

    def __exit__(self, *_):
        self.host.close()
        self.under.close()
        self.switch.stop()


def payload(text=b"hello, tunnel"):
    return Raw(text)


INNER = Ether(**MACS) / IP(src="10.1.0.1", dst="10.1.0.2", tos=0x02) / UDP(sport=1000, dport=2000) / payload()
INNER6 = Ether(**MACS) / IPv6(src="fd01::1", dst="fd01::2") / TCP(sport=1000, dport=2000) / payload()
LABELLED = Ether(dst=MACS["dst"], src=MACS["src"], type=0x8847) / MPLS(label=33, ttl=9) / INNER[IP]
TAGGED = Ether(**MACS) / Dot1Q(vlan=7) / INNER[IP]

# The tunnel, its tunnel_id, the packet sent to it, scapy's encapsulation, and the packet at the other end.
CASES = {
    "vxlan": ("vxlan,key=flow", 77, INNER, lambda inner: VXLAN(vni=77, flags="Instance") / inner, 4789),
    "vxlan of a tagged frame": ("vxlan,key=77", 77, TAGGED, lambda inner: VXLAN(vni=77, flags="Instance") / inner, 4789),
    "vxlan on another port": ("vxlan,key=flow,port=8472", 5, INNER6, lambda inner: VXLAN(vni=5, flags="Instance") / inner, 8472),
    "gre": ("gre", 0, INNER, lambda inner: GRE(proto=0x6558) / inner, None),
    "gre with a key": ("gre,key=flow", 0xFFFF0001, INNER,
                       lambda inner: GRE(proto=0x6558, key_present=1, key=0xFFFF0001) / inner, None),
    "gre with key and checksum": ("gre,key=9,csum=true", 9, INNER6,
                                  lambda inner: GRE(proto=0x6558, chksum_present=1, key_present=1, key=9) / inner, None),
    "gtpu": ("gtpu,key=flow", 0xFEDC0001, INNER,
             lambda inner: GTP_U_Header(teid=0xFEDC0001, E=0, S=0, PN=0) / inner[IP], 2152),
    "gtpu of ipv6": ("gtpu,key=3", 3, INNER6, lambda inner: GTP_U_Header(teid=3, E=0, S=0, PN=0) / inner[IPv6], 2152),
    "mplsudp": ("mplsudp", 0, LABELLED, lambda inner: inner[MPLS], 6635),
}


@pytest.mark.parametrize("is_v6", [False, True], ids=["over IPv4", "over IPv6"])
@pytest.mark.parametrize("name", CASES)
def test_what_goes_through_a_tunnel_is_what_scapy_builds(tmp_path, namespaces, name, is_v6):
    tunnel, key, inner, build, port = CASES[name]
    with Lab(tmp_path, tunnel, is_v6) as lab:
        set_key = f"set_field:{key}->tunnel_id," if "key=flow" in tunnel else ""
        lab.switch.ofctl("add-flow", f"in_port=1,actions={set_key}output:3")
        lab.switch.ofctl("add-flow", f"priority=9,in_port=3,in_phy_port=2,tunnel_id={key},actions=output:1".replace("in_phy_port=2,", ""))
        ip = IPv6 if is_v6 else IP
        protocol = 17 if port else 47

        def is_enveloped(frame):
            packet = Ether(frame)
            return ip in packet and (packet[ip].nh if is_v6 else packet[ip].proto) == protocol

        lab.host.send(bytes(inner))
        got = receive(lab.under, is_enveloped)
        assert got, lab.switch.cli("show", "drops")
        packet = Ether(got)
        outer = packet[ip]
        # The inner header has ECT(0), and so has the outer; other bits of its class are not copied.
        has_class = name in ("vxlan", "gre", "gre with a key", "gtpu", "vxlan of a tagged frame")
        tos = 2 if has_class else 0
        if is_v6:
            around = IPv6(src=lab.ours, dst=lab.theirs, hlim=64, tc=tos)
        else:
            around = IP(src=lab.ours, dst=lab.theirs, ttl=64, id=0, flags="DF", tos=tos)
        if port:
            sport = outer[UDP].sport
            assert 0xC000 <= sport
            around = around / UDP(sport=sport, dport=port, chksum=0)
        else:
            around.proto = 47
            if is_v6:
                around.nh = 47
        wanted = bytes(Ether(dst=lab.their_mac, src=lab.our_mac) / around / build(inner))
        assert got == wanted, f"\n{got.hex()}\n{wanted.hex()}"
        # The reverse direction, with ports and addresses exchanged.
        if is_v6:
            around = IPv6(src=lab.theirs, dst=lab.ours, hlim=9)
        else:
            around = IP(src=lab.theirs, dst=lab.ours, ttl=9)
        if port:
            around = around / UDP(sport=5, dport=port)
        elif is_v6:
            around.nh = 47
        else:
            around.proto = 47
        lab.under.send(bytes(Ether(dst=lab.our_mac, src=lab.their_mac) / around / build(inner)))
        tail = bytes(inner)[14:]
        got = receive(lab.host, lambda frame: frame[14:] in (tail, tail[4:]))
        assert got, lab.switch.cli("show", "drops")
        if tunnel.startswith(("vxlan", "gre")) and name != "vxlan of a tagged frame":
            assert got == bytes(inner)
        wait_for("both are counted", lambda: lab.switch.port_packets(3) == (1, 1))


def test_a_buffered_packet_of_a_tunnel_keeps_its_tunnel_id(tmp_path, namespaces):
    """A flow_mod that names the buffer sends the packet through the tables again; its entry matches the tunnel_id."""
    with Lab(tmp_path, "vxlan,key=flow") as lab, of.Client(lab.switch.openflow_port) as client:
        in_port = (0, struct.pack("!I", 3))
        # The first 32 bytes of a packet, so that it is buffered.
        to_controller = struct.pack("!HHIH6x", 0, 16, of.CONTROLLER, 32)
        client.send(of.flow_add(of.oxm_match(in_port), to_controller, priority=1))
        client.barrier()
        around = IP(src=THEIRS, dst=OURS, ttl=9) / UDP(sport=5, dport=4789)
        lab.under.send(bytes(Ether(dst=lab.our_mac, src=lab.their_mac) / around / VXLAN(vni=7, flags="Instance") / INNER))
        buffer = struct.unpack_from("!I", client.until(of.PACKET_IN)[3], 8)[0]
        assert buffer != of.NO_BUFFER
        entry = of.flow_add(of.oxm_match(in_port, (38, struct.pack("!Q", 7))), of.output(1), priority=2)
        client.send(entry[:32] + struct.pack("!I", buffer) + entry[36:])
        assert receive(lab.host, lambda frame: frame == bytes(INNER)), lab.switch.cli("show", "drops")


class OvsEnd(OpenVSwitch):
    """The other end of a tunnel: Open vSwitch's user-space datapath in the underlay's namespace. Its bridge `ovs-un` has the interface
    to the switch and the address of the other end; its bridge `ovs-in` has the tunnel and an inner address."""

    def __init__(self, folder, kind, options):
        super().__init__(folder)
        self.kind, self.options = kind, options

    def start(self):
        database = self._start_database()
        self._spawn("ip", "netns", "exec", UNDER, "ovs-vswitchd", database, "--disable-system",
                    f"--unixctl={self.folder}/vs.ctl")
        inside(UNDER, "ip", "address", "flush", "dev", "mr-un")
        self._vsctl("--timeout=50", "add-br", "ovs-un", "--", "set", "bridge", "ovs-un", "datapath_type=netdev",
                    "--", "add-port", "ovs-un", "mr-un")
        self._vsctl("--timeout=50", "add-br", "ovs-in", "--", "set", "bridge", "ovs-in", "datapath_type=netdev",
                    "--", "add-port", "ovs-in", "tn0", "--", "set", "interface", "tn0", f"type={self.kind}",
                    f"options:remote_ip={OURS}", f"options:local_ip={THEIRS}", *self.options)
        for interface, address in (("ovs-un", f"{THEIRS}/24"), ("ovs-in", "10.9.0.2/24")):
            inside(UNDER, "ip", "address", "add", address, "dev", interface)
            inside(UNDER, "ip", "link", "set", interface, "up")
        return self


@pytest.mark.parametrize(
    "tunnel, kind, options",
    [
        ("vxlan,key=42", "vxlan", ["options:key=42"]),
        ("vxlan,key=42,csum=true", "vxlan", ["options:key=42", "options:csum=true"]),
        ("gre,key=42", "gre", ["options:key=42"]),
        ("gre", "gre", []),
    ],
)
def test_open_vswitch_is_the_other_end(tmp_path, namespaces, tunnel, kind, options):
    with Lab(tmp_path / "millrace", tunnel) as lab, OvsEnd(tmp_path / "ovs", kind, options):
        lab.switch.ofctl("add-flow", "in_port=1,actions=output:3")
        lab.switch.ofctl("add-flow", "in_port=3,actions=output:1")
        inside(HOST, "ip", "address", "add", "10.9.0.1/24", "dev", "mr-in")
        # The outer headers have to fit, too.
        inside(HOST, "ip", "link", "set", "mr-in", "mtu", "1450")
        ping = ["ip", "netns", "exec", HOST, "ping", "-c", "1", "-W", "1"]
        answers = lambda *more: subprocess.run([*ping, *more, "10.9.0.2"], capture_output=True).returncode == 0
        wait_for("an answer", answers, bound=60)
        assert answers("-W", "20", "-s", "1400", "-M", "do")
        received, sent = lab.switch.port_packets(3)
        assert received >= 2 and sent >= 2


def test_what_is_too_long_unknown_or_broken_is_dropped_by_name(tmp_path, namespaces):
    with Lab(tmp_path, "vxlan,key=5") as lab:
        lab.switch.ofctl("add-flow", "in_port=1,actions=output:3")
        lab.switch.ofctl("add-flow", "in_port=3,actions=output:1")

        def dropped(name):
            lines = [line for line in lab.switch.cli("show", "drops").splitlines() if name in line]
            return bool(lines)

        lab.host.send(bytes(Ether(**MACS) / IP(src="10.1.0.1", dst="10.1.0.2") / UDP() / payload(bytes(1472))))
        wait_for("tunnel_mtu", lambda: dropped("tunnel_mtu"))
        outer = Ether(dst=lab.our_mac, src=lab.their_mac) / IP(src=THEIRS, dst=OURS) / UDP(sport=5, dport=4789)
        lab.under.send(bytes(outer / VXLAN(vni=6, flags="Instance") / INNER))
        wait_for("tunnel_unknown", lambda: dropped("tunnel_unknown"))
        lab.under.send(bytes(outer / VXLAN(vni=5, flags=0) / INNER))
        wait_for("tunnel_malformed", lambda: dropped("tunnel_malformed"))
        congested = outer.copy()
        congested[IP].tos = 3
        incapable = Ether(**MACS) / IP(src="10.1.0.1", dst="10.1.0.2") / UDP() / payload()
        lab.under.send(bytes(congested / VXLAN(vni=5, flags="Instance") / incapable))
        wait_for("tunnel_congested", lambda: dropped("tunnel_congested"))


def test_a_tunnel_is_down_while_its_next_hop_is_silent(tmp_path, namespaces):
    with Lab(tmp_path, "vxlan,key=5") as lab:
        lab.switch.ofctl("add-flow", "in_port=1,actions=output:3")
        # The neighbour stops answering; the switch sends three requests after half a minute.
        inside(UNDER, "ip", "link", "set", "mr-un", "arp", "off")
        wait_for("the tunnel is down", lambda: "LINK_DOWN" in lab.port_desc(3), bound=120)
        inside(UNDER, "ip", "link", "set", "mr-un", "arp", "on")
        wait_for("the tunnel is up", lambda: "LIVE" in lab.port_desc(3))
