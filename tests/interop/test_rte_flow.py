"""Offload to devices with flow rules of DPDK (rte_flow): `tests/fake-flow` answers for the driver of a virtual device, and applies
the rules that it parses back from DPDK's structures. So a rule that is wrong marks wrong packets, and the switch tells.
"""

import contextlib
import os
import re
import shutil
import struct
import subprocess

import pytest

from namespaces import cables
from offloading import BATCH, FLOWS, Bed, frame, opened
from switches import ROOT, wait_for

SOURCE = ROOT / "tests/fake-flow/fake_flow.c"
CFLAGS = subprocess.run(["pkg-config", "--cflags", "libdpdk"], capture_output=True, text=True) if shutil.which("pkg-config") else None
# The other flows are IPv4.
LABELLED = (2, 3)

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="kernel: needs root"),
    pytest.mark.skipif(
        CFLAGS is None or CFLAGS.returncode != 0 or shutil.which("cc") is None,
        reason="the fake device needs a C compiler and DPDK's headers",
    ),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    built = tmp_path_factory.mktemp("fake-flow") / "fake_flow.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, SOURCE, *CFLAGS.stdout.split(), "-ldl"], check=True, timeout=60)
    return built


def labelled(flow, number):
    """Returns an IPv4 packet, or, for some flows, an IPv4 packet behind two labels. Some packets of flow 0 have source port 9."""
    plain = frame(flow, number, source=9 if flow == 0 and number % 64 == 0 else None)
    if flow not in LABELLED:
        return plain
    return plain[:12] + struct.pack("!HII", 0x8847, (100 + flow) << 12 | 64, (7 << 12) | 0x140) + plain[14:]


class Ruled(Bed):
    """A virtual device of DPDK whose rules the fake library applies."""

    def __init__(self, folder, library, mode, fault):
        self.log, self.fault = folder / "rules.log", folder / "fault"
        self.log.touch()
        self.fault.write_text(fault)
        ends = [("rf1a", "rf1b"), ("rf2a", "rf2b")]
        system = "workers = 1\nmemory_mib = 128"
        super().__init__(folder, "net_af_packet0,iface=rf0w", mode, "rf0p", ends, labelled, system, dpdk=True)
        fake = [f"LD_PRELOAD={library}", f"FAKE_FLOW_LOG={self.log}", f"FAKE_FLOW_FAULT={self.fault}"]
        self.switch.command = ["env", *fake, *self.switch.command]

    def rules(self):
        """Returns the rules that the device has, each as the text of its headers, with its mark."""
        rules = {}
        for line in self.log.read_text().splitlines():
            verb, _, mark, headers = line.split(" ", 3)
            if verb == "create":
                rules[mark] = headers
            else:
                del rules[mark]
        return rules


@contextlib.contextmanager
def ruled(folder, library, mode="verify", fault=""):
    with cables(("rf0w", "rf0p"), ("rf1a", "rf1b"), ("rf2a", "rf2b")):
        bed = Ruled(folder, library, mode, fault)
        try:
            with bed.switch as switch:
                for flow in range(FLOWS):
                    match = f"mpls,mpls_label={100 + flow}" if flow in LABELLED else f"udp,nw_dst=10.0.1.{flow}"
                    switch.ofctl("add-flow", f"priority=5,{match},actions=output:{2 + flow % 2}")
                wait_for("the link of p1", bed.is_up)
                yield bed
        finally:
            bed.close()


def meant(flow):
    """Returns the headers of the rule for a flow, as the tables of these tests need it."""
    if flow in LABELLED:
        return f"eth type=0x8847/0xffff mpls label={100 + flow:#x}/0xfffff"
    ip = f"ipv4 src=0.0.0.0/0 dst=10.0.1.{flow}/0xffffffff proto=17/0xff frag=0/0x3fff"
    return f"eth type=0x800/0xffff {ip} udp src=0/0 dst=0/0"


TESTPMD = shutil.which("dpdk-testpmd")


