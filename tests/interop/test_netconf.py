"""NETCONF of a real switch: sessions over the server's socket, ncclient over OpenSSH, and the module by pyang and yanglint."""

import html
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from front_ends import BASE, CLIENTS, MODEL, FrontEnds, Netconf, Sshd
from switches import TARGET, Millrace, free_port, opened, run, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="roles of users need root")
GET = "<get-config><source><running/></source></get-config>"
COMMIT_CONFIRMED = "<commit><confirmed/><confirm-timeout>{}</confirm-timeout>{}</commit>"


@pytest.fixture
def switch(tmp_path):
    with Millrace(tmp_path / "switch", ports=[(1, "memory")]) as switch:
        yield switch


@pytest.fixture
def front_ends(tmp_path, switch):
    with FrontEnds(tmp_path / "mgmt", switch) as front_ends:
        yield front_ends


def ageing(switch):
    return switch.rest.get(f"{switch.url}/config", timeout=60).json()["bridge"][0]["mac_ageing_s"]


def test_an_edit_that_is_committed_runs_and_has_its_author_in_the_history(switch, front_ends):
    with Netconf(front_ends.netconf) as session:
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        assert ageing(switch) == 300
        session.ok("<validate><source><candidate/></source></validate>")
        session.ok("<commit/>")
        assert ageing(switch) == 600
        assert "<mac_ageing_s>600</mac_ageing_s>" in session.call(GET)
        assert "<link>up</link>" in session.call("<get/>")
        refused = session.fails(f'<edit-config><target><candidate/></target><config><bridge xmlns="{MODEL}"><name>br0</name>'
                                "<tables>0</tables></bridge></config></edit-config>", "invalid-value")
        assert "1 to 255" in refused
    newest = switch.rest.get(f"{switch.url}/revisions?limit=1", timeout=60).json()["revisions"][0]
    assert (newest["author"], newest["comment"], newest["origin"]) == ("root", "NETCONF commit", "local")


def test_a_lock_over_netconf_holds_against_rest_and_goes_with_its_connection(switch, front_ends):
    session = Netconf(front_ends.netconf)
    session.ok("<lock><target><running/></target></lock>")
    change = {"headers": {"content-type": "application/merge-patch+json"}, "timeout": 60, "data": '{"system": {"idle": "busy"}}'}
    assert switch.rest.patch(f"{switch.url}/config", **change).status_code == 423
    # The session commits under its own lock.
    session.edit("<mac_ageing_s>601</mac_ageing_s>")
    session.ok("<commit/>")
    assert ageing(switch) == 601
    session.close()
    wait_for("the lock is free", lambda: switch.rest.patch(f"{switch.url}/config", **change).status_code == 200)


def test_a_confirmed_commit_is_confirmed_after_both_programs_were_killed(tmp_path):
    with Millrace(tmp_path / "switch", ports=[(1, "memory")]) as switch:
        front_ends = FrontEnds(tmp_path / "mgmt", switch).start()
        session = Netconf(front_ends.netconf)
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        session.ok(COMMIT_CONFIRMED.format(600, "<persist>token 7</persist>"))
        front_ends.stop(signal.SIGKILL)
        session.close()
        switch.stop(signal.SIGKILL)
        switch.start()
        with front_ends, Netconf(front_ends.netconf) as other:
            assert ageing(switch) == 600
            other.fails("<commit><persist-id>another</persist-id></commit>", "invalid-value")
            other.ok("<commit><persist-id>token 7</persist-id></commit>")
        pending = switch.rest.get(f"{switch.url}/config/confirm", timeout=60).json()["pending"]
        assert pending is None and ageing(switch) == 600


def test_a_confirmed_commit_without_changes_is_confirmed_and_a_second_one_renames_what_confirms(switch, front_ends):
    with Netconf(front_ends.netconf) as session:
        session.ok(COMMIT_CONFIRMED.format(600, "<persist>a</persist>"))
        session.ok("<commit><persist-id>a</persist-id></commit>")
        session.fails("<commit><persist-id>a</persist-id></commit>", "invalid-value")
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        session.ok(COMMIT_CONFIRMED.format(600, "<persist>a</persist>"))
        session.ok(COMMIT_CONFIRMED.format(600, "<persist-id>a</persist-id><persist>b</persist>"))
        session.fails("<commit><persist-id>a</persist-id></commit>", "invalid-value")
        session.ok("<commit><persist-id>b</persist-id></commit>")
    assert ageing(switch) == 600


