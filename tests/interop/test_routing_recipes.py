"""The recipes of docs/routing.md (examples/routing) run: a campus switch, a border router with BGP, OpenFlow and OSPF on one port."""

import os
import shutil
import subprocess

import pytest

from router_topology import is_installed
from switches import ROOT, TARGET

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def run_recipe(name, **settings):
    """Runs a recipe, and returns its output."""
    done = subprocess.run([ROOT / "examples" / "routing" / f"{name}.sh"], env=os.environ | {"MILLRACE": str(TARGET / "millrace"), **settings},
                          capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_campus_switch_routes_between_its_vlans_and_denies_telnet():
    text = run_recipe("campus")
    assert "h1 reaches h2 in its VLAN, and h3 by the router" in text and "telnet is denied, by name" in text


@pytest.mark.skipif(not is_installed() or not shutil.which("bird"), reason="FRR or BIRD is not installed: scripts/setup.sh routers")
def test_a_border_router_has_the_routes_of_its_provider():
    assert "h1 reaches the Internet: 500 routes by BGP and FPM" in run_recipe("border", ROUTES="500")


@pytest.mark.skipif(not is_installed() or not shutil.which("ovs-ofctl"), reason="FRR or ovs-ofctl is not installed: scripts/setup.sh routers")
def test_a_port_has_flow_entries_and_a_neighbour_of_ospf():
    assert "h2 reaches the loopback of the neighbour by a route of OSPF" in run_recipe("hybrid")
