//! Any multipart request and reply.

use millrace_flow::Field;
use millrace_openflow::multipart::aggregate::AggregateStats;
use millrace_openflow::multipart::desc::Desc;
use millrace_openflow::multipart::flow::{FlowStats, FlowStatsRequest};
use millrace_openflow::multipart::group::{
    Count, GroupCapabilities, GroupDesc, GroupFeatures, GroupStats, GroupStatsRequest,
};
use millrace_openflow::multipart::meter::{
    MeterBandTypes, MeterConfig, MeterFeatures, MeterRequest, MeterStats,
};
use millrace_openflow::multipart::port_stats::{PortStats, PortStatsRequest};
use millrace_openflow::multipart::queue::{QueueStats, QueueStatsRequest};
use millrace_openflow::multipart::table::TableStats;
use millrace_openflow::multipart::table_features::{Property, PropertyList, PropertyType, TableFeatures};
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::{ActionType, GroupType, InstructionType, OxmHeader};
use millrace_types::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{
    buckets, duration, experimenter, flow_match, flow_mod_flags, instructions, meter_bands, meter_flags,
    port, port_no, text,
};

fn flow_request() -> impl Strategy<Value = FlowStatsRequest> {
    (any::<(u8, u32, u64, u64)>(), port_no(), flow_match()).prop_map(|(n, out_port, match_)| {
        FlowStatsRequest {
            table: TableId(n.0),
            out_port,
            out_group: GroupId(n.1),
            cookie: Cookie(n.2),
            cookie_mask: n.3,
            match_,
        }
    })
}

fn flow_stats() -> impl Strategy<Value = FlowStats> {
    (
        any::<(u8, u16, u16, u16, u64, u64, u64)>(),
        duration(),
        flow_mod_flags(),
        flow_match(),
        instructions(),
    )
        .prop_map(|(n, duration, flags, match_, instructions)| FlowStats {
            table: TableId(n.0),
            duration,
            priority: Priority(n.1),
            idle_timeout: n.2,
            hard_timeout: n.3,
            flags,
            cookie: Cookie(n.4),
            packets: n.5,
            bytes: n.6,
            match_,
            instructions,
        })
}

fn count() -> impl Strategy<Value = Count> {
    any::<(u64, u64)>().prop_map(|(packets, bytes)| Count { packets, bytes })
}

fn counts() -> impl Strategy<Value = Box<[Count]>> {
    vec(count(), 0..4).prop_map(Vec::into_boxed_slice)
}

fn property() -> impl Strategy<Value = Property> {
    let header = (select(Field::ALL.to_vec()), any::<bool>()).prop_map(|(field, has_mask)| OxmHeader {
        has_mask,
        ..OxmHeader::of(field, false)
    });
    select(PropertyType::ALL)
        .prop_flat_map(move |type_| {
            use PropertyType as P;
            let list = match type_ {
                P::Instructions | P::InstructionsMiss => vec(select(InstructionType::ALL), 0..7)
                    .prop_map(PropertyList::Instructions)
                    .boxed(),
                P::NextTables | P::NextTablesMiss => vec(any::<u8>().prop_map(TableId), 0..20)
                    .prop_map(PropertyList::Tables)
                    .boxed(),
                P::WriteActions | P::WriteActionsMiss | P::ApplyActions | P::ApplyActionsMiss => {
                    vec(select(ActionType::ALL), 0..16)
                        .prop_map(PropertyList::Actions)
                        .boxed()
                }
                _ => vec(header.clone(), 0..10).prop_map(PropertyList::Fields).boxed(),
            };
            (Just(type_), list)
        })
        .prop_map(|(type_, list)| Property { type_, list })
}

fn table_features() -> impl Strategy<Value = TableFeatures> {
    (any::<(u8, u64, u64, u32, u32)>(), text(31), vec(property(), 0..6)).prop_map(|(n, name, properties)| {
        TableFeatures {
            table: TableId(n.0),
            name,
            metadata_match: n.1,
            metadata_write: n.2,
            config: n.3,
            max_entries: n.4,
            properties,
        }
    })
}

/// Returns any multipart request.
pub(crate) fn request() -> impl Strategy<Value = MultipartRequest> {
    let group = any::<u32>().prop_map(|group| GroupStatsRequest {
        group: GroupId(group),
    });
    let meter = || {
        any::<u32>().prop_map(|meter| MeterRequest {
            meter: MeterId(meter),
        })
    };
    let queue = (port_no(), any::<u32>()).prop_map(|(port, queue)| QueueStatsRequest {
        port,
        queue: QueueId(queue),
    });
    let body = prop_oneof![
        select(vec![
            RequestBody::Desc,
            RequestBody::Table,
            RequestBody::GroupDesc,
            RequestBody::GroupFeatures,
            RequestBody::MeterFeatures,
            RequestBody::PortDesc,
        ]),
        flow_request().prop_map(RequestBody::Flow),
        flow_request().prop_map(RequestBody::Aggregate),
        port_no().prop_map(|port| RequestBody::PortStats(PortStatsRequest { port })),
        queue.prop_map(RequestBody::Queue),
        group.prop_map(RequestBody::Group),
        meter().prop_map(RequestBody::Meter),
        meter().prop_map(RequestBody::MeterConfig),
        vec(table_features(), 0..3).prop_map(RequestBody::TableFeatures),
        experimenter().prop_map(RequestBody::Experimenter),
    ];
    (any::<bool>(), body).prop_map(|(more, body)| MultipartRequest { more, body })
}