def test_elements_that_occur_twice_and_text_beside_elements_are_refused(front_ends):
    def edit(inner):
        return f'<edit-config><target><candidate/></target><config><bridge xmlns="{MODEL}"><name>br0</name>{inner}</bridge></config></edit-config>'
    with Netconf(front_ends.netconf) as session:
        for inner in ("<tables>2</tables><tables>3</tables>", "<name>br1</name>", "text", "<fail_mode><secure/></fail_mode>"):
            session.fails(edit(inner), "bad-element")
        key = f'<port><name xmlns:nc="{BASE}" nc:operation="delete">p1</name></port>'
        session.fails(edit(key), "bad-attribute")
        assert session.call(GET.replace("running", "candidate")) == session.call(GET)
        # Each mistake of the switch is named once.
        session.ok(edit("<port><name>p9</name></port>"))
        refused = session.fails("<validate><source><candidate/></source></validate>", "operation-failed")
        assert refused.count("missing key `number`") == 1, refused
        session.ok("<discard-changes/>")


def test_an_unconfirmed_commit_goes_with_its_session_and_with_its_time(switch, front_ends):
    session = Netconf(front_ends.netconf)
    session.edit("<mac_ageing_s>600</mac_ageing_s>")
    session.ok(COMMIT_CONFIRMED.format(600, ""))
    assert ageing(switch) == 600
    session.close()
    wait_for("the end of the session takes it back", lambda: ageing(switch) == 300)
    with Netconf(front_ends.netconf) as session:
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        session.ok(COMMIT_CONFIRMED.format(1, ""))
        wait_for("the time takes it back", lambda: ageing(switch) == 300)


def test_a_commit_on_a_configuration_that_rest_has_changed_is_refused(switch, front_ends):
    with Netconf(front_ends.netconf) as session:
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        switch.change(lambda config: config["bridge"][0].update(mac_table_size=1024))
        assert "<error-app-tag>stale</error-app-tag>" in session.fails("<commit/>", "operation-failed")
        session.ok("<discard-changes/>")
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        session.ok("<commit/>")
    config = switch.rest.get(f"{switch.url}/config", timeout=60).json()["bridge"][0]
    assert (config["mac_ageing_s"], config["mac_table_size"]) == (600, 1024)


def test_a_subscriber_hears_of_changes_that_others_make(switch, front_ends):
    with Netconf(front_ends.netconf) as session:
        session.ok('<create-subscription xmlns="urn:ietf:params:xml:ns:netconf:notification:1.0"/>')

        def change(value):
            switch.change(lambda config: config["bridge"][0].update(mac_ageing_s=value))
            return True

        # The server may not follow the switch yet when it has just started.
        values = iter(range(400, 1000))
        session.socket.settimeout(5)

        def heard():
            change(next(values))
            try:
                return session.receive()
            except TimeoutError:
                return None

        message = wait_for("a notification", heard)
        assert "<username>root</username>" in message and "<operation>replace</operation>" in message, message
        assert "/mr:bridge[mr:name='br0']/mr:mac_ageing_s" in message.replace("&apos;", "'"), message


def test_hostile_bytes_end_their_session_alone(switch, front_ends):
    with Netconf(front_ends.netconf) as good:
        for bad in (b"\n#0\n", b"x" * (5 << 20), b"\xff" * 100 + b"]]>]]>", b"<hello/>]]>]]>",
                    b'<!DOCTYPE x [<!ENTITY a "aaaa">]><hello xmlns="' + BASE.encode() + b'">&a;</hello>]]>]]>'):
            with socket.socket(socket.AF_UNIX) as hostile:
                hostile.settimeout(60)
                hostile.connect(str(front_ends.netconf))
                try:
                    hostile.sendall(bad + bad)
                    while hostile.recv(65536):
                        pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
        deep = "<a>" * 200 + "</a>" * 200
        assert "malformed-message" in good.call(deep)
        assert "<data>" in good.call(GET) or "<data" in good.call(GET)


