//! Frequently emulated paths, each with the source of its numbers.

use crate::config::PathConfig;

/// A path with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// The description of the path in one line.
    pub summary: &'static str,
    /// The source of the numbers.
    pub source: &'static str,
    /// The settings: keys and values of [`PathConfig`].
    pub settings: &'static [(&'static str, &'static str)],
}

/// Every preset.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "geo",
        summary: "a geostationary satellite: 280 ms one way, 20 Mbit/s, rare bursts of loss",
        source: "ITU-R S.1711: 250 ms of propagation and some 30 ms of processing and framing in each direction; loss after \
                 error correction is rare and comes in bursts",
        settings: &[
            ("rate", "20Mbps"),
            ("queue", "300ms"),
            ("delay", "280ms"),
            ("jitter", "2ms,gamma,half-life=100ms"),
            ("loss", "ge:0.05%,burst=4"),
        ],
    },
    Preset {
        name: "leo",
        summary: "a constellation in low orbit: 25 ms one way with jitter, 100 Mbit/s, 1 % loss, an outage at each hand-over",
        source: "Michel et al., \"A First Look at Starlink Performance\", IMC 2022 (round-trip times of 40 to 50 ms, loss in \
                 bursts); hand-overs each 15 s: Tanveer et al., \"Making Sense of Constellations\", 2023",
        settings: &[
            ("rate", "100Mbps"),
            ("queue", "100ms"),
            ("delay", "25ms"),
            ("jitter", "5ms,gamma,half-life=200ms"),
            ("loss", "ge:1%,burst=6;outage:at=15s,for=50ms,every=15s"),
        ],
    },
    Preset {
        name: "transatlantic",
        summary: "Europe to the east coast of North America by fibre: 40 ms one way, 10 Gbit/s, almost no loss",
        source: "6,000 to 7,000 km of cable at 4.9 us a km, and access at both ends; public looking glasses show round-trip times of \
                 75 to 85 ms between London and New York",
        settings: &[
            ("rate", "10Gbps"),
            ("queue", "50ms"),
            ("delay", "40ms"),
            ("jitter", "100us,gamma,half-life=20ms"),
            ("loss", "0.001%"),
        ],
    },
    Preset {
        name: "lte",
        summary: "a mobile network: 30 ms one way with jitter, 30 Mbit/s, a deep queue",
        source: "3GPP TR 36.912 (10 ms in the radio network at least) and Winstein et al., \"Stochastic Forecasts Achieve High \
                 Throughput and Low Delay over Cellular Networks\", NSDI 2013 (deep queues, few losses); for a link that varies, use a \
                 Mahimahi trace",
        settings: &[
            ("rate", "30Mbps"),
            ("queue", "1s"),
            ("delay", "30ms"),
            ("jitter", "8ms,gamma,half-life=50ms"),
            ("loss", "0.05%"),
        ],
    },
];

/// Returns the preset with this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl Preset {
    /// Returns the path.
    pub fn path(&self) -> PathConfig {
        let mut path = PathConfig::default();
        for (key, text) in self.settings {
            // The test below reads each setting.
            drop(path.set(key, text));
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoSources, PathModel};

    #[test]
    fn every_preset_is_a_valid_path_without_warnings() {
        for preset in PRESETS {
            let mut path = PathConfig::default();
            for (key, text) in preset.settings {
                path.set(key, text).unwrap();
            }
            assert_eq!(preset.path(), path);
            assert_eq!(path.warnings(), Vec::<String>::new(), "{}", preset.name);
            PathModel::compile(&path, &NoSources).unwrap();
        }
    }
}
