"""The simulator of the RTL of the NIC (`rtl/`), configuration `ten`."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RTL = ROOT / "rtl"

needs_verilator = pytest.mark.skipif(not shutil.which("verilator"), reason="Verilator is not installed: scripts/setup.sh hardware")


@pytest.fixture(scope="module")
def simulator() -> Path:
    """Builds the simulator, if its sources are newer."""
    file = ROOT / "target/rtl/ten/nic_sim"
    built = subprocess.run(["make", "-s", "-C", str(RTL), str(file)], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    return file
