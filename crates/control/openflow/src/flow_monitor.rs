//! Flow monitors: the switch reports every change of the flow entries that a controller selects (ONF
//! extension 187 to OpenFlow 1.3, as Open vSwitch implements it). Requests and updates are multipart messages
//! of the ONF. The messages that end a monitor, and that pause and continue updates, are EXPERIMENTER
//! messages.
//!
//! The text of the extension contradicts itself about matches. This module follows `ovs-ofctl monitor watch:`: the match
//! is encoded as in flow_mod, and its length without padding precedes it.

use core::borrow::Borrow;

use millrace_flow::{Instructions, Match};
use millrace_types::{Cookie, PortNo, Priority, TableId, Xid};

use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_flags;
use crate::decode_error::DecodeError;
use crate::experimenter::Experimenter;
use crate::flow_removed::FlowRemovedReason;
use crate::instruction::{decode_instructions, encode_instructions};
use crate::multipart::{MultipartType, ReplyPart, decode_list, sized};
use crate::oxm::{decode_match, encode_match};

/// `ONFMP_FLOW_MONITOR`: the type of requests for monitors, and of their updates.
pub const FLOW_MONITOR: u32 = 1870;
/// `ONFT_FLOW_MONITOR_CANCEL`: ends a monitor.
pub const FLOW_MONITOR_CANCEL: u32 = 1870;
const FLOW_MONITOR_PAUSED: u32 = 1871;
const FLOW_MONITOR_RESUMED: u32 = 1872;

wire_flags! {
    /// `onf_flow_monitor_flags`.
    FlowMonitorFlags(u16) {
        /// Report entries that exist when the monitor begins.
        INITIAL = 0x1 "initial",
        /// Report added entries.
        ADD = 0x2 "add",
        /// Report removed entries.
        DELETE = 0x4 "delete",
        /// Report modified entries.
        MODIFY = 0x8 "modify",
        /// Report instructions.
        INSTRUCTIONS = 0x10 "instructions",
        /// Report the changes by this connection in full, and not abbreviated.
        OWN = 0x20 "own",
    }
}

/// `onf_flow_monitor_request`: one monitor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowMonitorRequest {
    /// The number of the monitor, unique within the connection.
    pub id: u32,
    /// The changes that the monitor reports.
    pub flags: FlowMonitorFlags,
    /// Selects entries that output to this port; [`PortNo::ANY`] selects all.
    pub out_port: PortNo,
    /// Selects entries of this table; [`TableId::ALL`] selects all.
    pub table: TableId,
    /// Selects entries whose match equals this match or is narrower.
    pub match_: Match,
}

impl FlowMonitorRequest {
    /// Reads the monitors in the body of a request.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode_all(body: &[u8]) -> Result<Vec<FlowMonitorRequest>, DecodeError> {
        let mut reader = Reader::new(body);
        let mut all = Vec::new();
        while !reader.is_empty() {
            let id = reader.u32()?;
            let flags = reader.u16()?;
            let flags = FlowMonitorFlags::from_raw(flags).ok_or(DecodeError::FlowMonitorFlags { flags })?;
            reader.skip(2)?;
            let out_port = PortNo::from_raw(reader.u32()?);
            let table = TableId(reader.u8()?);
            reader.skip(3)?;
            all.push(FlowMonitorRequest {
                id,
                flags,
                out_port,
                table,
                match_: decode_match(&mut reader)?,
            });
        }
        Ok(all)
    }

    /// Returns the request for these monitors, in the form in which a controller sends it.
    pub fn encode_all(monitors: &[FlowMonitorRequest]) -> Experimenter {
        let mut out = Vec::new();
        for monitor in monitors {
            out.u32(monitor.id);
            let match_size_at = out.len() + 2;
            out.u16(monitor.flags.raw());
            out.u16(0);
            out.u32(monitor.out_port.raw());
            out.u8(monitor.table.0);
            out.zeros(3);
            let match_at = out.len();
            encode_match(&monitor.match_, &mut out);
            // The length of the match excludes padding.
            out.copy_within(match_at + 2..match_at + 4, match_size_at);
        }
        Experimenter {
            experimenter: Experimenter::ONF,
            exp_type: FLOW_MONITOR,
            data: out.into(),
        }
    }
}

