//! The memory that a device and its driver share: registers, rings and buffers in one file.
//!
//! ```text
//! 0       4096
//! +-------+-----------------+---------------------+-----------------------------------+---------+
//! | regi- | command ring,   | of each queue:      | of each queue:                    | ...     |
//! | sters | its completions | buffers, comple-    | receive buffers, transmit buffers |         |
//! |       |                 | tions, transmit     |                                   |         |
//! +-------+-----------------+---------------------+-----------------------------------+---------+
//! ```
//! The device creates the file and seals it. Each ring is a header of 128 bytes (the producer's index at byte 6, the consumer's
//! at byte 64, 16 bits each, counting modulo 2^16) and descriptors of 16 bytes ([`RingMemory`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use core::sync::atomic::Ordering;

use millrace_memif::region::{Buffer, Regions, RingMemory, UnsealedPolicy};

use crate::config::Capabilities;
use crate::register::{self, by_name};

/// Size of the header of a ring in bytes.
const RING_HEADER: u32 = 128;
/// Binary logarithm of the number of descriptors of the command ring: 64 commands of four descriptors each.
pub const COMMAND_RING_BITS: u8 = 8;
/// Number of commands that the ring holds.
pub const COMMANDS: u16 = 64;
/// Largest binary logarithm of the number of buffers of a queue.
pub const RING_BITS_MAX: u8 = 12;

/// The reason why memory is not that of a device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The file cannot be mapped.
    #[error("its memory file is refused: {0}")]
    File(String),
    /// The register ID has another value.
    #[error("its register ID is {0:#010x}, expected {id:#010x}: the socket is not that of a NIC", id = register::ID)]
    Id(u32),
    /// The major version is another.
    #[error("its interface has version {major}.{minor}, expected {expected}.x: update the older of the two programs", expected = register::VERSION >> 16)]
    Version {
        /// The major version.
        major: u16,
        /// The minor version.
        minor: u16,
    },
    /// A capability is out of its range, or the file is too short for them.
    #[error(
        "its registers describe a device that cannot exist, or that its memory of {size} bytes does not hold"
    )]
    Capabilities {
        /// Size of the file in bytes.
        size: u64,
    },
}

/// The sizes of the parts of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The sizes of the device.
    pub capabilities: Capabilities,
    /// Binary logarithm of the number of buffers of each queue and direction.
    pub ring_bits: u8,
    /// Size of a buffer in bytes, a multiple of 64.
    pub buffer_size: u32,
}

/// The place of a ring or of the buffers of a queue.
#[derive(Clone, Copy)]
struct Places {
    buffers: u32,
    completions: u32,
    transmit: u32,
    rx_data: u32,
    tx_data: u32,
}

const fn ring_size(bits: u8) -> u32 {
    RING_HEADER + (16 << bits)
}

impl Layout {
    /// Number of buffers of each queue and direction.
    #[must_use]
    pub fn ring_len(&self) -> u16 {
        1 << self.ring_bits
    }

    /// Returns the size of the memory in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        let queues = u64::from(self.capabilities.queues);
        u64::from(self.queues_at())
            + queues * (u64::from(self.rings_size()) + 2 * u64::from(self.data_size()))
    }

    fn is_valid(&self) -> bool {
        (4..=RING_BITS_MAX).contains(&self.ring_bits)
            && (64..=16_384).contains(&self.buffer_size)
            && self.buffer_size.is_multiple_of(64)
            && self.size() <= u64::from(u32::MAX)
    }

    fn queues_at(&self) -> u32 {
        register::WINDOW_SIZE as u32 + 2 * ring_size(COMMAND_RING_BITS)
    }

    fn rings_size(&self) -> u32 {
        2 * ring_size(self.ring_bits) + ring_size(self.ring_bits + 1)
    }

    fn data_size(&self) -> u32 {
        self.buffer_size << self.ring_bits
    }

    fn places(&self, queue: u8) -> Places {
        let (queue, queues) = (u32::from(queue), u32::from(self.capabilities.queues));
        let rings = self.queues_at() + queue * self.rings_size();
        let data = self.queues_at() + queues * self.rings_size() + 2 * queue * self.data_size();
        Places {
            buffers: rings,
            completions: rings + ring_size(self.ring_bits),
            transmit: rings + ring_size(self.ring_bits) + ring_size(self.ring_bits + 1),
            rx_data: data,
            tx_data: data + self.data_size(),
        }
    }
}

/// The mapped memory of a device.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(crate) regions: Arc<Regions>,
    layout: Layout,
}

#[derive(Debug)]
pub(crate) struct QueueRings {
    pub(crate) buffers: RingMemory,
    pub(crate) completions: RingMemory,
    pub(crate) transmit: RingMemory,
}

impl Memory {
    /// Creates the memory of a device, with its read-only registers, and the file that shares it.
    ///
    /// # Errors
    /// [`MemoryError`]
    pub fn create(layout: Layout) -> Result<(Memory, OwnedFd), MemoryError> {
        if !layout.is_valid() {
            return Err(MemoryError::Capabilities { size: layout.size() });
        }
        let (regions, file) =
            Regions::create(layout.size() as usize).map_err(|error| MemoryError::File(error.to_string()))?;
        let memory = Memory {
            regions: Arc::new(regions),
            layout,
        };
        let [queues, rows, ports, drops] = layout.capabilities.to_registers();
        for (name, value) in [
            ("ID", register::ID),
            ("VERSION", register::VERSION),
            ("CAP_QUEUES", queues),
            ("CAP_ROWS", rows),
            ("CAP_PORTS", ports),
            ("CAP_DROPS", drops),
            (
                "CAP_MEMORY",
                u32::from(layout.ring_bits) | (layout.buffer_size / 64) << 16,
            ),
        ] {
            memory.write_register(name, 0, value);
        }
        Ok((memory, file))
    }

