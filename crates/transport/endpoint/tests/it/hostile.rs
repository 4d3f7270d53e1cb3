//! Arbitrary frames cause no panic and no growing table, and at most one answer, which is no longer than the
//! frame and a quotation.

use millrace_endpoint::Received;
use millrace_endpoint::limits::QUOTE_SIZE;
use proptest::prelude::*;

use crate::link::{Link, mac};

/// Bytes of an answer besides those of the frame: the smallest frames of ARP and ND, and the headers of an ICMP error.
const HEADERS: usize = 86;

/// Frames of all kinds that a host receives, to be damaged.
fn valid_frames() -> Vec<Vec<u8>> {
    let mut link = Link::pair();
    for to in [
        "192.0.2.1:7800",
        "[2001:db8::1]:7800",
        "192.0.2.1:9",
        "[2001:db8::1]:9",
    ] {
        link.send(1, to, &[&[7; 64]], 100).unwrap();
    }
    // These frames are addressed to the first host, or to all.
    link.seen
        .retain(|frame| frame[..6] == mac(1).0 || frame[0] & 1 != 0);
    // Two questions, two datagrams for each version.
    assert_eq!(link.seen.len(), 6);
    link.seen
}

/// Lets a host receive a frame; checks the answers.
fn check(link: &mut Link, frame: &[u8]) -> Result<(), TestCaseError> {
    if let Received::Datagram { payload, .. } = link.inject(0, frame) {
        prop_assert!(payload.end <= frame.len());
    }
    let mut answers = 0;
    while let Some(answer) = link.hosts[0].endpoint.poll_transmit() {
        prop_assert!(
            answer.len() <= frame.len() + HEADERS,
            "{} bytes for {}",
            answer.len(),
            frame.len()
        );
        prop_assert!(answer.len() <= QUOTE_SIZE.max(frame.len()) + HEADERS);
        answers += 1;
    }
    // One packet is an answer, the other a probe of a neighbour whose address another host claims.
    prop_assert!(answers <= 2, "{answers} answers");
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_survived(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20)) {
        let mut link = Link::pair();
        for mut frame in frames {
            // Half of the frames are addressed to the host.
            if frame.len() > 20 && frame[19] & 1 == 0 {
                frame[..6].copy_from_slice(&mac(1).0);
                let types = [[8, 0], [8, 6], [0x86, 0xdd], [0x81, 0]];
                let chosen = types[usize::from(frame[18] & 3)];
                frame[12..14].copy_from_slice(&chosen);
            }
            check(&mut link, &frame)?;
        }
    }

    #[test]
    fn damaged_frames_are_survived(damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), cut: Option<prop::sample::Index>) {
        for mut frame in valid_frames() {
            let mut link = Link::pair();
            for (at, byte) in &damage {
                let at = at.index(frame.len());
                frame[at] = *byte;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len()));
            }
            check(&mut link, &frame)?;
        }
    }
}
