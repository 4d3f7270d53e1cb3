//! METER_MOD: adds, modifies and deletes meters (OpenFlow 1.3.5, section 7.3.4.4).

use millrace_types::MeterId;

use crate::bytes::{PutBytes, Reader};
use crate::codes::{wire_enum, wire_flags};
use crate::decode_error::DecodeError;

wire_enum! {
    /// `ofp_meter_mod_command`.
    MeterModCommand(u16) {
        /// Adds a meter.
        Add = 0 "add",
        /// Replaces flags and bands of a meter.
        Modify = 1 "modify",
        /// Deletes a meter, or all meters.
        Delete = 2 "delete",
    }
}

wire_flags! {
    /// `ofp_meter_flags`.
    MeterFlags(u16) {
        /// Rates are in kbit/s.
        KBPS = 1 "kbps",
        /// Rates are in packets per second.
        PKTPS = 2 "pktps",
        /// Bands have a burst size.
        BURST = 4 "burst",
        /// The meter collects statistics.
        STATS = 8 "stats",
    }
}

/// `ofp_meter_band_header` and the fields after it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MeterBand {
    /// The band applies above this rate, in the unit of the meter's flags.
    pub rate: u32,
    /// The burst size, in kbit or packets.
    pub burst_size: u32,
    /// The type of the band.
    pub kind: MeterBandKind,
}

/// The treatment of packets above the rate of a band.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MeterBandKind {
    /// `OFPMBT_DROP`.
    Drop,
    /// `OFPMBT_DSCP_REMARK`.
    DscpRemark {
        /// The number of levels by which the drop precedence rises.
        prec_level: u8,
    },
}

/// Size of a band of either type, in bytes.
const BAND_SIZE: u16 = 16;

impl MeterBand {
    pub(crate) fn decode_list(mut list: Reader<'_>) -> Result<Box<[MeterBand]>, DecodeError> {
        let mut bands = Vec::new();
        while !list.is_empty() {
            let (type_, length) = (list.u16()?, list.u16()?);
            let rest = usize::from(length).checked_sub(4).ok_or(DecodeError::Length)?;
            let mut body = Reader::new(list.take(rest)?);
            if !matches!(type_, 1 | 2) {
                return Err(DecodeError::MeterBand { type_ });
            }
            if length != BAND_SIZE {
                return Err(DecodeError::Length);
            }
            let (rate, burst_size) = (body.u32()?, body.u32()?);
            let kind = if type_ == 1 {
                MeterBandKind::Drop
            } else {
                MeterBandKind::DscpRemark {
                    prec_level: body.u8()?,
                }
            };
            bands.push(MeterBand {
                rate,
                burst_size,
                kind,
            });
        }
        Ok(bands.into_boxed_slice())
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (type_, prec_level) = match self.kind {
            MeterBandKind::Drop => (1, 0),
            MeterBandKind::DscpRemark { prec_level } => (2, prec_level),
        };
        out.u16(type_);
        out.u16(BAND_SIZE);
        out.u32(self.rate);
        out.u32(self.burst_size);
        out.u8(prec_level);
        out.zeros(3);
    }
}

/// `ofp_meter_mod`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MeterMod {
    pub command: MeterModCommand,
    /// The unit of the rates, and whether bands have a burst size and the meter counts.
    pub flags: MeterFlags,
    /// The meter; [`MeterId::ALL`] is valid only in a delete.
    pub meter: MeterId,
    /// The bands of the meter.
    pub bands: Box<[MeterBand]>,
}

impl MeterMod {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<MeterMod, DecodeError> {
        let (command, flags) = (reader.u16()?, reader.u16()?);
        let meter = MeterId(reader.u32()?);
        let command = MeterModCommand::from_raw(command).ok_or(DecodeError::MeterModCommand { command })?;
        let flags = MeterFlags::from_raw(flags)
            .filter(|flags| !flags.contains(MeterFlags::KBPS | MeterFlags::PKTPS))
            .ok_or(DecodeError::MeterModFlags { flags })?;
        let is_virtual = meter == MeterId::SLOWPATH || meter == MeterId::CONTROLLER;
        let deletes_all = command == MeterModCommand::Delete && meter == MeterId::ALL;
        let is_ordinary = meter.0 != 0 && meter <= MeterId::MAX;
        if !(is_ordinary || is_virtual || deletes_all) {
            return Err(DecodeError::MeterNumber { meter: meter.0 });
        }
        Ok(MeterMod {
            command,
            flags,
            meter,
            bands: MeterBand::decode_list(Reader::new(reader.drain()))?,
        })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.command.raw());
        out.u16(self.flags.raw());
        out.u32(self.meter.0);
        for band in &self.bands {
            band.encode(out);
        }
    }
}
