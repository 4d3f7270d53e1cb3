//! `ovs-ofctl`, used for every switch: installs flow entries and reads counters.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use millrace_process::{ProcessError, run_tool, wrap};

/// Packets of an OpenFlow port, as `ovs-ofctl dump-ports` prints them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets received.
    pub rx: u64,
    /// Packets sent.
    pub tx: u64,
}

/// Returns a command for the switch at `target` (`tcp:127.0.0.1:6653`, `unix:/run/br0.mgmt`).
pub(crate) fn command(verb: &str, target: &str) -> Command {
    let mut command = Command::new("ovs-ofctl");
    command.args(["-O", "OpenFlow13", verb, target]);
    command
}

/// Installs the flow entries of a file and returns when the switch has them. The entries are sent in a
/// bundle: without one, the tool waits for a barrier after each entry, and the duration would be that of
/// round trips. The tool has the nice level of the switch, so that the switch does not preempt it at each
/// message.
pub(crate) fn add_flows(target: &str, flows: &Path, nice: i32) -> Result<String, ProcessError> {
    let mut command = command("add-flows", target);
    command.arg(flows).arg("--bundle");
    run_tool(&mut wrap(&command, nice))?;
    Ok(millrace_process::command_line(&command))
}

/// Returns the number of flow entries in all tables.
pub(crate) fn active(target: &str) -> Result<u64, ProcessError> {
    Ok(parse_active(&run_tool(&mut command("dump-tables", target))?))
}

/// Returns the sum of the numbers `active=` in the output of `ovs-ofctl dump-tables`.
fn parse_active(text: &str) -> u64 {
    text.split("active=")
        .skip(1)
        .filter_map(|rest| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse::<u64>().ok()
        })
        .sum()
}

/// Returns the counters of all ports.
pub(crate) fn ports(target: &str) -> Result<BTreeMap<u32, PortCounters>, ProcessError> {
    Ok(parse_ports(&run_tool(&mut command("dump-ports", target))?))
}

/// Parses the output of `ovs-ofctl dump-ports`. A counter that the switch does not have is 0.
pub(crate) fn parse_ports(text: &str) -> BTreeMap<u32, PortCounters> {
    let mut ports: BTreeMap<u32, PortCounters> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let mut line = line.trim();
        if let Some((port, rest)) = line.strip_prefix("port").and_then(|rest| rest.split_once(':')) {
            current = port.trim().parse().ok();
            line = rest.trim();
        }
        let Some(port) = current else { continue };
        let count = |text: &str| {
            text.split(',')
                .next()
                .and_then(|count| count.parse().ok())
                .unwrap_or(0)
        };
        let counters = ports.entry(port).or_default();
        if let Some(rest) = line.strip_prefix("rx pkts=") {
            counters.rx = count(rest);
        } else if let Some(rest) = line.strip_prefix("tx pkts=") {
            counters.tx = count(rest);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_all_tables_are_added_up() {
        let text = "\
OFPST_TABLE reply (OF1.3) (xid=0x2):
  table 0:
    active=1000001, lookup=12, matched=12
  table 1:
    active=2, lookup=0, matched=0
  table 2-253: ditto
";
        assert_eq!(parse_active(text), 1_000_003);
    }

    #[test]
    fn the_ports_of_open_vswitch_are_read() {
        let text = "\
OFPST_PORT reply (OF1.3) (xid=0x2): 3 ports
  port  1: rx pkts=181344, bytes=10880640, drop=0, errs=0, frame=?, over=?, crc=?
           tx pkts=0, bytes=0, drop=0, errs=0, coll=?
           duration=0.020s
  port LOCAL: rx pkts=5, bytes=0, drop=0, errs=0, frame=0, over=0, crc=0
           tx pkts=6, bytes=0, drop=0, errs=0, coll=0
           duration=0.102s
  port  2: rx pkts=?, bytes=0, drop=0, errs=0, frame=?, over=?, crc=?
           tx pkts=181312, bytes=0, drop=0, errs=0, coll=?
           duration=0.103s
";
        let ports = parse_ports(text);
        assert_eq!(ports.len(), 2);
        assert_eq!(ports[&1], PortCounters { rx: 181_344, tx: 0 });
        assert_eq!(ports[&2], PortCounters { rx: 0, tx: 181_312 });
    }
}
