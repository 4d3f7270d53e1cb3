//! The initramfs archive that a kernel unpacks as its first file system: cpio, "newc" (Linux,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
/// The name of the last entry of an archive.
const END: &str = "TRAILER!!!";

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// Adds an empty directory and its parents.
    pub(super) fn folder(&mut self, path: &str) {
        let path = path.trim_start_matches('/');
        let mut above: Vec<&str> = Path::new(path)
            .ancestors()
            .filter_map(Path::to_str)
            .filter(|path| !path.is_empty())
            .collect();
        above.reverse();
        for folder in above {
            if self.folders.insert(folder.to_owned()) {
                self.entry(folder, FOLDER, &[]);
            }
        }
    }

    /// Adds a file and its parent directories.
    pub(super) fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        let path = path.trim_start_matches('/');
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
        self.entry(path, FILE | permissions, content);
    }

    /// Returns the complete archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(END, 0, &[]);
        self.bytes
    }

    /// Adds an entry: a header of numbers in eight hex digits each, the name with a zero byte, and the content, both
    /// padded to a multiple of four.
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        let links = if mode & FOLDER == FOLDER { 2 } else { 1 };
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), size of the name, checksum.
        let numbers = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the (name, mode, content) of each entry, parsed by the rules of the format.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let (mut at, mut entries) = (0, Vec::new());
        loop {
            let number = |offset: usize| {
                let text = &bytes[at + 6 + 8 * offset..at + 14 + 8 * offset];
                u32::from_str_radix(std::str::from_utf8(text).unwrap(), 16).unwrap()
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (mode, size, name_size) = (number(1), number(6) as usize, number(11) as usize);
            let name = String::from_utf8(bytes[at + 110..at + 109 + name_size].to_vec()).unwrap();
            assert_eq!(bytes[at + 109 + name_size], 0);
            let content = (at + 110 + name_size).next_multiple_of(4);
            if name == END {
                assert_eq!(bytes.len(), content, "nothing follows");
                return entries;
            }
            entries.push((name, mode, bytes[content..content + size].to_vec()));
            at = (content + size).next_multiple_of(4);
        }
    }

    #[test]
    fn files_stand_after_the_folders_that_they_are_in() {
        let mut archive = Archive::default();
        archive.file("/init", 0o755, b"#!/bin/sh\n");
        archive.file("lib/x/a.so", 0o644, b"12345");
        archive.file("lib/x/b.so", 0o644, b"");
        archive.folder("/proc");
        let entries = read(&archive.finish());
        let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(
            names,
            ["init", "lib", "lib/x", "lib/x/a.so", "lib/x/b.so", "proc"]
        );
        assert_eq!(
            entries[0],
            ("init".to_owned(), 0o100_755, b"#!/bin/sh\n".to_vec())
        );
        assert_eq!(entries[1], ("lib".to_owned(), 0o040_755, vec![]));
        assert_eq!(entries[3].2, b"12345");
    }
}
