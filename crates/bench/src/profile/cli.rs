//! `millrace profile`: the arguments, and what is printed.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use millrace_api::client::Client;

use super::{Profile, ProfileError, Target, measure, text};
use crate::lan::{self, System};
use crate::machine::Machine;
use crate::process::pause;
use crate::record::{Log, Record};
use crate::report::plot::flame::flame;

/// See where a switch's time goes: by stage and function, with context switches and the processor's counters.
///
/// With PID, a running switch is watched. Without, each system is started between two hosts that send one TCP
/// stream (as `bench lan` does) and watched in turn: the published comparison of architecture counters (E6).
/// Needs root; perf for functions and stages (Debian: linux-perf). Counters that the machine does not have
/// are said to be not available.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
    millrace profile $(pidof millraced)\n  \
    millrace profile --system millrace --system ovs-dpdk --seconds 10")]
pub struct Command {
    /// The process to watch; a running millraced is asked for its packets over --api
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..), conflicts_with = "systems")]
    pid: Option<i32>,
    /// Without PID, only this system; may be given several times
    #[arg(long = "system", value_name = "NAME", value_enum)]
    systems: Vec<System>,
    /// How long to count, and then again to sample
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Where results go: profile.jsonl, folded stacks and flame graphs in this folder
    #[arg(long, value_name = "DIR", default_value = "out/bench")]
    out: PathBuf,
    /// The daemon of Millrace to start; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    millraced: Option<PathBuf>,
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ProfileError + use<> {
    let path = path.to_owned();
    move |source| ProfileError::Write { path, source }
}

impl Command {
    /// Does it, and prints the result; `api` is where a running millraced answers.
    ///
    /// # Errors
    /// [`ProfileError`]. A system that cannot be started is none: it is told, and the others follow.
    pub fn run(&self, api: &str, json: bool) -> Result<(), ProfileError> {
        crate::interrupt::watch();
        fs::create_dir_all(&self.out).map_err(failed(&self.out))?;
        let path = self.out.join("profile.jsonl");
        let mut log = Log::create(&path).map_err(failed(&path))?;
        let mut add = |record: Record| log.add(record).map_err(failed(&path));
        add(self.introduction())?;
        let length = Duration::from_secs(self.seconds);
        let mut profiles = Vec::new();
        match self.pid {
            Some(pid) => profiles.push(attached(pid, api, length)?),
            None => {
                for system in System::ALL {
                    if !self.systems.is_empty() && !self.systems.contains(&system) {
                        continue;
                    }
                    eprintln!("{}: one TCP stream between two hosts", system.name());
                    match self.between_hosts(system, length) {
                        Ok(profile) => profiles.push(profile),
                        Err(ProfileError::Lan(error)) => {
                            pause(Duration::ZERO)?;
                            eprintln!("  {error}");
                            add(Record::Failed {
                                case: "profile".to_owned(),
                                system: system.name().to_owned(),
                                reason: error.to_string(),
                            })?;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        for profile in &profiles {
            add(Record::Profile(Box::new(profile.clone())))?;
            self.write_stacks(profile)?;
        }
        let text = if json {
            format!("{:#}\n", serde_json::json!(profiles))
        } else {
            text(&profiles)
        };
        let out = io::stdout().write_all(text.as_bytes());
        out.map_err(failed(Path::new("standard output")))
    }

    fn introduction(&self) -> Record {
        let started = SystemTime::now().duration_since(UNIX_EPOCH);
        Record::Run {
            experiment: "profile".to_owned(),
            started: started.map_or(0, |since| since.as_secs()),
            quick: false,
            machine: Box::new(Machine::describe(0)),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        }
    }

    /// Folded stacks for other tools, and a flame graph of them.
    fn write_stacks(&self, profile: &Profile) -> Result<(), ProfileError> {
        if profile.stacks.is_empty() {
            return Ok(());
        }
        let name = format!("flame-{}", profile.system);
        let plot = flame(
            &name,
            &format!("Where the time of {} goes ({})", profile.system, profile.load),
            profile
                .stacks
                .iter()
                .map(|stack| (stack.frames.as_str(), stack.count)),
        );
        for (extension, text) in [("folded", profile.folded()), ("svg", plot.file())] {
            let path = self.out.join(format!("{name}.{extension}"));
            fs::write(&path, text).map_err(failed(&path))?;
            eprintln!("  {}", path.display());
        }
        Ok(())
    }

    /// A system of its own, with hosts that send.
    fn between_hosts(&self, system: System, length: Duration) -> Result<Profile, ProfileError> {
        let site = lan::Site::up(system, self.millraced.as_deref())?;
        // Both windows, what perf takes to begin and to end, and a second for TCP to find its rate.
        let transfer = length * 2 + Duration::from_secs(4);
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| site.transfer(0, transfer));
            pause(Duration::from_secs(2))?;
            let packets = || site.packets().ok();
            let target = Target {
                system: system.name(),
                load: "lan",
                pid: site.forwarder(),
                packets: &packets,
            };
            let profile = measure(&target, length)?;
            // The transfer's own result is of no interest, its failure is: then nothing was forwarded.
            if let Ok(outcome) = sending.join() {
                outcome?;
            }
            Ok(profile)
        })
    }
}

/// A process that runs already.
fn attached(pid: i32, api: &str, length: Duration) -> Result<Profile, ProfileError> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|_| ProfileError::NoProcess(pid))?;
    let name = name.trim();
    let system = match name {
        "millraced" => "millrace",
        other => other,
    };
    let client = (system == "millrace")
        .then(|| Client::new(api, None, None).ok())
        .flatten();
    let packets = || client.as_ref().and_then(received);
    let target = Target {
        system,
        load: &format!("pid {pid}"),
        pid: Some(pid),
        packets: &packets,
    };
    measure(&target, length)
}

/// Packets that all ports of a switch have received.
fn received(client: &Client) -> Option<u64> {
    let mut sum = 0;
    for bridge in client.bridges().ok()? {
        let ports = client.ports(&bridge.name).ok()?;
        sum += ports.iter().map(|port| port.rx.packets).sum::<u64>();
    }
    Some(sum)
}
