//! All multipart replies as one enumeration, for replies of one message. A
//! [`SegmentWriter`](super::SegmentWriter) encodes long replies item by item instead.

use super::aggregate::AggregateStats;
use super::desc::Desc;
use super::flow::FlowStats;
use super::group::{GroupDesc, GroupFeatures, GroupStats};
use super::meter::{MeterConfig, MeterFeatures, MeterStats};
use super::port_stats::PortStats;
use super::queue::QueueStats;
use super::table::TableStats;
use super::table_features::TableFeatures;
use super::{MultipartType, ReplyPart, decode_header, decode_list, encode_header};
use crate::bytes::Reader;
use crate::decode_error::DecodeError;
use crate::experimenter::Experimenter;
use crate::port::Port;

/// `ofp_multipart_reply`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MultipartReply {
    /// True if more messages of the same reply follow (`OFPMPF_REPLY_MORE`).
    pub more: bool,
    /// The body of the reply, or a part of it.
    pub body: ReplyBody,
}

/// The body of a [`MultipartReply`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ReplyBody {
    /// The maker of the switch and its name.
    Desc(Box<Desc>),
    /// Flow entries.
    Flow(Vec<FlowStats>),
    /// Sums over flow entries.
    Aggregate(AggregateStats),
    /// Counters of tables.
    Table(Vec<TableStats>),
    /// Counters of ports.
    PortStats(Vec<PortStats>),
    /// Counters of queues.
    Queue(Vec<QueueStats>),
    /// Counters of groups.
    Group(Vec<GroupStats>),
    /// The types and buckets of groups.
    GroupDesc(Vec<GroupDesc>),
    /// The capabilities of groups.
    GroupFeatures(GroupFeatures),
    /// Counters of meters.
    Meter(Vec<MeterStats>),
    /// The flags and bands of meters.
    MeterConfig(Vec<MeterConfig>),
    /// The capabilities of meters.
    MeterFeatures(MeterFeatures),
    /// The capabilities of tables.
    TableFeatures(Vec<TableFeatures>),
    /// The ports of the switch.
    PortDesc(Vec<Port>),
    /// A message of an experimenter.
    Experimenter(Experimenter),
}

impl ReplyBody {
    /// Returns the multipart type.
    pub const fn type_(&self) -> MultipartType {
        match self {
            ReplyBody::Desc(_) => MultipartType::Desc,
            ReplyBody::Flow(_) => MultipartType::Flow,
            ReplyBody::Aggregate(_) => MultipartType::Aggregate,
            ReplyBody::Table(_) => MultipartType::Table,
            ReplyBody::PortStats(_) => MultipartType::PortStats,
            ReplyBody::Queue(_) => MultipartType::Queue,
            ReplyBody::Group(_) => MultipartType::Group,
            ReplyBody::GroupDesc(_) => MultipartType::GroupDesc,
            ReplyBody::GroupFeatures(_) => MultipartType::GroupFeatures,
            ReplyBody::Meter(_) => MultipartType::Meter,
            ReplyBody::MeterConfig(_) => MultipartType::MeterConfig,
            ReplyBody::MeterFeatures(_) => MultipartType::MeterFeatures,
            ReplyBody::TableFeatures(_) => MultipartType::TableFeatures,
            ReplyBody::PortDesc(_) => MultipartType::PortDesc,
            ReplyBody::Experimenter(_) => MultipartType::Experimenter,
        }
    }
}

impl MultipartReply {
    /// Returns a reply that consists of one message.
    pub const fn new(body: ReplyBody) -> MultipartReply {
        MultipartReply { more: false, body }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<MultipartReply, DecodeError> {
        let (type_, more) = decode_header(reader)?;
        let body = match type_ {
            MultipartType::Desc => ReplyBody::Desc(Box::new(Desc::decode(reader)?)),
            MultipartType::Flow => ReplyBody::Flow(decode_list(reader, FlowStats::decode)?),
            MultipartType::Aggregate => ReplyBody::Aggregate(AggregateStats::decode(reader)?),
            MultipartType::Table => ReplyBody::Table(decode_list(reader, TableStats::decode)?),
            MultipartType::PortStats => ReplyBody::PortStats(decode_list(reader, PortStats::decode)?),
            MultipartType::Queue => ReplyBody::Queue(decode_list(reader, QueueStats::decode)?),
            MultipartType::Group => ReplyBody::Group(decode_list(reader, GroupStats::decode)?),
            MultipartType::GroupDesc => ReplyBody::GroupDesc(decode_list(reader, GroupDesc::decode)?),
            MultipartType::GroupFeatures => ReplyBody::GroupFeatures(GroupFeatures::decode(reader)?),
            MultipartType::Meter => ReplyBody::Meter(decode_list(reader, MeterStats::decode)?),
            MultipartType::MeterConfig => ReplyBody::MeterConfig(decode_list(reader, MeterConfig::decode)?),
            MultipartType::MeterFeatures => ReplyBody::MeterFeatures(MeterFeatures::decode(reader)?),
            MultipartType::TableFeatures => {
                ReplyBody::TableFeatures(decode_list(reader, TableFeatures::decode)?)
            }
            MultipartType::PortDesc => ReplyBody::PortDesc(decode_list(reader, Port::decode)?),
            MultipartType::Experimenter => ReplyBody::Experimenter(Experimenter::decode(reader)?),
        };
        Ok(MultipartReply { more, body })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        encode_header(self.body.type_(), self.more, out);
        match &self.body {
            ReplyBody::Desc(part) => part.encode(out),
            ReplyBody::Flow(parts) => encode_all(parts, out),
            ReplyBody::Aggregate(part) => part.encode(out),
            ReplyBody::Table(parts) => encode_all(parts, out),
            ReplyBody::PortStats(parts) => encode_all(parts, out),
            ReplyBody::Queue(parts) => encode_all(parts, out),
            ReplyBody::Group(parts) => encode_all(parts, out),
            ReplyBody::GroupDesc(parts) => encode_all(parts, out),
            ReplyBody::GroupFeatures(part) => part.encode(out),
            ReplyBody::Meter(parts) => encode_all(parts, out),
            ReplyBody::MeterConfig(parts) => encode_all(parts, out),
            ReplyBody::MeterFeatures(part) => part.encode(out),
            ReplyBody::TableFeatures(parts) => encode_all(parts, out),
            ReplyBody::PortDesc(parts) => encode_all(parts, out),
            ReplyBody::Experimenter(body) => body.encode(out),
        }
    }
}

fn encode_all<P: ReplyPart>(parts: &[P], out: &mut Vec<u8>) {
    for part in parts {
        ReplyPart::encode(part, out);
    }
}
