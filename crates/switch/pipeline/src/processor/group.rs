//! Groups in a worker (OpenFlow 1.3.5, section 5.6).

use millrace_flow::{Field, FlowKey};
use millrace_types::GroupId;
use millrace_wire::{Depth, Packet};

use super::observe::Observer;
use super::run::Run;
use super::supply::Supply;
use crate::group::{Group, GroupKind, ReadyGroup};
use crate::{DropReason, Egress};

/// The most buckets that one group action of a flow entry executes, with those of the groups that groups send to:
/// groups of many buckets that send to each other could otherwise make any number of copies of a packet.
const BUCKETS_MAX: u32 = 4096;
/// The deepest nesting of groups: each level takes some of the worker's stack.
const NESTING_MAX: u32 = 16;

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Processes packet `i` of the burst, or a copy, through a group. The state of the packet is then restored.
    pub(crate) fn group(&mut self, i: usize, supply: Supply<'_, P>, id: GroupId) {
        let before = self.budget;
        if before.nesting == 0 {
            self.budget.buckets = BUCKETS_MAX;
        } else if before.nesting == NESTING_MAX {
            return self.drop(supply, DropReason::GroupLimit);
        }
        self.budget.nesting += 1;
        self.enter(i, supply, id);
        self.budget.nesting = before.nesting;
    }

    fn enter(&mut self, i: usize, supply: Supply<'_, P>, id: GroupId) {
        let fwd = self.fwd;
        let Some(ready) = fwd.group(id) else {
            return self.drop(supply, DropReason::NoGroup);
        };
        let size = supply.packet().len() as u64;
        self.counters.count_entry(ready.slot(), 1, size, self.now);
        if ready.group().kind == GroupKind::All {
            return self.all(i, supply, ready);
        }
        match self.choose(i, supply.packet(), ready) {
            Some(bucket) => self.bucket(i, supply.take(), ready, bucket),
            None => self.drop(supply, DropReason::NoLiveBucket),
        }
    }

    /// Executes every bucket on a copy, and the last one on the packet itself.
    fn all(&mut self, i: usize, supply: Supply<'_, P>, ready: &ReadyGroup) {
        let Some(last) = ready.buckets().len().checked_sub(1) else {
            return self.drop(supply, DropReason::NoLiveBucket);
        };
        for bucket in 0..last {
            if self.budget.buckets == 0 {
                break;
            }
            self.bucket(i, supply.packet().try_clone(), ready, bucket);
        }
        self.bucket(i, supply.take(), ready, last);
    }

    /// Returns the bucket that the group selects for a packet.
    fn choose(&mut self, i: usize, packet: &P, ready: &ReadyGroup) -> Option<usize> {
        let (groups, ports) = (self.fwd.groups(), self.fwd.port_map());
        let group: &Group = ready.group();
        let is_live = |at: usize| {
            group
                .buckets
                .get(at)
                .is_some_and(|bucket| groups.is_live(bucket, ports))
        };
        match group.kind {
            GroupKind::FastFailover => (0..group.buckets.len()).find(|at| is_live(*at)),
            GroupKind::Select => {
                let hash = self.flow_hash(i, packet);
                ready.shares()?.choose(hash, is_live)
            }
            GroupKind::Indirect | GroupKind::All => Some(0),
        }
    }

    fn flow_hash(&mut self, i: usize, packet: &P) -> u64 {
        let headers = &mut self.scratch.walks[i].headers;
        let hash = self.fwd.select_hash();
        if !headers.changed && self.fwd.depth().is_some_and(|depth| depth >= Depth::L4) {
            return hash.of(&self.scratch.keys[i]);
        }
        let layers = headers.layers(packet);
        let mut key = FlowKey::default();
        key.extract(packet.head(), &layers);
        key.copy_beside_packet(&self.scratch.keys[i]);
        hash.of(&key)
    }

    /// Executes the actions of a bucket on a packet of its own.
    fn bucket(&mut self, i: usize, packet: Option<P>, ready: &ReadyGroup, at: usize) {
        let (Some(packet), Some(bucket)) = (packet, ready.buckets().get(at)) else {
            return self.count_drop(DropReason::NoBuffer);
        };
        let Some(left) = self.budget.buckets.checked_sub(1) else {
            return self.drop(Supply::Move(packet), DropReason::GroupLimit);
        };
        self.budget.buckets = left;
        self.counters
            .count_entry(bucket.slot, 1, packet.len() as u64, self.now);
        self.observer.bucket(ready.group(), at);
        let before = self.scratch.walks[i];
        let tunnel_id = self.scratch.keys[i].field(Field::TunnelId);
        self.scratch.walks[i].sent = false;
        self.execute(i, packet, &bucket.actions, false, false);
        self.scratch.walks[i] = before;
        // Actions change no other part of the key.
        self.scratch.keys[i].set_field(Field::TunnelId, tunnel_id);
    }
}
