"""What a machine did while frames were lost: stalls of its cores and of threads, time that a hypervisor took, and the counters of all
places that drop frames, with the times between which they grew.

`python stalls.py` takes its order as a line of JSON on standard input, prints a line of JSON for each finding, and ends with its
standard input. `Watch` runs it. Times are in ns of CLOCK_MONOTONIC.

    core late     a thread on each core sleeps for 1 ms, and finds that it was late: nothing ran there, or the kernel did
    thread stall  the processor time of a thread did not grow: stopped, waiting for a core, or its virtual core did not run
    stolen        time that /proc/stat says the hypervisor took from a core
    drops         a counter grew: of a port or a drop reason of a switch (REST), of a core's backlog (softnet_stat), of an interface

`attribute` tells losses apart: frames that a ring dropped while the thread that reads it did not run, and all others.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import select
import subprocess
import sys
import threading
import time

import requests

from switches import rest_over

# The period of the sleeps of a core, and of readings of processor times and of drop counters, in s.
SLEEP_S, THREADS_S, DROPS_S = 0.001, 0.005, 0.1
# The shortest lateness and stall that are reported, in ns. Busy threads wait for each other for some ms.
STALL_NS = 20_000_000
# The most findings that are kept.
FINDINGS_MAX = 100_000
# Frames that were sent within this time in ns of each other were lost in one moment.
MOMENT_NS = 20_000_000
# The time in ns that a frame takes at most from its sender to the ring that drops it: a switch on the way may have stalled, too.
WAY_NS = 1_000_000_000
# The states of a thread that does not run (proc(5)), the most telling one first.
STATES = {"T": "stopped", "D": "in the kernel", "R": "waiting for a core", "S": "asleep"}
# Metrics of a switch, and the label that names the place.
PORT_DROPS = re.compile(r'^millrace_port_(receive|transmit)_(drops|errors)_total\{[^}]*port="([^"]+)"[^}]*\} (\d+)', re.MULTILINE)
REASON_DROPS = re.compile(r'^millrace_dropped_packets_total\{[^}]*reason="([^"]+)"[^}]*\} (\d+)', re.MULTILINE)


def say(**finding):
    """Prints a finding: one write, because several processes share the output."""
    os.write(1, (json.dumps(finding) + "\n").encode())


def watch_core(core, parent):
    """Reports when a sleep on a core ends late, until the parent has ended."""
    os.sched_setaffinity(0, {core})
    while os.getppid() == parent:
        before = time.monotonic_ns()
        time.sleep(SLEEP_S)
        now = time.monotonic_ns()
        if now - before >= STALL_NS:
            say(kind="late", core=core, start=before, end=now)


class Thread:
    """A thread whose processor time is read."""

    def __init__(self, name, process, thread):
        folder = pathlib.Path(f"/proc/{process}/task/{thread}")
        self.name, self.folder = name, folder
        self.file = os.open(folder / "schedstat", os.O_RDONLY)
        (self.ran, self.waited), self.when, self.states = self.read(), time.monotonic_ns(), set()
        self.still = self.when

    def read(self):
        """Returns the time for which it ran, and for which it waited for a core, in ns."""
        ran, waited, _ = map(int, os.pread(self.file, 100, 0).split())
        return ran, waited

    def look(self):
        now = time.monotonic_ns()
        ran, waited = self.read()
        if ran == self.ran:
            # A thread that does not run has a state that says why.
            self.still = now
            self.states.add((self.folder / "stat").read_text().rpartition(")")[2].split()[0])
            return
        # A watcher that did not run itself knows nothing about the time since its last look.
        if self.still - self.when >= STALL_NS:
            # A thread that was stopped also waits for a core, at the end.
            state = next((state for state in STATES if state in self.states), None)
            say(kind="stall", thread=self.name, start=self.when, end=now, waited_ms=round((waited - self.waited) / 1e6, 1), state=state)
        self.ran, self.waited, self.when, self.still, self.states = ran, waited, now, now, set()


class Metrics:
    """The drop counters of a switch."""

    def __init__(self, name, path):
        self.name, self.rest = name, rest_over(path)

    def read(self):
        """Returns the counters by place, or None if the switch does not answer in time: it may be stopped."""
        try:
            text = self.rest.get("http://localhost/metrics", timeout=1).text
        except requests.RequestException:
            return None
        found = {f"{self.name}: {way} {what} of port {port}": int(count) for way, what, port, count in PORT_DROPS.findall(text)}
        return found | {f"{self.name}: drop {reason}": int(count) for reason, count in REASON_DROPS.findall(text)}


def softnet():
    """Returns the frames that the backlog of each core dropped."""
    lines = pathlib.Path("/proc/net/softnet_stat").read_text().splitlines()
    return {f"backlog of core {int(line.split()[12], 16)}": int(line.split()[1], 16) for line in lines}


def interface_drops(names):
    """Returns the frames that interfaces did not send: a veth counts what its peer did not take. Frames that a packet socket takes and
    no protocol of the kernel knows are counted as dropped on reception, and say nothing."""
    found = {}
    for name in names:
        with contextlib.suppress(OSError):
            found[f"tx of interface {name}"] = int(pathlib.Path(f"/sys/class/net/{name}/statistics/tx_dropped").read_text())
    return found


def stolen():
    """Returns the time in ms that the hypervisor took from each core."""
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    lines = (line.split() for line in pathlib.Path("/proc/stat").read_text().splitlines())
    return {fields[0]: int(fields[8]) * tick_ms for fields in lines if re.fullmatch(r"cpu\d+", fields[0])}


def watch(order):
    """Watches `threads` (name, process, thread), `switches` (name, socket of REST) and `interfaces` until standard input ends."""
    parent = os.getpid()
    for core in sorted(os.sched_getaffinity(0)):
        if os.fork() == 0:
            with contextlib.suppress(KeyboardInterrupt):
                watch_core(core, parent)
            os._exit(0)
    threads = [Thread(*one) for one in order["threads"]]
    sources = [Metrics(*one).read for one in order["switches"]] + [softnet, lambda: interface_drops(order["interfaces"]), stolen]
    known, when = [source() for source in sources], [time.monotonic_ns()] * len(sources)
    # Readings of a switch wait for its answer: each source has a thread of its own, so that none holds up the others.
    over = threading.Event()

    def count(at):
        while not over.wait(DROPS_S):
            before = time.monotonic_ns()
            counts = sources[at]()
            if counts is None:
                continue
            for place, number in counts.items():
                grown = number - (known[at] or {}).get(place, 0)
                if grown > 0 and known[at] is not None:
                    kind = {"kind": "stolen", "core": place, "ms": grown} if place.startswith("cpu") else \
                        {"kind": "drops", "place": place, "frames": grown}
                    say(**kind, start=when[at], end=time.monotonic_ns())
            known[at], when[at] = counts, before

    counters = [threading.Thread(target=count, args=(at,), daemon=True) for at in range(len(sources))]
    for counter in counters:
        counter.start()
    say(kind="ready")
    while not select.select([0], [], [], THREADS_S)[0]:
        for thread in list(threads):
            try:
                thread.look()
            except OSError:
                # The thread has ended.
                threads.remove(thread)
    over.set()
    for counter in counters:
        counter.join(5)


def workers(pid):
    """Returns the threads of a switch that forward packets."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        # Threads that wait for files and names end at any time.
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().startswith("worker-"):
                found.append(int(task.name))
    return found


