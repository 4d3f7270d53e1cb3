//! The experiment `veth`: small and large frames between two hosts over veth pairs. Switches without a DPDK device
//! take part, too.
//!
//! The figures say less about the switch than those of `forward`: each frame passes the links of the kernel twice, by
//! system calls of the sender and of the switch, which cost more than most switches. One sender, testpmd over
//! AF_PACKET, sends at full rate in the namespace of the first host, and the interface of the second host counts the
//! frames that arrive. A switch in the kernel works in the system calls of the sender, on its core; the others have a
//! core of their own. In place of a switch, `testpmd-io` copies frames from one AF_PACKET socket to another, which is
//! the limit of a switch over AF_PACKET, and `pcap-copy` does so with libpcap.

pub(crate) mod quantities;

use std::path::Path;
use std::time::{Duration, Instant};

use millrace_lab::{Lab, Topology, UpOptions};

use crate::experiments::lan::System;
use crate::figure;
use crate::peer::PeerError;
use crate::run::{RoundError, Run, RunError};
use millrace_process::{ProcessError, pause};
use quantities::VETH;

/// The expected duration of the experiment.
pub const ESTIMATE: Duration = Duration::from_secs(250);

/// Frame sizes on the wire in bytes, check sequence included, with the names of their quantities.
const SIZES: [(u16, &str, &str); 2] = [(64, "64", "64-sent"), (1518, "1518", "1518-sent")];
/// The time for the sender and the switch to reach a steady rate.
const WARM_UP: Duration = Duration::from_secs(2);
/// The time limit for hosts to reach each other.
const REACHABLE: Duration = Duration::from_secs(15);
const RECEIVER: &str = "10.0.0.2";
const SWITCH: &str = "sw";

/// The system between the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SystemUnderTest {
    Switch(System),
    Copy(Driver),
}

/// The DPDK driver of testpmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Driver {
    AfPacket,
    /// The driver over libpcap.
    Pcap,
}

impl Driver {
    /// Returns the devargs of a device at this interface.
    fn device(self, index: usize, interface: &str) -> String {
        match self {
            Driver::AfPacket => format!("net_af_packet{index},iface={interface}"),
            // The option `iface` would receive the frames that the device itself sends.
            Driver::Pcap => format!("net_pcap{index},rx_iface_in={interface},tx_iface={interface}"),
        }
    }
}

impl SystemUnderTest {
    fn name(self) -> &'static str {
        match self {
            SystemUnderTest::Switch(system) => system.name(),
            SystemUnderTest::Copy(Driver::AfPacket) => "testpmd-io",
            SystemUnderTest::Copy(Driver::Pcap) => "pcap-copy",
        }
    }
}

/// Measures the systems for which `wanted` returns true. The failure of a system is recorded, and the others continue.
///
/// # Errors
/// [`RunError`].
pub fn run(run: &mut Run<'_>, wanted: impl Fn(&str) -> bool) -> Result<(), RunError> {
    run.progress(&format!("{VETH}: frames between two hosts over veth pairs"));
    let all = System::ALL.into_iter().map(SystemUnderTest::Switch);
    let systems: Vec<SystemUnderTest> = all
        .chain([Driver::AfPacket, Driver::Pcap].map(SystemUnderTest::Copy))
        .filter(|system| wanted(system.name()))
        .collect();
    let mut broken = vec![false; systems.len()];
    for round in 0..run.length.rounds.min(3) {
        for (system, broken) in systems.iter().zip(&mut broken) {
            if *broken {
                continue;
            }
            match measure(run, *system, round) {
                Ok(()) => {}
                Err(RoundError::Peer(error)) => {
                    *broken = true;
                    run.failed(VETH, system.name(), &error)?;
                }
                Err(RoundError::Run(error)) => return Err(error),
            }
        }
    }
    Ok(())
}

fn measure(run: &mut Run<'_>, system: SystemUnderTest, round: usize) -> Result<(), RoundError> {
    let hosts = Hosts::up(system, &run.millraced, round)?;
    for (size, received, sent) in SIZES {
        let rates = hosts.send(size, run.length.window)?;
        for (name, rate) in [(received, rates.received), (sent, rates.sent)] {
            if let Some(quantity) = figure::find(VETH, name) {
                run.figure(system.name(), round, quantity, rate / 1e3)?;
            }
        }
    }
    Ok(())
}

/// Frames per second.
struct Rates {
    sent: f64,
    received: f64,
}

/// A lab. Dropping the value removes it.
struct Hosts {
    lab: Lab,
    system: SystemUnderTest,
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
    /// Sets up the lab and waits until the hosts reach each other.
    fn up(system: SystemUnderTest, millraced: &Path, round: usize) -> Result<Hosts, PeerError> {
        let kind = match system {
            SystemUnderTest::Switch(system) => system.name(),
            // The ports of the bridge are removed later.
            SystemUnderTest::Copy(_) => System::LinuxBridge.name(),
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
        let hosts = Hosts { lab, system };
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

    /// Pings until the hosts reach each other. The hosts and the switch learn the MAC addresses meanwhile.
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

    /// Sends frames of this size at full rate, and counts those that arrive.
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
            if let SystemUnderTest::Copy(driver) = self.system {
                self.detach_ports()?;
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
            Err(PeerError::NoPackets {
                text: millrace_process::tail(&words),
            })
        })
    }

    /// Returns the interfaces of the switch's namespace that are connected to hosts.
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

    fn detach_ports(&self) -> Result<(), PeerError> {
        for port in self.switch_ports()? {
            self.output(SWITCH, &["ip", "link", "set", &port, "nomaster", "promisc", "on"])?;
        }
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // `millrace lab status` lists the parts that could not be removed.
        if let Err(error) = Lab::down(self.lab.name()) {
            eprintln!("millrace: {error}");
        }
    }
}

/// Returns a shell command that runs testpmd between these interfaces, on one core, for some seconds. Its standard
/// input stays open, because testpmd ends otherwise.
fn testpmd(driver: Driver, seconds: u64, core: usize, interfaces: &[&str], mode: &str) -> String {
    let devices: Vec<String> = interfaces
        .iter()
        .enumerate()
        .map(|(index, interface)| format!("--vdev {}", driver.device(index, interface)))
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
    use millrace_process::is_installed;

    /// Sends until the rates are as expected. A sender that gets no processor time in its window is started again.
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
        if !nix::unistd::geteuid().is_root() || !is_installed("dpdk-testpmd") || !is_installed("ethtool") {
            eprintln!("skipped: needs root, dpdk-testpmd and ethtool");
            return;
        }
        let hosts = Hosts::up(
            SystemUnderTest::Switch(System::LinuxBridge),
            Path::new("millraced"),
            90,
        )
        .unwrap();
        until(&hosts, |rates| rates.sent > 1000.0 && rates.received > 1000.0);
    }

    #[test]
    fn a_copy_with_libpcap_does_not_receive_what_it_sent() {
        if !nix::unistd::geteuid().is_root() || !is_installed("dpdk-testpmd") || !is_installed("ethtool") {
            eprintln!("skipped: needs root, dpdk-testpmd and ethtool");
            return;
        }
        let hosts = Hosts::up(SystemUnderTest::Copy(Driver::Pcap), Path::new("millraced"), 91).unwrap();
        until(&hosts, |rates| {
            rates.received > 100.0 && rates.received < rates.sent * 1.2
        });
    }
}
