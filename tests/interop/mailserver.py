"""A mail server (aiosmtpd) that keeps letters in a Maildir, as a program: `python mailserver.py PORT FOLDER`.

Letters to `refused@...` are refused for good, and those to `later@...` for now, until the file `open` is beside the Maildir.
"""

import pathlib
import signal
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Mailbox


class Server(Mailbox):
    def __init__(self, folder):
        super().__init__(str(folder / "mail"))
        self.folder = folder

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("refused@"):
            return "550 5.1.1 no such person"
        if address.startswith("later@") and not (self.folder / "open").exists():
            return "451 4.7.1 try later"
        envelope.rcpt_tos.append(address)
        return "250 OK"


def main():
    port, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    # The signal that ends the program must not come before it is expected.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    controller = Controller(Server(folder), hostname="127.0.0.1", port=port)
    controller.start()
    signal.sigwait([signal.SIGTERM])
    controller.stop()


if __name__ == "__main__":
    main()
