"""Switches that follow documents in a real etcd: documents and answers, fencing, roll-outs, and etcd that is away, compacted, restored."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess

import pytest

import namespaces
from certificates import Authority
from etcd import Etcd, Follower, bridge, master, tables
from streams import Receiver, Sender
from switches import TARGET, pause, run, wait_for

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="interfaces need root"),
    pytest.mark.skipif(not shutil.which("etcd"), reason="etcd: scripts/setup.sh management"),
]
MACS = ("02:4d:52:00:00:01", "02:4d:52:00:00:02")


@pytest.fixture
def etcd(tmp_path):
    with Etcd(tmp_path / "etcd") as etcd:
        yield etcd


@pytest.fixture
def follower(tmp_path, etcd):
    with Follower(tmp_path, "sw1", etcd, ports=[(1, "memory"), (2, "memory")]) as follower:
        yield follower


@contextlib.contextmanager
def followers(folder, etcd, *nodes):
    """Yields attached switches with these names."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(Follower(folder, node, etcd, ports=[(1, "memory")])) for node in nodes]
        for follower in found:
            follower.attach()
        yield found


def size(follower):
    return bridge(follower.config())["mac_table_size"]


def test_a_switch_joins_unchanged_gets_a_document_and_refuses_a_bad_one_by_pointer(etcd, follower):
    before = follower.config()
    out, _ = follower.fleet("attach")
    assert "what it runs is its document" in out
    first = follower.wait_ack("applied")
    assert follower.config() == before and first["errors"] == []
    # A push is carried out without a master that runs, and its answer names the revision that it became.
    out, _ = follower.fleet("push", "sw1", follower.file(tables(2000)), "-m", "a larger table")
    assert "done, 1 of 1 switches run it" in out, out
    ack = follower.wait_ack("applied")
    newest = follower.revisions()[0]
    assert size(follower) == 2000 and ack["revision"] == newest["number"]
    assert newest["origin"] == "etcd" and newest["external"] == ack["mod_revision"]
    assert newest["comment"].endswith(": a larger table") and newest["comment"].startswith(f"document {ack['mod_revision']} of epoch")
    shown = json.loads(follower.fleet("status", "--json")[0])
    assert (shown["nodes"][0]["document"], shown["nodes"][0]["health"]) == ("in sync", "healthy"), shown
    gauges = follower.fleet("metrics")[0].splitlines()
    assert {'millrace_fleet_switch_in_sync{switch="sw1"} 1', 'millrace_fleet_switch_healthy{switch="sw1"} 1',
            f'millrace_fleet_answered_revision{{switch="sw1"}} {ack["mod_revision"]}', 'millrace_fleet_rollouts{state="done"} 1'} <= set(gauges)
    # Objects of etcd are changed there alone.
    config = follower.config()
    tables(3000)(config)
    refused = follower.switch.rest.put(f"{follower.switch.url}/config", json=config, headers={"If-Match": "*"}, timeout=60)
    assert refused.status_code == 409 and "change its document in etcd" in refused.text
    # What the switch does not know, and what contradicts, is refused with its place; what ran before runs.
    bad = follower.document()["config"]
    bridge(bad)["colour"] = "red"
    follower.put(config=bad)
    ack = follower.wait_ack("refused")
    assert [error["pointer"] for error in ack["errors"]] == ["/bridge/0/colour"], ack
    assert size(follower) == 2000
    # A document that is unreadable, of a newer schema, or gone, changes nothing.
    for text, said in (("{", "unreadable"), (json.dumps(follower.document() | {"schema": 9}), "schema 9")):
        etcd.ctl("put", "/millrace/nodes/sw1/config", text)
        ack = follower.wait_ack("refused")
        assert said in ack["errors"][0]["detail"], ack
    etcd.ctl("del", "/millrace/nodes/sw1/config")
    assert "no document" in follower.fleet("status")[0]
    assert size(follower) == 2000


