//! Shared values of hops are compiled by another thread, and replaced between two bursts.

use std::path::Path;
use std::time::Instant;

use millrace_chain::{ChainPlan, Exporter, HopPlan, HopState};
use millrace_nf::Settings;

use crate::testbed::{BOUND, TestBed, frame, marks, no, sequence, shared::WITHOUT};

fn hop(path: &Path, more: &[&str]) -> HopPlan {
    let file = format!("file={}", path.display());
    let mut hop = HopPlan::new("n", "numbered");
    hop.settings = Settings::parse([file.as_str()].iter().chain(more)).unwrap();
    hop
}

fn plan(hop: HopPlan) -> ChainPlan {
    let mut plan = ChainPlan::new("edge", no(100), no(101));
    plan.hops = vec![hop];
    plan
}

/// Ticks until the hop has got this many values, and none is being compiled.
fn wait_for(testbed: &mut TestBed, compilations: u64) {
    testbed.wait("the value is compiled", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        let stats = testbed.chain.stats();
        let shared = stats.hops[0].shared.as_ref().unwrap();
        shared.compilations >= compilations && !shared.is_compiling && testbed.chain.is_settled()
    });
}

/// Ticks until the hop has a failure.
fn wait_for_failure(testbed: &mut TestBed) {
    testbed.wait("the failure is known", |testbed| {
        testbed.chain.tick(testbed.bridge.now());
        !testbed.chain.stats().hops[0].failure.is_empty()
    });
}

#[test]
fn a_function_works_without_a_value_until_the_first_one_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("number");
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![hop(&path, &[])]);
    wait_for_failure(&mut testbed);
    let stats = testbed.chain.stats();
    assert_eq!(stats.hops[0].state, HopState::Down);
    assert!(stats.hops[0].failure.contains("No such file"), "{stats:?}");
    assert!(one.send(&frame(0, 1)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [WITHOUT]);
    std::fs::write(&path, "5").unwrap();
    assert!(testbed.chain.reload("n"));
    assert!(!testbed.chain.reload("other"));
    wait_for(&mut testbed, 1);
    assert!(one.send(&frame(0, 2)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [5]);
    let stats = testbed.chain.stats();
    assert_eq!(
        (stats.hops[0].state, stats.hops[0].failure.as_str()),
        (HopState::Up, "")
    );
    assert_eq!(stats.hops[0].shared.as_ref().unwrap().summary, "the number 5");
}

#[test]
fn files_that_were_not_there_are_read_when_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("number");
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![hop(&path, &[])]);
    wait_for_failure(&mut testbed);
    std::fs::write(&path, "5").unwrap();
    // Nobody asks for a reload.
    wait_for(&mut testbed, 1);
    assert!(one.send(&frame(0, 1)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [5]);
}

#[test]
fn a_value_that_cannot_be_compiled_leaves_the_old_one_and_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("number");
    std::fs::write(&path, "5").unwrap();
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![hop(&path, &[])]);
    wait_for(&mut testbed, 1);
    std::fs::write(&path, "five").unwrap();
    testbed.chain.reload_changed();
    wait_for_failure(&mut testbed);
    let stats = testbed.chain.stats();
    assert_eq!(stats.hops[0].state, HopState::Up);
    assert_eq!(stats.hops[0].failure, "`five`: expected a number");
    assert!(one.send(&frame(0, 1)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [5]);
}

#[test]
fn settings_of_the_value_keep_the_functions_and_others_replace_them_with_the_value() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [1, 2].map(|number| folder.path().join(format!("{number}")));
    std::fs::write(&paths[0], "1").unwrap();
    std::fs::write(&paths[1], "2").unwrap();
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![hop(&paths[0], &[])]);
    wait_for(&mut testbed, 1);
    assert!(one.send(&frame(0, 1)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [1]);
    let packets = |testbed: &mut TestBed| testbed.chain.stats().hops[0].packets;
    testbed.edit(&plan(hop(&paths[1], &[])));
    wait_for(&mut testbed, 2);
    assert!(one.send(&frame(0, 2)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [2]);
    assert_eq!(packets(&mut testbed), 2, "the function was kept");
    testbed.edit(&plan(hop(&paths[1], &["note=other"])));
    testbed.settle();
    assert!(one.send(&frame(0, 3)));
    assert_eq!(marks(&two.receive_within(BOUND).unwrap()), [2]);
    assert_eq!(packets(&mut testbed), 1, "the function is new, and has the value");
}

#[test]
fn no_packet_is_lost_or_overtaken_while_values_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("number");
    std::fs::write(&path, "1").unwrap();
    let mut wanted = hop(&path, &[]);
    wanted.instances = 2;
    let (mut testbed, one, two) = TestBed::new(1, 1, vec![wanted]);
    wait_for(&mut testbed, 1);
    let (mut sent, mut received, mut seen) = (0, 0, Vec::new());
    let deadline = Instant::now() + BOUND;
    for number in 2..=6 {
        std::fs::write(&path, number.to_string()).unwrap();
        testbed.chain.reload("n");
        loop {
            assert!(Instant::now() < deadline);
            while sent - received < 64 && one.send(&frame(1, sent)) {
                sent += 1;
            }
            testbed.chain.tick(testbed.bridge.now());
            let frame = two.receive_within(BOUND).unwrap();
            assert_eq!(sequence(&frame), received);
            received += 1;
            let mark = marks(&frame)[0];
            if seen.last() != Some(&mark) {
                seen.push(mark);
            }
            if mark == number {
                break;
            }
        }
    }
    while received < sent {
        assert_eq!(sequence(&two.receive_within(BOUND).unwrap()), received);
        received += 1;
    }
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(seen.last(), Some(&6));
}

#[test]
fn messages_are_exported_as_the_formatter_writes_them_with_the_value_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (folder.path().join("number"), folder.path().join("out"));
    std::fs::write(&path, "8").unwrap();
    let export = format!("export=file:{}", out.display());
    let (mut testbed, _one, _two) = TestBed::new(1, 1, vec![hop(&path, &[&export])]);
    let mut exporter = Exporter::new("edge");
    exporter.export(&testbed.chain);
    testbed.wait("the message is written", |testbed| {
        if testbed.chain.tick(testbed.bridge.now()) {
            exporter.export(&testbed.chain);
        }
        std::fs::read_to_string(&out).is_ok_and(|text| text == "[8] beside 8\n")
    });
}
