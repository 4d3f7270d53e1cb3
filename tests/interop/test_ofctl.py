"""ovs-ofctl drives the switch: every command of an operator, with ovs-ofctl's names and numbers."""

import json
import re
import subprocess

import pytest

from switches import Millrace, run, wait_for


@pytest.fixture(name="switch")
def running_switch(tmp_path):
    ports = [(1, "link:a"), (2, "link:a"), (3, f"pcap:tx={tmp_path}/sent.pcap")]
    with Millrace(tmp_path / "millrace", ports=ports) as switch:
        yield switch


def test_show_names_the_ports_and_the_datapath(switch):
    text = switch.ofctl("show")
    assert "dpid:0000000000000001" in text
    for name in ("1(p1)", "2(p2)", "3(p3)"):
        assert name in text


def test_flows_are_added_modified_and_deleted(switch):
    switch.ofctl("add-flow", "table=0,priority=7,cookie=0x2a,tcp,in_port=1,tp_dst=80,actions=output:2")
    flows = switch.ofctl("dump-flows")
    assert re.search(r"cookie=0x2a,.*priority=7,tcp,in_port=.*tp_dst=80 actions=output:", flows)
    switch.ofctl("mod-flows", "tcp,in_port=1,tp_dst=80,actions=output:3")
    assert re.search(r"actions=output:\"?(p3|3)", switch.ofctl("dump-flows"))
    switch.ofctl("del-flows", "--strict", "priority=8,tcp,in_port=1,tp_dst=80")
    assert "tp_dst=80" in switch.ofctl("dump-flows")
    switch.ofctl("del-flows", "--strict", "priority=7,tcp,in_port=1,tp_dst=80")
    assert "tp_dst=80" not in switch.ofctl("dump-flows")


def test_a_non_strict_delete_takes_what_it_covers(switch):
    for port in (1, 2):
        switch.ofctl("add-flow", f"in_port={port},dl_type=0x0800,actions=drop")
    switch.ofctl("del-flows", "in_port=1")
    flows = switch.ofctl("dump-flows", "--no-names")
    assert "in_port=1" not in flows and "in_port=2" in flows


def test_flows_go_to_the_table_that_they_name_and_goto_leads_on(switch):
    switch.ofctl("add-flow", "table=0,actions=goto_table:5")
    switch.ofctl("add-flow", "table=5,actions=output:3")
    assert "table=5" in switch.ofctl("dump-flows", "table=5")
    refused = switch.ofctl("add-flow", "table=5,actions=goto_table:5", check=False)
    assert "table=5" in switch.ofctl("dump-flows"), refused


def test_an_overlap_is_refused_when_asked(switch):
    switch.ofctl("add-flow", "priority=5,in_port=1,actions=drop")
    run("true")
    refused = switch.ofctl("add-flow", "check_overlap,priority=5,tcp,actions=drop", check=False)
    assert "tcp" not in switch.ofctl("dump-flows"), refused


def test_ports_and_tables_are_counted(switch):
    switch.ofctl("add-flow", "in_port=2,actions=output:3")
    frame = "ffffffffffff0200000000010800" + "00" * 46
    switch.ofctl("packet-out", f"in_port=CONTROLLER packet={frame} actions=output:1")
    wait_for("the packet went over the link and out", lambda: switch.port_packets(3)[1] == 1)
    assert switch.port_packets(1)[1] == 1 and switch.port_packets(2)[0] == 1
    flows = switch.ofctl("dump-flows")
    assert "n_packets=1, n_bytes=60" in flows
    tables = switch.ofctl("dump-tables")
    assert re.search(r"active=1, lookup=1, matched=1", tables)


def test_a_packet_out_is_sent_through_the_tables(switch):
    switch.ofctl("add-flow", "in_port=1,dl_src=02:00:00:00:00:01,actions=output:3")
    frame = "ffffffffffff0200000000010800" + "00" * 46
    switch.ofctl("packet-out", f"in_port=1 packet={frame} actions=TABLE")
    wait_for("the packet went out", lambda: switch.port_packets(3)[1] == 1)


