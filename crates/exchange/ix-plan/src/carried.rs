//! The numbers that entries carry, read back from the entries: those of content that the database does not know must not be
//! given to anything else.

use std::collections::BTreeSet;

use millrace_flow::{Action, Field, WriteMetadata};
use millrace_ix_model::{ConnectionIndex, GroupNumber, MeterNumber, PoolKind, ServiceIndex, WireId};
use millrace_types::{GroupId, MeterId};

use crate::entry::{Entry, EntryId, Flow, FlowId};
use crate::layout::{CookieFields, CookieKind, INNER, Metadata, PORT, pool_of_group, pool_of_meter};

/// The bits of a match on a VID that are the VID.
const VID: u128 = 0xfff;

/// Allocated numbers, and the highest number of an identifier.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// The allocated numbers by their pools.
    pub numbers: BTreeSet<(PoolKind, u32)>,
    /// The highest number of an object in a cookie.
    pub last_id: u32,
}

impl Carried {
    /// Adds the numbers of an entry: its own and those of what it refers to. A flow entry without the exchange's owner tag
    /// carries none.
    pub fn add(&mut self, id: &EntryId, entry: &Entry) {
        match (id, entry) {
            (EntryId::Meter(meter), _) => self.meter(*meter),
            (EntryId::Group(group), Entry::Group(content)) => {
                self.group(*group);
                for bucket in &content.buckets {
                    self.actions(&bucket.actions, true);
                }
            }
            (EntryId::Flow(id), Entry::Flow(flow)) => self.flow(id, flow),
            _ => {}
        }
    }

    fn flow(&mut self, id: &FlowId, flow: &Flow) {
        let Some(cookie) = CookieFields::from_cookie(flow.cookie) else {
            return;
        };
        let is_object = !matches!(
            cookie.kind,
            CookieKind::Base | CookieKind::Service | CookieKind::Drop
        );
        if is_object {
            self.last_id = self.last_id.max(cookie.object);
        }
        let by_wire = cookie.kind == CookieKind::Service;
        if let Some((tunnel_id, _)) = id.matching.field(Field::TunnelId) {
            self.number(PoolKind::WireId, tunnel_id, WireId::MAX);
        }
        // The VID of an S-tag on a trunk; entries of ends have the tags of members.
        if let Some((vid, _)) = id
            .matching
            .field(Field::VlanVid)
            .filter(|_| by_wire && id.table == PORT)
        {
            self.number(PoolKind::WireId, vid & VID, WireId::MAX);
        }
        // Between tables 0 and 1 the metadata has a VID in place of a service.
        if let Some((value, mask)) = id.matching.field(Field::Metadata).filter(|_| id.table != INNER) {
            self.metadata(value, mask.unwrap_or(u64::MAX.into()));
        }
        let instructions = &flow.instructions;
        if let Some(WriteMetadata { value, mask }) = instructions.write_metadata
            && instructions.goto_table != Some(INNER)
        {
            self.metadata(value.into(), mask.into());
        }
        if let Some(meter) = instructions.meter {
            self.meter(meter);
        }
        for actions in [&instructions.apply_actions, &instructions.write_actions]
            .into_iter()
            .flatten()
        {
            self.actions(actions, by_wire);
        }
    }

    /// Adds the numbers in actions; with `by_wire`, the VID of a pushed S-tag is a wire id.
    fn actions(&mut self, actions: &[Action], by_wire: bool) {
        let pushes_tag = actions
            .iter()
            .any(|action| matches!(action, Action::PushVlan(ethertype) if ethertype.0 == crate::tags::S_TAG));
        for action in actions {
            match action {
                Action::Group(group) => self.group(*group),
                Action::SetField(set) if set.field() == Field::TunnelId => {
                    self.number(PoolKind::WireId, set.value(), WireId::MAX);
                }
                Action::SetField(set) if set.field() == Field::VlanVid && by_wire && pushes_tag => {
                    self.number(PoolKind::WireId, set.value() & VID, WireId::MAX);
                }
                _ => {}
            }
        }
    }

    fn metadata(&mut self, value: u128, mask: u128) {
        let (value, mask) = (value as u64, mask as u64);
        let fields = Metadata::from_word(value & mask);
        self.number(PoolKind::ServiceIndex, fields.service.into(), ServiceIndex::MAX);
        // Frames by trunk carry the parity of the generation instead of an end.
        if !fields.by_trunk {
            self.number(
                PoolKind::ConnectionIndex,
                fields.ingress_end.into(),
                ConnectionIndex::MAX,
            );
        }
        if fields.egress_end & Metadata::COPIES == 0 {
            self.number(
                PoolKind::ConnectionIndex,
                fields.egress_end.into(),
                ConnectionIndex::MAX,
            );
        }
    }

    fn meter(&mut self, meter: MeterId) {
        if let Some(number) = pool_of_meter(meter) {
            self.number(PoolKind::Meter, number.into(), MeterNumber::MAX);
        }
    }

    fn group(&mut self, group: GroupId) {
        let (kind, number) = pool_of_group(group);
        let max = match kind {
            PoolKind::Group => GroupNumber::MAX,
            PoolKind::Meter => MeterNumber::MAX,
            _ => ServiceIndex::MAX,
        };
        self.number(kind, number.into(), max);
    }

    fn number(&mut self, kind: PoolKind, number: u128, max: u32) {
        if let Ok(number) = u32::try_from(number)
            && (1..=max).contains(&number)
        {
            self.numbers.insert((kind, number));
        }
    }
}
