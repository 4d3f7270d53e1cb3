//! What OpenFlow messages do to a bridge, and what a bridge tells its controllers. All of it runs on the
//! control thread.
//!
//! Requests of a connection come as [`Work`] and are executed in order. Work that makes long replies is
//! interrupted and handed back, and the connection sends it again when the replies so far are on their way:
//! so a controller that asks for a million flow entries neither holds up others nor fills memory.

mod buffers;
mod bundles;
mod flows;
mod groups;
mod meters;
mod monitor;
mod packets;
mod ports;
mod queries;
mod queues;
mod refusal;
mod session;
mod tables;

use std::collections::VecDeque;

use millrace_datapath::io::Backend;
use millrace_openflow::connection::Request;
use millrace_openflow::multipart::{ReplyPart, RequestBody, SegmentWriter, encode_segments};
use millrace_openflow::{ErrorCode, Experimenter, Message, encode, flow_monitor};
use millrace_types::Xid;

use crate::channel::{ConnectionId, Outbox};
use crate::control::BridgeControl;

pub(crate) use buffers::Buffers;
pub(crate) use bundles::Bundles;
pub(crate) use monitor::{Monitors, resume as resume_monitors, tell as tell_monitors};
pub use packets::packet_in;
pub use ports::{PortChange, port_status};
pub(crate) use session::{connected, disconnected};

pub use flows::flow_removed;

/// Size of replies after which work is interrupted in bytes.
const REPLIES_SIZE: usize = 256 * 1024;
/// Requests after which work is interrupted, so that other connections and workers' events get their turn:
/// about two milliseconds of flow_mods.
const REQUESTS_LEN: usize = 1024;

/// Requests of a connection that are yet to be executed.
pub(crate) struct Work {
    requests: VecDeque<Request>,
    /// A reply that is being written.
    listing: Option<flows::Listing>,
}

impl Work {
    pub(crate) fn new(requests: VecDeque<Request>) -> Work {
        Work {
            requests,
            listing: None,
        }
    }
}

/// Replies of one connection, in order.
pub(crate) struct Replies {
    outbox: Outbox,
    bytes: Vec<u8>,
}

impl Replies {
    /// Answers with a message.
    fn send(&mut self, xid: Xid, message: &Message) {
        if let Err(error) = encode(message, xid, &mut self.bytes) {
            // No reply of ours is that long, but for what a controller made long.
            tracing::error!(xid = xid.0, %error, "reply left out");
        }
    }

    /// Answers with an error.
    fn error(&mut self, request: &Request, code: ErrorCode) {
        tracing::debug!(xid = request.xid.0, %code, request = %request.message, "refused");
        self.send(request.xid, &request.error(code));
    }

    /// Answers with a list.
    fn list<I>(&mut self, xid: Xid, items: I)
    where
        I: IntoIterator,
        I::Item: ReplyPart,
    {
        encode_segments(xid, items, &mut self.bytes);
    }

    /// Hands what there is to the connection.
    fn flush(&mut self) {
        self.outbox.reply(core::mem::take(&mut self.bytes));
    }
}

/// Executes requests of a connection, in order. Returns what is left when it was interrupted.
pub(crate) fn execute<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    mut work: Work,
) -> Option<Work> {
    let outbox = bridge.channels.outbox(id)?;
    let mut replies = Replies {
        outbox,
        bytes: Vec::new(),
    };
    for _ in 0..REQUESTS_LEN {
        if let Some(listing) = work.listing.take() {
            work.listing = listing.go_on(bridge, &mut replies.bytes);
        } else if let Some(request) = work.requests.pop_front() {
            bridge.channels.monitors.set_origin(Some((id, request.xid)));
            work.listing = execute_one(bridge, id, request, &mut replies);
            monitor::tell(bridge);
            bridge.channels.monitors.set_origin(None);
        } else {
            break;
        }
        if replies.bytes.len() >= REPLIES_SIZE {
            break;
        }
    }
    replies.flush();
    let is_done = work.requests.is_empty() && work.listing.is_none();
    (!is_done).then_some(work)
}

/// Executes one request; returns a listing that is to be gone on with.
fn execute_one<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    mut request: Request,
    replies: &mut Replies,
) -> Option<flows::Listing> {
    let admitted = bridge
        .channels
        .connected(id)
        .map(|connected| connected.peer.admit(&request.message));
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

/// Executes a request that changes no table, group or meter; returns a listing that is to be continued.
fn execute_other<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    request: &mut Request,
    replies: &mut Replies,
) -> Result<Option<flows::Listing>, ErrorCode> {
    let xid = request.xid;
    let outcome = match &mut request.message {
        Message::PacketOut(packet) => packets::packet_out(bridge, packet),
        Message::BarrierRequest => {
            // What the barrier waits for may report entries that are gone: after the replies so far.
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
            monitor::cancel(bridge, id, body)
        }
        Message::Experimenter(body) => Err(unknown_experimenter(body)),
        Message::MultipartRequest(multipart) => match &multipart.body {
            RequestBody::Flow(asked) => return flows::Listing::flows(bridge, asked, xid).map(Some),
            RequestBody::Aggregate(asked) => return flows::Listing::aggregate(bridge, asked, xid).map(Some),
            RequestBody::Experimenter(body) if is_onf(body, flow_monitor::FLOW_MONITOR) => {
                let initial = monitor::begin(bridge, id, &body.data)?;
                return Ok(Some(flows::Listing::initial(initial, xid)));
            }
            body => queries::multipart(bridge, body, xid, replies),
        },
        // The connection answers or refuses the rest.
        _ => Err(ErrorCode::OFPBRC_BAD_TYPE),
    };
    outcome.map(|()| None)
}

/// Returns true if it is this message of the ONF's.
fn is_onf(body: &Experimenter, exp_type: u32) -> bool {
    body.experimenter == Experimenter::ONF && body.exp_type == exp_type
}

fn unknown_experimenter(body: &Experimenter) -> ErrorCode {
    if body.experimenter == Experimenter::ONF {
        ErrorCode::OFPBRC_BAD_EXP_TYPE
    } else {
        ErrorCode::OFPBRC_BAD_EXPERIMENTER
    }
}

/// Returns an error of the pipeline as OpenFlow says it.
const fn error_code((type_, code): (u16, u16)) -> ErrorCode {
    ErrorCode { type_, code }
}

/// The xid of messages that nobody asked for.
const UNASKED: Xid = Xid(0);

/// Returns a message that nobody asked for, encoded; `None` if it would be too long.
fn encoded(message: &Message) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    encode(message, UNASKED, &mut bytes).ok().map(|()| bytes)
}

/// Returns a writer for a long reply.
fn segments<P: ReplyPart>(xid: Xid) -> SegmentWriter {
    SegmentWriter::new(xid, P::TYPE)
}
