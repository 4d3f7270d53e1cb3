//! Files that clients fetch over HTTP in ranges (RFC 9110, section 14), joined to whole files for detection.
//!
//! ```text
//!  Content-Range ─▶ RangePart of the transaction ── bytes ──▶ RangedFiles: files by client, host and URI
//!                        ▲                                          │
//!                        └── file.data: the bytes next to the range, and the whole file once it is complete
//! ```
//!
//! Ranges may come in any order, more than once, and over several connections. Bytes that differ from those that a file has at
//! their place, or another size of the file, begin the file again. The bytes of a range are inspected as the body of their response,
//! too; what is joined adds only the places where two ranges meet, and the file as a whole.

mod beside;
mod file;
mod part;
mod parts;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};

use millrace_ips_rules::buffers::Buffer;
use millrace_types::{Duration, Time};

use super::AppSettings;
use super::transaction::{Transaction, Transactions};
use crate::flow::{Direction, FlowKey};
use crate::hash::Seed;
use beside::BESIDE;
use file::RangedFile;
pub(in crate::app) use part::{ContentRange, RangePart};
pub(crate) use parts::RangeParts;

/// Time without bytes after which a file is forgotten: that of Suricata's documentation for its setting `byterange`.
const IDLE: Duration = Duration::from_secs(60);

/// The files of a lane whose ranges are joined.
#[derive(Debug)]
pub(crate) struct RangedFiles {
    seed: Seed,
    /// Files by a keyed hash of client, host and URI.
    list: HashMap<u64, RangedFile, Seed>,
    /// The files by the number of their last use.
    order: BTreeMap<u64, u64>,
    /// Number of the next use.
    next: u64,
    /// Memory of all files in bytes, and its limit.
    size: usize,
    limit: usize,
}

impl RangedFiles {
    /// Returns a table without files. `limit` is the memory of all files in bytes: the one that was used longest ago is
    /// forgotten for another.
    pub(crate) fn new(limit: usize, seed: Seed) -> RangedFiles {
        RangedFiles {
            seed,
            list: HashMap::with_hasher(seed),
            order: BTreeMap::new(),
            next: 0,
            size: 0,
            limit,
        }
    }

    /// Returns the memory of all files in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Forgets all files.
    pub(crate) fn clear(&mut self) {
        self.list = HashMap::with_hasher(self.seed);
        self.order = BTreeMap::new();
        self.size = 0;
    }

    /// Joins the new bytes of a flow's ranges to their files, and adds what is known beside them to their transactions.
    pub(crate) fn join(
        &mut self,
        key: &FlowKey,
        settings: &AppSettings,
        transactions: &mut Transactions,
        now: Time,
    ) {
        self.forget_idle(now);
        for transaction in &mut transactions.list {
            // Another reading of a message is no other range.
            if transaction.is_reading || !transaction.range.as_ref().is_some_and(|parts| parts.has_news()) {
                continue;
            }
            // Without its request, nothing tells the file of a range.
            if let (Some(id), Some(mut parts)) = (self.id(key, transaction), transaction.range.take()) {
                transaction.touch();
                let RangeParts { list, placed } = &mut *parts;
                for part in list.iter_mut().filter(|part| part.has_news()) {
                    self.join_part(id, (part, placed), settings, transaction, now);
                }
                transaction.range = Some(parts);
            }
        }
    }

    /// Notes which files rules store.
    pub(crate) fn note_stored(&mut self, of_flow: bool, transactions: &Transactions) {
        for transaction in &transactions.list {
            let parts = transaction.range.as_ref();
            let file = parts.and_then(|parts| parts.list.iter().find_map(|part| part.file));
            if (of_flow || transaction.stores[SIDE.index()])
                && let Some(file) = file.and_then(|id| self.list.get_mut(&id))
            {
                file.is_stored = true;
            }
        }
    }

    /// Returns the number of the file of a transaction; `None` if its request was not seen. A request without host is one to the
    /// server's address.
    fn id(&self, key: &FlowKey, transaction: &Transaction) -> Option<u64> {
        let of = |buffer| transaction.buffer(buffer, Direction::ToServer);
        let uri = of(Buffer::HttpUri)?;
        let mut hasher = self.seed.build_hasher();
        (key.client, key.vlans, key.tunnel_depth, uri).hash(&mut hasher);
        match of(Buffer::HttpHost) {
            Some(host) => host.hash(&mut hasher),
            None => key.server.hash(&mut hasher),
        }
        Some(hasher.finish())
    }

