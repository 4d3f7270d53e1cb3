//! Chains of network functions.

use millrace_types::PortNo;

use crate::choice::{HopClass, OnFailure};
use crate::function::FunctionName;
use crate::name::{ChainName, HopName};
use crate::number::{CpuPercent, Fuel, FunctionMemoryMib, FunctionWeight, InstanceCount, LaneCount};
use crate::section::{deserialize, section};
use crate::setting::Setting;

section! {
    /// A chain of network functions: a logical port, or two, of the bridge. What is sent to `number` goes through the
    /// hops in order and comes in at `far`; what is sent to `far` goes the other way. Flow entries steer into it with
    /// `output`.
    pub struct Chain (live, by name) {
        required {
            /// The name of the chain, unique among the ports of the bridge; that of its near end, too.
            pub name: ChainName,
            /// The OpenFlow port number of the near end.
            pub number: PortNo,
        }
        optional {
            /// The OpenFlow port number of the far end, whose name is that of the chain and `.far`. Unset, the chain has
            /// one end, at which packets come in that have gone through.
            pub far: Option<PortNo> = None,
            /// How many workers run the chain, each with functions of its own. A flow stays with one, both ways.
            pub lanes: LaneCount = LaneCount::ONE,
            /// Whether hops side by side whose functions are in processes and only read packets (`millrace nf functions`
            /// tells which do) are given them at the same time. What becomes of a packet is as if it had gone through them
            /// in order, but a function sees what one before it drops.
            pub parallel: bool = false,
            /// The hops, in order.
            pub hops as "hop": Vec<Hop> = Vec::new(),
        }
    }
}

section! {
    /// A hop of a chain.
    pub struct Hop (live, by name) {
        required {
            /// The name of the hop, unique in its chain; if it has a `number`, among the ports of the bridge.
            pub name: HopName,
            /// The function: `firewall`, `lb`, `macswap`, `monitor`, `nat44`, `ratelimit` or `tap`
            /// (`millrace nf functions` tells what they do and take); or `wasm:PATH`, a WebAssembly module, or
            /// `library:PATH`, a shared object with the interface of `millrace_nf.h`.
            pub function: FunctionName,
        }
        optional {
            /// Where the function runs.
            pub class: HopClass = HopClass::Inline,
            /// Its settings, each `"key=value"`.
            pub settings: Vec<Setting> = Vec::new(),
            /// Memory that it may take, in MiB. Unset, a WebAssembly module has 64, a process has no limit of its own.
            pub memory_mib: Option<FunctionMemoryMib> = None,
            /// Instructions that a WebAssembly module may take over one burst; unset, 1,000,000.
            pub fuel: Option<Fuel> = None,
            /// The share of its process among those on the same core.
            pub weight: FunctionWeight = FunctionWeight::DEFAULT,
            /// The greatest share of a core that its process may have, however idle the core is. Needs control groups.
            /// Unset, it has what there is.
            pub cpu_percent: Option<CpuPercent> = None,
            /// How many of it there are in each lane. A flow stays with one, both ways.
            pub instances: InstanceCount = InstanceCount::ONE,
            /// What happens to packets while it is down.
            pub on_failure: OnFailure = OnFailure::Closed,
            /// The OpenFlow port number of the hop: what is sent there enters the chain at this hop.
            pub number: Option<PortNo> = None,
            /// Whether packets come in at the hop's port after it, so that flow entries say where they go.
            pub steer: bool = false,
            /// Whether packets pass over it, and its function ends.
            pub drained: bool = false,
        }
    }
}

deserialize!(Chain, Hop);

impl Chain {
    /// The number of the end at which packets come in that went forward.
    pub fn far_end(&self) -> PortNo {
        self.far.unwrap_or(self.number)
    }

    /// The name of the far end's port.
    pub fn far_name(&self) -> String {
        format!("{}.far", self.name)
    }

    /// The numbers and names of its logical ports.
    pub fn ports(&self) -> impl Iterator<Item = (PortNo, String)> + '_ {
        let far = self.far.map(|far| (far, self.far_name()));
        let hops = self
            .hops
            .iter()
            .filter_map(|hop| Some((hop.number?, hop.name.to_string())));
        [(self.number, self.name.to_string())]
            .into_iter()
            .chain(far)
            .chain(hops)
    }
}
