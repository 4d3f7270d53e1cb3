"""LAGs with Open vSwitch's bonds and with hosts that know no LACP: members that join, fail and are wrong, and traffic meanwhile."""

import json
import os
import re
import socket
import subprocess
import time

import pytest

from namespaces import cables, receive
from streams import Receiver, Sender
from switches import Millrace, OpenVSwitch, end, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
# Ends of cables: of the host here, of the members here and at the partner, and of the host behind the partner.
HOST, PORT = "mr-la0", "mr-la1"
MEMBERS, PARTNERS = ("mr-lm0", "mr-lm1"), ("mr-ln0", "mr-ln1")
THIRD = ("mr-lm2", "mr-ln2")
FAR_PORT, FAR_HOST = "mr-lf0", "mr-lf1"
CABLES = [(HOST, PORT), *zip(MEMBERS, PARTNERS), (FAR_HOST, FAR_PORT)]
MACS = {"near": "02:00:00:00:00:01", "far": "02:00:00:00:00:02"}
FLOWS = 8
LONG = bool(os.environ.get("MILLRACE_ROUTING_LONG"))
# The detection of a cut cable (100 ms, by polling each 50 ms), and what a machine adds that is busy with nothing else (`make routing`).
GAP_MAX_MS = 1000
# The frames of a flow that are under way at most.
UNDER_WAY = 50
# A member without LACPDUs leaves after 3 s with the rate fast, and after 90 s with the rate slow. A busy machine may add to the 3 s.
EXPIRED_MAX_S = 60
# Modes here and there, and the rate of both; all but the first only with MILLRACE_ROUTING_LONG.
PAIRS = [("active", "passive", "fast"), ("passive", "active", "slow"), ("active", "active", "fast")]
SLOW_PROTOCOLS = bytes.fromhex("0180c2000002")


class Partner(OpenVSwitch):
    """Open vSwitch with a bond of the other ends."""

    def __init__(self, folder, *settings, is_bond=True, partners=PARTNERS):
        super().__init__(folder)
        self.settings, self.is_bond, self.partners = settings, is_bond, partners

    def start(self):
        ports = ["--", "add-bond", "ovs-la", "bond0", *self.partners, *self.settings] if self.is_bond else [
            part for name in self.partners for part in ("--", "add-port", "ovs-la", name, *self.settings)]
        return self.start_netdev("ovs-la", *ports, "--", "add-port", "ovs-la", FAR_PORT)

    def vsctl(self, *arguments):
        self._vsctl("--timeout=50", *arguments)

    def enabled(self):
        """Returns the members of the bond that carry packets."""
        return sorted(re.findall(r"^(?:member|slave) (\S+): enabled", self.appctl("bond/show", "bond0"), re.MULTILINE))


def millrace(folder, settings="", members=MEMBERS, extra=""):
    lag = [extra, "[[bridge.lag]]", 'name = "uplink"', settings]
    for at, device in enumerate(members):
        lag += ["[[bridge.lag.member]]", f'name = "m{at}"', f"number = {11 + at}", f'device = "kernel:{device}"']
    return Millrace(folder, ports=[(1, f"kernel:{PORT}"), (5, "lag:uplink")], fail_mode="standalone", extra="\n".join(lag))


def lag(switch):
    found = json.loads(switch.cli("show", "lag", "uplink", "--json"))
    assert len(found) == 1, found
    return found[0]


def carrying(switch):
    return [member["name"] for member in lag(switch)["members"] if member["distributing"]]


def drops(switch):
    """Returns the packets that the switch dropped at LAGs and transmit queues, by reason."""
    reasons = ("lag_not_distributing", "link_protocol_limit", "transmit_full", "no_such_port", "port_down")
    found = json.loads(switch.cli("show", "drops", "--all", "--json"))
    return {drop["reason"]: drop["packets"] for drop in found if drop["reason"] in reasons}


