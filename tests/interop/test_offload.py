"""Offload to a NIC that classifies: `millrace-nic` marks packets of heavy flows, and the switch uses the marks. A device that
errs, dies or refuses costs time and no packet.
"""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import time

import pytest

import openflow as of
from offloading import BATCH, FLOWS, NIC, flow_of, options_of, tagged, wired
from switches import TARGET, wait_for

LONG = bool(os.environ.get("MILLRACE_NIC_LONG"))
FAULTS = ["wrong-marks", "kept-rows", "refused-rows", "double-answers"]
if LONG:
    FAULTS += ["lost-marks", "ignored-rows", "random-refusals", "few-rows", "refused-removals", "slow-commands", "ignored-fragments"]
    FAULTS += ["lost-fences", "early-fences", "late-fences", "wrong-hashes", "wrong-queues", "wrong-buffers", "wrong-lengths"]
# Faults without which the port gets no entries when they begin.
FROM_START = {"ignored-rows", "refused-rows", "random-refusals", "few-rows", "slow-commands", "ignored-fragments"}
# Fields that frames of the test do not have; for each fault, the tables match another one of them.
FIELDS = ["ip,nw_src=10.9.0.0/16", "udp,tp_src=9", "udp,tp_dst=9", "dl_src=02:00:00:00:00:09", "dl_dst=02:00:00:00:00:09", "ip,ip_dscp=9"]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="kernel: needs root"),
    pytest.mark.skipif(not NIC.exists(), reason="millrace-nic is not built"),
]


def test_marks_of_heavy_flows_replace_lookups_and_no_packet_goes_another_way(tmp_path):
    with wired(tmp_path) as bed:
        wrong = bed.send_until("marks in use", lambda offload: offload["used"] > 2000 and offload["entries"] == FLOWS)
        assert wrong + bed.settle() == 0
        offload = bed.offload()
        assert (offload["level"], offload["by"], offload["mismatches"]) == ("trust", "operator", 0), offload
        assert 0 < offload["verified"] < offload["used"] <= offload["marked"] <= offload["packets"], offload
        # Every packet is counted once at its flow entry, at its port and in the offload, marked or not.
        wait_for("all packets are counted", lambda: bed.counted() == bed.switch.port_packets(1)[0])
        before, counted = bed.offload()["packets"], bed.counted()
        wrong = bed.send_until("more packets", lambda offload: offload["packets"] > before + BATCH)
        assert wrong + bed.settle() == 0
        wait_for("the same number of packets", lambda: bed.offload()["packets"] - before == bed.counted() - counted)
        shown = bed.switch.cli("show", "offload")
        assert "trust" in shown and f"{FLOWS}/" in shown, shown
        entries = bed.switch.rest.get(f"{bed.switch.url}/bridges/br0/ports/p1/nic-entries", timeout=60).json()
        destinations = [re.search(r"nw_dst=10\.0\.1\.(\d+)", entry["match"])[1] for entry in entries]
        assert sorted(map(int, destinations)) == list(range(FLOWS)), entries
        dumped = bed.switch.cli("nic", "dump", "br0", "p1")
        assert all(f"{entry['mark']:#x}" in dumped for entry in entries), dumped
        registers = {
            register["name"]: register["value"]
            for register in bed.switch.rest.get(f"{bed.switch.url}/bridges/br0/ports/p1/nic-registers", timeout=60).json()
        }
        assert registers["CONTROL"] == registers["STATUS"] == 1 and registers["HASH_KEY[0..12]"] is None, registers
        assert registers["COUNT_FRAMES"] > 0 and registers["GENERATION"] >= FLOWS, registers
        assert "MRNC" in bed.switch.cli("nic", "registers", "br0", "p1")
        metrics = bed.switch.rest.get("http://localhost/metrics", timeout=60).text
        assert f'millrace_offload_entries{{bridge="br0",port="p1"}} {FLOWS}' in metrics
        operations = offload["operations"]
        # The tables change, and nothing is written to the device.
        for flow in range(FLOWS):
            bed.switch.ofctl("mod-flows", f"ip,nw_dst=10.0.1.{flow},actions=output:{3 - flow % 2}")
        bed.received()
        used = bed.offload()["used"]
        turned = 0

        def used_again():
            nonlocal turned
            bed.send()
            even, odd = bed.received()
            assert not [flow for flow in even if flow % 2 == 0] and not [flow for flow in odd if flow % 2]
            turned += len(even) + len(odd)
            return bed.offload()["used"] > used + 2000

        wait_for("marks in use after the change", used_again)
        assert turned > 0 and bed.offload()["operations"] == operations


