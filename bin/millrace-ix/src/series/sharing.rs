//! The series of engines that share a database: each engine takes what the others have measured, and gives them what it has.
//!
//! ```text
//!   each 2 s    the leader's new intervals --> database --> the open hour of the others
//!   each 60 s   files of the database that differ --> merged into the own ones --> the result, if it has more --> database
//! ```
//! The folder of each engine has everything. A file that the database has is the first source of a merge, so that all engines come to
//! the same content, in whatever order they meet: a point is replaced only by one with more coverage ([`Shared::absorb_file`]), and a
//! file in the database only by an engine that has merged it ([`SharedSeries::put_file`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use millrace_ix_model::ConfigId;
use millrace_ix_series::{ForeignError, Shared, day_file_of, surplus};
use millrace_ix_service::Handle;
use millrace_ix_store::{SharedSeries, StoreError, sha256_hex};
use tokio::sync::Mutex;

/// The time between two looks for intervals.
const LOOK: Duration = Duration::from_secs(2);
/// The time between two comparisons of the files.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// The number of intervals that are in memory at a time. Each of 60,000 series has 240 kB.
const INTERVALS_MAX: usize = 30;
/// The time for which intervals stay in the database, before and after the newest one, in seconds. The files of their hours have
/// them then.
const INTERVALS_KEPT_SECS: u64 = 2 * 3600;

/// The part of this engine in the exchange of series, for the life of the process.
pub(crate) struct Sharing {
    database: SharedSeries,
    series: Shared,
    /// The epoch in which this engine leads; `None` if it follows.
    epoch: Option<u64>,
    /// The intervals of the database that this engine has, by start and engine.
    taken: BTreeSet<(u64, String)>,
    /// The time of the last look for intervals.
    looked: Option<Instant>,
    /// The hash of the version of each file in the database that the own one contains.
    merged: BTreeMap<String, String>,
    /// The hash of the version of each file in the database that this program cannot read. It is left as it is.
    unreadable: BTreeMap<String, String>,
    /// The hash of each own file, with the number of the write that made it.
    own: BTreeMap<String, (u64, String)>,
}

impl Sharing {
    pub(crate) fn new(database: SharedSeries, series: Shared) -> Sharing {
        Sharing {
            database,
            series,
            epoch: None,
            taken: BTreeSet::new(),
            looked: None,
            merged: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            own: BTreeMap::new(),
        }
    }

    /// Begins a term. What was measured in another one is given in files only: another engine may have led meanwhile.
    fn begin(&mut self, epoch: Option<u64>) {
        self.epoch = epoch;
        self.series.send_nothing();
    }

