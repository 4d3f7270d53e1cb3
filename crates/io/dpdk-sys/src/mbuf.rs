//! The fields of `struct rte_mbuf`, read and written in Rust so that they inline.
//!
//! The offsets come from the headers of the DPDK that this crate is built against (shim.h), and the widths are
//! asserted in shim.c: a release that moves a field is followed, one that changes a field's width does not compile.
//!
//! Every function here has the same contract, its `# Safety`: the pointer is to an mbuf that the caller owns (or, to
//! read, at least keeps alive), initialised by DPDK, and nobody writes to it at the same time.

use crate::bindings as b;
use crate::bindings::{rte_mbuf, rte_mempool};

macro_rules! field {
    ($(#[$doc:meta])* $get:ident: $type:ty = $offset:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// `m` is a live mbuf that nobody writes to at the same time.
        #[inline(always)]
        #[must_use]
        pub unsafe fn $get(m: *const rte_mbuf) -> $type {
            // SAFETY: the offset is inside the mbuf, by shim.h; the caller keeps it alive.
            let field = unsafe { m.byte_add(b::$offset as usize) };
            // SAFETY: a field of this type lies there, aligned, by shim.c; the caller keeps writers out.
            unsafe { field.cast::<$type>().read() }
        }
    };
    ($(#[$doc:meta])* $get:ident, $set:ident: $type:ty = $offset:ident) => {
        field! { $(#[$doc])* $get: $type = $offset }

        /// Writes what the function without `set_` reads.
        ///
        /// # Safety
        /// `m` is a live mbuf that only the caller uses, and the value keeps it consistent: lengths and offsets stay
        /// inside the buffer, the packet length is the sum of the segments'.
        #[inline(always)]
        pub unsafe fn $set(m: *mut rte_mbuf, value: $type) {
            // SAFETY: the offset is inside the mbuf, by shim.h; the caller keeps it alive.
            let field = unsafe { m.byte_add(b::$offset as usize) };
            // SAFETY: a field of this type lies there, aligned, by shim.c; the caller owns the mbuf.
            unsafe { field.cast::<$type>().write(value) };
        }
    };
}

field! {
    /// Where the segment's buffer starts.
    buf_addr: *mut u8 = SHIM_MBUF_BUF_ADDR
}
field! {
    /// Bytes from the start of the buffer to the first byte of the packet.
    data_off, set_data_off: u16 = SHIM_MBUF_DATA_OFF
}
field! {
    /// How many owners the segment has.
    refcnt: u16 = SHIM_MBUF_REFCNT
}
field! {
    /// Segments of the packet; valid in the first one.
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
    /// Bytes of the whole packet; valid in the first segment.
    pkt_len, set_pkt_len: u32 = SHIM_MBUF_PKT_LEN
}
field! {
    /// Bytes in this segment.
    data_len, set_data_len: u16 = SHIM_MBUF_DATA_LEN
}
field! {
    /// The VLAN tag that the device took off, where the flags say so.
    vlan_tci: u16 = SHIM_MBUF_VLAN_TCI
}
field! {
    /// The receive-side-scaling hash, where the flags say so.
    rss: u32 = SHIM_MBUF_RSS
}
field! {
    /// The number that a rule of the device has put on the packet, where the flags say so.
    mark: u32 = SHIM_MBUF_FDIR_MARK
}
field! {
    /// Bytes of the segment's buffer, head and tail room included.
    buf_len: u16 = SHIM_MBUF_BUF_LEN
}
field! {
    /// The pool that the segment goes back to.
    pool: *mut rte_mempool = SHIM_MBUF_POOL
}
field! {
    /// What is to be done when the packet is sent, by bits: among them the data of a segment that it is cut into.
    tx_offload: u64 = SHIM_MBUF_TX_OFFLOAD
}
field! {
    /// The next segment, or null.
    next: *mut rte_mbuf = SHIM_MBUF_NEXT
}
