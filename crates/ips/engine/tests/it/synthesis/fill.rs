//! Bytes that lists of operations match.
//!
//! A draft has bytes that are fixed, and others that are free. Each operation fixes some, from left to right;
//! the oracle decides about the result. A wrong draft is made again with other choices: the order of contents
//! and expressions, and the text of an expression.

use millrace_ips_engine::detect::program::{
    ContentTest, Endianness, JumpBase, MathOperator, NumberForm, NumberSource, Operand, Operation, PcreTest,
    TestOperator,
};
use millrace_ips_engine::detect::{DetectSettings, Scratch, Subject, oracle};
use millrace_ips_rules::options::number::Comparison;

use super::expression::Expression;
use super::random::Random;

/// Drafts that are made before a list of operations is given up.
const DRAFTS: usize = 60;
/// Largest size of a draft.
const LONGEST: usize = 20_000;

/// Returns true if the operations match the bytes.
pub(crate) fn holds(operations: &[Operation], bytes: &[u8]) -> bool {
    let mut scratch = Scratch::new(DetectSettings::default().pcre, false);
    scratch.begin();
    oracle::matches(operations, &Subject::whole(bytes), &mut scratch)
}

/// Returns bytes that all of the lists match. Bytes that no operation asks for are those of `base`, then a letter.
///
/// Contents without a fixed place are put after the first N bytes of the base; N is chosen from `starts`.
pub(crate) fn fill(
    lists: &[&[Operation]],
    base: &[u8],
    starts: &[usize],
    random: &mut Random,
) -> Option<Vec<u8>> {
    for attempt in 0..DRAFTS {
        let start = random.choose(starts);
        let mut draft = Draft {
            start,
            bytes: vec![None; start],
            cursor: 0,
            variables: [0; 256],
            exact: exact_size(lists, random),
            is_sealed: false,
            is_reusing: attempt % 2 == 0 || random.one_in(2),
            gap: if attempt < DRAFTS / 2 { 0 } else { random.below(4) },
            base,
            filler: random.choose(if attempt < DRAFTS / 2 {
                b"xaZ0"
            } else {
                b"xA0/. \0\xff"
            }),
            random,
        };
        let mut chains: Vec<&[Operation]> = lists.iter().flat_map(|list| chains(list)).collect();
        match attempt % 3 {
            0 => {}
            1 => chains.sort_by_key(|chain| !has_expression(chain)),
            _ => chains.sort_by_key(|chain| !is_anchored(chain)),
        }
        chains.sort_by_key(|chain| is_last(chain));
        if chains.iter().all(|chain| draft.chain(chain).is_some()) {
            let bytes = draft.finish();
            if lists.iter().all(|list| holds(list, &bytes)) {
                return Some(bytes);
            }
        }
    }
    None
}

/// Splits operations in front of those that do not depend on the one before them.
fn chains(list: &[Operation]) -> Vec<&[Operation]> {
    let mut chains = Vec::new();
    let mut from = 0;
    for at in 1..=list.len() {
        if at == list.len() || !list[at].is_relative() {
            chains.push(&list[from..at]);
            from = at;
        }
    }
    chains.retain(|chain| !chain.is_empty());
    chains
}

fn has_expression(chain: &[Operation]) -> bool {
    matches!(chain.first(), Some(Operation::Pcre(_)))
}

fn is_anchored(chain: &[Operation]) -> bool {
    match chain.first() {
        Some(Operation::Content(content)) => content.depth.is_some() || content.offset.is_some(),
        Some(Operation::Pcre(test)) => test.text.contains("/^"),
        _ => true,
    }
}

/// Returns true if a chain must match at the end of the bytes.
fn is_last(chain: &[Operation]) -> bool {
    chain.iter().any(|operation| match operation {
        Operation::Content(content) => content.endswith && !content.is_negated,
        Operation::Pcre(test) => !test.is_negated && test.text.contains("$/"),
        Operation::IsDataAt {
            is_relative,
            is_negated,
            ..
        } => *is_relative && *is_negated,
        _ => false,
    })
}

