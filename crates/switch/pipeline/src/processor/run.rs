//! The execution of one burst.
//!
//! ```text
//! burst -> port, fragments, tunnels -> cached traversals -> table 0 -> ... -> table n -> ports
//!                                        |  hits             |  done            |
//!                                        +---------------------------------------+--> actions -> ports
//! ```
//! The packets of a burst are looked up together, table by table. Packets that are done leave at once; the others
//! wait at their next table in order of arrival. Gotos only go forward, so each table is visited once for each burst,
//! and the packets of one flow, which visit the same tables, stay in order. `execute.rs` executes the entries.

use arrayvec::ArrayVec;
use millrace_flow::Action;
use millrace_flow::classify::{ALL, BURST, Classifier, Slot};
use millrace_types::{PortNo, TableId, Time};
use millrace_wire::Packet;

use super::batch::{self, Batch, OutputRestriction, PORT_BATCHES, PortBatch};
use super::budget::Budget;
use super::lookup_results::LookupResults;
use super::observe::{NormalReason, Observer};
use super::origin::Origin;
use super::packet_source::PacketSource;
use super::scratch::{PacketState, Scratch};
use super::traversal_cache::TraversalCache;
use crate::action_summary::{ActionSummary, Kind};
use crate::tunnel::CompiledTunnel;
use crate::{
    Assembler, Counters, DropReason, Egress, FdbKey, Forwarding, FragmentMode, OamPort, Port, Standalone,
};

/// The maximum number of packets that one packet-out can submit to the tables.
const SUBMITTED: usize = 4;

/// The number of destinations that NORMAL remembers until the end of a burst.
pub(crate) const RECENT_TARGETS: usize = 16;

