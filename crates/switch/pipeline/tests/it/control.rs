//! Requests and their effects on entries, case by case; the model in `model.rs` covers the combinations.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::harness::{Bridge, add, frame, matching, out, ports};
use millrace_flow::Instructions;
use millrace_pipeline::{
    Control, ControlConfig, Counters, Cursor, ErrorCode, FlowFilter, FlowFlags, FlowMod, FlowModCommand,
    FlowModError, Op, RemovedReason,
};
use millrace_types::{Cookie, Duration, GroupId, PortNo, Priority, TableId, Time};

fn command(command: FlowModCommand, match_: &str) -> FlowMod {
    FlowMod::new(command, TableId(0), Priority(10), matching(match_))
}

fn with_flags(match_: &str, flags: FlowFlags) -> FlowMod {
    FlowMod {
        flags,
        ..add(0, 10, match_, Instructions::apply([out(2)]))
    }
}

#[test]
fn an_expired_entry_sends_flow_removed_once() {
    let mut bridge = Bridge::new(2);
    let idle = FlowMod {
        idle_timeout: 5,
        hard_timeout: 12,
        cookie: Cookie(7),
        ..with_flags("tcp", FlowFlags::SEND_FLOW_REM)
    };
    bridge.flow_mod(idle).unwrap();
    let start = bridge.now;
    let wait = |bridge: &mut Bridge, millis| {
        bridge.now = start + Duration::from_millis(millis);
        bridge.expire();
    };
    wait(&mut bridge, 4000);
    bridge.one(1, &frame("tcp"));
    wait(&mut bridge, 8900);
    assert_eq!(bridge.control.entry_len(), 1, "a packet 4.9 seconds ago");
    wait(&mut bridge, 9100);
    assert_eq!(bridge.control.entry_len(), 0);
    wait(&mut bridge, 99_000);
    let [removed] = &bridge.removed[..] else {
        panic!("{:?}", bridge.removed);
    };
    assert_eq!(
        (removed.reason, removed.entry.cookie()),
        (RemovedReason::IdleTimeout, Cookie(7))
    );
    assert_eq!((removed.count.packets, removed.duration.as_secs()), (1, 9));
}

#[test]
fn a_busy_entry_goes_at_its_hard_timeout() {
    let mut bridge = Bridge::new(2);
    let hard = FlowMod {
        idle_timeout: 5,
        hard_timeout: 12,
        ..with_flags("tcp", FlowFlags::SEND_FLOW_REM)
    };
    bridge.flow_mod(hard).unwrap();
    for _ in 0..13 {
        bridge.one(1, &frame("tcp"));
        bridge.now = bridge.now + Duration::from_secs(1);
        bridge.expire();
    }
    assert_eq!(bridge.removed[0].reason, RemovedReason::HardTimeout);
    assert_eq!(bridge.removed[0].count.packets, 13);
}

#[test]
fn an_entry_without_the_flag_goes_silently() {
    let mut bridge = Bridge::new(2);
    bridge.apply("tcp", &[out(2)]);
    bridge.flow_mod(command(FlowModCommand::Delete, "")).unwrap();
    assert!(bridge.removed.is_empty() && bridge.control.entry_len() == 0);
}

#[test]
fn packets_that_come_before_the_change_is_published_are_in_flow_removed() {
    let mut bridge = Bridge::new(2);
    bridge
        .flow_mod(with_flags("tcp", FlowFlags::SEND_FLOW_REM))
        .unwrap();
    let mut ops: Vec<Op> = Vec::new();
    let now = bridge.now;
    bridge
        .control
        .flow_mod(command(FlowModCommand::Delete, "tcp"), now, &mut ops)
        .unwrap();
    assert_eq!(
        ports(&bridge.one(1, &frame("tcp"))),
        [2],
        "workers do not know yet"
    );
    // An entry that is added meanwhile does not get the slot that workers still count for.
    bridge
        .control
        .flow_mod(with_flags("udp", FlowFlags::default()), now, &mut ops)
        .unwrap();
    bridge.change(|_, all| all.append(&mut ops));
    assert_eq!(bridge.removed[0].count.packets, 1);
    assert_eq!(bridge.counts(), [(0, 0, 0)]);
    assert_eq!(ports(&bridge.one(1, &frame("udp"))), [2]);
}

