"""Two engines of an exchange on one PostgreSQL database: what a member's frames notice when the leader is killed, when it sleeps and wakes,
when the database is away, and when yesterday's backup is restored; and that graphs and bills survive the leader. Needs root.

With MILLRACE_EXCHANGE_LONG the leader sleeps 10 times for 15 s, the database is away for 2 minutes, a leader is cut off from the
database, and times have the bounds of gates A9 and A10.
"""

import datetime
import os
import signal
import struct
import time

import pytest
import requests

import namespaces
import postgres
from engine_pair import PAIRS, Pair
from exchange import Control
from switches import pause, wait_for
from test_exchange import frame, passes, socket_on

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="virtual Ethernet needs root"),
    pytest.mark.skipif(not postgres.is_installed(), reason=postgres.MISSING),
]
LONG = bool(os.environ.get("MILLRACE_EXCHANGE_LONG"))
SLEEPS = 10 if LONG else 1
# Times in s: a sleep of the leader at least, the database away, until the other engine leads and until orders are accepted again at most.
# The tests of a busy machine bound the last two by `wait_for` only.
SLEEP = 15 if LONG else 0
AWAY = 120 if LONG else 7
LEADS_MAX = 10 if LONG else 60
BACK_MAX = 5 if LONG else 60


@pytest.fixture(name="started", scope="module")
def started_pair(tmp_path_factory):
    with namespaces.cables(*PAIRS), postgres.Server() as server, Pair(tmp_path_factory.mktemp("engines"), server, LEADS_MAX) as pair:
        yield pair


@pytest.fixture(name="pair")
def healed_pair(started):
    """The pair, whatever the test before has left."""
    started.heal()
    return started


def refusal(engine):
    """Returns the error of an order."""
    with Control(engine.socket) as control:
        try:
            control.order({"operation": "create_account", "name": f"member {time.time_ns()}", "kind": "member"})
        except ValueError as error:
            return str(error)
    return ""


def test_the_leader_dies_and_another_one_sleeps_and_no_frame_notices(pair):
    one, two = pair.by_role()
    name, url = ("ix-1" if one is pair.engines[0] else "ix-2"), pair.url(one)
    status = two.ask("status")["engine"]
    assert (status["role"], status["leader"], status["address"]) == ("follows", name, url)
    assert [service["name"] for service in two.ask("services")] == ["ab"]
    assert f"follows {name}" in refusal(two)
    headers = pair.key_of_staff()
    wait_for("the follower knows the user", lambda: two.objects("us"))
    read = requests.get(f"{pair.url(two)}/api/v1/services", headers=headers, timeout=60)
    assert read.status_code == 200 and "ab" in read.text, read.text
    written = requests.post(f"{pair.url(two)}/api/v1/accounts", json={"name": "B", "kind": "member"}, headers=headers, timeout=60)
    assert written.status_code == 503 and int(written.headers["retry-after"]) > 0, written.text
    assert f"{name} ({url})" in written.json()["detail"], written.text

    traffic = pair.traffic()
    one.stop(signal.SIGKILL)
    print(f"leader killed: the other leads after {pair.wait_leads(two):.1f} s")
    pair.order(two, "cd", 101)
    two.wait_in_sync()
    one.start()
    assert one.ask("status")["engine"]["role"] == "follows"

    leader, follower = two, one
    for sleep in range(SLEEPS):
        epoch = pair.epoch()
        slept = time.monotonic()
        pause(leader.process)
        # An order that reaches the sleeping leader, which will find it when it wakes.
        waiting = Control(leader.socket)
        waiting.socket.sendall(
            b'{"request": "order", "operations": [{"operation": "create_account", "name": "ghost", "kind": "member"}]}\n')
        print(f"leader sleeps: the other leads after {pair.wait_leads(follower):.1f} s")
        assert pair.epoch() == epoch + 1
        pair.order(follower, f"awake {sleep}", 200 + sleep)
        time.sleep(max(0, slept + SLEEP - time.monotonic()))
        leader.process.send_signal(signal.SIGCONT)
        wait_for("the old leader follows", lambda: '"follows"' in leader.command("--json", "status", check=False))
        waiting.close()
        follower.wait_in_sync()
        names = [account["name"] for account in follower.objects("ac").values()]
        assert "A" in names and "ghost" not in names, names
        assert pair.epoch() == epoch + 1
        leader, follower = follower, leader
    lost = traffic.lost()
    print(f"{traffic.sent} frames, {len(lost)} lost")
    assert not lost, sorted(lost)[:20]
    verified = leader.command("audit", "export")
    assert "ghost" not in verified


