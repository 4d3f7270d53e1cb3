//! Groups and meters with their counters.

use millrace_agent::BridgeControl;
use millrace_api::view;
use millrace_datapath::io::Backend;
use millrace_flow::{Action, Bucket};
use millrace_pipeline::{BandKind, EntryCount, GroupStat, MeterFlags, MeterStat};
use millrace_types::{GroupId, MeterId, PortNo};

/// Returns all groups of a bridge, ordered by number.
pub(super) fn groups<B: Backend>(control: &BridgeControl<B>) -> Vec<view::Group> {
    let mut list = Vec::new();
    let now = control.datapath().now();
    control
        .tables()
        .group_stats(GroupId::ALL, now, |stat| list.push(group(&stat)));
    list
}

fn group(stat: &GroupStat<'_>) -> view::Group {
    let buckets = stat.group.buckets.iter().zip(&stat.buckets);
    view::Group {
        id: stat.group.id.0,
        kind: stat.group.kind.name().to_owned(),
        references: stat.references,
        packets: stat.count.packets,
        bytes: stat.count.bytes,
        duration_seconds: stat.duration.as_secs_f64(),
        buckets: buckets.map(|(given, count)| bucket(given, *count)).collect(),
    }
}

fn bucket(given: &Bucket, count: EntryCount) -> view::Bucket {
    let actions: Vec<String> = given.actions.iter().map(Action::to_string).collect();
    view::Bucket {
        weight: given.weight,
        watch_port: (given.watch_port != PortNo::ANY).then(|| given.watch_port.raw()),
        watch_group: (given.watch_group != GroupId::ANY).then_some(given.watch_group.0),
        actions: if actions.is_empty() {
            "drop".to_owned()
        } else {
            actions.join(",")
        },
        packets: count.packets,
        bytes: count.bytes,
    }
}

/// Returns all meters of a bridge, ordered by number.
pub(super) fn meters<B: Backend>(control: &BridgeControl<B>) -> Vec<view::Meter> {
    let mut list = Vec::new();
    let now = control.datapath().now();
    control
        .tables()
        .meter_stats(MeterId::ALL, now, |stat| list.push(meter(&stat)));
    list
}

fn meter(stat: &MeterStat<'_>) -> view::Meter {
    let flags = stat.meter.flags;
    let bands = stat.meter.bands.iter().zip(&stat.bands);
    view::Meter {
        id: match stat.meter.id {
            MeterId::CONTROLLER => "controller".to_owned(),
            MeterId::SLOWPATH => "slowpath".to_owned(),
            id => id.to_string(),
        },
        unit: if flags.contains(MeterFlags::PKTPS) {
            "pktps"
        } else {
            "kbps"
        }
        .to_owned(),
        flows: stat.flows,
        packets: stat.count.packets,
        bytes: stat.count.bytes,
        duration_seconds: stat.duration.as_secs_f64(),
        bands: bands
            .map(|(band, count)| {
                let (kind, prec_level) = match band.kind {
                    BandKind::Drop => ("drop", None),
                    BandKind::DscpRemark { prec_level } => ("dscp_remark", Some(prec_level)),
                };
                view::Band {
                    kind: kind.to_owned(),
                    rate: band.rate,
                    burst_size: flags.contains(MeterFlags::BURST).then_some(band.burst_size),
                    prec_level,
                    packets: count.packets,
                    bytes: count.bytes,
                }
            })
            .collect(),
    }
}
