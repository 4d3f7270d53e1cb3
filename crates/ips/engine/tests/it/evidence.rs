//! The bytes that alerts carry: data of streams, and packets that were put together.

use millrace_ips_engine::event::{Alert, EVIDENCE_SIZE, Evidence};
use millrace_ips_engine::{Event, Mode, Settings};

use crate::bed::{TestBed, datagram, fragments};
use crate::frames::tcp;

const RULES: &str = "alert http any any -> any any (http.method; content:\"POST\"; sid:1;)\n\
    alert tcp any any -> any any (content:\"needle\"; sid:2;)\n\
    alert tcp any any -> any any (flags:S; sid:3;)\n\
    alert http any any -> any any (http.stat_code; content:\"203\"; sid:4;)\n\
    alert udp any any -> any any (content:\"needle\"; sid:5;)\n";

fn bed(mode: Mode, evidence: bool) -> TestBed {
    let settings = Settings {
        mode,
        evidence,
        ..Settings::default()
    };
    TestBed::with(settings, RULES)
}

/// Returns the evidence of the alerts of a rule.
fn evidence(bed: &TestBed, sid: u32) -> Vec<Option<Evidence>> {
    let of = |event: &Event| match event {
        Event::Alert(Alert {
            sid: number,
            evidence,
            ..
        }) if *number == sid => Some(evidence.as_deref().cloned()),
        _ => None,
    };
    let found: Vec<_> = bed.events().iter().filter_map(of).collect();
    assert!(!found.is_empty(), "{sid}");
    found
}

/// Returns the data of the stream of the first alert of a rule.
fn stream(bed: &TestBed, sid: u32) -> Vec<u8> {
    let first = evidence(bed, sid).swap_remove(0);
    first.and_then(|evidence| evidence.stream).unwrap()
}

fn exchange() -> [(bool, Vec<u8>); 2] {
    [
        (
            false,
            b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nneedle".to_vec(),
        ),
        (true, b"HTTP/1.1 203 No\r\nContent-Length: 0\r\n\r\n".to_vec()),
    ]
}

#[test]
fn an_alert_over_a_stream_has_its_data_in_any_segmentation() {
    let [(_, request), (_, response)] = exchange();
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1, 7, 1400] {
            let mut bed = bed(mode, true);
            bed.send_all(tcp(80, &exchange(), size));
            let at_match = stream(&bed, 1);
            assert!(request.starts_with(&at_match), "{mode:?} {size}");
            assert!(at_match.starts_with(b"POST"), "{mode:?} {size}");
            assert_eq!(stream(&bed, 2), request, "{mode:?} {size}");
            let at_match = stream(&bed, 4);
            assert!(response.starts_with(&at_match), "{mode:?} {size}");
            assert!(at_match.starts_with(b"HTTP/1.1 203"), "{mode:?} {size}");
            // A rule over packets matched on its packet.
            assert_eq!(evidence(&bed, 3), [None], "{mode:?} {size}");
        }
    }
}

#[test]
fn the_data_of_a_stream_are_bounded_and_contain_the_match() {
    let filler = vec![b'.'; 3 * EVIDENCE_SIZE];
    let body = [&filler[..], b"needle"].concat();
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), &body].concat();
    for mode in [Mode::Ids, Mode::Ips] {
        for size in [1400, 16_000] {
            let mut bed = bed(mode, true);
            bed.send_all(tcp(80, &[(false, request.clone())], size));
            let first = stream(&bed, 1);
            assert!(first.len() <= EVIDENCE_SIZE, "{mode:?} {size}: {}", first.len());
            assert!(first.starts_with(b"POST"), "{mode:?} {size}");
            let last = stream(&bed, 2);
            assert!(last.len() <= EVIDENCE_SIZE, "{mode:?} {size}: {}", last.len());
            assert!(last.ends_with(b"needle"), "{mode:?} {size}");
        }
    }
}

#[test]
fn an_alert_on_fragments_has_the_whole_packet() {
    let packet = datagram(&[&[b'.'; 1000][..], b"needle"].concat());
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = bed(mode, true);
        bed.send_all(fragments(&packet, 400));
        let [Some(found)] = &evidence(&bed, 5)[..] else {
            panic!("{mode:?}: one alert with evidence is expected");
        };
        assert_eq!(found.packet.as_deref(), Some(&packet[..]), "{mode:?}");
        assert_eq!((&found.stream, found.has_link), (&None, false), "{mode:?}");
    }
}

#[test]
fn nothing_is_copied_unless_it_is_asked_for() {
    for mode in [Mode::Ids, Mode::Ips] {
        let mut bed = bed(mode, false);
        bed.send_all(tcp(80, &exchange(), 1400));
        bed.send_all(fragments(
            &datagram(&[b"needle", &[b'.'; 1000][..]].concat()),
            400,
        ));
        for sid in [1, 2, 4, 5] {
            assert!(evidence(&bed, sid).iter().all(Option::is_none), "{mode:?} {sid}");
        }
    }
}
