//! IPFIX messages with flow records (RFC 7011).
//!
//! Every message carries its templates, so that a collector can decode it even if others were lost. Times are absolute
//! milliseconds. The information elements of a record (RFC 7012, IANA): 8 or 27 source address, 12 or 28 destination address,
//! 7 and 11 ports, 4 protocol, 1 octetDeltaCount, 2 packetDeltaCount, 152 and 153 flowStartMilliseconds and
//! flowEndMilliseconds, 136 flowEndReason.

use core::net::IpAddr;

use millrace_nf::flow::FlowId;

const VERSION: u16 = 10;
const MESSAGE_HEADER: usize = 16;
const TEMPLATE_SET: u16 = 2;
const TEMPLATE_V4: u16 = 256;
const TEMPLATE_V6: u16 = 257;

/// The information elements after the two addresses, with their lengths.
const COMMON: [(u16, u16); 8] = [
    (7, 2),
    (11, 2),
    (4, 1),
    (1, 8),
    (2, 8),
    (152, 8),
    (153, 8),
    (136, 1),
];
const COMMON_SIZE: usize = 38;
/// Bytes of a record with IPv4 addresses, and of a record with IPv6 addresses.
const RECORD_SIZE: [usize; 2] = [8 + COMMON_SIZE, 32 + COMMON_SIZE];

/// The reason for the export of a flow (element 136, flowEndReason).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum EndReason {
    Idle = 1,
    Active = 2,
    LackOfResources = 5,
}

/// The counters of a flow since its last export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) id: FlowId,
    pub(crate) size: u64,
    pub(crate) packets: u64,
    /// Unix time in milliseconds.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) reason: EndReason,
}

/// Builds messages.
#[derive(Debug)]
pub(crate) struct Exporter {
    domain: u32,
    /// Data records sent so far, modulo 2^32.
    sequence: u32,
}

fn put16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn patch16(out: &mut [u8], at: usize, value: usize) {
    out[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

impl Exporter {
    pub(crate) fn new(domain: u32) -> Exporter {
        Exporter { domain, sequence: 0 }
    }

    /// Returns the size of the longest message with `records` records, in bytes.
    pub(crate) const fn size(records: usize) -> usize {
        MESSAGE_HEADER + 2 * (8 + 10 * 4) + records * (RECORD_SIZE[1] + 4)
    }

    /// Writes a message with these records to the empty `out`. `now` is the Unix time in milliseconds.
    pub(crate) fn message(&mut self, records: &[Record], now: u64, out: &mut Vec<u8>) {
        put16(out, VERSION);
        put16(out, 0);
        out.extend_from_slice(&((now / 1_000) as u32).to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.domain.to_be_bytes());
        templates(out);
        let mut open: Option<(u16, usize)> = None;
        for record in records {
            let is_v4 = matches!(record.id.source.ip(), IpAddr::V4(_));
            let template = if is_v4 { TEMPLATE_V4 } else { TEMPLATE_V6 };
            if open.is_none_or(|(held, _)| held != template) {
                close(out, open);
                open = Some((template, out.len()));
                put16(out, template);
                put16(out, 0);
            }
            data(record, is_v4, out);
        }
        close(out, open);
        let size = out.len();
        patch16(out, 2, size);
        self.sequence = self.sequence.wrapping_add(records.len() as u32);
    }
}

fn close(out: &mut [u8], set: Option<(u16, usize)>) {
    if let Some((_, at)) = set {
        let size = out.len() - at;
        patch16(out, at + 2, size);
    }
}

fn templates(out: &mut Vec<u8>) {
    let at = out.len();
    put16(out, TEMPLATE_SET);
    put16(out, 0);
    for (template, addresses) in [
        (TEMPLATE_V4, [(8, 4), (12, 4)]),
        (TEMPLATE_V6, [(27, 16), (28, 16)]),
    ] {
        put16(out, template);
        put16(out, (addresses.len() + COMMON.len()) as u16);
        for (element, size) in addresses.into_iter().chain(COMMON) {
            put16(out, element);
            put16(out, size);
        }
    }
    close(out, Some((TEMPLATE_SET, at)));
}

fn data(record: &Record, is_v4: bool, out: &mut Vec<u8>) {
    let FlowId {
        source,
        destination,
        proto,
    } = record.id;
    // An IPv4 address is the last four bytes of its IPv6 mapping.
    let from = if is_v4 { 12 } else { 0 };
    out.extend_from_slice(&source.address[from..]);
    out.extend_from_slice(&destination.address[from..]);
    put16(out, source.port);
    put16(out, destination.port);
    out.push(proto);
    for number in [record.size, record.packets, record.start, record.end] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.push(record.reason as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_nf::flow::Endpoint;

    #[test]
    fn a_message_has_the_layout_of_the_rfc() {
        let end = |last: u8, port| {
            let mut address = [0; 16];
            address[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, last]);
            Endpoint { address, port }
        };
        let four = Record {
            id: FlowId {
                source: end(1, 1000),
                destination: end(2, 80),
                proto: 6,
            },
            size: 5000,
            packets: 5,
            start: 1_700_000_000_000,
            end: 1_700_000_001_000,
            reason: EndReason::Idle,
        };
        let mut six = four;
        six.id.source.address = [0x20; 16];
        let mut exporter = Exporter::new(7);
        let mut out = Vec::new();
        exporter.message(&[four, four, six], 1_700_000_002_500, &mut out);
        assert_eq!(
            out[..16],
            [0, 10, 1, 22, 0x65, 0x53, 0xf1, 0x02, 0, 0, 0, 0, 0, 0, 0, 7]
        );
        assert_eq!(usize::from(u16::from_be_bytes([out[2], out[3]])), out.len());
        let sets = sets(&out[16..]);
        assert_eq!(sets, [(2, 88), (256, 92), (257, 70)]);
        let first = &out[16 + 92 + 4..];
        assert_eq!(first[..13], [10, 0, 0, 1, 10, 0, 0, 2, 3, 232, 0, 80, 6]);
        assert_eq!(first[13..21], 5000_u64.to_be_bytes());
        assert_eq!(first[45], 1);
        out.clear();
        exporter.message(&[], 0, &mut out);
        assert_eq!(out[8..12], [0, 0, 0, 3], "records before this message");
        assert!(out.len() <= Exporter::size(0));
    }

    /// Returns the identifiers of the sets, and the sizes of their contents.
    fn sets(mut bytes: &[u8]) -> Vec<(u16, usize)> {
        let mut sets = Vec::new();
        while let [a, b, c, d, ..] = *bytes {
            let size = usize::from(u16::from_be_bytes([c, d]));
            sets.push((u16::from_be_bytes([a, b]), size - 4));
            bytes = &bytes[size..];
        }
        sets
    }
}
