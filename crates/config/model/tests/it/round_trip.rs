//! Every configuration that is written decodes to the same value, and no text makes the decoder panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use millrace_model::{
    Bridge, BurstSize, ChangeKind, CodePoint, ColorAction, ColorVerdict, Config, Controller, CoreId, Device,
    EchoInterval, FailMode, HugePages, Idle, Listener, Mtu, PacketInRate, Policer, PolicerKind, Port, Queue,
    QueueCount, QueueLength, QueuePriority, QueueWeight, Rate, TableCount, WorkerCount, diff,
};
use millrace_types::{BitRate, Dpid, PortNo, QueueId, Vid};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

fn device() -> impl Strategy<Value = Device> {
    prop_oneof![
        (0u32..0x1_0000, any::<u8>(), 0u8..32, 0u8..8)
            .prop_map(|(a, b, c, d)| format!("{a:04x}:{b:02x}:{c:02x}.{d:x}")),
        ("[a-z]{1,6}", 0u8..99, "[a-z0-9]{1,8}")
            .prop_map(|(driver, n, iface)| format!("net_{driver}{n},iface={iface}")),
        ("[a-z /\"\\\\'é]{1,12}", any::<bool>()).prop_map(|(file, repeat)| {
            format!("pcap:rx={file}{}", if repeat { ",loop=true" } else { "" })
        }),
        Just("memory".to_owned()),
    ]
    .prop_map(|text| text.parse().unwrap())
}

fn queues() -> impl Strategy<Value = Vec<Queue>> {
    let one = (0u8..8, 1u16..256, option::of(1_000u64..1_000_000), 1u32..=65_536);
    proptest::collection::btree_map(0u32..u32::MAX, one, 0..4).prop_map(|queues| {
        let queue = |(id, (priority, weight, rate, length)): (u32, (u8, u16, Option<u64>, u32))| Queue {
            priority: QueuePriority::new(priority).unwrap(),
            weight: QueueWeight::new(weight).unwrap(),
            min_rate: rate.map(|rate| Rate::new(BitRate::from_bps(rate)).unwrap()),
            length: QueueLength::new(length).unwrap(),
            ..Queue::new(QueueId(id))
        };
        queues.into_iter().map(queue).collect()
    })
}

fn policer() -> impl Strategy<Value = Policer> {
    (
        1_000u64..1_000_000_000,
        option::of(64u32..100_000),
        any::<bool>(),
        option::of(0u8..64),
    )
        .prop_map(|(cir, cbs, color_aware, dscp)| Policer {
            cbs: cbs.map(|size| BurstSize::new(size).unwrap()),
            color_aware,
            yellow: ColorAction {
                dscp: dscp.map(|dscp| CodePoint::new(dscp).unwrap()),
                ..ColorAction::new(ColorVerdict::Pass)
            },
            ..Policer::new(
                PolicerKind::SingleRate,
                Rate::new(BitRate::from_bps(cir)).unwrap(),
            )
        })
}

fn port() -> impl Strategy<Value = Port> {
    (plain_port(), queues(), option::of(policer())).prop_map(|(port, egress_queues, policer)| Port {
        egress_queues,
        policer,
        ..port
    })
}

fn plain_port() -> impl Strategy<Value = Port> {
    let flags = any::<[bool; 5]>();
    (
        device(),
        68u16..=9578,
        option::of(1u16..10),
        btree_set(10u16..=4094, 0..4),
        flags,
        1u16..=64,
    )
        .prop_map(
            |(device, mtu, vlan, trunks, [down, no_recv, no_fwd, no_packet_in, no_flood], queues)| {
                let queues = if matches!(device, Device::Pcap(_)) {
                    1
                } else {
                    queues
                };
                Port {
                    mtu: Mtu::new(mtu).unwrap(),
                    queues: Some(QueueCount::new(queues).unwrap()),
                    vlan: vlan.map(|vid| Vid::new(vid).unwrap()),
                    trunks: trunks.into_iter().map(|vid| Vid::new(vid).unwrap()).collect(),
                    down,
                    no_recv,
                    no_fwd,
                    no_packet_in,
                    no_flood,
                    ..Port::new("px".parse().unwrap(), PortNo::ordinary(1).unwrap(), device)
                }
            },
        )
}

fn controller() -> impl Strategy<Value = Controller> {
    (1u16.., option::of(0u32..1000), 0u16..=3600).prop_map(|(tcp, rate, echo)| Controller {
        packet_in_rate: rate.map(|rate| PacketInRate::new(rate).unwrap()),
        echo_interval_s: EchoInterval::new(echo).unwrap(),
        ..Controller::new(format!("tcp:host-{tcp}.example:{tcp}").parse().unwrap())
    })
}

