//! The link modes that a port supports and uses, as bits `OFPPF_*` (OpenFlow 1.3.5, section 7.2.1). The
//! kernel or a DPDK driver reports them.

use core::ops::BitOr;

use super::kernel::LinkSettings;

/// Rates, media and other properties that the two ends of a cable negotiate: the bits `OFPPF_*`.
///
/// ```text
///  bit  0     1     2     3     4     5     6     7     8     9     10    11     12    13      14    15
///       10M   10M   100M  100M  1G    1G    10G   40G   100G  1T    other copper fiber autoneg pause pause_asym
///       half  full  half  full  half  full
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LinkModes(pub u32);

impl LinkModes {
    /// A rate that has no bit of its own.
    pub const OTHER: LinkModes = LinkModes(1 << 10);
    pub const COPPER: LinkModes = LinkModes(1 << 11);
    pub const FIBER: LinkModes = LinkModes(1 << 12);
    /// Autonegotiation of the rate.
    pub const AUTONEG: LinkModes = LinkModes(1 << 13);
    /// Pause frames in both directions.
    pub const PAUSE: LinkModes = LinkModes(1 << 14);
    /// Pause frames in one direction.
    pub const PAUSE_ASYM: LinkModes = LinkModes(1 << 15);

    /// Returns the bit of a rate in Mbit/s. Half duplex exists up to 1 Gbit/s.
    pub const fn rate(mbps: u32, full_duplex: bool) -> LinkModes {
        let bit = match (mbps, full_duplex) {
            (10, false) => 0,
            (10, true) => 1,
            (100, false) => 2,
            (100, true) => 3,
            (1_000, false) => 4,
            (1_000, true) => 5,
            (10_000, _) => 6,
            (40_000, _) => 7,
            (100_000, _) => 8,
            (1_000_000, _) => 9,
            _ => 10,
        };
        LinkModes(1 << bit)
    }

    /// Returns the mode of a bit `ETHTOOL_LINK_MODE_*` of `linux/ethtool.h`.
    const fn of_ethtool(bit: usize) -> LinkModes {
        match bit {
            0 => LinkModes::rate(10, false),
            1 => LinkModes::rate(10, true),
            2 | 90 => LinkModes::rate(100, false),
            3 | 67 | 91 => LinkModes::rate(100, true),
            4 => LinkModes::rate(1_000, false),
            5 | 17 | 41 | 68 => LinkModes::rate(1_000, true),
            6 => LinkModes::AUTONEG,
            7 => LinkModes::COPPER,
            10 => LinkModes::FIBER,
            12 | 18..=20 | 42..=46 => LinkModes::rate(10_000, true),
            13 => LinkModes::PAUSE,
            14 => LinkModes::PAUSE_ASYM,
            23..=26 => LinkModes::rate(40_000, true),
            36..=39 | 57..=61 | 75..=79 => LinkModes::rate(100_000, true),
            // Other connectors and forward error correction have no bit.
            8 | 9 | 11 | 16 | 49..=51 | 74 => LinkModes(0),
            _ => LinkModes::OTHER,
        }
    }

    fn of_bits(words: &[u32]) -> LinkModes {
        let is_set = |bit: &usize| words[bit / 32] & 1 << (bit % 32) != 0;
        (0..words.len() * 32)
            .filter(is_set)
            .fold(LinkModes(0), |all, bit| all | LinkModes::of_ethtool(bit))
    }
}

impl BitOr for LinkModes {
    type Output = LinkModes;

    fn bitor(self, other: LinkModes) -> LinkModes {
        LinkModes(self.0 | other.0)
    }
}

/// The modes of a port; empty where they are unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortModes {
    /// The modes in use.
    pub current: LinkModes,
    /// The modes that the port advertises.
    pub advertised: LinkModes,
    /// The modes that the port supports.
    pub supported: LinkModes,
    /// The modes that the other end advertises.
    pub peer: LinkModes,
    /// The highest supported rate in Mbit/s.
    pub max_mbps: Option<u32>,
}

