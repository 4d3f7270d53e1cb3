"""All front ends of one switch: a foreign user is refused on every verb of each, and front ends that write at once neither merge
nor lose nor reorder a change."""

import json
import os
import shutil
import subprocess
import sys
import threading
import traceback

import pytest

from front_ends import MODEL, FrontEnds, Netconf, over_unix
from switches import TARGET, Millrace, end, listens, opened, rest_over, run, wait_for

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
MERGE = {"content-type": "application/merge-patch+json"}
DROPPED = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all"]

# REST: method and path, over the Unix socket.
REST = [(method, f"/api/v1/{path}") for method, path in (
    ("GET", "config"), ("PUT", "config"), ("PATCH", "config"), ("POST", "config/confirm"), ("DELETE", "config/confirm"),
    ("GET", "config/bridges/br0"), ("PUT", "config/bridges/br0"), ("DELETE", "config/bridges/br0"),
    ("GET", "revisions"), ("POST", "revisions/0/rollback"), ("GET", "owners"), ("POST", "owners"), ("GET", "state"), ("GET", "events"),
    ("GET", "lock"), ("POST", "lock"), ("PUT", "lock"), ("DELETE", "lock"), ("POST", "lock/session"), ("PUT", "log"),
    ("POST", "bridges/br0/flow-mods"), ("GET", "bridges/br0/capture"),
)]
CLI = [["show", "status"], ["show", "config"], ["apply", "{config}"], ["rollback", "0"], ["confirm"], ["bridge", "add", "br9"],
       ["flow", "add", "br0", "actions=drop"], ["lock", "take"], ["own", "br0", "--local"], ["log", "debug"]]
OVSDB = [["show"], ["add-br", "br9"], ["del-br", "br0"], ["set", "Open_vSwitch", ".", "other_config:x=y"], ["list", "Bridge"]]
# Verbs of gNMI, each a function of the stub and of the messages' module.
GNMI = {
    "Capabilities": lambda stub, pb: stub.Capabilities(pb.CapabilityRequest(), timeout=60),
    "Get": lambda stub, pb: stub.Get(pb.GetRequest(path=[pb.Path()]), timeout=60),
    "Set": lambda stub, pb: stub.Set(pb.SetRequest(delete=[pb.Path(elem=[pb.PathElem(name="bridge")])]), timeout=60),
    "Subscribe": lambda stub, pb: list(stub.Subscribe(iter([pb.SubscribeRequest(
        subscribe=pb.SubscriptionList(mode=1, subscription=[pb.Subscription(path=pb.Path())]))]), timeout=60)),
}
# Operations of NETCONF that a reader may not run; a user without a role gets no session at all.
NETCONF = [
    f'<edit-config><target><candidate/></target><config><bridge xmlns="{MODEL}"><name>br9</name></bridge></config></edit-config>',
    "<copy-config><target><candidate/></target><source><running/></source></copy-config>", "<commit/>", "<cancel-commit/>",
    "<discard-changes/>", "<lock><target><running/></target></lock>", "<lock><target><candidate/></target></lock>",
    "<unlock><target><running/></target></unlock>", "<kill-session><session-id>1</session-id></kill-session>",
]


@pytest.fixture
def switch(tmp_path):
    opened(tmp_path)
    with Millrace(tmp_path / "switch", ports=[(1, "memory"), (2, "memory")]) as switch:
        yield switch


@pytest.fixture
def front_ends(tmp_path, switch):
    with FrontEnds(tmp_path / "mgmt", switch) as front_ends:
        yield front_ends


