//! `dpdk-testpmd`: forwards between the same devices without reading the packets, which shows the limit of the
//! machine.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{Forwarding, Installation, Load, Peer, PeerError, Resources, START, WarmUp, discard};
use crate::workload::Sink;
use millrace_process::{Running, command_line, pause, run_tool};

/// The forwarding mode of testpmd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Receives and sends.
    Io,
    /// Also rewrites the MAC addresses of each packet.
    Mac,
}

/// The system under test.
#[derive(Debug, Clone, Copy)]
pub struct Testpmd(pub Mode);

struct Forwarder {
    running: Running,
    command: String,
    /// The number of pairs of an ingress and an egress port.
    pairs: usize,
}

impl Testpmd {
    fn mode(self) -> &'static str {
        match self.0 {
            Mode::Io => "io",
            Mode::Mac => "mac",
        }
    }

    /// Returns the command line of testpmd.
    fn command(self, resources: &Resources, load: &Load) -> Command {
        let memory = self.memory_mib(load);
        // Without stdbuf, the C library would buffer the replies in blocks of 4 KiB.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd"]);
        // Logical cores from 1 on forward. Logical core 0 has the command line, on a core that other programs may
        // share.
        let mut lcores = format!("0@{}", resources.control_core);
        for (lcore, core) in (1..).zip(&resources.cores) {
            lcores.push_str(&format!(",{lcore}@{core}"));
        }
        command.args(["--lcores", &lcores, "--main-lcore", "0"]);
        command.args(["--no-pci", "--no-telemetry", "--file-prefix"]);
        command.arg(format!("bench{}", std::process::id()));
        if resources.huge_pages_mib >= memory {
            command.arg("--in-memory");
        } else {
            command.args(["--no-huge", "-m", &memory.to_string()]);
        }
        // Ports are numbered in the order of their arguments, and forward in pairs: 0 to 1, 2 to 3.
        for (index, (_, devargs)) in load.ports().enumerate() {
            command.arg("--vdev").arg(devargs);
            let sink = match &load.memif {
                Some(_) => load.sink(Sink::First),
                None => discard(&format!("net_null{index}")),
            };
            command.arg("--vdev").arg(sink);
        }
        // The command line is interactive, for statistics, and forwarding starts at once.
        command.args(["--", "-i", "-a", "--no-flush-rx"]);
        command.arg(format!("--forward-mode={}", self.mode()));
        command.arg(format!("--nb-cores={}", resources.cores.len()));
        command.arg(format!("--total-num-mbufs={}", buffers(load)));
        command
    }
}

/// Returns the number of buffers: the driver keeps one for each packet of the files, and testpmd asks for a minimum of
/// others.
fn buffers(load: &Load) -> usize {
    (load.packets_len + 16_384).next_power_of_two() - 1
}

impl Peer for Testpmd {
    fn name(&self) -> &'static str {
        match self.0 {
            Mode::Io => "testpmd-io",
            Mode::Mac => "testpmd-mac",
        }
    }

    fn configuration(&self) -> &'static str {
        "as shipped: bursts of 32, no rules"
    }

    fn applies_rules(&self) -> bool {
        false
    }

    fn version(&self, _: &Resources) -> Option<String> {
        // testpmd prints its version only after the start; the package of the library has the same one.
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${Version}", "dpdk"]);
        run_tool(&mut query)
            .ok()
            .map(|version| format!("DPDK {}", version.trim()))
    }

    fn warm_up(&self, _: &Load) -> WarmUp {
        WarmUp::seconds(0, 4)
    }

    fn memory_mib(&self, load: &Load) -> u64 {
        buffers(load) as u64 * 2560 / (1 << 20) + 256
    }

    fn start(&self, resources: &Resources, load: &Load) -> Result<Box<dyn Forwarding>, PeerError> {
        let command = self.command(resources, load);
        let mut running = Running::start(
            self.name(),
            &command,
            resources.nice,
            &resources.dir.join("testpmd.log"),
        )?;
        let start = Instant::now();
        // A generator sends only after the switch is up.
        while rate_since_last_query(&mut running, load.ingress.len())? == 0.0 && load.memif.is_none() {
            if start.elapsed() > START {
                return Err(PeerError::NoPackets { text: running.tail() });
            }
            pause(Duration::from_millis(100))?;
        }
        Ok(Box::new(Forwarder {
            running,
            command: command_line(&command),
            pairs: load.ingress.len(),
        }))
    }
}

impl Forwarding for Forwarder {
    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn rate(&mut self, window: Duration) -> Result<[f64; 2], PeerError> {
        rate_since_last_query(&mut self.running, self.pairs)?;
        pause(window)?;
        Ok([rate_since_last_query(&mut self.running, self.pairs)?, 0.0])
    }

    fn tail(&self) -> String {
        self.running.tail()
    }

    fn commands(&self) -> Vec<String> {
        vec![self.command.clone(), "testpmd> show port stats 1".to_owned()]
    }

    fn installation(&self) -> Option<Installation> {
        None
    }
}

/// Returns packets per second since the last call, by the clock of testpmd.
fn rate_since_last_query(running: &mut Running, pairs: usize) -> Result<f64, PeerError> {
    let mut total = 0.0;
    for pair in 0..pairs {
        let sink = pair * 2 + 1;
        let before = rates(&running.log(), sink).len();
        running.write_line(&format!("show port stats {sink}"))?;
        total += running.wait_for("statistics", START, |running| {
            Ok(rates(&running.log(), sink).get(before).copied())
        })?;
    }
    Ok(total)
}

/// Returns the `Tx-pps` of each report about a port.
fn rates(log: &str, port: usize) -> Vec<f64> {
    let title = format!("NIC statistics for port {port} ");
    let mut rates = Vec::new();
    let mut ours = false;
    for line in log.lines() {
        if line.contains("NIC statistics for port ") {
            ours = line.contains(&title);
        } else if ours && let Some(rate) = line.trim().strip_prefix("Tx-pps:") {
            let rate = rate
                .split_whitespace()
                .next()
                .and_then(|rate| rate.parse::<f64>().ok());
            rates.push(rate.unwrap_or(0.0));
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "
  ######################## NIC statistics for port 0  ########################
  RX-packets: 150703936  RX-missed: 0          RX-bytes:  9042236160
  Throughput (since last show)
  Rx-pps:     32855086          Rx-bps:  15770441608
  Tx-pps:            0          Tx-bps:            0
  ############################################################################

  ######################## NIC statistics for port 1  ########################
  TX-packets: 0  TX-errors: 0          TX-bytes:  0

  Throughput (since last show)
  Rx-pps:            0          Rx-bps:            0
  Tx-pps:            0          Tx-bps:            0
  ######################## NIC statistics for port 1  ########################
  Tx-pps:     27076130          Tx-bps:            0
  ######################## NIC statistics for port 10  ########################
  Tx-pps:     1          Tx-bps:            0
  ######################## NIC statistics for port 1  ########################
  Tx-pps:     28000000          Tx-bps:            0
";

    #[test]
    fn the_rate_of_the_sink_is_parsed() {
        assert_eq!(rates(LOG, 1), [0.0, 27_076_130.0, 28_000_000.0]);
        assert_eq!(rates(LOG, 10), [1.0]);
        assert_eq!(rates("EAL: No free hugepages", 1), [] as [f64; 0]);
    }
}
