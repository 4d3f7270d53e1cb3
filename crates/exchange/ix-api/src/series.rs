//! The time series of an exchange, behind graphs and bills.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{AccountId, ConnectionId};
use millrace_ix_series::{Figure, GraphPoint, Key, Level, Month, Period, Shared};
use millrace_ix_service::Handle;
use parking_lot::Mutex;

/// The figures of connections for a month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Figures {
    pub month: Month,
    /// True if the month has ended and its figures are frozen in the audit chain.
    pub frozen: bool,
    /// The figures by connection.
    pub of: BTreeMap<ConnectionId, Figure>,
}

/// The time after which a graph is read again although no interval was written, in seconds: its first point moves.
const INTERVAL_SECS: u64 = Level::Raw.step();
/// The largest number of graphs that are kept until the next reading.
const GRAPHS_MAX: usize = 1024;

/// The graphs that were read since the last interval was written, so that many readers of one page read the files once.
#[derive(Debug, Default)]
struct Graphs {
    /// The number of written intervals, and the interval of the engine's time.
    of: (u64, u64),
    found: BTreeMap<(Key, Period), Vec<GraphPoint>>,
}

/// The time series that the engine keeps.
pub(crate) struct Recorded {
    series: Shared,
    handle: Handle,
    graphs: Mutex<Graphs>,
}

impl Recorded {
    pub(crate) fn new(series: Shared, handle: Handle) -> Recorded {
        Recorded {
            series,
            handle,
            graphs: Mutex::default(),
        }
    }

    /// Reads the files on a blocking thread. A reading that fails brings nothing.
    async fn read<T: Default + Send + 'static>(&self, read: impl FnOnce(&Shared) -> T + Send + 'static) -> T {
        let series = self.series.clone();
        let found = tokio::task::spawn_blocking(move || read(&series)).await;
        found.unwrap_or_else(|error| {
            tracing::error!(%error, "the series are not read");
            T::default()
        })
    }

    /// Returns the number of values that were refused, because there were too many series in an hour.
    pub(crate) fn refused(&self) -> u64 {
        self.series.refused()
    }

    /// Returns the time of the engine, in seconds since the Unix epoch.
    fn now(&self) -> u64 {
        self.handle.now().millis() / 1000
    }
}

impl Recorded {
    /// Returns the points of a graph up to `now`, in seconds since the Unix epoch, for each key.
    pub(crate) async fn graphs(&self, keys: &[Key], period: Period, now: u64) -> Vec<Vec<GraphPoint>> {
        let of = (self.series.written(), now / INTERVAL_SECS);
        let lock = || {
            let mut graphs = self.graphs.lock();
            // A reader that has begun earlier leaves newer graphs alone.
            if graphs.of < of {
                *graphs = Graphs {
                    of,
                    found: BTreeMap::new(),
                };
            }
            graphs
        };
        let mut found: BTreeMap<Key, Vec<GraphPoint>> = BTreeMap::new();
        for key in keys {
            if let Some(points) = lock().found.get(&(*key, period)) {
                found.insert(*key, points.clone());
            }
        }
        let missing: Vec<Key> = keys
            .iter()
            .filter(|key| !found.contains_key(key))
            .copied()
            .collect();
        if !missing.is_empty() {
            let asked = missing.clone();
            let read = self.read(move |series| series.graphs(&asked, period, now)).await;
            let mut graphs = lock();
            for (key, points) in missing.into_iter().zip(read) {
                if graphs.of == of && graphs.found.len() < GRAPHS_MAX {
                    graphs.found.insert((key, period), points.clone());
                }
                found.insert(key, points);
            }
        }
        keys.iter()
            .map(|key| found.get(key).cloned().unwrap_or_default())
            .collect()
    }

    /// Returns the peers of an account with the most traffic over the last day, at most 15.
    pub(crate) async fn heaviest_peers(&self, account: AccountId) -> Vec<AccountId> {
        let now = self.now();
        let peers = self
            .read(move |series| series.heaviest_peers(account.0, now))
            .await;
        peers.into_iter().map(AccountId).collect()
    }

    /// Returns the connections that were measured since the start of a month, also those that were deleted; `None` stands
    /// for the present month.
    pub(crate) async fn measured(&self, month: Option<Month>) -> BTreeSet<ConnectionId> {
        let month = month.unwrap_or_else(|| self.series.month_of(self.now()));
        let read = self.read(move |series| match series.frozen(month) {
            Some(figures) => figures.into_keys().collect(),
            None => series.connections(month),
        });
        let found: BTreeSet<u32> = read.await;
        found.into_iter().map(ConnectionId).collect()
    }

    /// Returns the figures of connections for a month, or for the present one as far as it has gone.
    pub(crate) async fn figures(
        &self,
        connections: &BTreeSet<ConnectionId>,
        month: Option<Month>,
    ) -> Figures {
        let now = self.now();
        let month = month.unwrap_or_else(|| self.series.month_of(now));
        let connections = connections.clone();
        let read = self.read(move |series| {
            let frozen = series.frozen(month);
            let figure = |id: &ConnectionId| match &frozen {
                Some(figures) => Some((*id, *figures.get(&id.0)?)),
                None => Some((*id, series.figure(id.0, month, now))),
            };
            (frozen.is_some(), connections.iter().filter_map(figure).collect())
        });
        let (frozen, of) = read.await;
        Figures { month, frozen, of }
    }
}
