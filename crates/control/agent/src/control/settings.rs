//! Settings of a bridge, from the configuration to the pipeline.

use std::collections::BTreeMap;

use millrace_flow::{Field, FieldSet};
use millrace_model as model;
use millrace_pipeline::{
    FdbConfig, FlowCachePolicy, FragmentMode, NormalIngress, NormalSettings, TableLimit, WhenFull,
};
use millrace_types::{Duration, TableId};

/// Returns the fields whose hash chooses the bucket of a select group.
pub(super) fn select_fields(config: &model::Bridge) -> FieldSet {
    let field = |field: &model::SelectField| match field {
        model::SelectField::InPort => Field::InPort,
        model::SelectField::Metadata => Field::Metadata,
        model::SelectField::TunnelId => Field::TunnelId,
        model::SelectField::EthDst => Field::EthDst,
        model::SelectField::EthSrc => Field::EthSrc,
        model::SelectField::EthType => Field::EthType,
        model::SelectField::VlanVid => Field::VlanVid,
        model::SelectField::IpProto => Field::IpProto,
        model::SelectField::Ipv4Src => Field::Ipv4Src,
        model::SelectField::Ipv4Dst => Field::Ipv4Dst,
        model::SelectField::Ipv6Src => Field::Ipv6Src,
        model::SelectField::Ipv6Dst => Field::Ipv6Dst,
        model::SelectField::Ipv6Flabel => Field::Ipv6Flabel,
        // The flow key has one field for the ports of all transport protocols.
        model::SelectField::TpSrc => Field::TcpSrc,
        model::SelectField::TpDst => Field::TcpDst,
        model::SelectField::ArpSpa => Field::ArpSpa,
        model::SelectField::ArpTpa => Field::ArpTpa,
        model::SelectField::MplsLabel => Field::MplsLabel,
        model::SelectField::PbbIsid => Field::PbbIsid,
    };
    config.select_hash.iter().map(field).collect()
}

/// Returns the ports and VLANs whose packets NORMAL forwards without the flow tables.
pub(super) fn normal_ingress(config: &model::Bridge) -> NormalIngress {
    let ports = config.ports.iter();
    let normal = ports.filter(|port| port.pipeline == model::PortPipeline::Normal);
    NormalIngress::new(
        normal.map(|port| port.number),
        config.normal_vlans.iter().copied(),
    )
}

/// Returns the settings of NORMAL.
pub(super) fn normal_settings(config: &model::Bridge) -> NormalSettings {
    NormalSettings::new(config.flood_vlans.iter().copied(), config.forward_bpdu)
}

pub(super) fn fragments(config: &model::Bridge) -> FragmentMode {
    match config.fragments {
        model::Fragments::Normal => FragmentMode::Normal,
        model::Fragments::Drop => FragmentMode::Drop,
        model::Fragments::Reassemble => FragmentMode::Reassemble,
    }
}

pub(super) fn flow_cache(config: &model::Bridge) -> FlowCachePolicy {
    match config.flow_cache {
        model::FlowCache::Auto => FlowCachePolicy::Auto,
        model::FlowCache::Off => FlowCachePolicy::Off,
    }
}

pub(super) fn table_limits(config: &model::Bridge) -> BTreeMap<TableId, TableLimit> {
    let settings = config.table_settings.iter();
    let limit = |table: &model::Table| TableLimit {
        max_entries: table.max_entries.map_or(u32::MAX, model::TableSize::get),
        when_full: match table.when_full {
            model::WhenFull::Refuse => WhenFull::Refuse,
            model::WhenFull::Evict => WhenFull::Evict,
        },
    };
    settings
        .map(|table| (TableId(table.number.get()), limit(table)))
        .collect()
}

pub(super) fn fdb_config(config: &model::Bridge) -> FdbConfig {
    FdbConfig {
        ageing: Duration::from_secs(config.mac_ageing_s.get().into()),
        max_entries: config.mac_table_size.get(),
    }
}
