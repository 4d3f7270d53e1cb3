//! Left-right copies: the control side changes the tables while workers read them, without a lock, and no
//! reader ever waits. One copy is read while the other is written; then the two are swapped.
//!
//! ```text
//!                  active = 0                       active = 1
//!   readers ---> copy 0      copy 1 <--- writer     copy 0 <--- writer      copy 1 <--- readers
//!                            apply changes          catch_up: apply the same changes
//! ```
//!
//! # Guarantees
//! A [`Reader`] enters with two stores, a fence and a load, whatever the writer does: it is wait-free. It sees one of
//! the two copies, complete, until its guard is dropped. [`Writer::publish`] returns when every reader that could have
//! seen the previous state has left it, so that a barrier reply that follows is truthful. The changes are applied to
//! the other copy afterwards ([`Writer::catch_up`]), when nobody waits any more.
//!
//! # Argument
//! Each reader owns a sequence number, which is odd while the reader is inside. To enter, the reader stores the odd
//! number, then (after a sequentially consistent fence) loads the index of the active copy. To publish, the writer
//! stores the index of the active copy, then (after such a fence) loads the sequence numbers. At least one of the two
//! loads sees the other side's store: either the reader reads the new copy, or the writer sees that the reader is
//! inside and waits until the number changes. After that nobody reads the old copy, and the writer may change it.
//!
//! Ramalhete and Correia, "Left-Right: A Concurrency Control Technique with Wait-Free Population Oblivious Reads"
//! (2015). Here readers are few and known, so each has its own cache line.
//!
//! Besides `spread/ring.rs` and `io/kernel.rs`, this is the only module of the crate with unsafe code.

#![allow(unsafe_code)]

#[cfg(not(loom))]
use core::cell::UnsafeCell;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::Arc;

use crossbeam_utils::CachePadded;

/// Maximum number of readers that one [`Writer`] can have at a time: every worker that DPDK could have (128 lcores).
pub const READERS_MAX: usize = if cfg!(loom) { 2 } else { 128 };

/// A structure with two copies, which are kept equal by applying the same changes to both.
pub trait Replica {
    /// The type of a change, which [`Self::apply`] applies to each copy.
    type Change;

    /// Applies one of several changes. Must be deterministic: two copies that were equal are equal afterwards.
    fn apply(&mut self, change: &Self::Change);

    /// Completes a batch of changes, before readers see the copy.
    fn settle(&mut self) {}
}

#[cfg(loom)]
struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(loom)]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    fn get(&self) -> *mut T {
        self.0.get()
    }
}

struct Slot {
    /// Odd while the reader is inside.
    sequence: AtomicU64,
    claimed: AtomicBool,
}

struct Shared<T> {
    copies: [CachePadded<UnsafeCell<T>>; 2],
    active: CachePadded<AtomicUsize>,
    slots: Box<[CachePadded<Slot>]>,
}

// SAFETY: `copies[active]` is only read, by readers inside a guard; the other is only accessed by the one `Writer`,
// after it has seen every reader leave (see the argument above). A `Shared` may therefore be used from several threads
// if `T` may be sent to other threads (the writer's) and shared with them (the readers').
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: as above; no field is tied to a thread.
unsafe impl<T: Send + Sync> Send for Shared<T> {}

/// The writing end. Not `Clone`: there is a single writer.
pub struct Writer<T: Replica> {
    shared: Arc<Shared<T>>,
    /// Index of the copy that nobody reads.
    idle: usize,
    /// Changes that were applied to the active copy and not to the idle one.
    behind: Vec<T::Change>,
}

/// Capacity for changes that is kept for later changes.
const CHANGES_KEPT: usize = 4096;

