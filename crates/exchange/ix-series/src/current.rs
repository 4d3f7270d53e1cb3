//! The hour that has not ended: its log, and the columns of its series in memory.
//!
//! Ends of services come and go with orders, so that those that do not exist any more leave memory. Their points are in the
//! log, from which they are read when somebody asks for them, and when the hour ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::chunk::{Column, Source, source};
use crate::key::{Key, Subject};
use crate::log::{self, Interval, Log, Numbers};
use crate::point::{FULL, GAP, Level, Point};

/// The intervals of an hour.
pub(crate) const INTERVALS: usize = 360;
/// The largest number of series. An exchange with 1,000 members and 10,000 services has 60,000.
pub const SERIES_MAX: usize = 100_000;
/// The largest number of series with which one of an end begins: the others keep their room when ends come and go.
const WITH_ENDS_MAX: usize = SERIES_MAX / 10 * 9;

/// The codes of the intervals of a series.
type Codes = Box<[u16; INTERVALS]>;
type Columns = BTreeMap<Key, Codes>;

#[derive(Debug)]
pub(crate) struct Current {
    /// The first second of the hour, since the Unix epoch.
    pub(crate) start: u64,
    path: PathBuf,
    log: File,
    numbers: Numbers,
    columns: Columns,
    /// True if series have left memory.
    has_forgotten: bool,
    /// The starts of the intervals that this engine has measured, and that other engines do not have yet.
    unsent: BTreeSet<u64>,
}

impl Current {
    /// Continues the log of an hour, or begins it.
    pub(crate) fn open(path: &Path, start: u64) -> io::Result<Current> {
        let log = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = std::fs::read(path)?;
        let mut columns = Columns::new();
        let Log { numbers, size } = log::read(&bytes, |interval| put(&mut columns, start, &interval));
        if size < bytes.len() {
            log.set_len(size as u64)?;
        }
        Ok(Current {
            start,
            path: path.to_owned(),
            log,
            numbers,
            columns,
            has_forgotten: false,
            unsent: BTreeSet::new(),
        })
    }

    /// Writes the values of an interval, the first one of each key, and returns the number of those that are refused, because
    /// there are too many series.
    pub(crate) fn push(&mut self, start: u64, values: &[(Key, u64)]) -> io::Result<u64> {
        self.unsent.insert(start);
        self.take(
            start,
            values.iter().map(|(key, value)| (*key, key.encode(*value))),
        )
    }

    /// Writes the values of an interval that another engine has measured, in the place of own ones. Returns the number of those that
    /// are refused.
    pub(crate) fn absorb(&mut self, interval: &Interval) -> io::Result<u64> {
        self.unsent.remove(&interval.start);
        let at = usize::try_from((interval.start - self.start) / Level::Raw.step()).unwrap_or(usize::MAX);
        let is_there = |(key, code): &(Key, u16)| {
            let codes = self.columns.get(key);
            codes.and_then(|codes| codes.get(at)) == Some(code)
        };
        if interval.values.iter().all(is_there) {
            return Ok(0);
        }
        let known = interval.values.iter().filter(|(_, code)| *code != GAP);
        self.take(interval.start, known.copied())
    }

    /// Returns at most `max` intervals that other engines do not have yet, oldest first.
    pub(crate) fn unsent(&self, max: usize) -> Vec<Interval> {
        let interval = |start: &u64| {
            let at = usize::try_from((start - self.start) / Level::Raw.step()).unwrap_or(usize::MAX);
            let columns = self.columns.iter();
            let values = columns.filter_map(|(key, codes)| Some((*key, *codes.get(at)?)));
            Interval {
                start: *start,
                values: values.collect(),
            }
        };
        self.unsent.iter().take(max).map(interval).collect()
    }

    /// Notes that other engines have an interval.
    pub(crate) fn sent(&mut self, start: u64) {
        self.unsent.remove(&start);
    }

    /// Notes that other engines get no interval that was measured before.
    pub(crate) fn send_nothing(&mut self) {
        self.unsent.clear();
    }

