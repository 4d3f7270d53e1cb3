//! The switch as a whole: what it is, how it is, who works in it and who controls it.

use serde::{Deserialize, Serialize};

/// What this program is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Version {
    /// Of Millrace.
    pub version: String,
    /// The DPDK that the daemon is linked with; `null` if it is built without.
    #[serde(default)]
    pub dpdk: Option<Dpdk>,
    /// Seconds since the daemon started.
    pub uptime_seconds: f64,
}

/// DPDK in the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Dpdk {
    /// The release, as the library says itself: `22.11`.
    pub version: String,
    /// True if the switch runs on it; false with `--no-dpdk`.
    pub used: bool,
    /// True if its memory is in huge pages.
    pub huge_pages: bool,
}

/// The log of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Log {
    /// The level of everything, and those of single targets: `warn,millrace_agent=debug`.
    pub filter: String,
    /// The levels that there are, from silent to verbose.
    pub levels: Vec<String>,
    /// The targets that there are.
    pub targets: Vec<String>,
}

/// A change of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LogChange {
    /// The filter to put in force until the daemon ends or the next change.
    pub filter: String,
}

/// The process answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Health {
    /// Always true: an unhealthy process does not answer.
    pub alive: bool,
}

/// Whether the switch forwards as it was configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Ready {
    /// True when every worker runs and a configuration is in force.
    pub ready: bool,
    /// What is still missing.
    pub reasons: Vec<String>,
}

/// How far the running switch is from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reconciliation {
    /// What runs is what was configured.
    Settled,
    /// Changes are being made.
    Working,
    /// Something that was configured does not run; see `troubles`.
    Degraded,
}

/// Something that does not run as it was configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Trouble {
    /// What is concerned, as a path in the configuration: `bridge/br0/port/p1`.
    pub subject: String,
    /// What is wrong.
    pub message: String,
    /// What mends it.
    pub remedy: String,
}

/// What is wanted, what runs, and what stands between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Status {
    /// The newest revision of the configuration.
    pub wanted_revision: u64,
    /// The revision that the data plane was last brought to; `null` before the first.
    #[serde(default)]
    pub running_revision: Option<u64>,
    /// How far apart they are.
    pub state: Reconciliation,
    /// Everything that does not run as configured.
    pub troubles: Vec<Trouble>,
    /// Keys whose change waits for a restart of the daemon.
    #[serde(default)]
    pub restart_needed_for: Vec<String>,
}

/// By what a bridge forwards at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Forwarding {
    /// By the flow entries, with a controller connected.
    Controlled,
    /// By the flow entries, with no controller connected (fail-secure).
    Secure,
    /// As a learning bridge, because no controller is connected (fail-standalone).
    Standalone,
}

/// A bridge: one OpenFlow datapath.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// Its datapath id, 16 hex digits.
    pub dpid: String,
    /// By what it forwards.
    pub forwarding: Forwarding,
    /// Number of ports.
    pub ports: u32,
    /// Number of flow tables.
    pub tables: u32,
    /// Number of flow entries in all tables.
    pub flows: u64,
    /// Number of controllers that are connected.
    pub controllers_connected: u32,
}

/// The role of a controller (OpenFlow 1.3.5, section 6.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Full access, beside others.
    Equal,
    /// Full access; no other is master.
    Master,
    /// Read access.
    Slave,
}

/// Where a connection to a controller stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ControllerState {
    /// Waiting for the other side to connect (`ptcp:`).
    Listening,
    /// Opening the connection.
    Connecting,
    /// Agreeing on a version.
    Handshake,
    /// In use.
    Connected,
    /// Waiting before the next attempt.
    Backoff,
}

/// A controller, or a listener for controllers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Controller {
    /// The bridge.
    pub bridge: String,
    /// Where it is: `tcp:127.0.0.1:6653`; of one that connected itself, its address.
    pub target: String,
    /// Where the connection stands.
    pub state: ControllerState,
    /// Its role, while it is connected.
    #[serde(default)]
    pub role: Option<Role>,
    /// Seconds in this state.
    pub since_seconds: f64,
    /// Why the last connection or attempt ended.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Seconds until the next attempt.
    #[serde(default)]
    pub retry_in_seconds: Option<f64>,
    /// OpenFlow messages received, in all connections.
    pub messages_in: u64,
    /// OpenFlow messages sent, in all connections.
    pub messages_out: u64,
    /// Packet-ins that a rate limit or a full queue held back.
    pub packet_ins_dropped: u64,
}

/// A receive queue that a worker polls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Queue {
    /// The bridge of the port.
    pub bridge: String,
    /// The name of the port.
    pub port: String,
    /// The number of the queue.
    pub queue: u16,
}

/// A worker of the data plane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Worker {
    /// Its number, from 0.
    pub id: u32,
    /// The processor core that it is bound to.
    #[serde(default)]
    pub core: Option<u32>,
    /// What it polls.
    pub queues: Vec<Queue>,
    /// Packets that it processed.
    pub packets: u64,
    /// Packets that it received and handed off to another worker.
    #[serde(default)]
    pub handed_off: u64,
    /// Bursts that had at least one packet.
    pub bursts: u64,
    /// The share of time in which it had packets, 0 to 1, over about the last second.
    pub busy: f64,
    /// How often it slept because nothing came.
    pub sleeps: u64,
    /// Processor cycles a packet, over about the last second in which packets came.
    #[serde(default)]
    pub cycles_per_packet: Option<f64>,
}

/// One reason for which packets are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Drop {
    /// The bridge; `null` for drops outside of any.
    #[serde(default)]
    pub bridge: Option<String>,
    /// The name of the reason, as in `trace`: `no_match`.
    pub reason: String,
    /// What it means and what to do about it.
    pub description: String,
    /// Packets.
    pub packets: u64,
}
