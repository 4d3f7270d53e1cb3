"""NETCONF of a real switch by Ansible's collection `ansible.netcommon`, whose connection is ncclient over OpenSSH."""

import json
import os
import shutil
import subprocess

import pytest
import yaml

from front_ends import BASE, MODEL, FrontEnds, Netconf, Sshd
from switches import ROOT, Millrace, free_port, wait_for

ANSIBLE = ROOT / "target" / "netcommon"
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="roles of users need root"),
    pytest.mark.skipif(not (ANSIBLE / "collections" / "ansible_collections").exists() or not shutil.which("sshd", path="/usr/sbin"),
                       reason="ansible.netcommon, openssh-server: scripts/setup.sh netcommon"),
]


# A callback that prints the result of each task as a line of JSON. netcommon's results have bytes, too.
CALLBACK = """
import json
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, "stdout", "results"

    def v2_runner_on_ok(self, result, failed=False):
        text = json.dumps({**result.result, "failed": failed}, default=lambda value: value.decode() if isinstance(value, bytes) else str(value))
        print(text)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.v2_runner_on_ok(result, failed=True)

    def v2_runner_on_unreachable(self, result):
        self.v2_runner_on_ok(result, failed=True)
"""


class Playbooks:
    """Ansible with one host, the switch, over NETCONF."""

    def __init__(self, folder, sshd):
        self.folder = folder
        (folder / "results.py").write_text(CALLBACK)
        self.inventory = folder / "inventory.yml"
        self.inventory.write_text(yaml.safe_dump({"all": {"hosts": {"sw": {
            "ansible_host": "127.0.0.1", "ansible_port": sshd.port, "ansible_user": "root", "ansible_private_key_file": str(sshd.key),
            "ansible_connection": "ansible.netcommon.netconf", "ansible_network_os": "default", "ansible_host_key_checking": False}}}}))
        self.environment = os.environ | {
            "HOME": str(folder), "ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_COLLECTIONS_PATH": str(ANSIBLE / "collections"),
            "ANSIBLE_STDOUT_CALLBACK": "results", "ANSIBLE_CALLBACK_PLUGINS": str(folder), "ANSIBLE_PERSISTENT_CONNECT_TIMEOUT": "60", "ANSIBLE_PERSISTENT_COMMAND_TIMEOUT": "60",
            "ANSIBLE_PERSISTENT_CONTROL_PATH_DIR": str(folder / "pc")}

    def run(self, *tasks, arguments=()):
        """Runs tasks, and returns the result of each by its place, with a key `failed` of the last if it failed."""
        playbook = self.folder / "playbook.yml"
        named = [{"name": str(at), **task} for at, task in enumerate(tasks)]
        playbook.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": named}]))
        done = subprocess.run([ANSIBLE / "bin" / "ansible-playbook", "-i", self.inventory, *arguments, playbook], capture_output=True, text=True,
                              timeout=300, env=self.environment)
        results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert results and (done.returncode == 0 or results[-1].get("failed")), done.stdout + done.stderr
        return results

    def oks(self, *tasks, arguments=()):
        """Runs tasks that succeed, and returns whether each changed anything."""
        results = self.run(*tasks, arguments=arguments)
        assert len(results) == len(tasks) and not any(result.get("failed") for result in results), [result.get("msg") for result in results]
        warnings = [result["warnings"] for result in results if result.get("warnings")]
        assert not warnings
        return results


def config(inner, **more):
    content = f'<config xmlns:nc="{BASE}"><bridge xmlns="{MODEL}"><name>br0</name>{inner}</bridge></config>'
    return {"ansible.netcommon.netconf_config": {"content": content, **more}}


def rpc(name, content=None, **more):
    return {"ansible.netcommon.netconf_rpc": {"rpc": name, **({"content": content} if content else {}), **more}}


