"""The counts of the soak of an exchange (soak_exchange.py): each sees what it is for. Needs root."""

import os

import pytest

from soak_exchange import MEMORY_FROM_S, Options, Soak, growth, growth_of_lives, split
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
    assert soak.rows["frames lost of circuits that nobody changed"] > 0, soak.rows
    for name in ("memory of a switch, late over early", "memory of the engine, late over early"):
        assert 0.2 < soak.rows[name] < 5, soak.rows


def test_loss_belongs_to_a_cut_only_around_it():
    ms = 1_000_000
    gaps = [(0, 3, 1000 * ms, 1040 * ms), (1, 2, 990 * ms, 1010 * ms), (2, 5, 3000 * ms, 3100 * ms), (3, 1, 0, 900 * ms)]
    assert split(gaps, [(1005 * ms, 1030 * ms)]) == (5, 6, 40.0)
    assert split(gaps, []) == (0, 11, 0.0)
    # A frame that a fibre loses while it is mended is lost with it, and says nothing about the cut.
    assert split(gaps, [(1005 * ms, 1030 * ms)], [(3050 * ms, 3060 * ms)]) == (10, 1, 40.0)


def test_memory_that_grows_is_seen_with_and_without_kills():
    flat, growing = [100.0] * 40, [100.0 + number for number in range(40)]
    assert growth(flat) == 1.0 and growth(growing) > 1.1 and growth([100.0] * 3) is None
    # Each life begins with less, and the first one imports the exchange.
    lives = [[80, 120, 120, 120], [40, 60, 60, 60], [40, 60, 60, 60], [40, 60, 60, 60]]
    assert growth_of_lives(lives) == 1.0
    assert growth_of_lives([*lives, [40, 66, 66, 66]]) == pytest.approx(1.1)
    assert growth_of_lives([growing]) == growth(growing) and growth_of_lives([[]]) is None
    assert MEMORY_FROM_S <= 600
