"""Two os-ken controllers share a switch: one is the master; the other becomes master when the first disconnects."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from switches import Millrace, free_port, wait_for

APP = pathlib.Path(__file__).with_name("commanded.py")
ROLE_REQUEST_FAILED, STALE = 11, 0
BAD_REQUEST, IS_SLAVE = 1, 10
MASTER, SLAVE = 2, 3
FRAME = "ffffffffffff0200000000010800" + "00" * 46


class Controller:
    """An os-ken process that executes commands."""

    def __init__(self, folder, name, port):
        self.orders, self.heard = folder / f"{name}.orders", folder / f"{name}.heard"
        self.orders.write_text("")
        self.heard.write_text("")
        environment = os.environ | {"COMMANDED_ORDERS": str(self.orders), "COMMANDED_HEARD": str(self.heard)}
        manager = pathlib.Path(sys.executable).with_name("osken-manager")
        with (folder / f"{name}.log").open("w") as log:
            self.process = subprocess.Popen(
                [manager, "--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(port), APP],
                stdout=log, stderr=log, env=environment)

    def all(self, what):
        """Returns all recorded events of a type."""
        events = [json.loads(line) for line in self.heard.read_text().splitlines()]
        return [event for event in events if event["what"] == what]

    def order(self, text, answer):
        """Sends a command, and returns the next event of the type `answer`."""
        before = len(self.all(answer))
        with self.orders.open("a") as file:
            file.write(text + "\n")
        wait_for(f"{answer} after {text}", lambda: len(self.all(answer)) > before)
        return self.all(answer)[before]

    def stop(self):
        self.process.kill()
        self.process.wait(timeout=60)


@pytest.fixture(name="pair")
def two_controllers(tmp_path):
    ports = [free_port(), free_port()]
    controllers = {}

    def start(name):
        controllers[name] = Controller(tmp_path, name, ports["ab".index(name)])
        wait_for(f"{name} is connected", lambda: controllers[name].all("connected"), 60)
        return controllers[name]

    targets = [f"tcp:127.0.0.1:{port}" for port in ports]
    links = [(1, "link:x"), (2, "link:x")]
    with Millrace(tmp_path / "millrace", ports=links, controllers=targets) as switch:
        try:
            yield switch, start
        finally:
            for controller in controllers.values():
                controller.stop()


def test_a_waiting_controller_takes_over_and_the_old_one_comes_back_too_late(pair):
    switch, start = pair
    first, second = start("a"), start("b")
    assert first.order("role master 1", "role") == {"what": "role", "role": MASTER, "generation": 1}
    assert second.order("role slave 1", "role")["role"] == SLAVE
    first.order("flow 10", "barrier")
    refused = second.order("flow 11", "error")
    assert (refused["type"], refused["code"]) == (BAD_REQUEST, IS_SLAVE)

    def provoke():
        switch.ofctl("packet-out", f"in_port=CONTROLLER packet={FRAME} actions=output:1")

    provoke()
    wait_for("the master hears of the packet", lambda: first.all("packet_in"))
    assert not second.all("packet_in"), "a slave hears of ports only"

    first.stop()
    provoke()
    assert "priority=10" in switch.ofctl("dump-flows"), "entries stay while nobody leads"
    assert second.order("role master 2", "role")["role"] == MASTER
    second.order("flow 12", "barrier")
    provoke()
    wait_for("the new master hears of it", lambda: second.all("packet_in"))

    again = start("a")
    stale = again.order("role master 1", "error")
    assert (stale["type"], stale["code"]) == (ROLE_REQUEST_FAILED, STALE)
    again.order("role master 3", "role")
    refused = second.order("flow 13", "error")
    assert (refused["type"], refused["code"]) == (BAD_REQUEST, IS_SLAVE), "there is one master"
    flows = switch.ofctl("dump-flows")
    assert "priority=12" in flows and "priority=11" not in flows and "priority=13" not in flows
