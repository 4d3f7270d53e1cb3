//! Multipart requests, except those that list flow entries.

use millrace_datapath::io::Backend;
use millrace_openflow::multipart::RequestBody;
use millrace_openflow::multipart::desc::Desc;
use millrace_openflow::multipart::table::TableStats;
use millrace_openflow::{ErrorCode, Experimenter};
use millrace_types::Xid;

use super::replies::Replies;
use super::{groups, meters, ports, queues, tables};
use crate::control::{BridgeControl, PortStatus};

/// Answers a multipart request.
pub(super) fn multipart<B: Backend>(
    bridge: &mut BridgeControl<B>,
    asked: &RequestBody,
    xid: Xid,
    replies: &mut Replies,
) -> Result<(), ErrorCode> {
    match asked {
        RequestBody::Desc => replies.list(xid, [desc(bridge)]),
        RequestBody::Table => replies.list(xid, table_stats(bridge)),
        RequestBody::PortStats(asked) => {
            let selected = ports::selected(bridge, asked.port).ok_or(ErrorCode::OFPBRC_BAD_PORT)?;
            let stats = selected.into_iter().map(|status| ports::stats(bridge, status));
            replies.list(xid, stats);
        }
        RequestBody::PortDesc => replies.list(xid, bridge.ports.values().map(PortStatus::describe)),
        RequestBody::TableFeatures(wanted) if wanted.is_empty() => {
            replies.list(xid, tables::features(bridge));
        }
        RequestBody::TableFeatures(wanted) => {
            tables::set_features(bridge, wanted)?;
            replies.list(xid, tables::features(bridge));
        }
        RequestBody::Queue(asked) => replies.list(xid, queues::stats(bridge, *asked)?),
        RequestBody::Group(asked) => replies.list(xid, groups::stats(bridge, asked.group)),
        RequestBody::GroupDesc => replies.list(xid, groups::descriptions(bridge)),
        RequestBody::GroupFeatures => replies.list(xid, [groups::features()]),
        RequestBody::Meter(asked) => replies.list(xid, meters::stats(bridge, asked.meter)?),
        RequestBody::MeterConfig(asked) => replies.list(xid, meters::configs(bridge, asked.meter)?),
        RequestBody::MeterFeatures => replies.list(xid, [meters::features()]),
        RequestBody::Experimenter(body) => return Err(unknown_experimenter(body)),
        // A listing answers these in steps.
        RequestBody::Flow(_) | RequestBody::Aggregate(_) => return Err(ErrorCode::OFPBRC_BAD_MULTIPART),
    }
    Ok(())
}

/// Returns the error for an experimenter message that the switch does not know.
pub(super) fn unknown_experimenter(body: &Experimenter) -> ErrorCode {
    if body.experimenter == Experimenter::ONF {
        ErrorCode::OFPBRC_BAD_EXP_TYPE
    } else {
        ErrorCode::OFPBRC_BAD_EXPERIMENTER
    }
}

fn desc<B: Backend>(bridge: &BridgeControl<B>) -> Desc {
    let given = &bridge.config.description;
    Desc {
        manufacturer: given.manufacturer.to_string(),
        hardware: given.hardware.to_string(),
        software: given.software.to_string(),
        serial: given.serial.to_string(),
        datapath: bridge.config.datapath_description().to_owned(),
    }
}

fn table_stats<B: Backend>(bridge: &BridgeControl<B>) -> impl Iterator<Item = TableStats> + '_ {
    bridge.tables.table_stats().map(|stat| TableStats {
        table: stat.table,
        active: stat.active,
        lookups: stat.lookups,
        matched: stat.matches,
    })
}
