//! The audit log: one line of JSON for each transfer that was admitted.

use crate::activity::lock;
use millrace_courier::Outcome;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

/// The file name in the state directory.
const NAME: &str = "audit.jsonl";

/// An open audit log.
#[derive(Debug)]
pub(crate) struct Audit {
    file: Mutex<File>,
}

/// A line of the audit log: one transfer and its outcome.
#[derive(Serialize)]
pub(crate) struct AuditLine<'a> {
    pub(crate) grant: &'a str,
    pub(crate) verb: &'a str,
    pub(crate) key: &'a str,
    pub(crate) path: &'a str,
    #[serde(flatten)]
    pub(crate) outcome: &'a Outcome,
    pub(crate) verified_bytes: u64,
    pub(crate) seconds: f64,
}

#[derive(Serialize)]
struct Stamped<'a> {
    /// Seconds since 1970.
    time: f64,
    #[serde(flatten)]
    line: &'a AuditLine<'a>,
}

impl Audit {
    pub(crate) fn open(state: &Path) -> io::Result<Audit> {
        let mut options = OpenOptions::new();
        let file = options
            .append(true)
            .create(true)
            .mode(0o600)
            .open(state.join(NAME))?;
        let file = Mutex::new(file);
        Ok(Audit { file })
    }

    /// Appends a line. If the log cannot be written, this logs a warning; no transfer fails for it.
    pub(crate) fn append(&self, line: &AuditLine<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = now.as_secs_f64();
        let written = serde_json::to_string(&Stamped { time, line })
            .map_err(io::Error::from)
            .and_then(|text| lock(&self.file).write_all((text + "\n").as_bytes()));
        if let Err(error) = written {
            tracing::warn!(%error, "the audit log was not written");
        }
    }
}
