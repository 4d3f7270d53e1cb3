"""The command line with a running daemon: captures with pcap filter expressions, and the record of who changed flows."""

import re
import subprocess

import pytest

from switches import TARGET, Millrace, run, wait_for

ARP = "ffffffffffff" + "020000000001" + "0806" + "0001080006040001" + "020000000001" + "0a000001" + "00" * 6 + "0a000002"
IPV4 = "020000000002" + "020000000001" + "0800" + "4500001c000000004011" + "66cf" + "0a000001" + "0a000002" + "1111222200080000"


@pytest.fixture(name="switch")
def running_switch(tmp_path):
    with Millrace(tmp_path / "millrace", ports=[(1, "link:a"), (2, "link:a")]) as switch:
        yield switch


def packet_out(switch, frame):
    switch.ofctl("packet-out", f"in_port=CONTROLLER packet={frame + '00' * 32} actions=output:1")


def test_a_capture_takes_only_the_packets_that_a_filter_expression_accepts(switch, tmp_path):
    packets = tmp_path / "arp.pcapng"
    command = [TARGET / "millrace", "capture", "br0", "--filter", "arp and ether src 02:00:00:00:00:01", "--count", "3",
               "-w", packets]
    with subprocess.Popen(command, env=switch.environment, stderr=subprocess.PIPE, text=True) as capture:
        try:
            def ended():
                packet_out(switch, IPV4)
                packet_out(switch, ARP)
                return capture.poll() is not None

            wait_for("three packets are captured", ended)
        finally:
            capture.kill()
        assert capture.returncode == 0, capture.stderr.read()
    lines = run("tcpdump", "-nr", str(packets)).splitlines()
    assert len(lines) == 3 and all("ARP, Request who-has 10.0.0.2" in line for line in lines), lines


def test_an_expression_that_is_no_filter_is_refused_and_no_file_is_made(switch, tmp_path):
    packets = tmp_path / "none.pcapng"
    command = [TARGET / "millrace", "capture", "br0", "--filter", "arp and and", "-w", packets]
    done = subprocess.run(command, env=switch.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "--filter" in done.stderr and not packets.exists(), done.stderr


def test_the_log_names_the_user_at_the_socket_who_changed_flows(switch):
    switch.cli("flow", "add", "br0", "table=0,priority=7,arp,actions=output:2")
    user = run("id", "-un").strip()
    line = wait_for("the change is logged", lambda: re.search(r".*flow entries changed by an operator.*", switch.log.read_text()))
    assert f'author="{user}' in re.sub(r"\x1b\[[0-9;]*m", "", line[0]), line[0]
