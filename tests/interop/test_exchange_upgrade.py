"""An upgrade of the engine under a member's traffic: from a database of an older layout, and from another layout of tables in the switch.
Needs root."""

import contextlib
import os
import re
import signal
import sqlite3

import pytest

import namespaces
from engine_pair import Traffic
from exchange import Exchange
from switches import Millrace, wait_for
from test_exchange import flows

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="virtual Ethernet needs root")
PAIRS = [("ixu-a", "ixu-sa"), ("ixu-b", "ixu-sb")]
# Where another layout has the tables behind table 0.
SHIFT = 15


def to_first_layout(database):
    """Gives a database the layout of the first version: without the newest time that a write has seen."""
    with contextlib.closing(sqlite3.connect(database)) as link:
        [[version]] = link.execute("PRAGMA user_version")
        assert version == 2, "a migration was added: this function has to undo it, too"
        link.executescript("ALTER TABLE engine DROP COLUMN newest_time; PRAGMA user_version = 1;")


def version(database):
    """Returns the version of a database's layout, and its columns of the engine's row."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as link:
        return link.execute("PRAGMA user_version").fetchone()[0], [row[1] for row in link.execute("PRAGMA table_info(engine)")]


def moved(line):
    """Returns an entry of a listing as text for add-flow, in the other layout."""
    fields = re.sub(r"\b(duration|n_packets|n_bytes|idle_age|hard_age)=[^,]*, ?", "", line.strip())

    def table(found):
        number = int(found[2])
        return f"{found[1]}{number + SHIFT if 0 < number < 7 else number}"
    fields = re.sub(r"\b(table=)(\d+)", table, fields)
    return re.sub(r"\b(goto_table:)(\d+)", table, fields)


def tables(switch):
    """Returns the numbers of the tables with entries."""
    return {int(number) for number in re.findall(r"table=(\d+),", switch.ofctl("dump-flows"))}


def test_an_upgrade_from_another_layout_of_the_database_and_of_the_tables_loses_no_frame(tmp_path):
    exchange = Exchange(tmp_path / "ix")
    with namespaces.cables(*PAIRS), exchange, Millrace(
            tmp_path / "switch", ports=[(1, "kernel:ixu-sa"), (2, "kernel:ixu-sb")], controllers=[exchange.target]) as switch:
        _, switch_id = exchange.create_site("Otemachi", 1, [1, 2])
        account, (one, two) = exchange.create_member("A", f"{switch_id}:1", f"{switch_id}:2")
        exchange.ask("p2p", "ab", "--account", account, "--a", f"{one}:100", "--b", f"{two}:200", "--rate", "200")
        exchange.wait_in_sync()
        planned, used = flows(switch), tables(switch)
        traffic = Traffic("ixu-a", "ixu-b")
        traffic.start()
        wait_for("frames arrive", lambda: len(traffic.arrived) > 20)

        # The older engine ends. It had other tables, and fewer columns.
        exchange.stop()
        entries = tmp_path / "entries"
        entries.write_text("".join(f"{moved(line)}\n" for line in switch.ofctl("dump-flows").splitlines() if "table=" in line))
        switch.ofctl("replace-flows", str(entries), "--bundle")
        older = tables(switch)
        assert older == {number + SHIFT if 0 < number < 7 else number for number in used} != used
        to_first_layout(exchange.database)
        seen = len(traffic.arrived)
        wait_for("frames take the other tables", lambda: len(traffic.arrived) > seen + 20)

        # The newer one is killed while it starts, and starts again.
        exchange.start()
        exchange.stop(signal.SIGKILL)
        exchange.start()
        exchange.wait_in_sync()
        assert flows(switch) == planned and tables(switch) == used
        found, columns = version(exchange.database)
        assert found == 2 and "newest_time" in columns
        assert exchange.ask("status")["mode"]["name"] == "normal"
        exchange.ask("p2p", "cd", "--account", account, "--a", f"{one}:101", "--b", f"{two}:201")
        exchange.wait_in_sync()
        seen = len(traffic.arrived)
        wait_for("frames take the first tables", lambda: len(traffic.arrived) > seen + 20)
        lost = traffic.lost()
        print(f"{traffic.sent} frames, {len(lost)} lost")
        assert not lost, sorted(lost)[:20]
