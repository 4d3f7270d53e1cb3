//! Files that transactions carry: name, size, kind by the first bytes, and hashes.

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::Sha256;

use crate::app::heap::{flat, heap};
use crate::flow::Direction;

/// Largest size of a file name that is kept.
pub const NAME_SIZE: usize = 1024;

/// Usual value of [`AppSettings::store_limit`](super::AppSettings::store_limit), in bytes.
pub const STORE_LIMIT: usize = 1 << 20;

/// The completeness of a file that a connection transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileState {
    /// More bytes may follow.
    #[default]
    Open,
    /// All bytes were seen.
    Closed,
    /// Bytes are missing.
    Truncated,
}

/// Hashes of a file in progress.
#[derive(Debug, Clone, Default)]
struct Hashers {
    md5: Md5,
    sha1: Sha1,
    sha256: Sha256,
}

flat!(Hashers);

/// Hashes of a complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHashes {
    /// MD5.
    pub md5: [u8; 16],
    /// SHA-1.
    pub sha1: [u8; 20],
    /// SHA-256.
    pub sha256: [u8; 32],
}

/// A file that a transaction carries.
#[derive(Debug, Clone)]
pub struct File {
    /// The direction in which it is sent.
    pub direction: Direction,
    /// The name; empty if none was sent.
    pub name: Vec<u8>,
    /// Bytes seen so far.
    pub size: u64,
    pub state: FileState,
    /// True if bytes in the middle are lost.
    pub has_gaps: bool,
    /// Kind by the first bytes.
    pub magic: Option<&'static str>,
    /// Hashes, once the file is closed and complete.
    pub hashes: Option<FileHashes>,
    hashers: Option<Box<Hashers>>,
    head: Vec<u8>,
    /// All bytes so far, and the largest number that is kept; `None` if they are not kept.
    content: Option<(Vec<u8>, usize)>,
    /// True once the bytes were taken, so that they can be stored.
    pub is_stored: bool,
    /// True if the file consists of ranges that several responses carried.
    pub is_joined: bool,
    /// True if a rule stores the file, whatever the rules of its transaction do.
    pub(crate) is_wanted: bool,
}

heap!(File {
    name,
    hashers,
    head,
    content
});

/// Number of first bytes that decide the kind of a file.
const HEAD: usize = 16;

impl File {
    /// Returns an empty file.
    pub fn new(direction: Direction, name: &[u8], is_hashed: bool) -> File {
        File {
            direction,
            name: name[..name.len().min(NAME_SIZE)].to_vec(),
            size: 0,
            state: FileState::Open,
            has_gaps: false,
            magic: None,
            hashes: None,
            hashers: is_hashed.then(Box::default),
            head: Vec::new(),
            content: None,
            is_stored: false,
            is_joined: false,
            is_wanted: false,
        }
    }

    /// Keeps the bytes of the file, if it has at most `limit`, so that it can be stored.
    pub(crate) fn keep(&mut self, limit: usize) {
        self.content = (limit > 0).then(|| (Vec::new(), limit));
    }

    /// Returns the bytes of a complete file and its SHA-256, once. The file must be hashed and not larger than the limit.
    pub(crate) fn take_content(&mut self) -> Option<([u8; 32], Vec<u8>)> {
        let digest = self.hashes.as_ref()?.sha256;
        let (content, _) = self.content.take()?;
        self.is_stored = true;
        Some((digest, content))
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        if let Some((content, limit)) = &mut self.content {
            match content.len() + bytes.len() <= *limit {
                true => content.extend_from_slice(bytes),
                false => self.content = None,
            }
        }
        if self.head.len() < HEAD && !self.has_gaps {
            let missing = (HEAD - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..missing]);
            self.magic = magic(&self.head);
        }
        if let Some(hashers) = &mut self.hashers {
            hashers.md5.update(bytes);
            hashers.sha1.update(bytes);
            hashers.sha256.update(bytes);
        }
    }

    /// Records that bytes are lost.
    pub fn gap(&mut self, size: u64) {
        self.size += size;
        self.has_gaps = true;
        self.hashers = None;
        self.content = None;
    }

    /// Ends the file. It is complete if all of its bytes were seen.
    pub fn close(&mut self, is_complete: bool) {
        if self.state != FileState::Open {
            return;
        }
        self.state = if is_complete && !self.has_gaps {
            FileState::Closed
        } else {
            FileState::Truncated
        };
        let hashers = self.hashers.take();
        if let Some(hashers) = hashers.filter(|_| self.state == FileState::Closed) {
            self.hashes = Some(FileHashes {
                md5: hashers.md5.finalize().into(),
                sha1: hashers.sha1.finalize().into(),
                sha256: hashers.sha256.finalize().into(),
            });
        }
    }
}

