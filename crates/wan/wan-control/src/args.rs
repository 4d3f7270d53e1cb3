//! The options of `millrace wan` and `millrace-wan`, defined once for both programs.

use std::path::PathBuf;

use clap::Args;

use crate::settings::{Change, Setting, Settings};
use crate::socket::default_socket;

/// Settings of a path. A value may begin with `-`, so that the error for a negative number names the number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct PathArgs {
    /// Begin with the settings of a known network: geo, leo, transatlantic, lte, …
    #[arg(long, allow_hyphen_values = true, value_name = "NAME")]
    pub preset: Option<String>,
    /// Begin with the options of tc-netem(8): "delay 100ms 10ms loss gemodel 1% 10%"
    #[arg(long, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub netem: Option<String>,
    /// The delay: 100ms, trace:FILE
    #[arg(long, allow_hyphen_values = true, value_name = "DELAY")]
    pub delay: Option<String>,
    /// The variation of the delay: 5ms; 5ms,normal,half-life=50ms; also exponential, gamma, pareto, pareto-normal, table:FILE
    #[arg(long, allow_hyphen_values = true, value_name = "JITTER")]
    pub jitter: Option<String>,
    /// Keep frames in order in spite of jitter: ordered (default), reordering
    #[arg(long, allow_hyphen_values = true, value_name = "ORDER")]
    pub order: Option<String>,
    /// Loss: 1%; ge:1%,burst=8; 4-state:…; every:100; ber:1e-9; outage:up=30s,down=2s; trace:FILE; `;`
    /// separates several
    #[arg(long, allow_hyphen_values = true, value_name = "LOSS")]
    pub loss: Option<String>,
    /// The rate: 1Gbps, mahimahi:FILE
    #[arg(long, allow_hyphen_values = true, value_name = "RATE")]
    pub rate: Option<String>,
    /// The queue before the rate: 250ms (default), 100packets, 64KiB; with RED: 250ms,red,min=25%,max=75%,probability=10%
    #[arg(long, allow_hyphen_values = true, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Other traffic on the path: 30%; on-off:80%,on=100ms,off=400ms
    #[arg(long, allow_hyphen_values = true, value_name = "TRAFFIC")]
    pub background: Option<String>,
    /// Reorder frames: 1%,extra=5ms; 25%,ahead,gap=5
    #[arg(long, allow_hyphen_values = true, value_name = "REORDER")]
    pub reorder: Option<String>,
    /// Duplicate frames: 0.1%
    #[arg(long, allow_hyphen_values = true, value_name = "DUPLICATE")]
    pub duplicate: Option<String>,
    /// Flip bits: 0.1%; 0.1%,bits=3,deliver; ber:1e-9,undetectable
    #[arg(long, allow_hyphen_values = true, value_name = "CORRUPT")]
    pub corrupt: Option<String>,
    /// The MTU of the path
    #[arg(long, allow_hyphen_values = true, value_name = "BYTES")]
    pub mtu: Option<String>,
    /// Frames over the MTU: drop (default), too-big
    #[arg(long, allow_hyphen_values = true, value_name = "POLICY")]
    pub over_mtu: Option<String>,
    /// Bytes that the rate counts besides the payload: ethernet (18, default), ethernet-gap (38), ppp, atm, custom:BYTES
    #[arg(long, allow_hyphen_values = true, value_name = "FRAMING")]
    pub framing: Option<String>,
}

impl PathArgs {
    /// Returns the settings of the command line.
    pub fn settings(&self) -> Vec<Setting> {
        let given = [
            ("preset", &self.preset),
            ("netem", &self.netem),
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("order", &self.order),
            ("loss", &self.loss),
            ("rate", &self.rate),
            ("queue", &self.queue),
            ("background", &self.background),
            ("reorder", &self.reorder),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("mtu", &self.mtu),
            ("over_mtu", &self.over_mtu),
            ("framing", &self.framing),
        ];
        given
            .into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), text.clone()?)))
            .collect()
    }
}

/// Settings of both directions, and of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct DirectionArgs {
    #[command(flatten)]
    pub both: PathArgs,
    /// Settings of frames from the first interface to the second only: "delay=70ms loss=1%"
    #[arg(long, value_name = "SETTINGS", value_parser = pairs)]
    pub a_to_b: Option<SettingsText>,
    /// Settings of frames from the second interface to the first only
    #[arg(long, value_name = "SETTINGS", value_parser = pairs)]
    pub b_to_a: Option<SettingsText>,
}

impl DirectionArgs {
    /// Returns the settings of the command line.
    pub fn change(&self) -> Change {
        let of = |pairs: &Option<SettingsText>| pairs.clone().map(|pairs| pairs.0).unwrap_or_default();
        Change {
            both: self.both.settings(),
            a_to_b: of(&self.a_to_b),
            b_to_a: of(&self.b_to_a),
        }
    }
}

/// Settings of one direction, as one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsText(Vec<Setting>);

/// Parses `key=text key=text`.
fn pairs(text: &str) -> Result<SettingsText, String> {
    let pair = |word: &str| {
        word.split_once('=')
            .filter(|(key, text)| !key.is_empty() && !text.is_empty())
            .map(|(key, text)| (key.replace('-', "_"), text.to_owned()))
            .ok_or_else(|| {
                format!("`{word}`: expected key=text with blanks between, as in \"delay=70ms loss=1%\"")
            })
    };
    text.split_whitespace()
        .map(pair)
        .collect::<Result<_, _>>()
        .map(SettingsText)
}

