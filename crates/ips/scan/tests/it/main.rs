//! Every back end against the naive search.

#![allow(clippy::unwrap_used, reason = "a test fails where it is wrong")]

use millrace_ips_scan::{Backend, BuildError, Pattern, build};
use proptest::prelude::*;

/// Returns the sorted hits of a back end.
fn hits(backend: Backend, patterns: &[Pattern], bytes: &[u8]) -> Vec<(u32, usize)> {
    let scanner = build(backend, patterns).unwrap();
    let mut found = Vec::new();
    scanner.scan(bytes, &mut |id, end| found.push((id, end)));
    found.sort_unstable();
    found
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
        let expected = hits(Backend::Naive, &patterns, &haystack);
        for backend in Backend::ALL {
            prop_assert_eq!(&hits(backend, &patterns, &haystack), &expected, "{:?}", backend);
        }
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
        let mut expected = hits(Backend::Naive, &patterns, &haystack);
        expected.retain(|(_, end)| *end > from);
        for backend in Backend::ALL {
            let scanner = build(backend, &patterns).unwrap();
            let mut found = Vec::new();
            scanner.scan_new(&haystack, from, &mut |id, end| found.push((id, end)));
            found.sort_unstable();
            prop_assert_eq!(&found, &expected, "{:?}", backend);
        }
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
    let expected = hits(Backend::Naive, &patterns, text);
    assert!(expected.len() > 1000, "{} hits", expected.len());
    for backend in Backend::ALL {
        assert!(hits(backend, &patterns, text) == expected, "{backend:?}");
    }
}

#[test]
fn a_pattern_without_bytes_is_refused_by_its_identifier() {
    for backend in Backend::ALL {
        let error = build(backend, &[pattern(7, b"", false)]).unwrap_err();
        assert_eq!(error, BuildError::Size { id: 7, size: 0 });
    }
}
