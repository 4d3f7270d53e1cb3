//! `millrace bench chain`: the rate of a chain of network functions as it grows (experiment E4).
//!
//! One daemon with one worker; port 1 gives frames without end (`net_null`), flow entries send them into the chain and
//! what comes out of it to a port that swallows. The chain is edited while packets flow, so that all lengths are measured
//! on the same running switch. Every function exchanges the two MAC addresses of every frame. The worker has a core of its
//! own; processes of functions share the others. What is offered is more than can be carried: what does not fit is dropped
//! at the entry, before any function has seen it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use millrace_api::client::{ChangeOptions, Client, ClientError};
use serde::Serialize;
use serde_json::{Value as Json, json};
use thiserror::Error;

use crate::process::{ProcessError, Running, free_port, pause, tool};

const BRIDGE: &str = "br0";
/// Ports: where frames come from, where they go, the ends of the chain.
const SOURCE: u32 = 1;
const SINK: u32 = 2;
const NEAR: u32 = 100;
const FAR: u32 = 101;
/// How long the daemon, and a chain, may take to begin.
const START: Duration = Duration::from_secs(30);
/// After a change, before counting.
const WARM_UP: Duration = Duration::from_millis(500);

/// Where functions run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// In the worker
    Inline,
    /// In processes that map the memory of packets
    Ring,
    /// In processes that packets are copied to and from
    Isolated,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Inline => "inline",
            Kind::Ring => "ring",
            Kind::Isolated => "isolated",
        }
    }
}

/// The rate of chains of network functions, by length, kind and frame size (E4).
///
/// Each function exchanges the MAC addresses of each frame. Frame sizes count the check sequence. Needs root.
#[derive(Debug, Clone, Args)]
pub struct ChainArgs {
    /// Only this kind; may be given several times
    #[arg(long = "kind", value_name = "KIND", value_enum)]
    kinds: Vec<Kind>,
    /// Two frame sizes, four lengths and short measurements: about two minutes
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
}

