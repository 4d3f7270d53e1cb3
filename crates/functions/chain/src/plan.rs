//! The desired state of a chain: pure values, built from the configuration.

use std::path::Path;

use millrace_nf::{Catalogue, Kind, Limits, Settings, Spread};
use millrace_types::PortNo;

/// The prefix of functions that operators attach.
const ATTACHED: &str = "attached:";

/// The class of a hop: how far its function is trusted, and therefore where it runs (ADR 8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Class {
    /// The function runs in the worker.
    #[default]
    Inline,
    /// The function runs in a process that shares packet memory.
    Ring,
    /// The function runs in a process, and packets are copied to the process and back.
    Isolated,
}

impl Class {
    /// Returns the name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Inline => "inline",
            Class::Ring => "ring",
            Class::Isolated => "isolated",
        }
    }
}

/// The policy for packets while their hop is down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnFailure {
    /// Drop the packets.
    #[default]
    Closed,
    /// Forward the packets to the next hop.
    Open,
    /// Forward the packets to the end of the chain.
    Bypass,
}

/// The desired state of a hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HopPlan {
    /// The name, unique in the chain.
    pub name: String,
    /// The name of the function.
    pub function: String,
    /// The class of the hop.
    pub class: Class,
    /// The settings of the function.
    pub settings: Settings,
    /// The resource limits of each function.
    pub limits: Limits,
    /// The weight by which processes share a core, 1 to 10000; 100 is the weight of an ordinary process.
    pub weight: u16,
    /// The limit of CPU time, in percent of a core, 1 to 100; `None` sets no limit.
    pub cpu_percent: Option<u8>,
    /// The number of functions in each lane, at least one.
    pub instances: u16,
    /// The policy while a function is down.
    pub on_failure: OnFailure,
    /// The number of the hop's logical port, if it has one.
    pub number: Option<PortNo>,
    /// True if packets go to the flow tables after the hop, and not to the next hop. This requires a number.
    pub steer: bool,
    /// Packets bypass the hop.
    pub drained: bool,
}

impl HopPlan {
    /// The weight of an ordinary process.
    pub const WEIGHT: u16 = 100;

    /// Returns a hop with one inline instance.
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

    /// Returns whether only its own process loads the function: the function is from a file, and the class is
    /// not inline.
    pub(crate) fn is_loaded_elsewhere(&self) -> bool {
        self.class != Class::Inline && self.function.contains(':')
    }

    /// Returns the path of the socket for attached functions; `None` for a hop with another function.
    pub(crate) fn attach_path(&self) -> Option<&Path> {
        self.function.strip_prefix(ATTACHED).map(Path::new)
    }

    /// Returns whether the functions of this hop, which are of this kind, can run for another plan and keep their state.
    pub(crate) fn has_same_function(&self, kind: &Kind, other: &HopPlan) -> bool {
        let own_settings = |plan: &HopPlan| match kind.shared {
            // If only settings of the shared value change, the functions stay and get another value.
            Some(shared) => shared.others(&plan.settings),
            None => plan.settings.clone(),
        };
        self.name == other.name
            && self.function == other.function
            && self.class == other.class
            && own_settings(self) == own_settings(other)
            && self.limits == other.limits
            && self.weight == other.weight
            && self.cpu_percent == other.cpu_percent
            && self.instances == other.instances
            && self.drained == other.drained
    }
}

/// The desired state of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainPlan {
    /// The name, unique in the bridge.
    pub name: String,
    /// The near end. Packets sent to this port traverse the hops in order; packets that traversed them backward have it as
    /// their `in_port`.
    pub near: PortNo,
    /// The far end, or the same as `near` if the chain has one end.
    pub far: PortNo,
    /// The number of workers that run the chain, at least one.
    pub lanes: u16,
    /// The packets that reach the same lane and instance; `None` chooses flows, or addresses if the function of a hop needs
    /// that.
    pub spread: Option<Spread>,
    /// True if adjacent hops get packets in parallel when they run in processes and their functions only
    /// read.
    pub parallel: bool,
    /// The hops, in order.
    pub hops: Vec<HopPlan>,
}

impl ChainPlan {
    /// Returns the packets that reach the same lane. Only built-in functions are checked: functions of files
    /// and processes always have [`Spread::Flow`].
    pub(crate) fn lane_spread(&self, catalogue: &Catalogue) -> Spread {
        let needs_addresses = |hop: &HopPlan| {
            let mut kinds = catalogue.kinds().iter();
            kinds.any(|kind| kind.name == hop.function && kind.spread == Spread::Addresses)
        };
        self.spread
            .unwrap_or(match self.hops.iter().any(needs_addresses) {
                true => Spread::Addresses,
                false => Spread::Flow,
            })
    }

    /// Returns a chain without hops, in one lane.
    pub fn new(name: &str, near: PortNo, far: PortNo) -> ChainPlan {
        ChainPlan {
            name: name.to_owned(),
            near,
            far,
            lanes: 1,
            spread: None,
            parallel: false,
            hops: Vec::new(),
        }
    }
}
