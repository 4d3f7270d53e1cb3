//! When the keys of a burst are read.
//!
//! Most packets match an entry of the first table and leave. Such a table needs only a few fields, which
//! [`HeaderColumns`](millrace_flow::classify::HeaderColumns) contain without a key. A packet's key is read when it is
//! needed: by an entry that does more than output the packet, and then by all later tables. If that is frequent, the
//! header columns bring no gain, and all keys are read at once for a while.

use arrayvec::ArrayVec;
use millrace_flow::FlowKey;
use millrace_flow::classify::{Adaptive, BURST, CacheIndex};
use millrace_wire::{Depth, Packet};

use super::lookup::Found;
use super::observe::Observer;
use super::run::{Run, Scratch};
use crate::{Egress, Forwarding};

/// After a burst of which a quarter of the keys was read all the same, so many bursts have theirs read at once.
const PAUSE: u8 = 63;

impl<'a, P: Packet, E: Egress<P>, O: Observer<P>> Run<'a, P, E, O> {
    /// Whether to look packets up by their heads. Whoever waits for packets, and what encloses them, asks for keys.
    #[inline]
    pub(crate) fn goes_by_heads(&mut self) -> bool {
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

    /// Reads the heads of all packets, and the keys of those that are not of the common kind. `links` is whether anybody
    /// looks at what is before the IP header.
    #[inline(always)]
    fn heads(&mut self, links: bool, burst: &ArrayVec<P, BURST>, origin: &FlowKey) {
        let fwd = self.fwd;
        let packets = burst.iter().map(|packet| (packet.head(), packet.len()));
        let read = |i: usize, key: &mut FlowKey| {
            if let Some(packet) = burst.get(i) {
                read_one(key, packet, origin, fwd);
            }
        };
        let Scratch { heads, keys, .. } = &mut *self.scratch;
        heads.read(links, packets, keys, read);
        self.scratch.unread = !heads.others();
    }

    /// Looks up a burst in the first table by the heads of its packets.
    #[inline(always)]
    pub(crate) fn look_up_heads(
        &mut self,
        table: &Adaptive,
        burst: &ArrayVec<P, BURST>,
        found: &mut Found<'a>,
    ) {
        let origin = self.origin.key();
        self.heads(table.looks_at_links(), burst, &origin);
        let Scratch { heads, keys, .. } = &*self.scratch;
        table.lookup_headers(heads, (&origin, keys), &mut found.slots[..burst.len()]);
    }

    /// Looks for the paths of a burst by the heads of its packets.
    #[inline(always)]
    pub(crate) fn find_by_heads(&mut self, burst: &ArrayVec<P, BURST>, places: &mut [CacheIndex; BURST]) {
        let (origin, form) = (self.origin.key(), self.fwd.cache_form().0);
        self.heads(form.looks_at_links(), burst, &origin);
        let Scratch { heads, keys, .. } = &*self.scratch;
        self.paths
            .find_by_heads(form, heads, (&origin, keys), &mut places[..burst.len()]);
    }

    /// Whether the packet `i` of the burst is of the common kind, and nobody has asked for its key.
    #[inline(always)]
    pub(crate) fn is_unread(&self, i: usize) -> bool {
        self.scratch.unread & 1 << i != 0
    }

    /// Makes sure that there are the keys of the packets of a burst that go through the tables, a bit each. Where these are
    /// more than a quarter, heads are read in vain.
    #[inline(never)]
    pub(crate) fn need_keys(&mut self, burst: &ArrayVec<P, BURST>, walking: u64) {
        for (i, packet) in burst.iter().enumerate().filter(|(i, _)| walking >> i & 1 != 0) {
            self.need_key(i, packet);
        }
        if walking.count_ones() as usize * 4 > burst.len() {
            self.scratch.pause = PAUSE;
        }
    }

    /// Makes sure that there is the key of the packet `i` of the burst, which nothing has changed yet.
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

    /// After a burst of so many packets that was looked up by heads.
    #[inline]
    pub(crate) fn weigh_heads(&mut self, len: usize) {
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
    key.copy_beside_packet(origin);
    key.read(packet.head(), packet.len(), depth);
}
