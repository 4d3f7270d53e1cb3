//! The interface between the REST server and the data plane.
//!
//! The daemon implements [`Live`] with the agent's handles; tests implement it with fixed values. The methods block
//! and may take milliseconds: the server calls them on blocking threads, never on threads of the async runtime. They
//! read counters and copies that the control plane keeps. No method may make a worker wait, take a lock that a worker
//! takes, or allocate in a worker.

use std::net::IpAddr;
use std::time::Duration;

use millrace_fib::Prefix;
use millrace_flow::Match;
use millrace_flow::text::{CookieMatch, FlowModText};
use millrace_model::{Config, ConfigErrors};
use millrace_types::{PortNo, TableId, Vid};
use millrace_wire::bpf::Program;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::view;

/// The running switch.
pub trait Live: Send + Sync + 'static {
    /// Returns the versions of the program and of its libraries.
    fn version(&self) -> view::Version;

    /// Returns the filter, the levels and the targets of the log.
    fn log(&self) -> view::Log;

    /// Replaces the filter of the log.
    ///
    /// # Errors
    /// [`LiveError::LogFilter`].
    fn set_log(&self, filter: &str) -> Result<view::Log, LiveError>;

    /// Returns the readiness of the switch: it forwards as configured, or the reasons why not.
    fn ready(&self) -> view::Ready;

    /// Checks that this machine has the resources that a start with `config` needs. They are used only at the next
    /// start, so the running process would not notice that one is missing. The server calls this before each commit.
    ///
    /// # Errors
    /// All values that name something that is missing.
    fn check(&self, config: &Config) -> Result<(), ConfigErrors>;

    /// Returns the desired revision, the running one, and the problems between them.
    fn status(&self) -> view::Status;

    /// Returns the problems of [`Live::status`], which the journal asks for once a second.
    fn problems(&self) -> Vec<view::StatusProblem> {
        self.status().problems
    }

    /// Returns the bridges that run.
    fn bridges(&self) -> Vec<view::Bridge>;

    /// Returns the ports of a bridge by number. `rates` is `None`; the server fills it in.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn ports(&self, bridge: &str) -> Result<Vec<view::Port>, LiveError>;

    /// Returns the counters of the ports that run, by bridge, which the server asks for once a second.
    fn port_counters(&self) -> Vec<(String, Vec<PortCounters>)> {
        let counters = |port: view::Port| PortCounters {
            number: port.number,
            rx: port.rx,
            tx: port.tx,
        };
        let of_bridge = |bridge: view::Bridge| {
            let ports = self.ports(&bridge.name).unwrap_or_default();
            (bridge.name, ports.into_iter().map(counters).collect())
        };
        self.bridges().into_iter().map(of_bridge).collect()
    }

    /// Returns flow entries of a bridge, in an order in which [`view::FlowCursor`] can continue.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoTable`].
    fn flows(&self, bridge: &str, query: &FlowQuery) -> Result<Flows, LiveError>;

    /// Applies flow_mods in order, all or none. Returns when every worker sees the change, as a barrier does.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`]; [`LiveError::FlowMod`] for the first flow_mod that is rejected.
    fn flow_mods(&self, bridge: &str, mods: Vec<FlowModText>) -> Result<view::FlowModsDone, LiveError>;

    /// Saves the flow entries, groups and meters of a bridge for the next start.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`]; [`LiveError::Contradicted`] if a restart keeps none; [`LiveError::Unavailable`] if the file
    /// cannot be written.
    fn save_flows(&self, bridge: &str) -> Result<view::FlowsSaved, LiveError>;

    /// Sets the counters of the selected flow entries to zero; the limit of the query is ignored. Returns the number
    /// of entries.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoTable`], [`LiveError::Unavailable`].
    fn reset_flow_counters(&self, bridge: &str, query: &FlowQuery) -> Result<u64, LiveError>;

    /// Sets the counters of a port, or of all ports, to zero. Returns the number of ports.
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

    /// Returns the MAC addresses that a bridge has learned.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn macs(&self, bridge: &str) -> Result<Vec<view::MacEntry>, LiveError>;

    /// Forgets the MAC addresses of a VLAN, of a port, or of both; all if neither is given. Returns their number.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn flush_macs(&self, bridge: &str, vlan: Option<Vid>, port: Option<PortNo>) -> Result<u64, LiveError>;

    /// Returns the mirrors of a bridge.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn mirrors(&self, bridge: &str) -> Result<Vec<view::Mirror>, LiveError>;

    /// Returns the state of sFlow of a bridge; `None` if it is not configured.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn sflow(&self, bridge: &str) -> Result<Option<view::Sflow>, LiveError>;

    /// Returns the state of IPFIX of a bridge; `None` if it is not configured.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn ipfix(&self, bridge: &str) -> Result<Option<view::Ipfix>, LiveError>;

    /// Returns the groups of a bridge by number.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn groups(&self, bridge: &str) -> Result<Vec<view::Group>, LiveError>;

    /// Returns the meters of a bridge by number.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn meters(&self, bridge: &str) -> Result<Vec<view::Meter>, LiveError>;

    /// Returns the queues of all ports of a bridge, by port and number.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn queues(&self, bridge: &str) -> Result<Vec<view::EgressQueue>, LiveError>;

    /// Returns the registers of the device of a port, by offset.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoPort`]; [`LiveError::Contradicted`] if the device is not `nic:PATH`;
    /// [`LiveError::Unavailable`] while it is away.
    fn nic_registers(&self, bridge: &str, port: PortNo) -> Result<Vec<view::NicRegister>, LiveError>;

    /// Returns the entries that the switch has in the device of a port, by slot.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoPort`]; [`LiveError::Contradicted`] if the port has no `offload`.
    fn nic_entries(&self, bridge: &str, port: PortNo) -> Result<Vec<view::NicEntry>, LiveError>;

    /// Returns the chains of a bridge by name.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`].
    fn chains(&self, bridge: &str) -> Result<Vec<view::Chain>, LiveError>;

    /// Re-creates the functions of a hop.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoHop`], [`LiveError::Contradicted`].
    fn restart_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<(), LiveError>;

    /// Loads the files of a hop again.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoHop`], [`LiveError::NothingToLoad`].
    fn reload_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<(), LiveError>;

    /// Returns the emulated paths, in order of names.
    fn wans(&self) -> Vec<view::WanPath>;

    /// Returns the LAGs of all bridges.
    fn lags(&self) -> Vec<view::Lag>;

    /// Returns the Open vSwitch database that the switch follows.
    fn ovsdb(&self) -> view::Ovsdb;

    /// Returns the VRFs of the router, in order of names.
    fn vrfs(&self) -> Vec<view::Vrf>;

    /// Returns the numbers of the router as a whole; `None` without VRFs.
    fn router_totals(&self) -> Option<view::RouterTotals>;

    /// Returns the interfaces of the router, in order of names.
    fn router_interfaces(&self) -> Vec<view::RouterInterface>;

    /// Returns routes of a VRF in the order of prefixes, IPv4 first.
    ///
    /// # Errors
    /// [`LiveError::NoVrf`].
    fn routes(&self, vrf: &str, query: &RouteQuery) -> Result<view::RoutePage, LiveError>;

    /// Returns the groups of next hops of a VRF by number.
    ///
    /// # Errors
    /// [`LiveError::NoVrf`].
    fn nexthops(&self, vrf: &str) -> Result<Vec<view::NextHopGroup>, LiveError>;

    /// Returns the neighbours of a VRF by interface and address.
    ///
    /// # Errors
    /// [`LiveError::NoVrf`].
    fn neighbours(&self, vrf: &str) -> Result<Vec<view::Neighbour>, LiveError>;

    /// Returns the workers, with their load between the last two calls of [`Live::measure_load`].
    fn workers(&self) -> Vec<view::Worker>;

    /// Measures the load of the workers. The server calls this once a second.
    fn measure_load(&self);

    /// Returns every drop reason with its count, including those at zero.
    fn drops(&self) -> Vec<view::Drop>;

    /// Traces a packet through the tables. Sends nothing and changes no counter.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoPort`].
    fn trace(&self, bridge: &str, packet: &TracePacket) -> Result<view::Trace, LiveError>;

    /// Traces the next received packet that matches. Blocks up to `timeout`. Returns `None` if no packet matched in
    /// time.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::Unavailable`].
    fn trace_live(
        &self,
        bridge: &str,
        filter: &Match,
        timeout: Duration,
    ) -> Result<Option<view::Trace>, LiveError>;

    /// Starts a capture. Returns the channel of its packets. The capture ends when the server drops the receiver,
    /// which the sender notices by [`mpsc::Sender::closed`] or a failed send. A full channel loses packets of the
    /// capture ([`CapturedPacket::lost_before`]), never packets of the switch.
    ///
    /// # Errors
    /// [`LiveError::NoBridge`], [`LiveError::NoPort`], [`LiveError::Unavailable`].
    fn capture(&self, bridge: &str, spec: &CaptureSpec) -> Result<mpsc::Receiver<CapturedPacket>, LiveError>;
}

