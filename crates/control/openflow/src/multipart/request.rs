//! Every multipart question.

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
    /// Whether more of the same request follows (`OFPMPF_REQ_MORE`).
    pub more: bool,
    /// The question.
    pub body: RequestBody,
}

/// The question of a [`MultipartRequest`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RequestBody {
    /// Who made the switch?
    Desc,
    /// Which flow entries are there?
    Flow(FlowStatsRequest),
    /// How many flow entries are there, and what did they count?
    Aggregate(FlowStatsRequest),
    /// What did the tables count?
    Table,
    /// What did the ports count?
    PortStats(PortStatsRequest),
    /// What did the queues count?
    Queue(QueueStatsRequest),
    /// What did the groups count?
    Group(GroupStatsRequest),
    /// Which groups are there?
    GroupDesc,
    /// What can groups do?
    GroupFeatures,
    /// What did the meters count?
    Meter(MeterRequest),
    /// Which meters are there?
    MeterConfig(MeterRequest),
    /// What can meters do?
    MeterFeatures,
    /// What can tables do? With a body: they are to do this.
    TableFeatures(Vec<TableFeatures>),
    /// Which ports are there?
    PortDesc,
    /// Something outside of the specification.
    Experimenter(Experimenter),
}

impl RequestBody {
    /// Which kind of question.
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

    /// Whether it changes the switch, which a slave may not (section 6.3.5).
    pub fn is_write(&self) -> bool {
        matches!(self, RequestBody::TableFeatures(tables) if !tables.is_empty())
    }
}

impl MultipartRequest {
    /// A question in one piece.
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