def test_a_switch_leaves_the_fleet_without_etcd_and_comes_back(etcd, follower):
    follower.attach()
    etcd.stop()
    # Break glass: the objects belong to people again, and the history says who did it.
    out, _ = follower.fleet("detach", "-m", "etcd burns")
    assert "belong to people again" in out
    newest = follower.revisions()[0]
    assert newest["operation"] == {"kind": "own"} and newest["comment"] == "etcd burns"
    follower.switch.change(tables(1500))
    etcd.start()
    wait_for("the status says so", lambda: follower.status().get("detached"))
    out, code = follower.fleet("push", "sw1", follower.file(tables(2000)), check=False)
    assert code == 1 and "sw1 is detached" in out, out
    follower.put(comment="a document nevertheless")
    ack = follower.wait_ack("refused")
    assert "belongs to local: `millrace fleet attach`" in ack["errors"][0]["detail"] and size(follower) == 1500
    out, code = follower.fleet("attach", check=False)
    assert code == 1 and "has another document" in out, out
    assert "mac_table_size" in follower.fleet("diff", "sw1")[0]
    follower.fleet("attach", "--take-document")
    follower.wait_ack("applied")
    wait_for("the document counts", lambda: size(follower) != 1500)


def test_what_a_lost_master_wrote_and_a_second_switch_of_one_name_are_fenced(tmp_path, etcd, follower):
    follower.attach()
    with master(follower) as paused:
        leader = wait_for("a master", lambda: etcd.ctl("get", "--print-value-only", "/millrace/leader").strip())
        follower.fleet("push", "sw1", follower.file(tables(2000)))
        old = follower.document()
        pause(paused)
        # Its lease ends, here at once; another one takes its place, and writes with a higher epoch.
        etcd.ctl("del", "/millrace/leader")
        follower.fleet("push", "sw1", follower.file(tables(3000)))
        follower.wait_ack("applied")
        assert follower.document()["epoch"] > old["epoch"]
        # What the first one could still write, had it not the condition of its transactions, the switch refuses.
        follower.put(epoch=old["epoch"], config=old["config"])
        ack = follower.wait_ack("refused")
        assert f"of epoch {old['epoch']}" in ack["errors"][0]["detail"] and size(follower) == 3000
        paused.send_signal(signal.SIGCONT)
        # It is no master any more: a push that follows does not wait for it, and epochs go on.
        follower.fleet("push", "sw1", follower.file(tables(4000)))
        assert size(follower) == 4000 and follower.document()["epoch"] > old["epoch"]
        assert f"process {paused.pid}" in leader
    # Another machine with this name waits, and takes nothing.
    with Follower(tmp_path, "sw1", etcd, ports=[(1, "memory")], name="double") as double:
        wait_for("it waits", lambda: "another process has this name" in double.agent.log.read_text())
        before = double.config()
        follower.fleet("push", "sw1", follower.file(tables(5000)))
        assert size(follower) == 5000 and double.config() == before


def test_a_rollout_stops_at_the_first_switch_that_fails_and_all_go_back(tmp_path, etcd):
    with followers(tmp_path, etcd, "sw1", "sw2", "sw3", "sw4") as switches:
        folder = tmp_path / "wanted"

        def wanted(edits):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for follower, edit in zip(switches, edits):
                shutil.copy(follower.file(edit), folder / f"{follower.node}.json")

        def broken(config):
            tables(2000)(config)
            bridge(config)["port"].append({"name": "p9", "number": 9, "device": "kernel:mr-fl-none"})

        before = [follower.config() for follower in switches]
        # The device of p9 does not exist: the switch runs the rest, the node does not confirm it, and the switch takes it back.
        wanted([tables(2000), broken, tables(2000), tables(2000)])
        out, code = switches[0].fleet("rollout", folder, "--first", "1", "--wave", "2", "--confirm-within", "20s", check=False)
        assert code == 1 and "sw2 took back the document" in out and "mr-fl-none" in out, out
        for follower, config in zip(switches, before):
            wait_for("what it had before", lambda follower=follower, config=config: follower.config() == config)
        # The canary ran it; the last wave was never touched.
        assert any(revision["comment"].startswith("document") for revision in switches[0].revisions())
        assert len(switches[3].revisions()) == len([one for one in switches[3].revisions() if one["origin"] != "etcd"])
        assert [row["state"] for row in json.loads(switches[0].fleet("history", "--json")[0])] == ["failed"]
        # A good one goes wave by wave, each with a person's confirmation, and can be taken back as a whole.
        wanted([tables(2000)] * 4)
        out, _ = switches[0].fleet("rollout", folder, "--first", "1", "--wave", "9", "--hold")
        rollout = re.search(r"roll-out (\S+): holding, 1 of 4", out).group(1)
        assert [size(follower) == 2000 for follower in switches] == [True, False, False, False]
        out, _ = switches[0].fleet("confirm", rollout)
        assert "done, 4 of 4" in out and all(size(follower) == 2000 for follower in switches), out
        switches[0].fleet("rollback", rollout)
        assert [follower.config() for follower in switches] == before
        # A switch that is away stops a roll-out before anything is written.
        switches[2].agent.stop()
        wanted([tables(2000)] * 4)
        out, code = switches[0].fleet("rollout", folder, check=False)
        assert code == 1 and "sw3 is away" in out and [follower.config() for follower in switches] == before, out


