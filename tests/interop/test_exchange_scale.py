"""A large exchange on two real switches: what a switch holds after it comes back empty, with old entries, with foreign ones, in the
middle of a bundle or of a listing; and a trunk that fails under all circuits. Needs root.

The short form has 200 circuits. `make exchange-check` has 10,000, which are 100,000 entries, and compares times with their bounds.
"""

import contextlib
import os
import random
import selectors
import signal
import socket
import threading
import time

import pytest

import namespaces
from exchange import Control, Exchange
from fabrics import FAST_BFD, circuit, connection, fabric, switch_config, trunk_ports
from sites import Site, Wire
from streams import Receiver, Sender
from switches import free_port, wait_for
from test_exchange import socket_on

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
CIRCUITS = int(os.environ.get("MILLRACE_EXCHANGE_CIRCUITS", "10000" if LONG else "200"))
PORTS = {"one": {1: "sc-a", 2: "sc-b", 3: "sc-c"}, "two": {1: "sc-d", 2: "sc-e", 3: "sc-f"}}
TRUNKS = ("north", "south")
FOREIGN = 100
# Seconds within which a switch equals the plan again: the bound holds for optimised builds, at 100,000 entries.
BOUND = 5 if LONG else 60
ADDRESSES = {"source": "10.0.0.1", "destination": "10.0.0.2", "to_mac": "02:00:00:00:66:02", "from_mac": "02:00:00:00:66:01"}


