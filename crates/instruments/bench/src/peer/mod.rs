//! The systems that are measured, behind one trait: each is started with the same rules and packets on the
//! same core, warmed up, and asked how many packets it has forwarded.
//!
//! A peer runs with one forwarding thread. Packets come from a `net_pcap` device that replays a file from
//! memory for ever, and leave through `net_null` devices that swallow them, in DPDK's own drivers for every
//! system: what differs is what is between.

pub(crate) mod channel;
pub mod millrace;
pub(crate) mod ofctl;
pub mod ovs;
pub mod testpmd;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use millrace_api::client::ClientError;
use thiserror::Error;

use crate::workload::Sink;
use millrace_process::{ProcessError, ThreadTimes, pause};
pub use ofctl::PortCounters;

/// How long a system may take to start.
const START: Duration = Duration::from_secs(60);
/// What settles within this is looked at in shorter slices.
const SETTLES_SOON: Duration = Duration::from_secs(8);

/// Why a system could not be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A program did not do what it should.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Millrace's REST interface says no.
    #[error("millraced: {0}")]
    Api(#[from] ClientError),
    /// What a program says of its packets cannot be read.
    #[error("{system}: {what}:\n{text}")]
    Unreadable {
        /// The system.
        system: &'static str,
        /// What was looked for.
        what: &'static str,
        /// What it wrote.
        text: String,
    },
    /// The system forwards nothing.
    #[error("it forwards nothing:\n{text}")]
    Silent {
        /// The end of its log.
        text: String,
    },
    /// The others had huge pages, and for this one there are none.
    #[error(
        "{mib} MiB of huge pages were there at the start of the run and are gone: does another program take them?"
    )]
    NoHugePages {
        /// How much was wanted.
        mib: u64,
    },
    /// A case with more forwarding threads than this machine has cores.
    #[error("{workers} forwarding threads need as many cores; this machine has {cores}")]
    TooFewCores {
        /// How many threads.
        workers: usize,
        /// How many cores.
        cores: usize,
    },
    /// A workload that the system cannot take.
    #[error("{system} does not do this: {reason}")]
    Unsuited {
        /// The system.
        system: &'static str,
        /// Why.
        reason: String,
    },
}

/// What a system is given.
#[derive(Debug, Clone)]
pub struct Load {
    /// The flow entries, for `ovs-ofctl add-flows`.
    pub flows: PathBuf,
    /// How many they are.
    pub flows_len: usize,
    /// The packets, one file for each ingress port; as many threads forward.
    pub ingress: Vec<PathBuf>,
    /// How many packets they hold together.
    pub packets_len: usize,
    /// The devargs of the first sink, if it is to do other than swallow.
    pub first_sink: Option<String>,
    /// The socket of a generator ([`crate::generate`]), if packets come from one and go back to it: then
    /// every port is a memif, whose identifier is its number, and nothing is replayed or swallowed.
    pub memif: Option<PathBuf>,
}

impl Load {
    /// As much of a load as says how long a system takes to settle under it: no file is there.
    pub(crate) fn outline(flows_len: usize, packets_len: usize) -> Load {
        Load {
            flows: PathBuf::new(),
            flows_len,
            ingress: Vec::new(),
            packets_len,
            first_sink: None,
            memif: None,
        }
    }

    /// Returns the devargs of a sink.
    fn sink(&self, sink: Sink) -> String {
        match (sink, &self.first_sink, &self.memif) {
            (_, _, Some(socket)) => memif(sink.port(), socket),
            (Sink::First, Some(devargs), None) => devargs.clone(),
            _ => swallow(&format!("net_null{}", sink.port())),
        }
    }

    /// Returns the ingress ports and their devargs: 1, then those after the sinks.
    fn ports(&self) -> impl Iterator<Item = (u32, String)> {
        let numbers = std::iter::once(1).chain(Sink::Second.port() + 1..);
        numbers.zip(&self.ingress).map(|(number, packets)| {
            let devargs = match &self.memif {
                Some(socket) => memif(number, socket),
                None => replay(&format!("net_pcap{number}"), packets),
            };
            (number, devargs)
        })
    }
}

/// How long a system is let to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// At least: what settles slowly may look steady on its way.
    pub least: Duration,
    /// At most.
    pub most: Duration,
}

