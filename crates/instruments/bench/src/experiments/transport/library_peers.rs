//! Other transports that are libraries. Small programs in `contrib/peers` send and receive files with them.
//!
//! | system | library | settings |
//! | --- | --- | --- |
//! | NORM | libnorm of the Naval Research Laboratory (RFC 5740) | multicast; the given rate, or its congestion control (TFMCC); Reed-Solomon (160, 128) |
//! | PGM | OpenPGM (RFC 3208) | multicast in UDP; the given rate; window of 100,000 packets |
//! | UDT | UDT 4 | its congestion control; window of 100,000 packets |
//! | quinn | quinn 0.11 (RFC 9000) | one stream, BBR, windows of 100 MB, AES-GCM; hashes nothing |
//!
//! The programs ask for socket buffers of 8 MiB; the kernel limits them to `net.core.rmem_max`.

use std::fs;
use std::path::{Path, PathBuf};

use millrace_process::pause;
use serde::Deserialize;

use super::error::{TransportBenchError, output};
use super::files;
use super::peers::{LIMIT_S, Meter, PeerResult, path};
use super::test_bed::{SENDER, TestBed, address, host};
use crate::file_error::file;
use crate::record::Record;

/// A transport that is a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LibraryPeer {
    Norm,
    Pgm,
    Udt,
    Quinn,
}

/// The output of a sending program.
#[derive(Deserialize)]
struct Sent {
    seconds: f64,
}

/// Returns the records of the systems. A system without a program has the version "not there".
pub(super) fn systems() -> impl Iterator<Item = Record> {
    LibraryPeer::ALL.into_iter().map(|peer| Record::System {
        system: peer.name().to_owned(),
        version: peer.obstacle().is_some().then(|| "not there".to_owned()),
        configuration: peer.configuration().to_owned(),
    })
}

impl LibraryPeer {
    const ALL: [LibraryPeer; 4] = [
        LibraryPeer::Norm,
        LibraryPeer::Pgm,
        LibraryPeer::Udt,
        LibraryPeer::Quinn,
    ];

    /// Returns the name of the program.
    pub(super) fn name(self) -> &'static str {
        match self {
            LibraryPeer::Norm => "norm",
            LibraryPeer::Pgm => "pgm",
            LibraryPeer::Udt => "udt",
            LibraryPeer::Quinn => "quinn",
        }
    }

    /// Returns the settings in words.
    pub(super) fn configuration(self) -> &'static str {
        match self {
            LibraryPeer::Norm => {
                "multicast, Reed-Solomon (160, 128), told the rate or its congestion control"
            }
            LibraryPeer::Pgm => "multicast in UDP, told the rate, window of 100,000 packets",
            LibraryPeer::Udt => "its congestion control, window of 100,000 packets",
            LibraryPeer::Quinn => "one stream, BBR, windows of 100 MB",
        }
    }

    /// Returns the UDP port on which a receiver listens.
    fn port(self) -> u16 {
        match self {
            LibraryPeer::Norm => 6003,
            LibraryPeer::Pgm => 7500,
            LibraryPeer::Udt => 9100,
            LibraryPeer::Quinn => 9200,
        }
    }

    /// Returns the path of the program: in the directory `MILLRACE_PEERS`, or in `target/peers`.
    fn program(self) -> PathBuf {
        let directory =
            std::env::var_os("MILLRACE_PEERS").map_or_else(|| "target/peers".into(), PathBuf::from);
        directory.join(self.name())
    }

    /// Returns the reason why the program cannot be measured; `None` if it can.
    pub(super) fn obstacle(self) -> Option<String> {
        let program = self.program();
        (!program.is_file()).then(|| {
            format!(
                "{} does not exist. To fix it: scripts/setup.sh peers && make -C contrib/peers",
                program.display()
            )
        })
    }

    /// Measures the transfer of a file to several receivers. Without `rate_bps`, the system's congestion
    /// control determines the rate.
    pub(super) fn transfer(
        self,
        test_bed: &TestBed,
        source: &Path,
        receivers: usize,
        rate_bps: Option<f64>,
    ) -> Result<PeerResult, TransportBenchError> {
        let program = fs::canonicalize(self.program()).map_err(file(&self.program()))?;
        let program = path(&program)?;
        let mut started = Vec::new();
        let mut places = Vec::new();
        for receiver in 0..receivers {
            let directory = test_bed.directory(self.name())?;
            let node = (receiver + 1).to_string();
            let argv = ["timeout", LIMIT_S, program, "receive", path(&directory)?, &node];
            let mut running = test_bed.start(self.name(), &host(receiver), &argv)?;
            test_bed.wait_for_port(&host(receiver), "udp", self.port(), &mut running)?;
            started.push(running);
            places.push(directory);
        }
        let meter = Meter::start(test_bed)?;
        let rate = rate_bps.unwrap_or(0.0).round().to_string();
        let (count, to) = (receivers.to_string(), address(0));
        let argv = [
            "timeout",
            LIMIT_S,
            program,
            "send",
            path(source)?,
            &rate,
            &count,
            &to,
        ];
        let text = test_bed.start(self.name(), SENDER, &argv)?.finish()?;
        let sent: Option<Sent> = text
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str(line).ok());
        let sent = sent.ok_or_else(|| output(self.name(), "no line of JSON with its seconds"))?;
        let size = fs::metadata(source).map_err(file(source))?.len() as f64;
        let result = meter.end(
            test_bed,
            started,
            size * receivers as f64,
            Some(sent.seconds),
            receivers,
        )?;
        // The receivers have ended and closed their files. The comparison is not part of the measured time. An interrupt ends
        // the run before it.
        pause(std::time::Duration::ZERO)?;
        for place in &places {
            let different = files::differences(source, &place.join("source"))?;
            let _removed = fs::remove_dir_all(place);
            if different > 0 {
                return Err(output(self.name(), format!("{different} bytes differ")));
            }
        }
        Ok(result)
    }
}
