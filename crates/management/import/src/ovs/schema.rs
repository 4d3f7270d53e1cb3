//! The tables of the schema of Open vSwitch 3.1 (ovs-vswitchd.conf.db(5)) and the types of their columns, with which
//! ovs-vsctl(8) reads values. The test below compares them with the schema that Open vSwitch installs.

/// The type of an atom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Integer,
    Boolean,
    /// A reference to a row of this table.
    Uuid(&'static str),
}

/// The type of a column, and who writes it.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// The type of the atoms of a set, or of the keys of a map.
    pub(super) key: Type,
    /// The type of the values of a map; `None` for a set.
    pub(super) value: Option<Type>,
    /// The most atoms or pairs.
    pub(super) max: usize,
    /// True if Open vSwitch writes the column itself.
    pub(super) is_state: bool,
    /// True if a reference does not keep its row, and goes with it (RFC 7047, section 3.2, `refType`).
    pub(super) is_weak: bool,
}

impl Column {
    /// Returns the type of the atoms that are no keys.
    pub(super) fn stored(&self) -> Type {
        self.value.unwrap_or(self.key)
    }
}

/// The columns of a table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// True if rows exist without a reference to them.
    pub(super) is_root: bool,
    pub(super) columns: &'static [Column],
}

const fn set(name: &'static str, key: Type, max: usize) -> Column {
    Column {
        name,
        key,
        value: None,
        max,
        is_state: false,
        is_weak: false,
    }
}

const fn map(name: &'static str, key: Type, value: Type) -> Column {
    Column {
        name,
        key,
        value: Some(value),
        max: usize::MAX,
        is_state: false,
        is_weak: false,
    }
}

/// Returns a column that Open vSwitch writes itself.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a constant function that changes a column"
)]
const fn state(column: Column) -> Column {
    Column {
        is_state: true,
        ..column
    }
}

/// Returns a column whose references do not keep their rows.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a constant function that changes a column"
)]
const fn weak(column: Column) -> Column {
    Column {
        is_weak: true,
        ..column
    }
}

/// Returns the columns that refer to rows of a table, with their tables.
pub(super) fn references_to(table: &str) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    TABLES.iter().flat_map(move |holder| {
        let columns = holder
            .columns
            .iter()
            .filter(move |column| matches!(column.stored(), Type::Uuid(to) if to == table));
        columns.map(|column| (holder.name, column.name))
    })
}

const TEXT: Type = Type::Text;
const INTEGER: Type = Type::Integer;
const BOOLEAN: Type = Type::Boolean;
/// No limit of the number of atoms.
const ANY: usize = usize::MAX;

