"""The limits of listeners in docs/security.md are those of the code."""

import re

from switches import ROOT

# For each row of the table of limits in docs/security.md: the file and the text after which its limits stand in the code, in the
# order established, established of one source, pending, pending of one source; and the constants with its times in seconds.
LIMITS = {
    "OpenFlow": ("crates/base/listener/src/admission.rs", "pub const NETWORK: Limits", {}),
    "switches of an exchange": ("crates/exchange/controller/src/driver/listener.rs", "const LIMITS: Limits", {}),
    "REST": ("crates/config/api/src/server/limits.rs", "fn default() -> Limits", {}),
    "gNMI, TLS": ("crates/base/listener/src/admission.rs", "pub const NETWORK: Limits", {"bin/millrace-mgmt/src/gnmi.rs": "HANDSHAKE_TIMEOUT"}),
    "gNMI, Unix socket": ("crates/base/listener/src/admission.rs", "pub const LOCAL: Limits", {"bin/millrace-mgmt/src/gnmi.rs": "KEEP_ALIVE"}),
    "API and page of an exchange": ("crates/exchange/ix-api/src/serve.rs", "connections: millrace_listener::Limits {", {}),
    "commands of an exchange": ("crates/base/listener/src/admission.rs", "pub const LOCAL: Limits",
                                {"bin/millrace-ix/src/control.rs": "SILENCE"}),
    "transfers, UDP": ("crates/transport/courier/src/control.rs", "const LIMITS: Limits",
                       {"crates/transport/courier/src/control.rs": "HANDSHAKE"}),
    "status and metrics of transfers": ("crates/transport/daemon/src/http.rs", "const LIMITS: Limits",
                                        {"crates/transport/daemon/src/http.rs": "PATIENCE"}),
    "path of `millrace wan between`": ("bin/millrace-wan/src/control.rs", "const LIMITS: Limits",
                                       {"bin/millrace-wan/src/control.rs": "SILENCE"}),
}
# The same for listeners that have a number of pending connections only.
PENDING = {
    "crates/switch/datapath/src/io/memif/server.rs": r"const UNASSIGNED_MAX: usize = (\d+)",
    "crates/functions/chain/src/process/attached.rs": r"const WAITING_MAX: usize = (\d+)",
}
# The same for listeners whose peers the kernel names.
NAMED_BY_THE_KERNEL = {
    "bin/millrace-mgmt/src/netconf.rs": r"const SESSIONS_MAX: usize = (\d+);\nconst SESSIONS_OF_USER_MAX: usize = (\d+)",
    "crates/management/ovs-follower/src/unixctl.rs": r"const CLIENTS_MAX: usize = (\d+)",
}


def source_of(name):
    return (ROOT / name).read_text()


def test_the_limits_of_the_documentation_are_those_of_the_code():
    text = (ROOT / "docs" / "security.md").read_text().split("## Connections whose peers have not identified themselves")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == len(LIMITS) + 3, "a row without a check"
    for name, (file, begin, times) in LIMITS.items():
        [row] = [row for row in rows if row[0].split(" (")[0] == name]
        established, own, pending, pending_own = map(int, re.findall(r": (\d+),", source_of(file).split(begin)[1])[:4])
        at_most = f"{established:,}" if established else ""
        assert row[2].startswith(at_most) and bool(row[2]) == bool(at_most), (name, row[2], established)
        assert own == established or f"{own} of one address" in row[2], (name, row[2], own)
        wanted = f"{pending}" if pending_own == pending else f"{pending}, {pending_own}"
        assert row[3].split(" (")[0] == wanted, (name, row[3], wanted)
        for place, constant in times.items():
            [seconds] = re.findall(rf"const {constant}: Duration = Duration::from_secs\((\d+)\)", source_of(place))
            assert row[4].startswith(f"{seconds} s"), (name, row[4], seconds)
    [row] = [row for row in rows if row[0].startswith("NETCONF")]
    counts = [count for file, pattern in NAMED_BY_THE_KERNEL.items() for count in re.search(pattern, source_of(file)).groups()]
    assert row[2] == "{}, {} of one user; {} at a time".format(*counts)
    [row] = [row for row in rows if row[0].startswith("memif")]
    counts = [re.search(pattern, source_of(file)).group(1) for file, pattern in PENDING.items()]
    # The kernel's queue holds one connection more than listen(2) is told.
    backlog = re.search(r"listen\(&socket, (\d+)\)", source_of("crates/switch/datapath/src/io/vhost/session_thread.rs")).group(1)
    assert row[3] == "; ".join([*counts, f"{int(backlog) + 1} in the kernel's queue"])
