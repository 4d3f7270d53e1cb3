//! Execution of one connection's requests, in order, with interruptions.

use std::collections::VecDeque;

use millrace_datapath::io::Backend;
use millrace_openflow::connection::{Rejection, Request};
use millrace_openflow::multipart::RequestBody;
use millrace_openflow::{ErrorCode, Experimenter, Message, flow_monitor};
use millrace_types::Duration;

use super::queries::unknown_experimenter;
use super::replies::Replies;
use super::{
    bundles, flows, groups, meters, monitor, packets, ports, queries, queues, refusal, session, tables,
};
use crate::asynchronous::send_flow_updates;
use crate::control::BridgeControl;
use crate::controllers::ConnectionId;

/// Size of replies, in bytes, after which work is interrupted.
const REPLIES_SIZE: usize = 256 * 1024;
/// Requests after which work is interrupted for other connections and workers' events: about two milliseconds of
/// flow_mods that add an entry.
const REQUESTS_LEN: usize = 1024;
/// Time after which work is interrupted: a flow_mod that deletes by cookie reads all entries.
const TIME_MAX: Duration = Duration::from_millis(2);

/// A request as the connection received it.
pub(crate) enum ReceivedRequest {
    /// A request to carry out.
    Valid(Request),
    /// A request to answer with an error.
    Rejected(Rejection),
}

/// Requests of a connection that wait for execution.
pub(crate) struct PendingRequests {
    requests: VecDeque<ReceivedRequest>,
    /// A multipart reply that is being written in steps.
    listing: Option<flows::FlowScan>,
}

impl PendingRequests {
    pub(crate) fn new(requests: VecDeque<ReceivedRequest>) -> PendingRequests {
        PendingRequests {
            requests,
            listing: None,
        }
    }
}

/// Executes the requests of a connection in order. Returns the remaining work if it was interrupted.
pub(crate) fn execute<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    mut work: PendingRequests,
) -> Option<PendingRequests> {
    let mut replies = Replies::new(bridge.controllers.outbox(id)?);
    let until = bridge.datapath.now() + TIME_MAX;
    for _ in 0..REQUESTS_LEN {
        if let Some(listing) = work.listing.take() {
            let is_initial = listing.is_initial();
            work.listing = listing.step(bridge, &mut replies.bytes);
            // The updates of later changes do not pass through `replies`, and must not overtake the existing entries.
            if is_initial && work.listing.is_none() {
                replies.flush();
            }
        } else {
            match work.requests.pop_front() {
                Some(ReceivedRequest::Valid(request)) => {
                    bridge.controllers.monitors.set_origin(Some((id, request.xid)));
                    work.listing = execute_one(bridge, id, request, &mut replies);
                    send_flow_updates(&mut bridge.controllers, &mut bridge.tables);
                    bridge.controllers.monitors.set_origin(None);
                }
                Some(ReceivedRequest::Rejected(rejection)) => {
                    replies.send(rejection.header.xid, &rejection.reply());
                }
                None => break,
            }
        }
        if replies.bytes.len() >= REPLIES_SIZE || bridge.datapath.now() >= until {
            break;
        }
    }
    replies.flush();
    let is_done = work.requests.is_empty() && work.listing.is_none();
    (!is_done).then_some(work)
}

/// Executes one request. Returns a listing that is to be continued.
fn execute_one<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    mut request: Request,
    replies: &mut Replies,
) -> Option<flows::FlowScan> {
    let admitted = bridge.controllers.connected(id).map(|connected| {
        connected.has_requested |= !is_handshake(&request.message);
        connected.peer.admit(&request.message)
    });
    if let Some(Err(code)) = admitted {
        replies.error(&request, code);
        return None;
    }
    let xid = request.xid;
    let (name, outcome) = match &mut request.message {
        Message::FlowMod(flow_mod) => ("flow_mod", flows::flow_mod(bridge, flow_mod)),
        Message::GroupMod(group_mod) => ("group_mod", groups::group_mod(bridge, group_mod)),
        Message::MeterMod(meter_mod) => ("meter_mod", meters::meter_mod(bridge, meter_mod)),
        Message::BundleAdd(add) => (
            "message of a bundle",
            bundles::add(bridge, id, xid, request.size, add),
        ),
        _ => match execute_other(bridge, id, &mut request, replies) {
            Ok(listing) => return listing,
            Err(code) => ("request", Err(code.into())),
        },
    };
    if let Err(refusal) = outcome {
        refusal::log(bridge, id, xid, name, &refusal);
        replies.error(&request, refusal.code);
    }
    None
}

/// Returns true for the requests with which controllers begin a connection, before they decide to control the switch.
fn is_handshake(message: &Message) -> bool {
    matches!(
        message,
        Message::FeaturesRequest | Message::GetConfigRequest | Message::SetConfig(_)
    )
}

/// Executes a request that changes no table, group or meter. Returns a listing that is to be continued.
fn execute_other<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    request: &mut Request,
    replies: &mut Replies,
) -> Result<Option<flows::FlowScan>, ErrorCode> {
    let xid = request.xid;
    let outcome = match &mut request.message {
        Message::PacketOut(packet) => packets::packet_out(bridge, packet),
        Message::BarrierRequest => {
            // The replies so far precede the flow_removed messages of the publication.
            replies.flush();
            bridge.publish();
            replies.send(xid, &Message::BarrierReply);
            Ok(())
        }
        Message::FeaturesRequest => {
            replies.send(xid, &session::features(bridge, id));
            Ok(())
        }
        Message::PortMod(port_mod) => ports::port_mod(bridge, port_mod),
        Message::TableMod(table_mod) => tables::table_mod(bridge, *table_mod),
        Message::RoleRequest(role) => session::role_request(bridge, id, *role)
            .map(|reply| replies.send(xid, &Message::RoleReply(reply))),
        Message::GetConfigRequest
        | Message::SetConfig(_)
        | Message::GetAsyncRequest
        | Message::SetAsync(_) => session::configure(bridge, id, &request.message).map(|reply| {
            if let Some(reply) = reply {
                replies.send(xid, &reply);
            }
        }),
        Message::QueueGetConfigRequest(asked) => queues::config(bridge, *asked)
            .map(|reply| replies.send(xid, &Message::QueueGetConfigReply(reply))),
        Message::BundleControl(control) => bundles::control(bridge, id, xid, *control, replies),
        Message::Experimenter(body) if is_onf(body, flow_monitor::FLOW_MONITOR_CANCEL) => {
            monitor::cancel(bridge, id, body, replies)
        }
        Message::Experimenter(body) => Err(unknown_experimenter(body)),
        Message::MultipartRequest(multipart) => match &multipart.body {
            RequestBody::Flow(asked) => return flows::FlowScan::flows(bridge, asked, xid).map(Some),
            RequestBody::Aggregate(asked) => return flows::FlowScan::aggregate(bridge, asked, xid).map(Some),
            RequestBody::Experimenter(body) if is_onf(body, flow_monitor::FLOW_MONITOR) => {
                let initial = monitor::begin(bridge, id, &body.data)?;
                return Ok(Some(flows::FlowScan::initial(initial, xid)));
            }
            body => queries::multipart(bridge, body, xid, replies),
        },
        // The connection layer answers or refuses all other messages.
        _ => Err(ErrorCode::OFPBRC_BAD_TYPE),
    };
    outcome.map(|()| None)
}

/// Returns true for this experimenter message of the ONF.
fn is_onf(body: &Experimenter, exp_type: u32) -> bool {
    body.experimenter == Experimenter::ONF && body.exp_type == exp_type
}
