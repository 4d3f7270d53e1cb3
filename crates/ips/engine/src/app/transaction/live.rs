//! The transactions of a flow that are kept, within limits on their number and their size.

use std::collections::VecDeque;

use super::counted::Counted;
use super::{AppEvent, EVENTS_PER_TRANSACTION, Progress, Transaction};
use crate::app::AppProtocol;
use crate::app::heap::{Heap, heap};
use crate::flow::Direction;

/// Number of buffers of an HTTP transaction for which memory is allocated at once: the buffers of a usual
/// request and its response.
const HTTP_BUFFERS: usize = 28;
/// Size of the text of those buffers, in bytes.
const HTTP_TEXT: usize = 2048;

/// Largest number of transactions of a flow that are kept at a time. More are kept while the oldest is not inspected.
pub const LIVE_TRANSACTIONS: usize = 512;
/// Number of uninspected transactions at which parsing pauses until they are inspected.
const NEW_TRANSACTIONS: usize = 256;
/// Size in bytes of the slices in which a chunk is parsed. The list of transactions has room for the messages of a
/// slice, and a usual segment is one slice.
pub(in crate::app) const SLICE: usize = 2048;
/// Number of transactions for which room is reserved for a slice: a message is at least two bytes long.
const SLICE_TRANSACTIONS: usize = SLICE / 2;
/// Largest size in bytes of the buffers of a flow's transactions when another one begins: 16 MiB. Requests without answers
/// would otherwise keep up to 1 MiB each.
pub const LIVE_SIZE: usize = 16 << 20;
/// Number of transactions of a flow from which their size is counted and limited.
const SIZED: usize = 8;

/// The transactions of a flow that are not finished, or not inspected to their end.
#[derive(Debug, Default)]
pub struct Transactions {
    /// The transactions in the order of their numbers.
    pub list: VecDeque<Transaction>,
    /// Anomalies of the flow that belong to no transaction.
    pub events: Vec<AppEvent>,
    /// Number of the next transaction.
    next: u64,
    /// Number of transactions that were removed before they were complete, because a limit was reached.
    pub evicted: u64,
    /// Number of the first transaction that no limit has removed: smaller ones that are not in the list have ended, or were
    /// removed.
    evicted_to: u64,
    /// True once bytes escape inspection: a transaction with uninspected bytes was removed, bytes belong to a transaction that
    /// was removed, or a parser has no room for what decides how later bytes are read.
    pub(in crate::app) has_lost: bool,
    /// True once a stream of HTTP/2 has carried a message of DNS.
    pub(in crate::app) carries_dns: bool,
    /// True once a response carries a range of a file that is joined to others.
    pub(crate) has_ranges: bool,
    /// The [`Direction::index`] of the bytes that are being parsed.
    pub(in crate::app) side: usize,
    /// The size of all transactions, once there are at least [`SIZED`].
    sizes: Option<Box<Sizes>>,
}

/// The size of the buffers of all transactions.
#[derive(Debug, Default)]
struct Sizes {
    /// The size in bytes when it was computed last.
    sum: usize,
    /// Transactions that may have changed since then.
    changed: Vec<u64>,
    /// Number of transactions whose size was computed.
    #[cfg(test)]
    computed: u64,
}

heap!(Sizes { changed });

impl Sizes {
    /// Computes the size of a transaction again.
    fn update(&mut self, transaction: &mut Transaction) {
        let now = transaction.size();
        let counted = Counted {
            size: now,
            is_changed: false,
        };
        self.sum = self.sum + now - core::mem::replace(&mut transaction.counted, counted).size;
        #[cfg(test)]
        {
            self.computed += 1;
        }
    }
}

impl Transactions {
    /// Removes all transactions, and keeps the memory of their list.
    pub(in crate::app) fn reset(&mut self) {
        self.list.clear();
        self.events.clear();
        self.sizes = None;
        (self.next, self.evicted, self.evicted_to, self.has_lost) = (0, 0, 0, false);
        (self.carries_dns, self.has_ranges) = (false, false);
    }

    /// Frees all transactions.
    pub(in crate::app) fn free(&mut self) {
        self.list = VecDeque::new();
        self.sizes = None;
    }

    /// Returns the bytes that all transactions have allocated.
    pub(in crate::app) fn heap(&mut self) -> usize {
        let inner: usize = self.list.iter_mut().map(Transaction::heap).sum();
        let list = self.list.capacity() * size_of::<Transaction>();
        list + self.events.heap() + self.sizes.heap() + inner
    }