def test_an_administrator_ends_a_session(front_ends):
    with Netconf(front_ends.netconf) as admin:
        other = Netconf(front_ends.netconf)
        admin.ok(f"<kill-session><session-id>{other.id}</session-id></kill-session>")
        with pytest.raises(ConnectionError):
            other.call(GET)
        other.close()


@pytest.mark.skipif(shutil.which("sshd", path="/usr/sbin") is None, reason="openssh-server is not installed")
def test_ncclient_over_openssh_edits_locks_and_commits(tmp_path, switch, front_ends):
    manager = pytest.importorskip("ncclient.manager", reason="ncclient: scripts/setup.sh management")
    with Sshd(tmp_path / "ssh", front_ends, free_port()) as sshd, manager.connect(
        host="127.0.0.1", port=sshd.port, username="root", key_filename=str(sshd.key), hostkey_verify=False,
        allow_agent=False, look_for_keys=False, timeout=60,
    ) as session:
        capabilities = list(session.server_capabilities)
        assert any("base:1.1" in one for one in capabilities) and any(MODEL in one for one in capabilities)
        config = f"""<config xmlns="{BASE}"><bridge xmlns="{MODEL}"><name>br0</name><mac_ageing_s>600</mac_ageing_s>
            <port><name>p7</name><number>7</number><device>memory</device></port></bridge></config>"""
        with session.locked("candidate"), session.locked("running"):
            session.edit_config(target="candidate", config=config, error_option="rollback-on-error")
            session.validate("candidate")
            session.commit()
        assert ageing(switch) == 600
        subtree = ("subtree", f'<bridge xmlns="{MODEL}"><name>br0</name><port><name>p7</name></port></bridge>')
        data = session.get_config("running", filter=subtree).data_xml
        assert "<number>7</number>" in data and "p1" not in data
        xpath = ("xpath", ({"m": MODEL}, "/m:bridge/m:port[m:name='p7']/m:number"))
        data = session.get_config("running", filter=xpath).data_xml
        assert "<number>7</number>" in data and "p1" not in data and "device" not in data
        session.edit_config(target="candidate", config=config.replace("600", "700"))
        session.commit(confirmed=True, timeout="600", persist="abc")
        assert ageing(switch) == 700
        session.cancel_commit(persist_id="abc")
        assert ageing(switch) == 600
        module = session.get_schema("millrace").data
        assert module.strip().startswith("module millrace {")
        with pytest.raises(Exception, match="does not exist"):
            session.edit_config(target="candidate", config=config.replace("<port>", '<port xmlns:nc="%s" nc:operation="delete">' % BASE)
                                .replace("p7", "p8"))


@pytest.mark.skipif(shutil.which("sshd", path="/usr/sbin") is None, reason="openssh-server is not installed")
def test_a_time_that_is_over_and_a_connection_that_is_reset_are_noticed_in_seconds(tmp_path, switch, front_ends):
    """The bounds hold on a machine that does nothing else (`make management`); on a loaded one, the test has those of every wait."""
    manager = pytest.importorskip("ncclient.manager", reason="ncclient: scripts/setup.sh management")
    with Netconf(front_ends.netconf) as session:
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        began = time.monotonic()
        session.ok(COMMIT_CONFIRMED.format(1, "<persist>x</persist>"))
        assert ageing(switch) == 600
        wait_for("the time takes it back", lambda: ageing(switch) == 300)
        returned = time.monotonic() - began - 1
    change = {"headers": {"content-type": "application/merge-patch+json"}, "timeout": 60, "data": '{"system": {"idle": "busy"}}'}
    with Sshd(tmp_path / "ssh", front_ends, free_port()) as sshd:
        session = manager.connect(host="127.0.0.1", port=sshd.port, username="root", key_filename=str(sshd.key), hostkey_verify=False,
                                  allow_agent=False, look_for_keys=False, timeout=60)
        session.lock("running")
        assert switch.rest.patch(f"{switch.url}/config", **change).status_code == 423
        # RST instead of FIN.
        connection = session._session._transport.sock
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        began = time.monotonic()
        os.close(connection.detach())
        wait_for("the lock is free", lambda: switch.rest.patch(f"{switch.url}/config", **change).status_code == 200)
        freed = time.monotonic() - began
    said = f"a time-out is over after {1000 * returned:.0f} ms more, a lock is free {1000 * freed:.0f} ms after the reset of its connection"
    print(said)
    assert not os.environ.get("MILLRACE_NETCONF_LONG") or (returned < 1 and freed < 2), said


