//! Bundles: requests that are carried out together or not at all (ONF extension 230; section 7.3.9 of 1.4).
//!
//! Messages are checked, and flow entries made, when they are added; what is left for the commit is to put them
//! into the tables. All of it is published at once: a packet sees all of a bundle or nothing. A bundle is always
//! carried out in order and atomically, whether its flags ask for it or not.

use std::collections::BTreeMap;

use millrace_datapath::io::Backend;
use millrace_openflow::{
    BundleAdd, BundleCommand, BundleControl, BundleFlags, ErrorCode, ErrorMessage, Message, PortMod, encode,
};
use millrace_pipeline as pipeline;
use millrace_types::{BufferId, PortNo, Xid};

use super::refusal::{self, Refusal};
use super::{Replies, flows, groups, meters, packets, ports};
use crate::channel::ConnectionId;
use crate::control::BridgeControl;

/// Bundles that a connection may have at a time.
const BUNDLES_LEN: usize = 64;
/// Messages in all bundles of a connection.
const MESSAGES_LEN: usize = 2 * 1024 * 1024;
/// Size of messages in bytes, as they came, in all bundles of a connection. Decoded they take some two to four times
/// as much.
const SIZE_MAX: usize = 256 << 20;
/// The same, in all bundles of all connections of a bridge.
const TOTAL_SIZE_MAX: usize = 512 << 20;

/// The bundles of one connection.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    bundles: BTreeMap<u32, Bundle>,
    messages: usize,
    /// Size of messages in bytes.
    size: usize,
}

#[derive(Debug)]
struct Bundle {
    flags: BundleFlags,
    is_closed: bool,
    staged: Queue,
    size: usize,
}

/// A message that waits for the commit.
#[derive(Debug)]
struct Staged {
    xid: Xid,
    /// A packet that the flow_mod is to send.
    buffer: Option<BufferId>,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Flow(pipeline::Prepared),
    Port(Box<PortMod>),
    Group(Box<pipeline::GroupMod>),
    Meter(Box<pipeline::MeterMod>),
}

/// Messages of a bundle, in order. A million of them are as many parts as make no difference: what was carried out is given
/// back at once, for the tables to grow into.
#[derive(Debug, Default)]
struct Queue {
    parts: Vec<Vec<Staged>>,
    len: usize,
}

/// Messages in a part.
const PART: usize = 4096;

impl Queue {
    fn push(&mut self, staged: Staged) {
        self.len += 1;
        match self.parts.last_mut().filter(|part| part.len() < PART) {
            Some(part) => part.push(staged),
            None => self.parts.push(vec![staged]),
        }
    }
}

impl Change {
    /// The message it was made from.
    fn message(&self) -> Message {
        match self {
            Change::Flow(prepared) => flows::message(prepared.request()),
            Change::Port(port_mod) => Message::PortMod(**port_mod),
            Change::Group(group_mod) => groups::message(group_mod),
            Change::Meter(meter_mod) => meters::message(meter_mod),
        }
    }
}

impl Bundles {
    fn open(&mut self, bundle: u32, flags: BundleFlags) -> Result<&mut Bundle, ErrorCode> {
        if self.bundles.len() >= BUNDLES_LEN {
            return Err(ErrorCode::OFPBFC_OUT_OF_BUNDLES);
        }
        Ok(self.bundles.entry(bundle).or_insert(Bundle {
            flags,
            is_closed: false,
            staged: Queue::default(),
            size: 0,
        }))
    }

    /// The bundle, which must have these flags.
    fn find(&mut self, bundle: u32, flags: BundleFlags) -> Result<&mut Bundle, ErrorCode> {
        match self.bundles.get_mut(&bundle) {
            Some(bundle) if bundle.flags == flags => Ok(bundle),
            Some(_) => Err(ErrorCode::OFPBFC_BAD_FLAGS),
            None => Err(ErrorCode::OFPBFC_BAD_ID),
        }
    }

    fn take(&mut self, bundle: u32) -> Option<Bundle> {
        let bundle = self.bundles.remove(&bundle)?;
        self.messages -= bundle.staged.len;
        self.size -= bundle.size;
        Some(bundle)
    }

    /// Returns the size of messages that wait in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns true if there is room for one more message of this size, where all connections hold `total` bytes.
    fn admits(&self, size: usize, total: usize) -> bool {
        self.messages < MESSAGES_LEN && self.size + size <= SIZE_MAX && total + size <= TOTAL_SIZE_MAX
    }

    fn stage(
        &mut self,
        number: u32,
        flags: BundleFlags,
        staged: Staged,
        size: usize,
    ) -> Result<(), ErrorCode> {
        let bundle = match self.find(number, flags) {
            Err(ErrorCode::OFPBFC_BAD_ID) => self.open(number, flags)?,
            found => found?,
        };
        if bundle.is_closed {
            return Err(ErrorCode::OFPBFC_BUNDLE_CLOSED);
        }
        bundle.staged.push(staged);
        bundle.size += size;
        self.messages += 1;
        self.size += size;
        Ok(())
    }
}

