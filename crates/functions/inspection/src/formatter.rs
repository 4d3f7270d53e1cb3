//! Events of functions as EVE JSON, and the files and sets that rules store, on the control side.

use std::path::Path;
use std::sync::Arc;

use millrace_ips_eve::{Layout, RuleTables, Storage, StorageLimits, Version, Writer};
use millrace_nf::{Formatter, Settings, SharedValue};
use millrace_types::Time;

use crate::codec::Codec;
use crate::rules::Rules;

/// The default interval of statistics in seconds, as in Suricata.
pub(crate) const STATISTICS_S: u64 = 8;

/// The default bound of stored files in MiB.
pub(crate) const DATA_MIB: u64 = 1024;
/// The interval at which changed sets are written, in milliseconds.
const FLUSH_MILLIS: u64 = 10_000;

/// Writes the events of a hop.
pub(crate) struct Eve {
    layout: Layout,
    writer: Writer,
    /// Interval of statistics; 0 writes none.
    statistics_s: u64,
    /// Unix time in seconds of the last statistics.
    last: u64,
    start_millis: u64,
    /// `None` without the setting `data`, and if its folder cannot be used.
    storage: Option<Storage>,
    /// Unix time in milliseconds of the last write of sets.
    flushed_millis: u64,
}

impl Eve {
    /// Calls `act` with the storage. A storage that fails is reported, and is used no more.
    fn store(&mut self, act: impl FnOnce(&mut Storage) -> Result<(), millrace_ips_eve::StorageError>) {
        if let Some(storage) = &mut self.storage
            && let Err(error) = act(storage)
        {
            tracing::warn!(%error, "files and sets of rules are not stored any more");
            self.storage = None;
        }
    }
}

/// Opens the storage of the setting `data`.
fn storage(settings: &Settings) -> Option<Storage> {
    let folder = settings.one("data").ok().flatten()?;
    let limits = StorageLimits {
        bytes: settings.value("data_mib", DATA_MIB).unwrap_or(DATA_MIB) << 20,
        ..StorageLimits::default()
    };
    match Storage::open(Path::new(folder), limits) {
        Ok(storage) => Some(storage),
        Err(error) => {
            tracing::warn!(%error, "files and sets of rules are not stored");
            None
        }
    }
}

/// Returns the formatter for the settings of a hop.
pub(crate) fn make(settings: &Settings, zero_unix_millis: u64) -> Box<dyn Formatter> {
    // The constructor of the function has checked the settings.
    let layout = Layout {
        version: match settings.value("eve_version", 7) {
            Ok(8) => Version::Eight,
            _ => Version::Seven,
        },
        netflow: settings.one("netflow").ok().flatten() == Some("yes"),
        ..Layout::default()
    };
    Box::new(Eve {
        writer: Writer::new(layout.clone(), RuleTables::default()),
        layout,
        statistics_s: settings
            .value("statistics_s", STATISTICS_S)
            .unwrap_or(STATISTICS_S),
        last: 0,
        start_millis: zero_unix_millis,
        storage: storage(settings),
        flushed_millis: zero_unix_millis,
    })
}

impl Drop for Eve {
    fn drop(&mut self) {
        self.store(Storage::flush);
    }
}

impl Formatter for Eve {
    fn share(&mut self, value: &SharedValue) {
        if let Some(rules) = value.get::<Rules>() {
            self.writer = Writer::new(self.layout.clone(), Arc::clone(&rules.tables));
            if let Some(storage) = &mut self.storage {
                storage.share(&rules.ruleset.saved_sets);
            }
        }
    }

    fn format(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let mut input = message;
        while let Some(event) = Codec::decode(&mut input) {
            self.writer.write(&event, None, out);
            self.store(|storage| storage.take(&event));
        }
    }

    fn report(&mut self, unix_millis: u64, counters: &[(&'static str, u64)], out: &mut Vec<u8>) {
        if unix_millis >= self.flushed_millis + FLUSH_MILLIS {
            self.flushed_millis = unix_millis;
            self.store(Storage::flush);
        }
        let now = unix_millis / 1000;
        if self.statistics_s == 0 || now < self.last + self.statistics_s {
            return;
        }
        self.last = now;
        let uptime = unix_millis.saturating_sub(self.start_millis) / 1000;
        self.writer
            .write_counters(Time::from_millis(unix_millis), uptime, counters, out);
    }
}
