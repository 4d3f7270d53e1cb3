"""The Ansible collection millrace.switch on a real daemon: check mode predicts, a second run changes nothing, races lose nothing."""

import json
import os
import pathlib
import shutil
import subprocess
import threading

import pytest

from switches import Millrace, wait_for

CONTRIB = pathlib.Path(__file__).parents[2] / "contrib"
MODULES = CONTRIB / "ansible_collections" / "millrace" / "switch" / "plugins" / "modules"
pytestmark = pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="Ansible is not installed: scripts/setup.sh management")


@pytest.fixture
def switch(tmp_path):
    with Millrace(tmp_path / "switch", ports=[(1, "memory")]) as switch:
        yield switch


def play(switch, tasks, must_pass=True):
    """Runs tasks on the switch, and returns the results of the tasks in order."""
    thread = threading.get_ident()
    book, report = switch.folder / f"play-{thread}.yml", switch.folder / f"report-{thread}.json"
    defaults = {f"millrace.switch.{module.stem}": {"api": f"unix:{switch.api_socket}"} for module in MODULES.glob("*.py")}
    registered = [task | {"register": f"result{number}", "ignore_errors": True} for number, task in enumerate(tasks)]
    results = ", ".join(f"result{number}" for number in range(len(tasks)))
    # Ansible's own callbacks print no JSON.
    registered.append({"ansible.builtin.copy": {"content": "{{ [%s] | to_json }}" % results, "dest": str(report)},
                       "check_mode": False, "no_log": True})
    book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "module_defaults": defaults,
                                 "tasks": registered}]))
    environment = os.environ | {
        "ANSIBLE_COLLECTIONS_PATH": str(CONTRIB),
        "ANSIBLE_COLLECTIONS_PATHS": str(CONTRIB),
        "ANSIBLE_LOCAL_TEMP": str(switch.folder / "ansible"),
        "ANSIBLE_REMOTE_TEMP": str(switch.folder / "ansible"),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
        # ansible-core 2.19 looks for the newest Python by name, and finds shims of pyenv that run none.
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
    }
    done = subprocess.run(["ansible-playbook", "-c", "local", "-i", "localhost,", book], env=environment,
                          capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(report.read_text())
    if must_pass:
        assert not any(result.get("failed") for result in results), json.dumps(results, indent=1)
    return results


def port(name, number, **settings):
    return {"name": name, "number": number, "device": "memory", **settings}


#: One task for each way to change the configuration, in an order in which each changes something.
TASKS = [
    {"millrace.switch.config": {"config": {"bridge": [{"name": "br1", "port": [port("a", 1), port("b", 2)]}]}}},
    {"millrace.switch.config": {"config": {"bridge": [{"name": "br1", "port": [{"name": "a", "mtu": 9000}]}]}}},
    {"millrace.switch.config": {"config": {"system": {"idle": "busy"}}}},
    {"millrace.switch.config": {"state": "replaced", "config": {"bridge": [{"name": "br1", "port": [port("c", 3)]}]}}},
    {"millrace.switch.config": {"config": {"vrf": [{"name": "blue"}]}}},
    {"millrace.switch.interface": {"name": "v10", "settings": {
        "vrf": "blue", "bridge": "br1", "vlan": 10, "address": ["10.0.10.1/24"]}}},
    {"millrace.switch.interface": {"name": "v10", "settings": {"address": ["10.0.10.1/24", "2001:db8:10::1/64"]}}},
    {"millrace.switch.interface": {"name": "v10", "state": "absent"}},
    {"millrace.switch.config": {"state": "deleted", "config": {"vrf": [{"name": "blue"}]}}},
    {"millrace.switch.bridge": {"name": "br2", "settings": {"fail_mode": "standalone"}}},
    {"millrace.switch.bridge": {"name": "br2", "settings": {"mac_ageing_s": 100}}},
    {"millrace.switch.port": {"bridge": "br2", "name": "p1", "number": 1, "device": "memory"}},
    {"millrace.switch.port": {"bridge": "br2", "name": "p1", "settings": {"vlan": 10}}},
    {"millrace.switch.port": {"bridge": "br2", "name": "p1", "state": "absent"}},
    {"millrace.switch.bridge": {"name": "br2", "state": "absent"}},
    {"millrace.switch.config": {"state": "deleted", "config": {"bridge": [{"name": "br1"}]}}},
    {"millrace.switch.config": {"state": "overridden", "config": {"bridge": [{"name": "br9"}]}}},
]
#: More of them, for the long form: each is run four times.
MORE = [
    {"millrace.switch.bridge": {"name": "br3"}},
    *({"millrace.switch.bridge": {"name": "br3", "settings": settings}} for settings in (
        {"tables": 10}, {"mac_table_size": 2000, "mac_ageing_s": 60}, {"lldp": {}}, {"rstp": {}}, {"fail_mode": "standalone"},
    )),
    {"millrace.switch.port": {"bridge": "br3", "name": "p1", "number": 1, "device": "memory"}},
    *({"millrace.switch.port": {"bridge": "br3", "name": "p1", "settings": settings}} for settings in (
        {"mtu": 1400}, {"down": True}, {"down": False}, {"trunks": [10, 20]}, {"vlan": 5, "trunks": [10]}, {"rate": "10Mbps"},
        {"policer": {"kind": "srtcm", "cir": "1Mbps"}}, {"lldp": "off"},
    )),
    {"millrace.switch.port": {"bridge": "br3", "name": "p2", "number": 2, "device": "memory", "settings": {"queue": [{"id": 1, "max_rate": "1Mbps"}]}}},
    {"millrace.switch.config": {"config": {"acl": [{"name": "edge", "rules": ["permit tcp,tp_dst=22", "deny ip"]}]}}},
    {"millrace.switch.config": {"config": {"acl": [{"name": "edge", "rules": ["deny ip"]}]}}},
    {"millrace.switch.config": {"config": {"vrf": [{"name": "red"}]}}},
    {"millrace.switch.interface": {"name": "v20", "settings": {
        "vrf": "red", "bridge": "br3", "vlan": 10, "address": ["10.0.20.1/24"], "acl_in": "edge"}}},
    {"millrace.switch.interface": {"name": "v20", "settings": {"mtu": 1400}}},
    {"millrace.switch.interface": {"name": "v20", "state": "absent"}},
    {"millrace.switch.config": {"state": "deleted", "config": {"acl": [{"name": "edge"}], "vrf": [{"name": "red"}]}}},
    {"millrace.switch.config": {"state": "overridden", "config": {"bridge": [{"name": "br9"}]}}},
]
if os.environ.get("MILLRACE_ANSIBLE_LONG"):
    TASKS = [*TASKS[:-1], *MORE]
    assert len(TASKS) >= 40


def test_check_mode_predicts_each_diff_and_a_second_run_changes_nothing(switch):
    checked = {"check_mode": True, "diff": True}
    runs = [task | options for task in TASKS for options in (checked, {"diff": True}, {"diff": True}, checked)]
    results = play(switch, [*runs, {"millrace.switch.config": {"state": "gathered"}}])
    for number, task in enumerate(TASKS):
        predicted, first, second, after = results[4 * number:4 * number + 4]
        assert predicted["changed"] and first["changed"], (task, first)
        assert predicted["diff"] == first["diff"] and predicted["changes"] == first["changes"] != [], (task, first)
        assert predicted["revision"] == first["revision"] - 1, (task, predicted)
        assert not second["changed"] and not after["changed"], (task, second)
        assert second["revision"] == first["revision"] and second["diff"] == {"prepared": ""}
    config = results[-1]["config"]
    assert [bridge["name"] for bridge in config["bridge"]] == ["br9"]
    # The process settings stay unless a task gives them: the daemon is reached as before.
    assert config["api"]["socket"] == str(switch.api_socket)


def test_what_the_switch_refuses_fails_the_task_with_its_words(switch):
    assert switch.rest.put(f"{switch.url}/config/bridges/br-int?origin=ovsdb", json={}, timeout=60).ok
    invalid, owned, left, unknown, unreachable = play(switch, [
        {"millrace.switch.bridge": {"name": "br1", "settings": {"tables": 300}}},
        {"millrace.switch.bridge": {"name": "br-int", "state": "absent"}},
        {"millrace.switch.config": {"state": "overridden", "config": {}}},
        {"millrace.switch.port": {"bridge": "br7", "name": "p"}},
        {"millrace.switch.facts": {"api": "unix:/nothing.sock"}},
    ], must_pass=False)
    assert invalid["failed"] and invalid["status"] == 422 and "300 is out of range" in invalid["msg"], invalid
    assert invalid["errors"][0]["pointer"].endswith("/tables"), invalid
    assert owned["status"] == 409 and "use ovs-vsctl" in owned["msg"], owned
    assert left["left_alone"] == [{"object": "bridge/br-int", "owner": "ovsdb"}], left
    assert "no bridge `br7`" in unknown["msg"], unknown
    assert "/nothing.sock does not answer" in unreachable["msg"], unreachable


def test_a_change_that_nobody_confirms_is_rolled_back_and_a_confirmed_one_stays(switch):
    add, confirm = {"millrace.switch.bridge": {"name": "br1", "confirm_within": 600}}, {"millrace.switch.confirm": {}}
    results = play(switch, [
        add,
        confirm | {"check_mode": True},
        {"millrace.switch.confirm": {"state": "cancelled"}},
        confirm,
        add,
        confirm,
        confirm,
        {"millrace.switch.bridge": {"name": "br2", "confirm_within": 1}},
    ])
    assert [result["changed"] for result in results] == [True, True, True, False, True, True, False, True]
    assert results[0]["pending"]["revision"] == results[0]["revision"]

    def bridges():
        return [bridge["name"] for bridge in switch.rest.get(f"{switch.url}/config", timeout=60).json()["bridge"]]

    wait_for("the rollback", lambda: bridges() == ["br0", "br1"])


def test_two_controllers_that_race_lose_no_change(switch):
    def controller(first):
        tasks = [{"millrace.switch.port": {"bridge": "br0", "name": f"r{number}", "number": number, "device": "memory", "wait": 0}}
                 for number in range(first, first + 6)]
        results.extend(play(switch, tasks))

    results = []
    threads = [threading.Thread(target=controller, args=(first,)) for first in (10, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 12 and all(result["changed"] for result in results), results
    config = switch.rest.get(f"{switch.url}/config", timeout=60).json()
    names = {port["name"] for port in config["bridge"][0]["port"]}
    assert names == {"p1", *(f"r{number}" for number in (*range(10, 16), *range(20, 26)))}


def test_facts_tell_what_runs_and_problems_are_warnings(switch):
    tasks = [
        {"millrace.switch.port": {"bridge": "br0", "name": "p9", "number": 9, "device": "kernel:mr-nothing"}},
        {"millrace.switch.facts": {}},
    ]
    added, asked = play(switch, tasks)
    assert "mr-nothing" in added["problems"][0]["message"] and "mr-nothing" in added["warnings"][0], added
    facts = asked["ansible_facts"]["millrace"]
    assert facts["owners"]["bridge/br0"] == "local" and facts["status"]["state"] == "degraded", facts
    assert [port["name"] for port in facts["bridges"][0]["ports"]] == ["p1", "p9"], facts
