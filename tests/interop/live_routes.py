"""Measures a running router with a full table: the rows R5, R7 and R8 of `millrace bench route` (docs/gates.md, "The router").

    h1 -- eth0 [ r: a VRF of Millrace, or the kernel ] -- left, right -- h2

All routes lead by a group of next hops, over one or both of the links to h2, which takes packets to every address. Each line of
the output is a row: `NAME: VALUE UNIT`. Needs root, a namespace of its own (scripts/apart.sh) and iperf3 for the rates.

Usage: MILLRACE_TARGET=target/release scripts/apart.sh target/venv/bin/python tests/interop/live_routes.py ROUTES_V4 ROUTES_V6
"""

import contextlib
import ipaddress
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from namespaces import inside, made  # noqa: E402
from switches import TARGET, Millrace, opened, run, wait_for  # noqa: E402

ROUTER, NEAR_HOST, FAR_HOST = "mr-live-r", "mr-live-1", "mr-live-2"
# Links: the name at the router, the network, and the host at the other end with the name of its interface.
LINKS = {"v10": ("10.0.10", NEAR_HOST, "eth0"), "v20": ("10.0.20", FAR_HOST, "left"), "v30": ("10.0.30", FAR_HOST, "right")}
# An address in a prefix of the table.
TARGET_ADDRESS = "16.0.0.1"
# The shares of the lengths of the Internet's prefixes, in per cent.
LENGTHS_V4 = {24: 60, 22: 12, 23: 10, 20: 5, 21: 5, 19: 3, 16: 3, 18: 2}
LENGTHS_V6 = {48: 47, 32: 14, 44: 12, 40: 11, 36: 6, 46: 5, 33: 5}
# The interval of the packets of a stream in s, and their port.
INTERVAL_S, PORT = 0.001, 9000
PAGE = 10_000
# The time in s of a measurement of a rate, and the size of its packets: 64 bytes on the wire.
RATE_S, PAYLOAD = 3, 18
BOUND = 600


def say(name, value, unit):
    print(f"{name}: {value:.4g} {unit}", flush=True)


def prefixes(count, lengths, bits, base, seed):
    """Returns prefixes of a family in ascending order, each once, with the shares of lengths."""
    rng, found = random.Random(seed), set()
    choices, weights = list(lengths), list(lengths.values())
    while len(found) < count:
        for length in rng.choices(choices, weights, k=count - len(found)):
            # 16.0.0.0/4 and the three that follow; 2000::/3.
            value = base | rng.getrandbits(bits - (2 if bits == 32 else 3))
            found.add((value >> (bits - length) << (bits - length), length))
    address = ipaddress.IPv4Address if bits == 32 else ipaddress.IPv6Address
    return [f"{address(value)}/{length}" for value, length in sorted(found)]


def table(count_v4, count_v6):
    """Returns the routes as lines for `ip -batch`, all by the group of next hops 10 or, for IPv6, 20."""
    four = prefixes(count_v4, LENGTHS_V4, 32, 0x10000000, 1)
    six = prefixes(count_v6, LENGTHS_V6, 128, 0x2000 << 112, 2)
    own = f"{TARGET_ADDRESS}/32"
    return [f"route add {one} nhid 10" for one in {*four, own}] + [f"route add {one} nhid 20" for one in six]


CONFIG = """
[system]
state_dir = "{folder}/state"
[api]
socket = "{folder}/api.sock"
[[vrf]]
name = "main"
netns = "{router}"
"""
PART = """
[[bridge]]
name = "b{name}"
fail_mode = "standalone"
[[bridge.port]]
name = "p1"
number = 1
device = "kernel:mr-{name}"
[[interface]]
name = "{name}"
vrf = "main"
bridge = "b{name}"
address = ["{net}.1/24", "2001:db8:{number}::1/64"]
"""


def group_of(name):
    return name.removeprefix("v")