def passed(switch):
    """Returns the packets that came from the host, and those that the LAG sent without LACPDUs."""
    port = next(port for port in json.loads(switch.cli("show", "ports", "--json"))["br0"] if port["name"] == "p1")
    shown = lag(switch)
    return port["rx"]["packets"], shown["tx"]["packets"] - sum(member["lacp"]["tx_lacpdus"] for member in shown["members"])


def both_carry(switch, partner):
    wait_for("both members carry packets here", lambda: carrying(switch) == ["m0", "m1"])
    wait_for("both members carry packets there", lambda: partner.enabled() == sorted(PARTNERS))


def senders(interface, source, destination, rate):
    near = source == "near"
    return [Sender(None, interface, flow + (0 if near else FLOWS), source=f"10.0.0.{1 if near else 2}",
                   destination=f"10.0.0.{2 if near else 1}", to_mac=MACS[destination], from_mac=MACS[source], rate=rate,
                   sport=4000 + flow, dport=5000 + flow) for flow in range(FLOWS)]


class Traffic:
    """Flows in both directions, while something happens."""

    def __init__(self, rate=200):
        self.receivers = {"far": Receiver(None, FAR_HOST), "near": Receiver(None, HOST)}
        self.senders = {"far": senders(HOST, "near", "far", rate), "near": senders(FAR_HOST, "far", "near", rate)}
        for to, receiver in self.receivers.items():
            for flow in range(FLOWS):
                receiver.wait_first(flow + (0 if to == "far" else FLOWS))

    def wait_on(self):
        """Waits until a frame of each flow arrives that is sent from now on."""
        for receiver in self.receivers.values():
            before = receiver.arrived()

            def goes_on(receiver=receiver, before=before):
                now = receiver.arrived()
                return all(now[stream][1] > before[stream][1] + UNDER_WAY for stream in before)
            wait_for("each flow goes on", goes_on)

    def end(self):
        """Returns the summaries of the flows by the end where they arrived."""
        found = {}
        for to, receiver in self.receivers.items():
            sent = {flow + (0 if to == "far" else FLOWS): sender.end()["sent"] for flow, sender in enumerate(self.senders[to])}
            streams = receiver.end(sent, lossless=False)["streams"]
            assert len(streams) == FLOWS
            found[to] = list(streams.values())
        return found


def lost(flows):
    return sum(flow["missing"] for flow in flows)


@pytest.mark.parametrize("ours, theirs, rate", PAIRS if LONG else PAIRS[:1])
def test_a_bond_of_open_vswitch_carries_flows_and_a_cut_cable_moves_them(tmp_path, ours, theirs, rate):
    settings = f'mode = "{ours}"\nrate = "{rate}"'
    bond = ("bond_mode=balance-tcp", f"lacp={theirs}", f"other_config:lacp-time={rate}")
    with cables(*CABLES), millrace(tmp_path / "millrace", settings) as switch, Partner(tmp_path / "ovs", *bond) as partner:
        both_carry(switch, partner)
        assert "LINK_DOWN" not in switch.ofctl("show").split("5(p5)")[1].split("(")[0]
        before = {member["name"]: member["tx"]["packets"] for member in lag(switch)["members"]}
        traffic = Traffic()

        def used():
            """Returns the packets that each member has sent meanwhile."""
            return [member["tx"]["packets"] - before[member["name"]] for member in lag(switch)["members"]]
        wait_for("flows use both members", lambda: min(used()) > 20)
        run("ip", "link", "set", PARTNERS[0], "down")
        wait_for("the member left", lambda: carrying(switch) == ["m1"])
        traffic.wait_on()
        found = traffic.end()
        for to, flows in found.items():
            gap = max(flow["gap_ms"] for flow in flows)
            print(f"{ours}, {theirs}, {rate}, to {to}: {lost(flows)} of {sum(flow['to'] for flow in flows)} lost, gap {gap:.0f} ms")
            assert all(flow["repeated"] == 0 for flow in flows), "a packet came twice"
            assert gap < GAP_MAX_MS or not LONG
        # The cable comes back: flows move to it, and this switch drops nothing. Open vSwitch says that it collects a
        # moment before its bond does, and drops what arrives meanwhile.
        dropped, before = drops(switch), passed(switch)
        traffic = Traffic()
        run("ip", "link", "set", PARTNERS[0], "up")
        both_carry(switch, partner)
        traffic.wait_on()
        found = traffic.end()
        print(f"{ours}, {theirs}, {rate}, a member joins: {lost(found['far'])} of ours lost, {lost(found['near'])} of theirs")
        assert drops(switch) == dropped
        (received, sent), (had_received, had_sent) = passed(switch), before
        assert sent - had_sent == received - had_received > 0, "a packet that arrived did not leave"
        shown = lag(switch)
        assert shown["tx"]["drops"] == 0
        assert shown["members"][0]["lacp"]["flaps"] >= 3 and shown["link"] == "up"
        letters = switch.cli("show", "lag", "uplink")
        assert "Gs+CD" in letters and "partner" in letters


