//! Tests of the messages of the control channel.

use super::*;

fn messages() -> Vec<Message> {
    let mut ranges = RangeSet::new();
    ranges.insert(2..5);
    ranges.insert(9..1_000);
    let value = [7; 32];
    vec![
        Message::Hello {
            version: 0,
            secret: vec![1; 16],
        },
        Message::Offer(Offer {
            payload: 1_424,
            chacha: true,
            secret: [3; 32],
            requests: Requests {
                delta: false,
                all_at_once: true,
            },
        }),
        Message::Manifest(vec![5; 20_000]),
        Message::ManifestEnd,
        Message::Refuse {
            code: RefuseCode::Files,
            text: "full".into(),
        },
        Message::Have {
            extent: 70_000,
            value,
        },
        Message::HaveEnd,
        Message::Keep(ranges.clone()),
        Message::Accept {
            connection: u32::MAX,
            pool: 1 << 28,
            have: ranges,
        },
        Message::Value { extent: 3, value },
        Message::GroupValues {
            extent: 3,
            values: vec![value; 64],
        },
        Message::Withdrawn {
            file: 3,
            reason: "changed".into(),
        },
        Message::Verified(1),
        Message::Rejected(2),
        Message::Durable(3),
        Message::NeedGroupValues(4),
        Message::Committed { file: 5 },
        Message::Complete {
            root: value,
            signature: vec![8; 64],
        },
        Message::Failed { text: "disk".into() },
        Message::Into(b"in/2026".to_vec()),
        Message::Fetch(b"out/a\xff".to_vec()),
        Message::List(Vec::new()),
        Message::Fetching,
        Message::Entry(DirectoryEntry {
            name: b"a".to_vec(),
            entry_type: EntryType::File,
            size: 1 << 40,
            modified: 1_700_000_000,
        }),
        Message::EntriesEnd,
        Message::Notice { text: "note".into() },
    ]
}

/// The vectors of docs/transport-protocol.md.
#[test]
fn the_vectors_of_the_protocol_page_hold() {
    let hex = |message: Message| -> String {
        message
            .encode()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    let mut ranges = RangeSet::new();
    ranges.insert(2..5);
    ranges.insert(9..1_000);
    let offer = Offer {
        payload: 1_424,
        chacha: false,
        secret: std::array::from_fn(|at| at as u8),
        requests: Requests {
            delta: false,
            all_at_once: true,
        },
    };
    let secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    assert_eq!(hex(Message::Offer(offer)), format!("2501459000{secret}02"));
    assert_eq!(hex(Message::Keep(ranges)), "07070202030443df");
    assert_eq!(hex(Message::Verified(70_000)), "050c80011170");
}

#[test]
fn messages_are_what_they_were_however_the_stream_is_cut() {
    let stream: Vec<u8> = messages().iter().flat_map(Message::encode).collect();
    for cut in [1, 7, 1_000, stream.len()] {
        let (mut bytes, mut taken) = (Vec::new(), Vec::new());
        for piece in stream.chunks(cut) {
            bytes.extend_from_slice(piece);
            Message::take_all(&mut bytes, |message| taken.push(message)).unwrap();
        }
        assert_eq!(taken, messages(), "{cut}");
        assert!(bytes.is_empty());
    }
}

#[test]
fn no_bytes_of_a_peer_are_too_odd() {
    for message in messages() {
        let encoded = message.encode();
        for bit in (0..encoded.len().min(64) * 8).chain([encoded.len() * 8 - 1]) {
            let mut bytes = encoded.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = Message::first(&bytes);
        }
    }
    let long = [0xbf, 0xff, 0xff, 0xff];
    assert!(matches!(Message::first(&long), Err(MessageError::Size(_))));
    let text = Message::Failed {
        text: "\x1b[2Jx".into(),
    };
    let (text, _) = Message::first(&text.encode()).unwrap().unwrap();
    assert_eq!(text, Message::Failed { text: "[2Jx".into() });
}

/// A later version may refuse for a reason that this one does not know.
#[test]
fn a_refusal_with_an_unknown_code_keeps_its_text() {
    let refusal = Message::Refuse {
        code: RefuseCode::Unknown,
        text: "the licence has expired".into(),
    };
    let mut bytes = refusal.encode();
    let code = bytes.iter().rposition(|byte| *byte == 255).unwrap();
    for unknown in [6, 254, 255] {
        bytes[code] = unknown;
        assert_eq!(
            Message::first(&bytes),
            Ok(Some((refusal.clone(), bytes.len()))),
            "{unknown}"
        );
    }
}

/// A lost packet holds up the rest of a stream: its repair releases millions of messages at once.
#[test]
fn the_time_to_read_many_short_messages_is_linear() {
    let started = std::time::Instant::now();
    let mut bytes = Message::ManifestEnd.encode().repeat(2 << 20);
    let mut count = 0;
    Message::take_all(&mut bytes, |_| count += 1).unwrap();
    assert_eq!((count, bytes.len()), (2 << 20, 0));
    // Quadratic time would be minutes.
    assert!(started.elapsed() < std::time::Duration::from_secs(30));
}

#[test]
fn a_keep_and_an_accept_of_any_extents_fit_into_a_message() {
    for step in [2_u64, 100, 20_000, 1 << 31] {
        let mut ranges = RangeSet::new();
        for index in 0..200_000 {
            ranges.insert(index * step..index * step + 1);
        }
        let kept = fitting(&ranges);
        assert!(
            !kept.is_empty() && kept.ranges().len() < ranges.ranges().len(),
            "{step}"
        );
        assert_eq!(
            kept.ranges(),
            &ranges.ranges()[..kept.ranges().len()],
            "the first ranges"
        );
        let keep = Message::Keep(kept.clone());
        let accept = Message::Accept {
            connection: u32::MAX,
            pool: 1 << 61,
            have: kept,
        };
        for message in [keep, accept] {
            let encoded = message.encode();
            assert!(
                encoded.len() > MESSAGE_MAX - 100,
                "{step}: {} bytes, as many as fit",
                encoded.len()
            );
            assert_eq!(
                Message::first(&encoded),
                Ok(Some((message, encoded.len()))),
                "{step}"
            );
        }
    }
    let mut few = RangeSet::new();
    few.insert(2..5);
    few.insert(9..1_000);
    assert_eq!(fitting(&few), few);
}
