//! Malformed messages made systematically: each attribute in each wrong length, with wrong flags, twice and cut off; each wrong
//! prefix length; each wrong header. A table written from RFC 7606, without the decoder's code, gives the expected consequence.

use millrace_types::Time;

use crate::malformed::{Consequence, ROUTE, consequence};
use crate::speaker::{ATTRIBUTES, established, message, messages, update};
use Consequence::{Ended, Kept, Withdrawn};

/// The rules for an attribute in an external session with four-octet AS numbers.
struct Row {
    name: &'static str,
    kind: u8,
    flags: u8,
    /// A well-formed value.
    value: &'static [u8],
    /// The permitted length in bytes; with `is_list`, any positive multiple of it. `None` if such a session
    /// ignores the attribute.
    unit: Option<usize>,
    is_list: bool,
    /// The consequence of a wrong length.
    fault: Consequence,
}

const fn row(
    name: &'static str,
    (kind, flags): (u8, u8),
    value: &'static [u8],
    (unit, is_list): (Option<usize>, bool),
    fault: Consequence,
) -> Row {
    Row {
        name,
        kind,
        flags,
        value,
        unit,
        is_list,
        fault,
    }
}

/// The attributes and their rules: RFC 7606, section 7; RFC 8092, section 6; RFC 6793, section 6.
const ROWS: &[Row] = &[
    row("ORIGIN", (1, 0x40), &[0], (Some(1), false), Withdrawn),
    row(
        "NEXT_HOP",
        (3, 0x40),
        &[192, 0, 2, 2],
        (Some(4), false),
        Withdrawn,
    ),
    row(
        "MULTI_EXIT_DISC",
        (4, 0x80),
        &[0, 0, 0, 1],
        (Some(4), false),
        Withdrawn,
    ),
    row("LOCAL_PREF", (5, 0x40), &[0, 0, 0, 1], (None, false), Kept),
    row("ATOMIC_AGGREGATE", (6, 0x40), &[], (Some(0), false), Kept),
    row(
        "AGGREGATOR",
        (7, 0xc0),
        &[0, 0, 0xfb, 0xf5, 1, 1, 1, 1],
        (Some(8), false),
        Kept,
    ),
    row(
        "COMMUNITIES",
        (8, 0xc0),
        &[0xfb, 0xf5, 0, 1],
        (Some(4), true),
        Withdrawn,
    ),
    row("ORIGINATOR_ID", (9, 0x80), &[1, 1, 1, 1], (None, false), Kept),
    row("CLUSTER_LIST", (10, 0x80), &[1, 1, 1, 1], (None, true), Kept),
    row(
        "extended communities",
        (16, 0xc0),
        &[0, 2, 0, 1, 0, 0, 0, 1],
        (Some(8), true),
        Withdrawn,
    ),
    row(
        "AS4_PATH",
        (17, 0xc0),
        &[2, 1, 0, 0, 0xfb, 0xf5],
        (None, false),
        Kept,
    ),
    row(
        "AS4_AGGREGATOR",
        (18, 0xc0),
        &[0, 0, 0xfb, 0xf5, 1, 1, 1, 1],
        (None, false),
        Kept,
    ),
    row(
        "extended communities of IPv6",
        (25, 0xc0),
        &[9; 20],
        (Some(20), true),
        Withdrawn,
    ),
    row(
        "large communities",
        (32, 0xc0),
        &[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3],
        (Some(12), true),
        Withdrawn,
    ),
];

const ORIGIN: &[u8] = &[0x40, 1, 1, 0];
const AS_PATH: &[u8] = &[0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf5];
const NEXT_HOP: &[u8] = &[0x40, 3, 4, 192, 0, 2, 2];

impl Row {
    /// Returns the attribute with other flags and another value.
    fn bytes(&self, flags: u8, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![flags, self.kind];
        if flags & 0x10 != 0 {
            bytes.push(0);
        }
        bytes.push(value.len() as u8);
        bytes.extend(value);
        bytes
    }

    /// Returns the mandatory attributes, with `attribute` in place of the one of its type, or at the end.
    fn among(&self, attribute: &[u8]) -> Vec<u8> {
        match self.kind {
            1 => [attribute, AS_PATH, NEXT_HOP].concat(),
            3 => [ORIGIN, AS_PATH, attribute].concat(),
            _ => [ORIGIN, AS_PATH, NEXT_HOP, attribute].concat(),
        }
    }

    fn permits(&self, len: usize) -> bool {
        match self.unit {
            None => true,
            Some(unit) if self.is_list => len > 0 && len.is_multiple_of(unit),
            Some(unit) => len == unit,
        }
    }
}

/// The number of checked cases. A case with the wrong consequence fails the test.
#[derive(Default)]
struct Cases(usize);

impl Cases {
    fn check(&mut self, bytes: &[u8], expected: &Consequence, text: &dyn Fn() -> String) {
        assert_eq!(consequence(bytes), *expected, "{}: {bytes:02x?}", text());
        self.0 += 1;
    }
}

