"""Distributes the tests over the workers of pytest-xdist, and gives tests that measure real time a higher priority."""

import contextlib
import functools
import os
import pathlib
import signal
import time

import pytest
from xdist.scheduler import LoadScopeScheduling

# The slowest files or single tests start first, so that none of them runs alone at the end.
LONGEST_FIRST = (
    "test_rates_of_groups_and_meters_are_as_asked",
    "test_guests.py",
    "test_every_case_of_match_and_action_passes",
    "test_hostile_memif.py",
    "test_hostile_vnics.py",
    "test_no_acknowledged_change_is_lost_and_none_is_half_applied",
    "test_packets_after_actions_equal_those_of_open_vswitch",
    "test_faucet.py",
    "test_a_tunnel_is_down_while_its_next_hop_is_silent",
    "test_faucet_stack.py",
    "test_chaos.py",
    "test_functions_alone.py",
    "test_controller.py",
    "test_chains.py",
    "test_queues.py",
    "test_groups.py",
)
# The priority of tests that measure, and the priority of all others. A process that computes meanwhile has a quarter of a core,
# so that the bounds of other tests hold, too.
FIRST_NICE, USUAL_NICE = -5, 0
# The time in s in which processes that were killed, and devices of a namespace that was removed, are gone on a busy machine.
GONE_MAX_S = 20


def pytest_configure(config):
    """Registers the project's own marker."""
    config.addinivalue_line("markers", "measures: compares rates or times of the real clock; has a higher priority than "
                                       "everything else")
    if hasattr(config, "workerinput"):
        # A session of its own makes the priority apply to this worker's processes only.
        os.setsid()


class Scheduling(LoadScopeScheduling):
    """Schedules one test at a time, or one file whose tests share a fixture, in the order of collection."""

    def _split_scope(self, nodeid):
        path = nodeid.split("::")[0]
        return path if shares_fixtures(self.config.rootpath / path) else nodeid


@functools.cache
def shares_fixtures(path):
    """Returns true if the tests of a file share a fixture, which each worker would otherwise create again."""
    return 'scope="module"' in path.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Returns the scheduler for `--dist loadscope`."""
    return Scheduling(config, log)


def rank(item):
    """Returns the index of a test in `LONGEST_FIRST`, or an index after all of those."""
    names = (item.path.name, getattr(item, "originalname", item.name))
    return next((rank for rank, name in enumerate(LONGEST_FIRST) if name in names), len(LONGEST_FIRST))


def pytest_collection_modifyitems(items):
    """Sorts the tests by `LONGEST_FIRST`."""
    items.sort(key=rank)


def set_priority(nice):
    """Sets the priority of this process, of its children, and of its session if the kernel schedules by session
    first (sched_autogroup)."""
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    group = pathlib.Path("/proc/self/autogroup")
    if os.getsid(0) == os.getpid() and group.exists():
        group.write_text(str(nice))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Runs a test that measures, and all processes that it starts, at a higher priority.

    A sender that waits for a core makes pauses and bursts, and meters and queues correctly drop those.
    """
    first = item.get_closest_marker("measures") is not None and os.geteuid() == 0
    if first:
        set_priority(FIRST_NICE)
    yield
    if first:
        set_priority(USUAL_NICE)


def devices():
    """Returns the network devices and the named namespaces that are there."""
    found = {f"device {path.name}" for path in pathlib.Path("/sys/class/net").iterdir()}
    namespaces = pathlib.Path("/run/netns")
    return found | ({f"namespace {path.name}" for path in namespaces.iterdir()} if namespaces.exists() else set())


def descendants():
    """Returns what each living process runs that this one or its children started, by process ID."""
    parents, commands = {}, {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
                commands[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
    found, generation = {}, {os.getpid()}
    while generation:
        generation = {one for one, parent in parents.items() if parent in generation}
        found |= {one: commands[one] for one in generation}
    return found


def end(process):
    """Ends a process of a test, and waits for its end if it is a child."""
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


@pytest.fixture(autouse=True, scope="module")
def leave_nothing_behind():
    """Fails if the tests of a file leave processes, devices or namespaces, and ends the processes: the next file of the same worker
    may use their names, and a poll-mode worker that nobody ends takes a core from all others."""
    before, processes = devices(), descendants()
    yield

    def found():
        """Returns the processes that are new, and the devices and namespaces. Without root, the workers share those of the machine."""
        new = {process: command for process, command in descendants().items() if process not in processes}
        return new, sorted(devices() - before) if os.geteuid() == 0 else []
    deadline = time.monotonic() + GONE_MAX_S
    while any(found()) and time.monotonic() < deadline:
        time.sleep(0.05)
    running, made = found()
    for process in running:
        end(process)
    left = [f"process {process} ({command})" for process, command in running.items()] + made
    assert not left, f"the tests of this file leave {', '.join(left)}"
