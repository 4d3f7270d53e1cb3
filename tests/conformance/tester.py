"""os-ken's conformance tester, mended: an os-ken application that runs chosen cases and writes down each verdict.

The patterns, what is sent, what is expected and every comparison are os-ken's. What is changed is what keeps it from
measuring the switch, each with its reason:

* the checksum of SCTP, which is that of the *text* of the bytes on Python 3;
* frames shorter than Ethernet's minimum are padded before they are compared, as a wire would do it;
* the sender keeps its rate: it is late by what its own work takes, and 20,000 packets a second are too many for it;
* a table miss is seen as soon as the counter says so, and not after a second in any case;
* a case can be run alone, and its verdict goes into a file.

What to run comes as JSON in the environment: CONFORMANCE_PLAN, a list of (file, indices of cases);
CONFORMANCE_RESULTS, where the verdicts go, one JSON object a line; CONFORMANCE_SECONDS, how long rates are measured
instead of the patterns' 30 seconds.
"""

import json
import os
import struct
import sys
import time

from os_ken.lib import hub
from os_ken.lib.packet import packet, sctp
from os_ken.tests.switch import tester as original

# Ethernet's least frame without its checksum, bytes.
MIN_FRAME_SIZE = 60
# How often the sender looks what is due, seconds.
TICK = 0.005
# How long a table miss may take to be counted, seconds: what the original waits.
MISS_BOUND = original.INTERVAL
original.INTERVAL = 0

CRC32C_POLYNOMIAL = 0x82F63B78


def crc32c_table():
    """The byte-wise table of Castagnoli's polynomial, reflected (RFC 9260, appendix A)."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


CRC32C = crc32c_table()


def sctp_checksum(_, data):
    """The checksum of an SCTP packet, as the number that a big-endian encoder writes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    return struct.unpack(">I", struct.pack("<I", ~crc & 0xFFFFFFFF))[0]


sctp.sctp._checksum = sctp_checksum


class Tester(original.OfTester):
    """The tester, with its cases chosen and its verdicts written down."""

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
        """One case. The original tells its verdict to the log alone, so the log is listened to."""
        said = []
        outer, self.logger = self.logger, Listener(self.logger, said)
        begun = time.monotonic()
        try:
            verdict = super()._test_execute(test, description)
        except Exception as error:  # the original lets an unexpected answer end the run
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
        """Compares as the original does, with both frames as they would be on a wire."""
        key = original.KEY_EGRESS if original.KEY_EGRESS in pkt else original.KEY_PKT_IN
        return super()._test_flow_matching_check({key: on_the_wire(pkt[key])})

    def _wait(self):
        super()._wait()
        for message in self.rcv_msgs:
            if message.__class__.__name__ == "OFPPacketIn":
                message.data = on_the_wire(message.data)

    def _test_flow_unmatching_check(self, before_stats, pkt):
        """The original's check, again until the miss is counted."""
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
        """Sends at the rate that is asked for, whatever sending takes."""
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
    """A logger that remembers what it passes on."""

    def __init__(self, logger, said):
        self.logger, self.said = logger, said

    def __getattr__(self, name):
        return getattr(self.logger, name)

    def info(self, text, *arguments):
        self.said.append(text % arguments if arguments else text)
        self.logger.info(text, *arguments)


def on_the_wire(frame):
    """A frame with the padding that a network card adds."""
    return bytes(frame).ljust(MIN_FRAME_SIZE, b"\0")


def packet_of(lines):
    """A packet from the text of its layers; its random numbers are drawn anew each time."""
    made = eval("/".join(lines), vars(original))  # the patterns are Python, and part of os-ken
    made.serialize()
    return bytes(made.data)


# The original finds the packet classes of modules that are loaded already.
assert "os_ken.lib.packet.packet" in sys.modules and packet
