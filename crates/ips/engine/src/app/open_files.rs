//! Files that a connection reads and writes in pieces, by handle and offset, as files for detection.
//!
//! ```text
//!  handle ─▶ open file ─┬─ bytes that are read ────▶ transaction to the client ─┐
//!  name ───▶            └─ bytes that are written ─▶ transaction to the server ─┴▶ file.data, file.name
//! ```
//!
//! Pieces may come in any order of offsets. Bytes behind a hole wait for those before them, up to [`HELD_SIZE`] in a
//! connection; then they are inspected with a gap before them. Bytes before the end of what was inspected were sent
//! again, or overwrite the file: they are inspected behind the others, because the later bytes are those that stay.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use super::transaction::{AppEvent, Progress, Transactions};
use super::{AppProtocol, AppSettings};
use crate::app::heap::{flat, heap};
use crate::flow::Direction;

/// Largest number of open files of a connection; the one that was opened first is ended for another.
const FILES: usize = 256;
/// Bytes that wait behind holes of all files of a connection.
pub(super) const HELD_SIZE: usize = 1 << 20;

/// A file, by a number that stands for the handle that the server assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileKey(pub(super) u128);

/// Bytes that wait for those before them.
#[derive(Debug)]
struct Piece {
    offset: u64,
    bytes: Vec<u8>,
}

/// One direction of an open file: its transaction, buffer, and what was inspected.
#[derive(Debug)]
struct Content {
    transaction: u64,
    buffer: usize,
    /// Offset of the next byte.
    next: u64,
    /// The size of the file, if the server has told it.
    size: Option<u64>,
    /// Pieces behind a hole, by offset.
    held: VecDeque<Piece>,
}

#[derive(Debug)]
struct Open {
    key: FileKey,
    /// The key by which commands of the message that opened the file name it.
    temporary: Option<FileKey>,
    name: Vec<u8>,
    contents: [Option<Content>; 2],
}

flat!(FileKey);
heap!(Piece { bytes });
heap!(Content { held });
heap!(Open { name, contents });

/// The open files of a connection.
#[derive(Debug)]
pub(super) struct OpenFiles {
    app: AppProtocol,
    /// The anomaly of bytes that were sent again, if the protocol has one.
    overlap: Option<AppEvent>,
    settings: AppSettings,
    list: VecDeque<Open>,
    held_size: usize,
    /// True once an open file was ended for another.
    has_evicted: bool,
    /// True if bytes of files may escape inspection since the last call of [`OpenFiles::take_lost`].
    has_lost: bool,
}

heap!(OpenFiles { list });

impl OpenFiles {
    pub(super) fn new(app: AppProtocol, overlap: Option<AppEvent>, settings: AppSettings) -> OpenFiles {
        OpenFiles {
            app,
            overlap,
            settings,
            list: VecDeque::new(),
            held_size: 0,
            has_evicted: false,
            has_lost: false,
        }
    }

    /// Returns true if the engine follows connections of which it sees one direction only.
    pub(super) fn is_asymmetric(&self) -> bool {
        self.settings.is_asymmetric
    }

    /// Returns true if bytes may have escaped inspection since the last call: they belong to a file that was ended for another.
    pub(super) fn take_lost(&mut self) -> bool {
        core::mem::take(&mut self.has_lost)
    }

    fn find(&self, key: FileKey) -> Option<usize> {
        let is_it = |open: &Open| open.key == key || open.temporary == Some(key);
        self.list.iter().position(is_it)
    }

    fn add(&mut self, key: FileKey, name: Vec<u8>, out: &mut Transactions) -> usize {
        if self.list.len() >= FILES
            && let Some(mut first) = self.list.pop_front()
        {
            self.has_evicted = true;
            self.end(&mut first, out);
        }
        self.list.push_back(Open {
            key,
            temporary: None,
            name,
            contents: [None, None],
        });
        self.list.len() - 1
    }

    /// Opens a file in place of the one that had its key. Commands of the same message may have begun it by its temporary key.
    pub(super) fn open(&mut self, key: FileKey, temporary: FileKey, name: Vec<u8>, out: &mut Transactions) {
        self.close(key, out);
        let at = match self.find(temporary) {
            Some(at) => at,
            None => self.add(key, name, out),
        };
        if let Some(open) = self.list.get_mut(at) {
            (open.key, open.temporary) = (key, Some(temporary));
        }
    }

