"""What subscribers of gNMI cost: fifty of them, a hundred ports, a sample each second."""

import os
import pathlib
import threading
import time

import pytest

from front_ends import FrontEnds, over_unix
from switches import Millrace, wait_for

pytestmark = [
    pytest.mark.skipif(not os.environ.get("MILLRACE_GNMI_LONG"), reason="a long form: make management"),
    pytest.mark.skipif(os.geteuid() != 0, reason="roles of users need root"),
]
SUBSCRIBERS, PORTS, SECONDS = 50, 100, 20
# The bound of the time of all threads of both programs that no packet has, in parts of a core.
CORE_MAX = 0.1
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
    """A stream whose messages are counted as bytes, so that this process is not what is measured."""

    def __init__(self, channel, request):
        call = channel.unary_unary if False else channel.stream_stream
        self.stream = call("/gnmi.gNMI/Subscribe", request_serializer=None, response_deserializer=None)(iter([request]))
        self.messages = self.bytes = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for message in self.stream:
            self.messages += 1
            self.bytes += len(message)


def test_fifty_subscribers_of_a_hundred_ports_cost_less_than_a_tenth_of_a_core(tmp_path):
    grpc = pytest.importorskip("grpc", reason="grpcio: scripts/setup.sh management")
    ports = [(number, "memory") for number in range(1, PORTS + 1)]
    with Millrace(tmp_path / "switch", ports=ports) as switch, FrontEnds(tmp_path / "mgmt", switch) as front_ends:
        with over_unix(front_ends) as (_, pb):
            counters = pb.Path(origin="openconfig", elem=[
                pb.PathElem(name="interfaces"), pb.PathElem(name="interface", key={"name": "*"}), pb.PathElem(name="state"),
                pb.PathElem(name="counters")])
            one = pb.Subscription(path=counters, mode=2, sample_interval=1_000_000_000)
            request = pb.SubscribeRequest(subscribe=pb.SubscriptionList(mode=0, encoding=2, subscription=[one])).SerializeToString()
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(f"unix://{front_ends.gnmi}", options=options) for _ in range(SUBSCRIBERS)]
        subscribers = [Subscriber(channel, request) for channel in channels]
        wait_for("the first values", lambda: all(one.messages for one in subscribers))
        # Of the switch alone, in the same time, without subscribers that would cost something: see below.
        before = times(front_ends.process.pid), times(switch.process.pid), [one.bytes for one in subscribers], time.monotonic()
        time.sleep(SECONDS)
        after = times(front_ends.process.pid), times(switch.process.pid), [one.bytes for one in subscribers], time.monotonic()
        for channel in channels:
            channel.close()
        elapsed = after[3] - before[3]
        mine = sum(after[0].values()) - sum(before[0].values())
        theirs = {name: after[1][name] - before[1].get(name, 0) for name in after[1]}
        workers = sum(spent for name, spent in theirs.items() if name.startswith("worker"))
        api = sum(theirs.values()) - workers
        wait_for("idle", lambda: True)
        idle = times(switch.process.pid)
        time.sleep(SECONDS / 2)
        idle = {name: spent - idle.get(name, 0) for name, spent in times(switch.process.pid).items()}
        idle_workers = sum(spent for name, spent in idle.items() if name.startswith("worker")) / (SECONDS / 2)
        idle_api = (sum(idle.values()) / (SECONDS / 2)) - idle_workers
        received = [two - one for one, two in zip(before[2], after[2])]
    cost = mine / elapsed + api / elapsed - idle_api
    said = (f"{SUBSCRIBERS} subscribers, {PORTS} ports, 1 s: {100 * cost:.1f} % of a core (millrace-mgmt {100 * mine / elapsed:.1f} %, millraced "
            f"{100 * (api / elapsed - idle_api):.1f} % over idle); workers {100 * (workers / elapsed - idle_workers):.1f} % over idle; "
            f"{min(received) / elapsed / 1000:.0f} kB/s to each")
    print(said)
    # Each gets its sample each second: six counters of each port.
    assert min(received) > 0.8 * SECONDS * PORTS * 6 * 40, said
    assert cost < CORE_MAX, said