/// `onf_flow_update_event` of a full update.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowUpdateEvent {
    /// The entry was added, or existed when the monitor began.
    Added,
    /// The entry was removed.
    Deleted(FlowRemovedReason),
    /// The instructions of the entry were modified.
    Modified,
}

/// A full update: the change of one flow entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlowUpdateFull<M = Match, I = Instructions> {
    /// The change.
    pub event: FlowUpdateEvent,
    /// The table of the entry.
    pub table: TableId,
    /// The priority of the entry.
    pub priority: Priority,
    /// The idle time-out in the flow_mod, in seconds; 0 means none.
    pub idle_timeout: u16,
    /// The hard time-out in the flow_mod, in seconds; 0 means none.
    pub hard_timeout: u16,
    /// The cookie of the entry.
    pub cookie: Cookie,
    /// The match of the entry.
    pub match_: M,
    /// The instructions of the entry; `None` if the monitor does not ask for them.
    pub instructions: Option<I>,
}

/// One update.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FlowUpdate<M = Match, I = Instructions> {
    /// A full description of a change.
    Full(FlowUpdateFull<M, I>),
    /// An abbreviated update: the switch carried out the request with this xid, which the same connection
    /// sent.
    Abbreviated(Xid),
}

impl<M: Borrow<Match>, I: Borrow<Instructions>> ReplyPart for FlowUpdate<M, I> {
    const TYPE: MultipartType = MultipartType::Experimenter;

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        match self {
            FlowUpdate::Abbreviated(xid) => {
                out.u16(3);
                out.u32(xid.0);
            }
            FlowUpdate::Full(full) => {
                let (event, reason) = match full.event {
                    FlowUpdateEvent::Added => (0, 0),
                    FlowUpdateEvent::Deleted(reason) => (1, u16::from(reason.raw())),
                    FlowUpdateEvent::Modified => (2, 0),
                };
                out.u16(event);
                out.u16(reason);
                out.u16(full.priority.0);
                out.u16(full.idle_timeout);
                out.u16(full.hard_timeout);
                let match_size_at = out.len();
                out.u16(0);
                out.u8(full.table.0);
                out.zeros(1);
                out.u64(full.cookie.0);
                let match_at = out.len();
                encode_match(full.match_.borrow(), out);
                // The length of the match excludes padding.
                out.copy_within(match_at + 2..match_at + 4, match_size_at);
                if let Some(instructions) = &full.instructions {
                    encode_instructions(instructions.borrow(), out);
                }
            }
        }
        out.length_at(start, start);
    }
}

impl FlowUpdate {
    /// Reads the updates in the body of a reply, as a controller receives it.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode_all(body: &[u8]) -> Result<Vec<FlowUpdate>, DecodeError> {
        let mut reader = Reader::new(body);
        decode_list(&mut reader, |reader| {
            let mut body = sized(reader)?;
            let event = body.u16()?;
            if event == 3 {
                return Ok(FlowUpdate::Abbreviated(Xid(body.u32()?)));
            }
            let reason = body.u16()?;
            let event = match event {
                0 => FlowUpdateEvent::Added,
                1 => {
                    let reason = u8::try_from(reason).ok().and_then(FlowRemovedReason::from_raw);
                    FlowUpdateEvent::Deleted(reason.ok_or(DecodeError::Length)?)
                }
                2 => FlowUpdateEvent::Modified,
                _ => return Err(DecodeError::Length),
            };
            let priority = Priority(body.u16()?);
            let (idle_timeout, hard_timeout) = (body.u16()?, body.u16()?);
            body.skip(2)?;
            let table = TableId(body.u8()?);
            body.skip(1)?;
            let cookie = Cookie(body.u64()?);
            let match_ = decode_match(&mut body)?;
            let instructions = match body.drain() {
                [] => None,
                bytes => Some(decode_instructions(bytes)?),
            };
            Ok(FlowUpdate::Full(FlowUpdateFull {
                event,
                table,
                priority,
                idle_timeout,
                hard_timeout,
                cookie,
                match_,
                instructions,
            }))
        })
    }
}

