//! The systems under test, behind one trait: each is started with the same rules and packets on the same core, warmed
//! up, and its counters are read.
//!
//! Packets come from a `net_pcap` device that replays a file from memory without end, and leave by `net_null`
//! devices that discard them. Every system uses these drivers of DPDK, so that only the forwarding between
//! the devices differs. A system runs with one forwarding thread for each ingress device.

pub(crate) mod channel;
pub mod millrace;
pub(crate) mod ofctl;
pub mod ovs;
mod rate;
pub mod testpmd;

use std::path::{Path, PathBuf};
use std::time::Duration;

use millrace_api::client::ClientError;
use thiserror::Error;

use crate::workload::Sink;
use millrace_process::ProcessError;
pub use ofctl::PortCounters;
pub use rate::{Sample, WarmUpRates, sample, settle};

/// The time limit for the start of a system.
const START: Duration = Duration::from_secs(60);

/// The error of a system under test.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PeerError {
    /// A program failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The REST API of Millrace returned an error.
    #[error("millraced: {0}")]
    Api(#[from] ClientError),
    /// The output of a program cannot be parsed.
    #[error("{system}: {what}:\n{text}")]
    Unreadable {
        /// The name of the system.
        system: &'static str,
        /// The expected part of the output.
        what: &'static str,
        /// The output.
        text: String,
    },
    /// The system forwards no packets.
    #[error("the system forwards no packets:\n{text}")]
    NoPackets {
        /// The last lines of its log.
        text: String,
    },
    /// Other programs have taken the huge pages of the run.
    #[error(
        "{mib} MiB of huge pages are no longer free: end the program that reserved them meanwhile, and run again"
    )]
    NoHugePages {
        /// The huge pages that the system needs, in MiB.
        mib: u64,
    },
    /// A case has more forwarding threads than the machine has cores.
    #[error("{workers} forwarding threads need as many cores: this machine has {cores}")]
    TooFewCores {
        /// The number of forwarding threads.
        workers: usize,
        /// The number of cores.
        cores: usize,
    },
    /// The system does not support the workload.
    #[error("{system} does not support this: {reason}")]
    Unsupported {
        /// The name of the system.
        system: &'static str,
        reason: String,
    },
}

/// The load of a system: flow entries and packets.
#[derive(Debug, Clone)]
pub struct Load {
    /// The file of the flow entries, for `ovs-ofctl add-flows`.
    pub flows: PathBuf,
    /// The number of flow entries.
    pub flows_len: usize,
    /// The capture files of the packets, one for each ingress port; as many threads forward.
    pub ingress: Vec<PathBuf>,
    /// The number of packets in all files.
    pub packets_len: usize,
    /// The devargs of the first sink; `None` for a sink that discards.
    pub first_sink: Option<String>,
    /// The socket of a generator ([`crate::generate`]) that sends and receives the packets: every port is then a memif
    /// whose identifier is the number of the port. `None` for packets that are replayed and discarded.
    pub memif: Option<PathBuf>,
}

impl Load {
    /// Returns a load without files, for the estimate of the warm-up.
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
            _ => discard(&format!("net_null{}", sink.port())),
        }
    }

    /// Returns the ingress ports and their devargs: port 1, then the ports after the sinks.
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

/// The duration of a warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmUp {
    /// The minimum: a rate that changes slowly may look steady.
    pub min: Duration,
    /// The maximum.
    pub max: Duration,
}

impl WarmUp {
    const fn seconds(min: u64, max: u64) -> WarmUp {
        WarmUp {
            min: Duration::from_secs(min),
            max: Duration::from_secs(max),
        }
    }
}

/// The resources of a system.
#[derive(Debug, Clone)]
pub struct Resources {
    /// An empty directory for the system.
    pub dir: PathBuf,
    /// The cores of the forwarding threads, one each.
    pub cores: Vec<u32>,
    /// The core for everything else.
    pub control_core: u32,
    /// Free huge pages in MiB; 0 means that systems run without.
    pub huge_pages_mib: u64,
    /// The nice level of the system.
    pub nice: i32,
    /// The path of the daemon of Millrace.
    pub millraced: PathBuf,
    /// The path of the daemon of an earlier build of Millrace; `None` if none takes part.
    pub before: Option<PathBuf>,
}

