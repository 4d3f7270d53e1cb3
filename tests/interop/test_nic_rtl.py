"""The RTL of the NIC: it equals the model for random frames and commands, and a walk of headers written from the RFCs."""

import os
import random
import subprocess
import sys

import pytest

from rtl_simulator import ROOT, RTL, needs_verilator, simulator  # noqa: F401

sys.path.insert(0, str(RTL))

import oracle  # noqa: E402
import records  # noqa: E402

FRAMES = int(os.environ.get("MILLRACE_NIC_FRAMES", "20000"))

pytestmark = needs_verilator


def test_the_rtl_equals_the_model_for_random_frames_and_commands(simulator):
    program = ROOT / "target/debug/examples/records"
    if not program.exists():
        pytest.skip(f"{program} is not built: cargo build -p millrace-nic-model --example records")
    told = subprocess.run([program, simulator, "--frames", str(FRAMES)], capture_output=True, text=True, timeout=600)
    assert told.returncode == 0, told.stdout[-4000:]
    assert ", 0 streams differ" in told.stdout


def test_offsets_and_hashes_are_those_of_a_walk_by_the_rfcs(simulator):
    keys = [random.Random(3).getrandbits(64) for _ in range(14)]
    frames = oracle.corpus(seed=5, number=400 if FRAMES <= 20000 else 2000)
    stream = records.enable(keys)
    for at in range(0, len(frames), 200):
        stream += records.buffers(0, list(range(200)))
        stream += b"".join(records.frame(frame) for frame in frames[at:at + 200])
        stream += records.take(0, 200)
    stream += records.record(records.END)
    found = [records.completion(body) for kind, body in records.run(simulator, stream) if kind == records.COMPLETION]
    assert len(found) == len(frames)
    for frame, completion in zip(frames, found):
        walk = oracle.walk(frame)
        flow = oracle.flow_hash(walk, keys)
        assert (walk.l3, walk.l4, walk.inner_l3, walk.inner_l4, walk.tags, walk.labels, flow >> 32, flow >> 54) == (
            2 * completion.l3, 2 * completion.l4, 2 * completion.inner_l3, 2 * completion.inner_l4, completion.tags,
            completion.labels, completion.hash, completion.bucket), frame.hex()


def test_the_rtl_keeps_to_its_subset():
    told = subprocess.run([sys.executable, str(RTL / "check.py"), "lint"], capture_output=True, text=True, timeout=600)
    assert told.returncode == 0, told.stdout + told.stderr
