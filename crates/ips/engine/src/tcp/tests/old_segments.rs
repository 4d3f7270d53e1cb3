//! Segments that begin before the receive window, and segments with old timestamps.

use super::*;

const MODES: [Mode; 2] = [Mode::Ids, Mode::Ips];

/// Returns the option with a timestamp, after two no-operations.
fn stamp(value: u32) -> Vec<u8> {
    let [a, b, c, d] = value.to_be_bytes();
    vec![1, 1, 8, 10, a, b, c, d, 0, 0, 0, 0]
}

/// Returns a connection whose ends sent these options in their SYN segments.
fn established_with(mode: Mode, client: &[u8], server: &[u8]) -> TestBed {
    let mut bed = TestBed::new(mode);
    let syn = |flags, seq, ack, options| Segment {
        flags,
        seq,
        ack,
        options,
        ..Segment::default()
    };
    bed.segment(ToServer, &syn(SYN, CLIENT, 0, client)).unwrap();
    bed.segment(ToClient, &syn(SYN | ACK, SERVER, CLIENT + 1, server))
        .unwrap();
    bed.segment(ToServer, &syn(ACK, CLIENT + 1, SERVER + 1, client))
        .unwrap();
    bed
}

/// Sends data of the client with a timestamp.
fn send_stamped(bed: &mut TestBed, value: u32, offset: u32, data: &[u8]) -> Result<Vec<u8>, TcpProblem> {
    bed.segment(
        ToServer,
        &Segment {
            flags: ACK,
            seq: CLIENT + 1 + offset,
            ack: SERVER + 1,
            data,
            options: &stamp(value),
            ..Segment::default()
        },
    )
}

fn acknowledge(bed: &mut TestBed, offset: u32) {
    bed.send(ToClient, ACK, SERVER + 1, CLIENT + 1 + offset, b"")
        .unwrap();
}

#[test]
fn an_old_timestamp_is_refused() {
    for mode in MODES {
        let mut bed = established_with(mode, &stamp(1), &stamp(1));
        send_stamped(&mut bed, 9, 0, b"new").unwrap();
        let old = send_stamped(&mut bed, 5, 3, b"old");
        assert_eq!(old, Err(TcpProblem::Timestamp), "{mode:?}");
    }
}

#[test]
fn timestamps_count_only_if_both_ends_offered_them() {
    for (client, server) in [(&[][..], &[][..]), (&stamp(1), &[]), (&[], &stamp(1))] {
        for mode in MODES {
            let mut bed = established_with(mode, client, server);
            send_stamped(&mut bed, 1000, 0, b"G").unwrap();
            send_stamped(&mut bed, 1, 1, b"ET").unwrap();
            acknowledge(&mut bed, 3);
            assert_eq!(bed.text(ToServer), "GET", "{mode:?}");
        }
    }
}

#[test]
fn a_second_syn_without_timestamps_does_not_withdraw_them() {
    let mut bed = TestBed::new(Mode::Ids);
    let syn = Segment {
        flags: SYN,
        seq: CLIENT,
        options: &stamp(100),
        ..Segment::default()
    };
    bed.segment(ToServer, &syn).unwrap();
    bed.send(ToServer, SYN, CLIENT, 0, b"").unwrap();
    let answer = Segment {
        flags: SYN | ACK,
        seq: SERVER,
        ack: CLIENT + 1,
        options: &stamp(1),
        ..Segment::default()
    };
    bed.segment(ToClient, &answer).unwrap();
    let old = send_stamped(&mut bed, 5, 0, b"old");
    assert_eq!(old, Err(TcpProblem::Timestamp));
}

#[test]
fn beside_the_path_many_syn_segments_do_not_hide_the_one_that_is_answered() {
    let mut bed = TestBed::new(Mode::Ids);
    for isn in [CLIENT, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000] {
        bed.send(ToServer, SYN, isn, 0, b"").unwrap();
    }
    bed.send(ToClient, SYN | ACK, SERVER, CLIENT + 1, b"").unwrap();
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"GET /evil")
        .unwrap();
    acknowledge(&mut bed, 9);
    assert_eq!(bed.text(ToServer), "GET /evil");
}

#[test]
fn the_timestamp_of_an_old_segment_does_not_count() {
    for mode in MODES {
        let mut bed = established_with(mode, &stamp(1), &stamp(1));
        send_stamped(&mut bed, 2, 0, b"GET ").unwrap();
        acknowledge(&mut bed, 4);
        send_stamped(&mut bed, 1 << 30, 0, b"GET").unwrap();
        send_stamped(&mut bed, 3, 4, b"/evil").unwrap();
        acknowledge(&mut bed, 9);
        assert_eq!(bed.text(ToServer), "GET /evil", "{mode:?}");
    }
}

#[test]
fn the_timestamp_of_a_segment_with_a_wrong_acknowledgment_does_not_count() {
    for mode in MODES {
        let mut bed = established_with(mode, &stamp(1), &stamp(1));
        let future = Segment {
            flags: ACK,
            seq: CLIENT + 1,
            ack: SERVER + 500_000,
            options: &stamp(1 << 30),
            ..Segment::default()
        };
        assert_eq!(bed.segment(ToServer, &future), Err(TcpProblem::Ack));
        send_stamped(&mut bed, 3, 0, b"GET").unwrap();
    }
}

