//! The execution of an entry on one packet: its instructions, the actions of a list, and compiled rewrites.

use millrace_flow::classify::Slot;
use millrace_flow::{Action, Field};
use millrace_wire::Packet;

use super::header::{Effect, Headers};
use super::observe::Observer;
use super::packet_source::PacketSource;
use super::run::Run;
use crate::action_set::{self, ActionRanks};
use crate::action_summary::ActionSummary;
use crate::{DropReason, Egress, FlowEntry, PacketInReason};

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Applies the rewrite of a summary. Returns false, and changes nothing, if the packet does not have the
    /// layout that rewrites support, or has a TTL that cannot be decremented.
    #[inline(always)]
    pub(crate) fn rewrite(&self, summary: &ActionSummary, packet: &mut P) -> bool {
        let rewrite = self.fwd.rewrites().get(summary.rewrite_index() as usize);
        let size = packet.len();
        rewrite.is_some_and(|rewrite| rewrite.apply(packet.head_mut(), size))
    }

    /// Executes the actions of the entry at a slot one after the other, for a packet that the entry's rewrite cannot
    /// change ([`Self::rewrite`] returned false).
    #[inline(never)]
    pub(super) fn change_at(&mut self, i: usize, packet: P, slot: Option<Slot>) {
        self.need_key(i, &packet);
        match slot.and_then(|slot| self.fwd.entry(slot)) {
            Some(entry) => self.change(i, packet, entry),
            None => self.drop(PacketSource::Move(packet), DropReason::NoOutput),
        }
    }

    /// Executes [`Kind::Change`].
    #[inline(always)]
    pub(super) fn change(&mut self, i: usize, mut packet: P, entry: &'a FlowEntry) {
        let [changes @ .., Action::Output { port, .. }] = entry.actions() else {
            return;
        };
        let mut headers = Headers::UNKNOWN;
        for action in changes {
            let key = &mut self.scratch.keys[i];
            match headers.execute(&mut packet, key, action) {
                Effect::Done => {}
                effect => {
                    self.set_current_entry(i, entry);
                    return self.stopped(i, packet, effect);
                }
            }
        }
        self.enqueue(i, packet, *port);
    }

    /// Stores the table and the cookie of the entry that is executed for packet `i` of the burst.
    fn set_current_entry(&mut self, i: usize, entry: &FlowEntry) {
        let state = self.state(i);
        state.table = entry.table();
        state.cookie = entry.cookie();
        state.in_table_miss = entry.is_table_miss();
    }

    /// Executes the instructions of an entry in the order of OpenFlow 1.3.5, section 5.9. Returns the packet if it
    /// goes to another table. With `is_known`, a cached traversal is replayed, and the packet does not wait at that
    /// table.
    #[inline(never)]
    pub(crate) fn run_entry(
        &mut self,
        i: usize,
        packet: P,
        entry: &'a FlowEntry,
        is_known: bool,
    ) -> Option<P> {
        self.set_current_entry(i, entry);
        let mut packet = packet;
        if let Some(meter) = entry.meter() {
            packet = self.meter(i, packet, meter)?;
        }
        let state = &mut self.scratch.states[i];
        if entry.clears_actions() {
            state.set = ActionRanks::NONE;
        }
        let goes_on =
            entry.goto_table().is_some() || !entry.write_actions().is_empty() || !state.set.is_empty();
        if !entry.apply_actions().is_empty() {
            packet = self.execute(i, packet, entry.apply_actions(), goes_on, false)?;
        }
        let (state, set) = (&mut self.scratch.states[i], &mut self.scratch.sets[i]);
        for action in entry.write_actions() {
            action_set::write(&mut state.set, set, *action);
        }
        let key = &mut self.scratch.keys[i];
        if let Some(change) = entry.write_metadata() {
            let old = key.field(Field::Metadata) as u64;
            key.set_field(Field::Metadata, change.apply(old).into());
        }
        if let Some(table) = entry.goto_table() {
            if let Some(depth) = self.fwd.depth() {
                state.headers.refresh_key(&packet, key, depth);
            }
            let is_plain = state.set.is_empty() && state.queue.is_none() && !state.sent;
            if !is_known {
                self.scratch.summary_only = self.scratch.summary_only & !(1 << i) | u64::from(is_plain) << i;
                self.scratch.wait(i, table);
            }
            return Some(packet);
        }
        let actions = action_set::in_order(state.set, set);
        self.execute(i, packet, &actions, false, true);
        None
    }

    /// Executes a list of actions after which the packet is not needed.
    pub(crate) fn execute_last(&mut self, i: usize, packet: P, actions: &[Action]) {
        self.execute(i, packet, actions, false, false);
    }

    /// Executes a list of actions. With `goes_on`, the packet is needed afterwards and is returned, unless an action
    /// has disposed of it. With `from_set`, the list is the action set.
    fn execute(
        &mut self,
        i: usize,
        mut packet: P,
        actions: &[Action],
        goes_on: bool,
        from_set: bool,
    ) -> Option<P> {
        // Actions after the last output have no effect, so that output takes the packet itself.
        let is_output = |action: &Action| matches!(action, Action::Output { .. } | Action::Group(_));
        let last = if goes_on {
            None
        } else {
            actions.iter().rposition(is_output)
        };
        for (at, action) in actions.iter().enumerate() {
            self.observer.action(action, from_set);
            match *action {
                Action::Output { port, max_len } => {
                    self.scratch.states[i].sent = true;
                    if Some(at) == last {
                        self.output(i, PacketSource::Move(packet), port, max_len);
                        return None;
                    }
                    self.output(i, PacketSource::Copy(&packet), port, max_len);
                }
                Action::Group(group) => {
                    self.scratch.states[i].sent = true;
                    if Some(at) == last {
                        self.group(i, PacketSource::Move(packet), group);
                        return None;
                    }
                    self.group(i, PacketSource::Copy(&packet), group);
                }
                Action::SetQueue(queue) => self.scratch.states[i].queue = Some(queue),
                _ => {
                    let (state, key) = (&mut self.scratch.states[i], &mut self.scratch.keys[i]);
                    match state.headers.execute(&mut packet, key, action) {
                        Effect::Done => self.observer.packet(&packet),
                        effect => {
                            self.stopped(i, packet, effect);
                            return None;
                        }
                    }
                }
            }
        }
        if goes_on {
            return Some(packet);
        }
        if self.scratch.states[i].sent {
            // The outputs sent copies; the packet itself is not needed any more.
            drop(packet);
        } else {
            self.drop(PacketSource::Move(packet), DropReason::NoOutput);
        }
        None
    }

    /// Disposes of a packet after an action with this effect, which ends the list.
    #[cold]
    pub(crate) fn stopped(&mut self, i: usize, packet: P, effect: Effect) {
        match effect {
            Effect::TtlExpired if self.fwd.invalid_ttl_to_controller() => {
                self.packet_in(
                    i,
                    PacketSource::Move(packet),
                    PacketInReason::InvalidTtl,
                    u16::MAX,
                );
            }
            Effect::TtlExpired => self.drop(PacketSource::Move(packet), DropReason::InvalidTtl),
            Effect::NoHeadroom | Effect::Done => {
                self.drop(PacketSource::Move(packet), DropReason::NoHeadroom);
            }
        }
    }
}
