//! Small and large frames between two hosts over veth pairs: the experiment in which switches that have no DPDK
//! device take part, too.
//!
//! It is another kind of feed than `forward`'s, and says less about the switch: each frame crosses the
//! kernel's links twice, by system calls of the sender and of the switch, which cost more than most switches.
//! One sender, testpmd over AF_PACKET, sends flat out in the first host's namespace; what arrives is counted
//! by the second's interface. A switch in the kernel does its work in the sender's system calls, on the
//! sender's core; the others have a core of their own. In the switch's place, `testpmd-io` copies frames from
//! one AF_PACKET socket to another without looking at them, what a switch over AF_PACKET can reach at most, and
//! `pcap-copy` does so with libpcap.

use std::path::Path;
use std::time::{Duration, Instant};

use millrace_lab::{Lab, Topology, UpOptions};

use crate::experiments::lan::System;
use crate::figure::{self, VETH};
use crate::peer::PeerError;
use crate::run::{Run, RunError, TurnError};
use millrace_process::{ProcessError, pause};

/// How long it all takes, for people who wait.
pub const ESTIMATE: Duration = Duration::from_secs(250);

/// Frames, bytes on the wire, the check sequence included.
const SIZES: [(u16, &str, &str); 2] = [(64, "64", "64-sent"), (1518, "1518", "1518-sent")];
/// How long the sender and the switch are let to find their pace.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long hosts may take to reach each other.
const REACHABLE: Duration = Duration::from_secs(15);
const RECEIVER: &str = "10.0.0.2";
const SWITCH: &str = "sw";

/// Who stands between the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    Switch(System),
    Copy(Driver),
}

/// By which DPDK driver testpmd is at a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    AfPacket,
    /// libpcap.
    Pcap,
}

impl Driver {
    /// Returns the devargs of a device at this interface.
    fn device(self, place: usize, interface: &str) -> String {
        match self {
            Driver::AfPacket => format!("net_af_packet{place},iface={interface}"),
            // Not `iface`, which receives what it sent itself.
            Driver::Pcap => format!("net_pcap{place},rx_iface_in={interface},tx_iface={interface}"),
        }
    }
}

impl Between {
    fn name(self) -> &'static str {
        match self {
            Between::Switch(system) => system.name(),
            Between::Copy(Driver::AfPacket) => "testpmd-io",
            Between::Copy(Driver::Pcap) => "pcap-copy",
        }
    }
}

/// Measures the systems whose names are wanted. One that fails is recorded as such, and the others go on.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, wanted: impl Fn(&str) -> bool) -> Result<(), RunError> {
    run.tell(&format!("{VETH}: frames between two hosts over veth pairs"));
    let all = System::ALL.into_iter().map(Between::Switch);
    let systems: Vec<Between> = all
        .chain([Driver::AfPacket, Driver::Pcap].map(Between::Copy))
        .filter(|between| wanted(between.name()))
        .collect();
    let mut broken = vec![false; systems.len()];
    for round in 0..run.effort.rounds.min(3) {
        for (between, broken) in systems.iter().zip(&mut broken) {
            if *broken {
                continue;
            }
            match turn(run, *between, round) {
                Ok(()) => {}
                Err(TurnError::Peer(error)) => {
                    *broken = true;
                    run.failed(VETH, between.name(), &error)?;
                }
                Err(TurnError::Run(error)) => return Err(error),
            }
        }
    }
    Ok(())
}

fn turn(run: &mut Run<'_>, between: Between, round: usize) -> Result<(), TurnError> {
    let hosts = Hosts::up(between, &run.millraced, round)?;
    for (size, received, sent) in SIZES {
        let rates = hosts.send(size, run.effort.window)?;
        for (name, rate) in [(received, rates.received), (sent, rates.sent)] {
            if let Some(quantity) = figure::find(VETH, name) {
                run.figure(between.name(), round, quantity, rate / 1e3)?;
            }
        }
    }
    Ok(())
}

