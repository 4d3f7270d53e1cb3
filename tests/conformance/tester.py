"""os-ken's conformance tester with corrections: an os-ken application that runs selected cases and records verdicts.

The patterns, the sent and expected packets and every comparison are os-ken's. The corrections concern faults that prevent
a measurement:

* The checksum of SCTP is computed over the bytes; on Python 3 the original computes it over their *text*.
* Frames shorter than Ethernet's minimum are padded before they are compared, as a NIC would.
* The sender keeps its rate; the original is late by the time of its own work, and cannot send 20,000 packets a second.
* A table miss is detected as soon as the counter shows it; the original always waits for a second.
* A busy machine may take longer than three seconds for an answer or a packet.
* A case can be run alone, and its verdict is written to a file.

The environment contains the plan as JSON: CONFORMANCE_PLAN, a list of (file, indices of cases); CONFORMANCE_RESULTS, the
file for the verdicts, one JSON object a line; CONFORMANCE_SECONDS, the duration of a rate measurement instead of the
patterns' 30 seconds; CONFORMANCE_WAIT, the bound in seconds for an answer or a packet, instead of the original's 3.
"""

import json
import os
import struct
import sys
import time

from os_ken.lib import hub
from os_ken.lib.packet import packet, sctp
from os_ken.tests.switch import tester as original

# Minimum size of an Ethernet frame without its check sequence, in bytes.
MIN_FRAME_SIZE = 60
# The interval at which the sender checks for due packets, in seconds. The socket by which Open vSwitch receives on a veth
# interface has a buffer of 212,992 bytes (net.core.rmem_default), which about 90 frames of 1,500 bytes fill: 20,000 packets
# a second have to be sent in groups that are smaller, because a switch forwards a group at once.
TICK = 0.001
# The longest time until a table miss is counted, in seconds. The original always waits for a second.
MISS_BOUND = 60
original.INTERVAL = 0
# The longest time until a switch answers and a packet arrives, in seconds. No case passes because nothing comes: only a case that
# fails waits so long.
original.WAIT_TIMER = float(os.environ.get("CONFORMANCE_WAIT", original.WAIT_TIMER))

CRC32C_POLYNOMIAL = 0x82F63B78


def crc32c_table():
    """Returns the byte-wise table of Castagnoli's polynomial, reflected (RFC 9260, appendix A)."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


CRC32C = crc32c_table()


def sctp_checksum(_, data):
    """Returns the checksum of an SCTP packet, as the number that a big-endian encoder writes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    return struct.unpack(">I", struct.pack("<I", ~crc & 0xFFFFFFFF))[0]


sctp.sctp._checksum = sctp_checksum


class Tester(original.OfTester):
    """The tester, with selected cases and recorded verdicts."""

    def _test_sequential_execute(self, _):
        plan = json.loads(os.environ["CONFORMANCE_PLAN"])
        try:
            with open(os.environ["CONFORMANCE_RESULTS"], "a", buffering=1) as self.results:
                for path, chosen in plan:
                    self.file = path
                    file = original.TestFile(path, self.logger)
                    for index, test in enumerate(file.tests):
                        if index in chosen:
                            self.index = index
                            self._test_execute(test, file.description)
        finally:
            self._test_end("--- Test end ---")

    def _test_execute(self, test, description):
        """Runs one case. The original only logs its verdict, so a logger records it."""
        said = []
        outer, self.logger = self.logger, Listener(self.logger, said)
        begun = time.monotonic()
        try:
            verdict = super()._test_execute(test, description)
        except Exception as error:  # in the original an unexpected answer ends the run
            verdict = type(error).__name__
            said.append(f"{type(error).__name__}: {error}")
            self.waiter = None
        finally:
            self.logger = outer
        passed = verdict == original.TEST_OK
        self.results.write(json.dumps({
            "file": self.file, "index": self.index, "pattern": description, "case": test.description,
            "passed": passed, "detail": "" if passed else said[-1].strip(),
            "seconds": round(time.monotonic() - begun, 3),
        }) + "\n")
        return verdict

    def _test_flow_matching_check(self, pkt):
        """Compares as the original does, with both frames as on a wire."""
        key = original.KEY_EGRESS if original.KEY_EGRESS in pkt else original.KEY_PKT_IN
        return super()._test_flow_matching_check({key: on_the_wire(pkt[key])})

    def _wait(self):
        super()._wait()
        for message in self.rcv_msgs:
            if message.__class__.__name__ == "OFPPacketIn":
                message.data = on_the_wire(message.data)

    def _test_flow_unmatching_check(self, before_stats, pkt):
        """Repeats the original's check until the miss is counted."""
        deadline = time.monotonic() + MISS_BOUND
        while True:
            try:
                return super()._test_flow_unmatching_check(before_stats, pkt)
            except original.TestError:
                if time.monotonic() >= deadline:
                    raise
            self.state = original.STATE_FLOW_UNMATCH_CHK
            hub.sleep(0.02)

    def _continuous_packet_send(self, pkt):
        """Sends at the requested rate, whatever the time that sending takes."""
        packets = pkt[original.KEY_PACKETS]
        rate = packets[original.KEY_PKTPS]
        duration = float(os.environ.get("CONFORMANCE_SECONDS", packets[original.KEY_DURATION_TIME]))
        constant = None if packets["randomize"] else self._packet_out(packets["packet_binary"])
        sent, begun = 0, time.monotonic()
        while (elapsed := time.monotonic() - begun) < duration:
            due = int(elapsed * rate) - sent
            if constant is not None:
                self.tester_sw.dp.send(constant * due)
            else:
                for _ in range(due):
                    self.tester_sw.dp.send(self._packet_out(packet_of(packets["packet_text"])))
            sent += due
            hub.sleep(TICK)

    def _packet_out(self, frame):
        path = self.tester_sw.dp
        message = path.ofproto_parser.OFPPacketOut(
            datapath=path, buffer_id=path.ofproto.OFP_NO_BUFFER, in_port=path.ofproto.OFPP_CONTROLLER,
            actions=[path.ofproto_parser.OFPActionOutput(self.tester_send_port)], data=frame)
        message.set_xid(0)
        message.serialize()
        return bytes(message.buf)


class Listener:
    """A logger that stores the messages that it passes on."""

    def __init__(self, logger, said):
        self.logger, self.said = logger, said

    def __getattr__(self, name):
        return getattr(self.logger, name)

    def info(self, text, *arguments):
        self.said.append(text % arguments if arguments else text)
        self.logger.info(text, *arguments)


def on_the_wire(frame):
    """Returns a frame with the padding that a NIC adds."""
    return bytes(frame).ljust(MIN_FRAME_SIZE, b"\0")


def packet_of(lines):
    """Returns a packet from the text of its layers, with new random numbers each time."""
    made = eval("/".join(lines), vars(original))  # the patterns are Python, and part of os-ken
    made.serialize()
    return bytes(made.data)


# The original finds the packet classes of loaded modules only.
assert "os_ken.lib.packet.packet" in sys.modules and packet