/// Packets and bytes of a port since its start.
#[derive(Debug, Clone, Copy)]
pub struct PortCounters {
    /// The OpenFlow number of the port.
    pub number: u32,
    /// Packets received.
    pub rx: view::Counters,
    /// Packets sent.
    pub tx: view::Counters,
}

/// Errors of the running switch.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LiveError {
    /// No bridge of this name runs.
    #[error("no bridge `{name}` is running: {}", known(.running))]
    NoBridge {
        /// The requested name.
        name: String,
        /// The names of the bridges that run.
        running: Vec<String>,
    },
    /// The router has no such VRF.
    #[error("no VRF `{name}` is running: {}", known(.running))]
    NoVrf {
        /// The requested name.
        name: String,
        /// The names of the VRFs that run.
        running: Vec<String>,
    },
    /// The bridge has no such port.
    #[error("bridge `{bridge}` has no port {port}: {}", known(.ports))]
    NoPort {
        /// The name of the bridge.
        bridge: String,
        /// The requested port, a name or a number.
        port: String,
        /// The names of the bridge's ports.
        ports: Vec<String>,
    },
    /// The bridge has no such table.
    #[error("bridge `{bridge}` has no table {table}: expected 0 to {last}")]
    NoTable {
        /// The name of the bridge.
        bridge: String,
        /// The requested table.
        table: TableId,
        /// The last table of the bridge.
        last: TableId,
    },
    /// The bridge has no such hop.
    #[error("bridge `{bridge}` has no hop {hop}: {}", known(.hops))]
    NoHop {
        /// The name of the bridge.
        bridge: String,
        /// The requested hop, as `CHAIN/HOP`.
        hop: String,
        /// The hops of the bridge, as `CHAIN/HOP`.
        hops: Vec<String>,
    },
    /// The function of the hop loads no files.
    #[error("hop {hop} of bridge `{bridge}` loads no files: expected a function with rules, such as `ips`")]
    NothingToLoad {
        /// The name of the bridge.
        bridge: String,
        /// The requested hop, as `CHAIN/HOP`.
        hop: String,
    },
    /// The text is not a valid log filter.
    #[error("`{text}` is not a log filter: {reason}")]
    LogFilter {
        text: String,
        /// The cause, and the expected form.
        reason: String,
    },
    /// A flow_mod was rejected, and with it the whole list.
    #[error("{message}")]
    FlowMod {
        /// The index of the flow_mod in the list.
        index: usize,
        /// The error code of OpenFlow: `OFPFMFC_TABLE_FULL`.
        code: String,
        /// The cause, and the expected value.
        message: String,
    },
    /// The configuration contradicts the request.
    #[error("{message}")]
    Contradicted {
        /// The cause.
        message: String,
        /// The next step for the operator.
        next_step: String,
    },
    /// The switch cannot do this at present.
    #[error("{message}")]
    Unavailable {
        /// The cause.
        message: String,
        /// The next step for the operator.
        next_step: String,
    },
}

