//! Lock-free rings that pass bursts of packets between threads.

use std::ffi::{CString, c_int};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use arrayvec::ArrayVec;
use millrace_dpdk_sys as sys;

use crate::mempool::{NAME_LEN_MAX, is_name};
use crate::{Eal, Errno, Mbuf, burst, free_burst};

/// The reason why a ring cannot be created.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// The name is not 1 to [`NAME_LEN_MAX`] plain ASCII characters.
    #[error(
        "{0:?} cannot name a ring. To fix it: 1 to {max} ASCII letters, digits, '_', '-' or '.'",
        max = NAME_LEN_MAX
    )]
    Name(String),
    /// Another ring has this name.
    #[error("a ring named {0:?} exists. To fix it: give this one another name")]
    Exists(String),
    /// The length is not valid.
    #[error(
        "ring {name:?} cannot have {len} slots. To fix it: a power of two, at most 2^30; one slot stays free"
    )]
    Len {
        /// The ring's name.
        name: String,
        /// The requested length.
        len: u32,
    },
    /// EAL's memory is too small for the ring.
    #[error(
        "no memory for ring {name:?} of {len} slots, {errno}. To fix it: give EAL more memory, or use a shorter ring"
    )]
    Memory {
        /// The ring's name.
        name: String,
        /// The requested length.
        len: u32,
        /// The error that DPDK returned.
        errno: Errno,
    },
}

/// The memory of a ring. Dropping it frees the packets that are still inside.
struct Shared {
    raw: NonNull<sys::rte_ring>,
}

// SAFETY: an `rte_ring` supports several threads; `Ring`, `Sender` and `Receiver` limit the threads at an
// end.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(name: &str, len: u32, flags: u32) -> Result<Self, RingError> {
        let text = CString::new(name)
            .ok()
            .filter(|_| is_name(name))
            .ok_or_else(|| RingError::Name(name.to_owned()))?;
        if !len.is_power_of_two() || len > 1 << 30 {
            return Err(RingError::Len {
                name: name.to_owned(),
                len,
            });
        }
        let anywhere: c_int = -1;
        // SAFETY: EAL is up, since the callers hold a token; the name is zero-terminated and copied.
        let raw = unsafe { sys::rte_ring_create(text.as_ptr(), len, anywhere, flags) };
        NonNull::new(raw).map(|raw| Self { raw }).ok_or_else(|| {
            let errno = Errno::last();
            if errno.is(nix::errno::Errno::EEXIST) {
                RingError::Exists(name.to_owned())
            } else {
                RingError::Memory {
                    name: name.to_owned(),
                    len,
                    errno,
                }
            }
        })
    }

    #[inline]
    fn send<const N: usize>(&self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        let enqueue = |first, len| {
            // SAFETY: the ring lives as long as self, and that many packets are in the burst.
            unsafe { sys::shim_ring_enqueue_burst(self.raw.as_ptr(), first, u32::from(len)) as usize }
        };
        // SAFETY: the ring owns the packets that `enqueue` counts: the first ones of the burst.
        unsafe { burst::take(burst, enqueue) }
    }

    #[inline]
    fn receive<const N: usize>(&self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        let dequeue = |first, room| {
            // SAFETY: the ring lives as long as self, and there is room for that many pointers.
            unsafe { sys::shim_ring_dequeue_burst(self.raw.as_ptr(), first, u32::from(room)) as usize }
        };
        // SAFETY: each pointer in the ring is an owned packet, since only `send` adds any.
        unsafe { burst::fill(burst, dequeue) }
    }

    fn len(&self) -> usize {
        // SAFETY: the ring lives as long as self.
        unsafe { sys::shim_ring_count(self.raw.as_ptr()) as usize }
    }

    fn capacity(&self) -> usize {
        // SAFETY: the ring lives as long as self.
        unsafe { sys::shim_ring_capacity(self.raw.as_ptr()) as usize }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut left = ArrayVec::<Mbuf, 64>::new();
        while self.receive(&mut left) > 0 {
            free_burst(&mut left);
        }
        // SAFETY: rte_ring_create made the ring; it is empty, and both its ends are dropped.
        unsafe { sys::rte_ring_free(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}

/// A ring with any number of threads at either end. Clones refer to the same ring.
#[derive(Clone, Debug)]
pub struct Ring {
    shared: Arc<Shared>,
}

impl Ring {
    /// Creates a ring of `len` slots, a power of two. The ring holds at most `len - 1` packets.
    ///
    /// # Errors
    /// [`RingError`]
    pub fn new(_eal: Eal, name: &str, len: u32) -> Result<Self, RingError> {
        Ok(Self {
            shared: Arc::new(Shared::new(name, len, 0)?),
        })
    }

    /// Moves packets from the front of `burst` into the ring, as many as fit, and returns their number.
    #[inline]
    pub fn send<const N: usize>(&self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        self.shared.send(burst)
    }

    /// Moves packets from the ring to the end of `burst`, as many as fit, and returns their number.
    #[inline]
    pub fn receive<const N: usize>(&self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        self.shared.receive(burst)
    }

    /// Returns the number of packets in the ring at the moment.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns true if the ring is empty at the moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the largest number of packets that the ring can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity()
    }
}

/// The sending end of a ring made by [`channel`].
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
}

/// The receiving end of a ring made by [`channel`].
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
}

/// Creates a ring for one sending and one receiving thread, which is cheaper than [`Ring`]. `len` is a power
/// of two, as for [`Ring::new`].
///
/// # Errors
/// [`RingError`]
pub fn channel(_eal: Eal, name: &str, len: u32) -> Result<(Sender, Receiver), RingError> {
    let shared = Arc::new(Shared::new(
        name,
        len,
        sys::SHIM_RING_SP_ENQ | sys::SHIM_RING_SC_DEQ,
    )?);
    Ok((
        Sender {
            shared: Arc::clone(&shared),
        },
        Receiver { shared },
    ))
}

impl Sender {
    /// Moves packets from the front of `burst` into the ring, as many as fit, and returns their number.
    #[inline]
    pub fn send<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        self.shared.send(burst)
    }

    /// Returns true if the receiver was dropped; packets sent from then on are freed with the ring.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }
}

impl Receiver {
    /// Moves packets from the ring to the end of `burst`, as many as fit, and returns their number.
    #[inline]
    pub fn receive<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        self.shared.receive(burst)
    }

    /// Returns the number of packets in the ring at the moment.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns true if the ring is empty at the moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
