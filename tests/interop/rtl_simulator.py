"""The simulator of the RTL of the NIC (`rtl/`), configuration `ten`."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RTL = ROOT / "rtl"

needs_verilator = pytest.mark.skipif(not shutil.which("verilator"), reason="Verilator is not installed: scripts/setup.sh hardware")


@pytest.fixture(scope="module")
def simulator() -> Path:
    """Builds the simulator, if its sources are newer. One process of the tests builds at a time: another one would find a half-written
    program that is newer than its sources."""
    file = ROOT / "target/rtl/ten/nic_sim"
    file.parent.mkdir(parents=True, exist_ok=True)
    with (file.parents[1] / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = subprocess.run(["make", "-s", "-C", str(RTL), str(file)], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return file
