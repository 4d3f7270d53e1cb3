//! The state of one bridge, owned by its control thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_datapath::io::{Backend, DeviceStats};
use millrace_datapath::{Bridge, BridgeError, BridgeSetup, Datapath, PortStats};
use millrace_l2ctl::lldp::Agent;
use millrace_model as model;
use millrace_pipeline::{Control, ControlConfig, MirrorCount, Op, TunnelCounts};
use millrace_types::{PortNo, TableId, Time};

use super::chains::Chains;
use super::hops::HopProblems;
use super::lag::RunningLag;
use super::lldp_changes::LldpChanges;
use super::mirrors::MirrorCounts;
use super::monitors::Oam;
use super::neighbours::Neighbours;
use super::recording::Recording;
use super::refused_frames::RefusedFrames;
use super::round::Round;
use super::router_port::BridgeRouter;
use super::settings::{
    fdb_config, flow_cache, fragments, normal_ingress, normal_settings, select_fields, table_limits,
};
use super::sflow_agent::Sflow;
use super::spanning_tree::SpanningTree;
use super::taps::Taps;
use crate::asynchronous::{flow_removed, send_flow_updates};
use crate::controllers::Controllers;
use crate::observe::{Observation, Observer};
use crate::port::PortStatus;

/// The counters of a port at the time of their latest reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    pub(super) port: PortStats,
    pub(super) device: DeviceStats,
}

/// One bridge, owned by its control thread. Each task gets exclusive access to it.
///
/// Code outside this crate reads the bridge with the methods below, and changes it only with operations that
/// keep tables, devices and controllers consistent.
pub struct BridgeControl<B: Backend> {
    /// The configuration that was applied last. It lists the desired ports and controllers, some of which may
    /// not run.
    pub(crate) config: model::Bridge,
    /// Flow tables, groups, meters, MAC table. Their changes for workers go to `ops`.
    pub(crate) tables: Control,
    /// The names that controllers gave to tables.
    pub(crate) table_names: BTreeMap<TableId, String>,
    /// Changes that are not published yet.
    pub(crate) ops: Vec<Op>,
    /// The bridge in the data plane.
    pub(crate) datapath: Bridge<B>,
    /// The running ports.
    pub(crate) ports: BTreeMap<PortNo, PortStatus>,
    /// The running ports without a device.
    pub(super) logical: BTreeSet<PortNo>,
    /// The running ports whose devices are looked at regularly.
    pub(super) looked_at: BTreeSet<PortNo>,
    /// The ports to look at although their devices report no change.
    pub(super) recheck: BTreeSet<PortNo>,
    /// The rounds in which these are looked at, and in which their refused frames are counted.
    pub(super) looks: Round,
    pub(super) refused_looks: Round,
    /// True if the router may not have the links of its VLANs.
    pub(super) router_is_behind: bool,
    /// The connected controllers.
    pub(crate) controllers: Controllers,
    /// The observer of ports and neighbours, if there is one.
    pub(super) observer: Option<Observer>,
    /// The time since which no configured controller is connected, while none is; at first, the start of the bridge.
    pub(super) uncontrolled_since: Time,
    /// Captures and live traces.
    pub(super) taps: Taps,
    /// The running chains of network functions.
    pub(super) chains: Chains<B>,
    /// The chains' hops that do not work, for readers that do not wait for the control thread.
    pub(super) hops: Arc<HopProblems>,
    /// The ports whose counters were reset.
    pub(super) baselines: BTreeMap<PortNo, Baseline>,
    /// The frames that the devices of ports refused, as far as they are counted as drops.
    pub(super) refused: BTreeMap<PortNo, RefusedFrames>,
    /// The workers' counters of logical ports.
    pub(super) tunnel_counts: BTreeMap<PortNo, Arc<TunnelCounts>>,
    /// The neighbours on the underlay links of tunnels.
    pub(super) neighbours: Neighbours,
    /// BFD, continuity checks and flap damping of the ports.
    pub(super) oam: Oam,
    /// The spanning tree; `None` if RSTP is not configured.
    pub(super) rstp: Option<SpanningTree>,
    /// The LAGs, by the numbers of their ports.
    pub(super) lags: BTreeMap<PortNo, RunningLag>,
    /// The LLDP agent; `None` if LLDP is not configured.
    pub(super) lldp: Option<Agent>,
    /// The neighbours by LLDP that were reported last.
    pub(super) lldp_changes: LldpChanges,
    /// The sFlow agent, and the sampling plan of the workers.
    pub(super) sflow: Sflow,
    /// The state of the seeds of sampling plans.
    pub(super) sflow_seed: u64,
    /// The router's port, if the bridge has interfaces of the router.
    pub(super) router: Option<BridgeRouter<B::Packet>>,
    /// The time of the next attempt to reconnect virtual NICs; `None` before the first.
    pub(super) next_vnic_reconnect: Option<Time>,
    /// The counters of the mirrors, by name.
    pub(super) mirrors: MirrorCounts,
    /// The list of all entries that is being made.
    pub(super) recording: Option<Recording>,
}