def test_a_document_that_cuts_the_way_to_etcd_comes_back_on_every_canary_and_stops_there(tmp_path):
    host, nodes = "10.77.9.1", ("sw1", "sw2")
    here = {node: (f"mr-{node}p", f"mr-{node}q") for node in nodes}
    there = {node: (f"mr-{node}r", f"mr-{node}s") for node in nodes}
    names = [f"mr-{node}" for node in nodes]
    with namespaces.made(*names), namespaces.cables(*here.values(), *there.values()), contextlib.ExitStack() as stack:
        run("ip", "address", "add", f"{host}/32", "dev", "lo")
        stack.callback(run, "ip", "address", "del", f"{host}/32", "dev", "lo", check=False)
        etcd = stack.enter_context(Etcd(tmp_path / "etcd", host=host))
        switches = []
        for number, node in enumerate(nodes):
            # The agent of each canary reaches etcd through the switch that it configures.
            inner, outer, space = there[node][1], here[node][1], f"mr-{node}"
            run("ip", "address", "add", f"10.77.10.{4 * number + 1}/30", "dev", outer)
            run("ip", "link", "set", inner, "netns", space)
            namespaces.inside(space, "ip", "address", "add", f"10.77.10.{4 * number + 2}/30", "dev", inner)
            namespaces.inside(space, "ip", "link", "set", inner, "up")
            namespaces.inside(space, "ip", "route", "add", host, "via", f"10.77.10.{4 * number + 1}")
            ports = [(1, f"kernel:{here[node][0]}"), (2, f"kernel:{there[node][0]}")]
            switches.append(stack.enter_context(Follower(tmp_path, node, etcd, ports, before=["ip", "netns", "exec", space],
                                                         extra=["cleartext = true"])).attach())
        last = stack.enter_context(Follower(tmp_path, "sw3", etcd, [(1, "memory")], extra=["cleartext = true"])).attach()
        before = [follower.config() for follower in (*switches, last)]
        revisions = len(last.revisions())

        def cut(config):
            bridge(config)["port"].pop()

        folder = tmp_path / "wanted"
        folder.mkdir()
        for follower, edit in ((switches[0], cut), (switches[1], cut), (last, tables(2000))):
            shutil.copy(follower.file(edit), folder / f"{follower.node}.json")
        out, code = last.fleet("rollout", folder, "--first", "2", "--wave", "5", "--confirm-within", "5s", check=False)
        assert code == 1 and "took back the document" in out and "not reached etcd" in out, out
        for follower, config in zip(switches, before):
            follower.wait_ack("applied")
            assert follower.config() == config
            kinds = [revision["operation"]["kind"] for revision in follower.revisions()]
            assert "expired" in kinds, (follower.node, kinds)
        # The second wave was never touched.
        assert last.config() == before[2] and len(last.revisions()) == revisions