    /// Gives a file that was begun by a temporary key its own key, unless a file has it.
    pub(super) fn identify(&mut self, key: FileKey, temporary: FileKey) {
        if self.find(key).is_none()
            && let Some(at) = self.find(temporary)
            && let Some(open) = self.list.get_mut(at)
        {
            (open.key, open.temporary) = (key, Some(temporary));
        }
    }

    /// Ends a file.
    pub(super) fn close(&mut self, key: FileKey, out: &mut Transactions) {
        let at = self.find(key);
        if let Some(mut open) = at.and_then(|at| self.list.remove(at)) {
            self.end(&mut open, out);
        }
    }

    /// Ends one direction of a file.
    pub(super) fn end_direction(&mut self, key: FileKey, direction: Direction, out: &mut Transactions) {
        let Some(at) = self.find(key) else { return };
        let Some(open) = self.list.get_mut(at) else { return };
        let content = open.contents[direction.index()].take();
        let is_left = open.contents.iter().any(Option::is_some);
        if let Some(mut content) = content {
            self.finish(&mut content, direction, out);
        }
        if !is_left {
            self.list.remove(at);
        }
    }

    /// Notes the size of a file in a direction, whose bytes end there.
    pub(super) fn ends_at(&mut self, key: FileKey, size: u64, direction: Direction, out: &mut Transactions) {
        let Some(open) = self.find(key).and_then(|at| self.list.get_mut(at)) else {
            return;
        };
        let Some(content) = &mut open.contents[direction.index()] else {
            return;
        };
        content.size = Some(size);
        if content.next >= size {
            self.end_direction(key, direction, out);
        }
    }

    /// Ends one direction of all files, because no byte of it follows.
    pub(super) fn end_all_of(&mut self, direction: Direction, out: &mut Transactions) {
        for at in 0..self.list.len() {
            let open = self.list.get_mut(at);
            if let Some(mut content) = open.and_then(|open| open.contents[direction.index()].take()) {
                self.finish(&mut content, direction, out);
            }
        }
    }

    /// Ends all files, because the connection ended.
    pub(super) fn end_all(&mut self, out: &mut Transactions) {
        while let Some(mut open) = self.list.pop_front() {
            self.end(&mut open, out);
        }
    }

    fn end(&mut self, open: &mut Open, out: &mut Transactions) {
        for direction in Direction::BOTH {
            if let Some(mut content) = open.contents[direction.index()].take() {
                self.finish(&mut content, direction, out);
            }
        }
    }

    /// Ends the bytes of a direction: what waits behind holes is inspected, and the transaction is complete.
    fn finish(&mut self, content: &mut Content, direction: Direction, out: &mut Transactions) {
        while self.skip_hole(content, out) {}
        if let Some(transaction) = out.by_id(content.transaction) {
            transaction.close(content.buffer);
            if let Some(file) = transaction.files.first_mut() {
                file.close(true);
            }
            transaction.advance(direction, Progress::Complete);
        }
    }

    /// Returns true if the command that opened the file was seen.
    pub(super) fn is_open(&self, key: FileKey) -> bool {
        self.find(key).is_some()
    }

    /// Returns the transaction of one direction of a file, and the name of the file.
    pub(super) fn transaction(&self, key: FileKey, direction: Direction) -> Option<(u64, &[u8])> {
        let open = self.list.get(self.find(key)?)?;
        let content = open.contents[direction.index()].as_ref()?;
        Some((content.transaction, &open.name))
    }

