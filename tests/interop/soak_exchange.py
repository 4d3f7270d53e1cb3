"""The soak of an exchange (experiment E11, gate A38): a week of an exchange in an hour.

    members' interfaces a to g -- [ millraced, site one ] == two trunks == [ millraced, site two ] -- h to n
                                          \\__ millrace-ix: orders by REST, filters, kills __/

Tenants with circuits over both sites send frames that name them, with bursts. Meanwhile some tenants change their circuits over the
API, filters of their account come and go, the engine is killed and a trunk is cut. Each line of the output is a row, `NAME: VALUE
UNIT`, `sample: ` with the counts of an interval as JSON, or `moment: ` with a moment of loss and what the machine did then
(stalls.py). Needs root and a namespace of its own (scripts/apart.sh); `millrace bench exchange` runs it, judges the rows, and draws
the samples.

Usage: MILLRACE_TARGET=target/release scripts/apart.sh target/venv/bin/python tests/interop/soak_exchange.py \\
    --seconds 3600 --rate 1000 --changes 10 --tenants 200
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import namespaces  # noqa: E402
from exchange import Control  # noqa: E402
from fabrics import SLOW_BFD  # noqa: E402
from stalls import Ring, Watch, attribute, workers  # noqa: E402
from switches import free_port, opened, wait_for  # noqa: E402
from tenancy import VLANS, Changer, Tenancy  # noqa: E402
from tenants import FRAMES, Process  # noqa: E402

# Frames without FCS, as a full IP packet of 1,500 bytes has them, with a tag.
FRAME_BYTES = 1518
# In one second of ten the rate is three times that of the others: 2.5 times the mean.
BURSTS = {"period_s": 10, "burst_s": 1, "factor": 3}
# The seconds between two kills, and two cuts of a trunk, of which a run has at least one each.
KILL_EVERY_S, CUT_EVERY_S = 600, 300
# A trunk is down for this time in s.
CUT_S = 5
# A process fills its pools and caches first: its memory is compared from this duration in s on.
MEMORY_FROM_S = 600
# The most samples of a run.
SAMPLES = 600
# A share of the tenants changes.
CHANGING = 0.25
# The slots of a receive ring of a switch's kernel port (crates/io/af-packet/src/sys.rs).
SWITCH_SLOTS = 4096
# At a mean of 1 Gbit/s, a burst has 206,000 frames a second. With two ports to members at each site and one queue for a trunk, the rings
# of the switches hold 66 to 83 ms of them; with these, 221 ms at least: no frame is lost by a machine that stands still for 200 ms.
PORTS, TRUNK_QUEUES = 7, 4
# The most moments of loss that are printed.
MOMENTS = 100


@dataclasses.dataclass
class Options:
    """The size of a run."""

    seconds: float = 3600
    rate_mbps: float = 1000
    changes: float = 10  # per second
    tenants: int = 200

    def times(self, every):
        """Returns the moments in s at which something happens that happens now and then."""
        count = max(1, int(self.seconds / every))
        return [(at + 0.5) * self.seconds / count for at in range(count)]


class Member(Changer):
    """Orders the changes as a program of the member does: over the API. Keeps the time of each order."""

    def __init__(self, exchange, tenants, rate, seed, port, key):
        super().__init__(exchange, tenants, rate, seed)
        self.port, self.headers = port, {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "If-Match": "*"}
        self.link, self.took, self.faults = None, [], []

    def request(self, operations):
        """Returns method, path and body of the request for operations."""
        first = operations[0]
        match first["operation"]:
            case "create_service":
                one, two = ({"connection": end["connection"], "vlan": end["vlan"]} for end in operations[1:])
                return "POST", "services", {"name": first["name"], "end": one, "far_end": two}
            case "delete":
                return "DELETE", f"services/{first['target']}", None
            case "move_end":
                return "PUT", f"configs/{first['config']}/place", {"connection": first["connection"], "vlan": first["vlan"]}
            case "set_rate":
                return "PUT", f"configs/{first['config']}/rate", {"capacity_mbps": first["capacity_mbps"]}
            case "shut_down":
                return "PUT", f"configs/{first['config']}/shut-down", {"shut_down": first["shut_down"]}
        raise AssertionError(first)

    def order(self, control, operations):
        method, path, body = self.request(operations)
        self.link = self.link or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            began = time.monotonic()
            self.link.request(method, f"/api/v1/{path}", json.dumps(body) if body else None, self.headers)
            answer = self.link.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.link = self.link.close()
            raise ConnectionResetError(str(error)) from error
        if answer.status < 300:
            self.took.append((began, time.monotonic() - began))
        elif answer.status < 500:
            raise ValueError(text)
        else:
            self.faults.append(text)


class Filters(threading.Thread):
    """Filters of the account that come and go."""

    def __init__(self, exchange, account):
        super().__init__(daemon=True)
        self.exchange, self.account, self.over, self.ordered, self.there = exchange, account, threading.Event(), 0, []

    def run(self):
        control, number = None, 0
        while not self.over.wait(0.5):
            number += 1
            try:
                control = control or Control(self.exchange.socket)
                if len(self.there) < 5:
                    matching = {"destination": f"203.0.113.{number % 250}/32", "protocol": 17, "source_ports": [{"first": 123, "last": 123}]}
                    created = control.order({"operation": "create_filter", "account": self.account, "matching": matching, "comment": "soak",
                                             "action": {"type": "drop"}, "origin": "api", "state": {"name": "active"}})
                    self.there += created["applied"]["created"]
                else:
                    control.order({"operation": "delete_filter", "filter": self.there.pop(0)})
                self.ordered += 1
            except ValueError as error:
                print(f"a filter is refused: {error}", flush=True)
            except OSError:
                control = control and control.close()
        if control:
            control.close()

    def end(self):
        self.over.set()
        self.join(60)


def memory_mb(process):
    """Returns the memory of a process in MB, or None if it has ended."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1000
    return None


