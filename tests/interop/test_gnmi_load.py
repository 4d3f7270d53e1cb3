"""What subscribers of gNMI cost, fifty of them with a hundred ports and a sample each second; and when one hears of a link."""

import contextlib
import os
import pathlib
import threading
import time

import pytest

import namespaces
from front_ends import FrontEnds, over_unix
from switches import Millrace, run, wait_for

pytestmark = [
    pytest.mark.skipif(not os.environ.get("MILLRACE_GNMI_LONG"), reason="a long form: make management"),
    pytest.mark.skipif(os.geteuid() != 0, reason="roles of users need root"),
]
SUBSCRIBERS, PORTS, SECONDS = 50, 100, 20
# The bound of the time of all threads of both programs that no packet has, in parts of a core.
CORE_MAX = 0.1
# Workers do nothing for subscribers: what is left is noise of the measurement.
WORKERS_MAX = 0.02
# The bound of the time in s from a change of a link to the message.
LINK_MAX_S = 0.2
LINKS = 20
CABLE = ("mr-gl1", "mr-gl2")
TICK = os.sysconf("SC_CLK_TCK")


def times(pid):
    """Returns the processor time in s of each thread by its name."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        text = (task / "stat").read_text()
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        found[name] = found.get(name, 0) + (int(fields[11]) + int(fields[12])) / TICK
    return found


class Subscriber:
    """A stream whose messages are counted as bytes, so that this process has time for all of them."""

    def __init__(self, channel, request):
        subscribe = channel.stream_stream("/gnmi.gNMI/Subscribe", request_serializer=None, response_deserializer=None)
        self.stream = subscribe(iter([request]))
        self.bytes = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with contextlib.suppress(Exception):  # the end of the test ends the stream
            for message in self.stream:
                self.bytes += len(message)


def shares(pid, seconds):
    """Returns the shares of a core that the workers of a process, and its other threads, have in some seconds."""
    before, began = times(pid), time.monotonic()
    time.sleep(seconds)
    after, elapsed = times(pid), time.monotonic() - began
    spent = {name: (after[name] - before.get(name, 0)) / elapsed for name in after}
    workers = sum(share for name, share in spent.items() if name.startswith("worker"))
    return workers, sum(spent.values()) - workers


def test_fifty_subscribers_of_a_hundred_ports_cost_less_than_a_tenth_of_a_core(tmp_path):
    grpc = pytest.importorskip("grpc", reason="grpcio: scripts/setup.sh management")
    ports = [(number, "memory") for number in range(1, PORTS + 1)]
    with Millrace(tmp_path / "switch", ports=ports) as switch, FrontEnds(tmp_path / "mgmt", switch, log="warn") as front_ends:
        with over_unix(front_ends) as (_, pb):
            counters = pb.Path(origin="openconfig", elem=[
                pb.PathElem(name="interfaces"), pb.PathElem(name="interface", key={"name": "*"}), pb.PathElem(name="state"),
                pb.PathElem(name="counters")])
            one = pb.Subscription(path=counters, mode=2, sample_interval=1_000_000_000)
            request = pb.SubscribeRequest(subscribe=pb.SubscriptionList(mode=0, encoding=2, subscription=[one])).SerializeToString()
        idle_workers, idle_switch = shares(switch.process.pid, SECONDS / 2)
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(f"unix://{front_ends.gnmi}", options=options) for _ in range(SUBSCRIBERS)]
        subscribers = [Subscriber(channel, request) for channel in channels]
        wait_for("the first values", lambda: all(one.bytes for one in subscribers))
        received, before = [one.bytes for one in subscribers], times(front_ends.process.pid)
        workers, switch_share = shares(switch.process.pid, SECONDS)
        mgmt = (sum(times(front_ends.process.pid).values()) - sum(before.values())) / SECONDS
        received = [one.bytes - first for one, first in zip(subscribers, received)]
        for channel in channels:
            channel.close()
    cost = mgmt + switch_share - idle_switch
    said = (f"{SUBSCRIBERS} subscribers, {PORTS} ports, 1 s: {100 * cost:.1f} % of a core (millrace-mgmt {100 * mgmt:.1f} %, millraced "
            f"{100 * (switch_share - idle_switch):.1f} % over idle); workers {100 * (workers - idle_workers):.1f} % over idle; "
            f"{min(received) / SECONDS / 1000:.0f} kB/s to each")
    print(said)
    # Each gets its sample each second: six counters of each port.
    assert min(received) > 0.8 * SECONDS * PORTS * 6 * 40, said
    assert cost < CORE_MAX and workers - idle_workers < WORKERS_MAX, said


def test_a_link_that_goes_down_reaches_a_subscriber_within_200_ms(tmp_path):
    pytest.importorskip("grpc", reason="grpcio: scripts/setup.sh management")
    with namespaces.cables(CABLE), Millrace(tmp_path / "switch", ports=[(1, f"kernel:{CABLE[0]}")]) as switch, \
            FrontEnds(tmp_path / "mgmt", switch, log="warn") as front_ends, over_unix(front_ends) as (stub, pb):
        state = pb.Path(origin="openconfig", elem=[
            pb.PathElem(name="interfaces"), pb.PathElem(name="interface", key={"name": "br0/p1"}), pb.PathElem(name="state"),
            pb.PathElem(name="oper-status")])
        one = pb.Subscription(path=state, mode=1)
        request = pb.SubscribeRequest(subscribe=pb.SubscriptionList(mode=0, encoding=2, subscription=[one]))
        asked = threading.Event()

        def requests():
            yield request
            asked.wait()

        stream = stub.Subscribe(requests())

        def heard(value):
            """Returns the time at which the value arrives."""
            for message in stream:
                if any(update.val.string_val == value for update in message.update.update):
                    return time.monotonic()
            raise AssertionError("the stream ended")

        heard("UP")
        found = []
        for _ in range(LINKS):
            for way, value in (("down", "DOWN"), ("up", "UP")):
                run("ip", "link", "set", CABLE[1], way)
                began = time.monotonic()
                found.append(heard(value) - began)
        asked.set()
        stream.cancel()
    said = f"{len(found)} changes of a link: heard after {1000 * sorted(found)[len(found) // 2]:.0f} ms (median), {1000 * max(found):.0f} ms (longest)"
    print(said)
    assert max(found) < LINK_MAX_S, said
