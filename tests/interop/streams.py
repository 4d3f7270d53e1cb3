"""Numbered UDP frames at a steady rate from one interface, and their receipt at another: lost and repeated ones, and the length of
a gap by the times of sending, so that a busy machine does not lengthen it.

The sender and the receiver are processes of their own. `python streams.py send …` and `python streams.py receive …` run until
their standard input ends, and then print what they saw as one line of JSON.
"""

import argparse
import ipaddress
import json
import queue
import select
import socket
import struct
import subprocess
import sys
import threading
import time

MAGIC = b"MR-FLOW1"
# After MAGIC: stream, number, time of sending in nanoseconds.
STAMP = struct.Struct("!IQQ")
# The engine's source address: it asks routers in quarantine by ARP for addresses that only a proxy answers.
ENGINE_MAC = bytes.fromhex("024d49580001")
ETH_P_ALL = 3
PACKET_OUTGOING = 4
SO_RCVBUFFORCE = 33
# The time in ns whose frames a sender catches up after a pause, at most: a longer burst would measure the machine.
CATCH_UP_MAX_NS = 20_000_000
# The time in s in which frames that were sent arrive.
ARRIVAL_MAX_S = 60


def checksum(data):
    """Returns the Internet checksum (RFC 1071)."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def headers(source, destination, to_mac, from_mac, sport, dport, length, vlan=None):
    """Returns the headers of an Ethernet, IPv4 and UDP frame whose payload has `length` bytes."""
    address = [ipaddress.ip_address(text).packed for text in (source, destination)]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + length, 0, 0x4000, 64, 17, 0, *address)
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    macs = [bytes.fromhex(mac.replace(":", "")) for mac in (to_mac, from_mac)]
    # Checksum 0 is none (RFC 768).
    return b"".join(macs) + tag + b"\x08\x00" + ip + struct.pack("!HHHH", sport, dport, 8 + length, 0)


def is_over(seconds=0.0):
    """Returns true if standard input has ended."""
    ready, _, _ = select.select([0], [], [], seconds)
    return bool(ready) and not sys.stdin.buffer.read1(1)


def send(options):
    """Sends frames until standard input ends, or `--count` of them."""
    size = len(MAGIC) + STAMP.size + options.padding
    head = headers(options.source, options.destination, options.to_mac, options.from_mac, options.sport, options.dport, size,
                   options.vlan) + MAGIC
    padding = bytes(options.padding)
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.bind((options.interface, 0))
    interval, number = 1e9 / options.rate, 0
    start = time.monotonic_ns()
    while options.count is None or number < options.count:
        now = time.monotonic_ns()
        due = start + number * interval
        if now - due > CATCH_UP_MAX_NS:
            start += now - due - CATCH_UP_MAX_NS
        if due > now:
            # Standard input is checked while there is time.
            if is_over((due - now) / 1e9):
                break
            continue
        try:
            opened.send(head + STAMP.pack(options.stream, number, now) + padding)
        except OSError as error:
            if error.errno != 105:  # ENOBUFS: the queue is full, and the frame is due once more
                raise
            continue
        number += 1
        if number == 1:
            print("ready", flush=True)
        if number % 64 == 0 and is_over():
            break
    print(json.dumps({"sent": number}), flush=True)


def receive(options):
    """Receives frames until standard input ends, and then for `--rest` seconds after the last one. Answers each line of standard
    input by what has arrived."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    opened.bind((options.interface, ETH_P_ALL))
    streams, others = {}, {"arp_requests": 0, "broadcast": 0, "multicast": 0, "unicast_to_others": 0}
    own = bytes.fromhex(options.mac.replace(":", "")) if options.mac else None
    print("ready", flush=True)
    over, last = False, time.monotonic()
    while True:
        ready, _, _ = select.select([opened] if over else [opened, 0], [], [], options.rest)
        if over and (not ready or time.monotonic() - last > 5):
            break
        if 0 in ready and sys.stdin.buffer.read1(1):
            print(json.dumps({"arrived": {stream: [len(seen["numbers"]), seen["to"]] for stream, seen in streams.items()}}), flush=True)
        elif 0 in ready:
            over, last = True, time.monotonic()
        if opened not in ready:
            continue
        frame, sender = opened.recvfrom(2048)
        if sender[2] == PACKET_OUTGOING:
            continue
        at = frame.find(MAGIC, 42, 58)
        if at < 0:
            if own and frame[6:12] != ENGINE_MAC:
                to = frame[:6]
                if to == own:
                    others["arp_requests"] += frame[12:14] == b"\x08\x06" and frame[20:22] == b"\x00\x01"
                elif to == b"\xff" * 6:
                    others["broadcast"] += 1
                elif to[0] & 1:
                    others["multicast"] += 1
                else:
                    others["unicast_to_others"] += 1
            continue
        now = time.time_ns()
        stream, number, sent = STAMP.unpack_from(frame, at + len(MAGIC))
        seen = streams.get(stream)
        if seen is None:
            seen = streams[stream] = {"first": now, "from": number, "to": number, "numbers": set(), "sent": {}, "repeated": 0}
            print(json.dumps({"first": stream, "at": now}), flush=True)
        seen["repeated"] += number in seen["numbers"]
        seen["numbers"].add(number)
        seen["to"] = max(seen["to"], number)
        seen["sent"][number] = sent
        seen["last"] = now
    print(json.dumps({"streams": {stream: summary(seen) for stream, seen in streams.items()}, **others}), flush=True)


