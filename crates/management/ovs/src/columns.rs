//! The columns that the switch reads. Columns that it writes itself are left out, or every statistic would come back; apart
//! from `ofport`, which tells the numbers of ports after a restart, and the versions, which are written only if empty.

use millrace_ovsdb::Monitored;

/// The name of the database.
pub const DATABASE: &str = "Open_vSwitch";

/// The lock of the process that realises the database: of ovs-vswitchd, or of Millrace.
pub const LOCK: &str = "ovs_vswitchd";

/// The columns that the switch reads, by table.
pub const MONITORED: Monitored = &[
    (
        "Open_vSwitch",
        &[
            "bridges",
            "datapaths",
            "other_config",
            "next_cfg",
            "ssl",
            "ovs_version",
            "db_version",
        ],
    ),
    (
        "Bridge",
        &[
            "name",
            "datapath_type",
            "ports",
            "controller",
            "fail_mode",
            "protocols",
            "mirrors",
            "netflow",
            "sflow",
            "ipfix",
            "stp_enable",
            "rstp_enable",
            "mcast_snooping_enable",
            "flood_vlans",
            "flow_tables",
            "auto_attach",
            "other_config",
        ],
    ),
    (
        "Port",
        &[
            "name",
            "interfaces",
            "tag",
            "trunks",
            "cvlans",
            "vlan_mode",
            "qos",
            "mac",
            "bond_mode",
            "lacp",
            "bond_updelay",
            "bond_downdelay",
            "bond_fake_iface",
            "fake_bridge",
            "protected",
            "other_config",
        ],
    ),
    (
        "Interface",
        &[
            "name",
            "type",
            "options",
            "ofport",
            "ofport_request",
            "mtu_request",
            "mac",
            "ingress_policing_rate",
            "ingress_policing_burst",
            "ingress_policing_kpkts_rate",
            "ingress_policing_kpkts_burst",
            "bfd",
            "cfm_mpid",
            "lldp",
            "other_config",
        ],
    ),
    (
        "Controller",
        &[
            "target",
            "max_backoff",
            "inactivity_probe",
            "connection_mode",
            "enable_async_messages",
            "controller_rate_limit",
            "controller_burst_limit",
            "controller_queue_size",
            "type",
            "local_ip",
            "local_netmask",
            "local_gateway",
            "other_config",
        ],
    ),
    ("QoS", &["type", "queues", "other_config"]),
    ("Queue", &["dscp", "other_config"]),
    (
        "Mirror",
        &[
            "name",
            "select_all",
            "select_src_port",
            "select_dst_port",
            "select_vlan",
            "output_port",
            "output_vlan",
            "snaplen",
        ],
    ),
    (
        "IPFIX",
        &[
            "targets",
            "sampling",
            "obs_domain_id",
            "obs_point_id",
            "cache_active_timeout",
            "cache_max_flows",
            "other_config",
        ],
    ),
    ("Flow_Sample_Collector_Set", &["id", "bridge"]),
    ("sFlow", &["targets", "sampling", "polling", "header", "agent"]),
    (
        "Flow_Table",
        &["name", "flow_limit", "overflow_policy", "prefixes", "groups"],
    ),
    (
        "SSL",
        &["private_key", "certificate", "ca_cert", "bootstrap_ca_cert"],
    ),
];
