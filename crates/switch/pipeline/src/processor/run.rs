//! The execution of one burst.
//!
//! ```text
//! burst -> port, fragments, tunnels -> cached traversals -> table 0 -> ... -> table n -> exits
//!                                        |  hits             |  done            |
//!                                        +---------------------------------------+--> actions -> exits
//! ```
//! The packets of a burst are looked up together, table by table. Packets that are done leave at once; the others
//! wait at their next table in order of arrival. Gotos only go forward, so each table is visited once for each burst,
//! and the packets of one flow, which visit the same tables, stay in order.

use arrayvec::ArrayVec;
use millrace_flow::classify::{ALL, BURST, Classifier, HeaderColumns, Slot};
use millrace_flow::{Action, Field, FlowKey};
use millrace_types::{Cookie, PortNo, QueueId, TableId, Time};
use millrace_wire::Packet;

use super::Origin;
use super::batch::{self, Batch, Block, EXITS, Exit};
use super::group::Budget;
use super::header::{Effect, Headers};
use super::lookup::Found;
use super::observe::Observer;
use super::output::Supply;
use super::traversal_cache::TraversalCache;
use crate::action_set::{self, ByRank, NO_ACTIONS, Present};
use crate::action_summary::{ActionSummary, Kind};
use crate::{
    Assembler, Counters, DropReason, Egress, FlowEntry, Forwarding, FragmentMode, PacketInReason, Station,
};

/// The state of a packet on its way through the tables, besides its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) headers: Headers,
    pub(crate) queue: Option<QueueId>,
    /// Table and cookie of the entry that is executed.
    pub(crate) table: TableId,
    pub(crate) cookie: Cookie,
    pub(crate) in_table_miss: bool,
    /// True if some action has output the packet.
    pub(super) sent: bool,
    set: Present,
}

impl Walk {
    const START: Walk = Walk {
        headers: Headers::UNKNOWN,
        queue: None,
        table: TableId(0),
        // The cookie in packet-ins of a packet-out, which has no entry.
        cookie: Cookie(u64::MAX),
        in_table_miss: false,
        sent: false,
        set: Present::NONE,
    };
}

/// Memory of a worker that is allocated once and used by every burst. The index of arrays is that in the burst.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) keys: [FlowKey; BURST],
    pub(crate) walks: [Walk; BURST],
    sets: [ByRank; BURST],
    /// By table, the packets that wait at it, one bit each.
    waiting: [u64; 256],
    /// The tables at which some packet waits, one bit each.
    busy: [u64; 4],
    /// Packets whose walk is [`Walk::START`], whatever the array holds; one bit each.
    pub(crate) fresh: u64,
    /// Packets with an empty action set and without a queue that were not output yet, one bit each: their action
    /// summary says all that is to be done.
    plain: u64,
    /// The header columns of the burst, where packets are looked up by these; see `keys.rs`.
    pub(crate) heads: HeaderColumns,
    /// Packets whose keys are not read yet, one bit each.
    pub(crate) unread: u64,
    /// The number of bursts to come whose keys are read first.
    pub(crate) pause: u8,
}

impl Scratch {
    pub(crate) fn new() -> Box<Scratch> {
        Box::new(Scratch {
            keys: [FlowKey::default(); BURST],
            walks: [Walk::START; BURST],
            sets: [NO_ACTIONS; BURST],
            waiting: [0; 256],
            busy: [0; 4],
            fresh: 0,
            plain: 0,
            heads: HeaderColumns::new(),
            unread: 0,
            pause: 0,
        })
    }

    fn wait(&mut self, i: usize, table: TableId) {
        let table = usize::from(table.0);
        self.waiting[table] |= 1 << i;
        self.busy[table / 64] |= 1 << (table % 64);
    }

    /// Returns the lowest table at which packets wait, and these packets.
    fn next_table(&mut self) -> Option<(TableId, u64)> {
        let word = self.busy.iter().position(|word| *word != 0)?;
        let table = word * 64 + self.busy[word].trailing_zeros() as usize;
        self.busy[word] &= self.busy[word] - 1;
        Some((TableId(table as u8), core::mem::take(&mut self.waiting[table])))
    }
}

