//! Storage of what rules keep on disk: files (`filestore`) and the values of sets (`dataset` with `save` or `state`).
//!
//! ```text
//!  FOLDER/filestore/ab/ab12…        a file, named by its SHA-256; the first two digits name its folder
//!  FOLDER/NAME                      the values of a set, one on each line
//! ```
//!
//! A file or a set appears under its name only when it is complete: it is written beside its place, and renamed. Numbers
//! and sizes are bounded. The bytes come from hosts that nobody trusts, so a file is stored only if its digest is the one that
//! was reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use millrace_ips_engine::Event;
use millrace_ips_engine::detect::dataset::{SavedSet, SetChange};
use millrace_ips_engine::event::FilePart;
use millrace_ips_rules::options::dataset::SetType;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::text::address;

/// The folder of files beneath that of the storage.
const FILES: &str = "filestore";
/// Largest number of files whose parts arrive at the same time, and of their bytes.
const PENDING: usize = 64;
const PENDING_SIZE: u64 = 64 << 20;
/// Largest number of values of a set.
const VALUES: usize = 1 << 20;

/// Bounds of the stored files; those of earlier runs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageLimits {
    /// Largest number of files.
    pub files: u64,
    /// Largest size of all files in bytes.
    pub bytes: u64,
}

impl Default for StorageLimits {
    fn default() -> StorageLimits {
        StorageLimits {
            files: 100_000,
            bytes: 1 << 30,
        }
    }
}

/// A file or set could not be written.
#[derive(Debug, Error)]
#[error("cannot write {}: {source}; expected a folder that this process may write to", path.display())]
pub struct StorageError {
    pub path: PathBuf,
    /// The kernel's error.
    pub source: io::Error,
}

/// Numbers of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageCounters {
    /// Files that were written; one that was there before does not count.
    pub stored: u64,
    /// Files that were not written, because a bound was reached, parts were lost, or the digest was wrong.
    pub refused: u64,
}

/// A file of which parts are missing.
#[derive(Debug)]
struct Pending {
    sha256: [u8; 32],
    size: u64,
    bytes: Vec<u8>,
}

/// The values of a set.
#[derive(Debug)]
struct Set {
    kind: SetType,
    file: String,
    values: BTreeSet<Vec<u8>>,
    is_changed: bool,
}

impl Set {
    /// Writes the values to the file of the set.
    fn write(&self, folder: &Path) -> Result<(), StorageError> {
        let mut text = String::new();
        for value in &self.values {
            text += &line(self.kind, value);
            text.push('\n');
        }
        let path = folder.join(&self.file);
        let folder = path.parent().unwrap_or(folder);
        fs::create_dir_all(folder).map_err(|source| StorageError {
            path: folder.to_owned(),
            source,
        })?;
        write(&path, text.as_bytes())
    }
}

/// A folder with the files and sets that rules store.
#[derive(Debug)]
pub struct Storage {
    folder: PathBuf,
    limits: StorageLimits,
    /// The files and bytes that are there.
    used: StorageLimits,
    pending: VecDeque<Pending>,
    sets: BTreeMap<String, Set>,
    counters: StorageCounters,
}

