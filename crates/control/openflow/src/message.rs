//! Every message of OpenFlow 1.3.5: decoding and encoding.

use millrace_types::Xid;
use thiserror::Error;

use crate::async_config::AsyncConfig;
use crate::bundle::{BundleControl, BundleFlags, bundle_flags};
use crate::bytes::{PutBytes, Reader};
use crate::config::SwitchConfig;
use crate::decode_error::DecodeError;
use crate::error_message::ErrorMessage;
use crate::experimenter::Experimenter;
use crate::features::SwitchFeatures;
use crate::flow_mod::FlowMod;
use crate::flow_removed::FlowRemoved;
use crate::group_mod::GroupMod;
use crate::header::{HEADER_SIZE, Header, MAX_MESSAGE_SIZE, MessageType, VERSION};
use crate::hello::Hello;
use crate::meter_mod::MeterMod;
use crate::multipart::{MultipartReply, MultipartRequest};
use crate::packet_in::PacketIn;
use crate::packet_out::PacketOut;
use crate::port::{PortMod, PortStatus};
use crate::queue::{QueueGetConfigReply, QueueGetConfigRequest};
use crate::role::RoleMessage;
use crate::table_mod::TableMod;

/// One message, without its header.
///
/// No part is boxed to make the enumeration smaller: flow_mod is the largest part and by far the most
/// frequent, and a box would cost it an allocation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// Opens a connection.
    Hello(Hello),
    /// A request failed.
    Error(ErrorMessage),
    /// Asks for an ECHO_REPLY with the same data.
    EchoRequest(Box<[u8]>),
    /// Answers an ECHO_REQUEST with its data.
    EchoReply(Box<[u8]>),
    /// A message of an experimenter.
    Experimenter(Experimenter),
    /// Opens, closes, commits or discards a bundle.
    BundleControl(BundleControl),
    /// Adds a message to a bundle.
    BundleAdd(BundleAdd),
    /// Asks for identity and capabilities of the switch.
    FeaturesRequest,
    /// Answers with identity and capabilities of the switch.
    FeaturesReply(SwitchFeatures),
    /// Asks for the configuration of the connection.
    GetConfigRequest,
    /// Answers with the configuration of the connection.
    GetConfigReply(SwitchConfig),
    /// Sets the configuration of the connection.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(PacketIn),
    /// A flow entry was removed.
    FlowRemoved(FlowRemoved),
    /// A port was added, removed or modified.
    PortStatus(PortStatus),
    /// A packet for the switch to send.
    PacketOut(PacketOut),
    /// Changes flow entries.
    FlowMod(FlowMod),
    /// Changes a group.
    GroupMod(GroupMod),
    /// Changes a port.
    PortMod(PortMod),
    /// Changes a table.
    TableMod(TableMod),
    /// Asks for statistics or descriptions.
    MultipartRequest(MultipartRequest),
    /// Answers a multipart request.
    MultipartReply(MultipartReply),
    /// Asks for a BARRIER_REPLY after all earlier requests are carried out.
    BarrierRequest,
    /// Reports that all requests before the barrier are carried out.
    BarrierReply,
    /// Asks for the queues of a port.
    QueueGetConfigRequest(QueueGetConfigRequest),
    /// Answers with the queues of a port.
    QueueGetConfigReply(QueueGetConfigReply),
    /// Asks for a role.
    RoleRequest(RoleMessage),
    /// Answers with the role.
    RoleReply(RoleMessage),
    /// Asks for the masks of asynchronous messages.
    GetAsyncRequest,
    /// Answers with the masks of asynchronous messages.
    GetAsyncReply(AsyncConfig),
    /// Sets the masks of asynchronous messages.
    SetAsync(AsyncConfig),
    /// Changes a meter.
    MeterMod(MeterMod),
}

/// `onf_bundle_add_msg`. It holds a message, and is one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BundleAdd {
    /// The number of the bundle, unique within the connection.
    pub bundle: u32,
    /// The flags that the bundle was opened with.
    pub flags: BundleFlags,
    /// The message to carry out on commit. Its xid equals the xid of the bundle_add message that contains it.
    pub message: Box<Message>,
}

