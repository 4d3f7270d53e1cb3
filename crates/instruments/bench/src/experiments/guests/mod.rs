//! The experiment `guests`: virtual machines behind the vhost-user ports of a switch. One TCP stream runs between two
//! guests (E2 in docs/gates.md), from a guest to a host on a link (the part of E6 in which the rate collapsed), and
//! through other guests that forward (E4).
//!
//! The guests are those of the lab: Debian's cloud kernel under QEMU. The guests at the ends run iperf3;
//! guests that forward use the kernel's bridge. The same flow entries connect the ports of every switch.
//! **Without KVM, guests are emulated (TCG)**: they then use most of the processors and limit the rates. Such
//! figures show that the switches work, and the relative cost of a packet. The records name the accelerator.

pub(crate) mod quantities;

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millrace_lab::{Accelerator, Lab, Progress, Topology, UpOptions};

use crate::experiments::lan::iperf::Report;
use crate::figure;
use crate::peer::PeerError;
use crate::record::Record;
use crate::run::{RoundError, Run, RunError};
use millrace_process::{ProcessError, is_installed, pause};
use quantities::GUESTS;

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(300);

/// The time limit for guests to reach each other, and for iperf3 to listen.
const REACHABLE: Duration = Duration::from_secs(60);
/// The time limit of iperf3 beyond the duration of its transfer, in seconds.
const SPARE_S: u64 = 30;
const SWITCH: &str = "sw";
const HOST: &str = "h1";
const HOST_ADDRESS: &str = "10.0.0.3";
const GUEST_ADDRESS: &str = "10.0.0.2";
/// The address for OpenFlow clients in the namespace of the switch.
const TARGET: &str = "tcp:127.0.0.1:6653";

/// Port numbers: the guests at the two ends, the host, and the first guest that forwards; such guests have two ports
/// each.
pub(crate) const NEAR: u32 = 1;
pub(crate) const FAR: u32 = 2;
const WIRE: u32 = 3;
const FIRST_HOP: u32 = 4;

/// A switch with guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    Millrace,
    /// Guests use TSO, and the switch segments their packets.
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

    /// Returns the name of chains of guests behind this switch.
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

/// Returns the first required program that is not installed.
pub(crate) fn missing() -> Option<&'static str> {
    ["qemu-system-x86_64", "iperf3", "ovs-ofctl"]
        .into_iter()
        .find(|program| !is_installed(program))
}

/// A lab. Dropping the value removes it.
pub(crate) struct TestBed {
    lab: Lab,
    accelerator: Accelerator,
    hops: u32,
}

/// The result of a transfer.
pub(crate) struct Transfer {
    /// TCP payload that arrived, in bits per second.
    pub(crate) bps: f64,
    /// Context switches of the threads of the switch per second.
    pub(crate) switches: f64,
    /// The average size in bytes of the frames that the sender gave to the switch.
    pub(crate) frame: f64,
}

fn failed(what: &str, output: &impl ToString) -> PeerError {
    PeerError::Process(ProcessError::Tool {
        command: what.to_owned(),
        output: output.to_string(),
    })
}

/// Returns the lab file: two guests at the ends, `hops` guests that forward, and a host.
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

/// Returns the flow entries of a path through `hops` guests and back, as pairs of ingress and egress ports.
fn pairs(hops: u32) -> Vec<(u32, u32)> {
    let near = |hop: u32| FIRST_HOP + 2 * hop;
    let leaves = std::iter::once(NEAR).chain((0..hops).map(|hop| near(hop) + 1));
    let enters = (0..hops).map(near).chain([FAR]);
    leaves.zip(enters).flat_map(|(a, b)| [(a, b), (b, a)]).collect()
}

impl TestBed {
    /// Boots two guests at the ends, `hops` guests that forward, and a host, around a switch.
    pub(crate) fn up(system: System, hops: u32, millraced: &Path) -> Result<TestBed, PeerError> {
        /// The number makes names unique within the process.
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
        Ok(TestBed {
            lab,
            accelerator: found.into_inner(),
            hops,
        })
    }