/// A system under test.
pub trait Peer {
    /// Returns the name in tables: `ovs-dpdk-tuned`.
    fn name(&self) -> &'static str;

    /// Returns the settings that differ from the system as shipped, in one line.
    fn configuration(&self) -> &'static str;

    /// Returns true if the system applies flow entries, so that they determine the ports of packets.
    fn applies_rules(&self) -> bool {
        true
    }

    /// Returns true if each thread of the system sends on a queue of its own. A generator must then have as many
    /// queues.
    fn sends_by_thread(&self) -> bool {
        false
    }

    /// Returns the version; `None` if the system is not installed.
    fn version(&self, resources: &Resources) -> Option<String>;

    /// Returns the duration of the warm-up with this load.
    fn warm_up(&self, load: &Load) -> WarmUp;

    /// Returns the huge pages that the system needs with this load, in MiB.
    fn memory_mib(&self, load: &Load) -> u64;

    /// Starts the system, installs the flow entries, and adds the ports of the packets.
    ///
    /// # Errors
    /// The system does not start, or does not accept the load.
    fn start(&self, resources: &Resources, load: &Load) -> Result<Box<dyn Forwarding>, PeerError>;
}

/// A running system. Dropping the value ends it.
pub trait Forwarding {
    /// Returns the process of the forwarding thread.
    fn pid(&self) -> u32;

    /// Returns the packets per second that left by each sink, over a window of about this duration.
    ///
    /// # Errors
    /// The system has ended, or its counters cannot be read.
    fn rate(&mut self, window: Duration) -> Result<[f64; 2], PeerError>;

    /// Returns the address for `ovs-ofctl`; `None` for a system without OpenFlow.
    fn target(&self) -> Option<String> {
        None
    }

    /// Returns the number of packets that were received and not sent, by the counters of the system; `None` if it has
    /// none.
    ///
    /// # Errors
    /// The counters cannot be read.
    fn lost(&mut self) -> Result<Option<u64>, PeerError> {
        Ok(None)
    }

    /// Returns the configured size of the MAC table; `None` if the system is no learning bridge.
    ///
    /// # Errors
    /// The size cannot be read.
    fn mac_table_size(&mut self) -> Result<Option<usize>, PeerError> {
        Ok(None)
    }

    /// Clears the MAC table. A system without such a command makes its table very small while `teach` sends frames
    /// from other addresses, some of which remain in the table.
    ///
    /// # Errors
    /// The system does not accept the command, or `teach` fails.
    fn forget_macs(&mut self, teach: &mut dyn FnMut() -> Result<(), PeerError>) -> Result<(), PeerError> {
        teach()
    }

    /// Returns the lookup statistics, such as the hits of its caches; `None` without statistics.
    fn lookups(&mut self) -> Option<String> {
        None
    }

    /// Returns the last lines of the log.
    fn tail(&self) -> String;

    /// Returns the commands that started the system.
    fn commands(&self) -> Vec<String>;

    /// Returns the cost of the flow entries; `None` if there were none.
    fn installation(&self) -> Option<Installation>;
}

/// The cost of the installation of flow entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Installation {
    /// The duration of `ovs-ofctl add-flows` with its last barrier, in seconds.
    pub seconds: f64,
    /// The growth of the process in bytes.
    pub memory: u64,
}

/// Returns the cores as a mask in hexadecimal.
fn core_mask(cores: &[u32]) -> String {
    format!("{:#x}", cores.iter().fold(0_u64, |mask, core| mask | 1 << core))
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

/// Returns the devargs of a device that discards packets.
fn discard(name: &str) -> String {
    format!("{name},no-rx=1")
}