#[test]
fn an_old_segment_with_a_fin_does_not_end_the_stream() {
    for mode in MODES {
        for is_acknowledged in [true, false] {
            let mut bed = TestBed::established(mode);
            bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"GE").unwrap();
            if is_acknowledged {
                acknowledge(&mut bed, 2);
            }
            let old = bed.send(ToServer, FIN | ACK, CLIENT + 1, SERVER + 1, b"G");
            assert_eq!(old.is_err(), mode == Mode::Ips, "{mode:?}");
            bed.send(ToServer, ACK, CLIENT + 3, SERVER + 1, b"T /evil")
                .unwrap();
            acknowledge(&mut bed, 9);
            assert_eq!(bed.text(ToServer), "GET /evil", "{mode:?}");
        }
    }
}

#[test]
fn a_fin_that_was_acknowledged_before_it_was_seen_ends_the_stream() {
    let mut bed = TestBed::established(Mode::Ids);
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"GET").unwrap();
    acknowledge(&mut bed, 4);
    bed.send(ToServer, FIN | ACK, CLIENT + 4, SERVER + 1, b"")
        .unwrap();
    bed.deliver(false);
    assert!(bed.ended[0]);
}

#[test]
fn bytes_before_the_stream_are_cut_off() {
    for mode in MODES {
        for before in [1, 3] {
            let mut bed = TestBed::established(mode);
            let data = [&b"XXX"[..before], b"GET /evil"].concat();
            let seq = CLIENT + 1 - before as u32;
            bed.send(ToServer, ACK, seq, SERVER + 1, &data).unwrap();
            acknowledge(&mut bed, 9);
            assert_eq!(bed.text(ToServer), "GET /evil", "{mode:?}");
            // A segment without bytes of the stream is refused.
            let old = bed.send(ToServer, ACK, CLIENT - 9, SERVER + 1, b"XX");
            assert_eq!(old, Err(TcpProblem::Window));
        }
    }
}

#[test]
fn a_segment_that_begins_before_the_stream_is_rewritten_to_the_first_copy() {
    let mut bed = TestBed::established(Mode::Ips);
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"hello").unwrap();
    let frame = bed.send(ToServer, ACK, CLIENT, SERVER + 1, b"Xattack").unwrap();
    assert_eq!(decode(&frame).payload, b"Xhellok");
    assert!(decode(&frame).checksum_is_right());
    assert_eq!(bed.text(ToServer), "hellok");
}

#[test]
fn in_line_bytes_before_a_stream_without_a_handshake_are_refused() {
    let settings = TcpSettings {
        accepts_midstream: true,
        ..TestBed::new(Mode::Ips).settings
    };
    let first = bytes(&Segment {
        flags: ACK,
        seq: CLIENT + 100,
        ack: SERVER,
        data: b"x",
        ..Segment::default()
    });
    let mut bed = TestBed::with(settings);
    bed.session = Session::begin(&decode(&first).tcp.unwrap(), &settings, 0).unwrap();
    bed.send(ToServer, ACK, CLIENT + 100, SERVER, b"x").unwrap();
    let before = bed.send(ToServer, ACK, CLIENT + 94, SERVER, b"attackx");
    assert_eq!(before, Err(TcpProblem::Window));
}

#[test]
fn in_line_the_answer_to_a_reset_passes_and_data_do_not() {
    let mut bed = TestBed::established(Mode::Ips);
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"lost").unwrap();
    // The reset is after bytes that the receiver lacks, so it answers with an acknowledgment (RFC 5961, section 3.2).
    bed.send(ToServer, RST, CLIENT + 5, 0, b"").unwrap();
    bed.send(ToClient, ACK, SERVER + 1, CLIENT + 1, b"").unwrap();
    bed.send(ToServer, RST, CLIENT + 1, 0, b"").unwrap();
    let data = bed.send(ToClient, ACK, SERVER + 1, CLIENT + 1, b"late");
    assert_eq!(data, Err(TcpProblem::Closed));
}

#[test]
fn acknowledgments_of_a_closing_connection_visit_each_piece_once() {
    const PIECES: u32 = 1000;
    let mut bed = TestBed::established(Mode::Ids);
    for at in 0..PIECES {
        bed.send(ToServer, ACK, CLIENT + 1 + at, SERVER + 1, b"x")
            .unwrap();
    }
    // The byte before the FIN is missing.
    let fin = CLIENT + 2 + PIECES;
    bed.send(ToServer, FIN | ACK, fin, SERVER + 1, b"").unwrap();
    bed.send(ToClient, FIN | ACK, SERVER + 1, CLIENT + 1, b"")
        .unwrap();
    bed.send(ToClient, ACK, SERVER + 2, CLIENT + 1, b"").unwrap();
    // The next search for the missing byte begins after the pieces.
    let stream = bed.session.stream(ToServer).unwrap();
    assert_eq!(
        (stream.next(), stream.known, bed.session.is_closing()),
        (0, PIECES.into(), false)
    );
    bed.send(ToServer, ACK, fin - 1, SERVER + 1, b"y").unwrap();
    assert!(bed.session.is_closing());
}
