//! The tables, the sequencer and the dispatcher.

use millrace_nic::completion::flag;
use millrace_nic::config::Tpid;
use millrace_nic::key::Key;
use millrace_nic::{Action, Capabilities, Command, Completion, Config, Counter, HashKeys, Status, hash};
use millrace_nic_model::{Model, Outcome, frames, parse};

const COMPLETIONS: usize = 16;

fn config() -> Config {
    Config::new(HashKeys::new(1))
}

fn model() -> Model {
    let mut model = Model::new(Capabilities::TEN, config(), COMPLETIONS);
    for queue in 0..32 {
        (0..COMPLETIONS as u16).for_each(|buffer| model.post(queue, buffer, COMPLETIONS));
    }
    model
}

fn run(model: &mut Model, command: &Command) -> Status {
    model.command(&command.to_bytes(9)).0.status
}

fn run_all(model: &mut Model, commands: impl IntoIterator<Item = Command>) {
    for command in commands {
        assert_eq!(run(model, &command), Status::Ok, "{command:?}");
    }
}

fn received(model: &mut Model, frame: &[u8]) -> (u8, Completion) {
    match model.frame(0, frame, 5) {
        Outcome::Received { queue, completion } => (queue, completion),
        dropped @ Outcome::Dropped { .. } => panic!("{dropped:?}"),
    }
}

fn udp() -> Vec<u8> {
    frames::chains().remove(1).1
}

/// Gives port 0 the mask of all fields and form 3, and returns a row for the frame: way and row.
fn set_entry(model: &mut Model, frame: &[u8], action: Action) -> (u8, u32) {
    run_all(model, Command::stage(&Key::ALL));
    run_all(
        model,
        [Command::SetMask {
            port: 0,
            bank: 1,
            form: 3,
        }],
    );
    let key = parse(frame, 0, &config()).key;
    let row = hash::rows(config().keys.table(&key), Capabilities::TEN.row_bits.into())[2] as u32;
    run_all(model, Command::stage(&key));
    run_all(
        model,
        [Command::WriteRow {
            way: 2,
            row,
            form: 3,
            action,
        }],
    );
    (2, row)
}

#[test]
fn a_tpid_is_an_ethertype_of_a_frame_and_no_packet_below_a_label() {
    let mut config = config();
    config.tpids[3] = Some(Tpid {
        value: 0x0800,
        openflow: true,
    });
    let udp = udp();
    assert_eq!(udp[12..14], [0x08, 0x00]);
    let tagged = parse(&udp, 0, &config);
    assert_eq!((tagged.tags, tagged.inner_l3), (1, 0));
    let labelled = [&udp[..12], &[0x88, 0x47, 0, 1, 1, 64], &udp[14..]].concat();
    let parsed = parse(&labelled, 0, &config);
    assert_eq!(
        (parsed.tags, parsed.labels, parsed.inner_l3, parsed.inner_l4),
        (0, 1, 18, 38)
    );
}

#[test]
fn an_exact_entry_marks_its_key_and_no_other() {
    let mut model = model();
    let frame = udp();
    assert!(!received(&mut model, &frame).1.has(flag::MARK));
    let action = Action {
        mark: 0x1234,
        queue: Some(7),
        class: 5,
        drop: false,
    };
    let (way, row) = set_entry(&mut model, &frame, action);
    let (queue, completion) = received(&mut model, &frame);
    assert_eq!((queue, completion.mark, completion.class), (7, 0x1234, 5));
    assert!(completion.has(flag::MARK) && completion.has(flag::HASH) && completion.has(flag::COMPLETE));
    assert_eq!((completion.generation, completion.time), (2, 5));
    // Each byte of the headers but TTL, identification and checksums belongs to the key.
    for at in (0..14).chain(26..38) {
        let mut other = frame.clone();
        other[at] ^= 1;
        assert!(!received(&mut model, &other).1.has(flag::MARK), "byte {at}");
        model.take(0, 1, COMPLETIONS);
        model.post(0, 0, COMPLETIONS);
    }
    run_all(&mut model, [Command::ClearRow { way, row }]);
    assert!(!received(&mut model, &frame).1.has(flag::MARK));
}

