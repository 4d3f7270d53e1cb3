"""Chains through the daemon: effects of functions on scapy's packets, verified by scapy; an os-ken controller that steers by
logical ports; a daemon that is killed while its functions run. Ports are tap devices in namespaces.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw
from scapy.utils import rdpcap

from namespaces import inside, made, packet_socket, receive
from switches import Millrace, end, free_port, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root")
SIDES = {"mr-left": "mr-cl", "mr-right": "mr-cr"}
# A mark that packets of the kernel do not have.
MARK = b"millrace chains!"


@pytest.fixture(autouse=True)
def namespaces():
    with made(*SIDES):
        yield


class Lab:
    """A switch with hosts at ports 1 and 2, and chains."""

    def __init__(self, folder, chains, flows=(), **kwargs):
        ports = [(number, f"tap:{interface}") for number, interface in enumerate(SIDES.values(), 1)]
        self.switch = Millrace(folder, ports=ports, **kwargs)
        # The chain's tables follow the ports in the configuration, because both belong to the bridge.
        with self.switch.config.open("a") as config:
            config.write(chains)
        self.flows = flows

    def __enter__(self):
        self.switch.start()
        self.connect()
        return self

    def connect(self):
        """Moves the hosts' interfaces into their namespaces, and adds flow entries."""
        self.left, self.right = [self._host(*side) for side in SIDES.items()]
        for here, there in self.flows:
            self.switch.ofctl("add-flow", f"in_port={here},actions=output:{there}")

    def _host(self, namespace, interface):
        run("ip", "link", "set", interface, "netns", namespace)
        inside(namespace, "ip", "link", "set", interface, "addrgenmode", "none")
        inside(namespace, "ip", "link", "set", interface, "up")
        return packet_socket(namespace, interface)

    def __exit__(self, *_):
        self.left.close()
        self.right.close()
        self.switch.stop()

    def hop(self, name):
        """Returns the counters of a hop."""
        bridges = json.loads(self.switch.cli("nf", "stats", "--json"))
        hops = [hop for bridge in bridges for chain in bridge["chains"] for hop in chain["hops"]]
        return next(hop for hop in hops if hop["name"] == name)

    def through(self, sender, receiver, packet, bound=60):
        """Sends a packet, and returns the packet that the other side receives, parsed by scapy, or None."""
        sender.send(bytes(packet))
        frame = receive(receiver, lambda frame: MARK in frame, bound)
        return frame and Ether(frame)

    def forward(self, packet, **kwargs):
        return self.through(self.left, self.right, packet, **kwargs)

    def backward(self, packet, **kwargs):
        return self.through(self.right, self.left, packet, **kwargs)


CABLE = ((1, 100), (101, 2), (2, 101), (100, 1))


def chain(*hops):
    """Returns a chain with ends 100 and 101."""
    text = '\n[[bridge.chain]]\nname = "edge"\nnumber = 100\nfar = 101\n'
    for name, function, more in hops:
        text += f'[[bridge.chain.hop]]\nname = "{name}"\nfunction = "{function}"\n{more}\n'
    return text


def one(function, *settings, more=""):
    """Returns a chain of one function."""
    return chain(("fn", function, f"settings = {json.dumps(settings)}\n{more}"))


MACS = dict(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
BACK = dict(dst=MACS["src"], src=MACS["dst"])


def marked(*layers):
    packet = layers[0]
    for layer in layers[1:]:
        packet = packet / layer
    return packet / Raw(MARK)


def segment(sport, dport, flags, v6=False, back=False):
    ends = ("fd00::1", "fd00::2") if v6 else ("10.0.0.1", "10.0.0.2")
    src, dst = reversed(ends) if back else ends
    ip = IPv6(src=src, dst=dst) if v6 else IP(src=src, dst=dst)
    return marked(Ether(**(BACK if back else MACS)), ip, TCP(sport=sport, dport=dport, flags=flags))


def is_sound(packet):
    """Returns true if the checksums equal those that scapy computes."""
    fresh = Ether(bytes(packet))
    for layer in (IP, TCP, UDP, ICMP):
        if fresh.haslayer(layer):
            del fresh[layer].chksum
    return bytes(fresh) == bytes(packet)


def test_macswap_exchanges_addresses_and_nothing_else(tmp_path):
    with Lab(tmp_path, one("macswap"), CABLE) as lab:
        sent = marked(Ether(**MACS), IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2))
        came = lab.forward(sent)
        assert (came.dst, came.src) == (sent.src, sent.dst)
        assert bytes(came)[12:] == bytes(sent)[12:]


