"""Match extensions of Open vSwitch, compared with Open vSwitch: the entry that each of many packets matches."""

import random
import struct

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData
from scapy.packet import Raw
from scapy.utils import PcapReader, PcapWriter

from cases import number_of
from switches import Millrace, OpenVSwitch, wait_for

PACKETS = 2000
RULES = 160
TTLS = [0, 1, 2, 63, 64, 65, 254, 255]
FLAGS = [0, 0x002, 0x012, 0x010, 0x011, 0x004, 0x018, 0x029, 0x100, 0x102, 0x200, 0x400, 0x800, 0xFFF]
PORTS = [0, 1, 7, 80, 255, 256, 1023, 1024, 32767, 32768, 65535]
# In this VLAN, the TTL is decremented before the packets are matched.
ROUTED_VLAN = 7


def packet(rng, number):
    """Returns a frame whose last four bytes are its number."""
    ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    vlan = rng.choice([None, None, 5, ROUTED_VLAN])
    if vlan is not None:
        ether = ether / Dot1Q(vlan=vlan)
    ttl = rng.choice([*TTLS, rng.randrange(256)])
    if vlan == ROUTED_VLAN:
        ttl = max(ttl, 2)
    end = Raw(rng.randbytes(40) + struct.pack("!I", number))
    if rng.random() < 0.05:
        return bytes(ether / ARP() / end)
    part = rng.choice(["whole", "whole", "whole", "first", "middle", "last", "atomic"])
    kind = rng.choice(["tcp", "tcp", "tcp", "udp", "sctp", "icmp", "other"])
    is_ipv6 = rng.random() < 0.5
    inside = transport(rng, kind, is_ipv6) if part in ("whole", "first", "atomic") else Raw(rng.randbytes(24))
    proto = {"tcp": 6, "udp": 17, "sctp": 132, "icmp": 58 if is_ipv6 else 1, "other": 89}[kind]
    more, offset = {"first": (1, 0), "middle": (1, 185), "last": (0, 370)}.get(part, (0, 0))
    if not is_ipv6:
        flags = rng.choice(["", "DF"]) if not more else "MF"
        return bytes(ether / IP(ttl=ttl, proto=proto, frag=offset, flags=flags, tos=rng.randrange(256)) / inside / end)
    ip = IPv6(hlim=ttl, nh=proto)
    if part != "whole":
        ip = IPv6(hlim=ttl) / IPv6ExtHdrFragment(nh=proto, offset=offset, m=more)
    return bytes(ether / ip / inside / end)


def transport(rng, kind, is_ipv6):
    sport, dport = (rng.choice([*PORTS, rng.randrange(65536)]) for _ in range(2))
    match kind:
        case "tcp":
            flags = rng.choice([*FLAGS, rng.randrange(0x1000)])
            # scapy has nine flags, and three reserved bits in a field of their own.
            return TCP(sport=sport, dport=dport, flags=flags & 0x1FF, reserved=flags >> 9)
        case "udp":
            return UDP(sport=sport, dport=dport)
        case "sctp":
            return SCTP(sport=sport, dport=dport) / SCTPChunkData(data=b"1234")
        case "icmp":
            return ICMPv6EchoRequest() if is_ipv6 else ICMP()
    return Raw(rng.randbytes(24))


def port_mask(rng):
    """Returns a prefix mask, which makes ranges, or any bits, but not all, which needs no extension."""
    if rng.random() < 0.5:
        return 0xFFFF << rng.randrange(1, 16) & 0xFFFF
    return rng.randrange(1, 0xFFFF)


def match(rng):
    """Returns some of the extensions, in ovs-ofctl's syntax."""
    kind = rng.choice(["ip", "tcp", "tcp", "udp", "sctp", "icmp"]) + rng.choice(["", "6"])
    kind = {"ip6": "ipv6"}.get(kind, kind)
    items = [kind]
    if kind in ("tcp", "tcp6") and rng.random() < 0.7:
        mask = rng.choice([0x002, 0x012, 0x017, 0x100, 0xE00, 0xFFF, rng.randrange(1, 0x1000)])
        items.append(f"tcp_flags={rng.choice(FLAGS) & mask:#x}/{mask:#x}")
    if kind[:3] in ("tcp", "udp", "sct"):
        for side in ("src", "dst"):
            if rng.random() < 0.4:
                mask = port_mask(rng)
                items.append(f"tp_{side}={rng.choice(PORTS) & mask:#x}/{mask:#x}")
    if rng.random() < 0.3 or len(items) == 1:
        items.append(f"nw_ttl={rng.choice(TTLS)}")
    fragment = rng.choice([None, None, "no", "yes", "first", "later", "not_later"])
    if kind.endswith("6") and kind != "ipv6" and fragment in (None, "yes", "later"):
        # For later fragments of IPv6, Open vSwitch has protocol 44; Millrace has that of the whole packet, as for IPv4.
        fragment = "not_later"
    if fragment == "later" and any(item.startswith("tp_") or item.startswith("tcp_") for item in items):
        # Both switches refuse ports and flags of later fragments.
        fragment = "yes"
    if fragment:
        items.append(f"nw_frag={fragment}")
    return ",".join(items)


def flows(rng):
    """Returns the entries of table 1, each with a priority of its own and a destination that identifies it."""
    yield f"table=0,priority=1,dl_vlan={ROUTED_VLAN},ip,actions=dec_ttl,goto_table:1"
    yield f"table=0,priority=1,dl_vlan={ROUTED_VLAN},ipv6,actions=dec_ttl,goto_table:1"
    yield "table=0,priority=0,actions=goto_table:1"
    for number in range(RULES):
        yield f"table=1,priority={1 + number},{match(rng)},actions={tell(number)}"
    yield f"table=1,priority=0,actions={tell(RULES)}"