#[test]
fn replacing_keeps_counters_unless_asked_to_reset_them_and_restarts_the_duration() {
    let mut bridge = Bridge::new(3);
    bridge.apply("tcp", &[out(2)]);
    bridge.one(1, &frame("tcp,size=60"));
    bridge.now = bridge.now + Duration::from_secs(9);
    bridge.add(0, 10, "tcp", Instructions::apply([out(3)]));
    assert_eq!(bridge.counts(), [(0, 1, 60)]);
    assert_eq!(ports(&bridge.one(1, &frame("tcp,size=60"))), [3]);
    let all = FlowFilter::all();
    let now = bridge.now;
    bridge
        .control
        .flow_stats(&all, Cursor::default(), 99, now, |stat| {
            assert_eq!(stat.duration, Duration::ZERO);
        });
    bridge
        .flow_mod(with_flags("tcp", FlowFlags::RESET_COUNTS))
        .unwrap();
    assert_eq!(bridge.counts(), [(0, 0, 0)]);
    assert_eq!(ports(&bridge.one(1, &frame("tcp,size=60"))), [2]);
    assert_eq!(bridge.counts(), [(0, 1, 60)]);
}

#[test]
fn a_modify_with_reset_counts_does_not_look_like_silence() {
    let mut bridge = Bridge::new(2);
    let idle = FlowMod {
        idle_timeout: 5,
        ..with_flags("tcp", FlowFlags::default())
    };
    bridge.flow_mod(idle).unwrap();
    bridge.now = bridge.now + Duration::from_secs(4);
    bridge.expire();
    bridge.one(1, &frame("tcp"));
    let modify = FlowMod {
        flags: FlowFlags::RESET_COUNTS,
        ..command(FlowModCommand::Modify, "tcp")
    };
    bridge.flow_mod(modify).unwrap();
    bridge.now = bridge.now + Duration::from_secs(4);
    bridge.expire();
    assert_eq!(bridge.counts(), [(0, 0, 0)]);
    bridge.now = bridge.now + Duration::from_millis(1200);
    bridge.expire();
    assert_eq!(bridge.counts(), []);
}

#[test]
fn modify_never_adds_and_leaves_cookie_timeouts_and_flags() {
    let mut bridge = Bridge::new(3);
    let modify = FlowMod {
        instructions: Instructions::apply([out(3)]),
        cookie: Cookie(9),
        idle_timeout: 1,
        ..command(FlowModCommand::ModifyStrict, "tcp")
    };
    assert_eq!(bridge.flow_mod(modify.clone()).unwrap().modified, 0);
    assert_eq!(bridge.control.entry_len(), 0);
    let original = FlowMod {
        cookie: Cookie(1),
        hard_timeout: 77,
        ..with_flags("tcp", FlowFlags::SEND_FLOW_REM)
    };
    bridge.flow_mod(original).unwrap();
    assert_eq!(bridge.flow_mod(modify).unwrap().modified, 1);
    assert_eq!(ports(&bridge.one(1, &frame("tcp"))), [3]);
    let now = bridge.now;
    bridge
        .control
        .flow_stats(&FlowFilter::all(), Cursor::default(), 99, now, |stat| {
            let entry = stat.entry;
            assert_eq!(
                (entry.cookie(), entry.flags()),
                (Cookie(1), FlowFlags::SEND_FLOW_REM)
            );
            assert_eq!((entry.idle_timeout(), entry.hard_timeout()), (0, 77));
        });
}

