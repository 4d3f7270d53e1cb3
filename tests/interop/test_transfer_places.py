"""What a receiver and a sender say of files: their paths, the bytes that were sent beside those that are there, and places with
file systems that do not know their size. Needs no root but for the last.
"""

import contextlib
import json
import os
import subprocess

import pytest

from switches import TARGET, run
from test_transfer_memif import BOUND, source, tree


def millrace(folder, *words):
    return ["env", f"HOME={folder}", f"XDG_CONFIG_HOME={folder}/config", TARGET / "millrace", "--json", *words]


def transfer(folder, data, target, *options):
    """Sends a tree to a receiver on this host, and returns the events of both ends."""
    receive = millrace(folder, "receive", target, "--once", "--listen", "127.0.0.1:0", "--modes-and-times")
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            ticket = json.loads(receiver.stdout.readline())["ticket"]
            sent = subprocess.run(millrace(folder, "send", f"{data}/", ticket, *options), capture_output=True, text=True, timeout=BOUND)
            assert sent.returncode == 0, sent.stderr
            received, _ = receiver.communicate(timeout=BOUND)
            assert receiver.returncode == 0
        finally:
            receiver.kill()
    return [[json.loads(line) for line in text.splitlines()] for text in (sent.stdout, received)]


def test_every_file_has_its_path_and_bytes_that_were_there_are_not_bytes_that_were_sent(tmp_path):
    data, target = source(tmp_path, 3 << 20), tmp_path / "in"
    target.mkdir()
    names = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    size = sum((data / name).stat().st_size for name in names)
    for is_there in (False, True):
        sender, receiver = transfer(tmp_path, data, target)
        for events in (sender, receiver):
            files = [event for event in events if event["event"] == "file"]
            assert {event["path"] for event in files} == names, files
        [done] = [event for event in sender if event["event"] == "done"]
        assert done["bytes"] == size and tree(data) == tree(target)
        # The second time, both ends compare the files and nothing is sent.
        assert (done["sent"] == 0) if is_there else (done["sent"] >= size), done


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_file_system_that_does_not_know_its_size_takes_files(tmp_path):
    data, target = source(tmp_path, 1 << 20), tmp_path / "ram"
    target.mkdir()
    run("mount", "-t", "ramfs", "ramfs", target)
    with contextlib.ExitStack() as stack:
        stack.callback(run, "umount", "-l", target)
        transfer(tmp_path, data, target)
        assert tree(data) == tree(target)