/// Returns the size that the bytes must have, if a condition asks for one.
fn exact_size(lists: &[&[Operation]], random: &mut Random) -> Option<usize> {
    let comparisons = lists
        .iter()
        .flat_map(|list| list.iter())
        .filter_map(|operation| match operation {
            Operation::Size(comparison) => Some(*comparison),
            _ => None,
        });
    let some: Vec<u64> = comparisons
        .filter_map(|comparison| match comparison {
            Comparison::Equal(size) | Comparison::LessOrEqual(size) | Comparison::GreaterOrEqual(size) => {
                Some(size)
            }
            Comparison::Greater(size) => Some(size + 1 + random.below(3) as u64),
            Comparison::Less(size) => Some(size.saturating_sub(1 + random.below(3) as u64)),
            Comparison::Between(low, high) => {
                Some(low + 1 + random.below((high - low).clamp(2, 9) as usize - 1) as u64)
            }
            Comparison::Within(low, high) => {
                Some(low + random.below((high - low).clamp(1, 9) as usize) as u64)
            }
            Comparison::NotEqual(_) | Comparison::Outside(..) | Comparison::Mask { .. } => None,
        })
        .collect();
    // A lower bound does not fix the size where the contents need more.
    (!some.is_empty()).then(|| some[random.below(some.len())] as usize)
}

struct Draft<'a> {
    /// Bytes of the base in front of contents without a place.
    start: usize,
    bytes: Vec<Option<u8>>,
    cursor: usize,
    variables: [i64; 256],
    exact: Option<usize>,
    is_sealed: bool,
    is_reusing: bool,
    gap: usize,
    base: &'a [u8],
    filler: u8,
    random: &'a mut Random,
}

