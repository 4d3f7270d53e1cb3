//! Mirrors, from the configuration to the pipeline. A mirror keeps its counters as long as its bridge has one of its name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use millrace_model as model;
use millrace_pipeline::{Mirror, MirrorCount, MirrorCounters, MirrorOutput, Mirrors};
use millrace_types::{PortNo, Vid};

/// The counters of the mirrors of a bridge, by name.
#[derive(Debug, Default)]
pub(super) struct MirrorCounts(BTreeMap<model::MirrorName, Arc<MirrorCounters>>);

impl MirrorCounts {
    /// Returns the mirrors of a configuration, with counters of zero for those that are new.
    pub(super) fn update(&mut self, config: &model::Bridge) -> Mirrors {
        self.0
            .retain(|name, _| config.mirrors.iter().any(|mirror| mirror.name == *name));
        if config.mirrors.is_empty() {
            return Mirrors::default();
        }
        let ports: HashMap<model::PortName, PortNo> =
            config.all_ports().map(|port| (port.name, port.number)).collect();
        let number = |name: &model::PortName| ports.get(name).copied();
        let numbers = |names: Vec<model::PortName>| names.iter().filter_map(number).collect();
        let vlans = |list: &[model::MirrorVlan]| {
            let vids = list.iter().filter_map(|vlan| Vid::new(vlan.get()).ok());
            (!list.is_empty()).then(|| Box::new(vids.collect()))
        };
        Mirrors::new(config.mirrors.iter().filter_map(|mirror| {
            let output = match (&mirror.output_port, mirror.output_vlan) {
                (Some(name), _) => MirrorOutput::Port(number(name)?),
                (None, vlan) => MirrorOutput::Vlan(vlan?),
            };
            let counters = self.0.entry(mirror.name.clone()).or_default();
            Some(Mirror {
                received: numbers(mirror.received(config)),
                sent: numbers(mirror.sent(config)),
                vlans: vlans(&mirror.select_vlans),
                output,
                snaplen: mirror.snaplen.map(model::SnapLen::get),
                counters: Arc::clone(counters),
            })
        }))
    }

    /// Returns the counts of a mirror.
    pub(super) fn read(&self, name: &model::MirrorName) -> MirrorCount {
        let counters = self.0.get(name);
        counters.map_or_else(MirrorCount::default, |counters| counters.read())
    }
}
