"""Many rules that change all the time: members announce and withdraw flow specifications, and traffic that no rule concerns loses
nothing. Needs root.

The short form has 100 rules. `make exchange-check` has 10,000 rules of 20 members, and changes 1,000 of them each second for a minute;
`cargo bench -p millrace-ix-plan --bench filters` measures the forwarding rate with them.
"""

import contextlib
import os
import shutil
import struct
import time

import pytest

import bgp
import namespaces
import routing
from exchange import Exchange
from fabrics import connection, fabric, switch_config, trunk_ports
from sites import Site, Wire
from streams import Receiver, Sender
from switches import free_port, wait_for

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
MEMBERS, RULES, CHANGES, SECONDS = (20, 500, 50, 60) if LONG else (2, 50, 10, 3)
# The interface of a switch that is away from its core has room for the frames of some seconds.
RATE = 1000 if LONG else 300
# The victim's frames come from the other site.
ADDRESSES = {"source": "198.51.100.9", "destination": "203.0.255.1", "to_mac": "02:00:00:00:66:02", "from_mac": "02:00:00:00:66:01"}


def rule(member, number):
    """Returns flow specification `number` of a member: NTP to a host of its network, which gets no frame of the test."""
    destination = f"203.{member}.{number >> 7 & 127}.{number & 127}/32"
    return bgp.flow(destination, b"\x03\x81\x11" + b"\x06\x91" + struct.pack("!H", 123))


def exchange_file():
    """Returns an exchange with a circuit from the attacker, at the second site, to each member."""
    ports = [1, *range(201, 201 + MEMBERS - 1)]
    text = fabric({"one": ports, "two": [1]}) + '[[account]]\nname = "attacker"\nkind = "member"\n'
    text += connection("attacker", "attacker", "two-1:1")
    for number, port in enumerate(ports):
        text += f'[[account]]\nname = "M{number}"\nkind = "member"\nasns = [{64501 + number}]\n'
        text += connection(f"M{number}", f"m{number}", f"one-1:{port}")
        text += f"""
[[service]]
account = "M{number}"
name = "s{number}"
kind = "p2p_vc"
peer = "attacker"
[[service.end]]
connection = ["M{number}", "m{number}"]
vlan = {{ type = "port" }}
[[service.end]]
connection = ["attacker", "attacker"]
vlan = {{ type = "dot1q", vlan = {100 + number} }}
"""
    return text, ports


def test_rules_that_change_all_the_time_cost_other_traffic_nothing(tmp_path):
    if not shutil.which("stayrtr"):
        pytest.skip("stayrtr is not installed: run scripts/setup.sh")
    text, numbers = exchange_file()
    file = tmp_path / "exchange.toml"
    file.write_text(text)
    port = free_port()
    peers = {f"127.0.2.{number + 1}": (64501 + number, f"M{number}") for number in range(MEMBERS)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(namespaces.cables(("ru-v", "ru-sv"), ("ru-a", "ru-sa"), mtu=1700))
        stack.enter_context(Wire("north"))
        cache = routing.StayRtr(tmp_path / "rtr")
        cache.write([("203.0.0.0/8", 32, asn) for asn, _ in peers.values()])
        stack.enter_context(cache)
        sections = "match_extensions = true\n" + routing.settings_of(port, peers, caches=[cache])
        exchange = stack.enter_context(Exchange(tmp_path / "ix", engine=sections))
        exchange.ask("apply", file)
        # The ports of the other members lead to each other, the last to one that the exchange does not know. No frame leaves there.
        others = {number: (f"m{number}", f"link:l{at // 2}") for at, number in enumerate([*numbers[1:], 299][: MEMBERS // 2 * 2])}
        switches = []
        for dpid, (site, end, ports) in enumerate((("one", "a", {1: ("v", "kernel:ru-sv"), **others}),
                                                   ("two", "b", {1: ("a", "kernel:ru-sa")})), 1):
            config = switch_config(dpid, {**ports, **trunk_ports(end)}, bfd=False)
            switches.append(stack.enter_context(Site(tmp_path / site, config, exchange.target)))
        exchange.wait_in_sync(60)
        for switch in switches:
            wait_for("the trunk is up", lambda switch=switch: switch.is_live("north"))
        speakers = [stack.enter_context(bgp.Speaker(("127.0.0.1", port), address, asn)) for address, (asn, _) in peers.items()]
        for number, speaker in enumerate(speakers):
            speaker.announce(f"203.{number}.0.0/16")
        wait_for("the routes", lambda: sum(one["prefixes"] for one in exchange.ask("sessions")) == MEMBERS)

        def active():
            return sum(one["state"]["name"] == "active" for one in exchange.objects("fi").values())

        def entries(switch):
            return int(switch.ofctl("dump-aggregate", "table=5").split("flow_count=")[1].split()[0])
        started = time.monotonic()
        for number, speaker in enumerate(speakers):
            speaker.flows([rule(number, at) for at in range(RULES)])
        wait_for("all rules are active", lambda: active() == MEMBERS * RULES, bound=300)
        exchange.wait_in_sync(60)
        print(f"{MEMBERS * RULES} rules active in both switches after {time.monotonic() - started:.1f} s; table 5 has "
              f"{[entries(switch) for switch in switches]} entries")
        receiver = stack.enter_context(Receiver(None, "ru-v"))
        sender = stack.enter_context(Sender(None, "ru-a", 1, vlan=100, rate=RATE, **ADDRESSES))
        receiver.wait_first(1)
        first, began = 0, time.monotonic()
        for second in range(SECONDS):
            for number, speaker in enumerate(speakers):
                gone = [rule(number, at) for at in range(first, first + CHANGES // 2)]
                new = [rule(number, RULES + at) for at in range(first, first + CHANGES // 2)]
                speaker.withdraw_flows(gone)
                speaker.flows(new)
            first += CHANGES // 2
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
        behind = time.monotonic()
        last = {f"203.{number}.{at >> 7 & 127}.{at & 127}/32" for number in range(MEMBERS) for at in range(first, first + RULES)}

        def is_settled():
            found = {one["matching"]["destination"] for one in exchange.objects("fi").values() if one["state"]["name"] == "active"}
            return found == last
        wait_for("the last rules are active", is_settled, bound=120)
        exchange.wait_in_sync(60)
        behind = time.monotonic() - behind
        sent = sender.end()["sent"]
        seen = receiver.end({1: sent})["streams"]["1"]
        assert all(speaker.ended is None for speaker in speakers)
    print(f"{MEMBERS * CHANGES} rule changes a second for {SECONDS} s: both switches hold the last rules {behind:.1f} s behind the last "
          f"change; {sent - seen['received']} of {sent} frames that no rule concerns lost, {seen['repeated']} twice")
    assert (sent - seen["received"], seen["repeated"]) == (0, 0)
    assert behind < 15 or not LONG
