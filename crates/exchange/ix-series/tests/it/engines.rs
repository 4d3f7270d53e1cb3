//! Several engines: intervals and files that one has measured and others take, in any order.

use std::collections::BTreeMap;
use std::fs;

use millrace_ix_series::{ForeignError, Key, Level, Point, Store, day_file_of, surplus};
use proptest::prelude::*;

use crate::model::{START, in_memory, key};

const HOUR: u64 = 3600;
const DAY: u64 = 86_400;

/// An engine with its folder.
struct Engine {
    store: Store,
    folder: tempfile::TempDir,
}

impl Engine {
    fn new() -> Engine {
        let folder = in_memory();
        let store = Store::open(folder.path()).unwrap();
        Engine { store, folder }
    }

    fn push(&mut self, at: u64, value: u64) {
        self.store.push(at, &[(key(1), value)]).unwrap();
    }

    /// Takes everything that another engine has measured and not sent yet.
    fn take_intervals(&mut self, other: &mut Engine) {
        for (start, record) in other.store.unsent(usize::MAX) {
            self.store.absorb_interval(&record).unwrap();
            other.store.sent(start);
        }
    }

    fn restart(&mut self) {
        self.store = Store::open(self.folder.path()).unwrap();
    }

    fn raw(&self, from: u64, len: u64) -> Vec<Point> {
        self.store.read(key(1), Level::Raw, from, from + 10 * len)
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(name)).unwrap()
    }
}

/// Returns the values of points; `None` stands for an unknown one.
fn values(points: &[Point]) -> Vec<Option<u64>> {
    let value = |point: &Point| point.is_known().then_some(point.value);
    points.iter().map(value).collect()
}

#[test]
fn the_open_hour_of_a_follower_is_that_of_the_leader_and_so_are_its_files() {
    let (mut leader, mut follower) = (Engine::new(), Engine::new());
    for at in (START..START + HOUR).step_by(10) {
        leader.push(at, at % 1000);
        follower.take_intervals(&mut leader);
    }
    assert_eq!(follower.raw(START, 360), leader.raw(START, 360));
    follower.restart();
    assert_eq!(
        follower.raw(START, 360),
        leader.raw(START, 360),
        "after a restart"
    );
    leader.push(START + HOUR, 7);
    follower.take_intervals(&mut leader);
    let [(piece, _)] = &follower.store.shared_files()[..] else {
        panic!("{:?}", follower.store.shared_files())
    };
    assert_eq!(follower.file(piece), leader.file(piece));
    assert!(leader.store.unsent(usize::MAX).is_empty());
}

#[test]
fn the_new_leader_continues_the_hour_and_the_gap_is_the_time_without_a_leader() {
    let (mut old, mut new) = (Engine::new(), Engine::new());
    for at in (0..100).step_by(10) {
        old.push(START + at, 5);
        new.take_intervals(&mut old);
    }
    // The old leader is killed; the new one measures after 30 seconds.
    for at in (130..300).step_by(10) {
        new.push(START + at, 9);
    }
    let found = new.store.read(key(1), Level::Five, START, START + 300)[0];
    assert_eq!(u64::from(found.coverage), 27 * 240 / 30);
    assert_eq!(found.value, (10 * 5 + 17 * 9 + 13) / 27);
    // The old one comes back, and had measured an interval by itself.
    old.push(START + 100, 5);
    old.push(START + 130, 6);
    old.store.send_nothing();
    new.take_intervals(&mut old);
    old.take_intervals(&mut new);
    assert_eq!(
        values(&new.raw(START + 90, 5)),
        [Some(5), None, None, None, Some(9)]
    );
    assert_eq!(
        values(&old.raw(START + 90, 5)),
        [Some(5), Some(5), None, None, Some(9)],
        "those of the leader replace its own"
    );
}