class Bed(contextlib.ExitStack):
    """The namespaces, links and hosts, with Millrace or the kernel as the router."""

    def __init__(self, by_kernel=False):
        super().__init__()
        self.by_kernel = by_kernel

    def __enter__(self):
        try:
            self.enter_context(made(ROUTER, NEAR_HOST, FAR_HOST))
            for name, (net, host, far) in LINKS.items():
                run("ip", "link", "del", f"mr-{name}", check=False)
                run("ip", "link", "add", f"mr-{name}", "type", "veth", "peer", "name", far, "netns", host)
                self.callback(run, "ip", "link", "del", f"mr-{name}", check=False)
                run("ip", "link", "set", f"mr-{name}", "up")
                inside(host, "ip", "address", "add", f"{net}.2/24", "dev", far)
                inside(host, "ip", "-6", "address", "add", f"2001:db8:{group_of(name)}::2/64", "dev", far, "nodad")
                inside(host, "ip", "link", "set", far, "up")
                inside(host, "ip", "link", "set", "lo", "up")
            inside(NEAR_HOST, "ip", "route", "add", "default", "via", "10.0.10.1")
            inside(FAR_HOST, "ip", "route", "add", "10.0.10.0/24", "via", "10.0.20.1")
            # The far host takes packets to every address of the table, from either link.
            inside(FAR_HOST, "ip", "route", "add", "local", "16.0.0.0/4", "dev", "lo")
            for knob in ("all", "left", "right"):
                inside(FAR_HOST, "sysctl", "-qw", f"net.ipv4.conf.{knob}.rp_filter=0")
            if self.by_kernel:
                self.wire_kernel()
            else:
                self.start_switch()
                self.add_groups()
        except BaseException:
            self.close()
            raise
        return self

    def wire_kernel(self):
        for name, (net, _, _) in LINKS.items():
            run("ip", "link", "set", f"mr-{name}", "netns", ROUTER, "name", name)
            inside(ROUTER, "ip", "address", "add", f"{net}.1/24", "dev", name)
            inside(ROUTER, "ip", "link", "set", name, "up")
        inside(ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def start_switch(self):
        folder = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(prefix="mr-live-")))
        self.switch = Millrace(opened(folder) / "m")
        text = CONFIG.format(folder=self.switch.folder, router=ROUTER)
        for name, (net, _, _) in LINKS.items():
            text += PART.format(name=name, net=net, number=group_of(name))
        self.switch.config.write_text(text)
        self.enter_context(self.switch)
        # Interfaces of the VRF appear in the namespace when the switch has made them.
        for name in LINKS:
            wait_for(f"{name} is up", lambda name=name: "LOWER_UP" in inside(ROUTER, "ip", "link", "show", name, check=False))

    def add_groups(self):
        for number, name in ((1, "v20"), (2, "v30")):
            net = LINKS[name][0]
            inside(ROUTER, "ip", "nexthop", "add", "id", str(number), "via", f"{net}.2", "dev", name)
        inside(ROUTER, "ip", "nexthop", "add", "id", "3", "via", "2001:db8:20::2", "dev", "v20")
        inside(ROUTER, "ip", "nexthop", "add", "id", "10", "group", "1")
        inside(ROUTER, "ip", "nexthop", "add", "id", "20", "group", "3")

    def steer(self, *members):
        """Replaces the group of all IPv4 routes by one message."""
        inside(ROUTER, "ip", "nexthop", "replace", "id", "10", "group", "/".join(members))

    def ask(self, path, **params):
        answer = self.switch.rest.get(f"{self.switch.url}/{path}", params=params, timeout=BOUND)
        answer.raise_for_status()
        return answer.json()

    def routes(self):
        [vrf] = self.ask("vrfs")
        return vrf["ipv4_routes"] + vrf["ipv6_routes"]


SENDER = f"""
import socket, struct, sys, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
number, due = 0, time.monotonic()
while True:
    line.sendto(struct.pack("!Q", number), (sys.argv[1], {PORT}))
    number, due = number + 1, due + {INTERVAL_S}
    time.sleep(max(0, due - time.monotonic()))
"""
RECEIVER = f"""
import socket, struct
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
line.bind(("0.0.0.0", {PORT}))
while True:
    print(struct.unpack("!Q", line.recv(64))[0], flush=True)
"""


class Stream(contextlib.ExitStack):
    """Numbered packets from the near host to an address, as the far host receives them."""

    def __enter__(self):
        def start(host, text, *words):
            process = subprocess.Popen(["ip", "netns", "exec", host, sys.executable, "-c", text, *words], stdout=subprocess.PIPE, text=True)
            self.callback(process.wait, 60)
            self.callback(process.kill)
            return process

        self.numbers = []
        receiver = start(FAR_HOST, RECEIVER)
        self.reader = threading.Thread(target=self.read, args=(receiver.stdout,))
        self.reader.start()
        self.callback(self.reader.join)
        self.callback(receiver.kill)
        start(NEAR_HOST, SENDER, TARGET_ADDRESS)
        return self

    def read(self, lines):
        for line in lines:
            self.numbers.append(int(line))

    def wait_more(self, count=200):
        start = len(self.numbers)
        wait_for(f"{count} packets at the far host", lambda: len(self.numbers) >= start + count, BOUND)

    def gap_ms(self, change):
        """Makes a change, and returns the time without a packet around it in ms."""
        self.wait_more()
        first = len(self.numbers) - 100
        change()
        self.wait_more(500)
        numbers = sorted(self.numbers[first:])
        lost = max(later - earlier - 1 for earlier, later in zip(numbers, numbers[1:]))
        return lost * INTERVAL_S * 1000