def test_a_database_that_is_away_stops_orders_and_nothing_else(pair):
    one, _ = pair.by_role()
    url = pair.url(one)
    headers = pair.key_of_staff()
    traffic = pair.traffic()
    epoch = pair.epoch()
    away = time.monotonic()
    pair.server.pause()
    try:
        wait_for("an order is refused", lambda: "does not answer" in refusal(one))
        # The engine looks at its connection four times a second.
        wait_for("the status says so", lambda: one.ask("status")["engine"]["database_silent_secs"] is not None)
        assert pair.leads(one)
        assert "ab" in [service["name"] for service in one.ask("services")]
        page = requests.get(f"{url}/api/v1/status", timeout=60)
        assert page.status_code == 200 and int(page.headers["age"]) >= 0, (page.status_code, page.headers)
        written = requests.post(f"{url}/api/v1/accounts", json={"name": "B", "kind": "member"}, headers=headers, timeout=60)
        assert written.status_code == 503 and int(written.headers["retry-after"]) > 0, written.text
        time.sleep(max(0, away + AWAY - time.monotonic()))
    finally:
        pair.server.resume()
    back = time.monotonic()
    wait_for("an order is accepted", lambda: refusal(one) == "")
    took = time.monotonic() - back
    print(f"orders are accepted {took:.1f} s after the database is back")
    assert took < BACK_MAX
    one.wait_in_sync()
    wait_for("answers are new again", lambda: "age" not in requests.get(f"{url}/api/v1/status", timeout=60).headers)
    lost = traffic.lost()
    print(f"{traffic.sent} frames, {len(lost)} lost")
    assert not lost, sorted(lost)[:20]
    assert pair.leads(one) and pair.epoch() == epoch, "a pause of the database is no reason for another leader"


@pytest.mark.skipif(not LONG, reason="make exchange-check")
def test_a_leader_that_is_cut_off_from_the_database_is_replaced_and_the_switch_refuses_it(pair):
    one, two = pair.by_role()
    a, b = socket_on("ixe-a"), socket_on("ixe-b")
    traffic = pair.traffic()
    number = pair.engines.index(one) + 1
    pair.server.cut_off(number)
    print(f"leader cut off: the other leads after {pair.wait_leads(two):.1f} s")
    # The old leader cannot know, and shows what it remembers.
    assert "does not answer" in refusal(one)
    wait_for("the status says so", lambda: one.ask("status")["engine"]["database_silent_secs"] is not None)
    assert pair.leads(one)
    assert "ab" in [service["name"] for service in one.ask("services")]
    # It takes the entries of the new leader for foreign ones, and may not remove them.
    pair.order(two, "ef", 301)
    two.wait_in_sync()
    entries = pair.switch.ofctl("dump-flows").count("table=")
    wait_for("the old leader is refused", lambda: "IS_SLAVE" in one.log.read_text() or one.ask("status")["switches"][0]["state"] != "in_sync")
    assert passes(a, b, frame("of the new leader", 301), "of the new leader") is not None
    assert pair.switch.ofctl("dump-flows").count("table=") == entries
    pair.server.let_in(number)
    wait_for("the old leader follows", lambda: '"follows"' in one.command("--json", "status", check=False))
    assert pair.leads(two)
    lost = traffic.lost()
    print(f"{traffic.sent} frames, {len(lost)} lost")
    assert not lost, sorted(lost)[:20]


