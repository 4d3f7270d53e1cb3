"""EVE JSON of intrusion prevention, judged by a complete implementation of JSON Schema, and by EveBox where `make ips-check` has
built it."""

import collections
import contextlib
import itertools
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess

import pytest

import conversations
from certificates import Authority
from switches import ROOT, TARGET, end, run, wait_for

SCHEMA = ROOT / "docs" / "eve.schema.json"
RULES = r"""
alert http any any -> any any (msg:"a file is asked for"; flow:to_server; http.uri; content:".pdf"; flowbits:set,asked; classtype:misc-attack; metadata:created_at 2026_01_02, tag a, tag b; sid:1; rev:2;)
alert http any any -> any any (msg:"the file comes"; flow:to_client; flowbits:isset,asked; file.data; content:"%PDF"; sid:2;)
alert dns any any -> any any (msg:"a name"; dns.query; content:"example"; sid:3;)
alert icmp any any -> any any (msg:"a ping"; itype:8; sid:4;)
drop tcp any any -> any 22 (msg:"no shell"; flow:established,to_server; content:"PuTTY"; sid:5;)
rejectboth tcp any any -> any 25 (msg:"no mail"; flow:established,to_server; content:"QUIT"; sid:6;)
rejectsrc udp any any -> any 5060 (msg:"no calls"; content:"OPTIONS"; sid:7;)
"""
RECORDS = {"http", "dns", "tls", "smtp", "ftp", "ssh", "smb", "sip", "modbus", "dnp3"}
EVERY = RECORDS | {"alert", "anomaly", "fileinfo", "flow", "stats"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eve")
    (folder / "rules").write_text(RULES)
    keys = Authority(folder, "eve").sign("www.example.com", "DNS:www.example.com")
    conversations.every_protocol(*keys).write(folder / "day.pcap")
    return folder


def read(folder, *arguments):
    """Returns the records of the capture."""
    out = folder / "eve.json"
    run(TARGET / "millrace", "ips", "read", folder / "day.pcap", "--rules", folder / "rules", "--eve", out, *arguments)
    return [json.loads(line) for line in out.read_text().splitlines()]


def validator():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def by_type(records):
    return collections.Counter(record["event_type"] for record in records)


@pytest.mark.parametrize(("mode", "version"), list(itertools.product(("ids", "ips"), ("7", "8"))))
def test_every_record_conforms_to_the_schema_in_each_mode_and_layout(folder, mode, version):
    records = read(folder, "--mode", mode, "--eve-version", version, "--packets")
    valid = validator()
    for record in records:
        errors = [f"{error.json_path}: {error.message}" for error in valid.iter_errors(record)]
        assert not errors, (record, errors)
    # In line, the call is rejected before its record is complete.
    expected = EVERY if mode == "ids" else EVERY - {"sip"} | {"drop"}
    assert set(by_type(records)) == expected


def test_the_schema_refuses_a_record_with_another_name_or_type(folder):
    valid = validator()
    record = next(record for record in read(folder) if record["event_type"] == "http")
    assert valid.is_valid(record)
    for change in ({"flow_id": "1"}, {"srcip": "10.0.0.1"}, {"timestamp": "yesterday"}, {"http": {"status": "200", "length": 1}},
                   {"event_type": "web"}):
        assert not valid.is_valid(record | change), change


def test_records_have_the_values_of_the_conversations(folder):
    records = read(folder, "--mode", "ips", "--packets")

    def first(kind, condition=lambda record: True):
        return next(record for record in records if record["event_type"] == kind and condition(record))

    def alert(sid):
        return first("alert", lambda record: record["alert"]["signature_id"] == sid)

    asked = first("http", lambda record: record["http"]["http_method"] == "GET")["http"]
    assert asked["url"] == "/file\\xFF.pdf?a=b" and asked["hostname"] == "example.com" and asked["http_port"] == 8080
    assert (asked["status"], asked["http_content_type"], asked["content_range"]["raw"]) == (206, "application/pdf", "bytes 0-17/18")
    assert first("fileinfo", lambda record: record["app_proto"] == "http")["fileinfo"]["magic"] == "PDF document"
    tls = first("tls")["tls"]
    assert (tls["sni"], tls["version"], tls["client_alpns"]) == ("www.example.com", "TLS 1.2", ["h2", "http/1.1"])
    assert "CN=www.example.com" in tls["subject"] and len(tls["ja3"]["hash"]) == 32 and tls["ja4"].startswith("t12d")
    assert first("smtp")["email"]["attachment"] == ["report.pdf"]
    assert first("ftp", lambda record: record["ftp"].get("command") == "PASV")["ftp"]["dynamic_port"] == 50000
    answer = first("dns", lambda record: record["dns"]["type"] == "answer")["dns"]
    assert [(resource["rrtype"], resource["rdata"]) for resource in answer["answers"]] == [("CNAME", "example.com"), ("A", "192.0.2.1")]
    assert first("modbus")["modbus"]["request"]["function_raw"] == 3
    assert alert(1)["metadata"]["flowbits"] == ["asked"] and alert(1)["alert"]["metadata"]["tag"] == ["a", "b"]
    assert alert(2)["files"][0]["size"] == 18
    # "ping" in Base64.
    assert alert(4)["payload"] == "cGluZw=="
    assert alert(5)["alert"]["action"] == "blocked" and alert(5)["verdict"] == {"action": "drop"}
    assert alert(6)["verdict"] == {"action": "drop", "reject-target": "both", "reject": ["tcp-reset"]}
    assert alert(7)["verdict"] == {"action": "drop", "reject-target": "to_client", "reject": ["icmp-prohib"]}


def evebox():
    """Returns the program that `make ips-check` builds, or that is on PATH."""
    built = ROOT / "target" / "evebox" / "bin" / "evebox"
    return built if built.exists() else shutil.which("evebox")


@contextlib.contextmanager
def oneshot(folder, program, eve):
    """Starts EveBox over a file of events; yields its database once all events are in it."""
    database, log = folder / "evebox.sqlite", (folder / "evebox.log").open("w")
    environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    command = [program, "oneshot", "--no-open", "--host", "127.0.0.1", "--database-filename", database, eve]
    process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
    try:
        text = pathlib.Path(log.name)

        def started():
            assert process.poll() is None, text.read_text()
            return "Server started at" in text.read_text()

        wait_for("EveBox has read the events", started, 60)
        with contextlib.closing(sqlite3.connect(database)) as connection:
            yield connection
    finally:
        end(process)
        log.close()


def test_evebox_lists_and_counts_our_alerts(folder):
    program = evebox()
    if not program:
        pytest.skip("EveBox is not there: `make ips-check` builds it")
    records = read(folder, "--mode", "ips", "--packets")
    with oneshot(folder, program, folder / "eve.json") as database:
        rows = [json.loads(source) for (source,) in database.execute("SELECT source FROM events")]
    assert by_type(rows) == by_type(records)

    def alerts(events):
        return collections.Counter((event["alert"]["signature_id"], event["alert"]["action"]) for event in events if event["event_type"] == "alert")

    assert alerts(rows) == alerts(records) and sum(alerts(rows).values()) >= 7
