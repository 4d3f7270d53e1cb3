//! Requests that begin and end flow monitors (ONF extension 187).

use millrace_datapath::io::Backend;
use millrace_flow::{Instructions, Match};
use millrace_openflow::flow_monitor::{
    FlowMonitorFlags, FlowMonitorRequest, FlowUpdate, FlowUpdateEvent, decode_cancel, pause,
};
use millrace_openflow::{ErrorCode, Experimenter, Message};
use millrace_pipeline::{FlowEntry, FlowFilter};
use millrace_types::{Cookie, GroupId, TableId};

use super::replies::{Replies, error_code};
use crate::asynchronous::{ASYNCHRONOUS, flow_update, send_flow_updates};
use crate::control::BridgeControl;
use crate::controllers::{ConnectionId, Monitor};

/// The maximum number of monitors of a connection.
const MONITORS_LEN: usize = 64;

/// The filters of new monitors that ask for updates of existing entries (`OFPFMF_INITIAL`), with their flags.
pub(super) struct InitialUpdates(Vec<(FlowMonitorFlags, FlowFilter)>);

impl InitialUpdates {
    /// Returns the update of an existing entry; `None` if no filter selects the entry.
    pub(super) fn update<'a>(&self, entry: &'a FlowEntry) -> Option<FlowUpdate<&'a Match, Instructions>> {
        let flags = self
            .0
            .iter()
            .filter(|(_, filter)| filter.selects(entry))
            .map(|(flags, _)| *flags)
            .reduce(FlowMonitorFlags::union)?;
        Some(flow_update(entry, FlowUpdateEvent::Added, flags))
    }
}

/// Adds the monitors of a request, all or none. Returns the monitors that ask for updates of existing
/// entries.
///
/// # Errors
/// The code of a request that is malformed, names a table or a match field that the bridge does not have, uses a number
/// twice, or exceeds [`MONITORS_LEN`].
pub(super) fn begin<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    body: &[u8],
) -> Result<InitialUpdates, ErrorCode> {
    let asked = FlowMonitorRequest::decode_all(body).map_err(|error| error.error_code())?;
    let existing = bridge.controllers.monitors.of(id);
    let is_taken = |asked: &FlowMonitorRequest| existing.iter().any(|monitor| monitor.id == asked.id);
    let has_duplicate = asked
        .iter()
        .enumerate()
        .any(|(at, one)| asked[..at].iter().any(|before| before.id == one.id));
    // The extension defines no error for these cases.
    if has_duplicate || asked.iter().any(is_taken) || existing.len() + asked.len() > MONITORS_LEN {
        return Err(ErrorCode::OFPBRC_EPERM);
    }
    if asked
        .iter()
        .any(|one| one.table != TableId::ALL && !bridge.tables.has_table(one.table))
    {
        return Err(ErrorCode::OFPBRC_BAD_TABLE_ID);
    }
    for one in &asked {
        let checked = bridge.tables.check_extensions(&one.match_);
        checked.map_err(|error| error_code(error.code()))?;
    }
    // Changes before this request are not reported to the new monitors.
    send_flow_updates(&mut bridge.controllers, &mut bridge.tables);
    let set = bridge.controllers.monitors.of_mut(id);
    let mut initial = Vec::new();
    for one in asked {
        let filter = FlowFilter {
            table: one.table,
            out_port: one.out_port,
            out_group: GroupId::ANY,
            cookie: Cookie(0),
            cookie_mask: 0,
            match_: one.match_,
        };
        if one.flags.contains(FlowMonitorFlags::INITIAL) {
            initial.push((one.flags, filter.clone()));
        }
        set.monitors.push(Monitor {
            id: one.id,
            flags: one.flags,
            filter,
        });
    }
    bridge.tables.set_watched(true);
    Ok(InitialUpdates(initial))
}

/// Ends a monitor. The last one also ends a pause of the updates.
pub(super) fn cancel<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    body: &Experimenter,
    replies: &mut Replies,
) -> Result<(), ErrorCode> {
    let number = decode_cancel(&body.data).map_err(|error| error.error_code())?;
    let monitors = &mut bridge.controllers.monitors;
    if !monitors.of(id).iter().any(|monitor| monitor.id == number) {
        return Err(ErrorCode::OFPBRC_EPERM);
    }
    let set = monitors.of_mut(id);
    set.monitors.retain(|monitor| monitor.id != number);
    if set.monitors.is_empty() {
        if set.is_paused() {
            replies.send(ASYNCHRONOUS, &Message::Experimenter(pause(false)));
        }
        monitors.disconnected(id);
        update_watched(bridge);
    }
    Ok(())
}

/// Makes the tables record changes only while there are monitors.
pub(super) fn update_watched<B: Backend>(bridge: &mut BridgeControl<B>) {
    let is_watched = !bridge.controllers.monitors.is_empty();
    bridge.tables.set_watched(is_watched);
}