impl BundleAdd {
    /// Reads the part of a bundle_add message after the experimenter header. `xid` is the xid of the
    /// bundle_add message.
    pub(crate) fn decode(xid: Xid, reader: &mut Reader<'_>) -> Result<BundleAdd, DecodeError> {
        let bundle = reader.u32()?;
        reader.skip(2)?;
        let flags = bundle_flags(reader.u16()?)?;
        let inner = Header::parse(reader.rest()).ok_or(DecodeError::BundledLength)?;
        let size = usize::from(inner.length);
        if size < HEADER_SIZE {
            return Err(DecodeError::BundledLength);
        }
        let bytes = reader.take(size).map_err(|_| DecodeError::BundledLength)?;
        if inner.xid != xid {
            return Err(DecodeError::BundledXid { inner: inner.xid });
        }
        // A message that cannot be in a bundle is refused before it is decoded, so bundles cannot nest.
        let can_be =
            inner.version == VERSION && inner.message_type().is_some_and(MessageType::can_be_bundled);
        if !can_be {
            return Err(DecodeError::Bundled { type_: inner.type_ });
        }
        let (_, message) = decode(bytes)?;
        // Properties follow; none is defined.
        reader.drain();
        Ok(BundleAdd {
            bundle,
            flags,
            message: Box::new(message),
        })
    }

    pub(crate) fn encode(&self, xid: Xid, out: &mut Vec<u8>) {
        out.u32(Experimenter::ONF);
        out.u32(Experimenter::ONF_BUNDLE_ADD_MESSAGE);
        out.u32(self.bundle);
        out.zeros(2);
        out.u16(self.flags.raw());
        append(&self.message, xid, out);
    }
}

impl Message {
    /// Returns the type of the message.
    pub const fn type_(&self) -> MessageType {
        match self {
            Message::Hello(_) => MessageType::Hello,
            Message::Error(_) => MessageType::Error,
            Message::EchoRequest(_) => MessageType::EchoRequest,
            Message::EchoReply(_) => MessageType::EchoReply,
            Message::Experimenter(_) | Message::BundleControl(_) | Message::BundleAdd(_) => {
                MessageType::Experimenter
            }
            Message::FeaturesRequest => MessageType::FeaturesRequest,
            Message::FeaturesReply(_) => MessageType::FeaturesReply,
            Message::GetConfigRequest => MessageType::GetConfigRequest,
            Message::GetConfigReply(_) => MessageType::GetConfigReply,
            Message::SetConfig(_) => MessageType::SetConfig,
            Message::PacketIn(_) => MessageType::PacketIn,
            Message::FlowRemoved(_) => MessageType::FlowRemoved,
            Message::PortStatus(_) => MessageType::PortStatus,
            Message::PacketOut(_) => MessageType::PacketOut,
            Message::FlowMod(_) => MessageType::FlowMod,
            Message::GroupMod(_) => MessageType::GroupMod,
            Message::PortMod(_) => MessageType::PortMod,
            Message::TableMod(_) => MessageType::TableMod,
            Message::MultipartRequest(_) => MessageType::MultipartRequest,
            Message::MultipartReply(_) => MessageType::MultipartReply,
            Message::BarrierRequest => MessageType::BarrierRequest,
            Message::BarrierReply => MessageType::BarrierReply,
            Message::QueueGetConfigRequest(_) => MessageType::QueueGetConfigRequest,
            Message::QueueGetConfigReply(_) => MessageType::QueueGetConfigReply,
            Message::RoleRequest(_) => MessageType::RoleRequest,
            Message::RoleReply(_) => MessageType::RoleReply,
            Message::GetAsyncRequest => MessageType::GetAsyncRequest,
            Message::GetAsyncReply(_) => MessageType::GetAsyncReply,
            Message::SetAsync(_) => MessageType::SetAsync,
            Message::MeterMod(_) => MessageType::MeterMod,
        }
    }

    /// Returns true for messages that may be lost ([`MessageType::may_be_lost`]). The experimenter messages of the ONF must
    /// not: bundles change the switch, and a bundle that lacks one message would be carried out in part.
    pub fn may_be_lost(&self) -> bool {
        match self {
            Message::BundleControl(_) | Message::BundleAdd(_) => false,
            Message::Experimenter(body) => body.experimenter != Experimenter::ONF,
            other => other.type_().may_be_lost(),
        }
    }
}