/// Adds a message of `size` bytes to a bundle, which begins if it does not exist.
pub(super) fn add<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    xid: Xid,
    size: u16,
    asked: &mut BundleAdd,
) -> Result<(), Refusal> {
    let (size, total) = (usize::from(size), bridge.channels.bundled_size());
    if let Some(bundles) = bridge.channels.bundles(id)
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
    let Some(bundles) = bridge.channels.bundles(id) else {
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
    let Some(bundles) = bridge.channels.bundles(id) else {
        return Ok(());
    };
    let number = asked.bundle;
    let command = match asked.command {
        BundleCommand::Open => {
            if bundles.bundles.contains_key(&number) {
                return Err(ErrorCode::OFPBFC_BUNDLE_EXIST);
            }
            bundles.open(number, asked.flags)?;
            BundleCommand::OpenReply
        }
        BundleCommand::Close => {
            let bundle = bundles.find(number, asked.flags)?;
            if core::mem::replace(&mut bundle.is_closed, true) {
                return Err(ErrorCode::OFPBFC_BUNDLE_CLOSED);
            }
            BundleCommand::CloseReply
        }
        BundleCommand::Discard => {
            // Whatever its flags: who discards wants to be rid of it.
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

/// Carries out a bundle, or nothing of it: then the first message that failed is answered with its error.
/// Returns when workers see it.
fn commit<B: Backend>(
    bridge: &mut BridgeControl<B>,
    id: ConnectionId,
    bundle: Bundle,
    replies: &mut Replies,
) -> Result<(), ErrorCode> {
    let now = bridge.datapath.now();
    let mut ports: Vec<(PortNo, pipeline::PortConfig)> = Vec::new();
    let flows = bundle
        .staged
        .parts
        .iter()
        .flatten()
        .filter_map(|staged| match &staged.change {
            Change::Flow(prepared) => Some(prepared),
            _ => None,
        });
    bridge.tables.reserve(flows, &mut bridge.ops);
    bridge.tables.begin(&bridge.ops);
    let mut buffers: Vec<(Xid, BufferId)> = Vec::new();
    for mut staged in bundle.staged.parts.into_iter().flatten() {
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
                .map(|changed| ports.extend(changed.map(|config| (port_mod.number, config))))
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
        bridge.configure_port(port, config);
    }
    // What is published may report entries that are gone.
    replies.flush();
    bridge.publish();
    for (xid, buffer) in buffers {
        // The bundle is carried out; that the packet is gone is worth an error all the same.
        if let Err(code) = packets::send_buffered(bridge, buffer) {
            replies.send(xid, &Message::Error(ErrorMessage::about(code, &[])));
        }
    }
    Ok(())
}

/// Answers a message that failed at commit with its error, and its head as if it had come alone.
fn answer(staged: &Staged, code: ErrorCode, replies: &mut Replies) {
    let mut head = Vec::new();
    // A message that came in a bundle is shorter than one can be.
    let _came = encode(&staged.change.message(), staged.xid, &mut head);
    tracing::debug!(xid = staged.xid.0, %code, "a message of a bundle failed");
    replies.send(staged.xid, &Message::Error(ErrorMessage::about(code, &head)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: BundleFlags = BundleFlags::ATOMIC;

    fn staged() -> Staged {
        Staged {
            xid: Xid(1),
            buffer: None,
            change: Change::Port(Box::new(PortMod {
                number: PortNo::from_raw(1),
                mac: millrace_types::Mac::ZERO,
                config: millrace_openflow::PortConfig::NONE,
                mask: millrace_openflow::PortConfig::NONE,
                advertise: millrace_openflow::PortFeatures::NONE,
            })),
        }
    }

    #[test]
    fn bundles_are_bounded_by_bytes_of_a_connection_and_of_all() {
        let mut bundles = Bundles::default();
        const MESSAGE: usize = 64 << 20;
        for bundle in 0..4 {
            assert!(bundles.admits(MESSAGE, bundles.size()));
            bundles.stage(bundle, FLAGS, staged(), MESSAGE).unwrap();
        }
        assert!(!bundles.admits(1, bundles.size()), "of the connection");
        bundles.take(2).unwrap();
        assert!(bundles.admits(MESSAGE, bundles.size()));
        assert!(!bundles.admits(MESSAGE, TOTAL_SIZE_MAX - MESSAGE + 1), "of all");
        for bundle in [0, 1, 3] {
            bundles.take(bundle).unwrap();
        }
        assert_eq!((bundles.size, bundles.messages), (0, 0));
    }

    #[test]
    fn bundles_are_bounded_by_messages() {
        let mut bundles = Bundles {
            messages: MESSAGES_LEN - 1,
            ..Bundles::default()
        };
        assert!(bundles.admits(1, 0));
        bundles.stage(1, FLAGS, staged(), 1).unwrap();
        assert!(!bundles.admits(1, 0));
    }
}
