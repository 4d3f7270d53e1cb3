"""An exchange with real switches: circuits that pass frames, survive the engine, and are repaired. The tests with interfaces need
root."""

import json
import os
import random
import re
import signal
import socket
import threading
import time

import pytest
import scapy.all as scapy

import namespaces
from exchange import Exchange
from switches import Millrace, OpenVSwitch, run, wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="virtual Ethernet needs root")
LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
PAIRS = [("ix-a", "ix-sa"), ("ix-b", "ix-sb")]


def frame(text, vlan=None):
    tag = scapy.Dot1Q(vlan=vlan) if vlan else scapy.NoPayload()
    ether = scapy.Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", type=0x8100 if vlan else 0x88B5)
    body = text.encode().ljust(60, b".")
    return bytes(ether / scapy.Dot1Q(vlan=vlan, type=0x88B5) / body) if vlan else bytes(ether / body)


def socket_on(interface):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # Frames of a minute wait while this process does not run.
    opened.setsockopt(socket.SOL_SOCKET, namespaces.SO_RCVBUFFORCE, 64 << 20)
    opened.bind((interface, namespaces.ETH_P_ALL))
    opened.settimeout(0.2)
    return opened


def frames_until(link, over):
    """Yields the frames that arrive at a socket of `socket_on`, until an event is set and none comes; or until the interface is gone,
    because the test has failed."""
    while True:
        try:
            yield link.recv(2000)
        except TimeoutError:
            if over.is_set():
                return
        except OSError:
            return


def passes(one, other, sent, text, bound=30.0):
    """Sends a frame until it arrives; returns the seconds that took, or None."""
    started = time.monotonic()
    while time.monotonic() < started + bound:
        one.send(sent)
        if namespaces.receive(other, lambda frame: text.encode() in frame, bound=0.2):
            return time.monotonic() - started
    return None


def counters(switch):
    """Returns the packets of each entry of table 3, by its match."""
    lines = [line for line in switch.ofctl("dump-flows").splitlines() if "table=3" in line]
    packets = {}
    for line in lines:
        fields = dict(part.split("=", 1) for part in line.replace(",", " ").split() if "=" in part)
        packets[line.split("priority=")[1].split(" actions")[0]] = int(fields["n_packets"])
    return packets


def flows(switch):
    """Returns the entries without their counters and times. The marker's cookie is the newest revision."""
    lines = [line for line in switch.ofctl("dump-flows").splitlines() if "table=" in line and "table=7" not in line]
    return {re.sub(r"(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*, ?", "", line).strip() for line in lines}


@needs_root
def test_a_circuit_passes_frames_within_a_second_and_outlives_its_engine(tmp_path):
    with namespaces.cables(*PAIRS), Exchange(tmp_path / "ix") as exchange:
        ports = [(1, "kernel:ix-sa"), (2, "kernel:ix-sb")]
        with Millrace(tmp_path / "switch", ports=ports, controllers=[exchange.target]) as switch:
            _, switch_id = exchange.create_site("Otemachi", 1, [1, 2])
            account, (one, two) = exchange.create_member("A", f"{switch_id}:1", f"{switch_id}:2")
            exchange.wait_in_sync()
            a, b = socket_on("ix-a"), socket_on("ix-b")
            ordered = time.monotonic()
            answer = exchange.ask("p2p", "ab", "--account", account, "--a", f"{one}:100", "--b", two, "--rate", "200")
            assert passes(a, b, frame("first", 100), "first") is not None, exchange.log.read_text()[-4000:]
            took = time.monotonic() - ordered
            print(f"order to first frame: {took * 1000:.0f} ms, the command line included")
            assert passes(b, a, frame("back"), "back") is not None
            exchange.wait_in_sync()
            service = exchange.ask("services")[0]
            assert (service["state"], service["status"]) == ("production", [])
            assert exchange.ask("journal", str(answer["change"]))[-1]["state"] == "cleaned"

            # The engine dies: frames still pass. Another controller adds an entry and removes one meanwhile.
            exchange.stop(signal.SIGKILL)
            for number in range(20):
                assert passes(a, b, frame(f"without engine {number}", 100), f"engine {number}") is not None
            switch.ofctl("add-flow", "table=3,priority=9,in_port=7,actions=drop")
            before = counters(switch)
            assert sum(before.values()) >= 20
            exchange.start()
            exchange.wait_in_sync()
            assert "in_port=7" not in switch.ofctl("dump-flows")
            assert all(packets >= before[match] for match, packets in counters(switch).items())
            assert passes(a, b, frame("after", 100), "after") is not None

            # A foreign change is noticed without the next reconciliation.
            switch.ofctl("add-flow", "table=5,priority=7777,actions=drop")
            wait_for("the foreign entry is removed", lambda: "priority=7777" not in switch.ofctl("dump-flows"))

            # After the deletion of the circuit, no frames pass, and its entries are gone.
            exchange.command("delete", service["id"])
            exchange.wait_in_sync()
            assert passes(a, b, frame("too late", 100), "too late", 1) is None
            wait_for("the service is gone", lambda: exchange.ask("services") == [])
            assert counters(switch) == {}
            print(exchange.command("audit", "verify", "--database", exchange.database))
    assert exchange.stop() in (0, -signal.SIGKILL)