def test_a_device_whose_marks_are_wrong_is_caught_and_then_makes_no_wrong_packet(tmp_path):
    with wired(tmp_path, fault="wrong-marks") as bed:
        assert bed.send_until("marks in use", lambda offload: offload["used"] > 2000 and offload["entries"] == FLOWS) == 0
        bed.nic.send_signal(signal.SIGUSR1)
        bed.send_until("distrust", lambda offload: offload["distrusted"])
        bed.settle()
        before = bed.offload()
        assert (before["level"], before["by"]) == ("verify", "audit"), before
        assert "audit" in bed.switch.cli("show", "offload")
        wrong = bed.send_until("wrong marks that were compared", lambda offload: offload["mismatches"] > before["mismatches"] + 500)
        assert wrong + bed.settle() == 0
        assert "a mark of the device was wrong" in bed.switch.log.read_text()


def test_no_fault_makes_a_wrong_packet_while_marks_are_verified(tmp_path):
    with wired(tmp_path, mode="verify") as bed:
        for fault, field in zip(FAULTS, itertools.cycle(FIELDS)):
            wrong = 0
            bed.stop_nic()
            wait_for("the link of p1 is down", lambda: not bed.is_up())
            bed.options = options_of(fault)
            bed.start_nic()
            wait_for("the link of p1", bed.is_up)
            if fault in FROM_START:
                bed.nic.send_signal(signal.SIGUSR1)
                wrong += bed.send_until(f"{fault}: operations", lambda offload: offload["operations"] > 0)
            else:
                wrong += bed.send_until(f"{fault}: entries", lambda offload: offload["used"] > 0)
                bed.nic.send_signal(signal.SIGUSR1)
            # The tables match another field: the device is emptied, as far as it does what it confirms.
            bed.switch.ofctl("add-flow", f"priority=9,{field},actions=drop")
            least = bed.switch.port_packets(1)[0] + 4 * BATCH

            def are_more():
                nonlocal wrong
                bed.send()
                wrong += bed.wrong()
                # Completions that are invalid end the connection, which comes back.
                return bed.switch.port_packets(1)[0] > least

            wait_for(f"{fault}: more packets", are_more)
            assert wrong + bed.settle() == 0, fault
            if fault == "refused-rows":
                bed.send_until("the refusal", lambda offload: "shape" in [refusal["reason"] for refusal in offload["refusals"]])
                assert "shape " in bed.switch.cli("show", "offload")
            # The field is matched no more.
            bed.switch.ofctl("del-flows", f"priority=9,{field}", "--strict")
        print(f"N5: 0 wrong packets at verify with {len(FAULTS)} faults")


IGNORED = [("ignored-source-port", "udp,tp_src={}", lambda flow: 1000 + flow)]
if LONG:
    IGNORED.append(("ignored-source-mac", "dl_src=02:00:00:00:00:{:02x}", lambda flow: 0x10 + flow))


