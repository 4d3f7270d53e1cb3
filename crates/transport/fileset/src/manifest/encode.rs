//! The encoded form of a manifest. [`super::decode`] reads it.
//!
//! ```text
//!   header     "MRFS" 1  flags (bit 0: extents of 16 MiB, bit 1: owners and extended attributes)
//!   entry      type, shared, len, bytes: the path is `shared` bytes of the path before it and `len` bytes of its own
//!              mode, modified (seconds, nanoseconds) [user, group, xattrs: len, (len, name, len, value)…]
//!     file       size, changed (seconds, nanoseconds), number of segments + 1, (gap, len)…
//!                or 0 instead of the segments, if one segment covers the file
//!     symlink    len, target
//!     hard link  number of the file; no mode, time, owner
//!   end        type 0, entries, BLAKE3 digest of all bytes before the digest
//! ```
//! Numbers are encoded as LEB128. Seconds are zigzag-encoded first.

use crate::entry::{Attributes, Entry, EntryKind, FileEntry, Owner, Timestamp};
use crate::path::RelativePath;
use crate::varint::{put, put_signed};
use millrace_transport::extent::ExtentSize;

/// The first bytes of a manifest: magic and version.
pub(super) const MAGIC: &[u8; 5] = b"MRFS\x01";
pub(super) const FLAG_LARGE: u8 = 1;
pub(super) const FLAG_PRESERVE: u8 = 2;

pub(super) const END: u8 = 0;
pub(super) const DIRECTORY: u8 = 1;
pub(super) const FILE: u8 = 2;
pub(super) const SYMLINK: u8 = 3;
pub(super) const HARD_LINK: u8 = 4;

/// Appends the header.
pub(crate) fn encode_header(extent_size: ExtentSize, preserve: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(MAGIC);
    let large = if extent_size == ExtentSize::Large {
        FLAG_LARGE
    } else {
        0
    };
    out.push(large | if preserve { FLAG_PRESERVE } else { 0 });
}

/// Appends an entry that follows the entry with the path `last`.
pub(crate) fn encode_entry(entry: &Entry, last: &RelativePath, preserve: bool, out: &mut Vec<u8>) {
    out.push(match entry.kind {
        EntryKind::Directory => DIRECTORY,
        EntryKind::File(_) => FILE,
        EntryKind::Symlink(_) => SYMLINK,
        EntryKind::HardLink(_) => HARD_LINK,
    });
    let (path, last) = (entry.path.as_bytes(), last.as_bytes());
    let shared = path.iter().zip(last).take_while(|(a, b)| a == b).count();
    put(out, shared as u64);
    put_bytes(out, &path[shared..]);
    if !matches!(entry.kind, EntryKind::HardLink(_)) {
        encode_attributes(&entry.attributes, preserve, out);
    }
    match &entry.kind {
        EntryKind::Directory => {}
        EntryKind::File(file) => encode_file(file, out),
        EntryKind::Symlink(target) => put_bytes(out, target),
        EntryKind::HardLink(file) => put(out, u64::from(*file)),
    }
}

/// Appends the end entry without its digest.
pub(crate) fn encode_end(entries: usize, out: &mut Vec<u8>) {
    out.push(END);
    put(out, entries as u64);
}

fn encode_attributes(attributes: &Attributes, preserve: bool, out: &mut Vec<u8>) {
    put(out, u64::from(attributes.mode));
    put_time(out, attributes.modified);
    if preserve {
        let Owner { user, group } = attributes.owner.unwrap_or_default();
        put(out, u64::from(user));
        put(out, u64::from(group));
        put(out, attributes.xattrs.len() as u64);
        for (name, value) in &attributes.xattrs {
            put_bytes(out, name);
            put_bytes(out, value);
        }
    }
}

fn encode_file(file: &FileEntry, out: &mut Vec<u8>) {
    put(out, file.size);
    put_time(out, file.changed);
    if file.has_no_holes() {
        put(out, 0);
        return;
    }
    put(out, file.segments.len() as u64 + 1);
    let mut end = 0;
    for segment in &file.segments {
        put(out, segment.offset - end);
        put(out, segment.len);
        end = segment.offset + segment.len;
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    put_signed(out, time.seconds);
    put(out, u64::from(time.nanoseconds));
}