def test_an_exchange_on_open_vswitch_is_mended_and_ends_clean(tmp_path):
    with Exchange(tmp_path / "ix") as exchange, OpenVSwitch(tmp_path / "ovs") as switch:
        run("ovs-vsctl", f"--db=unix:{switch.folder}/db.sock", "set", "bridge", "br0",
            "other-config:datapath-id=0000000000000002", "--", "set-controller", "br0", exchange.target)
        _, switch_id = exchange.create_site("Makuhari", 2, [1, 2])
        account, (one, two) = exchange.create_member("B", f"{switch_id}:1", f"{switch_id}:2")
        exchange.ask("p2p", "ab", "--account", account, "--a", f"{one}:100", "--b", f"{two}:7")
        exchange.wait_in_sync()
        switch.send(1, [frame("by ovs", 100)])
        wait_for("the frame left", lambda: [
            packet for packet in scapy.rdpcap(str(switch.tx_pcap(2))) if b"by ovs" in bytes(packet)])
        [packet] = [packet for packet in scapy.rdpcap(str(switch.tx_pcap(2))) if b"by ovs" in bytes(packet)]
        assert bytes(packet) == frame("by ovs", 7)
        entries = flows(switch)
        switch.ofctl("del-flows", "table=3")
        switch.ofctl("add-flow", "table=3,priority=9,actions=drop")
        wait_for("the switch is mended",
                 lambda: flows(switch) == entries, bound=80)
        assert exchange.stop() == 0
        verified = exchange.command("audit", "verify", "--database", exchange.database)
        assert "valid: 3 entries, signed up to entry 3" in verified, verified


