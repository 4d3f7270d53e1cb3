//! Meters: how fast packets may pass, and what happens to those that are faster (sections 5.7 and 7.3.4.4).
//!
//! As groups, meters have two forms: the [`Meter`] is what a controller asked for, the [`ReadyMeter`] what workers
//! need. All workers and both readers' copies share one, with the state of its bands.

mod map;
mod rate;

use millrace_flow::classify::Slot;
use millrace_types::{MeterId, Time};

pub(crate) use map::MeterMap;
pub(crate) use rate::Gate;

/// Flags of a meter (`OFPMF_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MeterFlags(pub u16);

impl MeterFlags {
    /// Rates are in kbit/s, bursts in kbit. So they are without [`MeterFlags::PKTPS`], too.
    pub const KBPS: MeterFlags = MeterFlags(1 << 0);
    /// Rates are in packets a second, bursts in packets.
    pub const PKTPS: MeterFlags = MeterFlags(1 << 1);
    /// Bands have a burst size.
    pub const BURST: MeterFlags = MeterFlags(1 << 2);
    /// Somebody wants statistics. Meters count in any case.
    pub const STATS: MeterFlags = MeterFlags(1 << 3);
    /// Every flag that OpenFlow 1.3 defines.
    pub const ALL: MeterFlags = MeterFlags(0xf);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: MeterFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a band does with packets above its rate (`ofp_meter_band_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BandKind {
    /// `OFPMBT_DROP`.
    Drop,
    /// `OFPMBT_DSCP_REMARK`: raises the drop precedence of the assured forwarding classes (RFC 2597); other packets stay
    /// as they are.
    DscpRemark {
        /// By how many levels, up to the highest of three.
        prec_level: u8,
    },
}

/// A band of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Band {
    /// Above which rate it applies, in the unit of the meter.
    pub rate: u32,
    /// How much may come at once, in the unit of the meter; of no meaning without [`MeterFlags::BURST`].
    pub burst_size: u32,
    /// What it does.
    pub kind: BandKind,
}

/// A meter as a controller asked for it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Meter {
    /// Its number: ordinary, or that of a virtual meter.
    pub id: MeterId,
    /// Units, and whether there are burst sizes.
    pub flags: MeterFlags,
    /// What it does at which rates.
    pub bands: Box<[Band]>,
}

/// A band as workers need it.
#[derive(Debug)]
pub(crate) struct ReadyBand {
    gate: Gate,
    /// Where the packets that it was applied to are counted.
    pub(crate) slot: Slot,
}

/// A meter as workers need it.
#[derive(Debug)]
pub struct ReadyMeter {
    meter: Meter,
    slot: Slot,
    bands: Box<[ReadyBand]>,
}

impl ReadyMeter {
    /// Prepares a meter, of which `slot` counts all and `band_slots` what each band was applied to.
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

    /// As it was asked for.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    pub(crate) fn bands(&self) -> &[ReadyBand] {
        &self.bands
    }

    /// Measures a packet of this many bytes, which counts as so many: which band is to be applied to it, if one is. Of those whose rate is
    /// exceeded that is the one with the highest rate, and the first of equal ones. With `is_real` the packet is
    /// remembered.
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