/// A burst and the context to process it.
pub(crate) struct Run<'a, P, E, O> {
    pub(crate) fwd: &'a Forwarding,
    pub(crate) counters: &'a Counters,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) traversals: &'a mut TraversalCache,
    pub(crate) assembler: &'a mut Option<Box<Assembler>>,
    pub(crate) egress: &'a mut E,
    pub(crate) observer: &'a mut O,
    pub(crate) origin: Origin,
    pub(crate) now: Time,
    /// The source that NORMAL saw last: a burst from one host is looked up and reported once.
    pub(crate) recent_source: Option<FdbKey>,
    /// Destinations that NORMAL found, and their ports, by the low bits of their MAC address.
    pub(crate) recent_targets: [Option<(FdbKey, &'a Port)>; RECENT_TARGETS],
    /// True for a packet-out: its packets were not received, and none belongs to a session of OAM.
    pub(crate) is_packet_out: bool,
    /// In a packet-out: the packets that were output to TABLE.
    pub(crate) to_tables: Option<ArrayVec<P, SUBMITTED>>,
    /// The remaining bucket executions for the groups of the packet.
    pub(crate) budget: Budget,
    /// Packets that leave and packets that are dropped; both are empty after a burst and after a packet-out.
    pub(crate) port_batches: [PortBatch<P>; PORT_BATCHES],
    pub(crate) dropped: Batch<DropReason, P>,
}

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Processes packets that arrived at the ingress port, and leaves the burst empty.
    pub(crate) fn burst(&mut self, burst: &mut ArrayVec<P, BURST>) {
        let len = burst.len();
        if len == 0 {
            return;
        }
        let fwd = self.fwd;
        if let Some(port) = fwd.port(self.origin.in_port)
            && let Some(reason) = port.ingress_block()
        {
            // A port that the spanning tree blocks hears the BPDUs by which it is unblocked.
            if reason == DropReason::PortBlocked
                && let Some(oam) = fwd.oam().and_then(|oam| oam.find(self.origin.in_port))
                && oam.bpdu
            {
                self.take_oam(oam, burst);
            }
            return self.drop_all(burst, reason);
        }
        if let Some(oam) = fwd.oam().and_then(|oam| oam.find(self.origin.in_port))
            && !self.is_packet_out
            && !self.is_in_virtual_network()
        {
            self.take_oam(oam, burst);
        }
        if fwd.fragments() != FragmentMode::Normal {
            self.fragments(burst);
        }
        if fwd
            .tunnels()
            .is_some_and(|tunnels| tunnels.has_underlay(self.origin.in_port))
        {
            self.terminate(burst);
        }
        let mut len = burst.len();
        let Some(table) = fwd.table(TableId(0)).filter(|_| len != 0) else {
            return P::discard(burst);
        };
        if fwd.standalone() == Standalone::All {
            return self.all_normal(burst, NormalReason::NoController);
        }
        if let Some(normal) = fwd.normal_ingress() {
            self.classify_ingress(normal, burst);
            if burst.is_empty() {
                return;
            }
            len = burst.len();
        }
        let is_counted = fwd.matches_in_port_only() && fwd.traces().is_empty();
        let mut found;
        let mut by_columns = false;
        if is_counted {
            // All packets look the same to every table.
            let key = self.origin.key();
            let (slot, summary) = self.look_up_once(table, &key, burst);
            if self.scratch.observation.packets != 0 {
                self.note_entry(slot);
            }
            match summary.kind() {
                Kind::Output if !O::IS_WATCHING => return self.send_all(burst, summary),
                Kind::Drop if !O::IS_WATCHING => return self.drop_all(burst, DropReason::NoOutput),
                _ => {}
            }
            self.scratch.keys[..len].fill(key);
            found = LookupResults::nothing(self.counters);
            found.slots[..len].fill(slot);
            found.summaries[..len].fill(summary);
        } else {
            // Packets whose traversals are recorded for marks go through the tables.
            let knows_traversals =
                !O::IS_WATCHING && self.traversals.noted == 0 && self.traversals.begin(fwd);
            by_columns = self.uses_header_columns();
            if !by_columns {
                self.keys(burst);
            }
            if knows_traversals {
                self.apply_cached_traversals(burst, core::mem::take(&mut by_columns));
                if burst.is_empty() {
                    self.flush();
                    return self.traversals.end(fwd);
                }
            }
            len = burst.len();
            found = LookupResults::nothing(self.counters);
            if by_columns {
                self.look_up_columns(table, burst, &mut found);
            } else {
                table.lookup_burst(&self.scratch.keys[..len], &ALL[..len], &mut found.slots[..len]);
            }
            self.prefetch(&mut found, len);
        }
        self.first_table(burst, &found, is_counted);
        self.flush();
        if by_columns {
            self.choose_lookup_mode(len);
        }
        if !O::IS_WATCHING {
            if self.traversals.noted != 0 {
                self.traversals.insert_recorded(fwd);
            }
            self.traversals.end(fwd);
        }
    }

    /// Returns true if the packets come from a tunnel that carries several networks, and belong to one of them. The
    /// tunnel's own OAM has tunnel_id 0, as BFD for VXLAN has a management VNI (RFC 8971).
    fn is_in_virtual_network(&self) -> bool {
        self.origin.tunnel_id != 0
            && self
                .tunnel(self.origin.in_port)
                .is_some_and(CompiledTunnel::carries_networks)
    }

    /// Hands the frames of OAM in a burst to the control side.
    #[cold]
    #[inline(never)]
    fn take_oam(&mut self, oam: &OamPort, burst: &mut ArrayVec<P, BURST>) {
        let mut others = ArrayVec::new();
        for packet in burst.drain(..) {
            if oam.selects(packet.head()) {
                self.egress.oam(oam.port, packet);
            } else {
                others.push(packet);
            }
        }
        *burst = others;
    }

    /// Sends the whole burst out of one port.
    fn send_all(&mut self, burst: &mut ArrayVec<P, BURST>, summary: &ActionSummary) {
        for packet in burst.iter_mut().filter(|_| summary.rewrites()) {
            summary.rewrite(packet.head_mut());
        }
        self.send_burst(burst, summary.port());
    }

    fn send_burst(&mut self, burst: &mut ArrayVec<P, BURST>, port: PortNo) {
        let to_in_port = (port == self.origin.in_port).then_some(DropReason::OutputToInPort);
        match to_in_port.or_else(|| self.egress_block(port)) {
            None => match self.tunnel(port) {
                None if self.scratch.observation.packets != 0 => {
                    self.enqueue_observed(burst, |_| Some(port));
                    self.flush();
                }
                None => self.egress.transmit_burst(port, None, burst),
                Some(compiled) => {
                    for (i, packet) in burst.drain(..).enumerate() {
                        let is_observed = self.begin_notes(i);
                        self.encapsulate(compiled, self.origin.tunnel_id, None, packet);
                        self.end_notes(is_observed);
                    }
                    self.flush();
                }
            },
            Some(reason) => self.drop_all(burst, reason),
        }
    }

    fn first_table(&mut self, burst: &mut ArrayVec<P, BURST>, found: &LookupResults<'a>, is_counted: bool) {
        let (len, mut matches) = (burst.len(), 0);
        (self.scratch.initial_state, self.scratch.summary_only) = (u64::MAX, u64::MAX);
        if let Some(index) = self.scratch.observation.index()
            && !is_counted
        {
            self.note_entry(found.slots[index]);
        }
        if !is_counted && found.kinds.all_leave() && self.traversals.noted == 0 && !O::IS_WATCHING {
            if found.kinds.are_all(Kind::Output) {
                return self.all_leave(burst, found);
            }
            return self.all_leave_rewritten(burst, found);
        }
        let mut going_on: ArrayVec<Option<P>, BURST> = ArrayVec::new();
        for (i, packet) in burst.drain(..).enumerate() {
            matches += self.count(&packet, found, i);
            let is_observed = self.begin_notes(i);
            let packet = self.step(i, packet, TableId(0), found.slots[i], found.summaries[i]);
            self.end_notes(is_observed);
            if let Some(packet) = packet {
                while going_on.len() < len {
                    going_on.push(None);
                }
                going_on[i] = Some(packet);
            }
        }
        if !is_counted {
            self.count_table(TableId(0), len, matches);
        } else if !going_on.is_empty() {
            // The lookup is already counted. The visit is recorded here, before the visits of later tables.
            self.traversals.visit(TableId(0), len);
        }
        if !going_on.is_empty() {
            self.later_tables(&mut going_on);
        }
    }

    /// Executes [`Kind::Output`] for the whole burst.
    #[inline(always)]
    fn all_leave(&mut self, burst: &mut ArrayVec<P, BURST>, found: &LookupResults<'a>) {
        let (len, mut matches) = (burst.len(), 0);
        let mut ports = 0;
        let first = found.summaries[0].port();
        for ((packet, cell), summary) in burst.iter_mut().zip(&found.cells).zip(&found.summaries) {
            cell.count(1, packet.len() as u64, self.now);
            matches += u64::from(summary.is_match());
            ports |= summary.port().raw() ^ first.raw();
            if summary.rewrites() {
                summary.rewrite(packet.head_mut());
            }
        }
        self.count_table(TableId(0), len, matches);
        if ports == 0 {
            // The packets in the batches of ports arrived earlier, and are sent first.
            self.flush();
            return self.send_burst(burst, first);
        }
        if self.scratch.observation.packets != 0 {
            return self.enqueue_observed(burst, |i| Some(found.summaries[i].port()));
        }
        for (i, packet) in burst.drain(..).enumerate() {
            self.enqueue(i, packet, found.summaries[i].port());
        }
    }

    /// Executes [`Kind::Output`] and [`Kind::Rewrite`] for the whole burst.
    #[inline(never)]
    fn all_leave_rewritten(&mut self, burst: &mut ArrayVec<P, BURST>, found: &LookupResults<'a>) {
        let (len, mut matches) = (burst.len(), 0);
        // The packets to which their rewrite cannot be applied, one bit each.
        let mut left = 0_u64;
        for (i, ((packet, cell), summary)) in burst
            .iter_mut()
            .zip(&found.cells)
            .zip(&found.summaries)
            .enumerate()
        {
            cell.count(1, packet.len() as u64, self.now);
            matches += u64::from(summary.is_match());
            if summary.kind() == Kind::Rewrite {
                left |= u64::from(!self.rewrite(summary, packet)) << i;
            } else if summary.rewrites() {
                summary.rewrite(packet.head_mut());
            }
        }
        self.count_table(TableId(0), len, matches);
        for (i, packet) in burst.drain(..).enumerate() {
            let is_observed = self.begin_notes(i);
            if left >> i & 1 != 0 {
                self.change_at(i, packet, found.slots[i]);
            } else {
                self.enqueue(i, packet, found.summaries[i].port());
            }
            self.end_notes(is_observed);
        }
    }

    fn later_tables(&mut self, packets: &mut ArrayVec<Option<P>, BURST>) {
        while let Some((number, waiting)) = self.scratch.next_table() {
            let mut select: ArrayVec<u8, BURST> = ArrayVec::new();
            let mut left = waiting;
            while left != 0 {
                select.push(left.trailing_zeros() as u8);
                left &= left - 1;
            }
            let (mut found, len) = (LookupResults::nothing(self.counters), select.len());
            if let Some(table) = self.fwd.table(number) {
                table.lookup_burst(&self.scratch.keys, &select, &mut found.slots[..len]);
            }
            self.prefetch(&mut found, len);
            if self.scratch.observation.packets & waiting != 0
                && let Some(at) = select
                    .iter()
                    .position(|i| self.scratch.observation.has(usize::from(*i)))
            {
                self.note_entry(found.slots[at]);
            }
            let mut matches = 0;
            for (at, i) in select.iter().enumerate() {
                let i = usize::from(*i);
                let Some(packet) = packets[i].take() else { continue };
                matches += self.count(&packet, &found, at);
                let is_observed = self.begin_notes(i);
                packets[i] = self.step(i, packet, number, found.slots[at], found.summaries[at]);
                self.end_notes(is_observed);
            }
            self.count_table(number, len, matches);
        }
    }

    /// Executes the entry at a slot, which has this summary. Returns the packet if it goes to another table.
    #[inline(always)]
    fn step(
        &mut self,
        i: usize,
        mut packet: P,
        table: TableId,
        slot: Option<Slot>,
        summary: &'a ActionSummary,
    ) -> Option<P> {
        if self.traversals.noted & 1 << i != 0 {
            self.traversals.record_entry(i, slot);
        }
        let is_plain = self.scratch.summary_only & 1 << i != 0;
        if !O::IS_WATCHING {
            match summary.kind() {
                Kind::Goto => {
                    self.need_key(i, &packet);
                    self.scratch.wait(i, summary.table());
                    return Some(packet);
                }
                Kind::Output if is_plain => {
                    if summary.rewrites() {
                        summary.rewrite(packet.head_mut());
                    }
                    self.enqueue(i, packet, summary.port());
                    return None;
                }
                Kind::Rewrite if is_plain => {
                    if self.rewrite(summary, &mut packet) {
                        self.enqueue(i, packet, summary.port());
                    } else {
                        self.change_at(i, packet, slot);
                    }
                    return None;
                }
                Kind::Drop if is_plain => {
                    self.drop(PacketSource::Move(packet), DropReason::NoOutput);
                    return None;
                }
                _ => {}
            }
        }
        let entry = slot.and_then(|slot| self.fwd.entry(slot));
        if entry.is_some() {
            self.need_key(i, &packet);
        }
        self.observer.lookup(table, entry.map(|entry| &**entry));
        match entry {
            None => {
                self.missed(i, packet, table);
                None
            }
            Some(entry) if is_plain && summary.kind() == Kind::Change && !O::IS_WATCHING => {
                self.change(i, packet, entry);
                None
            }
            Some(entry) => self.run_entry(i, packet, entry, false),
        }
    }

    /// Returns the state of packet `i` of the burst.
    #[inline]
    pub(super) fn state(&mut self, i: usize) -> &mut PacketState {
        let state = &mut self.scratch.states[i];
        if self.scratch.initial_state & 1 << i != 0 {
            self.scratch.initial_state &= !(1 << i);
            *state = PacketState::START;
        }
        state
    }

    /// Outputs a packet to an ordinary port, as its last action.
    #[inline(always)]
    pub(crate) fn enqueue(&mut self, i: usize, packet: P, port: PortNo) {
        let at = batch::batch_index(port);
        if !self.port_batches[at].is_open_for(port) {
            let (_, batch) = self.batch_for(port, None);
            if let Some(restriction) = batch.restriction {
                return self.blocked(i, packet, port, restriction);
            }
        }
        let batch = &mut self.port_batches[at];
        batch.packets.push(packet);
        if batch.packets.is_full() {
            batch.flush(&mut *self.egress);
        }
    }

    #[inline(never)]
    fn blocked(&mut self, i: usize, packet: P, port: PortNo, restriction: OutputRestriction) {
        match restriction {
            OutputRestriction::Drop(reason) => self.drop(PacketSource::Move(packet), reason),
            OutputRestriction::Tunnel => self.tunnel_to(i, packet, port),
        }
    }

    /// Forwards the whole burst by NORMAL, without the tables.
    #[inline(never)]
    pub(super) fn all_normal(&mut self, burst: &mut ArrayVec<P, BURST>, reason: NormalReason) {
        // Tunnels and traces read the keys of packets.
        let is_plain = self.fwd.tunnels().is_none() && self.fwd.traces().is_empty();
        if is_plain && !O::IS_WATCHING && self.scratch.observation.packets == 0 {
            return self.normal_burst(burst);
        }
        self.keys(burst);
        self.scratch.initial_state = u64::MAX;
        for (i, packet) in burst.drain(..).enumerate() {
            self.state(i);
            self.observer.without_tables(reason);
            let is_observed = self.begin_notes(i);
            self.normal(i, PacketSource::Move(packet));
            self.end_notes(is_observed);
        }
        self.flush();
    }

    #[inline(never)]
    fn missed(&mut self, i: usize, packet: P, table: TableId) {
        let state = self.state(i);
        state.table = table;
        state.in_table_miss = true;
        if self.fwd.standalone() != Standalone::Off {
            self.normal(i, PacketSource::Move(packet));
        } else {
            self.drop(PacketSource::Move(packet), DropReason::TableMiss);
        }
    }

    /// Executes the actions of a packet-out, and then processes the packets that these actions output to
    /// TABLE.
    pub(crate) fn packet_out(&mut self, packet: P, actions: &[Action]) {
        self.scratch.initial_state = u64::MAX;
        self.state(0);
        self.scratch.keys[0] = self.origin.key();
        self.scratch.states[0].headers.changed = true;
        self.is_packet_out = true;
        self.to_tables = Some(ArrayVec::new());
        self.execute_last(0, packet, actions);
        self.flush();
        for packet in self.to_tables.take().into_iter().flatten() {
            let mut burst = ArrayVec::new();
            burst.push(packet);
            self.burst(&mut burst);
        }
    }
}