def measure_table(bed, lines):
    """Rows of a table that the router takes over from the kernel, and shows."""
    begun = time.monotonic()
    inside(ROUTER, "ip", "-batch", "-", input="\n".join(lines) + "\n", timeout=BOUND)
    added = time.monotonic() - begun
    # Each look counts the routes under the lock of the RIB: a few looks a second leave it to the routes.
    while bed.routes() < len(lines):
        assert time.monotonic() - begun < BOUND, f"{bed.routes()} of {len(lines)} routes after {BOUND} s"
        time.sleep(0.25)
    taken = time.monotonic() - begun
    say("live table, routes taken over from the kernel", len(lines) / taken, "routes/s")
    say("live table, routes added by ip -batch", len(lines) / added, "routes/s")
    after, read, times = None, 0, []
    while read == 0 or after:
        begun = time.monotonic()
        page = bed.ask("vrfs/main/routes", limit=PAGE, **({"after": after} if after else {}))
        times.append(time.monotonic() - begun)
        read, after = read + len(page["routes"]), page.get("next")
    assert read >= len(lines), f"{read} of {len(lines)} routes"
    say("show routes, all pages by REST", sum(times), "s")
    say("show routes, longest page of 10,000 by REST", max(times) * 1000, "ms")
    begun = time.monotonic()
    with subprocess.Popen([TARGET / "millrace", "show", "routes", "main"], env=bed.switch.environment, stdout=subprocess.PIPE) as shown:
        first, rows = None, 0
        for _ in shown.stdout:
            first, rows = first or time.monotonic() - begun, rows + 1
        assert shown.wait(timeout=BOUND) == 0 and rows >= len(lines), rows
    say("show routes, all by the command line", time.monotonic() - begun, "s")
    say("show routes, first line by the command line", first * 1000, "ms")


def measure_convergence(bed):
    """Rows of changes under traffic, with the table that the router has."""
    with Stream() as stream:
        say("convergence, the group of all routes is replaced", stream.gap_ms(lambda: bed.steer("2")), "ms")
        say("convergence, and back", stream.gap_ms(lambda: bed.steer("1")), "ms")
        bed.steer("1", "2")
        stream.wait_more()
        # The flow is on one of both links: the one whose port counts more packets.
        def sent(name):
            return bed.ask(f"bridges/b{name}/ports")[0]["tx"]["packets"]
        before = {name: sent(name) for name in ("v20", "v30")}
        stream.wait_more()
        used = max(before, key=lambda name: sent(name) - before[name])
        cut = stream.gap_ms(lambda: run("ip", "link", "set", f"mr-{used}", "down"))
        say("convergence, the port of half of a group goes down", cut, "ms")
        run("ip", "link", "set", f"mr-{used}", "up")


def received_pps():
    """Returns the packets of 64 bytes a second that pass the router, as fast as iperf3 sends them."""
    server = subprocess.Popen(["ip", "netns", "exec", FAR_HOST, "iperf3", "-s", "-1", "-J"], stdout=subprocess.DEVNULL)
    try:
        wait_for("iperf3 listens", lambda: ":5201" in inside(FAR_HOST, "ss", "-ltn"))
        text = inside(NEAR_HOST, "iperf3", "-c", "10.0.20.2", "-u", "-b", "0", "-l", str(PAYLOAD), "-t", str(RATE_S), "-J",
                      "--get-server-output", timeout=BOUND)
        total = json.loads(text)["end"]["sum"]
        return (total["packets"] - total["lost_packets"]) / total["seconds"]
    finally:
        server.kill()
        server.wait(timeout=60)


def measure_rates():
    """Rows of the rate beside that of the kernel in the place of the router, in turn."""
    assert shutil.which("iperf3"), "iperf3 is not installed"
    rates = {}
    for name, by_kernel in (("kernel", True), ("router", False)):
        with Bed(by_kernel):
            wait_for("the far host answers", lambda: "1 received" in inside(NEAR_HOST, "ping", "-c1", "-W1", "10.0.20.2", check=False))
            rates[name] = max(received_pps() for _ in range(2))
    say("packets over veth by the router", rates["router"], "packets/s")
    say("packets over veth by the kernel", rates["kernel"], "packets/s")
    say("rate over veth / rate of the kernel", rates["router"] / rates["kernel"], "")


def part(measure, *arguments):
    """Runs a part of the measurement. Rows of the others are of use without it."""
    try:
        measure(*arguments)
    except Exception as error:  # noqa: BLE001
        print(f"{measure.__name__}: {error}", file=sys.stderr)


def main():
    count_v4, count_v6 = (int(word) for word in sys.argv[1:3])
    with Bed() as bed:
        part(measure_table, bed, table(count_v4, count_v6))
        part(measure_convergence, bed)
    part(measure_rates)


if __name__ == "__main__":
    main()
