//! `millrace bench chain`: the arguments, and the run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use millrace_process::is_installed;
use millrace_types::BitRate;

use super::error::{ChainBenchError, failed};
use super::ovs::{self, Ovs};
use super::plan::{Kind, Plan};
use super::results::{OVS, OVS_VHOST, Results, peer_of};
use super::sites::{self, Sites};
use super::steered::{Functions, SteeredRun, VirtioDriver};
use super::test_bed::TestBed;
use crate::experiments::guests::{self, System};
use crate::experiments::wan::link::WanLink;
use crate::record::Record;

/// The largest number of guests that forward: an emulated guest needs a processor.
const GUESTS_MAX: u16 = 4;
/// The size of the frames of guests in bytes, and the TCP payload of one: 1,500 bytes less 20 of IPv4, 20 of TCP and 12
/// of time stamps.
const GUEST_FRAME: u16 = 1518;
const GUEST_DATA: f64 = 1448.0;

/// The rate of chains of network functions, by length, kind and frame size (E4).
///
/// Each function swaps the MAC addresses of each frame, unless the kind says otherwise. Frame sizes include the check
/// sequence. Open vSwitch with DPDK is measured first, if it is installed, with functions behind its vhost-user ports.
/// Needs root.
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
    /// Limit the offered load to this rate on a wire, with preamble and gap, as in `10Gbps`; without it, offer as much
    /// as possible
    #[arg(long, value_name = "RATE")]
    offer: Option<BitRate>,
    /// Measure one TCP stream through a chain at the first of two sites. The path between the sites has these
    /// settings, as in "delay=10ms,rate=1Gbps"; the keys are those of `wan = {…}` in a lab file (E5;
    /// `--kind inline` and `--kind ring`)
    #[arg(long, value_name = "SETTINGS")]
    wan: Option<WanLink>,
    /// The module for `--kind wasm`; without it, the `macswap.wasm` that `cargo xtask wasm` builds
    #[arg(
        long,
        value_name = "FILE",
        default_value = "target/wasm/wasm32-unknown-unknown/release/examples/macswap.wasm"
    )]
    wasm: PathBuf,
    /// The number of rounds, of which medians are printed; guests are measured once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=99))]
    rounds: u16,
    /// Leave out Open vSwitch
    #[arg(long)]
    no_ovs: bool,
    /// Measure two frame sizes and four lengths for a short time: some minutes
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
    /// The folder for the records (chain.jsonl, or chain-wan.jsonl with --wan), which `millrace report` reads
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
}

impl ChainArgs {
    /// Returns the lengths, frame sizes and loads of the arguments, or the defaults.
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

    /// Returns the name of the function in the configuration.
    fn function(&self, kind: Kind) -> Result<String, ChainBenchError> {
        match kind {
            Kind::Wasm => {}
            Kind::RingMonitor | Kind::RingParallel => return Ok("monitor".to_owned()),
            _ => return Ok("macswap".to_owned()),
        }
        let path = std::fs::canonicalize(&self.wasm).map_err(failed(&self.wasm))?;
        Ok(format!("wasm:{}", path.display()))
    }

