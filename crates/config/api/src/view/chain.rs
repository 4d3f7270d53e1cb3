//! Chains of network functions as they run.

use serde::{Deserialize, Serialize};

/// A chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// The port number of the near end.
    pub near: u32,
    /// The port number of the far end; the same where there is one end.
    pub far: u32,
    /// Workers that run it.
    pub lanes: u32,
    /// `up`, or `down` if it does not run.
    #[serde(default)]
    pub state: String,
    /// Why it does not run, or runs as it was before the last change; empty if it is what is configured.
    #[serde(default)]
    pub problem: String,
    /// Its hops, in order.
    pub hops: Vec<ChainHop>,
}

/// A hop of a chain.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct ChainHop {
    /// Its name.
    pub name: String,
    /// The function.
    pub function: String,
    /// `inline`, `ring` or `isolated`.
    pub class: String,
    /// `up`, `starting` while a process has not shown life yet, `down` or `drained`.
    pub state: String,
    /// Which group of hops it is given packets at the same time with, counted from 1; `null` if with none.
    #[serde(default)]
    pub parallel: Option<u32>,
    /// Functions over all lanes.
    pub instances: u32,
    /// Functions that were made again.
    pub restarts: u64,
    /// Why one of its functions went down last; empty if none ever did.
    #[serde(default)]
    pub failure: String,
    /// What each of its functions may use, and what sees to that.
    #[serde(default)]
    pub limits: Vec<FunctionLimit>,
    /// Packets that it was given.
    pub packets: u64,
    /// Size of those in bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Those that went on.
    pub next: u64,
    /// Those that skipped hops.
    pub skipped: u64,
    /// Those that it dropped.
    pub dropped: u64,
    /// Those that it sent out of a port.
    pub to_port: u64,
    /// Those that went on although it was down.
    pub passed: u64,
    /// Those that were dropped because it was down.
    pub lost: u64,
    /// Packets that are with processes now.
    pub depth: u64,
    /// What a packet costs here, in nanoseconds; `null` while nothing was measured.
    #[serde(default)]
    pub nanos_per_packet: Option<f64>,
    /// How much later packets go on because of this hop, in nanoseconds, of one burst in 64: of a function in a process,
    /// the way there and back; `null` while nothing was measured.
    #[serde(default)]
    pub latency_nanos: Option<f64>,
    /// The function's own counters.
    pub counters: Vec<FunctionCounter>,
    /// What the function reports, a line for each thing.
    pub report: Vec<String>,
}

/// A limit of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FunctionLimit {
    /// What is bounded: `cpu_percent`, `fuel`, `memory_mib`, `processes` or `weight`.
    pub name: String,
    /// The bound.
    pub value: u64,
    /// What holds it: `cgroup`, `rlimit`, `niceness`, `module`; or `nothing`.
    pub by: String,
    /// Why no control group holds it, where one should; empty otherwise.
    #[serde(default)]
    pub problem: String,
}

/// A counter of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct FunctionCounter {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// A hop whose functions were made anew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(utoipa::ToSchema))]
pub struct Restarted {
    /// The chain.
    pub chain: String,
    /// The hop.
    pub hop: String,
}
