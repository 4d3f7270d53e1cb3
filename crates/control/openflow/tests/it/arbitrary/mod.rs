//! Any valid message, for property tests.

mod flow;
mod multipart;

use millrace_flow::Bucket;
use millrace_openflow::*;
use millrace_types::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) use flow::{actions, flow_match, instructions};

pub(crate) fn bytes(max: usize) -> impl Strategy<Value = Box<[u8]>> {
    vec(any::<u8>(), 0..max).prop_map(Vec::into_boxed_slice)
}

pub(crate) fn text(max: usize) -> impl Strategy<Value = String> {
    vec(32u8..127, 0..=max).prop_map(|bytes| String::from_utf8(bytes).unwrap())
}

pub(crate) fn duration() -> impl Strategy<Value = Duration> {
    (any::<u32>(), 0u32..1_000_000_000).prop_map(|(seconds, nanos)| Duration::new(u64::from(seconds), nanos))
}

/// Returns a port number that Open vSwitch supports, too: one of 16 bits, or a reserved one.
pub(crate) fn port_no() -> impl Strategy<Value = PortNo> {
    prop_oneof![1u32..0xff00, 0xffff_fff8u32..=0xffff_ffff].prop_map(PortNo::from_raw)
}

fn port_config() -> impl Strategy<Value = PortConfig> {
    any::<u32>().prop_map(PortConfig::from_raw_truncated)
}

fn port_features() -> impl Strategy<Value = PortFeatures> {
    any::<u32>().prop_map(PortFeatures::from_raw_truncated)
}

pub(crate) fn flow_mod_flags() -> impl Strategy<Value = FlowModFlags> {
    any::<u16>().prop_map(FlowModFlags::from_raw_truncated)
}

pub(crate) fn port() -> impl Strategy<Value = Port> {
    let features = (port_features(), port_features(), port_features(), port_features());
    (
        port_no(),
        any::<[u8; 6]>(),
        text(15),
        port_config(),
        any::<u32>(),
        features,
        any::<(u32, u32)>(),
    )
        .prop_map(|(number, mac, name, config, state, features, speeds)| Port {
            number,
            mac: Mac(mac),
            name,
            config,
            state: PortState::from_raw_truncated(state),
            current: features.0,
            advertised: features.1,
            supported: features.2,
            peer: features.3,
            current_speed: speeds.0,
            max_speed: speeds.1,
        })
}

pub(crate) fn bucket() -> impl Strategy<Value = Bucket> {
    (any::<u16>(), port_no(), any::<u32>(), actions()).prop_map(
        |(weight, watch_port, watch_group, actions)| Bucket {
            weight,
            watch_port,
            watch_group: GroupId(watch_group),
            actions,
        },
    )
}

pub(crate) fn buckets() -> impl Strategy<Value = Box<[Bucket]>> {
    vec(bucket(), 0..4).prop_map(Vec::into_boxed_slice)
}

pub(crate) fn meter_flags() -> impl Strategy<Value = MeterFlags> {
    any::<u16>().prop_map(|raw| {
        let flags = MeterFlags::from_raw_truncated(raw);
        if flags.contains(MeterFlags::KBPS) {
            flags.without(MeterFlags::PKTPS)
        } else {
            flags
        }
    })
}

pub(crate) fn meter_bands() -> impl Strategy<Value = Box<[MeterBand]>> {
    let kind = prop_oneof![
        Just(MeterBandKind::Drop),
        any::<u8>().prop_map(|prec_level| MeterBandKind::DscpRemark { prec_level }),
    ];
    let band = (any::<u32>(), any::<u32>(), kind).prop_map(|(rate, burst_size, kind)| MeterBand {
        rate,
        burst_size,
        kind,
    });
    vec(band, 0..4).prop_map(Vec::into_boxed_slice)
}

fn packet_in() -> impl Strategy<Value = PacketIn> {
    (
        any::<(u32, u16, u8, u64)>(),
        select(PacketInReason::ALL),
        flow_match(),
        bytes(200),
    )
        .prop_map(
            |((buffer, total_len, table, cookie), reason, match_, data)| PacketIn {
                buffer: BufferId(buffer),
                total_len,
                reason,
                table: TableId(table),
                cookie: Cookie(cookie),
                match_,
                data,
            },
        )
}