/// A path between two interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct BetweenArgs {
    /// The first interface, end a: eth1, or DPDK devargs such as net_af_xdp0,iface=eth1
    pub a: String,
    /// The second interface, end b
    pub b: String,
    #[command(flatten)]
    pub settings: DirectionArgs,
    /// Changes after a time, one a line: at 10s loss 1%
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// The seed of all random draws
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// The memory of each direction; required without a rate, otherwise computed from rate, delay and queue
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// The control socket, for `millrace wan show` and `set`; by default one in /run/millrace/wan
    #[arg(long, value_name = "SOCKET", env = "MILLRACE_WAN", hide_env_values = true)]
    pub control: Option<PathBuf>,
    /// The cores to run on, one thread each: 2 or 2,3; by default one thread, or two on four cores or more
    #[arg(long, value_name = "CORES", value_delimiter = ',', num_args = 1..=2)]
    pub cores: Vec<u16>,
    /// Never sleep: the smallest error of arrival times, at full use of the cores
    #[arg(long)]
    pub poll: bool,
}

impl BetweenArgs {
    /// Returns the settings of the path.
    pub fn settings(&self) -> Settings {
        let Change { both, a_to_b, b_to_a } = self.settings.change();
        Settings {
            seed: self.seed,
            memory: self.memory.clone(),
            both,
            a_to_b,
            b_to_a,
        }
    }

    /// Returns the command line words of these options.
    pub fn words(&self) -> Vec<String> {
        let option = |key: &str, text: &str| [format!("--{}", key.replace('_', "-")), text.to_owned()];
        let list = |settings: &[Setting]| {
            let words = settings.iter().map(|(key, text)| format!("{key}={text}"));
            words.collect::<Vec<_>>().join(" ")
        };
        let mut words = vec![self.a.clone(), self.b.clone()];
        let Change { both, a_to_b, b_to_a } = self.settings.change();
        words.extend(both.iter().flat_map(|(key, text)| option(key, text)));
        for (key, settings) in [("a_to_b", a_to_b), ("b_to_a", b_to_a)] {
            if !settings.is_empty() {
                words.extend(option(key, &list(&settings)));
            }
        }
        let scenario = self.scenario.as_ref().map(|path| path.display().to_string());
        let control = self.control.as_ref().map(|path| path.display().to_string());
        let cores: Vec<_> = self.cores.iter().map(u16::to_string).collect();
        let others = [
            ("scenario", scenario),
            ("seed", Some(self.seed.to_string())),
            ("memory", self.memory.clone()),
            ("control", control),
            ("cores", (!cores.is_empty()).then(|| cores.join(","))),
        ];
        for (key, text) in others {
            words.extend(text.iter().flat_map(|text| option(key, text)));
        }
        words.extend(self.poll.then(|| "--poll".to_owned()));
        words
    }

    /// Returns the control socket.
    pub fn socket(&self) -> PathBuf {
        self.control
            .clone()
            .unwrap_or_else(|| default_socket(&self.a, &self.b))
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        between: BetweenArgs,
    }

    fn parse(words: &[&str]) -> Result<BetweenArgs, clap::Error> {
        Cli::try_parse_from([&["wan"], words].concat()).map(|cli| cli.between)
    }

    #[test]
    fn every_key_of_the_emulator_is_an_option_and_nothing_else_is() {
        let command = PathArgs::augment_args(clap::Command::new("path"));
        let mut options: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let mut keys: Vec<_> = crate::settings::keys().collect();
        options.sort_unstable();
        keys.sort_unstable();
        assert_eq!(options, keys);
        Cli::command().debug_assert();
    }

    #[test]
    fn a_negative_number_is_the_value_of_its_option() {
        for option in ["--delay", "--rate", "--loss", "--mtu"] {
            let between = parse(&["eth1", "eth2", option, "-5ms"]).unwrap();
            assert_eq!(between.settings.both.settings().len(), 1, "{option}");
        }
    }

    #[test]
    fn the_words_of_options_parse_to_the_same_options() {
        let words = [
            "eth1",
            "eth2",
            "--delay",
            "50ms",
            "--over-mtu",
            "drop",
            "--a-to-b",
            "loss=1% rate=1Gbps",
            "--seed",
            "7",
            "--memory",
            "1GiB",
            "--cores",
            "1,2",
            "--poll",
            "--scenario",
            "s.txt",
        ];
        let between = parse(&words).unwrap();
        let again = between.words();
        let again: Vec<&str> = again.iter().map(String::as_str).collect();
        assert_eq!(parse(&again).unwrap(), between);
    }

    #[test]
    fn options_are_settings_of_both_directions_and_of_one() {
        let between = parse(&[
            "eth1",
            "eth2",
            "--delay",
            "50ms",
            "--over-mtu",
            "too-big",
            "--a-to-b",
            "delay=70ms over-mtu=drop",
        ])
        .unwrap();
        let settings = between.settings();
        let pair = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        assert_eq!(
            settings.both,
            [pair("delay", "50ms"), pair("over_mtu", "too-big")]
        );
        assert_eq!(settings.a_to_b, [pair("delay", "70ms"), pair("over_mtu", "drop")]);
        assert!(parse(&["eth1", "eth2", "--a-to-b", "delay"]).is_err());
    }
}