def summary(seen):
    """Returns counts of a stream, and its longest gap between the first frame that arrived and the last."""
    numbers = sorted(seen["numbers"])
    gap_ns, missing = 0, 0
    for one, two in zip(numbers, numbers[1:]):
        if two != one + 1:
            missing += two - one - 1
            gap_ns = max(gap_ns, seen["sent"][two] - seen["sent"][one])
    return {"received": len(numbers), "repeated": seen["repeated"], "missing": missing, "gap_ms": gap_ns / 1e6,
            "from": numbers[0], "to": seen["to"], "first": seen["first"] / 1e9, "last": seen["last"] / 1e9}


class Process:
    """A sender or a receiver in a namespace."""

    def __init__(self, namespace, *arguments):
        where = ["ip", "netns", "exec", namespace] if namespace else []
        self.process = subprocess.Popen([*where, sys.executable, __file__, *map(str, arguments)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)

    def line(self, bound=60.0):
        """Returns the next line that the process prints."""
        try:
            return self.lines.get(timeout=bound)
        except queue.Empty:
            raise AssertionError(f"{self.process.args}: no line within {bound} s") from None

    def end(self):
        """Ends the process, and returns its result: its last line."""
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.reader.join(timeout=60)
        lines = list(self.lines.queue)
        assert lines and self.process.returncode == 0, f"{self.process.args}: {self.process.returncode} {lines}"
        return json.loads(lines[-1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=60)


class Sender(Process):
    """Sends a stream. The first frame has left when the constructor returns."""

    def __init__(self, namespace, interface, stream, *, source, destination, to_mac, from_mac, rate=1000, count=None, sport=4000,
                 dport=4000, padding=0, vlan=None):
        arguments = ["send", interface, "--stream", stream, "--source", source, "--destination", destination, "--to-mac", to_mac,
                     "--from-mac", from_mac, "--rate", rate, "--sport", sport, "--dport", dport, "--padding", padding]
        arguments += ["--count", count] if count is not None else []
        arguments += ["--vlan", vlan] if vlan is not None else []
        super().__init__(namespace, *arguments)
        line = self.line()
        assert line == "ready\n", line

    def wait(self):
        """Waits until all frames of `count` are sent, and returns their number."""
        return json.loads(self.line(60))["sent"]


class Receiver(Process):
    """Receives all streams at an interface. With `mac`, it also counts the other frames by their destination."""

    def __init__(self, namespace, interface, mac=None, rest=0.3):
        super().__init__(namespace, "receive", interface, "--rest", rest, *(["--mac", mac] if mac else []))
        assert self.line() == "ready\n"
        self.first = {}

    def wait_first(self, stream, bound=60.0):
        """Returns the time of day at which the first frame of a stream arrived."""
        deadline = time.monotonic() + bound
        while stream not in self.first:
            self._note(json.loads(self.line(max(0.01, deadline - time.monotonic()))))
        return self.first[stream]

    def arrived(self):
        """Returns the number of frames that have arrived and the highest number of one, by stream."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        while True:
            found = json.loads(self.line())
            if "arrived" in found:
                return {int(stream): counts for stream, counts in found["arrived"].items()}
            self._note(found)

    def _note(self, found):
        self.first[found["first"]] = found["at"] / 1e9

    def end(self, sent=None, lossless=True):
        """Ends the receiver, and returns its result. With `sent`, the numbers of frames by stream, it first waits for all of them,
        or only for the last one of each, but for `ARRIVAL_MAX_S` at most: a busy machine delays frames."""
        def is_complete():
            arrived = self.arrived()
            return all((arrived[stream][0] if lossless else arrived[stream][1] + 1) >= count if stream in arrived else not count
                       for stream, count in sent.items())
        deadline = time.monotonic() + ARRIVAL_MAX_S
        while sent and not is_complete() and time.monotonic() < deadline:
            time.sleep(0.02)
        return super().end()


def main():
    """Runs a sender or a receiver."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["send", "receive"])
    parser.add_argument("interface")
    for name in ("source", "destination", "to-mac", "from-mac", "mac"):
        parser.add_argument(f"--{name}")
    for name in ("stream", "sport", "dport", "count", "vlan"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--padding", type=int, default=0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--rest", type=float, default=0.3)
    options = parser.parse_args()
    {"send": send, "receive": receive}[options.what](options)


if __name__ == "__main__":
    main()
