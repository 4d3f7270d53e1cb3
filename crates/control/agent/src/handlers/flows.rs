//! Flow entries: changed, listed, counted, and reported when they go.

use millrace_datapath::io::Backend;
use millrace_openflow::multipart::SegmentWriter;
use millrace_openflow::multipart::aggregate::AggregateStats;
use millrace_openflow::multipart::flow::{FlowStats, FlowStatsRequest};
use millrace_openflow::{
    ErrorCode, FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason, Message,
};
use millrace_pipeline as pipeline;
use millrace_types::{BufferId, TableId, Xid};

use super::refusal::Refusal;
use super::{encoded, error_code, packets, segments};
use crate::channel::ConnectionId;
use crate::control::BridgeControl;

/// Entries that one step of a listing looks at: a few milliseconds.
const STEP_LEN: usize = 16_384;

/// Carries out a flow_mod. Its match and instructions move to the entry.
pub(super) fn flow_mod<B: Backend>(
    bridge: &mut BridgeControl<B>,
    asked: &mut FlowMod,
) -> Result<(), Refusal> {
    let now = bridge.datapath.now();
    bridge.tables.flow_mod(request(asked), now, &mut bridge.ops)?;
    if let Some(buffer) = buffer(asked) {
        packets::send_buffered(bridge, buffer)?;
    }
    Ok(())
}

/// The packet that is to be sent by the entry, if any.
pub(super) fn buffer(asked: &FlowMod) -> Option<BufferId> {
    (asked.buffer != BufferId::NONE && !asked.command.is_delete()).then_some(asked.buffer)
}

/// Returns a flow_mod for the pipeline; its match and instructions move there.
pub(super) fn request(asked: &mut FlowMod) -> pipeline::FlowMod {
    let command = match asked.command {
        FlowModCommand::Add => pipeline::FlowModCommand::Add,
        FlowModCommand::Modify => pipeline::FlowModCommand::Modify,
        FlowModCommand::ModifyStrict => pipeline::FlowModCommand::ModifyStrict,
        FlowModCommand::Delete => pipeline::FlowModCommand::Delete,
        FlowModCommand::DeleteStrict => pipeline::FlowModCommand::DeleteStrict,
    };
    pipeline::FlowMod {
        command,
        table: asked.table,
        priority: asked.priority,
        cookie: asked.cookie,
        cookie_mask: asked.cookie_mask,
        idle_timeout: asked.idle_timeout,
        hard_timeout: asked.hard_timeout,
        out_port: asked.out_port,
        out_group: asked.out_group,
        flags: pipeline::FlowFlags(asked.flags.raw()),
        match_: core::mem::take(&mut asked.match_),
        instructions: core::mem::take(&mut asked.instructions),
    }
}

/// Returns a flow_mod of the pipeline as it would have come.
pub(super) fn message(asked: pipeline::FlowMod) -> Message {
    let command = match asked.command {
        pipeline::FlowModCommand::Add => FlowModCommand::Add,
        pipeline::FlowModCommand::Modify => FlowModCommand::Modify,
        pipeline::FlowModCommand::ModifyStrict => FlowModCommand::ModifyStrict,
        pipeline::FlowModCommand::Delete => FlowModCommand::Delete,
        pipeline::FlowModCommand::DeleteStrict => FlowModCommand::DeleteStrict,
    };
    Message::FlowMod(FlowMod {
        cookie: asked.cookie,
        cookie_mask: asked.cookie_mask,
        table: asked.table,
        command,
        idle_timeout: asked.idle_timeout,
        hard_timeout: asked.hard_timeout,
        priority: asked.priority,
        buffer: BufferId::NONE,
        out_port: asked.out_port,
        out_group: asked.out_group,
        flags: FlowModFlags::from_raw_truncated(asked.flags.0),
        match_: asked.match_,
        instructions: asked.instructions,
    })
}

fn filter<B: Backend>(
    bridge: &BridgeControl<B>,
    asked: &FlowStatsRequest,
) -> Result<pipeline::FlowFilter, ErrorCode> {
    let exists = bridge.tables.has_table(asked.table);
    if !exists && asked.table != TableId::ALL {
        return Err(ErrorCode::OFPBRC_BAD_TABLE_ID);
    }
    bridge
        .tables
        .check_extensions(&asked.match_)
        .map_err(|error| error_code(error.code()))?;
    Ok(pipeline::FlowFilter {
        table: asked.table,
        out_port: asked.out_port,
        out_group: asked.out_group,
        cookie: asked.cookie,
        cookie_mask: asked.cookie_mask,
        match_: asked.match_.clone(),
    })
}

/// A walk over the flow entries that is done in steps.
pub(super) struct Listing {
    filter: pipeline::FlowFilter,
    cursor: pipeline::Cursor,
    kind: Kind,
}

