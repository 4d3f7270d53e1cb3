//! The state of the router on the control side: the RIB, the workers' router, and what runs of the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use millrace_datapath::Datapath;
use millrace_datapath::io::Backend;
use millrace_model as model;
use millrace_netlink::{Fpm, Kernel, Shadow};
use millrace_rib::event::Source;
use millrace_rib::{Event, Limits, Netns, Rib, VrfId};
use millrace_router::{Interface, RouterHandle, TunnelEnds};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::plan::{InterfaceKey, InterfacePlan};
use super::tunnel_plan::{Looks, RunningTunnel, TunnelPort};
use crate::control::{BridgeHandle, LinkChange, SharedRouter};
use crate::problem::Problem;

/// The length of the queue of batches of events: a reader that fills it waits, and the kernel's buffer holds the rest.
const BATCHES_LEN: usize = 64;

/// The channels that the RIB's thread reads.
pub(super) struct Inputs {
    pub(super) events: Receiver<Vec<Event>>,
    pub(super) links: Receiver<LinkChange>,
}

/// The router on the control side. Locked by the RIB's thread for a batch of events, and by others for short times.
pub(super) struct State<B: Backend> {
    pub(super) datapath: Arc<Datapath<B>>,
    pub(super) seed: u64,
    pub(super) rib: Rib,
    /// Locked after this state, if both are.
    pub(super) router: SharedRouter<B::Packet>,
    /// By namespace, as the configuration names it; `None` is that of this process.
    pub(super) namespaces: BTreeMap<Option<String>, RunningNamespace>,
    pub(super) vrfs: BTreeMap<String, RunningVrf>,
    pub(super) interfaces: BTreeMap<InterfaceKey, RunningInterface>,
    /// The interfaces of the kernel that are passive ones while they have an address.
    pub(super) taps: BTreeSet<InterfaceKey>,
    /// The tunnels that VRFs carry.
    pub(super) tunnels: BTreeMap<TunnelPort, RunningTunnel>,
    /// The times of the looks at the ways of tunnels.
    pub(super) looks: Looks,
    /// The indices of bridges in the router, by name.
    pub(super) bridges: BTreeMap<String, u16>,
    /// Their control threads.
    pub(super) handles: BTreeMap<String, BridgeHandle<B>>,
    /// Bridges that may not know the addresses at which the router receives.
    pub(super) untold: BTreeSet<String>,
    /// The number of the next namespace.
    pub(super) next_netns: u32,
    pub(super) events: SyncSender<Vec<Event>>,
    pub(super) links: Sender<LinkChange>,
    /// The number of times at which the configuration had to be applied again, because another program changed what the
    /// switch had made.
    pub(super) disturbances: watch::Sender<u64>,
}

/// A namespace with VRFs.
pub(super) struct RunningNamespace {
    pub(super) netns: Netns,
    pub(super) kernel: Kernel,
}

pub(super) struct RunningVrf {
    pub(super) config: model::Vrf,
    /// The index in the router.
    pub(super) index: u16,
    pub(super) id: VrfId,
    pub(super) netns: Netns,
    pub(super) fpm: Option<Fpm>,
    /// The tunnels that it carries, as workers have them.
    pub(super) tunnels: Arc<TunnelEnds>,
}

pub(super) struct RunningInterface {
    pub(super) plan: InterfacePlan,
    pub(super) netns: Netns,
    /// As workers have it.
    pub(super) interface: Arc<Interface>,
    /// `None` until the kernel has an interface of this name, and while its addresses are set.
    pub(super) shadow: Option<Shadow>,
    /// The kernel's number of that interface; `None` from the moment at which another program takes it away.
    pub(super) ifindex: Option<u32>,
}

impl<B: Backend> State<B> {
    pub(super) fn new(
        datapath: &Arc<Datapath<B>>,
        seed: u64,
        disturbances: watch::Sender<u64>,
    ) -> (State<B>, Inputs) {
        let (events, event_inputs) = sync_channel(BATCHES_LEN);
        let (links, link_inputs) = channel();
        let rib = Rib::new(Limits::default());
        let router = RouterHandle::new(datapath.workers_len(), seed, &rib.next_hops());
        let state = State {
            datapath: Arc::clone(datapath),
            seed,
            rib,
            router: Arc::new(Mutex::new(router)),
            namespaces: BTreeMap::new(),
            vrfs: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            taps: BTreeSet::new(),
            tunnels: BTreeMap::new(),
            looks: Looks::default(),
            bridges: BTreeMap::new(),
            handles: BTreeMap::new(),
            untold: BTreeSet::new(),
            next_netns: 0,
            events,
            links,
            disturbances,
        };
        let inputs = Inputs {
            events: event_inputs,
            links: link_inputs,
        };
        (state, inputs)
    }

    /// Sends the requests of the RIB to the kernels of their namespaces.
    pub(super) fn act(&mut self) {
        while let Some(action) = self.rib.next_action() {
            for namespace in self.namespaces.values() {
                namespace.kernel.execute(&action);
            }
        }
    }

    /// Gives back to the FIB what no worker reads any more.
    pub(super) fn reclaim(&mut self) {
        if let Some(retired) = self.rib.take_retired() {
            self.router.lock().grace_period();
            self.rib.reclaim(retired);
        }
    }

    /// Returns the namespaces that cannot be read, and tunnels whose packets would not come back.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, vrf) in &self.vrfs {
            let Some(namespace) = self.namespaces.values().find(|held| held.netns == vrf.netns) else {
                continue;
            };
            let status = namespace.kernel.status();
            if !status.is_open {
                let netns = vrf.config.netns.as_ref().map_or("", |netns| netns.as_str());
                problems.push(Problem::new(
                    format!("vrf {name}"),
                    format!(
                        "{}; routes stay for 30 s. To fix it: ip netns add {netns}",
                        status.last_error
                    ),
                ));
            }
        }
        problems.extend(self.tunnel_problems());
        problems
    }
}

/// Returns the source of a VRF's routes for the RIB.
pub(super) fn source_of(vrf: &model::Vrf) -> Source {
    match vrf.routes {
        model::RouteSource::Netlink => Source::Kernel,
        model::RouteSource::Fpm(_) => Source::Fpm,
    }
}
