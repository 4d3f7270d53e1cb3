//! Detection on a transaction: the candidate rules, and the buffer tests of each rule that matched.

use millrace_ips_rules::buffers::Buffer;

use super::candidates::Candidates;
use super::compile::{Hook, buffer_directions};
use super::evaluate::{self, Scratch};
use super::prefilter::Group;
use super::program::{Absence, AppTest, BufferTest, JumpBase, Operation, Rule, Step};
use super::subject::Subject;
use super::transaction_state::{Candidate, DirectionState, Scanned, Seen};
use super::transform;
use crate::app::{BufferView, Progress, Transaction};
use crate::flow::Direction;

/// Largest number of buffer instances with a stored scan position. Further instances are scanned from their
/// start each time.
const SCANNED: usize = 256;

/// Returns true if the result of a rule on an unchanged transaction may differ from packet to packet.
pub(super) fn varies(rule: &Rule) -> bool {
    let depends_on_packet = !rule.packet.is_empty()
        || !rule.headers.is_empty()
        || !rule.payload.is_empty()
        || rule.flow.is_reassembled.is_some();
    // The progress of a message is no new version of it.
    let is_at_hook = rule.app.iter().any(|test| matches!(test, AppTest::Progress(_)));
    depends_on_packet || !rule.state.is_empty() || is_at_hook
}

impl DirectionState {
    /// Marks the rules of all candidates, so that [`DirectionState::add`] adds no rule twice.
    pub(super) fn mark(&self, marks: &mut Candidates) {
        marks.begin();
        for candidate in &self.candidates {
            marks.mark(candidate.rule);
        }
    }

    /// Adds a rule that is not marked to the candidates.
    pub(super) fn add(&mut self, rule: u32, marks: &mut Candidates) {
        if marks.mark(rule) {
            self.candidates.push(Candidate::of(rule));
        }
    }

    /// Renumbers the candidates with `stays`, which returns false for a removed rule, and drops those
    /// candidates. All buffers are scanned again for the rules of the new set.
    pub(super) fn renumber(&mut self, stays: impl Fn(&mut u32) -> bool) {
        self.candidates.retain_mut(|candidate| stays(&mut candidate.rule));
        self.variables.retain_mut(|(rule, _)| stays(rule));
        self.captured.retain_mut(|(rule, _)| stays(rule));
        for candidate in &mut self.candidates {
            candidate.evaluated = 0;
        }
        self.scanned.clear();
        self.seen = Seen::default();
        self.has_always = false;
    }

    /// Scans the new bytes of the hook's buffers, and adds the rules that the prefilter finds as candidates.
    /// The caller has marked the rules of all candidates with [`DirectionState::mark`]. Returns the number of
    /// scanned bytes.
    pub(super) fn scan(
        &mut self,
        (index, hook, group): (u16, &Hook, &Group),
        transaction: &Transaction,
        direction: Direction,
        memory: &mut (Candidates, Vec<u8>),
        scratch: &mut Scratch,
    ) -> usize {
        if group.is_empty() {
            return 0;
        }
        let replaced = transaction.replaced(direction);
        if std::mem::replace(&mut self.replaced, replaced) != replaced {
            self.scanned.clear();
        }
        let mut size = 0;
        let (marks, transformed) = memory;
        let views = instances(hook.buffer, transaction, direction, 0);
        for (instance, view) in views.flat_map(|view| pieces(hook.buffer, view)).enumerate() {
            let instance = u16::try_from(instance).unwrap_or(u16::MAX);
            let end = view.offset + view.bytes.len() as u64;
            let known = self
                .scanned
                .iter()
                .position(|scanned| scanned.hook == index && scanned.instance == instance);
            let before = known.map_or(0, |at| self.scanned[at].end);
            // The bytes of a buffer that needs to be whole are scanned once it is.
            let waits = !view.is_complete
                && (hook.transforms.iter().any(Step::needs_whole)
                    || hook.buffer.is_frame() && !hook.transforms.is_empty());
            if known.is_some() && before == end || waits {
                continue;
            }
            if hook.transforms.is_empty() {
                let new = before.saturating_sub(view.offset) as usize;
                let from = new.saturating_sub(group.look_back()).min(view.bytes.len());
                // Names are compared from their end, so a complete buffer is scanned from its first byte.
                let from = if view.is_complete && before == 0 { 0 } else { from };
                size += view.bytes.len() - from;
                let known = new.min(view.bytes.len()).saturating_sub(from);
                group.scan(&view.bytes[from..], known, &mut |rule| self.add(rule, marks));
            } else {
                transform::apply(&hook.transforms, view.bytes, transformed, scratch.expressions());
                size += transformed.len();
                group.scan(transformed, 0, &mut |rule| self.add(rule, marks));
            }
            let scanned = Scanned {
                hook: index,
                instance,
                end,
            };
            match known {
                Some(at) => self.scanned[at] = scanned,
                None if self.scanned.len() < SCANNED => self.scanned.push(scanned),
                None => {}
            }
        }
        size
    }
}