impl<B: Backend> BridgeControl<B> {
    /// Sets the observer of ports and neighbours.
    pub(crate) fn observe(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// Reports a change to the observer.
    pub(super) fn report(&self, observation: &Observation<'_>) {
        if let Some(observer) = &self.observer {
            observer(observation);
        }
    }

    /// Returns a bridge with the settings of `config`, without ports and controllers. `seed` keys its hash tables.
    pub(super) fn new(
        datapath: &Datapath<B>,
        config: model::Bridge,
        seed: u64,
        hops: Arc<HopProblems>,
    ) -> Result<Self, BridgeError> {
        let mut tables = Control::new(ControlConfig {
            tables: config.tables.get(),
            seed,
            fdb: fdb_config(&config),
            flow_cache: flow_cache(&config),
            match_extensions: config.match_extensions,
            ..ControlConfig::default()
        });
        tables.set_limits(table_limits(&config));
        let mut ops = Vec::new();
        tables.set_fragments(fragments(&config), &mut ops);
        tables.set_select_fields(select_fields(&config), &mut ops);
        tables.set_normal_ingress(normal_ingress(&config), &mut ops);
        tables.set_normal_settings(normal_settings(&config), &mut ops);
        let mut mirrors = MirrorCounts::default();
        tables.set_mirrors(mirrors.update(&config), &mut ops);
        let mut counters: Vec<_> = (0..datapath.workers_len()).map(|_| tables.counters()).collect();
        counters.push(tables.own_counters());
        let setup = BridgeSetup {
            forwarding: [tables.forwarding(), tables.forwarding()],
            counters,
        };
        let datapath = datapath.bridge(setup)?;
        Ok(BridgeControl {
            config,
            tables,
            table_names: BTreeMap::new(),
            ops,
            ports: BTreeMap::new(),
            logical: BTreeSet::new(),
            looked_at: BTreeSet::new(),
            recheck: BTreeSet::new(),
            looks: Round::default(),
            refused_looks: Round::default(),
            router_is_behind: false,
            controllers: Controllers::default(),
            observer: None,
            uncontrolled_since: datapath.now(),
            taps: Taps::default(),
            chains: Chains::new(seed),
            hops,
            baselines: BTreeMap::new(),
            refused: BTreeMap::new(),
            tunnel_counts: BTreeMap::new(),
            neighbours: Neighbours::default(),
            oam: Oam::new(seed),
            rstp: None,
            lags: BTreeMap::new(),
            lldp: None,
            lldp_changes: LldpChanges::default(),
            sflow: Sflow::default(),
            sflow_seed: seed,
            router: None,
            next_vnic_reconnect: None,
            recording: None,
            mirrors,
            datapath,
        })
    }

    /// Returns the configuration that was applied last.
    pub fn config(&self) -> &model::Bridge {
        &self.config
    }

    /// Returns the flow tables, groups, meters and the MAC table.
    pub fn tables(&self) -> &Control {
        &self.tables
    }

    /// Returns the bridge in the data plane.
    pub fn datapath(&self) -> &Bridge<B> {
        &self.datapath
    }

    /// Returns the running ports.
    pub fn ports(&self) -> &BTreeMap<PortNo, PortStatus> {
        &self.ports
    }

    /// Returns the number of connected controllers, no matter which side opened the connection.
    pub fn controllers_len(&self) -> usize {
        self.controllers.len()
    }

    /// Returns true if one of the configured controllers is connected.
    pub fn is_controlled(&self) -> bool {
        self.controllers.is_controlled()
    }

    /// Publishes all changes, and returns when no worker uses the state before them, as a barrier requires. Sends
    /// flow_removed with the final counters of removed entries.
    pub fn publish(&mut self) {
        send_flow_updates(&mut self.controllers, &mut self.tables);
        if self.ops.is_empty() && self.tables.unpublished_len() == 0 {
            return;
        }
        if let Some(recording) = &mut self.recording {
            recording.note(&self.ops);
        }
        self.datapath.publish(&mut self.ops);
        let mut removed = Vec::new();
        self.tables.published(&mut removed);
        for flow in removed {
            flow_removed(&self.controllers, &flow);
        }
    }

    /// Applies the settings that may change while the bridge runs. Ports, chains and controllers are applied
    /// separately.
    pub(crate) fn configure(&mut self, config: model::Bridge) {
        self.tables.set_fdb_config(fdb_config(&config), &mut self.ops);
        self.tables.set_flow_cache(flow_cache(&config), &mut self.ops);
        self.tables.set_limits(table_limits(&config));
        self.tables.set_match_extensions(config.match_extensions);
        self.tables
            .set_select_fields(select_fields(&config), &mut self.ops);
        self.tables
            .set_normal_ingress(normal_ingress(&config), &mut self.ops);
        self.tables
            .set_normal_settings(normal_settings(&config), &mut self.ops);
        let mirrors = self.mirrors.update(&config);
        self.tables.set_mirrors(mirrors, &mut self.ops);
        if config.fragments != self.config.fragments {
            self.tables.set_fragments(fragments(&config), &mut self.ops);
        }
        let has_new_dpid = config.datapath_id() != self.config.datapath_id();
        self.config = config;
        self.update_standalone();
        self.configure_oam();
        if has_new_dpid {
            // BPDUs and LLDPDUs name the bridge by it.
            self.configure_rstp();
            self.configure_lldp();
        }
        self.configure_sflow();
    }

    /// Returns the counts of a mirror.
    pub fn mirror_count(&self, name: &model::MirrorName) -> MirrorCount {
        self.mirrors.read(name)
    }

    /// Returns the name of a table: the name that a controller set, or else the configured name.
    pub(crate) fn table_name(&self, table: TableId) -> Option<String> {
        let written = self.table_names.get(&table).cloned();
        written.or_else(|| {
            let mut settings = self.config.table_settings.iter();
            let found = settings.find(|settings| settings.number.get() == table.0)?;
            found.name.as_ref().map(ToString::to_string)
        })
    }
}
