"""Circuits between all pairs of tags at a running switch: the frames that leave are those that scapy builds (gate A3).

Two bridges of one process are two sites, with a trunk of S-tags between them. Each circuit has ports of its own, which are captures."""

import itertools
import os
import random
import re

import scapy.all as scapy

from exchange import Exchange
from sites import Site
from switches import run, wait_for
from test_sflow import write_capture

# The tags of both ends: their configuration in the exchange, and the layers of scapy with a priority.
ONE = {
    "none": ('{ type = "port" }', lambda pcp: []),
    "C": ('{ type = "dot1q", vlan = 100 }', lambda pcp: [scapy.Dot1Q(vlan=100, prio=pcp)]),
    "S": ('{ type = "dot1q", vlan = 200, ethertype = "0x88a8" }', lambda pcp: [scapy.Dot1AD(vlan=200, prio=pcp)]),
    "QinQ": ('{ type = "qinq", outer = 300, inner = 33 }', lambda pcp: [scapy.Dot1AD(vlan=300, prio=pcp), scapy.Dot1Q(vlan=33, prio=pcp)]),
}
TWO = {
    "none": ONE["none"],
    "C": ('{ type = "dot1q", vlan = 101 }', lambda pcp: [scapy.Dot1Q(vlan=101, prio=pcp)]),
    "S": ('{ type = "dot1q", vlan = 201, ethertype = "0x88a8" }', lambda pcp: [scapy.Dot1AD(vlan=201, prio=pcp)]),
    "QinQ": ('{ type = "qinq", outer = 301, inner = 34 }', lambda pcp: [scapy.Dot1AD(vlan=301, prio=pcp), scapy.Dot1Q(vlan=34, prio=pcp)]),
}
PLACES = ("same switch", "other site", "same port", "LAG")
# Sizes of frames as they enter, without FCS.
SIZES = (60, 61, 64, 512, 1514, 1518, 1522) if os.environ.get("MILLRACE_EXCHANGE_LONG") else (60, 61, 1522)
SITES = ("one", "two")
TRUNK = 1


def built(tags, pcp, payload):
    """Returns a frame with tags as scapy builds it."""
    packet = scapy.Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    for layer in tags(pcp):
        packet /= layer
    # The type of the last header is that of IPv4, whatever the payload.
    packet.lastlayer().type = 0x0800
    return bytes(packet / scapy.Raw(payload))


class Circuit:
    """A circuit between two ends, each with a site and the numbers of its ports."""

    def __init__(self, place, one, two, free):
        self.place, self.kinds, self.tags = place, (one, two), (ONE[one], TWO[two])
        near = ("one", [next(free["one"])])
        far = {"same switch": lambda: ("one", [next(free["one"])]), "other site": lambda: ("two", [next(free["two"])]),
               "same port": lambda: near, "LAG": lambda: ("two", [next(free["two"]), next(free["two"])])}[place]()
        self.ends = (near, far)

    def text(self, number):
        """Returns its part of the exchange file."""
        names = [f"c{number}-{side}" if self.ends[0] is not self.ends[1] else f"c{number}" for side in (0, 1)]
        text = ""
        for name, (site, ports) in dict(zip(names, self.ends)).items():
            kind = "lag_static" if len(ports) > 1 else "standalone"
            numbers = ", ".join(f'"{site}-1:{port}"' for port in ports)
            text += f'[[connection]]\naccount = "R"\nname = "{name}"\nkind = "{kind}"\nports = [{numbers}]\n'
        text += f'[[service]]\naccount = "R"\nname = "s{number}"\nkind = "p2p_vc"\n'
        for name, (vlan, _) in zip(names, self.tags):
            text += f'[[service.end]]\nconnection = ["R", "{name}"]\nvlan = {vlan}\n'
        return text

    def frames(self, side, rng):
        """Returns pairs of frames: one that enters by an end, and the one that leaves by the other."""
        (_, tags), (_, others) = self.tags[side], self.tags[1 - side]
        pairs = []
        for pcp, size in itertools.product(range(8), SIZES):
            payload = rng.randbytes(size - 14 - 4 * len(tags(0)))
            # A frame without a tag has no priority.
            pairs.append((built(tags, pcp, payload), built(others, pcp if tags(0) else 0, payload)))
        return pairs


def bridges(folder, ports):
    """Returns the configuration of both sites in one process."""
    text = f'[system]\nstate_dir = "{folder}/state"\n[api]\nsocket = "{folder}/api.sock"\n'
    for dpid, site in enumerate(SITES, 1):
        text += (f'[[bridge]]\nname = "{site}"\ndpid = "{dpid:016x}"\ncontrollers = ["CONTROLLER"]\n'
                 f'listen = ["punix:{folder}/{site}.sock"]\nfail_mode = "secure"\n'
                 f'[[bridge.port]]\nname = "trunk-{site}"\nnumber = {TRUNK}\ndevice = "link:trunk"\nmtu = 1700\n')
        for port in ports[site]:
            text += (f'[[bridge.port]]\nname = "{site}-{port}"\nnumber = {port}\ndevice = "pcap:tx={folder}/{site}-{port}.tx"\n'
                     "mtu = 1700\n")
    return text