class Proxy:
    """A relay between a switch and the engine, which can be cut: at once, or after a number of bytes in one direction."""

    def __init__(self, target):
        self.target = int(target.rsplit(":", 1)[1])
        self.port, self.open, self.over = free_port(), True, False
        self.rest = {"engine": None, "switch": None}
        self.passed = {"engine": 0, "switch": 0}
        self.cuts, self.pair = 0, None
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self):
        return f"tcp:127.0.0.1:{self.port}"

    def _serve(self):
        while not self.over:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            if not self.open:
                one.close()
                continue
            try:
                other = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                one.close()
                continue
            self.pair = (one, other)
            self._relay(one, other)

    def _relay(self, one, other):
        ways = {one: (other, "engine"), other: (one, "switch")}
        with selectors.DefaultSelector() as selector:
            for end in ways:
                selector.register(end, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(1):
                    to, name = ways[key.fileobj]
                    try:
                        data = key.fileobj.recv(1 << 16)
                        if self.rest[name] is not None:
                            data = data[: self.rest[name]]
                            self.rest[name] -= len(data)
                        self.passed[name] += len(data)
                        if data:
                            to.sendall(data)
                    except OSError:
                        data = b""
                    if not data or self.rest[name] == 0:
                        if self.rest[name] == 0:
                            self.cuts += 1
                            self.rest[name] = None
                        one.close()
                        other.close()
                        return

    def cut(self, is_open=True):
        """Ends the connection; further ones are accepted if `is_open`."""
        self.open = is_open
        for end in self.pair or ():
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut_after(self, towards, size):
        """Ends the connection after so many further bytes towards the engine or the switch."""
        self.rest[towards] = size

    def close(self):
        self.over = True
        self.cut(False)
        self.listener.close()


class World:
    """The exchange, its two switches, and the relay of each."""

    def __init__(self, folder, stack):
        self.folder, self.stack = folder, stack

    def start(self):
        stack, folder = self.stack, self.folder
        links = [name for ports in PORTS.values() for name in ports.values()]
        stack.enter_context(namespaces.cables(*((name, f"{name}s") for name in links), mtu=1700))
        self.wires = {name: stack.enter_context(Wire(name)) for name in TRUNKS}
        self.exchange = stack.enter_context(Exchange(folder / "ix"))
        file = folder / "exchange.toml"
        file.write_text(self.text())
        started = time.monotonic()
        self.exchange.ask("apply", file, timeout=600)
        self.control = stack.enter_context(Control(self.exchange.socket))
        print(f"{CIRCUITS} circuits applied to an empty exchange in {time.monotonic() - started:.1f} s")
        self.switches, self.proxies = [], []
        started = time.monotonic()
        for dpid, (site, end) in enumerate((("one", "a"), ("two", "b")), 1):
            proxy = Proxy(self.exchange.target)
            stack.callback(proxy.close)
            ports = {port: (name, f"kernel:{name}s") for port, name in PORTS[site].items()}
            for number, trunk in enumerate(TRUNKS, 1):
                ports |= trunk_ports(end, trunk, number)
            config = switch_config(dpid, ports, bfd=FAST_BFD if LONG else None)
            self.switches.append(stack.enter_context(Site(folder / site, config, proxy.address)))
            self.proxies.append(proxy)
        self.wait_in_sync(600)
        print(f"both switches hold {[self.len(switch) for switch in self.switches]} entries {time.monotonic() - started:.1f} s after "
              "their start")
        for switch in self.switches:
            for trunk in TRUNKS:
                wait_for("the trunk is up", lambda switch=switch, trunk=trunk: switch.is_live(trunk))
        return self

    def text(self):
        text = fabric({site: list(ports) for site, ports in PORTS.items()}, TRUNKS) + '[[account]]\nname = "R"\nkind = "member"\n'
        text += "".join(connection("R", name, f"{site}-1:{port}") for site, ports in PORTS.items() for port, name in ports.items())
        here, there = (list(ports.values()) for ports in PORTS.values())
        return text + "".join(
            circuit("R", f"c{at}", [(here[at % 3], 2 + at // 3), (there[at % 3], 2 + at // 3)]) for at in range(CIRCUITS))

    def wait_in_sync(self, bound):
        """Waits until both switches equal the plan."""
        def is_in_sync():
            status = self.control.ask("status")
            return not status["changes"] and all(one["state"] == "in_sync" for one in status["switches"])
        wait_for(f"in sync ({self.exchange.log})", is_in_sync, bound)

    def wait_lost(self):
        """Waits until the engine knows that it has lost the first switch."""
        wait_for("the engine has lost the switch", lambda: self.control.ask("status")["switches"][0]["state"] == "disconnected")

    def len(self, switch):
        """Returns the number of entries of a switch."""
        return int(switch.ofctl("dump-aggregate").split("flow_count=")[1].split()[0])

    def contents(self, switch):
        """Returns the packets of each entry by table and match, without the marker, whose cookie is the newest revision."""
        found = {}
        for line in switch.ofctl("dump-flows").splitlines():
            if "table=" in line and "table=7," not in line:
                table = line.split("table=")[1].split(",")[0]
                packets = int(line.split("n_packets=")[1].split(",")[0])
                found[table, line.split("priority=")[1]] = packets
        return found


def send(one, vlan, count):
    """Sends frames of a VLAN from a member's interface."""
    for _ in range(count):
        one.send(bytes([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]) + b"\x81\0" + vlan.to_bytes(2, "big") + b"\x88\xb5" + bytes(60))


def check_time(what, started):
    took = time.monotonic() - started
    print(f"{what}: in sync after {took:.2f} s")
    assert took <= BOUND, f"{what}: {took:.1f} s"


def check_counters(before, after):
    """Checks that no entry was installed again, which would reset its counter. Probes of the engine (LLDP) may count meanwhile."""
    assert not {key: (before[key], packets) for key, packets in after.items() if packets < before[key]}


def check_same_entries(before, after):
    assert set(after) == set(before)
    check_counters(before, after)


def test_a_switch_that_comes_back_in_any_state_is_in_sync_and_right_entries_keep_their_counters(tmp_path):
    with contextlib.ExitStack() as stack:
        world = World(tmp_path, stack).start()
        one, proxy = world.switches[0], world.proxies[0]
        member = socket_on("sc-a")

        # With old entries: circuits are deleted while the switch is away. Correct entries are not touched.
        plan = world.contents(one)
        send(member, 2, 50)
        wait_for("the frames are counted", lambda: 50 in world.contents(one).values())
        before = world.contents(one)
        proxy.cut(False)
        world.wait_lost()
        services = [service["id"] for service in world.control.ask("services") if service["name"] != "c0"]
        deleted = services[-FOREIGN:] if LONG else services[-20:]
        world.control.order(*({"operation": "delete", "target": id} for id in deleted))
        # 100 foreign entries, half of which are in the tables that the exchange fills.
        lines = [f"table={3 if number % 2 else 9},priority=7777,in_port={number + 1},actions=drop" for number in range(FOREIGN)]
        file = tmp_path / "foreign"
        file.write_text("\n".join(lines) + "\n")
        one.ofctl("add-flows", file)
        started = time.monotonic()
        proxy.open = True
        world.wait_in_sync(120)
        check_time(f"old entries of {len(deleted)} circuits, and {FOREIGN} foreign ones", started)
        after = world.contents(one)
        assert not [match for _, match in after if match.startswith("7777")]
        assert len(after) < len(before) and set(after) <= set(before)
        check_counters(before, after)

        # A listing that is cut in its middle deletes nothing.
        size = proxy.passed["engine"]
        proxy.cut()
        wait_for("the switch is there again", lambda: proxy.passed["engine"] > size + 100)
        world.wait_in_sync(120)
        whole = proxy.passed["engine"] - size
        proxy.cut_after("engine", whole // 2)
        proxy.cut()
        # The listing itself ends the relay: the first connection is cut before its end.
        wait_for("the listing was cut", lambda: proxy.cuts == 1, bound=60)
        check_same_entries(after, world.contents(one))
        world.wait_in_sync(120)
        check_same_entries(after, world.contents(one))

        # An empty switch.
        sizes = proxy.passed["switch"]
        one.stop(signal.SIGKILL)
        world.wait_lost()
        one.start()
        started = time.monotonic()
        world.wait_in_sync(120)
        check_time(f"an empty switch gets {len(after)} entries", started)
        assert set(world.contents(one)) == set(after)

        # An empty switch, whose bundle is cut in its middle: it has all of it or nothing.
        commit = proxy.passed["switch"] - sizes
        one.stop(signal.SIGKILL)
        world.wait_lost()
        proxy.cut_after("switch", commit // 2)
        one.start()
        wait_for("the bundle was cut", lambda: proxy.cuts == 2, bound=60)
        proxy.open = False
        proxy.cut(False)
        in_between = world.len(one)
        started = time.monotonic()
        proxy.open = True
        world.wait_in_sync(120)
        check_time(f"a bundle that was cut ({in_between} entries)", started)
        assert in_between in (0, 1), in_between
        assert set(world.contents(one)) == set(after) and len(after) <= len(plan)


@pytest.mark.skipif(not LONG, reason="`make exchange-check` measures gaps; test_exchange_sites.py has one in the short form")
def test_all_circuits_move_to_the_other_trunk_without_a_flow_mod(tmp_path):
    with contextlib.ExitStack() as stack:
        world = World(tmp_path, stack).start()
        rng = random.Random(5)
        gaps = {"link down": [], "silent": []}
        wire = world.wires["north"]
        before = [world.contents(switch) for switch in world.switches]
        vlan = 2 + rng.randrange(CIRCUITS // 3)
        for name, break_it, mend in [("link down", wire.cut, wire.mend),
                                     ("silent", lambda: wire.silence("b"), lambda: wire.silence("b", False))] * 3:
            with Receiver(None, "sc-d") as receiver, Sender(None, "sc-a", 1, vlan=vlan, rate=1000, **ADDRESSES) as sender:
                receiver.wait_first(1)
                time.sleep(0.5)
                break_it()
                time.sleep(1.5)
                sent = sender.end()["sent"]
                seen = receiver.end({1: sent}, lossless=False)["streams"]["1"]
            gaps[name].append(seen["gap_ms"])
            assert seen["repeated"] == 0
            with Receiver(None, "sc-d") as receiver, Sender(None, "sc-a", 2, vlan=vlan, rate=1000, **ADDRESSES) as sender:
                receiver.wait_first(2)
                mend()
                for switch in world.switches:
                    wait_for("the trunk carries traffic again", lambda switch=switch: switch.is_live("north"), 60)
                time.sleep(1)
                sent = sender.end()["sent"]
                back = receiver.end({2: sent})["streams"]["2"]
            assert (sent - back["received"], back["repeated"]) == (0, 0)
        after = [world.contents(switch) for switch in world.switches]
        assert [set(one) for one in before] == [set(one) for one in after]
        status = world.control.ask("status")
    print(f"{CIRCUITS} circuits: gap {({name: [round(gap) for gap in values] for name, values in gaps.items()})} ms; no entry changed, "
          f"0 frames lost and 0 twice on return; {len(status['changes'])} changes under way")
    assert sorted(gaps["link down"])[1] <= 150 and sorted(gaps["silent"])[1] <= 250, gaps
