//! Meters as controllers send them (OpenFlow 1.3.5, section 7.3.4.4).

use millrace_types::{Duration, MeterId};

/// The burst that a meter or a policer without burst size admits, as time at its rate. A window of TCP must fit: with
/// 20 ms, a GSO packet of 64 KiB fills the bucket of 20 Mbit/s, the next ones are dropped whole, and TCP gets a tenth
/// of the rate (ADR 37). Cisco IOS admits 250 ms, a 32nd of the rate in bytes; Open vSwitch admits a second.
pub const DEFAULT_BURST: Duration = Duration::from_millis(200);

/// The flags of a meter (`OFPMF_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MeterFlags(pub u16);

impl MeterFlags {
    /// Rates are in kbit/s and bursts in kbit. These units also apply if no flag names a unit.
    pub const KBPS: MeterFlags = MeterFlags(1 << 0);
    /// Rates are in packets a second, bursts in packets.
    pub const PKTPS: MeterFlags = MeterFlags(1 << 1);
    /// Bands have a burst size.
    pub const BURST: MeterFlags = MeterFlags(1 << 2);
    /// Statistics are wanted. Meters count in any case.
    pub const STATS: MeterFlags = MeterFlags(1 << 3);
    /// Every flag that OpenFlow 1.3 defines.
    pub const ALL: MeterFlags = MeterFlags(0xf);

    /// Returns true if all bits of `other` are set.
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
        /// The number of levels by which the drop precedence rises, to level 3 at most.
        prec_level: u8,
    },
}

/// A band of a meter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Band {
    /// The rate above which the band applies, in the unit of the meter.
    pub rate: u32,
    /// The burst size in the unit of the meter; without [`MeterFlags::BURST`], and if zero, [`DEFAULT_BURST`] applies.
    pub burst_size: u32,
    /// The treatment.
    pub kind: BandKind,
}

/// A meter as a controller has sent it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Meter {
    /// The number: ordinary, or that of a virtual meter.
    pub id: MeterId,
    pub flags: MeterFlags,
    pub bands: Box<[Band]>,
}
