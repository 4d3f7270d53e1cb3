"""Starts a PostgreSQL 15 server as processes of its own, in a folder, under a user without rights, on a Unix socket."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from switches import run, wait_for

PROGRAMS = pathlib.Path("/usr/lib/postgresql/15/bin")
# The server refuses to run as root.
NOBODY = 65534
MISSING = f"{PROGRAMS} has no postgres: scripts/setup.sh exchange installs it"


def is_installed():
    return (PROGRAMS / "postgres").exists()


class Server:
    """A server with one database for an exchange."""

    def __init__(self):
        # The path of a Unix socket is short, and nobody may enter it, so that it is not in the folder of the test.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="millrace-pg-"))
        self.user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
        if self.user:
            os.chown(self.folder, NOBODY, NOBODY)
        self.process = None

    def __enter__(self):
        try:
            run(*self.user, PROGRAMS / "initdb", "-D", self.folder / "data", "-U", "millrace", "-A", "trust", "-E", "UTF8", "-N",
                env={**os.environ, "LC_ALL": "C"})
            self.start()
            self.sql("CREATE DATABASE ix", database="postgres")
            # The first engine makes the tables, and the roles of both may use them.
            for number in (1, 2):
                self.sql(f"CREATE ROLE ix{number} SUPERUSER LOGIN", database="postgres")
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        with (self.folder / "log").open("a") as log:
            # A process group of its own, which stops and continues as a whole.
            self.process = subprocess.Popen(
                [*self.user, PROGRAMS / "postgres", "-D", self.folder / "data", "-k", self.folder, "-c", "listen_addresses=",
                 "-c", "fsync=off"], stdout=log, stderr=log, start_new_session=True)
        wait_for("PostgreSQL answers", self.answers)

    def connection(self, number):
        """Returns the connection of an engine, each of which has a role of its own."""
        return f"host={self.folder} user=ix{number} dbname=ix"

    def cut_off(self, number):
        """Lets an engine not connect any more, as if its site was cut off from the server's."""
        self.sql(f"ALTER ROLE ix{number} NOLOGIN; SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'ix{number}'")

    def let_in(self, number):
        self.sql(f"ALTER ROLE ix{number} LOGIN")

    def answers(self):
        return subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", self.folder], check=False).returncode == 0

    def pause(self):
        """Stops all processes of the server, as if its machine was gone."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        for pid in self.backends():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)
        for pid in self.backends():
            # One whose client is gone ends as soon as it runs.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def backends(self):
        """Returns the processes that the server has started; each has a process group of its own."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def sql(self, text, database="ix"):
        return run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-U", "millrace", database, input=text).strip()

    def back_up(self, path):
        run("pg_dump", "-h", self.folder, "-U", "millrace", "-Fc", "-f", path, "ix")

    def restore(self, path):
        """Puts a backup in the place of the database."""
        self.sql("DROP DATABASE ix WITH (FORCE)", database="postgres")
        self.sql("CREATE DATABASE ix", database="postgres")
        run("pg_restore", "-h", self.folder, "-U", "millrace", "-d", "ix", "--exit-on-error", path)

    def __exit__(self, *_):
        if self.process:
            self.resume()
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(timeout=60)
        shutil.rmtree(self.folder)
