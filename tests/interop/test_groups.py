"""Groups: ovs-ofctl changes and lists them, and packets after groups equal those of Open vSwitch."""

import random
import re

from scapy.layers.l2 import Ether
from scapy.utils import PcapReader, PcapWriter

import pytest

import cases
from switches import Millrace, OpenVSwitch, wait_for

COUNT = 600
SEED = 20261122
FRAME = "ffffffffffff0200000000010800" + "00" * 46


@pytest.fixture(name="switch")
def running_switch(tmp_path):
    ports = [(1, "link:a"), (2, "link:a"), (3, f"pcap:tx={tmp_path}/3.pcap"), (4, f"pcap:tx={tmp_path}/4.pcap")]
    with Millrace(tmp_path / "millrace", ports=ports) as switch:
        yield switch


def dump(switch, command, *arguments):
    return switch.ofctl(command, *arguments, "--no-names")


def test_groups_read_back_as_they_were_given(switch):
    given = [
        "group_id=0,type=all,bucket=actions=output:3,bucket=actions=push_vlan:0x8100,set_field:4101->vlan_vid,output:4",
        "group_id=1,type=select,bucket=weight:7,actions=output:3,bucket=weight:2,watch_port:4,actions=output:4",
        "group_id=2,type=indirect,bucket=actions=group:1",
        "group_id=3,type=ff,bucket=watch_port:3,actions=output:3,bucket=watch_group:1,actions=group:1",
        "group_id=4294967040,type=all",
    ]
    for group in given:
        switch.ofctl("add-group", group)
    listed = dump(switch, "dump-groups")
    for group in given:
        assert group in listed, f"{group} in\n{listed}"
    switch.ofctl("mod-group", "group_id=0,type=all,bucket=actions=output:4")
    assert "group_id=0,type=all,bucket=actions=output:4\n" in dump(switch, "dump-groups")
    switch.ofctl("del-groups")
    assert "group_id" not in dump(switch, "dump-groups")


def test_groups_and_buckets_count(switch):
    switch.ofctl("add-group", "group_id=7,type=all,bucket=output:3,bucket=output:4")
    switch.ofctl("add-group", "group_id=8,type=indirect,bucket=group:7")
    switch.ofctl("add-flow", "in_port=2,actions=group:8")
    switch.ofctl("add-flow", "priority=5,in_port=1,actions=write_actions(group:7)")
    for _ in range(3):
        switch.ofctl("packet-out", f"in_port=CONTROLLER packet={FRAME} actions=output:1")
    wait_for("the packets went out", lambda: switch.port_packets(4)[1] == 3)
    stats = dump(switch, "dump-group-stats", "group_id=7")
    found = re.search(r"group_id=7,duration=[\d.]+s,ref_count=2,packet_count=3,byte_count=180,"
                      r"bucket0:packet_count=3,byte_count=180,bucket1:packet_count=3,byte_count=180", stats)
    assert found, stats
    assert dump(switch, "dump-group-stats").count("group_id=") == 2
    features = switch.ofctl("dump-group-features")
    for word in ("Types:  0xf", "Capabilities:  0xf", "output group set_field", "push_mpls"):
        assert word in features, features


def test_what_is_wrong_with_a_group_is_said(switch):
    switch.ofctl("add-group", "group_id=1,type=indirect,bucket=output:3")
    switch.ofctl("add-group", "group_id=2,type=indirect,bucket=group:1")
    for command, group, error in [
        ("add-group", "group_id=1,type=all", "OFPGMFC_GROUP_EXISTS"),
        ("mod-group", "group_id=9,type=all", "OFPGMFC_UNKNOWN_GROUP"),
        ("mod-group", "group_id=1,type=indirect,bucket=group:2", "OFPGMFC_LOOP"),
        ("del-groups", "group_id=1", "OFPGMFC_CHAINED_GROUP"),
        ("add-group", "group_id=9,type=ff,bucket=watch_group:8,output:3", "OFPGMFC_BAD_WATCH"),
        ("add-group", "group_id=9,type=all,bucket=group:8", "OFPBAC_BAD_OUT_GROUP"),
        ("add-flow", "actions=group:9", "OFPBAC_BAD_OUT_GROUP"),
    ]:
        said = switch.ofctl_errors(command, group)
        assert error in said, f"{command} {group}: {said}"


def test_a_deleted_group_takes_its_flows_along(switch):
    switch.ofctl("add-group", "group_id=1,type=indirect,bucket=output:3")
    switch.ofctl("add-flow", "in_port=1,actions=group:1")
    switch.ofctl("add-flow", "in_port=2,actions=output:3")
    assert "in_port=1" in dump(switch, "dump-flows", "out_group=1")
    assert "in_port=2" not in dump(switch, "dump-flows", "out_group=1")
    switch.ofctl("del-groups", "group_id=1")
    flows = dump(switch, "dump-flows")
    assert "in_port=1" not in flows and "in_port=2" in flows


def test_fast_failover_follows_the_port(switch):
    switch.ofctl("add-group", "group_id=1,type=ff,bucket=watch_port:3,output:3,bucket=watch_port:4,output:4")
    switch.ofctl("add-flow", "in_port=2,actions=group:1")

    def goes_to(port):
        before = switch.port_packets(port)[1]
        switch.ofctl("packet-out", f"in_port=CONTROLLER packet={FRAME} actions=output:1")
        wait_for(f"the packet left by port {port}", lambda: switch.port_packets(port)[1] == before + 1)

    goes_to(3)
    switch.ofctl("mod-port", "p3", "down")
    goes_to(4)
    switch.ofctl("mod-port", "p3", "up")
    goes_to(3)


