"""LAGs with the bonding driver and with teamd of Linux, in a virtual machine: pairs of modes and rates, and a cable that is pulled.

A tap does not tell one end that the cable is pulled at the other, so that the other end learns it by LACP's timeout.
"""

import os
import shutil
import socket
import struct
import threading
import time

import pytest

from guest import Guest, needs_guests, taps
from namespaces import cables
from streams import checksum
from switches import run, wait_for
from test_lag import EXPIRED_MAX_S, HOST, PORT, carrying, lag, millrace

pytestmark = needs_guests
LONG = os.environ.get("MILLRACE_ROUTING_LONG")
TAPS = ("mr-lg0", "mr-lg1")
NICS = [(TAPS[0], "02:00:00:00:02:00"), (TAPS[1], "02:00:00:00:02:01")]
NEAR, FAR = "10.0.0.1", [f"10.0.0.{host}" for host in range(11, 27)]
# The time in s between two requests to an address.
INTERVAL = 0.02
ECHO_REQUEST, ECHO_REPLY = 8, 0


class Echoes:
    """Asks each address of the guest by ICMP all the time, and notes the answers."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, HOST.encode())
        self.socket.settimeout(1)
        self.over, self.sent = threading.Event(), 0
        self.answers = {address: [] for address in FAR}
        self.threads = [threading.Thread(target=target, daemon=True) for target in (self.send, self.receive)]
        for thread in self.threads:
            thread.start()

    def send(self):
        while not self.over.wait(INTERVAL):
            for address in FAR:
                head = struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, 7, self.sent)
                self.socket.sendto(struct.pack("!BBHHH", ECHO_REQUEST, 0, checksum(head), 7, self.sent), (address, 0))
            self.sent += 1

    def receive(self):
        while True:
            try:
                packet, (address, _) = self.socket.recvfrom(2000)
            except TimeoutError:
                if self.over.is_set():
                    return
                continue
            kind, _, _, _, number = struct.unpack_from("!BBHHH", packet, 20)
            if kind == ECHO_REPLY and address in self.answers:
                self.answers[address].append((time.monotonic(), number))

    def answered(self):
        return all(self.answers.values())

    def end(self, flows_move=False):
        """Returns the longest time in s without an answer of an address, the lost requests, and asserts that each address answered
        once and in order. Packets of a flow that moves to a member that joined may overtake those on its former member: neither
        teamd nor bonding sends markers (IEEE 802.1AX-2020, 6.6)."""
        self.over.set()
        for thread in self.threads:
            thread.join(60)
        self.socket.close()
        gap = lost = 0
        for address, answers in self.answers.items():
            numbers = [number for _, number in answers]
            assert len(numbers) == len(set(numbers)), f"{address} answered twice"
            assert flows_move or numbers == sorted(numbers), f"{address} answered out of order"
            lost += self.sent - len(numbers)
            gap = max(gap, *(later - earlier for (earlier, _), (later, _) in zip(answers, answers[1:])))
        return gap, lost


def bonding(guest, active, rate):
    """Bonds both NICs. The addresses of a flow decide about its NIC."""
    guest.sh(f"insmod /modules/bonding.ko mode=802.3ad miimon=100 lacp_rate={rate} xmit_hash_policy=layer2+3")
    guest.sh(f"echo {'on' if active else 'off'} > /sys/class/net/bond0/bonding/lacp_active")
    guest.sh("ip link set bond0 up && for nic in eth0 eth1; do echo +$nic > /sys/class/net/bond0/bonding/slaves; done")
    return "bond0"


def teamd(guest, active, rate):
    """Makes a team of both NICs with teamd's runner `lacp`."""
    settings = ('{"device": "team0", "runner": {"name": "lacp", "active": %s, "fast_rate": %s, "tx_hash": ["eth", "ipv4"]}, '
                '"link_watch": {"name": "ethtool"}, "ports": {"eth0": {}, "eth1": {}}}') % (str(active).lower(), str(rate == "fast").lower())
    guest.sh(f"mkdir -p /var/run/teamd && echo '{settings}' > /tmp/team.conf && teamd -d -f /tmp/team.conf")
    guest.sh("ip link set team0 up")
    return "team0"


# The modules that the guest begins with, its programs, and the modules that it inserts with parameters.
KINDS = {
    bonding: (["net/tls/tls"], [], ["drivers/net/bonding/bonding"]),
    teamd: (["drivers/net/team/team", "drivers/net/team/team_mode_loadbalance"], ["teamd"], []),
}
# The maker of the bond, the mode here, if the bond is active, and the rate of both; all but the first two only in the long form.
PAIRS = [(bonding, "active", True, "fast"), (teamd, "active", True, "fast"), (bonding, "passive", True, "slow"),
         (bonding, "active", False, "fast"), (teamd, "passive", True, "fast"), (teamd, "active", False, "slow")]


@pytest.mark.parametrize(("make", "ours", "active", "rate"), PAIRS if LONG else PAIRS[:2])
def test_a_bond_of_linux_carries_flows_and_a_pulled_cable_moves_them(tmp_path, make, ours, active, rate):
    modules, programs, later = KINDS[make]
    if not all(map(shutil.which, programs)):
        pytest.skip("teamd is not there: scripts/setup.sh guests")
    with cables((HOST, PORT)), taps(*TAPS), Guest(tmp_path / "guest", NICS, modules, programs, later) as guest, \
            millrace(tmp_path / "millrace", f'mode = "{ours}"\nrate = "{rate}"', members=TAPS) as switch:
        run("ip", "address", "add", f"{NEAR}/24", "dev", HOST)
        bond = make(guest, active, rate)
        for address in FAR:
            guest.sh(f"ip address add {address}/24 dev {bond}")
        wait_for("both members carry packets", lambda: carrying(switch) == ["m0", "m1"])
        echoes = Echoes()
        wait_for("each address answers", echoes.answered)
        before = {member["name"]: (member["tx"]["packets"], member["rx"]["packets"]) for member in lag(switch)["members"]}

        def is_used(member):
            sent, received = before[member["name"]]
            return member["tx"]["packets"] > sent + 20 and member["rx"]["packets"] > received + 20
        wait_for("flows use both members, both ways", lambda: all(map(is_used, lag(switch)["members"])))
        gap, lost = echoes.end()
        print(f"{make.__name__}, {ours}, {active}, {rate}: {lost} of {echoes.sent * len(FAR)} lost while nothing happened, gap {gap:.2f} s")
        if rate == "slow":
            return
        echoes = Echoes()
        wait_for("each address answers", echoes.answered)
        guest.set_link(0, False)
        wait_for("the member left", lambda: carrying(switch) == ["m1"])
        time.sleep(0.5)
        gap, lost = echoes.end()
        print(f"{make.__name__}, {ours}, {active}, {rate}: cable pulled: {lost} lost, gap {gap:.2f} s")
        assert gap < EXPIRED_MAX_S
        echoes = Echoes()
        wait_for("each address answers", echoes.answered)
        guest.set_link(0, True)
        wait_for("both members carry packets again", lambda: carrying(switch) == ["m0", "m1"])
        time.sleep(0.5)
        gap, lost = echoes.end(flows_move=True)
        print(f"{make.__name__}, {ours}, {active}, {rate}: cable back: {lost} lost, gap {gap:.2f} s")