#[test]
fn deletes_are_narrowed_by_port_group_and_cookie() {
    let mut bridge = Bridge::new(4);
    for (cookie, match_, port) in [(0x11, "tcp", 2), (0x12, "udp", 3), (0x21, "icmp", 2)] {
        let entry = FlowMod {
            cookie: Cookie(cookie),
            ..add(0, 10, match_, Instructions::apply([out(port)]))
        };
        bridge.flow_mod(entry).unwrap();
    }
    let by_group = FlowMod {
        out_group: GroupId(1),
        ..command(FlowModCommand::Delete, "")
    };
    assert_eq!(bridge.flow_mod(by_group).unwrap().removed, 0);
    let by_both = FlowMod {
        out_port: PortNo::from_raw(2),
        cookie: Cookie(0x10),
        cookie_mask: 0xf0,
        ..command(FlowModCommand::Delete, "")
    };
    assert_eq!(bridge.flow_mod(by_both).unwrap().removed, 1);
    let cookies: Vec<u64> = bridge.counts().iter().map(|(cookie, ..)| *cookie).collect();
    assert_eq!(cookies, [0x12, 0x21]);
}

#[test]
fn a_full_table_refuses_adds_and_still_takes_replacements() {
    let config = ControlConfig {
        tables: 2,
        max_entries: 2,
        ..ControlConfig::default()
    };
    let mut bridge = Bridge::with(config, 2);
    bridge.apply("tcp", &[out(2)]);
    bridge.apply("udp", &[out(2)]);
    let full = bridge
        .flow_mod(with_flags("icmp", FlowFlags::default()))
        .unwrap_err();
    assert_eq!(full.code(), ErrorCode::OFPFMFC_TABLE_FULL);
    bridge.apply("udp", &[out(1)]);
    bridge.add(1, 10, "icmp", Instructions::default());
}

#[test]
fn an_add_that_checks_finds_overlaps_of_equal_priority_only() {
    let mut bridge = Bridge::new(2);
    bridge.apply("in_port=1", &[out(2)]);
    bridge.add(0, 11, "tcp", Instructions::default());
    let overlap = bridge
        .flow_mod(with_flags("udp", FlowFlags::CHECK_OVERLAP))
        .unwrap_err();
    assert_eq!(overlap.code(), ErrorCode::OFPFMFC_OVERLAP);
    bridge
        .flow_mod(with_flags("in_port=2", FlowFlags::CHECK_OVERLAP))
        .unwrap();
    bridge
        .flow_mod(with_flags("in_port=1", FlowFlags::CHECK_OVERLAP))
        .unwrap();
}

#[test]
fn a_refused_request_changes_nothing() {
    let mut bridge = Bridge::new(2);
    bridge.apply("tcp", &[out(2)]);
    let mut ops: Vec<Op> = Vec::new();
    let now = bridge.now;
    for request in [
        add(8, 1, "", Instructions::default()),
        add(255, 1, "", Instructions::default()),
        add(0, 1, "", Instructions::goto(TableId(0))),
        FlowMod {
            flags: FlowFlags(0x20),
            ..command(FlowModCommand::Delete, "")
        },
        FlowMod {
            table: TableId::ALL,
            ..command(FlowModCommand::Modify, "")
        },
    ] {
        let error = bridge.control.flow_mod(request, now, &mut ops).unwrap_err();
        let expected = [
            ErrorCode::OFPFMFC_BAD_TABLE_ID,
            ErrorCode::OFPBIC_BAD_TABLE_ID,
            ErrorCode::OFPFMFC_BAD_FLAGS,
        ];
        assert!(expected.contains(&error.code()), "{error}");
    }
    assert!(ops.is_empty());
    assert_eq!(bridge.control.entry_len(), 1);
}

#[test]
fn expiry_looks_at_no_more_entries_than_it_may() {
    let mut bridge = Bridge::new(2);
    for port in 0..100 {
        let entry = FlowMod {
            hard_timeout: 1,
            ..with_flags(&format!("in_port={}", port + 1), FlowFlags::default())
        };
        bridge.flow_mod(entry).unwrap();
    }
    bridge.now = bridge.now + Duration::from_secs(2);
    let now = bridge.now;
    let mut ops = Vec::new();
    assert_eq!(bridge.control.expire(now, 30, &mut ops), 30);
    assert_eq!((bridge.control.entry_len(), ops.len()), (70, 30));
    bridge.change(|_, all| all.append(&mut ops));
    bridge.expire();
    assert_eq!(bridge.control.entry_len(), 0);
}

