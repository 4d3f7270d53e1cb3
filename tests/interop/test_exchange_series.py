"""Graphs, bills and the public traffic of a running exchange: what the switches count is in the graph of its connection, still
there after the engine was killed, and without gaps while orders change services."""

import itertools
import re
import signal

import requests

from exchange import Exchange
from switches import Millrace, free_port, wait_for
from test_exchange import frame


def line_of(url, secret, connection):
    """Returns the line of a connection towards the exchange in its graph of a day."""
    answer = requests.get(f"{url}/api/v1/series/connections/{connection}?period=day",
                          headers={"authorization": f"Bearer {secret}"}, timeout=60)
    assert answer.status_code == 200, answer.text
    graph = answer.json()
    assert graph["measured"] and graph["step_seconds"] == 300, graph
    [line] = [line for line in graph["lines"] if line["measure"] == "in"]
    return line


def last_values(url, secret, connection):
    """Returns the newest five averages of a connection towards the exchange."""
    return line_of(url, secret, connection)["average"][-5:]


def account_and_staff(exchange, switch_id, url):
    """Makes a member with two connections and a user of the staff; returns the account, the connections and the user's secret."""
    account, connections = exchange.create_member("Member A", f"{switch_id}:1", f"{switch_id}:2")
    exchange.order(
        {"operation": "create_account", "name": "Staff", "kind": "exchange"},
        {"operation": "create_user", "name": "ops", "account": "ac-0", "roles": ["operator_admin", "operator_noc"]})
    _, secret = exchange.api_key(url, "ops")
    return account, connections, secret


def test_a_graph_has_what_the_switches_counted_and_a_kill_takes_nothing_from_it(tmp_path):
    url = f"http://127.0.0.1:{(port := free_port())}"
    exchange = Exchange(tmp_path / "ix", more=f'[api]\nlisten = "127.0.0.1:{port}"\nname = "Test IX"\n')
    # Frames that leave by port 2 arrive at port 4, which nobody uses.
    ports = [(1, "link:s0"), (2, "link:s1"), (3, "link:s0"), (4, "link:s1")]
    with exchange, Millrace(tmp_path / "switch", ports=ports, controllers=[exchange.target]) as switch:
        _, switch_id = exchange.create_site("Otemachi", 1, range(1, 5))
        account, (one, two), secret = account_and_staff(exchange, switch_id, url)
        exchange.ask("p2p", "ab", "--account", account, "--a", f"{one}:100", "--b", f"{two}:200")
        exchange.wait_in_sync()

        def is_measured():
            switch.ofctl("packet-out", f"in_port=1 packet={frame('counted', 100).hex()} actions=TABLE")
            return any(value for value in last_values(url, secret, one))
        wait_for("the graph of the connection has its traffic", is_measured, bound=120)
        seen = [value for value in last_values(url, secret, one) if value]
        print(f"counted: {seen} bit/s")

        # The figures of the present month begin with its first five minutes that are over.
        billing = exchange.ask("billing")
        assert re.fullmatch(r"\d{4}-\d\d", billing["month"]) and not billing["frozen"]
        assert [row["connection"] for row in billing["rows"]] == [one, two], billing
        csv = exchange.command("billing", "--csv")
        assert csv.startswith("month,frozen,account,") and csv.count("Member A") == 4, csv

        answer = requests.get(f"{url}/api/v1/status/traffic", timeout=60)
        assert answer.status_code == 200
        shown = answer.json()
        assert (shown["name"], shown["links"]) == ("Test IX", []), shown
        measures = [line["measure"] for line in shown["traffic"]["lines"]]
        assert measures == ["in", "out"], "nothing is sampled without sFlow"
        assert "Member A" not in answer.text and not re.search(r'"(cn|ac|sw|sv|nc)-\d+"', answer.text), answer.text

        exchange.stop(signal.SIGKILL)
        exchange.start()
        after = [value for value in last_values(url, secret, one) if value]
        # The average of the present five minutes changes with its next interval; what was there is still in it.
        assert after and max(after) > 0, after


def test_orders_make_no_gap_in_the_traffic_of_a_connection(tmp_path):
    url = f"http://127.0.0.1:{(port := free_port())}"
    exchange = Exchange(tmp_path / "ix", more=f'[api]\nlisten = "127.0.0.1:{port}"\nname = "Test IX"\n')
    ports = [(1, "link:s0"), (2, "link:s1"), (3, "link:s0"), (4, "link:s1")]
    with exchange, Millrace(tmp_path / "switch", ports=ports, controllers=[exchange.target]) as switch:
        _, switch_id = exchange.create_site("Otemachi", 1, range(1, 5))
        account, (one, two), secret = account_and_staff(exchange, switch_id, url)
        exchange.ask("p2p", "kept", "--account", account, "--a", f"{one}:100", "--b", f"{two}:200", "--rate", "10")
        exchange.wait_in_sync()
        [kept] = exchange.objects("sv")
        end = min(exchange.objects("nc"))
        rates = itertools.cycle([20, 10])
        numbers = itertools.count(300)

        def is_covered():
            # In each interval of ten seconds, circuits come and go, and the contract of the kept one changes.
            number = next(numbers)
            exchange.ask("p2p", f"c{number}", "--account", account, "--a", f"{one}:{number}", "--b", f"{two}:{number}")
            exchange.order({"operation": "set_rate", "config": end, "capacity_mbps": next(rates)})
            exchange.wait_in_sync()
            [gone] = [service for service in exchange.objects("sv") if service != kept]
            exchange.command("delete", gone)
            switch.ofctl("packet-out", f"in_port=1 packet={frame('counted', 100).hex()} actions=TABLE")
            line = line_of(url, secret, one)
            # Two points, because five minutes may end meanwhile: three intervals of thirty.
            return sum(line["coverage"][-2:]) >= 3 / 30 - 1e-6 and any(line["average"][-2:])
        wait_for("three intervals with orders are known", is_covered, bound=120)
