"""The state that others follow (`/api/v1/state` and its events), owners and the lock, on a real daemon."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time

import pytest
import requests

import namespaces
from switches import TARGET, Millrace, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="interfaces need root")
CABLE = ("mr-s1a", "mr-s1b")


class Events:
    """The events of a stream, each (seconds by the monotonic clock, name, cursor, data)."""

    def __init__(self, switch, query):
        self.answer = switch.rest.get(f"{switch.url}/events?{query}", stream=True, timeout=60)
        assert self.answer.status_code == 200, self.answer.text
        self.events = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        """Puts events into the queue until the stream ends."""
        fields = {}
        # A daemon that is killed ends the stream in the middle.
        with contextlib.suppress(requests.RequestException):
            for line in self.answer.iter_lines(chunk_size=1, decode_unicode=True):
                name, _, value = line.partition(": ")
                if name in ("event", "id", "data"):
                    fields[name] = value
                elif not line and "event" in fields:
                    self.events.put((time.monotonic(), fields["event"], fields.get("id"), json.loads(fields["data"])))
                    fields = {}

    def wait(self, is_wanted, bound=60):
        """Returns the next event that is wanted."""
        while True:
            event = self.events.get(timeout=bound)
            if is_wanted(event):
                return event


@pytest.fixture
def switch(tmp_path):
    with namespaces.cables(CABLE), Millrace(tmp_path, ports=[(1, f"kernel:{CABLE[0]}")]) as switch:
        wait_for("the link is up", lambda: link(switch) == "up")
        yield switch


def state(switch, kinds):
    return switch.rest.get(f"{switch.url}/state?kinds={kinds}", timeout=60).json()


def link(switch):
    return state(switch, "links")["state"]["links"].get("br0/p1", {}).get("link")


@pytest.mark.measures
def test_a_link_that_goes_down_reaches_a_subscriber_within_200_ms(switch):
    snapshot = state(switch, "links,ports")
    port = snapshot["state"]["ports"]["br0/p1"]
    assert (port["number"], port["device"], port["admin"]) == (1, f"kernel:{CABLE[0]}", "up")
    events = Events(switch, f"kinds=links&after={snapshot['cursor']}")
    # The switch looks at its links every 50 ms; a busy machine makes some of the looks late.
    for _ in range(5):
        took = []
        for _ in range(5):
            down = time.monotonic()
            run("ip", "link", "set", CABLE[1], "down")
            at, *_ = events.wait(lambda event: event[3]["value"]["link"] == "down")
            took.append(at - down)
            run("ip", "link", "set", CABLE[1], "up")
            events.wait(lambda event: event[3]["value"]["link"] == "up")
        print(f"told after {[round(seconds * 1000) for seconds in took]} ms")
        if sorted(took)[2] <= 0.2:
            return
    pytest.fail(f"the last of five trials: {took}")


def test_the_state_and_its_events_follow_ports_bridges_and_shortfalls(switch):
    snapshot = state(switch, "ports,links,shortfalls,revisions")
    assert snapshot["state"]["shortfalls"] == {}
    events = Events(switch, f"kinds=ports,links,shortfalls,revisions&after={snapshot['cursor']}")
    missing = {"name": "p9", "number": 9, "device": "kernel:mr-nothing"}
    switch.change(lambda config: config["bridge"][0]["port"].append(missing))
    # Subjects are those of `/api/v1/status`.
    _, _, _, found = events.wait(lambda event: event[1] == "shortfalls")
    assert "p9" in found["key"] and "mr-nothing" in found["value"][0]["message"], found
    switch.change(lambda config: config["bridge"].append({"name": "br1", "port": [
        {"name": "m1", "number": 1, "device": "memory"}]}))
    events.wait(lambda event: event[1] == "ports" and event[3]["key"] == "br1/m1" and event[3]["value"])
    switch.change(lambda config: config["bridge"].pop())
    gone = events.wait(lambda event: event[1] == "ports" and event[3]["key"] == "br1/m1")
    assert gone[3]["value"] is None
    switch.change(lambda config: config["bridge"][0]["port"].pop())
    events.wait(lambda event: event[1] == "shortfalls" and event[3] == {"key": found["key"], "value": None})
    # A restart ends the validity of cursors.
    cursor = state(switch, "ports")["cursor"]
    switch.stop(signal.SIGKILL)
    switch.start()
    late = Events(switch, f"kinds=ports&after={cursor}")
    assert late.wait(lambda event: True)[1] == "reset"


def test_owners_survive_a_kill_and_a_file_leaves_alone_what_another_front_end_owns(switch, tmp_path):
    answer = switch.rest.put(f"{switch.url}/config/bridges/br-int?origin=ovsdb", json={"tables": 3}, timeout=60)
    assert answer.ok, answer.text
    switch.stop(signal.SIGKILL)
    # The changed file is imported by the start.
    text = switch.config.read_text()
    switch.config.write_text(text.replace('fail_mode = "secure"', 'fail_mode = "standalone"'))
    switch.start()
    config = switch.rest.get(f"{switch.url}/config", timeout=60).json()
    assert [bridge["name"] for bridge in config["bridge"]] == ["br0", "br-int"]
    assert config["bridge"][0]["fail_mode"] == "standalone"
    listed = switch.cli("show", "owners")
    assert "bridge/br-int  ovsdb" in listed, listed
    applied = switch.cli("apply", switch.config)
    assert "= bridge br-int belongs to ovsdb and stays as it is" in applied, applied
    refused = subprocess.run([TARGET / "millrace", "bridge", "remove", "br-int"], env=switch.environment,
                             capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "use ovs-vsctl, or `millrace own br-int --local`" in refused.stderr, refused
    assert "belongs to local" in switch.cli("own", "br-int", "--local", "-m", "mine")
    switch.cli("bridge", "remove", "br-int")
    assert "change of owners" in switch.cli("show", "history")


def test_a_command_holds_the_lock_while_it_runs_and_its_own_changes_pass(switch):
    millrace = TARGET / "millrace"
    inside = f"{millrace} bridge set br0 mac_ageing_s=100 && {millrace} lock show && env -u MILLRACE_LOCK {millrace} bridge set br0 mac_ageing_s=200"
    done = subprocess.run([millrace, "lock", "run", "--", "sh", "-c", inside], env=switch.environment,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "holds the lock on the configuration" in done.stderr, done
    assert "holds the lock, until" in done.stdout, done
    wait_for("the lock is free", lambda: "free" in switch.cli("lock", "show"))
    switch.cli("bridge", "set", "br0", "mac_ageing_s=200")
    holder = subprocess.Popen([millrace, "lock", "run", "--", "sleep", "600"], env=switch.environment)
    wait_for("the lock is held", lambda: "holds" in switch.cli("lock", "show"))
    holder.kill()
    holder.wait()
    killed = time.monotonic()
    wait_for("the lock is free", lambda: "free" in switch.cli("lock", "show"))
    print(f"free after {time.monotonic() - killed:.2f} s")
