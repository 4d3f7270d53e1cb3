"""An emulated path between two hosts, and frames through it that the kernel stamps at both ends."""

import contextlib
import json
import pathlib
import signal
import socket
import struct
import subprocess
import time

import namespaces
from switches import STOP_BOUND, TARGET, run, wait_for

HOSTS = ("mr-wa", "mr-wb")
# Interfaces of this namespace, one cable to each host.
NEAR = ("mr-w1", "mr-w2")
ETHER_TYPE = b"\x88\xb5"
SO_TIMESTAMPNS = 35


@contextlib.contextmanager
def hosts(offloads=False):
    """Two hosts, 10.0.0.1 and 10.0.0.2, each with a cable to this namespace; offloads off unless asked for."""
    with namespaces.made(*HOSTS):
        try:
            for number, (host, near) in enumerate(zip(HOSTS, NEAR), 1):
                run("ip", "link", "del", near, check=False)
                run("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", host)
                for name, there in ((near, ()), ("eth0", ("ip", "netns", "exec", host))):
                    run(*there, "sh", "-c", f"echo 1 > /proc/sys/net/ipv6/conf/{name}/disable_ipv6")
                    if not offloads:
                        off = [word for what in ("rx", "tx", "sg", "tso", "gso", "gro") for word in (what, "off")]
                        run(*there, "ethtool", "-K", name, *off)
                run("ip", "link", "set", near, "up")
                for command in (("link", "set", "lo", "up"), ("link", "set", "eth0", "up"),
                                ("addr", "add", f"10.0.0.{number}/24", "dev", "eth0")):
                    namespaces.inside(host, "ip", *command)
            yield
        finally:
            for near in NEAR:
                run("ip", "link", "del", near, check=False)


class Emulator:
    """A `millrace wan between` the two hosts."""

    def __init__(self, folder, *options):
        self.socket = pathlib.Path(folder) / "wan.sock"
        self.options = options
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(timeout=STOP_BOUND) == 0

    def start(self):
        """Starts the emulator, and returns when it forwards."""
        self.process = subprocess.Popen([TARGET / "millrace", "wan", "between", *NEAR, "--control", self.socket,
                                         "--memory", "64MiB", *self.options])
        wait_for("the emulator answers", self.answers)

    def answers(self):
        assert self.process.poll() is None, "the emulator has ended"
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
            except OSError:
                return False
        return True

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=STOP_BOUND)

    def cli(self, command, *arguments):
        return run(str(TARGET / "millrace"), "wan", command, "--control", str(self.socket), *arguments)

    def set(self, *settings):
        return self.cli("set", *settings)

    def direction(self, name="a_to_b"):
        """The status of a direction."""
        paths = json.loads(self.cli("show", "--json"))
        return next(found for found in paths[0]["directions"] if found["direction"] == name)


def frame(number, size=64):
    """A frame with a number."""
    head = bytes.fromhex("020000000002" + "020000000001") + ETHER_TYPE + struct.pack("!Q", number)
    return head + bytes(size - len(head))


class Stamped:
    """The frames that arrive at an interface, each with the time at which the kernel received it."""

    def __init__(self, namespace, interface):
        self.socket = namespaces.packet_socket(namespace, interface) if namespace else own_socket(interface)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def read(self, count, bound=60):
        """The numbers and times in ns of at most `count` frames: those that arrive within the bound."""
        found = []
        for data, control in namespaces.received(self.socket, bound):
            if data[12:14] != ETHER_TYPE:
                continue
            stamp = next(part for level, kind, part in control if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS))
            seconds, nanos = struct.unpack("=qq", stamp)
            found.append((struct.unpack("!Q", data[14:22])[0], seconds * 10**9 + nanos))
            if len(found) >= count:
                break
        return found

    def close(self):
        self.socket.close()


def own_socket(interface):
    """A raw socket on an interface of this namespace."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(socket.SOL_SOCKET, namespaces.SO_RCVBUFFORCE, 8 << 20)
    opened.bind((interface, namespaces.ETH_P_ALL))
    return opened


@contextlib.contextmanager
def captures():
    """A sender at host a, and stamped captures where its frames enter the emulator and where they arrive at host b."""
    with contextlib.closing(namespaces.packet_socket(HOSTS[0], "eth0")) as sender, \
            contextlib.closing(Stamped(None, NEAR[0])) as entry, \
            contextlib.closing(Stamped(HOSTS[1], "eth0")) as arrival:
        yield sender, entry, arrival


def send(sender, numbers, size=64, interval=0.0):
    """Sends numbered frames, one each interval."""
    due = time.monotonic()
    for number in numbers:
        while time.monotonic() < due:
            time.sleep(min(0.0002, interval))
        sender.send(frame(number, size))
        due += interval


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
