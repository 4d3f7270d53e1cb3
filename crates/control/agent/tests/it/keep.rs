//! Flow entries, groups and meters over a restart: the same as before, in force at the first packet, and refused as a
//! whole if the file or the bridge is not the one that was saved.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bundles::{add_flow, done};
use crate::harness::{Controller, TestSwitch, config, flow, output, packet, patch, wait_for};
use crate::ovs_ofctl::Ofctl;
use crate::tables::{exchange, named, narrow};
use millrace_agent::keep::Keeper;
use millrace_flow::{Action, Bucket, Field, Instructions};
use millrace_openflow::{
    BundleCommand, FlowMod, FlowModCommand, FlowModFlags, GroupMod, GroupModCommand, GroupType, Message,
    MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand,
};
use millrace_types::{Cookie, GroupId, MeterId, Priority, TableId};

const SECURE: &str = "fail_mode = \"secure\"\ntables = 8";

/// A switch that keeps its state in a directory.
fn keeping(directory: &Path, config: &str) -> TestSwitch {
    let (switch, problems) = started(directory, config);
    assert_eq!(problems, [""; 0]);
    switch
}

/// Starts a switch on a directory. Returns the reasons of its problems, too.
fn started(directory: &Path, config: &str) -> (TestSwitch, Vec<String>) {
    let mut switch = TestSwitch::without_bridges();
    switch.switch.keep(Keeper::new(directory.to_owned(), true));
    switch.apply(config);
    let problems = switch.switch.status().problems;
    (
        switch,
        problems.into_iter().map(|problem| problem.reason).collect(),
    )
}

fn file(directory: &Path) -> PathBuf {
    directory.join("br0.flows")
}

fn entries(switch: &TestSwitch) -> usize {
    let bridge = switch.switch.bridge("br0").unwrap();
    bridge
        .call_blocking(|bridge| bridge.tables().entry_len())
        .unwrap()
}

fn group(number: u32, type_: GroupType, actions: &[Action]) -> Message {
    Message::GroupMod(GroupMod {
        command: GroupModCommand::Add,
        type_,
        group: GroupId(number),
        buckets: [Bucket::new(actions)].into(),
    })
}

fn meter(number: u32) -> Message {
    Message::MeterMod(MeterMod {
        command: MeterModCommand::Add,
        flags: MeterFlags::KBPS | MeterFlags::STATS,
        meter: MeterId(number),
        bands: [MeterBand {
            rate: 1_000_000,
            burst_size: 100_000,
            kind: MeterBandKind::Drop,
        }]
        .into(),
    })
}

/// Installs entries of every kind, and sends packets through them.
fn fill(switch: &TestSwitch, controller: &mut Controller) {
    // Group 1 forwards to group 2, which is added first.
    controller.send(&group(2, GroupType::Indirect, &[output(2)]));
    controller.send(&group(1, GroupType::All, &[Action::Group(GroupId(2))]));
    controller.send(&meter(3));
    let mut through = flow(10, &[(Field::InPort, 1)], &[Action::Group(GroupId(1))]);
    through.instructions.meter = Some(MeterId(3));
    through.cookie = Cookie(0xfeed);
    through.idle_timeout = 300;
    through.hard_timeout = 4000;
    through.flags = FlowModFlags::SEND_FLOW_REM | FlowModFlags::CHECK_OVERLAP;
    let mut narrower = flow(10, &[(Field::InPort, 1), (Field::EthType, 0x806)], &[]);
    narrower.flags = FlowModFlags::RESET_COUNTS;
    controller.add([through, narrower, patch(2, 1)]);
    let (one, two) = (switch.peer(1), switch.peer(2));
    for _ in 0..3 {
        assert!(one.send(&packet(100)));
        wait_for("the packet", || two.receive());
    }
}

