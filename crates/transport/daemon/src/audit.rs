//! The audit log: one line of JSON for each transfer that was admitted.

use millrace_courier::Outcome;
use parking_lot::Mutex;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The file name in the state directory.
const NAME: &str = "audit.jsonl";

/// An open audit log.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
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
        let path = state.join(NAME);
        let file = Mutex::new(open(&path)?);
        Ok(Audit { path, file })
    }

    /// Opens the file again, as after its rotation. If it cannot be opened, lines go on to the file that was renamed.
    pub(crate) fn reopen(&self) {
        match open(&self.path) {
            Ok(file) => *self.file.lock() = file,
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "the audit log was not opened again");
            }
        }
    }

    /// Appends a line. If the log cannot be written, this logs a warning; no transfer fails for it.
    pub(crate) fn append(&self, line: &AuditLine<'_>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = now.as_secs_f64();
        let written = serde_json::to_string(&Stamped { time, line })
            .map_err(io::Error::from)
            .and_then(|text| self.file.lock().write_all((text + "\n").as_bytes()));
        if let Err(error) = written {
            tracing::warn!(%error, "the audit log was not written");
        }
    }
}

/// Opens an audit log for appending.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn line(audit: &Audit, path: &str) {
        audit.append(&AuditLine {
            grant: "in",
            verb: "create",
            key: "uq3",
            path,
            outcome: &Outcome::Delivered,
            verified_bytes: 1,
            seconds: 0.5,
        });
    }

    #[test]
    fn lines_after_a_rotation_go_to_the_new_file() {
        let state = tempfile::tempdir().unwrap();
        let (path, rotated) = (state.path().join(NAME), state.path().join("audit.jsonl.1"));
        let audit = Audit::open(state.path()).unwrap();
        line(&audit, "before");
        fs::rename(&path, &rotated).unwrap();
        line(&audit, "between");
        audit.reopen();
        line(&audit, "after");
        let old = fs::read_to_string(rotated).unwrap();
        assert!(old.contains("before") && old.contains("between"), "{old}");
        let new = fs::read_to_string(path).unwrap();
        assert!(new.contains("after") && new.lines().count() == 1, "{new}");
    }
}