    /// Adds a transaction and returns it. The oldest are removed if there are too many, or if they are too large.
    pub(in crate::app) fn start(&mut self, app: AppProtocol) -> &mut Transaction {
        while self.list.len() >= LIVE_TRANSACTIONS && self.may_evict() {
            self.evict();
        }
        if self.list.len() < SIZED {
            self.sizes = None;
        }
        while self.list.len() >= SIZED && self.count_size() > LIVE_SIZE {
            self.evict();
        }
        if self.list.capacity() == 0 {
            // Most flows have one transaction at a time.
            self.list.reserve_exact(1);
        }
        let id = self.next;
        let mut transaction = Transaction::new(id, app);
        transaction.is_new[self.side] = true;
        if app == AppProtocol::Http {
            transaction.stored.reserve_exact(HTTP_BUFFERS);
            transaction.text.reserve_exact(HTTP_TEXT);
        }
        if let Some(sizes) = &mut self.sizes {
            transaction.counted.is_changed = true;
            sizes.changed.push(id);
        }
        self.list.push_back(transaction);
        self.next += 1;
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// Returns the number of transactions that began.
    pub(crate) fn begun(&self) -> u64 {
        self.next
    }

    /// Returns true if the oldest transaction may be removed: it is inspected, or the room for a slice is used up, too.
    fn may_evict(&self) -> bool {
        self.list.len() >= LIVE_TRANSACTIONS + SLICE_TRANSACTIONS || !self.list.front().is_some_and(is_new)
    }

    /// Removes the oldest transaction.
    fn evict(&mut self) {
        let Some(oldest) = self.list.pop_front() else {
            return;
        };
        self.has_lost |= is_new(&oldest);
        self.evicted_to = oldest.id + 1;
        if let Some(sizes) = &mut self.sizes {
            sizes.sum -= oldest.counted.size;
        }
        self.evicted += 1;
    }

    /// Returns true if parsing must pause for an inspection: [`NEW_TRANSACTIONS`] are not inspected, or some are not
    /// inspected and all together exceed half of [`LIVE_SIZE`].
    pub(in crate::app) fn is_full(&self) -> bool {
        let len = self.list.len();
        if len < SIZED {
            return false;
        }
        let is_large = || self.sizes.as_ref().is_some_and(|sizes| sizes.sum > LIVE_SIZE / 2);
        len >= NEW_TRANSACTIONS && is_new(&self.list[len - NEW_TRANSACTIONS])
            || is_large() && self.list.iter().any(is_new)
    }

    /// Removes the oldest transactions until at most [`LIVE_TRANSACTIONS`] are left.
    pub(in crate::app) fn trim(&mut self) {
        while self.list.len() > LIVE_TRANSACTIONS {
            self.evict();
        }
    }

    /// Marks all transactions as inspected in a direction.
    pub(in crate::app) fn set_inspected(&mut self, direction: Direction) {
        for transaction in &mut self.list {
            transaction.is_new[direction.index()] = false;
        }
    }

    /// Returns the size in bytes of all buffers. It computes only the sizes that may have changed since the
    /// last call.
    fn count_size(&mut self) -> usize {
        let list = &mut self.list;
        let sizes = self.sizes.get_or_insert_with(|| {
            let mut sizes = Box::<Sizes>::default();
            for transaction in list.iter_mut() {
                transaction.counted = Counted::default();
                sizes.update(transaction);
            }
            sizes
        });
        for id in core::mem::take(&mut sizes.changed) {
            if let Ok(index) = list.binary_search_by_key(&id, |transaction| transaction.id) {
                sizes.update(&mut list[index]);
            }
        }
        sizes.sum
    }

    /// Returns the transaction with a number, if it is still kept. The transaction then counts as changed, and as not
    /// inspected in the direction that is being parsed. If a limit has removed it, its bytes count as lost.
    pub(in crate::app) fn by_id(&mut self, id: u64) -> Option<&mut Transaction> {
        let Ok(index) = self.list.binary_search_by_key(&id, |transaction| transaction.id) else {
            self.has_lost |= id < self.evicted_to;
            return None;
        };
        let transaction = &mut self.list[index];
        transaction.touch();
        transaction.is_new[self.side] = true;
        if let Some(sizes) = &mut self.sizes
            && !core::mem::replace(&mut transaction.counted.is_changed, true)
        {
            sizes.changed.push(id);
        }
        Some(transaction)
    }

    /// Adds an anomaly of the flow, unless the list has it already or is full.
    pub(crate) fn raise(&mut self, event: AppEvent) {
        if self.events.len() < EVENTS_PER_TRANSACTION && !self.events.contains(&event) {
            self.events.push(event);
        }
    }

    /// Ends both directions of every transaction.
    pub(in crate::app) fn end(&mut self) {
        for transaction in &mut self.list {
            transaction.touch();
            for direction in [Direction::ToServer, Direction::ToClient] {
                transaction.close_direction(direction);
                transaction.advance(direction, Progress::Complete);
            }
        }
    }

    /// Removes the transactions that are complete and inspected. If none is left, it also frees the memory of
    /// the list, because most flows are idle until their timeout.
    pub(in crate::app) fn remove_finished(&mut self) {
        let len = self.list.len();
        let sizes = &mut self.sizes;
        self.list.retain(|transaction| {
            let is_over = transaction.is_complete() && transaction.is_inspected == [true; 2];
            if let Some(sizes) = sizes.as_mut().filter(|_| is_over) {
                sizes.sum -= transaction.counted.size;
            }
            !is_over
        });
        if self.list.is_empty() && len != 0 {
            self.free();
        }
    }

    /// Returns the size in bytes of all buffers.
    pub fn size(&self) -> usize {
        self.list.iter().map(Transaction::size).sum()
    }
}

/// Returns true if bytes of a transaction are not inspected.
fn is_new(transaction: &Transaction) -> bool {
    transaction.is_new != [false; 2]
}

#[cfg(test)]
mod tests {
    use millrace_ips_rules::buffers::Buffer;