@pytest.mark.parametrize(("fault", "match", "value"), IGNORED, ids=[fault for fault, _, _ in IGNORED])
def test_a_trusted_device_that_ignores_a_field_is_caught_and_then_makes_no_wrong_packet(tmp_path, fault, match, value):
    with wired(tmp_path, fault=fault) as bed:
        bed.nic.send_signal(signal.SIGUSR1)
        bed.switch.ofctl("del-flows")
        # Flows differ only in the field, as far as the tables match them.
        for flow in range(FLOWS):
            bed.switch.ofctl("add-flow", f"priority=5,{match.format(value(flow))},actions=output:{2 + flow % 2}")
        bed.send_until("distrust", lambda offload: offload["distrusted"])
        bed.settle()
        before = bed.offload()
        assert (before["level"], before["by"]) == ("verify", "audit"), before
        print(f"N5: {fault}: {before['used']} marks were used before the device was distrusted")
        wrong = bed.send_until("wrong marks that were compared", lambda offload: offload["mismatches"] > before["mismatches"] + 200)
        assert wrong + bed.settle() == 0


class Beside:
    """Traffic from p2 to p3 beside that of p1, of which nothing may be lost."""

    MARKER = b"beside p1"

    def __init__(self, bed):
        self.bed, self.sent, self.arrived = bed, 0, 0
        bed.switch.ofctl("add-flow", "priority=9,in_port=2,actions=output:3")

    def send(self, frames=64):
        for _ in range(frames):
            with contextlib.suppress(OSError):
                self.bed.ends[0].send(bytes([2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4, 0x88, 0xB5]) + self.MARKER + bytes(40))
                self.sent += 1

    def receive(self):
        """Takes the frames of both ends; returns the number of frames of p1 at the wrong port."""
        wrong = 0
        for parity, end in enumerate(self.bed.ends):
            with contextlib.suppress(BlockingIOError):
                while True:
                    received = end.recv(2048)
                    self.arrived += self.MARKER in received
                    flow = flow_of(received)
                    wrong += flow is not None and flow % 2 != parity
        return wrong


def test_a_device_that_is_killed_or_hangs_comes_back_with_its_entries_and_other_ports_lose_nothing(tmp_path):
    rounds = 50 if LONG else 2
    back = []
    with wired(tmp_path) as bed:
        beside, wrong = Beside(bed), 0

        def step():
            nonlocal wrong
            beside.send()
            bed.send()
            wait_for("all frames from p2", all_arrived)

        def all_arrived():
            nonlocal wrong
            wrong += beside.receive()
            return beside.arrived == beside.sent

        def until(what, condition):
            def met():
                step()
                return condition()

            wait_for(what, met)

        for _ in range(rounds):
            until("marks in use", lambda: bed.offload()["used"] > 500)
            bed.stop_nic()
            until("the port knows that its device is away", lambda: bed.offload()["by"] == "device" and not bed.is_up())
            bed.start_nic()
            started = time.monotonic()
            until("the link of p1", bed.is_up)
            back.append(time.monotonic() - started)
            until("marks in use again", lambda: bed.offload()["used"] > 500)
            # A device that hangs holds the frames of its port only.
            bed.nic.send_signal(signal.SIGSTOP)
            for _ in range(5):
                step()
            before = bed.switch.port_packets(1)[0]
            bed.nic.send_signal(signal.SIGCONT)
            until("frames of p1 again", lambda least=before: bed.switch.port_packets(1)[0] > least + 64)
        wrong += bed.settle()
        assert wrong == 0 and beside.arrived == beside.sent, (wrong, beside.sent, beside.arrived)
    worst = max(back)
    print(f"N17: {rounds} kills and {rounds} hangs: {wrong} wrong, {beside.sent - beside.arrived} of {beside.sent} lost, back in {worst:.2f} s")


