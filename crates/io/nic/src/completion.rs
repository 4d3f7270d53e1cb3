//! The completion of a received frame or of a fence in a queue, 32 bytes.

use crate::bits::{BitField, field};

/// Size of a completion in bytes.
pub const SIZE: usize = 32;

/// The fields of a completion.
pub const FIELDS: [BitField; 16] = [
    field(
        "mark",
        0,
        32,
        "Mark of the entry that matches; of a fence, its number.",
    ),
    field("hash", 32, 32, "Bits 63 to 32 of the flow hash."),
    field(
        "buffer",
        64,
        16,
        "Number of the buffer with the frame; of a fence, 0.",
    ),
    field(
        "length",
        80,
        16,
        "Length of the frame in bytes, without FCS; of a fence, 0.",
    ),
    field(
        "bucket",
        96,
        16,
        "Bucket of the frame, 0 to 1,023: the upper 10 bits of the hash.",
    ),
    field("flags", 112, 16, "FLAG_*."),
    field(
        "generation",
        128,
        32,
        "Number of table changes (modulo 2^32) that took effect before the frame was classified; of a fence, before the fence, its own COMMIT included.",
    ),
    field(
        "l3",
        160,
        8,
        "Offset of the IP, ARP, MPLS or PBB header of the OpenFlow view, in units of 2 bytes; 0 without one.",
    ),
    field(
        "l4",
        168,
        8,
        "Offset of the transport header of the OpenFlow view, in units of 2 bytes; 0 without one.",
    ),
    field(
        "inner_l3",
        176,
        8,
        "Offset of the innermost IP header, in units of 2 bytes; 0 without one.",
    ),
    field(
        "inner_l4",
        184,
        8,
        "Offset of the innermost header with ports, in units of 2 bytes; 0 without one.",
    ),
    field("kind", 192, 8, "KIND_* of the OpenFlow view."),
    field(
        "tags",
        200,
        8,
        "Number of VLAN tags that the parser passed, at all depths.",
    ),
    field(
        "labels",
        208,
        8,
        "Number of label stack entries that the parser passed, at all depths.",
    ),
    field("class", 216, 8, "Class of the entry that matches, 0 to 15."),
    field(
        "time",
        224,
        32,
        "Time of reception in ns, modulo 2^32; of the device's clock.",
    ),
];

/// Bits of the field `flags`.
pub mod flag {
    /// Toggles at each pass through the ring.
    pub const PHASE: u16 = 1 << 0;
    /// The completion is a fence.
    pub const FENCE: u16 = 1 << 1;
    /// The field `mark` is valid.
    pub const MARK: u16 = 1 << 2;
    /// The fields `hash` and `bucket` are valid.
    pub const HASH: u16 = 1 << 3;
    /// The parser came to the last header that it knows.
    pub const COMPLETE: u16 = 1 << 4;
    /// The checksum of the IPv4 header of the OpenFlow view is right.
    pub const IP_CHECKSUM: u16 = 1 << 5;
    /// The checksum of the transport header is right; this version never sets it.
    pub const L4_CHECKSUM: u16 = 1 << 6;
    /// The frame ends before the IP packet of the OpenFlow view does.
    pub const TRUNCATED: u16 = 1 << 7;
    /// The frame is damaged; this version drops such frames, and never sets the flag.
    pub const ERROR: u16 = 1 << 8;

    /// All flags with their names.
    pub const ALL: [(&str, u16, &str); 9] = [
        (
            "FLAG_PHASE",
            PHASE,
            "Toggles at each pass through the ring; 1 in the first pass.",
        ),
        ("FLAG_FENCE", FENCE, "The completion is a fence."),
        ("FLAG_MARK", MARK, "The field mark is valid."),
        ("FLAG_HASH", HASH, "The fields hash and bucket are valid."),
        (
            "FLAG_COMPLETE",
            COMPLETE,
            "The parser came to the last header that it knows.",
        ),
        (
            "FLAG_IP_CHECKSUM",
            IP_CHECKSUM,
            "The checksum of the IPv4 header of the OpenFlow view is right.",
        ),
        (
            "FLAG_L4_CHECKSUM",
            L4_CHECKSUM,
            "The checksum of the transport header is right; version 1 never sets it.",
        ),
        (
            "FLAG_TRUNCATED",
            TRUNCATED,
            "The frame ends before the IP packet of the OpenFlow view does; no exact entry matches.",
        ),
        (
            "FLAG_ERROR",
            ERROR,
            "The frame is damaged; version 1 drops such frames and never sets it.",
        ),
    ];
}

