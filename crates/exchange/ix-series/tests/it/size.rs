//! The size on the medium, and the number of files, over years.

use std::time::Instant;

use millrace_ix_series::{Key, Level, Measure, Period, Store, Subject};

use crate::model::{START, in_memory};

/// The series of an exchange with 1,000 members and 10,000 services, and the disk that they may take (docs/gates.md, A27).
const SERIES: u64 = 60_000;
const SIZE_MAX: u64 = 10_000_000_000;

/// A random number generator (xorshift64*; Vigna, 2016).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Writes `days` days of `series` series with random values, one interval each `step` seconds.
fn fill(store: &mut Store, series: u32, days: u64, step: u64) -> u64 {
    let mut random = Random(7);
    let mut at = START;
    while at < START + days * 86_400 {
        let key = |number| Key::new(Subject::End(number), Measure::In);
        let values: Vec<_> = (0..series)
            .map(|number| (key(number), random.next() >> 31))
            .collect();
        store.push(at, &values).unwrap();
        at += step;
    }
    at - step
}

#[test]
fn three_years_of_sixty_thousand_series_fit_and_the_number_of_files_is_bounded() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    // Files are kept by number: 104 days have more than are kept of 5 minutes.
    fill(&mut store, 2, 104, 86_400);
    let count = |kind: &str| {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        entries
            .filter(|entry| {
                entry
                    .as_ref()
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .starts_with(kind)
            })
            .count()
    };
    assert_eq!(["raw-", "five-", "hour-", "log-"].map(count), [6, 100, 103, 1]);

    // The size of a series in a file of each kind, with random values and every interval known.
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    let series = 50;
    fill(&mut store, series, 1, 10);
    store.push(START + 86_400, &[]).unwrap();
    let size = |kind: &str| -> u64 {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        let of_kind = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(kind));
        of_kind
            .map(|entry| entry.metadata().unwrap().len())
            .max()
            .unwrap()
            / u64::from(series)
    };
    let (raw, five, hour) = (size("raw-"), size("five-"), size("hour-"));
    let total = SERIES * (7 * raw + 101 * five + 3 * 366 * hour);
    println!(
        "a series takes {raw} bytes an hour at 10 s, {five} a day at 5 min, {hour} a day at 1 h: {SERIES} take {total}"
    );
    assert!(total < SIZE_MAX, "{total}");
}

#[test]
fn a_month_of_one_series_among_many_is_read_quickly() {
    let folder = in_memory();
    let mut store = Store::open(folder.path()).unwrap();
    let now = fill(&mut store, 300, 31, 6 * 3600);
    let key = Key::new(Subject::End(7), Measure::In);
    let started = Instant::now();
    let points = store.graph(key, Period::Month, now);
    let elapsed = started.elapsed();
    println!("a month's graph: {elapsed:.2?}");
    assert_eq!(
        points.iter().filter(|point| point.average.is_some()).count(),
        31 * 4
    );
    assert!(!store.read(key, Level::Five, START, START + 300).is_empty());
}
