//! The slow evaluator: the test oracle of the evaluation and of the prefilter.
//!
//! It keeps the set of all possible states after the operations so far (a cursor and the variables), and
//! applies each operation to all of them. It has no search order, no budget and no early end, so it is simple
//! enough to be trusted.

use std::collections::BTreeSet;

use millrace_ips_pcre as pcre;

use super::evaluate::{self, Scratch};
use super::program::Operation;
use super::subject::{Subject, Variables};

type State = (usize, Variables);

/// Returns true if the operations match the subject from a state with no match before and these variables.
///
/// Several lists of one rule share their variables: the result has the variables of the last match, if there is one.
pub fn matches(operations: &[Operation], subject: &Subject<'_>, scratch: &mut Scratch) -> bool {
    let mut states = BTreeSet::from([(0, scratch.variables)]);
    for operation in operations {
        let mut next = BTreeSet::new();
        for state in states {
            successors(operation, subject, state, scratch, &mut next);
        }
        states = next;
    }
    !states.is_empty()
}

/// Adds the states that an operation can reach from a state.
fn successors(
    operation: &Operation,
    subject: &Subject<'_>,
    (cursor, mut variables): State,
    scratch: &mut Scratch,
    next: &mut BTreeSet<State>,
) {
    match operation {
        Operation::Content(content) => {
            let mut is_found = false;
            if let Some((from, to)) = evaluate::bounds(content, subject, cursor, &variables) {
                for at in from..=to - content.pattern.len() {
                    let place = &subject.bytes[at..at + content.pattern.len()];
                    let is_equal = match content.nocase {
                        true => place.eq_ignore_ascii_case(&content.pattern),
                        false => *place == *content.pattern,
                    };
                    if is_equal {
                        is_found = true;
                        if !content.is_negated {
                            next.insert((at + content.pattern.len(), variables));
                        }
                    }
                }
            }
            if content.is_negated && !is_found {
                next.insert((cursor, variables));
            }
        }
        Operation::Pcre(test) => {
            let start = if test.is_relative { cursor } else { 0 };
            let bytes = subject.bytes.get(start..).unwrap_or_default();
            let mut from = 0;
            let mut is_found = false;
            while from <= bytes.len() {
                match scratch.search(test, bytes, from) {
                    pcre::Outcome::Match { start: at, end } => {
                        is_found = true;
                        if !test.is_negated {
                            next.insert((start + end, variables));
                        }
                        from = at.max(from) + 1;
                    }
                    pcre::Outcome::NoMatch => break,
                    pcre::Outcome::Limit => {
                        scratch.limit.get_or_insert(evaluate::Limit::Pcre);
                        if scratch.limit_matches {
                            next.insert((cursor, variables));
                        }
                        return;
                    }
                }
            }
            if test.is_negated && !is_found {
                next.insert((cursor, variables));
            }
        }
        Operation::Base64 {
            bytes,
            offset,
            is_relative,
            then,
        } => {
            let mut decoded = Vec::new();
            evaluate::encoded(subject, cursor, (*bytes, *offset, *is_relative), &mut decoded);
            let before = std::mem::replace(&mut scratch.variables, variables);
            let is_match = !decoded.is_empty() && matches(then, &Subject::whole(&decoded), scratch);
            scratch.variables = before;
            if is_match {
                next.insert((cursor, variables));
            }
        }
        Operation::Set(set) => {
            if subject.is_complete && scratch.sets.look_up(set, subject.bytes) {
                next.insert((cursor, variables));
            }
        }
        operation => {
            if let Some(cursor) = evaluate::step(operation, subject, cursor, &mut variables) {
                next.insert((cursor, variables));
            }
        }
    }
}