/// Why there is no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChainBenchError {
    /// A program did not do what it should.
    #[error(transparent)]
    Process(#[from] ProcessError),
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
#[derive(Debug, Clone, Copy, Serialize)]
struct Point {
    kind: &'static str,
    length: u16,
    /// Bytes of a frame with its check sequence.
    frame: u16,
    mpps: f64,
    gbps: f64,
    /// The rate, as a part of that of a chain of one function.
    ratio_one_hop: f64,
    /// The rate, as a multiple of that of Open vSwitch with DPDK; not measured here.
    ratio_ovs: Option<f64>,
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> ChainBenchError + use<> {
    let path = path.to_owned();
    move |source| ChainBenchError::File { path, source }
}

struct Site {
    daemon: Running,
    client: Client,
    _dir: tempfile::TempDir,
}

impl Site {
    fn start(millraced: &Path, core: usize) -> Result<Site, ChainBenchError> {
        let dir = tempfile::tempdir().map_err(failed(Path::new("/tmp")))?;
        let (api, openflow) = (free_port()?, free_port()?);
        let at = dir.path().display();
        let text = format!(
            "[system]\nworker_cores = [{core}]\nidle = \"busy\"\nhuge_pages = \"auto\"\nstate_dir = \"{at}/state\"\n\
             [api]\nlisten = \"127.0.0.1:{api}\"\n\
             [[bridge]]\nname = \"{BRIDGE}\"\nlisten = [\"ptcp:{openflow}:127.0.0.1\"]\n\
             [[bridge.port]]\nname = \"sink\"\nnumber = {SINK}\ndevice = \"net_null_sink\"\n"
        );
        let file = dir.path().join("millraced.toml");
        std::fs::write(&file, text).map_err(failed(&file))?;
        let mut command = Command::new(millraced);
        command.arg("--config").arg(&file);
        let mut daemon = Running::start("millraced", &command, -10, &dir.path().join("log"))?;
        let client = Client::new(&format!("http://127.0.0.1:{api}"), None, None)?;
        daemon.wait_for("readiness", START, |_| {
            Ok(client.ready().is_ok_and(|ready| ready.ready).then_some(()))
        })?;
        for (from, to) in [(SOURCE, NEAR), (FAR, SINK)] {
            let mut ofctl = Command::new("ovs-ofctl");
            ofctl.args([
                "-O",
                "OpenFlow13",
                "add-flow",
                &format!("tcp:127.0.0.1:{openflow}"),
            ]);
            tool(ofctl.arg(format!("in_port={from},actions=output:{to}")))?;
        }
        Ok(Site {
            daemon,
            client,
            _dir: dir,
        })
    }

    /// Makes the ports of the bridge, but for the sink, and its chains what is given.
    fn configure(&self, source: Option<u16>, chain: Json) -> Result<(), ChainBenchError> {
        let (mut config, revision) = self.client.config()?;
        let bridge = &mut config["bridge"][0];
        let sink = json!({"name": "sink", "number": SINK, "device": "net_null_sink"});
        let source = source.map(|frame| {
            // The driver counts without the check sequence.
            let device = format!("net_null_{frame},size={}", frame - 4);
            json!({"name": "source", "number": SOURCE, "device": device})
        });
        bridge["port"] = [Some(sink), source].into_iter().flatten().collect();
        bridge["chain"] = chain;
        let options = ChangeOptions::default();
        self.client.replace_config(&config, Some(revision), &options)?;
        Ok(())
    }

    fn carried(&self) -> Result<u64, ChainBenchError> {
        let ports = self.client.ports(BRIDGE)?;
        let sink = ports.iter().find(|port| port.number == SINK);
        Ok(sink.map_or(0, |port| port.tx.packets))
    }

    /// Packets a second through a chain of so many functions.
    fn rate(
        &mut self,
        kind: Kind,
        length: u16,
        frame: u16,
        window: Duration,
    ) -> Result<f64, ChainBenchError> {
        let hop =
            |number: u16| json!({"name": format!("f{number}"), "function": "macswap", "class": kind.name()});
        let hops: Json = (0..length).map(hop).collect();
        let chain = json!([{"name": "chain", "number": NEAR, "far": FAR, "hop": hops}]);
        self.configure(Some(frame), chain)?;
        let deadline = Instant::now() + START;
        let mut before = self.carried()?;
        loop {
            pause(WARM_UP)?;
            self.daemon.check()?;
            let chains = self.client.chains(BRIDGE)?;
            let hops = chains.first().map_or(&[][..], |chain| &chain.hops);
            let ready = hops.len() == usize::from(length)
                && hops
                    .iter()
                    .all(|hop| hop.class == kind.name() && hop.state == "up" && hop.packets > 0);
            let now = self.carried()?;
            if ready && now > before {
                break;
            }
            before = now;
            if Instant::now() > deadline {
                let troubles = self.client.status()?.troubles;
                return Err(ChainBenchError::Silent {
                    length,
                    kind: kind.name(),
                    reason: troubles.first().map_or_else(
                        || "its hops do not come up".to_owned(),
                        |trouble| trouble.message.clone(),
                    ),
                    log: self.daemon.tail(),
                });
            }
        }
        pause(WARM_UP)?;
        let (from, start) = (self.carried()?, Instant::now());
        pause(window)?;
        let (to, elapsed) = (self.carried()?, start.elapsed());
        Ok((to - from) as f64 / elapsed.as_secs_f64())
    }
}

impl ChainArgs {
    /// Does it, and prints the result; progress goes to standard error.
    ///
    /// # Errors
    /// [`ChainBenchError`].
    pub fn run(&self, beside: &Path) -> Result<(), ChainBenchError> {
        let millraced = self.millraced.as_deref().unwrap_or(beside);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut site = Site::start(millraced, self.core.unwrap_or(cores - 1))?;
        let (frames, window): (&[u16], _) = match self.quick {
            true => (&[64, 1518], Duration::from_secs(1)),
            false => (&[64, 128, 256, 512, 1024, 1518], Duration::from_secs(5)),
        };
        let kinds = match self.kinds.is_empty() {
            true => vec![Kind::Inline, Kind::Ring, Kind::Isolated],
            false => self.kinds.clone(),
        };
        let out = &mut std::io::stdout().lock();
        let written = failed(Path::new("standard output"));
        let mut write = |text: String| writeln!(out, "{text}");
        let mut outcome = Ok(());
        if !self.json {
            outcome = write(format!(
                "{:9} {:>6} {:>6} {:>9} {:>9} {:>9}",
                "kind", "length", "frame", "Mpps", "Gbit/s", "of one"
            ));
        }
        for kind in kinds {
            let lengths: &[u16] = match (kind, self.quick) {
                (Kind::Inline, true) => &[1, 2, 4, 8, 16],
                (_, true) => &[1, 2, 4, 8],
                (Kind::Inline, false) => &[1, 2, 3, 4, 5, 6, 7, 8, 12, 16],
                (_, false) => &[1, 2, 3, 4, 5, 6, 7, 8],
            };
            for frame in frames {
                let mut one = None;
                for length in lengths {
                    let rate = site.rate(kind, *length, *frame, window)?;
                    let point = Point {
                        kind: kind.name(),
                        length: *length,
                        frame: *frame,
                        mpps: rate / 1e6,
                        // On the wire, preamble and gap are 20 bytes more.
                        gbps: rate * f64::from(*frame + 20) * 8.0 / 1e9,
                        ratio_one_hop: rate / *one.get_or_insert(rate),
                        ratio_ovs: None,
                    };
                    outcome = outcome.and_then(|()| {
                        write(match self.json {
                            true => serde_json::to_string(&point).unwrap_or_default(),
                            false => format!(
                                "{:9} {:>6} {:>6} {:>9.3} {:>9.3} {:>9.2}",
                                point.kind,
                                point.length,
                                point.frame,
                                point.mpps,
                                point.gbps,
                                point.ratio_one_hop
                            ),
                        })
                    });
                }
                // The source goes before another one comes.
                site.configure(None, json!([]))?;
            }
        }
        outcome.map_err(written)
    }
}
