"""Neutron's own library (neutron-openvswitch-agent 21) over Millrace in the place of ovs-vswitchd: flat and VLAN networks."""

import json
import os
import pathlib
import subprocess

import pytest

from ovsdb import Following
from switches import run
from test_ovsdb import PAIRS, wired

PYTHON = "/usr/bin/python3"


def has_neutron():
    asked = subprocess.run([PYTHON, "-c", "import neutron"], capture_output=True, timeout=120)
    return asked.returncode == 0


pytestmark = [
    pytest.mark.skipif(not os.environ.get("MILLRACE_OVSDB_LONG"), reason="a long form: make management"),
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(not has_neutron(), reason="Neutron is missing: scripts/setup.sh neutron installs it"),
]


def test_an_agent_provisions_flat_and_vlan_networks(tmp_path):
    script = pathlib.Path(__file__).with_name("neutron_bridges.py")
    with wired("mr-neutron", PAIRS[:1]), Following(tmp_path, namespace="mr-neutron") as switch:
        said = json.loads(run(PYTHON, script, switch.socket, timeout=300, env=switch.environment).splitlines()[-1])
        assert said["bridges"] == ["br-ex", "br-int"]
        assert all(isinstance(number, int) and number > 0 for number in [*said["patches"], said["port"]]), said
        assert said["found"] == ["tap1", said["port"], "fa:16:3e:00:00:01"]
        assert said["tags"]["tap1"] == 1 and said["ofport"] == said["port"] and said["fail_mode"] == "secure"
        assert int(said["datapath_id"], 16) > 0 and said["ports"] == ["int-br-ex", "tap1"]
        assert said["limits"] == [[1000, 100], [2000, 200]]
        assert switch.rows("Bridge") == [], "the library removed its bridges"
        refused = [fault for fault in switch.shown()["faults"] if fault["refused"]]
        assert not refused and "in-band" not in switch.log.read_text(), refused