#[test]
fn late_intervals_are_left_to_files_and_a_clock_that_was_set_back_is_followed() {
    let (mut leader, mut follower) = (Engine::new(), Engine::new());
    leader.push(START + HOUR - 10, 1);
    let late = leader.store.unsent(1).remove(0).1;
    follower.push(START + HOUR, 2);
    follower.store.absorb_interval(&late).unwrap();
    assert_eq!(values(&follower.raw(START + HOUR - 10, 2)), [None, Some(2)]);
    follower.push(START + 20 * DAY, 3);
    follower.store.absorb_interval(&late).unwrap();
    assert_eq!(values(&follower.raw(START + HOUR - 10, 2)), [Some(1), Some(2)]);
    assert_eq!(values(&follower.raw(START + 20 * DAY, 1)), [Some(3)]);
}

/// The files of a database: the content by name.
type Database = BTreeMap<String, Vec<u8>>;

/// Merges what the database has, and gives it what the engine has more.
fn exchange(engine: &mut Engine, database: &mut Database, seen: &mut BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in database.iter() {
        if seen.get(name) != Some(bytes) {
            engine.store.absorb_file(name, bytes.clone()).unwrap();
            seen.insert(name.clone(), bytes.clone());
        }
    }
    for (name, _) in engine.store.shared_files() {
        let bytes = engine.file(&name);
        seen.insert(name.clone(), bytes.clone());
        database.insert(name, bytes);
    }
}

fn five(engine: &Engine) -> Vec<Point> {
    engine.store.read(key(1), Level::Five, START, START + 3 * DAY)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn engines_that_measured_apart_come_to_the_same_points_with_the_most_coverage(
        // Engine, distance to its last interval, value; or an exchange of files.
        steps in prop::collection::vec((0..3usize, 1..900u64, 0..5000u64, any::<bool>()), 1..120)
    ) {
        let mut engines = [Engine::new(), Engine::new(), Engine::new()];
        let mut seen = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
        let mut database = Database::new();
        let mut now = [START; 3];
        for (at, distance, value, exchanges) in steps {
            if exchanges {
                exchange(&mut engines[at], &mut database, &mut seen[at]);
            } else {
                now[at] += distance * 10;
                engines[at].push(now[at], value);
            }
        }
        // All days have ended; the open hour is one without points.
        for engine in &mut engines {
            engine.store.push(START + 5 * DAY, &[]).unwrap();
        }
        let apart: Vec<Vec<Point>> = engines.iter().map(five).collect();
        for _ in 0..3 {
            for (engine, seen) in engines.iter_mut().zip(&mut seen) {
                exchange(engine, &mut database, seen);
            }
        }
        let merged = five(&engines[0]);
        for engine in &engines[1..] {
            prop_assert_eq!(&five(engine), &merged);
        }
        for (at, point) in merged.iter().enumerate() {
            let most = apart.iter().map(|points| points[at].coverage).max().unwrap();
            prop_assert_eq!(point.coverage, most);
            let found = apart.iter().any(|points| points[at] == *point);
            prop_assert!(found || !point.is_known(), "{:?}", point);
        }
        let before = database.clone();
        for (engine, seen) in engines.iter_mut().zip(&mut seen) {
            exchange(engine, &mut database, seen);
        }
        prop_assert_eq!(database, before, "nothing is left to give");
    }
}

#[test]
fn of_two_points_the_one_with_more_coverage_counts_and_of_equals_that_of_the_database() {
    let (mut one, mut two) = (Engine::new(), Engine::new());
    // First five minutes: both know all. Second ones: the first engine knows more. Third ones: the second one does.
    for at in 0..90_u64 {
        if at < 60 || at % 3 == 0 {
            one.push(START + 10 * at, 100);
        }
        if at < 30 || at >= 60 || at % 3 == 0 {
            two.push(START + 10 * at, 200);
        }
    }
    one.push(START + HOUR, 1);
    two.push(START + HOUR, 2);
    let name = two.store.shared_files()[0].0.clone();
    one.store.absorb_file(&name, two.file(&name)).unwrap();
    let found = one.store.read(key(1), Level::Five, START, START + 900);
    assert_eq!(values(&found), [Some(200), Some(100), Some(200)]);
    assert!(found.iter().all(|point| point.coverage == 240), "{found:?}");
}

