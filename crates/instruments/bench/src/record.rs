//! What a run writes down, one JSON object a line: everything that the table and the report show is made of
//! these, so that they can be made again, or by somebody else.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The machine and the run.
    Run {
        /// The experiment: `forward`.
        experiment: String,
        /// When it began, seconds since 1970.
        started: u64,
        /// True if it was short.
        quick: bool,
        /// The machine.
        machine: Box<Machine>,
        /// The command that repeats it.
        command: String,
    },
    /// A system that takes part.
    System {
        /// Its name.
        system: String,
        /// Its version.
        version: Option<String>,
        /// What is configured other than as shipped.
        configuration: String,
    },
    /// A system was brought up for a case.
    Start {
        /// The case.
        case: String,
        /// The system.
        system: String,
        /// Which time, from 0.
        round: usize,
        /// How it was brought up.
        commands: Vec<String>,
        /// How long `ovs-ofctl add-flows` took, if there were flow entries.
        install_s: Option<f64>,
        /// How much larger the process was afterwards, bytes.
        install_bytes: Option<u64>,
        /// How many flow entries.
        flows: usize,
        /// How long it was let to settle.
        warm_up_s: f64,
    },
    /// How a system settled after it was brought up.
    Settling {
        /// The case.
        case: String,
        /// The system.
        system: String,
        /// Which time, from 0.
        round: usize,
        /// How long a slice is.
        slice_s: f64,
        /// Packets a second in each slice, one after the other.
        pps: Vec<f64>,
    },
    /// What a system said after its measurements of where its lookups ended.
    Lookups {
        /// The case.
        case: String,
        /// The system.
        system: String,
        /// Its words.
        text: String,
    },
    /// One measurement.
    Sample {
        /// The case.
        case: String,
        /// The system.
        system: String,
        /// Which start, from 0.
        round: usize,
        /// Which window in it, from 0.
        window: usize,
        /// Packets a second by each sink.
        pps: [f64; 2],
        /// The share of its core that the forwarding thread had.
        core_share: f64,
        /// True if the shares of the sinks are those of a correct switch.
        right: bool,
    },
    /// Something measured that is not a rate of packets.
    Figure {
        /// The case.
        case: String,
        /// The system.
        system: String,
        /// Which time, from 0.
        round: usize,
        /// What was measured: `install`.
        quantity: String,
        /// In which unit: `s`.
        unit: String,
        /// How much it is.
        value: f64,
    },
    /// One second of a transfer (experiment `lan`).
    Second {
        /// The system.
        system: String,
        /// Which run, from 0.
        round: usize,
        /// Which second of it, from 0.
        second: usize,
        /// Bits a second of TCP payload.
        bps: f64,
        /// Segments sent again.
        retransmits: u64,
    },
    /// A transfer through a switch (experiment `lan`).
    Transfer(Box<crate::experiments::lan::Transfer>),
    /// Where a system's time went (experiment `profile`).
    Profile(Box<millrace_profile::Profile>),
    /// What a simulator counted of a system's fast path (experiment `profile`).
    Simulated(Box<millrace_profile::simulated::Simulated>),
    /// The rate of a chain of functions (experiment `chain`).
    Chain(Box<crate::experiments::chain::Point>),
    /// A rate that was asked for and measured (experiment `qos`).
    Held(Box<crate::experiments::qos::Held>),
    /// A run of a generator (experiments `rate`, `latency`, `updates`).
    Trial {
        /// The case.
        case: String,
        /// The system.
        system: String,
        /// Which time, from 0.
        round: usize,
        /// What it was for: `64 bytes`, `90 %`, `busy`.
        purpose: String,
        /// The share of its core that the forwarding thread had.
        core_share: f64,
        /// What came of it.
        end: Box<crate::generate::End>,
    },
    /// A measurement that did not come about.
    Failed {
        /// The case.
        case: String,
        /// The system.
        system: String,
        /// Why.
        reason: String,
    },
}

/// Appends records to a file as they come.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: PathBuf,
    records: Vec<Record>,
}

impl Log {
    /// A new file; an old one of that name is replaced.
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

    /// Adds a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, record: Record) -> io::Result<()> {
        let line = serde_json::to_string(&record)?;
        writeln!(self.file, "{line}")?;
        self.records.push(record);
        Ok(())
    }

    /// All records so far.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The records of a file; a line that is none is an error.
///
/// # Errors
/// The file cannot be read, or is not of records.
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
    fn what_is_written_is_read_back() {
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
            reason: "not installed".to_owned(),
        })
        .unwrap();
        assert_eq!(read(&path).unwrap(), log.records());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.starts_with("{\"record\":\"sample\""));
    }
}
