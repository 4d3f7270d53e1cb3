//! Meters: meter_mod (OpenFlow 1.3.5, section 7.3.4.4), configuration and statistics (sections 7.3.5.12 to 7.3.5.14).

use millrace_datapath::io::Backend;
use millrace_openflow::multipart::meter::{MeterBandTypes, MeterConfig, MeterFeatures, MeterStats};
use millrace_openflow::{self as openflow, ErrorCode, MeterBand, MeterBandKind, MeterFlags, MeterModCommand};
use millrace_pipeline::{self as pipeline, BandKind, Control};
use millrace_types::MeterId;

use super::groups::count;
use super::refusal::Refusal;
use crate::control::BridgeControl;

/// Executes a meter_mod.
pub(super) fn meter_mod<B: Backend>(
    bridge: &mut BridgeControl<B>,
    asked: &openflow::MeterMod,
) -> Result<(), Refusal> {
    apply(bridge, &request(asked))
}

/// Applies a meter_mod of the pipeline.
pub(super) fn apply<B: Backend>(
    bridge: &mut BridgeControl<B>,
    request: &pipeline::MeterMod,
) -> Result<(), Refusal> {
    let now = bridge.datapath.now();
    bridge.tables.meter_mod(request, now, &mut bridge.ops)?;
    Ok(())
}

/// Converts a meter_mod to the pipeline's type.
pub(crate) fn request(asked: &openflow::MeterMod) -> pipeline::MeterMod {
    let band = |band: &MeterBand| pipeline::Band {
        rate: band.rate,
        burst_size: band.burst_size,
        kind: match band.kind {
            MeterBandKind::Drop => BandKind::Drop,
            MeterBandKind::DscpRemark { prec_level } => BandKind::DscpRemark { prec_level },
        },
    };
    let meter = pipeline::Meter {
        id: asked.meter,
        flags: pipeline::MeterFlags(asked.flags.raw()),
        bands: asked.bands.iter().map(band).collect(),
    };
    match asked.command {
        MeterModCommand::Add => pipeline::MeterMod::Add(meter),
        MeterModCommand::Modify => pipeline::MeterMod::Modify(meter),
        MeterModCommand::Delete => pipeline::MeterMod::Delete(meter.id),
    }
}

/// Returns the OpenFlow message of a meter_mod of the pipeline. A delete has no flags and no bands, because
/// they would have no meaning.
pub(crate) fn message(asked: &pipeline::MeterMod) -> openflow::Message {
    let (command, config) = match asked {
        pipeline::MeterMod::Add(meter) => (MeterModCommand::Add, describe(meter)),
        pipeline::MeterMod::Modify(meter) => (MeterModCommand::Modify, describe(meter)),
        pipeline::MeterMod::Delete(meter) => {
            let config = MeterConfig {
                flags: MeterFlags::NONE,
                meter: *meter,
                bands: Box::default(),
            };
            (MeterModCommand::Delete, config)
        }
    };
    openflow::Message::MeterMod(openflow::MeterMod {
        command,
        flags: config.flags,
        meter: config.meter,
        bands: config.bands,
    })
}

fn describe(meter: &pipeline::Meter) -> MeterConfig {
    let band = |band: &pipeline::Band| MeterBand {
        rate: band.rate,
        burst_size: band.burst_size,
        kind: match band.kind {
            BandKind::Drop => MeterBandKind::Drop,
            BandKind::DscpRemark { prec_level } => MeterBandKind::DscpRemark { prec_level },
        },
    };
    MeterConfig {
        flags: MeterFlags::from_raw_truncated(meter.flags.0),
        meter: meter.id,
        bands: meter.bands.iter().map(band).collect(),
    }
}

/// Returns the configuration of a meter, or of all meters.
pub(super) fn configs<B: Backend>(
    bridge: &BridgeControl<B>,
    meter: MeterId,
) -> Result<Vec<MeterConfig>, ErrorCode> {
    if meter == MeterId::ALL {
        return Ok(bridge.tables.meters().map(describe).collect());
    }
    let found = bridge.tables.meter(meter);
    let found = found.ok_or(ErrorCode::OFPMMFC_UNKNOWN_METER)?;
    Ok(vec![describe(found)])
}

/// Returns the counters of a meter, or of all meters.
pub(super) fn stats<B: Backend>(
    bridge: &BridgeControl<B>,
    meter: MeterId,
) -> Result<Vec<MeterStats>, ErrorCode> {
    if meter != MeterId::ALL && bridge.tables.meter(meter).is_none() {
        return Err(ErrorCode::OFPMMFC_UNKNOWN_METER);
    }
    let mut list = Vec::new();
    bridge.tables.meter_stats(meter, bridge.datapath.now(), |stat| {
        list.push(MeterStats {
            meter: stat.meter.id,
            flows: stat.flows,
            input: count(stat.count),
            duration: stat.duration,
            bands: stat.bands.into_iter().map(count).collect(),
        });
    });
    Ok(list)
}

/// Returns the meter features: all that OpenFlow 1.3 defines.
pub(super) fn features() -> MeterFeatures {
    MeterFeatures {
        max_meters: Control::METERS_MAX,
        band_types: MeterBandTypes::DROP | MeterBandTypes::DSCP_REMARK,
        capabilities: MeterFlags::ALL,
        max_bands: Control::BANDS_MAX,
        max_color: 0,
    }
}
