"""Tenants under change: frames that name their tenant pass two sites while circuits are moved, resized, deleted and made, and while
the engine is killed. No frame reaches another tenant, and no circuit that nobody changes loses one. Needs root.

The short form has 24 tenants for some seconds. `make exchange-check` has 200 tenants, 20 changes a second, 10 kills, and
`MILLRACE_TENANT_PPS` frames a second (50,000) for `MILLRACE_TENANT_SECONDS` (600).
"""

import collections
import contextlib
import os
import random
import signal
import threading
import time

import pytest

import namespaces
from exchange import Control, Exchange
from fabrics import circuit, connection, fabric, switch_config, trunk_ports
from sites import Site, Wire
from switches import wait_for
from tenants import Process

pytestmark = [
    pytest.mark.measures,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]
LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
TENANTS, CHANGING = (200, 50) if LONG else (24, 6)
RATE = int(os.environ.get("MILLRACE_TENANT_PPS", "50000" if LONG else "500"))
SECONDS = float(os.environ.get("MILLRACE_TENANT_SECONDS", "600" if LONG else "5"))
CHANGES_PER_SECOND = 20 if LONG else 5
# The threads that send orders in parallel, each for different tenants.
CHANGERS = 4 if LONG else 1
KILLS = 10 if LONG else 1
# The number of VLANs that a changing tenant has at each end. One of them is in use.
VLANS = 3
# The connections of both sites, by interface of the members.
PORTS = {"one": {1: "tn-a", 2: "tn-b"}, "two": {1: "tn-c", 2: "tn-d"}}


class Tenant:
    """A tenant: two connections, and its VLANs at each. The first VLANs are those of the exchange file."""

    def __init__(self, number, rng):
        self.number, self.name, self.changes = number, f"tenant {number}", number < CHANGING
        names = [name for ports in PORTS.values() for name in ports.values()]
        # Most tenants are at both sites.
        self.ends = rng.sample(names, 2) if number % 4 == 0 else [rng.choice(names[:2]), rng.choice(names[2:])]
        count = VLANS if self.changes else 1
        self.vlans = [number * VLANS + 2 + at for at in range(count)]

    def lanes(self):
        """Returns the lanes at which its frames enter and arrive."""
        return [(end, vlan, self.number) for end in self.ends for vlan in self.vlans]


class Changer(threading.Thread):
    """Orders changes of tenants that change, at its part of the rate, until it is told to end. It follows an engine that is started again."""

    def __init__(self, exchange, tenants, number):
        super().__init__(daemon=True)
        self.exchange, self.rng, self.over = exchange, random.Random(number), threading.Event()
        self.tenants = [tenant for tenant in tenants if tenant.changes][number::CHANGERS]
        self.connections = {one["name"]: id for id, one in exchange.objects("cn").items()}
        self.account = next(id for id, one in exchange.objects("ac").items() if one["name"] == "R")
        self.accepted, self.refused, self.failed = {}, 0, 0

    def run(self):
        control, began, number = None, time.monotonic(), 0
        while not self.over.wait(max(0, began + number * CHANGERS / CHANGES_PER_SECOND - time.monotonic())):
            number += 1
            try:
                control = control or Control(self.exchange.socket)
                kind, operations = self.change(control)
                control.order(*operations)
                self.accepted[kind] = self.accepted.get(kind, 0) + 1
            except ValueError:
                # A service is still being removed, or a VLAN is not free again.
                self.refused += 1
            except OSError:
                self.failed += 1
                control = control and control.close()
        if control:
            control.close()

    def change(self, control):
        """Returns the kind and the operations of a change of a random tenant."""
        tenant = self.rng.choice(self.tenants)
        services = control.ask("objects", prefix="sv")
        service = next((one["id"] for one in services if one["name"] == tenant.name), None)
        if service is None:
            return "made", self.made(tenant)
        ends = [one for one in control.ask("objects", prefix="nc") if one["service"] == service]
        kind = self.rng.choice(["moved", "moved", "resized", "deleted", "shut"]) if ends else "deleted"
        if kind == "deleted":
            return kind, [{"operation": "delete", "target": service}]
        end = self.rng.choice(ends)
        if kind == "moved":
            vlan = {"type": "dot1q", "vlan": self.rng.choice(tenant.vlans)}
            return kind, [{"operation": "move_end", "config": end["id"], "connection": end["connection"], "vlan": vlan}]
        if kind == "resized":
            return kind, [{"operation": "set_rate", "config": end["id"], "capacity_mbps": self.rng.choice([10, 50, 100])}]
        return kind, [{"operation": "shut_down", "config": end["id"], "shut_down": not end["shut_down"]}]

    def made(self, tenant):
        vlan = {"type": "dot1q", "vlan": self.rng.choice(tenant.vlans)}
        return [{"operation": "create_service", "account": self.account, "kind": "p2p_vc", "name": tenant.name},
                *({"operation": "configure_end", "service": "sv-0", "connection": self.connections[end], "vlan": vlan}
                  for end in tenant.ends)]

    def end(self):
        self.over.set()
        self.join(30)