#[test]
fn a_copy_made_later_is_the_same_as_one_that_followed() {
    let mut bridge = Bridge::new(3);
    bridge.apply("tcp", &[out(2)]);
    bridge.apply("udp", &[out(3)]);
    bridge
        .flow_mod(command(FlowModCommand::DeleteStrict, "tcp"))
        .unwrap();
    bridge.apply("icmp", &[out(2)]);
    bridge.active = bridge.control.forwarding();
    for (packet, port) in [("udp", 3), ("icmp", 2)] {
        assert_eq!(ports(&bridge.one(1, &frame(packet))), [port]);
    }
    assert!(ports(&bridge.one(1, &frame("tcp"))).is_empty());
}

#[test]
fn counters_have_room_for_more_entries_than_any_table() {
    assert!(Counters::ENTRIES_MAX >= ControlConfig::default().max_entries as usize);
}

#[test]
fn an_entry_that_was_prepared_is_refused_when_its_table_has_gone() {
    let mut bridge = Bridge::new(2);
    let prepare = |bridge: &Bridge, command| {
        let request = FlowMod::new(command, TableId(5), Priority(10), matching("tcp"));
        bridge.control.prepare(request).unwrap()
    };
    let mut prepared = [FlowModCommand::Add, FlowModCommand::Modify].map(|kind| prepare(&bridge, kind));
    bridge.change(|control, ops| {
        let pipeline = vec![(TableId(0), None), (TableId(1), None)];
        control.set_pipeline(pipeline, Time::ZERO, ops).unwrap();
        for prepared in &mut prepared {
            let refused = control.apply(prepared, Time::ZERO, ops);
            let table = TableId(5);
            assert_eq!(refused, Err(FlowModError::BadTable { table, tables: 8 }));
        }
        assert_eq!(control.entry_len(), 0);
    });
}

/// Returns the tables that are optimized at a time.
fn optimized(control: &mut Control, millis: u64) -> Vec<TableId> {
    let mut ops = Vec::new();
    control.optimize_idle_tables(Time::from_millis(millis), &mut ops);
    let optimized = ops.iter().map(|op| match op {
        Op::Optimize(table) => *table,
        other => panic!("{other:?}"),
    });
    optimized.collect()
}

#[test]
fn a_table_is_optimized_once_it_has_been_idle_for_a_second() {
    let mut control = Control::new(ControlConfig {
        tables: 3,
        ..ControlConfig::default()
    });
    let request = |control: &mut Control, request: FlowMod| {
        control.flow_mod(request, Time::ZERO, &mut Vec::new()).unwrap();
    };
    assert_eq!(optimized(&mut control, 5000), [], "the tables are empty");
    request(&mut control, add(1, 10, "tcp", Instructions::apply([out(2)])));
    assert_eq!(optimized(&mut control, 6000), [], "the change is noticed");
    assert_eq!(optimized(&mut control, 6950), []);
    assert_eq!(optimized(&mut control, 7000), [TableId(1)]);
    assert_eq!(optimized(&mut control, 9000), [], "once is enough");

    // Replacing actions does not change the classifier; adding and removing an entry does.
    request(&mut control, add(1, 10, "tcp", Instructions::apply([out(3)])));
    assert_eq!(optimized(&mut control, 9050), []);
    assert_eq!(optimized(&mut control, 10_100), []);
    request(&mut control, add(2, 10, "udp", Instructions::default()));
    assert_eq!(optimized(&mut control, 11_000), []);
    request(&mut control, add(2, 10, "tcp", Instructions::default()));
    assert_eq!(optimized(&mut control, 11_950), [], "updates continue");
    assert_eq!(optimized(&mut control, 12_950), [TableId(2)]);
    request(&mut control, command(FlowModCommand::Delete, ""));
    request(
        &mut control,
        FlowMod::new(FlowModCommand::Delete, TableId(1), Priority(0), matching("")),
    );
    assert_eq!(optimized(&mut control, 13_000), []);
    assert_eq!(optimized(&mut control, 14_000), [TableId(1)]);
}
