"""The plan of an exchange, in Open vSwitch as in our own pipeline: the same frames at the same ports."""

import collections
import json
import os
import time

from scapy.utils import PcapReader

from switches import TARGET, OpenVSwitch, run, wait_for

# The long form is `make exchange-check`.
EXCHANGES = os.environ.get("MILLRACE_PLAN_EXCHANGES", "2")
FRAMES = os.environ.get("MILLRACE_PLAN_FRAMES", "60")
PLAN_CASES = TARGET / "examples" / "plan_cases"
# A dummy device queues 100 frames.
BATCH = 40


class Exchange(OpenVSwitch):
    """An Open vSwitch with the ports of an exchange's switch."""

    def add_ports(self, numbers):
        """Adds ports, each with a file of what it sends. A dummy device drops frames above its MTU, to which it adds room for a
        C-tag and not for an S-tag."""
        commands = []
        for number in numbers:
            commands += ["--", "--may-exist", "add-port", "br0", f"p{number}",
                         "--", "set", "interface", f"p{number}", "type=dummy", "mtu_request=2000", f"ofport_request={number}",
                         f"options:tx_pcap={self.tx_pcap(number)}"]
        self._vsctl(*commands[1:])

    def install(self, case):
        """Replaces everything in the switch by a plan."""
        for command in ("del-flows", "del-groups", "del-meters"):
            self.ofctl(command)
        for line in case["meters"]:
            self.ofctl("add-meter", line)
        for name in ("groups", "flows"):
            file = self.folder / name
            file.write_text("\n".join(case[name]) + "\n")
            self.ofctl(f"add-{name}", file)

    def received(self, number):
        """Returns the number of frames that a port has received."""
        return int(self.ofctl("dump-ports", f"p{number}").split("rx pkts=")[1].split(",")[0])

    def sent(self, number):
        """Returns the frames that a port has sent so far."""
        try:
            with PcapReader(str(self.tx_pcap(number))) as reader:
                return [bytes(frame).hex() for frame in reader]
        except (EOFError, FileNotFoundError):
            return []


def test_open_vswitch_sends_the_frames_that_our_pipeline_sends(tmp_path):
    assert PLAN_CASES.exists(), "build it with `cargo build --workspace --example plan_cases`"
    cases = json.loads(run(PLAN_CASES, EXCHANGES, FRAMES))
    ports = sorted({port for case in cases for port in case["ports"]})
    frames, delivered = 0, 0
    with Exchange(tmp_path / "ovs") as ovs:
        ovs.add_ports(ports)
        before = dict.fromkeys(ports, 0)
        for case in cases:
            ovs.install(case)
            # A port of a LAG stands for all of them, because each switch divides flows by a hash of its own.
            of_lag = {port: lag[0] for lag in case["lags"] for port in lag}

            def at(port, frame):
                return of_lag.get(port, port), frame

            wanted = collections.Counter(at(*output) for _, _, outputs in case["frames"] for output in outputs)
            by_port = collections.defaultdict(list)
            for port, frame, _ in case["frames"]:
                by_port[port].append(bytes.fromhex(frame))
            while by_port:
                for port in list(by_port):
                    due = ovs.received(port) + len(by_port[port][:BATCH])
                    ovs.send(port, by_port[port][:BATCH])
                    wait_for("the batch was received", lambda: ovs.received(port) >= due)
                    by_port[port] = by_port[port][BATCH:]
                    if not by_port[port]:
                        del by_port[port]

            def seen():
                sent = ((port, frame) for port in ports for frame in ovs.sent(port)[before[port] :])
                return collections.Counter(at(*one) for one in sent)

            try:
                wait_for("all frames left", lambda: not wanted - seen(), bound=60)
            except AssertionError:
                pass
            # A frame that must not leave would have left by now: the frames before it and after it have left.
            time.sleep(0.05)
            missing, added = wanted - seen(), seen() - wanted
            report = [(port, len(frame) // 2, frame[:80]) for port, frame in list(missing)[:3] + list(added)[:3]]
            assert not missing and not added, f"{case['name']}: {len(missing)} missing, {len(added)} too many: {report}"
            before = {port: len(ovs.sent(port)) for port in ports}
            frames, delivered = frames + len(case["frames"]), delivered + wanted.total()
    print(f"{len(cases)} switches, {frames} frames in, {delivered} out, 0 differences")
    assert delivered > frames // 4, f"only {delivered} of {frames} frames leave: the cases show little"