def sent(folder):
    """Returns the number of frames that each port has sent, by site and port."""
    found = {}
    for site in SITES:
        text = run("ovs-ofctl", "-O", "OpenFlow13", "dump-ports", f"unix:{folder}/{site}.sock")
        for number, packets in re.findall(r"port\s+(\d+): rx .*?tx pkts=(\d+)", text, re.DOTALL):
            found[site, int(number)] = int(packets)
    return found


def exchange_file(circuits, ports):
    text = ""
    for dpid, site in enumerate(SITES, 1):
        speeds = ", ".join(f"{{ number = {number}, speed_mbps = 1000 }}" for number in (TRUNK, *ports[site]))
        text += (f'[[site]]\nname = "{site}"\n[[switch]]\nname = "{site}-1"\nsite = "{site}"\ndpid = "{dpid:016x}"\n'
                 f"ports = [{speeds}]\n")
    text += (f'[[trunk]]\nname = "north"\nkind = "s_tag"\nends = ["one-1:{TRUNK}", "two-1:{TRUNK}"]\ncost = 10\ncapacity_mbps = 100000\nmtu = 1700\n'
             '[[account]]\nname = "R"\nkind = "member"\n')
    return text + "".join(circuit.text(number) for number, circuit in enumerate(circuits))


def test_frames_between_all_pairs_of_tags_are_those_that_scapy_builds(tmp_path):
    free = {site: itertools.count(2) for site in SITES}
    circuits = [Circuit(place, one, two, free) for place, one, two in itertools.product(PLACES, ONE, TWO)
                if place != "same port" or "none" not in (one, two)]
    ports = {site: range(2, next(free[site])) for site in SITES}
    rng, count = random.Random(3), 0
    folder = tmp_path / "switch"
    file = tmp_path / "exchange.toml"
    file.write_text(exchange_file(circuits, ports))
    with Exchange(tmp_path / "ix") as exchange:
        exchange.ask("apply", file)
        folder.mkdir()
        with Site(folder, bridges(folder, ports), exchange.target) as switch:
            exchange.wait_in_sync()
            due = {}
            for side in (0, 1):
                awaited = {}
                for circuit in circuits:
                    (site, numbers), (to, outs) = circuit.ends[side], circuit.ends[1 - side]
                    pairs = circuit.frames(side, rng)
                    # A LAG receives by its first port.
                    write_capture(f"{folder}/{site}-{numbers[0]}.rx{side}", [frame for frame, _ in pairs])
                    due[circuit, side] = sorted(frame for _, frame in pairs), [f"{folder}/{to}-{out}.tx{side}" for out in outs]
                    awaited[circuit] = [(to, out) for out in outs], len(pairs)
                senders = {(circuit.ends[side][0], circuit.ends[side][1][0]) for circuit in circuits}

                def make(config, sends, senders=senders, side=side):
                    """Makes the ports again that send, or those that only receive."""
                    for bridge in config["bridge"]:
                        for port in bridge["port"]:
                            name = f"{folder}/{bridge['name']}-{port['number']}"
                            if port["number"] != TRUNK and ((bridge["name"], port["number"]) in senders) == sends:
                                port["device"] = f"pcap:{f'rx={name}.rx{side},' if sends else ''}tx={name}.tx{side}"
                # A capture is read at once: the ports at which its frames leave are there before.
                for sends in (False, True):
                    switch.change(lambda config, sends=sends, make=make: make(config, sends))
                # A port that was made again counts from zero.
                for circuit, (outs, wanted) in awaited.items():
                    where = f"{circuit.place}, {circuit.kinds}, from end {side}"
                    wait_for(f"all frames of {where}", lambda outs=outs, wanted=wanted: sum(sent(folder)[out] for out in outs) >= wanted)
            # The captures are complete when the switch has ended.
            assert switch.stop() == 0
            for (circuit, side), (wanted, files) in due.items():
                found = []
                for name in files:
                    with scapy.RawPcapReader(name) as reader:
                        found += [frame for frame, _ in reader]
                where = f"{circuit.place}, {circuit.kinds}, from end {side}"
                differing = [pair for pair in zip(sorted(found), wanted) if pair[0] != pair[1]]
                assert not differing, f"{where}: {[(one[:32].hex(), other[:32].hex()) for one, other in differing[:2]]}"
                assert len(found) == len(wanted), f"{where}: {len(found)} frames"
                count += len(found)
    print(f"{len(circuits)} circuits, {count} frames as scapy builds them")