/// The most packets that one packet-out can submit to the tables.
const SUBMITTED: usize = 4;

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
    /// The MAC address reported last, so that a burst from one host reports it once.
    pub(crate) learned: Option<Station>,
    /// In a packet-out: the packets that were output to TABLE.
    pub(crate) to_tables: Option<ArrayVec<P, SUBMITTED>>,
    /// The bucket executions that are left for the groups of the packet.
    pub(crate) budget: Budget,
    /// Packets that leave and packets that are dropped; both are empty after a burst and after a packet-out.
    pub(crate) exits: [Exit<P>; EXITS],
    pub(crate) dropped: Batch<DropReason, P>,
}

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Processes packets that came in at the ingress port, and leaves the burst empty.
    pub(crate) fn burst(&mut self, burst: &mut ArrayVec<P, BURST>) {
        let len = burst.len();
        if len == 0 {
            return;
        }
        let fwd = self.fwd;
        if let Some(port) = fwd.port(self.origin.in_port)
            && let Some(reason) = port.ingress_block()
        {
            return self.drop_all(burst, reason);
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
        let is_counted = fwd.matches_in_port_only() && fwd.traces().is_empty();
        let mut found;
        let mut by_heads = false;
        if is_counted {
            // All packets look the same to every table.
            let key = self.origin.key();
            let (slot, summary) = self.look_up_once(table, &key, burst);
            match summary.kind() {
                Kind::Output if !O::IS_WATCHING => return self.send_all(burst, summary),
                Kind::Drop if !O::IS_WATCHING => return self.drop_all(burst, DropReason::NoOutput),
                _ => {}
            }
            self.scratch.keys[..len].fill(key);
            found = Found::nothing(self.counters);
            found.slots[..len].fill(slot);
            found.summaries[..len].fill(summary);
        } else {
            let knows_traversals = !O::IS_WATCHING && self.traversals.begin(fwd);
            by_heads = self.goes_by_heads();
            if !by_heads {
                self.keys(burst);
            }
            if knows_traversals {
                self.known_traversals(burst, core::mem::take(&mut by_heads));
                if burst.is_empty() {
                    self.flush();
                    return self.traversals.end(fwd);
                }
            }
            len = burst.len();
            found = Found::nothing(self.counters);
            if by_heads {
                self.look_up_heads(table, burst, &mut found);
            } else {
                table.lookup_burst(&self.scratch.keys[..len], &ALL[..len], &mut found.slots[..len]);
            }
            self.bring_near(&mut found, len);
        }
        self.first_table(burst, &found, is_counted);
        self.flush();
        if by_heads {
            self.weigh_heads(len);
        }
        if !O::IS_WATCHING {
            if self.traversals.noted != 0 {
                self.traversals.keep(fwd);
            }
            self.traversals.end(fwd);
        }
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
                None => self.egress.transmit_burst(port, None, burst),
                Some(ready) => {
                    for packet in burst.drain(..) {
                        self.enclose(ready, self.origin.tunnel_id, None, packet);
                    }
                    self.flush();
                }
            },
            Some(reason) => self.drop_all(burst, reason),
        }
    }

    fn first_table(&mut self, burst: &mut ArrayVec<P, BURST>, found: &Found<'a>, is_counted: bool) {
        let (len, mut matches) = (burst.len(), 0);
        (self.scratch.fresh, self.scratch.plain) = (u64::MAX, u64::MAX);
        if !is_counted && found.kinds.all_leave() && self.traversals.noted == 0 && !O::IS_WATCHING {
            if found.kinds.are_all(Kind::Output) {
                return self.all_leave(burst, found);
            }
            return self.all_leave_rewritten(burst, found);
        }
        let mut going_on: ArrayVec<Option<P>, BURST> = ArrayVec::new();
        for (i, packet) in burst.drain(..).enumerate() {
            matches += self.count(&packet, found, i);
            if let Some(packet) = self.step(i, packet, TableId(0), found.slots[i], found.summaries[i]) {
                while going_on.len() < len {
                    going_on.push(None);
                }
                going_on[i] = Some(packet);
            }
        }
        if !is_counted {
            self.count_table(TableId(0), len, matches);
        } else if !going_on.is_empty() {
            // The lookup is counted; the visit is not, and comes before those of later tables.
            self.traversals.visit(TableId(0), len);
        }
        if !going_on.is_empty() {
            self.later_tables(&mut going_on);
        }
    }

    /// Executes [`Kind::Output`] for the whole burst.
    #[inline(always)]
    fn all_leave(&mut self, burst: &mut ArrayVec<P, BURST>, found: &Found<'a>) {
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
            // Packets that wait at the exits came earlier.
            self.flush();
            return self.send_burst(burst, first);
        }
        for (i, packet) in burst.drain(..).enumerate() {
            self.exit(i, packet, found.summaries[i].port());
        }
    }

    /// Executes [`Kind::Output`] and [`Kind::Rewrite`] for the whole burst.
    #[inline(never)]
    fn all_leave_rewritten(&mut self, burst: &mut ArrayVec<P, BURST>, found: &Found<'a>) {
        let (len, mut matches) = (burst.len(), 0);
        // Packets that their rewrite does not take, one bit each.
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
            if left >> i & 1 != 0 {
                self.change_at(i, packet, found.slots[i]);
            } else {
                self.exit(i, packet, found.summaries[i].port());
            }
        }
    }

    /// Applies the rewrite of a summary. Returns false, and changes nothing, if it does not take the packet.
    #[inline(always)]
    pub(crate) fn rewrite(&self, summary: &ActionSummary, packet: &mut P) -> bool {
        let rewrite = self.fwd.rewrites().get(summary.rewrite_index() as usize);
        let size = packet.len();
        rewrite.is_some_and(|rewrite| rewrite.apply(packet.head_mut(), size))
    }

    /// Executes the actions of the entry at a slot one after the other, for a packet that its rewrite does not take.
    #[inline(never)]
    fn change_at(&mut self, i: usize, packet: P, slot: Option<Slot>) {
        self.need_key(i, &packet);
        match slot.and_then(|slot| self.fwd.entry(slot)) {
            Some(entry) => self.change(i, packet, entry),
            None => self.drop(Supply::Move(packet), DropReason::NoOutput),
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
            let (mut found, len) = (Found::nothing(self.counters), select.len());
            if let Some(table) = self.fwd.table(number) {
                table.lookup_burst(&self.scratch.keys, &select, &mut found.slots[..len]);
            }
            self.bring_near(&mut found, len);
            let mut matches = 0;
            for (at, i) in select.iter().enumerate() {
                let i = usize::from(*i);
                let Some(packet) = packets[i].take() else { continue };
                matches += self.count(&packet, &found, at);
                packets[i] = self.step(i, packet, number, found.slots[at], found.summaries[at]);
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
            self.traversals.met(i, slot);
        }
        let is_plain = self.scratch.plain & 1 << i != 0;
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
                    self.exit(i, packet, summary.port());
                    return None;
                }
                Kind::Rewrite if is_plain => {
                    if self.rewrite(summary, &mut packet) {
                        self.exit(i, packet, summary.port());
                    } else {
                        self.change_at(i, packet, slot);
                    }
                    return None;
                }
                Kind::Drop if is_plain => {
                    self.drop(Supply::Move(packet), DropReason::NoOutput);
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

    /// Returns the walk of packet `i` of the burst.
    #[inline]
    fn walk(&mut self, i: usize) -> &mut Walk {
        let walk = &mut self.scratch.walks[i];
        if self.scratch.fresh & 1 << i != 0 {
            self.scratch.fresh &= !(1 << i);
            *walk = Walk::START;
        }
        walk
    }

    /// Outputs a packet to an ordinary port, as its last action.
    #[inline(always)]
    pub(crate) fn exit(&mut self, i: usize, packet: P, port: PortNo) {
        let at = batch::place(port);
        if !self.exits[at].is_open_for(port) {
            let (_, exit) = self.exit_to(port, None);
            if let Some(block) = exit.block {
                return self.blocked(i, packet, port, block);
            }
        }
        let exit = &mut self.exits[at];
        exit.packets.push(packet);
        if exit.packets.is_full() {
            exit.flush(&mut *self.egress);
        }
    }

    #[inline(never)]
    fn blocked(&mut self, i: usize, packet: P, port: PortNo, block: Block) {
        match block {
            Block::Drop(reason) => self.drop(Supply::Move(packet), reason),
            Block::Tunnel => self.tunnel_to(i, packet, port),
        }
    }

    /// Executes [`Kind::Change`].
    #[inline(always)]
    fn change(&mut self, i: usize, mut packet: P, entry: &'a FlowEntry) {
        let [changes @ .., Action::Output { port, .. }] = entry.actions() else {
            return;
        };
        let mut headers = Headers::UNKNOWN;
        for action in changes {
            let key = &mut self.scratch.keys[i];
            match headers.execute(&mut packet, key, action) {
                Effect::Done => {}
                effect => {
                    self.act_for(i, entry);
                    return self.stopped(i, packet, effect);
                }
            }
        }
        self.exit(i, packet, *port);
    }

    /// Makes this the entry that acts on packet `i` of the burst.
    fn act_for(&mut self, i: usize, entry: &FlowEntry) {
        let walk = self.walk(i);
        walk.table = entry.table();
        walk.cookie = entry.cookie();
        walk.in_table_miss = entry.is_table_miss();
    }

    #[inline(never)]
    fn missed(&mut self, i: usize, packet: P, table: TableId) {
        let walk = self.walk(i);
        walk.table = table;
        walk.in_table_miss = true;
        if self.fwd.is_standalone() {
            self.normal(i, Supply::Move(packet));
        } else {
            self.drop(Supply::Move(packet), DropReason::TableMiss);
        }
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
        self.act_for(i, entry);
        let mut packet = packet;
        if let Some(meter) = entry.meter() {
            packet = self.meter(i, packet, meter)?;
        }
        let walk = &mut self.scratch.walks[i];
        if entry.clears_actions() {
            walk.set = Present::NONE;
        }
        let goes_on =
            entry.goto_table().is_some() || !entry.write_actions().is_empty() || !walk.set.is_empty();
        if !entry.apply_actions().is_empty() {
            packet = self.execute(i, packet, entry.apply_actions(), goes_on, false)?;
        }
        let (walk, set) = (&mut self.scratch.walks[i], &mut self.scratch.sets[i]);
        for action in entry.write_actions() {
            action_set::write(&mut walk.set, set, *action);
        }
        let key = &mut self.scratch.keys[i];
        if let Some((value, mask)) = entry.write_metadata() {
            let old = key.field(Field::Metadata) as u64;
            key.set_field(Field::Metadata, u128::from(old & !mask | value & mask));
        }
        if let Some(table) = entry.goto_table() {
            if let Some(depth) = self.fwd.depth() {
                walk.headers.refresh_key(&packet, key, depth);
            }
            let is_plain = walk.set.is_empty() && walk.queue.is_none() && !walk.sent;
            if !is_known {
                self.scratch.plain = self.scratch.plain & !(1 << i) | u64::from(is_plain) << i;
                self.scratch.wait(i, table);
            }
            return Some(packet);
        }
        let actions = action_set::in_order(walk.set, set);
        self.execute(i, packet, &actions, false, true);
        None
    }

    /// Executes a list of actions. With `goes_on`, the packet is needed afterwards and is returned, unless an action
    /// has disposed of it.
    pub(crate) fn execute(
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
                    self.scratch.walks[i].sent = true;
                    if Some(at) == last {
                        self.output(i, Supply::Move(packet), port, max_len);
                        return None;
                    }
                    self.output(i, Supply::Copy(&packet), port, max_len);
                }
                Action::Group(group) => {
                    self.scratch.walks[i].sent = true;
                    if Some(at) == last {
                        self.group(i, Supply::Move(packet), group);
                        return None;
                    }
                    self.group(i, Supply::Copy(&packet), group);
                }
                Action::SetQueue(queue) => self.scratch.walks[i].queue = Some(queue),
                _ => {
                    let (walk, key) = (&mut self.scratch.walks[i], &mut self.scratch.keys[i]);
                    match walk.headers.execute(&mut packet, key, action) {
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
        if self.scratch.walks[i].sent {
            // Copies were output, and nothing is left to do.
            drop(packet);
        } else {
            self.drop(Supply::Move(packet), DropReason::NoOutput);
        }
        None
    }

    /// Disposes of a packet after an action with this effect, which ends the list.
    #[cold]
    pub(crate) fn stopped(&mut self, i: usize, packet: P, effect: Effect) {
        match effect {
            Effect::TtlExpired if self.fwd.invalid_ttl_to_controller() => {
                self.packet_in(i, Supply::Move(packet), PacketInReason::InvalidTtl, u16::MAX);
            }
            Effect::TtlExpired => self.drop(Supply::Move(packet), DropReason::InvalidTtl),
            Effect::NoHeadroom | Effect::Done => self.drop(Supply::Move(packet), DropReason::NoHeadroom),
        }
    }

    /// Executes the actions of a packet-out, and then processes what they output to TABLE.
    pub(crate) fn packet_out(&mut self, packet: P, actions: &[Action]) {
        self.scratch.fresh = u64::MAX;
        self.walk(0);
        self.scratch.keys[0] = self.origin.key();
        self.scratch.walks[0].headers.changed = true;
        self.to_tables = Some(ArrayVec::new());
        self.execute(0, packet, actions, false, false);
        self.flush();
        for packet in self.to_tables.take().into_iter().flatten() {
            let mut burst = ArrayVec::new();
            burst.push(packet);
            self.burst(&mut burst);
        }
    }
}