impl<T: Replica> Writer<T> {
    /// Returns a writer of two copies. The caller guarantees that the copies are equal; memory safety does not depend
    /// on this.
    pub fn new(one: T, two: T) -> Writer<T> {
        let slot = || {
            CachePadded::new(Slot {
                sequence: AtomicU64::new(0),
                claimed: AtomicBool::new(false),
            })
        };
        let shared = Shared {
            copies: [one, two].map(|copy| CachePadded::new(UnsafeCell::new(copy))),
            active: CachePadded::new(AtomicUsize::new(0)),
            slots: (0..READERS_MAX).map(|_| slot()).collect(),
        };
        Writer {
            shared: Arc::new(shared),
            idle: 1,
            behind: Vec::new(),
        }
    }

    /// Returns a new reader, or `None` if there are [`READERS_MAX`] already.
    pub fn reader(&self) -> Option<Reader<T>> {
        let free = |slot: &CachePadded<Slot>| {
            slot.claimed
                .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let slot = self.shared.slots.iter().position(free)?;
        let sequence = self.shared.slots[slot].sequence.load(Ordering::Relaxed);
        // The number is odd only if the previous reader leaked its guard: nobody is inside.
        let sequence = sequence.next_multiple_of(2);
        Some(Reader {
            shared: Arc::clone(&self.shared),
            slot,
            sequence,
        })
    }

    /// Makes `changes` visible, all at once, and returns when no reader sees the previous state. `changes` is empty
    /// afterwards. The copy that was read until now gets them at the next [`Writer::catch_up`].
    ///
    /// Waits for readers that are inside at this moment: for the time of a burst, some microseconds, unless the
    /// reader's thread is not running.
    pub fn publish(&mut self, changes: &mut Vec<T::Change>) {
        if changes.is_empty() {
            return;
        }
        self.catch_up();
        self.apply_to_idle(changes);
        let old = 1 - self.idle;
        self.shared.active.store(self.idle, Ordering::Release);
        fence(Ordering::SeqCst);
        for slot in self
            .shared
            .slots
            .iter()
            .filter(|slot| slot.claimed.load(Ordering::Acquire))
        {
            wait_until_left(&slot.sequence);
        }
        self.idle = old;
        core::mem::swap(&mut self.behind, changes);
    }

    /// Makes the copies equal, and drops the published changes. A caller that publishes and then replies to somebody
    /// calls this after the reply.
    pub fn catch_up(&mut self) {
        let mut behind = core::mem::take(&mut self.behind);
        self.apply_to_idle(&behind);
        behind.clear();
        behind.shrink_to(CHANGES_KEPT);
        self.behind = behind;
    }

    /// Returns the copy that readers see. The borrow of the writer prevents a publication meanwhile.
    pub fn read(&self) -> &T {
        let active = self.shared.copies[1 - self.idle].get();
        // SAFETY: the active copy is never written, and stays active while `self` is borrowed, because `publish` needs
        // `&mut self`.
        unsafe { &*active }
    }

    fn apply_to_idle(&mut self, changes: &[T::Change]) {
        let idle = self.shared.copies[self.idle].get();
        // SAFETY: no reader is in the idle copy: at the start there was none; later, `publish` waited until all readers
        // had left the copy before it set `self.idle`. There is one writer, borrowed mutably.
        let idle = unsafe { &mut *idle };
        for change in changes {
            idle.apply(change);
        }
        idle.settle();
    }
}

fn wait_until_left(sequence: &AtomicU64) {
    let seen = sequence.load(Ordering::Acquire);
    if seen.is_multiple_of(2) {
        return;
    }
    let mut tries = 0u32;
    while sequence.load(Ordering::Acquire) == seen {
        tries = tries.saturating_add(1);
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        match tries {
            0..=64 => core::hint::spin_loop(),
            65..=256 => std::thread::yield_now(),
            // The reader's thread has been preempted: yield the core to it.
            _ => std::thread::sleep(core::time::Duration::from_micros(20)),
        }
    }
}

/// A reading end, for one thread at a time.
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    slot: usize,
    sequence: u64,
}