enum Kind {
    Flows(SegmentWriter),
    /// What there is when monitors begin.
    Initial(SegmentWriter, super::monitor::Initial),
    Aggregate(Xid, pipeline::Aggregate),
}

impl Listing {
    /// Lists entries, one by one.
    pub(super) fn flows<B: Backend>(
        bridge: &BridgeControl<B>,
        asked: &FlowStatsRequest,
        xid: Xid,
    ) -> Result<Listing, ErrorCode> {
        Ok(Listing {
            filter: filter(bridge, asked)?,
            cursor: pipeline::Cursor::default(),
            kind: Kind::Flows(segments::<FlowStats>(xid)),
        })
    }

    /// Lists entries for monitors that begin.
    pub(super) fn initial(initial: super::monitor::Initial, xid: Xid) -> Listing {
        Listing {
            filter: pipeline::FlowFilter::all(),
            cursor: pipeline::Cursor::default(),
            kind: Kind::Initial(SegmentWriter::flow_updates(xid), initial),
        }
    }

    /// Adds entries up.
    pub(super) fn aggregate<B: Backend>(
        bridge: &BridgeControl<B>,
        asked: &FlowStatsRequest,
        xid: Xid,
    ) -> Result<Listing, ErrorCode> {
        Ok(Listing {
            filter: filter(bridge, asked)?,
            cursor: pipeline::Cursor::default(),
            kind: Kind::Aggregate(xid, pipeline::Aggregate::default()),
        })
    }

    /// Takes one step; returns the listing if there is more to do.
    pub(super) fn go_on<B: Backend>(
        mut self,
        bridge: &BridgeControl<B>,
        out: &mut Vec<u8>,
    ) -> Option<Listing> {
        let now = bridge.datapath.now();
        let next = match &mut self.kind {
            Kind::Flows(writer) => {
                bridge
                    .tables
                    .flow_stats(&self.filter, self.cursor, STEP_LEN, now, |stat| {
                        let entry = stat.entry;
                        let part = FlowStats {
                            table: entry.table(),
                            duration: stat.duration,
                            priority: entry.priority(),
                            idle_timeout: entry.idle_timeout(),
                            hard_timeout: entry.hard_timeout(),
                            flags: FlowModFlags::from_raw_truncated(entry.flags().0),
                            cookie: entry.cookie(),
                            packets: stat.count.packets,
                            bytes: stat.count.bytes,
                            match_: entry.match_(),
                            instructions: entry.instructions(),
                        };
                        writer.push(&part, out);
                    })
            }
            Kind::Initial(writer, initial) => {
                bridge
                    .tables
                    .flow_stats(&self.filter, self.cursor, STEP_LEN, now, |stat| {
                        if let Some(update) = initial.update(stat.entry) {
                            writer.push(&update, out);
                        }
                    })
            }
            Kind::Aggregate(_, sum) => bridge.tables.aggregate(&self.filter, self.cursor, STEP_LEN, sum),
        };
        if let Some(cursor) = next {
            self.cursor = cursor;
            return Some(self);
        }
        match self.kind {
            Kind::Flows(writer) | Kind::Initial(writer, _) => writer.finish(out),
            Kind::Aggregate(xid, sum) => {
                let mut writer = segments::<AggregateStats>(xid);
                let part = AggregateStats {
                    packets: sum.packets,
                    bytes: sum.bytes,
                    flows: u32::try_from(sum.flows).unwrap_or(u32::MAX),
                };
                writer.push(&part, out);
                writer.finish(out);
            }
        }
        None
    }
}

/// Tells the controllers that want to hear of it that a flow entry is gone.
pub fn flow_removed<B: Backend>(bridge: &mut BridgeControl<B>, removed: &pipeline::FlowRemoved) {
    let reason = match removed.reason {
        pipeline::RemovedReason::IdleTimeout => FlowRemovedReason::IdleTimeout,
        pipeline::RemovedReason::HardTimeout => FlowRemovedReason::HardTimeout,
        pipeline::RemovedReason::Delete => FlowRemovedReason::Delete,
        pipeline::RemovedReason::GroupDelete => FlowRemovedReason::GroupDelete,
    };
    let hearers: Vec<ConnectionId> = bridge
        .channels
        .iter()
        .filter(|connected| connected.peer.wants_flow_removed(reason))
        .map(|connected| connected.id)
        .collect();
    if hearers.is_empty() {
        return;
    }
    let entry = &removed.entry;
    let message = Message::FlowRemoved(FlowRemoved {
        cookie: entry.cookie(),
        priority: entry.priority(),
        reason,
        table: entry.table(),
        duration: removed.duration,
        idle_timeout: entry.idle_timeout(),
        hard_timeout: entry.hard_timeout(),
        packets: removed.count.packets,
        bytes: removed.count.bytes,
        match_: entry.match_().clone(),
    });
    if let Some(bytes) = encoded(&message) {
        super::session::report(bridge, &bytes, |connected| hearers.contains(&connected.id));
    }
}
