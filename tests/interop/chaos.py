"""Connection chaos: controllers that are killed, stopped, half open, do not read, or flood, while hosts in two network
namespaces communicate through the switch. An established flow must not lose a packet, nor the switch leak memory.

`python chaos.py --seconds 600` is `make soak`; `test_chaos.py` runs twenty seconds of it.

Hosts send numbered frames at a moderate rate, so that only the switch can lose a frame, not the machine; every frame is
counted at the other end. Controllers are processes of their own. The switch connects to some, and others connect to the
switch; each misbehaves in a way of its own. One more, the keeper, installs the entries of the hosts and sends a barrier
every second throughout.
"""

import argparse
import os
import pathlib
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

import openflow as of
from certificates import Authority, tls_table
from namespaces import made
from switches import Millrace, free_port, run, wait_for

HOSTS = {1: "mr-chaos1", 2: "mr-chaos2"}
ETHERTYPE = 0x88B5
# Frames a second in each direction, sent in bursts.
RATE, BURST = 1000, 5
# Allowed growth of the process after the first quarter: the data that floods have in flight varies.
GROWTH_MAX_KIB = 64 * 1024
# Longest time of a barrier of the keeper, while others flood; a machine that is shared stands still for seconds.
BARRIER_MAX_S = 20.0
# The same in a short run, beside other tests.
BUSY_BARRIER_MAX_S, SHORT_S = 180.0, 60
# Time in which frames that were sent must have arrived.
ARRIVAL_MAX_S = 60
ENTRIES = 3000
SO_RCVBUFFORCE, TCP_REPAIR, SOL_PACKET, PACKET_STATISTICS = 33, 19, 263, 6


def flood_of(kind, rng):
    """Returns requests of about 64 KiB."""
    if kind == "echo":
        return of.message(of.ECHO_REQUEST, bytes(200), 7) * 300
    if kind == "flow_mod":
        def entry():
            match = of.oxm_match((3, rng.randrange(ENTRIES).to_bytes(6, "big")))
            if rng.random() < 0.3:
                return of.flow_mod(3, match, table=1)
            return of.flow_add(match, of.output(3), rng.randrange(3), table=1)
        return b"".join(entry() for _ in range(500)) + of.message(of.BARRIER_REQUEST, xid=9)
    if kind == "packet_out":
        return of.packet_out(3, bytes.fromhex("020000000001020000000002") + bytes(200)) * 200
    if kind == "listing":
        # A request for the flow entries of all tables, whose reply is never read.
        body = struct.pack("!HH4xB3xII4xQQ", 1, 0, 255, of.ANY, of.ANY, 0, 0) + of.oxm_match()
        return of.message(18, body, 3) * 20
    raise AssertionError(kind)


def be_a_nuisance(stream, kind, rng):
    """Exchanges messages with the switch until the connection ends."""
    if kind == "silent":
        stream.recv(1)
        time.sleep(3600)
    stream.sendall(of.message(of.HELLO, xid=1))
    if kind == "half-open":
        time.sleep(rng.random())
        # The connection ends without FIN: the kernel drops it silently.
        stream.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        return
    generation = 0
    stream.setblocking(False)
    pending = b""
    while True:
        chosen = rng.choice(["echo", "flow_mod", "packet_out"]) if kind == "mixed" else kind
        if chosen == "role":
            generation += 1
            pending = pending or of.message(of.ROLE_REQUEST, struct.pack("!I4xQ", rng.choice([1, 2, 3]), generation)) * 50
        pending = pending or flood_of(chosen, rng)
        wants = [] if kind == "listing" else [stream]
        readable, writable, _ = select.select(wants, [stream], [], 1)
        if readable and not stream.recv(1 << 20):
            return
        if writable:
            pending = pending[stream.send(pending):]
        # A flood that leaves processor time for others.
        time.sleep(0.005)


def nuisance(kind, where, port, seed):
    """Runs a misbehaving controller: accepts the switch (`where` is "listen") or connects to it, repeatedly."""
    rng = random.Random(seed)
    listener = socket.create_server(("127.0.0.1", port)) if where == "listen" else None
    while True:
        try:
            stream = listener.accept()[0] if listener else socket.create_connection(("127.0.0.1", port), timeout=60)
            with stream:
                be_a_nuisance(stream, kind, rng)
        except OSError:
            time.sleep(0.05)


class Nuisance:
    """A misbehaving controller that can be killed, stopped and started again."""

    def __init__(self, kind, where, port, seed):
        self.arguments = [kind, where, str(port), str(seed)]
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, __file__, "--nuisance", *self.arguments])

    def signal(self, what):
        self.process.send_signal(what)

    def end(self):
        self.process.kill()
        self.process.wait(timeout=60)


