"""A learning application of os-ken is killed under traffic: a standalone switch takes over, as Open vSwitch does."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from switches import TARGET, end, run, wait_for

LAB = """
name = "orphan"
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
kind = "{kind}"
fail_mode = "standalone"
controllers = ["tcp:127.0.0.1:6633"]
ports = ["h1", "h2", "h3"]
"""

# The bound in s of the take-over: both switches wait for three echo intervals of 5 s.
TAKE_OVER_S = 60

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@pytest.fixture(name="lab", params=["millrace", "ovs"])
def lab_of_three_hosts(request, tmp_path):
    if request.param == "ovs" and not shutil.which("ovs-vswitchd"):
        pytest.skip("Open vSwitch is not installed")
    file = tmp_path / "lab.toml"
    text = LAB.format(kind=request.param)
    file.write_text(text.replace('fail_mode', 'device = "kernel"\nfail_mode') if request.param == "millrace" else text)
    millrace = TARGET / "millrace"
    run(millrace, "lab", "down", "orphan", check=False)
    try:
        run(millrace, "lab", "up", file)
        environment = os.environ | {"MILLRACE_LAB": "orphan"}
        yield request.param, lambda host, *command, **kwargs: run(
            millrace, "lab", "run", host, *command, env=environment, **kwargs)
    finally:
        run(millrace, "lab", "down", "orphan")


def reaches(lab, source, target, bound=1):
    return "1 received" in lab(f"h{source}", "ping", "-c1", f"-W{bound}", f"10.9.0.{target}", check=False)


def start_controller(folder):
    log = folder / "controller.log"
    log.unlink(missing_ok=True)
    manager = shutil.which("osken-manager", path=str(pathlib.Path(sys.executable).parent))
    app = pathlib.Path(__file__).with_name("learning_switch.py")
    with log.open("w") as output:
        controller = subprocess.Popen(
            ["ip", "netns", "exec", "mr-orphan-br0", manager, "--ofp-tcp-listen-port", "6633", app],
            stdout=output, stderr=output,
        )
    wait_for("the controller is connected", lambda: "connected" in log.read_text(), 120)
    return controller


def test_a_standalone_switch_takes_over_from_a_killed_learning_controller(lab, tmp_path):
    kind, lab = lab
    controller = start_controller(tmp_path)
    try:
        wait_for("h1 reaches h2", lambda: reaches(lab, 1, 2))
        controller.send_signal(signal.SIGKILL)
        controller.wait()
        # The entries of the dead controller send the first packets of h3 to it.
        wait_for("h3 reaches h1 without a controller", lambda: reaches(lab, 3, 1), TAKE_OVER_S)
        assert reaches(lab, 1, 2, bound=20) and reaches(lab, 2, 3, bound=20)
        if kind == "millrace":
            status = lab("br0", TARGET / "millrace", "show", "status")
            assert "no controller is connected" in status and "no_controller" in status, status
            assert "no_controller" in lab("br0", TARGET / "millrace", "show", "drops")
        controller = start_controller(tmp_path)
        wait_for("h2 reaches h3 with the controller", lambda: reaches(lab, 2, 3))
        bridge = "tcp:127.0.0.1:6653" if kind == "millrace" else "br0"
        if kind == "millrace":
            flows = lab("br0", "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge)
            wait_for("the controller's own entries", lambda: "priority=1," in lab(
                "br0", "ovs-ofctl", "-O", "OpenFlow13", "dump-flows", bridge))
            assert flows.count("CONTROLLER") == 1, flows
    finally:
        end(controller)
