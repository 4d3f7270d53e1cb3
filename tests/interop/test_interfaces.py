"""Kernel interfaces as ports (`device = "kernel:eth1"`), with hosts that leave checksums and segmentation to their NICs, the
default of virtual Ethernet. The tests need root.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import threading
import time

import pytest

import namespaces
from switches import Millrace, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
HOSTS = [("mr-h1", "mr-k1", "10.0.0.1"), ("mr-h2", "mr-k2", "10.0.0.2")]
SIZE = 20_000_000
SERVER = "import http.server,os,sys; os.chdir(sys.argv[1]); http.server.test(http.server.SimpleHTTPRequestHandler, port=8000, bind=sys.argv[2])"


@contextlib.contextmanager
def hosts(mtu=1500):
    """Two hosts with the kernel's default offloads, each with a link to this namespace."""
    with namespaces.made(*(host for host, _, _ in HOSTS)):
        try:
            for host, near, address in HOSTS:
                run("ip", "link", "del", near, check=False)
                run("ip", "link", "add", near, "mtu", str(mtu), "type", "veth", "peer", "name", "eth0", "mtu", str(mtu),
                    "netns", host)
                pathlib.Path(f"/proc/sys/net/ipv6/conf/{near}/disable_ipv6").write_text("1")
                run("ip", "link", "set", near, "up")
                namespaces.inside(host, "ip", "link", "set", "lo", "up")
                namespaces.inside(host, "ip", "link", "set", "eth0", "up")
                namespaces.inside(host, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
            yield
        finally:
            for _, near, _ in HOSTS:
                run("ip", "link", "del", near, check=False)


@contextlib.contextmanager
def file_server(host, address, folder):
    server = subprocess.Popen(["ip", "netns", "exec", host, sys.executable, "-c", SERVER, folder, address],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for("the server listens", lambda: ":8000" in namespaces.inside(host, "ss", "-ltn"))
        yield
    finally:
        server.terminate()
        server.wait(timeout=60)


def fetch(host, url, target):
    namespaces.inside(host, sys.executable, "-c",
                      "import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])", url, str(target))


def digest(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def transfer(tmp_path):
    """A file arrives at host 1 unchanged from host 2."""
    folder = tmp_path / "files"
    folder.mkdir(exist_ok=True)
    (folder / "file").write_bytes(random.Random(1).randbytes(SIZE))
    with file_server("mr-h2", "10.0.0.2", folder):
        fetch("mr-h1", "http://10.0.0.2:8000/file", tmp_path / "got")
    assert digest(tmp_path / "got") == digest(folder / "file")


def test_tcp_goes_whole_through_two_interfaces_with_offloads_left_on(tmp_path):
    with hosts(), Millrace(tmp_path / "m", ports=[(1, "kernel:mr-k1"), (2, "kernel:mr-k2")],
                           fail_mode="standalone") as switch:
        transfer(tmp_path)
        received, _ = switch.port_packets(2)
        # With one packet for each segment, there would be 13,800.
        assert received < SIZE / 1448 / 2, received


def test_a_port_of_dpdk_gets_segments_with_whole_checksums(tmp_path):
    ports = [(1, "kernel:mr-k1"), (2, "net_af_packet0,iface=mr-k2")]
    with hosts(), Millrace(tmp_path / "m", ports=ports, fail_mode="standalone", dpdk=True,
                           system="memory_mib = 256") as switch:
        # Host 2 must send complete checksums, because DPDK's driver does not request the offload state.
        namespaces.inside("mr-h2", "ethtool", "-K", "eth0", "tx", "off")
        folder = tmp_path / "files"
        folder.mkdir()
        (folder / "file").write_bytes(random.Random(2).randbytes(SIZE // 4))
        with file_server("mr-h1", "10.0.0.1", folder):
            fetch("mr-h2", "http://10.0.0.1:8000/file", tmp_path / "got")
        assert digest(tmp_path / "got") == digest(folder / "file")
        _, sent = switch.port_packets(2)
        assert sent >= SIZE / 4 / 1448, sent
        assert "set device = \"kernel:mr-k2\"" in switch.cli("show", "ports")


TRAIN = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT
s.sendto(bytes(5000), ("10.0.0.2", 7))
"""


def test_a_train_of_datagrams_behind_a_label_is_taken_apart(tmp_path):
    """The kernel cannot segment packets behind MPLS labels, so the switch does."""
    ports = [(1, "kernel:mr-k1"), (2, "kernel:mr-k2")]
    with hosts(), Millrace(tmp_path / "m", ports=ports) as switch:
        switch.ofctl("add-flow", "in_port=1,ip,actions=push_mpls:0x8847,set_field:5->mpls_label,output:2")
        with contextlib.closing(namespaces.packet_socket("mr-h2", "eth0")) as far:
            namespaces.inside("mr-h1", "ip", "neigh", "add", "10.0.0.2", "lladdr", "02:00:00:00:00:99", "dev", "eth0")
            namespaces.inside("mr-h1", sys.executable, "-c", TRAIN)
            seen = [namespaces.receive(far, lambda frame: frame[12:14] == b"\x88\x47") for _ in range(5)]
        for frame in seen:
            datagram = frame[18:]
            assert len(datagram) == 20 + 8 + 1000
            assert checksum(pseudo(datagram) + datagram[20:]) == 0, frame.hex()


def pseudo(packet):
    return packet[12:20] + struct.pack("!HH", packet[9], len(packet) - 20)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) // 2 * 2])) + (data[-1] << 8 if len(data) % 2 else 0)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def test_a_service_tag_stays_a_service_tag(tmp_path):
    with hosts(), Millrace(tmp_path / "m", ports=[(1, "kernel:mr-k1"), (2, "kernel:mr-k2")]) as switch:
        switch.ofctl("add-flow", "in_port=1,actions=output:2,output:in_port")
        sender, far = namespaces.packet_socket("mr-h1", "eth0"), namespaces.packet_socket("mr-h2", "eth0")
        with contextlib.closing(sender), contextlib.closing(far):
            for tags in ["88a80005", "81000005", "88a80005" + "81000007", "88a80005" + "88a80006"]:
                frame = bytes.fromhex("020000000002" + "020000000001" + tags + "88b5") + bytes(60)
                sender.send(frame)
                assert with_tag(far) == frame, tags


def with_tag(opened, bound=60):
    """Returns the next frame of the test's EtherType, with the tag that the kernel removed."""
    for frame, control in namespaces.received(opened, bound):
        if b"\x88\xb5" not in frame[12:24]:
            continue
        status, _, _, _, _, tci, tpid = struct.unpack("=IIIHHHH", control[0][2])
        return frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:] if status & 0x10 else frame
    return None


def test_an_interface_that_is_deleted_under_traffic_comes_back(tmp_path):
    with hosts(), Millrace(tmp_path / "m", ports=[(1, "kernel:mr-k1"), (2, "kernel:mr-k2")],
                           fail_mode="standalone") as switch:
        transfer(tmp_path)
        flood = subprocess.Popen(["ip", "netns", "exec", "mr-h1", "ping", "-q", "-f", "-c", "100000", "10.0.0.2"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.2)
            run("ip", "link", "del", "mr-k2")
            wait_for("the link is down", lambda: "LINK_DOWN" in switch.ofctl("show"))
            run("ip", "link", "add", "mr-k2", "type", "veth", "peer", "name", "eth0", "netns", "mr-h2")
            run("ip", "link", "set", "mr-k2", "up")
            namespaces.inside("mr-h2", "ip", "link", "set", "eth0", "up")
            namespaces.inside("mr-h2", "ip", "addr", "add", "10.0.0.2/24", "dev", "eth0")
            wait_for("the link is up", lambda: "LINK_DOWN" not in switch.ofctl("show"))
        finally:
            flood.kill()
            flood.wait()
        namespaces.inside("mr-h1", "ip", "neigh", "flush", "all")
        transfer(tmp_path)


@pytest.mark.parametrize("devices", [("kernel:mr-k1", "kernel:mr-k2"), ("net_af_packet0,iface=mr-k1", "net_af_packet1,iface=mr-k2")],
                         ids=["kernel", "dpdk"])
def test_a_switch_that_is_ready_forwards_every_packet_from_then_on(tmp_path, devices):
    """Numbered frames come before, during and after the start. None that arrives after the switch says that it is ready is lost,
    and none at all is dropped because of a port that counts as down.
    """
    head = bytes.fromhex("ffffffffffff" + "020000000001" + "88b5")
    uses_dpdk = devices[0].startswith("net_")
    switch = Millrace(tmp_path / "m", ports=enumerate(devices, 1), fail_mode="standalone", dpdk=uses_dpdk,
                      system="memory_mib = 128" if uses_dpdk else "")
    with hosts(), contextlib.ExitStack() as stack:
        for near in ("mr-k1", "mr-k2"):
            wait_for("the kernel announces the link", lambda near=near: "state UP" in run("ip", "link", "show", near))
        sender, far = (stack.enter_context(contextlib.closing(namespaces.packet_socket(host, "eth0"))) for host in ("mr-h1", "mr-h2"))
        over, sent = threading.Event(), [0]

        def send():
            while not over.wait(0.005):
                sent[0] += 1
                sender.send(head + struct.pack("!Q", sent[0]) + bytes(60))

        stream = threading.Thread(target=send)
        stream.start()
        try:
            switch.start()
            first = sent[0] + 1
            wanted = range(first, first + 200)
            came = set()
            for frame, _ in namespaces.received(far, 60):
                if frame.startswith(head):
                    came.add(struct.unpack_from("!Q", frame, len(head))[0])
                    if max(came) >= wanted[-1]:
                        break
            assert came.issuperset(wanted), [number for number in wanted if number not in came]
            drops = json.loads(switch.cli("show", "drops", "--all", "--json"))
            assert not [drop for drop in drops if drop["reason"] == "port_down" and drop["packets"]], drops
        finally:
            over.set()
            stream.join()
            switch.stop()


def test_ports_of_the_kernel_alone_take_no_huge_pages(tmp_path):
    """The switch has DPDK, and none of its ports needs it."""
    with hosts(), Millrace(tmp_path / "m", ports=[(1, "kernel:mr-k1"), (2, "kernel:mr-k2")], fail_mode="standalone", dpdk=True,
                           system='huge_pages = "auto"') as switch:
        status = pathlib.Path(f"/proc/{switch.process.pid}/status").read_text()
        assert "HugetlbPages:0kB" in "".join(status.split()), status
        transfer(tmp_path)


def test_what_is_no_interface_is_said_with_the_next_step(tmp_path):
    with Millrace(tmp_path / "m", ports=[(1, "kernel:mr-nowhere")]) as switch:
        status = switch.rest.get(f"{switch.url}/status", timeout=60).json()
        (problem,) = status["problems"]
        assert "no interface `mr-nowhere`" in problem["message"] and "ip -br link" in problem["next_step"], problem


def test_cap_net_raw_is_enough_and_without_it_the_switch_says_so(tmp_path):
    with hosts():
        for bounding, troubled in [("-all,+net_raw", False), ("-all", True)]:
            switch = Millrace(tmp_path / f"m{troubled}", ports=[(1, "kernel:mr-k1")])
            switch.command = ["setpriv", f"--bounding-set={bounding}", f"--inh-caps={bounding}", *switch.command]
            with switch:
                problems = switch.rest.get(f"{switch.url}/status", timeout=60).json()["problems"]
                assert bool(problems) == troubled, problems
                assert all("CAP_NET_RAW" in problem["message"] + problem["next_step"] for problem in problems), problems
