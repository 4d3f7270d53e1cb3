//! Pools of packet buffers.
//!
//! A pool lives as long as the process: freeing one is safe only when no buffer of it is anywhere, not even in a
//! driver or in another core's cache, and a switch makes one for each NUMA node when it starts. So [`Mempool`] is a
//! name for it, cheap to copy.

use std::ffi::{CString, c_int};
use std::fmt;
use std::ptr::NonNull;

use arrayvec::ArrayVec;
use millrace_dpdk_sys as sys;

use crate::{Eal, Errno, Mbuf, burst};

/// Bytes kept free in front of a received packet, for tags and tunnel headers.
pub const HEADROOM: u16 = sys::SHIM_MBUF_HEADROOM as u16;

/// The room for data of a buffer that holds an untagged 1,500-byte packet, tags and tunnels included; longer packets
/// are chained. It is what most drivers expect.
pub const DATA_ROOM: u16 = 2048 + HEADROOM;

/// What a pool is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MempoolConfig {
    /// Unique in the process; 1 to 24 bytes of ASCII letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// How many buffers. Memory is best used with one less than a power of two.
    pub buffers: u32,
    /// Buffers kept for each lcore so that it seldom touches the pool's ring: at most 512, at most two thirds of
    /// `buffers`. Zero for none.
    pub cache: u16,
    /// Bytes of each buffer, [`HEADROOM`] included: 128 to 65,535. [`DATA_ROOM`] unless one segment must hold more.
    pub data_room: u16,
    /// The NUMA node that holds it; the nearest where `None`.
    pub socket: Option<u16>,
}

impl MempoolConfig {
    /// The usual pool: caches of 256, buffers of [`DATA_ROOM`].
    #[must_use]
    pub fn new(name: &str, buffers: u32) -> Self {
        Self {
            name: name.to_owned(),
            buffers,
            cache: 256,
            data_room: DATA_ROOM,
            socket: None,
        }
    }

    /// The memory it takes, in bytes, close to a tenth.
    #[must_use]
    pub fn memory_size(&self) -> u64 {
        // The object: its header and the mbuf take 192 bytes; a pointer in the pool's ring another 8, doubled as the
        // ring's size is a power of two.
        u64::from(self.buffers) * (u64::from(self.data_room) + 192 + 16)
    }
}

/// Why a pool cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MempoolError {
    /// The name is not 1 to 24 plain ASCII characters.
    #[error("{0:?} cannot name a mempool. Remedy: 1 to 24 ASCII letters, digits, '_', '-' or '.'")]
    Name(String),
    /// Another pool has the name.
    #[error("a mempool named {0:?} exists. Remedy: give this one another name")]
    Exists(String),
    /// A number is out of its range.
    #[error(
        "mempool {name:?}: {buffers} buffers, caches of {cache}, {data_room} bytes of data room are not possible. \
         Remedy: at least one buffer, caches of at most 512 and of two thirds of the buffers, data room of 128 or more"
    )]
    Sizes {
        /// The pool's name.
        name: String,
        /// As asked for.
        buffers: u32,
        /// As asked for.
        cache: u16,
        /// As asked for.
        data_room: u16,
    },
    /// EAL's memory does not hold it.
    #[error(
        "no memory for mempool {name:?}: it takes about {} MiB. Remedy: give EAL more memory (memory), or fewer \
         buffers", .size >> 20
    )]
    Memory {
        /// The pool's name.
        name: String,
        /// About how many bytes it takes.
        size: u64,
    },
    /// Anything else.
    #[error("mempool {name:?}: {errno}")]
    Other {
        /// The pool's name.
        name: String,
        /// What DPDK said.
        errno: Errno,
    },
}

/// A pool of packet buffers; lives as long as the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mempool {
    raw: NonNull<sys::rte_mempool>,
}

// SAFETY: a mempool is made for use by many threads at once (MPMC ring, caches by lcore), and is never freed.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

impl Mempool {
    /// The pool behind a pointer.
    ///
    /// # Safety
    /// `raw` is a pool of packet buffers that lives as long as the process.
    #[inline]
    pub(crate) const unsafe fn from_raw(raw: NonNull<sys::rte_mempool>) -> Self {
        Self { raw }
    }

