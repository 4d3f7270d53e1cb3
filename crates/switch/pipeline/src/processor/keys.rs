//! Flow keys on demand.
//!
//! Most packets match an entry of the first table and leave. That table needs a few header fields only, and
//! the header columns of a burst ([`HeaderColumns`](millrace_flow::classify::HeaderColumns)) supply these
//! without a key. A key is read when an entry does more than output or rewrite the packet, or sends it to
//! another table. While many packets need their key anyway, the keys of the whole burst are read first and no
//! columns are made.

use arrayvec::ArrayVec;
use millrace_flow::FlowKey;
use millrace_flow::classify::{Adaptive, BURST, CacheIndex};
use millrace_wire::{Depth, Packet};

use super::lookup_results::LookupResults;
use super::observe::Observer;
use super::run::Run;
use super::scratch::Scratch;
use crate::{Egress, Forwarding};

/// The number of bursts whose keys are read before the lookup, after a burst in which more than a quarter of the
/// packets needed a key.
const PAUSE: u8 = 63;

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Returns true if the burst is looked up by header columns. Traces and tunnels need keys.
    #[inline]
    pub(crate) fn uses_header_columns(&mut self) -> bool {
        if O::IS_WATCHING || self.scratch.pause != 0 {
            self.scratch.pause = self.scratch.pause.saturating_sub(1);
            return false;
        }
        self.fwd.depth() >= Some(Depth::L4) && self.fwd.traces().is_empty() && self.fwd.tunnels().is_none()
    }

    /// Reads the keys of all packets.
    pub(crate) fn keys(&mut self, burst: &ArrayVec<P, BURST>) {
        let origin = self.origin.key();
        match self.fwd.depth() {
            None => self.scratch.keys[..burst.len()].fill(origin),
            Some(depth) => {
                for (key, packet) in self.scratch.keys.iter_mut().zip(burst) {
                    read(key, packet, &origin, depth);
                }
            }
        }
        if O::IS_REAL && !self.fwd.traces().is_empty() {
            self.trace(burst);
        }
    }

    #[cold]
    fn trace(&mut self, burst: &ArrayVec<P, BURST>) {
        for trace in self.fwd.traces() {
            for (key, packet) in self.scratch.keys.iter().zip(burst) {
                if trace.takes(key)
                    && let Some(copy) = packet.try_clone()
                {
                    self.egress.traced(trace.id(), self.origin.in_port, copy);
                }
            }
        }
    }

    /// Makes the header columns of a burst, and reads the keys of packets without the common layout. `with_layer2`
    /// says whether fields before the IP header are needed.
    #[inline(always)]
    fn read_columns(&mut self, with_layer2: bool, burst: &ArrayVec<P, BURST>, origin: &FlowKey) {
        let fwd = self.fwd;
        let packets = burst.iter().map(|packet| (packet.head(), packet.len()));
        let read = |i: usize, key: &mut FlowKey| {
            if let Some(packet) = burst.get(i) {
                read_one(key, packet, origin, fwd);
            }
        };
        let Scratch { columns, keys, .. } = &mut *self.scratch;
        columns.read(with_layer2, packets, keys, read);
        self.scratch.unread = !columns.others();
    }

    /// Looks up a burst in the first table by its header columns.
    #[inline(always)]
    pub(crate) fn look_up_columns(
        &mut self,
        table: &Adaptive,
        burst: &ArrayVec<P, BURST>,
        found: &mut LookupResults<'a>,
    ) {
        let origin = self.origin.key();
        self.read_columns(table.matches_layer2(), burst, &origin);
        let Scratch { columns, keys, .. } = &*self.scratch;
        table.lookup_headers(columns, (&origin, keys), &mut found.slots[..burst.len()]);
    }

    /// Looks up the cached traversals of a burst by its header columns.
    #[inline(always)]
    pub(crate) fn find_by_columns(&mut self, burst: &ArrayVec<P, BURST>, places: &mut [CacheIndex; BURST]) {
        let (origin, form) = (self.origin.key(), self.fwd.cache_form().0);
        self.read_columns(form.matches_layer2(), burst, &origin);
        let Scratch { columns, keys, .. } = &*self.scratch;
        self.traversals
            .find_by_columns(form, columns, (&origin, keys), &mut places[..burst.len()]);
    }

    /// Returns true if packet `i` of the burst has the common layout and its key is not read yet.
    #[inline(always)]
    pub(crate) fn is_unread(&self, i: usize) -> bool {
        self.scratch.unread & 1 << i != 0
    }

    /// Reads the missing keys of the packets that go through the tables: those with a bit in `walking`. If
    /// these are more than a quarter of the burst, the keys of the next bursts are read before the lookup.
    #[inline(never)]
    pub(crate) fn need_keys(&mut self, burst: &ArrayVec<P, BURST>, walking: u64) {
        for (i, packet) in burst.iter().enumerate().filter(|(i, _)| walking >> i & 1 != 0) {
            self.need_key(i, packet);
        }
        if walking.count_ones() as usize * 4 > burst.len() {
            self.scratch.pause = PAUSE;
        }
    }

    /// Reads the key of packet `i` of the burst if it is missing. No action may have changed the packet before.
    #[inline(always)]
    pub(crate) fn need_key(&mut self, i: usize, packet: &P) {
        if self.is_unread(i) {
            self.read_key(i, packet);
        }
    }

    fn read_key(&mut self, i: usize, packet: &P) {
        read_one(&mut self.scratch.keys[i], packet, &self.origin.key(), self.fwd);
        self.scratch.unread &= !(1 << i);
    }

    /// Returns all fields of a packet, whatever fields the tables match.
    pub(crate) fn full_key(&self, packet: &P) -> FlowKey {
        let mut key = FlowKey::default();
        read(&mut key, packet, &self.origin.key(), Depth::All);
        key
    }

    /// Decides, after a burst of `len` packets that was looked up by header columns, if the keys of the next
    /// bursts are read before the lookup.
    #[inline]
    pub(crate) fn choose_lookup_mode(&mut self, len: usize) {
        let unread = core::mem::take(&mut self.scratch.unread);
        let read = (!unread).count_ones() as usize;
        if read * 4 > len {
            self.scratch.pause = PAUSE;
        }
    }
}

#[inline(never)]
fn read_one<P: Packet>(key: &mut FlowKey, packet: &P, origin: &FlowKey, fwd: &Forwarding) {
    match fwd.depth() {
        None => *key = *origin,
        Some(depth) => read(key, packet, origin, depth),
    }
}

#[inline(always)]
fn read<P: Packet>(key: &mut FlowKey, packet: &P, origin: &FlowKey, depth: Depth) {
    key.copy_pipeline_fields(origin);
    key.read(packet.head(), packet.len(), depth);
}