/// Returns a listing in lines that can be compared: sorted, without durations and numbers of replies.
fn comparable(text: &str) -> Vec<String> {
    let words = |line: &str| {
        let words = line.split(' ').filter(|word| {
            !word.starts_with("duration") && !word.starts_with("(xid=") && !word.contains("duration=")
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = text.lines().map(words).collect();
    lines.sort();
    lines
}

/// Returns what ovs-ofctl lists.
fn listed(ofctl: &Ofctl) -> Vec<Vec<String>> {
    let commands = ["dump-flows", "dump-groups", "dump-meters", "meter-stats"];
    commands.map(|command| comparable(&ofctl.ok(command, &[]))).into()
}

#[test]
fn ovs_ofctl_lists_the_same_entries_groups_and_meters_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let switch = keeping(directory.path(), &config(2, SECURE));
    let Some(ofctl) = Ofctl::on(&switch) else {
        return;
    };
    fill(&switch, &mut switch.controller());
    let before = listed(&ofctl);
    assert!(
        before[0].iter().any(|line| line.contains("n_packets=3")),
        "{before:?}"
    );
    switch.switch.stop(true);
    drop(switch);
    let switch = keeping(directory.path(), &config(2, SECURE));
    let ofctl = Ofctl::on(&switch).unwrap();
    assert_eq!(listed(&ofctl), before);
    let stats = ofctl.ok("dump-group-stats", &[]);
    assert!(
        stats.contains("group_id=1") && stats.contains("packet_count=3"),
        "{stats}"
    );
    // Counters go on, and a group that others forward to cannot be removed, as before.
    assert!(switch.peer(1).send(&packet(100)));
    wait_for("the packet", || switch.peer(2).receive());
    let flows = ofctl.ok("dump-flows", &["cookie=0xfeed/-1"]);
    assert!(flows.contains("n_packets=4, n_bytes=400"), "{flows}");
}

#[test]
fn a_secure_bridge_forwards_the_first_packet_after_a_restart_while_its_controller_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let switch = keeping(directory.path(), &config(2, SECURE));
    switch.controller().add([patch(2, 1)]);
    switch.switch.stop(true);
    drop(switch);
    let mut switch = TestSwitch::without_bridges();
    switch.switch.keep(Keeper::new(directory.path().to_owned(), true));
    // The packet waits in the device of the port that is opened last.
    assert!(switch.peer(2).send(&packet(100)));
    switch.apply(&config(2, SECURE));
    wait_for("the packet", || switch.peer(1).receive());
}

/// Makes the file look saved `seconds` earlier.
fn age(path: &Path, seconds: u64) {
    // The layout is that of `keep::file`, for a bridge whose name has three bytes.
    let (body, saved) = (20, 20 + 1 + 3 + 8 + 1);
    let mut bytes = std::fs::read(path).unwrap();
    let before = u64::from_be_bytes(bytes[saved..saved + 8].try_into().unwrap());
    bytes[saved..saved + 8].copy_from_slice(&(before - seconds * 1_000_000_000).to_be_bytes());
    let end = bytes.len() - 4;
    let sum = crc32c::crc32c(&bytes[body..end]);
    bytes[end..].copy_from_slice(&sum.to_be_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn the_time_without_the_switch_counts_for_hard_timeouts_and_not_for_idle_timeouts() {
    let directory = tempfile::tempdir().unwrap();
    let switch = keeping(directory.path(), &config(2, SECURE));
    let timed = |priority: u16, idle_timeout: u16, hard_timeout: u16| FlowMod {
        idle_timeout,
        hard_timeout,
        ..flow(priority, &[], &[])
    };
    let all = [
        timed(1, 0, 50),
        timed(2, 0, 200),
        timed(3, 50, 0),
        timed(4, 50, 200),
    ];
    switch.controller().add(all);
    switch.switch.stop(true);
    drop(switch);
    age(&file(directory.path()), 100);
    let switch = keeping(directory.path(), &config(2, SECURE));
    let bridge = switch.switch.bridge("br0").unwrap();
    let left = bridge.call_blocking(|bridge| {
        let mut left = Vec::new();
        let now = bridge.datapath().now();
        let all = millrace_pipeline::FlowFilter::all();
        bridge
            .tables()
            .flow_stats(&all, millrace_pipeline::Cursor::default(), 100, now, |stat| {
                left.push((
                    stat.entry.priority().0,
                    stat.entry.hard_timeout(),
                    stat.duration.as_secs() >= 100,
                ));
            });
        left.sort_unstable();
        left
    });
    assert_eq!(left.unwrap(), [(2, 200, true), (3, 0, true), (4, 200, true)]);
}

#[test]
fn a_file_that_cannot_be_used_is_refused_by_name_and_the_bridge_starts_without() {
    let directory = tempfile::tempdir().unwrap();
    let (path, good) = (file(directory.path()), config(2, SECURE));
    let switch = keeping(directory.path(), &good);
    let mut last = patch(2, 1);
    last.table = TableId(7);
    switch.controller().add([patch(1, 2), last]);
    switch.switch.stop(true);
    drop(switch);
    let saved = std::fs::read(&path).unwrap();
    let mut damaged = saved.clone();
    damaged[40] ^= 1;
    let other_dpid = good.replace("tables = 8", "tables = 8\ndpid = \"0000000000000009\"");
    let fewer_tables = good.replace("tables = 8", "tables = 4");
    for (bytes, config, expected) in [
        (&b"[[bridge]]"[..], &good, "no file of flow entries"),
        (&damaged[..], &good, "its checksum is wrong"),
        (&saved[..saved.len() - 5], &good, "it ends early"),
        (
            &saved[..],
            &other_dpid,
            "expected 0000000000000009, that of the bridge",
        ),
        (
            &saved[..],
            &fewer_tables,
            "had 8 tables at the save, and now has 4",
        ),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let (switch, problems) = started(directory.path(), config);
        let [reason] = problems.as_slice() else {
            panic!("{problems:?}")
        };
        assert!(
            reason.contains(expected) && reason.contains("br0.flows.refused"),
            "{reason}"
        );
        assert_eq!(entries(&switch), 0, "{expected}: all or nothing");
        let aside = directory.path().join("br0.flows.refused");
        assert_eq!(std::fs::read(aside).unwrap(), bytes, "{expected}");
        // The bridge works, and the next save ends the message.
        switch.controller().add([patch(1, 2)]);
        assert_eq!(switch.switch.save_flows("br0").unwrap().unwrap().flows, 1);
        assert_eq!(switch.switch.status().problems, []);
    }
    // More tables are no reason to refuse.
    std::fs::write(&path, &saved).unwrap();
    let switch = keeping(directory.path(), &good.replace("tables = 8", "tables = 20"));
    assert_eq!(entries(&switch), 2);
}

#[test]
fn features_and_names_of_tables_and_entries_with_extensions_that_are_now_refused_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let settings = "tables = 4\n[[bridge.table]]\nnumber = 2\nname = \"configured\"";
    let switch = keeping(directory.path(), &config(2, settings));
    let mut controller = switch.controller();
    exchange(&mut controller, vec![narrow(0), named(2, "rest")]).unwrap();
    let with_extension = "tcp,tcp_flags=0x2/0x2".parse().unwrap();
    controller.add([FlowMod::add(
        TableId(2),
        Priority(1),
        with_extension,
        Instructions::default(),
    )]);
    let before = exchange(&mut controller, vec![]).unwrap();
    switch.switch.stop(true);
    drop(switch);
    let switch = keeping(directory.path(), &config(2, settings));
    assert_eq!(exchange(&mut switch.controller(), vec![]).unwrap(), before);
    switch.switch.stop(true);
    drop(switch);
    let switch = keeping(
        directory.path(),
        &config(2, &format!("match_extensions = false\n{settings}")),
    );
    assert_eq!(entries(&switch), 1);
    let names = exchange(&mut switch.controller(), vec![]).unwrap();
    let names: Vec<&str> = names.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["narrow 0", "rest"]);
}

#[test]
fn a_bridge_that_is_added_later_starts_empty_and_a_stop_without_keeping_removes_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut switch = keeping(directory.path(), &config(2, SECURE));
    switch.controller().add([patch(1, 2)]);
    switch.switch.save_flows("br0").unwrap().unwrap();
    assert!(switch.switch.save_flows("br9").is_none());
    switch.apply("");
    switch.apply(&config(2, SECURE));
    assert_eq!(entries(&switch), 0, "a bridge of the same name is another bridge");
    let saved = std::fs::read(file(directory.path())).unwrap();
    drop(switch);
    std::fs::write(file(directory.path()), saved).unwrap();
    // A switch without this bridge at its start does not restore it later.
    let mut switch = TestSwitch::without_bridges();
    switch.switch.keep(Keeper::new(directory.path().to_owned(), true));
    switch.apply("");
    switch.apply(&config(2, SECURE));
    assert_eq!(entries(&switch), 0);
    std::fs::write(file(directory.path()), "x").unwrap();
    switch.switch.stop(false);
    assert!(!file(directory.path()).exists());
}