def test_a_member_without_lacpdus_leaves_after_three_seconds_and_a_stop_takes_no_flows_along(tmp_path):
    # The partner would give up a silent member after 90 s: what it notices earlier, it was told.
    bond = ("bond_mode=balance-tcp", "lacp=active", "other_config:lacp-time=slow")
    members, partners = (*MEMBERS, THIRD[0]), (*PARTNERS, THIRD[1])
    with cables(*CABLES, THIRD), millrace(tmp_path / "millrace", 'rate = "fast"', members=members) as switch, \
            Partner(tmp_path / "ovs", *bond, partners=partners) as partner:
        # Otherwise the key is the number of a port of the bond, and changes with the bond.
        for name in partners:
            partner.vsctl("set", "interface", name, "other_config:lacp-aggregation-key=7")
        wait_for("the key", lambda: {(member["lacp"]["partner"] or {}).get("key") for member in lag(switch)["members"]} == {7})
        wait_for("all members carry packets", lambda: carrying(switch) == ["m0", "m1", "m2"])
        wait_for("and there", lambda: partner.enabled() == sorted(partners))
        partner.vsctl("del-bond-iface", "bond0", PARTNERS[1])
        began = time.monotonic()
        wait_for("the silent member left", lambda: carrying(switch) == ["m0", "m2"])
        waited = time.monotonic() - began
        print(f"left after {waited:.1f} s")
        assert waited < EXPIRED_MAX_S
        member = lag(switch)["members"][1]
        assert member["link"] == "up" and member["lacp"]["receive"] in ("expired", "defaulted")
        # A switch that stops says so: the partner does not wait for its timeout.
        switch.stop()
        began = time.monotonic()
        wait_for("the partner gave up the members", lambda: partner.enabled() == [])
        print(f"the partner gave up the members after {time.monotonic() - began:.1f} s")


def test_a_lag_below_min_links_is_down_and_controllers_see_one_port(tmp_path):
    bond = ("bond_mode=balance-tcp", "lacp=active", "other_config:lacp-time=fast")
    with cables(*CABLES), millrace(tmp_path / "millrace", 'rate = "fast"\nmin_links = 2') as switch, \
            Partner(tmp_path / "ovs", *bond) as partner:
        both_carry(switch, partner)
        text = switch.ofctl("show")
        assert re.findall(r"^ (\d+|LOCAL)\(", text, re.MULTILINE) == ["1", "5"], text
        said = tmp_path / "monitor"
        with said.open("w") as output:
            monitor = subprocess.Popen(["ovs-ofctl", "-O", "OpenFlow13", "monitor", switch.target], stdout=output, stderr=output,
                                       env=partner.environment)

        def told():
            """Returns (port, state) of each PORT_STATUS."""
            return re.findall(r"OFPT_PORT_STATUS.*?: MOD: (\d+)\(.*?state: +(\S+)[^\n]*\n", said.read_text(), re.DOTALL)
        try:
            wait_for("the monitor", lambda: json.loads(switch.cli("show", "controllers", "--json"))["br0"])
            run("ip", "link", "set", PARTNERS[0], "down")
            wait_for("the LAG is down", lambda: lag(switch)["link"] == "down")
            wait_for("the other member stands by",
                     lambda: [member["lacp"]["selected"] for member in lag(switch)["members"]] == ["unselected", "standby"])
            wait_for("the partner sends nothing into it", lambda: partner.enabled() == [])
            wait_for("the controller is told", lambda: told()[-1][1] == "LINK_DOWN")
            run("ip", "link", "set", PARTNERS[0], "up")
            both_carry(switch, partner)
            wait_for("the controller is told again", lambda: told()[-1][1] != "LINK_DOWN")
        finally:
            end(monitor)
        assert {port for port, _ in told()} == {"5"} and told()[0][1] == "LINK_DOWN", told()