def growth(values):
    """Returns the memory in the last quarter of a time over that in its second quarter."""
    part = len(values) // 4
    if not part:
        return None
    return statistics.median(values[-part:]) / statistics.median(values[part:2 * part])


def growth_of_lives(lives):
    """Returns the memory of the last whole life of a process over that of an early one: each in its second half, as each begins
    with less. The first life also imports the exchange, so that the second is taken where there are three. A single life is
    compared with itself."""
    lives = [life for life in lives if len(life) >= 2]
    if len(lives) < 2:
        return growth(lives[0]) if lives else None
    early, late = [statistics.median(life[len(life) // 2:]) for life in (lives[min(1, len(lives) - 2)], lives[-1])]
    return late / early


def is_at(gap, times):
    """Returns true if the neighbours of a gap were sent around one of some pairs of times."""
    return any(gap[2] <= end and gap[3] >= start for start, end in times)


def split(gaps, cuts, mends=()):
    """Returns the frames lost at cuts of a trunk, the gaps of all others, and the longest gap of a cut in ms. Gaps are (lane, number,
    sent before, sent after); a cut is the time from the end of its carrier until both switches know of it, a mend that from the
    carrier of the first end until the fibre carries frames: what a switch sends meanwhile is lost with it. Times are in ns."""
    at_cuts = [gap for gap in gaps if is_at(gap, cuts)]
    at_mends = [gap for gap in gaps if not is_at(gap, cuts) and is_at(gap, mends)]
    others = [gap for gap in gaps if not is_at(gap, cuts) and not is_at(gap, mends)]
    longest = max(((after - before) / 1e6 for _, _, before, after in at_cuts), default=0.0)
    return sum(gap[1] for gap in at_cuts + at_mends), others, longest


def share(values, part):
    """Returns a quantile of values, or None without values."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else None


class Soak:
    """One run. `disturb`, a function of the run, is called in its first half, for tests of the counts."""

    def __init__(self, options, prefix="sk", disturb=None, out=lambda line: print(line, flush=True)):
        self.options, self.disturb, self.out = options, disturb, out
        self.tenancy = Tenancy(prefix, options.tenants, max(1, round(CHANGING * options.tenants)), trunks=(f"{prefix}n", f"{prefix}s"),
                               ports=PORTS, queues=TRUNK_QUEUES)
        self.rows, self.samples, self.kills, self.cuts, self.mends, self.lives, self.ready_s = {}, [], 0, [], [], [[]], 0.0
        self.ended = 0

    def say(self, name, value, unit):
        self.rows[name] = value
        if value is not None:
            self.out(f"{name}: {value:.6g} {unit}".rstrip())

    def run(self, folder):
        """Runs the soak in a folder."""
        with contextlib.ExitStack() as stack:
            port = free_port()
            api = f'[api]\nlisten = "127.0.0.1:{port}"\nname = "Soak IX"\n'
            stack.enter_context(namespaces.cables(*((name, f"{name}s") for name in self.tenancy.links), mtu=1700))
            self.exchange, self.switches, self.wires = self.tenancy.start(stack, folder, api, SLOW_BFD)
            account = next(iter(self.exchange.objects("ac")))
            self.exchange.order({"operation": "create_user", "name": "ann", "account": account, "roles": ["member_admin"]})
            _, key = self.exchange.api_key(f"http://127.0.0.1:{port}", "ann")
            with Control(self.exchange.socket) as control:
                self.first = max(change["id"] for change in control.ask("changes", limit=1)) + 1
            rate = self.options.rate_mbps * 1e6 / (8 * FRAME_BYTES)
            self.receiver = stack.enter_context(Process("receive", lanes=self.tenancy.lanes, watched=self.tenancy.steady, rest=2))
            self.sender = stack.enter_context(Process("send", lanes=self.tenancy.lanes, rate=int(rate), size=FRAME_BYTES, **BURSTS))
            self.watch = stack.enter_context(Watch(**self.watched()))
            self.member = Member(self.exchange, self.tenancy.tenants, self.options.changes, 11, port, key)
            self.filters = Filters(self.exchange, account)
            for thread in (self.member, self.filters):
                thread.start()
                stack.callback(thread.end)
            self.pass_time()
            for thread in (self.member, self.filters):
                thread.end()
            self.exchange.wait_in_sync(120)
            self.sample(self.options.seconds, self.options.seconds)
            self.report()

    def watched(self):
        """Returns the threads, switches and interfaces on the way of a frame."""
        sites = list(zip(self.tenancy.ports, self.switches))
        threads = [(name, each.process.pid, each.process.pid) for name, each in (("sender", self.sender), ("receiver", self.receiver))]
        threads += [(f"worker of {site}", switch.process.pid, thread) for site, switch in sites for thread in workers(switch.process.pid)]
        names = [name + end for name in self.tenancy.links for end in ("", "s")]
        names += [f"{trunk}-{end}" for trunk in self.tenancy.trunks for end in ("a", "ta", "tb", "b")]
        return {"threads": threads, "switches": [(site, str(switch.api_socket)) for site, switch in sites], "interfaces": names}

    def rings(self):
        """Returns the rings on the way of a frame: of the switches' ports to members and to trunks, and of the receiver."""
        tenancy = self.tenancy
        site_of = {name: site for site, ports in tenancy.ports.items() for name in ports.values()}
        enters, crosses, leaves = {}, {}, {}
        # Of the lanes of a tenant that changes, one has a circuit.
        weights = [1 / VLANS if tenancy.tenants[tenant].changes else 1 for _, _, tenant in tenancy.lanes]
        for number, (end, _, tenant) in enumerate(tenancy.lanes):
            enters.setdefault(end, []).append(number)
            far = next(one for one in tenancy.tenants[tenant].ends if one != end)
            leaves.setdefault(far, []).append(number)
            if site_of[far] != site_of[end]:
                crosses.setdefault(site_of[far], []).append(number)
        period, burst, factor = BURSTS["period_s"], BURSTS["burst_s"], BURSTS["factor"]
        rate = self.options.rate_mbps * 1e6 / (8 * FRAME_BYTES) / len(tenancy.lanes)
        highest = rate * factor * period / (period + (factor - 1) * burst)

        def ring(place, reader, lanes, slots, each=1.0):
            return Ring(place, reader, frozenset(lanes), 1000 * slots / (highest * sum(each or weights[lane] for lane in lanes)))
        found = [ring(f"{site_of[end]}: receive drops of port {end}", f"worker of {site_of[end]}", lanes, SWITCH_SLOTS)
                 for end, lanes in enters.items()]
        for (site, lanes), end in zip(sorted(crosses.items()), "ab"):
            found += [ring(f"{site}: receive drops of port {trunk}-{end}", f"worker of {site}", lanes, TRUNK_QUEUES * SWITCH_SLOTS, None)
                      for trunk in tenancy.trunks]
        return found + [ring(f"ring of {end}", "receiver", lanes, FRAMES, None) for end, lanes in leaves.items()]

    def pass_time(self):
        """Samples, kills and cuts until the time is over."""
        every = max(1.0, self.options.seconds / SAMPLES)
        events = [(at, self.kill) for at in self.options.times(KILL_EVERY_S)]
        # A cut does not meet a kill.
        events += [(at + self.options.seconds / (4 * len(self.options.times(CUT_EVERY_S))), self.cut) for at in self.options.times(CUT_EVERY_S)]
        if self.disturb:
            events.append((self.options.seconds / 4, lambda: self.disturb(self)))
        events.sort(key=lambda event: event[0])
        self.began, last = time.monotonic(), 0.0
        while (now := time.monotonic() - self.began) < self.options.seconds:
            while events and events[0][0] <= now:
                events.pop(0)[1]()
            if now - last >= every:
                self.sample(now, now - last)
                last = now
            time.sleep(0.05)
        while events:
            events.pop(0)[1]()

    def kill(self):
        """Kills the engine, and starts it again."""
        if self.exchange.process.poll() is not None:
            self.ended += 1
        self.exchange.stop(signal.SIGKILL)
        self.kills += 1
        self.lives.append([])
        began = time.monotonic()
        self.exchange.start()
        self.ready_s = max(self.ready_s, time.monotonic() - began)

    def cut(self):
        """Cuts the trunk that carries the circuits, and mends it."""
        wire = self.wires[self.tenancy.trunks[0]]
        began = time.monotonic_ns()
        wire.cut()
        for switch in self.switches:
            wait_for("the switch knows of the cut", lambda switch=switch: not switch.is_live(wire.name))
        self.cuts.append((began, time.monotonic_ns()))
        time.sleep(min(CUT_S, self.options.seconds / 10))
        mended = time.monotonic_ns()
        wire.mend()
        self.mends.append((mended, time.monotonic_ns()))
        for switch in self.switches:
            wait_for("the trunk carries traffic again", lambda switch=switch: switch.is_live(wire.name))

    def sample(self, at, seconds):
        """Keeps and prints the counts since the last sample."""
        sent, received = dict(self.sender.newest), dict(self.receiver.newest)
        before = self.samples[-1] if self.samples else {"sent_bytes": 0, "accepted": 0, "orders": 0}
        accepted, orders = sum(self.member.accepted.values()), len(self.member.took)
        took = [seconds for _, seconds in self.member.took[before["orders"]:orders]]
        engine = memory_mb(self.exchange.process)
        if engine:
            self.lives[-1].append(engine)
        switches = [memory_mb(switch.process) for switch in self.switches]
        one = {
            "at": round(at, 1), "sent_bytes": sent.get("bytes", 0), "accepted": accepted, "orders": orders,
            "load_mbps": round(8e-6 * (sent.get("bytes", 0) - before["sent_bytes"]) / max(seconds, 0.1), 1),
            "changes_per_s": round((accepted - before["accepted"]) / max(seconds, 0.1), 2),
            "wrong": received.get("wrong", 0), "missing": received.get("missing", 0),
            "order_ms": share([1000 * each for each in took], 0.95), "engine_mb": engine, "switches_mb": switches,
        }
        self.samples.append(one)
        shown = {name: one[name] for name in ("at", "load_mbps", "changes_per_s", "wrong", "missing", "order_ms", "engine_mb", "switches_mb")}
        self.out(f"sample: {json.dumps(shown)}")

    def report(self):
        """Ends the traffic, and prints the rows."""
        steady = self.tenancy.steady
        ended = self.ended + (self.exchange.process.poll() is not None)
        dead = sum(switch.process.poll() is not None for switch in self.switches)
        sent = self.sender.end()
        seen = self.receiver.end({lane: sent["sent"][lane] for lane in steady})
        findings = self.watch.end()
        findings += [{"kind": "drops", "place": f"ring of {interface}", "frames": frames, "start": start, "end": end}
                     for interface, frames, start, end in seen["full"]]
        total_lost = sum(sent["sent"][lane] - seen["received"][lane] for lane in steady)
        at_cuts, gaps, gap_ms = split(seen["gaps"], self.cuts, self.mends)
        # Frames that are missing behind the last one that arrived are in no gap.
        others = max(sum(gap[1] for gap in gaps), total_lost - at_cuts)
        found = attribute(gaps, findings, self.rings())
        for moment in found[:MOMENTS]:
            moment["at"] = round(moment.pop("start") / 1e9 - self.began, 3)
            self.out(f"moment: {json.dumps(moment)}")
        asleep = sum(moment["asleep"] for moment in found)
        stalls = [finding for finding in findings if finding["kind"] == "stall"]
        longest = {name: max(((one["end"] - one["start"]) / 1e6 for one in stalls if one["thread"].startswith(name)), default=0)
                   for name in ("worker", "sender", "receiver")}
        steps = self.exchange.journal_steps(self.first)
        rolled_back = sum("rolled_back" in found for found in steps.values())
        in_place = [(found.get("flipped") or found.get("cleaned")) - found["accepted"] for found in steps.values()
                    if found.get("flipped") or found.get("cleaned")]
        took = [1000 * seconds for _, seconds in self.member.took]
        size = FRAME_BYTES * 8e-6
        say = self.say
        say("frames at a wrong tenant", seen["wrong"], "frames")
        say("frames lost of circuits that nobody changed", others, "frames")
        say("frames lost at a ring whose reader the machine did not run", asleep, "frames")
        say("frames lost otherwise", others - asleep, "frames")
        say("moments of loss", len(found), "")
        say("worker that did not run, longest", longest["worker"], "ms")
        say("sender that did not run, longest", longest["sender"], "ms")
        say("receiver that did not run, longest", longest["receiver"], "ms")
        say("frames of circuits that nobody changed, twice or out of order", sum(seen["disordered"][lane] for lane in steady), "frames")
        say("switches that ended", dead, "")
        say("ends of the engine that nobody ordered", ended, "")
        say("load, mean", sum(sent["sent"]) * size / sent["seconds"], "Mbit/s")
        say("load, highest interval", max(one["load_mbps"] for one in self.samples), "Mbit/s")
        say("frames of circuits that nobody changed", sum(sent["sent"][lane] for lane in steady), "frames")
        say("changes accepted a second", len(took) / self.options.seconds, "1/s")
        say("changes refused", self.member.refused, "")
        say("answers 5xx", len(self.member.faults), "")
        say("orders by the API, p95", share(took, 0.95), "ms")
        say("orders by the API, p99", share(took, 0.99), "ms")
        say("from accepted to in place, p95", share(in_place, 0.95), "ms")
        say("changes rolled back", rolled_back, "")
        say("filters that came or went", self.filters.ordered, "")
        say("kills of the engine", self.kills, "")
        say("engine ready after a kill, slowest", self.ready_s, "s")
        say("cuts of a trunk", len(self.cuts), "")
        say("frames lost at cuts", at_cuts, "frames")
        say("gap at a cut, longest", gap_ms, "ms")
        if self.options.seconds >= MEMORY_FROM_S:
            switches = zip(*(one["switches_mb"] for one in self.samples if None not in one["switches_mb"]))
            grown = [growth(list(values)) for values in switches]
            say("memory of a switch, late over early", None if None in grown else max(grown, default=None), "")
            say("memory of the engine, late over early", growth_of_lives(self.lives), "")
        say("audit chain intact", int(self.is_chain_intact()), "")

    def is_chain_intact(self):
        """Returns true if each entry of the audit chain fits to the one before."""
        try:
            self.exchange.command("audit", "verify", "--database", self.exchange.database, timeout=600)
        except AssertionError as failure:
            print(failure, flush=True)
            return False
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=Options.seconds)
    parser.add_argument("--rate", type=float, default=Options.rate_mbps, help="mean rate of all tenants in Mbit/s")
    parser.add_argument("--changes", type=float, default=Options.changes, help="changes a second")
    parser.add_argument("--tenants", type=int, default=Options.tenants)
    given = parser.parse_args()
    options = Options(given.seconds, given.rate, given.changes, given.tenants)
    with tempfile.TemporaryDirectory(prefix="mr-soak-") as folder:
        Soak(options).run(opened(folder))


if __name__ == "__main__":
    # SIGTERM ends the run by an exception, so that it removes what it made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
