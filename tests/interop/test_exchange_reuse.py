"""A VLAN of a connection passes from one tenant to another under the traffic of both, over two sites: no frame of the tenant that has lost
it leaves after the first one of the tenant that has got it. Needs root.

The short form has 6 turns, one with a kill of the engine; `make exchange-check` has 200."""

import contextlib
import os
import signal
import threading
import time

import pytest

import namespaces
from exchange import Control, Exchange
from fabrics import connection, fabric, switch_config, trunk_ports
from sites import Site, Wire
from switches import wait_for
from test_exchange import frame, frames_until, socket_on

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
TURNS = 200 if os.environ.get("MILLRACE_EXCHANGE_LONG") else 6
KILL_EACH = 5
# Frames in a second of each tenant.
RATE = 200
PORTS = {"one": {1: "ixr-a", 2: "ixr-b"}, "two": {1: "ixr-x"}}
VLAN = 500
TENANTS = {"A": "ixr-a", "B": "ixr-b"}


class Senders:
    """Both tenants send all the time, each from its own connection at the first site; who arrives at the second one is noted in order."""

    def __init__(self):
        self.over, self.sockets, self.seen = threading.Event(), {name: socket_on(link) for name, link in TENANTS.items()}, []
        self.receiver = socket_on("ixr-x")
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.send, self.receive)]
        for thread in self.threads:
            thread.start()

    def send(self):
        while not self.over.wait(1 / RATE):
            for name, link in self.sockets.items():
                # The test has failed, and its interfaces are gone.
                with contextlib.suppress(OSError):
                    link.send(frame(f"tenant {name} ", 100))

    def receive(self):
        for data in frames_until(self.receiver, self.over):
            words = data.split(b"tenant ")
            if len(words) == 2:
                self.seen.append(words[1][:1].decode())

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60)


def circuit(control, tenant, ids):
    """Orders the circuit of a tenant to the VLAN that both want; returns its identifier, or None if the other one has the VLAN."""
    try:
        created = control.order(
            {"operation": "create_service", "account": ids["R"], "kind": "p2p_vc", "name": f"of {tenant}"},
            *({"operation": "configure_end", "service": "sv-0", "connection": ids[name], "vlan": {"type": "dot1q", "vlan": vlan}}
              for name, vlan in ((TENANTS[tenant], 100), ("ixr-x", VLAN))))
    except ValueError as refused:
        assert f"has VLAN {VLAN}" in str(refused), refused
        return None
    return next(id for id in created["applied"]["created"] if id.startswith("sv-"))


def test_a_vlan_that_passes_to_another_tenant_carries_no_frame_of_the_first_one_any_more(tmp_path):
    text = fabric({site: list(ports) for site, ports in PORTS.items()}, ("reuse",)) + '[[account]]\nname = "R"\nkind = "member"\n'
    text += "".join(connection("R", name, f"{site}-1:{port}") for site, ports in PORTS.items() for port, name in ports.items())
    file = tmp_path / "exchange.toml"
    file.write_text(text)
    with contextlib.ExitStack() as stack:
        links = [name for ports in PORTS.values() for name in ports.values()]
        stack.enter_context(namespaces.cables(*((name, f"{name}s") for name in links), mtu=1700))
        stack.enter_context(Wire("reuse"))
        exchange = stack.enter_context(Exchange(tmp_path / "ix"))
        exchange.ask("apply", file)
        switches = []
        for dpid, (site, end) in enumerate((("one", "a"), ("two", "b")), 1):
            ports = {port: (name, f"kernel:{name}s") for port, name in PORTS[site].items()} | trunk_ports(end, "reuse")
            switches.append(stack.enter_context(Site(tmp_path / site, switch_config(dpid, ports, bfd=None), exchange.target)))
        for switch in switches:
            wait_for("the trunk is up", lambda switch=switch: switch.is_live("reuse"))
        exchange.wait_in_sync()
        ids = {one["name"]: id for prefix in ("ac", "cn") for id, one in exchange.objects(prefix).items()}
        senders, service, began = Senders(), None, time.monotonic()
        for turn in range(TURNS):
            tenant = "AB"[turn % 2]
            with Control(exchange.socket) as control:
                if service:
                    control.order({"operation": "delete", "target": service})
                # The other one orders until the engine lets go of the VLAN, which it may not do before the entries are gone.
                service = wait_for("the VLAN is free", lambda tenant=tenant, control=control: circuit(control, tenant, ids))
            if turn % KILL_EACH == 3:
                exchange.stop(signal.SIGKILL)
                exchange.start()
            seen = len(senders.seen)
            wait_for(f"frames of {tenant} arrive ({exchange.log})", lambda tenant=tenant, seen=seen: tenant in senders.seen[seen:])
        seen = len(senders.seen)
        wait_for("more frames arrive", lambda: len(senders.seen) > seen + 20)
        senders.end()
        turns = [name for name, before in zip(senders.seen, [None, *senders.seen]) if name != before]
        print(f"{TURNS} turns in {time.monotonic() - began:.1f} s, {len(senders.seen)} frames arrived")
        assert turns == ["AB"[turn % 2] for turn in range(TURNS)], turns
        exchange.wait_in_sync()
