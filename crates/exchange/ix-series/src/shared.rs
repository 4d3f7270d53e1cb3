//! The store as several threads use it, and the months that are frozen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::tz::TimeZone;
use parking_lot::Mutex;

use crate::billing::{Figure, Month};
use crate::frozen;
use crate::graph::{GraphPoint, Period};
use crate::key::{Key, Subject};
use crate::point::{Level, Point};
use crate::store::{ForeignError, SeriesError, Store};

/// Seconds of a day.
const DAY: u64 = 86_400;
/// The number of peers that a graph shows.
const PEERS_MAX: usize = 15;

/// A store that several threads use: one writes, others read. A reader waits while an interval or an hour is written.
#[derive(Clone, Debug)]
pub struct Shared {
    store: Arc<Mutex<Store>>,
    folder: Arc<PathBuf>,
    /// The number of intervals that were written.
    written: Arc<AtomicU64>,
    zone: TimeZone,
}

impl Shared {
    /// Opens the store in a folder. Months begin at midnight of a time zone.
    ///
    /// # Errors
    /// [`SeriesError`].
    pub fn open(folder: &Path, zone: TimeZone) -> Result<Shared, SeriesError> {
        Ok(Shared {
            store: Arc::new(Mutex::new(Store::open(folder)?)),
            folder: Arc::new(folder.to_owned()),
            written: Arc::default(),
            zone,
        })
    }

    /// Writes the values of the interval in which `now` is, in seconds since the Unix epoch.
    ///
    /// # Errors
    /// [`SeriesError`].
    pub fn push(&self, now: u64, values: &[(Key, u64)]) -> Result<(), SeriesError> {
        let pushed = self.store.lock().push(now, values);
        self.written.fetch_add(1, Ordering::Release);
        pushed
    }

    /// Takes the series of ends that do not exist any more from memory, as [`Store::forget_ends`].
    pub fn forget_ends(&self, exists: impl Fn(u32) -> bool) {
        self.store.lock().forget_ends(exists);
    }

    /// Returns at most `max` intervals that other engines do not have yet, as [`Store::unsent`].
    pub fn unsent(&self, max: usize) -> Vec<(u64, Vec<u8>)> {
        self.store.lock().unsent(max)
    }

    /// Notes that other engines have an interval.
    pub fn sent(&self, start: u64) {
        self.store.lock().sent(start);
    }

    /// Notes that other engines get no interval that was measured before.
    pub fn send_nothing(&self) {
        self.store.lock().send_nothing();
    }

    /// Adds an interval that another engine has measured, as [`Store::absorb_interval`].
    ///
    /// # Errors
    /// [`ForeignError`].
    pub fn absorb_interval(&self, record: &[u8]) -> Result<(), ForeignError> {
        let absorbed = self.store.lock().absorb_interval(record);
        self.written.fetch_add(1, Ordering::Release);
        absorbed
    }

    /// Returns the names of the files that engines give to each other, as [`Store::shared_files`], and those of frozen months, which
    /// do not change.
    pub fn shared_files(&self) -> Vec<(String, u64)> {
        let mut files = self.store.lock().shared_files();
        files.extend(frozen::names(&self.folder).into_iter().map(|name| (name, 0)));
        files
    }

    /// Returns the content of a file; `None` if it is gone.
    ///
    /// # Errors
    /// [`SeriesError`].
    pub fn shared_file(&self, name: &str) -> Result<Option<Vec<u8>>, SeriesError> {
        let path = self.folder.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(reason) => Err(SeriesError { path, reason }),
        }
    }

    /// Merges a file of another engine into the own one of this name, as [`Store::absorb_file`]. The file of a frozen month replaces
    /// the own one.
    ///
    /// # Errors
    /// [`ForeignError`].
    pub fn absorb_file(&self, name: &str, bytes: Vec<u8>) -> Result<(), ForeignError> {
        if let Some(month) = frozen::month(name) {
            let is_right = frozen::put(&self.folder, month, &bytes)?;
            return if is_right {
                Ok(())
            } else {
                Err(ForeignError::Damaged(name.to_owned()))
            };
        }
        let absorbed = self.store.lock().absorb_file(name, bytes);
        self.written.fetch_add(1, Ordering::Release);
        absorbed
    }

    /// Returns the number of values that were refused, because there were too many series in an hour.
    pub fn refused(&self) -> u64 {
        self.store.lock().refused()
    }

    /// Returns the number of intervals that were written since the store was opened: a graph that was read before the last one
    /// is old.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns the points of a graph for each key.
    pub fn graphs(&self, keys: &[Key], period: Period, now: u64) -> Vec<Vec<GraphPoint>> {
        let store = self.store.lock();
        keys.iter().map(|key| store.graph(*key, period, now)).collect()
    }

    /// Returns the points of a series, as [`Store::read`].
    pub fn read(&self, key: Key, level: Level, from: u64, to: u64) -> Vec<Point> {
        self.store.lock().read(key, level, from, to)
    }

    /// Returns the keys of all series with a point since the start of the day in which `since` is.
    pub fn keys(&self, since: u64) -> BTreeSet<Key> {
        self.store.lock().keys(since)
    }

    /// Returns the peers of an account with the most traffic since yesterday, at most 15, the heaviest first.
    pub fn heaviest_peers(&self, account: u32, now: u64) -> Vec<u32> {
        let since = now.saturating_sub(DAY);
        let store = self.store.lock();
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        for key in store.keys(since) {
            let peer = match key.subject {
                Subject::Peers { from, to } if from == account => to,
                Subject::Peers { from, to } if to == account => from,
                _ => continue,
            };
            let points = store.read(key, Level::Hour, since, now);
            *sums.entry(peer).or_default() += points.iter().map(|point| point.value).sum::<u64>();
        }
        let mut peers: Vec<(u64, u32)> = sums.into_iter().map(|(peer, sum)| (sum, peer)).collect();
        peers.sort_unstable_by(|one, other| other.cmp(one));
        peers.into_iter().take(PEERS_MAX).map(|(_, peer)| peer).collect()
    }

    /// Returns the connections with a series since the start of a month, also those that do not exist any more.
    pub fn connections(&self, month: Month) -> BTreeSet<u32> {
        let keys = self.keys(self.start_of(month));
        let subjects = keys.iter().filter_map(|key| match key.subject {
            Subject::Connection(number) => Some(number),
            _ => None,
        });
        subjects.collect()
    }

    /// Returns the month in which a time is.
    pub fn month_of(&self, time: u64) -> Month {
        Month::of(time, &self.zone)
    }

    /// Returns the first second of a month.
    pub fn start_of(&self, month: Month) -> u64 {
        month.start(&self.zone)
    }

    /// Returns the figure of a connection for the part of a month before `now`, computed from the points.
    pub fn figure(&self, connection: u32, month: Month, now: u64) -> Figure {
        Figure::of(&self.store.lock(), connection, month, &self.zone, now)
    }

    /// Returns the figures of a frozen month by connection; `None` if it is not frozen.
    pub fn frozen(&self, month: Month) -> Option<BTreeMap<u32, Figure>> {
        frozen::read(&self.folder, month)
    }

    /// Freezes the figures of a month in a file of their own.
    ///
    /// # Errors
    /// [`SeriesError`].
    pub fn freeze(&self, month: Month, figures: &BTreeMap<u32, Figure>) -> Result<(), SeriesError> {
        frozen::write(&self.folder, month, figures)
    }
}
