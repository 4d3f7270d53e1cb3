#!/usr/bin/env python3
"""Kernel interfaces as ports: compares `kernel:eth1` with DPDK's `net_af_packet`, in turn, in one run.

    scripts/apart.sh crates/instruments/bench/scripts/interfaces.py [--rounds N] [--seconds S] [--target target/release]

The script needs root, iperf3, ethtool and dpdk-testpmd. Virtual Ethernet joins two hosts in network namespaces to one
`millraced` with one worker. Figures are medians; the gates at the end determine the exit status.

| figure | measurement |
| --- | --- |
| packets | testpmd sends frames of 64 bytes at the highest rate at host 1; the interface of host 2 counts arrivals |
| TCP | iperf3 from host 1 to host 2. Offloads of the hosts stay on with `kernel:`; with `net_af_packet`, which forwards partial
checksums as they are, they must be off |
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HOSTS = [("bi-h1", "bi-k1", "10.9.0.1"), ("bi-h2", "bi-k2", "10.9.0.2")]
DEVICES = {"kernel": "kernel:{name}", "net_af_packet": "net_af_packet{number},iface={name}"}
# The required ratios.
GATES = {"packets": 1.0, "tcp": 3.0}


def run(*command, check=True):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    if check and done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    return done.stdout


def inside(host, *command, **kwargs):
    return run("ip", "netns", "exec", host, *command, **kwargs)


@contextlib.contextmanager
def hosts(offloads):
    try:
        for host, near, address in HOSTS:
            run("ip", "netns", "add", host)
            run("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0", "netns", host)
            for namespace, name in (("", near), (host, "eth0")):
                prefix = ["ip", "netns", "exec", namespace] if namespace else []
                run(*prefix, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
                run(*prefix, "ip", "link", "set", name, "up")
            inside(host, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
            if not offloads:
                inside(host, "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
        yield
    finally:
        for host, near, _ in HOSTS:
            run("ip", "netns", "del", host, check=False)
            run("ip", "link", "del", near, check=False)


@contextlib.contextmanager
def switch(target, device, folder):
    config = pathlib.Path(folder) / "switch.toml"
    lines = ["[system]", f'state_dir = "{folder}/state"', "workers = 1", "memory_mib = 256", 'huge_pages = "off"', "[api]",
             f'socket = "{folder}/api.sock"', "[[bridge]]", 'name = "br0"', 'fail_mode = "standalone"']
    for number, (_, near, _) in enumerate(HOSTS, 1):
        text = DEVICES[device].format(number=number, name=near)
        lines += ["[[bridge.port]]", f'name = "p{number}"', f"number = {number}", f'device = "{text}"']
    config.write_text("\n".join(lines) + "\n")
    with (pathlib.Path(folder) / "log").open("w") as log:
        daemon = subprocess.Popen([target / "millraced", "--config", config], stdout=log, stderr=log)
    try:
        for _ in range(100):
            ping = inside(HOSTS[0][0], "ping", "-c1", "-W1", HOSTS[1][2], check=False)
            if " 0% packet loss" in ping:
                break
            if daemon.poll() is not None:
                sys.exit(f"millraced ended: {(pathlib.Path(folder) / 'log').read_text()}")
            time.sleep(0.1)
        else:
            sys.exit("the hosts do not reach each other")
        yield
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)


def counter(name):
    return int(inside(HOSTS[1][0], "cat", f"/sys/class/net/eth0/statistics/{name}"))


def packets(seconds):
    """Returns the packets a second that arrive at host 2."""
    mac = inside(HOSTS[1][0], "cat", "/sys/class/net/eth0/address").strip()
    life = seconds + 40
    # In the foreground, `timeout` stays in the process group that is killed below.
    command = (f"sleep {life} | timeout --foreground {life} dpdk-testpmd --lcores 0@0,1@0 --main-lcore 0 --no-pci --no-telemetry --no-huge "
               f"-m 128 --file-prefix bi{os.getpid()} --vdev net_af_packet0,iface=eth0 -- --stats-period 60 "
               f"--total-num-mbufs=8192 --forward-mode=txonly --txpkts=60 --eth-peer=0,{mac}")
    sender = subprocess.Popen(["ip", "netns", "exec", HOSTS[0][0], "sh", "-c", command], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 30
        start = counter("rx_packets")
        while counter("rx_packets") < start + 10_000:
            if time.monotonic() > deadline or sender.poll() is not None:
                sys.exit("testpmd sends nothing: is dpdk-testpmd installed?")
            time.sleep(0.1)
        time.sleep(0.5)
        before, begin = counter("rx_packets"), time.monotonic()
        time.sleep(seconds)
        return (counter("rx_packets") - before) / (time.monotonic() - begin)
    finally:
        os.killpg(sender.pid, 9)
        sender.wait()


def tcp(seconds):
    """Returns the bits a second that iperf3's receiver gets."""
    server = subprocess.Popen(["ip", "netns", "exec", HOSTS[1][0], "iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        text = inside(HOSTS[0][0], "iperf3", "-J", "-t", seconds, "-O", 1, "-c", HOSTS[1][2])
        return json.loads(text)["end"]["sum_received"]["bits_per_second"]
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--target", type=pathlib.Path, default=pathlib.Path("target/release"))
    asked = parser.parse_args()
    found = {(device, figure): [] for device in DEVICES for figure in GATES}
    for number in range(asked.rounds):
        for device in DEVICES:
            with tempfile.TemporaryDirectory() as folder, hosts(device == "kernel"), switch(asked.target, device, folder):
                found[device, "tcp"].append(tcp(asked.seconds))
                found[device, "packets"].append(packets(asked.seconds))
            print(f"round {number + 1} {device:<14} {found[device, 'packets'][-1] / 1e3:8.0f} kpps "
                  f"{found[device, 'tcp'][-1] / 1e9:6.2f} Gbit/s", flush=True)
    median = {key: statistics.median(values) for key, values in found.items()}
    passed = True
    for figure, gate in GATES.items():
        ours, theirs = median["kernel", figure], median["net_af_packet", figure]
        ratio = ours / theirs
        passed &= ratio >= gate
        unit = (1e3, "kpps") if figure == "packets" else (1e9, "Gbit/s")
        print(f"{figure}: kernel {ours / unit[0]:.2f} {unit[1]}, net_af_packet {theirs / unit[0]:.2f} {unit[1]}: "
              f"{ratio:.2f} times, gate {gate}: {'passed' if ratio >= gate else 'FAILED'}")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