/// Frames a second.
struct Rates {
    sent: f64,
    received: f64,
}

/// A lab that is removed when this is dropped.
struct Hosts {
    lab: Lab,
    between: Between,
}

fn lab_file(name: &str, kind: &str) -> String {
    format!(
        "name = \"{name}\"\n\n[[host]]\nname = \"h1\"\nip = \"10.0.0.1/24\"\n\n[[host]]\nname = \"h2\"\n\
         ip = \"{RECEIVER}/24\"\n\n[[switch]]\nname = \"{SWITCH}\"\nkind = \"{kind}\"\nports = [\"h1\", \"h2\"]\n"
    )
}

fn failed(what: &str, output: &impl ToString) -> PeerError {
    PeerError::Process(ProcessError::Tool {
        command: what.to_owned(),
        output: output.to_string(),
    })
}

impl Hosts {
    fn up(between: Between, millraced: &Path, round: usize) -> Result<Hosts, PeerError> {
        let kind = match between {
            Between::Switch(system) => system.name(),
            // Its ports are taken away from it below.
            Between::Copy(_) => System::LinuxBridge.name(),
        };
        let name = format!("veth-{}-{round}", std::process::id());
        let file = lab_file(&name, kind);
        let topology = Topology::parse("veth.toml", &file).map_err(|error| failed("lab file", &error))?;
        let options = UpOptions {
            millraced: Some(millraced.to_owned()),
            ..UpOptions::default()
        };
        let lab =
            Lab::up(&topology, &options, &mut |_| {}).map_err(|error| failed("millrace lab up", &error))?;
        let hosts = Hosts { lab, between };
        hosts.wait_until_reachable()?;
        Ok(hosts)
    }

    fn output(&self, node: &str, argv: &[&str]) -> Result<String, PeerError> {
        let output = self
            .lab
            .output(node, argv)
            .map_err(|error| failed(&argv.join(" "), &error))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Hosts also learn each other's address by this, and the switch where they are.
    fn wait_until_reachable(&self) -> Result<(), PeerError> {
        let start = Instant::now();
        while start.elapsed() < REACHABLE {
            let ping = self.output("h1", &["ping", "-c", "1", "-W", "1", RECEIVER])?;
            if ping.contains(" 0% packet loss") {
                return Ok(());
            }
            pause(Duration::from_millis(100))?;
        }
        Err(failed("ping", &"the hosts do not reach each other"))
    }

    fn count(&self, node: &str, name: &str) -> Result<u64, PeerError> {
        let path = format!("/sys/class/net/eth0/statistics/{name}");
        let text = self.output(node, &["cat", &path])?;
        text.parse().map_err(|_| failed(&path, &text))
    }

    /// Sends frames of this size flat out, and counts those that arrive.
    fn send(&self, size: u16, window: Duration) -> Result<Rates, PeerError> {
        let mac = self.output("h2", &["cat", "/sys/class/net/eth0/address"])?;
        let seconds = (WARM_UP * 2 + window).as_secs() + 2;
        let sender = testpmd(
            Driver::AfPacket,
            seconds,
            0,
            &["eth0"],
            &format!(
                "--forward-mode=txonly --txpkts={} --eth-peer=0,{mac}",
                size.saturating_sub(4)
            ),
        );
        std::thread::scope(|scope| {
            if let Between::Copy(driver) = self.between {
                self.take_ports_away()?;
                let ports = self.switch_ports()?;
                let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
                let copy = testpmd(driver, seconds, 1, &ports, "--forward-mode=io");
                scope.spawn(move || self.lab.output(SWITCH, &["sh", "-c", &copy]));
            }
            let sent = scope.spawn(|| self.lab.output("h1", &["sh", "-c", &sender]));
            pause(WARM_UP * 2)?;
            let start = Instant::now();
            let before = (self.count("h1", "tx_packets")?, self.count("h2", "rx_packets")?);
            pause(window)?;
            let after = (self.count("h1", "tx_packets")?, self.count("h2", "rx_packets")?);
            let elapsed = start.elapsed().as_secs_f64();
            let rates = Rates {
                sent: after.0.saturating_sub(before.0) as f64 / elapsed,
                received: after.1.saturating_sub(before.1) as f64 / elapsed,
            };
            if rates.sent > 0.0 && rates.received > 0.0 {
                return Ok(rates);
            }
            let words = match sent.join() {
                Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).into_owned(),
                _ => "the sender cannot be started".to_owned(),
            };
            Err(PeerError::Silent {
                text: millrace_process::tail(&words),
            })
        })
    }

