//! A burst of which some packets take paths that are known already.
//!
//! Those are done at once; the others go through the tables as if they were alone. So that packets of one
//! connection stay in order, whatever bits of them tables look at, one whose path is known goes through the tables,
//! too, if a packet before it in the burst does that may be of the same connection.

use arrayvec::ArrayVec;
use millrace_flow::Layer;
use millrace_flow::classify::{BURST, CacheIndex};
use millrace_wire::Packet;

use super::header::Effect;
use super::observe::Observer;
use super::output::Supply;
use super::path::Path;
use super::run::Run;
use crate::counters::EntryCell;
use crate::gist::{Kind, Kinds};
use crate::{DropReason, Egress};

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Does the packets whose path is known, and leaves the others in the burst, in order, with their keys. They are looked
    /// for by their heads, or by their keys.
    pub(crate) fn known_paths(&mut self, burst: &mut ArrayVec<P, BURST>, by_heads: bool) {
        let len = burst.len();
        let (form, _) = self.fwd.cache_form();
        let mut places = [CacheIndex::NONE; BURST];
        if by_heads {
            self.find_by_heads(burst, &mut places);
        } else {
            self.paths.find(form, &self.scratch.keys[..len], &mut places);
        }
        let mut cells = [self.counters.nowhere(); BURST];
        let mut unknown = 0_u64;
        let mut kinds = Kinds::default();
        for (i, ((packet, place), cell)) in burst.iter().zip(&places).zip(&mut cells).enumerate() {
            let path = self.paths.path(form, *place);
            let is_known = match path {
                None => false,
                Some(path) if path.depends() => {
                    let is_ip = self.is_unread(i) || self.scratch.keys[i].has(Layer::Ip);
                    path.holds_for(packet.head(), is_ip)
                }
                Some(_) => true,
            };
            if let Some(path) = path {
                kinds.add(path.kind());
                // Most paths are short, and of long ones the others are met by many packets.
                *cell = self.counters.cell(path.slot(0).index());
                cell.prefetch();
            }
            unknown |= u64::from(!is_known) << i;
        }
        if unknown == 0 && !kinds.has(Kind::Run) {
            self.all_take_paths(burst, (&places, &cells));
        } else {
            if unknown != 0 {
                unknown = self.in_order(unknown, len);
                if by_heads {
                    self.need_keys(burst, unknown);
                }
            }
            self.take_paths(burst, (&places, &cells), unknown);
        }
        if by_heads && unknown == 0 {
            self.weigh_heads(len);
        }
        // What is left has its keys.
        self.scratch.unread = 0;
        self.paths.count(self.counters);
    }

    /// Does a burst of which every packet takes a path, and none a replayed one.
    #[inline(always)]
    fn all_take_paths(
        &mut self,
        burst: &mut ArrayVec<P, BURST>,
        (places, cells): (&[CacheIndex; BURST], &[&EntryCell; BURST]),
    ) {
        let (form, _) = self.fwd.cache_form();
        let mut ports = [None; BURST];
        for (((packet, place), cell), port) in burst.iter_mut().zip(places).zip(cells).zip(&mut ports) {
            let path = self.paths.known(form, *place);
            let (sum, shape) = (path.sum(), path.shape());
            self.count_path(path, cell, packet);
            self.paths.took(shape);
            if sum.gist.kind() == Kind::Output {
                *port = Some(sum.gist.port());
                sum.apply(packet.head_mut());
            }
        }
        for (i, packet) in burst.drain(..).enumerate() {
            match ports[i] {
                Some(port) => self.exit(i, packet, port),
                None => self.drop(Supply::Move(packet), DropReason::NoOutput),
            }
        }
    }

    /// Does the packets of a burst that take paths, and leaves those of `unknown`.
    #[inline(never)]
    fn take_paths(
        &mut self,
        burst: &mut ArrayVec<P, BURST>,
        (places, cells): (&[CacheIndex; BURST], &[&EntryCell; BURST]),
        unknown: u64,
    ) {
        let mut left: ArrayVec<P, BURST> = ArrayVec::new();
        for (i, packet) in burst.drain(..).enumerate() {
            if unknown >> i & 1 != 0 {
                self.scratch.keys[left.len()] = self.scratch.keys[i];
                left.push(packet);
            } else {
                self.take_path(i, packet, (places[i], cells[i]));
            }
        }
        *burst = left;
        self.paths.choose(self.fwd, burst, &self.scratch.keys);
    }

    /// Counts a packet for the entries on its path; `cell` is that of the first.
    #[inline(always)]
    fn count_path(&self, path: Path<'_>, cell: &EntryCell, packet: &P) {
        let bytes = packet.len() as u64;
        cell.count(1, bytes, self.now);
        path.each_after_first(bytes, |slot, bytes| {
            self.counters.count_entry(slot, 1, bytes, self.now);
        });
    }

    #[inline(always)]
    fn take_path(&mut self, i: usize, mut packet: P, (place, cell): (CacheIndex, &EntryCell)) {
        let path = self.paths.known(self.fwd.cache_form().0, place);
        if path.is_replayed() {
            // It counts for itself, entry by entry, as far as it goes.
            let words = *path.0;
            self.need_key(i, &packet);
            return self.replay(i, packet, Path(&words));
        }
        let (sum, shape) = (path.sum(), path.shape());
        if sum.gist.kind() == Kind::Rewrite && !self.rewrite(&sum.gist, &mut packet) {
            let words = *path.0;
            self.need_key(i, &packet);
            return self.replay(i, packet, Path(&words));
        }
        self.count_path(path, cell, &packet);
        self.paths.took(shape);
        if sum.gist.kind() == Kind::Drop {
            return self.drop(Supply::Move(packet), DropReason::NoOutput);
        }
        sum.apply(packet.head_mut());
        match sum.change_tags(&mut packet) {
            Effect::Done => self.exit(i, packet, sum.gist.port()),
            effect => self.stopped(i, packet, effect),
        }
    }

    /// Executes the entries on a path one after the other, as far as they go.
    #[inline(never)]
    fn replay(&mut self, i: usize, packet: P, path: Path<'_>) {
        self.scratch.fresh |= 1 << i;
        let mut packet = Some(packet);
        for step in 0..path.len() {
            let slot = path.slot(step);
            let (Some(taken), Some(entry)) = (packet.take(), self.fwd.entry(slot)) else {
                break;
            };
            let (table, is_table_miss) = self.paths.step(path.shape(), step);
            self.counters.count_entry(slot, 1, taken.len() as u64, self.now);
            self.counters.count_table(table, 1, u64::from(!is_table_miss));
            packet = self.run_entry(i, taken, entry, true);
        }
        self.paths.replayed(path.len());
    }

    /// The packets that go through the tables, if those of `unknown` have to: each bit a packet of `len`.
    #[inline(never)]
    fn in_order(&self, unknown: u64, len: usize) -> u64 {
        /// Connections are told apart by so many bits of their number.
        const BITS: u32 = 10;
        let mut all = unknown;
        let mut seen = [0_u64; (1 << BITS) / 64];
        for i in unknown.trailing_zeros() as usize..len {
            let connection = if self.is_unread(i) {
                self.scratch.heads.connection(i)
            } else {
                self.scratch.keys[i].connection()
            } >> (u32::BITS - BITS);
            let (word, bit) = ((connection / 64) as usize, 1 << (connection % 64));
            if unknown >> i & 1 != 0 {
                seen[word] |= bit;
            } else if seen[word] & bit != 0 {
                all |= 1 << i;
            }
        }
        all
    }
}