def handed_out(session, folder):
    """Writes the modules that the server hands out into a folder, and returns their paths by name."""
    folder.mkdir()
    listed = session.call('<get><filter><netconf-state xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"><schemas/></netconf-state>'
                          "</filter></get>")
    found = {}
    for name, revision in re.findall(r"<identifier>(.*?)</identifier><version>(.*?)</version>", listed):
        reply = session.call('<get-schema xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-monitoring"><identifier>'
                             f"{name}</identifier><version>{revision}</version></get-schema>")
        text = html.unescape(re.search(r"<data[^>]*>(.*)</data>", reply, re.DOTALL).group(1))
        found[name] = folder / f"{name}@{revision}.yang"
        found[name].write_text(text)
    return found


def data_of(reply):
    return re.search(r"<data[^>]*>(.*)</data>", reply, re.DOTALL).group(1)


WITH_ALL = '<with-defaults xmlns="urn:ietf:params:xml:ns:yang:ietf-netconf-with-defaults">report-all</with-defaults>'
# A router, a LAG, queues, and whatever else has lists in lists.
RICH = '''
[[bridge.lag]]
name = "lag1"
member = [{ name = "m1", number = 21, device = "memory" }, { name = "m2", number = 22, device = "memory" }]
[[bridge.port]]
name = "uplink"
number = 9
device = "lag:lag1"
[[bridge.port]]
name = "shaped"
number = 10
device = "memory"
down = true
trunks = [10, 20]
vlan = 5
policer = { kind = "srtcm", cir = "1Mbps" }
[[bridge.port.queue]]
id = 1
max_rate = "10Mbps"
[[vrf]]
name = "blue"
[[interface]]
name = "mr-ncv10"
vrf = "blue"
bridge = "br0"
vlan = 10
mtu = 1400
address = ["10.0.10.1/24", "10.0.11.1/24", "2001:db8:10::1/64"]
[[acl]]
name = "edge"
rules = ["permit tcp,tp_dst=22", "deny ip"]
'''


