"""Virtual NICs: DPDK's testpmd is the peer of vhost-user, virtio-user and memif ports. The tests kill peers and the switch;
traffic resumes by itself.
"""

import contextlib
import os
import pathlib
import re
import signal
import socket
import stat
import struct
import subprocess
import time

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

import openflow as of
from switches import Millrace, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="DPDK's devices need root"),
    pytest.mark.skipif(not pathlib.Path("/usr/bin/dpdk-testpmd").exists(), reason="dpdk-testpmd is not installed"),
]
# From 02:..:01 to 02:..:02; a peer returns it with the addresses exchanged.
FRAME = "02000000000202000000000188b5" + 46 * "00"
LINK_DOWN, LIVE = 1, 4
PACKET_IN, PORT_STATUS = 10, 12
SYSTEM = 'memory_mib = 128\nhuge_pages = "off"\n'
KILLS = 5


class Peer:
    """A testpmd that returns received packets with the MAC addresses exchanged."""

    def __init__(self, folder, device, queues=1, forward="macswap"):
        self.log = folder / "testpmd.log"
        self.command = [
            "dpdk-testpmd", "--lcores=0@0,1@1", "--no-huge", "-m", "192", "--no-pci", "--no-telemetry", "--no-shconf",
            "--single-file-segments", f"--file-prefix=peer{os.getpid()}", f"--vdev={device}", "--",
            f"--forward-mode={forward}", "--port-topology=loop", "--total-num-mbufs=4096", f"--rxq={queues}",
            f"--txq={queues}", "--auto-start", "-i",
        ]
        self.process, self.queues = None, queues
        # When it is killed, DPDK leaves the socket that it created, and does not start if one exists.
        self.leftover = path_is_theirs(device)

    def start(self):
        if self.leftover:
            pathlib.Path(self.leftover).unlink(missing_ok=True)
        with self.log.open("a") as log:
            # The prompt of testpmd reads from a pipe that stays open.
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        return self

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=60)

    def sent(self):
        """Returns the packets that each of its queues sent, from its last output; requests the next output."""
        counts = re.findall(r"Queue= ?\d+ +-> TX.*?TX-packets: ?(\d+)", self.log.read_text(), re.DOTALL)
        self.process.stdin.write(b"show fwd stats all\n")
        self.process.stdin.flush()
        return [int(count) for count in counts[-self.queues:]]

    def check(self):
        assert self.process.poll() is None, self.log.read_text()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()


def path_is_theirs(device):
    """Returns the socket that the peer creates, if it does."""
    options = dict(part.split("=") for part in device.split(",")[1:])
    if options.get("server") == "1" or options.get("role") == "server":
        return options.get("path", options.get("socket"))
    return options["iface"] if "iface" in options and "client" not in options else None


def devices(kind, path):
    """Returns a pair of devices: the switch's, and testpmd's other end."""
    return {
        "vhost-server": (f"vhost:{path},mode=0600", f"net_virtio_user0,path={path},queue_size=256"),
        "vhost-client": (f"vhost:{path},role=client", f"net_virtio_user0,path={path},server=1,queue_size=256"),
        "vhost-client-packed": (
            f"vhost:{path},role=client",
            f"net_virtio_user0,path={path},server=1,queue_size=256,packed_vq=1",
        ),
        "virtio-user": (f"virtio-user:{path},rings=packed", f"net_vhost0,iface={path}"),
        "memif-server": (f"memif:{path}", f"net_memif0,role=client,id=0,socket={path},socket-abstract=no"),
        "memif-client": (
            f"memif:{path},role=client,id=3",
            f"net_memif0,role=server,id=3,socket={path},socket-abstract=no",
        ),
    }[kind]


def received(switch):
    return switch.port_packets(1)[0]


def answers(switch, peer=None):
    """Returns a condition: sends the peer one packet, and is true if the peer returns it."""

    def one():
        if peer:
            peer.check()
        before = received(switch)
        switch.ofctl("packet-out", f"in_port=controller,packet={FRAME},actions=output:1")
        with contextlib.suppress(AssertionError):
            return wait_for("it comes back", lambda: received(switch) > before, bound=0.5)
        return False

    return wait_for("packets pass", one, bound=60)