impl PortModes {
    /// Returns the modes of a port from rates in Mbit/s: `now` is the current rate, `can` has the supported
    /// rates.
    pub fn of_rates(now: Option<u32>, full_duplex: bool, autoneg: bool, can: &[u32]) -> PortModes {
        let negotiates = if autoneg { LinkModes::AUTONEG } else { LinkModes(0) };
        let supported = can
            .iter()
            .fold(LinkModes(0), |all, mbps| all | LinkModes::rate(*mbps, true));
        PortModes {
            current: now.map_or(LinkModes(0), |mbps| {
                LinkModes::rate(mbps, full_duplex) | negotiates
            }),
            advertised: if autoneg {
                supported | negotiates
            } else {
                LinkModes(0)
            },
            supported: if autoneg {
                supported | negotiates
            } else {
                supported
            },
            peer: LinkModes(0),
            max_mbps: can.iter().copied().max().max(now),
        }
    }

    /// Returns the modes that the kernel reports.
    pub(super) fn of_settings(settings: &LinkSettings) -> PortModes {
        let medium = match settings.port {
            // PORT_TP, PORT_FIBRE and PORT_DA.
            0 | 5 => LinkModes::COPPER,
            3 => LinkModes::FIBER,
            _ => LinkModes(0),
        };
        let now = PortModes::of_rates(settings.speed, settings.full_duplex, settings.autoneg, &[]);
        let current = match settings.speed {
            None => LinkModes(0),
            Some(_) => now.current | medium,
        };
        let supported = LinkModes::of_bits(&settings.supported);
        PortModes {
            current,
            advertised: LinkModes::of_bits(&settings.advertised),
            supported,
            peer: LinkModes::of_bits(&settings.peer),
            max_mbps: highest(supported).max(settings.speed),
        }
    }
}

/// Returns the highest rate among modes, in Mbit/s.
fn highest(modes: LinkModes) -> Option<u32> {
    let rates = [1_000_000, 100_000, 40_000, 10_000, 1_000, 100, 10];
    let has = |mbps: &u32| {
        let both = LinkModes::rate(*mbps, true) | LinkModes::rate(*mbps, false);
        modes.0 & both.0 != 0
    };
    rates.into_iter().find(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ethtool_says_of_a_gigabit_port_is_what_openflow_calls_it() {
        // ethtool of an e1000e: 10 to 1000baseT, autonegotiation, twisted pair; pause frames advertised.
        let settings = LinkSettings {
            speed: Some(1000),
            full_duplex: true,
            port: 0,
            autoneg: true,
            supported: vec![0b1110_1111, 0],
            advertised: vec![0b10_0000_1110_1111, 0],
            peer: vec![0b110_1111, 0],
        };
        let modes = PortModes::of_settings(&settings);
        assert_eq!(modes.current.0, 1 << 5 | 1 << 13 | 1 << 11);
        assert_eq!(modes.supported.0, 0b10_1111 | 1 << 13 | 1 << 11);
        assert_eq!(modes.advertised.0, modes.supported.0 | 1 << 14);
        assert_eq!(modes.peer.0, 0b10_1111 | 1 << 13);
        assert_eq!(modes.max_mbps, Some(1000));
    }

    #[test]
    fn rates_without_a_bit_are_other_and_what_is_unknown_is_nothing() {
        assert_eq!(LinkModes::rate(25_000, true), LinkModes::OTHER);
        assert_eq!(LinkModes::of_bits(&[0, 0, 0, 1 << 5]), LinkModes::OTHER);
        assert_eq!(
            PortModes::of_settings(&LinkSettings {
                port: 0xff,
                ..LinkSettings::default()
            }),
            PortModes::default()
        );
        let modes = PortModes::of_rates(Some(25_000), true, false, &[10_000, 25_000]);
        assert_eq!(
            (modes.supported.0, modes.max_mbps),
            (1 << 6 | 1 << 10, Some(25_000))
        );
    }
}
