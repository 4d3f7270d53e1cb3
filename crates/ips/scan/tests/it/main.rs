//! Every back end against the naive search.

#![allow(clippy::unwrap_used, reason = "a test fails where it is wrong")]

use std::collections::BTreeSet;

use millrace_ips_scan::{Backend, BuildError, Pattern, build};
use proptest::prelude::*;

type Hits = BTreeSet<(u32, usize)>;

/// Returns the hits of a back end that end after the first `from` bytes.
fn hits(backend: Backend, patterns: &[Pattern], bytes: &[u8], from: usize) -> Hits {
    let scanner = build(backend, patterns).unwrap();
    let mut found = Hits::new();
    let mut add = |id, end| {
        found.insert((id, end));
    };
    match from {
        0 => scanner.scan(bytes, &mut add),
        _ => scanner.scan_new(bytes, from, &mut add),
    }
    found
}

/// Asserts that a back end finds each pattern that the naive search finds, and nothing else.
fn assert_finds_all(patterns: &[Pattern], bytes: &[u8], from: usize) {
    let identifiers = |hits: &Hits| hits.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>();
    let expected = hits(Backend::Naive, patterns, bytes, from);
    for backend in Backend::ALL {
        let found = hits(backend, patterns, bytes, from);
        assert!(
            found.is_subset(&expected),
            "{backend:?}: {found:?}, not {expected:?}"
        );
        assert_eq!(identifiers(&found), identifiers(&expected), "{backend:?}");
    }
}

fn pattern(id: u32, bytes: &[u8], nocase: bool) -> Pattern {
    Pattern {
        id,
        bytes: bytes.to_vec(),
        nocase,
    }
}

/// Returns a strategy of bytes from a small alphabet, so that patterns occur.
fn bytes(size: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(&b"aAbB.\x00\xff"[..]), size)
}

proptest! {
    #[test]
    fn every_back_end_finds_what_the_naive_search_finds(
        patterns in prop::collection::vec((bytes(1..9), any::<bool>()), 0..24),
        haystack in bytes(0..200),
    ) {
        let patterns: Vec<Pattern> = patterns
            .iter()
            .enumerate()
            .map(|(id, (bytes, nocase))| pattern(id as u32 / 2, bytes, *nocase))
            .collect();
        assert_finds_all(&patterns, &haystack, 0);
    }
}

proptest! {
    #[test]
    fn what_ends_in_new_bytes_is_found_wherever_they_begin(
        patterns in prop::collection::vec((bytes(1..80), any::<bool>()), 0..12),
        haystack in bytes(0..160),
        copies in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6),
        from in 0usize..170,
    ) {
        let mut haystack = haystack;
        for (which, at) in copies {
            if !patterns.is_empty() && !haystack.is_empty() {
                let copy = patterns[which.index(patterns.len())].0.clone();
                let at = at.index(haystack.len());
                haystack.splice(at..at, copy);
            }
        }
        let patterns: Vec<Pattern> = patterns
            .iter()
            .zip(0..)
            .map(|((bytes, nocase), id)| pattern(id, bytes, *nocase))
            .collect();
        assert_finds_all(&patterns, &haystack, from);
    }
}

#[test]
fn back_ends_agree_on_patterns_cut_out_of_text() {
    let text = include_bytes!("../../README.md");
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let patterns: Vec<Pattern> = (0..2000)
        .map(|id| {
            let size = 1 + next(20);
            let start = next(text.len() - size);
            let mut bytes = text[start..start + size].to_vec();
            if id % 3 == 0 {
                bytes.make_ascii_uppercase();
            }
            pattern(id, &bytes, id % 2 == 0)
        })
        .collect();
    let expected = hits(Backend::Naive, &patterns, text, 0);
    assert!(expected.len() > 1000, "{} hits", expected.len());
    assert_finds_all(&patterns, text, 0);
}

#[test]
fn a_pattern_without_bytes_is_refused_by_its_identifier() {
    for backend in Backend::ALL {
        let error = build(backend, &[pattern(7, b"", false)]).unwrap_err();
        assert_eq!(error, BuildError::Size { id: 7, size: 0 });
    }
}
