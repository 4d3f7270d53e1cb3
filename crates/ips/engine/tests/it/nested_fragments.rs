//! IPv6 fragments that are reassembled to another fragment.

use millrace_ips_engine::Mode;
use millrace_ips_engine::verdict::{DropReason, Verdict};

use crate::bed::{ATTACK, TestBed};

const FRAGMENT: u8 = 44;
const UDP: u8 = 17;
/// The packets that the engine counts for a frame: its own, and the maximum number of reassembled ones.
const PACKETS: u64 = 17;

/// Returns a fragment header (RFC 8200, section 4.5); `offset` is in bytes.
fn header(next: u8, offset: u16, more: bool, ident: u32) -> [u8; 8] {
    let [high, low] = (offset | u16::from(more)).to_be_bytes();
    let [i0, i1, i2, i3] = ident.to_be_bytes();
    [next, 0, high, low, i0, i1, i2, i3]
}

/// Returns an IPv6 packet that begins with a fragment header.
fn packet(header: [u8; 8], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 0, FRAGMENT, 64];
    bytes[4..6].copy_from_slice(&(data.len() as u16 + 8).to_be_bytes());
    bytes.extend_from_slice(&[0xfd; 32]);
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(data);
    bytes
}

/// Sends a frame with nested fragments. Checks that it counts as [`PACKETS`] packets, and is dropped in mode
/// `ips`.
fn is_refused(bed: &mut TestBed, mode: Mode, frame: Vec<u8>) {
    let before = *bed.engine.counters();
    let sent = bed.send(frame.clone());
    let after = bed.engine.counters();
    assert_eq!(after.packets - before.packets, PACKETS, "{mode:?}");
    assert_eq!(after.invalid - before.invalid, 1, "{mode:?}");
    let refused = Verdict::Drop(DropReason::Normalizer);
    assert_eq!(sent.verdict == refused, mode == Mode::Ips, "{mode:?}");
    assert_eq!(bed.send(frame).is_dropped(), mode == Mode::Ips, "{mode:?}");
}

#[test]
fn a_chain_of_atomic_fragment_headers_ends_at_a_limit() {
    let mut data = Vec::new();
    for _ in 0..1000 {
        data.extend_from_slice(&header(FRAGMENT, 0, false, 7));
    }
    data.extend_from_slice(&header(UDP, 0, true, 8));
    data.extend_from_slice(&[0; 64]);
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, ATTACK);
        let size = 1024;
        let count = data.len().div_ceil(size);
        let mut parts = data.chunks(size).enumerate().map(|(at, part)| {
            let header = header(FRAGMENT, (at * size) as u16, at + 1 < count, 1);
            packet(header, part)
        });
        let last = parts.next_back().unwrap();
        assert!(!bed.send_all(parts));
        is_refused(&mut bed, mode, last);
    }
}

#[test]
fn a_nest_of_fragments_whose_first_pieces_wait_ends_at_a_limit() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = TestBed::new(mode, ATTACK);
        for ident in 1..=1000 {
            let inner = header(FRAGMENT, 8, false, ident - 1);
            let first = packet(header(FRAGMENT, 0, true, ident), &inner);
            assert!(!bed.send(first).is_dropped());
        }
        is_refused(&mut bed, mode, packet(header(FRAGMENT, 8, false, 1000), &[0; 16]));
    }
}
