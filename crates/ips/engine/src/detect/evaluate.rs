//! Evaluation of operations over bytes: depth first, with a cursor, a budget of steps and limits on expressions.
//!
//! If later operations refer to a content or an expression, it is tried at each of its positions, the first
//! one first. All other operations have one result.

use memchr::memchr2;
use millrace_ips_pcre as pcre;
use millrace_ips_rules::options::entropy::{Entropy, PARTS};
use millrace_ips_rules::options::number::Comparison;

use super::bytes;
use super::dataset::Changes;
use super::program::{CaptureName, CaptureScope, ContentTest, JumpBase, Operation, PcreTest, compare};
use super::subject::{Subject, Variables};

/// Largest number of positions at which contents and expressions of a rule are tried in one inspection of a
/// buffer.
pub const STEP_BUDGET: u32 = 3000;

/// Largest number of bytes of a group that records show.
const CAPTURE_SIZE: usize = 1024;
/// Largest number of groups of a rule that records show.
pub(super) const CAPTURES: usize = 32;

/// Bytes that a group of an expression captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Captured {
    pub(super) scope: CaptureScope,
    pub(super) name: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// A limit that ended an evaluation without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    /// The budget of steps.
    Steps,
    /// A limit of a regular expression.
    Pcre,
}

/// The memory that evaluations reuse.
#[derive(Debug)]
pub struct Scratch {
    pcre: pcre::Scratch,
    /// The variables of the rule that is evaluated.
    pub variables: Variables,
    /// The result of an operation that exceeds a limit.
    pub limit_matches: bool,
    /// The first limit that was exceeded since [`Scratch::begin`].
    pub limit: Option<Limit>,
    steps: u32,
    decoded: Vec<Vec<u8>>,
    /// The groups that the rule captured.
    pub(super) captured: Vec<Captured>,
    /// The changes of sets of values by rules.
    pub(super) sets: Changes,
}

impl Scratch {
    /// Returns a scratch with the given limits of expressions. `limit_matches` is the result of an operation
    /// that exceeds a limit.
    pub fn new(limits: pcre::Limits, limit_matches: bool) -> Scratch {
        Scratch {
            pcre: pcre::Scratch::new(limits),
            variables: Variables::default(),
            limit_matches,
            limit: None,
            steps: STEP_BUDGET,
            decoded: Vec::new(),
            captured: Vec::new(),
            sets: Changes::default(),
        }
    }

    /// Begins the evaluation of a rule.
    pub fn begin(&mut self) {
        self.variables = Variables::default();
        self.limit = None;
        self.sets.found.clear();
        self.captured.clear();
    }

    /// Records a limit that an operation exceeds, and returns the result of the operation.
    fn exceed(&mut self, limit: Limit) -> bool {
        self.limit.get_or_insert(limit);
        self.limit_matches
    }

    /// Sets the steps that expressions may take from now on.
    pub(super) fn set_budget(&mut self, steps: u64) {
        self.pcre.steps_left = steps;
    }

    /// Returns the steps that expressions may still take.
    pub(super) fn budget(&self) -> u64 {
        self.pcre.steps_left
    }

    /// Returns the memory of expressions.
    pub(super) fn expressions(&mut self) -> &mut pcre::Scratch {
        &mut self.pcre
    }

    /// Keeps the groups of the last match of an expression that records show.
    fn capture(&mut self, test: &PcreTest, subject: &[u8]) {
        let mut key: Option<Vec<u8>> = None;
        for capture in &test.captures {
            let Some((start, end)) = test.regex.group(&self.pcre, capture.group, subject.len()) else {
                continue;
            };
            let value = subject[start..end.min(start + CAPTURE_SIZE)].to_vec();
            let name = match &capture.name {
                CaptureName::Name(name) => name.as_bytes().to_vec(),
                CaptureName::Key => {
                    key = Some(value);
                    continue;
                }
                CaptureName::Value => match key.take() {
                    Some(name) => name,
                    None => continue,
                },
            };
            if self.captured.len() < CAPTURES {
                let scope = capture.scope;
                self.captured.push(Captured { scope, name, value });
            }
        }
    }

