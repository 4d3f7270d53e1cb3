//! `dpdk-testpmd`: forwards between the same devices without looking at a packet, the limit of the machine.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{Forwarding, Installation, Load, Peer, PeerError, START, Site, WarmUp, swallow};
use crate::workload::Sink;
use millrace_process::{Running, pause, shown, tool};

/// How testpmd forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Receives and sends.
    Io,
    /// Also writes the MAC addresses of each packet.
    Mac,
}

/// The peer.
#[derive(Debug, Clone, Copy)]
pub struct Testpmd(pub Mode);

struct Forwarder {
    running: Running,
    command: String,
    /// Of ports that packets come in and leave by.
    pairs: usize,
}

impl Testpmd {
    fn mode(self) -> &'static str {
        match self.0 {
            Mode::Io => "io",
            Mode::Mac => "mac",
        }
    }

    fn command(self, site: &Site, load: &Load) -> Command {
        let memory = self.memory_mib(load);
        // Its answers come through the standard library's buffer, which waits for 4 KiB unless told otherwise.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd"]);
        // Logical cores 1 and so on forward; 0 asks and answers, on a core that another may share.
        let mut lcores = format!("0@{}", site.control_core);
        for (lcore, core) in (1..).zip(&site.cores) {
            lcores.push_str(&format!(",{lcore}@{core}"));
        }
        command.args(["--lcores", &lcores, "--main-lcore", "0"]);
        command.args(["--no-pci", "--no-telemetry", "--file-prefix"]);
        command.arg(format!("bench{}", std::process::id()));
        if site.huge_pages_mib >= memory {
            command.arg("--in-memory");
        } else {
            command.args(["--no-huge", "-m", &memory.to_string()]);
        }
        // Ports are numbered as they are given, and forward in pairs: 0 to 1, 2 to 3.
        for (place, (_, devargs)) in load.ports().enumerate() {
            command.arg("--vdev").arg(devargs);
            let sink = match &load.memif {
                Some(_) => load.sink(Sink::First),
                None => swallow(&format!("net_null{place}")),
            };
            command.arg("--vdev").arg(sink);
        }
        // Interactive, so that it can be asked, and forwarding at once.
        command.args(["--", "-i", "-a", "--no-flush-rx"]);
        command.arg(format!("--forward-mode={}", self.mode()));
        command.arg(format!("--nb-cores={}", site.cores.len()));
        command.arg(format!("--total-num-mbufs={}", buffers(load)));
        command
    }
}

/// One buffer for each packet of the files stays in the driver; others are under way, at least what testpmd
/// asks for.
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

    fn version(&self, _: &Site) -> Option<String> {
        // It tells its version only on the way to forwarding; the library's package is the same.
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${Version}", "dpdk"]);
        tool(&mut query)
            .ok()
            .map(|version| format!("DPDK {}", version.trim()))
    }

    fn warm_up(&self, _: &Load) -> WarmUp {
        WarmUp::seconds(0, 4)
    }

    fn memory_mib(&self, load: &Load) -> u64 {
        buffers(load) as u64 * 2560 / (1 << 20) + 256
    }

    fn start(&self, site: &Site, load: &Load) -> Result<Box<dyn Forwarding>, PeerError> {
        let command = self.command(site, load);
        let mut running = Running::start(self.name(), &command, site.nice, &site.dir.join("testpmd.log"))?;
        let start = Instant::now();
        // A generator sends nothing before the switch is up.
        while rate_since_asked_last(&mut running, load.ingress.len())? == 0.0 && load.memif.is_none() {
            if start.elapsed() > START {
                return Err(PeerError::Silent { text: running.tail() });
            }
            pause(Duration::from_millis(100))?;
        }
        Ok(Box::new(Forwarder {
            running,
            command: shown(&command),
            pairs: load.ingress.len(),
        }))
    }
}

impl Forwarding for Forwarder {
    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn rate(&mut self, window: Duration) -> Result<[f64; 2], PeerError> {
        rate_since_asked_last(&mut self.running, self.pairs)?;
        pause(window)?;
        Ok([rate_since_asked_last(&mut self.running, self.pairs)?, 0.0])
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

/// Packets a second, by testpmd's own clock, since it was asked the last time.
fn rate_since_asked_last(running: &mut Running, pairs: usize) -> Result<f64, PeerError> {
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
    fn the_rate_of_the_port_that_swallows_is_read() {
        assert_eq!(rates(LOG, 1), [0.0, 27_076_130.0, 28_000_000.0]);
        assert_eq!(rates(LOG, 10), [1.0]);
        assert_eq!(rates("EAL: No free hugepages", 1), [] as [f64; 0]);
    }
}
