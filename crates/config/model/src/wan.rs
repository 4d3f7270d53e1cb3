//! Emulated paths. A setting is a text, the same as on the command line; the emulator's own parser checks it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use millrace_wan_control::{Setting, Settings, SettingsError};
use millrace_wan_emulator::{Bypass, ClassConfig, DirectionConfig, PathConfig};
use thiserror::Error;

use crate::choice::WanBypass;
use crate::decode::text_field;
use crate::name::{HopName, WanName};
use crate::number::{WanMtu, WanSeed};
use crate::section::{deserialize, section};

/// The error for a text that is not a setting of a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct WanTextError(String);

/// Checks the text of a key.
fn check(key: &str, text: &str) -> Result<(), WanTextError> {
    let settings = Settings {
        both: vec![(key.to_owned(), text.to_owned())],
        ..Settings::default()
    };
    match key {
        // These two keys expand to several settings, which are checked together.
        "preset" | "netem" => settings.directions().map(drop).map_err(|error| error.to_string()),
        _ => PathConfig::default()
            .set(&key.replace('_', "-"), text)
            .map_err(|error| error.to_string()),
    }
    .map_err(WanTextError)
}

macro_rules! settings {
    ($( $(#[doc = $doc:literal])+ $Name:ident, $key:literal, $form:literal, $example:literal; )*) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub struct $Name(String);

        impl FromStr for $Name {
            type Err = WanTextError;

            fn from_str(text: &str) -> Result<$Name, WanTextError> {
                check($key, text).map(|()| $Name(text.to_owned()))
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        text_field!($Name, $form, $example);
    )*};
}

settings! {
    /// The name of a known network.
    WanPreset, "preset", "the name of a preset", "geo";
    /// Options of tc-netem(8).
    WanNetem, "netem", "options of tc-netem(8)", "delay 100ms 10ms loss gemodel 1% 10%";
    /// A delay.
    WanDelay, "delay", "a time up to 10s, or trace:FILE", "100ms";
    /// A variation of the delay.
    WanJitter, "jitter", "a time with a distribution and a half-life", "5ms,normal,half-life=50ms";
    /// The order of frames.
    WanOrder, "order", "`ordered` or `reordering`", "ordered";
    /// Loss models.
    WanLoss, "loss", "loss models, with `;` between several", "ge:1%,burst=8";
    /// A rate.
    WanRate, "rate", "a rate from 300bps to 400Gbps, or mahimahi:FILE", "1Gbps";
    /// The depth of the queue.
    WanQueue, "queue", "a depth in time, packets or bytes, and RED", "250ms";
    /// Other traffic.
    WanBackground, "background", "a share of the rate, or on-off periods", "30%";
    /// Reordering.
    WanReorder, "reorder", "a probability and a delay", "1%,extra=5ms";
    /// Duplication.
    WanDuplicate, "duplicate", "a probability", "0.1%";
    /// Corruption.
    WanCorrupt, "corrupt", "a probability or a bit error rate, and what becomes of the frame", "0.1%,bits=3,deliver";
    /// The treatment of frames over the MTU.
    WanOverMtu, "over_mtu", "`drop` or `too-big`", "drop";
    /// The framing overhead.
    WanFraming, "framing", "`ethernet`, `ethernet-gap`, `ppp`, `atm` or custom:BYTES", "ethernet";
}

/// The memory of a direction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WanMemory(String);

impl FromStr for WanMemory {
    type Err = WanTextError;

    fn from_str(text: &str) -> Result<WanMemory, WanTextError> {
        let settings = Settings {
            memory: Some(text.to_owned()),
            ..Settings::default()
        };
        settings
            .directions()
            .map(|_| WanMemory(text.to_owned()))
            .map_err(|error| WanTextError(error.to_string()))
    }
}

impl fmt::Display for WanMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_field!(WanMemory, "a size in bytes", "1GiB");

/// The match of a class of frames, in the syntax of flow entries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WanMatch(String);

impl FromStr for WanMatch {
    type Err = WanTextError;

    fn from_str(text: &str) -> Result<WanMatch, WanTextError> {
        text.parse::<millrace_flow::Match>()
            .map(|_| WanMatch(text.to_owned()))
            .map_err(|error| WanTextError(format!("{error}")))
    }
}

impl fmt::Display for WanMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_field!(WanMatch, "a match as of flow entries", "udp,tp_dst=5004");

section! {
    /// Settings of an emulated path, the same as the options of `millrace wan between`; docs/wan.md describes
    /// each text. `none` unsets a key that the preset or the settings of both directions set.
    pub struct WanPath (live) {
        required {}
        optional {
            /// The settings of a known network: `"geo"`, `"leo"`, `"transatlantic"`, `"lte"` and others. The
            /// other keys modify these settings.
            pub preset: Option<WanPreset> = None,
            /// Options of tc-netem(8). The other keys modify these settings.
            pub netem: Option<WanNetem> = None,
            /// The delay: `"100ms"`, at most 10 s, or `"trace:FILE"`.
            pub delay: Option<WanDelay> = None,
            /// The variation of the delay: `"5ms"` (uniform), `"5ms,normal,half-life=50ms"`; also
            /// `exponential`, `gamma`, `pareto`, `pareto-normal` and `table:FILE`. The half-life is the time
            /// in which the correlation halves.
            pub jitter: Option<WanJitter> = None,
            /// `"ordered"` (default): no frame leaves before an earlier one; `"reordering"`: each frame has its own delay.
            pub order: Option<WanOrder> = None,
            /// Loss: `"1%"`, `"ge:1%,burst=8"` (Gilbert-Elliott), `"4-state:…"`, `"every:100"`, `"ber:1e-9"`,
            /// `"outage:up=30s,down=2s"`, `"trace:FILE"`; several with `;` between.
            pub loss: Option<WanLoss> = None,
            /// The rate: `"1Gbps"`, or `"mahimahi:FILE"`. Unset, unlimited; `memory` is then required.
            pub rate: Option<WanRate> = None,
            /// The queue before the rate: `"250ms"` (default), `"100packets"`, `"64KiB"`;
            /// `"250ms,red,min=25%,max=75%,probability=10%"` with RED.
            pub queue: Option<WanQueue> = None,
            /// Other traffic on the path: `"30%"` of the rate, or `"on-off:80%,on=100ms,off=400ms"`.
            pub background: Option<WanBackground> = None,
            /// Reordering of single frames: `"1%,extra=5ms"`, `"25%,ahead,gap=5"`.
            pub reorder: Option<WanReorder> = None,
            /// Duplication: `"0.1%"`.
            pub duplicate: Option<WanDuplicate> = None,
            /// Corruption: `"0.1%"`, `"0.1%,bits=3,deliver"`, `"ber:1e-9,undetectable"`.
            pub corrupt: Option<WanCorrupt> = None,
            /// The MTU of the path.
            pub mtu: Option<WanMtu> = None,
            /// Frames over the MTU: `"drop"` (default), or `"too-big"`, which answers by ICMP.
            pub over_mtu: Option<WanOverMtu> = None,
            /// The bytes that the rate counts besides the layer-2 payload: `"ethernet"` (18, default), `"ethernet-gap"` (38),
            /// `"ppp"`, `"atm"`, `"custom:BYTES"`.
            pub framing: Option<WanFraming> = None,
        }
    }
}

section! {
    /// A class of frames with separate path settings.
    pub struct WanClass (live, by name in order) {
        required {
            /// The name of the class.
            pub name: HopName,
            /// The match of the class, in the syntax of flow entries. A frame belongs to the first class that
            /// matches it.
            pub matching as "match": WanMatch,
        }
        optional {
            /// The path settings of the frames of the class.
            pub path: WanPath = WanPath::new(),
        }
    }
}

section! {
    /// An emulated wide-area path between two ports, whose devices are `wan:NAME,a` and `wan:NAME,b`. Changes
    /// apply to frames that arrive later; frames already on the path are not affected. Changes of `seed`,
    /// `memory` and the classes take effect when the two ports are removed and added again.
    pub struct Wan (live, by name) {
        required {
            /// The name of the path, unique in the switch.
            pub name: WanName,
        }
        optional {
            /// The settings of both directions.
            pub path: WanPath = WanPath::new(),
            /// Settings of the direction from a to b, in place of those of both directions: of frames that the
            /// switch sends to the port at end a, and that leave the path at end b.
            pub a_to_b: WanPath = WanPath::new(),
            /// Settings of the direction from b to a, in place of those of both directions: of frames that the
            /// switch sends to the port at end b, and that leave the path at end a.
            pub b_to_a: WanPath = WanPath::new(),
            /// The seed of all random draws: the same frames at the same times have the same outcome.
            pub seed: WanSeed = WanSeed::DEFAULT,
            /// The memory of each direction for frames on the path. Unset, the amount that rate, delay and
            /// queue need.
            pub memory: Option<WanMemory> = None,
            /// Frames that bypass the path: they are forwarded at once and unchanged.
            pub bypass: Vec<WanBypass> = Vec::new(),
            /// A file with timed changes, one on each line: `at 10s loss 1%`.
            pub scenario: Option<PathBuf> = None,
            /// Classes of frames with separate path settings.
            pub classes as "class": Vec<WanClass> = Vec::new(),
        }
    }
}

deserialize!(Wan, WanPath);

impl WanPath {
    /// Returns the settings by key.
    pub fn settings(&self) -> Vec<Setting> {
        fn text<T: fmt::Display>(value: &Option<T>) -> Option<String> {
            value.as_ref().map(ToString::to_string)
        }
        let all = [
            ("preset", text(&self.preset)),
            ("netem", text(&self.netem)),
            ("delay", text(&self.delay)),
            ("jitter", text(&self.jitter)),
            ("order", text(&self.order)),
            ("loss", text(&self.loss)),
            ("rate", text(&self.rate)),
            ("queue", text(&self.queue)),
            ("background", text(&self.background)),
            ("reorder", text(&self.reorder)),
            ("duplicate", text(&self.duplicate)),
            ("corrupt", text(&self.corrupt)),
            ("mtu", text(&self.mtu)),
            ("over_mtu", text(&self.over_mtu)),
            ("framing", text(&self.framing)),
        ];
        all.into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), text?)))
            .collect()
    }
}

