"""The counts of the soak of an exchange (soak_exchange.py): each sees what it is for. Needs root."""

import os
import signal

import pytest

from soak_exchange import MEMORY_FROM_S, SWITCH_SLOTS, Options, Soak, growth, growth_of_lives, split
from stalls import Ring, attribute
from switches import wait_for

pytestmark = pytest.mark.measures
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def lead_elsewhere(soak):
    """Leads frames of a circuit that nobody changes to another tenant, by an entry that the exchange did not order."""
    tenancy = soak.tenancy
    end, vlan, owner = tenancy.lanes[tenancy.steady[0]]
    site = next(number for number, ports in enumerate(tenancy.ports.values()) if end in ports.values())
    ports = {name: port for port, name in list(tenancy.ports.values())[site].items()}
    there, other = next((one, other) for one, other, tenant in tenancy.lanes if one in ports and tenant != owner)
    entry = f"table=0,priority=64000,in_port={ports[end]},dl_vlan={vlan}"
    actions = f"mod_vlan_vid:{other},{'in_port' if there == end else f'output:{ports[there]}'}"

    # The exchange removes the entry; a frame has to come meanwhile.
    def is_hit():
        soak.switches[site].ofctl("add-flow", f"{entry},actions={actions}")
        return soak.receiver.newest.get("wrong")
    wait_for("a frame is led elsewhere", is_hit)
    soak.switches[site].ofctl("del-flows", "--strict", entry)


@needs_root
def test_frames_at_a_wrong_tenant_and_lost_ones_are_counted(tmp_path, monkeypatch):
    # Some seconds say nothing about memory; its rows are there.
    monkeypatch.setattr("soak_exchange.MEMORY_FROM_S", 0)
    soak = Soak(Options(seconds=8, rate_mbps=4, changes=2, tenants=8), prefix="sl", disturb=lead_elsewhere)
    soak.run(tmp_path)
    assert soak.rows["frames at a wrong tenant"] > 0, soak.rows
    assert soak.rows["frames lost of circuits that nobody changed"] >= soak.rows["frames lost otherwise"] > 0, soak.rows
    for name in ("memory of a switch, late over early", "memory of the engine, late over early"):
        assert 0.2 < soak.rows[name] < 5, soak.rows


def test_loss_belongs_to_a_cut_only_around_it():
    ms = 1_000_000
    gaps = [(0, 3, 1000 * ms, 1040 * ms), (1, 2, 990 * ms, 1010 * ms), (2, 5, 3000 * ms, 3100 * ms), (3, 1, 0, 900 * ms)]
    assert split(gaps, [(1005 * ms, 1030 * ms)]) == (5, gaps[2:], 40.0)
    assert split(gaps, []) == (0, gaps, 0.0)
    # A frame that a fibre loses while it is mended is lost with it, and says nothing about the cut.
    assert split(gaps, [(1005 * ms, 1030 * ms)], [(3050 * ms, 3060 * ms)]) == (10, gaps[3:], 40.0)


MS = 1_000_000
# Lanes 0 and 1 enter a switch by one ring, which holds 100 ms, and lane 2 by another one.
RINGS = [Ring("one: receive drops of port a", "worker of one", frozenset({0, 1}), 100.0),
         Ring("one: receive drops of port b", "worker of one", frozenset({2}), 100.0)]


def dropped(place, frames, start, end):
    return {"kind": "drops", "place": place, "frames": frames, "start": start * MS, "end": end * MS}


def stalled(start, end, thread="worker of one"):
    return {"kind": "stall", "thread": thread, "start": start * MS, "end": end * MS, "waited_ms": end - start, "state": "R"}


def late(core, start, end):
    return {"kind": "late", "core": core, "start": start * MS, "end": end * MS}


def asleep(gaps, findings):
    """Returns pairs of the frames of each moment, and of those that a ring dropped while its reader stood still."""
    return [(moment["frames"], moment["asleep"]) for moment in attribute(gaps, findings, RINGS)]


