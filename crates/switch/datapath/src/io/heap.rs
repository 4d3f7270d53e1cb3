//! A backend that needs neither DPDK nor root: packets are on the heap.

use std::sync::{Arc, OnceLock};

use millrace_wire::{Frame, FramePool};

use super::allocate::Empty;
use super::wan::Wans;
use super::{
    Backend, BufferCounts, DeviceOptions, DeviceSpec, MemoryPeer, OpenError, Opened, Registry, af_packet,
};

/// Number of buffers in the pool.
const FRAMES_LEN: usize = 8192;
/// Size of a buffer after its headroom in bytes: the longest frame, 9,600 bytes, and a few tags.
const FRAME_SIZE: usize = 9728;

/// Number of buffers in the pool of kernel interfaces; only buffers that were filled once take memory.
const LONG_FRAMES_LEN: usize = 1024;
/// Size of a buffer of this pool in bytes: a TCP packet of 64 KiB in one piece, with the headers in front of
/// it.
const LONG_FRAME_SIZE: usize = 65_535 + 128;

/// Opens memory, links, pcap files, taps, interfaces of the kernel and memifs.
pub struct HeapBackend {
    pool: FramePool,
    len: usize,
    /// The pool of kernel interfaces, created with the first interface.
    long: OnceLock<FramePool>,
    registry: Registry<Frame>,
}

impl HeapBackend {
    /// Returns a backend with a pool of its own.
    pub fn new() -> HeapBackend {
        HeapBackend::with_pool(FRAMES_LEN, FRAME_SIZE)
    }

    /// Returns a backend with a pool of `len` buffers, each for a frame of up to `frame_size` bytes.
    pub fn with_pool(len: usize, frame_size: usize) -> HeapBackend {
        let pool = FramePool::new(len, frame_size);
        let (allocate, empty) = (pool.clone(), pool.clone());
        HeapBackend {
            pool,
            len,
            long: OnceLock::new(),
            registry: Registry::new(
                move |bytes| allocate.take(bytes),
                move |len, burst| burst.extend((0..len).map_while(|_| empty.take(&[]))),
                false,
            ),
        }
    }

    /// Returns the far end of the memory device `name`, which need not be open yet.
    pub fn memory(&self, name: &str) -> MemoryPeer<Frame> {
        self.registry.memory(name)
    }
}

impl Default for HeapBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for HeapBackend {
    type Packet = Frame;
    type Registration = ();

    fn packet(&self, bytes: &[u8]) -> Option<Frame> {
        self.registry.packet(bytes)
    }

    fn wans(&self) -> &Arc<Wans> {
        self.registry.wans()
    }

    fn open(&self, spec: &DeviceSpec, options: DeviceOptions) -> Result<Opened<Frame>, OpenError> {
        if let DeviceSpec::Kernel(name) = spec {
            let pool = self
                .long
                .get_or_init(|| FramePool::new(LONG_FRAMES_LEN, LONG_FRAME_SIZE));
            let pool = pool.clone();
            let empty: Empty<Frame> =
                Arc::new(move |len, burst| burst.extend((0..len).map_while(|_| pool.take(&[]))));
            return af_packet::open(spec, name, options, &empty);
        }
        self.registry.open(spec, options).unwrap_or_else(|| {
            Err(OpenError::Unsupported {
                device: spec.to_string(),
                reason: "this needs DPDK, and the switch runs without it".to_owned(),
                next_step: "start millraced without --no-dpdk, or use a device that needs no DPDK: kernel, tap, vhost, memif, pcap, \
                         link or memory"
                    .to_owned(),
            })
        })
    }

    fn register_worker(&self) -> Result<(), String> {
        Ok(())
    }

    fn buffers(&self) -> Option<BufferCounts> {
        Some(BufferCounts {
            used: self.len - self.pool.free_len(),
            all: self.len,
        })
    }
}