def test_no_frame_reaches_another_tenant_and_none_of_a_circuit_that_nobody_changes_is_lost(tmp_path):
    rng = random.Random(6)
    tenants = [Tenant(number, rng) for number in range(TENANTS)]
    text = fabric({site: list(ports) for site, ports in PORTS.items()}) + '[[account]]\nname = "R"\nkind = "member"\n'
    text += "".join(connection("R", name, f"{site}-1:{port}") for site, ports in PORTS.items() for port, name in ports.items())
    text += "".join(circuit("R", tenant.name, [(end, tenant.vlans[0]) for end in tenant.ends]) for tenant in tenants)
    file = tmp_path / "exchange.toml"
    file.write_text(text)
    lanes = [lane for tenant in tenants for lane in tenant.lanes()]
    # The counterpart of the lane of a tenant that does not change is its only other lane.
    steady = [number for number, (_, _, tenant) in enumerate(lanes) if not tenants[tenant].changes]
    with contextlib.ExitStack() as stack:
        links = [name for ports in PORTS.values() for name in ports.values()]
        stack.enter_context(namespaces.cables(*((name, f"{name}s") for name in links), mtu=1700))
        stack.enter_context(Wire("north"))
        exchange = stack.enter_context(Exchange(tmp_path / "ix"))
        exchange.ask("apply", file)
        switches = []
        for dpid, (site, end) in enumerate((("one", "a"), ("two", "b")), 1):
            ports = {port: (name, f"kernel:{name}s") for port, name in PORTS[site].items()}
            config = switch_config(dpid, {**ports, **trunk_ports(end)}, bfd=False)
            switches.append(stack.enter_context(Site(tmp_path / site, config, exchange.target)))
        exchange.wait_in_sync(60)
        for switch in switches:
            wait_for("the trunk is up", lambda switch=switch: switch.is_live("north"))
        receiver = stack.enter_context(Process("receive", lanes=lanes, rest=2))
        sender = stack.enter_context(Process("send", lanes=lanes, rate=RATE))
        changers = [Changer(exchange, tenants, number) for number in range(CHANGERS)]
        for changer in changers:
            changer.start()
        slowest, began = 0.0, time.monotonic()
        for kill in range(KILLS):
            time.sleep(max(0.0, began + (kill + 0.5) * SECONDS / KILLS - time.monotonic()))
            exchange.stop(signal.SIGKILL)
            started = time.monotonic()
            exchange.start()
            slowest = max(slowest, time.monotonic() - started)
        time.sleep(max(0.0, began + SECONDS - time.monotonic()))
        # A busy machine may take longer for the changes of this time.
        with contextlib.suppress(AssertionError):
            wait_for("changes are accepted", lambda: sum(sum(changer.accepted.values()) for changer in changers)
                     > CHANGES_PER_SECOND * SECONDS / 3)
        for changer in changers:
            changer.end()
        exchange.wait_in_sync(60)
        sent = sender.end()
        seen = receiver.end({lane: sent["sent"][lane] for lane in steady})
        states = {one["name"]: one["state"] for one in exchange.ask("services")}
    accepted = collections.Counter()
    for changer in changers:
        accepted.update(changer.accepted)
    refused, failed = (sum(getattr(changer, name) for changer in changers) for name in ("refused", "failed"))
    lost = sum(sent["sent"][lane] - seen["received"][lane] for lane in steady)
    total, steady_sent = sum(sent["sent"]), sum(sent["sent"][lane] for lane in steady)
    changed = sum(seen["received"]) - sum(seen["received"][lane] for lane in steady)
    print(f"{TENANTS} tenants, {total} frames in {sent['seconds']:.0f} s ({total / sent['seconds']:.0f} a second), {KILLS} kills "
          f"(ready again after {slowest:.1f} s at most), changes accepted {dict(accepted)}, refused {refused}, while the "
          f"engine was away {failed}: {seen['wrong']} at a wrong tenant, {lost} lost of {steady_sent} of {TENANTS - CHANGING} "
          f"circuits that nobody changed, {seen['disordered']} twice or out of order; {changed} frames of circuits that changed")
    assert seen["ring_full"] == 0, "the receiver was too slow, so that loss cannot be counted"
    assert seen["wrong"] == 0, seen["examples"]
    assert lost == 0 and all(sent["sent"][lane] for lane in steady)
    assert changed > 0 and accepted.total() > (CHANGES_PER_SECOND * SECONDS - failed) / 3, accepted
    assert {states[tenant.name] for tenant in tenants if not tenant.changes} == {"production"}
