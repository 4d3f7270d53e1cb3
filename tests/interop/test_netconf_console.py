"""NETCONF of a real switch by netconf-console2, a client for the command line, over OpenSSH: each command is a session of its own."""

import os
import re
import shutil
import subprocess

import pytest

from front_ends import BASE, CLIENTS, MODEL, FrontEnds, Sshd
from switches import Millrace, free_port

CONSOLE = CLIENTS / "bin" / "netconf-console2"
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="roles of users need root"),
    pytest.mark.skipif(not CONSOLE.exists() or not shutil.which("sshd", path="/usr/sbin"),
                       reason="netconf-console2, openssh-server: scripts/setup.sh management"),
]
NS = ["--ns", f"m={MODEL}"]


class Console:
    """The program for one server."""

    def __init__(self, sshd, folder):
        self.folder = folder
        # Without a file of OpenSSH, the program opens keys with the passphrase "admin", and ncclient refuses one that has none.
        settings = folder / "ssh_config"
        settings.write_text(f"Host *\n User root\n IdentityFile {sshd.key}\n")
        self.command = [CONSOLE, "--host=127.0.0.1", f"--port={sshd.port}", f"--ssh-config={settings}", "--reply-timeout=60"]

    def run(self, *arguments):
        return subprocess.run([*self.command, *arguments], capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(self.folder)})

    def reads(self, *arguments):
        """Returns what the commands print; they succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0 and "rpc-error" not in done.stdout, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def oks(self, count, *arguments):
        """Runs commands of which each is answered by `ok`, but for those that read."""
        output = self.reads(*arguments)
        assert len(re.findall(r"<ok[ />]", output)) == count, f"{arguments}: {output}"
        return output

    def fails(self, tag, *arguments):
        done = self.run(*arguments)
        assert tag in done.stdout + done.stderr, f"{arguments}: {done.stdout}{done.stderr}"


def config(folder, inner):
    path = folder / "config.xml"
    path.write_text(f'<bridge xmlns="{MODEL}" xmlns:nc="{BASE}"><name>br0</name>{inner}</bridge>')
    return path


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_netconf_console_reads_edits_locks_confirms_and_commits(tmp_path, version):
    with Millrace(tmp_path / "switch", ports=[(1, "memory"), (2, "memory")]) as switch, FrontEnds(tmp_path / "mgmt", switch) as front_ends, \
            Sshd(tmp_path / "ssh", front_ends, free_port()) as sshd:
        console = Console(sshd, tmp_path)
        console.command.append(f"--version={version}")

        def bridge():
            return switch.rest.get(f"{switch.url}/config", timeout=60).json()["bridge"][0]

        assert MODEL in console.reads("--hello")
        # Reads: with filters of both types, with defaults, with the state.
        assert "<device>memory</device>" in console.reads("--get-config")
        selected = console.reads(*NS, "--get-config", "--xpath=/m:bridge/m:port[m:name='p2']/m:number")
        assert "<number>2</number>" in selected and "p1" not in selected
        selected = console.reads(*NS, "--get-config", "--filter=/m:bridge[m:name='br0']/m:port[m:name='p2']")
        assert "<number>2</number>" in selected and "p1" not in selected
        assert "mac_ageing_s" in console.reads("--get-config", "--with-defaults=report-all")
        assert "<link>up</link>" in console.reads("--get")
        assert "module millrace {" in console.reads("--get-schema=millrace")
        # Edits in one session: lock, edit, validate, commit, unlock.
        path = config(tmp_path, "<mac_ageing_s>600</mac_ageing_s>")
        console.oks(5, "--db=candidate", "--lock", f"--edit-config={path}", "--validate=candidate", "--commit", "--unlock")
        assert bridge()["mac_ageing_s"] == 600
        console.oks(2, *NS, "--db=candidate", "--set=/m:bridge[m:name='br0']/m:mac_ageing_s=700", "--commit")
        assert bridge()["mac_ageing_s"] == 700
        console.oks(2, *NS, "--db=candidate", "--create=/m:bridge[m:name='br0']/m:port[m:name='p3']", "--discard-changes")
        console.oks(2, *NS, "--db=candidate", "--delete=/m:bridge[m:name='br0']/m:port[m:name='p2']", "--commit")
        assert [port["name"] for port in bridge()["port"]] == ["p1"]
        console.fails("data-missing", *NS, "--db=candidate", "--del-operation=delete", "--delete=/m:bridge[m:name='br0']/m:port[m:name='p9']")
        # A confirmed commit goes with its session, unless the session confirms it.
        path = config(tmp_path, "<mac_ageing_s>601</mac_ageing_s>")
        console.oks(3, "--db=candidate", "--timeout=600", f"--edit-config={path}", "--commit=confirmed", "--commit")
        assert bridge()["mac_ageing_s"] == 601