@pytest.mark.parametrize("where", ["inline", "isolated"])
def test_a_firewall_lets_through_what_began_inside(tmp_path, where):
    settings = ("rule=allow tcp from 10.0.0.0/8 port 80", "rule=allow tcp from fd00::/64 port 80")
    with Lab(tmp_path, one("firewall", *settings, more=f'class = "{where}"'), CABLE) as lab:
        for v6 in (False, True):
            assert lab.backward(segment(80, 1000, "SA", v6, True), bound=1) is None, "nobody asked"
            assert lab.forward(segment(1000, 22, "S", v6), bound=1) is None, "no rule allows it"
            assert lab.forward(segment(1000, 80, "S", v6)) is not None
            assert lab.backward(segment(80, 1000, "SA", v6, True)) is not None
            assert lab.forward(segment(1000, 80, "A", v6)) is not None
        arp = Ether(dst="ff:ff:ff:ff:ff:ff", src=MACS["src"]) / ARP(psrc="10.0.0.1", pdst="10.0.0.2") / Raw(MARK)
        assert lab.forward(arp) is not None, "addresses must be resolved"
        wait_for("the counters", lambda: lab.hop("fn")["dropped"] >= 4)


def test_nat44_translates_and_finds_the_way_back(tmp_path):
    with Lab(tmp_path, one("nat44", "outside=203.0.113.1"), CABLE) as lab:
        for layer in (UDP(sport=1234, dport=53), TCP(sport=1234, dport=80, flags="S"), ICMP(id=77)):
            sent = marked(Ether(**MACS), IP(src="10.0.0.1", dst="198.51.100.7"), layer)
            came = lab.forward(sent)
            assert (came[IP].src, came[IP].dst) == ("203.0.113.1", "198.51.100.7")
            assert is_sound(came), came.show(dump=True)
            if layer.haslayer(ICMP):
                answer = ICMP(type=0, id=came[ICMP].id)
            else:
                kind = type(layer)
                answer = kind(sport=layer.dport, dport=came[kind].sport)
            back = lab.backward(marked(Ether(**BACK), IP(src="198.51.100.7", dst="203.0.113.1"), answer))
            assert back[IP].dst == "10.0.0.1"
            assert back[ICMP].id == 77 if layer.haslayer(ICMP) else back[type(layer)].dport == 1234
            assert is_sound(back), back.show(dump=True)
        unsolicited = marked(Ether(**BACK), IP(src="198.51.100.7", dst="203.0.113.1"), UDP(sport=53, dport=9))
        assert lab.backward(unsolicited, bound=1) is None


def test_a_load_balancer_keeps_connections_with_their_servers(tmp_path):
    servers = [f"02:00:00:00:01:0{number}" for number in range(1, 4)]
    settings = ["address=10.0.0.100"] + [f"server={server}" for server in servers]
    with Lab(tmp_path, one("lb", *settings), CABLE) as lab:
        chosen = {}
        for sport in range(1000, 1060):
            sent = marked(Ether(**MACS), IP(src="10.0.0.1", dst="10.0.0.100"), TCP(sport=sport, dport=80, flags="S"))
            chosen[sport] = lab.forward(sent).dst
        assert set(chosen.values()) == set(servers)
        for sport, server in chosen.items():
            sent = marked(Ether(**MACS), IP(src="10.0.0.1", dst="10.0.0.100"), TCP(sport=sport, dport=80, flags="A"))
            assert lab.forward(sent).dst == server
        other = marked(Ether(**MACS), IP(src="10.0.0.1", dst="10.0.0.9"), UDP(sport=1, dport=2))
        assert lab.forward(other).dst == MACS["dst"]


def test_a_rate_limit_lets_its_rate_through(tmp_path):
    with Lab(tmp_path, one("ratelimit", "rate=800kbps", "burst_ms=100"), CABLE) as lab:
        # 10,000 bytes may arrive at once: the other source has a limit of its own.
        for source, other in (("10.0.0.1", "10.0.0.11"), ("10.0.0.3", "10.0.0.13")):
            sent = bytes(marked(Ether(**MACS), IP(src=source, dst="10.0.0.2"), UDP(sport=1, dport=2), Raw(b"x" * 942)))
            before = lab.hop("fn")["packets"]
            began = time.monotonic()
            for _ in range(200):
                lab.left.send(sent)
            wait_for("the hop has them all", lambda before=before: lab.hop("fn")["packets"] == before + 200)
            # A packet of a source with a limit of its own arrives after all packets that passed.
            behind = bytes(marked(Ether(**MACS), IP(src=other, dst="10.0.0.2"), UDP(sport=1, dport=2)))
            lab.left.send(behind)
            passed = 0
            while (frame := receive(lab.right, lambda frame: MARK in frame)) != behind:
                assert frame, "the packet of another source arrives"
                passed += 1
            most = 10_000 / 1000 + (time.monotonic() - began) * 100 + 2
            assert 9 <= passed <= most, (source, passed, most)