@pytest.mark.skipif(shutil.which("yanglint") is None, reason="yanglint: scripts/setup.sh management")
def test_data_of_every_reply_is_valid_by_the_modules_that_the_server_hands_out(tmp_path):
    with Millrace(tmp_path / "switch", ports=[(1, "memory")], extra=RICH) as switch, FrontEnds(tmp_path / "mgmt", switch) as front_ends, \
            Netconf(front_ends.netconf) as session:
        modules = handed_out(session, tmp_path / "modules")
        assert set(modules) == {"millrace", "ietf-interfaces", "ietf-ip", "iana-if-type", "ietf-yang-types", "ietf-inet-types"}
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        both = (f'<filter><bridge xmlns="{MODEL}"/><switch_state xmlns="{MODEL}"/><interface xmlns="{MODEL}"/><vrf xmlns="{MODEL}"/>'
                '<interfaces xmlns="urn:ietf:params:xml:ns:yang:ietf-interfaces"/></filter>')
        replies = {
            "running": ("config", GET), "candidate": ("config", GET.replace("running", "candidate")),
            "defaults": ("config", f"<get-config><source><running/></source>{WITH_ALL}</get-config>"),
            "filtered": ("config", f"<get-config><source><running/></source>{both}</get-config>"),
            "state": ("get", f"<get>{both}</get>"), "state with defaults": ("get", f"<get>{both}{WITH_ALL}</get>"),
        }
        for name, (kind, operation) in replies.items():
            data = data_of(session.call(operation))
            assert "<ip>2001:db8:10::1</ip>" in data and ("<queue>" in data) and "ieee8023adLag" in data, data
            path = tmp_path / f"{name}.xml"
            path.write_text(data)
            done = subprocess.run(["yanglint", "-p", tmp_path / "modules", "-F", "ietf-interfaces:if-mib", "-t", kind,
                                   *(modules[one] for one in ("millrace", "ietf-interfaces", "ietf-ip", "iana-if-type")), path],
                                  capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        # The check can fail.
        path.write_text(data.replace("<oper-status>", "<oper-status>very "))
        assert subprocess.run(done.args, capture_output=True, timeout=60).returncode != 0


def test_the_modules_are_valid_by_three_tools(tmp_path, front_ends):
    tools = 0
    with Netconf(front_ends.netconf) as session:
        modules = handed_out(session, tmp_path / "modules")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, CLIENTS.glob("lib/python3.*/site-packages")))}
    where = ["-p", tmp_path / "modules"]

    def checked(*command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0 and "error" not in done.stderr, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    if shutil.which("yanglint"):
        tools += 1
        for path in modules.values():
            checked("yanglint", *where, path)
    if (CLIENTS / "bin" / "pyang").exists():
        tools += 1
        for path in modules.values():
            checked(sys.executable, CLIENTS / "bin" / "pyang", *where, path)
        # The rules for modules of the IETF do not hold for its own; those of RFC 8407 for all do.
        checked(sys.executable, CLIENTS / "bin" / "pyang", "--strict", *where, modules["millrace"])
        checked(sys.executable, CLIENTS / "bin" / "pyang", "--lint", *where, modules["millrace"])
    if (CLIENTS / "bin" / "yangson").exists():
        tools += 1
        library = tmp_path / "library.json"
        entries = [{"name": path.stem.split("@")[0], "revision": path.stem.split("@")[1], "namespace": namespace_of(path),
                    "conformance-type": "import" if path.stem.startswith(("ietf-yang-types", "ietf-inet-types")) else "implement",
                    **({"feature": ["if-mib"]} if path.stem.startswith("ietf-interfaces") else {})} for path in modules.values()]
        library.write_text(json.dumps({"ietf-yang-library:modules-state": {"module-set-id": "1", "module": entries}}))
        assert "bridge" in checked(sys.executable, CLIENTS / "bin" / "yangson", *where, "-t", library)
    if not tools:
        pytest.skip("neither yanglint nor pyang nor yangson is installed: scripts/setup.sh management")


def namespace_of(path):
    return re.search(r'namespace\s+"(.*?)"', path.read_text()).group(1)


def test_the_program_runs_as_a_user_whom_the_switch_admits_by_its_group(tmp_path):
    opened(tmp_path)
    program = tmp_path / "millrace-mgmt"
    shutil.copy(TARGET / "millrace-mgmt", program)
    folder = tmp_path / "mgmt"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]
    with Millrace(tmp_path / "switch", ports=[(1, "memory")], api='group = "nogroup"') as switch, \
            FrontEnds(folder, switch, before=nobody, program=program) as front_ends, Netconf(front_ends.netconf) as session:
        session.edit("<mac_ageing_s>600</mac_ageing_s>")
        session.ok("<commit/>")
        newest = switch.rest.get(f"{switch.url}/revisions?limit=1", timeout=60).json()["revisions"][0]
        assert (newest["author"], ageing(switch)) == ("nobody (root)", 600)


def test_the_man_page_and_the_check_of_the_settings(tmp_path, front_ends):
    assert ".TH millrace-mgmt 8" in run(TARGET / "millrace-mgmt", "--man")
    run(TARGET / "millrace-mgmt", "serve", "--config", front_ends.config, "--check")
    bad = tmp_path / "bad.toml"
    bad.write_text('[gnmi]\nlisten = ["127.0.0.1:1"]\n')
    done = subprocess.run([TARGET / "millrace-mgmt", "serve", "--config", bad, "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "client_ca" in done.stderr, done.stderr
