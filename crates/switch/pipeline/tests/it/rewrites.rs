//! Entries with actions that are compiled into one rewrite change packets in the same way as the single
//! actions do.

use crate::harness::{Bridge, Event, add, frame, matching, out, sent, set};
use millrace_flow::{Action, Field, Instructions};
use millrace_pipeline::{ControlConfig, FlowCachePolicy, FlowMod, FlowModCommand, Op};
use millrace_types::{Cookie, Priority, TableId};
use proptest::prelude::*;

const PORTS: u32 = 4;

fn bridge(policy: FlowCachePolicy) -> Bridge {
    let config = ControlConfig {
        tables: 2,
        flow_cache: policy,
        ..ControlConfig::default()
    };
    let mut bridge = Bridge::with(config, PORTS);
    bridge.change(|_, ops| ops.push(Op::InvalidTtlToController(true)));
    bridge
}

/// Returns 0 or 0xffff, the two zeros of one's complement arithmetic, or any word.
fn word() -> impl Strategy<Value = u128> {
    prop_oneof![Just(0_u128), Just(0xffff), 0..=0xffff_u128]
}

/// Returns an action that changes packets of a protocol, TCP or UDP, over IPv4 or IPv6.
fn change(is_tcp: bool, is_ipv6: bool) -> impl Strategy<Value = Action> {
    let (src, dst) = if is_tcp {
        (Field::TcpSrc, Field::TcpDst)
    } else {
        (Field::UdpSrc, Field::UdpDst)
    };
    let of = |field| word().prop_map(move |value| set(field, value));
    prop_oneof![
        of(Field::EthDst),
        of(Field::EthSrc),
        (0..64_u128).prop_map(|value| set(Field::IpDscp, value)),
        (0..4_u128).prop_map(|value| set(Field::IpEcn, value)),
        Just(Action::DecNwTtl),
        any::<u8>().prop_map(Action::SetNwTtl),
        (word(), word()).prop_map(move |(high, low)| match is_ipv6 {
            true => set(Field::Ipv6Src, high << 16 | low),
            false => set(Field::Ipv4Src, high << 16 | low),
        }),
        (word(), word()).prop_map(move |(high, low)| match is_ipv6 {
            true => set(Field::EthSrc, high << 16 | low),
            false => set(Field::Ipv4Dst, high << 16 | low),
        }),
        of(src),
        of(dst),
    ]
}

#[derive(Clone, Debug)]
struct Entry {
    table: u8,
    dst: u8,
    is_tcp: bool,
    is_ipv6: bool,
    changes: Vec<Action>,
    port: u32,
    /// True if the entry has a goto_table to the second table instead of the actions above.
    goes_on: bool,
    is_deleted: bool,
}