@pytest.mark.parametrize("fallback", ["none", "individual"])
def test_without_a_partner_a_lag_is_down_or_one_member_carries_packets(tmp_path, fallback):
    with cables(*CABLES), millrace(tmp_path / "millrace", f'rate = "fast"\nfallback = "{fallback}"') as switch:
        expected = ["m0"] if fallback == "individual" else []
        wait_for("defaulted", lambda: all(member["lacp"]["receive"] == "defaulted" for member in lag(switch)["members"]))
        wait_for("the fallback", lambda: carrying(switch) == expected)
        wait_for("the link", lambda: lag(switch)["link"] == ("up" if expected else "down"))
        if expected:
            run("ip", "link", "set", PARTNERS[0], "down")
            wait_for("the other member", lambda: carrying(switch) == ["m1"])


def test_members_of_two_partners_never_carry_packets_together(tmp_path):
    each = ("--", "set", "port")
    with cables(*CABLES), millrace(tmp_path / "millrace", 'rate = "fast"') as switch, \
            Partner(tmp_path / "ovs", is_bond=False) as partner:
        for at, name in enumerate(PARTNERS):
            partner.vsctl(*each[1:], name, "lacp=active", "other_config:lacp-time=fast",
                          f"other_config:lacp-system-id=02:00:00:00:01:0{at}", f"other_config:lacp-system-priority={7 + at}")
        wait_for("one member carries packets", lambda: len(carrying(switch)) == 1)
        wait_for("both partners are known", lambda: all(member["lacp"]["partner"] for member in lag(switch)["members"]))
        systems = {member["lacp"]["partner"]["system"] for member in lag(switch)["members"]}
        assert systems == {"02:00:00:00:01:00", "02:00:00:00:01:01"}
        bound = time.monotonic() + 1.5
        while time.monotonic() < bound:
            assert len(carrying(switch)) <= 1
        wait_for("one of them is selected",
                 lambda: sorted(member["lacp"]["selected"] for member in lag(switch)["members"]) == ["selected", "unselected"])


def test_a_flood_of_lacpdus_at_one_member_costs_other_packets_nothing(tmp_path):
    with cables(*CABLES), millrace(tmp_path / "millrace", 'mode = "on"') as switch:
        wait_for("both members carry packets", lambda: carrying(switch) == ["m0", "m1"])
        lacpdu = SLOW_PROTOCOLS + bytes.fromhex("020000000009880901") + bytes(109)
        with Receiver(None, FAR_PORT), Receiver(None, HOST) as receiver, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as flood:
            flood.bind((PARTNERS[0], 0))
            stream = Sender(None, PARTNERS[1], 0, source="10.0.0.2", destination="10.0.0.1", to_mac=MACS["near"],
                            from_mac=MACS["far"], rate=500)
            receiver.wait_first(0)
            for _ in range(20_000):
                flood.send(lacpdu)
            sent = stream.end()["sent"]
            found = receiver.end({0: sent})["streams"]["0"]
        print(f"{found['missing']} of {sent} lost during 20000 LACPDUs")
        assert found["missing"] <= sent * 0.02
        # The interface of a switch that waits for the processor drops some before the switch receives them.
        limited = drops(switch)["link_protocol_limit"]
        assert limited > 2000
        assert carrying(switch) == ["m0", "m1"]
        assert lag(switch)["members"][0]["rx"]["packets"] >= limited