def is_live(switch):
    return "LIVE" in switch.ofctl("dump-ports-desc", "1")


def goes_down(switch):
    wait_for("the link is down", lambda: not is_live(switch))


def comes_up(switch, peer):
    def one():
        peer.check()
        return is_live(switch)

    wait_for("the link is up", one, bound=60)


def a_switch(folder, device, **kwargs):
    return Millrace(folder / "millrace", ports=[(1, device)], system=SYSTEM, dpdk=True, **kwargs)


# In the first of each pair the peer can be replaced; in the second it outlives the switch.
PEERS_RETURN = ["vhost-server", "vhost-client", "vhost-client-packed", "memif-server", "memif-client"]
PEERS_STAY = ["vhost-client", "vhost-client-packed", "memif-client"]


@pytest.mark.parametrize("kind", PEERS_RETURN)
def test_a_peer_that_is_killed_and_started_again_finds_its_port(tmp_path, kind):
    ours, theirs = devices(kind, tmp_path / "s")
    with a_switch(tmp_path, ours) as switch:
        peer = Peer(tmp_path, theirs)
        for _ in range(KILLS):
            with peer:
                comes_up(switch, peer)
                answers(switch, peer)
            goes_down(switch)


@pytest.mark.parametrize("kind", PEERS_STAY)
def test_a_switch_that_is_killed_and_started_again_finds_its_peer(tmp_path, kind):
    ours, theirs = devices(kind, tmp_path / "s")
    switch = a_switch(tmp_path, ours)
    times = []
    with Peer(tmp_path, theirs) as peer:
        killed = None
        for _ in range(KILLS):
            switch.start()
            # One thread of DPDK's memif releases the memory of a disconnected client while another still reads it.
            if kind == "memif-client" and peer.process.poll() == -signal.SIGSEGV:
                print("testpmd did not survive the end of its client")
                peer.start()
            try:
                comes_up(switch, peer)
                answers(switch, peer)
                if killed:
                    times.append(time.monotonic() - killed)
            finally:
                killed = time.monotonic()
                switch.stop(signal.SIGKILL)
    print(f"{kind}: traffic again {', '.join(f'{t:.2f}' for t in times)} s after the switch was killed")


def test_the_switch_is_the_driver_of_another_switchs_port(tmp_path):
    ours, theirs = devices("virtio-user", tmp_path / "s")
    peer = Peer(tmp_path, theirs)
    with a_switch(tmp_path, ours) as switch:
        for _ in range(KILLS):
            with peer:
                comes_up(switch, peer)
                answers(switch, peer)
            goes_down(switch)


def test_ports_come_and_go_while_others_carry_packets(tmp_path):
    """A port is added and removed ten times; each time its peer connects, and the first port's peer is not affected."""
    ours, theirs = devices("vhost-server", tmp_path / "first")
    second = tmp_path / "second"
    with a_switch(tmp_path, ours) as switch, Peer(tmp_path, theirs) as peer:
        comes_up(switch, peer)
        for _ in range(10):
            switch.change(lambda config: config["bridge"][0]["port"].append(
                {"name": "p2", "number": 2, "device": f"vhost:{second}"}))
            wait_for("the second socket", second.exists)
            answers(switch, peer)
            switch.change(lambda config: config["bridge"][0].update(port=config["bridge"][0]["port"][:1]))
            wait_for("the second socket has gone", lambda: not second.exists())
        answers(switch, peer)


def test_a_guest_with_several_queues_is_heard_on_each(tmp_path):
    ours, _ = devices("vhost-server", tmp_path / "s")
    switch = a_switch(tmp_path, ours)
    switch.config.write_text(switch.config.read_text() + "queues = 2\n")
    peer = Peer(tmp_path, f"net_virtio_user0,path={tmp_path / 's'},queues=2,queue_size=256", queues=2, forward="txonly")
    with switch, peer:
        comes_up(switch, peer)
        # More than a ring holds: the switch must have taken packets out.
        wait_for("packets of both queues", lambda: len([sent for sent in peer.sent() if sent > 1000]) == 2)


