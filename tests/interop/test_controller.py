"""An os-ken learning switch controls three hosts in a lab of network namespaces."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from switches import TARGET, end, run, wait_for

LAB = """
name = "interop"
[[host]]
name = "h1"
ip = "10.9.0.1/24"
[[host]]
name = "h2"
ip = "10.9.0.2/24"
[[host]]
name = "h3"
ip = "10.9.0.3/24"
[[switch]]
name = "br0"
kind = "millrace"
device = "af_packet"
fail_mode = "secure"
controllers = ["tcp:127.0.0.1:6633"]
ports = ["h1", "h2", "h3"]
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@pytest.fixture(name="lab")
def lab_of_three_hosts(tmp_path):
    file = tmp_path / "lab.toml"
    file.write_text(LAB)
    millrace = TARGET / "millrace"
    run(millrace, "lab", "down", "interop", check=False)
    try:
        run(millrace, "lab", "up", file)
        environment = os.environ | {"MILLRACE_LAB": "interop"}
        yield lambda host, *command, **kwargs: run(millrace, "lab", "run", host, *command, env=environment, **kwargs)
    finally:
        run(millrace, "lab", "down", "interop")


def reaches(lab, source, target):
    return "1 received" in lab(f"h{source}", "ping", "-c1", "-W2", f"10.9.0.{target}", check=False)


def test_an_os_ken_controller_learns_between_three_hosts(lab, tmp_path):
    assert not reaches(lab, 1, 2), "nobody controls it yet, and it is fail-secure"
    app = pathlib.Path(__file__).with_name("learning_switch.py")
    manager = shutil.which("osken-manager", path=str(pathlib.Path(sys.executable).parent))
    with (tmp_path / "controller.log").open("w") as log:
        controller = subprocess.Popen(
            ["ip", "netns", "exec", "mr-interop-br0", manager, "--ofp-tcp-listen-port", "6633", app],
            stdout=log, stderr=log,
        )
    try:
        wait_for("the controller is connected", lambda: "connected" in (tmp_path / "controller.log").read_text(), 120)
        for source in (1, 2, 3):
            for target in (1, 2, 3):
                if source != target:
                    wait_for(f"h{source} reaches h{target}", lambda: reaches(lab, source, target))
        flows = lab("br0", "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "tcp:127.0.0.1:6653")
        assert flows.count("priority=1,") >= 6, flows
    finally:
        end(controller)
