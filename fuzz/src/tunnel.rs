//! Outer headers of tunnels, and IP fragments.

use millrace_pipeline::{Assembled, Assembler, FragmentView};
use millrace_types::{Duration, PortNo, Time};
use millrace_wire::tunnel::{Outer, TunnelKind, entropy};
use millrace_wire::{Depth, Fragment, Frame, Layers, Packet, checksum, ethernet, nsh};

/// Parses any bytes as an encapsulated packet, in one and in two segments.
///
/// Properties: the payload lies within the frame; a header that is found in the whole frame, and lies in the first
/// segment, is found in two segments, too.
pub(crate) fn envelopes(bytes: &[u8]) {
    let ports: Vec<(u16, TunnelKind)> = TunnelKind::ALL
        .into_iter()
        .map(|kind| (kind.udp_port().unwrap_or(0), kind))
        .collect();
    let _ = entropy(bytes, bytes.len());
    let found = Outer::find(bytes, bytes.len(), &ports, |_| true);
    if let Some(Ok(outer)) = found {
        assert!(outer.size < bytes.len() && outer.end <= bytes.len());
        assert!(
            outer
                .checksum
                .is_none_or(|(begin, at)| begin <= at && at + 2 <= outer.size)
        );
        let cut = Outer::find(
            &bytes[..outer.size + 14.min(bytes.len() - outer.size)],
            bytes.len(),
            &ports,
            |_| true,
        );
        assert_eq!(cut, found);
        let _ = Frame::new(bytes).sum(outer.size, usize::MAX);
    }
    service_header(bytes);
    service_header(bytes.get(ethernet::SIZE..).unwrap_or_default());
}

/// Checks that a network service header lies within the bytes, and is encoded and parsed to the same values.
fn service_header(bytes: &[u8]) {
    let Ok(view) = nsh::View::new(bytes) else { return };
    assert_eq!(view.size() + view.payload().len(), bytes.len());
    let repr = nsh::Repr::parse(&view);
    let again = repr.to_bytes();
    let read = nsh::View::new(&again).map(|view| nsh::Repr::parse(&view));
    assert_eq!(read, Ok(repr));
}

/// Gives frames to an assembler: two bytes of size, one of time and port, and the frame, repeatedly.
///
/// Properties: it stays within its memory limit; a reassembled packet is an IP packet with a correct length and header
/// checksum, and no fragment.
pub(crate) fn fragments(bytes: &[u8]) {
    let mut assembler = Assembler::new();
    let (mut rest, mut now) = (bytes, Time::from_secs(1000));
    while let Some(([high, low, how], more)) = rest.split_first_chunk::<3>() {
        let size = usize::from(u16::from_be_bytes([*high, *low])).min(more.len());
        let (frame, after) = more.split_at(size);
        rest = after;
        now = now + Duration::from_secs(u64::from(how >> 2));
        let Some(Ok(fragment)) = FragmentView::find(frame, size) else {
            continue;
        };
        assembler.frame().extend_from_slice(frame);
        let source = (PortNo::from_raw(1 + u32::from(how >> 1 & 1)), u64::from(how & 1));
        if let Assembled::Whole(whole) = assembler.add(&fragment, source, now) {
            let layers = Layers::parse(whole, Depth::L3);
            assert_eq!(layers.fragment(), Fragment::Whole);
            let ip = &whole[layers.l3_offset()..];
            if ip[0] >> 4 == 4 {
                assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
                assert_eq!(checksum::internet(&ip[..usize::from(ip[0] & 0xf) * 4]), 0);
            } else {
                assert_eq!(40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])), ip.len());
            }
        }
        assert!(assembler.len() <= 512);
    }
}