#[test]
fn another_form_is_a_miss_and_so_is_a_truncated_frame() {
    let mut model = model();
    let frame = udp();
    set_entry(
        &mut model,
        &frame,
        Action {
            mark: 1,
            ..Action::default()
        },
    );
    let cut = received(&mut model, &frame[..frame.len() - 1]).1;
    assert!(cut.has(flag::TRUNCATED) && !cut.has(flag::MARK));
    run_all(&mut model, Command::stage(&Key::ALL));
    run_all(
        &mut model,
        [Command::SetMask {
            port: 0,
            bank: 1,
            form: 4,
        }],
    );
    assert!(!received(&mut model, &frame).1.has(flag::MARK));
    run_all(
        &mut model,
        [Command::SetMask {
            port: 0,
            bank: 1,
            form: 0,
        }],
    );
    assert!(!received(&mut model, &frame).1.has(flag::MARK));
}

#[test]
fn each_flipped_bit_of_a_row_is_a_miss_and_counted() {
    let mut model = model();
    let frame = udp();
    let (way, row) = set_entry(
        &mut model,
        &frame,
        Action {
            mark: 1,
            ..Action::default()
        },
    );
    for bit in 0..576 {
        model.flip(way, row, bit);
        let classified = model.classify(0, &frame);
        assert_eq!((classified.action.mark, classified.parity), (0, 1), "bit {bit}");
        model.flip(way, row, bit);
    }
    assert_eq!(model.classify(0, &frame).action.mark, 1);
}

#[test]
fn a_ternary_rule_goes_before_the_exact_row_and_the_lowest_index_before_others() {
    let mut model = model();
    let frame = udp();
    set_entry(
        &mut model,
        &frame,
        Action {
            mark: 1,
            ..Action::default()
        },
    );
    let key = parse(&frame, 0, &config()).key.ternary();
    for (rule, mark) in [(9, 9), (4, 4)] {
        // The EtherType and the source address.
        run_all(
            &mut model,
            Command::stage_ternary(key, [0xffff << 48, 0, u64::MAX, 0]),
        );
        run_all(
            &mut model,
            [Command::WriteTernary {
                rule,
                action: Action {
                    mark,
                    ..Action::default()
                },
            }],
        );
    }
    assert_eq!(received(&mut model, &frame).1.mark, 4);
    run_all(&mut model, [Command::ClearTernary { rule: 4 }]);
    assert_eq!(received(&mut model, &frame).1.mark, 9);
    run_all(&mut model, [Command::ClearTernary { rule: 9 }]);
    assert_eq!(received(&mut model, &frame).1.mark, 1);
}

#[test]
fn buckets_take_effect_with_the_commit_whose_fence_separates_old_and_new() {
    let mut model = model();
    let frame = udp();
    let bucket = model.classify(0, &frame).bucket;
    run_all(
        &mut model,
        [Command::SetBuckets {
            first: bucket,
            queues: vec![5],
        }],
    );
    assert_eq!(received(&mut model, &frame).0, 0);
    let (completion, fence) = model.command(&Command::Commit { fence: Some(77) }.to_bytes(1));
    let fence = fence.unwrap();
    assert_eq!(
        (completion.status, fence.mark, fence.flags),
        (Status::Ok, 77, flag::FENCE)
    );
    assert_eq!(received(&mut model, &frame).0, 5);
    // The shadow copy is the former table.
    run_all(&mut model, [Command::Commit { fence: None }]);
    assert_eq!(received(&mut model, &frame).0, 0);
}

