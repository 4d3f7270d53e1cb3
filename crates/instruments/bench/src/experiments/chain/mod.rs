//! `millrace bench chain`: the rate of a chain of network functions as it grows (experiment E4).
//!
//! One switch with one worker; port 1 gives frames without end (`net_null`), entries send them through the functions and
//! what comes out to a port that swallows. Every function exchanges the two MAC addresses of every frame. The worker has a
//! core of its own; processes of functions share another. What is offered is more than can be carried, or a rate: then the
//! switch's policer lets in so much of what the source gives.
//!
//! Guests ([`crate::experiments::guests`]) are measured by a TCP stream through virtual machines that forward, with as many frames of
//! 1,518 bytes as the data take; of them only where they are asked for by name, as booting them takes its time.
//!
//! Functions are hops of a chain ([`site`]), or they are processes behind virtual NICs and flow entries steer from one
//! to the next ([`steered`]). The latter are measured on Open vSwitch with DPDK, too ([`ovs`]): the same processes, behind
//! its vhost-user ports, with the same entries. Functions with our own virtio driver are compared with those there, all others
//! with functions that have DPDK's, as an Open vSwitch finds them.

mod ovs;
pub(crate) mod section;
mod site;
mod steered;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use millrace_api::client::ClientError;
use millrace_types::BitRate;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::experiments::guests::{self, System};
use crate::machine::Machine;
use crate::record::{Log, Record};
use millrace_process::{ProcessError, in_path};
use millrace_report::stats::Summary;
use ovs::Ovs;
use site::Site;
use steered::{Course, Functions, VirtioDriver};

/// Ports: where frames come from, where they go, the ends of the chain, before the first function.
const SOURCE: u32 = 1;
const SINK: u32 = 2;
const NEAR: u32 = 100;
const FAR: u32 = 101;
/// Guests that forward, at most: each takes a processor while it is emulated.
const GUESTS_MAX: u16 = 4;
/// How long a daemon, a chain, or a function, may take to begin.
const START: Duration = Duration::from_secs(30);
/// After a change, before counting.
const WARM_UP: Duration = Duration::from_millis(500);
/// Size of a frame's check sequence in bytes.
const FCS_SIZE: u16 = 4;
/// Size of preamble and gap in bytes, which a frame takes on a wire besides.
const GAP_SIZE: u16 = 20;
/// What Open vSwitch is called in results, with DPDK's functions and with ours.
const OVS: &str = "ovs-virtio-user";
const OVS_VHOST: &str = "ovs-vhost";
/// The frame that guests send, of which so much is data: 20 bytes of IPv4, 20 of TCP and 12 of its time stamps are not.
const GUEST_FRAME: u16 = 1518;
const GUEST_DATA: f64 = 1448.0;

/// With whom a kind is compared.
fn peer_of(kind: &str) -> &'static str {
    match kind {
        "vhost" | OVS_VHOST => OVS_VHOST,
        kind if kind.contains("guest") => System::OvsDpdk.chain(),
        _ => OVS,
    }
}

/// Where functions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// In the worker
    Inline,
    /// In the worker, as WebAssembly modules
    Wasm,
    /// In processes that map the memory of packets
    Ring,
    /// The same, with functions that only read packets (`monitor`), one after the other (not among the usual)
    RingMonitor,
    /// The same, with all given packets at the same time (not among the usual)
    RingParallel,
    /// In processes that packets are copied to and from
    Isolated,
    /// In processes behind vhost-user ports, steered by flow entries: millrace-nf with its own virtio driver
    Vhost,
    /// The same, with DPDK's driver, net_virtio_user
    VirtioUser,
    /// In processes behind memif ports, steered by flow entries
    Memif,
    /// Virtual machines that forward, steered by flow entries: one TCP stream (not among the usual)
    Guest,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Inline => "inline",
            Kind::Wasm => "wasm",
            Kind::Ring => "ring",
            Kind::RingMonitor => "ring-monitor",
            Kind::RingParallel => "ring-parallel",
            Kind::Isolated => "isolated",
            Kind::Vhost => "vhost",
            Kind::VirtioUser => "virtio-user",
            Kind::Memif => "memif",
            Kind::Guest => System::Millrace.chain(),
        }
    }

    /// What hops of such functions say.
    const fn class(self) -> &'static str {
        match self {
            Kind::Wasm => "inline",
            Kind::RingMonitor | Kind::RingParallel => "ring",
            other => other.name(),
        }
    }

    const fn is_steered(self) -> bool {
        matches!(self, Kind::Vhost | Kind::VirtioUser | Kind::Memif)
    }
}

