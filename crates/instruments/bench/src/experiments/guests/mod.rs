//! Virtual machines behind the vhost-user ports of a switch: one TCP stream between two of them (E2), from one to a host
//! on a link (the part of E6 in which the rate collapsed), and through others that forward (E4).
//!
//! Guests are the lab's: Debian's cloud kernel under QEMU, iperf3 in them, the kernel's bridge in those that forward.
//! Flow entries lead from port to port, the same for every switch. **Where no guest starts under KVM, guests are
//! emulated (TCG)**: they then take most of the processors, and what is measured is them; of the switches it says that
//! they do it, and how a packet of theirs costs beside another's. The records of a run name the accelerator.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millrace_lab::{Accelerator, Lab, Progress, Topology, UpOptions};

use crate::experiments::lan::iperf::Report;
use crate::figure::{self, GUESTS};
use crate::peer::PeerError;
use crate::record::Record;
use crate::run::{Run, RunError, TurnError};
use millrace_process::{ProcessError, in_path, pause};

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(300);

/// How long guests may take to reach each other, and iperf3 to listen.
const REACHABLE: Duration = Duration::from_secs(60);
/// What iperf3 may take beyond its transfer, seconds.
const SPARE_S: u64 = 30;
const SWITCH: &str = "sw";
const HOST: &str = "h1";
const HOST_ADDRESS: &str = "10.0.0.3";
const GUEST_ADDRESS: &str = "10.0.0.2";
/// Where OpenFlow clients connect to, in the switch's namespace.
const TARGET: &str = "tcp:127.0.0.1:6653";

/// Ports: the guests at the ends, the host, and the first of those that forward, which have two each.
pub(crate) const NEAR: u32 = 1;
pub(crate) const FAR: u32 = 2;
const WIRE: u32 = 3;
const FIRST_HOP: u32 = 4;

/// A switch that guests are behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    Millrace,
    /// Guests leave the cutting of TCP to it.
    MillraceTso,
    OvsDpdk,
}

impl System {
    pub(crate) const ALL: [System; 3] = [System::OvsDpdk, System::Millrace, System::MillraceTso];

    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Millrace => "millrace",
            System::MillraceTso => "millrace-tso",
            System::OvsDpdk => "ovs-dpdk",
        }
    }

    /// What chains of guests behind it are called.
    pub(crate) const fn chain(self) -> &'static str {
        match self {
            System::Millrace => "guest",
            System::MillraceTso => "guest-tso",
            System::OvsDpdk => "ovs-guest",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            System::Millrace | System::MillraceTso => "millrace",
            System::OvsDpdk => "ovs-dpdk",
        }
    }
}

/// Whether a packet may take a way: programs that are there.
pub(crate) fn missing() -> Option<&'static str> {
    ["qemu-system-x86_64", "iperf3", "ovs-ofctl"]
        .into_iter()
        .find(|program| !in_path(program))
}

/// A lab that is removed when this is dropped.
pub(crate) struct Site {
    lab: Lab,
    accelerator: Accelerator,
    hops: u32,
}

/// A transfer, and what the switch did meanwhile.
pub(crate) struct Transfer {
    /// Bits a second of TCP payload that arrived.
    pub(crate) bps: f64,
    /// Times a second that a thread of the switch gave up its core, or was made to.
    pub(crate) switches: f64,
    /// Size of a frame that the sender gave to the switch in bytes, on average.
    pub(crate) frame: f64,
}

fn failed(what: &str, output: &impl ToString) -> PeerError {
    PeerError::Process(ProcessError::Tool {
        command: what.to_owned(),
        output: output.to_string(),
    })
}