fn packet_out() -> impl Strategy<Value = PacketOut> {
    let in_port = prop_oneof![
        (1u32..=0xffff_ff00).prop_map(PortNo::from_raw),
        select(vec![PortNo::CONTROLLER, PortNo::LOCAL, PortNo::ANY])
    ];
    (any::<u32>(), in_port, actions(), bytes(200)).prop_map(|(buffer, in_port, actions, data)| PacketOut {
        buffer: BufferId(buffer),
        in_port,
        actions,
        data,
    })
}

pub(crate) fn flow_mod() -> impl Strategy<Value = FlowMod> {
    (
        any::<(u64, u64, u16, u16, u16, u32, u32)>(),
        0u8..255,
        select(FlowModCommand::ALL),
        port_no(),
        flow_mod_flags(),
        flow_match(),
        instructions(),
    )
        .prop_map(
            |(n, table, command, out_port, flags, match_, instructions)| FlowMod {
                cookie: Cookie(n.0),
                cookie_mask: n.1,
                table: TableId(table),
                command,
                idle_timeout: n.2,
                hard_timeout: n.3,
                priority: Priority(n.4),
                buffer: BufferId(n.5),
                out_port,
                out_group: GroupId(n.6),
                flags,
                match_,
                instructions,
            },
        )
}

fn flow_removed() -> impl Strategy<Value = FlowRemoved> {
    (
        any::<(u64, u16, u8, u16, u16, u64, u64)>(),
        select(FlowRemovedReason::ALL),
        duration(),
        flow_match(),
    )
        .prop_map(|(n, reason, duration, match_)| FlowRemoved {
            cookie: Cookie(n.0),
            priority: Priority(n.1),
            reason,
            table: TableId(n.2),
            duration,
            idle_timeout: n.3,
            hard_timeout: n.4,
            packets: n.5,
            bytes: n.6,
            match_,
        })
}

fn group_mod() -> impl Strategy<Value = GroupMod> {
    (
        select(GroupModCommand::ALL),
        select(GroupType::ALL),
        0u32..=0xffff_ff00,
        buckets(),
    )
        .prop_map(|(command, type_, group, buckets)| GroupMod {
            command,
            type_,
            group: GroupId(group),
            buckets,
        })
}

fn port_mod() -> impl Strategy<Value = PortMod> {
    (
        port_no(),
        any::<[u8; 6]>(),
        port_config(),
        port_config(),
        port_features(),
    )
        .prop_map(|(number, mac, config, mask, advertise)| PortMod {
            number,
            mac: Mac(mac),
            config,
            mask,
            advertise,
        })
}

fn meter_mod() -> impl Strategy<Value = MeterMod> {
    (
        select(MeterModCommand::ALL),
        meter_flags(),
        1u32..=0xffff_0000,
        meter_bands(),
    )
        .prop_map(|(command, flags, meter, bands)| MeterMod {
            command,
            flags,
            meter: MeterId(meter),
            bands,
        })
}

fn queue_reply() -> impl Strategy<Value = QueueGetConfigReply> {
    let queue = (any::<(u32, Option<u16>, Option<u16>)>(), port_no()).prop_map(|(n, port)| PacketQueue {
        queue: QueueId(n.0),
        port,
        min_rate: n.1,
        max_rate: n.2,
    });
    (port_no(), vec(queue, 0..4)).prop_map(|(port, queues)| QueueGetConfigReply {
        port,
        queues: queues.into(),
    })
}

fn role() -> impl Strategy<Value = RoleMessage> {
    (select(RequestedRole::ALL), any::<u64>())
        .prop_map(|(role, generation_id)| RoleMessage { role, generation_id })
}

fn async_config() -> impl Strategy<Value = AsyncConfig> {
    let masks = || {
        any::<(u32, u32, u32)>().prop_map(|(packet_in, port_status, flow_removed)| AsyncMasks {
            packet_in,
            port_status,
            flow_removed,
        })
    };
    (masks(), masks()).prop_map(|(master, slave)| AsyncConfig { master, slave })
}

