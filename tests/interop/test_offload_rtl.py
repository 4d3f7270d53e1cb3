"""Offload to the RTL: its simulator gets each frame and command of a switch beside the model, and both put out the same."""

import os
import re
import subprocess
import sys
import time

import pytest

from offloading import FLOWS, NIC, wired
from rtl_simulator import needs_verilator, simulator  # noqa: F401
from switches import wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="kernel: needs root"),
    pytest.mark.skipif(not NIC.exists(), reason="millrace-nic is not built"),
    needs_verilator,
]

# The time in s that a simulator may take for a thousand frames on a busy machine.
SLOW = 300
# A simulator whose completions of frames have another mark: records as docs/nic-interface.md has them.
WRONG_SIMULATOR = """#!{python}
import os, struct, subprocess
real = subprocess.Popen([{simulator!r}], stdin=0, stdout=subprocess.PIPE)
frames, FENCE = 0, 2
while len(head := real.stdout.read(4)) == 4:
    record = bytearray(real.stdout.read(struct.unpack("<I", head)[0]))
    if record[0] == 0x81 and not record[2 + 14] & FENCE:
        frames += 1
        if frames == {wrong}:
            record[2] ^= 1
    os.write(1, head + record)
"""


def test_the_rtl_does_under_the_switch_what_the_model_does(simulator, tmp_path):
    records = tmp_path / "records"
    with wired(tmp_path, options=["--rtl", simulator, "--records", records]) as bed:
        wrong = bed.send_until("marks in use", lambda offload: offload["used"] > 1000 and offload["entries"] == FLOWS, bound=SLOW)
        # The tables change, and entries of the device go and come.
        bed.set_offload(None)
        wait_for("no entries", lambda: (bed.port().get("offload_status") or {}).get("entries", 0) == 0)
        bed.set_offload({"mode": "trust"})
        wrong += bed.send_until("marks in use again", lambda offload: offload["used"] > 200 and offload["entries"] == FLOWS, bound=SLOW)
        assert wrong + bed.settle() == 0
        assert bed.nic.poll() is None, bed.log.read_text()
    # The records do the same again, without a switch.
    again = subprocess.run([simulator], stdin=records.open("rb"), capture_output=True, timeout=300)
    assert again.returncode == 0, again.stderr
    # All used marks came with a completion. The cable drops what the simulator is too slow for.
    completions = again.stdout.count(bytes([34, 0, 0, 0, 0x81]))
    assert completions > 1200, completions


def test_a_difference_ends_the_device_and_is_told(simulator, tmp_path):
    wrong_simulator = tmp_path / "wrong_simulator"
    wrong_simulator.write_text(WRONG_SIMULATOR.format(python=sys.executable, simulator=str(simulator), wrong=100))
    wrong_simulator.chmod(0o755)
    with wired(tmp_path, options=["--rtl", wrong_simulator]) as bed:
        bound = time.monotonic() + SLOW
        while bed.nic.poll() is None:
            assert time.monotonic() < bound, "the device runs after a wrong completion"
            bed.send()
            bed.received()
        assert bed.nic.returncode == 1
    told = bed.log.read_text()
    assert re.search(r"the RTL differs from the model:.*model +queue.*mark.*simulator +queue.*mark", told, re.DOTALL), told


def test_options_that_cannot_work_are_refused(tmp_path):
    def refused(*options):
        told = subprocess.run([NIC, "--wire", "pcap:rx=/dev/null", "--socket", tmp_path / "s", *options], capture_output=True, text=True, timeout=60)
        assert told.returncode != 0
        return told.stderr

    assert "--rtl" in refused("--rtl", "/nowhere/nic_sim")
    assert "--queues" in refused("--rtl", "/bin/true", "--queues", "4")
    assert "--rtl" in refused("--records", tmp_path / "records")