    /// Looks for intervals while files are compared, which may take long.
    async fn look(&mut self) -> Result<()> {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.intervals().await?;
        }
        Ok(())
    }

    /// Gives the intervals that this engine has measured, and takes those that it does not have: also its own ones, if its folder was
    /// lost. Returns true if there were any.
    async fn intervals(&mut self) -> Result<bool> {
        self.looked = Some(Instant::now());
        if let Some(epoch) = self.epoch {
            self.give_intervals(epoch).await?;
        }
        let listed: BTreeSet<(u64, String)> = self.database.intervals().await?.into_iter().collect();
        self.taken.retain(|interval| listed.contains(interval));
        let mut found = false;
        for interval in listed {
            if self.taken.contains(&interval) {
                continue;
            }
            let (start, engine) = &interval;
            if let Some(record) = self.database.interval(*start, engine).await? {
                let taken = self
                    .on_disk(move |series| series.absorb_interval(&record))
                    .await?;
                note(taken)?;
                found = true;
            }
            self.taken.insert(interval);
        }
        Ok(found)
    }

    async fn give_intervals(&mut self, epoch: u64) -> Result<()> {
        loop {
            let unsent = self.on_disk(|series| series.unsent(INTERVALS_MAX)).await?;
            let Some((newest, _)) = unsent.last() else {
                return Ok(());
            };
            let newest = *newest;
            for (start, record) in unsent {
                if !self.database.put_interval(epoch, start, &record).await? {
                    // Another engine leads, which this one learns at its next look.
                    self.series.send_nothing();
                    return Ok(());
                }
                self.series.sent(start);
                self.taken.insert((start, self.database.engine().to_owned()));
            }
            let (from, to) = (
                newest.saturating_sub(INTERVALS_KEPT_SECS),
                newest + INTERVALS_KEPT_SECS,
            );
            self.database.keep_intervals(epoch, from, to).await?;
        }
    }

    /// Takes what the files of the database have more than the own ones, and gives what these have more.
    async fn files(&mut self) -> Result<()> {
        let mut listed: BTreeMap<String, String> = self.database.files().await?.into_iter().collect();
        let own = self.on_disk(Shared::shared_files).await?;
        let writes: BTreeMap<String, u64> = own.into_iter().collect();
        let all: BTreeSet<&String> = listed.keys().chain(writes.keys()).collect();
        let surplus: BTreeSet<String> = surplus(all.into_iter().map(String::as_str)).into_iter().collect();
        for name in &surplus {
            // No engine keeps it.
            if let Some(hash) = listed.remove(name).filter(|_| self.epoch.is_some()) {
                self.database.remove_file(name, &hash).await?;
            }
        }
        // The newest ones are those that people look at.
        for (name, hash) in listed.iter().rev() {
            self.take_file(name, hash, writes.get(name).copied()).await?;
            self.look().await?;
        }
        let own = self.on_disk(Shared::shared_files).await?;
        for (name, write) in own.into_iter().rev() {
            // An hour whose day is there comes with the own file of the day.
            let is_late = day_file_of(&name).is_some_and(|day| listed.contains_key(&day));
            if !is_late && !surplus.contains(&name) {
                self.give_file(&name, write, &mut listed).await?;
                self.look().await?;
            }
        }
        self.remove_pieces(&listed).await?;
        let is_there = |name: &String| listed.contains_key(name);
        self.merged.retain(|name, _| is_there(name));
        self.unreadable.retain(|name, _| is_there(name));
        Ok(())
    }

    async fn take_file(&mut self, name: &str, hash: &str, write: Option<u64>) -> Result<()> {
        let is_known = |known: &BTreeMap<String, String>| known.get(name).is_some_and(|found| found == hash);
        if is_known(&self.merged) || is_known(&self.unreadable) {
            return Ok(());
        }
        let is_own = match write {
            Some(write) => self.own_hash(name, write).await?.is_some_and(|own| own == hash),
            None => false,
        };
        if !is_own {
            let bytes = match self.database.file(name).await {
                // It was replaced or removed while it was read.
                Ok(None) => return Ok(()),
                Ok(Some(bytes)) => bytes,
                Err(StoreError::Damaged(reason)) => {
                    // An engine that has the file gives it again.
                    tracing::warn!(reason, "the file is removed from the database");
                    return Ok(self.database.remove_file(name, hash).await?);
                }
                Err(error) => return Err(error.into()),
            };
            let of = name.to_owned();
            let taken = self.on_disk(move |series| series.absorb_file(&of, bytes)).await?;
            // The file of a frozen month has changed, although it has no number of a write.
            self.own.remove(name);
            if !note(taken)? {
                self.unreadable.insert(name.to_owned(), hash.to_owned());
                return Ok(());
            }
        }
        self.merged.insert(name.to_owned(), hash.to_owned());
        Ok(())
    }

    async fn give_file(
        &mut self,
        name: &str,
        write: u64,
        listed: &mut BTreeMap<String, String>,
    ) -> Result<()> {
        let expected = listed.get(name);
        if expected.is_some() && self.merged.get(name) != expected {
            return Ok(());
        }
        let own = self.own_hash(name, write).await?;
        if own.is_none() || own.as_ref() == expected {
            return Ok(());
        }
        let of = name.to_owned();
        let Some(bytes) = self.on_disk(move |series| series.shared_file(&of)).await?? else {
            return Ok(());
        };
        // Another engine may have been faster: its version is merged the next time.
        let put = self
            .database
            .put_file(name, expected.map(String::as_str), &bytes)
            .await?;
        if let Some(hash) = put {
            self.merged.insert(name.to_owned(), hash.clone());
            listed.insert(name.to_owned(), hash);
        }
        Ok(())
    }

    /// Removes the hours of days whose file is in the database, with everything that the hours have.
    async fn remove_pieces(&mut self, listed: &BTreeMap<String, String>) -> Result<()> {
        for (name, hash) in listed {
            let Some(day) = day_file_of(name) else { continue };
            let is_whole = listed.get(&day).is_some_and(|of_day| {
                let own = self.own.get(&day).map(|(_, own)| own);
                own == Some(of_day) && self.merged.get(&day) == Some(of_day)
            });
            if is_whole && self.merged.get(name) == Some(hash) {
                self.database.remove_file(name, hash).await?;
            }
        }
        Ok(())
    }

    /// Returns the hash of an own file; `None` if it is gone.
    async fn own_hash(&mut self, name: &str, write: u64) -> Result<Option<String>> {
        if let Some((_, hash)) = self.own.get(name).filter(|(of, _)| *of == write) {
            return Ok(Some(hash.clone()));
        }
        let of = name.to_owned();
        let read = move |series: &Shared| {
            Ok::<_, anyhow::Error>(series.shared_file(&of)?.map(|bytes| sha256_hex(&bytes)))
        };
        let Some(hash) = self.on_disk(read).await?? else {
            self.own.remove(name);
            return Ok(None);
        };
        self.own.insert(name.to_owned(), (write, hash.clone()));
        Ok(Some(hash))
    }

    /// Reads or writes files on a blocking thread.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> Result<T> {
        let series = self.series.clone();
        Ok(tokio::task::spawn_blocking(move || work(&series)).await?)
    }
}