def test_flow_mods_write_nothing_to_the_device(tmp_path):
    """Gate N6 asks for 10,000 flow_mods a second for a minute; here they come as fast as the switch takes them, in turn without
    offload and with.
    """
    flows, seconds, turns = (10_000, 5, 12) if LONG else (300, 0, 1)
    sent, took = {None: 0, "trust": 0}, {None: 0.0, "trust": 0.0}

    def flow_mods(port):
        matches = (of.oxm_match((5, b"\x08\x00"), (12, bytes([10, 1, number >> 8, number & 255]))) for number in range(flows))
        return b"".join(of.flow_add(match, of.output(port), priority=6) for match in matches)

    rounds = [flow_mods(2), flow_mods(3)]

    def change_all(number):
        client.send(rounds[number % 2], of.message(of.BARRIER_REQUEST, xid=number + 2))
        while (got := client.next())[1] != of.BARRIER_REPLY:
            assert got[1] != of.ERROR, got
        assert got[2] == number + 2

    with wired(tmp_path) as bed, of.Client(bed.switch.openflow_port) as client:
        change_all(0)
        for mode in (None, "trust") * turns:
            bed.set_offload({"mode": mode} if mode else None)
            wrong = 0
            if mode:
                wrong = bed.send_until("marks in use", lambda offload: offload["used"] > 2000 and offload["entries"] == FLOWS)
            before = bed.offload()["operations"] if mode else 0
            started, number = time.monotonic(), 0
            while number == 0 or time.monotonic() - started < seconds:
                number += 1
                change_all(number)
                bed.send()
                wrong += bed.wrong()
            sent[mode] += number * flows
            took[mode] += time.monotonic() - started
            assert wrong + bed.settle() == 0
            dumped = bed.switch.ofctl("dump-aggregate", "ip,nw_dst=10.1.0.0/16")
            assert f"flow_count={flows}" in dumped, dumped
            if mode:
                # The entries of before stay, and no others have come.
                assert bed.offload()["operations"] == before, (before, bed.offload())
    rate = {mode: sent[mode] / took[mode] for mode in sent}
    print(f"N6: {rate['trust']:.0f} flow_mods a second with offload, {rate[None]:.0f} without: {rate['trust'] / rate[None]:.2f}, 0 operations")


def test_offload_ends_and_begins_again_by_the_configuration_under_traffic(tmp_path):
    with wired(tmp_path, mode="verify") as bed:
        wrong = bed.send_until("marks in use", lambda offload: offload["used"] > 500)
        bed.set_offload(None)
        wait_for("the offload ends", lambda: bed.offload() is None)
        assert "no port has offload" in bed.switch.cli("show", "offload")
        before = bed.switch.port_packets(1)[0]

        def is_more():
            nonlocal wrong
            bed.send()
            wrong += bed.wrong()
            return bed.switch.port_packets(1)[0] > before + BATCH

        wait_for("packets without offload", is_more)
        bed.set_offload({"mode": "trust", "entries": 2})
        wrong += bed.send_until("marks in use again", lambda offload: offload["used"] > 500)
        assert wrong + bed.settle() == 0
        offload = bed.offload()
        assert (offload["mode"], offload["limit"]) == ("trust", 2) and offload["entries"] <= 2, offload
        # A policer may drop and rewrite packets before the tables: their marks are not used, and the port says so.
        bed.switch.change(lambda config: config["bridge"][0]["port"][0].update(policer={"kind": "srtcm", "cir": "10Gbps"}))
        wait_for("the policer is named", lambda: (bed.offload()["level"], bed.offload()["by"]) == ("dispatch", "policer"))


def test_an_entry_that_goes_from_flow_to_flow_makes_no_wrong_packet(tmp_path):
    with wired(tmp_path) as bed:
        bed.set_offload({"mode": "trust", "entries": 1})
        wrong = 0
        # Flow 1 belongs to another port than flows 0 and 2, and gets their slot.
        for flow in (0, 1, 2):
            wrong += bed.settle()
            before = bed.offload()["used"]
            wrong += bed.send_until(f"marks of flow {flow}", lambda offload, least=before + 500: offload["used"] > least, [flow])
        assert wrong + bed.settle() == 0
        offload = bed.offload()
        # Three additions and two removals.
        assert offload["mismatches"] == 0 and offload["operations"] >= 5, offload


