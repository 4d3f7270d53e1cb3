//! `dpdk-testpmd`: forwards between the same devices without looking at a packet, the limit of the machine.

use std::process::Command;
use std::time::Duration;

use super::{Forwarding, Installation, Load, Peer, PeerError, START, Site, replay, swallow};
use crate::process::{Running, pause, shown, tool};

/// The DPDK port that swallows: devices are numbered as they are given.
const SINK: u32 = 1;

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
}

impl Testpmd {
    fn mode(self) -> &'static str {
        match self.0 {
            Mode::Io => "io",
            Mode::Mac => "mac",
        }
    }

    fn command(self, site: &Site, load: &Load) -> Command {
        // One buffer for each packet of the file stays in the driver; as many again are under way, at least
        // what testpmd asks for.
        let buffers = (load.packets_len + 16_384).next_power_of_two() - 1;
        let memory = buffers * 2560 / (1 << 20) + 256;
        let mut command = Command::new("dpdk-testpmd");
        command
            .arg("-l")
            .arg(format!("{},{}", site.control_core, site.core));
        command.args(["--main-lcore", &site.control_core.to_string()]);
        command.args(["--no-pci", "--no-telemetry", "--file-prefix"]);
        command.arg(format!("bench{}", std::process::id()));
        if site.huge_pages_mib as usize >= memory {
            command.arg("--in-memory");
        } else {
            command.args(["--no-huge", "-m", &memory.to_string()]);
        }
        command.arg("--vdev").arg(replay("net_pcap0", &load.packets));
        command.arg("--vdev").arg(swallow("net_null1"));
        command.args(["--", "--no-flush-rx", "--stats-period", "1"]);
        command.arg(format!("--forward-mode={}", self.mode()));
        command.arg(format!("--total-num-mbufs={buffers}"));
        command
    }
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

    fn warm_up(&self, _: &Load) -> Duration {
        Duration::from_secs(4)
    }

    fn start(&self, site: &Site, load: &Load) -> Result<Box<dyn Forwarding>, PeerError> {
        let command = self.command(site, load);
        let mut running = Running::start(self.name(), &command, site.nice, &site.dir.join("testpmd.log"))?;
        running.wait_for("the first statistics", START, |running| {
            Ok((!rates(&running.log(), SINK).is_empty()).then_some(()))
        })?;
        Ok(Box::new(Forwarder {
            running,
            command: shown(&command),
        }))
    }
}

impl Forwarding for Forwarder {
    fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// testpmd prints once a second what it forwarded in the last one, by its own clock; the first printed
    /// after the call began before it, and is left out.
    fn rate(&mut self, window: Duration) -> Result<[f64; 2], PeerError> {
        let before = rates(&self.running.log(), SINK).len();
        let wanted = before + 1 + (window.as_secs_f64().round() as usize).max(1);
        pause(window)?;
        let all = self
            .running
            .wait_for("statistics", Duration::from_secs(20), |running| {
                let all = rates(&running.log(), SINK);
                Ok((all.len() >= wanted).then_some(all))
            })?;
        let own = all.get(before + 1..wanted).unwrap_or_default();
        Ok([own.iter().sum::<f64>() / own.len().max(1) as f64, 0.0])
    }

    fn tail(&self) -> String {
        self.running.tail()
    }

    fn commands(&self) -> Vec<String> {
        // Its standard input must stay open, or it ends.
        vec![format!("sleep 60 | {}", self.command)]
    }

    fn installation(&self) -> Option<Installation> {
        None
    }
}

/// The `Tx-pps` of each report about a port, but of the first, which is about no time at all.
fn rates(log: &str, port: u32) -> Vec<f64> {
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
    // A rate of zero is also what it prints before packets come.
    let first = rates.iter().position(|rate| *rate > 0.0).unwrap_or(rates.len());
    rates.split_off(first)
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
    fn the_rate_of_the_port_that_swallows_is_read_from_the_first_packet_on() {
        assert_eq!(rates(LOG, 1), [27_076_130.0, 28_000_000.0]);
        assert_eq!(rates(LOG, 10), [1.0]);
        assert_eq!(rates("EAL: No free hugepages", 1), [] as [f64; 0]);
    }
}