def crc32c(data):
    """Returns the CRC-32C of some bytes (RFC 3720, appendix B.4)."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def file_of_day(start, connection, rate):
    """Returns a file of a day (docs/exchange-series.md) in which a connection has an equal rate below 2048 bit/s, in and out."""
    keys = [struct.pack(">BBII", 1, measure, connection, 0) for measure in (0, 1)]
    column = struct.pack(">BHB", 0, rate, 240)
    columns = [column + crc32c(key + column).to_bytes(4, "big") for key in keys]
    index = b"".join(key + struct.pack(">I", number * len(columns[0])) for number, key in enumerate(keys))
    header = b"MRSERIES" + struct.pack(">BBHQII", 1, 1, 288, start, len(keys), 32 + len(index))
    return header + crc32c(header).to_bytes(4, "big") + index + b"".join(columns)


def known_times(pair, engine, connection):
    """Returns the coverage of the points of a connection over a day, by their place in time, as far as traffic was seen."""
    answer = requests.get(f"{pair.url(engine)}/api/v1/series/connections/{connection}", headers=pair.key_of_staff(), timeout=60)
    assert answer.status_code == 200, answer.text
    graph = answer.json()
    start = datetime.datetime.fromisoformat(graph["start"].replace("Z", "+00:00")).timestamp()
    [line] = [line for line in graph["lines"] if line["measure"] == "in"]
    points = enumerate(zip(line["average"], line["coverage"]))
    # Yesterday's are below that.
    return {start + number * graph["step_seconds"]: coverage for number, (average, coverage) in points if (average or 0) > 2000}


def billed(engine, month, connection):
    """Returns what a connection is billed for a month."""
    [row] = [row for row in engine.ask("billing", month)["rows"] if row["connection"] == connection]
    return row["billed_bps"]


def test_graphs_and_bills_are_those_of_both_engines_and_survive_the_leader(pair):
    one, two = pair.by_role()
    connection = pair.ends[0]
    wait_for("the follower knows the user", lambda: pair.key_of_staff() and two.objects("us"))
    # The follower has measured yesterday, and nobody else has.
    two.stop()
    day = int(time.time()) // 86400 * 86400 - 86400
    month = f"{datetime.datetime.fromtimestamp(day, datetime.timezone.utc):%Y-%m}"
    content = file_of_day(day, int(connection.removeprefix("cn-")), 1000)
    (two.folder / "exchange.series" / f"five-{day:012}.chunk").write_bytes(content)
    two.start()
    wait_for("the leader bills yesterday", lambda: billed(one, month, connection) == 1000, bound=180)

    traffic = pair.traffic()
    wait_for("the leader's graph has traffic", lambda: known_times(pair, one, connection), bound=120)
    before = known_times(pair, one, connection)

    def has_all(engine):
        found = known_times(pair, engine, connection)
        return all(found.get(at, 0) >= coverage for at, coverage in before.items())
    wait_for("the follower shows it", lambda: has_all(two))
    assert billed(two, month, connection) == 1000

    one.stop(signal.SIGKILL)
    pair.wait_leads(two)
    assert has_all(two), (before, known_times(pair, two, connection))
    assert billed(two, month, connection) == 1000
    own = sum(known_times(pair, two, connection).values())
    wait_for("the new leader measures", lambda: sum(known_times(pair, two, connection).values()) > own + 1 / 30, bound=120)
    # An engine without files gets all of them.
    for file in (one.folder / "exchange.series").iterdir():
        file.unlink()
    one.start()
    wait_for("the old leader shows both parts", lambda: has_all(one) and billed(one, month, connection) == 1000, bound=180)
    lost = traffic.lost()
    assert not lost, sorted(lost)[:20]


def test_yesterdays_backup_commands_no_switch_before_an_operators_word(pair, tmp_path):
    one, two = pair.by_role()
    a, b = socket_on("ixe-a"), socket_on("ixe-b")
    pair.server.back_up(tmp_path / "yesterday")
    pair.order(one, "today", 401)
    one.wait_in_sync()
    # Another epoch, which the backup does not know.
    one.stop()
    pair.wait_leads(two)
    two.stop()
    entries = pair.switch.ofctl("dump-flows").count("table=")
    pair.server.restore(tmp_path / "yesterday")
    one.start()
    # The lease in the backup is that of an engine which is gone, so that this one follows for six seconds.
    wait_for("the engine finds newer entries", lambda: '"read_only"' in one.command("--json", "status", check=False))
    assert "adopt or enforce" in refusal(one)
    assert pair.switch.ofctl("dump-flows").count("table=") == entries
    assert passes(a, b, frame("today's circuit", 401), "today's circuit") is not None
    one.command("adopt")
    wait_for("the engine writes", lambda: one.ask("status")["mode"]["name"] == "normal")
    one.wait_in_sync()
    assert passes(a, b, frame("still there", 401), "still there") is not None
    assert refusal(one) == ""
