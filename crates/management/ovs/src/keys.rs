//! Keys of maps (`other_config`, `options`, `bfd`) that Open vSwitch documents (ovs-vswitchd.conf.db(5)) and that have no effect
//! here. Each that is set is named with what comes closest, unless its value asks for what the switch does anyway.

use crate::fault::{Faults, RowName, Severity};
use crate::rows::View;

/// Keys of a column that have no effect for one reason.
struct Group {
    table: &'static str,
    column: &'static str,
    severity: Severity,
    /// The keys, each with the value that asks for what the switch does anyway; an empty one always does.
    keys: &'static [(&'static str, &'static str)],
    /// The reason, or what comes closest.
    instead: &'static str,
}

const fn group(
    table: &'static str,
    column: &'static str,
    keys: &'static [(&'static str, &'static str)],
    instead: &'static str,
) -> Group {
    Group {
        table,
        column,
        severity: Severity::Ignored,
        keys,
        instead,
    }
}

const GROUPS: &[Group] = &[
    group(
        "Open_vSwitch",
        "other_config",
        &[
            ("dpdk-init", "false"),
            ("dpdk-extra", ""),
            ("dpdk-hugepage-dir", ""),
        ],
        "expected in system of the configuration",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[
            ("dpdk-socket-mem", "0"),
            ("dpdk-socket-limit", ""),
            ("dpdk-alloc-mem", "0"),
            ("per-port-memory", "false"),
            ("shared-mempool-config", ""),
        ],
        "expected in system.memory_mib of the configuration",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[
            ("dpdk-lcore-mask", ""),
            ("pmd-cpu-mask", ""),
            ("n-handler-threads", ""),
            ("n-revalidator-threads", ""),
        ],
        "expected in system.worker_cores or system.workers of the configuration",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[
            ("pmd-rxq-assign", ""),
            ("pmd-rxq-isolate", ""),
            ("pmd-auto-lb", "false"),
            ("pmd-auto-lb-rebal-interval", ""),
            ("pmd-auto-lb-load-threshold", ""),
            ("pmd-auto-lb-improvement-threshold", ""),
        ],
        "queues are spread over the workers evenly",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[("pmd-maxsleep", "0"), ("tx-flush-interval", "0")],
        "workers send at the end of each burst, and choose when they sleep",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[
            ("emc-insert-inv-prob", ""),
            ("smc-enable", "false"),
            ("flow-limit", ""),
            ("max-idle", ""),
            ("max-revalidator", ""),
            ("min-revalidate-pps", ""),
        ],
        "the cache of flows has a fixed size, and each entry is verified at its use",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[
            ("hw-offload", "false"),
            ("n-offload-threads", ""),
            ("tc-policy", "none"),
            ("offload-rebalance", "false"),
        ],
        "ports of the database are forwarded in software",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[("userspace-tso-enable", "false")],
        "offloads of a port are those that its device has",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[("vhost-sock-dir", "")],
        "expected the whole path in options:vhost-server-path",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[
            ("vhost-iommu-support", "false"),
            ("vhost-postcopy-support", "false"),
        ],
        "vhost-user has neither IOTLB messages nor post-copy migration",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[("flow-restore-wait", "false")],
        "bridges forward at once: expected flow entries of a controller after the start",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[("vlan-limit", "")],
        "NORMAL reads two tags, and flow entries match the outermost",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[("bundle-idle-timeout", "")],
        "OpenFlow bundles are not available",
    ),
    group(
        "Open_vSwitch",
        "other_config",
        &[("enable-statistics", "false"), ("pmd-perf-metrics", "false")],
        "expected /metrics, and an exporter of the machine",
    ),
    Group {
        table: "Open_vSwitch",
        column: "other_config",
        severity: Severity::Refused,
        keys: &[
            ("private_key", ""),
            ("certificate", ""),
            ("ca_cert", ""),
            ("ipsec_skb_mark", ""),
        ],
        instead: "IPsec is not available, and packets of tunnels leave in the clear",
    },
    group(
        "Bridge",
        "other_config",
        &[("in-band-queue", "")],
        "connections are out of band",
    ),
    group(
        "Bridge",
        "other_config",
        &[("controller-queue-size", "")],
        "packet-ins wait in a queue of fixed size",
    ),
    group(
        "Bridge",
        "other_config",
        &[
            ("mcast-snooping-aging-time", ""),
            ("mcast-snooping-table-size", ""),
            ("mcast-snooping-disable-flood-unregistered", "false"),
        ],
        "multicast is flooded",
    ),
    group(
        "Port",
        "other_config",
        &[
            ("mcast-snooping-flood", "false"),
            ("mcast-snooping-flood-reports", "false"),
        ],
        "multicast is flooded to all ports",
    ),
    group(
        "Port",
        "other_config",
        &[("priority-tags", "never")],
        "untagged packets leave without a priority",
    ),
    group(
        "Port",
        "other_config",
        &[("bond-detect-mode", "carrier"), ("bond-miimon-interval", "")],
        "links are watched by their carrier",
    ),
    group(
        "Port",
        "other_config",
        &[
            ("bond-rebalance-interval", ""),
            ("bond-hash-basis", ""),
            ("lb-output-action", "false"),
        ],
        "flows are spread by their hash",
    ),
    group(
        "Port",
        "other_config",
        &[("all-members-active", "false"), ("all-slaves-active", "false")],
        "an interface that is not in use drops what it receives",
    ),
    group(
        "Interface",
        "other_config",
        &[("pmd-rxq-affinity", ""), ("tx-steering", "thread")],
        "queues are spread over the workers evenly: expected system.worker_cores of the configuration",
    ),
    group(
        "Interface",
        "other_config",
        &[("emc-enable", "true")],
        "the cache of flows is one for all ports of a worker",
    ),
    group(
        "Interface",
        "other_config",
        &[
            ("cfm_extended", "false"),
            ("cfm_demand", "false"),
            ("cfm_opstate", "up"),
            ("cfm_ccm_vlan", ""),
            ("cfm_ccm_pcp", ""),
        ],
        "continuity checks are those of IEEE 802.1ag, untagged and at a fixed interval",
    ),
    group(
        "Interface",
        "options",
        &[("n_rxq_desc", ""), ("n_txq_desc", "")],
        "queues have as many descriptors as the switch chooses",
    ),
    group(
        "Interface",
        "options",
        &[
            ("rx-flow-ctrl", "false"),
            ("tx-flow-ctrl", "false"),
            ("flow-ctrl-autoneg", "false"),
        ],
        "flow control of the device stays as it is",
    ),
    group(
        "Interface",
        "options",
        &[("dpdk-vf-mac", ""), ("dpdk-lsc-interrupt", "")],
        "expected in the DPDK devargs, if the driver has it",
    ),
    group(
        "Interface",
        "options",
        &[("xdp-mode", ""), ("use-need-wakeup", "true")],
        "the driver chooses",
    ),
    group(
        "Interface",
        "options",
        &[("tx-retries-max", "")],
        "the number of tries is fixed",
    ),
    group(
        "Interface",
        "options",
        &[("df_default", "true")],
        "packets always have the bit DF",
    ),
    group(
        "Interface",
        "options",
        &[("egress_pkt_mark", "0")],
        "packets of tunnels have no mark",
    ),
    group(
        "Interface",
        "options",
        &[("packet_type", "legacy_l2")],
        "expected legacy_l2",
    ),
    group(
        "Interface",
        "options",
        &[
            ("erspan_idx", ""),
            ("erspan_ver", ""),
            ("erspan_dir", ""),
            ("erspan_hwid", ""),
            ("payload_type", ""),
        ],
        "the types erspan and bareudp are not available",
    ),
    group(
        "Interface",
        "options",
        &[("exts", "")],
        "extensions of VXLAN are not available",
    ),
    group(
        "Interface",
        "options",
        &[("seq", "false")],
        "GRE has no sequence numbers here",
    ),
    Group {
        table: "Interface",
        column: "options",
        severity: Severity::Refused,
        keys: &[("psk", ""), ("remote_cert", ""), ("remote_name", "")],
        instead: "IPsec is not available, and packets of the tunnel leave in the clear",
    },
    group(
        "Interface",
        "bfd",
        &[
            ("decay_min_rx", "0"),
            ("forwarding_if_rx", "false"),
            ("cpath_down", "false"),
            ("check_tnl_key", "false"),
            ("bfd_local_src_mac", ""),
            ("bfd_local_dst_mac", ""),
            ("bfd_remote_dst_mac", ""),
            ("oam", "false"),
        ],
        "a session has the addresses of its port, and a fixed interval",
    ),
    group(
        "QoS",
        "other_config",
        &[("cir", ""), ("cbs", ""), ("eir", ""), ("ebs", "")],
        "packets above the rate wait in the queues of the port",
    ),
    group(
        "QoS",
        "other_config",
        &[
            ("perturb", ""),
            ("quantum", ""),
            ("latency", ""),
            ("limit", ""),
            ("loss", ""),
        ],
        "expected linux-htb or linux-hfsc; an emulator of networks is another program",
    ),
    group(
        "Queue",
        "other_config",
        &[("burst", "")],
        "the burst follows from the rate",
    ),
    group(
        "IPFIX",
        "other_config",
        &[("enable-tunnel-sampling", "false"), ("virtual_obs_id", "")],
        "records are those of packets at ports, without tunnels and virtual observation points",
    ),
    group(
        "IPFIX",
        "other_config",
        &[
            ("enable-input-sampling", "true"),
            ("enable-output-sampling", "false"),
        ],
        "packets are sampled where they arrive",
    ),
];