/// The tables that configurations have. `Datapath` and the tables that only it refers to are left out.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "Open_vSwitch",
        is_root: true,
        columns: &[
            set("bridges", Type::Uuid("Bridge"), ANY),
            state(set("cur_cfg", INTEGER, 1)),
            state(set("datapath_types", TEXT, ANY)),
            state(map("datapaths", TEXT, Type::Uuid("Datapath"))),
            state(set("db_version", TEXT, 1)),
            state(set("dpdk_initialized", BOOLEAN, 1)),
            state(set("dpdk_version", TEXT, 1)),
            map("external_ids", TEXT, TEXT),
            state(set("iface_types", TEXT, ANY)),
            set("manager_options", Type::Uuid("Manager"), ANY),
            state(set("next_cfg", INTEGER, 1)),
            map("other_config", TEXT, TEXT),
            state(set("ovs_version", TEXT, 1)),
            set("ssl", Type::Uuid("SSL"), 1),
            state(map("statistics", TEXT, TEXT)),
            state(set("system_type", TEXT, 1)),
            state(set("system_version", TEXT, 1)),
        ],
    },
    Table {
        name: "Bridge",
        is_root: false,
        columns: &[
            set("auto_attach", Type::Uuid("AutoAttach"), 1),
            set("controller", Type::Uuid("Controller"), ANY),
            state(set("datapath_id", TEXT, 1)),
            set("datapath_type", TEXT, 1),
            state(set("datapath_version", TEXT, 1)),
            map("external_ids", TEXT, TEXT),
            set("fail_mode", TEXT, 1),
            set("flood_vlans", INTEGER, 4096),
            map("flow_tables", INTEGER, Type::Uuid("Flow_Table")),
            set("ipfix", Type::Uuid("IPFIX"), 1),
            set("mcast_snooping_enable", BOOLEAN, 1),
            set("mirrors", Type::Uuid("Mirror"), ANY),
            set("name", TEXT, 1),
            set("netflow", Type::Uuid("NetFlow"), 1),
            map("other_config", TEXT, TEXT),
            set("ports", Type::Uuid("Port"), ANY),
            set("protocols", TEXT, ANY),
            set("rstp_enable", BOOLEAN, 1),
            state(map("rstp_status", TEXT, TEXT)),
            set("sflow", Type::Uuid("sFlow"), 1),
            state(map("status", TEXT, TEXT)),
            set("stp_enable", BOOLEAN, 1),
        ],
    },
    Table {
        name: "Port",
        is_root: false,
        columns: &[
            state(set("bond_active_slave", TEXT, 1)),
            set("bond_downdelay", INTEGER, 1),
            set("bond_fake_iface", BOOLEAN, 1),
            set("bond_mode", TEXT, 1),
            set("bond_updelay", INTEGER, 1),
            set("cvlans", INTEGER, 4096),
            map("external_ids", TEXT, TEXT),
            set("fake_bridge", BOOLEAN, 1),
            set("interfaces", Type::Uuid("Interface"), ANY),
            set("lacp", TEXT, 1),
            set("mac", TEXT, 1),
            set("name", TEXT, 1),
            map("other_config", TEXT, TEXT),
            set("protected", BOOLEAN, 1),
            set("qos", Type::Uuid("QoS"), 1),
            state(map("rstp_statistics", TEXT, INTEGER)),
            state(map("rstp_status", TEXT, TEXT)),
            state(map("statistics", TEXT, INTEGER)),
            state(map("status", TEXT, TEXT)),
            set("tag", INTEGER, 1),
            set("trunks", INTEGER, 4096),
            set("vlan_mode", TEXT, 1),
        ],
    },
    Table {
        name: "Interface",
        is_root: false,
        columns: &[
            state(set("admin_state", TEXT, 1)),
            map("bfd", TEXT, TEXT),
            state(map("bfd_status", TEXT, TEXT)),
            state(set("cfm_fault", BOOLEAN, 1)),
            state(set("cfm_fault_status", TEXT, ANY)),
            state(set("cfm_flap_count", INTEGER, 1)),
            state(set("cfm_health", INTEGER, 1)),
            set("cfm_mpid", INTEGER, 1),
            state(set("cfm_remote_mpids", INTEGER, ANY)),
            state(set("cfm_remote_opstate", TEXT, 1)),
            state(set("duplex", TEXT, 1)),
            state(set("error", TEXT, 1)),
            map("external_ids", TEXT, TEXT),
            state(set("ifindex", INTEGER, 1)),
            set("ingress_policing_burst", INTEGER, 1),
            set("ingress_policing_kpkts_burst", INTEGER, 1),
            set("ingress_policing_kpkts_rate", INTEGER, 1),
            set("ingress_policing_rate", INTEGER, 1),
            state(set("lacp_current", BOOLEAN, 1)),
            state(set("link_resets", INTEGER, 1)),
            state(set("link_speed", INTEGER, 1)),
            state(set("link_state", TEXT, 1)),
            map("lldp", TEXT, TEXT),
            set("mac", TEXT, 1),
            state(set("mac_in_use", TEXT, 1)),
            state(set("mtu", INTEGER, 1)),
            set("mtu_request", INTEGER, 1),
            set("name", TEXT, 1),
            state(set("ofport", INTEGER, 1)),
            set("ofport_request", INTEGER, 1),
            map("options", TEXT, TEXT),
            map("other_config", TEXT, TEXT),
            state(map("statistics", TEXT, INTEGER)),
            state(map("status", TEXT, TEXT)),
            set("type", TEXT, 1),
        ],
    },
    Table {
        name: "Flow_Table",
        is_root: false,
        columns: &[
            map("external_ids", TEXT, TEXT),
            set("flow_limit", INTEGER, 1),
            set("groups", TEXT, ANY),
            set("name", TEXT, 1),
            set("overflow_policy", TEXT, 1),
            set("prefixes", TEXT, 3),
        ],
    },
    Table {
        name: "QoS",
        is_root: true,
        columns: &[
            map("external_ids", TEXT, TEXT),
            map("other_config", TEXT, TEXT),
            map("queues", INTEGER, Type::Uuid("Queue")),
            set("type", TEXT, 1),
        ],
    },
    Table {
        name: "Queue",
        is_root: true,
        columns: &[
            set("dscp", INTEGER, 1),
            map("external_ids", TEXT, TEXT),
            map("other_config", TEXT, TEXT),
        ],
    },
    Table {
        name: "Mirror",
        is_root: false,
        columns: &[
            map("external_ids", TEXT, TEXT),
            set("name", TEXT, 1),
            weak(set("output_port", Type::Uuid("Port"), 1)),
            set("output_vlan", INTEGER, 1),
            set("select_all", BOOLEAN, 1),
            weak(set("select_dst_port", Type::Uuid("Port"), ANY)),
            weak(set("select_src_port", Type::Uuid("Port"), ANY)),
            set("select_vlan", INTEGER, 4096),
            set("snaplen", INTEGER, 1),
            state(map("statistics", TEXT, INTEGER)),
        ],
    },
    Table {
        name: "NetFlow",
        is_root: false,
        columns: &[
            set("active_timeout", INTEGER, 1),
            set("add_id_to_interface", BOOLEAN, 1),
            set("engine_id", INTEGER, 1),
            set("engine_type", INTEGER, 1),
            map("external_ids", TEXT, TEXT),
            set("targets", TEXT, ANY),
        ],
    },
    Table {
        name: "sFlow",
        is_root: false,
        columns: &[
            set("agent", TEXT, 1),
            map("external_ids", TEXT, TEXT),
            set("header", INTEGER, 1),
            set("polling", INTEGER, 1),
            set("sampling", INTEGER, 1),
            set("targets", TEXT, ANY),
        ],
    },
    Table {
        name: "IPFIX",
        is_root: false,
        columns: &[
            set("cache_active_timeout", INTEGER, 1),
            set("cache_max_flows", INTEGER, 1),
            map("external_ids", TEXT, TEXT),
            set("obs_domain_id", INTEGER, 1),
            set("obs_point_id", INTEGER, 1),
            map("other_config", TEXT, TEXT),
            set("sampling", INTEGER, 1),
            set("targets", TEXT, ANY),
        ],
    },
    Table {
        name: "Flow_Sample_Collector_Set",
        is_root: true,
        columns: &[
            set("bridge", Type::Uuid("Bridge"), 1),
            map("external_ids", TEXT, TEXT),
            set("id", INTEGER, 1),
            set("ipfix", Type::Uuid("IPFIX"), 1),
        ],
    },
    Table {
        name: "Controller",
        is_root: false,
        columns: &[
            set("connection_mode", TEXT, 1),
            set("controller_burst_limit", INTEGER, 1),
            set("controller_queue_size", INTEGER, 1),
            set("controller_rate_limit", INTEGER, 1),
            set("enable_async_messages", BOOLEAN, 1),
            map("external_ids", TEXT, TEXT),
            set("inactivity_probe", INTEGER, 1),
            state(set("is_connected", BOOLEAN, 1)),
            set("local_gateway", TEXT, 1),
            set("local_ip", TEXT, 1),
            set("local_netmask", TEXT, 1),
            set("max_backoff", INTEGER, 1),
            map("other_config", TEXT, TEXT),
            state(set("role", TEXT, 1)),
            state(map("status", TEXT, TEXT)),
            set("target", TEXT, 1),
            set("type", TEXT, 1),
        ],
    },
    Table {
        name: "Manager",
        is_root: false,
        columns: &[
            set("connection_mode", TEXT, 1),
            map("external_ids", TEXT, TEXT),
            set("inactivity_probe", INTEGER, 1),
            state(set("is_connected", BOOLEAN, 1)),
            set("max_backoff", INTEGER, 1),
            map("other_config", TEXT, TEXT),
            state(map("status", TEXT, TEXT)),
            set("target", TEXT, 1),
        ],
    },
    Table {
        name: "SSL",
        is_root: false,
        columns: &[
            set("bootstrap_ca_cert", BOOLEAN, 1),
            set("ca_cert", TEXT, 1),
            set("certificate", TEXT, 1),
            map("external_ids", TEXT, TEXT),
            set("private_key", TEXT, 1),
        ],
    },
    Table {
        name: "AutoAttach",
        is_root: false,
        columns: &[
            map("mappings", INTEGER, INTEGER),
            set("system_description", TEXT, 1),
            set("system_name", TEXT, 1),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;

    #[test]
    fn the_tables_are_those_of_the_schema_that_open_vswitch_installs() {
        const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
        let Ok(text) = std::fs::read_to_string(SCHEMA) else {
            eprintln!("skipped: {SCHEMA} is missing (package openvswitch-common)");
            return;
        };
        let schema: Json = serde_json::from_str(&text).unwrap();
        for (name, table) in schema["tables"].as_object().unwrap() {
            if ["Datapath", "CT_Zone", "CT_Timeout_Policy"].contains(&name.as_str()) {
                continue;
            }
            let known = TABLES.iter().find(|known| known.name == name);
            let known = known.unwrap_or_else(|| panic!("table {name}"));
            assert_eq!(known.is_root, table["isRoot"] == true, "{name}");
            let columns = table["columns"].as_object().unwrap();
            assert_eq!(known.columns.len(), columns.len(), "{name}");
            for (column, definition) in columns {
                let kind = &definition["type"];
                let known = known.columns.iter().find(|known| known.name == column);
                let known = known.unwrap_or_else(|| panic!("{name} {column}"));
                let atom = |json: &Json| match json["refTable"].as_str() {
                    Some(_) => "uuid".to_owned(),
                    None => json["type"]
                        .as_str()
                        .or(json.as_str())
                        .unwrap_or("string")
                        .to_owned(),
                };
                let text = |kind: Type| match kind {
                    Type::Text => "string",
                    Type::Integer => "integer",
                    Type::Boolean => "boolean",
                    Type::Uuid(_) => "uuid",
                };
                let key = kind.get("key").unwrap_or(kind);
                let is_weak = key["refType"] == "weak" || kind["value"]["refType"] == "weak";
                assert_eq!(known.is_weak, is_weak, "{name} {column}");
                assert_eq!(text(known.key), atom(key), "{name} {column}");
                assert_eq!(
                    known.value.map(text),
                    kind.get("value").map(atom).as_deref(),
                    "{name} {column}"
                );
            }
        }
    }
}