impl<T> Reader<T> {
    /// Enters a read section. The value behind the guard does not change until the guard is dropped. Drop the
    /// guard soon, because the writer waits for it.
    #[inline]
    pub fn enter(&mut self) -> Guard<'_, T> {
        self.sequence += 1;
        let slot = &self.shared.slots[self.slot].sequence;
        // Release is needed: a writer that waited for the previous guard may see this number first, and must then also
        // see the reads of that guard as done.
        slot.store(self.sequence, Ordering::Release);
        fence(Ordering::SeqCst);
        let active = self.shared.active.load(Ordering::Acquire);
        let copy = self.shared.copies[active].get();
        self.sequence += 1;
        // SAFETY: the writer does not access this copy until it has seen our sequence number change, which happens
        // when the guard, which borrows `self`, is dropped.
        let value = unsafe { &*copy };
        Guard {
            value,
            slot,
            leave: self.sequence,
        }
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.shared.slots[self.slot]
            .claimed
            .store(false, Ordering::Release);
    }
}

/// A reader inside a copy. The reader leaves when the guard is dropped.
pub struct Guard<'a, T> {
    value: &'a T,
    slot: &'a AtomicU64,
    leave: u64,
}

impl<T> core::ops::Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.store(self.leave, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Two numbers that every change keeps equal.
    #[derive(Default)]
    struct Pair(u64, u64);

    impl Replica for Pair {
        type Change = u64;

        fn apply(&mut self, change: &u64) {
            self.0 += change;
            self.1 += change;
        }
    }

    #[test]
    fn a_change_is_seen_after_publish_and_not_before() {
        let mut writer = Writer::new(Pair::default(), Pair::default());
        let mut reader = writer.reader().unwrap();
        assert_eq!(reader.enter().0, 0);
        writer.publish(&mut vec![1, 2]);
        assert_eq!((reader.enter().0, writer.read().1), (3, 3));
        writer.publish(&mut vec![4]);
        assert_eq!(reader.enter().0, 7, "the second copy got the first change, too");
    }

    #[test]
    fn a_dropped_reader_gives_its_slot_back() {
        let writer = Writer::new(Pair::default(), Pair::default());
        let readers: Vec<_> = (0..READERS_MAX).map(|_| writer.reader().unwrap()).collect();
        assert!(writer.reader().is_none());
        drop(readers);
        assert!(writer.reader().is_some());
    }

    #[test]
    fn readers_on_other_threads_never_see_half_a_change() {
        let mut writer = Writer::new(Pair::default(), Pair::default());
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut reader = writer.reader().unwrap();
                scope.spawn(move || {
                    let mut last = 0;
                    while last < rounds {
                        let seen = reader.enter();
                        assert_eq!(seen.0, seen.1);
                        assert!(seen.0 >= last, "time went backwards");
                        last = seen.0;
                        drop(seen);
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..rounds {
                writer.publish(&mut vec![1]);
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    /// Detects readers that are inside while it is written: loom explores the interleavings.
    struct Watched(loom::cell::UnsafeCell<u64>);

    // SAFETY: loom's cell checks each access; the test shows that no two conflict.
    unsafe impl Sync for Watched {}

    impl Replica for Watched {
        type Change = ();

        fn apply(&mut self, (): &()) {
            // SAFETY: loom reports an access that conflicts with this one.
            self.0.with_mut(|value| unsafe { *value += 1 });
        }
    }

    #[test]
    fn no_interleaving_lets_a_reader_see_a_copy_that_is_written() {
        loom::model(|| {
            let cell = || Watched(loom::cell::UnsafeCell::new(0));
            let mut writer = Writer::new(cell(), cell());
            let mut reader = writer.reader().unwrap();
            let thread = loom::thread::spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let guard = reader.enter();
                    // SAFETY: loom reports an access that conflicts with this one.
                    let seen = guard.0.with(|value| unsafe { *value });
                    assert!(seen >= last);
                    last = seen;
                }
            });
            for _ in 0..2 {
                writer.publish(&mut vec![()]);
            }
            thread.join().unwrap();
        });
    }
}
