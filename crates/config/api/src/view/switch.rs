//! The switch as a whole: versions, state, workers, controllers.

use serde::{Deserialize, Serialize};

/// The versions of the program and its libraries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Version {
    /// The version of Millrace.
    pub version: String,
    /// The DPDK that the daemon is linked with; `null` if it is built without DPDK.
    #[serde(default)]
    pub dpdk: Option<Dpdk>,
    /// The time since the daemon started, in seconds.
    pub uptime_seconds: f64,
    /// The process id of the daemon.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The inode of the daemon's network namespace (`/proc/PID/ns/net`), which identifies the namespace on its machine.
    #[serde(default)]
    pub network_namespace: Option<u64>,
}

/// The DPDK library of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Dpdk {
    /// The release that the library reports: `22.11`.
    pub version: String,
    /// True if the switch uses the library; false with `--no-dpdk`.
    pub used: bool,
    /// True if DPDK's memory is in huge pages.
    pub huge_pages: bool,
}

/// The log of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Log {
    /// The default level, and the levels of single targets: `warn,millrace_agent=debug`.
    pub filter: String,
    /// The valid levels, from silent to verbose.
    pub levels: Vec<String>,
    /// The valid targets.
    pub targets: Vec<String>,
}

/// A change of the log filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LogChange {
    /// The filter, which lasts until the next change or the end of the daemon.
    pub filter: String,
}

/// The liveness of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Health {
    /// Always true: an unhealthy process does not respond.
    pub alive: bool,
}

/// The readiness of the switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Ready {
    /// True if every worker runs and a configuration is in force.
    pub ready: bool,
    /// The reasons why the switch is not ready.
    pub reasons: Vec<String>,
}

/// The progress of reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reconciliation {
    /// The running state equals the desired state.
    Settled,
    /// Changes are being applied.
    Working,
    /// Some parts do not run as configured; see `problems`.
    Degraded,
}

/// A difference between the desired and the running state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct StatusProblem {
    /// The path of the part in the configuration: `/bridge/br0/port/p1`.
    pub subject: String,
    /// The cause.
    pub message: String,
    /// The next step for the operator.
    pub next_step: String,
}

/// The desired revision, the running one, and the problems between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Status {
    /// The newest revision of the configuration.
    pub desired_revision: u64,
    /// The revision that the data plane last reached; `null` before the first.
    #[serde(default)]
    pub running_revision: Option<u64>,
    /// The progress of reconciliation.
    pub state: Reconciliation,
    /// The parts that do not run as configured.
    pub problems: Vec<StatusProblem>,
    /// The keys whose change takes effect at the next start of the daemon.
    #[serde(default)]
    pub restart_needed_for: Vec<String>,
}

/// The forwarding mode of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Forwarding {
    /// Flow entries are applied, and a controller is connected.
    Controlled,
    /// Flow entries are applied, and no controller is connected (fail-secure).
    Secure,
    /// The bridge learns MAC addresses, because no controller is connected (fail-standalone).
    Standalone,
}

/// A bridge: one OpenFlow datapath.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Bridge {
    /// The name of the bridge.
    pub name: String,
    /// The datapath id, 16 hex digits.
    pub dpid: String,
    /// The forwarding mode.
    pub forwarding: Forwarding,
    /// The number of ports.
    pub ports: u32,
    /// The number of flow tables.
    pub tables: u32,
    /// The number of flow entries in all tables.
    pub flows: u64,
    /// The number of connected controllers.
    pub controllers_connected: u32,
}

/// The role of a controller (OpenFlow 1.3.5, section 6.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Full access, as other controllers have.
    Equal,
    /// Full access; no other controller is master.
    Master,
    /// Read access.
    Slave,
}

/// The state of a connection to a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ControllerState {
    /// Waiting for a connection from the controller (`ptcp:`).
    Listening,
    /// Opening the connection.
    Connecting,
    /// Negotiating the version.
    Handshake,
    /// Connected.
    Connected,
    /// Waiting before the next attempt.
    Backoff,
}

/// A controller, or a listener for controllers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Controller {
    /// The name of the bridge.
    pub bridge: String,
    /// The target of the connection: `tcp:127.0.0.1:6653`; for an accepted connection, the address of the peer.
    pub target: String,
    /// The state of the connection.
    pub state: ControllerState,
    /// The role of the controller; `null` while it is not connected.
    #[serde(default)]
    pub role: Option<Role>,
    /// The time in this state, in seconds.
    pub since_seconds: f64,
    /// The reason why the last connection or attempt ended.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The time until the next attempt, in seconds.
    #[serde(default)]
    pub retry_in_seconds: Option<f64>,
    /// The number of OpenFlow messages received, over all connections.
    pub messages_in: u64,
    /// The number of OpenFlow messages sent, over all connections.
    pub messages_out: u64,
    /// The number of packet-ins that a rate limit or a full queue dropped.
    pub packet_ins_dropped: u64,
}

/// A receive queue that a worker polls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Queue {
    /// The name of the bridge.
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
    /// The number of the worker, from 0.
    pub id: u32,
    /// The core that the worker is bound to; `null` if it is not bound.
    #[serde(default)]
    pub core: Option<u32>,
    /// The receive queues that the worker polls.
    pub queues: Vec<Queue>,
    /// The number of packets processed.
    pub packets: u64,
    /// The number of packets that the worker received and handed off to another worker.
    #[serde(default)]
    pub handed_off: u64,
    /// The number of bursts with at least one packet.
    pub bursts: u64,
    /// The share of time with packets, 0 to 1, over about the last second.
    pub busy: f64,
    /// The number of sleeps because no packets arrived.
    pub sleeps: u64,
    /// The processor cycles per packet, over the last second with packets; `null` before.
    #[serde(default)]
    pub cycles_per_packet: Option<f64>,
}

/// A drop reason with its count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Drop {
    /// The name of the bridge; `null` for drops outside of bridges.
    #[serde(default)]
    pub bridge: Option<String>,
    /// The name of the drop reason, as in `trace`: `no_match`.
    pub reason: String,
    /// The meaning of the drop reason, and the next step for the operator.
    pub description: String,
    /// The number of packets.
    pub packets: u64,
}
