//! Detection state of a transaction: the candidate rules, and how far buffers are scanned.

use super::evaluate::Captured;
use super::subject::Variables;
use crate::flow::{Direction, FlowState};

/// A rule that may match a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) rule: u32,
    /// One bit for each buffer test that matched.
    pub(super) matched: u32,
    /// The version of the transaction at the last evaluation of the buffer tests; 0 before the first
    /// evaluation.
    pub(super) evaluated: u32,
    pub(super) is_done: bool,
}

impl Candidate {
    #[inline]
    pub(super) fn of(rule: u32) -> Candidate {
        Candidate {
            rule,
            matched: 0,
            evaluated: 0,
            is_done: false,
        }
    }

    /// Discards the results of earlier evaluations.
    pub(super) fn begin(&mut self) {
        *self = Candidate::of(self.rule);
    }
}

/// The scan position in one instance of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scanned {
    pub(super) hook: u16,
    pub(super) instance: u16,
    pub(super) end: u64,
}

/// The state on which most candidates depend. While it does not change, an evaluation gives the same result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    /// The version of the transaction; 0 for none.
    pub(super) version: u32,
    /// The state of the flow.
    pub(super) flow: FlowState,
    /// The direction of the packet, which is not that of the state for the answer of an exchange; `None` before the first packet.
    pub(super) packet: Option<Direction>,
}

/// Largest number of groups that a direction of a transaction keeps for rules whose other buffers have not matched.
pub(super) const CAPTURED: usize = 64;

/// Detection state of one direction of a transaction.
#[derive(Debug, Default)]
pub(super) struct DirectionState {
    /// The candidate rules, each at most once.
    pub(super) candidates: Vec<Candidate>,
    pub(super) scanned: Vec<Scanned>,
    /// The variables of the buffers that matched so far, by rule, for the buffers behind them.
    pub(super) variables: Vec<(u32, Variables)>,
    /// Groups that expressions over the buffers which matched so far captured, by rule; at most [`CAPTURED`].
    pub(super) captured: Vec<(u32, Captured)>,
    /// The transaction's replacement counter at the last scan.
    pub(super) replaced: u32,
    /// True if the candidates include the rules that are always evaluated.
    pub(super) has_always: bool,
    /// The state in which all candidates were evaluated last.
    pub(super) seen: Seen,
    /// True if a candidate depends on more than the transaction and the state of its flow.
    pub(super) has_varying: bool,
}

/// Detection state of a transaction.
#[derive(Debug, Default)]
pub struct TransactionState {
    pub(super) directions: [DirectionState; 2],
}

impl TransactionState {
    /// Returns true if a rule has matched a direction of the transaction.
    pub(super) fn has_matched(&self, rule: u32, direction: Direction) -> bool {
        let candidates = &self.directions[direction.index()].candidates;
        candidates
            .iter()
            .any(|candidate| candidate.rule == rule && candidate.is_done)
    }

    /// Returns the bytes that the state has allocated.
    pub(crate) fn heap(&self) -> usize {
        let captured = |list: &Vec<(u32, Captured)>| {
            let bytes = list
                .iter()
                .map(|(_, group)| group.name.capacity() + group.value.capacity());
            list.capacity() * size_of::<(u32, Captured)>() + bytes.sum::<usize>()
        };
        let of = |direction: &DirectionState| {
            direction.candidates.capacity() * size_of::<Candidate>()
                + direction.scanned.capacity() * size_of::<Scanned>()
                + direction.variables.capacity() * size_of::<(u32, Variables)>()
                + captured(&direction.captured)
        };
        self.directions.iter().map(of).sum()
    }
}