fn bridge() -> impl Strategy<Value = Bridge> {
    let text = "\\PC{0,10}";
    (
        vec(port(), 0..5),
        vec(controller(), 0..3),
        option::of(any::<u64>()),
        1u8..,
        any::<bool>(),
        (text, text),
    )
        .prop_map(
            |(ports, controllers, dpid, tables, standalone, (hardware, datapath))| {
                let mut bridge = Bridge::new("b".parse().unwrap());
                bridge.ports = ports;
                bridge.controllers = controllers;
                bridge.dpid = dpid.map(Dpid);
                bridge.tables = TableCount::new(tables).unwrap();
                bridge.fail_mode = if standalone {
                    FailMode::Standalone
                } else {
                    FailMode::Secure
                };
                bridge.description.hardware = hardware.parse().unwrap();
                bridge.description.datapath = (!datapath.is_empty()).then(|| datapath.parse().unwrap());
                if standalone {
                    let mut open: Listener = Listener::new("ptcp:0:0.0.0.0".parse().unwrap());
                    open.insecure = true;
                    bridge.listen = vec![Listener::new("ptcp:0".parse().unwrap()), open];
                }
                bridge
            },
        )
}

/// Returns a random valid configuration; values that must be unique are made unique.
fn config() -> impl Strategy<Value = Config> {
    (vec(bridge(), 0..4), btree_set(0u16..64, 0..4), any::<[bool; 3]>()).prop_map(
        |(bridges, cores, [busy, required, count])| {
            let mut config = Config::default();
            let mut dpids = std::collections::HashSet::new();
            let mut devices = std::collections::HashSet::new();
            config.system.idle = if busy { Idle::Busy } else { Idle::Adaptive };
            config.system.huge_pages = if required {
                HugePages::Required
            } else {
                HugePages::Auto
            };
            config.system.workers = (count && !cores.is_empty())
                .then(|| WorkerCount::new(u16::try_from(cores.len()).unwrap()).unwrap());
            config.system.worker_cores = cores.into_iter().map(|core| CoreId::new(core).unwrap()).collect();
            config.bridges = bridges;
            for (b, bridge) in config.bridges.iter_mut().enumerate() {
                bridge.name = format!("br{b}").parse().unwrap();
                bridge.dpid = bridge.dpid.filter(|dpid| dpids.insert(*dpid));
                let mut targets = std::collections::HashSet::new();
                bridge
                    .controllers
                    .retain(|controller| targets.insert(controller.target.clone()));
                bridge.ports.retain(|port| match &port.device {
                    Device::Vdev(vdev) => {
                        devices.insert(vdev.name().to_owned()) & devices.insert(format!("{:?}", vdev.args))
                    }
                    Device::Pci(pci) => devices.insert(pci.address.to_string()),
                    _ => true,
                });
                for (p, port) in bridge.ports.iter_mut().enumerate() {
                    port.name = format!("p{p}").parse().unwrap();
                    port.number = PortNo::ordinary(u32::try_from(p).unwrap() + 1).unwrap();
                }
            }
            config
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_as_toml_or_json_is_read_back_the_same(config in config()) {
        prop_assert_eq!(config.validate(), Ok(()));
        prop_assert_eq!(&Config::from_toml("short", &config.to_toml()).unwrap(), &config);
        prop_assert_eq!(&Config::from_toml("full", &config.to_toml_full()).unwrap(), &config);
        prop_assert_eq!(&Config::from_json(&config.to_json()).unwrap(), &config);
        prop_assert_eq!(&serde_json::from_slice::<Config>(&serde_json::to_vec(&config).unwrap()).unwrap(), &config);
    }

    #[test]
    fn two_configurations_differ_if_and_only_if_their_diff_says_so(one in config(), other in config()) {
        prop_assert_eq!(diff(&one, &one), vec![]);
        let there = diff(&one, &other);
        prop_assert_eq!(there.is_empty(), one == other);
        // The reverse diff is the same list with old and new exchanged.
        let back = diff(&other, &one);
        let mut turned: Vec<_> = back.into_iter().map(|change| {
            let kind = match change.kind {
                ChangeKind::Added => ChangeKind::Removed,
                ChangeKind::Removed => ChangeKind::Added,
                ChangeKind::Changed => ChangeKind::Changed,
            };
            millrace_model::Change { kind, old: change.new, new: change.old, ..change }
        }).collect();
        let mut there = there;
        there.sort_by(|a, b| a.path.cmp(&b.path));
        turned.sort_by(|a, b| a.path.cmp(&b.path));
        prop_assert_eq!(there, turned);
    }

    #[test]
    fn the_order_of_bridges_and_ports_is_no_difference(config in config()) {
        let mut turned = config.clone();
        turned.bridges.reverse();
        for bridge in &mut turned.bridges {
            bridge.ports.reverse();
            bridge.controllers.reverse();
        }
        prop_assert_eq!(diff(&config, &turned), vec![]);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = Config::from_toml("any", &text);
        let _ = text.parse::<Device>();
        let _ = text.parse::<millrace_model::ControllerTarget>();
        let _ = text.parse::<millrace_model::ListenTarget>();
    }

    #[test]
    fn no_damage_to_a_file_makes_the_reader_panic(config in config(), at in any::<prop::sample::Index>(), with in "\\PC{0,3}") {
        let text = config.to_toml_full();
        let mut characters: Vec<char> = text.chars().collect();
        let at = at.index(characters.len());
        characters.splice(at..(at + 2).min(characters.len()), with.chars());
        if let Err(errors) = Config::from_toml("damaged", &characters.into_iter().collect::<String>()) {
            for error in errors.iter() {
                prop_assert!(error.location.is_some());
                prop_assert!(!error.to_string().contains('\n'), "{}", error);
            }
        }
    }

    #[test]
    fn values_of_any_kind_in_any_place_are_refused_in_words(value in any_json()) {
        let config = serde_json::json!({"system": value, "api": value, "bridge": [value]});
        if let Err(errors) = Config::from_json(&config) {
            prop_assert!(errors.iter().len() > 0);
            prop_assert!(!errors.to_string().is_empty());
        }
    }
}

#[test]
fn the_order_of_hops_and_of_classes_is_a_difference() {
    let text = r#"
[[wan]]
name = "geo"
class = [{ name = "voice", match = "udp", path = {} }, { name = "bulk", match = "tcp", path = {} }]

[[bridge]]
name = "br0"

[[bridge.chain]]
name = "edge"
number = 10
hop = [{ name = "fw", function = "firewall" }, { name = "mon", function = "monitor" }, { name = "swap", function = "macswap" }]
"#;
    let config = Config::from_toml("s.toml", text).unwrap();
    let mut other = config.clone();
    other.bridges[0].chains[0].hops.reverse();
    other.wans[0].classes.reverse();
    let lines: Vec<String> = diff(&config, &other).iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            r#"~ bridge br0 chain edge hop: ["fw", "mon", "swap"] -> ["swap", "mon", "fw"]"#,
            r#"~ wan geo class: ["voice", "bulk"] -> ["bulk", "voice"]"#,
        ]
    );
    // A removed hop does not change the order of the others.
    other.bridges[0].chains[0].hops.remove(1);
    other.wans = config.wans.clone();
    let lines: Vec<String> = diff(&config, &other).iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        lines[1],
        r#"~ bridge br0 chain edge hop: ["fw", "swap"] -> ["swap", "fw"]"#
    );
    other.bridges[0].chains[0].hops.reverse();
    assert_eq!(diff(&config, &other).len(), 1);
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::{Value, json};
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("name".to_owned()),
        Just("port".to_owned()),
        Just("listen".to_owned()),
        Just("controllers".to_owned()),
        Just("number".to_owned()),
        Just("device".to_owned()),
        Just("workers".to_owned()),
        "[a-z_]{0,8}",
    ];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::hash_map(key.clone(), inner, 0..6)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

