//! Golden vectors, made by `tests/golden/make.py` with other implementations of all primitives.

use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::packet::Data;
use millrace_transport::ranges::RangeSet;
use millrace_transport::receiver::{Discard, Receiver, ReceiverConfig};
use millrace_transport::seal::{Algorithm, ContentKey, PairwiseKey};
use millrace_types::Time;

fn packet() -> Vec<u8> {
    let hex = include_str!("../golden/data_packet.hex").trim();
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn receiver() -> (Receiver, PairwiseKey, ContentKey) {
    let secret: Vec<u8> = (0..32).collect();
    let pairwise = PairwiseKey::new(std::array::from_fn(|at| 100 + at as u8));
    let receiver = Receiver::new(ReceiverConfig {
        layout: Layout::new(4 << 20, ExtentSize::Small).unwrap(),
        have: RangeSet::new(),
        connection: 0x0102_0304,
        pool: 1 << 20,
        pool_max: 1 << 20,
    });
    let content = ContentKey::new(Algorithm::Aes128Gcm, &secret).unwrap();
    (receiver, pairwise, content)
}

#[test]
fn a_packet_of_another_implementation_is_delivered() {
    let (mut receiver, pairwise, mut content) = receiver();
    let mut packet = packet();
    let data = Data::decode(&packet).unwrap();
    assert_eq!((data.head.number, data.sealed.counter()), (0xab_cdef, 0x10_0001));
    let delivery = receiver
        .handle_data(Time::ZERO, &mut packet, &pairwise, &mut content, false)
        .unwrap()
        .unwrap();
    assert_eq!(delivery.address, 3 * (1 << 20) + 5);
    assert_eq!(delivery.bytes, b"millrace");
    assert_eq!(*delivery.new, [3 * (1 << 20) + 5..3 * (1 << 20) + 13]);
}

#[test]
fn a_packet_with_any_bit_changed_is_discarded_by_name_and_changes_nothing() {
    let (mut receiver, pairwise, mut content) = receiver();
    let packet = packet();
    for bit in 0..packet.len() * 8 {
        let mut changed = packet.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let reason = receiver
            .handle_data(Time::ZERO, &mut changed, &pairwise, &mut content, false)
            .unwrap_err();
        let expected: &[Discard] = match bit / 8 {
            // A change in the type or connection ID makes it a packet of another connection.
            0..5 => &[Discard::Malformed],
            // The MAC covers number, counter and tag. The tag covers the rest.
            5..21 => &[Discard::Mac],
            at if at >= packet.len() - 16 => &[Discard::Mac],
            _ => &[Discard::Forged],
        };
        assert!(expected.contains(&reason), "bit {bit}: {reason:?}");
    }
    assert_eq!(receiver.backlog(), 0);
    let mut again = packet.clone();
    assert!(
        receiver
            .handle_data(Time::ZERO, &mut again, &pairwise, &mut content, false)
            .is_ok()
    );
    let mut replayed = packet.clone();
    assert_eq!(
        receiver
            .handle_data(Time::ZERO, &mut replayed, &pairwise, &mut content, false)
            .unwrap_err(),
        Discard::Replay
    );
}
