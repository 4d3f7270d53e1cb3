//! Ten thousand malformed messages: each is answered as the specification requires, or the connection is closed cleanly;
//! traffic continues, and memory does not grow.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::harness::{Controller, PATIENCE, TestSwitch, config, flow, output, packet, patch};
use millrace_flow::{Bucket, Field};
use millrace_openflow::multipart::flow::FlowStatsRequest;
use millrace_openflow::multipart::{MultipartRequest, RequestBody};
use millrace_openflow::*;
use millrace_types::*;

/// Locked by each test while it runs: the tests measure the memory of the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// A generator of pseudo-random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Returns well-formed requests, which the caller damages.
fn requests() -> Vec<Vec<u8>> {
    let mut entry = flow(
        3,
        &[(Field::EthType, 0x800), (Field::IpProto, 6), (Field::TcpDst, 80)],
        &[millrace_flow::Action::DecNwTtl, output(7)],
    );
    entry.table = TableId(9);
    let messages = [
        Message::FlowMod(entry),
        Message::PacketOut(PacketOut {
            buffer: BufferId::NONE,
            in_port: PortNo::CONTROLLER,
            actions: [output(9)].into(),
            data: packet(60).into(),
        }),
        Message::MultipartRequest(MultipartRequest::new(RequestBody::Flow(FlowStatsRequest::all()))),
        Message::MultipartRequest(MultipartRequest::new(RequestBody::PortDesc)),
        Message::GroupMod(GroupMod {
            command: GroupModCommand::Add,
            type_: GroupType::Select,
            group: GroupId(5),
            buckets: [Bucket {
                weight: 1,
                watch_port: PortNo::ANY,
                watch_group: GroupId::ANY,
                actions: [output(9)].into(),
            }]
            .into(),
        }),
        Message::MeterMod(MeterMod {
            command: MeterModCommand::Add,
            flags: MeterFlags::KBPS,
            meter: MeterId(5),
            bands: [MeterBand {
                rate: 1,
                burst_size: 1,
                kind: MeterBandKind::Drop,
            }]
            .into(),
        }),
        Message::RoleRequest(RoleMessage {
            role: RequestedRole::NoChange,
            generation_id: 1,
        }),
        Message::GetConfigRequest,
        Message::FeaturesRequest,
        Message::GetAsyncRequest,
        Message::QueueGetConfigRequest(QueueGetConfigRequest { port: PortNo::ANY }),
        Message::EchoRequest([1, 2, 3].into()),
    ];
    messages
        .iter()
        .map(|message| {
            let mut bytes = Vec::new();
            encode(message, Xid(1), &mut bytes).unwrap();
            bytes
        })
        .collect()
}

/// Returns a message with one error, and the error code that the specification requires for it.
fn damaged(random: &mut Random, requests: &[Vec<u8>], xid: u32) -> (Vec<u8>, Option<ErrorCode>) {
    let mut bytes = requests[random.below(requests.len())].clone();
    let expected = match random.below(6) {
        0 => {
            // The version is not that of OpenFlow 1.3.
            bytes[0] = [0, 1, 2, 3, 5, 6, 255][random.below(7)];
            Some(ErrorCode::OFPBRC_BAD_VERSION)
        }
        1 => {
            // The type is unknown, or only a switch may send it.
            bytes[1] = [30, 99, 255, 6, 10, 11, 12, 19, 21, 25][random.below(10)];
            Some(ErrorCode::OFPBRC_BAD_TYPE)
        }
        2 => {
            // The multipart type does not exist.
            bytes = vec![
                4,
                18,
                0,
                16,
                0,
                0,
                0,
                0,
                0x77,
                random.next() as u8,
                0,
                0,
                0,
                0,
                0,
                0,
            ];
            Some(ErrorCode::OFPBRC_BAD_MULTIPART)
        }
        3 => {
            // Bytes follow a message of fixed size.
            bytes = vec![4, 5, 0, 0, 0, 0, 0, 0];
            bytes.resize(9 + random.below(100), 0xee);
            Some(ErrorCode::OFPBRC_BAD_LEN)
        }
        4 => {
            // The message is truncated, and its length field fits the truncated message.
            let size = 8 + random.below(bytes.len() - 7);
            bytes.truncate(size);
            None
        }
        _ => {
            // Up to four bytes after the header are random.
            for _ in 0..=random.below(4) {
                if bytes.len() > 8 {
                    let at = 8 + random.below(bytes.len() - 8);
                    bytes[at] = random.next() as u8;
                }
            }
            None
        }
    };
    let size = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&size.to_be_bytes());
    bytes[4..8].copy_from_slice(&xid.to_be_bytes());
    (bytes, expected)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn ten_thousand_malformed_messages_are_answered_and_traffic_goes_on() {
    // The test measures memory, so that no other test may run in the process.
    millrace_testing::own_process!();
    let _alone = ALONE.lock();
    let switch = TestSwitch::start(&config(2, ""));
    let mut keeper = switch.controller();
    keeper.add([patch(1, 2)]);
    let stop = Arc::new(AtomicBool::new(false));
    let lost = Arc::new(AtomicU64::new(0));
    let traffic = {
        let (from, to) = (switch.peer(1), switch.peer(2));
        let (stop, lost) = (Arc::clone(&stop), Arc::clone(&lost));
        std::thread::spawn(move || {
            let frame = packet(64);
            let mut count = 0u64;
            // On a busy machine the switch may answer the messages early, so at least 100 packets are sent.
            while !stop.load(Ordering::Relaxed) || count <= 100 {
                assert!(from.send(&frame));
                if to.receive_within(PATIENCE).is_none() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
                count += 1;
            }
            count
        })
    };
    let requests = requests();
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut sender = switch.controller();
    let mut named = 0;
    let mut before = 0;
    for round in 0..100 {
        let mut expected = Vec::new();
        for i in 0..100 {
            let xid = 1_000_000 + round * 100 + i;
            let (bytes, code) = damaged(&mut random, &requests, xid);
            sender.stream.write_all(&bytes).unwrap();
            expected.push((Xid(xid), code));
        }
        let barrier = sender.send(&Message::BarrierRequest);
        let mut errors = std::collections::HashMap::new();
        loop {
            let (header, message) = sender.receive().expect("the session goes on");
            if header.xid == barrier {
                break;
            }
            if let Message::Error(error) = message {
                assert!(error.code.name().is_some(), "{}", error.code);
                assert!(error.data.len() >= 8);
                let twice = errors.insert(header.xid, error.code);
                assert_eq!(twice, None, "one request, one error");
            }
        }
        for (xid, code) in expected {
            if let Some(code) = code {
                assert_eq!(errors.get(&xid), Some(&code), "xid {}", xid.0);
                named += 1;
            }
        }
        // Damaged messages may add entries, so the memory is compared with that after round 20.
        if round == 20 {
            before = resident_kib();
        }
    }
    assert!(named > 5000);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB in 8,000 malformed messages");
    stop.store(true, Ordering::Relaxed);
    let sent = traffic.join().unwrap();
    // No packet was lost: the damaged messages did not disturb the traffic.
    assert!(
        sent > 100 && lost.load(Ordering::Relaxed) == 0,
        "{sent} sent, {lost:?} lost"
    );
    keeper.barrier();
}

