//! Meters (OpenFlow 1.3.5, sections 5.7 and 7.3.4.4).
//!
//! Like groups, meters have two forms: a [`Meter`] is what a controller has sent, a [`ReadyMeter`] what workers need.
//! All workers and both readers' copies share one, with the state of its bands.

mod map;
mod rate;

use millrace_flow::classify::Slot;
use millrace_types::{MeterId, Time};

pub(crate) use map::MeterMap;
pub(crate) use rate::Gate;

/// The flags of a meter (`OFPMF_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MeterFlags(pub u16);

impl MeterFlags {
    /// Rates are in kbit/s and bursts in kbit, which is also the default.
    pub const KBPS: MeterFlags = MeterFlags(1 << 0);
    /// Rates are in packets a second, bursts in packets.
    pub const PKTPS: MeterFlags = MeterFlags(1 << 1);
    /// Bands have a burst size.
    pub const BURST: MeterFlags = MeterFlags(1 << 2);
    /// Statistics are wanted. Meters count in any case.
    pub const STATS: MeterFlags = MeterFlags(1 << 3);
    /// Every flag that OpenFlow 1.3 defines.
    pub const ALL: MeterFlags = MeterFlags(0xf);

    /// Returns whether all bits of `other` are set.
    pub const fn contains(self, other: MeterFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The treatment of packets above the rate of a band (`ofp_meter_band_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BandKind {
    /// `OFPMBT_DROP`.
    Drop,
    /// `OFPMBT_DSCP_REMARK`: raises the drop precedence of the assured forwarding classes (RFC 2597); other packets
    /// are unchanged.
    DscpRemark {
        /// The number of levels, up to the highest of three.
        prec_level: u8,
    },
}

/// A band of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Band {
    /// The rate above which it applies, in the unit of the meter.
    pub rate: u32,
    /// The burst size in the unit of the meter; meaningless without [`MeterFlags::BURST`].
    pub burst_size: u32,
    /// The treatment.
    pub kind: BandKind,
}

/// A meter as a controller has sent it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Meter {
    /// The number: ordinary, or that of a virtual meter.
    pub id: MeterId,
    /// The flags.
    pub flags: MeterFlags,
    /// The bands.
    pub bands: Box<[Band]>,
}

/// A band in the form for workers.
#[derive(Debug)]
pub(crate) struct ReadyBand {
    gate: Gate,
    /// The slot of its counters.
    pub(crate) slot: Slot,
}

/// A meter in the form for workers.
#[derive(Debug)]
pub struct ReadyMeter {
    meter: Meter,
    slot: Slot,
    bands: Box<[ReadyBand]>,
}

impl ReadyMeter {
    /// Prepares a meter with the slot of its counters and those of its bands.
    pub(crate) fn new(
        meter: Meter,
        slot: Slot,
        band_slots: impl IntoIterator<Item = Slot>,
        now: Time,
    ) -> ReadyMeter {
        let ready = |(band, slot): (&Band, Slot)| ReadyBand {
            gate: Gate::new(meter.flags, band, now),
            slot,
        };
        ReadyMeter {
            bands: meter.bands.iter().zip(band_slots).map(ready).collect(),
            meter,
            slot,
        }
    }

    /// Returns the meter as it was sent.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    pub(crate) fn bands(&self) -> &[ReadyBand] {
        &self.bands
    }

    /// Measures a packet of this many bytes that counts as so many packets. Returns the band to apply, if any: of
    /// those whose rate is exceeded the one with the highest rate, and the first of equal ones. With `is_real` the
    /// packet is accounted for.
    #[inline]
    pub(crate) fn measure(&self, packets: usize, size: usize, now: Time, is_real: bool) -> Option<usize> {
        let mut exceeded: Option<usize> = None;
        for (at, (ready, band)) in self.bands.iter().zip(&self.meter.bands).enumerate() {
            if !ready.gate.passes(packets, size, now, is_real)
                && exceeded.is_none_or(|held| self.meter.bands[held].rate < band.rate)
            {
                exceeded = Some(at);
            }
        }
        exceeded
    }
}