def test_an_idle_flow_times_out(switch):
    switch.ofctl("add-flow", "idle_timeout=600,in_port=2,actions=drop")
    assert "idle_timeout=600" in switch.ofctl("dump-flows")
    switch.ofctl("add-flow", "idle_timeout=1,in_port=1,actions=drop")
    wait_for("it timed out", lambda: "in_port=1" not in switch.ofctl("dump-flows"))
    assert "in_port=2" in switch.ofctl("dump-flows")


def test_the_aggregate_counts_what_it_covers(switch):
    for port in (1, 2):
        switch.ofctl("add-flow", f"in_port={port},actions=drop")
    assert "flow_count=2" in switch.ofctl("dump-aggregate")


def test_a_port_is_brought_down_and_up(switch):
    switch.ofctl("mod-port", "p3", "down")
    assert "PORT_DOWN" in switch.ofctl("show")
    switch.ofctl("mod-port", "p3", "up")
    assert "PORT_DOWN" not in switch.ofctl("show")


def test_table_features_and_description_are_complete(switch):
    features = switch.ofctl("dump-table-features")
    for word in ("apply_actions", "ipv6_{src,dst,label}", "nd_{target,sll,tll}", "push_mpls", "dec_ttl"):
        assert word in features, features
    assert "Manufacturer" in switch.ofctl("dump-desc")


def test_a_controller_sees_a_flow_that_it_did_not_ask_to_name(switch):
    """ovs-ofctl looks up port names by default: both forms must work."""
    switch.ofctl("add-flow", "in_port=p1,actions=output:p3")
    assert "in_port=1" in switch.ofctl("dump-flows", "--no-names")


def test_a_bundle_is_carried_out_whole_or_not_at_all(switch, tmp_path):
    flows = tmp_path / "flows"
    lines = [f"table=1,priority=5,tcp,nw_dst=10.0.{n // 256}.{n % 256},actions=output:3" for n in range(2000)]
    flows.write_text("\n".join(lines) + "\n")
    switch.ofctl("add-flows", "--bundle", str(flows))
    assert "flow_count=2000" in switch.ofctl("dump-aggregate", "table=1")
    flows.write_text("delete\nadd table=2,actions=drop\nadd table=3,actions=goto_table:3\n")
    refused = switch.ofctl("add-flows", "--bundle", str(flows), check=False)
    assert "flow_count=2000" in switch.ofctl("dump-aggregate"), refused
    flows.write_text("delete\nadd priority=5,in_port=1,actions=drop\nadd check_overlap,priority=5,tcp,actions=drop\n")
    command = ["ovs-ofctl", "-O", "OpenFlow13", "add-flows", "--bundle", switch.target, str(flows)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60).stderr
    assert "OFPFMFC_OVERLAP" in refused and "priority=5,tcp" in refused, refused
    assert "flow_count=2000" in switch.ofctl("dump-aggregate"), refused
    flows.write_text("table=1,nw_dst=10.0.7.9,tcp,actions=output:1\n")
    switch.ofctl("replace-flows", "--bundle", str(flows))
    assert "flow_count=1" in switch.ofctl("dump-aggregate")


def test_a_table_that_is_left_alone_is_arranged_for_lookups(switch, tmp_path):
    # Entries of a second mask, added after those of another, are first compared directly.
    first = [f"in_port=1,dl_dst=02:00:00:00:00:{n:02x},actions=output:2" for n in range(17)]
    second = [f"tcp,nw_src=10.1.0.{n},nw_dst=10.2.0.{n},tp_src={n},tp_dst={n},actions=output:3" for n in range(60)]
    (tmp_path / "flows").write_text("\n".join(first + second))
    switch.ofctl("add-flows", str(tmp_path / "flows"))

    def classifier():
        [tables] = json.loads(switch.cli("show", "tables", "--json")).values()
        return next(table["classifier"] for table in tables if table["entries"] == 77)

    wait_for("a hash table for the many, compares for the few", lambda: classifier() == "tuples(1, 17 direct)")
