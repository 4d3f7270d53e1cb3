//! Row T12 of docs/gates.md: flipped bits, forged groups, sources that change. No wrong byte is ever committed.

use crate::support::{Found, Report, carry, contents, noise, path, scan, snapshot, tree};
use millrace_fileset::fs::FileSystem;
use millrace_fileset::fs::memory::MemoryFs;
use millrace_fileset::source::SourceError;
use millrace_fileset::{
    ExtentValue, OnChange, ScanOptions, Sink, SinkEvent, SinkOptions, Source, SourceOptions,
};
use millrace_transport::random::Random;
use std::sync::Arc;

fn ends(from: &MemoryFs, to: &MemoryFs, options: SourceOptions) -> (Source<MemoryFs>, Sink<MemoryFs>) {
    let (manifest, paths) = scan(from, &contents(), ScanOptions::default());
    let source = Source::new(from.clone(), Arc::clone(&manifest), paths, options);
    (
        source,
        Sink::open(to.clone(), manifest, SinkOptions::default()).unwrap(),
    )
}

#[test]
fn flipped_bits_are_found_and_sent_again() {
    let (from, mut flips, mut rejected) = (tree(), 0, 0);
    for seed in 0..4 {
        let to = MemoryFs::new();
        let (mut source, mut sink) = ends(&from, &to, SourceOptions::default());
        let (mut report, mut random) = (Report::default(), Random::new(seed));
        let mut flip = |_: u64, bytes: &mut Vec<u8>| {
            if random.below(300) == 0 {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
                flips += 1;
            }
        };
        carry(&mut source, &mut sink, seed, &mut flip, &mut report).unwrap();
        assert_eq!(sink.root(), source.root());
        assert!(sink.root().is_some());
        rejected += sink.progress().rejected_groups;
        sink.close().unwrap();
        assert_eq!(snapshot(&to), snapshot(&from), "seed {seed}");
    }
    assert!(
        flips > 5 && rejected > 0,
        "{flips} flips, {rejected} groups rejected"
    );
}

#[test]
fn an_insider_that_forges_whole_extents_delays_but_commits_nothing() {
    let (from, to) = (tree(), MemoryFs::new());
    let (mut source, mut sink) = ends(&from, &to, SourceOptions::default());
    let mut report = Report::default();
    let mut forged = 0;
    let mut forge = |address: u64, bytes: &mut Vec<u8>| {
        if address < 1 << 20 && forged < 2_000 {
            bytes.fill(0x42);
            forged += 1;
        }
    };
    carry(&mut source, &mut sink, 5, &mut forge, &mut report).unwrap();
    assert!(forged >= 734, "an extent has 735 packets");
    assert!(
        report
            .events
            .iter()
            .any(|event| matches!(event, SinkEvent::Rejected { extent: 0, .. }))
    );
    sink.close().unwrap();
    assert_eq!(snapshot(&to), snapshot(&from));
}

#[test]
fn group_values_that_disagree_with_the_extent_are_refused() {
    let (from, to) = (tree(), MemoryFs::new());
    let (mut source, mut sink) = ends(&from, &to, SourceOptions::default());
    sink.start().unwrap();
    while sink.poll_event().is_some() {}
    let bytes = source.read(0, 1 << 20).unwrap().to_vec();
    sink.on_value(source.poll_value().unwrap()).unwrap();
    sink.write(0, &noise(7, 100)).unwrap();
    sink.write(100, &bytes[100..]).unwrap();
    assert_eq!(sink.poll_event(), Some(SinkEvent::NeedGroupValues(0)));
    let mut values = source.group_values(0).unwrap();
    values[3] = [9; 32];
    let error = sink.on_group_values(0, &values).unwrap_err().to_string();
    assert!(error.contains("do not agree"), "{error}");
    assert!(
        sink.on_value(ExtentValue {
            extent: 1 << 40,
            value: [0; 32]
        })
        .is_err()
    );
    assert!(
        sink.write((1 << 20) - 1, &[0; 2]).is_err(),
        "a packet never crosses an extent"
    );
    sink.on_group_values(0, &source.group_values(0).unwrap()).unwrap();
    assert_eq!(
        sink.poll_event(),
        Some(SinkEvent::Rejected {
            extent: 0,
            wrong: vec![0..16 << 10]
        })
    );
    // Only the wrong group is missing.
    sink.write(0, &bytes[..16 << 10]).unwrap();
    assert_eq!(sink.poll_event(), Some(SinkEvent::Verified(0)));
    assert_eq!(
        sink.take_written(),
        (1 << 20) + (16 << 10),
        "every byte left memory"
    );
}

#[test]
fn a_source_that_changes_fails_by_name() {
    let (from, to) = (tree(), MemoryFs::new());
    let (mut source, _) = ends(&from, &to, SourceOptions::default());
    from.put(&path("big"), Some(&noise(1, 3 << 20))).unwrap();
    let error = source.read(1 << 20, 100).unwrap_err();
    assert!(
        matches!(&error, SourceError::Changed { path, .. } if path.as_bytes() == b"big"),
        "{error}"
    );
}

#[test]
fn a_source_that_changes_while_it_is_read_is_withdrawn_and_the_others_arrive() {
    for seed in 0..6_u64 {
        let (from, to) = (tree(), MemoryFs::new());
        let withdraw = SourceOptions {
            cache_size: 1 << 20,
            on_change: OnChange::Withdraw,
        };
        let (mut source, mut sink) = ends(&from, &to, withdraw);
        let mut expected = snapshot(&from);
        // A hard link is withdrawn together with its file.
        expected.remove("big");
        expected.remove("hard");
        let mut report = Report::default();
        let mut packets = 0;
        let changer = from.clone();
        let mut change = |_: u64, _: &mut Vec<u8>| {
            packets += 1;
            if packets == 200 + 300 * seed {
                // The seeds alternate: a write that changes the times, and one that only the digest shows.
                let bytes = noise(seed, 5_000);
                if seed.is_multiple_of(2) {
                    let file = changer
                        .open(&path("big"), millrace_fileset::fs::Access::Write)
                        .unwrap();
                    changer.write_at(&file, 1 << 20, &bytes).unwrap();
                } else {
                    changer.tamper(&path("big"), (1 << 20) + 99_999, &bytes).unwrap();
                }
            }
        };
        carry(&mut source, &mut sink, seed, &mut change, &mut report).unwrap();
        assert_eq!(
            sink.failed(),
            0,
            "neither a withdrawn file nor a link to it has failed"
        );
        assert!(sink.root().is_some(), "the receipt has a root");
        sink.close().unwrap();
        let found = snapshot(&to);
        let withdrawn = report
            .events
            .iter()
            .any(|event| matches!(event, SinkEvent::Withdrawn(_)));
        if withdrawn {
            // A digest alone cannot tell which file of an extent changed: more of them may be withdrawn.
            for (path, content) in &found {
                assert_eq!(Some(content), expected.get(path), "{path}, seed {seed}");
            }
            assert!(found.contains_key("a/empty") && found.contains_key("a/link"));
        } else {
            // The change came after the last read, so the file arrived as the manifest describes it.
            let Some(Found::File(_, runs)) = found.get("big") else {
                panic!("big is there, seed {seed}")
            };
            assert_eq!(runs[0].1, noise(99, (5 << 19) + 4_321), "seed {seed}");
        }
        if seed == 0 {
            assert!(withdrawn, "a change that the times show is noticed");
            assert_eq!(found, expected);
        }
    }
}