/// The rate of chains of network functions, by length, kind and frame size (E4).
///
/// Each function exchanges the MAC addresses of each frame, unless the kind says otherwise. Frame sizes count the check sequence. Open vSwitch with DPDK
/// is measured first, where it is installed, through functions behind its vhost-user ports. Needs root.
#[derive(Debug, Clone, Args)]
pub struct ChainArgs {
    /// Only this kind; may be given several times
    #[arg(long = "kind", value_name = "KIND", value_enum)]
    kinds: Vec<Kind>,
    /// Only this length; may be given several times
    #[arg(long = "length", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    lengths: Vec<u16>,
    /// Only this frame size; may be given several times
    #[arg(long = "frame", value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=1518))]
    frames: Vec<u16>,
    /// Offer so much, as on a wire with preamble and gap, as in `10Gbps`; without it, more than can be carried
    #[arg(long, value_name = "RATE")]
    offer: Option<BitRate>,
    /// The module for `--kind wasm`; without it, `macswap.wasm` where `cargo xtask wasm` puts it
    #[arg(
        long,
        value_name = "FILE",
        default_value = "target/wasm/wasm32-unknown-unknown/release/examples/macswap.wasm"
    )]
    wasm: PathBuf,
    /// Measure everything so often, in turn, and tell medians; guests are measured once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Without Open vSwitch
    #[arg(long)]
    no_ovs: bool,
    /// Two frame sizes, four lengths and short measurements: some minutes
    #[arg(long)]
    quick: bool,
    /// Print a JSON line for each point instead of a table
    #[arg(long)]
    json: bool,
    /// The daemon to measure; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    millraced: Option<PathBuf>,
    /// The core of the worker; the last one unless given
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// Where records go, for `millrace report`
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
}