/// Returns the message that ends a monitor.
pub fn cancel(id: u32) -> Experimenter {
    Experimenter {
        experimenter: Experimenter::ONF,
        exp_type: FLOW_MONITOR_CANCEL,
        data: id.to_be_bytes().into(),
    }
}

/// Returns true if the message announces a pause of updates, false if it announces their continuation; `None` for any
/// other message.
pub const fn is_pause(message: &Experimenter) -> Option<bool> {
    match (message.experimenter, message.exp_type) {
        (Experimenter::ONF, FLOW_MONITOR_PAUSED) => Some(true),
        (Experimenter::ONF, FLOW_MONITOR_RESUMED) => Some(false),
        _ => None,
    }
}

/// Reads the number of the monitor from the message that ends it.
///
/// # Errors
/// [`DecodeError::Length`].
pub fn decode_cancel(body: &[u8]) -> Result<u32, DecodeError> {
    Ok(Reader::new(body).u32()?)
}

/// Returns the message that announces the pause or the continuation of updates.
pub fn pause(paused: bool) -> Experimenter {
    Experimenter {
        experimenter: Experimenter::ONF,
        exp_type: if paused {
            FLOW_MONITOR_PAUSED
        } else {
            FLOW_MONITOR_RESUMED
        },
        data: Box::default(),
    }
}

#[cfg(test)]
mod tests {
    use millrace_flow::{Action, Field};

    use super::*;
    use crate::multipart::SegmentWriter;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn what_ovs_ofctl_asks_is_read() {
        // The request that `ovs-ofctl -O OpenFlow13 monitor br0 watch:` sends, without header and
        // experimenter fields.
        let asked =
            FlowMonitorRequest::decode_all(&bytes("00000000003f0004ffffffffff0000000001000400000000"));
        let expected = FlowMonitorRequest {
            id: 0,
            flags: FlowMonitorFlags::ALL,
            out_port: PortNo::ANY,
            table: TableId::ALL,
            match_: Match::any(),
        };
        assert_eq!(asked, Ok(vec![expected]));
        let unknown =
            FlowMonitorRequest::decode_all(&bytes("0000000000400004ffffffffff0000000001000400000000"));
        assert_eq!(unknown, Err(DecodeError::FlowMonitorFlags { flags: 0x40 }));
        assert_eq!(FlowMonitorRequest::decode_all(&[0; 7]), Err(DecodeError::Length));
    }

    #[test]
    fn updates_are_written_as_open_vswitch_writes_them() {
        let http = [(Field::EthType, 0x800), (Field::IpProto, 6), (Field::TcpDst, 80)];
        let update = FlowUpdate::Full(FlowUpdateFull {
            event: FlowUpdateEvent::Added,
            table: TableId(3),
            priority: Priority(9),
            idle_timeout: 0,
            hard_timeout: 0,
            cookie: Cookie(5),
            match_: Match::exact(&http).unwrap(),
            instructions: Some(Instructions::apply([Action::Output {
                port: PortNo::from_raw(2),
                max_len: 0,
            }])),
        });
        let mut writer = SegmentWriter::flow_updates(Xid(6));
        let mut out = Vec::new();
        writer.push(&update, &mut out);
        writer.finish(&mut out);
        // The message that Open vSwitch 3.1 sends.
        let theirs = "0413006000000006ffff0000000000004f4e46000000074e0048000000000009000000000015030000000000000000050001\
                      001580000a020800800014010680001c0200500000000004001800000000000000100000000200000000000000000000";
        assert_eq!(out, bytes(&theirs[..192]));
    }
}
