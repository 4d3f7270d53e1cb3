//! Every key that ovs-vswitchd.conf.db(5) documents changes the configuration, or is named.

use serde_json::{Value as Json, json};

use crate::database::{Database, map, uuid};

/// The keys: table, the row that is meant, column, key, and a value that is not the default.
const DOCUMENTED: &str = include_str!("../documented.txt");

/// Keys that other programs read, or whose every value asks for what the switch does.
const SILENT: [&str; 2] = ["transient", "disable-in-band"];

struct Probe<'a> {
    table: &'a str,
    row: &'a str,
    column: &'a str,
    key: &'a str,
    value: &'a str,
}

impl<'a> Probe<'a> {
    fn all() -> Vec<Probe<'a>> {
        let lines = DOCUMENTED.lines().filter(|line| !line.starts_with('#'));
        let probe = |line: &'a str| {
            let [table, row, column, key, value] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}: expected five words");
            };
            Probe {
                table,
                row,
                column,
                key,
                value,
            }
        };
        lines.map(probe).collect()
    }

    /// Returns what the database says of this key with a value: its bridges and its faults.
    fn said(&self, value: Option<&str>) -> String {
        let mut database = Database::default();
        let with = |table: &str, mut base: Json| {
            if let Some(value) = value.filter(|_| table == self.table) {
                let mut pairs: Vec<(String, String)> = base[self.column][1]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|pair| {
                        (
                            pair[0].as_str().unwrap().to_owned(),
                            pair[1].as_str().unwrap().to_owned(),
                        )
                    })
                    .collect();
                pairs.retain(|(key, _)| key != self.key);
                pairs.push((self.key.to_owned(), value.to_owned()));
                let pairs: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                base[self.column] = map(&pairs);
            }
            base
        };
        let queue = database.row(
            "Queue",
            &with("Queue", json!({"other_config": map(&[("min-rate", "1000000")])})),
        );
        let (kind, queues) = match self.table {
            "QoS" => (self.row, json!(["map", []])),
            _ => ("linux-htb", json!(["map", [[1, uuid(queue)]]])),
        };
        let other = match kind {
            "egress-policer" if self.key != "cir" => map(&[("cir", "1000")]),
            _ => map(&[]),
        };
        let qos = database.row(
            "QoS",
            &with(
                "QoS",
                json!({"type": kind, "queues": queues, "other_config": other}),
            ),
        );
        let ports = self.ports(&mut database, &with, &uuid(qos));
        let controller = database.row(
            "Controller",
            &with("Controller", json!({"target": "tcp:192.0.2.1:6653"})),
        );
        let ipfix = database.row(
            "IPFIX",
            &with(
                "IPFIX",
                json!({"targets": "192.0.2.9:4739", "cache_max_flows": 5, "cache_active_timeout": 9}),
            ),
        );
        let mut bridge = json!({"controller": uuid(controller), "ipfix": uuid(ipfix)});
        if matches!(self.row, "stp" | "rstp") {
            bridge[format!("{}_enable", self.row)] = json!(true);
        }
        database.bridge("br0", &with("Bridge", bridge), &ports);
        database.root = with("Open_vSwitch", json!({}));
        let translation = database.translated();
        format!(
            "{:?} {:?} {}",
            translation.bridges, translation.faults, translation.statistics_interval_ms
        )
    }

    /// Adds the ports of the bridge; the first one is meant.
    fn ports(
        &self,
        database: &mut Database,
        with: &impl Fn(&str, Json) -> Json,
        qos: &Json,
    ) -> Vec<millrace_ovsdb::Uuid> {
        let tunnel = |kind: &str| json!({"type": kind, "options": map(&[("remote_ip", "192.0.2.2")])});
        let interface = match self.row {
            "vxlan" | "gre" | "gtpu" => tunnel(self.row),
            "dpdk" => json!({"type": "dpdk", "options": map(&[("dpdk-devargs", "0000:01:00.0")])}),
            "dpdkvhostuserclient" => {
                json!({"type": self.row, "options": map(&[("vhost-server-path", "/tmp/socket")])})
            }
            "patch" => json!({"type": "patch", "options": map(&[("peer", "p2")])}),
            "afxdp" | "internal" => json!({"type": self.row}),
            "bfd" => {
                json!({"type": "", "bfd": map(&[("enable", if self.key == "enable" { "false" } else { "true" })])})
            }
            "cfm" => json!({"type": "", "cfm_mpid": 5}),
            _ => json!({"type": ""}),
        };
        let mut port = json!({});
        if self.row == "dot1q-tunnel" {
            port = json!({"vlan_mode": "dot1q-tunnel", "tag": 9});
        }
        if !matches!(self.row, "bond" | "member") {
            port["qos"] = qos.clone();
            let back = json!({"type": "patch", "options": map(&[("peer", "p1")])});
            return vec![
                database.port("p1", &with("Port", port), &with("Interface", interface)),
                database.port("p2", &json!({}), &back),
            ];
        }
        let lacp = if self.key == "bond-primary" {
            "off"
        } else {
            "active"
        };
        let bond = json!({"lacp": lacp});
        vec![database.bond(
            "b1",
            &with("Port", bond),
            &[
                ("s1", with("Interface", json!({"type": ""}))),
                ("s2", json!({"type": ""})),
            ],
        )]
    }
}

#[test]
fn every_documented_key_changes_the_configuration_or_is_named() {
    let mut silent = Vec::new();
    for probe in Probe::all().iter().filter(|probe| !SILENT.contains(&probe.key)) {
        for value in [probe.value, "no-such-value"] {
            let (with, without) = (probe.said(Some(value)), probe.said(None));
            // A key that the table names has words of its own.
            if with == without || with.contains("is not known here") {
                silent.push(format!(
                    "{} {} {}:{}={value}",
                    probe.table, probe.row, probe.column, probe.key
                ));
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[test]
fn keys_that_ask_for_what_the_switch_does_are_not_named() {
    for (table, row, column, key, value) in [
        ("Open_vSwitch", "-", "other_config", "hw-offload", "false"),
        ("Port", "-", "other_config", "priority-tags", "never"),
        ("Port", "bond", "other_config", "bond-detect-mode", "carrier"),
        ("Interface", "vxlan", "options", "df_default", "true"),
        ("Interface", "-", "other_config", "emc-enable", "true"),
        ("IPFIX", "-", "other_config", "enable-input-sampling", "true"),
    ] {
        let probe = Probe {
            table,
            row,
            column,
            key,
            value,
        };
        assert_eq!(
            probe.said(Some(value)),
            probe.said(None),
            "{table} {column}:{key}={value}"
        );
    }
}
