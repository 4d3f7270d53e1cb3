//! What the running switch answers: the one interface between the REST server and the data plane.
//!
//! The daemon implements [`Live`] over the agent's handles; tests implement it over fixed values. Methods
//! are blocking and may take milliseconds: the server calls them on threads of their own, never on the
//! runtime's. They read counters and copies that the control plane keeps; no method may make a worker
//! wait, take a lock that a worker takes, or allocate in one.

use std::time::Duration;

use millrace_flow::Match;
use millrace_flow::text::{CookieMatch, FlowModText};
use millrace_model::{Config, ConfigErrors};
use millrace_types::{PortNo, TableId};
use millrace_wire::bpf::Program;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::view;

/// The running switch.
pub trait Live: Send + Sync + 'static {
    /// What this program is.
    fn version(&self) -> view::Version;

    /// Returns the log.
    fn log(&self) -> view::Log;

    /// Puts another filter of the log in force.
    ///
    /// # Errors
    /// [`LiveError::LogFilter`].
    fn set_log(&self, filter: &str) -> Result<view::Log, LiveError>;

    /// Whether it forwards as it was configured.
    fn ready(&self) -> view::Ready;

    /// Whether this machine has what a start with `config` needs and a running process does not: what takes effect
    /// only at the next start would else be noticed only then. Asked before a revision is committed.
    ///
    /// # Errors
    /// Every value that names what is not there.
    fn check(&self, config: &Config) -> Result<(), ConfigErrors>;

    /// What is wanted, what runs, and what stands between.
    fn status(&self) -> view::Status;

    /// Every bridge that runs.
    fn bridges(&self) -> Vec<view::Bridge>;

    /// The ports of a bridge in the order of their numbers; `rates` is left to the server.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn ports(&self, bridge: &str) -> Result<Vec<view::Port>, LiveError>;

    /// Flow entries of a bridge, in an order in which [`view::FlowCursor`] can continue.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoTable`].
    fn flows(&self, bridge: &str, query: &FlowQuery) -> Result<Flows, LiveError>;

    /// Applies flow_mods in order, all or none. Returns when every worker sees the change, as a barrier does.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`]; [`LiveError::FlowMod`] for the first that is refused.
    fn flow_mods(&self, bridge: &str, mods: Vec<FlowModText>) -> Result<view::FlowModsDone, LiveError>;

    /// Sets the counters of the selected flow entries to zero, whatever the limit of the query. Returns how many.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoTable`], [`LiveError::Unavailable`].
    fn reset_flow_counters(&self, bridge: &str, query: &FlowQuery) -> Result<u64, LiveError>;

    /// Sets the counters of a port, or of all ports, to zero. Returns how many ports were selected.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn reset_port_counters(&self, bridge: &str, port: Option<PortNo>) -> Result<u64, LiveError>;

    /// Returns the tables of a bridge.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn tables(&self, bridge: &str) -> Result<Vec<view::Table>, LiveError>;

    /// Returns the controllers of a bridge, and its listeners.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn controllers(&self, bridge: &str) -> Result<Vec<view::Controller>, LiveError>;

    /// What the bridge learned.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn macs(&self, bridge: &str) -> Result<Vec<view::MacEntry>, LiveError>;

    /// Returns the groups of a bridge, in order of numbers.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn groups(&self, bridge: &str) -> Result<Vec<view::Group>, LiveError>;

    /// Returns the meters of a bridge, in order of numbers.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn meters(&self, bridge: &str) -> Result<Vec<view::Meter>, LiveError>;

    /// Returns the queues of all ports of a bridge, in order of port and number.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn queues(&self, bridge: &str) -> Result<Vec<view::EgressQueue>, LiveError>;

    /// Returns the chains of a bridge, in order of names.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn chains(&self, bridge: &str) -> Result<Vec<view::Chain>, LiveError>;

    /// Makes the functions of a hop anew.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoHop`], [`LiveError::Unavailable`].
    fn restart_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<(), LiveError>;

    /// Returns the workers.
    fn workers(&self) -> Vec<view::Worker>;

    /// Every reason for which packets can be dropped, with its count, zero or not.
    fn drops(&self) -> Vec<view::Drop>;

    /// What would happen to a packet. Nothing is sent, and no counter moves.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoPort`].
    fn trace(&self, bridge: &str, packet: &TracePacket) -> Result<view::Trace, LiveError>;

    /// What happens to the next packet that matches on arrival; `None` if none came in time. Blocks up to
    /// `timeout`.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::Unavailable`].
    fn trace_live(
        &self,
        bridge: &str,
        filter: &Match,
        timeout: Duration,
    ) -> Result<Option<view::Trace>, LiveError>;

    /// Begins a capture. Packets come through the channel; the capture ends when the server drops the
    /// receiver, which the sender learns by [`mpsc::Sender::closed`] or a failed send. A full channel costs
    /// packets of the capture ([`Captured::lost_before`]), never packets of the switch.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoPort`], [`LiveError::Unavailable`].
    fn capture(&self, bridge: &str, spec: &CaptureSpec) -> Result<mpsc::Receiver<Captured>, LiveError>;
}