impl WarmUp {
    const fn seconds(least: u64, most: u64) -> WarmUp {
        WarmUp {
            least: Duration::from_secs(least),
            most: Duration::from_secs(most),
        }
    }
}

/// Where a system runs.
#[derive(Debug, Clone)]
pub struct Site {
    /// A directory of its own, empty.
    pub dir: PathBuf,
    /// The cores for the forwarding threads, one each.
    pub cores: Vec<u32>,
    /// The core for everything else.
    pub control_core: u32,
    /// Free huge pages, MiB; 0 means that systems do without.
    pub huge_pages_mib: u64,
    /// The nice level of the system.
    pub nice: i32,
    /// The daemon of Millrace.
    pub millraced: PathBuf,
}

/// A system that can be measured.
pub trait Peer {
    /// Its name in tables: `ovs-dpdk-tuned`.
    fn name(&self) -> &'static str;

    /// What is configured other than as shipped, in one line.
    fn configuration(&self) -> &'static str;

    /// Returns true if it looks at the flow entries at all, so that packets leave as these say.
    fn applies_rules(&self) -> bool {
        true
    }

    /// Returns true if each of its threads sends on a queue of its own, so that what it forwards does not come on the
    /// first. A generator at the other end has to have as many.
    fn sends_by_thread(&self) -> bool {
        false
    }

    /// Its version, if it can be found out.
    fn version(&self, site: &Site) -> Option<String>;

    /// How long it is let to settle with such a load.
    fn warm_up(&self, load: &Load) -> WarmUp;

    /// What it takes of huge pages with such a load, MiB.
    fn memory_mib(&self, load: &Load) -> u64;

    /// Starts it, installs the flow entries, and lets packets come.
    ///
    /// # Errors
    /// It does not start, or refuses the load.
    fn start(&self, site: &Site, load: &Load) -> Result<Box<dyn Forwarding>, PeerError>;
}

/// A system that forwards; dropping it ends it.
pub trait Forwarding {
    /// The process that has the forwarding thread.
    fn pid(&self) -> u32;

    /// Packets a second that left by each sink, over a window of about this length.
    ///
    /// # Errors
    /// It has ended, or cannot be asked.
    fn rate(&mut self, window: Duration) -> Result<[f64; 2], PeerError>;

    /// Where `ovs-ofctl` reaches it; `None` if it speaks no OpenFlow.
    fn target(&self) -> Option<String> {
        None
    }

    /// How many packets it has received and not sent so far, by its own count; `None` if it does not count.
    ///
    /// # Errors
    /// It cannot be asked.
    fn lost(&mut self) -> Result<Option<u64>, PeerError> {
        Ok(None)
    }

    /// How many MAC addresses its action NORMAL remembers, as it is configured; `None` if it is no learning bridge.
    ///
    /// # Errors
    /// It cannot be asked.
    fn mac_table_size(&mut self) -> Result<Option<usize>, PeerError> {
        Ok(None)
    }

    /// Forgets all MAC addresses. A system that cannot do so holds very few for as long as `teach` has it learn others,
    /// some of which it then still knows.
    ///
    /// # Errors
    /// It cannot be told, or `teach` fails.
    fn forget_macs(&mut self, teach: &mut dyn FnMut() -> Result<(), PeerError>) -> Result<(), PeerError> {
        teach()
    }

    /// What it says of how it looks packets up, if it says so: where its caches hit.
    fn lookups(&mut self) -> Option<String> {
        None
    }

    /// The end of what it has written, for a message.
    fn tail(&self) -> String;

    /// Returns the commands that brought it up, as a person would type them.
    fn commands(&self) -> Vec<String>;

    /// How the installation of the flow entries went; `None` if there was none.
    fn installation(&self) -> Option<Installation>;
}

/// How flow entries were taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Installation {
    /// How long `ovs-ofctl add-flows` took, with the barrier at its end.
    pub seconds: f64,
    /// How much larger the process was afterwards, bytes.
    pub memory: u64,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Packets a second by each sink.
    pub rates: [f64; 2],
    /// The share of its core that the forwarding thread had, 0 to 1.
    pub core_share: f64,
}

impl Sample {
    /// Packets a second in all.
    pub fn total(&self) -> f64 {
        self.rates.iter().sum()
    }
}

