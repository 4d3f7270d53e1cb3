"""NETCONF of a real switch by clients in C, which check what they send and get by the modules of the server: one on CESNET's
libnetconf2, and yangcli."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from front_ends import MODEL, FrontEnds, Netconf, Sshd
from switches import Millrace, free_port, wait_for

SOURCE = Path(__file__).parent / "netconf_client.c"
# The modules of the standards are not for a switch to serve: clients have them.
MODULES = [Path("/usr/share/yuma/modules", folder) for folder in ("ietf", "ietf-derived", "netconfcentral")]
HEADER = Path("/usr/include/nc_client.h")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="roles of users need root")
needs_library = pytest.mark.skipif(not HEADER.exists() or not MODULES[0].exists(), reason="libnetconf2: scripts/setup.sh management")
needs_yangcli = pytest.mark.skipif(not shutil.which("yangcli") or not shutil.which("sshd", path="/usr/sbin"),
                                   reason="yangcli, openssh-server: scripts/setup.sh management")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    path = folder / "netconf_client"
    compiler = shutil.which("gcc") or "cc"
    for modules in MODULES:
        shutil.copytree(modules, folder / "modules", dirs_exist_ok=True)
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-o", path, SOURCE, "-lnetconf2", "-lyang"], check=True, timeout=300)
    return path


class Client:
    """A session of the client in C."""

    def __init__(self, program, socket, errors):
        self.errors = open(errors, "w+")
        self.process = subprocess.Popen([program, socket, program.parent / "modules"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True)
        self.hello = self.answer()

    def answer(self):
        lines = []
        for line in self.process.stdout:
            if line == ".\n":
                return "".join(lines)
            lines.append(line)
        self.errors.seek(0)
        raise ConnectionError(f"the client ended: {self.errors.read()}")

    def call(self, *fields):
        self.process.stdin.write("\t".join(fields) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def ok(self, *fields):
        reply = self.call(*fields)
        assert "<ok/>" in reply, f"{fields}: {reply}"

    def fails(self, tag, *fields):
        reply = self.call(*fields)
        assert f"<error-tag>{tag}</error-tag>" in reply, f"{fields}: {reply}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.errors.close()


def bridge(inner, operation=""):
    return f'<bridge xmlns="{MODEL}" xmlns:nc="urn:ietf:params:xml:ns:netconf:base:1.0"{operation}><name>br0</name>{inner}</bridge>'


def ageing(switch):
    return switch.rest.get(f"{switch.url}/config", timeout=60).json()["bridge"][0]["mac_ageing_s"]


@needs_library
def test_libnetconf2_reads_edits_locks_confirms_and_subscribes(tmp_path, program):
    with Millrace(tmp_path / "switch", ports=[(1, "memory"), (2, "memory")]) as switch, FrontEnds(tmp_path / "mgmt", switch) as front_ends:
        with Client(program, front_ends.netconf, tmp_path / "one") as one, Client(program, front_ends.netconf, tmp_path / "two") as two:
            number = re.search(r"session (\d+)", two.hello).group(1)
            # Reads: with filters of both types, with defaults, and with the state, all checked by the modules.
            assert "<device>memory</device>" in one.call("get-config")
            assert "<mac_ageing_s" in one.call("get-all", f'<bridge xmlns="{MODEL}"/>')
            selected = one.call("get-config", "/millrace:bridge/millrace:port[millrace:name='p2']/millrace:number")
            assert "<number>2</number>" in selected and "p1" not in selected
            state = one.call("get")
            assert "<link>up</link>" in state and "<login-time>" in state and "<feature>xpath</feature>" in state
            assert "module millrace {" in one.call("schema", "millrace")
            one.fails("invalid-value", "schema", "no-such-module")
            # Edits, locks and commits.
            one.ok("lock")
            two.fails("lock-denied", "lock")
            one.ok("edit", bridge("<mac_ageing_s>600</mac_ageing_s>"))
            assert ">600<" in one.call("get-candidate", f'<bridge xmlns="{MODEL}"/>') and ageing(switch) == 300
            one.ok("validate")
            two.fails("in-use", "commit")
            one.ok("commit")
            assert ageing(switch) == 600
            one.ok("edit", bridge("<mac_ageing_s>700</mac_ageing_s>"))
            one.ok("discard")
            one.ok("edit", bridge('<port nc:operation="delete"><name>p2</name></port>'))
            one.fails("data-missing", "edit", bridge('<port nc:operation="delete"><name>p9</name></port>'))
            one.fails("data-exists", "edit", bridge('<port nc:operation="create"><name>p1</name><number>1</number></port>'))
            one.ok("copy")
            one.ok("commit")
            assert len(switch.rest.get(f"{switch.url}/config", timeout=60).json()["bridge"][0]["port"]) == 2
            one.ok("unlock")
            one.ok("lock-running")
            two.fails("lock-denied", "lock-running")
            one.ok("unlock-running")
            # Confirmed commits: confirmed by another session, cancelled, and of a session that is killed.
            one.ok("edit", bridge("<mac_ageing_s>601</mac_ageing_s>"))
            one.ok("commit", "600", "token")
            two.ok("commit", "", "", "token")
            one.ok("edit", bridge("<mac_ageing_s>602</mac_ageing_s>"))
            one.ok("commit", "600", "token")
            assert ageing(switch) == 602
            two.ok("cancel", "token")
            assert ageing(switch) == 601
            one.ok("discard")
            two.ok("edit", bridge("<mac_ageing_s>603</mac_ageing_s>"))
            two.ok("commit", "600")
            assert ageing(switch) == 603
            one.ok("kill", number)
            wait_for("the commit of the killed session is taken back", lambda: ageing(switch) == 601)
            # A change of another front end is a notification.
            one.ok("subscribe")
            switch.change(lambda config: config["bridge"][0].update(mac_ageing_s=604))
            event = one.call("notification")
            assert "netconf-config-change" in event and "/mr:bridge[mr:name='br0']/mr:mac_ageing_s" in event, event


@needs_yangcli
def test_yangcli_reads_edits_and_commits_over_openssh(tmp_path):
    """The program stops at the first error, and prints each reply, which it checks by the modules."""
    script = tmp_path / "script"
    script.write_text("\n".join([
        "get-config source=running", "xget /bridge/port[name='p1']/number", "get-config source=running with-defaults=report-all",
        "lock target=candidate", "merge /bridge[name='br0']/mac_ageing_s value='605'", "validate source=candidate", "commit",
        "unlock target=candidate", "lock target=running", "unlock target=running", "create-subscription", "discard-changes",
        "get-schema identifier=millrace format=yang",
    ]) + "\n")
    with Millrace(tmp_path / "switch", ports=[(1, "memory")]) as switch, FrontEnds(tmp_path / "mgmt", switch) as front_ends:
        with Sshd(tmp_path / "ssh", front_ends, free_port()) as sshd:
            done = subprocess.run(
                ["yangcli", "--batch-mode", "--server=127.0.0.1", f"--ncport={sshd.port}", "--user=root", f"--public-key={sshd.key}.pub",
                 f"--private-key={sshd.key}", f"--run-script={script}", "--log-level=info"],
                capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(tmp_path)})
        output = done.stdout + done.stderr
        assert done.returncode == 0 and "Error" not in output and "module millrace {" in output, output
        assert ageing(switch) == 605


def test_a_hundred_idle_sessions_take_less_than_300_mb(tmp_path):
    with Millrace(tmp_path / "switch", ports=[(1, "memory")]) as switch, FrontEnds(tmp_path / "mgmt", switch) as front_ends:
        sessions = [Netconf(front_ends.netconf) for _ in range(100)]
        assert "<data>" in sessions[-1].call("<get-config><source><running/></source></get-config>")
        resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{front_ends.process.pid}/status").read_text())
        assert int(resident.group(1)) < 300_000
        for session in sessions:
            session.close()