fn lab_file(name: &str, system: System, hops: u32) -> String {
    let tso = system == System::MillraceTso;
    let guest = |name: &str, rest: &str| format!("[[guest]]\nname = \"{name}\"\ntso = {tso}\n{rest}\n");
    let ends = [("vm1", "10.0.0.1"), ("vm2", GUEST_ADDRESS)]
        .map(|(name, address)| guest(name, &format!("ip = \"{address}/24\"")));
    let forwarders: Vec<String> = (1..=hops)
        .map(|hop| guest(&format!("hop{hop}"), "forward = true"))
        .collect();
    let ports: Vec<String> = ["vm1", "vm2", HOST]
        .map(str::to_owned)
        .into_iter()
        .chain((1..=hops).flat_map(|hop| [format!("hop{hop}"), format!("hop{hop}")]))
        .map(|node| format!("\"{node}\""))
        .collect();
    format!(
        "name = \"{name}\"\n{}{}[[host]]\nname = \"{HOST}\"\nip = \"{HOST_ADDRESS}/24\"\n[[switch]]\nname = \"{SWITCH}\"\n\
         kind = \"{}\"\nfail_mode = \"secure\"\nports = [{}]\n",
        ends.concat(),
        forwarders.concat(),
        system.kind(),
        ports.join(", ")
    )
}

/// Returns the flow entries of a way through so many guests: pairs of ports, there and back.
fn pairs(hops: u32) -> Vec<(u32, u32)> {
    let near = |hop: u32| FIRST_HOP + 2 * hop;
    let leaves = std::iter::once(NEAR).chain((0..hops).map(|hop| near(hop) + 1));
    let enters = (0..hops).map(near).chain([FAR]);
    leaves.zip(enters).flat_map(|(a, b)| [(a, b), (b, a)]).collect()
}

impl Site {
    /// Boots two guests, `hops` that forward, and a host, around a switch.
    pub(crate) fn up(system: System, hops: u32, millraced: &Path) -> Result<Site, PeerError> {
        /// Several in one process are not in each other's way.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = lab_file(&format!("guests-{}-{number}", std::process::id()), system, hops);
        let topology = Topology::parse("guests.toml", &file).map_err(|error| failed("lab file", &error))?;
        let options = UpOptions {
            millraced: Some(millraced.to_owned()),
            ..UpOptions::default()
        };
        let found = RefCell::new(Accelerator::Tcg);
        let lab = Lab::up(&topology, &options, &mut |progress| {
            if let Progress::Accelerator { accelerator, .. } = progress {
                *found.borrow_mut() = accelerator;
            }
        })
        .map_err(|error| failed("millrace lab up", &error))?;
        Ok(Site {
            lab,
            accelerator: found.into_inner(),
            hops,
        })
    }

