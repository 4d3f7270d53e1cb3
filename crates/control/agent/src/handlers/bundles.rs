//! Bundles: requests that are executed together or not at all (ONF extension 230; OpenFlow 1.4.0, section 7.3.9).
//!
//! Messages are validated, and flow entries built, when they are added; the commit only inserts them into the tables. A
//! bundle is published at once, so that a packet sees all of it or nothing. Every bundle is ordered and atomic, no
//! matter what its flags ask for.

use std::collections::BTreeMap;

use millrace_datapath::io::Backend;
use millrace_openflow::{BundleAdd, BundleCommand, BundleControl, ErrorCode, ErrorMessage, Message, encode};
use millrace_pipeline as pipeline;
use millrace_types::{BufferId, PortNo, Xid};

use super::refusal::{self, Refusal};
use super::replies::Replies;
use super::{flows, groups, meters, packets, ports};
use crate::control::BridgeControl;
use crate::controllers::{Bundle, Change, ConnectionId, Staged};

/// Adds a message of `size` bytes to a bundle, which is opened if it does not exist.
pub(super) fn add<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    xid: Xid,
    size: u16,
    asked: &mut BundleAdd,
) -> Result<(), Refusal> {
    let (size, total) = (usize::from(size), bridge.controllers.bundled_size());
    if let Some(bundles) = bridge.controllers.bundles(id)
        && !bundles.admits(size, total)
    {
        return Err(ErrorCode::OFPBFC_MSG_TOO_MANY.into());
    }
    let (buffer, change) = match asked.message.as_mut() {
        Message::FlowMod(flow_mod) => {
            let buffer = flows::buffer(flow_mod);
            let prepared = bridge.tables.prepare(flows::request(flow_mod))?;
            (buffer, Change::Flow(prepared))
        }
        Message::PortMod(port_mod) => (None, Change::Port(Box::new(*port_mod))),
        Message::GroupMod(group_mod) => (None, Change::Group(Box::new(groups::request(group_mod)))),
        Message::MeterMod(meter_mod) => (None, Change::Meter(Box::new(meters::request(meter_mod)))),
        _ => return Err(ErrorCode::OFPBFC_MSG_UNSUP.into()),
    };
    let Some(bundles) = bridge.controllers.bundles(id) else {
        return Ok(());
    };
    bundles.stage(asked.bundle, asked.flags, Staged { xid, buffer, change }, size)?;
    Ok(())
}

/// Opens, closes, commits or discards a bundle.
pub(super) fn control<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    xid: Xid,
    asked: BundleControl,
    replies: &mut Replies,
) -> Result<(), ErrorCode> {
    let Some(bundles) = bridge.controllers.bundles(id) else {
        return Ok(());
    };
    let number = asked.bundle;
    let command = match asked.command {
        BundleCommand::Open => {
            if bundles.contains(number) {
                return Err(ErrorCode::OFPBFC_BUNDLE_EXIST);
            }
            bundles.open(number, asked.flags)?;
            BundleCommand::OpenReply
        }
        BundleCommand::Close => {
            bundles.find(number, asked.flags)?.close()?;
            BundleCommand::CloseReply
        }
        BundleCommand::Discard => {
            // A bundle is discarded no matter what flags the request has.
            bundles.take(number).ok_or(ErrorCode::OFPBFC_BAD_ID)?;
            BundleCommand::DiscardReply
        }
        BundleCommand::Commit => {
            bundles.find(number, asked.flags)?;
            if let Some(bundle) = bundles.take(number) {
                commit(bridge, id, bundle, replies)?;
            }
            BundleCommand::CommitReply
        }
        _ => return Err(ErrorCode::OFPBFC_BAD_TYPE),
    };
    let reply = BundleControl { command, ..asked };
    replies.send(xid, &Message::BundleControl(reply));
    Ok(())
}

/// Executes a bundle, and returns when workers use it. If a message fails, the bundle has no effect, and the first failed
/// message is answered with its error.
fn commit<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    bundle: Bundle,
    replies: &mut Replies,
) -> Result<(), ErrorCode> {
    let now = bridge.datapath.now();
    // The device of a port gets the settings of the last port_mod of this port.
    let mut ports: BTreeMap<PortNo, pipeline::PortConfig> = BTreeMap::new();
    let flows = bundle.staged.iter().filter_map(|staged| match &staged.change {
        Change::Flow(prepared) => Some(prepared),
        _ => None,
    });
    bridge.tables.reserve(flows, &mut bridge.ops);
    bridge.tables.begin(&bridge.ops);
    let mut buffers: Vec<(Xid, BufferId)> = Vec::new();
    for mut staged in bundle.staged.into_iter() {
        buffers.extend(staged.buffer.map(|buffer| (staged.xid, buffer)));
        let outcome = match &mut staged.change {
            Change::Flow(prepared) => bridge
                .tables
                .apply(prepared, now, &mut bridge.ops)
                .map(|_| ())
                .map_err(Refusal::from),
            Change::Group(group_mod) => groups::apply(bridge, group_mod),
            Change::Meter(meter_mod) => meters::apply(bridge, meter_mod),
            Change::Port(port_mod) => ports::change(bridge, port_mod)
                .map(|config| {
                    ports.insert(port_mod.number, config);
                })
                .map_err(Refusal::from),
        };
        if let Err(refusal) = outcome {
            bridge.tables.roll_back(&mut bridge.ops);
            refusal::log(bridge, id, staged.xid, "message of a bundle", &refusal);
            answer(&staged, refusal.code, replies);
            return Err(ErrorCode::OFPBFC_MSG_FAILED);
        }
    }
    bridge.tables.commit();
    for (port, config) in ports {
        ports::configure(bridge, port, config);
    }
    // The replies so far precede the flow_removed messages of the publication.
    replies.flush();
    bridge.publish();
    for (xid, buffer) in buffers {
        // The bundle took effect; the error is about the buffered packet only.
        if let Err(code) = packets::send_buffered(bridge, buffer) {
            replies.send(xid, &Message::Error(ErrorMessage::about(code, &[])));
        }
    }
    Ok(())
}

/// Answers a message that failed in a commit with its error and its first bytes, as if it had been sent alone.
fn answer(staged: &Staged, code: ErrorCode, replies: &mut Replies) {
    let mut head = Vec::new();
    // The message fits: it was received inside another message.
    let _fits = encode(&message(&staged.change), staged.xid, &mut head);
    tracing::debug!(xid = staged.xid.0, %code, "a message of a bundle failed");
    replies.send(staged.xid, &Message::Error(ErrorMessage::about(code, &head)));
}

/// Returns the OpenFlow message of a change.
fn message(change: &Change) -> Message {
    match change {
        Change::Flow(prepared) => flows::message(prepared.request()),
        Change::Port(port_mod) => Message::PortMod(**port_mod),
        Change::Group(group_mod) => groups::message(group_mod),
        Change::Meter(meter_mod) => meters::message(meter_mod),
    }
}