/// Bits of the field `kind`.
pub mod kind {
    /// A valid IPv4 header.
    pub const V4: u8 = 1 << 0;
    /// A valid IPv6 header.
    pub const V6: u8 = 1 << 1;
    /// A valid ARP packet.
    pub const ARP: u8 = 1 << 2;
    /// A label stack entry.
    pub const MPLS: u8 = 1 << 3;
    /// A PBB tag.
    pub const PBB: u8 = 1 << 4;
    /// A first fragment.
    pub const FIRST: u8 = 1 << 5;
    /// A later fragment.
    pub const LATER: u8 = 1 << 6;

    /// All bits with their names.
    pub const ALL: [(&str, u8, &str); 7] = [
        ("KIND_V4", V4, "A valid IPv4 header."),
        ("KIND_V6", V6, "A valid IPv6 header."),
        ("KIND_ARP", ARP, "A valid ARP packet for IPv4 over Ethernet."),
        ("KIND_MPLS", MPLS, "A label stack entry."),
        ("KIND_PBB", PBB, "A PBB tag."),
        ("KIND_FIRST", FIRST, "A first fragment."),
        ("KIND_LATER", LATER, "A later fragment."),
    ];
}

/// A completion. All fields are as in [`FIELDS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "FIELDS documents each field")]
pub struct Completion {
    pub mark: u32,
    pub hash: u32,
    pub buffer: u16,
    pub length: u16,
    pub bucket: u16,
    pub flags: u16,
    pub generation: u32,
    pub l3: u8,
    pub l4: u8,
    pub inner_l3: u8,
    pub inner_l4: u8,
    pub kind: u8,
    pub tags: u8,
    pub labels: u8,
    pub class: u8,
    pub time: u32,
}

impl Completion {
    /// Returns the completion of a fence.
    #[must_use]
    pub fn fence(number: u32, generation: u32) -> Completion {
        Completion {
            mark: number,
            flags: flag::FENCE,
            generation,
            ..Completion::default()
        }
    }

    /// Returns true if a flag is set.
    #[must_use]
    #[inline]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns the completion that is in `bytes`. Every value is possible; users check `buffer`, `length` and `bucket`.
    #[must_use]
    #[inline]
    pub fn from_bytes(bytes: &[u8; SIZE]) -> Completion {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Completion {
            mark: word(0),
            hash: word(4),
            buffer: half(8),
            length: half(10),
            bucket: half(12),
            flags: half(14),
            generation: word(16),
            l3: bytes[20],
            l4: bytes[21],
            inner_l3: bytes[22],
            inner_l4: bytes[23],
            kind: bytes[24],
            tags: bytes[25],
            labels: bytes[26],
            class: bytes[27],
            time: word(28),
        }
    }

    /// Returns the bytes of the completion.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&self.mark.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.hash.to_le_bytes());
        let halves = [self.buffer, self.length, self.bucket, self.flags];
        for (to, half) in bytes[8..16].as_chunks_mut::<2>().0.iter_mut().zip(halves) {
            *to = half.to_le_bytes();
        }
        bytes[16..20].copy_from_slice(&self.generation.to_le_bytes());
        bytes[20..28].copy_from_slice(&[
            self.l3,
            self.l4,
            self.inner_l3,
            self.inner_l4,
            self.kind,
            self.tags,
            self.labels,
            self.class,
        ]);
        bytes[28..].copy_from_slice(&self.time.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_completion_is_its_bytes_and_each_field_is_where_the_table_says(bytes: [u8; SIZE]) {
            let completion = Completion::from_bytes(&bytes);
            prop_assert_eq!(completion.to_bytes(), bytes);
            let value = |name: &str| FIELDS.iter().find(|field| field.name == name).map(|field| field.read(&bytes));
            prop_assert_eq!(value("mark"), Some(completion.mark.into()));
            prop_assert_eq!(value("length"), Some(completion.length.into()));
            prop_assert_eq!(value("flags"), Some(completion.flags.into()));
            prop_assert_eq!(value("inner_l4"), Some(completion.inner_l4.into()));
            prop_assert_eq!(value("class"), Some(completion.class.into()));
            prop_assert_eq!(value("time"), Some(completion.time.into()));
        }
    }
}
