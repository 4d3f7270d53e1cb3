"""The switch's objects of SNMP as series of Prometheus: the SNMP exporter with its module `if_mib`, by snmpd and millrace-mgmt."""

import os
import re
import shutil
import subprocess

import pytest
import requests
import yaml

from namespaces import cables, packet_socket_here
from switches import Millrace, end, free_port, wait_for
from test_ovsdb import frame
from test_snmp import CABLES, IF_NAME, Mgmt, Snmpd

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="making interfaces needs root"),
    pytest.mark.skipif(any(shutil.which(tool) is None for tool in ("snmpd", "snmpwalk", "prometheus-snmp-exporter")),
                       reason="snmpd, prometheus-snmp-exporter: scripts/setup.sh management installs them"),
]

IF_TABLE, IF_X_TABLE = "1.3.6.1.2.1.2.2.1", "1.3.6.1.2.1.31.1.1.1"
# The metrics of `if_mib`: its generator makes one of each column of ifTable and ifXTable. Debian's package has no file of modules, since
# it may not hold the MIBs that they are made of.
METRICS = [
    *((name, f"{IF_TABLE}.{column}", kind) for column, name, kind in [
        (1, "ifIndex", "gauge"), (4, "ifMtu", "gauge"), (5, "ifSpeed", "gauge"), (6, "ifPhysAddress", "PhysAddress48"), (7, "ifAdminStatus", "gauge"),
        (8, "ifOperStatus", "gauge"), (9, "ifLastChange", "gauge"), (10, "ifInOctets", "counter"), (11, "ifInUcastPkts", "counter"),
        (12, "ifInNUcastPkts", "counter"), (13, "ifInDiscards", "counter"), (14, "ifInErrors", "counter"), (15, "ifInUnknownProtos", "counter"),
        (16, "ifOutOctets", "counter"), (17, "ifOutUcastPkts", "counter"), (18, "ifOutNUcastPkts", "counter"), (19, "ifOutDiscards", "counter"),
        (20, "ifOutErrors", "counter"), (21, "ifOutQLen", "gauge"), (22, "ifSpecific", "OctetString")]),
    *((name, f"{IF_X_TABLE}.{column}", kind) for column, name, kind in [
        (1, "ifName", "DisplayString"), (2, "ifInMulticastPkts", "counter"), (3, "ifInBroadcastPkts", "counter"),
        (4, "ifOutMulticastPkts", "counter"), (5, "ifOutBroadcastPkts", "counter"), (6, "ifHCInOctets", "counter"),
        (7, "ifHCInUcastPkts", "counter"), (8, "ifHCInMulticastPkts", "counter"), (9, "ifHCInBroadcastPkts", "counter"),
        (10, "ifHCOutOctets", "counter"), (11, "ifHCOutUcastPkts", "counter"), (12, "ifHCOutMulticastPkts", "counter"),
        (13, "ifHCOutBroadcastPkts", "counter"), (14, "ifLinkUpDownTrapEnable", "gauge"), (15, "ifHighSpeed", "gauge"),
        (16, "ifPromiscuousMode", "gauge"), (17, "ifConnectorPresent", "gauge"), (18, "ifAlias", "DisplayString"),
        (19, "ifCounterDiscontinuityTime", "gauge")]),
    ("ifType", f"{IF_TABLE}.3", "EnumAsInfo"),
]
LABELS = [("ifAlias", f"{IF_X_TABLE}.18"), ("ifDescr", f"{IF_TABLE}.2"), ("ifName", f"{IF_X_TABLE}.1")]
# Counters of REST by the metrics that have their values. Those of 64 bits are exact, and the others are their low bits.
COUNTERS = {
    "ifHCInOctets": ("rx", "bytes"), "ifHCInUcastPkts": ("rx", "packets"), "ifHCOutOctets": ("tx", "bytes"), "ifHCOutUcastPkts": ("tx", "packets"),
    "ifInOctets": ("rx", "bytes"), "ifInUcastPkts": ("rx", "packets"), "ifOutOctets": ("tx", "bytes"), "ifOutUcastPkts": ("tx", "packets"),
    "ifInDiscards": ("rx", "drops"), "ifInErrors": ("rx", "errors"), "ifOutDiscards": ("tx", "drops"), "ifOutErrors": ("tx", "errors"),
}


def module(community):
    """Returns a file with `if_mib` as the exporter's generator writes it."""
    rows = [{"name": "sysUpTime", "oid": "1.3.6.1.2.1.1.3", "type": "gauge", "help": "-"},
            {"name": "ifNumber", "oid": "1.3.6.1.2.1.2.1", "type": "gauge", "help": "-"}]
    for name, oid, kind in METRICS:
        lookups = [{"labels": ["ifIndex"], "labelname": label, "oid": column, "type": "DisplayString"} for label, column in LABELS]
        row = {"name": name, "oid": oid, "type": kind, "help": "-", "indexes": [{"labelname": "ifIndex", "type": "gauge"}], "lookups": lookups}
        if kind == "EnumAsInfo":
            row["enum_values"] = {6: "ethernetCsmacd", 161: "ieee8023adLag"}
        rows.append(row)
    return yaml.safe_dump({"if_mib": {"walk": ["1.3.6.1.2.1.2", "1.3.6.1.2.1.31.1.1"], "get": ["1.3.6.1.2.1.1.3.0"], "metrics": rows,
                                      "version": 2, "auth": {"community": community}}})