    /// Returns the accelerator of the guests.
    pub(crate) fn accelerator(&self) -> &'static str {
        self.accelerator.keyword()
    }

    /// Returns the record of a system, with the accelerator.
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

    /// Returns the number of context switches of all threads of the switch.
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

    /// Returns the counters of what the switch received from a port.
    fn received(&self, port: u32) -> Result<Received, PeerError> {
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

    /// Runs one TCP stream from the first guest through `hops` guests to the second.
    pub(crate) fn through(&self, hops: u32, length: Duration) -> Result<Transfer, PeerError> {
        self.connect(&pairs(hops.min(self.hops)))?;
        self.wait_until_reachable(GUEST_ADDRESS)?;
        self.output("vm2", &["sh", "-c", "pidof iperf3 || iperf3 -s -D"])?;
        self.transfer(GUEST_ADDRESS, length)
    }

    /// Runs one TCP stream from the first guest to the host.
    pub(crate) fn to_host(&self, length: Duration) -> Result<Transfer, PeerError> {
        self.connect(&[(NEAR, WIRE), (WIRE, NEAR)])?;
        self.wait_until_reachable(HOST_ADDRESS)?;
        let limit = (length.as_secs() + SPARE_S).to_string();
        std::thread::scope(|scope| {
            let server = ["timeout", &limit, "iperf3", "-s", "-1"];
            let served = scope.spawn(move || self.lab.output(HOST, &server));
            let transfer = self.transfer(HOST_ADDRESS, length);
            // A server without a client ends by its `timeout`.
            if transfer.is_ok() {
                drop(served.join());
            }
            transfer
        })
    }

    /// Runs iperf3 from the first guest to an address, and repeats it until the server listens.
    fn transfer(&self, address: &str, length: Duration) -> Result<Transfer, PeerError> {
        let (seconds, limit) = (length.as_secs().max(1), length.as_secs() + SPARE_S);
        let (seconds, limit) = (seconds.to_string(), limit.to_string());
        let client = ["timeout", &limit, "iperf3", "-J", "-t", &seconds, "-c", address];
        let started = Instant::now();
        loop {
            let (before, first) = (self.switches(), self.received(NEAR)?);
            match self.output("vm1", &client) {
                Ok(text) => {
                    let (after, now) = (self.switches(), self.received(NEAR)?);
                    let report = Report::parse(&text).map_err(|error| failed("iperf3", &error))?;
                    let seconds = report.seconds.max(f64::MIN_POSITIVE);
                    return Ok(Transfer {
                        bps: report.bytes * 8.0 / seconds,
                        switches: after.saturating_sub(before) as f64 / seconds,
                        frame: (now.bytes - first.bytes) / (now.frames - first.frames).max(1.0),
                    });
                }
                // The server may start to listen a moment later.
                Err(error) if started.elapsed() > REACHABLE => return Err(error),
                Err(_) => pause(Duration::from_millis(300))?,
            }
        }
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        // `millrace lab status` lists the parts that could not be removed.
        if let Err(error) = Lab::down(self.lab.name()) {
            eprintln!("millrace: {error}");
        }
    }
}

/// Returns the voluntary and involuntary context switches in `/proc/PID/task/TID/status`.
fn context_switches(status: &str) -> u64 {
    status
        .lines()
        .filter_map(|line| line.split_once("ctxt_switches:"))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

/// The frames that a port has received.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Received {
    frames: f64,
    bytes: f64,
}

/// Returns the counters of a port in the output of `ovs-ofctl dump-ports`.
fn received(text: &str) -> Option<Received> {
    let of = |name: &str| {
        let rest = text.split_once("rx ")?.1.split_once(name)?.1;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    Some(Received {
        frames: of("pkts=")?,
        bytes: of("bytes=")?,
    })
}

/// Measures the systems for which `wanted` returns true. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, wanted: impl Fn(&str) -> bool) -> Result<(), RunError> {
    run.progress(&format!(
        "{GUESTS}: virtual machines behind the ports of a switch"
    ));
    if let Some(program) = missing() {
        let reason = failed(
            program,
            &"it is not installed. To fix it: scripts/setup.sh guests",
        );
        return run.failed(GUESTS, "millrace", &reason);
    }
    let systems: Vec<System> = System::ALL
        .into_iter()
        .filter(|system| wanted(system.name()))
        .collect();
    let mut broken = vec![false; systems.len()];
    for round in 0..run.length.rounds.min(5) {
        for (system, broken) in systems.iter().zip(&mut broken) {
            if *broken {
                continue;
            }
            match measure(run, *system, round) {
                Ok(()) => {}
                Err(RoundError::Peer(error)) => {
                    *broken = true;
                    run.failed(GUESTS, system.name(), &error)?;
                }
                Err(RoundError::Run(error)) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Measures a system in one round.
fn measure(run: &mut Run<'_>, system: System, round: usize) -> Result<(), RoundError> {
    let millraced = run.millraced.clone();
    let test_bed = TestBed::up(system, 0, &millraced)?;
    run.progress(&format!("  guests run under {}", test_bed.accelerator()));
    if round == 0 {
        run.add(test_bed.record(system.name()))?;
    }
    let length = run.length.window.max(Duration::from_secs(3));
    let pair = test_bed.through(0, length)?;
    let host = test_bed.to_host(length)?;
    for (to, transfer) in [("pair", pair), ("host", host)] {
        for (what, value) in [
            ("", transfer.bps / 1e6),
            ("-switches", transfer.switches),
            ("-frame", transfer.frame),
        ] {
            if let Some(quantity) = figure::find(GUESTS, &format!("{to}{what}")) {
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
    fn a_path_leads_through_guests_in_order_and_back() {
        assert_eq!(pairs(0), [(1, 2), (2, 1)]);
        assert_eq!(pairs(2), [(1, 4), (4, 1), (5, 6), (6, 5), (7, 2), (2, 7)]);
    }

    #[test]
    fn every_system_is_a_kind_of_switch_that_takes_guests() {
        for system in System::ALL {
            let topology = Topology::parse("guests.toml", &lab_file("guests-1-0", system, 3)).unwrap();
            assert_eq!(topology.switches[0].kind.keyword(), system.kind());
            let nics = topology.switches[0]
                .ports
                .iter()
                .filter_map(|port| port.guest.as_ref());
            let nics: Vec<bool> = nics.map(|nic| nic.tso).collect();
            assert_eq!(nics, [system == System::MillraceTso; 8]);
        }
    }

    #[test]
    fn context_switches_and_port_counters_are_parsed() {
        let status = "Name:\tworker\nvoluntary_ctxt_switches:\t15\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(context_switches(status), 22);
        let ports = "OFPST_PORT reply (OF1.3) (xid=0x2): 1 ports\n  port  1: rx pkts=10, bytes=900, drop=0\n           tx \
                     pkts=3, bytes=4\n";
        let expected = Received {
            frames: 10.0,
            bytes: 900.0,
        };
        assert_eq!(received(ports), Some(expected));
        assert_eq!(received("port 1: tx pkts=3"), None);
    }
}