class Host:
    """A host: sends numbered frames, and counts those of the other host."""

    def __init__(self, number):
        self.number, self.namespace = number, HOSTS[number]
        self.sent, self.seen, self.twice, self.kernel_drops = 0, set(), 0, 0
        self.sending, self.hearing = threading.Event(), threading.Event()
        self.sending.set()
        self.hearing.set()
        self.socket = self._socket()
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._hear)]

    def _socket(self):
        # A socket stays in the namespace in which it was created; a thread may leave its own for a moment.
        made = []

        def make():
            own = os.open("/proc/self/ns/net", os.O_RDONLY)
            there = os.open(f"/run/netns/{self.namespace}", os.O_RDONLY)
            setns(there)
            packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
            packets.bind((f"mr-c{self.number}", ETHERTYPE))
            packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            packets.settimeout(0.2)
            made.append(packets)
            setns(own)
            os.close(own)
            os.close(there)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]

    def start(self):
        for thread in self.threads:
            thread.start()

    def _send(self):
        head = bytes([2, 0, 0, 0, 0, 3 - self.number, 2, 0, 0, 0, 0, self.number]) + ETHERTYPE.to_bytes(2, "big")
        due = time.monotonic()
        while self.sending.is_set():
            for _ in range(BURST):
                frame = head + bytes([self.number]) + self.sent.to_bytes(8, "big") + bytes(77)
                while True:
                    try:
                        self.socket.send(frame)
                        break
                    except (BlockingIOError, socket.timeout, OSError) as error:
                        if getattr(error, "errno", None) not in (None, 11, 105):
                            raise
                        time.sleep(0.001)
                self.sent += 1
            # Do not catch up: a burst after a pause would measure the machine.
            due = max(due + BURST / RATE, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _hear(self):
        while self.hearing.is_set():
            try:
                frame = self.socket.recv(2048)
            except socket.timeout:
                continue
            if frame[12:14] == ETHERTYPE.to_bytes(2, "big") and frame[14] != self.number:
                number = int.from_bytes(frame[15:23], "big")
                self.twice += number in self.seen
                self.seen.add(number)
        packets, self.kernel_drops = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))

    def finish(self):
        """Stops sending."""
        self.sending.clear()
        self.threads[0].join(timeout=60)

    def stop(self):
        self.sending.clear()
        self.hearing.clear()
        for thread in self.threads:
            if thread.is_alive():
                thread.join(timeout=60)
        self.socket.close()