/// Returns true if something was taken; what is damaged is left out and told.
fn note(taken: Result<(), ForeignError>) -> Result<bool> {
    match taken {
        Ok(()) => Ok(true),
        Err(error @ ForeignError::Damaged(_)) => {
            tracing::warn!(%error, "a part of the series is not taken");
            Ok(false)
        }
        Err(ForeignError::Series(error)) => Err(anyhow!(error)),
    }
}

/// Exchanges series with the other engines until the part of this engine ends. Sets `complete` when all files were compared once.
pub(crate) async fn share(
    sharing: Arc<Mutex<Sharing>>,
    epoch: Option<u64>,
    handle: Handle,
    complete: Arc<AtomicBool>,
) {
    // The task of an earlier part has ended, or ends at its next wait.
    let mut sharing = sharing.lock().await;
    sharing.begin(epoch);
    let mut compared: Option<Instant> = None;
    let mut failure = None;
    loop {
        let round = async {
            if sharing.intervals().await? && epoch.is_none() {
                let exchange = handle.snapshot().exchange.clone();
                let forget = move |series: &Shared| {
                    series.forget_ends(|end| exchange.configs.contains_key(&ConfigId(end)))
                };
                sharing.on_disk(forget).await?;
            }
            if compared.is_none_or(|at| at.elapsed() >= COMPARE_EVERY) {
                sharing.files().await?;
                compared = Some(Instant::now());
                complete.store(true, Ordering::Release);
            }
            Ok::<_, anyhow::Error>(())
        };
        let reason = round.await.err().map(|error| format!("{error:#}"));
        if reason != failure {
            match &reason {
                Some(reason) => tracing::error!(reason, "the series are not shared with the other engines"),
                None => tracing::info!("the series are shared with the other engines again"),
            }
            failure = reason;
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests;