    use super::*;

    #[test]
    fn transactions_that_are_never_answered_use_bounded_memory() {
        let mut out = Transactions::default();
        for _ in 0..100 {
            let transaction = out.start(AppProtocol::Dcerpc);
            transaction.publish(Buffer::DceStubData, Direction::ToServer, vec![0; 1 << 20]);
        }
        assert!(out.size() <= LIVE_SIZE + (1 << 20), "{}", out.size());
        assert_eq!(out.evicted, 100 - out.list.len() as u64);
        assert_eq!(out.list.back().unwrap().id, 99);
    }

    #[test]
    fn each_transaction_that_is_never_answered_costs_the_same_work() {
        let mut out = Transactions::default();
        for number in 0..100_000 {
            if number % 100 == 50 {
                out.set_inspected(Direction::ToServer);
            }
            let id = out.start(AppProtocol::Ftp).id;
            for _ in 0..3 {
                let transaction = out.by_id(id).unwrap();
                transaction.publish(Buffer::DceStubData, Direction::ToServer, vec![0; 100]);
            }
            if number % 1000 == 0 {
                let oldest = out.list[0].id;
                out.by_id(oldest)
                    .unwrap()
                    .publish(Buffer::DceStubData, Direction::ToClient, b"answer");
            }
        }
        assert_eq!(out.list.len(), LIVE_TRANSACTIONS);
        let computed = out.sizes.as_ref().unwrap().computed;
        assert!(computed < 2 * 100_000, "{computed}");
        assert_eq!(out.count_size(), out.size());
        out.list.iter_mut().step_by(2).for_each(|transaction| {
            transaction.progress = [Progress::Complete; 2];
            transaction.is_inspected = [true; 2];
        });
        out.remove_finished();
        assert_eq!(
            (out.list.len(), out.count_size()),
            (LIVE_TRANSACTIONS / 2, out.size())
        );
    }

    #[test]
    fn a_transaction_that_is_not_inspected_stays_while_there_is_room_for_a_slice() {
        let mut out = Transactions::default();
        let more = |out: &mut Transactions, count: usize| {
            for _ in 0..count {
                out.start(AppProtocol::Modbus);
            }
            (out.list.len(), out.list[0].id, out.is_full(), out.has_lost)
        };
        assert_eq!(
            more(&mut out, NEW_TRANSACTIONS - 1),
            (NEW_TRANSACTIONS - 1, 0, false, false)
        );
        let most = LIVE_TRANSACTIONS + SLICE_TRANSACTIONS;
        assert_eq!(
            more(&mut out, most - NEW_TRANSACTIONS + 1),
            (most, 0, true, false)
        );
        out.set_inspected(Direction::ToServer);
        assert!(!out.is_full());
        let oldest = (most - LIVE_TRANSACTIONS + 1) as u64;
        assert_eq!(more(&mut out, 1), (LIVE_TRANSACTIONS, oldest, false, false));
        more(&mut out, most);
        assert!(out.has_lost);
    }

    #[test]
    fn bytes_of_a_transaction_that_a_limit_has_removed_are_lost_and_those_of_one_that_ended_are_not() {
        let mut out = Transactions::default();
        let transaction = out.start(AppProtocol::Http);
        transaction.progress = [Progress::Complete; 2];
        transaction.is_inspected = [true; 2];
        out.remove_finished();
        assert!(out.by_id(0).is_none() && !out.has_lost);
        for _ in 0..=LIVE_TRANSACTIONS {
            out.start(AppProtocol::Http);
            out.set_inspected(Direction::ToServer);
        }
        assert_eq!((out.evicted, out.has_lost), (1, false));
        assert!(out.by_id(2).is_some() && !out.has_lost);
        assert!(out.by_id(1).is_none() && out.has_lost);
    }

    #[test]
    fn a_list_without_transactions_takes_no_memory_and_one_with_one_takes_that_of_one() {
        let mut out = Transactions::default();
        let transaction = out.start(AppProtocol::Dns);
        transaction.progress = [Progress::Complete; 2];
        transaction.is_inspected = [true; 2];
        assert_eq!(out.heap(), size_of::<Transaction>());
        out.remove_finished();
        assert_eq!((out.list.len(), out.heap()), (0, 0));
        assert_eq!(out.start(AppProtocol::Dns).id, 1);
    }
}
