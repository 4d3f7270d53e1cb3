//! What is wanted of a chain: pure values, made from the configuration.

use millrace_nf::{Limits, Settings};
use millrace_types::PortNo;

/// How far a function is trusted, and so where it runs (ADR 8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Class {
    /// In the worker.
    #[default]
    Inline,
    /// In a process that shares the memory of packets.
    Ring,
    /// In a process that packets are copied to and from.
    Isolated,
}

impl Class {
    /// The word of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Inline => "inline",
            Class::Ring => "ring",
            Class::Isolated => "isolated",
        }
    }
}

/// What becomes of packets whose hop is down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFailure {
    /// They are dropped.
    #[default]
    Closed,
    /// They go on with the next hop.
    Open,
    /// They leave the chain by its end.
    Bypass,
}

/// One hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HopPlan {
    /// Its name, unique in the chain.
    pub name: String,
    /// The function.
    pub function: String,
    /// Where it runs.
    pub class: Class,
    /// Its settings.
    pub settings: Settings,
    /// What it may use.
    pub limits: Limits,
    /// Its share of a core that it shares with other processes, 1 to 10000, of which 100 is an ordinary one.
    pub weight: u16,
    /// The greatest share of a core that its process may have, in percent, 1 to 100; `None` is as much as there is.
    pub cpu_percent: Option<u8>,
    /// Functions in each lane, at least one.
    pub instances: u16,
    /// What happens while it is down.
    pub on_failure: OnFailure,
    /// Its logical port.
    pub number: Option<PortNo>,
    /// Whether the tables say where its packets go next. Needs a number.
    pub steer: bool,
    /// Whether packets pass over it.
    pub drained: bool,
}

impl HopPlan {
    /// The weight of an ordinary process.
    pub const WEIGHT: u16 = 100;

    /// A hop with one inline instance.
    pub fn new(name: &str, function: &str) -> HopPlan {
        HopPlan {
            name: name.to_owned(),
            function: function.to_owned(),
            class: Class::Inline,
            settings: Settings::default(),
            limits: Limits::default(),
            weight: HopPlan::WEIGHT,
            cpu_percent: None,
            instances: 1,
            on_failure: OnFailure::Closed,
            number: None,
            steer: false,
            drained: false,
        }
    }

    /// Whether it runs in a process, and is loaded from a file: then only that process loads it.
    pub(crate) fn is_loaded_elsewhere(&self) -> bool {
        self.class != Class::Inline && self.function.contains(':')
    }

    /// Whether the function of this hop may stay, with all that it knows, when the other is wanted.
    pub(crate) fn has_same_function(&self, other: &HopPlan) -> bool {
        self.name == other.name
            && self.function == other.function
            && self.class == other.class
            && self.settings == other.settings
            && self.limits == other.limits
            && self.weight == other.weight
            && self.cpu_percent == other.cpu_percent
            && self.instances == other.instances
            && self.drained == other.drained
    }
}

/// A chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainPlan {
    /// Its name, unique in the bridge.
    pub name: String,
    /// What is sent to this port goes through the hops in order; what went through them backward comes in at it.
    pub near: PortNo,
    /// The other end; the same as `near` where the chain has one end only.
    pub far: PortNo,
    /// On how many workers it runs, at least one.
    pub lanes: u16,
    /// Whether hops side by side, in processes, whose functions only read are given packets at the same time.
    pub parallel: bool,
    /// The hops, in order.
    pub hops: Vec<HopPlan>,
}

impl ChainPlan {
    /// A chain without hops, in one lane.
    pub fn new(name: &str, near: PortNo, far: PortNo) -> ChainPlan {
        ChainPlan {
            name: name.to_owned(),
            near,
            far,
            lanes: 1,
            parallel: false,
            hops: Vec::new(),
        }
    }
}