    fn join_part(
        &mut self,
        id: u64,
        (part, placed): (&mut RangePart, &mut Vec<(usize, u64)>),
        settings: &AppSettings,
        transaction: &mut Transaction,
        now: Time,
    ) {
        let begins = |part: &RangePart| RangedFile::new(settings.file(SIDE, &part.name), part.limit, now);
        let is_end = part.is_at_end();
        let file = self.list.entry(id).or_insert_with(|| begins(part));
        let begin = part.next;
        let before = match begin == part.start {
            true => file.before(begin),
            false => Vec::new(),
        };
        let (offset, bytes) = part.take_fresh();
        if file.differs(offset, &bytes, part.total) {
            let known = core::mem::replace(file, begins(part));
            (file.used, file.charged) = (known.used, known.charged);
        }
        file.add(offset, &bytes, part.total);
        file.last = now;
        part.file = Some(id);
        if !before.is_empty() && !bytes.is_empty() {
            let index = transaction.open(Buffer::FileData, None, SIDE, 0);
            placed.push((index, begin - before.len() as u64));
            part.begin = Some((index, before.len() + BESIDE));
            transaction.append(index, &before, before.len());
        }
        if let Some((index, limit)) = part.begin {
            transaction.append(index, &bytes, limit);
        }
        if is_end && !core::mem::replace(&mut part.has_ended, true) {
            let behind = file.behind(part.next);
            end((part, placed), &behind, transaction);
            file.join();
        }
        let is_complete = file.is_complete();
        self.charge(id);
        if is_complete && let Some(file) = self.remove(id) {
            let is_stored = file.is_stored;
            let (mut file, head) = file.finish();
            (file.is_joined, file.is_wanted) = (true, is_stored);
            transaction.publish(Buffer::FileData, SIDE, head);
            transaction.files.push(file);
        }
    }

    /// Charges the memory of a file that was used, and forgets those that were used longest ago while there is too much.
    fn charge(&mut self, id: u64) {
        let Some(file) = self.list.get_mut(&id) else {
            return;
        };
        if let Some(used) = file.used.replace(self.next) {
            self.order.remove(&used);
        }
        self.order.insert(self.next, id);
        self.next += 1;
        let memory = file.memory();
        self.size = self.size - file.charged + memory;
        file.charged = memory;
        while self.size > self.limit
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            self.remove(*oldest);
        }
    }

    fn forget_idle(&mut self, now: Time) {
        while let Some((_, id)) = self.order.first_key_value() {
            let is_idle = |file: &RangedFile| now.since(file.last) > IDLE;
            if !self.list.get(id).is_none_or(is_idle) {
                return;
            }
            self.remove(*id);
        }
    }

    fn remove(&mut self, id: u64) -> Option<RangedFile> {
        let file = self.list.remove(&id)?;
        if let Some(used) = file.used {
            self.order.remove(&used);
        }
        self.size -= file.charged;
        Some(file)
    }
}

/// The direction of responses.
const SIDE: Direction = Direction::ToClient;

/// Adds the bytes behind a range to its transaction.
fn end(
    (part, placed): (&mut RangePart, &mut Vec<(usize, u64)>),
    behind: &[u8],
    transaction: &mut Transaction,
) {
    let begin = part.begin.take();
    if !behind.is_empty() {
        let size = part.next - part.start;
        match begin {
            // The buffer around the begin has the whole range.
            Some((index, _)) if size <= BESIDE as u64 => {
                transaction.append(index, behind, usize::MAX);
            }
            _ => {
                let index = transaction.open(Buffer::FileData, None, SIDE, 0);
                placed.push((index, part.next - part.tail.len() as u64));
                transaction.append(index, &[&part.tail, behind].concat(), usize::MAX);
                transaction.close(index);
            }
        }
    }
    if let Some((index, _)) = begin {
        transaction.close(index);
    }
    part.tail = Vec::new();
}

#[cfg(test)]
mod tests;