fn desc() -> impl Strategy<Value = Desc> {
    (text(255), text(255), text(255), text(31), text(255)).prop_map(
        |(manufacturer, hardware, software, serial, datapath)| Desc {
            manufacturer,
            hardware,
            software,
            serial,
            datapath,
        },
    )
}

fn port_stats() -> impl Strategy<Value = PortStats> {
    (port_no(), any::<[u64; 12]>(), duration()).prop_map(|(port, n, duration)| PortStats {
        port,
        rx_packets: n[0],
        tx_packets: n[1],
        rx_bytes: n[2],
        tx_bytes: n[3],
        rx_dropped: n[4],
        tx_dropped: n[5],
        rx_errors: n[6],
        tx_errors: n[7],
        rx_frame_errors: n[8],
        rx_over_errors: n[9],
        rx_crc_errors: n[10],
        collisions: n[11],
        duration,
    })
}

fn groups() -> impl Strategy<Value = ReplyBody> {
    let stats =
        (any::<(u32, u32)>(), count(), duration(), counts()).prop_map(|(n, total, duration, buckets)| {
            GroupStats {
                group: GroupId(n.0),
                references: n.1,
                total,
                duration,
                buckets,
            }
        });
    let desc =
        (select(GroupType::ALL), any::<u32>(), buckets()).prop_map(|(type_, group, buckets)| GroupDesc {
            type_,
            group: GroupId(group),
            buckets,
        });
    let features = any::<(u32, u32, [u32; 4], [u32; 4])>().prop_map(|n| GroupFeatures {
        types: n.0,
        capabilities: GroupCapabilities::from_raw_truncated(n.1),
        max_groups: n.2,
        actions: n.3,
    });
    prop_oneof![
        vec(stats, 0..3).prop_map(ReplyBody::Group),
        vec(desc, 0..3).prop_map(ReplyBody::GroupDesc),
        features.prop_map(ReplyBody::GroupFeatures),
    ]
}

fn meters() -> impl Strategy<Value = ReplyBody> {
    let stats =
        (any::<(u32, u32)>(), count(), duration(), counts()).prop_map(|(n, input, duration, bands)| {
            MeterStats {
                meter: MeterId(n.0),
                flows: n.1,
                input,
                duration,
                bands,
            }
        });
    let config = (meter_flags(), any::<u32>(), meter_bands()).prop_map(|(flags, meter, bands)| MeterConfig {
        flags,
        meter: MeterId(meter),
        bands,
    });
    let features = (any::<(u32, u32, u8, u8)>(), meter_flags()).prop_map(|(n, capabilities)| MeterFeatures {
        max_meters: n.0,
        band_types: MeterBandTypes::from_raw_truncated(n.1),
        capabilities,
        max_bands: n.2,
        max_color: n.3,
    });
    prop_oneof![
        vec(stats, 0..3).prop_map(ReplyBody::Meter),
        vec(config, 0..3).prop_map(ReplyBody::MeterConfig),
        features.prop_map(ReplyBody::MeterFeatures),
    ]
}

/// Returns any multipart reply.
pub(crate) fn reply() -> impl Strategy<Value = MultipartReply> {
    let table = any::<(u8, u32, u64, u64)>().prop_map(|n| TableStats {
        table: TableId(n.0),
        active: n.1,
        lookups: n.2,
        matched: n.3,
    });
    let queue =
        (port_no(), any::<(u32, u64, u64, u64)>(), duration()).prop_map(|(port, n, duration)| QueueStats {
            port,
            queue: QueueId(n.0),
            tx_bytes: n.1,
            tx_packets: n.2,
            tx_errors: n.3,
            duration,
        });
    let aggregate = any::<(u64, u64, u32)>().prop_map(|n| AggregateStats {
        packets: n.0,
        bytes: n.1,
        flows: n.2,
    });
    let body = prop_oneof![
        desc().prop_map(|desc| ReplyBody::Desc(Box::new(desc))),
        vec(flow_stats(), 0..4).prop_map(ReplyBody::Flow),
        aggregate.prop_map(ReplyBody::Aggregate),
        vec(table, 0..4).prop_map(ReplyBody::Table),
        vec(port_stats(), 0..4).prop_map(ReplyBody::PortStats),
        vec(queue, 0..4).prop_map(ReplyBody::Queue),
        groups(),
        meters(),
        vec(table_features(), 0..3).prop_map(ReplyBody::TableFeatures),
        vec(port(), 0..4).prop_map(ReplyBody::PortDesc),
        experimenter().prop_map(ReplyBody::Experimenter),
    ];
    (any::<bool>(), body).prop_map(|(more, body)| MultipartReply { more, body })
}
