//! Meters (OpenFlow 1.3.5, sections 5.7 and 7.3.4.4).
//!
//! Like groups, meters have two forms: a [`Meter`] as the controller sent it, and a [`CompiledMeter`] for workers. All
//! workers and both readers' copies share one [`CompiledMeter`], which has the state of its bands.

mod config;
mod map;
mod rate;

use millrace_flow::classify::Slot;
use millrace_types::Time;

pub use config::{Band, BandKind, DEFAULT_BURST, Meter, MeterFlags};
pub(crate) use map::MeterMap;
pub(crate) use rate::Gcra;

/// A band in the form for workers.
#[derive(Debug)]
pub(crate) struct CompiledBand {
    gcra: Gcra,
    /// The slot of its counters.
    pub(crate) slot: Slot,
}

/// A meter in the form for workers.
#[derive(Debug)]
pub struct CompiledMeter {
    meter: Meter,
    slot: Slot,
    bands: Box<[CompiledBand]>,
}

impl CompiledMeter {
    /// Compiles a meter with the slot of its counters and the slots of its bands' counters.
    pub(crate) fn new(
        meter: Meter,
        slot: Slot,
        band_slots: impl IntoIterator<Item = Slot>,
        now: Time,
    ) -> CompiledMeter {
        let compiled = |(band, slot): (&Band, Slot)| CompiledBand {
            gcra: Gcra::new(meter.flags, band, now),
            slot,
        };
        CompiledMeter {
            bands: meter.bands.iter().zip(band_slots).map(compiled).collect(),
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

    pub(crate) fn bands(&self) -> &[CompiledBand] {
        &self.bands
    }

    /// Measures a packet of `size` bytes that counts as `packets` packets. Returns the index of the band to apply, if
    /// any: the band with the highest rate among those whose rate is exceeded, and the first of several with that rate.
    /// The packet is charged to the bands only if `is_real`.
    #[inline]
    pub(crate) fn measure(&self, packets: usize, size: usize, now: Time, is_real: bool) -> Option<usize> {
        let mut exceeded: Option<usize> = None;
        for (at, (compiled, band)) in self.bands.iter().zip(&self.meter.bands).enumerate() {
            if !compiled.gcra.conforms(packets, size, now, is_real)
                && exceeded.is_none_or(|held| self.meter.bands[held].rate < band.rate)
            {
                exceeded = Some(at);
            }
        }
        exceeded
    }
}