    /// Makes a pool.
    ///
    /// # Errors
    /// [`MempoolError`]
    pub fn new(_eal: Eal, config: &MempoolConfig) -> Result<Self, MempoolError> {
        let named = || config.name.clone();
        if !is_name(&config.name) {
            return Err(MempoolError::Name(named()));
        }
        let name = CString::new(config.name.as_str()).map_err(|_| MempoolError::Name(named()))?;
        let cached = u32::from(config.cache);
        let caches_fit =
            cached <= sys::SHIM_MEMPOOL_CACHE_MAX && u64::from(cached) * 3 <= u64::from(config.buffers) * 2;
        if config.buffers == 0 || !caches_fit || config.data_room < HEADROOM {
            let MempoolConfig {
                buffers,
                cache,
                data_room,
                ..
            } = *config;
            return Err(MempoolError::Sizes {
                name: named(),
                buffers,
                cache,
                data_room,
            });
        }
        let socket = config.socket.map_or(-1, c_int::from);
        // SAFETY: EAL is up, says the token; the name ends with a zero byte and is copied.
        let raw =
            unsafe { sys::shim_pool_create(name.as_ptr(), config.buffers, cached, config.data_room, socket) };
        NonNull::new(raw).map(|raw| Self { raw }).ok_or_else(|| {
            let errno = Errno::last();
            if errno.is(nix::errno::Errno::EEXIST) {
                MempoolError::Exists(named())
            } else if errno.is(nix::errno::Errno::ENOMEM) {
                MempoolError::Memory {
                    name: named(),
                    size: config.memory_size(),
                }
            } else {
                MempoolError::Other { name: named(), errno }
            }
        })
    }

    /// How many buffers it was made with.
    #[must_use]
    pub fn size(&self) -> u32 {
        // SAFETY: the pool lives as long as the process.
        unsafe { sys::shim_mempool_size(self.raw.as_ptr()) }
    }

    /// Buffers that are in the pool or in a core's cache. Exact only while nobody uses the pool. Cost: one read for
    /// each lcore; not for a worker's loop.
    #[must_use]
    pub fn available(&self) -> u32 {
        // SAFETY: the pool lives as long as the process.
        unsafe { sys::rte_mempool_avail_count(self.raw.as_ptr()) }
    }

    /// Buffers that packets, drivers or rings hold. As exact as [`Self::available`].
    #[must_use]
    pub fn in_use(&self) -> u32 {
        // SAFETY: the pool lives as long as the process.
        unsafe { sys::rte_mempool_in_use_count(self.raw.as_ptr()) }
    }

    /// Bytes that one segment holds behind the headroom.
    #[must_use]
    pub fn segment_size(&self) -> usize {
        // SAFETY: the pool lives as long as the process, and was made as one of packets.
        let room = unsafe { sys::shim_mempool_data_room(self.raw.as_ptr()) };
        usize::from(room.saturating_sub(HEADROOM))
    }

    /// Whether its memory is in one piece, as `net_af_xdp` needs it.
    pub(crate) fn is_in_one_piece(&self) -> bool {
        // SAFETY: the pool lives as long as the process.
        unsafe { sys::shim_mempool_chunks(self.raw.as_ptr()) == 1 }
    }

    /// An empty packet with all the headroom; `None` when the pool is empty.
    #[inline]
    #[must_use]
    pub fn alloc(&self) -> Option<Mbuf> {
        // SAFETY: the pool lives as long as the process.
        let raw = unsafe { sys::shim_alloc(self.raw.as_ptr()) };
        // SAFETY: the pool gave the buffer to us alone, initialised, with reference count 1.
        NonNull::new(raw).map(|raw| unsafe { Mbuf::from_raw(raw) })
    }

    /// A packet with these bytes, in as many segments as they need; `None` when the pool has too few buffers.
    #[must_use]
    pub fn packet(&self, bytes: &[u8]) -> Option<Mbuf> {
        let mut pieces = bytes.chunks(self.segment_size().max(1));
        let mut packet = self.alloc()?;
        let first = pieces.next().unwrap_or_default();
        packet.append(first.len())?.copy_from_slice(first);
        for piece in pieces {
            let mut segment = self.alloc()?;
            segment.append(piece.len())?.copy_from_slice(piece);
            packet.chain(segment).ok()?;
        }
        Some(packet)
    }

    /// Fills the rest of `burst` with empty packets: all of them, or none where the pool has too few. Returns how many
    /// it added.
    #[inline]
    pub fn alloc_burst<const N: usize>(&self, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        self.alloc_some(N, burst)
    }

    /// Adds at most `len` empty packets to `burst`: as many as there is room for, or none where the pool has too few.
    /// Returns how many it added.
    #[inline]
    pub fn alloc_some<const N: usize>(&self, len: usize, burst: &mut ArrayVec<Mbuf, N>) -> usize {
        let alloc = |first, room: u16| {
            let len = len.min(usize::from(room));
            // SAFETY: the pool lives as long as the process, and there is room for that many pointers.
            let code = unsafe { sys::shim_alloc_bulk(self.raw.as_ptr(), first, len as u32) };
            if code == 0 { len } else { 0 }
        };
        // SAFETY: the pool gives initialised buffers to us alone: all that were asked for, or none.
        unsafe { burst::fill(burst, alloc) }
    }

    /// The pool as DPDK names it.
    #[must_use]
    pub fn as_raw(&self) -> *mut sys::rte_mempool {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for Mempool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mempool")
            .field("size", &self.size())
            .field("available", &self.available())
            .finish()
    }
}

/// Whether DPDK can name a pool or ring so: it puts a prefix of three in front and ends within 32 bytes, and the pool's
/// own ring takes another prefix.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=24).contains(&name.len()) && name.bytes().all(plain)
}
