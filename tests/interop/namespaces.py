"""Network namespaces and links for tests, and raw sockets on interfaces in other namespaces."""

import contextlib
import ctypes
import itertools
import re
import select
import socket
import subprocess
import threading
import time

from switches import run, wait_for

ETH_P_ALL = 3
PACKET_OUTGOING = 4
CLONE_NEWNET = 0x40000000
SO_RCVBUFFORCE = 33
# The time in s for which frames are read after a bound, so that endless frames do not make a test endless.
LAST_LOOK_MAX_S = 30
# The time in s in which an answer may come behind those to later requests.
LATE_MAX_S = 5


@contextlib.contextmanager
def made(*namespaces):
    """Creates namespaces with these names, after removing those that a killed run left."""
    try:
        for namespace in namespaces:
            run("ip", "netns", "del", namespace, check=False)
            run("ip", "netns", "add", namespace)
        yield
    finally:
        for namespace in namespaces:
            run("ip", "netns", "del", namespace, check=False)


@contextlib.contextmanager
def cables(*pairs, mtu=1500):
    """Creates pairs of interfaces that send nothing by themselves, and sets them up, after removing those of a killed run. They are
    ready: until the kernel has announced a link, which takes a while on a busy machine, it drops what is sent."""
    try:
        for one, other in pairs:
            run("ip", "link", "del", one, check=False)
            run("ip", "link", "add", one, "mtu", str(mtu), "type", "veth", "peer", "name", other, "mtu", str(mtu))
            for name in (one, other):
                with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w") as knob:
                    knob.write("1")
                run("ip", "link", "set", name, "up")
        for name in itertools.chain(*pairs):
            wait_for(f"the link of {name}", lambda name=name: "state UP" in run("ip", "link", "show", name))
        yield
    finally:
        for one, _ in pairs:
            run("ip", "link", "del", one, check=False)


def inside(namespace, *command, **kwargs):
    """Runs a command in a namespace."""
    return run("ip", "netns", "exec", namespace, *command, **kwargs)


@contextlib.contextmanager
def entered(namespace):
    """The thread is in a namespace, if one is named: sockets that are made meanwhile stay in it."""
    if namespace is None:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as home, open(f"/run/netns/{namespace}") as there:
        assert libc.setns(there.fileno(), CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(home.fileno(), CLONE_NEWNET) == 0


def packet_socket(namespace, interface):
    """A raw socket on an interface of another namespace."""
    with entered(namespace):
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        opened.bind((interface, ETH_P_ALL))
    opened.settimeout(0.2)
    # The kernel removes a tag and passes it beside the frame (PACKET_AUXDATA).
    opened.setsockopt(263, 8, 1)
    return opened


@contextlib.contextmanager
def packet_socket_here(interface):
    """A raw socket on an interface of this namespace."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as opened:
        opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        opened.bind((interface, ETH_P_ALL))
        opened.settimeout(0.2)
        opened.setsockopt(263, 8, 1)
        yield opened


def received(opened, bound):
    """Yields the frames that arrive within a bound in seconds, without frames sent from here, each with its control messages.

    Frames that wait in the socket after the bound are read, too: this process may not have run for a while."""
    deadline = time.monotonic() + bound
    while (left := deadline - time.monotonic()) > -LAST_LOOK_MAX_S:
        if not select.select([opened], [], [], max(0, left))[0]:
            if left <= 0:
                return
            continue
        try:
            frame, control, _, sender = opened.recvmsg(65536, 256)
        except (BlockingIOError, TimeoutError):
            continue
        if sender[2] != PACKET_OUTGOING:
            yield frame, control


def receive(opened, is_wanted=lambda _: True, bound=60):
    """Returns the next wanted frame as bytes, without frames sent from here, or None after the bound."""
    return next((frame for frame, _ in received(opened, bound) if is_wanted(frame)), None)


class Pings:
    """Echo requests of a namespace at an interval in s, until the end of a `with` statement, and the answers by the number of their
    requests, from 1.

    The summary of `ping` says nothing on a busy machine: it waits for the last answers for two round trips or one interval only, and
    requests may be under way when it is interrupted.
    """

    def __init__(self, namespace, destination, interval=0.01):
        self.command = ["ip", "netns", "exec", namespace, "ping", "-n", "-i", str(interval), destination]
        self.answers = set()

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(timeout=60)
        self.reader.join(60)

    def _read(self):
        for line in self.process.stdout:
            if found := re.search(r" bytes from .*icmp_seq=(\d+)", line):
                self.answers.add(int(found[1]))

    def last(self):
        """Returns the number of the last request that was answered."""
        return max(self.answers.copy(), default=0)

    def lost(self, count=None, bound=60):
        """Returns the numbers of the first `count` requests that have no answer. It waits for an answer to the last of them, or to one
        behind it, for `bound` seconds. Without `count`, the requests are those before this call."""
        count, deadline = count or self.last() + 1, time.monotonic() + bound
        while self.last() < count and time.monotonic() < deadline:
            time.sleep(0.01)
        deadline = min(deadline, time.monotonic() + LATE_MAX_S)
        while (left := set(range(1, count + 1)) - self.answers.copy()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return sorted(left)


def unanswered(namespace, destination, count=20, interval=0.02, bound=60):
    """Returns the numbers of those of `count` echo requests that are not answered."""
    with Pings(namespace, destination, interval) as pings:
        return pings.lost(count, bound)