impl Draft<'_> {
    /// Returns the bytes, with the free ones filled.
    fn finish(&self) -> Vec<u8> {
        let size = match self.exact {
            Some(size) if !self.is_sealed && size < LONGEST => size.max(self.bytes.len()),
            _ => self.bytes.len(),
        };
        let size = if self.is_sealed {
            size
        } else {
            size.max(self.base.len())
        };
        let of_base = |at: usize| self.base.get(at).copied().unwrap_or(self.filler);
        let byte = |at: usize| {
            self.bytes
                .get(at)
                .copied()
                .flatten()
                .unwrap_or_else(|| of_base(at))
        };
        (0..size).map(byte).collect()
    }

    fn value(&self, operand: Operand) -> i64 {
        match operand {
            Operand::Number(number) => number,
            Operand::Variable(index) => self.variables[usize::from(index)],
        }
    }

    fn optional(&self, operand: Option<Operand>) -> Option<i64> {
        operand.map(|operand| self.value(operand))
    }

    /// Returns true if the bytes can be at a place.
    fn fits(&self, at: usize, pattern: &[u8], nocase: bool) -> bool {
        let end = at + pattern.len();
        if self.is_sealed && end > self.bytes.len() || end > LONGEST {
            return false;
        }
        pattern.iter().enumerate().all(|(index, byte)| {
            self.bytes
                .get(at + index)
                .copied()
                .flatten()
                .is_none_or(|there| there == *byte || nocase && there.eq_ignore_ascii_case(byte))
        })
    }

    fn put(&mut self, at: usize, pattern: &[u8]) {
        let end = at + pattern.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, None);
        }
        for (place, byte) in self.bytes[at..end].iter_mut().zip(pattern) {
            place.get_or_insert(*byte);
        }
    }

    fn chain(&mut self, chain: &[Operation]) -> Option<()> {
        self.cursor = 0;
        for (at, operation) in chain.iter().enumerate() {
            self.operation(operation, chain.get(at + 1))?;
        }
        Some(())
    }

    fn operation(&mut self, operation: &Operation, next: Option<&Operation>) -> Option<()> {
        match operation {
            Operation::Content(content) if content.is_negated => {}
            Operation::Content(content) => self.content(content, next)?,
            Operation::Pcre(test) if test.is_negated => {}
            Operation::Pcre(test) => self.expression(test, operation, next)?,
            Operation::ByteTest {
                source,
                operator,
                is_negated,
                value,
            } => {
                let number = self.wanted(*operator, *is_negated, self.value(*value))?;
                self.number(source, number)?;
            }
            Operation::ByteJump {
                source,
                multiplier,
                align,
                base,
                post_offset,
            } => {
                let end = self.place_of(source)? + self.size_of(source)?;
                let wanted = match base {
                    JumpBase::Number => self.random.choose(&[0, 0, 64, 128, 40, 200]),
                    JumpBase::Beginning => end as i64,
                    JumpBase::End => 0,
                };
                let number = self.number(source, wanted)?;
                let mut jump = number * (*multiplier).max(1) as i64;
                if *align > 1 {
                    jump = (jump + *align as i64 - 1) / *align as i64 * *align as i64;
                }
                let from = match base {
                    JumpBase::Number => end as i64,
                    JumpBase::Beginning => 0,
                    JumpBase::End => self.bytes.len() as i64,
                };
                self.cursor = usize::try_from(from + jump + self.value(*post_offset)).ok()?;
            }
            Operation::ByteExtract {
                source,
                multiplier,
                align: _,
                variable,
            } => {
                let wanted = self.random.choose(&[4, 1, 2, 8, 16, 40, 0]);
                let number = self.number(source, wanted)?;
                self.variables[usize::from(*variable)] = number * (*multiplier).max(1) as i64;
                self.cursor = self.place_of(source)? + self.size_of(source)?;
            }
            Operation::ByteMath {
                source,
                operator,
                value,
                variable,
            } => {
                let wanted = self.random.choose(&[4, 8, 1, 16, 40, 0]);
                let (number, value) = (self.number(source, wanted)?, self.value(*value));
                self.variables[usize::from(*variable)] = match operator {
                    MathOperator::Add => number + value,
                    MathOperator::Subtract => number - value,
                    MathOperator::Multiply => number * value,
                    MathOperator::Divide => number.checked_div(value)?,
                    MathOperator::ShiftLeft => number << value.clamp(0, 31),
                    MathOperator::ShiftRight => number >> value.clamp(0, 31),
                };
                self.cursor = self.place_of(source)? + self.size_of(source)?;
            }
            Operation::IsDataAt {
                position,
                is_relative,
                is_negated,
            } => {
                let base = if *is_relative { self.cursor } else { 0 };
                let needed = base + usize::try_from(self.value(*position)).ok()? + 1;
                if !is_negated && self.bytes.len() < needed && !self.is_sealed {
                    self.bytes.resize(needed.min(LONGEST), None);
                }
            }
            Operation::Size(_) | Operation::RemainingSize(_) | Operation::Set(_) | Operation::Entropy(_) => {}
            Operation::Base64 {
                offset,
                is_relative,
                then,
                ..
            } => {
                let inside = fill(&[then], &[], &[0], self.random)?;
                let text = base64(&inside);
                let at = *offset as usize + if *is_relative { self.cursor } else { 0 };
                self.fits(at, &text, false).then_some(())?;
                self.put(at, &text);
                self.cursor = at;
            }
        }
        Some(())
    }

    /// Returns the places where a match may begin: the first, and the last if there is one.
    fn bounds(&self, content: &ContentTest) -> (usize, Option<usize>) {
        let size = content.pattern.len() as i64;
        let (from, reach) = match content.is_relative() {
            true => (
                self.cursor as i64 + self.optional(content.distance).unwrap_or(0),
                self.optional(content.within),
            ),
            false => (
                self.optional(content.offset).unwrap_or(0),
                self.optional(content.depth),
            ),
        };
        let last = reach.map(|reach| usize::try_from(from + reach - size).unwrap_or(0));
        (usize::try_from(from).unwrap_or(0), last)
    }

    fn content(&mut self, content: &ContentTest, next: Option<&Operation>) -> Option<()> {
        let size = content.pattern.len();
        let (first, last) = self.bounds(content);
        let is_at_end = content.endswith
            || matches!(
                next,
                Some(Operation::IsDataAt {
                    is_relative: true,
                    is_negated: true,
                    ..
                })
            );
        let pattern = &content.pattern;
        let is_there = |draft: &Self, at: usize| {
            let place = draft.bytes.get(at..at + size);
            place.is_some_and(|place| {
                place.iter().zip(pattern.iter()).all(|(there, byte)| {
                    there.is_some_and(|there| {
                        there == *byte || content.nocase && there.eq_ignore_ascii_case(byte)
                    })
                })
            })
        };
        if self.is_reusing && !is_at_end {
            let limit = last.unwrap_or(usize::MAX).min(self.bytes.len());
            if let Some(at) = (first..=limit).find(|at| is_there(self, *at)) {
                self.cursor = at + size;
                return Some(());
            }
        }
        if is_at_end {
            let end = self.bytes.len().max(first + size);
            let at = match self.exact {
                Some(exact) if exact >= end => exact - size,
                _ if is_there(self, self.bytes.len().saturating_sub(size)) => self.bytes.len() - size,
                _ => first.max(self.bytes.len()),
            };
            let at = last.map_or(at, |last| at.min(last));
            self.fits(at, pattern, content.nocase).then_some(())?;
            self.put(at, pattern);
            self.is_sealed = true;
            self.bytes.truncate(at + size);
            self.cursor = at + size;
            return Some(());
        }
        // The base may have the pattern already.
        let is_of_base = |at: &usize| {
            let place = self.base.get(*at..*at + size);
            place.is_some_and(|place| place == &pattern[..]) && self.fits(*at, pattern, content.nocase)
        };
        let reach = last.unwrap_or(self.base.len()).min(self.base.len());
        if self.start > 0
            && !is_at_end
            && let Some(at) = (first..=reach).find(is_of_base)
        {
            self.put(at, &pattern.clone());
            self.cursor = at + size;
            return Some(());
        }
        let is_free = !content.is_relative() && last.is_none();
        let start = match is_free {
            true => first.max(self.bytes.len() + self.gap),
            false if last.is_none() => first.max(self.start) + self.gap,
            false => first,
        };
        let end = last.unwrap_or(start + LONGEST).min(start + LONGEST);
        let at = (start..=end)
            .chain(first..start)
            .find(|at| self.fits(*at, pattern, content.nocase))?;
        self.put(at, pattern);
        self.cursor = at + size;
        Some(())
    }

    fn expression(&mut self, test: &PcreTest, operation: &Operation, next: Option<&Operation>) -> Option<()> {
        let is_used = next.is_some_and(Operation::is_relative);
        if self.is_reusing && !is_used && !test.is_relative {
            let known = std::slice::from_ref(operation);
            if holds(known, &self.finish()) {
                return Some(());
            }
        }
        let text = test.text.split_once('"')?.1.strip_prefix('/')?;
        let (pattern, flags) = text.trim_end_matches("\";").rsplit_once('/')?;
        let written = Expression::read(pattern, flags)?.write(self.random)?;
        let at = match (test.is_relative, written.starts) {
            (true, _) => self.cursor,
            (false, true) if !flags.contains('m') => 0,
            (false, _) => self.bytes.len() + self.gap,
        };
        let end = at + LONGEST.min(self.bytes.len() + 1);
        let is_fixed = written.starts && !flags.contains('m');
        let at = match is_fixed {
            true => self.fits(at, &written.bytes, flags.contains('i')).then_some(at)?,
            false => (at..=end).find(|at| self.fits(*at, &written.bytes, flags.contains('i')))?,
        };
        self.put(at, &written.bytes);
        self.cursor = at + written.bytes.len();
        if written.ends && self.cursor >= self.bytes.len() {
            self.is_sealed = true;
        }
        Some(())
    }

    fn size_of(&self, source: &NumberSource) -> Option<usize> {
        usize::try_from(self.value(source.size))
            .ok()
            .filter(|size| *size <= 32)
    }

    fn place_of(&self, source: &NumberSource) -> Option<usize> {
        let base = if source.is_relative { self.cursor as i64 } else { 0 };
        usize::try_from(base + self.value(source.offset)).ok()
    }

    /// Returns a number that a comparison accepts.
    fn wanted(&mut self, operator: TestOperator, is_negated: bool, value: i64) -> Option<i64> {
        let holds = |number: i64| {
            let is_true = match operator {
                TestOperator::Less => number < value,
                TestOperator::Greater => number > value,
                TestOperator::Equal => number == value,
                TestOperator::LessOrEqual => number <= value,
                TestOperator::GreaterOrEqual => number >= value,
                TestOperator::And => number & value != 0,
                TestOperator::Xor => number ^ value != 0,
            };
            is_true != is_negated && number >= 0
        };
        let candidates = [value, value + 1, value - 1, 0, 1, value + 16, 64, 255, 1 << 20];
        let some: Vec<i64> = candidates.into_iter().filter(|number| holds(*number)).collect();
        (!some.is_empty()).then(|| self.random.choose(&some[..some.len().min(3)]))
    }

    /// Writes a number where it is free, and returns the one that is there.
    fn number(&mut self, source: &NumberSource, wanted: i64) -> Option<i64> {
        let (at, size) = (self.place_of(source)?, self.size_of(source)?);
        let shift = if source.bitmask == 0 {
            0
        } else {
            source.bitmask.trailing_zeros()
        };
        let stored = (wanted as u64) << shift;
        let text: Vec<u8> = match source.form {
            NumberForm::Binary(order) => {
                let bytes = stored.to_be_bytes();
                let mut bytes = bytes[8 - size.min(8)..].to_vec();
                if order == Endianness::Little || order == Endianness::Dce {
                    bytes.reverse();
                }
                bytes
            }
            NumberForm::Digits(base) => {
                let text = match base {
                    16 => format!("{wanted:0size$x}"),
                    8 => format!("{wanted:0size$o}"),
                    _ => format!("{wanted:0size$}"),
                };
                text.into_bytes()
            }
            NumberForm::Nothing => return Some(0),
        };
        // Size 0 means as many digits as the text has.
        let size = if size == 0 { text.len() } else { size };
        let is_free = self
            .bytes
            .get(at..at + size)
            .is_none_or(|place| place.iter().all(Option::is_none));
        if is_free {
            (text.len() <= size && self.fits(at, &text, false)).then_some(())?;
            self.put(at, &text);
            return Some(wanted);
        }
        // The bytes are there: their value decides.
        let there: Vec<u8> = (at..at + size)
            .map(|at| self.bytes.get(at).copied().flatten().unwrap_or(self.filler))
            .collect();
        self.put(at, &there);
        match source.form {
            NumberForm::Binary(order) => {
                let little = order != Endianness::Big;
                let fold = |all: u64, byte: &u8| all << 8 | u64::from(*byte);
                let number = match little {
                    true => there.iter().rev().fold(0, fold),
                    false => there.iter().fold(0, fold),
                };
                i64::try_from(number >> shift).ok()
            }
            NumberForm::Digits(base) => {
                let base = if base == 0 { 10 } else { base };
                i64::from_str_radix(std::str::from_utf8(&there).ok()?.trim(), base).ok()
            }
            NumberForm::Nothing => Some(0),
        }
    }
}

/// Returns the Base64 text of bytes (RFC 4648, section 4).
pub(crate) fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= group.len() { digit } else { b'=' });
        }
    }
    out
}