    fn take(&mut self, start: u64, values: impl Iterator<Item = (Key, u16)>) -> io::Result<u64> {
        let mut found: BTreeMap<Key, u16> = BTreeMap::new();
        let (mut len, mut refused) = (self.numbers.len(), 0);
        for (key, code) in values {
            if found.contains_key(&key) {
                continue;
            }
            if !self.columns.contains_key(&key) {
                let max = match key.subject {
                    Subject::End(_) => WITH_ENDS_MAX,
                    _ => SERIES_MAX,
                };
                if len >= max {
                    refused += 1;
                    continue;
                }
                len += 1;
            }
            found.insert(key, code);
        }
        let values = found.into_iter().collect();
        let interval = Interval { start, values };
        put(&mut self.columns, self.start, &interval);
        let record = log::record(&interval, &mut self.numbers);
        self.log.write_all(&record)?;
        self.log.sync_data()?;
        Ok(refused)
    }

    /// Takes the ends that do not exist any more from memory.
    pub(crate) fn forget_ends(&mut self, exists: impl Fn(u32) -> bool) {
        let is_kept = |key: Key| !matches!(key.subject, Subject::End(number) if !exists(number));
        let before = self.columns.len();
        self.columns.retain(|key, _| is_kept(*key));
        self.has_forgotten |= self.columns.len() < before;
        self.numbers.retain(is_kept);
    }

    /// Returns the points of a series.
    pub(crate) fn points(&self, key: Key) -> Column {
        if let Some(codes) = self.columns.get(&key) {
            // An end that came again has its older points in the log only; identifiers do not return, so that none does.
            return decoded(key, codes);
        }
        // A log that cannot be read leaves the points unknown.
        let found = self.forgotten(|other| other == key).unwrap_or_default();
        found
            .get(&key)
            .map_or_else(|| vec![Point::UNKNOWN; INTERVALS], |codes| decoded(key, codes))
    }

    /// Returns the series in memory.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.columns.keys().copied()
    }

    /// Returns the columns of the series that have left memory, as far as they are wanted.
    fn forgotten(&self, is_wanted: impl Fn(Key) -> bool) -> io::Result<Columns> {
        let mut columns = Columns::new();
        if self.has_forgotten {
            log::read(&std::fs::read(&self.path)?, |mut interval| {
                interval
                    .values
                    .retain(|(key, _)| is_wanted(*key) && !self.columns.contains_key(key));
                put(&mut columns, self.start, &interval);
            });
        }
        Ok(columns)
    }

    /// Takes the series that have left memory back into it: the hour has ended.
    pub(crate) fn recall(&mut self) -> io::Result<()> {
        let forgotten = self.forgotten(|_| true)?;
        self.columns.extend(forgotten);
        self.has_forgotten = false;
        Ok(())
    }

    /// Returns the columns of the series in memory.
    pub(crate) fn columns(&self) -> Source<'_> {
        let columns = self.columns.iter();
        source(columns.map(|(key, codes)| (*key, decoded(*key, codes))))
    }

    /// Removes the log.
    pub(crate) fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

/// Puts the values of an interval into the columns of the hour that begins at `hour`.
fn put(columns: &mut Columns, hour: u64, interval: &Interval) {
    let Some(at) = interval.start.checked_sub(hour) else {
        return;
    };
    let at = usize::try_from(at / Level::Raw.step()).unwrap_or(usize::MAX);
    for (key, code) in &interval.values {
        let column = columns.entry(*key).or_insert_with(|| Box::new([GAP; INTERVALS]));
        if let Some(slot) = column.get_mut(at) {
            *slot = *code;
        }
    }
}

fn decoded(key: Key, codes: &[u16; INTERVALS]) -> Column {
    let point = |code: &u16| {
        key.decode(*code).map_or(Point::UNKNOWN, |value| Point {
            value,
            coverage: FULL,
        })
    };
    codes.iter().map(point).collect()
}
