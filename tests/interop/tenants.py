"""Frames of many tenants from several interfaces, each of which names its tenant, and their receipt: a frame that arrives where its
tenant has no end is a leak. `python tenants.py send` and `python tenants.py receive` take their lanes as a line of JSON on standard
input, run until it ends, and then print what they saw as a line of JSON.

A lane is an interface, a VLAN and a tenant. A frame has its lane, its tenant, a number and its time of sending after MAGIC. Both
programs print a line of JSON with their counts each second.
"""

import json
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

MAGIC = b"MR-TENNT"
# Tenant, lane, number, time of sending (ns, CLOCK_MONOTONIC).
STAMP = struct.Struct("!IIQQ")
# The smallest frame in bytes, without FCS: headers with a tag, MAGIC, STAMP, and what fills it up.
SIZE_MIN = 62
# The most gaps that a receiver keeps.
GAPS_MAX = 100_000
ETHERTYPE = b"\x88\xb5"
# The time in s for which a receiver waits for missing frames after its end.
ARRIVAL_MAX_S = 60
ETH_P_ALL = 3
SOL_PACKET, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, PACKET_IGNORE_OUTGOING = 263, 5, 6, 10, 23
# struct tpacket2_hdr (linux/if_packet.h): status, length, captured length, offsets of both headers, time, tag.
HEADER = struct.Struct("=IIIHHIIHH")
STATUS_USER = 1
FRAME_SIZE, FRAMES, BLOCK_SIZE = 256, 1 << 16, 1 << 16


def is_over(seconds=0.0):
    """Returns true if standard input has ended."""
    ready, _, _ = select.select([0], [], [], seconds)
    return bool(ready) and not sys.stdin.buffer.read1(1)


class Report:
    """Prints counts once a second."""

    def __init__(self):
        self.due = time.monotonic()

    def is_due(self):
        now = time.monotonic()
        if now < self.due:
            return False
        self.due = now + 1
        return True


def due_at(seconds, order):
    """Returns the number of frames that are due after some seconds, with bursts of `burst_s` in each `period_s`."""
    if "period_s" not in order:
        return int(seconds * order["rate"])
    period, burst, factor = order["period_s"], order["burst_s"], order["factor"]
    base = order["rate"] * period / (period + (factor - 1) * burst)
    whole, part = divmod(seconds, period)
    return int(base * (seconds + (factor - 1) * (whole * burst + max(0, part - (period - burst)))))


def send(order):
    """Sends frames of all lanes in turn, at `rate` frames a second, and prints the number for each lane. Frames have `size` bytes
    without FCS. With `period_s`, `burst_s` and `factor`, the rate is so many times higher for the last seconds of each period."""
    sockets, lanes = {}, []
    for number, (interface, vlan, tenant) in enumerate(order["lanes"]):
        if interface not in sockets:
            sockets[interface] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            sockets[interface].bind((interface, 0))
        macs = bytes([2, 0, tenant >> 8, tenant & 255, 0, 2, 2, 0, tenant >> 8, tenant & 255, 0, 1])
        head = macs + struct.pack("!HH", 0x8100, vlan) + ETHERTYPE + MAGIC
        lanes.append((sockets[interface].send, head, tenant, number))
    size = order.get("size", SIZE_MIN)
    sent, pack, clock, padding = [0] * len(lanes), STAMP.pack, time.monotonic_ns, bytes(size - SIZE_MIN + 12)
    # A process that did not run for a while does not send all overdue frames at once.
    most = order["rate"] // 50 + 1
    start, number, at, report = time.monotonic(), 0, 0, Report()
    began = start
    print("ready", flush=True)
    while not is_over():
        due = due_at(time.monotonic() - start, order)
        if due - number > most:
            start += (due - number - most) / order["rate"]
            due = number + most
        for _ in range(due - number):
            transmit, head, tenant, lane = lanes[at]
            try:
                transmit(head + pack(tenant, lane, sent[lane], clock()) + padding)
            except OSError as error:
                if error.errno != 105:  # ENOBUFS: the queue is full, and the frame is due once more
                    raise
                break
            sent[lane] += 1
            number += 1
            at = at + 1 if at + 1 < len(lanes) else 0
        if report.is_due():
            print(json.dumps({"sent": number, "bytes": number * size}), flush=True)
        time.sleep(0.0005)
    print(json.dumps({"sent": sent, "seconds": time.monotonic() - began}), flush=True)