def test_a_monitor_counts_exports_and_reports(tmp_path):
    collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    collector.bind(("127.0.0.1", 0))
    collector.settimeout(60)
    port = collector.getsockname()[1]
    settings = (f"export=udp:127.0.0.1:{port}", "idle_s=1", "active_s=1")
    with Lab(tmp_path, one("monitor", *settings), CABLE) as lab:
        sent = marked(Ether(**MACS), IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1111, dport=2222))
        for _ in range(5):
            assert lab.forward(sent) is not None
        octets = socket.inet_aton("10.0.0.1") + socket.inet_aton("10.0.0.2")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = collector.recv(65536)
            version, size = struct.unpack("!HH", message[:4])
            assert (version, size) == (10, len(message)), "IPFIX (RFC 7011, section 3.1)"
            # The mapped address stands for the other one as well.
            if all(octets[at : at + 4] in message for at in (0, 4)) and struct.pack("!H", 1111) in message:
                break
        else:
            pytest.fail("no record of the flow")
        report = wait_for("its report", lambda: lab.hop("fn")["report"])
        assert any(line.startswith("10.0.0.1 ") for line in report), report
    collector.close()


def test_a_tap_writes_what_passed(tmp_path):
    file = tmp_path / "seen.pcapng"
    with Lab(tmp_path, one("tap", f"export=file:{file}"), CABLE) as lab:
        sent = [marked(Ether(**MACS), IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=number, dport=2))
                for number in range(1, 21)]
        for packet in sent:
            assert lab.forward(packet) is not None
        wait_for("copies", lambda: {"name": "copied", "value": 20} in lab.hop("fn")["counters"])

        def seen():
            try:
                return [bytes(packet) for packet in rdpcap(str(file))]
            except Exception:  # noqa: BLE001 - the file is being written
                return []
        wait_for("the file", lambda: [f for f in seen() if MARK in f] == [bytes(packet) for packet in sent])


PORTS = {"a": 111, "b": 112, "c": 113}
STEERED = '\n[[bridge.chain]]\nname = "three"\nnumber = 100\n' + "".join(
    f'[[bridge.chain.hop]]\nname = "{name}"\nfunction = "monitor"\nnumber = {number}\nsteer = true\n'
    for name, number in PORTS.items()
)


def test_an_os_ken_controller_changes_a_path_through_three_functions_without_loss(tmp_path):
    heard, orders, port = tmp_path / "heard", tmp_path / "orders", free_port()
    heard.touch()
    orders.write_text("path 1 111 112 113 2\n")
    app = pathlib.Path(__file__).with_name("steering.py")
    manager = shutil.which("osken-manager", path=str(pathlib.Path(sys.executable).parent))
    environment = os.environ | {"STEERING_ORDERS": str(orders), "STEERING_HEARD": str(heard)}
    with (tmp_path / "controller.log").open("w") as log:
        controller = subprocess.Popen([manager, "--ofp-tcp-listen-port", str(port), app], stdout=log, stderr=log,
                                      env=environment)
    try:
        with Lab(tmp_path, STEERED, controllers=[f"tcp:127.0.0.1:{port}"]) as lab:
            done = lambda: heard.read_text().count("\n")
            wait_for("the first path", lambda: done() == 1, 60)
            frames, seen, stop = [], [], threading.Event()

            def send():
                number = 0
                while not stop.is_set():
                    # A receiver that waits for its core still has room for all that is on the way.
                    if number - len(seen) >= 200:
                        time.sleep(0.001)
                        continue
                    packet = Ether(**MACS) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2)
                    lab.left.send(bytes(packet / Raw(MARK + struct.pack("!I", number))))
                    number += 1
                    time.sleep(0.0005)
                frames.append(number)

            sender = threading.Thread(target=send)
            sender.start()

            def take(bound):
                frame = receive(lab.right, lambda frame: MARK in frame, bound)
                if frame:
                    at = frame.index(MARK) + len(MARK)
                    seen.append(struct.unpack("!I", frame[at : at + 4])[0])
                return frame

            paths = ["1 111 113 2", "1 113 112 111 2", "1 112 2", "1 111 112 113 2"] * 5
            for number, path in enumerate(paths, 2):
                with orders.open("a") as file:
                    file.write(f"path {path}\n")
                deadline = time.monotonic() + 60
                while done() < number:
                    assert time.monotonic() < deadline, path
                    take(0.1)
                at = len(seen)
                while len(seen) < at + 100:
                    assert take(60), f"nothing comes on {path}"
            stop.set()
            sender.join()
            while len(seen) < frames[0] and take(20):
                pass
            assert sorted(seen) == list(range(frames[0])), f"{frames[0] - len(set(seen))} lost"
            packets = {name: lab.hop(name)["packets"] for name in PORTS}
            assert all(0 < count < frames[0] for count in packets.values()), packets
    finally:
        end(controller)


