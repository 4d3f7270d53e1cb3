//! Regular expressions of rules: PCRE2 with limits on its work and its memory.
//!
//! A [`Regex`] is compiled once and shared; a [`Scratch`] belongs to one thread. The result of a match that
//! exceeds a limit is [`Outcome::Limit`], because it is not known whether the expression matches.

mod ffi;

use thiserror::Error;

pub use ffi::{Regex, Scratch};

/// Number of groups whose places a match leaves, as many as Suricata captures.
pub const GROUPS: u32 = 8;

/// Options of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// Upper and lower case are equal (`i`).
    pub caseless: bool,
    /// The dot matches line ends (`s`).
    pub dot_all: bool,
    /// `^` and `$` match at line ends (`m`).
    pub multiline: bool,
    /// Blanks and comments are ignored (`x`).
    pub extended: bool,
    /// The match begins at the start (`A`).
    pub anchored: bool,
    /// `$` matches at the end only, not before a last line end (`E`).
    pub dollar_end_only: bool,
    /// Quantifiers are lazy unless followed by `?` (`G`).
    pub ungreedy: bool,
}

/// Limits of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls of PCRE2's internal match function.
    pub matches: u32,
    /// Depth of nested backtracking.
    pub depth: u32,
    /// Heap memory of a match in KiB.
    pub heap_kib: u32,
}

impl Default for Limits {
    /// Returns the limits that the documentation of Suricata gives as defaults, and 1 MiB of heap.
    fn default() -> Limits {
        Limits {
            matches: 3500,
            depth: 1500,
            heap_kib: 1024,
        }
    }
}

/// The result of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The expression matches these bytes.
    Match {
        /// Offset of the first byte.
        start: usize,
        /// Offset after the last byte.
        end: usize,
    },
    /// The expression matches nowhere.
    NoMatch,
    /// A limit was exceeded before there was a result.
    Limit,
}

/// The reason why an expression was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// The expression is not valid.
    #[error("the expression is not valid at byte {offset}: {message}")]
    Syntax {
        /// Offset in the expression in bytes.
        offset: usize,
        /// The message of PCRE2.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &[u8], flags: Flags, subject: &[u8], start: usize) -> Outcome {
        let regex = Regex::new(pattern, flags).unwrap();
        let mut scratch = Scratch::new(Limits::default());
        regex.find(&mut scratch, subject, start)
    }

    #[test]
    fn a_match_has_its_place() {
        let flags = Flags {
            caseless: true,
            ..Flags::default()
        };
        assert_eq!(
            find(b"b+(?=c)", flags, b"aBbc", 0),
            Outcome::Match { start: 1, end: 3 }
        );
        assert_eq!(find(b"b+(?=c)", flags, b"aBbd", 0), Outcome::NoMatch);
    }

    #[test]
    fn a_start_offset_is_no_start_of_the_subject() {
        assert_eq!(find(b"^b", Flags::default(), b"abb", 1), Outcome::NoMatch);
        assert_eq!(
            find(b"b", Flags::default(), b"abb", 2),
            Outcome::Match { start: 2, end: 3 }
        );
    }

    #[test]
    fn a_group_has_its_place_and_an_expression_without_one_has_none() {
        let group = |pattern: &[u8], subject: &[u8]| {
            let regex = Regex::new(pattern, Flags::default()).unwrap();
            regex.find_group(&mut Scratch::new(Limits::default()), subject)
        };
        assert_eq!(group(b"\\.([^\\.]+)$", b"www.example.org"), Some((12, 15)));
        assert_eq!(group(b"a(b)?(c)", b"ac"), None);
        assert_eq!(group(b"(a)(b)(c)", b"xabc"), Some((1, 2)));
        assert_eq!(group(b"abc", b"abc"), None);
        assert_eq!(group(b"(x)", b"abc"), None);
    }

    #[test]
    fn a_match_leaves_the_places_of_its_groups() {
        let regex = Regex::new(b"(?P<pkt_a>a+)(b)?(?P<flow_c>c)", Flags::default()).unwrap();
        let mut scratch = Scratch::new(Limits::default());
        let subject = b"xaac";
        assert_eq!(
            regex.find(&mut scratch, subject, 0),
            Outcome::Match { start: 1, end: 4 }
        );
        let places: Vec<_> = (0..5)
            .map(|number| regex.group(&scratch, number, subject.len()))
            .collect();
        assert_eq!(places, [None, Some((1, 3)), None, Some((3, 4)), None]);
        assert_eq!((regex.groups(), regex.group_of(c"flow_c")), (3, Some(3)));
        assert_eq!(regex.group_of(c"flow_d"), None);
        // A match has the places of the first groups only.
        let regex = Regex::new(b"(a)(a)(a)(a)(a)(a)(a)(b)(c)", Flags::default()).unwrap();
        let subject = b"aaaaaaabc";
        regex.find(&mut scratch, subject, 0);
        assert_eq!(regex.group(&scratch, GROUPS, subject.len()), Some((7, 8)));
        assert_eq!(regex.group(&scratch, GROUPS + 1, subject.len()), None);
    }

    #[test]
    fn bytes_are_not_text() {
        assert_eq!(
            find(b"\\xff\\x00.", Flags::default(), b"\xfe\xff\x00\x80", 0),
            Outcome::Match { start: 1, end: 4 }
        );
    }

    #[test]
    fn an_expression_that_backtracks_for_ever_ends_at_the_limit() {
        let subject = [b'a'; 64];
        assert_eq!(
            find(b"(a+)+(a+)+(a+)+$x", Flags::default(), &subject, 0),
            Outcome::NoMatch
        );
        assert_eq!(
            find(b"^(?:(a|aa|a\\b)+)+[^a]", Flags::default(), &subject, 0),
            Outcome::Limit
        );
    }

    #[test]
    fn an_expression_that_is_slow_at_each_position_ends_at_the_budget() {
        let regex = Regex::new(b"(?:a|aa|a\\b){1,6}[^a]", Flags::default()).unwrap();
        let subject = [b'a'; 1400];
        let find = |steps| {
            let mut scratch = Scratch::new(Limits::default());
            scratch.steps_left = steps;
            let outcome = regex.find(&mut scratch, &subject, 0);
            (outcome, scratch.steps_left)
        };
        assert_eq!(find(200_000), (Outcome::Limit, 0));
        assert_eq!(find(u64::MAX).0, Outcome::NoMatch);
        // Without a budget there is no search.
        assert_eq!(find(0), (Outcome::Limit, 0));
    }

    #[test]
    fn a_search_by_position_finds_what_a_search_at_once_finds() {
        let texts: [&[u8]; 4] = [
            b"xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAB",
            b"AAAA\nAAAB",
            b"",
            b"aXbXcXAAB\n",
        ];
        for pattern in [
            "A[^\\n]*A[^\\n]*B",
            "(A+)+B",
            "[AX].*B",
            "^A",
            "(?=B)",
            "(?i)x.*b",
            "B$",
        ] {
            let regex = Regex::new(pattern.as_bytes(), Flags::default()).unwrap();
            for text in texts {
                for start in 0..=text.len() {
                    let mut scratch = Scratch::new(Limits::default());
                    let at_once = regex.find(&mut scratch, text, start);
                    let by_position = regex.find_by_position(&mut scratch, text, start);
                    assert_eq!(at_once, by_position, "{pattern} {start} {}", text.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn a_wrong_expression_has_a_message_with_its_place() {
        let error = Regex::new(b"a(b", Flags::default()).unwrap_err();
        assert!(matches!(error, CompileError::Syntax { offset: 3, .. }), "{error}");
    }
}
