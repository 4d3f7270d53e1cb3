//! Chains of network functions.

use millrace_types::PortNo;

use crate::choice::{ChainSpread, HopClass, OnFailure};
use crate::function::FunctionName;
use crate::name::{ChainName, HopName};
use crate::number::{CpuPercent, Fuel, FunctionMemoryMib, FunctionWeight, InstanceCount, LaneCount};
use crate::section::{deserialize, section};
use crate::setting::Setting;

section! {
    /// A chain of network functions: one or two logical ports of the bridge. A packet output to `number` traverses the
    /// hops in order and is received at `far`; a packet output to `far` traverses them in reverse order. Flow entries
    /// send packets into the chain with `output`.
    pub struct Chain (live, by name) {
        required {
            /// The name of the chain, unique among the ports of the bridge, and also the name of its near end.
            pub name: ChainName,
            /// The OpenFlow port number of the near end.
            pub number: PortNo,
        }
        optional {
            /// The OpenFlow port number of the far end, which is named `CHAIN.far`. Unset, the chain has one
            /// end: packets output to `number` are received at `number` after the last hop.
            pub far: Option<PortNo> = None,
            /// The number of workers that run the chain, each with its own instances of the functions. All packets of
            /// a flow, in both directions, use the same worker.
            pub lanes: LaneCount = LaneCount::ONE,
            /// The packets that use the same worker and the same instance. Unset, `addresses` applies if a
            /// function reassembles packets (`ips`, `ids`), else `flow`; a hop keeps what applied when it
            /// was made until it is made anew. An ICMP error goes with the packet that it quotes.
            pub spread: Option<ChainSpread> = None,
            /// If true, consecutive hops receive packets at the same time when their functions run in processes and
            /// only read packets (`millrace nf functions` shows which functions only read). The outcome for a packet
            /// is the same as in sequence, but a function also sees packets that an earlier one drops.
            pub parallel: bool = false,
            /// The hops, in order.
            pub hops as "hop": Vec<Hop> = Vec::new(),
        }
    }
}

section! {
    /// A hop of a chain.
    pub struct Hop (live, by name in order) {
        required {
            /// The name of the hop, unique in its chain; if it has a `number`, among the ports of the bridge.
            pub name: HopName,
            /// The function: `firewall`, `ids`, `ips`, `lb`, `macswap`, `monitor`, `nat44`, `ratelimit` or `tap` (`millrace
            /// nf functions` describes them and their settings); or `wasm:PATH`, a WebAssembly module, or
            /// `library:PATH`, a shared object with the interface of `millrace_nf.h`; or `attached:PATH`, processes that
            /// the operator starts and that connect to the socket which the switch creates at PATH.
            pub function: FunctionName,
        }
        optional {
            /// The isolation class of the function, which decides where it runs.
            pub class: HopClass = HopClass::Inline,
            /// The settings of the function, each `"key=value"`.
            pub settings: Vec<Setting> = Vec::new(),
            /// The memory limit of the function, in MiB. Unset, a WebAssembly module has 64 MiB, and a
            /// process has no separate limit.
            pub memory_mib: Option<FunctionMemoryMib> = None,
            /// The number of instructions that a WebAssembly module may execute for one burst; unset, 1,000,000.
            pub fuel: Option<Fuel> = None,
            /// The CPU weight of the function's process among the processes on the same core.
            pub weight: FunctionWeight = FunctionWeight::DEFAULT,
            /// The largest share of a core that the function's process may use, even while the core is idle. It needs
            /// control groups. Unset, there is no limit.
            pub cpu_percent: Option<CpuPercent> = None,
            /// The number of instances of the function in each lane. All packets of a flow, in both directions, use
            /// the same instance.
            pub instances: InstanceCount = InstanceCount::ONE,
            /// The treatment of packets while the function is down.
            pub on_failure: OnFailure = OnFailure::Closed,
            /// The OpenFlow port number of the hop: packets output to it enter the chain at this hop.
            pub number: Option<PortNo> = None,
            /// If true, packets are received at the hop's port after the function, so that flow entries choose their
            /// next destination.
            pub steer: bool = false,
            /// If true, packets skip the hop, and its function is stopped.
            pub drained: bool = false,
        }
    }
}

deserialize!(Chain, Hop);

impl Chain {
    /// Returns the port number at which packets sent to the near end are received.
    pub fn far_end(&self) -> PortNo {
        self.far.unwrap_or(self.number)
    }

    /// Returns the name of the far end's port.
    pub fn far_name(&self) -> String {
        format!("{}.far", self.name)
    }

    /// Returns the number and name of each logical port of the chain: its ends, and the hops that have a
    /// number.
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