def children(pid):
    text = run("ps", "--ppid", str(pid), "-o", "pid=,comm=", check=False)
    return {int(line.split()[0]) for line in text.splitlines() if "millrace-nf" in line}


def allowed_cores(task):
    """Returns the cores on which a thread may run, from its folder in /proc."""
    lines = (task / "status").read_text().splitlines()
    text = next(line.split(":")[1].strip() for line in lines if line.startswith("Cpus_allowed_list"))
    spans = [span.split("-") for span in text.split(",")]
    return {core for span in spans for core in range(int(span[0]), int(span[-1]) + 1)}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is everybody's")
def test_a_workers_core_is_left_to_it(tmp_path):
    core = max(os.sched_getaffinity(0))
    with Lab(tmp_path, one("macswap", more='class = "isolated"'), system=f"worker_cores = [{core}]") as lab:
        wait_for("the function", lambda: children(lab.switch.process.pid))
        (function,) = children(lab.switch.process.pid)
        names = {}
        for task in pathlib.Path(f"/proc/{lab.switch.process.pid}/task").iterdir():
            # Threads that wait for files and names end at any time.
            with contextlib.suppress(OSError):
                names[task] = (task / "comm").read_text().strip()
        workers = [task for task, name in names.items() if name.startswith("worker")]
        assert [allowed_cores(task) for task in workers] == [{core}]
        control = [task for task, name in names.items() if name.startswith(("control", "bridge-"))]
        assert control and all(core not in allowed_cores(task) for task in control)
        assert core not in allowed_cores(pathlib.Path(f"/proc/{function}"))


@pytest.mark.parametrize("where", ["isolated", "ring"])
def test_a_daemon_killed_under_its_functions_leaves_nothing_behind_and_traffic_resumes(tmp_path, where):
    is_ring = where == "ring"
    hops = chain(*[(name, "macswap", f'class = "{where}"') for name in ("one", "two")])
    system = 'huge_pages = "off"\nmemory_mib = 128' if is_ring else ""
    with Lab(tmp_path, hops, CABLE, dpdk=is_ring, system=system) as lab:
        packet = marked(Ether(**MACS), IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2))

        def passes():
            return lab.forward(packet, bound=1) is not None
        wait_for("the functions work", passes)
        longest, daemons = 0.0, []
        for _ in range(3):
            daemons.append(lab.switch.process.pid)
            functions = children(lab.switch.process.pid)
            assert len(functions) == 2
            # Packets are in flight.
            for _ in range(200):
                lab.left.send(bytes(packet))
            lab.left.close()
            lab.right.close()
            began = time.monotonic()
            lab.switch.stop(signal.SIGKILL)
            wait_for("the functions to end", lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in functions))
            lab.switch.start()
            lab.connect()
            wait_for("traffic resumes", passes)
            longest = max(longest, time.monotonic() - began)
            assert len(children(lab.switch.process.pid)) == 2
        print(f"{where}: traffic again after {longest:.2f} s at most")
        assert lab.switch.stop() == 0
        wait_for("no process is left", lambda: str(tmp_path) not in run("ps", "-eo", "comm=,args=", check=False))
        # The next daemon removes the control groups of a killed one.
        assert not [group for pid in [*daemons, lab.switch.process.pid] for group in groups(pid)]


def groups(daemon):
    """Returns the control groups of a daemon's functions."""
    return list(pathlib.Path("/sys/fs/cgroup").rglob(f"millrace-nf-{daemon}-*"))


def test_limits_of_a_function_are_told_with_what_holds_them(tmp_path):
    limits = 'class = "isolated"\nmemory_mib = 64\nweight = 300\ncpu_percent = 30'
    with Lab(tmp_path, chain(("fn", "macswap", limits)), CABLE) as lab:
        packet = marked(Ether(**MACS), IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2))
        wait_for("the function works", lambda: lab.forward(packet, bound=1) is not None)
        held = {limit["name"]: (limit["value"], limit["by"], limit["problem"]) for limit in lab.hop("fn")["limits"]}
        daemon = lab.switch.process.pid
        if groups(daemon):
            group = ("cgroup", "")
            assert held == {"processes": (1, *group), "memory_mib": (64, *group), "cpu_percent": (30, *group),
                            "weight": (300, *group)}
        else:
            assert held["cpu_percent"][1] == "nothing" and held["cpu_percent"][2], held
        listed = lab.switch.cli("nf", "list")
        assert "edge/fn is limited: processes 1 (" in listed and "cpu_percent 30 (" in listed, listed
        assert lab.switch.stop() == 0
        assert not groups(daemon)
