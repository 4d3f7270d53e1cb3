//! Segments of any size give the same transactions, also if recipients read the messages in several ways.

use proptest::prelude::*;

use super::*;

/// Returns the lines that differ.
fn differences(cut: &str, whole: &str) -> Vec<String> {
    let both: Vec<[&str; 2]> = cut.lines().zip(whole.lines()).map(|(a, b)| [a, b]).collect();
    let differing = both.iter().filter(|[a, b]| a != b);
    let mut lines: Vec<String> = differing.map(|[a, b]| format!("{a} instead of {b}")).collect();
    if cut.lines().count() != whole.lines().count() {
        lines.push("not as many lines".to_owned());
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Segments of any size give the same transactions as whole messages, in each reading, in each mode, and whether the messages
    /// of both directions come one behind the other or in turn.
    #[test]
    fn segmentation_does_not_change_transactions(
        picks in prop::collection::vec((0..PIECES.len(), any::<bool>()), 1..12),
        step in 1_usize..40,
        (is_inline, is_asymmetric, comes_in_turn) in any::<(bool, bool, bool)>(),
    ) {
        let settings = AppSettings { is_inline, is_asymmetric, ..AppSettings::default() };
        let of = |direction: Direction| -> Vec<u8> {
            let own = picks.iter().filter(|(_, is_up)| *is_up == (direction == UP));
            own.flat_map(|(piece, _)| PIECES[*piece].iter().copied()).collect()
        };
        let (up, down) = (of(UP), of(DOWN));
        let messages: Vec<(Direction, &[u8])> = if comes_in_turn {
            picks.iter().map(|(piece, is_up)| (if *is_up { UP } else { DOWN }, PIECES[*piece])).collect()
        } else {
            vec![(UP, &up), (DOWN, &down)]
        };
        let (whole, end) = parsed_with(settings, &messages, usize::MAX);
        let (cut, cut_end) = parsed_with(settings, &messages, step);
        prop_assert_eq!(cut_end == Outcome::Failed, end == Outcome::Failed);
        // In line, what follows a message that is refused is not forwarded: readings of it do not matter.
        if !is_inline || end != Outcome::Failed {
            prop_assert_eq!(differences(&essence(&cut), &essence(&whole)), Vec::<String>::new());
        }
    }
}

/// The usual parser takes the client's first bytes in the tunnel before it falls behind the further readings, of which those of a
/// later message replace the oldest.
#[test]
fn readings_in_a_tunnel_of_http_do_not_depend_on_segments() {
    let up = b"CONNECT a:1 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let down = [
        &b"HTTP/1.1 200 OK\rContent-Length: 1\r\r"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 3 7\n\r\n",
        REQUEST,
    ]
    .concat();
    let messages: [(Direction, &[u8]); 2] = [(UP, up), (DOWN, &down)];
    let whole = essence(&parsed(&messages, usize::MAX));
    for step in 1..40 {
        assert_eq!(
            differences(&essence(&parsed(&messages, step)), &whole),
            Vec::<String>::new(),
            "in steps of {step}"
        );
    }
}

/// Pieces of messages, valid and not.
const PIECES: &[&[u8]] = &[
    REQUEST,
    RESPONSE,
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
    b"POST /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n\r\n",
    b"GET /9\r\n",
    b"\r\n",
    b"junk",
    b"\n\r\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 204 No\r\n\r\n",
    b"HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 103 Early\r\nContent-Length: 3\r\n\r\n",
    b"HTTP/1.1 304 No\r\nContent-Length: 40\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\rContent-Length: 1\r\r",
    b" folded\r\n",
    b"0\r\n",
    b"POST /z HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /v HTTP/1.1\nHost: a\r\nContent-Length: 4, 0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3 7\n\r\n",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"2\nab\r\r\n",
];
