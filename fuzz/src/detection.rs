//! Detection: searches of many patterns, and rules over payloads.

use std::collections::BTreeSet;

use millrace_ips_engine::detect::{
    CompileSettings, DetectSettings, Scratch, Subject, compile, matches, oracle,
};
use millrace_ips_rules::{RuleSet, Syntax, Variables, files};
use millrace_ips_scan::{Backend, Pattern, build};

/// Reads patterns (a byte with size and case, then the pattern) up to a size of 0, and searches them in the rest.
///
/// Properties: every back end finds each pattern that the naive search finds, where it finds it.
pub(crate) fn scan(mut bytes: &[u8]) {
    const CASE: u8 = 0x80;
    const SIZE: u8 = 0x1f;
    let mut patterns = Vec::new();
    while let Some((&head, rest)) = bytes.split_first() {
        bytes = rest;
        let size = usize::from(head & SIZE).min(rest.len());
        if size == 0 {
            break;
        }
        let (pattern, rest) = rest.split_at(size);
        bytes = rest;
        patterns.push(Pattern {
            id: patterns.len() as u32,
            bytes: pattern.to_vec(),
            nocase: head & CASE != 0,
        });
    }
    let hits = |backend| {
        let mut hits = BTreeSet::new();
        build(backend, &patterns)
            .expect("the patterns are short")
            .scan(bytes, &mut |id, end| {
                hits.insert((id, end));
            });
        hits
    };
    let identifiers = |hits: &BTreeSet<(u32, usize)>| hits.iter().map(|(id, _)| *id).collect::<BTreeSet<_>>();
    let expected = hits(Backend::Naive);
    for backend in Backend::ALL {
        let found = hits(backend);
        assert!(
            found.is_subset(&expected),
            "{backend:?}: {found:?}, not {expected:?}"
        );
        assert_eq!(identifiers(&found), identifiers(&expected), "{backend:?}");
    }
}

/// Reads a rule up to the first line end, and evaluates it over the rest.
///
/// Properties: the evaluation has the result of the slow evaluator unless it notes a limit.
pub(crate) fn matching(bytes: &[u8]) {
    let (rule, payload) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[][..]),
    };
    // The slow evaluator keeps every state; it is not for large payloads.
    let payload = &payload[..payload.len().min(256)];
    let mut set = RuleSet::default();
    set.add(
        "f",
        files::parse(Syntax::Suricata, "f", rule),
        &Variables::usual(),
    );
    let (rules, refusals) = compile(&set, &CompileSettings::default());
    for refusal in refusals {
        assert!(refusal.to_string().starts_with("f:"));
    }
    let subject = Subject::whole(payload);
    for rule in &rules.rules {
        let lists = rule.buffers.iter().map(|test| &test.operations);
        for operations in lists.chain([&rule.payload]) {
            let mut scratch = Scratch::new(DetectSettings::default().pcre, false);
            scratch.begin();
            let found = matches(operations, &subject, &mut scratch);
            if scratch.limit.is_some() {
                continue;
            }
            scratch.begin();
            let expected = oracle::matches(operations, &subject, &mut scratch);
            assert!(found == expected || scratch.limit.is_some(), "sid {}", rule.sid);
        }
    }
}
