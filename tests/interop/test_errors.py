"""Mistakes of users: each is reported with its location, its cause and the next step, and affects nothing else.

The tests use the real daemon and command line; those that need root are skipped without it.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest

from namespaces import cables
from switches import TARGET, Millrace, free_port, wait_for

NOBODY = 65534
DROPPED = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="dropping privileges, and DPDK's devices, need root")


def config(folder, system="", bridge="", ports=()):
    """Returns the text of a valid configuration with additions."""
    lines = [
        "[system]",
        f'state_dir = "{folder}/state"',
        system,
        "[api]",
        f'socket = "{folder}/api.sock"',
        "[[bridge]]",
        'name = "br0"',
        bridge,
    ]
    for number, device in enumerate(ports, 1):
        lines += ["[[bridge.port]]", f'name = "p{number}"', f"number = {number}", f'device = "{device}"']
    return "\n".join(lines) + "\n"


def refused(folder, text, *options, before=(), program=TARGET / "millraced"):
    """Returns the error message of a millraced that does not start; it must exit by itself within the time limit."""
    path = pathlib.Path(folder) / "switch.toml"
    path.write_text(text)
    done = subprocess.run(
        [*before, program, "--config", path, *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1, done.stdout + done.stderr
    at = done.stderr.find("millraced: ")
    assert at >= 0, done.stderr
    assert "panicked" not in done.stderr
    return done.stderr[at:].rstrip("\n")


def problems(switch, *, count):
    """Returns subject, message and next step of the problems in `show status --json`, once there are `count`."""
    def settled():
        status = switch.rest.get(f"{switch.url}/status", timeout=60).json()
        return status["running_revision"] == status["desired_revision"] and status

    status = wait_for("the configuration is applied", settled)
    assert status["state"] == ("degraded" if count else "settled"), status
    assert len(status["problems"]) == count, status
    for problem in status["problems"]:
        assert problem["subject"] and problem["message"], problem
        assert problem["next_step"] and "tried again every" not in problem["next_step"], problem
    text = switch.cli("show", "status")
    for problem in status["problems"]:
        assert problem["message"] in text and f"to fix it: {problem['next_step']}" in text
    return {problem["subject"]: (problem["message"], problem["next_step"]) for problem in status["problems"]}


@pytest.fixture
def open_folder():
    """A folder of the user nobody, with a daemon that every user may run."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="millrace-"))
    folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    shutil.copy(TARGET / "millraced", folder / "millraced")
    yield folder
    shutil.rmtree(folder)


# The configuration file.


def test_every_mistake_in_a_file_is_told_at_once_with_its_place_and_what_was_expected(tmp_path):
    text = "\n".join([
        "[system]",
        'state_dri = "/tmp/x"',
        "memory_mib = 1",
        "[[bridge]]",
        'name = "br0"',
        'fail_mode = "secur"',
        "[[bridge.port]]",
        'name = "p1"',
        "number = 0",
        'device = "af_packet0,iface=x"',
    ])
    said = refused(tmp_path, text)
    path = tmp_path / "switch.toml"
    for line in [
        f"{path}:2:1: system.state_dri: unknown key `state_dri`: did you mean `state_dir`?",
        f"{path}:3:14: system.memory_mib: 1 is out of range: expected 64 to 1048576 MiB",
        f"{path}:6:13: bridge[0].fail_mode: `secur` is not a choice: expected \"secure\" or \"standalone\"; "
        "did you mean `secure`?",
        f"{path}:9:10: bridge[0].port[0].number: 0 is out of range: expected 1 to 4294967040",
    ]:
        assert line in said.splitlines(), said
    assert f"{path}:10:10: " in said and "did you mean `net_af_packet`?" in said


def test_a_file_that_is_not_toml_is_refused_with_the_place(tmp_path):
    said = refused(tmp_path, "[system\nx")
    assert f"{tmp_path}/switch.toml:1:8: not TOML: unclosed table, expected `]`" in said


