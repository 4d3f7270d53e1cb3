//! `ovs-ofctl ofp-print` decodes our messages and prints the expected text. Without ovs-ofctl, the tests print a line and
//! pass.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::Command;

use millrace_flow::{Action, Field, Instructions, Match, WriteMetadata};
use millrace_openflow::multipart::desc::Desc;
use millrace_openflow::multipart::flow::FlowStats;
use millrace_openflow::multipart::port_stats::PortStats;
use millrace_openflow::multipart::table::TableStats;
use millrace_openflow::multipart::{MultipartReply, ReplyBody};
use millrace_openflow::*;
use millrace_types::*;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

fn is_installed() -> bool {
    let found = Command::new("ovs-ofctl").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: ovs-ofctl is not installed (apt-get install openvswitch-common)");
    }
    found
}

/// Returns the output of ovs-ofctl for these messages, in one run.
fn printed(messages: &[Message]) -> Vec<String> {
    messages
        .iter()
        .map(|message| {
            let mut bytes = Vec::new();
            encode(message, Xid(1), &mut bytes).unwrap();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let output = Command::new("ovs-ofctl")
                .args(["-O", "OpenFlow13", "ofp-print", &hex, "1"])
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        })
        .collect()
}

fn printed_one(message: Message) -> String {
    printed(&[message]).remove(0)
}

#[test]
fn ovs_understands_a_flow_mod() {
    if !is_installed() {
        return;
    }
    let given = Match::exact(&[
        (Field::InPort, 3),
        (Field::EthType, 0x800),
        (Field::IpProto, 6),
        (Field::Ipv4Dst, 0x0a00_0001),
        (Field::TcpDst, 80),
    ])
    .unwrap();
    let mut flow = FlowMod::add(
        TableId(2),
        Priority(100),
        given,
        Instructions {
            apply_actions: Some([Action::DecNwTtl, Action::output(PortNo::from_raw(9))].into()),
            goto_table: Some(TableId(5)),
            write_metadata: Some(WriteMetadata {
                value: 0x12,
                mask: 0xff,
            }),
            ..Instructions::default()
        },
    );
    flow.idle_timeout = 5;
    flow.hard_timeout = 6;
    flow.cookie = Cookie(0x77);
    flow.flags = FlowModFlags::SEND_FLOW_REM | FlowModFlags::CHECK_OVERLAP;
    let text = printed_one(Message::FlowMod(flow));
    assert_eq!(
        text.trim_end(),
        "OFPT_FLOW_MOD (OF1.3) (xid=0x1): ADD table:2 priority=100,tcp,in_port=3,nw_dst=10.0.0.1,tp_dst=80 \
         cookie:0x77 idle:5 hard:6 send_flow_rem check_overlap \
         actions=dec_ttl,output:9,write_metadata:0x12/0xff,goto_table:5"
    );
}

#[test]
fn ovs_understands_what_a_switch_says() {
    if !is_installed() {
        return;
    }
    let features = printed_one(Message::FeaturesReply(SwitchFeatures {
        dpid: Dpid(0x2a),
        buffers: 256,
        tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS | Capabilities::TABLE_STATS | Capabilities::PORT_STATS,
    }));
    assert!(
        features.contains("dpid:000000000000002a\nn_tables:254, n_buffers:256"),
        "{features}"
    );
    assert!(
        features.contains("capabilities: FLOW_STATS TABLE_STATS PORT_STATS"),
        "{features}"
    );

    let packet_in = printed_one(Message::PacketIn(PacketIn {
        buffer: BufferId::NONE,
        total_len: 60,
        reason: PacketInReason::NoMatch,
        table: TableId(7),
        cookie: Cookie(0x99),
        match_: Match::exact(&[(Field::InPort, 3)]).unwrap(),
        data: vec![0; 60].into(),
    }));
    assert!(
        packet_in.contains(
            "table_id=7 cookie=0x99 total_len=60 in_port=3 (via no_match) data_len=60 (unbuffered)"
        ),
        "{packet_in}"
    );

    let removed = printed_one(Message::FlowRemoved(FlowRemoved {
        cookie: Cookie(5),
        priority: Priority(6),
        reason: FlowRemovedReason::IdleTimeout,
        table: TableId(8),
        duration: Duration::from_millis(1500),
        idle_timeout: 10,
        hard_timeout: 0,
        packets: 11,
        bytes: 12,
        match_: Match::exact(&[(Field::InPort, 3)]).unwrap(),
    }));
    assert!(
        removed.contains(
            "priority=6,in_port=3 reason=idle table_id=8 cookie:0x5 duration1.500s idle10 pkts11 bytes12"
        ),
        "{removed}"
    );

    let error = printed_one(Message::Error(ErrorMessage::about(
        ErrorCode::OFPBMC_BAD_PREREQ,
        &[4, 14, 0, 8, 0, 0, 0, 1],
    )));
    assert!(error.contains("OFPBMC_BAD_PREREQ"), "{error}");
}