@pytest.mark.skipif(TESTPMD is None, reason="dpdk-testpmd is not installed")
def test_the_fake_device_marks_what_dpdks_own_program_asks_for(tmp_path, library):
    log, fault, out = tmp_path / "rules.log", tmp_path / "fault", tmp_path / "out"
    for file in (log, fault, out):
        file.touch()
    fake = {"LD_PRELOAD": str(library), "FAKE_FLOW_LOG": str(log), "FAKE_FLOW_FAULT": str(fault)}
    memory = ["--no-huge", "-m", "256", "--no-pci", "--file-prefix", "fake-flow", "-l", "0,1"]
    command = [TESTPMD, *memory, "--vdev", "net_af_packet0,iface=rf0w", "--", "-i", "--total-num-mbufs=4096"]
    with cables(("rf0w", "rf0p")), out.open("w") as to:
        wire = opened("rf0p")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=to, stderr=to, text=True, env=os.environ | fake) as testpmd:

            def order(*lines):
                testpmd.stdin.write("".join(f"{line}\n" for line in lines))
                testpmd.stdin.flush()

            try:
                udp = "eth / ipv4 dst is 10.0.1.2 proto is 17 / udp src is 1002"
                mpls = "eth type is 0x8847 / mpls label is 103"
                for mark, pattern in ((5, udp), (6, mpls), (1 << 24, udp)):
                    order(f"flow create 0 ingress pattern {pattern} / end actions mark id {mark} / queue index 0 / end")
                order("set verbose 1", "set fwd rxonly", "start")
                wait_for("two rules", lambda: len(log.read_text().splitlines()) == 2)
                wait_for("the refusal", lambda: "mark id has 24 bits" in out.read_text())

                def are_marked():
                    for flow in (1, 2, 3):
                        wire.send(labelled(flow, 0) if flow == 3 else frame(flow, 0))
                    text = out.read_text()
                    return "FDIR matched ID=0x5 " in text and "FDIR matched ID=0x6 " in text

                wait_for("marked packets", are_marked)
                order("stop", "flow destroy 0 rule 0")
                wait_for("a removed rule", lambda: "destroy" in log.read_text())
                order("quit")
                testpmd.wait(timeout=60)
            finally:
                testpmd.kill()
                wire.close()
    created, _, destroyed = log.read_text().splitlines()
    rule = "port=0 mark=0x5 eth type=0/0 ipv4 src=0.0.0.0/0 dst=10.0.1.2/0xffffffff proto=17/0xff frag=0/0 udp src=1002/0xffff dst=0/0"
    assert (created, destroyed) == (f"create {rule}", f"destroy {rule}")
    for line in out.read_text().splitlines():
        # Flow 1 has no rule, and flows 2 and 3 have one each.
        if "FDIR matched ID" in line:
            assert ("ID=0x5" in line) == ("type=0x0800" in line), line


def test_the_rules_that_a_device_parses_are_those_that_the_switch_meant_and_their_marks_arrive(tmp_path, library):
    with ruled(tmp_path, library) as bed:
        wrong = bed.send_until("marks in use", lambda offload: offload["used"] > 2000 and offload["entries"] == FLOWS)
        assert wrong + bed.settle() == 0
        offload = bed.offload()
        assert (offload["level"], offload["by"], offload["mismatches"]) == ("verify", "operator", 0), offload
        rules = bed.rules()
        assert sorted(rules.values()) == sorted(meant(flow) for flow in range(FLOWS)), rules
        assert all(0 < int(re.sub("mark=", "", mark), 16) <= 0xFFFFFF for mark in rules), rules
        assert "verify" in bed.switch.cli("show", "offload")
        # The tables match one port, and rules match both.
        bed.switch.ofctl("add-flow", "priority=9,udp,tp_dst=9,actions=drop")
        before = bed.offload()["used"]
        wrong = bed.send_until("marks in use again", lambda offload: offload["used"] > before + 2000 and offload["entries"] >= FLOWS)
        assert wrong + bed.settle() == 0
        for flow in set(range(FLOWS)) - set(LABELLED):
            rule = meant(flow).replace("src=0/0 dst=0/0", f"src={1000 + flow}/0xffff dst=2000/0xffff")
            assert rule in bed.rules().values()
        bed.set_offload(None)
        wait_for("the device is empty", lambda: bed.rules() == {})