@dataclasses.dataclass(frozen=True)
class Ring:
    """A ring that drops frames when its reader has not run for the time that the ring holds."""

    place: str  # the counter of its drops
    reader: str  # the thread
    lanes: frozenset  # those whose frames pass it
    holds_ms: float  # at the highest rate


class Watch:
    """The watcher, which works when the constructor returns. `findings` grows while it runs."""

    def __init__(self, **order):
        self.process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        self.findings = []
        # Cores report already while the rest starts.
        while (line := self.process.stdout.readline()) and (finding := json.loads(line)) != {"kind": "ready"}:
            self.findings.append(finding)
        assert line, "the watcher ended"
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            if len(self.findings) < FINDINGS_MAX:
                self.findings.append(json.loads(line))

    def end(self):
        """Ends the watcher, and returns what it found."""
        # Counters are read once more after the last frame.
        time.sleep(3 * DROPS_S)
        self.process.stdin.close()
        self.reader.join(60)
        assert self.process.wait(timeout=60) == 0
        return self.findings

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=60)


def moments(gaps):
    """Returns the gaps (lane, number, sent before, sent after) that belong together, in the order of their times."""
    found, end = [], None
    for gap in sorted(gaps, key=lambda gap: gap[2]):
        if end is not None and gap[2] <= end + MOMENT_NS:
            found[-1].append(gap)
            end = max(end, gap[3])
        else:
            found.append([gap])
            end = gap[3]
    return found


