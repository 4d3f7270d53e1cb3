//! Invalid virtio-net headers in front of frames. Other hosts, through the kernel, or the kernel itself write them.

use millrace_wire::virtio_net::{Header, SHORT};
use millrace_wire::{Frame, Packet};
use proptest::prelude::*;

use crate::test_bed::{ACCEPTED, frame};

fn header(flags: u8, kind: u8, segment: u16, begin: u16, at: u16) -> Header {
    let mut bytes = [0; SHORT];
    (bytes[0], bytes[1]) = (flags, kind);
    bytes[4..6].copy_from_slice(&segment.to_le_bytes());
    bytes[6..8].copy_from_slice(&begin.to_le_bytes());
    bytes[8..10].copy_from_slice(&at.to_le_bytes());
    Header::from_bytes(bytes)
}

#[test]
fn a_packet_without_a_segment_size_or_of_another_kind_is_refused() {
    let (tcp, udp) = (frame(&[], 6, 1, &[7; 5000]), frame(&[], 17, 1, &[7; 5000]));
    let is_taken =
        |bytes: &[u8], kind, size| header(1, kind, size, 34, 16).finish(&mut Frame::new(bytes), &ACCEPTED);
    assert!(is_taken(&tcp, 1, 1448) && is_taken(&tcp, 0x81, 1448) && is_taken(&udp, 5, 1400));
    for (bytes, kind, size) in [
        (&tcp, 1, 0),
        (&tcp, 1, 47),
        (&tcp, 1, 1461),
        (&tcp, 4, 1448),
        (&tcp, 5, 1448),
        (&tcp, 3, 1448),
        (&tcp, 2, 1448),
        (&udp, 1, 1448),
        (&udp, 5, 0),
        (&udp, 5, 1473),
    ] {
        assert!(!is_taken(bytes, kind, size), "{kind} {size}");
    }
    assert!(
        !is_taken(&tcp[..tcp.len() - 1], 1, 1448),
        "a part of it is missing"
    );
    assert!(!is_taken(&[0; 60], 1, 1448));
}

#[test]
fn a_checksum_outside_of_the_frame_is_refused() {
    let bytes = frame(&[], 17, 1, &[7; 60]);
    let size = bytes.len() as u16;
    for (begin, at) in [
        (size, 0),
        (size - 1, 0),
        (34, size),
        (0xffff, 0xffff),
        (0xffff, 6),
        (34, 0xffff),
        (size, 8),
    ] {
        assert!(
            !header(1, 0, 0, begin, at).finish(&mut Frame::new(&bytes), &ACCEPTED),
            "{begin} {at}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_header_in_front_of_any_frame_makes_it_panic_or_changes_its_size(
        header: [u8; SHORT], shift in 0_u16..5, kind in 0_u8..8, is_tcp: bool, size in 0_usize..3000, head in 0_usize..100,
        cut in 0_usize..200,
    ) {
        let bytes = frame(&[], if is_tcp { 6 } else { 17 }, 1, &vec![3; size]);
        let bytes = &bytes[..bytes.len().saturating_sub(cut)];
        for kind in [header[1], kind] {
            let mut header = header;
            header[1] = kind;
            let mut packet = Frame::segmented(bytes, head);
            let _is_taken = Header::from_bytes(header).shifted(shift).finish(&mut packet, &ACCEPTED);
            prop_assert_eq!(packet.len(), bytes.len());
        }
    }
}