/// Reads one complete message: exactly as many bytes as its header says.
///
/// HELLO and ERROR are read with any version, because they are used to negotiate the version.
///
/// # Errors
/// [`DecodeError`], which maps to the error of the reply.
pub fn decode(bytes: &[u8]) -> Result<(Header, Message), DecodeError> {
    let header = Header::parse(bytes).ok_or(DecodeError::Length)?;
    let type_ = header.message_type();
    let is_any_version = matches!(type_, Some(MessageType::Hello | MessageType::Error));
    if header.version != VERSION && !is_any_version {
        return Err(DecodeError::Version {
            version: header.version,
        });
    }
    let type_ = type_.ok_or(DecodeError::Type { type_: header.type_ })?;
    if usize::from(header.length) != bytes.len() {
        return Err(DecodeError::Length);
    }
    let mut reader = Reader::new(bytes);
    reader.skip(HEADER_SIZE)?;
    let message = decode_body(type_, header.xid, &mut reader)?;
    if reader.is_empty() {
        Ok((header, message))
    } else {
        Err(DecodeError::Length)
    }
}

fn decode_body(type_: MessageType, xid: Xid, reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    Ok(match type_ {
        MessageType::Hello => Message::Hello(Hello::decode(reader)?),
        MessageType::Error => Message::Error(ErrorMessage::decode(reader)?),
        MessageType::EchoRequest => Message::EchoRequest(reader.drain().into()),
        MessageType::EchoReply => Message::EchoReply(reader.drain().into()),
        MessageType::Experimenter => decode_experimenter(xid, reader)?,
        MessageType::FeaturesRequest => Message::FeaturesRequest,
        MessageType::FeaturesReply => Message::FeaturesReply(SwitchFeatures::decode(reader)?),
        MessageType::GetConfigRequest => Message::GetConfigRequest,
        MessageType::GetConfigReply => Message::GetConfigReply(SwitchConfig::decode(reader)?),
        MessageType::SetConfig => Message::SetConfig(SwitchConfig::decode(reader)?),
        MessageType::PacketIn => Message::PacketIn(PacketIn::decode(reader)?),
        MessageType::FlowRemoved => Message::FlowRemoved(FlowRemoved::decode(reader)?),
        MessageType::PortStatus => Message::PortStatus(PortStatus::decode(reader)?),
        MessageType::PacketOut => Message::PacketOut(PacketOut::decode(reader)?),
        MessageType::FlowMod => Message::FlowMod(FlowMod::decode(reader)?),
        MessageType::GroupMod => Message::GroupMod(GroupMod::decode(reader)?),
        MessageType::PortMod => Message::PortMod(PortMod::decode(reader)?),
        MessageType::TableMod => Message::TableMod(TableMod::decode(reader)?),
        MessageType::MultipartRequest => Message::MultipartRequest(MultipartRequest::decode(reader)?),
        MessageType::MultipartReply => Message::MultipartReply(MultipartReply::decode(reader)?),
        MessageType::BarrierRequest => Message::BarrierRequest,
        MessageType::BarrierReply => Message::BarrierReply,
        MessageType::QueueGetConfigRequest => {
            Message::QueueGetConfigRequest(QueueGetConfigRequest::decode(reader)?)
        }
        MessageType::QueueGetConfigReply => {
            Message::QueueGetConfigReply(QueueGetConfigReply::decode(reader)?)
        }
        MessageType::RoleRequest => Message::RoleRequest(RoleMessage::decode(reader)?),
        MessageType::RoleReply => Message::RoleReply(RoleMessage::decode(reader)?),
        MessageType::GetAsyncRequest => Message::GetAsyncRequest,
        MessageType::GetAsyncReply => Message::GetAsyncReply(AsyncConfig::decode(reader)?),
        MessageType::SetAsync => Message::SetAsync(AsyncConfig::decode(reader)?),
        MessageType::MeterMod => Message::MeterMod(MeterMod::decode(reader)?),
    })
}

fn decode_experimenter(xid: Xid, reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let mut body = *reader;
    let kind = (reader.u32()?, reader.u32()?);
    Ok(match kind {
        (Experimenter::ONF, Experimenter::ONF_BUNDLE_CONTROL) => {
            Message::BundleControl(BundleControl::decode(reader)?)
        }
        (Experimenter::ONF, Experimenter::ONF_BUNDLE_ADD_MESSAGE) => {
            Message::BundleAdd(BundleAdd::decode(xid, reader)?)
        }
        _ => {
            reader.drain();
            Message::Experimenter(Experimenter::decode(&mut body)?)
        }
    })
}