fn known(names: &[String]) -> String {
    if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("expected one of {}", names.join(", "))
    }
}

/// A selection of flow entries.
#[derive(Debug, Clone, Default)]
pub struct FlowQuery {
    /// Selects entries of this table only.
    pub table: Option<TableId>,
    /// Selects entries with this match or a narrower one (as a non-strict flow_mod does; OpenFlow 1.3.5, section 6.4).
    pub within: Option<Match>,
    /// Selects entries with this cookie only.
    pub cookie: Option<CookieMatch>,
    /// Continues after this cursor, the end of the previous page.
    pub after: Option<view::FlowCursor>,
    /// The largest number of entries in the result, 1 to 10000.
    pub limit: usize,
}

/// A selection of routes.
#[derive(Debug, Clone, Copy)]
pub struct RouteQuery {
    /// The routes.
    pub selection: RouteSelection,
    /// Continues after this prefix, the end of the previous page.
    pub after: Option<Prefix>,
    /// The largest number of routes in the result, 1 to 10000.
    pub limit: usize,
}

/// The part of a VRF's routes that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteSelection {
    /// All routes.
    All,
    /// The route that packets to this address follow.
    To(IpAddr),
    /// The route of this prefix, and those of prefixes in it.
    Within(Prefix),
}

/// A page of flow entries.
#[derive(Debug, Clone, Default)]
pub struct Flows {
    /// The entries.
    pub flows: Vec<view::Flow>,
    /// The cursor from which the next page continues; `None` on the last page.
    pub next: Option<view::FlowCursor>,
}

/// A packet to trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracePacket {
    /// The ingress port.
    pub in_port: PortNo,
    /// The initial metadata.
    pub metadata: u64,
    /// The initial tunnel identifier.
    pub tunnel_id: u64,
    /// The frame, 9600 bytes at most.
    pub frame: Vec<u8>,
}

/// The direction in which a packet passes a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Received by the switch.
    Rx,
    /// Sent by the switch.
    Tx,
}

/// The selection of a capture.
#[derive(Debug, Clone)]
pub struct CaptureSpec {
    /// The port; `None` for all.
    pub port: Option<PortNo>,
    /// The direction; `None` for both.
    pub direction: Option<Direction>,
    /// A match that a packet must meet, with the fields that it has at the point of capture.
    pub matching: Match,
    /// A classic BPF program that must accept the packet.
    pub program: Option<Program>,
    /// The largest number of bytes to keep of each packet, 1 to 9600.
    pub snap_size: u32,
}

/// A packet that a worker copied for a capture, with the time and the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    /// The time of capture, in nanoseconds since 1970-01-01 UTC.
    pub unix_nanos: u64,
    /// The port that the packet passed.
    pub port: PortNo,
    /// The direction in which the packet passed the port.
    pub direction: Direction,
    /// The size of the whole packet in bytes.
    pub size: u32,
    /// The first bytes of the packet.
    pub bytes: Vec<u8>,
    /// The number of matching packets that the capture lost between the previous packet and this one.
    pub lost_before: u64,
}
