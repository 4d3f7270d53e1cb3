"""A routing registry for tests and demos: answers IRRd's queries for route objects from a file in RPSL.

`python registry.py PORT FILE` serves on the loopback address until it is ended.
"""

import pathlib
import socketserver
import sys


def objects(text):
    """Returns (class, prefix, origin) of each object."""
    found = []
    for part in text.split("\n\n"):
        fields = [line.split(":", 1) for line in part.strip().splitlines() if ":" in line]
        if fields:
            values = {name.strip(): value.strip() for name, value in fields}
            found.append((fields[0][0].strip(), fields[0][1].strip(), values["origin"]))
    return found


class Registry(socketserver.ThreadingTCPServer):
    """The server."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, port, file):
        super().__init__(("127.0.0.1", port), Session)
        self.objects = objects(pathlib.Path(file).read_text())


class Session(socketserver.StreamRequestHandler):
    """A connection."""

    def handle(self):
        for line in self.rfile:
            query = line.decode("ascii", "replace").strip()
            if query == "!q":
                return
            if query != "!!":
                self.wfile.write(self.answer(query).encode())

    def answer(self, query):
        """Returns the answer to a query."""
        kind = {"!g": "route", "!6": "route6"}.get(query[:2])
        if kind is None:
            return "C\n" if query.startswith("!s") else "D\n"
        data = " ".join(prefix for name, prefix, origin in self.server.objects if (name, origin) == (kind, query[2:])) + "\n"
        return f"A{len(data)}\n{data}C\n" if data.strip() else "D\n"


if __name__ == "__main__":
    Registry(int(sys.argv[1]), sys.argv[2]).serve_forever()
