//! A file in shared memory that passes the source of a hop's shared value (such as rules) from the control
//! side to the processes of the hop's functions.
//!
//! The control side has one file for each hop. It writes a source in two steps. A separate thread writes the
//! bytes. The control side writes the head after exporters have received the value that was compiled from the
//! bytes. Processes open the file before they drop the right to open files. Each process compiles the source
//! itself, because a compiled value has pointers and generated code, which cannot be shared.
//!
//! ```text
//!  0            8      16       24     4096
//! +------------+------+--------+------+------------------+
//! | generation | size | digest |      | bytes            |     numbers little-endian
//! +------------+------+--------+------+------------------+
//! ```
//!
//! If a process reads while the next source is written, the digest does not match the bytes, and the process
//! reads again later. The file is sealed against shrinking and growing. Pages that were never written take no
//! memory.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Size limit of a source in bytes.
pub const SOURCE_MAX: usize = 512 << 20;
/// Bytes in front of a source.
const HEAD: usize = 4096;
/// The name of the file, as /proc/PID/maps shows it.
const NAME: &str = "millrace-source";

/// The header of a source in shared memory. A reader checks with it that the source is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceHead {
    /// The number of the source, from 1; 0 before there is one.
    generation: u64,
    /// Size in bytes.
    size: u64,
    digest: u64,
}

impl SourceHead {
    const SIZE: usize = 24;

    /// Returns the number of the source, from 1.
    pub fn generation(self) -> u64 {
        self.generation
    }

    fn to_bytes(self) -> [u8; SourceHead::SIZE] {
        let mut bytes = [0; SourceHead::SIZE];
        for (to, number) in bytes
            .chunks_exact_mut(8)
            .zip([self.generation, self.size, self.digest])
        {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; SourceHead::SIZE]) -> SourceHead {
        let number = |at: usize| {
            let bytes = bytes.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        SourceHead {
            generation: number(0),
            size: number(8),
            digest: number(16),
        }
    }
}

/// Returns the digest by which a reader detects a partly written source. It does not detect deliberate
/// changes.
fn digest(bytes: &[u8]) -> u64 {
    // FNV-1a over words, with a rotation so that high bits of a word reach low bits of the digest.
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let step = |digest: u64, word: u64| (digest ^ word).wrapping_mul(PRIME).rotate_left(29);
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let digest = words.fold(BASIS ^ bytes.len() as u64, step);
    rest.iter()
        .fold(digest, |digest, byte| step(digest, (*byte).into()))
}

/// The writing end, on the control side.
#[derive(Debug)]
pub struct SourceFile {
    file: File,
    generation: AtomicU64,
}

impl SourceFile {
    /// Creates a file without a source.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn create() -> io::Result<SourceFile> {
        let file = millrace_shared_memory::create(NAME, (HEAD + SOURCE_MAX) as u64)?;
        Ok(SourceFile {
            file: file.into(),
            generation: AtomicU64::new(0),
        })
    }

    /// Returns the path by which a process of the same user, or of root, opens the file.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Writes the bytes of the next source. Processes see it after [`SourceFile::publish`]; until then they find none.
    ///
    /// # Errors
    /// The kernel's error, or [`io::ErrorKind::FileTooLarge`].
    pub fn stage(&self, bytes: &[u8]) -> io::Result<SourceHead> {
        if bytes.len() > SOURCE_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.file.write_all_at(bytes, HEAD as u64)?;
        Ok(SourceHead {
            generation: self.generation.fetch_add(1, Ordering::Relaxed) + 1,
            size: bytes.len() as u64,
            digest: digest(bytes),
        })
    }

    /// Writes the header of a staged source, so that processes can read the source.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn publish(&self, head: SourceHead) -> io::Result<()> {
        self.file.write_all_at(&head.to_bytes(), 0)
    }
}

/// The reading end, in the process of a function.
#[derive(Debug)]
pub struct SourceReader {
    file: File,
    seen: u64,
}

impl SourceReader {
    /// Opens the file of a hop.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(path: &Path) -> io::Result<SourceReader> {
        let file = OpenOptions::new().read(true).open(path)?;
        Ok(SourceReader { file, seen: 0 })
    }

    /// Returns the file descriptor.
    pub fn as_raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn head(&self) -> io::Result<SourceHead> {
        let mut bytes = [0; SourceHead::SIZE];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(SourceHead::from_bytes(bytes))
    }

    /// Returns the number and the bytes of a source that was not returned before; `None` if there is no such
    /// source, or if it is not complete yet.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let head = self.head()?;
        if head.generation == self.seen || head.size > SOURCE_MAX as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; head.size as usize];
        self.file.read_exact_at(&mut bytes, HEAD as u64)?;
        if digest(&bytes) != head.digest || self.head()? != head {
            return Ok(None);
        }
        self.seen = head.generation;
        Ok(Some((head.generation, bytes)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_once_and_only_after_it_was_published() {
        let file = SourceFile::create().unwrap();
        let mut reader = SourceReader::open(&file.path()).unwrap();
        assert_eq!(reader.read().unwrap(), None);
        let first = file.stage(b"first source").unwrap();
        assert_eq!(reader.read().unwrap(), None, "not published");
        file.publish(first).unwrap();
        assert_eq!(reader.read().unwrap(), Some((1, b"first source".to_vec())));
        assert_eq!(reader.read().unwrap(), None, "read before");
        let mut late = SourceReader::open(&file.path()).unwrap();
        let second = file.stage(b"2nd").unwrap();
        assert_eq!(
            late.read().unwrap(),
            None,
            "the bytes of one and the head of another"
        );
        file.publish(second).unwrap();
        for reader in [&mut reader, &mut late] {
            assert_eq!(reader.read().unwrap(), Some((2, b"2nd".to_vec())));
        }
    }

    #[test]
    fn a_process_cannot_change_a_source() {
        let file = SourceFile::create().unwrap();
        let reader = SourceReader::open(&file.path()).unwrap();
        assert!(reader.file.write_at(b"x", 0).is_err());
    }
}