impl Wan {
    /// Returns the settings.
    pub fn settings(&self) -> Settings {
        Settings {
            seed: self.seed.get().into(),
            memory: self.memory.as_ref().map(ToString::to_string),
            both: self.path.settings(),
            a_to_b: self.a_to_b.settings(),
            b_to_a: self.b_to_a.settings(),
        }
    }

    /// Returns the emulator's configuration of both directions, a to b first.
    ///
    /// # Errors
    /// [`SettingsError`] if settings contradict each other; a validated configuration has none.
    pub fn directions(&self) -> Result<[DirectionConfig; 2], SettingsError> {
        let mut directions = self.settings().directions()?;
        for class in &self.classes {
            let settings = Settings {
                both: class.path.settings(),
                ..Settings::default()
            };
            let [config, _] = settings.directions()?;
            for direction in &mut directions {
                direction.class.push(ClassConfig {
                    name: class.name.to_string(),
                    filter: class.matching.to_string(),
                    path: config.path.clone(),
                });
            }
        }
        for direction in &mut directions {
            direction.bypass = self.bypass.iter().map(|bypass| bypass.frames()).collect();
        }
        Ok(directions)
    }
}

impl WanBypass {
    fn frames(self) -> Bypass {
        match self {
            WanBypass::ArpNd => Bypass::ArpNd,
            WanBypass::Multicast => Bypass::Multicast,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_setting_of_the_emulator_is_a_key() {
        let keys: Vec<_> = WanPath::section().keys.iter().map(|key| key.name).collect();
        for key in millrace_wan_control::keys() {
            assert!(keys.contains(&key.replace('-', "_").as_str()), "{key}");
        }
        assert_eq!(keys.len(), millrace_wan_control::keys().count());
    }

    #[test]
    fn a_path_has_the_settings_of_both_directions_and_those_of_each() {
        let text = r#"
            [[wan]]
            name = "geo"
            seed = 7
            memory = "64MiB"
            bypass = ["arp-nd"]
            path = { delay = "250ms", loss = "1%" }
            b_to_a = { loss = "none", rate = "10Mbps" }
            [[wan.class]]
            name = "voice"
            match = "udp,tp_dst=5004"
            path = { delay = "20ms" }
        "#;
        let config = Config::from_toml("t", text).unwrap();
        let [forward, backward] = config.wans[0].directions().unwrap();
        let mut expected = PathConfig::default();
        expected.set("delay", "250ms").unwrap();
        let mut back = expected.clone();
        back.set("rate", "10Mbps").unwrap();
        expected.set("loss", "1%").unwrap();
        assert_eq!((&forward.path, &backward.path), (&expected, &back));
        assert_eq!(forward.class[0].name, "voice");
        assert_eq!(forward.bypass, [Bypass::ArpNd]);
        assert_eq!(Config::from_toml("t", &config.to_toml()).unwrap(), config);
    }
}
