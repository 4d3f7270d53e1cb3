"""Orders over connections that break: a twentieth of all connections between clients and the API is cut, at any byte of the request or
of the answer, and each client repeats its request by key until it has a whole answer. Each order is executed exactly once.

The short form has 200 orders, `make exchange-check` has gate A29 (docs/gates.md): 10,000 orders.
"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import socket
import struct
import threading
import time

import requests

from exchange import Exchange
from switches import free_port

ORDERS = 10_000 if os.environ.get("MILLRACE_EXCHANGE_LONG") else 200
CLIENTS, CUT = 8, 0.05


def whole_request(link):
    """Returns a request with its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += link.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
    while len(body) < length:
        body += link.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def whole_answer(link):
    """Returns all that comes until the other end closes."""
    parts = []
    while part := link.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


class Cutter:
    """A relay of connections with one request each. It cuts some of them, and counts where."""

    def __init__(self, port, seed):
        self.target, self.random = port, random.Random(seed)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.connections, self.cuts = 0, {"request": 0, "before the answer": 0, "answer": 0}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.listener.accept()
                self.connections += 1
                cut = None
                if self.random.random() < CUT:
                    cut = self.random.choice(list(self.cuts))
                    self.cuts[cut] += 1
                threading.Thread(target=self._relay, args=(link, cut, self.random.random(), self.random.random() < 0.5),
                                 daemon=True).start()

    def _relay(self, near, cut, share, reset):
        """Passes a request and its answer; or the share of them up to a cut, which ends both sides, by a reset or in order."""
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self.target)) as far:
            if reset and cut:
                for link in (near, far):
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request = whole_request(near)
            if cut == "request":
                far.sendall(request[: int(share * len(request))])
                return
            far.sendall(request)
            if cut == "before the answer":
                time.sleep(share * 0.01)
                return
            answer = whole_answer(far)
            near.sendall(answer[: int(share * len(answer))] if cut == "answer" else answer)

    def close(self):
        self.listener.close()


def send(port, secret, key, path, body):
    """Sends a POST until there is a whole answer; returns its status, its contents and the number of tries."""
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json", "Idempotency-Key": key, "Connection": "close"}
    for tries in range(1, 100):
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            link.request("POST", path, json.dumps(body), headers)
            answer = link.getresponse()
            text = answer.read()
            # http.client takes a head that ends early for a whole one.
            if len(text) != int(answer.headers.get("content-length", -1)):
                raise http.client.IncompleteRead(text)
            return answer.status, json.loads(text), tries
        except (OSError, http.client.HTTPException):
            pass
        finally:
            link.close()
    raise AssertionError(f"no answer to {path} {body}")


def listed(port, secret, path):
    """Returns all objects of a list."""
    items, page = [], f"http://127.0.0.1:{port}{path}?limit=100"
    while True:
        answer = requests.get(page, headers={"Authorization": f"Bearer {secret}"}, timeout=60).json()
        items += answer["items"]
        if not answer.get("next"):
            return items
        page = f"http://127.0.0.1:{port}{path}?limit=100&after={answer['next']}"


def test_orders_over_connections_that_are_cut_are_executed_exactly_once(tmp_path):
    port = free_port()
    settings = f'[api]\nlisten = "127.0.0.1:{port}"\nname = "Test IX"\n'
    with Exchange(tmp_path / "ix", engine=settings) as exchange:
        exchange.order({"operation": "create_account", "name": "Test IX", "kind": "exchange"},
                       {"operation": "create_user", "name": "ops", "account": "ac-0",
                        "roles": ["operator_admin", "operator_provisioning"]})
        own = next(iter(exchange.objects("ac")))
        _, secret = exchange.api_key(f"http://127.0.0.1:{port}", "ops")

        def order(number):
            """Makes an account, which the engine has, or one time of 16 a contact, which the API has."""
            if number % 16:
                path, body = "/api/v1/accounts", {"name": f"Member {number}", "kind": "member"}
            else:
                path, body = "/api/v1/contacts", {
                    "account": own, "name": f"Person {number}", "roles": ["noc"], "email": f"p{number}@example.net", "telephone": "+8130000000"}
            return send(cutter.port, secret, f"order-{number:05}", path, body)

        cutter = Cutter(port, seed=29)
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(order, range(ORDERS)))
        took = time.monotonic() - began
        cutter.close()
        assert all(status == 201 for status, _, _ in answers), next(one for one in answers if one[0] != 201)
        # Each connection but the last one of an order was cut.
        assert sum(tries for _, _, tries in answers) == cutter.connections == ORDERS + sum(cutter.cuts.values())
        assert all(cutter.cuts.values()), cutter.cuts
        accounts = {one["name"]: id for id, one in exchange.objects("ac").items() if id != own}
        assert len(accounts) == len(exchange.objects("ac")) - 1 == sum(number % 16 > 0 for number in range(ORDERS))
        found = listed(port, secret, "/api/v1/contacts")
        contacts = {one["name"]: one["id"] for one in found}
        assert len(contacts) == len(found) == ORDERS - len(accounts)
        # Each answer names the object that its order made.
        for number, (_, answer, _) in enumerate(answers):
            made = accounts[f"Member {number}"] if number % 16 else contacts[f"Person {number}"]
            assert made in json.dumps(answer), (number, made, answer)
        print(f"{ORDERS} orders over {cutter.connections} connections, of which {cutter.cuts} were cut, each executed once, "
              f"in {took:.1f} s")
