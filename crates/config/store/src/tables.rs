//! The tables of the store, and the history of revisions in them with its limits.

use millrace_model::Config;
use redb::{ReadableTable as _, ReadableTableMetadata as _, Table, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StorageError;
use crate::origin::Owners;
use crate::revision::{Pending, Revision, RevisionNo};

/// Single values, as JSON: `schema`, `pending`, `file`, `bytes`, `external`.
pub(crate) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
/// [`Revision`] by number, as JSON.
pub(crate) const REVISIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revisions");
/// The full [`Config`] by number, as JSON, with defaults: an upgrade that changes a default does not change committed
/// configurations.
pub(crate) const CONFIGS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("configs");

/// [`Owners`] by number of the revision, as JSON. A revision without an entry belongs to `local` as a whole.
pub(crate) const OWNERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("owners");
/// The numbers of the revisions of machines, whose retention is counted apart.
pub(crate) const MACHINE: TableDefinition<'_, u64, ()> = TableDefinition::new("machine");

/// The limits of the history. The head and the fallback of a pending confirmation are always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The maximum number of revisions of people.
    pub revisions: u64,
    /// The maximum number of revisions of machines. They never displace revisions of people, except by `bytes`, for
    /// which they are removed first.
    pub machine_revisions: u64,
    /// The maximum size of all configurations together, in bytes.
    pub bytes: u64,
}

impl Default for Retention {
    /// Returns the default: 1000 revisions of people, 100 of machines, and 64 MiB.
    fn default() -> Retention {
        Retention {
            revisions: 1000,
            machine_revisions: 100,
            bytes: 64 << 20,
        }
    }
}

pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, StorageError> {
    Ok(serde_json::to_vec(value)?)
}

pub(crate) fn from_bytes<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, StorageError> {
    serde_json::from_slice(bytes)
        .map_err(|error| StorageError::new(&format!("{what} cannot be read: {error}")))
}

/// The tables of the history in one transaction.
pub(crate) struct History<'a> {
    meta: Table<'a, &'static str, &'static [u8]>,
    revisions: Table<'a, u64, &'static [u8]>,
    configs: Table<'a, u64, &'static [u8]>,
    owners: Table<'a, u64, &'static [u8]>,
    machine: Table<'a, u64, ()>,
    /// The size of all configurations together.
    bytes: u64,
}

impl<'a> History<'a> {
    /// Opens the tables, which are created if they are absent.
    pub(crate) fn open(transaction: &'a WriteTransaction) -> Result<History<'a>, StorageError> {
        let meta = transaction.open_table(META)?;
        let bytes = match meta.get("bytes")? {
            Some(value) => from_bytes("bytes", value.value())?,
            None => 0,
        };
        Ok(History {
            meta,
            revisions: transaction.open_table(REVISIONS)?,
            configs: transaction.open_table(CONFIGS)?,
            owners: transaction.open_table(OWNERS)?,
            machine: transaction.open_table(MACHINE)?,
            bytes,
        })
    }

    /// Adds a revision.
    pub(crate) fn add(
        &mut self,
        revision: &Revision,
        config: &Config,
        owners: &Owners,
    ) -> Result<(), StorageError> {
        let number = revision.number.0;
        let content = to_bytes(config)?;
        self.bytes = self.bytes.saturating_add(content.len() as u64);
        self.revisions.insert(number, to_bytes(revision)?.as_slice())?;
        // A write that was reported as failed may have reached the medium.
        if let Some(replaced) = self.configs.insert(number, content.as_slice())? {
            self.bytes = self.bytes.saturating_sub(replaced.value().len() as u64);
        }
        match owners.is_all_local() {
            true => drop(self.owners.remove(number)?),
            false => drop(self.owners.insert(number, to_bytes(owners)?.as_slice())?),
        }
        match revision.origin.is_local() {
            true => drop(self.machine.remove(number)?),
            false => drop(self.machine.insert(number, ())?),
        }
        Ok(())
    }

    fn remove(&mut self, number: u64) -> Result<(), StorageError> {
        self.revisions.remove(number)?;
        self.owners.remove(number)?;
        self.machine.remove(number)?;
        if let Some(removed) = self.configs.remove(number)? {
            self.bytes = self.bytes.saturating_sub(removed.value().len() as u64);
        }
        Ok(())
    }

    /// Removes the revisions that `head` replaces.
    pub(crate) fn remove_replaced(&mut self, head: &Revision) -> Result<(), StorageError> {
        let Some(first) = head.replaces else {
            return Ok(());
        };
        let numbers = self.revisions.range(first.0..head.number.0)?;
        let numbers = numbers.map(|entry| entry.map(|(number, _)| number.value()));
        for number in numbers.collect::<Result<Vec<u64>, _>>()? {
            self.remove(number)?;
        }
        Ok(())
    }

    /// Removes the oldest revisions until the history is within its limits.
    pub(crate) fn shorten(&mut self, retention: &Retention, head: RevisionNo) -> Result<(), StorageError> {
        let pending: Option<Pending> = match self.meta.get("pending")? {
            Some(value) => from_bytes("pending", value.value())?,
            None => None,
        };
        let keep = pending.map_or(head, |pending| pending.fallback).0;
        while let Some(number) = self.surplus(retention, keep)? {
            self.remove(number)?;
        }
        self.meta.insert("bytes", to_bytes(&self.bytes)?.as_slice())?;
        Ok(())
    }

    /// Returns the revision before `keep` to remove next; `None` if the history is within its limits, or only later
    /// revisions are left.
    fn surplus(&self, retention: &Retention, keep: u64) -> Result<Option<u64>, StorageError> {
        let machine_len = self.machine.len()?;
        let people_len = self.revisions.len()?.saturating_sub(machine_len);
        let machine = || -> Result<Option<u64>, StorageError> {
            let first = self.machine.first()?.map(|(number, _)| number.value());
            Ok(first.filter(|number| *number < keep))
        };
        let is_over = self.bytes > retention.bytes;
        if (machine_len > retention.machine_revisions || is_over)
            && let Some(number) = machine()?
        {
            return Ok(Some(number));
        }
        if people_len <= retention.revisions && !is_over {
            return Ok(None);
        }
        for entry in self.revisions.range(..keep)? {
            let number = entry?.0.value();
            if self.machine.get(number)?.is_none() {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}