/// Why the running switch cannot answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LiveError {
    /// No such bridge runs.
    #[error("no bridge `{name}` is running: {}", known(.running))]
    NoBridge {
        /// The name asked for.
        name: String,
        /// Those that run.
        running: Vec<String>,
    },
    /// The bridge has no such port.
    #[error("bridge `{bridge}` has no port {port}: {}", known(.ports))]
    NoPort {
        /// The bridge.
        bridge: String,
        /// The port asked for, a name or a number.
        port: String,
        /// The names of those it has.
        ports: Vec<String>,
    },
    /// The bridge has no such table.
    #[error("bridge `{bridge}` has no table {table}: expected 0 to {last}")]
    NoTable {
        /// The bridge.
        bridge: String,
        /// The table asked for.
        table: TableId,
        /// The last one it has.
        last: TableId,
    },
    /// The bridge has no such hop.
    #[error("bridge `{bridge}` has no hop {hop}: {}", known(.hops))]
    NoHop {
        /// The bridge.
        bridge: String,
        /// The hop asked for, with its chain.
        hop: String,
        /// Those that it has.
        hops: Vec<String>,
    },
    /// The text is no filter of the log.
    #[error("`{text}` is no log filter: {reason}")]
    LogFilter {
        /// The text.
        text: String,
        /// Why, and what was expected.
        reason: String,
    },
    /// A flow_mod was refused, and with it the whole list.
    #[error("{message}")]
    FlowMod {
        /// Its index in the list.
        index: usize,
        /// The error code of OpenFlow: `OFPFMFC_TABLE_FULL`.
        code: String,
        /// Why, and what was expected.
        message: String,
    },
    /// The switch cannot do this at present.
    #[error("{message}")]
    Unavailable {
        /// Why.
        message: String,
        /// What to do about it.
        remedy: String,
    },
}

fn known(names: &[String]) -> String {
    if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("expected one of {}", names.join(", "))
    }
}

/// Which flow entries are wanted.
#[derive(Debug, Clone, Default)]
pub struct FlowQuery {
    /// Only of this table.
    pub table: Option<TableId>,
    /// Only entries whose match is this one or narrower (as a non-strict request selects them).
    pub within: Option<Match>,
    /// Only entries with this cookie.
    pub cookie: Option<CookieMatch>,
    /// Only what follows this place.
    pub after: Option<view::FlowCursor>,
    /// At most so many, 1 to 10000.
    pub limit: usize,
}

/// Some flow entries.
#[derive(Debug, Clone, Default)]
pub struct Flows {
    /// The entries.
    pub flows: Vec<view::Flow>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<view::FlowCursor>,
}

/// A packet to be traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracePacket {
    /// Where it comes in.
    pub in_port: PortNo,
    /// The metadata it begins with.
    pub metadata: u64,
    /// The tunnel identifier it begins with.
    pub tunnel_id: u64,
    /// Its bytes, at most 9600.
    pub frame: Vec<u8>,
}

/// Which way a packet passes a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received by the switch.
    Rx,
    /// Sent by the switch.
    Tx,
}

/// What to capture.
#[derive(Debug, Clone)]
pub struct CaptureSpec {
    /// Only of this port; `None` for all.
    pub port: Option<PortNo>,
    /// Only in this direction; `None` for both.
    pub direction: Option<Direction>,
    /// Only packets that match, as they are at the point of capture.
    pub matching: Match,
    /// Only packets that the program accepts.
    pub program: Option<Program>,
    /// At most so many bytes of each packet, 1 to 9600.
    pub snap_size: u32,
}

/// A captured packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// When it passed: nanoseconds since 1970-01-01 UTC.
    pub unix_nanos: u64,
    /// Where it passed.
    pub port: PortNo,
    /// Which way.
    pub direction: Direction,
    /// Size of the whole packet in bytes.
    pub size: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Packets that matched and were lost to the capture since the one before.
    pub lost_before: u64,
}
