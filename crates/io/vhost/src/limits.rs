//! Limits on the messages, the memory and the rings of a driver.

/// The largest number of regions, as in other back-ends (`VHOST_USER_GET_MAX_MEM_SLOTS`).
pub const REGIONS_MAX: usize = 32;

/// The largest number of regions in a memory table (`VHOST_MEMORY_BASELINE_NREGIONS` of the protocol).
pub const TABLE_MAX: usize = 8;
/// Size of the longest payload that is accepted, in bytes: a memory table of [`TABLE_MAX`] regions.
pub const PAYLOAD_MAX: usize = 8 + TABLE_MAX * REGION_SIZE;

/// Size of a region in a memory table, in bytes.
pub(crate) const REGION_SIZE: usize = 32;

/// The largest number of descriptors in a ring (virtio 1.2, sections 2.7 and 2.8.10.1).
pub const RING_MAX: u16 = 32_768;
/// The largest number of buffers in a chain.
pub const CHAIN_MAX: usize = 256;
