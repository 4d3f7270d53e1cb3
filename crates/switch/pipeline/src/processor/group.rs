//! Groups in a worker (OpenFlow 1.3.5, section 5.6).

use millrace_flow::{Field, FlowKey};
use millrace_types::GroupId;
use millrace_wire::{Depth, Packet};

use super::observe::Observer;
use super::packet_source::PacketSource;
use super::run::Run;
use crate::group::{CompiledGroup, Group, GroupKind};
use crate::{DropReason, Egress};

/// The maximum number of buckets that one group action of a flow entry executes, nested groups included.
/// Without it, groups of many buckets that send to each other could make any number of copies of a packet.
const BUCKETS_MAX: u32 = 4096;
/// The maximum nesting depth of groups: each level takes some of the worker's stack.
const NESTING_MAX: u32 = 16;

impl<P: Packet, E: Egress<P>, O: Observer<P>> Run<'_, P, E, O> {
    /// Processes packet `i` of the burst, or a copy, through a group. The state of the packet is then restored.
    pub(crate) fn group(&mut self, i: usize, source: PacketSource<'_, P>, id: GroupId) {
        let before = self.budget;
        if before.nesting == 0 {
            self.budget.buckets = BUCKETS_MAX;
        } else if before.nesting == NESTING_MAX {
            return self.drop(source, DropReason::GroupLimit);
        }
        self.budget.nesting += 1;
        self.enter(i, source, id);
        self.budget.nesting = before.nesting;
    }

    fn enter(&mut self, i: usize, source: PacketSource<'_, P>, id: GroupId) {
        let fwd = self.fwd;
        let Some(compiled) = fwd.group(id) else {
            return self.drop(source, DropReason::NoGroup);
        };
        let size = source.packet().len() as u64;
        self.counters.count_entry(compiled.slot(), 1, size, self.now);
        if compiled.group().kind == GroupKind::All {
            return self.all(i, source, compiled);
        }
        match self.choose(i, source.packet(), compiled) {
            Some(bucket) => self.bucket(i, source.take(), compiled, bucket),
            None => self.drop(source, DropReason::NoLiveBucket),
        }
    }

    /// Executes every bucket but the last one on a copy, and the last one on the packet itself.
    fn all(&mut self, i: usize, source: PacketSource<'_, P>, compiled: &CompiledGroup) {
        let Some(last) = compiled.buckets().len().checked_sub(1) else {
            return self.drop(source, DropReason::NoLiveBucket);
        };
        for bucket in 0..last {
            if self.budget.buckets == 0 {
                break;
            }
            self.bucket(i, source.packet().try_clone(), compiled, bucket);
        }
        self.bucket(i, source.take(), compiled, last);
    }

    /// Returns the bucket that the group selects for a packet.
    fn choose(&mut self, i: usize, packet: &P, compiled: &CompiledGroup) -> Option<usize> {
        let (groups, ports) = (self.fwd.groups(), self.fwd.port_map());
        let group: &Group = compiled.group();
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
                compiled.cells()?.choose(hash, is_live)
            }
            GroupKind::Indirect | GroupKind::All => Some(0),
        }
    }

    fn flow_hash(&mut self, i: usize, packet: &P) -> u64 {
        let headers = &mut self.scratch.states[i].headers;
        let hash = self.fwd.select_hash();
        if !headers.changed && self.fwd.depth().is_some_and(|depth| depth >= Depth::L4) {
            return hash.of(&self.scratch.keys[i]);
        }
        let layers = headers.layers(packet);
        let mut key = FlowKey::default();
        key.extract(packet.head(), &layers);
        key.copy_pipeline_fields(&self.scratch.keys[i]);
        hash.of(&key)
    }

    /// Executes the actions of a bucket on a packet that no other bucket uses.
    fn bucket(&mut self, i: usize, packet: Option<P>, compiled: &CompiledGroup, at: usize) {
        let (Some(packet), Some(bucket)) = (packet, compiled.buckets().get(at)) else {
            return self.count_drop(DropReason::NoBuffer);
        };
        let Some(left) = self.budget.buckets.checked_sub(1) else {
            return self.drop(PacketSource::Move(packet), DropReason::GroupLimit);
        };
        self.budget.buckets = left;
        self.counters
            .count_entry(bucket.slot, 1, packet.len() as u64, self.now);
        self.observer.bucket(compiled.group(), at);
        let before = self.scratch.states[i];
        let tunnel_id = self.scratch.keys[i].field(Field::TunnelId);
        self.scratch.states[i].sent = false;
        self.execute_last(i, packet, &bucket.actions);
        self.scratch.states[i] = before;
        // Actions change no other part of the key.
        self.scratch.keys[i].set_field(Field::TunnelId, tunnel_id);
    }
}
