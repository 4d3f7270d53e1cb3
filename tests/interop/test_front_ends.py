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

from etcd import Etcd, Follower, bridge
from front_ends import MODEL, FrontEnds, Netconf, over_unix
from switches import TARGET, Millrace, end, listens, opened, rest_over, run, wait_for
from test_snmp import Mgmt, Snmpd

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
# `millrace fleet`, of a user whom neither etcd nor the switch knows.
FLEET = [["status"], ["metrics"], ["attach"], ["detach"], ["diff", "sw1"], ["push", "sw1", "{config}"], ["rollout", "{folder}"], ["history"],
         ["pause", "x"], ["confirm", "x"], ["rollback", "x"], ["adopt", "sw1"]]
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


def fleet_refusals(folder, switch, program):
    """What becomes of each command with an etcd that asks for users, and as a user whom the switch does not know."""
    with Etcd(folder / "etcd") as etcd:
        etcd.ctl("user", "add", "root:secret")
        etcd.ctl("user", "grant-role", "root", "root")
        etcd.ctl("auth", "enable")
        settings, wanted = folder / "fleet.toml", folder / "wanted"
        settings.write_text(etcd.settings("sw1"))
        wanted.mkdir()
        shutil.copy(switch.config, wanted / "sw1.toml")
        lines = [["fleet", "--settings", settings, *(word.format(config=switch.config, folder=wanted) for word in line)] for line in FLEET]
        lines = [[str(word) for word in line] for line in lines]
        found = command_refusals(program, lines, switch.environment, ["no access to", "user name is empty", "permission denied"])
        etcd.options += ["--user", "root:secret"]
        assert not etcd.ctl("get", "--prefix", "/millrace/").strip(), "nothing was written"
        return found


def snmp_refusals(folder, switch):
    """What becomes of a Set of each column, although snmpd allows its user to write everything."""
    with Snmpd(folder / "snmpd", writes=True) as snmpd, Mgmt(folder / "agentx", switch, snmpd):
        objects = wait_for("the objects", lambda: snmpd.walk("1.3.6.1.2.1"))
        # One object of each column: of those whose names differ in the last number alone, the first.
        columns = {name.rsplit(".", 1)[0]: name for name in reversed(sorted(objects))}
        found = []
        for name in columns.values():
            done = subprocess.run(["snmpset", "-v2c", "-c", "switch", "-On", f"127.0.0.1:{snmpd.port}", f".1.3.6.1.2.1.{name}", "i", "1"],
                                  capture_output=True, text=True, timeout=60)
            text = done.stdout + done.stderr
            is_refused = done.returncode != 0 and any(word in text for word in ("notWritable", "noAccess", "readOnly"))
            found.append((name, "refused" if is_refused else text))
        assert len(found) > 20
        return found


@pytest.mark.parametrize("front_end", ["REST", "CLI", "OVSDB", "NETCONF", "gNMI", "fleet", "SNMP"])
def test_a_foreign_user_is_refused_on_every_verb(front_end, tmp_path, switch, front_ends):
    before = history(switch)
    program = tmp_path / "millrace"
    if front_end in ("CLI", "fleet"):
        shutil.copy(TARGET / "millrace", program)
    if front_end == "fleet" and not shutil.which("etcd"):
        pytest.skip("etcd: scripts/setup.sh management")
    if front_end == "SNMP" and not shutil.which("snmpd"):
        pytest.skip("snmpd: scripts/setup.sh management")
    if front_end == "REST":
        outcomes = rest_refusals(switch)
    elif front_end == "fleet":
        outcomes = fleet_refusals(tmp_path, switch, program)
    elif front_end == "SNMP":
        outcomes = snmp_refusals(tmp_path, switch)
    elif front_end == "CLI":
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
    assert outcomes and not [one for one in outcomes if one[1] != "refused"]
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


@pytest.mark.skipif(not shutil.which("etcd"), reason="etcd: scripts/setup.sh management")
def test_documents_of_etcd_and_changes_of_people_at_once_lose_nothing_of_each_other(tmp_path):
    """The bridge br0 belongs to etcd, br1 to people, who change it by REST, NETCONF and gNMI while documents arrive. Each value only rises."""
    with Etcd(tmp_path / "etcd") as etcd, Follower(tmp_path, "sw1", etcd, ports=[(1, "memory")]) as follower:
        follower.attach()
        switch = follower.switch
        switch.change(lambda config: config["bridge"].append({"name": "br1", "fail_mode": "standalone", "mac_ageing_s": 1000}))
        faults, seen, over = [], [], threading.Event()

        def values():
            found = {one["name"]: one for one in switch.rest.get(f"{switch.url}/config", timeout=60).json()["bridge"]}
            return found["br0"]["mac_table_size"], found["br1"]["mac_ageing_s"], found["br1"]["tables"]

        def documents():
            for number in range(ROUNDS):
                def edit(config, number=number):
                    config["bridge"] = [one for one in config["bridge"] if one["name"] == "br0"]
                    bridge(config)["mac_table_size"] = 3000 + number
                follower.fleet("push", "sw1", follower.file(edit))

        def people():
            with Netconf(follower.agent.netconf) as session:
                value = 1000
                while value < 1000 + ROUNDS:
                    session.edit(f"<mac_ageing_s>{value + 1}</mac_ageing_s>", bridge="br1")
                    reply = session.call("<commit/>")
                    if "<ok/>" in reply:
                        value += 1
                    else:
                        # A document that waits for its confirmation is in the way, or came first.
                        assert any(word in reply for word in ("stale", "conflict", "waits for its confirmation")), reply
                        session.ok("<discard-changes/>")

        def others():
            done = 0
            while done < ROUNDS:
                answer = switch.rest.get(f"{switch.url}/config", timeout=60)
                config = answer.json()
                own = next(one for one in config["bridge"] if one["name"] == "br1")
                own["tables"] = 100 + done
                answer = switch.rest.put(f"{switch.url}/config", json=config, headers={"If-Match": answer.headers["ETag"]}, timeout=60)
                assert answer.status_code in (200, 409, 412), answer.text
                done += answer.status_code == 200

        def guarded(writer):
            try:
                writer()
            except BaseException:
                faults.append(traceback.format_exc())

        def watch():
            while not over.is_set():
                seen.append(values())

        threads = [threading.Thread(target=guarded, args=(writer,)) for writer in (documents, people, others)]
        watcher = threading.Thread(target=guarded, args=(watch,))
        watcher.start()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=400)
            assert not thread.is_alive()
        over.set()
        watcher.join(timeout=60)
        assert not faults, faults[0]
        assert values() == (3000 + ROUNDS - 1, 1000 + ROUNDS, 100 + ROUNDS - 1)
        # What was there before the first change of each is another value.
        for column, least in zip(zip(*seen), (3000, 1000, 100)):
            rising = [value for value in column if least <= value < least + ROUNDS + 1]
            assert len(rising) > 1 and rising == sorted(rising), rising
