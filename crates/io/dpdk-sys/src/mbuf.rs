//! The fields of `struct rte_mbuf`, read and written in Rust so that they inline.
//!
//! The offsets come from the headers of the DPDK that this crate is built against (shim.h), and shim.c
//! asserts the widths. If a release moves a field, the build uses the new offset. If a release changes the
//! width of a field, the build fails.
//!
//! Every function here has the same contract, which its `# Safety` section states. The pointer is to an
//! initialised mbuf that the caller owns (or, for reading, keeps alive), and no other thread writes to the
//! mbuf at the same time.

use crate::bindings as b;
use crate::bindings::{rte_mbuf, rte_mempool};

macro_rules! field {
    ($(#[$doc:meta])* $get:ident: $type:ty = $offset:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// `m` is a live mbuf that no other thread writes to at the same time.
        #[inline(always)]
        #[must_use]
        pub unsafe fn $get(m: *const rte_mbuf) -> $type {
            // SAFETY: the offset is inside the mbuf, by shim.h; the caller keeps it alive.
            let field = unsafe { m.byte_add(b::$offset as usize) };
            // SAFETY: a field of the structure is at this offset, aligned, and shim.c asserts its width; the
            // caller excludes writers.
            unsafe { field.cast::<$type>().read() }
        }
    };
    ($(#[$doc:meta])* $get:ident, $set:ident: $type:ty = $offset:ident) => {
        field! { $(#[$doc])* $get: $type = $offset }

        /// Writes the field that the function without `set_` reads.
        ///
        /// # Safety
        /// `m` is a live mbuf that only the caller uses, and the value keeps it consistent: lengths and
        /// offsets stay inside the buffer, and the packet length is the sum of the segment lengths.
        #[inline(always)]
        pub unsafe fn $set(m: *mut rte_mbuf, value: $type) {
            // SAFETY: the offset is inside the mbuf, by shim.h; the caller keeps it alive.
            let field = unsafe { m.byte_add(b::$offset as usize) };
            // SAFETY: a field of the structure is at this offset, aligned, and shim.c asserts its width; the
            // caller owns the mbuf.
            unsafe { field.cast::<$type>().write(value) };
        }
    };
}

field! {
    /// The address of the segment's buffer.
    buf_addr: *mut u8 = SHIM_MBUF_BUF_ADDR
}
field! {
    /// Offset in bytes from the start of the buffer to the packet's first byte.
    data_off, set_data_off: u16 = SHIM_MBUF_DATA_OFF
}
field! {
    /// The number of owners of the segment.
    refcnt: u16 = SHIM_MBUF_REFCNT
}
field! {
    /// The number of segments of the packet; valid in the first one.
    nb_segs: u16 = SHIM_MBUF_NB_SEGS
}
field! {
    /// The port that received the packet; valid in the first segment.
    port, set_port: u16 = SHIM_MBUF_PORT
}
field! {
    /// Offload flags, `RTE_MBUF_F_*`.
    ol_flags, set_ol_flags: u64 = SHIM_MBUF_OL_FLAGS
}
field! {
    /// Size of the whole packet in bytes; valid in the first segment.
    pkt_len, set_pkt_len: u32 = SHIM_MBUF_PKT_LEN
}
field! {
    /// Size of the data in this segment in bytes.
    data_len, set_data_len: u16 = SHIM_MBUF_DATA_LEN
}
field! {
    /// The VLAN tag that the device stripped; valid if the offload flags say so.
    vlan_tci: u16 = SHIM_MBUF_VLAN_TCI
}
field! {
    /// The RSS hash; valid if the offload flags say so.
    rss: u32 = SHIM_MBUF_RSS
}
field! {
    /// The mark of a flow rule; valid if the offload flags say so.
    mark: u32 = SHIM_MBUF_FDIR_MARK
}
field! {
    /// Size of the segment's buffer in bytes, with headroom and tailroom.
    buf_len: u16 = SHIM_MBUF_BUF_LEN
}
field! {
    /// The pool that the segment returns to.
    pool: *mut rte_mempool = SHIM_MBUF_POOL
}
field! {
    /// Transmit offload fields, packed; among them the segment size of a GSO packet (`tso_segsz`).
    tx_offload: u64 = SHIM_MBUF_TX_OFFLOAD
}
field! {
    /// The next segment, or null.
    next: *mut rte_mbuf = SHIM_MBUF_NEXT
}
