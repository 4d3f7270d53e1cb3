"""Packets after actions equal those of Open vSwitch byte for byte."""

import collections

from scapy.utils import PcapReader, PcapWriter
from scapy.layers.l2 import Ether

import cases
from switches import Millrace, OpenVSwitch, wait_for

COUNT = 2500
SEED = 20261121


def test_packets_after_actions_equal_those_of_open_vswitch(tmp_path):
    generated = cases.make_cases(SEED, COUNT)
    flows = tmp_path / "flows"
    flows.write_text("\n".join(case.flow for case in generated) + "\n")
    with OpenVSwitch(tmp_path / "ovs") as ovs:
        theirs = switch_with_ovs(ovs, flows, generated)
    ours = switch_with_millrace(tmp_path / "millrace", flows, generated)
    assert len(theirs) == COUNT, "Open vSwitch dropped cases: they are not legal"
    wrong = [case for case in generated if ours.get(case.number) != theirs[case.number]]
    report = "\n".join(
        f"{case.flow}\n  in     {case.frame.hex()}\n  theirs {hexed(theirs[case.number])}"
        f"\n  ours   {hexed(ours.get(case.number))}"
        for case in wrong[:5]
    )
    kinds = collections.Counter(action.split(":")[0].split("(")[0] for case in wrong for action in case.actions)
    assert not wrong, f"{len(wrong)} of {COUNT} differ; actions in them: {kinds}\n{report}"


def switch_with_ovs(ovs, flows, generated):
    ovs.ofctl("add-flows", flows)

    def all_sent():
        # A dummy device drops packets that arrive too fast; they are sent again.
        sent = read(ovs.tx_pcap(2))
        missing = [case.frame for case in generated if case.number not in sent]
        ovs.send(1, missing)
        return not missing and sent

    return wait_for("Open vSwitch sent them all", all_sent, bound=300)


def switch_with_millrace(folder, flows, generated):
    sent = folder / "sent.pcap"
    folder.mkdir()
    received = folder / "received.pcap"
    with PcapWriter(str(received), linktype=1) as writer:
        for case in generated:
            writer.write(Ether(case.frame))
    with Millrace(folder, ports=[(2, f"pcap:tx={sent}")]) as switch:
        switch.ofctl("add-flows", flows)
        port = {"name": "p1", "number": 1, "device": f"pcap:rx={received}"}
        switch.change(lambda config: config["bridge"][0]["port"].append(port))
        wait_for("the packets were sent", lambda: switch.port_packets(2)[1] >= len(generated))
        switch.stop()
    return read(sent)


def read(pcap):
    """Returns the frames by the number of their case."""
    try:
        with PcapReader(str(pcap)) as reader:
            frames = [bytes(packet) for packet in reader]
    except EOFError:
        return {}
    return {cases.number_of(frame): frame for frame in frames}


def hexed(frame):
    return frame.hex() if frame is not None else "(dropped)"
