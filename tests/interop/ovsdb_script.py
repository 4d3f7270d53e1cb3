"""One script of ovs-vsctl commands, and the rows that a client sees afterwards, without what differs from run to run."""

def pairs(count):
    """Returns the names of pairs of interfaces of the kernel: the end that a test gives to the switch, and the other one."""
    return [(f"e{number}", f"x{number}") for number in range(1, count + 1)]


PAIRS = pairs(6)

# Those that the script names.
SCRIPT_PAIRS = pairs(10)

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
! add-br br0
! add-br i1
! add-port br0 e1
! --may-exist add-port br1 e1
! del-port br1 e1
! del-br nothing
! br-to-parent nothing
! set Interface nothing type=internal
! set port e1 nothing=1
! set port e1 tag=5000
! set bridge br0 fail_mode=closed
! set-fail-mode br0 closed
! add-port br0 odd -- set Interface odd type=bogus
del-port br0 odd
--if-exists del-br nothing
--if-exists set Interface nothing type=internal
--if-exists get Interface nothing type
get Interface e1 type
get Interface e2 ofport_request
--if-exists get Interface i2 external_ids:nothing
! get Interface i2 external_ids:nothing
get Interface i2 external_ids:iface-id
--columns=name,type find Interface type=patch
--columns=name,tag --format=csv find Port tag=200
--columns=name --bare find Bridge fail_mode=secure
--columns=name find Port trunks{>=}10,20
--columns=name find Interface options:peer=p01
br-get-external-id br0
br-get-external-id br0 bridge-id
br-set-external-id br0 bridge-id
br-set-external-id fake0 owner me
br-get-external-id fake0 owner
add-port br0 e7 trunks=1,2 vlan_mode=dot1q-tunnel tag=8 other-config:qinq-ethtype=802.1q
add-bond br1 bond0 e8 e9
set port bond0 bond_mode=balance-slb bond_updelay=100 bond_downdelay=200 other-config:bond-rebalance-interval=2000
list-ports br1
list-ifaces br1
iface-to-br e8
set port bond0 bond_mode=active-backup other-config:bond-primary=e9
set port bond0 lacp=passive other-config:lacp-time=fast other-config:lacp-fallback-ab=true
clear port bond0 lacp
set port bond0 tag=30
! add-bond br1 bond1 e8 e9
--may-exist add-bond br1 bond0 e8 e9
add-bond-iface bond0 e10
del-bond-iface bond0 e10
--if-exists del-bond-iface bond0 e10
del-port br1 bond0
add-bond br1 bond2 e8 e10 bond_mode=balance-tcp lacp=active other-config:lacp-system-priority=100
del-port br1 bond2
add-port br1 v0 -- set Interface v0 type=vxlan options:remote_ip=192.0.2.1 options:key=7
add-port br1 v1 -- set Interface v1 type=vxlan options:remote_ip=192.0.2.2 options:key=flow options:dst_port=8472
add-port br1 g0 -- set Interface g0 type=gre options:remote_ip=192.0.2.3 options:local_ip=192.0.2.9 options:key=5
set Interface v0 options:tos=inherit options:ttl=9 options:df_default=false
set Interface v0 options:remote_ip=192.0.2.4
remove Interface v0 options tos=inherit
remove Interface v0 options ttl
get Interface v0 options:remote_ip
del-port br1 v0
del-port br1 v1
del-port br1 g0
! add-port br1 v2 -- set Interface v2 type=vxlan
del-port br1 v2
-- --id=@s create sFlow targets=\"127.0.0.1\:16343\" sampling=64 polling=10 header=128 -- set Bridge br0 sflow=@s
-- --id=@i create IPFIX targets=\"127.0.0.1\:14739\" sampling=64 obs_domain_id=123 obs_point_id=456 -- set Bridge br1 ipfix=@i
clear Bridge br1 ipfix
set Bridge br0 other-config:forward-bpdu=true
set Bridge br0 flood_vlans=5,6
set Bridge br0 other-config:flow-limit=1000
remove Bridge br0 flood_vlans 6
add Bridge br0 flood_vlans 7
clear Bridge br0 flood_vlans
add-br br4 -- set bridge br4 datapath_type=netdev other-config:hwaddr="02:00:00:00:00:44" other-config:datapath-id=00000000000000b4
wait-until Interface br4 mac_in_use="02:00:00:00:00:44"
set Interface br4 mac="02:00:00:00:00:45"
clear Interface br4 mac
wait-until Interface br4 mac_in_use="02:00:00:00:00:44"
set bridge br4 rstp_enable=true other-config:rstp-priority=4096
set bridge br4 rstp_enable=false stp_enable=true other-config:stp-priority=100
set bridge br4 stp_enable=false
-- --id=@t create Flow_Table name=main flow_limit=100 overflow_policy=refuse -- set Bridge br4 flow_tables:0=@t
set Flow_Table main flow_limit=200
clear Bridge br4 flow_tables
set-controller br4 tcp:127.0.0.1:16655 -- set controller br4 connection_mode=out-of-band controller_rate_limit=100 controller_burst_limit=50 enable_async_messages=false
del-controller br4
get-controller br4
set port e2 qos=@n -- --id=@n create QoS type=linux-hfsc other-config:max-rate=50000000 queues:0=@h0 -- --id=@h0 create Queue other-config:min-rate=1000000 other-config:max-rate=2000000
! -- --id=@q create Queue other-config:max-rate=3000000 dscp=10 -- add QoS nobody queues 5=@q
clear port e2 qos
set Open_vSwitch . other_config:stats-update-interval=10000
remove Open_vSwitch . other_config stats-update-interval
set-manager ptcp:16640:127.0.0.1
get-manager
del-manager
get-ssl
set Interface i1 mtu_request=9000
clear Interface i1 mtu_request
set Interface e1 lldp:enable=true
del-br br4
add-port br0 i3 -- set Interface i3 type=internal mac="02:00:00:00:00:46"
wait-until Interface i3 mac_in_use="02:00:00:00:00:46"
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

TABLES = ["Open_vSwitch", "Bridge", "Port", "Interface", "Controller", "QoS", "Queue", "Mirror", "sFlow", "IPFIX", "Flow_Table"]

# Columns that differ between two runs of one switch.
VOLATILE = {"_uuid", "statistics", "mac_in_use", "ifindex", "link_resets"}


def run_script(database):
    """Runs the script, and returns the output of each command."""
    answers = []
    for line in SCRIPT:
        fails = line.startswith("! ")
        words = line.removeprefix("! ").split()
        said = database.vsctl_error(*words) if fails else database.vsctl(*words)
        if " find " in line:
            said = sorted(said.splitlines())  # in the order of UUIDs
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
