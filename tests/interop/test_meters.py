"""Meters: ovs-ofctl changes and lists them, and packets above the rate are dropped or remarked, and counted."""

import re
import time

import pytest

import openflow as of
from switches import Millrace, wait_for

FRAME = "ffffffffffff0200000000010800" + "00" * 46


@pytest.fixture(name="switch")
def running_switch(tmp_path):
    ports = [(1, "link:a"), (2, "link:a"), (3, f"pcap:tx={tmp_path}/3.pcap")]
    with Millrace(tmp_path / "millrace", ports=ports) as switch:
        yield switch


def test_meters_read_back_as_they_were_given(switch):
    given = [
        "meter=1 kbps bands=\ntype=drop rate=1000",
        "meter=2 pktps burst stats bands=\ntype=drop rate=300 burst_size=30\ntype=dscp_remark rate=100 burst_size=5 prec_level=1",
        "meter=controller pktps bands=\ntype=drop rate=50",
        "meter=slowpath kbps bands=\ntype=drop rate=9",
    ]
    for number in ("meter=1,kbps,band=type=drop,rate=1000",
                   "meter=2,pktps,burst,stats,band=type=drop,rate=300,burst_size=30,"
                   "type=dscp_remark,rate=100,burst_size=5,prec_level=1",
                   "meter=controller,pktps,band=type=drop,rate=50",
                   "meter=slowpath,kbps,band=type=drop,rate=9"):
        switch.ofctl("add-meter", number)
    listed = re.sub(r" *\n *", "\n", switch.ofctl("dump-meters"))
    for meter in given:
        assert meter in listed, f"{meter} in\n{listed}"
    switch.ofctl("mod-meter", "meter=1,pktps,band=type=drop,rate=7")
    assert "rate=7" in switch.ofctl("dump-meter", "meter=1")
    switch.ofctl("del-meter", "meter=1")
    assert "meter=1" not in switch.ofctl("dump-meters")
    switch.ofctl("del-meters")
    assert "meter=" not in switch.ofctl("dump-meters")
    features = switch.ofctl("meter-features")
    for word in ("max_meter:262144", "max_bands:16", "drop", "dscp_remark", "kbps", "pktps", "burst", "stats"):
        assert word in features, features


def test_what_is_wrong_with_a_meter_is_said(switch):
    switch.ofctl("add-meter", "meter=1,kbps,band=type=drop,rate=1000")
    for command, text, error in [
        ("add-meter", "meter=1,kbps,band=type=drop,rate=1000", "OFPMMFC_METER_EXISTS"),
        ("mod-meter", "meter=2,kbps,band=type=drop,rate=1000", "OFPMMFC_UNKNOWN_METER"),
        ("add-meter", "meter=3,kbps,band=" + ",".join(["type=drop,rate=1"] * 17), "OFPMMFC_OUT_OF_BANDS"),
        ("dump-meter", "meter=9", "OFPMMFC_UNKNOWN_METER"),
        ("meter-stats", "meter=9", "OFPMMFC_UNKNOWN_METER"),
        ("add-flow", "actions=meter:9,output:3", "OFPMMFC_INVALID_METER"),
    ]:
        said = switch.ofctl_errors(command, text)
        assert error in said, f"{command} {text}: {said}"


def test_a_deleted_meter_takes_its_flows_along(switch):
    switch.ofctl("add-meter", "meter=1,kbps,band=type=drop,rate=1000")
    switch.ofctl("add-flow", "in_port=1,actions=meter:1,output:3")
    switch.ofctl("add-flow", "in_port=2,actions=output:3")
    assert "meter:1" in switch.ofctl("dump-flows")
    assert re.search(r"meter:1 flow_count:1 ", switch.ofctl("meter-stats", "meter=1"))
    switch.ofctl("del-meter", "meter=1")
    flows = switch.ofctl("dump-flows", "--no-names")
    assert "in_port=1" not in flows and "in_port=2" in flows


def test_packets_that_come_too_fast_are_dropped_and_counted(switch):
    switch.ofctl("add-meter", "meter=5,pktps,burst,band=type=drop,rate=1,burst_size=3")
    switch.ofctl("add-flow", "in_port=2,actions=meter:5,output:3")
    with of.Client(switch.openflow_port) as client:
        start = time.monotonic()
        client.send(of.packet_out(1, bytes.fromhex(FRAME)) * 10)
        wait_for("the packets came", lambda: "packet_in_count:10 " in switch.ofctl("meter-stats", "meter=5"))
        most = 5 + time.monotonic() - start
    stats = switch.ofctl("meter-stats", "meter=5")
    found = re.search(r"meter:5 flow_count:1 packet_in_count:10 byte_in_count:600 duration:\S+ bands:\s*"
                      r"0: packet_count:(\d+) byte_count:(\d+)", stats)
    passed = 10 - int(found[1])
    assert 4 <= passed <= most and int(found[2]) == 60 * (10 - passed), stats
    wait_for("the others are sent", lambda: switch.port_packets(3)[1] == passed)
    drops = switch.cli("show", "drops")
    assert re.search(r"\bmeter\b", drops), drops
    assert "drop above 1 pktps, burst 3" in switch.cli("show", "meters")