fn switch_config() -> impl Strategy<Value = SwitchConfig> {
    (select(FragmentHandling::ALL), any::<u16>()).prop_map(|(fragments, miss_send_len)| SwitchConfig {
        fragments,
        miss_send_len,
    })
}

pub(crate) fn experimenter() -> impl Strategy<Value = Experimenter> {
    (any::<u32>(), any::<u32>(), bytes(40)).prop_map(|(experimenter, exp_type, data)| Experimenter {
        experimenter,
        exp_type,
        data,
    })
}

fn features() -> impl Strategy<Value = SwitchFeatures> {
    any::<(u64, u32, u8, u8, u32)>().prop_map(|n| SwitchFeatures {
        dpid: Dpid(n.0),
        buffers: n.1,
        tables: n.2,
        auxiliary_id: n.3,
        capabilities: Capabilities::from_raw_truncated(n.4),
    })
}

/// Returns a message that changes the switch, or sends a packet.
fn write() -> impl Strategy<Value = Message> {
    prop_oneof![
        3 => flow_mod().prop_map(Message::FlowMod),
        1 => packet_out().prop_map(Message::PacketOut),
        1 => group_mod().prop_map(Message::GroupMod),
        1 => port_mod().prop_map(Message::PortMod),
        1 => (any::<u8>(), 0u32..4).prop_map(|(table, config)| {
            let table = TableId(table);
            Message::TableMod(TableMod { table, config })
        }),
        1 => meter_mod().prop_map(Message::MeterMod),
    ]
}

fn bundle_control() -> impl Strategy<Value = BundleControl> {
    (any::<u32>(), select(BundleCommand::ALL), 0u16..4).prop_map(|(bundle, command, flags)| BundleControl {
        bundle,
        command,
        flags: BundleFlags::from_raw_truncated(flags),
    })
}

fn bundle_add() -> impl Strategy<Value = BundleAdd> {
    let bundled = write().prop_filter("can be bundled", |message| message.type_().can_be_bundled());
    (any::<u32>(), 0u16..4, bundled).prop_map(|(bundle, flags, message)| BundleAdd {
        bundle,
        flags: BundleFlags::from_raw_truncated(flags),
        message: Box::new(message),
    })
}

/// Returns any message.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    let symmetric = prop_oneof![
        any::<Option<u32>>().prop_map(|versions| Message::Hello(Hello { versions })),
        (any::<(u16, u16)>(), bytes(80)).prop_map(|(n, data)| {
            let code = ErrorCode {
                type_: n.0,
                code: n.1,
            };
            Message::Error(ErrorMessage { code, data })
        }),
        bytes(80).prop_map(Message::EchoRequest),
        bytes(80).prop_map(Message::EchoReply),
        experimenter().prop_map(Message::Experimenter),
        select(vec![
            Message::FeaturesRequest,
            Message::GetConfigRequest,
            Message::BarrierRequest,
            Message::BarrierReply,
            Message::GetAsyncRequest,
        ]),
    ];
    let state = prop_oneof![
        features().prop_map(Message::FeaturesReply),
        switch_config().prop_map(Message::GetConfigReply),
        switch_config().prop_map(Message::SetConfig),
        role().prop_map(Message::RoleRequest),
        role().prop_map(Message::RoleReply),
        async_config().prop_map(Message::GetAsyncReply),
        async_config().prop_map(Message::SetAsync),
        port_no().prop_map(|port| Message::QueueGetConfigRequest(QueueGetConfigRequest { port })),
        queue_reply().prop_map(Message::QueueGetConfigReply),
    ];
    let async_messages = prop_oneof![
        packet_in().prop_map(Message::PacketIn),
        flow_removed().prop_map(Message::FlowRemoved),
        (select(PortReason::ALL), port())
            .prop_map(|(reason, port)| Message::PortStatus(PortStatus { reason, port })),
    ];
    prop_oneof![
        1 => symmetric,
        1 => state,
        1 => async_messages,
        2 => write(),
        1 => bundle_control().prop_map(Message::BundleControl),
        1 => bundle_add().prop_map(Message::BundleAdd),
        1 => multipart::request().prop_map(Message::MultipartRequest),
        2 => multipart::reply().prop_map(Message::MultipartReply),
    ]
}
