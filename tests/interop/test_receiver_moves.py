"""A receiver whose own address changes during a transfer, because its host gets another one. The sender cannot know the new
address; a packet of the receiver tells it. Mappings of translators are in crates/transport/courier/tests/it/wan.rs. Needs root.
"""

import json
import os
import re
import subprocess
import threading
import time

import pytest

import namespaces
from switches import TARGET
from test_transfer_memif import BOUND, source, tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
SENDER, RECEIVER = "mr-moves-s", "mr-moves-r"
NEAR, FAR = "mv-s", "mv-r"
SENDS_AT, LISTENS_AT, MOVES_TO = "10.77.0.1", "10.77.0.2", "10.77.0.3"
# The receiver is moved once so many bytes have arrived, and a few more have to.
MOVED_AFTER, SIZE = 3 << 20, 12 << 20


@pytest.fixture(name="cable")
def two_hosts():
    with namespaces.made(SENDER, RECEIVER):
        namespaces.inside(SENDER, "ip", "link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", RECEIVER)
        for host, name, address in ((SENDER, NEAR, SENDS_AT), (RECEIVER, FAR, LISTENS_AT)):
            namespaces.inside(host, "ip", "address", "add", f"{address}/24", "dev", name)
            namespaces.inside(host, "ip", "link", "set", name, "up")
            namespaces.inside(host, "ip", "link", "set", "lo", "up")
        yield


def get_another_address():
    """Takes the address of the receiver's host away, and gives it another one. In the other order, the second address would go
    with the first one of its network."""
    namespaces.inside(RECEIVER, "ip", "address", "del", f"{LISTENS_AT}/24", "dev", FAR)
    namespaces.inside(RECEIVER, "ip", "address", "add", f"{MOVES_TO}/24", "dev", FAR)


def millrace(host, folder, *words):
    home = folder / f"home-{host}"
    home.mkdir(exist_ok=True)
    return ["ip", "netns", "exec", host, "env", f"HOME={home}", TARGET / "millrace", "--json", *words]


def test_a_receiver_whose_host_gets_another_address_is_found(tmp_path, cable):
    data, target = source(tmp_path, SIZE), tmp_path / "in"
    target.mkdir()
    receive = millrace(RECEIVER, tmp_path, "receive", target, "--once", "--listen", "0.0.0.0:7800")
    events, moved = [], None
    with subprocess.Popen(receive, stdout=subprocess.PIPE, text=True) as receiver:
        ticket = json.loads(receiver.stdout.readline())["ticket"]
        reader = threading.Thread(target=receiver.stdout.read)
        reader.start()
        try:
            send = millrace(SENDER, tmp_path, "send", f"{data}/", ticket, "--rate", "20Mbps", "--silence", "110s")
            with subprocess.Popen(send, stdout=subprocess.PIPE, text=True) as sender:
                watchdog = threading.Timer(BOUND, sender.kill)
                watchdog.start()
                for line in sender.stdout:
                    event = json.loads(line)
                    if event["event"] == "lost" and moved:
                        print(f"the sender notes it after {time.monotonic() - moved:.1f} s")
                    if moved is None and event.get("verified", 0) > MOVED_AFTER:
                        get_another_address()
                        moved, events = time.monotonic(), []
                    events.append(event)
                watchdog.cancel()
                assert sender.wait() == 0, events
            assert receiver.wait(timeout=BOUND) == 0
        finally:
            receiver.kill()
            reader.join()
    assert tree(data) == tree(target) and moved, "the transfer was over before the receiver moved"
    lost = [event for event in events if event["event"] == "lost"]
    assert len(lost) == 1 and f"{MOVES_TO}:7800" in json.dumps(lost), lost
    # Verified extents are not sent again.
    [back] = [event for event in events if event["event"] == "accepted"]
    assert back["present"] >= MOVED_AFTER, back


def test_a_reader_whose_host_gets_another_address_asks_the_daemon_again(tmp_path, cable):
    """The daemon's socket is connected to the reader's old address: the reader must ask again, once it has lost the daemon."""
    data, target, state = source(tmp_path, SIZE), tmp_path / "in", tmp_path / "state"
    target.mkdir()
    key = subprocess.run(millrace(RECEIVER, tmp_path, "courier", "key"), stdout=subprocess.PIPE, text=True, check=True, timeout=BOUND)
    config = tmp_path / "courier.toml"
    config.write_text(f"""listen = "{SENDS_AT}:7800"
state = "{state}"
[[grant]]
name = "out"
keys = ["{re.search("[a-z2-7]{52}", key.stdout).group()}"]
directory = "{data}"
verbs = ["read", "list"]
rate = "20Mbps"
""")
    moved = False
    serve = millrace(SENDER, tmp_path, "courier", "serve", "--config", config)
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            listening = json.loads(daemon.stdout.readline())
            url = f"millrace://{listening['key']}@{SENDS_AT}:7800/out/"
            fetch = millrace(RECEIVER, tmp_path, "receive", "--from", url, target, "--silence", "2s")
            with subprocess.Popen(fetch, stdout=subprocess.PIPE, text=True) as reader:
                watchdog = threading.Timer(BOUND, reader.kill)
                watchdog.start()
                for line in reader.stdout:
                    if not moved and json.loads(line).get("verified", 0) > MOVED_AFTER:
                        get_another_address()
                        moved = True
                watchdog.cancel()
                assert reader.wait() == 0
        finally:
            daemon.kill()
    assert moved and tree(data) == tree(target)
