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
        let whole = parsed_with(settings, &messages, usize::MAX);
        let cut = parsed_with(settings, &messages, step);
        prop_assert_eq!(cut.outcome == Outcome::Failed, whole.outcome == Outcome::Failed);
        // In line, what follows a message that is refused is not forwarded: readings of it do not matter.
        if !is_inline || whole.outcome != Outcome::Failed {
            let [cut_of, whole_of] = [&cut, &whole].map(|parsed| essences(&parsed.transactions));
            prop_assert_eq!(differences(&cut_of.0, &whole_of.0), Vec::<String>::new());
            prop_assert_eq!(cut.has_replaced, whole.has_replaced);
            // A reading that makes room for others ends where the segment ends that they begin in.
            if !whole.has_replaced {
                prop_assert_eq!(differences(&cut_of.1, &whole_of.1), Vec::<String>::new());
            }
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

#[test]
fn requests_behind_a_refused_connect_are_answered_in_any_segmentation() {
    let up = b"CONNECT a:1 HTTP/1.1\r\n\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    for refusal in [
        &b"HTTP/1.1 304 No\r\nContent-Length: 40\r\n\r\n"[..],
        b"HTTP/1.1 403 No\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let body = b"x".repeat(2 * LINE_SIZE);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let down = [refusal, head.as_bytes(), &body].concat();
        for step in [1, 7, usize::MAX] {
            let transactions = parsed(&[(UP, up), (DOWN, &down)], step);
            let codes: Vec<_> = transactions
                .list
                .iter()
                .map(|transaction| transaction.buffer(Buffer::HttpStatCode, DOWN).unwrap_or_default())
                .collect();
            assert_eq!(codes, [&refusal[9..12], b"200"], "in steps of {step}");
        }
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