    /// Returns the interfaces of the switch's namespace that lead to hosts.
    fn switch_ports(&self) -> Result<Vec<String>, PeerError> {
        let text = self.output(SWITCH, &["ls", "/sys/class/net"])?;
        let mut ports = Vec::new();
        for name in text.split_whitespace() {
            let kind = self.output(SWITCH, &["ip", "-details", "-oneline", "link", "show", name])?;
            if kind.contains(" veth ") {
                ports.push(name.to_owned());
            }
        }
        Ok(ports)
    }

    fn take_ports_away(&self) -> Result<(), PeerError> {
        for port in self.switch_ports()? {
            self.output(SWITCH, &["ip", "link", "set", &port, "nomaster", "promisc", "on"])?;
        }
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // What could not be removed stays listed, and `millrace lab status` shows it.
        if let Err(error) = Lab::down(self.lab.name()) {
            eprintln!("millrace: {error}");
        }
    }
}

/// Returns a shell command: testpmd between these interfaces, on one core, for so long. It would end with its standard
/// input.
fn testpmd(driver: Driver, seconds: u64, core: usize, interfaces: &[&str], mode: &str) -> String {
    let devices: Vec<String> = interfaces
        .iter()
        .enumerate()
        .map(|(place, interface)| format!("--vdev {}", driver.device(place, interface)))
        .collect();
    format!(
        "sleep {seconds} | timeout {seconds} dpdk-testpmd --lcores 0@{core},1@{core} --main-lcore 0 --no-pci \
         --no-telemetry --no-huge -m 128 --file-prefix veth$$ {} -- --stats-period 60 --total-num-mbufs=8192 {mode}",
        devices.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_process::in_path;

    /// Sends until the rates are as expected; a sender that gets no processor time in its window is started again.
    fn until(hosts: &Hosts, is_expected: impl Fn(&Rates) -> bool) {
        let end = std::time::Instant::now() + Duration::from_secs(120);
        loop {
            let outcome = hosts.send(64, Duration::from_secs(1));
            if outcome.as_ref().is_ok_and(&is_expected) {
                return;
            }
            if std::time::Instant::now() > end {
                let rates = outcome.unwrap();
                panic!(
                    "{} frames per second sent, {} received",
                    rates.sent, rates.received
                );
            }
        }
    }

    #[test]
    fn frames_that_the_kernels_bridge_passes_on_are_counted() {
        if !nix::unistd::geteuid().is_root() || !in_path("dpdk-testpmd") || !in_path("ethtool") {
            eprintln!("skipped: needs root, dpdk-testpmd and ethtool");
            return;
        }
        let hosts = Hosts::up(Between::Switch(System::LinuxBridge), Path::new("millraced"), 90).unwrap();
        until(&hosts, |rates| rates.sent > 1000.0 && rates.received > 1000.0);
    }

    #[test]
    fn a_copy_with_libpcap_does_not_receive_what_it_sent() {
        if !nix::unistd::geteuid().is_root() || !in_path("dpdk-testpmd") || !in_path("ethtool") {
            eprintln!("skipped: needs root, dpdk-testpmd and ethtool");
            return;
        }
        let hosts = Hosts::up(Between::Copy(Driver::Pcap), Path::new("millraced"), 91).unwrap();
        until(&hosts, |rates| {
            rates.received > 100.0 && rates.received < rates.sent * 1.2
        });
    }
}