def test_the_trace_names_the_bucket(switch):
    switch.ofctl("add-group", "group_id=5,type=select,bucket=weight:1,output:3")
    switch.ofctl("add-flow", "in_port=1,actions=group:5")
    said = switch.cli("trace", "br0", "in_port=1,tcp")
    assert "group 5 (select): bucket 0" in said and "output to port 3" in said, said
    shown = switch.cli("show", "groups")
    assert "select" in shown and "weight 1, output:3" in shown, shown


def test_packets_after_groups_equal_those_of_open_vswitch(tmp_path):
    generated = [GroupCase(random.Random(SEED + number), number) for number in range(COUNT)]
    groups, flows = tmp_path / "groups", tmp_path / "flows"
    groups.write_text("\n".join(line for case in generated for line in case.groups) + "\n")
    flows.write_text("\n".join(case.flow for case in generated) + "\n")
    with OpenVSwitch(tmp_path / "ovs") as ovs:
        theirs = sent_by_ovs(ovs, groups, flows, generated)
    ours = sent_by_millrace(tmp_path / "millrace", groups, flows, generated)
    wrong = [case for case in generated if ours.get(case.number) != theirs[case.number]]
    report = "\n".join(
        f"{case.groups}\n{case.flow}\n  in     {case.frame.hex()}\n  theirs {hexed(theirs[case.number])}"
        f"\n  ours   {hexed(ours.get(case.number, {}))}"
        for case in wrong[:3]
    )
    assert not wrong, f"{len(wrong)} of {COUNT} differ\n{report}"


class GroupCase:
    """A packet that a group forwards, and then an output. Each bucket writes an address of its own, which identifies its
    copies."""

    def __init__(self, rng, number):
        case = cases.make_case(rng, number)
        self.number, self.frame = number, case.frame
        kind = rng.choice(["all", "all", "indirect", "ff", "select"])
        buckets = 1 if kind in ("indirect", "select") else rng.randrange(1, 4)
        if kind == "ff":
            self.marks = [mark(0)]
        else:
            self.marks = [mark(at) for at in range(buckets)]
        lines = [bucket(rng, case, kind, at) for at in range(buckets)]
        self.groups = [f"group_id={number},type={kind},{','.join(lines)}"]
        number_used = number
        if rng.random() < 0.3:
            number_used = 100_000 + number
            self.groups.append(f"group_id={number_used},type=indirect,bucket=actions={change(rng, case)}group:{number}")
        # The output at the end sends the unchanged packet.
        self.marks.append(self.frame[:6])
        use = rng.choice([f"group:{number_used},output:2", f"output:2,group:{number_used}"])
        self.flow = f"priority=10,in_port=1,dl_src={cases.source(number)}{case.match},actions={use}"


def mark(at):
    return bytes([2, 0xBB, 0, 0, 0, at])


def change(rng, case):
    """Returns actions that are valid in any order, and in the order in which an action set executes them."""
    simple = [action for action in case.actions if re.match(r"set_field:.*->(eth|ip|ipv6|nw|tcp|udp|sctp|arp|nd)_|dec_ttl", action)
              and "eth_dst" not in action]
    chosen = {action.split("->")[-1]: action for action in rng.sample(simple, rng.randrange(len(simple) + 1))}
    tag = ["push_vlan:0x8100,set_field:%d->vlan_vid,set_field:%d->vlan_pcp" % (0x1000 | rng.randrange(1, 4095), rng.randrange(8))]
    actions = [*chosen.values(), *(tag if rng.random() < 0.3 and ",vlan" not in case.match else [])]
    rng.shuffle(actions)
    return "".join(f"{action}," for action in actions)


def bucket(rng, case, kind, at):
    address = ":".join(f"{byte:02x}" for byte in mark(at))
    watch = {"ff": "watch_port:2,", "select": "weight:1,"}.get(kind, "")
    return f"bucket={watch}actions={change(rng, case)}set_field:{address}->eth_dst,output:2"


def sent_by_ovs(ovs, groups, flows, generated):
    ovs.ofctl("add-groups", groups)
    ovs.ofctl("add-flows", flows)

    def all_sent():
        sent = read(ovs.tx_pcap(2))
        missing = [case.frame for case in generated if set(sent.get(case.number, {})) != set(case.marks)]
        ovs.send(1, missing)
        return not missing and sent

    return wait_for("Open vSwitch sent them all", all_sent, bound=300)


def sent_by_millrace(folder, groups, flows, generated):
    folder.mkdir()
    sent, received = folder / "sent.pcap", folder / "received.pcap"
    with PcapWriter(str(received), linktype=1) as writer:
        for case in generated:
            writer.write(Ether(case.frame))
    with Millrace(folder, ports=[(2, f"pcap:tx={sent}")]) as switch:
        switch.ofctl("add-groups", groups)
        switch.ofctl("add-flows", flows)
        port = {"name": "p1", "number": 1, "device": f"pcap:rx={received}"}
        switch.change(lambda config: config["bridge"][0]["port"].append(port))
        expected = sum(len(case.marks) for case in generated)
        wait_for("the packets were sent", lambda: switch.port_packets(2)[1] >= expected)
        switch.stop()
    return read(sent)


def read(pcap):
    """Returns, for each case, the sent frames by destination address."""
    sent = {}
    try:
        with PcapReader(str(pcap)) as reader:
            for packet in reader:
                frame = bytes(packet)
                sent.setdefault(cases.number_of(frame), {})[frame[:6]] = frame
    except EOFError:
        pass
    return sent


def hexed(frames):
    return [frame.hex() for frame in frames.values()]