    /// Returns the result of an expression: start and end of the match in the subject.
    pub(super) fn search(&mut self, test: &PcreTest, subject: &[u8], from: usize) -> pcre::Outcome {
        test.regex.find(&mut self.pcre, subject, from)
    }
}

/// Returns true if the operations match the subject.
pub fn matches(operations: &[Operation], subject: &Subject<'_>, scratch: &mut Scratch) -> bool {
    scratch.steps = STEP_BUDGET;
    let captured = scratch.captured.len();
    let is_match = run(operations, subject, 0, scratch);
    if !is_match {
        scratch.captured.truncate(captured);
    }
    is_match
}

/// Returns true if one of the operations refers to the end of the match before them.
fn refers_back(operations: &[Operation]) -> bool {
    for operation in operations {
        if operation.is_relative() {
            return true;
        }
        let moves = match operation {
            Operation::Content(content) => !content.is_negated,
            Operation::Pcre(pcre) => !pcre.is_negated,
            Operation::ByteJump { .. } | Operation::ByteExtract { .. } | Operation::ByteMath { .. } => true,
            _ => false,
        };
        if moves {
            return false;
        }
    }
    false
}

/// Returns the start and the end of the range in which a content must lie; none if the content does not fit
/// into it.
pub(super) fn bounds(
    content: &ContentTest,
    subject: &Subject<'_>,
    cursor: usize,
    variables: &Variables,
) -> Option<(usize, usize)> {
    let number = |operand| bytes::value(operand, variables);
    let len = subject.bytes.len() as i64;
    let base = i64::try_from(subject.offset).unwrap_or(i64::MAX);
    let (mut low, mut high) = (0i64, len);
    if content.is_relative() {
        low = (cursor as i64).saturating_add(content.distance.map_or(0, number));
        if let Some(within) = content.within {
            high = high.min(low.saturating_add(number(within)));
        }
    }
    if content.offset.is_some() || content.depth.is_some() {
        let offset = content.offset.map_or(0, number);
        low = low.max(offset.saturating_sub(base));
        if let Some(depth) = content.depth {
            high = high.min(offset.saturating_add(number(depth)).saturating_sub(base));
        }
    }
    let size = content.pattern.len() as i64;
    low = low.max(0);
    if content.endswith {
        if high < len {
            return None;
        }
        low = low.max(len - size);
    }
    (high - low >= size).then_some((low as usize, high as usize))
}

/// Returns the first offset of a pattern between two offsets.
fn find(content: &ContentTest, haystack: &[u8], from: usize, to: usize) -> Option<usize> {
    let range = haystack.get(from..to)?;
    match &content.finder {
        Some(finder) => finder.find(range).map(|at| from + at),
        None => find_nocase(&content.pattern, range).map(|at| from + at),
    }
}

