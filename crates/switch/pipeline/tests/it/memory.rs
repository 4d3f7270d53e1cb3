//! Memory of an entry: at most 400 bytes, everything included, in a table of many exact entries.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::time::Instant;

use crate::allocator;
use crate::harness::{Bridge, out, set};
use millrace_flow::{Field, Instructions, Match};
use millrace_pipeline::{FlowMod, FlowModCommand, Op};
use millrace_types::{Priority, TableId};

fn exact(flow: u32) -> FlowMod {
    let fields = [
        (Field::EthType, 0x800),
        (Field::IpProto, 6),
        (Field::Ipv4Src, u128::from(0x0a00_0000 | flow)),
        (Field::Ipv4Dst, 0xc000_0201),
        (Field::TcpSrc, 1000),
        (Field::TcpDst, 80),
    ];
    FlowMod {
        instructions: Instructions::apply([set(Field::EthDst, u128::from(flow)), out(2)]),
        idle_timeout: 60,
        ..FlowMod::new(
            FlowModCommand::Add,
            TableId(0),
            Priority(10),
            Match::exact(&fields).unwrap(),
        )
    }
}

#[test]
fn an_exact_entry_costs_400_bytes_at_most() {
    // The number of entries is a little below a power of two, as one million is.
    let entries: u32 = match std::env::var("MILLRACE_ENTRIES") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 62_500,
    };
    let mut bridge = Bridge::new(2);
    // An entry with another mask, so that the classifier has more than one structure to choose from.
    bridge
        .flow_mod(FlowMod {
            instructions: Instructions::apply([out(2)]),
            ..FlowMod::new(
                FlowModCommand::Add,
                TableId(0),
                Priority(1),
                Match::exact(&[(Field::InPort, 1)]).unwrap(),
            )
        })
        .unwrap();
    let before = allocator::bytes();
    let start = Instant::now();
    let now = bridge.now;
    for chunk in 0..entries / 100 {
        bridge.change(|control, ops: &mut Vec<Op>| {
            for flow in chunk * 100..(chunk + 1) * 100 {
                control.flow_mod(exact(flow), now, ops).unwrap();
            }
        });
    }
    let each = (allocator::bytes() - before) / i64::from(entries);
    println!(
        "{entries} entries: {each} bytes each, added in {:?}",
        start.elapsed()
    );

    let start = Instant::now();
    bridge.now = now + millrace_types::Duration::from_secs(61);
    let now = bridge.now;
    let mut longest = std::time::Duration::ZERO;
    while bridge.control.entry_len() > entries as usize / 2 {
        let start = Instant::now();
        bridge.change(|control, ops| control.expire(now, 1000, ops));
        longest = longest.max(start.elapsed());
    }
    println!(
        "half of them expired in {:?}, at most {longest:?} at a time",
        start.elapsed()
    );
    let start = Instant::now();
    let all = FlowMod::new(FlowModCommand::Delete, TableId::ALL, Priority(0), Match::any());
    bridge.flow_mod(all).unwrap();
    println!("the others deleted in {:?}", start.elapsed());
    assert_eq!(bridge.control.entry_len(), 0);
    assert!(each <= 400, "{each} bytes");
}
