//! All multipart requests as one enumeration.

use super::flow::FlowStatsRequest;
use super::group::GroupStatsRequest;
use super::meter::MeterRequest;
use super::port_stats::PortStatsRequest;
use super::queue::QueueStatsRequest;
use super::table_features::TableFeatures;
use super::{MultipartType, ReplyPart, decode_header, decode_list, encode_header};
use crate::bytes::Reader;
use crate::decode_error::DecodeError;
use crate::experimenter::Experimenter;

/// `ofp_multipart_request`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MultipartRequest {
    /// True if more messages of the same request follow (`OFPMPF_REQ_MORE`).
    pub more: bool,
    /// The body of the request.
    pub body: RequestBody,
}

/// The body of a [`MultipartRequest`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RequestBody {
    /// Asks for the maker of the switch and its name.
    Desc,
    /// Asks for flow entries.
    Flow(FlowStatsRequest),
    /// Asks for sums over flow entries.
    Aggregate(FlowStatsRequest),
    /// Asks for the counters of tables.
    Table,
    /// Asks for the counters of ports.
    PortStats(PortStatsRequest),
    /// Asks for the counters of queues.
    Queue(QueueStatsRequest),
    /// Asks for the counters of groups.
    Group(GroupStatsRequest),
    /// Asks for types and buckets of groups.
    GroupDesc,
    /// Asks for the capabilities of groups.
    GroupFeatures,
    /// Asks for the counters of meters.
    Meter(MeterRequest),
    /// Asks for flags and bands of meters.
    MeterConfig(MeterRequest),
    /// Asks for the capabilities of meters.
    MeterFeatures,
    /// Asks for the capabilities of tables, or, with a body, sets them.
    TableFeatures(Vec<TableFeatures>),
    /// Asks for the ports of the switch.
    PortDesc,
    /// A message of an experimenter.
    Experimenter(Experimenter),
}

impl RequestBody {
    /// Returns the multipart type.
    pub const fn type_(&self) -> MultipartType {
        match self {
            RequestBody::Desc => MultipartType::Desc,
            RequestBody::Flow(_) => MultipartType::Flow,
            RequestBody::Aggregate(_) => MultipartType::Aggregate,
            RequestBody::Table => MultipartType::Table,
            RequestBody::PortStats(_) => MultipartType::PortStats,
            RequestBody::Queue(_) => MultipartType::Queue,
            RequestBody::Group(_) => MultipartType::Group,
            RequestBody::GroupDesc => MultipartType::GroupDesc,
            RequestBody::GroupFeatures => MultipartType::GroupFeatures,
            RequestBody::Meter(_) => MultipartType::Meter,
            RequestBody::MeterConfig(_) => MultipartType::MeterConfig,
            RequestBody::MeterFeatures => MultipartType::MeterFeatures,
            RequestBody::TableFeatures(_) => MultipartType::TableFeatures,
            RequestBody::PortDesc => MultipartType::PortDesc,
            RequestBody::Experimenter(_) => MultipartType::Experimenter,
        }
    }

    /// Returns true if the request changes the switch. A slave must not send it (OpenFlow 1.3.5, section
    /// 6.3.4).
    pub fn is_write(&self) -> bool {
        matches!(self, RequestBody::TableFeatures(tables) if !tables.is_empty())
    }
}

impl MultipartRequest {
    /// Returns a request that consists of one message.
    pub const fn new(body: RequestBody) -> MultipartRequest {
        MultipartRequest { more: false, body }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<MultipartRequest, DecodeError> {
        let (type_, more) = decode_header(reader)?;
        let body = match type_ {
            MultipartType::Desc => RequestBody::Desc,
            MultipartType::Flow => RequestBody::Flow(FlowStatsRequest::decode(reader)?),
            MultipartType::Aggregate => RequestBody::Aggregate(FlowStatsRequest::decode(reader)?),
            MultipartType::Table => RequestBody::Table,
            MultipartType::PortStats => RequestBody::PortStats(PortStatsRequest::decode(reader)?),
            MultipartType::Queue => RequestBody::Queue(QueueStatsRequest::decode(reader)?),
            MultipartType::Group => RequestBody::Group(GroupStatsRequest::decode(reader)?),
            MultipartType::GroupDesc => RequestBody::GroupDesc,
            MultipartType::GroupFeatures => RequestBody::GroupFeatures,
            MultipartType::Meter => RequestBody::Meter(MeterRequest::decode(reader)?),
            MultipartType::MeterConfig => RequestBody::MeterConfig(MeterRequest::decode(reader)?),
            MultipartType::MeterFeatures => RequestBody::MeterFeatures,
            MultipartType::TableFeatures => {
                RequestBody::TableFeatures(decode_list(reader, TableFeatures::decode)?)
            }
            MultipartType::PortDesc => RequestBody::PortDesc,
            MultipartType::Experimenter => RequestBody::Experimenter(Experimenter::decode(reader)?),
        };
        Ok(MultipartRequest { more, body })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        encode_header(self.body.type_(), self.more, out);
        match &self.body {
            RequestBody::Desc
            | RequestBody::Table
            | RequestBody::GroupDesc
            | RequestBody::GroupFeatures
            | RequestBody::MeterFeatures
            | RequestBody::PortDesc => {}
            RequestBody::Flow(request) | RequestBody::Aggregate(request) => request.encode(out),
            RequestBody::PortStats(request) => request.encode(out),
            RequestBody::Queue(request) => request.encode(out),
            RequestBody::Group(request) => request.encode(out),
            RequestBody::Meter(request) | RequestBody::MeterConfig(request) => request.encode(out),
            RequestBody::TableFeatures(tables) => {
                tables.iter().for_each(|table| ReplyPart::encode(table, out));
            }
            RequestBody::Experimenter(body) => body.encode(out),
        }
    }
}
