"""Transfers whose network interface is the switch: `millrace send` and `millrace receive` at two memif ports of `millraced`, without
the kernel's network, root, huge pages or DPDK; on one bridge, and with an emulated path between two.
"""

import hashlib
import json
import os
import subprocess

import pytest

from switches import TARGET, Millrace

BOUND = 120
ONE_BRIDGE = """
[[bridge]]
name = "br0"
fail_mode = "standalone"
port = [{{ name = "a", number = 1, device = "memif:{0}/a.sock" }}, {{ name = "b", number = 2, device = "memif:{0}/b.sock" }}]
"""
EMULATED = """
[[wan]]
name = "path"
path = {{ delay = "10ms", loss = "1%", rate = "100Mbps"{1} }}
[[bridge]]
name = "left"
fail_mode = "standalone"
port = [{{ name = "a", number = 1, device = "memif:{0}/a.sock" }}, {{ name = "w", number = 2, device = "wan:path,a" }}]
[[bridge]]
name = "right"
fail_mode = "standalone"
port = [{{ name = "b", number = 1, device = "memif:{0}/b.sock" }}, {{ name = "w", number = 2, device = "wan:path,b" }}]
"""


class Daemon(Millrace):
    """A switch with bridges of its own."""

    def __init__(self, folder, text):
        super().__init__(folder)
        bridges = self.config.read_text().index("[[bridge]]")
        self.config.write_text(self.config.read_text()[:bridges] + text)


def tree(folder):
    """The digest of each file by its path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def source(folder, size):
    """A tree with a large file, small ones, an empty one and a directory."""
    data = folder / "data"
    (data / "deep" / "er").mkdir(parents=True)
    (data / "large").write_bytes(os.urandom(size))
    (data / "empty").write_bytes(b"")
    for number in range(50):
        (data / "deep" / "er" / f"{number}").write_bytes(os.urandom(number * 37))
    return data


def command(folder, name, *words, via):
    identity = folder / f"identity-{name}"
    return [TARGET / "millrace", *words, "--via", via, "--identity", identity]


def transfer(folder, addresses, size):
    """Sends a tree from port a to port b; returns the trees of both sides."""
    data, target = source(folder, size), folder / "in"
    target.mkdir()
    via = {name: f"memif:{folder}/{name}.sock,{address}" for name, address in addresses.items()}
    receive = command(folder, "b", "--json", "receive", target, "--once", via=via["b"])
    with (folder / "receive.log").open("wb") as log:
        receiver = subprocess.Popen(receive, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        line = receiver.stdout.readline()
        assert line, (folder / "receive.log").read_text()
        ticket = json.loads(line)["ticket"]
        send = command(folder, "a", "send", f"{data}/", ticket, via=via["a"])
        sent = subprocess.run(send, capture_output=True, text=True, timeout=BOUND)
        assert sent.returncode == 0, sent.stderr
        receiver.communicate(timeout=BOUND)
        assert receiver.returncode == 0, (folder / "receive.log").read_text()
    finally:
        receiver.kill()
        receiver.wait()
    return tree(data), tree(target)


@pytest.mark.parametrize("addresses", [
    {"a": "address=192.0.2.1/24", "b": "address=192.0.2.2/24"},
    {"a": "address=2001:db8::1/64", "b": "address=2001:db8::2/64"},
    {"a": "address=192.0.2.1/24,vlan=7,queues=2", "b": "address=192.0.2.2/24,vlan=7"},
], ids=["ipv4", "ipv6", "vlan"])
def test_a_tree_passes_two_memif_ports_of_one_bridge(tmp_path, addresses):
    with Daemon(tmp_path, ONE_BRIDGE.format(tmp_path)):
        sent, received = transfer(tmp_path, addresses, 4 << 20)
    assert sent == received and len(sent) == 52


@pytest.mark.parametrize("mtu", ["", ', mtu = 1400, over_mtu = "too-big"'], ids=["1500", "1400"])
def test_a_tree_passes_a_lossy_path_between_two_bridges(tmp_path, mtu):
    addresses = {"a": "address=192.0.2.1/24", "b": "address=192.0.2.2/24"}
    with Daemon(tmp_path, EMULATED.format(tmp_path, mtu)) as daemon:
        sent, received = transfer(tmp_path, addresses, 2 << 20)
        path = json.loads(daemon.cli("wan", "show", "path", "--json"))
    assert sent == received
    assert "loss_bernoulli" in json.dumps(path), "frames were lost on the way"


def test_an_address_that_another_host_has_is_named(tmp_path):
    with Daemon(tmp_path, ONE_BRIDGE.format(tmp_path)):
        target = tmp_path / "in"
        target.mkdir()
        first = command(tmp_path, "b", "--json", "receive", target, via=f"memif:{tmp_path}/b.sock,address=192.0.2.9/24")
        receiver = subprocess.Popen(first, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            assert receiver.stdout.readline()
            via = f"memif:{tmp_path}/a.sock,address=192.0.2.9/24,mac=02:00:00:00:00:01"
            # On a busy machine the first one may answer too late: the second then listens, and is tried again.
            for _ in range(5):
                second = subprocess.Popen(command(tmp_path, "a", "--json", "receive", target, via=via), stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True)
                listening = second.stdout.readline()
                if listening:
                    second.kill()
                _, said = second.communicate(timeout=BOUND)
                if not listening:
                    break
        finally:
            receiver.kill()
            receiver.wait()
    assert second.returncode == 1 and "another host has the address 192.0.2.9" in said, (listening, said)
