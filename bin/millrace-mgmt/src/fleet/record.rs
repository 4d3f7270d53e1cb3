//! The file with what this switch has taken from etcd. One process at a time has it.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use millrace_fleet::{Record, to_bytes};

const NAME: &str = "fleet.json";

/// The file of the record, and the lock of its folder.
pub(crate) struct RecordFile {
    folder: PathBuf,
    record: Option<Record>,
    /// The lock goes when the file is closed: the sandbox has no call that would remove it before.
    _lock: File,
}

impl RecordFile {
    /// Takes the folder, and reads the record. The folder must exist.
    pub(crate) fn open(folder: &Path) -> Result<RecordFile> {
        let path = folder.join("fleet.lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        file.try_lock().map_err(|_| {
            anyhow!(
                "{}: another process follows etcd with this folder",
                path.display()
            )
        })?;
        let path = folder.join(NAME);
        let record = match std::fs::read(&path) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "{}: expected what this program wrote; without the file, the next document counts",
                    path.display()
                )
            })?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => bail!("{}: {error}", path.display()),
        };
        Ok(RecordFile {
            folder: folder.to_owned(),
            record,
            _lock: file,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn get(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// Writes a record. When this returns, it is on the medium.
    pub(crate) fn set(&mut self, record: Record) -> Result<()> {
        let path = self.folder.join(NAME);
        millrace_durable::replace(&path, &to_bytes(&record), millrace_durable::READABLE)
            .with_context(|| path.display().to_string())?;
        self.record = Some(record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_fleet::Outcome;

    fn record() -> Record {
        Record {
            cluster: "a".to_owned(),
            mod_revision: 7,
            epoch: 3,
            tag: None,
            outcome: Outcome::Applied,
            revision: Some(2),
            errors: Vec::new(),
            problems: Default::default(),
        }
    }

    #[test]
    fn a_record_outlives_its_process_and_has_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = RecordFile::open(folder.path()).unwrap();
        assert_eq!(file.get(), None);
        file.set(record()).unwrap();
        let said = RecordFile::open(folder.path()).err().unwrap().to_string();
        assert!(said.contains("another process follows etcd"), "{said}");
        drop(file);
        assert_eq!(RecordFile::open(folder.path()).unwrap().get(), Some(&record()));
    }

    #[test]
    fn a_damaged_record_is_named_and_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "{").unwrap();
        let said = RecordFile::open(folder.path()).err().unwrap().to_string();
        assert!(
            said.contains("fleet.json: expected what this program wrote"),
            "{said}"
        );
    }
}