def test_a_static_lag_and_a_bond_without_lacp(tmp_path):
    with cables(*CABLES), millrace(tmp_path / "millrace", 'mode = "on"') as switch, \
            Partner(tmp_path / "ovs", "bond_mode=balance-slb", "lacp=off") as partner:
        both_carry(switch, partner)
        assert all(member["lacp"] is None for member in lag(switch)["members"])
        traffic = Traffic()
        run("ip", "link", "set", PARTNERS[1], "down")
        wait_for("the member left", lambda: carrying(switch) == ["m0"])
        traffic.wait_on()
        for to, flows in traffic.end().items():
            gap = max(flow["gap_ms"] for flow in flows)
            print(f"on, balance-slb, to {to}: {lost(flows)} lost, gap {gap:.0f} ms")
            assert gap < GAP_MAX_MS or not LONG
            assert to == "near" or all(flow["repeated"] == 0 for flow in flows)


def test_members_change_while_the_switch_runs_and_lldp_is_one_agent_for_each_member(tmp_path):
    extra = "lldp = { interval_s = 1 }"
    with cables(*CABLES), millrace(tmp_path / "millrace", 'mode = "on"', members=MEMBERS[:1], extra=extra) as switch:
        wait_for("the member carries packets", lambda: carrying(switch) == ["m0"])
        member = {"name": "m1", "number": 12, "device": f"kernel:{MEMBERS[1]}"}
        switch.change(lambda config: config["bridge"][0]["lag"][0]["member"].append(member))
        wait_for("two members", lambda: carrying(switch) == ["m0", "m1"])
        for name, partner in zip(("m0", "m1"), PARTNERS):
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as opened:
                opened.bind((partner, 3))
                frame = receive(opened, lambda frame: frame[12:14] == b"\x88\xcc")
            # Port ID by the name of the interface, and the link aggregation TLV with the number of the port.
            assert b"\x05" + name.encode() in frame, frame.hex()
            assert bytes.fromhex("fe0900120f030300000005") in frame, frame.hex()
        before = lag(switch)["tx"]["packets"]
        switch.change(lambda config: config["bridge"][0]["lag"][0]["member"].pop(0))
        wait_for("the other member stays", lambda: carrying(switch) == ["m1"])
        assert lag(switch)["tx"]["packets"] >= before, "counters of a LAG do not go back"
        # The device of the old member is free for a port.
        port = {"name": "p2", "number": 2, "device": f"kernel:{MEMBERS[0]}"}
        switch.change(lambda config: config["bridge"][0]["port"].append(port))
        wait_for("the port runs", lambda: "2(p2)" in switch.ofctl("show"))
        metrics = switch.rest.get("http://localhost/metrics", timeout=60).text
        assert 'millrace_lag_members_distributing{bridge="br0",port="p5",lag="uplink"} 1' in metrics


def test_lacpdus_are_what_a_dissector_expects(tmp_path):
    with cables(*CABLES), millrace(tmp_path / "millrace", 'rate = "fast"') as switch, \
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as opened:
        opened.bind((PARTNERS[0], 3))
        frame = receive(opened, lambda frame: frame[12:14] == b"\x88\x09")
        assert lag(switch)["mode"] == "active"
    assert len(frame) == 124 and frame[:6] == SLOW_PROTOCOLS
    capture = tmp_path / "lacp.pcap"
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    capture.write_bytes(header + bytes(8) + len(frame).to_bytes(4, "little") * 2 + frame)
    text = run("tshark", "-n", "-V", "-r", capture)
    assert "Link Aggregation Control Protocol" in text and "Malformed" not in text and "Expert Info" not in text, text
    assert re.search(r"Actor Port: 11\b", text), text
