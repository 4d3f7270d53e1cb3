//! The state of detection of a flow.

use super::compile::Ruleset;
use super::readings::Readings;
use super::state::FlowBits;
use crate::app::AppEvent;
use crate::flow::Direction;

/// The packets of a direction on which rules over addresses alone were evaluated.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IpOnly {
    /// A packet with the endpoints and the protocol of the flow.
    pub(super) on_own: bool,
    /// An ICMP error about the flow, which any router may send.
    pub(super) on_error: bool,
}

/// State of detection that lives with a flow.
#[derive(Debug, Default)]
pub struct FlowState {
    /// Bits and counters.
    pub bits: FlowBits,
    /// Rules that are evaluated once for each direction and have already raised an alert, by direction.
    pub(super) raised: [Vec<u32>; 2],
    /// Hits of the prefilter, by direction: the rule, and the offset in the stream at which the window of the hit ends.
    pub(super) pending: [Vec<(u32, u64)>; 2],
    /// Number of the flow's anomalies on which rules have been evaluated, by direction.
    pub(super) events: [usize; 2],
    /// The kinds of packets on which rules over addresses alone were evaluated, by direction.
    pub(super) ip_only: [IpOnly; 2],
    /// Rules that matched and drop or reject the flow, while a rule passed the packet alone: they apply with the next packet
    /// that no rule passes. At most [`OVERRULED`], the first ones in the order of the rules.
    pub(super) overruled: Vec<u32>,
    /// The rules that matched messages with several readings.
    pub(super) readings: Readings,
    /// The rule that passed the flow, by [`Rule::pass_digest`](super::Rule::pass_digest).
    pub(super) passed_by: Option<u64>,
    /// Steps of expressions that the flow has used, less those that it got with its packets.
    pub(super) steps_used: u64,
    /// The generation of the rule set to which the indexes of rules belong.
    pub(super) generation: u64,
}

impl FlowState {
    /// Removes all state, and keeps the memory.
    pub(crate) fn reset(&mut self) {
        self.bits.clear();
        for direction in Direction::BOTH {
            self.raised[direction.index()].clear();
            self.pending[direction.index()].clear();
        }
        self.events = [0; 2];
        self.ip_only = Default::default();
        self.overruled.clear();
        self.readings.clear();
        self.passed_by = None;
        self.steps_used = 0;
        self.generation = 0;
    }

    /// Returns true if a rule of the set still passes the flow that a rule passed.
    pub(crate) fn is_passed_by(&self, rules: &Ruleset) -> bool {
        self.generation == rules.numbers.generation
            || self
                .passed_by
                .is_some_and(|digest| rules.numbers.passes.contains(&digest))
    }

    /// Exchanges the directions.
    pub(crate) fn turn(&mut self) {
        self.raised.swap(0, 1);
        self.pending.swap(0, 1);
        self.events.swap(0, 1);
        self.ip_only.swap(0, 1);
        self.readings.turn();
    }

    /// Returns true if rules were not evaluated on all anomalies of the flow in a direction.
    pub(crate) fn has_new_events(&self, direction: Direction, events: &[AppEvent]) -> bool {
        self.events[direction.index()] < events.len()
    }

    /// Returns the bytes that the state has allocated.
    pub(crate) fn heap(&self) -> usize {
        let raised: usize = self.raised.iter().map(Vec::capacity).sum();
        let pending: usize = self.pending.iter().map(Vec::capacity).sum();
        let raised = raised + self.overruled.capacity();
        let pending = pending * size_of::<(u32, u64)>();
        self.bits.heap() + raised * size_of::<u32>() + pending + self.readings.heap()
    }

    /// Frees the hits that wait for later windows.
    pub(crate) fn give_up_memory(&mut self) {
        self.pending = Default::default();
    }
}

/// Largest number of hits of the prefilter in a direction of a stream that are kept for later windows.
pub(super) const PENDING: usize = 256;

/// Largest number of overruled rules that a flow keeps. One is enough to drop the flow; the others have alerts.
pub(super) const OVERRULED: usize = 16;