/// Returns true if a buffer test matches an instance of its buffer. `evaluated` is the version in which it matched none of them;
/// 0 for none: an instance that is unchanged since then still does not match. Without that, a mail with many attachments would
/// cost the square of its size.
pub(super) fn matches(
    test: &BufferTest,
    transaction: &Transaction,
    (direction, evaluated): (Direction, u32),
    scratch: &mut Scratch,
    transformed: &mut Vec<u8>,
) -> bool {
    let direction = test.side.unwrap_or(direction);
    if test.absence != Absence::Fails {
        let mut views = instances(test.buffer, transaction, direction, 0);
        let has_buffer = views.any(|view| pieces(test.buffer, view).next().is_some());
        match (has_buffer, test.absence) {
            (false, _) => return may_be_absent(test.buffer, transaction, direction),
            (true, Absence::Required) => return false,
            (true, _) => {}
        }
    }
    // The other direction has a source, too.
    if source_of(test.buffer) != test.buffer && !buffer_directions(test.buffer)[direction.index()] {
        return false;
    }
    let changed = instances(test.buffer, transaction, direction, evaluated);
    let mut pieces = changed.flat_map(|view| pieces(test.buffer, view));
    pieces.any(|view| {
        if test.buffer.is_frame() && !view.is_complete && !holds_early(test)
            || view.is_part && !test.operations.iter().all(holds_beyond)
        {
            return false;
        }
        let mut subject = Subject {
            bytes: view.bytes,
            offset: view.offset,
            is_complete: view.is_complete,
            is_dce_big_endian: view.is_big_endian,
        };
        if !test.transforms.is_empty() {
            if !view.is_complete && test.transforms.iter().any(Step::needs_whole) {
                return false;
            }
            transform::apply(&test.transforms, view.bytes, transformed, scratch.expressions());
            subject.bytes = transformed;
        }
        evaluate::matches(&test.operations, &subject, scratch)
    })
}

/// Returns the instances of the source of a buffer that changed since a version; for the kinds of files always all of them.
fn instances(
    buffer: Buffer,
    transaction: &Transaction,
    direction: Direction,
    since: u32,
) -> impl Iterator<Item = BufferView<'_>> {
    let files = match buffer {
        Buffer::FileMagic => &transaction.files[..],
        _ => &[],
    };
    let kinds = files.iter().filter(move |file| file.direction == direction);
    let kinds = kinds
        .filter_map(|file| file.magic)
        .map(|kind| BufferView::whole(kind.as_bytes()));
    transaction
        .changed_buffers(source_of(buffer), direction, since)
        .chain(kinds)
}

/// Returns true if a test over a part of a frame holds for the whole frame, too. Other tests wait for the whole, so that alerts do
/// not depend on segmentation.
fn holds_early(test: &BufferTest) -> bool {
    let is_early = |operation: &Operation| {
        let needs_whole = matches!(operation, Operation::Pcre(_) | Operation::Base64 { .. });
        !needs_whole && holds_beyond(operation)
    };
    test.transforms.is_empty() && test.operations.iter().all(is_early)
}

/// Returns true if an operation that holds for a part of a buffer holds for the buffer, too.
fn holds_beyond(operation: &Operation) -> bool {
    match operation {
        Operation::Content(content) => !content.is_negated && !content.endswith,
        Operation::Pcre(pcre) => !pcre.is_negated,
        Operation::ByteJump { base, .. } => *base != JumpBase::End,
        Operation::ByteTest { .. }
        | Operation::ByteExtract { .. }
        | Operation::ByteMath { .. }
        | Operation::Base64 { .. } => true,
        Operation::IsDataAt { is_negated, .. } => !is_negated,
        Operation::Size(_) | Operation::RemainingSize(_) | Operation::Entropy(_) | Operation::Set(_) => false,
    }
}

/// Returns the buffer of the transaction that contains a buffer of rules.
pub(super) fn source_of(buffer: Buffer) -> Buffer {
    match buffer {
        Buffer::HttpRequestHeader | Buffer::HttpResponseHeader => Buffer::HttpStart,
        buffer => buffer,
    }
}

/// Returns the instances of a buffer in an instance of its source: the lines of headers, or the source itself.
pub(super) fn pieces<'a>(buffer: Buffer, view: BufferView<'a>) -> impl Iterator<Item = BufferView<'a>> {
    let is_split = source_of(buffer) != buffer;
    let lines = view
        .bytes
        .split(move |byte| is_split && *byte == b'\n')
        .skip(usize::from(is_split));
    lines
        .map(move |line| match is_split {
            true => line.strip_suffix(b"\r").unwrap_or(line),
            false => line,
        })
        .filter(move |line| !is_split || !line.is_empty())
        .map(move |bytes| BufferView { bytes, ..view })
}

/// Returns true if a buffer that is not there exists in a direction, and comes no more.
fn may_be_absent(buffer: Buffer, transaction: &Transaction, direction: Direction) -> bool {
    // Bodies and files may begin after the headers.
    let last = match buffer {
        Buffer::HttpRequestBody
        | Buffer::HttpResponseBody
        | Buffer::FileData
        | Buffer::FileName
        | Buffer::FileMagic => Progress::Complete,
        _ => Progress::Headers,
    };
    buffer_directions(buffer)[direction.index()] && transaction.progress[direction.index()] >= last
}
