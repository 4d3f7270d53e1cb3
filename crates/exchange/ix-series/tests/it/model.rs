//! The store beside a map from times to values.

use std::collections::BTreeMap;

use millrace_ix_series::{Key, Level, Measure, Period, Point, Store, Subject};
use proptest::prelude::*;

/// A Monday, 2026-11-30T00:00:00Z.
pub(crate) const START: u64 = 1_795_996_800;

/// Returns a folder in memory, if the machine has one: a test writes what an exchange writes in months.
pub(crate) fn in_memory() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

/// Returns the key of a series: both directions of connections in turn.
pub(crate) fn key(number: u32) -> Key {
    let measure = Measure::COUNTED[number as usize % 2];
    Key::new(Subject::Connection(number / 2), measure)
}

/// The values by series and start of the interval.
type Model = BTreeMap<(Key, u64), u64>;

/// Returns the average and the coverage of the intervals in a time.
fn expected(model: &Model, key: Key, from: u64, to: u64) -> (f64, f64) {
    let known: Vec<f64> = model
        .range((key, from)..(key, to))
        .map(|(_, value)| *value as f64)
        .collect();
    let len = known.len() as f64;
    (
        known.iter().sum::<f64>() / len.max(1.0),
        len * 10.0 / (to - from) as f64,
    )
}

/// Compares all points of a resolution with the model.
fn compare(store: &Store, model: &Model, level: Level, from: u64, to: u64) {
    let step = level.step();
    for number in 0..4 {
        let points = store.read(key(number), level, from, to);
        assert_eq!(points.len() as u64, (to - from) / step);
        for (at, point) in (0_u64..).zip(points) {
            let at = from + at * step;
            let (average, coverage) = expected(model, key(number), at, at + step);
            let place =
                format!("series {number} at {level:?} {at}: {point:?}, expected {average} with {coverage}");
            assert_eq!(point.is_known(), coverage > 0.0, "{place}");
            let found = f64::from(point.coverage) / 240.0;
            // Shares are rounded down; a known point has at least one 240th.
            assert!((found - coverage).abs() <= 0.01, "{place}");
            // The error of a code, at each of three resolutions.
            let error = (point.value as f64 - average).abs();
            assert!(
                !point.is_known() || error <= 1.5 + average * 3.0 / 4096.0,
                "{place}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn all_resolutions_have_the_averages_of_what_was_written(
        steps in prop::collection::vec(
            (0..3u8, 1..4000u64, prop::collection::vec((0..4u32, 0..5_000_000_000u64), 1..5)), 1..60)
    ) {
        let folder = in_memory();
        let mut store = Store::open(folder.path()).unwrap();
        let mut model = Model::new();
        let mut now = START;
        for (kind, distance, values) in steps {
            // Mostly the next interval; sometimes minutes or hours later; sometimes a restart.
            now += match kind {
                0 => 10,
                1 => distance,
                _ => distance * 6,
            };
            if distance % 7 == 0 {
                drop(store);
                store = Store::open(folder.path()).unwrap();
            }
            let values: Vec<_> = values.into_iter().map(|(number, value)| (key(number), value)).collect();
            store.push(now, &values).unwrap();
            // The value of an interval is the one that was stored; a test of its own compares it with the one written.
            for number in 0..4 {
                let found = store.read(key(number), Level::Raw, now - now % 10, now - now % 10 + 10);
                if found[0].is_known() {
                    model.insert((key(number), now - now % 10), found[0].value);
                }
            }
        }
        let day = 86_400;
        let (from, to) = (START - day, now - now % day + 2 * day);
        compare(&store, &model, Level::Five, from, to);
        compare(&store, &model, Level::Hour, from, to);
        // A restart changes nothing.
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        compare(&store, &model, Level::Five, from, to);
        compare(&store, &model, Level::Hour, from, to);
        let raw_from = (now - now % 3600).saturating_sub(5 * 3600);
        let recent: Model = model.iter().filter(|((_, at), _)| *at >= raw_from).map(|(at, value)| (*at, *value)).collect();
        compare(&store, &recent, Level::Raw, raw_from, now - now % 3600 + 3600);
    }
}

#[test]
fn a_value_is_read_back_at_once_with_its_error() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    for (at, value) in [(0, 0), (10, 1), (20, 12_345_678), (30, 99_999_999_999)] {
        store.push(START + at, &[(key(1), value)]).unwrap();
        let [point] = store.read(key(1), Level::Raw, START + at, START + at + 10)[..] else {
            panic!()
        };
        assert!(
            point.coverage == 240 && point.value.abs_diff(value) * 4096 <= value,
            "{value}: {point:?}"
        );
    }
    assert_eq!(
        store.read(key(2), Level::Raw, START, START + 10),
        [Point::UNKNOWN]
    );
}

#[test]
fn the_graphs_of_day_week_month_and_year_end_now_and_have_peaks() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    let now = START + 40 * 86_400 + 4321;
    // 40 days with a value each half hour: 1000, and 5000 in one of them, 3 days ago.
    let mut at = START;
    while at <= now {
        let value = if at == START + 37 * 86_400 + 5 * 3600 {
            5000
        } else {
            1000
        };
        store.push(at, &[(key(1), value)]).unwrap();
        at += 1800;
    }
    for (period, len, peak, known) in [
        (Period::Day, 288, 1000, 48),
        (Period::Week, 336, 5000, 336),
        (Period::Month, 372, 5000, 372),
        // Of the year, 40 days and the present one have been measured; the hour of the peak has two values.
        (Period::Year, 365, 3000, 41),
    ] {
        let points = store.graph(key(1), period, now);
        assert_eq!(points.len(), len, "{period:?}");
        let end = period.start(now) + len as u64 * period.step();
        assert!(end > now && end - now <= period.step(), "{period:?}");
        let highest = points.iter().filter_map(|point| point.peak).max().unwrap();
        assert_eq!(highest, peak, "{period:?}");
        assert_eq!(
            points.iter().filter(|point| point.average.is_some()).count(),
            known,
            "{period:?}"
        );
        assert!(
            points
                .iter()
                .all(|point| point.average.is_some() == (point.coverage > 0.0)),
            "{period:?}"
        );
    }
}