#[test]
fn ovs_understands_our_statistics() {
    if !is_installed() {
        return;
    }
    let flow = FlowStats {
        table: TableId(1),
        duration: Duration::from_millis(2250),
        priority: Priority(7),
        idle_timeout: 3,
        hard_timeout: 4,
        flags: FlowModFlags::RESET_COUNTS,
        cookie: Cookie(0xab),
        packets: 10,
        bytes: 600,
        match_: Match::exact(&[(Field::VlanVid, 0x1064)]).unwrap(),
        instructions: Instructions::apply([Action::PopVlan, Action::output(PortNo::IN_PORT)]),
    };
    let text = printed_one(Message::MultipartReply(MultipartReply::new(ReplyBody::Flow(
        vec![flow],
    ))));
    assert!(
        text.contains(
            "cookie=0xab, duration=2.250s, table=1, n_packets=10, n_bytes=600, idle_timeout=3, hard_timeout=4, \
             reset_counts priority=7,dl_vlan=100 actions=pop_vlan,IN_PORT"
        ),
        "{text}"
    );
    let desc = Desc {
        manufacturer: "Millrace".to_owned(),
        serial: "None".to_owned(),
        ..Desc::default()
    };
    let text = printed_one(Message::MultipartReply(MultipartReply::new(ReplyBody::Desc(
        Box::new(desc),
    ))));
    assert!(
        text.contains("Manufacturer: Millrace") && text.contains("Serial Num: None"),
        "{text}"
    );
    let table = TableStats {
        table: TableId(0),
        active: 5,
        lookups: 9,
        matched: 8,
    };
    let text = printed_one(Message::MultipartReply(MultipartReply::new(ReplyBody::Table(
        vec![table],
    ))));
    assert!(text.contains("active=5, lookup=9, matched=8"), "{text}");
    let port = PortStats {
        port: PortNo::from_raw(2),
        rx_packets: 1,
        tx_packets: 2,
        rx_bytes: 3,
        tx_bytes: 4,
        rx_dropped: 5,
        tx_dropped: 6,
        rx_errors: 7,
        tx_errors: 8,
        rx_frame_errors: PortStats::UNSUPPORTED,
        rx_over_errors: 10,
        rx_crc_errors: 11,
        collisions: 12,
        duration: Duration::from_secs(13),
    };
    let text = printed_one(Message::MultipartReply(MultipartReply::new(
        ReplyBody::PortStats(vec![port]),
    )));
    assert!(
        text.contains("rx pkts=1, bytes=3, drop=5, errs=7, frame=?, over=10, crc=11")
            && text.contains("tx pkts=2, bytes=4, drop=6, errs=8, coll=12")
            && text.contains("duration=13s"),
        "{text}"
    );
}

/// ovs-ofctl must print random messages without an error. Messages that Open vSwitch does not implement are
/// left out: PBB, extension headers, and tunnel and metadata actions that it forbids.
#[test]
fn ovs_reads_two_hundred_random_messages() {
    if !is_installed() {
        return;
    }
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let strategy = crate::arbitrary::message();
    let mut messages = Vec::new();
    while messages.len() < 200 {
        let message = strategy.new_tree(&mut runner).unwrap().current();
        if is_common_ground(&message) {
            messages.push(message);
        }
    }
    for (message, text) in messages.iter().zip(printed(&messages)) {
        assert!(
            !text.contains("***") && text.contains("(OF1.3)"),
            "{message:?}\n{text}"
        );
    }
}

fn is_common_ground(message: &Message) -> bool {
    matches!(
        message,
        Message::EchoRequest(_)
            | Message::EchoReply(_)
            | Message::FeaturesRequest
            | Message::FeaturesReply(_)
            | Message::GetConfigRequest
            | Message::GetConfigReply(_)
            | Message::BarrierRequest
            | Message::BarrierReply
            | Message::PortStatus(_)
            | Message::PortMod(_)
            | Message::TableMod(_)
            | Message::RoleReply(_)
            | Message::QueueGetConfigReply(_)
            | Message::GetAsyncRequest
            | Message::MeterMod(_)
    ) || matches!(message, Message::MultipartReply(reply) if matches!(
        reply.body,
        ReplyBody::Desc(_)
            | ReplyBody::Table(_)
            | ReplyBody::PortStats(_)
            | ReplyBody::PortDesc(_)
            | ReplyBody::Aggregate(_)
            | ReplyBody::Queue(_)
            | ReplyBody::Group(_)
            | ReplyBody::Meter(_)
            | ReplyBody::MeterConfig(_)
    ))
}
