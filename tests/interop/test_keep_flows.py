"""Flow entries over restarts of the daemon: a clean stop, a crash after a save, and a start that does not keep them."""

import signal
import subprocess

from switches import TARGET, Millrace


def started(folder, keeps):
    system = "keep_flows = true" if keeps else ""
    return Millrace(folder, ports=[(1, "memory"), (2, "memory")], system=system)


def saves(switch):
    """Runs `millrace flow save`, and returns its exit status and its output."""
    done = subprocess.run([TARGET / "millrace", "flow", "save", "br0"], env=switch.environment, capture_output=True, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_entries_survive_a_clean_stop_and_those_of_a_save_survive_a_crash(tmp_path):
    with started(tmp_path / "switch", keeps=True) as switch:
        switch.ofctl("add-flow", "priority=7,cookie=0x2a,in_port=1,actions=output:2")
        assert switch.stop() == 0
        switch.start()
        assert "cookie=0x2a" in switch.ofctl("dump-flows")
        switch.ofctl("add-flow", "priority=8,arp,actions=drop")
        status, said = saves(switch)
        assert status == 0 and "br0: 2 entries, 0 groups and 0 meters saved to" in said, said
        switch.ofctl("add-flow", "priority=9,icmp,actions=drop")
        switch.stop(signal.SIGKILL)
        switch.start()
        flows = switch.ofctl("dump-flows")
        assert "priority=7" in flows and "priority=8" in flows and "priority=9" not in flows, flows
        assert switch.log.read_text().count("flow entries restored") == 2


def test_a_switch_that_does_not_keep_them_says_so_and_leaves_no_file(tmp_path):
    folder = tmp_path / "switch"
    saved = folder / "state" / "flows" / "br0.flows"
    with started(folder, keeps=True) as switch:
        switch.ofctl("add-flow", "priority=7,actions=drop")
    assert saved.exists()
    with started(folder, keeps=False) as switch:
        assert "priority=7" not in switch.ofctl("dump-flows")
        status, said = saves(switch)
        assert status == 1 and "system.keep_flows is false" in said and "to fix it: set system.keep_flows = true" in said, said
    assert not saved.exists()


def test_a_damaged_file_is_refused_by_name_and_the_status_says_what_to_do(tmp_path):
    folder = tmp_path / "switch"
    with started(folder, keeps=True) as switch:
        switch.ofctl("add-flow", "priority=7,actions=drop")
    (folder / "state" / "flows" / "br0.flows").write_text("nonsense")
    with started(folder, keeps=True) as switch:
        assert "priority=7" not in switch.ofctl("dump-flows")
        status = switch.cli("show", "status")
        assert "br0.flows.refused" in status and "millrace flow save br0" in status, status
        assert saves(switch)[0] == 0
        assert "refused" not in switch.cli("show", "status")