/// Adds this many entries to table 1.
fn add_many(controller: &mut Controller, len: u32) {
    for start in (0..len).step_by(10_000) {
        let numbers = start..len.min(start + 10_000);
        controller.add(numbers.map(|number| FlowMod {
            table: TableId(1),
            ..flow(1, &[(Field::EthDst, number.into())], &[])
        }));
    }
}

/// Moves an entry from one priority of table 2 to the next in bundles, until `is_over`, while the state is saved. There
/// is always exactly one. Returns the number of bundles, and the longest time of one.
fn move_an_entry(controller: &mut Controller, is_over: &AtomicBool) -> (u32, Duration) {
    let at = |priority: u16| FlowMod {
        table: TableId(2),
        ..flow(priority, &[], &[])
    };
    controller.add([at(0)]);
    let (mut moves, mut longest) = (0_u32, Duration::ZERO);
    while moves == 0 || !is_over.load(Ordering::Relaxed) {
        let from = (moves % 60_000) as u16;
        let delete = FlowMod {
            command: FlowModCommand::DeleteStrict,
            ..at(from)
        };
        let begun = Instant::now();
        done(controller, moves, BundleCommand::Open);
        controller.send(&add_flow(moves, at((from + 1) % 60_000)));
        controller.send(&add_flow(moves, delete));
        done(controller, moves, BundleCommand::Commit);
        longest = longest.max(begun.elapsed());
        moves += 1;
    }
    (moves, longest)
}

