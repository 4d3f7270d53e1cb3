//! METER, METER_CONFIG and METER_FEATURES (OpenFlow 1.3.5, sections 7.3.5.12 to 7.3.5.14).

use millrace_types::{Duration, MeterId};

use super::group::Count;
use super::{MultipartType, ReplyPart, decode_list};
use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_flags;
use crate::decode_error::DecodeError;
use crate::meter_mod::{MeterBand, MeterFlags};

/// `ofp_meter_multipart_request`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MeterRequest {
    /// The meter, or [`MeterId::ALL`].
    pub meter: MeterId,
}

impl MeterRequest {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<MeterRequest, DecodeError> {
        let meter = MeterId(reader.u32()?);
        reader.skip(4)?;
        Ok(MeterRequest { meter })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.meter.0);
        out.zeros(4);
    }
}

/// `ofp_meter_stats`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MeterStats {
    pub meter: MeterId,
    /// The number of entries that use the meter.
    pub flows: u32,
    /// The traffic that entered the meter.
    pub input: Count,
    /// The time since the meter was added.
    pub duration: Duration,
    /// The traffic to which each band was applied.
    pub bands: Box<[Count]>,
}

impl MeterStats {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<MeterStats, DecodeError> {
        let meter = MeterId(reader.u32()?);
        let length = usize::from(reader.u16()?);
        let rest = length.checked_sub(6).ok_or(DecodeError::Length)?;
        let mut body = Reader::new(reader.take(rest)?);
        body.skip(6)?;
        Ok(MeterStats {
            meter,
            flows: body.u32()?,
            input: Count::decode(&mut body)?,
            duration: body.duration()?,
            bands: decode_list(&mut body, Count::decode)?.into_boxed_slice(),
        })
    }
}

impl ReplyPart for MeterStats {
    const TYPE: MultipartType = MultipartType::Meter;

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u32(self.meter.0);
        out.zeros(8);
        out.u32(self.flows);
        self.input.encode(out);
        out.duration(self.duration);
        for band in &self.bands {
            band.encode(out);
        }
        out.length_at(start + 4, start);
    }
}

/// `ofp_meter_config`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MeterConfig {
    /// The unit of the rates, and whether bands have a burst size and the meter counts.
    pub flags: MeterFlags,
    pub meter: MeterId,
    /// The bands of the meter.
    pub bands: Box<[MeterBand]>,
}

impl MeterConfig {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<MeterConfig, DecodeError> {
        let mut body = super::sized(reader)?;
        Ok(MeterConfig {
            flags: MeterFlags::from_raw_truncated(body.u16()?),
            meter: MeterId(body.u32()?),
            bands: MeterBand::decode_list(Reader::new(body.drain()))?,
        })
    }
}

impl ReplyPart for MeterConfig {
    const TYPE: MultipartType = MultipartType::MeterConfig;

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u16(self.flags.raw());
        out.u32(self.meter.0);
        for band in &self.bands {
            band.encode(out);
        }
        out.length_at(start, start);
    }
}

wire_flags! {
    /// The supported values of `ofp_meter_band_type`: bit `1 << type` for each type.
    MeterBandTypes(u32) {
        /// Bands that drop.
        DROP = 2 "drop",
        /// Bands that remark the DSCP.
        DSCP_REMARK = 4 "dscp_remark",
    }
}

/// `ofp_meter_features`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MeterFeatures {
    /// The maximum number of meters.
    pub max_meters: u32,
    /// The supported types of bands.
    pub band_types: MeterBandTypes,
    /// The supported flags of meters.
    pub capabilities: MeterFlags,
    /// The maximum number of bands of a meter.
    pub max_bands: u8,
    /// The maximum color value.
    pub max_color: u8,
}

impl MeterFeatures {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<MeterFeatures, DecodeError> {
        let features = MeterFeatures {
            max_meters: reader.u32()?,
            band_types: MeterBandTypes::from_raw_truncated(reader.u32()?),
            capabilities: MeterFlags::from_raw_truncated((reader.u32()? & 0xffff) as u16),
            max_bands: reader.u8()?,
            max_color: reader.u8()?,
        };
        reader.skip(2)?;
        Ok(features)
    }
}

impl ReplyPart for MeterFeatures {
    const TYPE: MultipartType = MultipartType::MeterFeatures;

    fn encode(&self, out: &mut Vec<u8>) {
        out.u32(self.max_meters);
        out.u32(self.band_types.raw());
        out.u32(u32::from(self.capabilities.raw()));
        out.u8(self.max_bands);
        out.u8(self.max_color);
        out.zeros(2);
    }
}