    /// Adds bytes of a file that are written (to the server) or read (to the client). `name` returns the name of a file that is
    /// not open: a command of the message that opens it, or the answer that opened it was not seen, or it was ended for another.
    pub(super) fn transfer(
        &mut self,
        (key, offset): (FileKey, u64),
        bytes: &[u8],
        direction: Direction,
        name: impl FnOnce() -> Option<Vec<u8>>,
        out: &mut Transactions,
    ) {
        if bytes.is_empty() {
            return;
        }
        let at = match self.find(key) {
            Some(at) => at,
            None => {
                let name = name();
                self.has_lost |= name.is_none() && self.has_evicted;
                self.add(key, name.unwrap_or_default(), out)
            }
        };
        let Some(open) = self.list.get_mut(at) else { return };
        let slot = &mut open.contents[direction.index()];
        let mut content = match slot.take() {
            Some(content) => content,
            None => begin(self.app, &open.name, direction, &self.settings, out),
        };
        if offset > content.next {
            self.hold(&mut content, offset, bytes, out);
        } else {
            self.append(&mut content, offset, bytes, out);
            self.release(&mut content, out);
        }
        let is_whole = content.size.is_some_and(|size| content.next >= size);
        if let Some(open) = self.list.get_mut(at) {
            open.contents[direction.index()] = Some(content);
        }
        if is_whole {
            self.end_direction(key, direction, out);
        }
    }

    /// Keeps bytes behind a hole. If too many wait, the hole is skipped.
    fn hold(&mut self, content: &mut Content, offset: u64, bytes: &[u8], out: &mut Transactions) {
        self.held_size += bytes.len();
        // The bytes of a message come in several chunks, and one piece holds them.
        let behind = |piece: &Piece| piece.offset.checked_add(piece.bytes.len() as u64) == Some(offset);
        match content.held.back_mut().filter(|piece| behind(piece)) {
            Some(piece) => piece.bytes.extend_from_slice(bytes),
            None => {
                let at = content.held.partition_point(|piece| piece.offset <= offset);
                let bytes = bytes.to_vec();
                content.held.insert(at, Piece { offset, bytes });
            }
        }
        while self.held_size > HELD_SIZE && self.skip_hole(content, out) {}
    }

    /// Appends the pieces that no hole separates any more.
    fn release(&mut self, content: &mut Content, out: &mut Transactions) {
        while content
            .held
            .front()
            .is_some_and(|piece| piece.offset <= content.next)
            && let Some(piece) = content.held.pop_front()
        {
            self.held_size -= piece.bytes.len();
            self.append(content, piece.offset, &piece.bytes, out);
        }
    }

    /// Skips the first hole; returns false if nothing waits behind one.
    fn skip_hole(&mut self, content: &mut Content, out: &mut Transactions) -> bool {
        let Some(first) = content.held.front() else {
            return false;
        };
        let lost = first.offset.saturating_sub(content.next);
        content.next = first.offset;
        if lost > 0
            && let Some(file) = out
                .by_id(content.transaction)
                .and_then(|found| found.files.first_mut())
        {
            file.gap(lost);
        }
        self.release(content, out);
        true
    }

    /// Adds bytes at or before the end of what was inspected.
    fn append(&self, content: &mut Content, offset: u64, bytes: &[u8], out: &mut Transactions) {
        let is_again = offset < content.next;
        content.next = content.next.max(offset.saturating_add(bytes.len() as u64));
        let Some(transaction) = out.by_id(content.transaction) else {
            return;
        };
        if is_again && let Some(overlap) = self.overlap {
            transaction.raise(overlap);
        }
        transaction.append(content.buffer, bytes, self.settings.attachment_limit);
        if let Some(file) = transaction.files.first_mut() {
            // Hashes would be those of other bytes.
            if is_again {
                file.gap(0);
            }
            file.update(bytes);
        }
    }
}

/// Begins the transaction of one direction of a file.
fn begin(
    app: AppProtocol,
    name: &[u8],
    direction: Direction,
    settings: &AppSettings,
    out: &mut Transactions,
) -> Content {
    let transaction = out.start(app);
    transaction.advance(direction.reverse(), Progress::Complete);
    // In mode `ips` the bytes are inspected before they are forwarded, and not only at the end of the file.
    transaction.advance(direction, Progress::Body);
    if !name.is_empty() {
        transaction.publish(Buffer::FileName, direction, name);
    }
    let buffer = transaction.open(Buffer::FileData, None, direction, 0);
    transaction.files.push(settings.file(direction, name));
    Content {
        transaction: transaction.id,
        buffer,
        next: 0,
        size: None,
        held: VecDeque::new(),
    }
}