/// Keys that other programs read, or that say nothing more than the columns do.
const OF_OTHER_PROGRAMS: [(&str, &str, &str); 2] = [
    // Out of band, as here.
    ("Bridge", "other_config", "disable-in-band"),
    // `ovs-ctl` removes such ports at its start.
    ("Port", "other_config", "transient"),
];

/// Returns why a key of a column has no effect, or `None` if its value asks for what the switch does anyway.
pub(crate) fn reason(table: &str, column: &str, key: &str, value: &str) -> Option<(Severity, &'static str)> {
    if value.is_empty() || OF_OTHER_PROGRAMS.contains(&(table, column, key)) {
        return None;
    }
    let groups = GROUPS
        .iter()
        .filter(|group| (group.table, group.column) == (table, column));
    for group in groups {
        for (name, default) in group.keys {
            if *name == key {
                return (*default != value).then_some((group.severity, group.instead));
            }
        }
    }
    Some((Severity::Ignored, "the key is not known here"))
}

/// Names the keys of a column that have no effect, apart from those that the caller reads.
pub(crate) fn check(
    view: &View<'_>,
    column: &str,
    row: &RowName,
    is_read: impl Fn(&str) -> bool,
    faults: &mut Faults,
) {
    for (key, value) in view.map(column) {
        if is_read(key) {
            continue;
        }
        if let Some((severity, instead)) = reason(view.table, column, key, value) {
            faults.add(
                row,
                severity,
                format!("{column}:{key}={value} has no effect: {instead}"),
            );
        }
    }
}

/// Returns the truth of a key, and names another value than `true` and `false`.
pub(crate) fn flag(
    view: &View<'_>,
    column: &str,
    key: &str,
    row: &RowName,
    faults: &mut Faults,
) -> Option<bool> {
    match view.map(column).get(key).copied()? {
        "true" => Some(true),
        "false" => Some(false),
        value => {
            faults.ignore(
                row,
                format!("{column}:{key}={value} has no effect: expected true or false"),
            );
            None
        }
    }
}