def tell(number):
    return f"set_field:02:00:00:00:{number >> 8:02x}:{number & 0xFF:02x}->eth_dst,output:2"


def read(pcap):
    """Returns the frames by number."""
    try:
        with PcapReader(str(pcap)) as reader:
            return {number_of(bytes(frame)): bytes(frame) for frame in reader}
    except EOFError:
        return {}


def entries(dump):
    """Returns the entries in `dump-flows --no-stats`, sorted."""
    return sorted(line.strip() for line in dump.splitlines() if "actions=" in line)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_packet_matches_the_entry_that_it_matches_in_open_vswitch(tmp_path, seed):
    rng = random.Random(seed)
    frames = [packet(rng, number) for number in range(PACKETS)]
    rules = list(flows(rng))
    file = tmp_path / "flows"
    file.write_text("\n".join(rules) + "\n")
    with OpenVSwitch(tmp_path / "ovs") as ovs:
        # First fragments are matched by port, as in Millrace.
        ovs.ofctl("set-frags", "nx-match")
        ovs.ofctl("add-flows", file)
        listed = entries(ovs.ofctl("dump-flows", "--no-stats"))

        def all_sent():
            sent = read(ovs.tx_pcap(2))
            missing = [frame for number, frame in enumerate(frames) if number not in sent]
            ovs.send(1, missing)
            return not missing and sent

        theirs = wait_for("Open vSwitch sent them all", all_sent, bound=300)
    received, sent = tmp_path / "received.pcap", tmp_path / "sent.pcap"
    with PcapWriter(str(received), linktype=1) as writer:
        # The second round uses cached traversals.
        for frame in frames + frames:
            writer.write(Raw(frame))
    with Millrace(tmp_path / "millrace", ports=[(2, f"pcap:tx={sent}")]) as switch:
        switch.ofctl("add-flows", file)
        assert entries(switch.ofctl("dump-flows", "--no-stats")) == listed
        shown = switch.cli("show", "flows", "br0")
        assert "tcp_flags=" in shown and "nw_frag=" in shown and "nw_ttl=" in shown, shown
        port = {"name": "p1", "number": 1, "device": f"pcap:rx={received}"}
        switch.change(lambda config: config["bridge"][0]["port"].append(port))
        wait_for("the packets were sent", lambda: switch.port_packets(2)[1] >= 2 * PACKETS)
        switch.stop()
    ours = read(sent)
    wrong = [number for number in range(PACKETS) if ours.get(number) != theirs[number]]
    report = "\n".join(
        f"{frames[number].hex()}\n  theirs {rule_of(rules, theirs[number])}\n  ours   {rule_of(rules, ours.get(number))}"
        for number in wrong[:5]
    )
    assert not wrong, f"{len(wrong)} of {PACKETS} differ\n{report}"
    hit = {frame[:6] for frame in theirs.values()}
    assert len(hit) > 20, "the cases meet few entries"


def rule_of(rules, frame):
    """Returns the entry that a frame matched."""
    number = struct.unpack("!H", frame[4:6])[0] if frame else None
    return next((rule for rule in rules if number is not None and rule.endswith(tell(number))), "(dropped)")


def exact_fields(features):
    """Returns the fields that table 0 matches without masks, in ovs-ofctl's abbreviation; it does not list the others."""
    return next(line for line in features.splitlines() if "exact match or wildcard" in line)


EXTENSIONS = [
    ("tcp,tcp_flags=+syn-ack", "OFPBMC_BAD_FIELD"),
    ("ip,nw_frag=later", "OFPBMC_BAD_FIELD"),
    ("ipv6,nw_ttl=1", "OFPBMC_BAD_FIELD"),
    ("tcp,tp_dst=0x100/0xff00", "OFPBMC_BAD_MASK"),
    ("udp6,tp_src=1/1", "OFPBMC_BAD_MASK"),
    ("sctp,tp_dst=8/8", "OFPBMC_BAD_MASK"),
]


def test_a_strict_bridge_refuses_every_extension_with_the_error_of_the_specification(tmp_path):
    with Millrace(tmp_path, extra="match_extensions = false") as switch:
        for text, error in EXTENSIONS:
            assert error in switch.ofctl_errors("add-flow", f"{text},actions=drop"), text
            assert error in switch.ofctl_errors("dump-flows", text), text
            assert error in switch.ofctl_errors("add-flow", "--bundle", f"{text},actions=drop"), text
        switch.ofctl("add-flow", "tcp,tp_dst=80,actions=drop")
        exact = exact_fields(switch.ofctl("dump-table-features"))
        assert "tcp_{src,dst}" in exact and "ttl" not in exact, exact
        switch.change(lambda config: config["bridge"][0].update(match_extensions=True))
        for text, _ in EXTENSIONS:
            switch.ofctl("add-flow", f"{text},actions=drop")
        assert len(entries(switch.ofctl("dump-flows", "--no-stats"))) == 1 + len(EXTENSIONS)
        exact = exact_fields(switch.ofctl("dump-table-features"))
        assert "ttl" in exact and "tcp_{src,dst}" not in exact, exact
        # Existing entries stay, and can be deleted.
        switch.change(lambda config: config["bridge"][0].update(match_extensions=False))
        assert len(entries(switch.ofctl("dump-flows", "--no-stats"))) == 1 + len(EXTENSIONS)
        switch.ofctl("del-flows")
        assert not entries(switch.ofctl("dump-flows", "--no-stats"))