def as_nobody(action):
    """Runs `action` in a process of the user nobody, and returns what it returns, as JSON."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            outcome = action()
        except BaseException:
            outcome = traceback.format_exc()
        os.write(write, json.dumps(outcome).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def history(switch):
    return switch.rest.get(f"{switch.url}/revisions?limit=1", timeout=60).json()["revisions"][0]["number"]


def rest_refusals(switch):
    def attempt(rest, method, path):
        try:
            answer = rest.request(method, f"http://localhost{path}", timeout=60, data="{}", headers=MERGE)
            return f"{answer.status_code}"
        except Exception as error:
            return "refused" if "Permission denied" in str(error) else str(error)

    def action():
        # A session of its own: that of the test has a connection of root.
        rest = rest_over(switch.api_socket)
        return [(f"{method} {path}", attempt(rest, method, path)) for method, path in REST]

    return as_nobody(action)


def command_refusals(program, lines, environment, words):
    found = []
    for line in lines:
        done = subprocess.run([*DROPPED, program, *line], capture_output=True, text=True, timeout=60, env=environment, cwd="/")
        text = done.stdout + done.stderr
        is_refused = done.returncode != 0 and any(word in text for word in words)
        found.append((" ".join(line), "refused" if is_refused else text))
    return found


def netconf_refusals(front_ends):
    def action():
        try:
            Netconf(front_ends.netconf)
            return "a session"
        except (ConnectionError, OSError) as error:
            return "refused" if "closed after b''" in str(error) or isinstance(error, ConnectionResetError) else str(error)

    return [("hello", as_nobody(action))]


def gnmi_refusals(front_ends):
    grpc = pytest.importorskip("grpc", reason="grpcio: scripts/setup.sh management")
    # Loaded before the process becomes a user who may not read it.
    pytest.importorskip("pygnmi.spec.v080.gnmi_pb2_grpc", reason="pygnmi: scripts/setup.sh management")

    def action():
        found = []
        with over_unix(front_ends) as (stub, pb):
            for name, verb in GNMI.items():
                try:
                    found.append((name, repr(verb(stub, pb))))
                except grpc.RpcError as error:
                    found.append((name, "refused" if error.code() == grpc.StatusCode.PERMISSION_DENIED else str(error)))
        return found

    return as_nobody(action)


@pytest.mark.parametrize("front_end", ["REST", "CLI", "OVSDB", "NETCONF", "gNMI"])
def test_a_foreign_user_is_refused_on_every_verb(front_end, tmp_path, switch, front_ends):
    before = history(switch)
    if front_end == "REST":
        outcomes = rest_refusals(switch)
    elif front_end == "CLI":
        program = tmp_path / "millrace"
        shutil.copy(TARGET / "millrace", program)
        lines = [[word.format(config=switch.config) for word in line] for line in CLI]
        outcomes = command_refusals(program, lines, switch.environment, ["no access to"])
    elif front_end == "OVSDB":
        database = f"unix:{tmp_path}/db.sock"
        run("ovsdb-tool", "create", tmp_path / "conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
        server = subprocess.Popen(["ovsdb-server", tmp_path / "conf.db", f"--remote=p{database}", f"--unixctl={tmp_path}/db.ctl"],
                                  stderr=subprocess.DEVNULL)
        try:
            wait_for("ovsdb-server", lambda: listens(tmp_path / "db.sock"))
            lines = [["--timeout=3", "--no-wait", f"--db={database}", *line] for line in OVSDB]
            outcomes = command_refusals("ovs-vsctl", lines, os.environ, ["Permission denied"])
        finally:
            end(server)
    elif front_end == "NETCONF":
        outcomes = netconf_refusals(front_ends)
    else:
        outcomes = gnmi_refusals(front_ends)
    assert outcomes and all(outcome == "refused" for _, outcome in outcomes), outcomes
    assert history(switch) == before


def test_a_reader_is_refused_on_every_verb_that_changes_something(tmp_path, switch):
    with FrontEnds(tmp_path / "mgmt", switch, settings='[access]\nread = ["nogroup"]') as front_ends:
        before = history(switch)

        def action():
            with Netconf(front_ends.netconf) as session:
                replies = [(operation, session.call(operation)) for operation in NETCONF]
                return [*replies, ("get", session.call("<get-config><source><running/></source></get-config>"))]

        *changes, (_, read) = as_nobody(action)
        assert "<name>br0</name>" in read
        assert all("<error-tag>access-denied</error-tag>" in reply for _, reply in changes), changes
        assert history(switch) == before


# Each front end raises a value of its own by one, `ROUNDS` times.
ROUNDS = 12


def by_rest(switch):
    """Raises mac_ageing_s by PUT with If-Match, and repeats what was too late."""
    done = 0
    while done < ROUNDS:
        answer = switch.rest.get(f"{switch.url}/config", timeout=60)
        config = answer.json()
        config["bridge"][0]["mac_ageing_s"] += 1
        answer = switch.rest.put(f"{switch.url}/config", json=config, headers={"If-Match": answer.headers["ETag"]}, timeout=60)
        assert answer.status_code in (200, 412), answer.text
        done += answer.status_code == 200


def by_netconf(front_ends):
    """Raises the MTU of p1 by candidate and commit."""
    value = 1500
    with Netconf(front_ends.netconf) as session:
        while value < 1500 + ROUNDS:
            session.edit(f"<port><name>p1</name><mtu>{value + 1}</mtu></port>")
            reply = session.call("<commit/>")
            if "<ok/>" in reply:
                value += 1
            else:
                assert "<error-app-tag>stale</error-app-tag>" in reply, reply
                session.ok("<discard-changes/>")


def by_gnmi(front_ends):
    """Raises the MTU of p2 by Set."""
    with over_unix(front_ends) as (stub, pb):
        path = pb.Path(elem=[pb.PathElem(name=name, key={"name": key} if key else {})
                             for name, key in (("bridge", "br0"), ("port", "p2"), ("mtu", None))])
        for value in range(1501, 1501 + ROUNDS):
            stub.Set(pb.SetRequest(update=[pb.Update(path=path, val=pb.TypedValue(uint_val=value))]), timeout=60)


def test_front_ends_that_write_at_once_neither_merge_nor_lose_nor_reorder_a_change(switch, front_ends):
    writers = [lambda: by_rest(switch), lambda: by_netconf(front_ends)]
    if any((os.path.isdir(os.path.join(folder, "pygnmi")) for folder in sys.path)):
        writers.append(lambda: by_gnmi(front_ends))
    first = history(switch)
    faults = []

    def guarded(writer):
        try:
            writer()
        except BaseException:
            faults.append(traceback.format_exc())

    threads = [threading.Thread(target=guarded, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
        assert not thread.is_alive()
    assert not faults, faults[0]
    # Each revision has exactly one change, and each value goes up by one: nothing was merged, lost or reordered.
    seen = {}
    last = history(switch)
    assert last - first == ROUNDS * len(writers)
    for number in range(first + 1, last + 1):
        changes = switch.rest.get(f"{switch.url}/revisions/{number - 1}/diff?to={number}", timeout=60).json()["changes"]
        assert len(changes) == 1, changes
        change = changes[0]
        assert change["new"] == seen.get(change["path"], change["old"]) + 1, (number, change)
        seen[change["path"]] = change["new"]
    assert len(seen) == len(writers)