    /// Maps the memory that a device shares. The registers are read once and checked.
    ///
    /// # Errors
    /// [`MemoryError`]
    pub fn open(file: OwnedFd) -> Result<Memory, MemoryError> {
        let failed = |error: &dyn core::fmt::Display| MemoryError::File(error.to_string());
        let found = millrace_shared_memory::MemoryFile::inspect(&file)
            .map_err(|error| MemoryError::File(format!("{error:?}")))?;
        let size = found.size;
        let regions =
            Regions::open([(size, file)], UnsealedPolicy::Reject).map_err(|error| failed(&error))?;
        let read = |name: &str| read_register(&regions, name, 0);
        let id = read("ID");
        if id != register::ID {
            return Err(MemoryError::Id(id));
        }
        let version = read("VERSION");
        let (major, minor) = ((version >> 16) as u16, version as u16);
        if u32::from(major) != register::VERSION >> 16 {
            return Err(MemoryError::Version { major, minor });
        }
        let capabilities =
            Capabilities::from_registers(["CAP_QUEUES", "CAP_ROWS", "CAP_PORTS", "CAP_DROPS"].map(read));
        let rings = read("CAP_MEMORY");
        let layout = capabilities.map(|capabilities| Layout {
            capabilities,
            ring_bits: rings as u8,
            buffer_size: (rings >> 16) * 64,
        });
        match layout.filter(|layout| layout.is_valid() && layout.size() <= size) {
            Some(layout) => Ok(Memory {
                regions: Arc::new(regions),
                layout,
            }),
            None => Err(MemoryError::Capabilities { size }),
        }
    }

    /// Returns the sizes of the memory.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the value of a register of an array, by its name; 0 if there is none.
    #[must_use]
    pub fn read_register(&self, name: &str, at: usize) -> u32 {
        read_register(&self.regions, name, at)
    }

    /// Writes a register of an array, by its name. Not atomic with other registers.
    pub fn write_register(&self, name: &str, at: usize, value: u32) {
        if let Some(register) = by_name(name).filter(|register| at < register.len) {
            self.write_at((register.offset + 4 * at) as u16, value);
        }
    }

    /// Returns the register at an offset; 0 outside of the window.
    #[must_use]
    pub fn read_at(&self, offset: u16) -> u32 {
        read_at(&self.regions, offset.into())
    }

    /// Writes the register at an offset.
    pub fn write_at(&self, offset: u16, value: u32) {
        if usize::from(offset) + 4 <= register::WINDOW_SIZE
            && let Ok(buffer) = self.regions.buffer(0, offset.into(), 4)
        {
            buffer.write(&value.to_le_bytes());
            core::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    fn ring(&self, offset: u32, bits: u8) -> Result<RingMemory, MemoryError> {
        let size = self.layout.size();
        self.regions
            .ring(0, offset, bits)
            .ok_or(MemoryError::Capabilities { size })
    }

    /// Returns the command ring and the ring of its completions.
    pub(crate) fn command_rings(&self) -> Result<[RingMemory; 2], MemoryError> {
        let first = register::WINDOW_SIZE as u32;
        Ok([
            self.ring(first, COMMAND_RING_BITS)?,
            self.ring(first + ring_size(COMMAND_RING_BITS), COMMAND_RING_BITS)?,
        ])
    }

    /// Returns the rings of a queue.
    pub(crate) fn queue_rings(&self, queue: u8) -> Result<QueueRings, MemoryError> {
        let places = self.layout.places(queue);
        Ok(QueueRings {
            buffers: self.ring(places.buffers, self.layout.ring_bits)?,
            completions: self.ring(places.completions, self.layout.ring_bits + 1)?,
            transmit: self.ring(places.transmit, self.layout.ring_bits)?,
        })
    }

    /// Returns the first `size` bytes of a receive buffer of a queue; `None` if there is none, or it is shorter.
    #[inline]
    #[must_use]
    pub fn rx_buffer(&self, queue: u8, buffer: u16, size: usize) -> Option<Buffer<'_>> {
        self.data(self.layout.places(queue).rx_data, buffer, size)
    }

    /// Returns the first `size` bytes of a transmit buffer of a queue, as [`Self::rx_buffer`].
    #[inline]
    #[must_use]
    pub fn tx_buffer(&self, queue: u8, buffer: u16, size: usize) -> Option<Buffer<'_>> {
        self.data(self.layout.places(queue).tx_data, buffer, size)
    }

    #[inline]
    fn data(&self, first: u32, buffer: u16, size: usize) -> Option<Buffer<'_>> {
        if buffer >= self.layout.ring_len() || size > self.layout.buffer_size as usize {
            return None;
        }
        let at = first + u32::from(buffer) * self.layout.buffer_size;
        self.regions.buffer(0, at, size as u32).ok()
    }
}

fn read_register(regions: &Regions, name: &str, at: usize) -> u32 {
    by_name(name)
        .filter(|register| at < register.len)
        .map_or(0, |register| read_at(regions, register.offset + 4 * at))
}

fn read_at(regions: &Regions, offset: usize) -> u32 {
    let mut bytes = [0; 4];
    if offset + 4 <= register::WINDOW_SIZE
        && let Ok(buffer) = regions.buffer(0, offset as u32, 4)
    {
        core::sync::atomic::fence(Ordering::SeqCst);
        buffer.read(&mut bytes);
    }
    u32::from_le_bytes(bytes)
}
