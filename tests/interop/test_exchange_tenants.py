"""Tenants under change: frames that name their tenant pass two sites while circuits are moved, resized, deleted and made, and while
the engine is killed. No frame reaches another tenant, and no circuit that nobody changes loses one. Needs root.

The short form has 24 tenants for some seconds. `make exchange-check` has 200 tenants, 20 changes a second, 10 kills, and
`MILLRACE_TENANT_PPS` frames a second (50,000) for `MILLRACE_TENANT_SECONDS` (600).
"""

import collections
import contextlib
import os
import signal
import time

import pytest

import namespaces
from switches import wait_for
from tenancy import Changer, Tenancy
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


def test_no_frame_reaches_another_tenant_and_none_of_a_circuit_that_nobody_changes_is_lost(tmp_path):
    tenancy = Tenancy("tn", TENANTS, CHANGING)
    tenants, lanes, steady = tenancy.tenants, tenancy.lanes, tenancy.steady
    with contextlib.ExitStack() as stack:
        stack.enter_context(namespaces.cables(*((name, f"{name}s") for name in tenancy.links), mtu=1700))
        exchange, _, _ = tenancy.start(stack, tmp_path)
        receiver = stack.enter_context(Process("receive", lanes=lanes, rest=2))
        sender = stack.enter_context(Process("send", lanes=lanes, rate=RATE))
        changers = [Changer(exchange, tenants[number::CHANGERS], CHANGES_PER_SECOND / CHANGERS, number) for number in range(CHANGERS)]
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
          f"circuits that nobody changed, {sum(seen['disordered'])} twice or out of order; {changed} frames of circuits that changed")
    assert seen["ring_full"] == 0, "the receiver was too slow, so that loss cannot be counted"
    assert seen["wrong"] == 0, seen["examples"]
    assert lost == 0 and all(sent["sent"][lane] for lane in steady)
    assert changed > 0 and accepted.total() > (CHANGES_PER_SECOND * SECONDS - failed) / 3, accepted
    assert {states[tenant.name] for tenant in tenants if not tenant.changes} == {"production"}