    /// What runs the guests.
    pub(crate) fn accelerator(&self) -> &'static str {
        self.accelerator.word()
    }

    /// Who takes part, and how.
    pub(crate) fn record(&self, system: &str) -> Record {
        Record::System {
            system: system.to_owned(),
            version: None,
            configuration: format!("virtual machines under {}, vhost-user", self.accelerator()),
        }
    }

    fn output(&self, node: &str, argv: &[&str]) -> Result<String, PeerError> {
        let output = self
            .lab
            .output(node, argv)
            .map_err(|error| failed(&argv.join(" "), &error))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            return Ok(text);
        }
        let words = String::from_utf8_lossy(&output.stderr);
        Err(failed(&argv.join(" "), &format!("{text}{words}")))
    }

    fn connect(&self, pairs: &[(u32, u32)]) -> Result<(), PeerError> {
        self.output(SWITCH, &["ovs-ofctl", "-O", "OpenFlow13", "del-flows", TARGET])?;
        for (from, to) in pairs {
            let entry = format!("in_port={from},actions=output:{to}");
            self.output(
                SWITCH,
                &["ovs-ofctl", "-O", "OpenFlow13", "add-flow", TARGET, &entry],
            )?;
        }
        Ok(())
    }

    fn wait_until_reachable(&self, address: &str) -> Result<(), PeerError> {
        let start = Instant::now();
        loop {
            match self.output("vm1", &["ping", "-c", "1", "-W", "1", address]) {
                Ok(_) => return Ok(()),
                Err(error) if start.elapsed() > REACHABLE => return Err(error),
                Err(_) => pause(Duration::from_millis(200))?,
            }
        }
    }

    /// Threads of the switch and how often they were off their core, in all.
    fn switches(&self) -> u64 {
        let daemons = self.lab.status().daemons;
        let forwarder = |role: &str| matches!(role, "millraced" | "ovs-vswitchd");
        let pids = daemons.into_iter().filter(|daemon| forwarder(&daemon.role));
        let pids = pids.filter_map(|daemon| Some(daemon.process?.pid));
        pids.flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten())
            .flatten()
            .filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok())
            .map(|status| context_switches(&status))
            .sum()
    }

    /// Frames and bytes that came to the switch by a port.
    fn received(&self, port: u32) -> Result<(f64, f64), PeerError> {
        let text = self.output(
            SWITCH,
            &[
                "ovs-ofctl",
                "-O",
                "OpenFlow13",
                "dump-ports",
                TARGET,
                &port.to_string(),
            ],
        )?;
        received(&text).ok_or_else(|| failed("ovs-ofctl dump-ports", &text))
    }

    /// One TCP stream from the first guest through so many that forward to the second.
    pub(crate) fn through(&self, hops: u32, length: Duration) -> Result<Transfer, PeerError> {
        self.connect(&pairs(hops.min(self.hops)))?;
        self.wait_until_reachable(GUEST_ADDRESS)?;
        self.output("vm2", &["sh", "-c", "pidof iperf3 || iperf3 -s -D"])?;
        self.transfer(GUEST_ADDRESS, length)
    }

    /// One TCP stream from the first guest to the host.
    pub(crate) fn to_host(&self, length: Duration) -> Result<Transfer, PeerError> {
        self.connect(&[(NEAR, WIRE), (WIRE, NEAR)])?;
        self.wait_until_reachable(HOST_ADDRESS)?;
        let limit = (length.as_secs() + SPARE_S).to_string();
        std::thread::scope(|scope| {
            let server = ["timeout", &limit, "iperf3", "-s", "-1"];
            let served = scope.spawn(move || self.lab.output(HOST, &server));
            let transfer = self.transfer(HOST_ADDRESS, length);
            // A server that nobody came to ends by its `timeout`.
            if transfer.is_ok() {
                drop(served.join());
            }
            transfer
        })
    }

    fn transfer(&self, address: &str, length: Duration) -> Result<Transfer, PeerError> {
        let (seconds, limit) = (length.as_secs().max(1), length.as_secs() + SPARE_S);
        let (seconds, limit) = (seconds.to_string(), limit.to_string());
        let client = ["timeout", &limit, "iperf3", "-J", "-t", &seconds, "-c", address];
        let started = Instant::now();
        loop {
            let (before, frames) = (self.switches(), self.received(NEAR)?);
            match self.output("vm1", &client) {
                Ok(text) => {
                    let (after, now) = (self.switches(), self.received(NEAR)?);
                    let report = Report::parse(&text).map_err(|error| failed("iperf3", &error))?;
                    let seconds = report.seconds.max(f64::MIN_POSITIVE);
                    return Ok(Transfer {
                        bps: report.bytes * 8.0 / seconds,
                        switches: after.saturating_sub(before) as f64 / seconds,
                        frame: (now.1 - frames.1) / (now.0 - frames.0).max(1.0),
                    });
                }
                // The server begins to listen a moment later.
                Err(error) if started.elapsed() > REACHABLE => return Err(error),
                Err(_) => pause(Duration::from_millis(300))?,
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // What could not be removed stays listed, and `millrace lab status` shows it.
        if let Err(error) = Lab::down(self.lab.name()) {
            eprintln!("millrace: {error}");
        }
    }
}

/// Of `/proc/PID/task/TID/status`: voluntary and involuntary ones.
fn context_switches(status: &str) -> u64 {
    status
        .lines()
        .filter_map(|line| line.split_once("ctxt_switches:"))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

/// Of what `ovs-ofctl dump-ports` prints.
fn received(text: &str) -> Option<(f64, f64)> {
    let of = |name: &str| {
        let rest = text.split_once("rx ")?.1.split_once(name)?.1;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    Some((of("pkts=")?, of("bytes=")?))
}

/// Measures the systems whose names are wanted. One that fails is recorded as such, and the others go on.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, wanted: impl Fn(&str) -> bool) -> Result<(), RunError> {
    run.tell(&format!(
        "{GUESTS}: virtual machines behind the ports of a switch"
    ));
    if let Some(program) = missing() {
        let reason = failed(program, &"it is not there. To fix it: scripts/setup.sh guests");
        return run.failed(GUESTS, "millrace", &reason);
    }
    let systems: Vec<System> = System::ALL
        .into_iter()
        .filter(|system| wanted(system.name()))
        .collect();
    let mut broken = vec![false; systems.len()];
    for round in 0..run.effort.rounds.min(5) {
        for (system, broken) in systems.iter().zip(&mut broken) {
            if *broken {
                continue;
            }
            match turn(run, *system, round) {
                Ok(()) => {}
                Err(TurnError::Peer(error)) => {
                    *broken = true;
                    run.failed(GUESTS, system.name(), &error)?;
                }
                Err(TurnError::Run(error)) => return Err(error),
            }
        }
    }
    Ok(())
}

fn turn(run: &mut Run<'_>, system: System, round: usize) -> Result<(), TurnError> {
    let millraced = run.millraced.clone();
    let site = Site::up(system, 0, &millraced)?;
    run.tell(&format!("  guests run under {}", site.accelerator()));
    if round == 0 {
        run.add(site.record(system.name()))?;
    }
    let length = run.effort.window.max(Duration::from_secs(3));
    let pair = site.through(0, length)?;
    let host = site.to_host(length)?;
    for (place, transfer) in [("pair", pair), ("host", host)] {
        for (what, value) in [
            ("", transfer.bps / 1e6),
            ("-switches", transfer.switches),
            ("-frame", transfer.frame),
        ] {
            if let Some(quantity) = figure::find(GUESTS, &format!("{place}{what}")) {
                run.figure(system.name(), round, quantity, value)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_leads_through_guests_in_order_and_back() {
        assert_eq!(pairs(0), [(1, 2), (2, 1)]);
        assert_eq!(pairs(2), [(1, 4), (4, 1), (5, 6), (6, 5), (7, 2), (2, 7)]);
    }

    #[test]
    fn every_system_is_a_kind_of_switch_that_takes_guests() {
        for system in System::ALL {
            let topology = Topology::parse("guests.toml", &lab_file("guests-1-0", system, 3)).unwrap();
            assert_eq!(topology.switches[0].kind.word(), system.kind());
            let nics = topology.switches[0]
                .ports
                .iter()
                .filter_map(|port| port.guest.as_ref());
            let nics: Vec<bool> = nics.map(|nic| nic.tso).collect();
            assert_eq!(nics, [system == System::MillraceTso; 8]);
        }
    }

    #[test]
    fn what_the_system_and_the_switch_say_is_read() {
        let status = "Name:\tworker\nvoluntary_ctxt_switches:\t15\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(context_switches(status), 22);
        let ports = "OFPST_PORT reply (OF1.3) (xid=0x2): 1 ports\n  port  1: rx pkts=10, bytes=900, drop=0\n           tx \
                     pkts=3, bytes=4\n";
        assert_eq!(received(ports), Some((10.0, 900.0)));
        assert_eq!(received("port 1: tx pkts=3"), None);
    }
}