def test_controllers_hear_of_peers_that_come_and_go(tmp_path):
    ours, theirs = devices("vhost-server", tmp_path / "s")
    with a_switch(tmp_path, ours) as switch, of.Client(switch.openflow_port) as client:
        with Peer(tmp_path, theirs):
            assert state_of(client.until(PORT_STATUS)[3]) == (1, LIVE)
        assert state_of(client.until(PORT_STATUS)[3]) == (1, LINK_DOWN)


def state_of(whole):
    """Returns (number, state) of a PORT_STATUS."""
    return struct.unpack_from("!I", whole, 16)[0], struct.unpack_from("!I", whole, 16 + 36)[0]


def test_socket_files_have_the_owner_and_mode_that_were_asked_for(tmp_path):
    path = tmp_path / "s"
    for device, mode, owner in [
        (f"vhost:{path}", 0o600, (0, 0)),
        (f"vhost:{path},owner=nobody,group=daemon", 0o660, (65534, 1)),
        (f"memif:{path},group=1,mode=0620", 0o620, (0, 1)),
    ]:
        with a_switch(tmp_path / f"{mode:o}", device):
            wait_for("the socket", path.exists)
            wait_for("its mode", lambda: stat.S_IMODE(path.stat().st_mode) == mode)
            assert (path.stat().st_uid, path.stat().st_gid) == owner
        assert not path.exists(), "a switch that is stopped leaves nothing behind"


def test_what_is_in_the_way_of_a_socket_is_told_and_left_alone(tmp_path):
    file, busy, stale = tmp_path / "file", tmp_path / "busy", tmp_path / "stale"
    file.write_text("a letter")
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as gone:
        other.bind(str(busy))
        other.listen()
        gone.bind(str(stale))
        gone.close()
        ports = [(1, f"vhost:{file}"), (2, f"vhost:{busy}"), (3, f"vhost:{stale}"), (4, f"vhost:{tmp_path}/no/where"),
                 (5, f"vhost:{tmp_path}/s,owner=no-such-user"), (6, f"memif:{busy},id=1")]
        with Millrace(tmp_path / "millrace", ports=ports, system=SYSTEM, dpdk=True) as switch:
            problems = wait_for("problems", lambda: switch.log.read_text().count("not running") >= 5 and
                                switch.log.read_text())
            for text in [f"{file}: cannot be opened: there is a file of this name", f"{busy}: in use",
                         "not found: the folder", "the user no-such-user"]:
                assert text in problems
            assert f"{stale}" not in problems
            assert switch.ofctl("show").count("(p") == 1, "only the port of the stale socket is there"
        assert file.read_text() == "a letter" and busy.exists() and not stale.exists()


def test_a_checksum_that_a_guest_leaves_to_its_nic_is_there_when_the_switch_sees_the_packet(tmp_path):
    """testpmd's csum engine leaves the UDP checksum to its virtio NIC; a controller receives the packet."""
    ours, theirs = devices("vhost-server", tmp_path / "s")
    asked = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(
        sport=1000, dport=2000, chksum=0x1234) / (b"x" * 64)
    peer = Peer(tmp_path, theirs, forward="csum")
    peer.command.remove("--auto-start")
    with a_switch(tmp_path, ours) as switch, of.Client(switch.openflow_port) as client, peer:
        for line in ["port stop 0", "csum set udp hw 0", "port start 0", "start"]:
            peer.process.stdin.write(line.encode() + b"\n")
        peer.process.stdin.flush()
        switch.ofctl("add-flow", "in_port=1,actions=output:controller")
        comes_up(switch, peer)

        def came():
            switch.ofctl("packet-out", f"in_port=controller,packet={bytes(asked).hex()},actions=output:1")
            client.stream.settimeout(1)
            try:
                return client.until(PACKET_IN)[3]
            except TimeoutError:
                return None

        whole = wait_for("the packet comes back", came, bound=60)
    packet = Ether(whole[whole.index(bytes(asked)[26:34]) - 26:])
    right = Ether(bytes(asked))
    del right[UDP].chksum
    assert packet[UDP].chksum == Ether(bytes(right))[UDP].chksum, packet.show(dump=True)
