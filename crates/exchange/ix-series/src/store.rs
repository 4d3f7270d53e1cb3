//! The store: the current hour in memory and in its log, and the files of the hours and days before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::chunk::{self, Chunk, Column, Source, merge, source};
use crate::current::{Current, INTERVALS};
use crate::interval;
use crate::key::Key;
use crate::point::{Level, Point, roll_up};

/// Seconds of an hour, the time of a log and of a file of intervals.
const HOUR: u64 = 3600;
/// Seconds of a day, the time of a file of longer points.
const DAY: u64 = 86_400;
/// The points of an hour's and a day's files.
const RAW_POINTS: usize = INTERVALS;
const PIECE_POINTS: usize = 12;
const FIVE_POINTS: usize = 288;
const HOUR_POINTS: usize = 24;
/// The number of files of each kind that are kept. They are counted and not dated, so that a wrong clock deletes nothing.
const FILES_MAX: [(Kind, usize); 3] = [(Kind::Raw, 6), (Kind::Five, 100), (Kind::Hour, 3 * 366)];

/// A failure of the file system.
#[derive(Debug, Error)]
#[error(
    "series {path}: {reason}; check that the folder exists, that it can be written, and that its disk has room"
)]
pub struct SeriesError {
    /// The file or folder.
    pub path: PathBuf,
    pub reason: io::Error,
}

/// A failure to take what another engine has measured.
#[derive(Debug, Error)]
pub enum ForeignError {
    /// The bytes are none that this program writes under this name; nothing was changed.
    #[error(
        "{0}: expected an interval or a file of columns of another engine; it is damaged, or from a newer program"
    )]
    Damaged(String),
    #[error(transparent)]
    Series(#[from] SeriesError),
}

fn failure(path: &Path) -> impl FnOnce(io::Error) -> SeriesError + '_ {
    move |reason| SeriesError {
        path: path.to_owned(),
        reason,
    }
}

/// The kind of a file, in the order of its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// The intervals of an hour.
    Raw,
    /// The points of 5 minutes of an hour whose day has not ended.
    Piece,
    /// The points of 5 minutes of a day.
    Five,
    /// The hours of a day.
    Hour,
}

impl Kind {
    const ALL: [(Kind, &'static str, &'static str); 4] = [
        (Kind::Raw, "raw", "chunk"),
        (Kind::Piece, "five", "piece"),
        (Kind::Five, "five", "chunk"),
        (Kind::Hour, "hour", "chunk"),
    ];

    fn file(self, start: u64) -> String {
        let (_, name, extension) = Kind::ALL[self as usize];
        format!("{name}-{start:012}.{extension}")
    }

    /// Returns the time of a file in seconds.
    const fn duration(self) -> u64 {
        self.points() as u64 * self.level().step()
    }

    const fn points(self) -> usize {
        match self {
            Kind::Raw => RAW_POINTS,
            Kind::Piece => PIECE_POINTS,
            Kind::Five => FIVE_POINTS,
            Kind::Hour => HOUR_POINTS,
        }
    }

    const fn level(self) -> Level {
        match self {
            Kind::Raw => Level::Raw,
            Kind::Piece | Kind::Five => Level::Five,
            Kind::Hour => Level::Hour,
        }
    }
}

/// Returns kind and start of the file with a name.
fn parse(name: &str) -> Option<(Kind, u64)> {
    let (name, extension) = name.split_once('.')?;
    let (name, start) = name.split_once('-')?;
    let (kind, ..) = Kind::ALL
        .into_iter()
        .find(|(_, other, end)| *other == name && *end == extension)?;
    Some((kind, start.parse().ok()?))
}

/// Returns the names of the files, of those that are named, that are older than those which are kept. They are counted and not dated.
pub fn surplus<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut files: Vec<(Kind, u64)> = names.filter_map(parse).collect();
    files.sort_unstable();
    let of = |(kind, max): (Kind, usize)| {
        let starts = files.iter().filter(move |(found, _)| *found == kind);
        let count = starts.clone().count().saturating_sub(max);
        starts.take(count).map(move |(_, start)| kind.file(*start))
    };
    FILES_MAX.into_iter().flat_map(of).collect()
}

/// Returns the name of the file of the day that takes the place of a file of an hour.
pub fn day_file_of(name: &str) -> Option<String> {
    let (kind, start) = parse(name)?;
    (kind == Kind::Piece).then(|| Kind::Five.file(start - start % DAY))
}

/// A file with the number of its newest write.
#[derive(Clone, Copy, Debug)]
struct Written {
    /// The size in bytes.
    size: u64,
    /// The number of the write that made the content; 0 if it is from before the start.
    write: u64,
}

/// The time by which an interval of another engine may be older than the open hour and still be late, in seconds. One that is older
/// is from a clock that was set back.
const LATE_MAX: u64 = 2 * HOUR;