#[test]
fn a_damaged_file_changes_nothing_or_brings_right_points_only() {
    let mut one = Engine::new();
    for at in (0..2 * HOUR).step_by(50) {
        let values: Vec<(Key, u64)> = (0..6)
            .map(|number| (key(number), at + u64::from(number)))
            .collect();
        one.store.push(START + at, &values).unwrap();
    }
    let (name, _) = one.store.shared_files()[0].clone();
    let (bytes, whole) = (
        one.file(&name),
        one.store.read(key(3), Level::Five, START, START + HOUR),
    );
    for wrong in [
        "five-1.piece",
        "raw-001795996800.chunk",
        "hour-001795996800.chunk",
        "../x",
        "five-001795996801.piece",
    ] {
        let refused = Engine::new().store.absorb_file(wrong, bytes.clone()).unwrap_err();
        assert!(matches!(refused, ForeignError::Damaged(_)), "{wrong}: {refused}");
    }
    for at in (0..bytes.len()).step_by(7) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x21;
        for damaged in [changed, bytes[..at].to_vec()] {
            let mut other = Engine::new();
            let taken = other.store.absorb_file(&name, damaged);
            let found = other.store.read(key(3), Level::Five, START, START + HOUR);
            for (found, right) in found.iter().zip(&whole) {
                assert!(!found.is_known() || found == right, "byte {at}: {found:?}");
            }
            assert_eq!(taken.is_err(), other.store.shared_files().is_empty(), "byte {at}");
        }
    }
    let record = one.store.unsent(1).remove(0).1;
    for at in 0..record.len() {
        let mut other = Engine::new();
        assert!(other.store.absorb_interval(&record[..at]).is_err(), "cut at {at}");
        assert!(other.store.keys(0).is_empty());
    }
}

#[test]
fn a_medium_that_fails_is_told_and_the_file_is_taken_later() {
    let (mut one, mut two) = (Engine::new(), Engine::new());
    one.push(START, 5);
    let record = one.store.unsent(1).remove(0).1;
    one.push(START + HOUR, 5);
    let name = one.store.shared_files()[0].0.clone();
    // A folder in the place of the draft is a medium that refuses the write, also for root.
    let draft = two.folder.path().join(format!("{name}.new"));
    fs::create_dir(&draft).unwrap();
    let failed = two.store.absorb_file(&name, one.file(&name)).unwrap_err();
    assert!(matches!(failed, ForeignError::Series(_)), "{failed}");
    assert!(
        failed.to_string().contains(&name) && failed.to_string().contains("disk"),
        "{failed}"
    );
    assert!(two.store.shared_files().is_empty());
    fs::remove_dir(&draft).unwrap();
    two.store.absorb_file(&name, one.file(&name)).unwrap();
    assert_eq!(two.file(&name), one.file(&name));
    let log = two.folder.path().join(format!("log-{START:012}.rows"));
    fs::create_dir(&log).unwrap();
    assert!(matches!(
        two.store.absorb_interval(&record),
        Err(ForeignError::Series(_))
    ));
    fs::remove_dir(&log).unwrap();
    two.store.absorb_interval(&record).unwrap();
    assert_eq!(values(&two.raw(START, 1)), [Some(5)]);
}

#[test]
fn a_file_of_an_hour_that_comes_after_its_day_is_merged_into_the_day() {
    let (mut one, mut two) = (Engine::new(), Engine::new());
    one.push(START + 5 * HOUR, 50);
    one.push(START + 6 * HOUR, 60);
    let (piece, _) = one.store.shared_files()[0].clone();
    two.push(START, 10);
    two.push(START + DAY, 20);
    two.store.absorb_file(&piece, one.file(&piece)).unwrap();
    let names: Vec<String> = two
        .store
        .shared_files()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            format!("five-{START:012}.chunk"),
            format!("hour-{START:012}.chunk")
        ]
    );
    assert_eq!(day_file_of(&piece).as_ref(), Some(&names[0]));
    for level in [Level::Five, Level::Hour] {
        let found = two
            .store
            .read(key(1), level, START + 5 * HOUR, START + 5 * HOUR + 1);
        assert_eq!(values(&found), [Some(50)], "{level:?}");
    }
    let names: Vec<String> = (0..103)
        .map(|day| format!("five-{:012}.chunk", START + day * DAY))
        .collect();
    let others = ["billing-2026-11.csv", &piece];
    let all = names.iter().map(String::as_str).chain(others);
    assert_eq!(surplus(all), names[..3]);
}
