//! Flow entries: flow_mod, and listings in steps.

use millrace_datapath::io::Backend;
use millrace_openflow::multipart::SegmentWriter;
use millrace_openflow::multipart::aggregate::AggregateStats;
use millrace_openflow::multipart::flow::{FlowStats, FlowStatsRequest};
use millrace_openflow::{ErrorCode, FlowMod, FlowModCommand, FlowModFlags, Message};
use millrace_pipeline as pipeline;
use millrace_types::{BufferId, TableId, Xid};

use super::monitor::InitialUpdates;
use super::packets;
use super::refusal::Refusal;
use super::replies::{error_code, segments};
use crate::control::BridgeControl;

/// The maximum number of entries that one step of a listing visits: a few milliseconds of work.
const STEP_LEN: usize = 16_384;

/// Executes a flow_mod. Its match and instructions move to the entry.
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

/// Returns the buffered packet that a flow_mod names, if any.
pub(super) fn buffer(asked: &FlowMod) -> Option<BufferId> {
    (asked.buffer != BufferId::NONE && !asked.command.is_delete()).then_some(asked.buffer)
}

/// Converts a flow_mod to the pipeline's type. The match and the instructions are moved.
pub(crate) fn request(asked: &mut FlowMod) -> pipeline::FlowMod {
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

/// Returns the OpenFlow message of a flow_mod of the pipeline.
pub(crate) fn message(asked: pipeline::FlowMod) -> Message {
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

/// Returns the filter of a flow statistics request.
///
/// # Errors
/// `OFPBRC_BAD_TABLE_ID`, or the error of a match field that the bridge does not have.
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

/// A listing of flow entries, which is written in steps.
pub(super) struct FlowScan {
    filter: pipeline::FlowFilter,
    cursor: pipeline::Cursor,
    kind: Kind,
}

enum Kind {
    Flows(SegmentWriter),
    /// The initial updates of new monitors.
    Initial(SegmentWriter, InitialUpdates),
    Aggregate(Xid, pipeline::Aggregate),
}

impl FlowScan {
    /// Begins the reply to a flow statistics request.
    pub(super) fn flows<B: Backend>(
        bridge: &BridgeControl<B>,
        asked: &FlowStatsRequest,
        xid: Xid,
    ) -> Result<FlowScan, ErrorCode> {
        Ok(FlowScan {
            filter: filter(bridge, asked)?,
            cursor: pipeline::Cursor::default(),
            kind: Kind::Flows(segments::<FlowStats>(xid)),
        })
    }

    /// Begins the reply to a request for monitors.
    pub(super) fn initial(initial: InitialUpdates, xid: Xid) -> FlowScan {
        FlowScan {
            filter: pipeline::FlowFilter::all(),
            cursor: pipeline::Cursor::default(),
            kind: Kind::Initial(SegmentWriter::flow_updates(xid), initial),
        }
    }

    /// Begins the reply to an aggregate statistics request.
    pub(super) fn aggregate<B: Backend>(
        bridge: &BridgeControl<B>,
        asked: &FlowStatsRequest,
        xid: Xid,
    ) -> Result<FlowScan, ErrorCode> {
        Ok(FlowScan {
            filter: filter(bridge, asked)?,
            cursor: pipeline::Cursor::default(),
            kind: Kind::Aggregate(xid, pipeline::Aggregate::default()),
        })
    }

    /// Returns true for the reply to a request for monitors.
    pub(super) fn is_initial(&self) -> bool {
        matches!(self.kind, Kind::Initial(..))
    }

    /// Writes one step. Returns the listing if entries remain.
    pub(super) fn step<B: Backend>(
        mut self,
        bridge: &BridgeControl<B>,
        out: &mut Vec<u8>,
    ) -> Option<FlowScan> {
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