def test_no_fault_of_a_device_makes_a_wrong_packet_while_marks_are_verified(tmp_path, library):
    with ruled(tmp_path, library) as bed:
        wrong = bed.send_until("marks in use", lambda offload: offload["entries"] == FLOWS)
        fields = iter(["udp,tp_src=9", "dl_src=02:00:00:00:00:09", "ip,ip_dscp=9", "ip,nw_src=10.9.0.0/16", "dl_dst=02:00:00:00:00:09"])
        for fault in ("blind", "wrong", "keep", "lose", "ignore"):
            bed.fault.write_text(fault)
            # The device is emptied, as far as it does what it confirms.
            bed.switch.ofctl("add-flow", f"priority=9,{next(fields)},actions=drop")
            before = bed.offload()
            wrong += bed.send_until(
                f"{fault}: more packets", lambda offload, least=before["packets"] + 4 * BATCH: offload["packets"] > least
            )
            if fault in ("blind", "wrong"):
                least = before["mismatches"]
                wrong += bed.send_until(f"{fault}: found", lambda offload, least=least: offload["mismatches"] > least)
        assert wrong + bed.settle() == 0


def test_each_refusal_of_a_device_has_its_reason_and_the_traffic_goes_on(tmp_path, library):
    def reasons(offload):
        return {refusal["reason"]: refusal["count"] for refusal in offload["refusals"]}

    with ruled(tmp_path, library, fault="full") as bed:
        wrong = bed.send_until("no room", lambda offload: reasons(offload).get("capacity") and offload["entries"] == 2)
        assert "capacity " in bed.switch.cli("show", "offload")
        for fault, reason, field in [("refuse", "shape", "udp,tp_src=9"), ("busy", "transient", "ip,ip_dscp=9")]:
            bed.fault.write_text(fault)
            bed.switch.ofctl("add-flow", f"priority=9,{field},actions=drop")
            wrong += bed.send_until(reason, lambda offload, name=reason: reasons(offload).get(name))
            assert f"{reason} " in bed.switch.cli("show", "offload")
        # Rules that cannot be removed keep their slots.
        bed.fault.write_text("")
        bed.switch.ofctl("add-flow", "priority=9,dl_src=02:00:00:00:00:09,actions=drop")
        wrong += bed.send_until("entries", lambda offload: offload["entries"] > 0)
        bed.fault.write_text("leak")
        bed.switch.ofctl("add-flow", "priority=9,dl_dst=02:00:00:00:00:09,actions=drop")
        wrong += bed.send_until("leaks", lambda offload: offload["leaked"] > 0)
        assert wrong + bed.settle() == 0


def test_a_device_that_does_not_deliver_marks_is_not_asked_for_them(tmp_path, library):
    with ruled(tmp_path, library, fault="nomarks") as bed:
        before = bed.switch.port_packets(1)[0]

        def is_more():
            bed.send()
            return bed.switch.port_packets(1)[0] > before + 2 * BATCH

        wait_for("packets", is_more)
        offload = bed.offload()
        assert (offload["level"], offload["by"], offload["entries"]) == ("dispatch", "device", 0), offload
        assert bed.rules() == {} and bed.settle() == 0


def test_trust_in_a_device_of_dpdk_is_the_word_of_the_operator_and_ends_with_its_first_wrong_mark(tmp_path, library):
    with ruled(tmp_path, library, mode="auto") as bed:
        wrong = bed.send_until("marks in use", lambda offload: offload["used"] > 500 or offload["by"] == "governor")
        assert bed.offload()["level"] != "trust"
        bed.set_offload({"mode": "trust"})
        wrong += bed.send_until("marks in use", lambda offload: offload["used"] > 2000 and offload["entries"] == FLOWS)
        assert wrong + bed.settle() == 0
        offload = bed.offload()
        assert (offload["level"], offload["by"]) == ("trust", "operator"), offload
        bed.fault.write_text("wrong")
        bed.send_until("distrust", lambda offload: offload["distrusted"])
        bed.settle()
        assert (bed.offload()["level"], bed.offload()["by"]) == ("verify", "audit")
        wrong = bed.send_until("wrong marks that were compared", lambda offload, least=bed.offload()["mismatches"]: offload["mismatches"] > least)
        assert wrong + bed.settle() == 0