    /// Measures chains of virtual machines: the same guests and entries behind Open vSwitch, behind Millrace, and
    /// behind Millrace with segmentation offload (TSO).
    fn guests(&self, millraced: &Path, results: &mut Results) -> Result<(), ChainBenchError> {
        let mut lengths: Vec<u16> = match self.lengths.is_empty() {
            true => (1..=GUESTS_MAX).collect(),
            false => self.lengths.clone(),
        };
        lengths.retain(|length| *length <= GUESTS_MAX);
        let longest = lengths.iter().copied().max().unwrap_or(1);
        let window = Duration::from_secs(if self.quick { 3 } else { 10 });
        for system in System::ALL {
            if system == System::OvsDpdk && (self.no_ovs || !is_installed(ovs::DAEMON)) {
                continue;
            }
            results.measure(system.chain(), |results| {
                let test_bed = guests::TestBed::up(system, longest.into(), millraced)?;
                eprintln!("{}: guests run under {}", system.chain(), test_bed.accelerator());
                let path = results.log.path().to_owned();
                results
                    .log
                    .add(test_bed.record(system.chain()))
                    .map_err(failed(&path))?;
                for length in &lengths {
                    let transfer = test_bed.through((*length).into(), window)?;
                    let rate = transfer.bps / 8.0 / GUEST_DATA;
                    results.add(system.chain(), *length, GUEST_FRAME, rate)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Measures one TCP stream through each chain at the first of two sites.
    fn over_path(&self, wan: &WanLink, millraced: &Path) -> Result<(), ChainBenchError> {
        let mut results = Results::begin("chain-wan", &self.out, self.quick, self.json)?;
        let path = results.log.path().to_owned();
        let program = millrace_process::program_path("millrace-wan", "MILLRACE_WAN_PROGRAM");
        let emulator = Record::System {
            system: "millrace-wan".to_owned(),
            version: millrace_process::version(program),
            configuration: format!("between two sites: {wan}"),
        };
        results.log.add(emulator).map_err(failed(&path))?;
        let kinds = match self.kinds.as_slice() {
            [] => &[Kind::Inline, Kind::Ring],
            given => given,
        };
        let lengths = match self.lengths.as_slice() {
            [] => &[1, 2, 3],
            given => given,
        };
        let window = Duration::from_secs(if self.quick { 3 } else { 10 });
        let outcome = (0..self.rounds).rev().try_for_each(|left| {
            results.rounds_left = left;
            kinds.iter().try_for_each(|kind| match sites::name(*kind) {
                Some(name) => results.measure(name, |results| {
                    Sites::up(wan, millraced)?.chain((*kind, name), lengths, window, results)
                }),
                None => {
                    eprintln!("{}: not measured over a path", kind.name());
                    Ok(())
                }
            })
        });
        results.finish(outcome)
    }

    /// Measures all chains and prints the result. Progress goes to standard error. A kind that fails is recorded, and the
    /// others continue.
    ///
    /// # Errors
    /// [`ChainBenchError`]: SIGINT was received, or a kind failed. Earlier measurements are recorded.
    pub fn run(&self, beside: &Path) -> Result<(), ChainBenchError> {
        millrace_process::interrupt::install_handler();
        let millraced = self.millraced.as_deref().unwrap_or(beside);
        if let Some(wan) = &self.wan {
            return self.over_path(wan, millraced);
        }
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
        let mut results = Results::begin("chain", &self.out, self.quick, self.json)?;
        let (guests, kinds): (Vec<Kind>, Vec<Kind>) =
            kinds.into_iter().partition(|kind| *kind == Kind::Guest);
        let outcome = self.measure(&guests, &kinds, millraced, (core, functions_core), &mut results);
        results.finish(outcome)
    }

    /// Measures chains of virtual machines once, and those of other kinds in rounds.
    fn measure(
        &self,
        guests: &[Kind],
        kinds: &[Kind],
        millraced: &Path,
        cores: (usize, usize),
        results: &mut Results,
    ) -> Result<(), ChainBenchError> {
        if !guests.is_empty() {
            self.guests(millraced, results)?;
        }
        if kinds.is_empty() {
            return Ok(());
        }
        for left in (0..self.rounds).rev() {
            results.rounds_left = left;
            self.round(kinds, millraced, cores, results)?;
        }
        Ok(())
    }

    /// Measures Open vSwitch and the chains of these kinds once.
    fn round(
        &self,
        kinds: &[Kind],
        millraced: &Path,
        (core, functions_core): (usize, usize),
        results: &mut Results,
    ) -> Result<(), ChainBenchError> {
        let steered = |kind, driver| SteeredRun {
            kind,
            plan: self.plan(false),
            functions: Functions::new(functions_core, driver),
        };
        if self.no_ovs {
        } else if is_installed(ovs::DAEMON) {
            for (peer, driver) in [(OVS, VirtioDriver::Dpdk), (OVS_VHOST, VirtioDriver::Own)] {
                if kinds.iter().any(|kind| peer_of(kind.name()) == peer) {
                    results.measure(peer, |results| {
                        let mut ovs = Ovs::start(core, functions_core)?;
                        steered(peer, driver).run(&mut ovs, results)
                    })?;
                }
            }
        } else {
            eprintln!(
                "{} is not installed: there is no comparison with Open vSwitch",
                ovs::DAEMON
            );
        }
        for kind in kinds {
            let kind = *kind;
            results.measure(kind.name(), |results| {
                let mut test_bed = TestBed::start(millraced, core)?;
                if kind.is_steered() {
                    let driver = match kind {
                        Kind::Vhost => VirtioDriver::Own,
                        _ => VirtioDriver::Dpdk,
                    };
                    return steered(kind.name(), driver).run(&mut test_bed.with_virtual_nics(kind), results);
                }
                let function = self.function(kind)?;
                let inline = kind.class() == "inline";
                test_bed.chain(kind, &function, &self.plan(inline), results)
            })?;
        }
        Ok(())
    }
}
