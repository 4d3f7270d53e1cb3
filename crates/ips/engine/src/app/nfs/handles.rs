//! File handles, and the names under which clients looked them up.

use std::collections::VecDeque;
use std::sync::Arc;

use flate2::Crc;
use sha2::{Digest, Sha256};

use crate::app::heap::{Heap, heap};
use crate::app::open_files::FileKey;

/// Largest number of handles whose names are known; the one that was looked up first is forgotten for another.
const NAMES: usize = 512;

/// Largest size of a name in bytes that is kept with a handle. Servers refuse those of more than 255 bytes.
const NAME_SIZE: usize = 256;

/// A file handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) key: FileKey,
    /// The CRC-32 of its bytes; `None` if only the name of the file is known.
    pub(super) sum: Option<u32>,
}

/// Returns a key for bytes: the front of their SHA-256, so that no sender finds two with the same.
fn key(parts: [&[u8]; 3]) -> FileKey {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let front = digest.first_chunk().copied().unwrap_or_default();
    FileKey(u128::from_be_bytes(front))
}

impl Handle {
    /// Returns the handle of bytes of a message.
    pub(super) fn of(bytes: &[u8]) -> Handle {
        let mut sum = Crc::new();
        sum.update(bytes);
        Handle {
            key: key([b"handle", bytes, b""]),
            sum: Some(sum.sum()),
        }
    }

    /// Returns a temporary handle for a name in a directory, whose handle is not known yet.
    pub(super) fn named(directory: Option<Handle>, name: &[u8]) -> Handle {
        let directory = directory.map_or(0, |handle| handle.key.0).to_be_bytes();
        Handle {
            key: key([b"name", &directory, name]),
            sum: None,
        }
    }

    /// Returns the sum of the bytes as records have it.
    pub(super) fn text(self) -> Option<String> {
        self.sum.map(|sum| format!("{sum:08x}"))
    }
}

/// A name, which many operations of a message may share.
#[derive(Debug, Clone, Default)]
pub(super) struct Name(Arc<[u8]>);

impl Name {
    pub(super) fn new(name: &[u8]) -> Name {
        Name(name[..name.len().min(NAME_SIZE)].into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Heap for Name {
    fn heap(&self) -> usize {
        self.0.len()
    }
}

/// A handle and the name under which it was looked up.
#[derive(Debug)]
struct Entry {
    key: FileKey,
    name: Name,
}

heap!(Entry { name });

/// The names of handles of a connection.
#[derive(Debug, Default)]
pub(super) struct Names {
    list: VecDeque<Entry>,
}

heap!(Names { list });

impl Names {
    /// Returns the name of a handle; empty if it is not known.
    pub(super) fn of(&self, key: FileKey) -> Name {
        let found = self.list.iter().find(|entry| entry.key == key);
        found.map(|entry| entry.name.clone()).unwrap_or_default()
    }

    /// Notes the name of a handle.
    pub(super) fn set(&mut self, key: FileKey, name: Name) {
        if let Some(entry) = self.list.iter_mut().find(|entry| entry.key == key) {
            entry.name = name;
            return;
        }
        if self.list.len() >= NAMES {
            self.list.pop_front();
        }
        self.list.push_back(Entry { key, name });
    }
}
