//! MULTIPART_REQUEST and MULTIPART_REPLY (OpenFlow 1.3.5, section 7.3.5): requests and replies that may need several
//! messages. One file holds one multipart type, with request and reply.

pub mod aggregate;
pub mod desc;
pub mod flow;
pub mod group;
pub mod meter;
pub mod port_stats;
pub mod queue;
mod reply;
mod request;
mod segments;
pub mod table;
pub mod table_features;

use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;

pub use reply::{MultipartReply, ReplyBody};
pub use request::{MultipartRequest, RequestBody};
pub use segments::{SegmentWriter, encode_segments};

wire_enum! {
    /// `ofp_multipart_type`.
    MultipartType(u16) {
        /// The maker of the switch and its name.
        Desc = 0 "desc",
        /// Flow entries.
        Flow = 1 "flow",
        /// Sums over flow entries.
        Aggregate = 2 "aggregate",
        /// Counters of tables.
        Table = 3 "table",
        /// Counters of ports.
        PortStats = 4 "port_stats",
        /// Counters of queues.
        Queue = 5 "queue",
        /// Counters of groups.
        Group = 6 "group",
        /// The types and buckets of groups.
        GroupDesc = 7 "group_desc",
        /// The capabilities of groups.
        GroupFeatures = 8 "group_features",
        /// Counters of meters.
        Meter = 9 "meter",
        /// The flags and bands of meters.
        MeterConfig = 10 "meter_config",
        /// The capabilities of meters.
        MeterFeatures = 11 "meter_features",
        /// The capabilities of tables.
        TableFeatures = 12 "table_features",
        /// The ports of the switch.
        PortDesc = 13 "port_desc",
        /// A message of an experimenter.
        Experimenter = 0xffff "experimenter",
    }
}

/// Size of the multipart header that follows the common header, in bytes.
pub(crate) const MULTIPART_HEADER_SIZE: usize = 8;

/// `OFPMPF_REQ_MORE` and `OFPMPF_REPLY_MORE`: another message with the same xid follows.
pub(crate) const MORE: u16 = 1;

/// One item of a reply, which is never split between messages.
pub trait ReplyPart {
    /// The multipart type of the reply that the item belongs to.
    const TYPE: MultipartType;

    /// Appends the item.
    fn encode(&self, out: &mut Vec<u8>);
}

impl<P: ReplyPart> ReplyPart for &P {
    const TYPE: MultipartType = P::TYPE;

    fn encode(&self, out: &mut Vec<u8>) {
        P::encode(self, out);
    }
}

/// Reads the items that fill the rest of a body.
pub(crate) fn decode_list<T>(
    reader: &mut Reader<'_>,
    one: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut items = Vec::new();
    while !reader.is_empty() {
        items.push(one(reader)?);
    }
    Ok(items)
}

/// Returns a reader of one item, after its length field, which counts the whole item.
pub(crate) fn sized<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, DecodeError> {
    let length = usize::from(reader.u16()?);
    let rest = length.checked_sub(2).ok_or(DecodeError::Length)?;
    Ok(Reader::new(reader.take(rest)?))
}

pub(crate) fn encode_header(type_: MultipartType, more: bool, out: &mut Vec<u8>) {
    out.u16(type_.raw());
    out.u16(if more { MORE } else { 0 });
    out.zeros(4);
}

/// Reads the multipart type, and the flag MORE. An unknown type is refused; unknown flags are ignored.
pub(crate) fn decode_header(reader: &mut Reader<'_>) -> Result<(MultipartType, bool), DecodeError> {
    let type_ = reader.u16()?;
    let flags = reader.u16()?;
    reader.skip(4)?;
    let type_ = MultipartType::from_raw(type_).ok_or(DecodeError::Multipart { type_ })?;
    Ok((type_, flags & MORE != 0))
}