/// Checks each attribute in each length up to 24, with a length field of one and of two bytes.
fn lengths(cases: &mut Cases) {
    for row in ROWS {
        for extended in [0, 0x10] {
            for len in 0..=24 {
                let value: Vec<u8> = row.value.iter().chain(&[1; 24]).take(len).copied().collect();
                let attribute = row.bytes(row.flags | extended, &value);
                let expected = if row.permits(len) { &Kept } else { &row.fault };
                let bytes = update(&[], &row.among(&attribute), ROUTE);
                cases.check(&bytes, expected, &|| format!("{} with {len} bytes", row.name));
            }
        }
    }
}

/// Checks each attribute with each pair of the optional and the transitive bit (RFC 7606, section 3, (c)).
fn flags(cases: &mut Cases) {
    for row in ROWS {
        for two in [0x00, 0x40, 0x80, 0xc0] {
            let attribute = row.bytes(two, row.value);
            let expected = if two == row.flags { Kept } else { Withdrawn };
            let bytes = update(&[], &row.among(&attribute), ROUTE);
            cases.check(&bytes, &expected, &|| {
                format!("{} with flags {two:#04x}", row.name)
            });
        }
    }
}

/// Checks each attribute twice in a message: the first one counts (RFC 7606, section 3, (g)). Also checks
/// each unknown type as a well-known attribute.
fn occurrences(cases: &mut Cases) {
    for row in ROWS {
        let attribute = row.bytes(row.flags, row.value);
        let twice = [&row.among(&attribute)[..], &attribute].concat();
        cases.check(&update(&[], &twice, ROUTE), &Kept, &|| {
            format!("{} twice", row.name)
        });
    }
    for kind in [33_u8, 64, 99, 128, 200, 254] {
        for (flags, expected) in [(0x40, Ended(3, 2)), (0xc0, Kept), (0x80, Kept)] {
            let attributes = [ATTRIBUTES, &[flags, kind, 1, 7]].concat();
            cases.check(&update(&[], &attributes, ROUTE), &expected, &|| {
                format!("type {kind}")
            });
        }
    }
}

/// Checks each list of attributes cut at each byte, with a length field that fits: the routes after the list
/// are found (RFC 7606, section 4).
fn cuts(cases: &mut Cases) {
    for row in ROWS.iter().filter(|row| !matches!(row.kind, 1 | 3)) {
        let attribute = row.bytes(row.flags, row.value);
        let whole = row.among(&attribute);
        let mandatory = ORIGIN.len() + AS_PATH.len() + NEXT_HOP.len();
        for len in 1..whole.len() {
            let expected = if len == mandatory { Kept } else { Withdrawn };
            let bytes = update(&[], &whole[..len], ROUTE);
            cases.check(&bytes, &expected, &|| format!("{} cut at {len}", row.name));
        }
    }
}

/// Checks each prefix length above 32, in announced and in withdrawn routes (RFC 7606, section 5.3).
fn prefixes(cases: &mut Cases) {
    for len in 33..=255_u8 {
        let route: Vec<u8> = core::iter::once(len).chain([1; 32]).collect();
        for bytes in [update(&[], ATTRIBUTES, &route), update(&route, ATTRIBUTES, ROUTE)] {
            cases.check(&bytes, &Ended(3, 10), &|| format!("a prefix of {len} bits"));
        }
    }
}

/// Checks each length of the two lists that exceeds the message (RFC 7606, section 4).
fn lists(cases: &mut Cases) {
    let whole = update(&[], ATTRIBUTES, ROUTE);
    let behind = whole.len() - 23;
    for add in 1..40 {
        let mut bytes = whole.clone();
        bytes[21..23].copy_from_slice(&((behind + add) as u16).to_be_bytes());
        cases.check(&bytes, &Ended(3, 1), &|| {
            format!("attributes {add} bytes too long")
        });
        let mut bytes = whole.clone();
        bytes[19..21].copy_from_slice(&((behind + 2 + add) as u16).to_be_bytes());
        cases.check(&bytes, &Ended(3, 1), &|| {
            format!("withdrawn routes {add} bytes too long")
        });
    }
}

/// Checks headers (RFC 4271, section 6.1): each byte of the marker, lengths, and types.
fn headers(cases: &mut Cases) {
    let mut check = |bytes: &[u8], subcode: u8| {
        let mut peer = established(Time::ZERO, &[]);
        peer.receive(bytes, Time::ZERO);
        assert!(!peer.is_open(), "{bytes:02x?}");
        let (kind, body) = messages(&peer.take_output()).pop().unwrap();
        assert_eq!((kind, &body[..2]), (3, &[1, subcode][..]), "{bytes:02x?}");
        cases.0 += 1;
    };
    for at in 0..16 {
        let mut bytes = message(4, &[]);
        bytes[at] = 0xfe;
        check(&bytes, 1);
    }
    for len in (0..19_u16).chain([4097, 5000, 65_535]) {
        let mut bytes = update(&[], ATTRIBUTES, ROUTE);
        bytes[16..18].copy_from_slice(&len.to_be_bytes());
        check(&bytes, 2);
    }
    for kind in (6..=255_u8).chain([0]) {
        check(&message(kind, &[]), 3);
    }
}

#[test]
fn malformed_updates_cost_what_rfc_7606_says() {
    let mut cases = Cases::default();
    for part in [lengths, flags, occurrences, cuts, prefixes, lists, headers] {
        part(&mut cases);
    }
    println!(
        "{} cases: each kept or ended the session as RFC 7606 says",
        cases.0
    );
    assert!(cases.0 >= 1_500, "{}", cases.0);
}