def setns(descriptor):
    """Moves the calling thread into a network namespace."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Keeper:
    """The well-behaved controller: installs the entries of the hosts, and sends a barrier every second."""

    def __init__(self, port):
        self.client = of.Client(port)
        self.client.stream.settimeout(BUSY_BARRIER_MAX_S)
        in_port = lambda number: of.oxm_match((0, struct.pack("!I", number)))
        self.client.send(of.flow_add(in_port(1), of.output(2), 60_000), of.flow_add(in_port(2), of.output(1), 60_000))
        self.slowest = 0.0
        self.ask()

    def ask(self):
        begin = time.monotonic()
        errors = [whole for _, kind, _, whole in self.client.barrier() if kind == of.ERROR]
        assert not errors, errors
        self.slowest = max(self.slowest, time.monotonic() - begin)


def resident_kib(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def chaos(folder, seconds, seed=1):
    """Runs the test and returns the observations; asserts that no frame was lost."""
    rng = random.Random(seed)
    folder = pathlib.Path(folder)
    kinds = ["echo", "flow_mod", "packet_out", "mixed", "listing", "half-open", "silent", "role"]
    called = [(kind, free_port()) for kind in kinds[:6]]
    options = [", auxiliary = 2", "", ", auxiliary = 1, auxiliary_transport = \"udp\"", "", ", auxiliary = 1", ""]
    controllers = [f'{{ target = "tcp:127.0.0.1:{port}", max_backoff_s = 1, echo_interval_s = 2{more} }}'
                   for (_, port), more in zip(called, options, strict=True)]
    ours, theirs = Authority(folder / "pki", "switches"), Authority(folder / "pki", "controllers")
    tls_port = free_port()
    extra = tls_table(*ours.sign("switch"), theirs)
    switch = Millrace(folder / "millrace", ports=[(1, "tap:mr-c1"), (2, "tap:mr-c2"), (3, "link:x"), (4, "link:x")],
                      extra=extra, listen=[f"ptls:{tls_port}"])
    text = switch.config.read_text()
    switch.config.write_text(text.replace("controllers = []", f"controllers = [{', '.join(controllers)}]"))
    hosts, nuisances = [], []
    with made(*HOSTS.values()), switch:
        try:
            for number, namespace in HOSTS.items():
                run("ip", "link", "set", f"mr-c{number}", "netns", namespace)
                run("ip", "-n", namespace, "link", "set", f"mr-c{number}", "txqueuelen", "10000", "up")
            keeper = Keeper(switch.openflow_port)
            hosts = [Host(number) for number in HOSTS]
            prove_the_way(hosts)
            for host in hosts:
                host.start()
            nuisances = [Nuisance(kind, "listen", port, rng.random()) for kind, port in called]
            nuisances += [Nuisance(kind, "call", switch.openflow_port, rng.random()) for kind in kinds]
            # A controller that speaks no TLS on a TLS port.
            nuisances.append(Nuisance("echo", "call", tls_port, rng.random()))
            seen = disturb(switch, keeper, nuisances, seconds, rng)
            for one in nuisances:
                one.end()
            nuisances = []
            for host in hosts:
                host.finish()
            try:
                wait_for("what was sent", lambda: all(len(hosts[2 - host.number].seen) >= host.sent for host in hosts), ARRIVAL_MAX_S)
            except AssertionError:
                pass  # The assertions below report missing data.
            keeper.ask()
            flows = switch.ofctl("dump-flows", "table=0")
        except BaseException:
            print(switch.log.read_text()[-4000:])
            raise
        finally:
            for one in nuisances:
                one.end()
            for host in hosts:
                host.stop()
        assert switch.process.poll() is None
        assert switch.stop() == 0, switch.log.read_text()[-2000:]
    lost = {host.number: host.sent - len(hosts[2 - host.number].seen) for host in hosts}
    seen |= {"sent": sum(host.sent for host in hosts), "lost": sum(lost.values()),
             "twice": sum(host.twice for host in hosts), "kernel_drops": sum(host.kernel_drops for host in hosts),
             "slowest_barrier_s": round(keeper.slowest, 3)}
    print(seen)
    assert "panicked" not in switch.log.read_text()
    assert "in_port=1 actions=output:2" in flows and "in_port=2 actions=output:1" in flows, flows
    assert seen["lost"] == 0 and seen["twice"] == 0 and seen["sent"] > seconds * RATE / 10, seen
    assert seen["rss_end_kib"] - seen["rss_quarter_kib"] < GROWTH_MAX_KIB, seen
    assert keeper.slowest < (BUSY_BARRIER_MAX_S if seconds < SHORT_S else BARRIER_MAX_S), seen
    return seen


def prove_the_way(hosts):
    """Waits until frames pass both ways: links come up when the switch has detected them."""
    for host in hosts:
        other = hosts[2 - host.number]
        # The frame has its receiver as the sender, so that a late frame is not counted.
        head = bytes([2, 0, 0, 0, 0, other.number, 2, 0, 0, 0, 0, host.number]) + ETHERTYPE.to_bytes(2, "big")
        probe = head + bytes([other.number]) + bytes(59)

        def arrives(host=host, other=other, probe=probe):
            host.socket.send(probe)
            try:
                return other.socket.recv(2048)
            except socket.timeout:
                return None

        wait_for("the first frame", arrives)


def disturb(switch, keeper, nuisances, seconds, rng):
    """Kills, stops and starts misbehaving controllers until the time is over; returns the memory of the switch over time."""
    begin = time.monotonic()
    quarter, kills, stops = None, 0, 0
    stopped = {}
    while (now := time.monotonic()) < begin + seconds:
        assert switch.process.poll() is None, switch.log.read_text()[-2000:]
        one = rng.choice(nuisances)
        if one not in stopped and rng.random() < 0.5:
            one.end()
            one.start()
            kills += 1
        elif one not in stopped:
            # Sometimes long enough for the switch to close the connection.
            one.signal(signal.SIGSTOP)
            stopped[one] = now + rng.choice([0.5, 2, 8])
            stops += 1
        for held, until in list(stopped.items()):
            if now >= until:
                held.signal(signal.SIGCONT)
                del stopped[held]
        keeper.ask()
        if quarter is None and now > begin + seconds / 4:
            quarter = resident_kib(switch.process.pid)
        time.sleep(0.5)
    end = resident_kib(switch.process.pid)
    return {"seconds": seconds, "kills": kills, "stops": stops, "rss_quarter_kib": quarter, "rss_end_kib": end}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nuisance", nargs=4, metavar=("KIND", "WHERE", "PORT", "SEED"))
    arguments = parser.parse_args()
    if arguments.nuisance:
        kind, where, port, seed = arguments.nuisance
        nuisance(kind, where, int(port), seed)
        return
    # On SIGTERM, it removes everything that it created.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    with tempfile.TemporaryDirectory() as folder:
        chaos(folder, arguments.seconds, arguments.seed)


if __name__ == "__main__":
    main()
