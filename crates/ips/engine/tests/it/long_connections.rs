//! Connections that continue far beyond the depth of inspection.

use millrace_ips_engine::{Mode, Settings};
use millrace_wire::tcp::flags::{ACK, FIN, SYN};

use crate::bed::{ATTACK, CLIENT, SERVER, Segment, TestBed, acknowledgment, data};

/// Window scale with the largest shift, 14 (RFC 7323, section 2.3).
const SCALE: &[u8] = &[3, 3, 14, 0];
const DEPTH: u64 = 64;

fn settings() -> Settings {
    Settings {
        mode: Mode::Ips,
        stream_depth: DEPTH,
        ..Settings::default()
    }
}

/// Opens the default connection with the largest windows.
fn open(bed: &mut TestBed) {
    let syn = Segment {
        flags: SYN,
        seq: CLIENT,
        ack: 0,
        options: SCALE,
        ..Segment::default()
    };
    let syn_ack = Segment {
        from_client: false,
        flags: SYN | ACK,
        seq: SERVER,
        ack: CLIENT + 1,
        options: SCALE,
        ..Segment::default()
    };
    assert!(!bed.send_all([syn.packet(), syn_ack.packet(), data(0, &[]), acknowledgment(0)]));
}

#[test]
fn a_connection_goes_on_gibibytes_behind_the_depth() {
    let mut bed = TestBed::with(settings(), ATTACK);
    open(&mut bed);
    assert!(!bed.send(data(0, &[b'x'; DEPTH as usize])).is_dropped());
    // Steps of 1 GB stay inside the window, and pass 2 GiB, 4 GiB and 8 GiB.
    for step in 1..10_u32 {
        let offset = step.wrapping_mul(1_000_000_000);
        assert!(!bed.send(acknowledgment(offset)).is_dropped(), "step {step}");
        assert!(!bed.send(data(offset, b"more")).is_dropped(), "step {step}");
    }
    let end = 9_u32.wrapping_mul(1_000_000_000);
    let far = bed.send(data(end.wrapping_add(1_100_000_000), b"x"));
    assert!(far.is_dropped(), "the window still ends the stream");
}

#[test]
fn the_server_of_a_connection_goes_on_gibibytes_behind_the_depth() {
    let mut bed = TestBed::with(settings(), ATTACK);
    open(&mut bed);
    for step in 0..10_u32 {
        let seq = (SERVER + 1).wrapping_add(step.wrapping_mul(1_000_000_000));
        let answer = Segment {
            from_client: false,
            seq,
            ack: CLIENT + 1,
            data: &[b'x'; DEPTH as usize],
            ..Segment::default()
        };
        let acknowledgment = Segment {
            ack: seq,
            ..Segment::default()
        };
        assert!(
            !bed.send_all([acknowledgment.packet(), answer.packet()]),
            "step {step}"
        );
    }
}

/// Opens the default connection on a path that carries segments of the client only.
fn open_one_sided(bed: &mut TestBed) {
    let syn = Segment {
        flags: SYN,
        seq: CLIENT,
        ack: 0,
        ..Segment::default()
    };
    assert!(!bed.send_all([syn.packet(), data(0, &[])]));
}

#[test]
fn a_connection_of_which_one_direction_is_seen_goes_on_behind_the_assumed_window() {
    for accepts_midstream in [false, true] {
        let settings = Settings {
            accepts_async: true,
            accepts_midstream,
            ..settings()
        };
        let mut bed = TestBed::with(settings, ATTACK);
        match accepts_midstream {
            true => assert!(!bed.send(data(0, &[])).is_dropped()),
            false => open_one_sided(&mut bed),
        }
        assert!(!bed.send(data(0, &[b'x'; DEPTH as usize])).is_dropped());
        for step in 1..10_u32 {
            let offset = step.wrapping_mul(1_000_000_000);
            assert!(!bed.send(data(offset, b"more")).is_dropped(), "step {step}");
        }
        let fin = Segment {
            flags: FIN | ACK,
            seq: (CLIENT + 5).wrapping_add(9_u32.wrapping_mul(1_000_000_000)),
            ..Segment::default()
        };
        assert!(!bed.send(fin.packet()).is_dropped());
    }
}

#[test]
fn a_connection_whose_server_is_seen_first_has_the_right_directions() {
    const RULES: &str = "alert tcp any any -> any 80 (flow:to_server; content:\"request\"; sid:1;)\n\
        alert tcp any 80 -> any any (flow:to_client; content:\"response\"; sid:2;)\n\
        alert tcp any any -> any any (flow:to_server; content:\"response\"; sid:3;)";
    let syn_ack = Segment {
        from_client: false,
        flags: SYN | ACK,
        seq: SERVER,
        ack: CLIENT + 1,
        ..Segment::default()
    };
    let response = Segment {
        from_client: false,
        seq: SERVER + 1,
        ack: CLIENT + 1,
        data: b"response",
        ..Segment::default()
    };
    let begins: [&[Vec<u8>]; 2] = [&[syn_ack.packet(), response.packet()], &[response.packet()]];
    for mode in [Mode::Ids, Mode::Ips] {
        for (accepts_async, accepts_midstream) in [(true, true), (false, true), (true, false)] {
            for first in begins {
                if !accepts_midstream && first.len() == 1 {
                    // Without the SYN-ACK nothing shows that the connection is one-sided.
                    continue;
                }
                let settings = Settings {
                    mode,
                    accepts_async,
                    accepts_midstream,
                    ..settings()
                };
                let mut bed = TestBed::with(settings, RULES);
                assert!(!bed.send_all(first.iter().cloned()));
                let request = Segment {
                    ack: SERVER + 9,
                    data: b"request",
                    ..Segment::default()
                };
                assert!(!bed.send(request.packet()).is_dropped());
                bed.finish();
                assert_eq!(
                    bed.sids(),
                    [1, 2].into(),
                    "{mode:?}, {accepts_async}, {accepts_midstream}"
                );
            }
        }
    }
}

#[test]
fn data_that_no_receiver_expects_do_not_hide_the_beginning_of_a_stream() {
    let settings = Settings {
        accepts_async: true,
        ..settings()
    };
    let mut bed = TestBed::with(settings, ATTACK);
    open_one_sided(&mut bed);
    // The receiver ignores data so far beyond its window. The offsets go around the range of sequence
    // numbers.
    for offset in [1 << 30, 1 << 31, 3 << 30] {
        bed.send(data(offset, b"x"));
    }
    assert!(bed.send_all([data(0, b"att"), data(3, b"ack")]));
    assert!(bed.is_attack_found());
}