/// Saves the state of a switch with this many entries while a controller changes others, and restores it.
fn save_beside_changes(len: u32) {
    let directory = tempfile::tempdir().unwrap();
    let switch = keeping(directory.path(), &config(2, SECURE));
    let mut controller = switch.controller();
    add_many(&mut controller, len);
    let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
    let (saved, (moves, longest)) = std::thread::scope(|scope| {
        let moving = scope.spawn(|| move_an_entry(&mut controller, &is_over));
        // The first change precedes the save.
        while entries(&switch) == len as usize {}
        let saved = switch.switch.save_flows("br0").unwrap().unwrap();
        is_over.store(true, Ordering::Relaxed);
        (saved, moving.join().unwrap())
    });
    let took = begun.elapsed();
    println!("{len} entries: saved in {took:?} beside {moves} bundles, the longest took {longest:?}");
    assert_eq!(saved.flows, len as usize + 1);
    assert!(moves > 1, "the controller was served during the save");
    let bytes = std::fs::read(file(directory.path())).unwrap();
    // The end of a switch removes the file.
    drop(switch);
    std::fs::write(file(directory.path()), bytes).unwrap();
    let begun = Instant::now();
    let switch = keeping(directory.path(), &config(2, SECURE));
    println!("restored in {:?}", begun.elapsed());
    assert_eq!(entries(&switch), len as usize + 1);
}

#[test]
fn a_save_has_the_entries_of_one_moment_and_controllers_are_served_during_it() {
    for _ in 0..3 {
        save_beside_changes(20_000);
    }
}

#[test]
#[ignore = "minutes: a million entries"]
fn a_million_entries_are_saved_and_restored() {
    save_beside_changes(1_000_000);
}
