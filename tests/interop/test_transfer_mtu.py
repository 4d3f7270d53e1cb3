"""The path MTU of a transfer over sockets (RFC 8899): interfaces for jumbo frames, and an emulated path between them that passes
fewer bytes, with and without ICMP. Needs root.
"""

import json
import os
import subprocess
import threading

import pytest

import namespaces
from switches import TARGET
from test_transfer_memif import BOUND, source, tree
from wan_path import HOSTS, NEAR, Emulator, hosts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
JUMBO = 9000
# The bytes of a transfer: on a busy machine a short one may end before the path MTU is found.
SIZES = (12 << 20, 40 << 20)


def inside(host, folder, *words):
    home = folder / f"home-{host}"
    home.mkdir(exist_ok=True)
    return ["ip", "netns", "exec", host, "env", f"HOME={home}", TARGET / "millrace", "--json", *words]


def make_jumbo():
    """Lets all interfaces pass jumbo frames."""
    for host, near in zip(HOSTS, NEAR):
        subprocess.run(["ip", "link", "set", near, "mtu", str(JUMBO)], check=True)
        namespaces.inside(host, "ip", "link", "set", "eth0", "mtu", str(JUMBO))


def transfer(folder, size, on_progress=lambda event: None):
    """Sends a tree at 40 Mbit/s from one host to the other; returns the path MTU in each progress event."""
    folder.mkdir()
    data, target = source(folder, size), folder / "in"
    target.mkdir()
    receive = inside(HOSTS[1], folder, "receive", target, "--once", "--listen", "10.0.0.2:7800")
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
        ticket = json.loads(receiver.stdout.readline())["ticket"]
        reader = threading.Thread(target=receiver.stdout.read)
        reader.start()
        try:
            sizes = []
            send = inside(HOSTS[0], folder, "send", f"{data}/", ticket, "--rate", "40Mbps")
            with subprocess.Popen(send, stdout=subprocess.PIPE, text=True) as sender:
                watchdog = threading.Timer(BOUND, sender.kill)
                watchdog.start()
                for line in sender.stdout:
                    event = json.loads(line)
                    if event["event"] == "progress":
                        sizes.append(event["mtu"])
                        on_progress(event)
                watchdog.cancel()
                assert sender.wait() == 0
            assert receiver.wait(timeout=BOUND) == 0
        finally:
            receiver.kill()
            reader.join()
    assert tree(data) == tree(target)
    return sizes


@pytest.mark.parametrize("options, found", [
    ((), 9000),
    (("--loss", "3%"), 9000),
    (("--mtu", "8960"), 8936),
    (("--mtu", "1500"), 1496),
    (("--mtu", "1400"), 1400),
    (("--mtu", "1400", "--over-mtu", "too-big"), 1400),
], ids=["9000", "9000-lossy", "8960", "1500", "1400", "1400-icmp"])
def test_the_largest_packets_that_pass_are_used(tmp_path, options, found):
    for trial, size in enumerate(SIZES):
        with hosts(), Emulator(tmp_path, "--delay", "5ms", *options):
            make_jumbo()
            sizes = transfer(tmp_path / f"{trial}", size)
        if sizes[-1] == found:
            return
    pytest.fail(f"{sizes}")


@pytest.mark.parametrize("over_mtu", ["drop", "too-big"])
def test_a_path_that_gets_narrower_under_way_stops_nothing(tmp_path, over_mtu):
    for trial, size in enumerate(SIZES):
        with hosts(), Emulator(tmp_path, "--delay", "5ms", "--over-mtu", over_mtu) as emulator:
            make_jumbo()
            changed = []

            def narrow(event, emulator=emulator, changed=changed):
                if event["verified"] > 2 << 20 and event["mtu"] == JUMBO and not changed:
                    changed.append(event["verified"])
                    emulator.set("--mtu", "1500")

            sizes = transfer(tmp_path / f"{trial}", 2 * size, narrow)
        if changed and sizes[-1] == 1496:
            return
    pytest.fail(f"narrower after {changed} bytes: {sizes}")
