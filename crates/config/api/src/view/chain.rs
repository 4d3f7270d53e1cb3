//! Running chains of network functions.

use serde::{Deserialize, Serialize};

/// A chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Chain {
    /// The name of the chain, unique in its bridge.
    pub name: String,
    /// The port number of the near end.
    pub near: u32,
    /// The port number of the far end; equal to `near` if the chain has one end.
    pub far: u32,
    /// The number of workers that run the chain.
    pub lanes: u32,
    /// `up`, or `down` if it does not run.
    #[serde(default)]
    pub state: String,
    /// The reason why the chain does not run, or runs as before the last change; empty if it runs as configured.
    #[serde(default)]
    pub problem: String,
    /// The hops, in order.
    pub hops: Vec<ChainHop>,
}

/// A hop of a chain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct ChainHop {
    /// The name of the hop, unique in its chain.
    pub name: String,
    /// The network function: a built-in one, `wasm:PATH`, `library:PATH` or `attached:PATH`.
    pub function: String,
    /// `inline`, `ring` or `isolated`.
    pub class: String,
    /// `up`, `starting` until a process first responds, `down` or `drained`.
    pub state: String,
    /// The number of the parallel group, from 1: hops that get a packet at the same time; `null` outside of groups.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// The number of instances of the function over all lanes.
    pub instances: u32,
    /// The number of instances that were re-created.
    pub restarts: u64,
    /// The cause of the last failure of an instance; empty if none failed.
    #[serde(default)]
    pub failure: String,
    /// The limits of each instance, and the mechanisms that enforce them.
    #[serde(default)]
    pub limits: Vec<FunctionLimit>,
    /// The state of the value that the functions share, such as compiled rules; `null` without a shared
    /// value.
    #[serde(default)]
    pub shared: Option<SharedState>,
    /// The number of packets that the hop received.
    pub packets: u64,
    /// The size of these packets in bytes.
    #[serde(default)]
    pub bytes: u64,
    /// The number of packets with the verdict to go on to the next hop.
    pub next: u64,
    /// The number of packets with the verdict to skip hops.
    pub skipped: u64,
    /// The number of packets with the verdict to be dropped.
    pub dropped: u64,
    /// The number of packets with the verdict to leave by a port.
    pub to_port: u64,
    /// The number of packets that bypassed the hop while it was down.
    pub passed: u64,
    /// The number of packets that were dropped because the hop was down.
    pub lost: u64,
    /// The number of packets that processes of the hop hold at present.
    pub depth: u64,
    /// The number of flows that the function shuns at present: their packets bypass it.
    #[serde(default)]
    pub shunned_flows: u64,
    /// The number of packets of shunned flows that were forwarded.
    #[serde(default)]
    pub shunned_passed: u64,
    /// The number of packets of shunned flows that were dropped.
    #[serde(default)]
    pub shunned_dropped: u64,
    /// The number of packets that the function sent.
    #[serde(default)]
    pub sent: u64,
    /// The number of packets that the function could not send, because no buffer was free or because of a limit.
    #[serde(default)]
    pub not_sent: u64,
    /// The worker's time for a packet in nanoseconds; `null` before the first measurement.
    #[serde(default)]
    pub nanos_per_packet: Option<f64>,
    /// The delay that the hop adds to a packet in nanoseconds, sampled for one burst in 64. For a function in a
    /// process it includes both directions. `null` before the first measurement.
    #[serde(default)]
    pub latency_nanos: Option<f64>,
    /// The counters that the function defines.
    pub counters: Vec<FunctionCounter>,
    /// The report of the function, line by line.
    pub report: Vec<String>,
}

/// The state of the value that the functions of a hop share, such as compiled rules.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct SharedState {
    /// `loading`, `loaded`, or `failed` if files could not be loaded; the previous value stays in use.
    pub state: String,
    /// A description of the value in use; empty if there is none.
    #[serde(default)]
    pub summary: String,
    /// The reason why files could not be loaded; empty after a successful load.
    #[serde(default)]
    pub failure: String,
    /// The number of times that files were loaded.
    #[serde(default)]
    pub loads: u64,
}

/// A resource limit of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FunctionLimit {
    /// The resource: `cpu_percent`, `fuel`, `memory_mib`, `processes` or `weight`.
    pub name: String,
    /// The limit, in the unit of the resource.
    pub value: u64,
    /// The mechanism that enforces the limit: `cgroup`, `rlimit`, `niceness`, `module`; or `nothing`.
    pub by: String,
    /// The reason why no control group enforces the limit, although one should; empty otherwise.
    #[serde(default)]
    pub problem: String,
}

/// A counter that a function defines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FunctionCounter {
    /// The name of the counter.
    pub name: String,
    /// The value of the counter.
    pub value: u64,
}

/// A hop whose files are loaded again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Reloading {
    /// The name of the chain.
    pub chain: String,
    /// The name of the hop.
    pub hop: String,
}

/// A hop whose functions were re-created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Restarted {
    /// The name of the chain.
    pub chain: String,
    /// The name of the hop.
    pub hop: String,
}