class Ring:
    """A receive ring of an interface (linux/if_packet.h, TPACKET_V2), in which a busy receiver loses nothing for a second."""

    def __init__(self, interface):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(SOL_PACKET, PACKET_VERSION, 1)
        self.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        request = struct.pack("=IIII", BLOCK_SIZE, FRAMES * FRAME_SIZE // BLOCK_SIZE, FRAME_SIZE, FRAMES)
        self.socket.setsockopt(SOL_PACKET, PACKET_RX_RING, request)
        self.memory = mmap.mmap(self.socket.fileno(), FRAMES * FRAME_SIZE)
        self.socket.bind((interface, ETH_P_ALL))
        self.at, self.full = 0, 0

    def frames(self):
        """Returns VLAN and bytes of the frames that have arrived."""
        memory, at, found = self.memory, self.at, []
        while True:
            offset = at * FRAME_SIZE
            status, _, size, mac, _, _, _, vlan, _ = HEADER.unpack_from(memory, offset)
            if not status & STATUS_USER:
                break
            found.append((vlan & 0xFFF, memory[offset + mac : offset + mac + min(size, SIZE_MIN)]))
            memory[offset : offset + 4] = b"\0\0\0\0"
            at = (at + 1) % FRAMES
        self.at = at
        return found

    def lost(self):
        """Returns the number of frames that found the ring full."""
        # The kernel sets its count to zero when it is read.
        self.full += struct.unpack("=II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        return self.full


def receive(order):
    """Receives frames until standard input ends, and prints what arrived: the number of each lane, those at a wrong tenant's end,
    and those of each lane that arrived twice or too late. Of the lanes of `watched` it keeps the gaps: the lane, the number of
    frames that are missing, and the times of sending of the frames before and after them. It may end with a line of JSON: the
    numbers of frames by lane to wait for. `full` has the times at which a ring was full: the interface, the number of frames, and the
    times of the readings before and after them."""
    owner = {(interface, vlan): tenant for interface, vlan, tenant in order["lanes"]}
    rings = {interface: Ring(interface) for interface, _, _ in order["lanes"]}
    lanes = len(order["lanes"])
    received, disordered, last, when = [0] * lanes, [0] * lanes, [-1] * lanes, [0] * lanes
    wrong, others, missing, gaps, examples, full, looked = 0, 0, 0, [], [], [], time.monotonic_ns()
    watched = [False] * lanes
    for lane in order.get("watched", []):
        watched[lane] = True

    def is_missing():
        # Of a watched lane, frames may be lost: its last one is awaited.
        return any((last[int(lane)] + 1 if watched[int(lane)] else received[int(lane)]) < number for lane, number in expected.items())

    def look_for_full():
        nonlocal looked
        now = time.monotonic_ns()
        for interface, ring in rings.items():
            before = ring.full
            if ring.lost() > before:
                full.append((interface, ring.full - before, looked, now))
        looked = now
    unpack, begin = STAMP.unpack_from, 14 + len(MAGIC)
    report = Report()
    print("ready", flush=True)
    text, until, expected = b"", None, {}
    while until is None or time.monotonic() < (until + ARRIVAL_MAX_S if is_missing() else until):
        busy = False
        for interface, ring in rings.items():
            for vlan, frame in ring.frames():
                busy = True
                if frame[14:begin] != MAGIC:
                    others += 1
                    continue
                tenant, lane, number, sent_at = unpack(frame, begin)
                if owner.get((interface, vlan)) != tenant:
                    wrong += 1
                    examples += [(interface, vlan, tenant, lane, number)] if len(examples) < 5 else []
                    continue
                received[lane] += 1
                if number <= last[lane]:
                    disordered[lane] += 1
                    continue
                if number > last[lane] + 1 and watched[lane]:
                    missing += number - last[lane] - 1
                    gaps += [(lane, number - last[lane] - 1, when[lane], sent_at)] if len(gaps) < GAPS_MAX else []
                last[lane], when[lane] = number, sent_at
        if until is None and report.is_due():
            look_for_full()
            print(json.dumps({"received": sum(received), "wrong": wrong, "missing": missing}), flush=True)
        if until is None and select.select([0], [], [], 0 if busy else 0.002)[0]:
            part = os.read(0, 1 << 16)
            text += part
            if not part:
                until, expected = time.monotonic() + order["rest"], json.loads(text or "{}")
        elif not busy:
            time.sleep(0.002)
    look_for_full()
    print(json.dumps({"received": received, "wrong": wrong, "examples": examples, "disordered": disordered, "others": others,
                      "gaps": gaps, "full": full, "ring_full": sum(ring.full for ring in rings.values())}), flush=True)


class Process:
    """A sender or a receiver, which works when the constructor returns. `newest` has its counts of the last second."""

    def __init__(self, what, **order):
        self.process = subprocess.Popen([sys.executable, __file__, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line == "ready\n", line
        self.newest = {}
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.newest = json.loads(line)

    def end(self, expected=None):
        """Ends the process, and returns what it saw. A receiver first waits for the numbers of frames that are expected of some lanes."""
        if expected:
            self.process.stdin.write(json.dumps(expected) + "\n")
        self.process.stdin.close()
        self.reader.join(ARRIVAL_MAX_S + 120)
        assert self.process.wait(timeout=60) == 0
        return self.newest

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=60)


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](json.loads(sys.stdin.buffer.raw.readline()))