/// First bytes of files, and the names that libmagic has for their kinds.
const MAGICS: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n\x1a\n", "PNG image data"),
    (b"GIF87a", "GIF image data, version 87a"),
    (b"GIF89a", "GIF image data, version 89a"),
    (b"\xff\xd8\xff", "JPEG image data"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "Zip archive data"),
    (b"PK\x05\x06", "Zip archive data (empty)"),
    (b"\x1f\x8b", "gzip compressed data"),
    (b"BZh", "bzip2 compressed data"),
    (b"\xfd7zXZ\0", "XZ compressed data"),
    (b"7z\xbc\xaf\x27\x1c", "7-zip archive data"),
    (b"Rar!\x1a\x07", "RAR archive data"),
    (b"MSCF", "Microsoft Cabinet archive data"),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        "Composite Document File V2 Document",
    ),
    (b"MZ", "MS-DOS executable"),
    (b"\x7fELF", "ELF"),
    (b"\xca\xfe\xba\xbe", "compiled Java class data"),
    (b"\xcf\xfa\xed\xfe", "Mach-O 64-bit"),
    (b"{\\rtf", "Rich Text Format data"),
    (b"CWS", "Macromedia Flash data (compressed)"),
    (b"FWS", "Macromedia Flash data"),
    (b"ZWS", "Macromedia Flash data (lzma compressed)"),
    (b"RIFF", "RIFF (little-endian) data"),
    (b"OggS", "Ogg data"),
    (b"ID3", "Audio file with ID3"),
    (b"\0asm", "WebAssembly (wasm) binary module"),
    (b"<?xml", "XML document"),
    (b"<!DOCTYPE html", "HTML document"),
    (b"<html", "HTML document"),
    (b"#!/", "script text executable"),
];

/// Returns the kind of a file by its first bytes.
fn magic(head: &[u8]) -> Option<&'static str> {
    let is_it = |magic: &[u8]| head.len() >= magic.len() && head[..magic.len()].eq_ignore_ascii_case(magic);
    MAGICS
        .iter()
        .find(|(magic, _)| is_it(magic))
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_complete_file_has_its_hashes_and_kind() {
        let mut file = File::new(Direction::ToClient, b"a.gif", true);
        file.update(b"GIF8");
        file.update(b"9a");
        file.close(true);
        let hashes = file.hashes.clone().unwrap();
        assert_eq!(
            (file.magic, file.size, file.state),
            (Some("GIF image data, version 89a"), 6, FileState::Closed)
        );
        // Computed with md5sum, sha1sum and sha256sum.
        assert_eq!(text(&hashes.md5), "1ac2109d47dbc72551f71df89d01ed18");
        assert_eq!(text(&hashes.sha1), "25c9b37ae36a0a08318d4dca7ca57ea98d776821");
        assert_eq!(
            text(&hashes.sha256),
            "610f5ae4d76e332636a17bd357fd6ce99029316a99d320280d4d77a746bf29e8"
        );
    }

    #[test]
    fn the_bytes_of_a_complete_file_within_the_limit_are_taken_once() {
        let file = |limit: usize, is_complete: bool| {
            let mut file = File::new(Direction::ToClient, b"", true);
            file.keep(limit);
            file.update(b"GIF8");
            file.update(b"9a");
            file.close(is_complete);
            file
        };
        let mut kept = file(6, true);
        let (digest, content) = kept.take_content().unwrap();
        assert_eq!(content, b"GIF89a");
        assert!(text(&digest).starts_with("610f5ae4d76e3326"));
        assert!(kept.is_stored && kept.take_content().is_none());
        for mut other in [file(5, true), file(6, false), file(0, true)] {
            assert!(other.take_content().is_none() && !other.is_stored);
        }
    }

    #[test]
    fn a_file_with_a_gap_is_truncated_and_has_no_hashes() {
        let mut file = File::new(Direction::ToClient, b"", true);
        file.update(b"abc");
        file.gap(10);
        file.close(true);
        assert_eq!(
            (file.state, file.size, file.hashes),
            (FileState::Truncated, 13, None)
        );
    }
}