/// Time series in a folder.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    current: Option<Current>,
    /// The files by kind and start.
    files: BTreeMap<(Kind, u64), Written>,
    /// The number of files that were written since the store was opened.
    writes: u64,
    /// The number of values that were refused, because there are too many series.
    refused: u64,
}

impl Store {
    /// Opens the store in a folder, which is created if it does not exist. Logs that an ended process has left are read.
    ///
    /// # Errors
    /// [`SeriesError`] if the folder cannot be read or created. Damaged files are no error: what they held is unknown.
    pub fn open(folder: &Path) -> Result<Store, SeriesError> {
        std::fs::create_dir_all(folder).map_err(failure(folder))?;
        let mut store = Store {
            folder: folder.to_owned(),
            current: None,
            files: BTreeMap::new(),
            writes: 0,
            refused: 0,
        };
        let mut logs = BTreeSet::new();
        for entry in std::fs::read_dir(folder).map_err(failure(folder))? {
            let entry = entry.map_err(failure(folder))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                continue;
            };
            if let Some(found) = parse(name) {
                let size = entry.metadata().map_or(0, |metadata| metadata.len());
                store.files.insert(found, Written { size, write: 0 });
            } else if let Some(start) = name
                .strip_prefix("log-")
                .and_then(|rest| rest.strip_suffix(".rows"))
            {
                logs.extend(start.parse::<u64>());
            } else if name.ends_with(".new") {
                // An interrupted write: the file that it would have replaced is complete.
                let _gone = std::fs::remove_file(entry.path());
            }
        }
        for start in logs {
            store.change_hour(start)?;
        }
        Ok(store)
    }

    /// Writes the values of the interval in which `now` is, in seconds since the Unix epoch. A value that the interval
    /// already has is replaced. Of two values for one key, the first one counts.
    ///
    /// # Errors
    /// [`SeriesError`] if a file cannot be written. The values are then in memory, and lost if the process ends.
    pub fn push(&mut self, now: u64, values: &[(Key, u64)]) -> Result<(), SeriesError> {
        let start = now - now % Level::Raw.step();
        let hour = start - start % HOUR;
        if self.current.as_ref().is_none_or(|current| current.start != hour) {
            self.change_hour(hour)?;
        }
        if let Some(current) = &mut self.current {
            let pushed = current.push(start, values);
            self.refused += pushed.map_err(failure(&self.folder.join(log_name(hour))))?;
        }
        Ok(())
    }

    /// Takes the series of ends that do not exist any more from memory. Their points stay in the files, from which they are read.
    pub fn forget_ends(&mut self, exists: impl Fn(u32) -> bool) {
        if let Some(current) = &mut self.current {
            current.forget_ends(exists);
        }
    }

    /// Returns the number of values that were refused, because there were [`SERIES_MAX`] series in an hour.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the size of all files but the current log, in bytes.
    pub fn size(&self) -> u64 {
        self.files.values().map(|file| file.size).sum()
    }

    /// Ends the current hour, and begins or continues another one.
    fn change_hour(&mut self, hour: u64) -> Result<(), SeriesError> {
        if let Some(current) = self.current.take() {
            self.seal(current)?;
        }
        let path = self.folder.join(log_name(hour));
        self.current = Some(Current::open(&path, hour).map_err(failure(&path))?);
        self.merge_days(hour)?;
        self.forget()
    }

    /// Writes the files of an hour, and removes its log.
    fn seal(&mut self, mut current: Current) -> Result<(), SeriesError> {
        let start = current.start;
        let log = self.folder.join(log_name(start));
        current.recall().map_err(failure(&log))?;
        let pieces = current
            .columns()
            .map(|(key, raw)| (key, rolled_up(&raw, PIECE_POINTS)));
        self.write(Kind::Piece, start, source(pieces))?;
        self.write(Kind::Raw, start, current.columns())?;
        current.remove().map_err(failure(&log))
    }

    /// Writes columns, with what an earlier file of this name has.
    fn write(&mut self, kind: Kind, start: u64, columns: Source<'_>) -> Result<(), SeriesError> {
        let path = self.folder.join(kind.file(start));
        let earlier = self
            .files
            .contains_key(&(kind, start))
            .then(|| Chunk::open(&path))
            .flatten()
            .filter(|chunk| chunk.header.points == kind.points());
        let mut sources = vec![columns];
        sources.extend(earlier.map(|chunk| source(chunk.columns())));
        let points = u16::try_from(kind.points()).unwrap_or(u16::MAX);
        let size =
            chunk::write(&path, kind.level(), start, points, merge(sources)).map_err(failure(&path))?;
        self.writes += 1;
        let write = self.writes;
        self.files.insert((kind, start), Written { size, write });
        Ok(())
    }

    /// Returns at most `max` intervals of the open hour that this engine has measured and that are not noted as sent, oldest first:
    /// each with its start, as [`Store::absorb_interval`] reads it.
    pub fn unsent(&self, max: usize) -> Vec<(u64, Vec<u8>)> {
        let intervals = self.current.iter().flat_map(|current| current.unsent(max));
        intervals
            .map(|interval| (interval.start, interval::encode(&interval)))
            .collect()
    }

    /// Notes that other engines have an interval.
    pub fn sent(&mut self, start: u64) {
        if let Some(current) = &mut self.current {
            current.sent(start);
        }
    }

    /// Notes that other engines get no interval that was measured before: another engine leads since.
    pub fn send_nothing(&mut self) {
        if let Some(current) = &mut self.current {
            current.send_nothing();
        }
    }

    /// Adds an interval that another engine has measured. Its values replace own ones. An interval of an hour that has just ended is
    /// left out: the files of the hour bring it.
    ///
    /// # Errors
    /// [`ForeignError`].
    pub fn absorb_interval(&mut self, record: &[u8]) -> Result<(), ForeignError> {
        let interval = interval::decode(record).filter(|interval| interval.start % Level::Raw.step() == 0);
        let interval = interval.ok_or_else(|| ForeignError::Damaged("an interval".to_owned()))?;
        let hour = interval.start - interval.start % HOUR;
        let open = self.current.as_ref().map(|current| current.start);
        if open.is_some_and(|open| hour < open && open - hour <= LATE_MAX) {
            return Ok(());
        }
        if open != Some(hour) {
            self.change_hour(hour)?;
        }
        if let Some(current) = &mut self.current {
            let absorbed = current.absorb(&interval);
            self.refused += absorbed.map_err(failure(&self.folder.join(log_name(hour))))?;
        }
        Ok(())
    }

    /// Returns the names of the files that engines give to each other, the oldest first, each with a number that grows when its content
    /// changes. Files of intervals are not among them, because each engine makes them.
    pub fn shared_files(&self) -> Vec<(String, u64)> {
        let files = self.files.iter().filter(|((kind, _), _)| *kind != Kind::Raw);
        files
            .map(|((kind, start), file)| (kind.file(*start), file.write))
            .collect()
    }

    /// Merges a file of another engine into the own one of this name. Of two points, the one with more coverage counts, and of equals
    /// that of the other engine.
    ///
    /// # Errors
    /// [`ForeignError`].
    pub fn absorb_file(&mut self, name: &str, bytes: Vec<u8>) -> Result<(), ForeignError> {
        let damaged = || ForeignError::Damaged(name.to_owned());
        let (kind, start) = parse(name).ok_or_else(damaged)?;
        let (header, columns) = chunk::parse(bytes).ok_or_else(damaged)?;
        let is_right = kind != Kind::Raw
            && kind.file(start) == name
            && start.is_multiple_of(kind.duration())
            && (header.start, header.points, header.level) == (start, kind.points(), kind.level() as u8);
        if !is_right {
            return Err(damaged());
        }
        self.write(kind, start, source(columns))?;
        if let Some(hour) = self.current.as_ref().map(|current| current.start) {
            self.merge_days(hour)?;
        }
        Ok(self.forget()?)
    }

    /// Writes the files of days that have ended, from the files of their hours. A day's file that exists is completed, so
    /// that this can be interrupted at any point.
    fn merge_days(&mut self, hour: u64) -> Result<(), SeriesError> {
        let today = hour - hour % DAY;
        let pieces = self.files.range((Kind::Piece, 0)..=(Kind::Piece, u64::MAX));
        let days: BTreeSet<u64> = pieces
            .map(|((_, start), _)| start - start % DAY)
            .filter(|day| *day != today)
            .collect();
        for day in days {
            let hours: Vec<u64> = self.pieces_of(day).collect();
            let of_hour = |start: &u64| {
                let chunk = Chunk::open(&self.folder.join(Kind::Piece.file(*start)))?;
                let first = usize::try_from((start - day) / Level::Five.step()).ok()?;
                let in_day = move |(key, piece): (Key, Column)| {
                    let mut column = vec![Point::UNKNOWN; FIVE_POINTS];
                    for (slot, point) in column.iter_mut().skip(first).zip(piece) {
                        *slot = point;
                    }
                    (key, column)
                };
                (chunk.header.points == PIECE_POINTS).then(|| source(chunk.columns().map(in_day)))
            };
            let sources: Vec<Source<'_>> = hours.iter().filter_map(of_hour).collect();
            self.write(Kind::Five, day, source(merge(sources)))?;
            // The hours follow from the file, which may have had more than the pieces that are left.
            let five = Chunk::open(&self.folder.join(Kind::Five.file(day)));
            let hourly = five
                .iter()
                .flat_map(Chunk::columns)
                .map(|(key, five)| (key, rolled_up(&five, HOUR_POINTS)));
            self.write(Kind::Hour, day, source(hourly))?;
            for start in hours {
                self.remove(Kind::Piece, start)?;
            }
        }
        Ok(())
    }

    fn pieces_of(&self, day: u64) -> impl Iterator<Item = u64> + '_ {
        let pieces = self.files.range((Kind::Piece, day)..(Kind::Piece, day + DAY));
        pieces.map(|((_, start), _)| *start)
    }

    fn remove(&mut self, kind: Kind, start: u64) -> Result<(), SeriesError> {
        let path = self.folder.join(kind.file(start));
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failure(&path)(error)),
            _ => {
                self.files.remove(&(kind, start));
                Ok(())
            }
        }
    }

    /// Removes the oldest files beyond the number that is kept.
    fn forget(&mut self) -> Result<(), SeriesError> {
        for (kind, max) in FILES_MAX {
            let files = self.files.range((kind, 0)..=(kind, u64::MAX));
            let starts: Vec<u64> = files.map(|((_, start), _)| *start).collect();
            for start in starts.iter().take(starts.len().saturating_sub(max)) {
                self.remove(kind, *start)?;
            }
        }
        Ok(())
    }

    /// Returns the points of a series at a resolution: those whose start is in `from..to`, which are rounded to points.
    /// An unknown point has a coverage of 0.
    pub fn read(&self, key: Key, level: Level, from: u64, to: u64) -> Vec<Point> {
        let step = level.step();
        let from = from - from % step;
        let len = usize::try_from(to.saturating_sub(from).div_ceil(step)).unwrap_or(0);
        let mut points = vec![Point::UNKNOWN; len];
        let mut fill = |start: u64, found: &[Point]| {
            for (at, point) in (0_u64..).zip(found) {
                let slot = (start + at * step).checked_sub(from).map(|offset| offset / step);
                let slot = slot.and_then(|slot| points.get_mut(usize::try_from(slot).ok()?));
                if let Some(slot) = slot.filter(|slot| slot.coverage < point.coverage) {
                    *slot = *point;
                }
            }
        };
        let kinds: &[Kind] = match level {
            Level::Raw => &[Kind::Raw],
            Level::Five => &[Kind::Five, Kind::Piece],
            Level::Hour => &[Kind::Hour],
        };
        for kind in kinds {
            let first = from.saturating_sub(kind.duration() - 1);
            for (_, start) in self
                .files
                .range((*kind, first)..(*kind, to.max(first)))
                .map(|(file, _)| file)
            {
                if let Some(column) = self.column(*kind, *start, key) {
                    fill(*start, &column);
                }
            }
        }
        if level == Level::Hour {
            // The hours of days that have not ended are in the pieces.
            let first = from.saturating_sub(HOUR - 1);
            for (_, start) in self
                .files
                .range((Kind::Piece, first)..(Kind::Piece, to.max(first)))
                .map(|(file, _)| file)
            {
                if let Some(column) = self.column(Kind::Piece, *start, key) {
                    fill(*start, &[roll_up(&column)]);
                }
            }
        }
        if let Some(current) = self
            .current
            .as_ref()
            .filter(|current| current.start < to && current.start + HOUR > from)
        {
            let raw = current.points(key);
            let found: Column = match level {
                Level::Raw => raw,
                Level::Five => rolled_up(&raw, PIECE_POINTS),
                Level::Hour => vec![roll_up(&raw)],
            };
            fill(current.start, &found);
        }
        points
    }

    fn column(&self, kind: Kind, start: u64, key: Key) -> Option<Column> {
        let chunk = Chunk::open(&self.folder.join(kind.file(start)))?;
        if chunk.header.points != kind.points() || chunk.header.start != start {
            return None;
        }
        chunk.column(key)
    }

    /// Returns the keys of all series with a point since the start of the day in which `since` is, but for ends that went in the
    /// present hour.
    pub fn keys(&self, since: u64) -> BTreeSet<Key> {
        let day = since - since % DAY;
        let mut keys: BTreeSet<Key> = self.current.iter().flat_map(Current::keys).collect();
        for kind in [Kind::Piece, Kind::Five] {
            for (_, start) in self
                .files
                .range((kind, day)..=(kind, u64::MAX))
                .map(|(file, _)| file)
            {
                if let Some(chunk) = Chunk::open(&self.folder.join(kind.file(*start))) {
                    keys.extend(chunk.keys());
                }
            }
        }
        keys
    }
}

/// Returns the points of a column as `len` longer ones.
fn rolled_up(column: &[Point], len: usize) -> Column {
    let count = (column.len() / len).max(1);
    column.chunks(count).map(roll_up).collect()
}

fn log_name(hour: u64) -> String {
    format!("log-{hour:012}.rows")
}