def test_a_file_that_is_not_there_or_not_text_is_refused_with_the_option_that_names_another(tmp_path):
    done = subprocess.run(
        [TARGET / "millraced", "--config", tmp_path / "none.toml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    for part in [f"{tmp_path}/none.toml: cannot be read", "--config", "No such file or directory"]:
        assert part in done.stderr
    (tmp_path / "image.toml").write_bytes(bytes(range(128, 256)))
    done = subprocess.run(
        [TARGET / "millraced", "--config", tmp_path / "image.toml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "UTF-8" in done.stderr and "panicked" not in done.stderr


@needs_root
def test_a_file_without_permission_is_refused(open_folder):
    secret = open_folder / "switch.toml"
    secret.write_text(config(open_folder))
    secret.chmod(0o600)
    done = subprocess.run(
        [*DROPPED, open_folder / "millraced", "--config", secret], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"{secret}: cannot be read" in done.stderr and "Permission denied" in done.stderr


def test_the_same_device_twice_and_half_a_link_are_refused_before_anything_starts(tmp_path):
    said = refused(tmp_path, config(tmp_path, ports=["net_null0", "net_null0"]))
    assert "bridge[0].port[1].device: device net_null0 is already used by bridge[0].port[0].device" in said
    said = refused(tmp_path, config(tmp_path, ports=["net_af_packet0,iface=e", "net_af_packet1,iface=e"]))
    assert "bridge[0].port[1].device: device iface=e is already used by bridge[0].port[0].device" in said
    said = refused(tmp_path, config(tmp_path, ports=["link:a"]))
    assert "link `a` has one end: expected another port with this device" in said
    assert not (tmp_path / "state").exists()


def test_an_api_for_everybody_without_a_credential_is_refused(tmp_path):
    text = config(tmp_path).replace("[api]", '[api]\nlisten = "0.0.0.0:8080"')
    said = refused(tmp_path, text, "--no-dpdk")
    assert "api.listen" in said and "expected a loopback address" in said and "`token_file`" in said


# Resources that are in use, or not permitted.


def test_a_store_that_another_daemon_has_open_is_refused(tmp_path):
    with Millrace(tmp_path / "one") as switch:
        text = config(tmp_path / "one")
        said = refused(tmp_path, text, "--no-dpdk")
        assert f"{tmp_path}/one/state" in said and "in use by another process" in said
        assert "stop the other millraced, or give this one its own state_dir" in said
        assert problems(switch, count=0) == {}


@needs_root
def test_a_state_dir_without_permission_is_refused(open_folder):
    program = open_folder / "millraced"
    text = config("/root/millrace")
    said = refused(open_folder, text, "--no-dpdk", before=DROPPED, program=program)
    assert "/root/millrace/state: no permission" in said
    assert "run as the owner of the directory, or set state_dir to one that this user can write" in said


def test_a_rest_port_in_use_ends_the_daemon_before_it_takes_a_device(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        sent = tmp_path / "sent.pcap"
        text = config(tmp_path, ports=[f"pcap:tx={sent}"]).replace("[api]", f'[api]\nlisten = "127.0.0.1:{port}"')
        said = refused(tmp_path, text, "--no-dpdk")
    assert f"the REST API cannot listen on 127.0.0.1:{port}: stop what uses it (`ss -ltnp" in said
    assert "set api.listen to another address" in said
    assert said.count("Address already in use") == 1, "the cause is told once"
    assert not sent.exists()


def test_an_openflow_port_in_use_is_a_problem_that_ends_when_the_port_is_free(tmp_path):
    switch = Millrace(tmp_path, ports=[(1, "link:a"), (2, "link:a")])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", switch.openflow_port))
        other.listen()
        with switch:
            [(subject, (message, next_step))] = problems(switch, count=1).items()
            assert subject == f"bridge br0, listener ptcp:{switch.openflow_port}:127.0.0.1"
            assert "Address already in use" in message
            assert f"ss -ltnp 'sport = {switch.openflow_port}'" in next_step and "choose another port" in next_step
            ports = switch.rest.get(f"{switch.url}/bridges/br0/ports", timeout=60).json()
            assert [port["link"] for port in ports] == ["up", "up"], "the others keep running"
            other.close()
            wait_for(
                "the port is taken when it is free",
                lambda: switch.rest.get(f"{switch.url}/status", timeout=60).json()["state"] == "settled",
            )
            switch.ofctl("show")


# Devices.


def test_devices_that_cannot_be_opened_without_dpdk_are_problems_and_the_others_run(tmp_path):
    other = tmp_path / "text.pcap"
    other.write_text("this is no capture")
    ports = [
        (1, "net_null0"),
        (2, f"pcap:rx={tmp_path}/none.pcap"),
        (3, f"pcap:rx={other}"),
        (4, "pcap:tx=/proc/none/x.pcap"),
        (5, "link:a"),
        (6, "link:a"),
    ]
    with Millrace(tmp_path / "millrace", ports=ports) as switch:
        found = problems(switch, count=4)
        message, next_step = found["bridge br0, port p1"]
        assert "needs DPDK" in message and "without --no-dpdk" in next_step
        message, next_step = found["bridge br0, port p2"]
        assert f"{tmp_path}/none.pcap: No such file" in message and "capture file" in next_step
        message, next_step = found["bridge br0, port p3"]
        assert str(other) in message and "pcap file of Ethernet frames" in next_step
        message, next_step = found["bridge br0, port p4"]
        assert "/proc/none/x.pcap" in message and "may write" in next_step
        ports = switch.rest.get(f"{switch.url}/bridges/br0/ports", timeout=60).json()
        assert [port["link"] for port in ports] == ["missing"] * 4 + ["up"] * 2
        assert "missing" in switch.cli("show", "ports")


@needs_root
def test_devices_that_dpdk_cannot_open_are_problems_and_the_others_run(tmp_path):
    ports = [
        (1, "net_af_packet0,iface=mr-nowhere"),
        (2, "net_af_paket1,iface=mr-there"),
        (3, "net_null3,sise=3"),
        (4, "0000:ff:1f.7"),
        (5, "net_pcap5,rx_pcap=/none/x.pcap"),
        (6, "net_af_packet6,iface=lo,framesz=nonsense"),
        (7, "net_ring7"),
    ]
    with Millrace(tmp_path, ports=ports, system="memory_mib = 64", dpdk=True) as switch:
        found = problems(switch, count=6)
        message, next_step = found["bridge br0, port p1"]
        assert 'there is no network interface "mr-nowhere"' in message and "ip link" in next_step
        message, next_step = found["bridge br0, port p2"]
        assert 'no driver is called "net_af_paket"' in message and "net_af_packet" in next_step
        message, next_step = found["bridge br0, port p3"]
        assert "net_null3,sise=3" in message and "options" in next_step
        message, next_step = found["bridge br0, port p4"]
        assert "no PCI device has the address 0000:ff:1f.7" in message and "lspci -D" in next_step
        message, next_step = found["bridge br0, port p5"]
        assert "/none/x.pcap" in message and "path" in next_step
        message, next_step = found["bridge br0, port p6"]
        assert "framesz=nonsense" in message and "options" in next_step
        ports = switch.rest.get(f"{switch.url}/bridges/br0/ports", timeout=60).json()
        assert ports[6]["link"] == "up" and {port["link"] for port in ports[:6]} == {"missing"}


@needs_root
def test_an_interface_that_appears_later_ends_the_problem(tmp_path):
    with Millrace(
        tmp_path, ports=[(1, "net_af_packet0,iface=mr-late0")], system="memory_mib = 64", dpdk=True
    ) as switch:
        assert list(problems(switch, count=1)) == ["bridge br0, port p1"]
        with cables(("mr-late0", "mr-late1")):
            wait_for(
                "the port runs",
                lambda: switch.rest.get(f"{switch.url}/status", timeout=60).json()["state"] == "settled",
            )
            [port] = switch.rest.get(f"{switch.url}/bridges/br0/ports", timeout=60).json()
            assert port["driver"] == "net_af_packet"
            switch.change(lambda config: config["bridge"][0].update(port=[]))
            problems(switch, count=0)


# DPDK itself.


@needs_root
def test_without_root_the_switch_runs_on_dpdk_and_a_device_without_permission_is_a_problem(open_folder):
    switch = Millrace(
        open_folder,
        ports=[(1, "net_af_packet0,iface=lo"), (2, "net_ring0")],
        system="memory_mib = 64",
        dpdk=True,
    )
    switch.command = [*DROPPED, open_folder / "millraced", *switch.command[1:]]
    with switch:
        [(subject, (message, next_step))] = problems(switch, count=1).items()
        assert subject == "bridge br0, port p1"
        assert "permi" in message and "root" in next_step and "CAP_NET_RAW" in next_step
        ports = switch.rest.get(f"{switch.url}/bridges/br0/ports", timeout=60).json()
        assert [port["link"] for port in ports] == ["missing", "up"]


@needs_root
def test_huge_pages_that_are_required_and_cannot_be_had_end_the_daemon(open_folder):
    text = config(open_folder, system='memory_mib = 65536\nhuge_pages = "required"')
    said = refused(open_folder, text, before=DROPPED, program=open_folder / "millraced")
    assert "huge pages are required" in said and "65536 MiB" in said
    assert "To fix it: " in said and "hugepages=" in said and 'system.huge_pages = "auto"' in said


def test_more_memory_than_there_is_ends_the_daemon(tmp_path):
    text = config(tmp_path, system='memory_mib = 1048576\nhuge_pages = "off"')
    said = refused(tmp_path, text)
    assert "1048576 MiB" in said and "To fix it: " in said and "less memory" in said


@pytest.mark.parametrize("options", [["--no-dpdk"], []])
def test_a_worker_core_that_does_not_exist_ends_the_daemon(tmp_path, options):
    text = config(tmp_path, system="worker_cores = [777]\nmemory_mib = 64")
    said = refused(tmp_path, text, *options)
    assert "core 777" in said and "To fix it: " in said


# Controllers, and the command line.


def test_a_controller_that_cannot_be_reached_is_named_and_tried_more_and_more_rarely(tmp_path):
    port = free_port()
    with Millrace(tmp_path, controllers=[f"tcp:127.0.0.1:{port}"]) as switch:
        def waiting():
            lines = switch.rest.get(f"{switch.url}/bridges/br0/controllers", timeout=60).json()
            [line] = [line for line in lines if line["target"] == f"tcp:127.0.0.1:{port}"]
            return line["state"] == "backoff" and line

        line = wait_for("the switch gives up for now", waiting)
        assert "Connection refused" in line["last_error"]
        assert "is the controller running, and on this port?" in line["last_error"]
        longest = 0.0

        def pauses_grow():
            nonlocal longest
            line = waiting()
            if line:
                longest = max(longest, line["retry_in_seconds"])
            return longest > 2.0

        wait_for("the pauses grow", pauses_grow)
        table = switch.cli("show", "controllers")
        assert "Connection refused" in table and "again in" in table
        with socket.socket() as controller:
            controller.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            controller.bind(("127.0.0.1", port))
            controller.listen()
            controller.settimeout(60)
            peer, _ = controller.accept()
            with peer:
                peer.settimeout(60)
                assert peer.recv(8)[:2] == b"\x04\x00", "HELLO of OpenFlow 1.3"


def test_a_name_that_nobody_knows_is_told(tmp_path):
    with Millrace(tmp_path, controllers=["tcp:controller.invalid:6653"]) as switch:
        def error():
            lines = switch.rest.get(f"{switch.url}/bridges/br0/controllers", timeout=60).json()
            return [line["last_error"] for line in lines if "invalid" in line["target"]][0]

        text = wait_for("the resolver has said no", error)
        assert "tcp:controller.invalid:6653: failed to lookup address" in text
        assert text.endswith("check the address of the controller")


def test_the_command_line_names_the_daemon_that_does_not_answer_and_the_command_that_starts_it(tmp_path):
    api = f"http://127.0.0.1:{free_port()}"
    for command in (["show", "ports"], ["trace", "br0", "in_port=1"], ["show", "status", "--json"]):
        done = subprocess.run(
            [TARGET / "millrace", "--api", api, *command], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 3, done.stdout + done.stderr
        assert done.stdout == ""
        assert api in done.stderr and "millraced --config FILE" in done.stderr


def test_the_command_line_names_what_a_bridge_or_a_revision_should_be(tmp_path):
    with Millrace(tmp_path) as switch:
        for command, parts in [
            (["show", "flows", "br7"], ["br7", "br0"]),
            (["rollback", "99"], ["99"]),
        ]:
            done = subprocess.run(
                [TARGET / "millrace", "--api", f"unix:{switch.api_socket}", *command],
                capture_output=True, text=True, timeout=60,
            )
            assert done.returncode == 1 or done.returncode == 2, done.stdout + done.stderr
            for part in parts:
                assert part in done.stderr, done.stderr