def overlaps(finding, start, end):
    return finding["start"] <= end and finding["end"] >= start


def did_not_run(findings, reader, shortest_ns):
    """Returns true if a thread, or all cores at once, stood still for some time."""
    long = [finding for finding in findings if finding["kind"] in ("stall", "late") and finding["end"] - finding["start"] >= shortest_ns]
    if any(finding["kind"] == "stall" and finding["thread"] == reader for finding in long):
        return True
    late = {}
    for finding in long:
        if finding["kind"] == "late":
            late.setdefault(finding["core"], []).append(finding)
    if len(late) < os.cpu_count():
        return False
    first, *others = late.values()
    return any(all(any(overlaps(other, one["start"], one["end"]) for other in core) for core in others) for one in first)


def attribute(gaps, findings, rings):
    """Returns the moments of loss: each with its start, its duration in ms, its frames, those of them that a ring dropped while its
    reader did not run, and the findings of that time.

    A ring accounts for at most the frames that its counter says it dropped then, and only for those of lanes that pass it. When the
    counter grew, its reader must have stood still for half of the time that the ring holds at least (it is not empty when a stall begins):
    a reader that runs, and is too slow, loses frames by its own fault. All other frames are lost by a switch, or by an unknown cause."""
    found, left_of = [], {index: finding["frames"] for index, finding in enumerate(findings) if finding["kind"] == "drops"}
    for moment in moments(gaps):
        start, end = min(gap[2] for gap in moment), max(gap[3] for gap in moment)
        missing = {}
        for lane, number, _, _ in moment:
            missing[lane] = missing.get(lane, 0) + number
        frames, asleep = sum(missing.values()), 0
        beside = [(index, finding) for index, finding in enumerate(findings) if overlaps(finding, start, end + WAY_NS)]
        for ring in rings:
            for index, finding in beside:
                if finding["kind"] != "drops" or finding["place"] != ring.place:
                    continue
                then = [other for other in findings if overlaps(other, finding["start"], finding["end"])]
                if not did_not_run(then, ring.reader, ring.holds_ms * 1e6 / 2):
                    continue
                for lane in sorted(ring.lanes & missing.keys()):
                    taken = min(missing[lane], left_of[index])
                    missing[lane] -= taken
                    left_of[index] -= taken
                    asleep += taken
        found.append({"start": start, "ms": round((end - start) / 1e6, 1), "frames": frames, "asleep": asleep,
                      "beside": [words(finding, start) for finding in summed(finding for _, finding in beside)]})
    return found


def summed(findings):
    """Returns findings with one for all drops of a place."""
    found, drops = [], {}
    for finding in findings:
        if finding["kind"] != "drops":
            found.append(finding)
        elif finding["place"] in drops:
            one = drops[finding["place"]]
            one["frames"] += finding["frames"]
            one["start"], one["end"] = min(one["start"], finding["start"]), max(one["end"], finding["end"])
        else:
            drops[finding["place"]] = dict(finding)
    return found + list(drops.values())


def words(finding, zero):
    """Returns a finding for people, with times relative to one."""
    at = f"{(finding['start'] - zero) / 1e6:+.0f} to {(finding['end'] - zero) / 1e6:+.0f} ms"
    match finding["kind"]:
        case "late":
            return f"core {finding['core']} late: {at}"
        case "stall":
            return f"{finding['thread']} did not run: {at}, {STATES.get(finding['state'], 'unknown state')}, waited {finding['waited_ms']:g} ms"
        case "stolen":
            return f"{finding['core']}: {finding['ms']:g} ms stolen: {at}"
        case "drops":
            return f"{finding['place']}: {finding['frames']} frames: {at}"
    raise AssertionError(finding)


if __name__ == "__main__":
    watch(json.loads(sys.stdin.buffer.raw.readline()))