#[test]
fn bytes_that_are_no_messages_end_their_connection_and_no_other() {
    let _alone = ALONE.lock();
    let switch = TestSwitch::start(&config(1, ""));
    let mut keeper = switch.controller();
    let mut random = Random(77);
    for i in 0..200 {
        let stream = TcpStream::connect(switch.address()).unwrap();
        let mut client = Controller::silent(stream);
        let hello = [4u8, 0, 0, 8, 0, 0, 0, 1];
        let (bytes, is_answered): (Vec<u8>, bool) = match i % 5 {
            // The length is smaller than a header, before and after HELLO.
            0 => (vec![4, 0, 0, random.below(8) as u8, 0, 0, 0, 1], true),
            1 => (
                [&hello[..], &[4, 14, 0, random.below(8) as u8, 0, 0, 0, 2]].concat(),
                true,
            ),
            // The first message is not HELLO.
            2 => (vec![4, 5, 0, 8, 0, 0, 0, 1], true),
            // The HELLO has an unsupported version.
            3 => (vec![1, 0, 0, 8, 0, 0, 0, 1], true),
            // The connection ends in the middle of a message.
            _ => (
                [&hello[..], &[4, 14, 0, 200, 0, 0, 0, 2, 1, 2, 3]].concat(),
                false,
            ),
        };
        client.stream.write_all(&bytes).unwrap();
        if !is_answered {
            client.stream.shutdown(Shutdown::Write).unwrap();
        }
        let mut last = None;
        while let Some(message) = client.receive_bytes() {
            last = Some(decode(&message).unwrap().1);
        }
        if is_answered {
            let Some(Message::Error(error)) = last else {
                panic!("case {}: {last:?}", i % 5)
            };
            let expected = [
                ErrorCode::OFPBRC_BAD_LEN,
                ErrorCode::OFPBRC_BAD_LEN,
                ErrorCode::OFPBRC_BAD_TYPE,
                ErrorCode::OFPHFC_INCOMPATIBLE,
            ];
            assert_eq!(error.code, expected[i % 5]);
        }
    }
    keeper.barrier();
    crate::harness::wait_for("the list of controllers to shrink", || {
        (switch.channels().len() == 2).then_some(())
    });
}

#[test]
fn the_error_of_a_malformed_request_comes_in_its_turn() {
    let _alone = ALONE.lock();
    let switch = TestSwitch::start(&config(2, "tables = 4"));
    let mut controller = switch.controller();
    let mut elsewhere = patch(1, 2);
    elsewhere.table = TableId(9);
    let mut malformed = Vec::new();
    encode(&Message::FlowMod(patch(1, 2)), Xid(3), &mut malformed).unwrap();
    // The command of a flow_mod.
    malformed[25] = 9;
    let mut bytes = Vec::new();
    encode(&Message::FlowMod(elsewhere), Xid(1), &mut bytes).unwrap();
    encode(&Message::BarrierRequest, Xid(2), &mut bytes).unwrap();
    bytes.extend(malformed);
    encode(&Message::BarrierRequest, Xid(4), &mut bytes).unwrap();
    controller.stream.write_all(&bytes).unwrap();
    let replies: Vec<_> = (0..4)
        .map(|_| match controller.receive().unwrap() {
            (header, Message::Error(error)) => (header.xid.0, Some(error.code)),
            (header, Message::BarrierReply) => (header.xid.0, None),
            (_, other) => panic!("{other}"),
        })
        .collect();
    let expected = [
        (1, Some(ErrorCode::OFPFMFC_BAD_TABLE_ID)),
        (2, None),
        (3, Some(ErrorCode::OFPFMFC_BAD_COMMAND)),
        (4, None),
    ];
    assert_eq!(replies, expected);
}
