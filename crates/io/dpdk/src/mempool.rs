//! Pools of packet buffers.
//!
//! A pool lives as long as the process: freeing it is safe only when no driver and no core's cache holds any
//! of its buffers. A switch makes one pool for each NUMA node at its start. [`Mempool`] is therefore a cheap,
//! copyable handle.

use std::ffi::{CString, c_int};
use std::fmt;
use std::ptr::NonNull;

use millrace_dpdk_sys as sys;

use crate::{Eal, Errno};

/// Size of the headroom of a received packet in bytes, for tags and tunnel headers.
pub const HEADROOM: u16 = sys::SHIM_MBUF_HEADROOM as u16;

/// Size in bytes of the data room of a buffer. It holds a 1,500-byte packet with tags and tunnel headers;
/// longer packets are chained. Most drivers expect this size.
pub const DATA_ROOM: u16 = 2048 + HEADROOM;

/// The longest name of a pool or ring, in bytes. A memory zone of a pool is named `MP_NAME_NUMBER`, which has at most
/// 31 bytes (`RTE_MEMZONE_NAMESIZE`), so this leaves three digits for the number. DPDK itself accepts 25 bytes for a
/// pool (`RTE_MEMPOOL_NAMESIZE`) and 28 for a ring (`RTE_RING_NAMESIZE`).
pub const NAME_LEN_MAX: usize = 24;

/// The parameters of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MempoolConfig {
    /// Unique in the process; 1 to [`NAME_LEN_MAX`] bytes of ASCII letters, digits, `_`, `-` and `.`.
    pub name: String,
    /// The number of buffers; one less than a power of two uses the memory best.
    pub buffers: u32,
    /// The number of buffers in the cache of each lcore, which avoids access to the shared free buffers: at most 512,
    /// and at most two thirds of `buffers`. Zero for no cache.
    pub cache_len: u16,
    /// Size of the data room of each buffer in bytes, [`HEADROOM`] included: 128 to 65,535. The usual size is
    /// [`DATA_ROOM`].
    pub data_room: u16,
    /// The NUMA node of the memory; `None` for the nearest.
    pub socket: Option<u16>,
}

impl MempoolConfig {
    /// Returns the usual pool: caches of 256, buffers of [`DATA_ROOM`].
    #[must_use]
    pub fn new(name: &str, buffers: u32) -> Self {
        Self {
            name: name.to_owned(),
            buffers,
            cache_len: 256,
            data_room: DATA_ROOM,
            socket: None,
        }
    }

    /// Returns an estimate of the pool's memory in bytes. The lcore caches, about 1 MiB, are not included.
    #[must_use]
    pub fn memory_size(&self) -> u64 {
        // An object header and the mbuf take 192 bytes. A pointer to a free buffer takes 8 bytes in a stack, and up
        // to 16 in a ring, whose size is a power of two.
        u64::from(self.buffers) * (u64::from(self.data_room) + 192 + 16)
    }
}

/// The error of [`Mempool::new`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MempoolError {
    /// The name is not 1 to [`NAME_LEN_MAX`] plain ASCII characters.
    #[error(
        "{0:?} cannot name a mempool. To fix it: 1 to {max} ASCII letters, digits, '_', '-' or '.'",
        max = NAME_LEN_MAX
    )]
    Name(String),
    /// Another pool has this name.
    #[error("a mempool named {0:?} exists. To fix it: give this one another name")]
    Exists(String),
    /// A parameter is out of range.
    #[error(
        "mempool {name:?}: {buffers} buffers, caches of {cache_len}, {data_room} bytes of data room are not possible. \
         To fix it: at least one buffer, caches of at most 512 and of two thirds of the buffers, data room of 128 or more"
    )]
    Sizes {
        /// The pool's name.
        name: String,
        /// The requested number of buffers.
        buffers: u32,
        /// The requested number of buffers in each cache.
        cache_len: u16,
        /// The requested data room in bytes.
        data_room: u16,
    },
    /// EAL's memory is too small for the pool.
    #[error(
        "no memory for mempool {name:?}: it takes about {} MiB. To fix it: give EAL more memory (memory), or fewer \
         buffers", .size >> 20
    )]
    Memory {
        /// The pool's name.
        name: String,
        /// The approximate size of the pool in bytes.
        size: u64,
    },
    /// Any other failure.
    #[error("mempool {name:?}: {errno}")]
    Other {
        /// The pool's name.
        name: String,
        /// The error that DPDK returned.
        errno: Errno,
    },
}

/// A pool of packet buffers; lives as long as the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mempool {
    raw: NonNull<sys::rte_mempool>,
}

// SAFETY: a mempool supports concurrent use by many threads (a locked stack or an MPMC ring, and caches by lcore),
// and is never freed.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

impl Mempool {
    /// Returns the pool behind a pointer.
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
        let cached = u32::from(config.cache_len);
        let caches_fit =
            cached <= sys::SHIM_MEMPOOL_CACHE_MAX && u64::from(cached) * 3 <= u64::from(config.buffers) * 2;
        if config.buffers == 0 || !caches_fit || config.data_room < HEADROOM {
            let MempoolConfig {
                buffers,
                cache_len,
                data_room,
                ..
            } = *config;
            return Err(MempoolError::Sizes {
                name: named(),
                buffers,
                cache_len,
                data_room,
            });
        }
        let socket = config.socket.map_or(-1, c_int::from);
        // SAFETY: the token proves that EAL is up; the name ends with a zero byte and is copied.
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

    /// Returns the number of buffers that the pool was made with.
    #[must_use]
    pub fn size(&self) -> u32 {
        // SAFETY: the pool lives as long as the process.
        unsafe { sys::shim_mempool_size(self.raw.as_ptr()) }
    }

    /// Returns the number of free buffers, in the pool and in the lcore caches. The number is exact only while no
    /// thread uses the pool. The function reads a value of each lcore, so a worker's loop should not call it.
    #[must_use]
    pub fn available(&self) -> u32 {
        // SAFETY: the pool lives as long as the process.
        unsafe { sys::rte_mempool_avail_count(self.raw.as_ptr()) }
    }

    /// Returns the number of buffers that packets, drivers or rings hold; as exact as [`Self::available`].
    #[must_use]
    pub fn in_use(&self) -> u32 {
        // SAFETY: the pool lives as long as the process.
        unsafe { sys::rte_mempool_in_use_count(self.raw.as_ptr()) }
    }

    /// Returns the size of a segment's data room after the headroom, in bytes.
    #[must_use]
    pub fn segment_size(&self) -> usize {
        // SAFETY: the pool lives as long as the process, and was made as one of packets.
        let room = unsafe { sys::shim_mempool_data_room(self.raw.as_ptr()) };
        usize::from(room.saturating_sub(HEADROOM))
    }

    /// Returns true if the pool's memory is contiguous, as `net_af_xdp` requires.
    pub(crate) fn is_contiguous(&self) -> bool {
        // SAFETY: the pool lives as long as the process.
        unsafe { sys::shim_mempool_chunks(self.raw.as_ptr()) == 1 }
    }

    /// Returns DPDK's pointer to the pool.
    #[inline]
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

/// Returns true if a pool or ring may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(plain)
}
