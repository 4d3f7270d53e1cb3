//! Urgent data (RFC 9293, section 3.8.5; RFC 6093): beside the path both readings of the stream are searched, and the parser
//! gets the usual one; in line the pointer is cleared, so that one reading is left, or a policy refuses the segment.

use millrace_ips_engine::policy::{Cause, Policy};
use millrace_ips_engine::{Event, Mode, Policies, Settings};
use millrace_wire::tcp::flags::{ACK, PSH, URG};

use crate::bed::{ATTACK, CLIENT, Segment, TestBed, acknowledgment};
use crate::synthesis::random::Random;

/// A stream with one urgent byte: segments with their offsets and pointers.
struct Variant {
    bytes: Vec<u8>,
    segments: Vec<(usize, usize, Option<u16>)>,
    text: String,
}

/// Cuts a stream into segments, one of which points to the byte at `urgent`.
fn variant(bytes: Vec<u8>, urgent: usize, random: &mut Random) -> Variant {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + 1 + random.below(12)).min(bytes.len());
        segments.push((at, end, None));
        at = end;
    }
    // The pointer is in the segment with the byte, or in an earlier one (RFC 9293, section 3.8.5).
    let own = segments.iter().position(|(_, end, _)| urgent < *end).unwrap();
    let pointing = own - random.below(own + 1).min(3);
    let pointer = (urgent - segments[pointing].0 + 1) as u16;
    // BSD and Linux take a pointer to the byte behind the urgent one; Linux alone takes 0 as the first byte.
    let pointer = if pointer == 1 && random.one_in(2) {
        0
    } else {
        pointer
    };
    segments[pointing].2 = Some(pointer);
    let text = format!("{} at {urgent}: {segments:?}", bytes.escape_ascii());
    Variant {
        bytes,
        segments,
        text,
    }
}

fn packet(variant: &Variant, (at, end, pointer): (usize, usize, Option<u16>)) -> Vec<u8> {
    Segment {
        flags: ACK | PSH | if pointer.is_some() { URG } else { 0 },
        seq: CLIENT + 1 + at as u32,
        data: &variant.bytes[at..end],
        urgent: pointer.unwrap_or(0),
        ..Segment::default()
    }
    .packet()
}

/// Sends a stream; returns true if a segment was dropped.
fn send(bed: &mut TestBed, variant: &Variant) -> bool {
    bed.handshake();
    let mut is_dropped = false;
    for segment in &variant.segments {
        is_dropped |= bed.send(packet(variant, *segment)).is_dropped();
        bed.send(acknowledgment(segment.1 as u32));
    }
    bed.finish();
    is_dropped
}

#[test]
fn both_readings_of_urgent_data_are_searched_beside_the_path_and_one_is_left_in_line() {
    for seed in 0..240 {
        let random = &mut Random(seed);
        let mut bytes = vec![b'.'; random.below(40)];
        let start = bytes.len();
        bytes.extend_from_slice(b"attack");
        bytes.extend(vec![b'.'; random.below(40)]);
        // An urgent byte inside of the word hides it from programs that leave the byte in the stream, one of its letters from
        // the others.
        let is_inserted = random.one_in(2);
        let urgent = start + random.below(5) + usize::from(is_inserted);
        if is_inserted {
            bytes.insert(urgent, b'x');
        }
        let variant = variant(bytes, urgent, random);
        let mut bed = TestBed::new(Mode::Ids, ATTACK);
        send(&mut bed, &variant);
        assert!(bed.is_attack_found(), "{}", variant.text);
        let mut bed = TestBed::inline();
        let is_dropped = send(&mut bed, &variant);
        assert_eq!(is_dropped, !is_inserted, "{}", variant.text);
    }
}

#[test]
fn parsers_get_the_stream_without_urgent_bytes_beside_the_path() {
    let rule = r#"alert http any any -> any any (http.uri; content:"/evil"; sid:1;)"#;
    for seed in 0..200 {
        let random = &mut Random(seed);
        let mut bytes = b"GET /evil HTTP/1.1\r\nHost: a\r\n\r\n".to_vec();
        let urgent = random.below(9);
        bytes.insert(urgent, b'x');
        let variant = variant(bytes, urgent, random);
        let mut bed = TestBed::new(Mode::Ids, rule);
        send(&mut bed, &variant);
        assert!(bed.is_attack_found(), "{}", variant.text);
        assert_eq!(bed.alerts(), 1);
    }
}

#[test]
fn in_line_urgent_data_are_normalised_or_refused_by_a_policy_with_an_event() {
    let variant = Variant {
        bytes: b"abc".to_vec(),
        segments: vec![(0, 3, Some(2))],
        text: String::new(),
    };
    for (policy, is_refused) in [
        (None, false),
        (Some(Policy::DropPacket), true),
        (Some(Policy::DropFlow), true),
        (Some(Policy::Reject), true),
    ] {
        let closed = Policies::closed();
        let settings = Settings {
            mode: Mode::Ips,
            records: true,
            policies: policy.map_or(closed, |policy| closed.with(Cause::Urgent, policy)),
            ..Settings::default()
        };
        let mut bed = TestBed::with(settings, ATTACK);
        bed.handshake();
        let sent = bed.send(packet(&variant, variant.segments[0]));
        assert_eq!(sent.is_dropped(), is_refused, "{policy:?}");
        if !is_refused {
            assert_eq!(sent.bytes[33] & URG as u8, 0, "the bit is cleared");
            assert_eq!(sent.bytes[38..40], [0, 0], "the pointer is cleared");
        }
        let applied = bed.events().iter().find_map(|event| match event {
            Event::Exception(_, Cause::Urgent, policy, _) => Some(*policy),
            _ => None,
        });
        assert_eq!(applied, Some(policy.unwrap_or(Policy::Ignore)));
    }
}
