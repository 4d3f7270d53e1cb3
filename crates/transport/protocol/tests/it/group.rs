//! A group and its receivers, without a network between them.

use millrace_transport::congestion::fixed::Fixed;
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::flow::Piece;
use millrace_transport::flow::{FlowConfig, Outgoing};
use millrace_transport::packet::{Feedback, HEAD_SIZE, Head, PacketType};
use millrace_transport::ranges::RangeSet;
use millrace_transport::receiver::{Discard, Receiver, ReceiverConfig};
use millrace_transport::seal::{Algorithm, ContentKey, PairwiseKey};
use millrace_transport::sender::{
    Connection, FeedbackError, Group, MemberId, SealPieceError, Sealer, SlabCache,
};
use millrace_types::{BitRate, Time};
use std::collections::BTreeSet;

const BYTES: u64 = 200_000;
const PAYLOAD: u16 = 1_424;

fn layout() -> Layout {
    Layout::new(BYTES, ExtentSize::Small).unwrap()
}

fn content() -> ContentKey {
    ContentKey::new(Algorithm::ChaCha20Poly1305, &[5; 32]).unwrap()
}

fn key(connection: u32, direction: u8) -> PairwiseKey {
    PairwiseKey::new([connection as u8 ^ direction; 16])
}

/// A group with the cache and the sealer of its packets.
struct Sending {
    group: Group,
    cache: SlabCache,
    sealer: Sealer<ContentKey>,
}

fn sending() -> Sending {
    Sending {
        group: Group::new(layout()),
        cache: SlabCache::new(layout(), 1 << 20),
        sealer: Sealer::new(layout(), content()),
    }
}

fn join(group: &mut Group, connection: u32) -> (MemberId, Receiver) {
    let id = group.join(
        FlowConfig {
            layout: layout(),
            have: RangeSet::new(),
            start: 0,
            payload: PAYLOAD,
            mtu: 1_500,
            initial_rtt: None,
            headers: 28,
            credit: BYTES,
            controller: Box::new(Fixed::new(BitRate::from_kbps(8_000_000), 1_496)),
            seed: 1,
        },
        Connection {
            id: connection,
            to_receiver: key(connection, 0),
            to_sender: key(connection, 0x80),
        },
        Time::ZERO,
    );
    let receiver = Receiver::new(ReceiverConfig {
        layout: layout(),
        have: RangeSet::new(),
        connection,
        pool: BYTES,
        pool_max: BYTES,
    });
    (id, receiver)
}

/// Returns the datagrams that leave until no member may send any more.
fn datagrams(sending: &mut Sending, now: Time) -> Vec<(MemberId, Vec<u8>)> {
    let Sending { group, cache, sealer } = sending;
    let (mut packets, mut outgoing) = (Vec::new(), Vec::new());
    loop {
        let mut wanted = Vec::new();
        group.wanted(cache, 2, &mut wanted);
        for request in wanted {
            let read = |piece: Piece, bytes: &mut Vec<u8>| -> Result<(), SealPieceError> {
                bytes.extend((0..u64::from(piece.len)).map(|at| (piece.address + at) as u8));
                Ok(())
            };
            // Two members may want the same slab.
            if let Some(request) = cache.missing_of(request) {
                cache.insert(sealer.seal(request, None, read).unwrap());
            }
        }
        let Some(id) = group.poll(now, cache, &mut outgoing) else {
            return packets;
        };
        for Outgoing { number, piece } in outgoing.drain(..) {
            let shared = cache.get(piece).unwrap();
            let head = group.head(id, number, shared).unwrap();
            packets.push((id, [&head[..], shared.bytes()].concat()));
        }
    }
}

#[test]
fn a_piece_is_sealed_once_for_all_and_opens_for_each_under_its_own_head_only() {
    let mut sending = sending();
    let mut receivers: Vec<_> = (1..=3)
        .map(|connection| join(&mut sending.group, connection))
        .collect();
    let packets = datagrams(&mut sending, Time::from_secs(1));
    assert!(packets.len() >= 30);
    let shared: BTreeSet<&[u8]> = packets.iter().map(|(_, packet)| &packet[HEAD_SIZE..]).collect();
    assert_eq!(shared.len() * 3, packets.len());
    assert!(sending.sealer.sealed() <= BYTES.div_ceil(u64::from(PAYLOAD)));
    let mut opener = content();
    for (id, packet) in &packets {
        for (at, (own, receiver)) in receivers.iter_mut().enumerate() {
            let key = key(at as u32 + 1, 0);
            let mut packet = packet.clone();
            let result = receiver.handle_data(Time::ZERO, &mut packet, &key, &mut opener, false);
            match result {
                Ok(Some(delivery)) => {
                    assert_eq!(own, id);
                    assert_eq!(delivery.bytes[0], delivery.address as u8);
                }
                other => assert_eq!((own == id, other.unwrap_err()), (false, Discard::Malformed)),
            }
        }
    }
}

#[test]
fn an_insider_with_the_content_key_cannot_send_in_the_senders_name() {
    let mut sending = sending();
    let (_, mut receiver) = join(&mut sending.group, 1);
    // The insider knows the content key and the connection, and makes a head under its own pairwise key.
    let mut insider = self::sending();
    join(&mut insider.group, 1);
    for (_, mut packet) in datagrams(&mut insider, Time::from_secs(1)) {
        let result = receiver.handle_data(Time::ZERO, &mut packet, &key(2, 0), &mut content(), false);
        assert_eq!(result.unwrap_err(), Discard::Mac);
    }
    assert_eq!((receiver.backlog(), receiver.next_timeout()), (0, None));
}

#[test]
fn feedback_is_refused_by_name_if_it_is_forged_replayed_or_of_nobody() {
    let mut sending = sending();
    let (_, receiver) = join(&mut sending.group, 1);
    let feedback = Feedback {
        credit: 5,
        ..Feedback::default()
    };
    let now = Time::from_secs(1);
    let forged = receiver.encode_feedback(3, &feedback, &key(9, 0x80));
    assert_eq!(
        sending.group.handle_feedback(now, &forged),
        Err(FeedbackError::Mac { connection: 1 })
    );
    let genuine = receiver.encode_feedback(3, &feedback, &key(1, 0x80));
    assert!(sending.group.handle_feedback(now, &genuine).is_ok());
    assert_eq!(
        sending.group.handle_feedback(now, &genuine),
        Err(FeedbackError::Replay { number: 3 })
    );
    let head = Head {
        packet_type: PacketType::Feedback,
        connection: 77,
        number: 0,
    };
    let unknown = Feedback::packet(&head, &key(1, 0x80), &feedback.encode().0);
    assert_eq!(
        sending.group.handle_feedback(now, &unknown),
        Err(FeedbackError::UnknownConnection { connection: 77 })
    );
}

#[test]
fn a_short_repair_is_accepted_after_the_last_packet_within_the_credit_exceeded_it() {
    let mut receiver = Receiver::new(ReceiverConfig {
        layout: layout(),
        have: RangeSet::new(),
        connection: 1,
        pool: 2_000,
        pool_max: 2_000,
    });
    let payload = u64::from(PAYLOAD);
    let mut accept = |number, address, len| receiver.accept(Time::ZERO, number, address, len, false);
    // The second packet began within the credit.
    assert!(accept(0, 0, payload).is_ok());
    assert!(accept(1, payload, payload).is_ok());
    assert!(accept(2, 3 * payload, 500).is_ok());
    // Two packets beyond the credit are the sender's mistake.
    assert!(accept(3, 4 * payload, payload).is_ok());
    assert_eq!(accept(4, 5 * payload, payload), Err(Discard::Credit));
}