def test_netcommon_reads_edits_locks_confirms_and_commits(tmp_path):
    with Millrace(tmp_path / "switch", ports=[(1, "memory"), (2, "memory")]) as switch, FrontEnds(tmp_path / "mgmt", switch) as front_ends, \
            Sshd(tmp_path / "ssh", front_ends, free_port()) as sshd:
        ansible = Playbooks(tmp_path, sshd)

        def bridge():
            return switch.rest.get(f"{switch.url}/config", timeout=60).json()["bridge"][0]

        # Reads: of the configuration, with filters of both types, as data, and of the state.
        subtree = f'<bridge xmlns="{MODEL}"><name>br0</name><port><name>p2</name></port></bridge>'
        get = "ansible.netcommon.netconf_get"
        whole, selected, by_path, state, as_data, schema = ansible.oks(
            {get: {"source": "candidate", "lock": "always"}}, {get: {"source": "running", "filter": subtree}},
            {get: {"source": "candidate", "filter": "/bridge/port[name='p2']/number"}}, {get: {}},
            {get: {"source": "running", "display": "native"}},
            rpc("get-schema", "<identifier>millrace</identifier>", xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"))
        assert "<device>memory</device>" in whole["stdout"] and "<link>up</link>" in state["stdout"]
        assert "<number>2</number>" in selected["stdout"] and "p1" not in selected["stdout"]
        assert "<number>2</number>" in by_path["stdout"] and "p1" not in by_path["stdout"]
        assert as_data["output"]["data"]["bridge"]["name"] == "br0" and "module millrace {" in schema["stdout"]
        # Edits of the candidate under its lock, validated and committed: what a check foretells happens, and a second run changes nothing.
        edit = config("<mac_ageing_s>600</mac_ageing_s><port><name>p3</name><number>3</number><device>memory</device></port>", validate=True,
                      error_option="rollback-on-error", default_operation="merge")
        foretold = ansible.oks(edit, arguments=["--check", "--diff"])[0]
        assert foretold["changed"] and (bridge()["mac_ageing_s"], len(bridge()["port"])) == (300, 2)
        done, again = ansible.oks(edit, edit, arguments=["--diff"])
        assert done["changed"] and done["diff"] == foretold["diff"] and not again["changed"], (done, again)
        assert (bridge()["mac_ageing_s"], len(bridge()["port"])) == (600, 3)
        removed = config('<port nc:operation="remove"><name>p3</name></port>')
        assert [one["changed"] for one in ansible.oks(removed, removed)] == [True, False] and len(bridge()["port"]) == 2
        # Operations one by one, in one session.
        target = "<target><candidate/></target>"
        edit_config = f'{target}<config><bridge xmlns="{MODEL}"><name>br0</name><mac_ageing_s>700</mac_ageing_s></bridge></config>'
        ansible.oks(rpc("lock", target), rpc("edit-config", edit_config), rpc("validate", "<source><candidate/></source>"), rpc("commit"),
                    rpc("unlock", target))
        assert bridge()["mac_ageing_s"] == 700
        # A confirmed commit is confirmed by the next task, in the same session; one that is not goes with its session. `confirm` of
        # netconf_config gives ncclient a number where it expects text.
        confirmed = rpc("commit", "<confirmed/><confirm-timeout>600</confirm-timeout>")
        ansible.oks(config("<mac_ageing_s>750</mac_ageing_s>", commit=False, lock="never"), confirmed)
        wait_for("the end of the session takes it back", lambda: bridge()["mac_ageing_s"] == 700)
        ansible.oks(rpc("discard-changes"), config("<mac_ageing_s>800</mac_ageing_s>", commit=False, lock="never"), confirmed,
                    {"ansible.netcommon.netconf_config": {"confirm_commit": True}})
        pending = switch.rest.get(f"{switch.url}/config/confirm", timeout=60).json()["pending"]
        assert bridge()["mac_ageing_s"] == 800 and pending is None
        # What fails says why, and leaves the candidate for others.
        refused = ansible.run(config("<tables>0</tables>"))[-1]
        assert refused["failed"] and "1 to 255" in refused["msg"], refused
        with Netconf(front_ends.netconf) as other:
            other.ok("<lock><target><running/></target></lock>")
            denied = ansible.run(config("<mac_ageing_s>900</mac_ageing_s>"))[-1]
            assert denied["failed"] and bridge()["mac_ageing_s"] == 800, denied
        assert ansible.oks(config("<mac_ageing_s>900</mac_ageing_s>"))[0]["changed"] and bridge()["mac_ageing_s"] == 900