impl Entry {
    /// Returns the request to add or delete the entry. With `one_by_one`, its actions are executed one after the
    /// other: `copy_ttl_in` has no effect on packets without an MPLS label, and cannot be part of a rewrite.
    fn request(&self, one_by_one: bool) -> FlowMod {
        let proto = if self.is_tcp { "tcp" } else { "udp" };
        let matched = match self.is_ipv6 {
            true => format!("{proto}6,ipv6_dst=2001:db8::{}", self.dst),
            false => format!("{proto},nw_dst=10.0.0.{}", self.dst),
        };
        let command = match self.is_deleted {
            true => FlowModCommand::DeleteStrict,
            false => FlowModCommand::Add,
        };
        let first = one_by_one.then_some(Action::CopyTtlIn);
        let actions: Vec<Action> = first
            .into_iter()
            .chain(self.changes.clone())
            .chain([out(self.port)])
            .collect();
        let instructions = match self.goes_on && self.table == 0 {
            true => Instructions::goto(TableId(1)),
            false => Instructions::apply(actions),
        };
        FlowMod {
            instructions,
            cookie: Cookie(u64::from(self.table) << 8 | u64::from(self.dst)),
            ..FlowMod::new(command, TableId(self.table), Priority(5), matching(&matched))
        }
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    any::<(bool, bool)>().prop_flat_map(|(is_tcp, is_ipv6)| {
        let changes = prop::collection::vec(change(is_tcp, is_ipv6), 0..6);
        (
            0..2_u8,
            0..3_u8,
            changes,
            2..=PORTS,
            any::<bool>(),
            prop::bool::weighted(0.2),
        )
            .prop_map(move |(table, dst, changes, port, goes_on, is_deleted)| Entry {
                table,
                dst,
                is_tcp,
                is_ipv6,
                changes,
                port,
                goes_on,
                is_deleted,
            })
    })
}

fn packet() -> impl Strategy<Value = Vec<u8>> {
    let ttl = prop::sample::select(vec![0_u8, 1, 2, 64, 255]);
    let damage = prop::option::weighted(0.2, (12..48_usize, any::<u8>()));
    let checksum = prop::option::weighted(0.3, (prop::sample::select(vec![24_usize, 40, 50]), word()));
    (
        any::<(bool, bool)>(),
        0..3_u8,
        ttl,
        0..4_u8,
        any::<u8>(),
        damage,
        checksum,
    )
        .prop_map(|((is_tcp, is_ipv6), dst, ttl, tag, port, damage, checksum)| {
            let proto = if is_tcp { "tcp" } else { "udp" };
            let addresses = match is_ipv6 {
                true => format!("{proto}6,ipv6_src=2001:db8:1::1,ipv6_dst=2001:db8::{dst}"),
                false => format!("{proto},nw_src=10.1.0.1,nw_dst=10.0.0.{dst}"),
            };
            let mut text = format!("{addresses},nw_ttl={ttl},tp_src={port}");
            if tag == 3 {
                text += ",dl_vlan=7,dl_vlan_pcp=2";
            }
            let mut frame = frame(&text);
            frame.resize(frame.len().max(60), 0);
            if let Some((at, byte)) = damage {
                frame[at] = byte;
            }
            if let Some((at, word)) = checksum {
                let at = at + 4 * usize::from(tag == 3);
                frame[at..at + 2].copy_from_slice(&(word as u16).to_be_bytes());
            }
            frame
        })
}

/// Returns the sent packets by port, and the other events. A cache keeps the order of packets within connections only.
fn seen(events: &[Event], policy: FlowCachePolicy) -> (Vec<(u32, Vec<u8>)>, Vec<String>) {
    let others = events.iter().filter(|event| !matches!(event, Event::Out(..)));
    let mut others: Vec<String> = others.map(|event| format!("{event:?}")).collect();
    others.sort();
    let mut left = sent(events);
    if policy != FlowCachePolicy::Off {
        left.sort();
    }
    (left, others)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_compiled_rewrite_does_what_its_actions_do_one_by_one(
        steps in prop::collection::vec(
            (prop::collection::vec(entry(), 1..6), prop::collection::vec(packet(), 1..100)),
            1..6,
        ),
        policy in prop::sample::select(vec![FlowCachePolicy::Off, FlowCachePolicy::Always]),
    ) {
        let (mut compiled, mut one_by_one) = (bridge(policy), bridge(FlowCachePolicy::Off));
        for (entries, packets) in &steps {
            for entry in entries {
                compiled.flow_mod(entry.request(false)).unwrap();
                one_by_one.flow_mod(entry.request(true)).unwrap();
            }
            // The second round finds cached traversals.
            for _ in 0..2 {
                let at_once = seen(&compiled.receive(1, packets), policy);
                prop_assert_eq!(at_once, seen(&one_by_one.receive(1, packets), policy));
            }
            prop_assert_eq!(compiled.counts(), one_by_one.counts());
            for reason in millrace_pipeline::DropReason::ALL {
                prop_assert_eq!(compiled.control.drops(reason), one_by_one.control.drops(reason));
            }
        }
    }
}

#[test]
fn a_translated_burst_keeps_its_order_where_some_packets_are_no_plain_packets() {
    let mut bridge = bridge(FlowCachePolicy::Off);
    let nat = [
        set(Field::Ipv4Src, 0xc000_0201),
        set(Field::UdpSrc, 4000),
        Action::DecNwTtl,
        out(2),
    ];
    bridge
        .flow_mod(add(0, 5, "udp", Instructions::apply(nat)))
        .unwrap();
    let frames: Vec<Vec<u8>> = (0..40_u8)
        .map(|number| {
            let mut frame = frame(&format!("udp,nw_dst=10.0.0.{number}"));
            if number % 3 == 0 {
                // A packet with a service tag, which a rewrite leaves to the actions.
                frame.splice(12..12, [0x88, 0xa8, 0, 5]);
            }
            frame
        })
        .collect();
    let left = sent(&bridge.receive(1, &frames));
    assert_eq!(left.len(), frames.len());
    for (number, (port, bytes)) in left.iter().enumerate() {
        let ip = 14 + 4 * usize::from(number % 3 == 0);
        assert_eq!((*port, usize::from(bytes[ip + 19])), (2, number));
        assert_eq!(bytes[ip + 12..ip + 16], [192, 0, 2, 1]);
        assert_eq!(bytes[ip + 20..ip + 22], 4000_u16.to_be_bytes());
    }
}