/// Measures a system of so many forwarding threads over one window.
///
/// # Errors
/// As [`Forwarding::rate`].
pub fn sample(running: &mut dyn Forwarding, window: Duration, workers: usize) -> Result<Sample, PeerError> {
    let before = ThreadTimes::of(running.pid());
    let rates = running.rate(window)?;
    let core_share = ThreadTimes::of(running.pid()).core_share_since(&before, workers);
    let sample = Sample { rates, core_share };
    if sample.total() > 0.0 {
        Ok(sample)
    } else {
        Err(PeerError::Silent { text: running.tail() })
    }
}

/// How a system settled.
#[derive(Debug, Clone, PartialEq)]
pub struct Settling {
    /// How long a slice is.
    pub slice: Duration,
    /// Packets a second in each, one after the other.
    pub rates: Vec<f64>,
}

impl Settling {
    /// How long it took, s.
    pub fn seconds(&self) -> f64 {
        self.slice.as_secs_f64() * self.rates.len() as f64
    }
}

/// Lets a system settle: until three slices in a row differ by less than 3 %.
///
/// # Errors
/// As [`Forwarding::rate`].
pub fn settle(running: &mut dyn Forwarding, warm_up: WarmUp) -> Result<Settling, PeerError> {
    let start = Instant::now();
    let slice = if warm_up.most > SETTLES_SOON {
        Duration::from_secs(1)
    } else {
        Duration::from_millis(400)
    };
    let mut rates: Vec<f64> = Vec::new();
    while start.elapsed() < warm_up.most {
        rates.push(running.rate(slice)?.iter().sum());
        if start.elapsed() >= warm_up.least && is_steady(&rates) {
            break;
        }
    }
    Ok(Settling { slice, rates })
}

/// Returns the cores as a mask in hexadecimal.
fn core_mask(cores: &[u32]) -> String {
    format!("{:#x}", cores.iter().fold(0_u64, |mask, core| mask | 1 << core))
}

/// Returns true if the last three rates differ by less than 3 %.
fn is_steady(rates: &[f64]) -> bool {
    let Some(last) = rates.last_chunk::<3>() else {
        return false;
    };
    let (min, max) = (
        last.iter().copied().fold(f64::MAX, f64::min),
        last.iter().copied().fold(0.0, f64::max),
    );
    max > 0.0 && (max - min) / max < 0.03
}

/// Returns the two readings of a counter that a rate needs.
fn rate_between(
    window: Duration,
    mut read: impl FnMut() -> Result<[u64; 2], PeerError>,
) -> Result<[f64; 2], PeerError> {
    let mut timed = || -> Result<([u64; 2], Instant), PeerError> {
        let before = Instant::now();
        let counters = read()?;
        // The counters were read somewhere between asking and the answer: take the middle.
        Ok((counters, before + before.elapsed() / 2))
    };
    let (first, start) = timed()?;
    pause(window)?;
    let (second, end) = timed()?;
    let seconds = end.duration_since(start).as_secs_f64();
    Ok([0, 1].map(|sink| second[sink].saturating_sub(first[sink]) as f64 / seconds))
}

/// Returns the devargs of the ingress device.
pub(crate) fn replay(name: &str, packets: &Path) -> String {
    format!("{name},rx_pcap={},infinite_rx=1", packets.display())
}

/// Returns the devargs of the switch's end of a memif.
fn memif(number: u32, socket: &Path) -> String {
    format!(
        "net_memif{number},role=server,id={number},socket={},socket-abstract=no",
        socket.display()
    )
}

/// Returns the devargs of a device that swallows.
fn swallow(name: &str) -> String {
    format!("{name},no-rx=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_steady_when_three_seconds_agree() {
        assert!(!is_steady(&[]));
        assert!(!is_steady(&[1.0, 1.0]));
        assert!(!is_steady(&[0.0, 0.0, 0.0]));
        assert!(!is_steady(&[90.0, 95.0, 100.0]));
        assert!(is_steady(&[10.0, 99.0, 98.0, 100.0]));
    }

    #[test]
    fn a_rate_is_the_difference_of_two_readings_over_the_time_between() {
        let mut count = 0;
        let rates = rate_between(Duration::from_millis(100), || {
            count += 1000;
            Ok([count, 0])
        })
        .unwrap();
        assert!(
            (rates[0] / 10_000.0 - 1.0).abs() < 0.2 && rates[1] == 0.0,
            "{rates:?}"
        );
    }
}
