//! Graphs of a day, a week, a month and a year: some hundred points with average, peak and coverage.

use crate::key::Key;
use crate::point::{FULL, Level, Point, roll_up};
use crate::store::Store;

/// The time that a graph shows, up to now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Period {
    /// 288 points of 5 minutes.
    Day,
    /// 336 points of 30 minutes.
    Week,
    /// 372 points of 2 hours: 31 days.
    Month,
    /// 365 points of a day.
    Year,
}

impl Period {
    /// Returns the resolution that is read, the number of its points in one of the graph, and the number of points of the graph.
    const fn shape(self) -> (Level, u64, u64) {
        match self {
            Period::Day => (Level::Five, 1, 288),
            Period::Week => (Level::Five, 6, 336),
            Period::Month => (Level::Five, 24, 372),
            Period::Year => (Level::Hour, 24, 365),
        }
    }

    /// Returns the time between two points in seconds.
    pub const fn step(self) -> u64 {
        let (level, count, _) = self.shape();
        level.step() * count
    }

    /// Returns the start of the first point of a graph that ends with the point in which `now` is, in seconds since the
    /// Unix epoch.
    pub const fn start(self, now: u64) -> u64 {
        let (.., len) = self.shape();
        (now - now % self.step() + self.step()).saturating_sub(len * self.step())
    }
}

/// The value of a graph over one step: average, peak and coverage.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GraphPoint {
    /// The average; `None` if nothing of the time is known.
    pub average: Option<u64>,
    /// The largest value at the resolution that is read: 5 minutes, or an hour in a graph of a year.
    pub peak: Option<u64>,
    /// The known share of the time, 0 to 1.
    pub coverage: f64,
}

impl Store {
    /// Returns the points of a graph, the first one of which begins at [`Period::start`].
    pub fn graph(&self, key: Key, period: Period, now: u64) -> Vec<GraphPoint> {
        let (level, count, len) = period.shape();
        let start = period.start(now);
        let points = self.read(key, level, start, start + len * period.step());
        let count = usize::try_from(count).unwrap_or(1);
        points.chunks(count).map(point).collect()
    }
}

fn point(points: &[Point]) -> GraphPoint {
    let all = roll_up(points);
    let known = points.iter().filter(|point| point.is_known());
    GraphPoint {
        average: all.is_known().then_some(all.value),
        peak: known.map(|point| point.value).max(),
        coverage: f64::from(all.coverage) / f64::from(FULL),
    }
}
