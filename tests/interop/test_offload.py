"""Offload to a NIC that classifies: `millrace-nic` marks packets of heavy flows, and the switch uses the marks. A device that
lies, dies or refuses costs time and no packet.
"""

import contextlib
import os
import signal
import struct
import subprocess

import pytest

from namespaces import cables
from offloading import BATCH, FLOWS, Bed, frame
from switches import TARGET, wait_for

NIC = TARGET / "millrace-nic"
FAULTS = ["wrong-marks", "kept-rows", "refused-rows"]
if os.environ.get("MILLRACE_NIC_LONG"):
    FAULTS += ["lost-marks", "ignored-rows", "wrong-hashes"]
# Fields that frames of the test do not have; the tables match one more of them for each fault.
FIELDS = ["ip,nw_src=10.9.0.0/16", "udp,tp_src=9", "udp,tp_dst=9", "dl_src=02:00:00:00:00:09", "dl_dst=02:00:00:00:00:09", "ip,ip_dscp=9"]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="kernel: needs root"),
    pytest.mark.skipif(not NIC.exists(), reason="millrace-nic is not built"),
]


def tagged(flow, number):
    """Returns a packet of a flow behind a VLAN tag and a service tag."""
    return frame(flow, number, between=struct.pack("!HHHH", 0x88A8, 5, 0x8100, 7))


class Wired(Bed):
    """A NIC in software on one end of a cable, and a switch behind it."""

    def __init__(self, folder, mode, fault):
        self.path, self.fault, self.nic = folder / "nic.sock", fault, None
        self.log = folder / "nic.log"
        ends = [("of1a", "of1b"), ("of2a", "of2b")]
        super().__init__(folder, f"nic:{self.path}", mode, "of0p", ends, tagged, 'workers = 2\nspread = "off"')

    def start_nic(self):
        fault = ["--fault", self.fault] if self.fault else []
        command = [NIC, "--wire", "kernel:of0w", "--socket", self.path, "--queues", "4", *fault]
        with self.log.open("a") as log:
            self.nic = subprocess.Popen(command, stdout=log, stderr=log)
        # The switch connects again until the device listens: a connection of the test would be taken for a switch's.
        wait_for("the socket of millrace-nic", self.path.exists)

    def stop_nic(self):
        self.nic.kill()
        self.nic.wait(timeout=60)
        self.path.unlink(missing_ok=True)

    def close(self):
        if self.nic:
            self.stop_nic()
        super().close()


@contextlib.contextmanager
def wired(folder, mode="trust", fault=None):
    with cables(("of0w", "of0p"), ("of1a", "of1b"), ("of2a", "of2b")):
        bed = Wired(folder, mode, fault)
        try:
            bed.start_nic()
            with bed.switch as switch:
                for flow in range(FLOWS):
                    switch.ofctl("add-flow", f"priority=5,ip,nw_dst=10.0.1.{flow},actions=output:{2 + flow % 2}")
                wait_for("the link of p1", bed.is_up)
                yield bed
        finally:
            bed.close()


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
        wrong = 0
        for fault, field in zip(FAULTS, FIELDS):
            bed.stop_nic()
            wait_for("the link of p1 is down", lambda: not bed.is_up())
            bed.fault = fault
            bed.start_nic()
            wait_for("the link of p1", bed.is_up)
            if fault in ("ignored-rows", "refused-rows"):
                bed.nic.send_signal(signal.SIGUSR1)
                wrong += bed.send_until(f"{fault}: operations", lambda offload: offload["operations"] > 0)
            else:
                wrong += bed.send_until(f"{fault}: entries", lambda offload: offload["used"] > 0)
                bed.nic.send_signal(signal.SIGUSR1)
            # The tables match another field: the device is emptied, as far as it does what it confirms.
            bed.switch.ofctl("add-flow", f"priority=9,{field},actions=drop")
            before = bed.offload()["packets"]
            wrong += bed.send_until("more packets", lambda offload, least=before + 4 * BATCH: offload["packets"] > least)
            assert wrong + bed.settle() == 0, fault
            if fault == "refused-rows":
                bed.send_until("the refusal", lambda offload: "shape" in [refusal["reason"] for refusal in offload["refusals"]])
                assert "shape " in bed.switch.cli("show", "offload")


def test_a_device_that_is_killed_comes_back_and_its_entries_with_it(tmp_path):
    with wired(tmp_path) as bed:
        wrong = bed.send_until("marks in use", lambda offload: offload["used"] > 500)
        bed.stop_nic()
        wait_for("the link of p1 is down", lambda: not bed.is_up())
        wait_for("the port knows that its device is away", lambda: bed.offload()["by"] == "device")
        bed.start_nic()
        wait_for("the link of p1", bed.is_up)
        wrong += bed.send_until("marks in use again", lambda offload: offload["used"] > 500)
        assert wrong + bed.settle() == 0


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


def test_offload_of_a_device_without_entries_is_refused_with_the_next_step(tmp_path):
    config = tmp_path / "switch.toml"
    port = '[[bridge.port]]\nname = "p1"\nnumber = 1\ndevice = "kernel:of1a"\noffload = { mode = "auto" }\n'
    config.write_text('[[bridge]]\nname = "br0"\n' + port)
    checked = subprocess.run([TARGET / "millraced", "--no-dpdk", "--check", "--config", config], capture_output=True, text=True, timeout=60)
    assert checked.returncode != 0
    assert "does not classify packets: expected the device nic:PATH" in checked.stderr and "or no `offload`" in checked.stderr, checked.stderr
