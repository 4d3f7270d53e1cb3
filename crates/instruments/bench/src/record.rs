//! The records of a run, one JSON object per line. The table and the report depend only on the records, so both can be
//! created again from the file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// One line of `EXPERIMENT.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The run and its machine; the first record of a run.
    Run {
        /// The name of the experiment: `forward`.
        experiment: String,
        /// The start of the run, in seconds since 1970.
        started: u64,
        /// True if the run was a quick one.
        quick: bool,
        machine: Box<Machine>,
        /// The command that repeats the run.
        command: String,
    },
    /// A system that takes part in the run.
    System {
        /// The name of the system.
        system: String,
        /// The version of the system.
        version: Option<String>,
        /// The settings that differ from the system as shipped.
        configuration: String,
    },
    /// A system was started for a case.
    Start {
        case: String,
        system: String,
        /// The number of the round, from 0.
        round: usize,
        /// The commands that started the system.
        commands: Vec<String>,
        /// The duration of `ovs-ofctl add-flows` in seconds, if there were flow entries.
        install_s: Option<f64>,
        /// The growth of the resident memory of the system during that time, in bytes.
        install_bytes: Option<u64>,
        /// The number of flow entries.
        flows: usize,
        /// The duration of the warm-up in seconds.
        warm_up_s: f64,
    },
    /// The rates of a system during the warm-up.
    Settling {
        case: String,
        system: String,
        /// The number of the round, from 0.
        round: usize,
        /// The duration of a slice in seconds.
        slice_s: f64,
        /// Packets per second in each slice, in order of time.
        pps: Vec<f64>,
    },
    /// The lookup statistics of a system after its measurements.
    Lookups {
        case: String,
        system: String,
        /// The text that the system printed.
        text: String,
    },
    /// A measurement over one window.
    Sample {
        case: String,
        system: String,
        /// The number of the round, from 0.
        round: usize,
        /// The number of the window within the round, from 0.
        window: usize,
        /// Packets per second that left by each sink.
        pps: [f64; 2],
        /// The share of its core that the forwarding thread got, 0 to 1.
        core_share: f64,
        /// True if the shares of the sinks are those of a correct switch.
        right: bool,
    },
    /// A value of a quantity that is not a rate of packets.
    Figure {
        case: String,
        system: String,
        /// The number of the round, from 0.
        round: usize,
        /// The name of the quantity: `install`.
        quantity: String,
        /// The unit: `s`.
        unit: String,
        /// The value in this unit.
        value: f64,
    },
    /// One second of a transfer (experiment `lan`).
    Second {
        system: String,
        /// The number of the run, from 0.
        round: usize,
        /// The number of the second within the run, from 0.
        second: usize,
        /// TCP payload in bits per second.
        bps: f64,
        /// The number of retransmitted segments.
        retransmits: u64,
    },
    /// A transfer through a switch (experiment `lan`).
    Transfer(Box<crate::experiments::lan::Transfer>),
    /// A profile of a system (experiment `profile`).
    Profile(Box<millrace_profile::Profile>),
    /// Simulated events of the fast path of a system (experiment `profile`).
    Simulated(Box<millrace_profile::simulated::Simulated>),
    /// The rate of a chain of network functions (experiment `chain`).
    Chain(Box<crate::experiments::chain::Point>),
    /// The configured rate of a meter or a shaper, and the measured rate (experiment `qos`).
    #[serde(rename = "held")]
    RateResult(Box<crate::experiments::qos::RateResult>),
    /// A run of the generator (experiments `rate`, `latency`, `updates`, `bridge`, `qos`).
    Trial {
        case: String,
        system: String,
        /// The number of the round, from 0.
        round: usize,
        /// The purpose of the run: `64 bytes`, `90 %`, `busy`.
        purpose: String,
        /// The share of its core that the forwarding thread got, 0 to 1.
        core_share: f64,
        /// The result of the run.
        end: Box<crate::generate::End>,
    },
    /// A record of the experiment `ips`.
    Ips(Box<crate::experiments::ips::IpsRecord>),
    /// A record of the experiment `route`.
    Route(Box<crate::experiments::route::RouteRecord>),
    /// A record of the experiment `exchange`.
    Exchange(Box<crate::experiments::exchange::ExchangeRecord>),
    /// A record of the experiment `nic`.
    Nic(Box<crate::experiments::nic::NicRecord>),
    /// A value, delays, rates or losses of the experiment `wan`.
    Wan(Box<crate::experiments::wan::WanRecord>),
    /// A value or a transfer of the experiment `transport`.
    Transport(Box<crate::experiments::transport::TransportRecord>),
    /// A system that could not be measured in at least one round.
    Failed {
        case: String,
        system: String,
        /// The name of the quantity; `None` for all that the case measures.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quantity: Option<String>,
        reason: String,
    },
}