def test_a_ring_accounts_for_what_it_dropped_while_its_reader_stood_still_and_for_nothing_else():
    gaps = [(0, 30, 1120 * MS, 1200 * MS), (1, 20, 1121 * MS, 1199 * MS), (2, 5, 1130 * MS, 1140 * MS)]
    stall, full = stalled(1000, 1200), dropped(RINGS[0].place, 80, 1100, 1300)
    assert asleep(gaps, [stall, full]) == [(55, 50)], "lane 2 does not pass the ring"
    assert asleep(gaps, [full]) == [(55, 0)], "a reader that runs is too slow"
    assert asleep(gaps, [stall]) == [(55, 0)], "no ring was full"
    assert asleep(gaps, [stall, full | {"frames": 12}]) == [(55, 12)], "the ring dropped fewer"
    assert asleep(gaps, [stalled(1160, 1200), full]) == [(55, 0)], "a stall in which the ring does not fill"
    assert asleep(gaps, [stalled(1000, 1200, "sender"), full]) == [(55, 0)], "another thread"
    assert asleep(gaps, [stalled(3000, 3200), full]) == [(55, 0)], "another time"
    later = [(0, 30, 1120 * MS, 2600 * MS)]
    assert asleep(later, [stall, full | {"start": 2400 * MS, "end": 2500 * MS}]) == [(30, 0)], "the reader ran again when the ring dropped"
    assert asleep(gaps, [stall, full, dropped(RINGS[1].place, 9, 1100, 1300)]) == [(55, 55)]
    # All cores at once are the machine; one of them is not.
    cores = [late(core, 1000 + core, 1190) for core in range(os.cpu_count())]
    assert asleep(gaps, [*cores, full]) == [(55, 50)]
    assert asleep(gaps, [*cores[1:], full]) == [(55, 0)]


def test_frames_that_a_ring_dropped_account_for_one_moment_only():
    gaps = [(0, 10, 1120 * MS, 1130 * MS), (0, 10, 1300 * MS, 1310 * MS)]
    findings = [stalled(1000, 1320), dropped(RINGS[0].place, 15, 1000, 1400)]
    assert asleep(gaps, findings) == [(10, 10), (10, 5)]
    [one, _] = attribute(gaps, findings, RINGS)
    assert one["beside"] == ["worker of one did not run: -120 to +200 ms, waiting for a core, waited 320 ms",
                             "one: receive drops of port a: 15 frames: -120 to +280 ms"]


def stop_a_switch(soak):
    """Stops the switch at site two until the ring of the trunk was full for a while."""
    sent = soak.sender.newest["sent"]
    switch = soak.switches[1].process
    # A quarter of the frames enters at each of its ports, and more come by the trunk.
    switch.send_signal(signal.SIGSTOP)
    try:
        wait_for("frames for a full ring", lambda: soak.sender.newest["sent"] > sent + 10 * SWITCH_SLOTS)
    finally:
        switch.send_signal(signal.SIGCONT)


@needs_root
def test_frames_that_a_ring_dropped_while_a_switch_was_stopped_are_told_apart(tmp_path):
    lines = []
    soak = Soak(Options(seconds=24, rate_mbps=80, changes=2, tenants=8), prefix="sz", disturb=stop_a_switch, out=lines.append)
    soak.run(tmp_path)
    shown = "\n".join(lines)
    assert soak.rows["frames lost at a ring whose reader the machine did not run"] > 0, shown
    assert soak.rows["worker that did not run, longest"] > 100, shown
    assert any(line.startswith("moment: ") and "worker of two did not run" in line and "stopped" in line for line in lines), shown


def test_memory_that_grows_is_seen_with_and_without_kills():
    flat, growing = [100.0] * 40, [100.0 + number for number in range(40)]
    assert growth(flat) == 1.0 and growth(growing) > 1.1 and growth([100.0] * 3) is None
    # Each life begins with less, and the first one imports the exchange.
    lives = [[80, 120, 120, 120], [40, 60, 60, 60], [40, 60, 60, 60], [40, 60, 60, 60]]
    assert growth_of_lives(lives) == 1.0
    assert growth_of_lives([*lives, [40, 66, 66, 66]]) == pytest.approx(1.1)
    assert growth_of_lives([growing]) == growth(growing) and growth_of_lives([[]]) is None
    assert MEMORY_FROM_S <= 600
