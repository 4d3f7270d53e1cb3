//! A controller that asks for long replies and does not read them neither delays others nor fills memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use crate::harness::{TestSwitch, config, flow, without_echo};
use millrace_flow::Field;
use millrace_openflow::Message;
use millrace_openflow::multipart::flow::FlowStatsRequest;
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::{FlowMod, FlowModFlags};
use millrace_types::TableId;

const FLOWS: u32 = 50_000;

fn entries() -> impl Iterator<Item = FlowMod> {
    (0..FLOWS).map(|i| {
        flow(
            7,
            &[(Field::EthType, 0x800), (Field::Ipv4Dst, u128::from(i))],
            &[crate::harness::output(1)],
        )
    })
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_listing_is_whole_in_order_of_requests_and_memory_stays_bounded_without_a_reader() {
    // The test measures the memory of the whole process, so no other test may run in it.
    millrace_testing::own_process!();
    let switch = TestSwitch::start(&without_echo(&config(1, "")));
    let mut controller = switch.controller();
    controller.add(entries());
    let mut greedy = switch.controller();
    let before = resident_kib();
    let list = Message::MultipartRequest(MultipartRequest::new(RequestBody::Flow(FlowStatsRequest::all())));
    // 40 listings of 5 MB each, a barrier after each, and no reader.
    let asked: Vec<_> = (0..40)
        .map(|_| (greedy.send(&list), greedy.send(&Message::BarrierRequest)))
        .collect();
    let mut waits: Vec<Duration> = (0..20)
        .map(|_| {
            let begin = Instant::now();
            controller.barrier();
            std::thread::sleep(Duration::from_millis(20));
            begin.elapsed()
        })
        .collect();
    // The test compares the median: a busy machine delays single replies, but a control thread that waits for
    // the reader delays all of them.
    waits.sort();
    assert!(waits[10] < Duration::from_secs(1), "others waited for {waits:?}");
    let grown = resident_kib().saturating_sub(before);
    assert!(
        grown < 64 * 1024,
        "{grown} KiB for a controller that does not read"
    );
    // Once the controller reads, all replies arrive, in the order of the requests.
    for (list, barrier) in asked {
        let mut count = 0;
        loop {
            let (header, message) = greedy.receive().unwrap();
            match message {
                Message::MultipartReply(MultipartReply {
                    more,
                    body: ReplyBody::Flow(flows),
                }) => {
                    assert_eq!(header.xid, list);
                    count += flows.len();
                    assert!(more || count == FLOWS as usize);
                }
                Message::BarrierReply => {
                    assert_eq!(header.xid, barrier);
                    break;
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!(count, FLOWS as usize);
    }
}

#[test]
fn every_removed_entry_is_reported_even_if_all_are_removed_at_once() {
    let switch = TestSwitch::start(&without_echo(&config(1, "")));
    let mut controller = switch.controller();
    controller.add(entries().map(|entry| FlowMod {
        flags: FlowModFlags::SEND_FLOW_REM,
        ..entry
    }));
    controller.send(&Message::FlowMod(FlowMod::delete(
        TableId::ALL,
        millrace_flow::Match::any(),
    )));
    let barrier = controller.send(&Message::BarrierRequest);
    let mut removed = 0;
    loop {
        match controller.receive().unwrap() {
            (_, Message::FlowRemoved(_)) => removed += 1,
            (header, Message::BarrierReply) if header.xid == barrier => break,
            (_, other) => panic!("{other}"),
        }
    }
    assert_eq!(removed, FLOWS);
}
