"""One script of ovs-vsctl commands, and the rows that a client sees afterwards, without what differs from run to run."""

# Interfaces of the kernel that the script names: one end of each pair.
PAIRS = [(f"e{number}", f"x{number}") for number in range(1, 7)]

# Each line is one command. `!` marks those that fail on purpose.
SCRIPT = r"""
add-br br0
--may-exist add-br br0
set bridge br0 datapath_type=netdev other-config:datapath-id=00000000000000b0
add-port br0 e1
add-port br0 e2 -- set Interface e2 ofport_request=10
--may-exist add-port br0 e2
add-port br0 e3 tag=100
set port e3 tag=200
add-port br0 e4 trunks=10,20,30
set port e4 vlan_mode=trunk
add-port br0 i1 -- set Interface i1 type=internal
add-port br0 i2 tag=5 -- set Interface i2 type=internal mtu_request=1400
set Interface i2 external_ids:iface-id=abc external_ids:attached-mac=00\:11\:22\:33\:44\:55
add-br br1 -- set bridge br1 datapath_type=netdev fail_mode=secure other-config:datapath-id=00000000000000b1
set bridge br1 protocols=OpenFlow13
set bridge br1 other-config:mac-aging-time=60 other-config:mac-table-size=100
set bridge br1 other-config:disable-in-band=true
add-port br0 p01 -- set Interface p01 type=patch options:peer=p10
add-port br1 p10 -- set Interface p10 type=patch options:peer=p01
add-port br1 lonely -- set Interface lonely type=patch options:peer=nobody
set-controller br1 tcp:127.0.0.1:16653
set controller br1 max_backoff=1000 inactivity_probe=15000
set-controller br1 tcp:127.0.0.1:16653 ptcp:16654:127.0.0.1
set-fail-mode br0 standalone
del-fail-mode br0
set-fail-mode br1 secure
add-port br1 e5
set Interface e5 ingress_policing_rate=10000 ingress_policing_burst=1000
set port e1 qos=@q -- --id=@q create QoS type=linux-htb other-config:max-rate=100000000 queues:1=@q1 queues:2=@q2 -- --id=@q1 create Queue other-config:min-rate=1000000 -- --id=@q2 create Queue other-config:max-rate=2000000 other-config:priority=3
! add-port br0 missing0
! add-port br0 nopeer -- set Interface nopeer type=patch
del-port br0 missing0
del-port br0 nopeer
--if-exists del-port br0 nothing
add-br fake0 br0 77
add-port fake0 e6
br-set-external-id br0 bridge-id zero
set Open_vSwitch . external_ids:system-id=unit
set bridge br1 stp_enable=false rstp_enable=false
add-port br0 gone -- set Interface gone type=internal
del-port br0 gone
add-port br0 after -- set Interface after type=internal
set Interface after ofport_request=33
add-br br2 -- set bridge br2 datapath_type=netdev
del-br br2
add-br br3 -- set bridge br3 datapath_type=netdev other-config:datapath-id=00000000000000b3 -- add-port br3 t3 -- set Interface t3 type=internal -- set port t3 tag=9
clear port t3 tag
set port i1 trunks=1,2 -- set port i1 tag=3 vlan_mode=native-untagged
-- --id=@p get Port i2 -- --id=@m create Mirror name=m0 select-all=true output-port=@p -- set Bridge br0 mirrors=@m
set Mirror m0 snaplen=100 select-vlan=10,20
! set Mirror m0 snaplen=5
-- --id=@p get Port e1 -- --id=@m create Mirror name=m1 select-src-port=@p select-dst-port=@p output-vlan=90 -- add Bridge br0 mirrors @m
-- --id=@p get Port br1 -- --id=@m create Mirror name=m2 select-all=true output-port=@p -- set Bridge br1 mirrors=@m
-- --id=@m get Mirror m2 -- remove Bridge br1 mirrors @m
-- --id=@m create Mirror name=m3 select-all=true -- add Bridge br1 mirrors @m
get Mirror m0 snaplen
list-br
list-ports br0
list-ifaces br0
br-to-vlan fake0
br-to-parent fake0
port-to-br e6
iface-to-br e6
get-controller br1
get-fail-mode br1
br-exists br0
""".strip().splitlines()

TABLES = ["Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "QoS", "Queue", "Mirror"]

# Columns that differ between two runs of one switch.
VOLATILE = {"_uuid", "statistics", "mac_in_use", "ifindex", "link_resets"}


def run_script(database):
    """Runs the script, and returns the output of each command."""
    answers = []
    for line in SCRIPT:
        fails = line.startswith("! ")
        words = line.removeprefix("! ").split()
        said = database.vsctl_error(*words) if fails else database.vsctl(*words)
        answers.append(bool(said) if fails else said)
    return answers


def rows(database):
    """Returns the columns of all rows by table and name, without references and what differs from run to run."""
    found = {}
    names = {}
    for table in TABLES:
        for row in database.rows(table):
            # A queue has no name: its settings tell it from others.
            name = row.get("name") or row.get("target") or (table if table == "Open_vSwitch" else plain(row.get("other_config", ""), {}))
            names[row["_uuid"][1]] = f"{table} {name}"
            found[table, name] = row
    result = {}
    for (table, name), row in found.items():
        for column, value in row.items():
            if column not in VOLATILE:
                result[table, name, column] = plain(value, names)
    return result


def plain(value, names):
    """Returns a value as text, with the names of rows in place of their UUIDs."""
    if isinstance(value, list) and value and value[0] == "set":
        return "[" + ", ".join(sorted(plain(item, names) for item in value[1])) + "]"
    if isinstance(value, list) and value and value[0] == "map":
        pairs = [f"{plain(key, names)}={plain(item, names)}" for key, item in value[1]]
        return "{" + ", ".join(sorted(pairs)) + "}"
    if isinstance(value, list) and value and value[0] == "uuid":
        return names.get(value[1], "a row")
    return str(value)