def test_an_engine_killed_at_any_time_is_in_sync_within_ten_seconds(tmp_path):
    """`make exchange-check` kills it 50 times."""
    rng = random.Random(7)
    kills = 50 if LONG else 4
    exchange = Exchange(tmp_path / "ix").start()
    ports = [(number, "link:a" if number < 3 else "link:b") for number in (1, 2, 3, 4)]
    with Millrace(tmp_path / "switch", ports=ports, controllers=[exchange.target]) as switch:
        _, switch_id = exchange.create_site("Otemachi", 1, [1, 2, 3, 4])
        account, connections = exchange.create_member("A", *(f"{switch_id}:{number}" for number in (1, 2, 3, 4)))
        exchange.wait_in_sync()
        # One circuit is there whenever the engine is killed: on a busy machine none may be ordered in time.
        answer = exchange.ask("p2p", "first", "--account", account, "--a", f"{connections[0]}:4000", "--b", f"{connections[1]}:4000")
        accepted, slowest = {"first": answer["change"]}, 0.0
        for kill in range(kills):
            killer = threading.Timer(rng.uniform(0.05, 0.4), exchange.process.send_signal, [signal.SIGKILL])
            killer.start()
            try:
                for number in range(100):
                    name, vlan = f"circuit {kill} {number}", 2 + len(accepted)
                    one, two = rng.sample(connections, 2)
                    answer = exchange.ask("p2p", name, "--account", account, "--a", f"{one}:{vlan}", "--b", f"{two}:{vlan}")
                    accepted[name] = answer["change"]
            except (AssertionError, ValueError):
                pass
            killer.join()
            exchange.process.wait(timeout=60)
            started = time.monotonic()
            exchange.start()
            exchange.wait_in_sync()
            slowest = max(slowest, time.monotonic() - started)
            # An order that was accepted is there; one whose answer was lost may be.
            names = {service["name"] for service in exchange.ask("services")}
            assert set(accepted) <= names and len(names - set(accepted)) <= kill + 1
            accepted.update({name: 0 for name in names})
        states = {service["state"] for service in exchange.ask("services")}
        assert states == {"production"}, states
        print(exchange.command("audit", "verify", "--database", exchange.database))
        print(f"{kills} kills, {len(accepted)} circuits, slowest start to in sync {slowest:.2f} s")
        assert slowest < 10 or not LONG
        assert "priority=" in switch.ofctl("dump-flows", "table=3")
    exchange.stop()


def test_a_change_whose_frames_would_leave_elsewhere_is_refused_in_words_and_the_traffic_stays(tmp_path):
    with Exchange(tmp_path / "ix", engine='foreign_entries = "leave"\nverification_secs = 60') as exchange:
        ports = [(number, "link:va" if number in (1, 3) else "link:vb") for number in (1, 2, 3, 4)]
        with Millrace(tmp_path / "switch", ports=ports, controllers=[exchange.target]) as switch:
            _, switch_id = exchange.create_site("Otemachi", 1, [1, 2, 3, 4])
            account, (one, two, three) = exchange.create_member("A", *(f"{switch_id}:{number}" for number in (1, 2, 3)))
            exchange.ask("p2p", "first", "--account", account, "--a", f"{one}:100", "--b", f"{two}:100")
            exchange.wait_in_sync()
            before = flows(switch)
            # Somebody sends all frames of VLAN 101 at port 1 to port 2.
            switch.ofctl("add-flow", "table=0,priority=64000,in_port=1,dl_vlan=101,actions=output:2")
            wait_for("the foreign entry is known", lambda: exchange.switch(0)["foreign"] == 1)
            violations = exchange.ask("verify", check=False)
            assert any(text.startswith("V1") for text in violations), violations
            change = exchange.ask("p2p", "second", "--account", account, "--a", f"{one}:101", "--b", f"{three}:101")["change"]

            def outcome():
                return exchange.ask("journal", str(change))[-1]
            wait_for(f"the change is refused: {outcome()}", lambda: outcome()["state"] == "rolled_back")
            reason = json.dumps(outcome())
            assert "the verification refuses the change: V1" in reason and "VLAN 101" in reason, reason
            wait_for("the staged entries are gone", lambda: flows(switch) - before and len(flows(switch) - before) == 1)
            assert before <= flows(switch), "the entries of the first circuit are as before"
            assert [service["name"] for service in exchange.ask("services")] == ["first"]
            # Without the entry, the same order passes.
            switch.ofctl("del-flows", "--strict", "table=0,priority=64000,in_port=1,dl_vlan=101")
            wait_for("the foreign entry is gone", lambda: exchange.switch(0)["foreign"] == 0)
            exchange.ask("p2p", "second", "--account", account, "--a", f"{one}:101", "--b", f"{three}:101")
            exchange.wait_in_sync()
            assert {service["state"] for service in exchange.ask("services")} == {"production"}
            assert exchange.ask("verify") == []
