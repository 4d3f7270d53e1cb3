//! Kills and damage: whatever byte a write ends at, only the newest interval is lost; whatever byte of a file is wrong,
//! values are right or unknown.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use millrace_ix_series::{Key, Level, Point, Store};

use crate::model::{START, in_memory, key};

/// The files of a folder by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

/// Makes a folder have exactly these files.
fn restore(folder: &Path, wanted: &BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (name, bytes) in wanted {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

fn raw(store: &Store, key: Key, from: u64, len: usize) -> Vec<Point> {
    store.read(key, Level::Raw, from, from + 10 * len as u64)
}

#[test]
fn a_write_that_ends_at_any_byte_loses_the_newest_interval_only() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    for at in 0..4_u32 {
        let values: Vec<_> = (0..=at)
            .map(|number| (key(number), u64::from(1000 * at + number)))
            .collect();
        store.push(START + 10 * u64::from(at), &values).unwrap();
    }
    let before = files(folder.path());
    let whole: Vec<_> = (0..5).map(|number| raw(&store, key(number), START, 4)).collect();
    let values: Vec<_> = (0..5).map(|number| (key(number), 77)).collect();
    store.push(START + 40, &values).unwrap();
    drop(store);
    let after = files(folder.path());
    assert_eq!((before.len(), after.len()), (1, 1));
    let (name, old) = before.first_key_value().unwrap();
    let new = &after[name];
    for size in old.len()..=new.len() {
        restore(
            folder.path(),
            &BTreeMap::from([(name.clone(), new[..size].to_vec())]),
        );
        let mut store = Store::open(folder.path()).unwrap();
        for (number, expected) in (0..5).zip(&whole) {
            assert_eq!(&raw(&store, key(number), START, 4), expected, "cut at {size}");
            let newest = raw(&store, key(number), START + 40, 1)[0];
            assert_eq!(newest.is_known(), size == new.len(), "cut at {size}");
        }
        // The next interval is written behind what the kill left, and found by the next start.
        store.push(START + 50, &values).unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        for (number, expected) in (0..5).zip(&whole) {
            assert_eq!(&raw(&store, key(number), START, 4), expected, "cut at {size}");
            assert_eq!(
                raw(&store, key(number), START + 50, 1)[0].value,
                77,
                "cut at {size}"
            );
        }
    }
}

/// Returns a folder with files of all kinds, and the points that a reader finds.
fn days() -> (tempfile::TempDir, u64) {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    // A day has ended, and two hours of the next one; each hour has two intervals.
    let mut at = START;
    while at < START + 26 * 3600 + 30 {
        store.push(at, &[(key(1), at % 1000), (key(2), 7)]).unwrap();
        at += 1800;
    }
    (folder, at - 1800)
}

fn all(store: &Store, until: u64) -> Vec<Vec<Point>> {
    let mut found = Vec::new();
    for number in [1, 2] {
        for level in [Level::Raw, Level::Five, Level::Hour] {
            found.push(store.read(key(number), level, START, until + 3600));
        }
    }
    found
}

#[test]
fn a_wrong_byte_in_any_file_makes_values_unknown_and_none_wrong() {
    let (folder, until) = days();
    let right = all(&Store::open(folder.path()).unwrap(), until);
    let original = files(folder.path());
    assert!(original.len() > 8, "{:?}", original.keys());
    for (name, bytes) in &original {
        // Files of many points have many bytes alike; every third of them stands for its neighbours.
        let step = if bytes.len() > 1500 { 3 } else { 1 };
        for at in (0..bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            fs::write(folder.path().join(name), damaged).unwrap();
            let found = all(&Store::open(folder.path()).unwrap(), until);
            for (found, right) in found.iter().flatten().zip(right.iter().flatten()) {
                assert!(
                    !found.is_known() || found.value == right.value,
                    "{name}, byte {at}: {found:?}, {right:?}"
                );
            }
        }
        fs::write(folder.path().join(name), bytes).unwrap();
    }
}

#[test]
fn the_end_of_a_day_can_be_interrupted_between_any_two_files() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    let mut at = START;
    while at < START + 24 * 3600 {
        store.push(at, &[(key(1), at % 1000), (key(2), 7)]).unwrap();
        at += 1800;
    }
    drop(store);
    let before = files(folder.path());
    let mut store = Store::open(folder.path()).unwrap();
    store.push(START + 24 * 3600, &[(key(1), 5)]).unwrap();
    let until = START + 24 * 3600;
    let right = all(&store, until);
    drop(store);
    let after = files(folder.path());
    // A kill can leave the new files up to one, all old ones; or all new ones, and the old ones from one on.
    let new: Vec<_> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    let gone: Vec<_> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    let order = |name: &&&String| {
        let rank = ["five-", "raw-", "hour-", "log-"]
            .iter()
            .position(|start| name.starts_with(start));
        (name.ends_with("chunk") && name.starts_with("five"), rank)
    };
    let mut new = new.clone();
    new.sort_by_key(|name| order(&name));
    assert!(new.len() >= 3 && gone.len() >= 23, "{new:?} {gone:?}");
    let mut states = Vec::new();
    for count in 0..=new.len() {
        let mut state = before.clone();
        state.extend(
            new[..count]
                .iter()
                .map(|name| ((*name).clone(), after[*name].clone())),
        );
        states.push(state);
    }
    for count in 0..=gone.len() {
        let mut state = before.clone();
        state.extend(after.clone());
        for name in &gone[..count] {
            state.remove(*name);
        }
        states.push(state);
    }
    for (number, state) in states.iter().enumerate() {
        restore(folder.path(), state);
        let mut store = Store::open(folder.path()).unwrap();
        store.push(START + 24 * 3600, &[(key(1), 5)]).unwrap();
        assert_eq!(all(&store, until), right, "state {number}: {:?}", state.keys());
    }
}