def test_a_device_drops_what_entries_drop_and_none_after_the_reply_to_the_change_that_ended_it(tmp_path):
    with wired(tmp_path) as bed:
        bed.set_offload({"mode": "trust", "drops": True})
        wrong, rounds = 0, 20 if LONG else 3
        for _ in range(rounds):
            bed.switch.ofctl("mod-flows", "ip,nw_dst=10.0.1.0,actions=drop")
            before = bed.offload()
            wrong += bed.send_until("drops by the device", lambda offload, least=before["dropped"] + 500: offload["dropped"] > least)
            assert bed.offload()["drops"] == 1
            # ovs-ofctl ends when the reply to its barrier is there.
            bed.switch.ofctl("mod-flows", "ip,nw_dst=10.0.1.0,actions=output:2")
            assert bed.offload()["drops"] == 0
            wrong += bed.settle()
            last, dropped = bed.sent, bed.offload()["dropped"]
            for number in range(last, last + 64):
                bed.wire.send(tagged(0, number))
                bed.sent += 1
            arrived = 0

            def all_arrived():
                nonlocal arrived
                arrived += bed.received()[0].count(0)
                return arrived >= 64

            wait_for("all frames of the flow that is not dropped any more", all_arrived)
            assert (arrived, bed.offload()["dropped"]) == (64, dropped)
        wrong += bed.settle()
        # Entries and port count every packet once, whoever dropped it.
        wait_for("all packets are counted", lambda: bed.counted() == bed.switch.port_packets(1)[0])
        offload = bed.offload()
        assert wrong == 0 and offload["mismatches"] == 0, (wrong, offload)
        assert bed.switch.port_packets(1)[0] == offload["packets"] + offload["dropped"]
        assert str(offload["dropped"]) in bed.switch.cli("show", "offload")
        metrics = bed.switch.rest.get("http://localhost/metrics", timeout=60).text
        assert f'millrace_offload_dropped_packets_total{{bridge="br0",port="p1"}} {offload["dropped"]}' in metrics
        print(f"N21: {rounds} rules ended over OpenFlow, {offload['dropped']} drops by the device, none after the reply, counted exactly")


def test_a_device_that_dies_drops_nothing_and_entries_keep_what_it_has_counted(tmp_path):
    with wired(tmp_path) as bed:
        bed.set_offload({"mode": "trust", "drops": True})
        bed.switch.ofctl("mod-flows", "ip,nw_dst=10.0.1.0,actions=drop")
        bed.send_until("drops by the device", lambda offload: offload["dropped"] > 500)
        bed.stop_nic()
        wait_for("the link of p1 is down", lambda: not bed.is_up())
        wait_for("no drops", lambda: bed.offload()["drops"] == 0)
        bed.switch.ofctl("mod-flows", "ip,nw_dst=10.0.1.0,actions=output:2")
        bed.start_nic()
        wait_for("the link of p1", bed.is_up)
        assert bed.send_until("marks in use again", lambda offload: offload["used"] > 500) + bed.settle() == 0
        offload = bed.offload()
        assert (offload["drops"], offload["dropped"]) == (0, 0), offload
        # Counters of before stay: what the device has dropped until its last read.
        assert bed.counted() >= offload["packets"] + 500


def test_offload_of_a_device_without_entries_is_refused_with_the_next_step(tmp_path):
    config = tmp_path / "switch.toml"
    port = '[[bridge.port]]\nname = "p1"\nnumber = 1\ndevice = "kernel:of1a"\noffload = { mode = "auto" }\n'
    config.write_text('[[bridge]]\nname = "br0"\n' + port)
    checked = subprocess.run([TARGET / "millraced", "--no-dpdk", "--check", "--config", config], capture_output=True, text=True, timeout=60)
    assert checked.returncode != 0
    assert "does not classify packets: expected nic:PATH" in checked.stderr and "or no `offload`" in checked.stderr, checked.stderr