/// A file to which records are appended.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: PathBuf,
    records: Vec<Record>,
}

impl Log {
    /// Creates the file, and replaces an existing one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> io::Result<Log> {
        Ok(Log {
            path: path.to_owned(),
            file: File::create(path)?,
            records: Vec::new(),
        })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, record: Record) -> io::Result<()> {
        let line = serde_json::to_string(&record)?;
        writeln!(self.file, "{line}")?;
        self.records.push(record);
        Ok(())
    }

    /// Returns all records so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the reason why a system, or a quantity of the system, could not be measured in a case; `None`
/// without a failure.
pub(crate) fn failure<'a>(
    records: &'a [Record],
    of_case: &str,
    of_system: &str,
    of_quantity: Option<&str>,
) -> Option<&'a str> {
    records.iter().find_map(|record| match record {
        Record::Failed {
            case,
            system,
            quantity,
            reason,
        } if case == of_case
            && system == of_system
            && (quantity.is_none() || quantity.as_deref() == of_quantity) =>
        {
            Some(reason.as_str())
        }
        _ => None,
    })
}

/// Reads the records of a file.
///
/// # Errors
/// The file cannot be read, or a line is not a record.
pub fn read(path: &Path) -> io::Result<Vec<Record>> {
    BufReader::new(File::open(path)?)
        .lines()
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs.jsonl");
        let mut log = Log::create(&path).unwrap();
        log.add(Record::Sample {
            case: "one-rule".to_owned(),
            system: "millrace".to_owned(),
            round: 1,
            window: 0,
            pps: [1.5e7, 0.0],
            core_share: 0.99,
            right: true,
        })
        .unwrap();
        log.add(Record::Failed {
            case: "one-rule".to_owned(),
            system: "ovs-dpdk".to_owned(),
            quantity: None,
            reason: "not installed".to_owned(),
        })
        .unwrap();
        assert_eq!(read(&path).unwrap(), log.records());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.starts_with("{\"record\":\"sample\""));
    }

    #[test]
    fn records_of_earlier_versions_are_read_and_written_unchanged() {
        for line in [
            r#"{"record":"run","experiment":"forward","started":9,"quick":true,"machine":{"processor":"x","cores":2,
                "memory":1024,"kernel":"6.1","distribution":"Debian","virtualisation":"kvm","huge_pages_mib":1024,
                "load":"0.1 0.2 0.3","distance":{"least_nanos":52,"most_nanos":171}},"command":"millrace bench"}"#,
            r#"{"record":"held","mechanism":"meter","workers":2,"frame_size":512,"asked_bps":1e6,"measured_bps":0.99e6,
                "offered_bps":3e6,"seconds":5.0,"core_share":1.0}"#,
            r#"{"record":"transfer","system":"ovs","round":1,"seconds":60.0,"bytes":5e8,"retransmits":3,"frames_sent":10,
                "frames_received":9,"cpu":{"machine_s":3.0,"switch_s":1.0,"hosts_s":[0.5,0.5],"steal_s":0.0},
                "commands":["millrace lab up"]}"#,
            r#"{"record":"chain","kind":"ring","length":4,"frame":64,"mpps":3.5,"gbps":2.4,"ratio_one_hop":0.4,
                "ratio_ovs":3.5}"#,
        ] {
            let record: Record = serde_json::from_str(line).unwrap();
            let before: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_value(&record).unwrap(), before);
        }
    }
}
