//! Differences between what a row asks and what the switch does.

use std::fmt;

use millrace_ovsdb::Uuid;

/// The name of a row: `Interface eth1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowName {
    pub table: &'static str,
    pub uuid: Uuid,
    /// The column `name` or `target`; of rows without one, the row that names them.
    pub name: String,
}

impl fmt::Display for RowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table, self.name)
    }
}

/// The weight of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A setting without effect; the rest of the row is in effect.
    Ignored,
    /// The row is not in effect, or a part of it that changes what happens to packets.
    Refused,
}

/// A difference between a row and the switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    pub row: RowName,
    pub severity: Severity,
    /// The column, the value and what was expected.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.row, self.reason)
    }
}

/// The faults that a translation found.
#[derive(Debug, Default)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

impl Faults {
    pub(crate) fn refuse(&mut self, row: &RowName, reason: impl Into<String>) {
        self.add(row, Severity::Refused, reason.into());
    }

    pub(crate) fn ignore(&mut self, row: &RowName, reason: impl Into<String>) {
        self.add(row, Severity::Ignored, reason.into());
    }

    pub(crate) fn add(&mut self, row: &RowName, severity: Severity, reason: String) {
        self.0.push(Fault {
            row: row.clone(),
            severity,
            reason,
        });
    }
}
