//! Ends of services that come and go: they leave memory, and their points stay.

use millrace_ix_series::{Key, Level, Measure, SERIES_MAX, Store, Subject};

use crate::model::{START, in_memory, key};

const HOUR: u64 = 3600;
const DAY: u64 = 86_400;

fn end(number: u32) -> Key {
    Key::new(Subject::End(number), Measure::In)
}

/// Returns the values of an end in the first minute.
fn minute(store: &Store, number: u32) -> Vec<Option<u64>> {
    let points = store.read(end(number), Level::Raw, START, START + 60);
    let value = |point: &millrace_ix_series::Point| point.is_known().then_some(point.value);
    points.iter().map(value).collect()
}

#[test]
fn an_end_that_went_leaves_memory_and_is_read_from_the_log_and_from_files() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    // End 1 exists for two intervals, 2 for all of them, 3 from the fourth on.
    let ends: [&[u32]; 6] = [&[1, 2], &[1, 2], &[2], &[2, 3], &[2, 3], &[2, 3]];
    for (at, ends) in (START..).step_by(10).zip(ends) {
        let values: Vec<_> = ends.iter().map(|number| (end(*number), 100)).collect();
        store.push(at, &values).unwrap();
        store.forget_ends(|number| ends.contains(&number));
    }
    let none = None::<u64>;
    let (known, all) = (Some(100), [Some(100); 6]);
    let expected = [
        [known, known, none, none, none, none],
        all,
        [none, none, none, known, known, known],
    ];
    let found = |store: &Store| [1, 2, 3].map(|number| minute(store, number));
    assert!(store.keys(START).into_iter().eq([end(2), end(3)]));
    assert_eq!(found(&store), expected, "from the log");
    drop(store);
    let mut store = Store::open(folder.path()).unwrap();
    store.forget_ends(|number| number != 1);
    assert_eq!(found(&store), expected, "after a restart");
    store.push(START + HOUR, &[(end(2), 7)]).unwrap();
    assert_eq!(found(&store), expected, "from the file of the hour");
    assert!(store.keys(START).into_iter().eq([end(1), end(2), end(3)]));
    store.push(START + DAY, &[]).unwrap();
    for (number, coverage) in [(1, 20), (2, 60), (3, 30)] {
        let points = store.read(end(number), Level::Five, START, START + 300);
        assert_eq!(
            (points[0].value, u64::from(points[0].coverage)),
            (100, coverage * 240 / 300),
            "end {number} in the file of the day"
        );
    }
}

#[test]
fn a_short_life_takes_a_few_bytes_in_each_file() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    let count = 2000_u32;
    for number in 0..count {
        let at = START + u64::from(number) * 30;
        store.push(at, &[(end(number), 1000), (key(1), 5)]).unwrap();
        store.push(at + 10, &[(end(number), 2000), (key(1), 5)]).unwrap();
        store.forget_ends(|other| other == number);
        // Those of the hours before are in files.
        let keys = store.keys(at);
        let ends = keys.iter().filter(|key| matches!(key.subject, Subject::End(_)));
        assert_eq!(ends.count() as u64, (at % DAY - at % HOUR) / 30 + 1);
    }
    store.push(START + DAY, &[]).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let size = entry.metadata().unwrap().len();
        let series = match name.split('-').next().unwrap() {
            "raw" => 120,
            "five" | "hour" => u64::from(count),
            _ => continue,
        };
        assert!(
            size < 32 + 600 + series * 40,
            "{name} has {size} bytes for {series} series"
        );
    }
}

#[test]
fn many_ends_leave_room_for_connections() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    let max = u32::try_from(SERIES_MAX).unwrap();
    let ends: Vec<_> = (0..max).map(|number| (end(number), 1)).collect();
    store.push(START, &ends).unwrap();
    assert_eq!(store.refused(), u64::from(max / 10));
    // Those that went count, too: the log has them.
    store.forget_ends(|_| false);
    store.push(START + 10, &[(end(max), 1), (key(1), 77)]).unwrap();
    assert_eq!(store.refused(), u64::from(max / 10) + 1);
    assert_eq!(
        store.read(key(1), Level::Raw, START + 10, START + 20)[0].value,
        77
    );
    store.push(START + HOUR, &[(end(max), 1)]).unwrap();
    assert_eq!(
        store.refused(),
        u64::from(max / 10) + 1,
        "the next hour has room again"
    );
}

#[test]
fn the_traffic_of_a_whole_exchange_may_be_above_four_terabit() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    let all = Key::new(Subject::Exchange, Measure::In);
    let value = 25_600_000_000_000;
    store.push(START, &[(all, value), (key(1), value)]).unwrap();
    let found =
        |store: &Store| [all, key(1)].map(|key| store.read(key, Level::Five, START, START + 300)[0].value);
    let [exchange, connection] = found(&store);
    assert!(exchange.abs_diff(value) * 4096 <= value, "{exchange}");
    assert!(connection < value, "{connection}: 4.39 Tbit/s at most");
    store.push(START + DAY, &[]).unwrap();
    let [stored, _] = found(&store);
    assert!(stored.abs_diff(value) * 2048 <= value, "{stored} in the file");
}
