//! Segments before and in the handshake that the receiver discards, or whose data it takes only in part.

use super::*;

const REQUEST: &[u8] = b"GET /attack";

/// Returns the options of a segment with timestamps.
fn timestamps(value: u32, echo: u32) -> [u8; 12] {
    let mut options = [1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
    options[4..8].copy_from_slice(&value.to_be_bytes());
    options[8..].copy_from_slice(&echo.to_be_bytes());
    options
}

const MD5: [u8; 20] = [19, 18, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 1];
const AUTHENTICATION: [u8; 8] = [29, 6, 1, 1, 9, 9, 1, 1];

fn syn<'a>(data: &'a [u8], options: &'a [u8]) -> Segment<'a> {
    Segment {
        flags: SYN,
        seq: CLIENT,
        data,
        options,
        ..Segment::default()
    }
}

/// Returns a connection whose first segment is this SYN.
fn begun(mode: Mode, first: &Segment<'_>) -> TestBed {
    let mut bed = TestBed::new(mode);
    bed.segment(ToServer, first).unwrap();
    bed
}

fn reset<'a>(options: &'a [u8]) -> Segment<'a> {
    Segment {
        flags: RST | ACK,
        ack: CLIENT + 1,
        options,
        ..Segment::default()
    }
}

#[test]
fn data_of_a_syn_are_inspected_as_far_as_the_server_took_them() {
    let fast_open: [&[u8]; 3] = [&[], &[34, 4, 1, 2], &[0xfe, 6, 0xf9, 0x89, 1, 2, 1, 1]];
    for options in fast_open {
        for taken in 0..=REQUEST.len() {
            let mut bed = begun(Mode::Ids, &syn(REQUEST, options));
            let next = CLIENT + 1 + taken as u32;
            bed.send(ToClient, SYN | ACK, SERVER, next, b"").unwrap();
            // The client sends the rest again, with other content.
            let rest = b"0123456789ab";
            bed.send(ToServer, ACK, next, SERVER + 1, rest).unwrap();
            bed.send(ToClient, ACK, SERVER + 1, next + rest.len() as u32, b"")
                .unwrap();
            let expected = [&REQUEST[..taken], rest].concat();
            assert_eq!(
                bed.text(ToServer).as_bytes(),
                expected,
                "{taken} bytes, {options:x?}"
            );
        }
    }
}

#[test]
fn data_of_another_syn_do_not_count() {
    let mut bed = begun(Mode::Ids, &syn(b"GET /plain!", &[]));
    let decoy = Segment {
        seq: CLIENT + 5000,
        ..syn(REQUEST, &[])
    };
    bed.segment(ToServer, &decoy).unwrap();
    bed.send(ToClient, SYN | ACK, SERVER, CLIENT + 12, b"").unwrap();
    assert_eq!(bed.text(ToServer), "GET /plain!");
}

#[test]
fn data_of_a_syn_ack_are_inspected_once_the_client_took_them() {
    let mut bed = begun(Mode::Ids, &syn(b"", &[]));
    bed.send(ToClient, SYN | ACK, SERVER, CLIENT + 1, b"220 ready")
        .unwrap();
    assert_eq!(bed.text(ToClient), "");
    bed.send(ToServer, ACK, CLIENT + 1, SERVER + 10, b"").unwrap();
    assert_eq!(bed.text(ToClient), "220 ready");
}

#[test]
fn a_reset_with_an_echo_that_the_client_did_not_send_ends_nothing() {
    for mode in [Mode::Ids, Mode::Ips] {
        for echo in [999, 100, 1002, u32::MAX] {
            let mut bed = begun(mode, &syn(b"", &timestamps(1000, 0)));
            assert_eq!(
                bed.segment(ToClient, &reset(&timestamps(7, echo))),
                Err(TcpProblem::Reset)
            );
            bed.handshake(CLIENT, SERVER);
            bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, REQUEST).unwrap();
            bed.send(ToClient, ACK, SERVER + 1, CLIENT + 12, b"").unwrap();
            assert_eq!(bed.text(ToServer).as_bytes(), REQUEST, "echo {echo}");
        }
    }
}

#[test]
fn a_reset_that_answers_the_syn_ends_the_connection() {
    let echoes = [timestamps(7, 1000), timestamps(7, 0)];
    let answers: [&[u8]; 3] = [&echoes[0], &echoes[1], &[]];
    for options in answers {
        let mut bed = begun(Mode::Ids, &syn(b"", &timestamps(1000, 0)));
        bed.segment(ToClient, &reset(options)).unwrap();
        assert_eq!(bed.session.state(), FlowState::Closed, "{options:x?}");
    }
    // The answer may be one to the first of two SYNs, or come between them.
    for (echo, is_closed) in [
        (1000, true),
        (1500, true),
        (2000, true),
        (2001, false),
        (999, false),
    ] {
        let mut bed = begun(Mode::Ids, &syn(b"", &timestamps(1000, 0)));
        bed.segment(ToServer, &syn(b"", &timestamps(2000, 0))).unwrap();
        assert_eq!(
            bed.segment(ToClient, &reset(&timestamps(7, echo))).is_ok(),
            is_closed,
            "{echo}"
        );
    }
}

#[test]
fn a_reset_with_a_digest_counts_only_if_the_connection_has_digests() {
    for mode in [Mode::Ids, Mode::Ips] {
        for options in [&MD5[..], &AUTHENTICATION] {
            for has_digests in [false, true] {
                let mut bed = begun(mode, &syn(b"", if has_digests { options } else { &[] }));
                let answer = Segment {
                    flags: SYN | ACK,
                    seq: SERVER,
                    ack: CLIENT + 1,
                    options: if has_digests { options } else { &[] },
                    ..Segment::default()
                };
                bed.segment(ToClient, &answer).unwrap();
                bed.send(ToServer, ACK, CLIENT + 1, SERVER + 1, b"").unwrap();
                let reset = Segment {
                    seq: SERVER + 1,
                    ..reset(options)
                };
                assert_eq!(
                    bed.segment(ToClient, &reset).is_ok(),
                    has_digests,
                    "{mode:?} {options:x?}"
                );
            }
        }
    }
}