/// Returns the first offset of a pattern in lower case, without regard to the case of the bytes.
fn find_nocase(pattern: &[u8], haystack: &[u8]) -> Option<usize> {
    let (first, last) = (*pattern.first()?, haystack.len().checked_sub(pattern.len())?);
    let mut from = 0;
    while from <= last {
        let at = from + memchr2(first, first.to_ascii_uppercase(), &haystack[from..=last])?;
        if haystack[at..at + pattern.len()].eq_ignore_ascii_case(pattern) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Applies the operations from a cursor on, and returns true if all match.
fn run(
    mut operations: &[Operation],
    subject: &Subject<'_>,
    mut cursor: usize,
    scratch: &mut Scratch,
) -> bool {
    while let Some((operation, rest)) = operations.split_first() {
        let is_match = match operation {
            Operation::Content(content) if !content.is_negated => {
                let Some((mut from, to)) = bounds(content, subject, cursor, &scratch.variables) else {
                    return false;
                };
                let Some(mut at) = find(content, subject.bytes, from, to) else {
                    return false;
                };
                if refers_back(rest) {
                    loop {
                        if run(rest, subject, at + content.pattern.len(), scratch) {
                            return true;
                        }
                        if scratch.steps == 0 {
                            return scratch.exceed(Limit::Steps);
                        }
                        scratch.steps -= 1;
                        from = at + 1;
                        match find(content, subject.bytes, from, to) {
                            Some(next) => at = next,
                            None => return false,
                        }
                    }
                }
                cursor = at + content.pattern.len();
                true
            }
            Operation::Content(content) => match bounds(content, subject, cursor, &scratch.variables) {
                Some((from, to)) => find(content, subject.bytes, from, to).is_none(),
                None => true,
            },
            Operation::Pcre(test) => {
                let start = if test.is_relative { cursor } else { 0 };
                let bytes = subject.bytes.get(start..).unwrap_or_default();
                let mut from = 0;
                loop {
                    match scratch.search(test, bytes, from) {
                        pcre::Outcome::NoMatch => break test.is_negated,
                        pcre::Outcome::Limit => break scratch.exceed(Limit::Pcre),
                        pcre::Outcome::Match { .. } if test.is_negated => break false,
                        pcre::Outcome::Match { end, .. } if !refers_back(rest) => {
                            scratch.capture(test, bytes);
                            cursor = start + end;
                            break true;
                        }
                        pcre::Outcome::Match { start: at, end } => {
                            let captured = scratch.captured.len();
                            scratch.capture(test, bytes);
                            if run(rest, subject, start + end, scratch) {
                                return true;
                            }
                            scratch.captured.truncate(captured);
                            if scratch.steps == 0 {
                                return scratch.exceed(Limit::Steps);
                            }
                            scratch.steps -= 1;
                            from = at + 1;
                            if from > bytes.len() {
                                return false;
                            }
                        }
                    }
                }
            }
            Operation::Base64 {
                bytes: limit,
                offset,
                is_relative,
                then,
            } => decode(subject, cursor, (*limit, *offset, *is_relative), then, scratch),
            // The value of a buffer that grows is not known.
            Operation::Set(set) => subject.is_complete && scratch.sets.look_up(set, subject.bytes),
            operation => match step(operation, subject, cursor, &mut scratch.variables) {
                Some(next) => {
                    cursor = next;
                    true
                }
                None => false,
            },
        };
        if !is_match {
            return false;
        }
        operations = rest;
    }
    true
}

/// Applies an operation that has one result. Returns the cursor after the operation, or none if it does not
/// match.
pub(super) fn step(
    operation: &Operation,
    subject: &Subject<'_>,
    cursor: usize,
    variables: &mut Variables,
) -> Option<usize> {
    let len = subject.bytes.len();
    match operation {
        Operation::ByteTest {
            source,
            operator,
            is_negated,
            value,
        } => {
            let (number, _) = bytes::read(source, subject, cursor, variables)?;
            let is_true = bytes::test(*operator, number, bytes::unsigned(*value, variables));
            (is_true != *is_negated).then_some(cursor)
        }
        Operation::ByteJump {
            source,
            multiplier,
            align,
            base,
            post_offset,
        } => {
            let (number, end) = bytes::read(source, subject, cursor, variables)?;
            let number = bytes::align_up(number.wrapping_mul(*multiplier), *align);
            let from = match base {
                JumpBase::Number => end,
                JumpBase::Beginning => 0,
                JumpBase::End => len,
            };
            let target = i64::try_from(number)
                .ok()?
                .checked_add(from as i64)?
                .checked_add(bytes::value(*post_offset, variables))?;
            usize::try_from(target).ok().filter(|target| *target <= len)
        }
        Operation::ByteExtract {
            source,
            multiplier,
            align,
            variable,
        } => {
            let (number, end) = bytes::read(source, subject, cursor, variables)?;
            let number = bytes::align_up(number.wrapping_mul(*multiplier), *align);
            *variables.get_mut(usize::from(*variable))? = number;
            Some(end)
        }
        Operation::ByteMath {
            source,
            operator,
            value,
            variable,
        } => {
            let (number, end) = bytes::read(source, subject, cursor, variables)?;
            let result = bytes::compute(*operator, number, bytes::unsigned(*value, variables))?;
            *variables.get_mut(usize::from(*variable))? = result;
            Some(end)
        }
        Operation::IsDataAt {
            position,
            is_relative,
            is_negated,
        } => {
            let position = bytes::value(*position, variables);
            let has_data = match is_relative {
                true => (cursor as i64).saturating_add(position) <= len as i64,
                false => position < len as i64,
            };
            (has_data != *is_negated).then_some(cursor)
        }
        Operation::Entropy(test) => {
            // More bytes may change the entropy.
            (subject.is_complete && has_entropy(test, subject.bytes)).then_some(cursor)
        }
        Operation::Size(comparison) => has_size(*comparison, subject).then_some(cursor),
        Operation::RemainingSize(comparison) => {
            compare(*comparison, len.saturating_sub(cursor) as u64).then_some(cursor)
        }
        // The remaining operations have several results each, and callers do not pass them here.
        Operation::Content(_) | Operation::Pcre(_) | Operation::Base64 { .. } | Operation::Set(_) => None,
    }
}

/// Returns true if the size of the subject satisfies a comparison, no matter which bytes follow.
fn has_size(comparison: Comparison, subject: &Subject<'_>) -> bool {
    let size = subject.bytes.len() as u64 + subject.offset;
    match comparison {
        Comparison::Greater(_) | Comparison::GreaterOrEqual(_) => compare(comparison, size),
        Comparison::NotEqual(n) if size > n => true,
        _ => subject.is_complete && compare(comparison, size),
    }
}

/// Returns true if the entropy of a part of the bytes satisfies a comparison; no bytes have none.
fn has_entropy(test: &Entropy, bytes: &[u8]) -> bool {
    let part = bytes.get(test.offset as usize..).unwrap_or_default();
    let size = test
        .bytes
        .map_or(part.len(), |size| part.len().min(size as usize));
    let part = &part[..size];
    if part.is_empty() {
        return false;
    }
    let mut counts = [0u32; 256];
    for byte in part {
        counts[usize::from(*byte)] += 1;
    }
    let bits = |count: &u32| {
        let share = f64::from(*count) / part.len() as f64;
        -share * share.log2()
    };
    let entropy: f64 = counts.iter().filter(|count| **count > 0).map(bits).sum();
    compare(test.comparison, (entropy * PARTS as f64).round() as u64)
}

/// Decodes Base64 and applies operations to the result.
fn decode(
    subject: &Subject<'_>,
    cursor: usize,
    (limit, offset, is_relative): (Option<u32>, u32, bool),
    then: &[Operation],
    scratch: &mut Scratch,
) -> bool {
    let mut decoded = scratch.decoded.pop().unwrap_or_default();
    encoded(subject, cursor, (limit, offset, is_relative), &mut decoded);
    let is_match = !decoded.is_empty() && run(then, &Subject::whole(&decoded), 0, scratch);
    scratch.decoded.push(decoded);
    is_match
}

/// Decodes the Base64 data at an offset.
pub(super) fn encoded(
    subject: &Subject<'_>,
    cursor: usize,
    (limit, offset, is_relative): (Option<u32>, u32, bool),
    out: &mut Vec<u8>,
) {
    let start = offset as usize + if is_relative { cursor } else { 0 };
    let bytes = subject.bytes.get(start..).unwrap_or_default();
    let size = limit.map_or(bytes.len(), |limit| bytes.len().min(limit as usize));
    bytes::decode_base64(&bytes[..size], out);
}