class Exporter:
    """The SNMP exporter."""

    def __init__(self, folder, snmpd, community="switch"):
        self.port, self.snmpd = free_port(), snmpd
        (folder / "snmp.yml").write_text(module(community))
        self.log = (folder / "exporter.log").open("w")
        self.process = subprocess.Popen(["prometheus-snmp-exporter", f"--config.file={folder / 'snmp.yml'}",
                                         f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)

    def text(self):
        """Returns what a scrape of Prometheus reads; nothing before the exporter answers."""
        try:
            answer = requests.get(f"http://127.0.0.1:{self.port}/snmp", params={"target": f"127.0.0.1:{self.snmpd.port}"}, timeout=60)
        except requests.RequestException:
            return ""
        assert answer.status_code == 200 or "timeout" in answer.text, answer.text
        return answer.text if answer.ok else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.log.close()


def series(text):
    """Returns {(metric, labels): value} of a page of metrics."""
    found = {}
    for name, inner, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
        labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', inner)))
        assert (name, labels) not in found, f"{name}{labels} is there twice"
        found[name, labels] = float(value)
    return found


def interfaces(text):
    """Returns {ifName: {metric: value}}, and {ifName: labels}."""
    values, labels = {}, {}
    for (metric, pairs), value in series(text).items():
        of = dict(pairs)
        if "ifName" in of:
            values.setdefault(of["ifName"], {})[metric] = value
            labels[of["ifName"]] = {**labels.get(of["ifName"], {}), **of}
    return values, labels


def counters(switch):
    """Returns the counters of ports and members of LAGs by their names, as REST has them."""
    ports, lags = (switch.rest.get(f"{switch.url}/{what}", timeout=60).json() for what in ("bridges/br0/ports", "lags"))
    return {one["name"]: one for one in [*ports, *(member for lag in lags for member in lag["members"])]}


LAG = """
[[bridge.lag]]
name = "uplink"
[[bridge.lag.member]]
name = "m1"
number = 11
device = "memory"
[[bridge.lag.member]]
name = "m2"
number = 12
device = "memory"
"""


@pytest.mark.parametrize("community", ["switch", "public"])
def test_the_series_of_if_mib_are_the_counters_of_rest(tmp_path, community):
    """In a context of its own, and in the default one, where snmpd has no interfaces."""
    own = ["-I", "-ifTable,ifXTable,interfaces"] if community == "public" else []
    ports = [(1, f"kernel:{CABLES[0][1]}"), (2, f"kernel:{CABLES[1][1]}"), (3, "memory"), (5, "lag:uplink")]
    with cables(*CABLES), Millrace(tmp_path / "switch", ports=ports, fail_mode="standalone", extra=LAG) as switch, \
            Snmpd(tmp_path / "snmpd", own) as snmpd, Mgmt(tmp_path / "mgmt", switch, snmpd, context="" if own else "sw"), \
            Exporter(tmp_path, snmpd, community) as exporter:
        wait_for("the ports", lambda: len(snmpd.walk(IF_NAME, community)) == 6)
        with packet_socket_here(CABLES[0][0]) as sender:
            for size in range(50):
                sender.send(frame(5) + bytes(size))
        wait_for("the packets", lambda: switch.port_packets(2)[1] >= 50)
        wanted = {"p1", "p2", "p3", "p5", "m1", "m2"}

        def agrees():
            before = counters(switch)
            text = exporter.text()
            if not text or before != counters(switch):
                return None
            values, labels = interfaces(text)
            for name, one in before.items():
                for metric, (direction, field) in COUNTERS.items():
                    if values.get(name, {}).get(metric) != one[direction][field]:
                        return None
            return values, labels, before, text

        values, labels, rest, text = wait_for("the series", agrees)
        assert set(values) == set(rest) == wanted
        assert values["p1"]["ifHCInUcastPkts"] == 50 and rest["p2"]["tx"]["bytes"] > 50 * len(frame(5))
        assert labels["p1"]["ifDescr"] == "br0 p1" and labels["p1"]["ifAlias"] == f"kernel:{CABLES[0][1]}"
        assert labels["p1"]["ifPhysAddress"].lower() == rest["p1"]["mac"]
        assert [labels[name]["ifType"] for name in ("p1", "p5", "m1")] == ["ethernetCsmacd", "ieee8023adLag", "ethernetCsmacd"]
        assert {name for name, one in values.items() if one["ifOperStatus"] == 1} == {name for name, one in rest.items() if one["link"] == "up"}
        assert dict(series(text))["ifNumber", ()] == 6
        assert "level=error" not in (tmp_path / "exporter.log").read_text() and "level=warn" not in (tmp_path / "exporter.log").read_text()
