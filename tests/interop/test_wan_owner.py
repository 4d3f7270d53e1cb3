"""`millrace wan between` as a program of an operator: one owner for each interface, namespaces apart, links that go down or away,
and no processor time while nothing passes. Needs root.
"""

import itertools
import json
import os
import signal
import subprocess
import time

import pytest

import namespaces
from switches import STOP_BOUND, TARGET, Millrace, run, wait_for
from wan_path import HOSTS, NEAR, Emulator, hosts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
BETWEEN = [str(TARGET / "millrace"), "wan", "between"]
# Without a socket of a test's own, the emulator has that of its namespace.
DEFAULT = {name: value for name, value in os.environ.items() if name != "MILLRACE_WAN"}


def wan(*arguments, namespace=None, check=True):
    """Runs `millrace wan`, in a namespace if one is named."""
    where = ["ip", "netns", "exec", namespace] if namespace else []
    done = subprocess.run([*where, TARGET / "millrace", "wan", *arguments], capture_output=True, text=True, timeout=60, env=DEFAULT)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_second_emulator_at_an_interface_is_refused_and_names_the_first(tmp_path):
    with hosts(), Emulator(tmp_path, "--delay", "1ms") as first:
        for ends in (NEAR[::-1], NEAR, (NEAR[0], "lo")):
            done = subprocess.run([*BETWEEN, *ends, "--memory", "8MiB", "--control", tmp_path / "second.sock"],
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode != 0
            assert f"{NEAR[0]}: in use: process " in done.stderr or f"{NEAR[1]}: in use: process " in done.stderr, done.stderr
            assert f"between {NEAR[0]} {NEAR[1]}" in done.stderr, done.stderr
        first.kill()
        # The lock ends with its process.
        first.start()


def test_a_switch_and_an_emulator_do_not_share_an_interface_and_each_names_the_other(tmp_path):
    with hosts():
        with Millrace(tmp_path / "one", ports=[(1, f"kernel:{NEAR[0]}")]) as switch:
            done = subprocess.run([*BETWEEN, *NEAR, "--memory", "8MiB", "--control", tmp_path / "second.sock"],
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode != 0
            assert f"{NEAR[0]}: in use: process {switch.process.pid} " in done.stderr and "millraced" in done.stderr, done.stderr
        emulator = Emulator(tmp_path, "--delay", "1ms")
        emulator.start()
        with Millrace(tmp_path / "two", ports=[(1, f"kernel:{NEAR[0]}")]) as switch:
            status = switch.cli("show", "status", check=False)
            assert f"{NEAR[0]}: in use: process {emulator.process.pid} " in status and "millrace-wan between" in status, status
            # The kernel ends the ownership with the process.
            emulator.process.kill()
            emulator.process.wait()
            wait_for("the port is open", lambda: "in use" not in switch.cli("show", "status", check=False))


@pytest.fixture(name="twins")
def two_namespaces_with_the_same_names():
    names = ("mr-n1", "mr-n2")
    with namespaces.made(*names):
        started = []
        try:
            for name in names:
                for end in ("a0", "b0"):
                    run("ip", "netns", "exec", name, "ip", "link", "add", end, "type", "veth", "peer", "name", f"{end}p")
                    for interface in (end, f"{end}p"):
                        run("ip", "netns", "exec", name, "ip", "link", "set", interface, "up")
                started.append(subprocess.Popen(
                    ["ip", "netns", "exec", name, *BETWEEN, "a0", "b0", "--delay", "1ms", "--memory", "8MiB"],
                    stdout=subprocess.PIPE, text=True, env=DEFAULT))
            yield names, started
        finally:
            for process in started:
                process.terminate()
                process.wait(timeout=STOP_BOUND)


def test_emulators_of_two_namespaces_do_not_know_each_other_and_say_at_the_start_what_they_do(twins):
    names, started = twins
    for name, process in zip(names, started):
        # On a busy machine, frames that the kernel sends at once may be late already.
        said = (line for line in iter(process.stdout.readline, "") if not line.startswith("warning: "))
        lines = list(itertools.islice(said, 4))
        assert lines[0] == "a0+b0: a0 (a), b0 (b), seed 1\n", lines
        assert "delay 1ms" in lines[1] and "delay 1ms" in lines[2] and "control socket /run/millrace/wan/net-" in lines[3], lines
    wan("set", "--delay", "7ms", namespace=names[0])
    found = [json.loads(wan("show", "--json", namespace=name)) for name in names]
    assert [[path["directions"][0]["settings"]["delay"] for path in paths] for paths in found] == [["7ms"], ["1ms"]]


def test_a_link_that_is_down_is_a_warning_and_an_interface_that_is_gone_ends_the_emulator(tmp_path):
    with hosts():
        emulator = Emulator(tmp_path)
        with (tmp_path / "error").open("w") as error:
            emulator.process = subprocess.Popen([*BETWEEN, *NEAR, "--control", emulator.socket, "--memory", "8MiB"], stderr=error)
        wait_for("the emulator answers", emulator.answers)
        wait_for("no warning yet", lambda: "the link is down" not in emulator.cli("show"))
        run("ip", "link", "set", NEAR[1], "down")
        wait_for("the warning", lambda: f"warning: {NEAR[1]}: the link is down" in emulator.cli("show"))
        run("ip", "link", "set", NEAR[1], "up")
        wait_for("no warning", lambda: "the link is down" not in emulator.cli("show"))
        run("ip", "link", "del", NEAR[0])
        wait_for("the warning", lambda: f"warning: {NEAR[0]}: the link is down, or the interface is gone" in emulator.cli("show"))
        assert emulator.process.wait(timeout=STOP_BOUND) == 1
        assert f"the interface {NEAR[0]} is gone" in (tmp_path / "error").read_text()
        assert not emulator.socket.exists()


def seconds_of(process):
    """The processor time of a process in s."""
    fields = open(f"/proc/{process.pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.measures
@pytest.mark.parametrize("cores", [(), ("--cores", "0,1")], ids=["default", "two threads"])
def test_an_emulator_without_frames_uses_no_processor_time_and_wakes_for_the_next_one(tmp_path, cores):
    with hosts(), Emulator(tmp_path, "--delay", "20ms", *cores) as emulator:
        namespaces.inside(HOSTS[0], "ping", "-c", "1", "-W", "20", "10.0.0.2")
        # Half a second after the last frame, neighbour discovery included, the threads sleep.
        time.sleep(1)
        shares = []
        for _ in range(3):
            before, begun = seconds_of(emulator.process), time.monotonic()
            time.sleep(1)
            shares.append((seconds_of(emulator.process) - before) / (time.monotonic() - begun))
        print(f"shares of a core: {shares}")
        assert min(shares) <= 0.05, shares
        # Three round trips, each from sleep to sleep, at 40 ms, less than the 100 ms of the longest sleep.
        # A busy machine makes them late in some trials.
        for _ in range(5):
            text = namespaces.inside(HOSTS[0], "ping", "-c", "3", "-i", "0.8", "-W", "20", "10.0.0.2")
            fastest = float(text.rsplit("= ", 1)[1].split("/")[0])
            assert fastest >= 40, text
            if fastest < 60:
                break
        else:
            pytest.fail(f"the last of five trials: {text}")
        emulator.process.send_signal(signal.SIGTERM)
        assert emulator.process.wait(timeout=STOP_BOUND) == 0