/// A message that cannot be written because its length does not fit 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{type_} message of {size} bytes is too long: expected at most {MAX_MESSAGE_SIZE}")]
pub struct EncodeError {
    /// The type of the message.
    pub type_: MessageType,
    /// The size of the message, in bytes.
    pub size: usize,
}

/// Appends one message to `out`.
///
/// # Errors
/// [`EncodeError`] if the message is longer than [`MAX_MESSAGE_SIZE`]; `out` is then unchanged. Use a
/// [`SegmentWriter`](crate::multipart::SegmentWriter) for long multipart replies.
pub fn encode(message: &Message, xid: Xid, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    append(message, xid, out);
    let size = out.len() - start;
    if size > MAX_MESSAGE_SIZE {
        out.truncate(start);
        return Err(EncodeError {
            type_: message.type_(),
            size,
        });
    }
    Ok(())
}

/// Appends one message without checking its size.
pub(crate) fn append(message: &Message, xid: Xid, out: &mut Vec<u8>) {
    let start = out.len();
    out.u8(VERSION);
    out.u8(message.type_().raw());
    out.u16(0);
    out.u32(xid.0);
    encode_body(message, xid, out);
    out.length_at(start + 2, start);
}

fn encode_body(message: &Message, xid: Xid, out: &mut Vec<u8>) {
    match message {
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::BarrierRequest
        | Message::BarrierReply
        | Message::GetAsyncRequest => {}
        Message::Hello(body) => body.encode(out),
        Message::Error(body) => body.encode(out),
        Message::EchoRequest(data) | Message::EchoReply(data) => out.bytes(data),
        Message::Experimenter(body) => body.encode(out),
        Message::BundleControl(body) => body.encode(out),
        Message::BundleAdd(body) => body.encode(xid, out),
        Message::FeaturesReply(body) => body.encode(out),
        Message::GetConfigReply(body) | Message::SetConfig(body) => body.encode(out),
        Message::PacketIn(body) => body.encode(out),
        Message::FlowRemoved(body) => body.encode(out),
        Message::PortStatus(body) => body.encode(out),
        Message::PacketOut(body) => body.encode(out),
        Message::FlowMod(body) => body.encode(out),
        Message::GroupMod(body) => body.encode(out),
        Message::PortMod(body) => body.encode(out),
        Message::TableMod(body) => body.encode(out),
        Message::MultipartRequest(body) => body.encode(out),
        Message::MultipartReply(body) => body.encode(out),
        Message::QueueGetConfigRequest(body) => body.encode(out),
        Message::QueueGetConfigReply(body) => body.encode(out),
        Message::RoleRequest(body) | Message::RoleReply(body) => body.encode(out),
        Message::GetAsyncReply(body) | Message::SetAsync(body) => body.encode(out),
        Message::MeterMod(body) => body.encode(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_code::ErrorCode;

    fn code(bytes: &[u8]) -> ErrorCode {
        decode(bytes).unwrap_err().error_code()
    }

    #[test]
    fn header_mistakes_are_told_apart() {
        assert_eq!(code(&[1, 5, 0, 8, 0, 0, 0, 0]), ErrorCode::OFPBRC_BAD_VERSION);
        assert_eq!(code(&[4, 30, 0, 8, 0, 0, 0, 0]), ErrorCode::OFPBRC_BAD_TYPE);
        assert_eq!(code(&[4, 5, 0, 9, 0, 0, 0, 0]), ErrorCode::OFPBRC_BAD_LEN);
        assert_eq!(code(&[4, 5, 0, 9, 0, 0, 0, 0, 1]), ErrorCode::OFPBRC_BAD_LEN);
        assert_eq!(code(&[4, 5]), ErrorCode::OFPBRC_BAD_LEN);
    }

    #[test]
    fn hello_and_error_are_read_in_every_version() {
        assert!(decode(&[6, 0, 0, 8, 0, 0, 0, 0]).is_ok());
        assert!(decode(&[1, 1, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0]).is_ok());
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_and_leaves_nothing() {
        let mut out = vec![1, 2, 3];
        let message = Message::EchoRequest(vec![0; 0xffff].into());
        assert_eq!(
            encode(&message, Xid(1), &mut out),
            Err(EncodeError {
                type_: MessageType::EchoRequest,
                size: 0xffff + 8
            })
        );
        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn a_message_stays_small_enough_to_move() {
        assert!(size_of::<Message>() <= 192, "{}", size_of::<Message>());
    }
}