#[test]
fn a_full_queue_drops_frames_counts_them_and_has_room_for_four_fences() {
    let mut model = model();
    let frame = udp();
    for _ in 0..COMPLETIONS - 4 {
        received(&mut model, &frame);
    }
    let outcome = model.frame(0, &frame, 0);
    assert_eq!(
        outcome,
        Outcome::Dropped {
            counter: Counter::NoBuffer,
            queue: 0
        }
    );
    for number in 0..4 {
        assert_eq!(run(&mut model, &Command::Fence { number }), Status::Ok);
    }
    let generation = model.generation();
    assert_eq!(run(&mut model, &Command::Commit { fence: Some(4) }), Status::Busy);
    assert_eq!(model.generation(), generation, "nothing has changed");
    model.take(0, 1, COMPLETIONS);
    assert_eq!(run(&mut model, &Command::Fence { number: 4 }), Status::Ok);
    assert_eq!(model.count(Counter::NoBuffer, 0), 1);
    assert_eq!(model.count(Counter::Received, 0), COMPLETIONS as u64 - 4);
    assert_eq!(model.count(Counter::Frames, 0), COMPLETIONS as u64 - 3);
}

#[test]
fn what_the_device_does_not_have_is_out_of_range() {
    let mut model = model();
    let action = Action::default();
    for command in [
        Command::WriteRow {
            way: 0,
            row: 512,
            form: 1,
            action,
        },
        Command::ClearRow { way: 3, row: 512 },
        Command::WriteTernary { rule: 32, action },
        Command::ClearTernary { rule: 32 },
        Command::SetMask {
            port: 0,
            bank: 4,
            form: 1,
        },
        Command::SetMask {
            port: 4,
            bank: 0,
            form: 1,
        },
    ] {
        assert_eq!(run(&mut model, &command), Status::Range, "{command:?}");
    }
    assert_eq!(model.generation(), 0);
}

#[test]
fn a_drop_is_counted_and_takes_no_buffer() {
    let mut model = model();
    let frame = udp();
    set_entry(
        &mut model,
        &frame,
        Action {
            drop: true,
            ..Action::default()
        },
    );
    assert_eq!(
        model.frame(0, &frame, 0),
        Outcome::Dropped {
            counter: Counter::Dropped,
            queue: 0
        }
    );
    assert_eq!(model.count(Counter::Dropped, 0), 1);
    let read = Command::ReadDrops { half: 0, counter: 0 };
    assert_eq!(
        run(&mut model, &read),
        Status::Unknown,
        "the RTL has no drop counters"
    );
    for size in [13, 9601] {
        let outcome = model.frame(0, &vec![0; size], 0);
        assert_eq!(
            outcome,
            Outcome::Dropped {
                counter: Counter::BadLength,
                queue: 0
            }
        );
    }
}

#[test]
fn a_drop_counter_counts_packets_and_bytes_of_the_entries_that_name_it_and_stays_when_they_go() {
    let sizes = Capabilities {
        drops: 8,
        ..Capabilities::TEN
    };
    let mut model = Model::new(sizes, config(), COMPLETIONS);
    let frame = udp();
    let read = |model: &mut Model, counter: u32| {
        [0, 1].map(|half| {
            let (completion, _) = model.command(&Command::ReadDrops { half, counter }.to_bytes(1));
            assert_eq!(completion.status, Status::Ok);
            completion.value
        })
    };
    let size = frame.len() as u64;
    // The first counter, the last one, and one that the device does not have.
    for (mark, counted) in [(0, true), (7, true), (8, false)] {
        let action = Action {
            mark,
            drop: true,
            ..Action::default()
        };
        let (way, row) = set_entry(&mut model, &frame, action);
        for _ in 0..3 {
            assert!(matches!(model.frame(0, &frame, 0), Outcome::Dropped { .. }));
        }
        run_all(&mut model, [Command::ClearRow { way, row }]);
        if counted {
            assert_eq!(read(&mut model, mark), [3, 3 * size]);
        }
    }
    assert_eq!(
        (read(&mut model, 0), read(&mut model, 1)),
        ([3, 3 * size], [0, 0])
    );
    assert_eq!(model.count(Counter::Dropped, 0), 9);
    for (half, counter) in [(0, 8), (2, 0)] {
        assert_eq!(
            run(&mut model, &Command::ReadDrops { half, counter }),
            Status::Range
        );
    }
}