impl Storage {
    /// Opens a folder, which is created if it is not there.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn open(folder: &Path, limits: StorageLimits) -> Result<Storage, StorageError> {
        let files = folder.join(FILES);
        let failed = |source| StorageError {
            path: files.clone(),
            source,
        };
        fs::create_dir_all(&files).map_err(failed)?;
        let mut used = StorageLimits { files: 0, bytes: 0 };
        for part in fs::read_dir(&files).map_err(failed)? {
            let part = part.map_err(failed)?.path();
            if !part.is_dir() {
                continue;
            }
            for file in fs::read_dir(&part).map_err(failed)? {
                let data = file.and_then(|file| file.metadata()).map_err(failed)?;
                used.files += 1;
                used.bytes += data.len();
            }
        }
        Ok(Storage {
            folder: folder.to_owned(),
            limits,
            used,
            pending: VecDeque::new(),
            sets: BTreeMap::new(),
            counters: StorageCounters::default(),
        })
    }

    /// Returns the numbers of files.
    pub fn counters(&self) -> StorageCounters {
        self.counters
    }

    /// Keeps the sets of a rule set from now on. A set that was there before keeps its values.
    pub fn share(&mut self, sets: &[SavedSet]) {
        for set in sets {
            let known = self.sets.entry(set.name.to_string()).or_insert_with(|| Set {
                kind: set.kind,
                file: set.file.clone(),
                values: BTreeSet::new(),
                is_changed: true,
            });
            known.file.clone_from(&set.file);
            let first = set.values.keys().cloned();
            known.values.extend(first.take(VALUES));
        }
    }

    /// Stores what an event brings; events of other kinds bring nothing.
    ///
    /// # Errors
    /// [`StorageError`].
    pub fn take(&mut self, event: &Event) -> Result<(), StorageError> {
        match event {
            Event::File(part) => self.part(part),
            Event::Set(change) => {
                self.change(change);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, change: &SetChange) {
        let Some(set) = self.sets.get_mut(&*change.set) else {
            return;
        };
        set.is_changed |= match change.is_added {
            true => set.values.len() < VALUES && set.values.insert(change.value.clone()),
            false => set.values.remove(&change.value),
        };
    }

    fn part(&mut self, part: &FilePart) -> Result<(), StorageError> {
        let at = self.pending.iter().position(|file| file.sha256 == part.sha256);
        let file = match (at.and_then(|at| self.pending.remove(at)), part.offset) {
            // The first part of a file that comes a second time begins it again.
            (_, 0) => Some(Pending {
                sha256: part.sha256,
                size: part.size,
                bytes: Vec::new(),
            }),
            (known, offset) => {
                known.filter(|file| file.bytes.len() as u64 == offset && file.size == part.size)
            }
        };
        let Some(mut file) = file else {
            // The first part of the rest says that the file is lost; the others belong to none.
            self.counters.refused += u64::from(at.is_some());
            return Ok(());
        };
        file.bytes.extend_from_slice(&part.bytes);
        match file.bytes.len() as u64 >= file.size {
            true => self.store(&file),
            false => {
                self.pending.push_back(file);
                let sum =
                    |files: &VecDeque<Pending>| files.iter().map(|file| file.bytes.len() as u64).sum::<u64>();
                while self.pending.len() > PENDING || sum(&self.pending) > PENDING_SIZE {
                    self.pending.pop_front();
                    self.counters.refused += 1;
                }
                Ok(())
            }
        }
    }

    /// Writes a complete file, unless it is there.
    fn store(&mut self, file: &Pending) -> Result<(), StorageError> {
        let digest: [u8; 32] = Sha256::digest(&file.bytes).into();
        let name = HEXLOWER.encode(&digest);
        let folder = self.folder.join(FILES).join(&name[..2]);
        let path = folder.join(&name);
        if path.exists() {
            return Ok(());
        }
        let size = file.bytes.len() as u64;
        let is_within = self.used.files < self.limits.files && self.used.bytes + size <= self.limits.bytes;
        if !is_within || digest != file.sha256 || size != file.size {
            self.counters.refused += 1;
            return Ok(());
        }
        let failed = |source| StorageError {
            path: folder.clone(),
            source,
        };
        fs::create_dir_all(&folder).map_err(failed)?;
        write(&path, &file.bytes)?;
        self.used.files += 1;
        self.used.bytes += size;
        self.counters.stored += 1;
        Ok(())
    }

    /// Writes the sets that have changed since the last call. A set that cannot be written does not keep the others from it, and
    /// is written with the next call.
    ///
    /// # Errors
    /// The [`StorageError`] of the first set that cannot be written.
    pub fn flush(&mut self) -> Result<(), StorageError> {
        let mut outcome = Ok(());
        for set in self.sets.values_mut().filter(|set| set.is_changed) {
            let written = set.write(&self.folder);
            set.is_changed = written.is_err();
            outcome = outcome.and(written);
        }
        outcome
    }
}

/// Writes a file beside its place, and renames it.
fn write(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let failed = |source| StorageError {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Returns a value as a line of the file of its set, without the end of the line.
fn line(kind: SetType, value: &[u8]) -> String {
    match kind {
        SetType::String => STANDARD.encode(value),
        SetType::Md5 | SetType::Sha256 => HEXLOWER.encode(value),
        SetType::Ipv4 | SetType::Ip => match *value {
            [a, b, c, d] => address([a, b, c, d].into()),
            _ => <[u8; 16]>::try_from(value).map_or_else(|_| String::new(), |octets| address(octets.into())),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn parts(content: &[u8], size: usize) -> Vec<Event> {
        let sha256 = Sha256::digest(content).into();
        let chunks = content.chunks(size).enumerate();
        chunks
            .map(|(number, bytes)| {
                Event::File(FilePart {
                    sha256,
                    size: content.len() as u64,
                    offset: (number * size) as u64,
                    bytes: bytes.to_vec(),
                })
            })
            .collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names = Vec::new();
        for part in fs::read_dir(folder.join(FILES)).unwrap() {
            for file in fs::read_dir(part.unwrap().path()).unwrap() {
                names.push(file.unwrap().file_name().into_string().unwrap());
            }
        }
        names
    }

    #[test]
    fn a_file_is_stored_once_under_its_digest_when_its_last_part_comes() {
        let folder = tempfile::tempdir().unwrap();
        let mut storage = Storage::open(folder.path(), StorageLimits::default()).unwrap();
        let (first, second) = (parts(b"abcdefgh", 3), parts(b"other", 2));
        // The parts of files of two lanes arrive in turn.
        for event in [&first[0], &second[0], &first[1], &second[1]] {
            storage.take(event).unwrap();
        }
        assert!(names(folder.path()).is_empty());
        storage.take(&first[2]).unwrap();
        storage.take(&second[2]).unwrap();
        let name = HEXLOWER.encode(&Sha256::digest(b"abcdefgh"));
        let path = folder.path().join(FILES).join(&name[..2]).join(&name);
        assert_eq!(fs::read(path).unwrap(), b"abcdefgh");
        for event in &first {
            storage.take(event).unwrap();
        }
        assert_eq!(
            storage.counters(),
            StorageCounters {
                stored: 2,
                refused: 0
            }
        );
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn files_beyond_a_bound_with_a_lost_part_or_another_digest_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let limits = StorageLimits { files: 2, bytes: 9 };
        let mut storage = Storage::open(folder.path(), limits).unwrap();
        let give = |storage: &mut Storage, events: &[Event]| {
            events.iter().for_each(|event| storage.take(event).unwrap());
        };
        give(&mut storage, &parts(b"abcdefgh", 8));
        give(&mut storage, &parts(b"two", 3));
        assert_eq!(
            storage.counters(),
            StorageCounters {
                stored: 1,
                refused: 1
            }
        );
        give(&mut storage, &parts(b"x", 1));
        give(&mut storage, &parts(b"y", 1));
        assert_eq!(
            storage.counters(),
            StorageCounters {
                stored: 2,
                refused: 2
            }
        );
        // A later run counts what is there.
        let mut later = Storage::open(folder.path(), limits).unwrap();
        give(&mut later, &parts(b"z", 1));
        assert_eq!(
            later.counters(),
            StorageCounters {
                stored: 0,
                refused: 1
            }
        );
        let other = tempfile::tempdir().unwrap();
        let mut storage = Storage::open(other.path(), StorageLimits::default()).unwrap();
        let mut lost = parts(b"abcdefgh", 2);
        lost.remove(1);
        give(&mut storage, &lost);
        let mut wrong = parts(b"abc", 3);
        if let Event::File(part) = &mut wrong[0] {
            part.sha256 = [0; 32];
        }
        give(&mut storage, &wrong);
        assert_eq!(
            storage.counters(),
            StorageCounters {
                stored: 0,
                refused: 2
            }
        );
        assert!(names(other.path()).is_empty());
    }

    #[test]
    fn a_set_is_written_with_its_first_values_and_its_changes() {
        let folder = tempfile::tempdir().unwrap();
        let mut storage = Storage::open(folder.path(), StorageLimits::default()).unwrap();
        let set = SavedSet {
            name: "seen".into(),
            kind: SetType::Ip,
            file: "sets/seen.lst".to_owned(),
            values: Arc::new(
                [(vec![10, 0, 0, 1], 0), (vec![10, 0, 0, 2], 0)]
                    .into_iter()
                    .collect(),
            ),
        };
        storage.share(std::slice::from_ref(&set));
        let change = |value: &[u8], is_added| {
            Event::Set(SetChange {
                set: "seen".into(),
                value: value.to_vec(),
                is_added,
            })
        };
        storage.take(&change(&[10, 0, 0, 1], false)).unwrap();
        storage
            .take(&change(
                &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                true,
            ))
            .unwrap();
        storage.flush().unwrap();
        let text = || fs::read_to_string(folder.path().join("sets/seen.lst")).unwrap();
        assert_eq!(text(), "10.0.0.2\n2001:0db8:0000:0000:0000:0000:0000:0001\n");
        // A set that has not changed is not written again.
        fs::write(folder.path().join("sets/seen.lst"), "by hand\n").unwrap();
        storage.flush().unwrap();
        assert_eq!(text(), "by hand\n");
    }

    #[test]
    fn a_set_that_cannot_be_written_keeps_no_other_from_it_and_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut storage = Storage::open(folder.path(), StorageLimits::default()).unwrap();
        // A file stands where the folder of the first set has to be.
        fs::write(folder.path().join("blocked"), "").unwrap();
        for (name, file) in [("a", "blocked/a.lst"), ("b", "b.lst")] {
            storage.share(&[SavedSet {
                name: name.into(),
                kind: SetType::Md5,
                file: file.to_owned(),
                values: Arc::default(),
            }]);
        }
        let error = storage.flush().unwrap_err();
        assert!(error.path.ends_with("blocked"), "{error}");
        assert!(folder.path().join("b.lst").exists());
        fs::remove_file(folder.path().join("blocked")).unwrap();
        storage.flush().unwrap();
        assert!(folder.path().join("blocked/a.lst").exists());
    }
}