#[test]
fn a_file_is_written_without_the_keys_that_are_at_their_defaults() {
    let text = r#"[system]
workers = 2

[[bridge]]
name = "br0"
controllers = ["tcp:127.0.0.1:6653", { target = "tcp:[::1]:6653", max_backoff_s = 30 }]

[bridge.description]
datapath = "lab"

[[bridge.port]]
name = "p1"
number = 1
device = "net_af_packet0,iface=veth1"

[[bridge.port]]
name = "p2"
number = 2
device = "memory"
trunks = [1, 2]

[[bridge]]
name = "br1"
"#;
    let config = Config::from_toml("x", text).unwrap();
    assert_eq!(config.to_toml(), text);
    assert_eq!(Config::default().to_toml(), "");
}

#[test]
fn a_diff_reads_as_one_line_a_change() {
    let old = "[[bridge]]\nname='br0'\ntables=9\n[[bridge.port]]\nname='p1'\nnumber=1\ndevice='memory'\n\
               [[bridge.port]]\nname='p2'\nnumber=2\ndevice='memory'\n";
    let new = "[system]\nworkers=2\n[[bridge]]\nname='br0'\ncontrollers=['tcp:h:1']\n[[bridge.port]]\nname='p3'\nnumber=2\n\
               device='memory'\n[[bridge.port]]\nname='p1'\nnumber=1\ndevice='memory'\nmtu=9000\nvlan=7\n";
    let (old, new) = (
        Config::from_toml("old", old).unwrap(),
        Config::from_toml("new", new).unwrap(),
    );
    let lines: Vec<String> = diff(&old, &new).iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "~ system workers: (unset) -> 2 (at the next start)",
            "~ bridge br0 tables: 9 -> 64",
            "+ bridge br0 controllers tcp:h:1 \"tcp:h:1\"",
            "- bridge br0 port p2 { device = \"memory\", name = \"p2\", number = 2 }",
            "+ bridge br0 port p3 { device = \"memory\", name = \"p3\", number = 2 }",
            "~ bridge br0 port p1 mtu: 1500 -> 9000",
            "~ bridge br0 port p1 vlan: (unset) -> 7",
        ]
    );
    let json = serde_json::to_value(&diff(&old, &new)[5]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({"path": "/bridge/br0/port/p1/mtu", "kind": "changed", "old": 1500, "new": 9000, "restart": false})
    );
}