def test_over_tls_a_switch_writes_its_own_answers_and_no_document(tmp_path):
    authority = Authority(tmp_path / "authority", "etcd")
    with Etcd(tmp_path / "etcd", authority=authority) as etcd:
        # As docs/fleet.md has it.
        for user in ("root", "operator", "sw1"):
            etcd.ctl("user", "add", f"{user}:secret of {user}")
        etcd.ctl("role", "add", "fleet")
        etcd.ctl("role", "grant-permission", "fleet", "--prefix=true", "readwrite", "/millrace/")
        etcd.ctl("user", "grant-role", "operator", "fleet")
        etcd.ctl("role", "add", "sw1")
        etcd.ctl("role", "grant-permission", "sw1", "--prefix=true", "read", "/millrace/nodes/sw1/")
        for key in ("ack", "status"):
            etcd.ctl("role", "grant-permission", "sw1", "write", f"/millrace/nodes/sw1/{key}")
        etcd.ctl("user", "grant-role", "sw1", "sw1")
        etcd.ctl("user", "grant-role", "root", "root")
        etcd.ctl("auth", "enable")
        etcd.options += ["--user", "root:secret of root"]
        sections = {}
        for user in ("operator", "sw1"):
            password = tmp_path / f"{user}.password"
            password.write_text(f"secret of {user}\n")
            sections[user] = [f'ca = "{authority.certificate}"', f'user = "{user}"', f'password_file = "{password}"']
        operator = tmp_path / "operator.toml"
        operator.write_text(etcd.settings("sw1", sections["operator"]))
        with Follower(tmp_path, "sw1", etcd, ports=[(1, "memory")], extra=sections["sw1"]) as follower:
            out, code = follower.fleet("attach", check=False)
            assert code == 1 and "permission denied" in out, out
            follower.fleet("attach", "--settings", operator)
            follower.wait_ack("applied")
            follower.fleet("push", "--settings", operator, "sw1", follower.file(tables(2000)))
            assert size(follower) == 2000
            # After a restart, etcd knows none of its tokens.
            etcd.stop()
            etcd.start()
            follower.fleet("push", "--settings", operator, "sw1", follower.file(tables(3000)))
            assert size(follower) == 3000
            # Another authority is no etcd of ours.
            operator.write_text(operator.read_text().replace(str(authority.certificate),
                                                             str(Authority(tmp_path / "other", "other").certificate)))
            out, code = follower.fleet("status", "--settings", operator, check=False)
            assert code == 1 and "does not answer" in out, out


@contextlib.contextmanager
def traffic(*cables, rate=200):
    """Frames from the first cable to the second, while the block runs; none may be lost."""
    (_, one), (_, other) = cables
    with Receiver(None, other) as receiver:
        with Sender(None, one, 1, source="10.0.0.1", destination="10.0.0.2", to_mac=MACS[1], from_mac=MACS[0], rate=rate) as sender:
            receiver.wait_first(1)
            yield
            sent = sender.end()["sent"]
        seen = receiver.end({1: sent})
    stream = seen["streams"]["1"]
    assert (stream["received"], stream["repeated"], stream["missing"]) == (sent, 0, 0), (sent, stream)


def test_the_switch_forwards_without_etcd_and_converges_afterwards(tmp_path):
    cables = ("mr-fl5", "mr-fl6"), ("mr-fl7", "mr-fl8")
    with namespaces.cables(*cables), Etcd(tmp_path / "etcd", count=3) as etcd:
        with Follower(tmp_path, "sw1", etcd, [(1, f"kernel:{cables[0][0]}"), (2, f"kernel:{cables[1][0]}")]) as follower:
            follower.attach()
            with traffic(*cables):
                # A member dies, another one hangs; two of three are enough, and one is not.
                etcd.members[0].stop()
                follower.fleet("push", "sw1", follower.file(tables(2000)))
                pause(etcd.members[1].process)
                wait_for("the log says so", lambda: "the switch keeps its configuration" in follower.agent.log.read_text())
                # The agent dies meanwhile, and comes back to nobody.
                follower.agent.stop(signal.SIGKILL)
                follower.agent.start()
                etcd.members[1].process.send_signal(signal.SIGCONT)
                etcd.start()
                # The lease of the one that was killed ends, here at once.
                etcd.ctl("del", "/millrace/nodes/sw1/status")
                wait_for("its successor", follower.status)
                follower.fleet("push", "sw1", follower.file(tables(3000)))
                backup = etcd.backup()
                # Revisions that are compacted away end a watch, and nothing else.
                follower.fleet("push", "sw1", follower.file(tables(4000)))
                etcd.ctl("compact", str(etcd.revision()))
                follower.fleet("push", "sw1", follower.file(tables(5000)))
                # A restored backup holds older documents: no switch goes back to one.
                etcd.restore(backup)
                wait_for("the switch says so", lambda: follower.ack().get("outcome") == "refused")
                assert "older than" in follower.ack()["errors"][0]["detail"] and size(follower) == 5000
                assert "refused" in follower.fleet("status")[0]
                # A person decides: the documents of the backup count, and what follows them.
                follower.fleet("adopt", "sw1")
                follower.wait_ack("applied")
                assert size(follower) == 3000
                follower.fleet("push", "sw1", follower.file(tables(6000)))
                assert size(follower) == 6000
