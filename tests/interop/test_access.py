"""Access to the REST API of the daemon: root has access, and a user without rights has none, over any listener.

The tests repeat this attack: a user without rights sent one PATCH that added an inline hop `library:…/own.so`, and the
constructor of that file ran in `millraced` as root.
"""

import json
import os
import shutil
import stat
import subprocess
import sys

import pytest

from switches import TARGET, Millrace, free_port, opened

NOBODY = 65534
DROPPED = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")

# The attacker's program: one PATCH, over a Unix socket or an address, with a token or without. It prints the HTTP status,
# or the system's error.
ATTACK = """
import http.client, json, socket, sys
where, token, body = sys.argv[1:]
connection = http.client.HTTPConnection("localhost")
try:
    if where.startswith("/"):
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(where)
    else:
        connection.sock = socket.create_connection(("127.0.0.1", int(where)))
    headers = {"content-type": "application/merge-patch+json"}
    if token:
        headers["authorization"] = "Bearer " + token
    connection.request("PATCH", "/api/v1/config", body, headers)
    print(connection.getresponse().status)
except OSError as error:
    print(type(error).__name__)
"""


def attack(where, body, token="", before=DROPPED):
    """Returns the outcome of one PATCH of a user."""
    # The user nobody may not enter the folder of the tests' own Python.
    python = "/usr/bin/python3" if before else sys.executable
    done = subprocess.run(
        [*before, python, "-I", "-c", ATTACK, str(where), token, json.dumps(body)],
        capture_output=True, text=True, timeout=60, cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def switch(tmp_path):
    """A switch with both listeners, and a token that it has generated."""
    port = free_port()
    with Millrace(tmp_path / "switch", api=f'listen = "127.0.0.1:{port}"') as switch:
        switch.port = port
        # As with /run/millrace, every user may enter the folder, so that only the mode of the socket protects it.
        opened(tmp_path / "switch")
        yield switch


def hop(tmp_path):
    """Returns the change that would load the attacker's file."""
    chain = {"name": "c", "number": 100, "far": 101,
             "hop": [{"name": "own", "function": f"library:{tmp_path}/own.so", "class": "inline"}]}
    return {"bridge": [{"name": "br0", "dpid": "0000000000000001", "chain": [chain]}]}


def test_a_user_without_rights_changes_nothing_and_root_does(switch, tmp_path):
    before = switch.rest.get(f"{switch.url}/config", timeout=60).headers["ETag"]
    assert attack(switch.api_socket, hop(tmp_path)) == "PermissionError"
    assert attack(switch.port, hop(tmp_path)) == "401"
    assert attack(switch.port, hop(tmp_path), token="0" * 64) == "401"
    token = switch.folder / "state" / "api-token"
    assert subprocess.run([*DROPPED, "cat", token], capture_output=True, cwd="/").returncode != 0
    assert switch.rest.get(f"{switch.url}/config", timeout=60).headers["ETag"] == before
    def harmless(ageing):
        return {"bridge": [{"name": "br0", "dpid": "0000000000000001", "mac_ageing_s": ageing}]}

    assert attack(switch.port, harmless(400), token=token.read_text().strip(), before=[]) == "200"
    assert attack(switch.api_socket, harmless(401), before=[]) == "200"
    assert switch.rest.get(f"{switch.url}/revisions", timeout=60).json()["revisions"][0]["author"] == "root"


def test_the_socket_the_store_and_the_token_are_for_root_alone_and_the_socket_goes_with_the_daemon(switch):
    def mode(path):
        return stat.S_IMODE(path.stat().st_mode)

    state = switch.folder / "state"
    assert mode(switch.api_socket) == 0o600
    assert mode(state) == 0o700
    assert {path.name: mode(path) for path in state.iterdir()} and all(mode(path) == 0o600 for path in state.iterdir())
    # Another daemon does not replace a socket that is in use.
    other = subprocess.run(
        [TARGET / "millraced", "--config", switch.config, "--no-dpdk", "--state-dir", switch.folder / "other"],
        capture_output=True, text=True, timeout=60,
    )
    assert other.returncode == 1
    assert "stop" in other.stderr and ("api.socket" in other.stderr or "api.listen" in other.stderr), other.stderr
    switch.stop()
    assert not switch.api_socket.exists()
    # A socket that a killed daemon left is replaced.
    switch.start()
    switch.process.kill()
    switch.process.wait()
    assert switch.api_socket.exists()
    switch.start()


def test_the_command_line_tells_a_user_without_rights_who_may_and_what_to_do(switch):
    program = switch.folder / "millrace"
    shutil.copy(TARGET / "millrace", program)
    done = subprocess.run(
        [*DROPPED, program, "--api", f"unix:{switch.api_socket}", "show", "status"],
        capture_output=True, text=True, timeout=60, cwd="/",
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"no access to {switch.api_socket}: only root may connect" in done.stderr
    assert "sudo millrace" in done.stderr