/// Why there is no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChainBenchError {
    /// A program did not do what it should.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Guests, or the switch that they are behind.
    #[error(transparent)]
    Guests(#[from] crate::peer::PeerError),
    /// The daemon says no.
    #[error("millraced: {0}")]
    Api(#[from] ClientError),
    /// A file.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The chain carries nothing.
    #[error("a chain of {length} {kind} functions carries nothing: {reason}\n{log}")]
    Silent {
        /// How many functions.
        length: u16,
        /// Of which kind.
        kind: &'static str,
        /// What is wrong, as far as the daemon says.
        reason: String,
        /// The end of the daemon's log.
        log: String,
    },
}

/// A measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where functions run, or on which other switch.
    pub kind: String,
    /// How many functions.
    pub length: u16,
    /// Size of a frame with its check sequence in bytes.
    pub frame: u16,
    /// Packets that came out, millions a second.
    pub mpps: f64,
    /// The same on a wire, with preamble and gap.
    pub gbps: f64,
    /// The rate, as a part of that of a chain of one function.
    pub ratio_one_hop: f64,
    /// The rate, as a multiple of that of Open vSwitch with as many functions behind vhost-user ports.
    pub ratio_ovs: Option<f64>,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> ChainBenchError + use<> {
    let path = path.to_owned();
    move |source| ChainBenchError::File { path, source }
}

/// Takes points as they come: prints them, and writes them down.
struct Results {
    json: bool,
    log: Log,
    /// Rounds that are still to come after this one.
    rounds_left: u16,
    /// By kind, length and frame: what was measured so far.
    rates: HashMap<(&'static str, u16, u16), Vec<f64>>,
    /// By kind and frame: the first length, to whose rate that of others is compared.
    ones: HashMap<(&'static str, u16), u16>,
}

impl Results {
    fn begin(args: &ChainArgs) -> Result<Results, ChainBenchError> {
        std::fs::create_dir_all(&args.out).map_err(failed(&args.out))?;
        let path = args.out.join("chain.jsonl");
        let mut log = Log::create(&path).map_err(failed(&path))?;
        let started = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        log.add(Record::Run {
            experiment: "chain".to_owned(),
            started,
            quick: args.quick,
            machine: Box::new(Machine::describe(0)),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        })
        .map_err(failed(&path))?;
        let results = Results {
            json: args.json,
            log,
            rounds_left: 0,
            rates: HashMap::new(),
            ones: HashMap::new(),
        };
        if !args.json {
            results.print(&format!(
                "{:15} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9}",
                "kind", "length", "frame", "Mpps", "Gbit/s", "of one", "of OVS"
            ))?;
        }
        Ok(results)
    }

    fn print(&self, line: &str) -> Result<(), ChainBenchError> {
        writeln!(std::io::stdout().lock(), "{line}").map_err(failed(Path::new("standard output")))
    }

    /// The median of the ratios of two rates that were measured in the same round, and so not long after each other: what
    /// slows a machine down for some seconds hits both.
    fn ratio(&self, of: (&'static str, u16, u16), to: (&'static str, u16, u16)) -> Option<f64> {
        let pairs = self.rates.get(&of)?.iter().zip(self.rates.get(&to)?);
        let ratios: Vec<f64> = pairs.map(|(of, to)| of / to).collect();
        Summary::of(&ratios).map(|summary| summary.median)
    }

    /// Takes what one round measured; in the last one it tells the median of all.
    fn add(&mut self, kind: &'static str, length: u16, frame: u16, rate: f64) -> Result<(), ChainBenchError> {
        let rates = self.rates.entry((kind, length, frame)).or_default();
        rates.push(rate);
        if self.rounds_left != 0 {
            return Ok(());
        }
        let rate = Summary::of(rates).map_or(rate, |summary| summary.median);
        let of = (kind, length, frame);
        let one = *self.ones.entry((kind, frame)).or_insert(length);
        let point = Point {
            kind: kind.to_owned(),
            length,
            frame,
            mpps: rate / 1e6,
            gbps: rate * f64::from(frame + GAP_SIZE) * 8.0 / 1e9,
            ratio_one_hop: self.ratio(of, (kind, one, frame)).unwrap_or(1.0),
            ratio_ovs: self.ratio(of, (peer_of(kind), length, frame)),
        };
        let path = self.log.path().to_owned();
        self.log
            .add(Record::Chain(Box::new(point.clone())))
            .map_err(failed(&path))?;
        self.print(&match self.json {
            true => serde_json::to_string(&point).unwrap_or_default(),
            false => format!(
                "{:15} {:>6} {:>6} {:>9.3} {:>9.3} {:>9.2} {:>9}",
                point.kind,
                length,
                frame,
                point.mpps,
                point.gbps,
                point.ratio_one_hop,
                point
                    .ratio_ovs
                    .map_or_else(String::new, |ratio| format!("{ratio:.2}"))
            ),
        })
    }
}

/// What a source gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offer {
    /// Size of a frame with its check sequence in bytes.
    frame: u16,
    /// At most so much on a wire.
    rate: Option<BitRate>,
}

impl Offer {
    /// Returns the size of a frame as drivers and meters count them: without the check sequence in bytes.
    const fn size(self) -> u16 {
        self.frame - FCS_SIZE
    }

    /// Returns the rate as meters count it: without check sequence, preamble and gap.
    fn metered(self) -> Option<BitRate> {
        let part = |bps: u64| bps * u64::from(self.size()) / u64::from(self.frame + GAP_SIZE);
        self.rate.map(|rate| BitRate::from_bps(part(rate.bps())))
    }
}

/// What is to be measured of each kind.
#[derive(Debug, Clone)]
struct Plan {
    lengths: Vec<u16>,
    frames: Vec<u16>,
    rate: Option<BitRate>,
    window: Duration,
}

impl Plan {
    fn offers(&self) -> impl Iterator<Item = Offer> + use<> {
        let rate = self.rate;
        self.frames
            .clone()
            .into_iter()
            .map(move |frame| Offer { frame, rate })
    }
}

impl ChainArgs {
    fn plan(&self, inline: bool) -> Plan {
        let lengths: &[u16] = match (inline, self.quick) {
            (true, true) => &[1, 2, 4, 8, 16],
            (false, true) => &[1, 2, 4, 8],
            (true, false) => &[1, 2, 3, 4, 5, 6, 7, 8, 12, 16],
            (false, false) => &[1, 2, 3, 4, 5, 6, 7, 8],
        };
        let (frames, window): (&[u16], _) = match self.quick {
            true => (&[64, 1518], Duration::from_secs(1)),
            false => (&[64, 128, 256, 512, 1024, 1518], Duration::from_secs(5)),
        };
        let chosen = |given: &[u16], usual: &[u16]| if given.is_empty() { usual } else { given }.to_vec();
        Plan {
            lengths: chosen(&self.lengths, lengths),
            frames: chosen(&self.frames, frames),
            rate: self.offer,
            window,
        }
    }

    /// What the configuration calls the function.
    fn function(&self, kind: Kind) -> Result<String, ChainBenchError> {
        match kind {
            Kind::Wasm => {}
            Kind::RingMonitor | Kind::RingParallel => return Ok("monitor".to_owned()),
            _ => return Ok("macswap".to_owned()),
        }
        let path = std::fs::canonicalize(&self.wasm).map_err(failed(&self.wasm))?;
        Ok(format!("wasm:{}", path.display()))
    }

    /// Chains of virtual machines: the same entries and guests behind Open vSwitch, and behind Millrace without and with
    /// long TCP packets.
    fn guests(&self, millraced: &Path, results: &mut Results) -> Result<(), ChainBenchError> {
        let mut lengths: Vec<u16> = match self.lengths.is_empty() {
            true => (1..=GUESTS_MAX).collect(),
            false => self.lengths.clone(),
        };
        lengths.retain(|length| *length <= GUESTS_MAX);
        let longest = lengths.iter().copied().max().unwrap_or(1);
        let window = Duration::from_secs(if self.quick { 3 } else { 10 });
        for system in System::ALL {
            if system == System::OvsDpdk && (self.no_ovs || !in_path(ovs::DAEMON)) {
                continue;
            }
            let site = guests::Site::up(system, longest.into(), millraced)?;
            eprintln!("{}: guests run under {}", system.chain(), site.accelerator());
            let path = results.log.path().to_owned();
            results
                .log
                .add(site.record(system.chain()))
                .map_err(failed(&path))?;
            for length in &lengths {
                let transfer = site.through((*length).into(), window)?;
                let rate = transfer.bps / 8.0 / GUEST_DATA;
                results.add(system.chain(), *length, GUEST_FRAME, rate)?;
            }
        }
        Ok(())
    }

    /// Does it, and prints the result; progress goes to standard error.
    ///
    /// # Errors
    /// [`ChainBenchError`].
    pub fn run(&self, beside: &Path) -> Result<(), ChainBenchError> {
        let millraced = self.millraced.as_deref().unwrap_or(beside);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let core = self.core.unwrap_or(cores - 1);
        let functions_core = if core == 0 { cores - 1 } else { 0 };
        let kinds = match self.kinds.is_empty() {
            true => vec![
                Kind::Inline,
                Kind::Ring,
                Kind::Isolated,
                Kind::Vhost,
                Kind::VirtioUser,
                Kind::Memif,
            ],
            false => self.kinds.clone(),
        };
        let mut results = Results::begin(self)?;
        let (guests, kinds): (Vec<Kind>, Vec<Kind>) =
            kinds.into_iter().partition(|kind| *kind == Kind::Guest);
        if !guests.is_empty() {
            self.guests(millraced, &mut results)?;
        }
        if kinds.is_empty() {
            return Ok(());
        }
        for left in (0..self.rounds).rev() {
            results.rounds_left = left;
            self.round(&kinds, millraced, (core, functions_core), &mut results)?;
        }
        Ok(())
    }

    /// Measures Open vSwitch and chains of these kinds once.
    fn round(
        &self,
        kinds: &[Kind],
        millraced: &Path,
        (core, functions_core): (usize, usize),
        results: &mut Results,
    ) -> Result<(), ChainBenchError> {
        let steered = |kind, driver| Course {
            kind,
            plan: self.plan(false),
            functions: Functions::new(functions_core, driver),
        };
        if self.no_ovs {
        } else if in_path(ovs::DAEMON) {
            for (peer, driver) in [(OVS, VirtioDriver::Dpdk), (OVS_VHOST, VirtioDriver::Own)] {
                if kinds.iter().any(|kind| peer_of(kind.name()) == peer) {
                    let mut ovs = Ovs::start(core, functions_core)?;
                    steered(peer, driver).run(&mut ovs, results)?;
                }
            }
        } else {
            eprintln!(
                "{} is not there, so there is nothing to compare with",
                ovs::DAEMON
            );
        }
        for kind in kinds {
            let (kind, mut site) = (*kind, Site::start(millraced, core)?);
            if kind.is_steered() {
                let driver = match kind {
                    Kind::Vhost => VirtioDriver::Own,
                    _ => VirtioDriver::Dpdk,
                };
                steered(kind.name(), driver).run(&mut site.behind(kind), results)?;
            } else {
                let function = self.function(kind)?;
                let inline = kind.class() == "inline";
                site.chain(kind, &function, &self.plan(inline), results)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_counts_as_on_a_wire_and_is_metered_without_what_is_only_there() {
        let rate = Some("10Gbps".parse().unwrap());
        let offer = Offer { frame: 1518, rate };
        // 812,744 frames of 1,514 bytes.
        assert_eq!(offer.metered().map(BitRate::bps), Some(9_843_953_185));
        let flat_out = Offer {
            frame: 64,
            rate: None,
        };
        assert_eq!((flat_out.size(), flat_out.metered()), (60, None));
    }
}
