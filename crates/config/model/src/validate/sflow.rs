//! Constraints on sFlow: collectors, addresses of one family, and bridges and ports that collectors can tell apart.

use super::checks::{Checks, Unique};
use super::walk::{bridges, ports};
use crate::bridge::Bridge;
use crate::config::Config;
use crate::error::Path;
use crate::sflow::Sflow;

/// The limit of collectors of a bridge.
const COLLECTORS_MAX: usize = 8;

/// The largest interface number of a data source. The field has 24 bits; its last two values are reserved for
/// LOCAL and for "unknown".
const INTERFACE_MAX: u32 = 0x00ff_fffd;

impl Checks {
    /// Checks the sFlow settings of all bridges.
    pub(super) fn sflow(&mut self, config: &Config) {
        let mut agents = Unique::new("sFlow agent and sub_agent");
        for (bridge, path) in bridges(config) {
            let Some(sflow) = &bridge.sflow else {
                if bridge.ipfix.is_none() {
                    self.unused_rates(bridge, &path);
                }
                continue;
            };
            let path_of_sflow = path.key("sflow");
            let key = (sflow.agent, sflow.sub_agent);
            let text = format!("{}, {}", sflow.agent, sflow.sub_agent);
            agents.check(key, &text, path_of_sflow.key("sub_agent"), &mut self.issues);
            self.collectors(sflow, &path_of_sflow);
            for (port, path) in ports(bridge, &path) {
                if port.number.raw() > INTERFACE_MAX {
                    let message = format!(
                        "{} cannot be an interface of `sflow`, whose numbers have 24 bits: expected at most {INTERFACE_MAX}",
                        port.number
                    );
                    self.conflict(path.key("number"), message);
                }
            }
        }
    }

    /// Reports rates of ports whose bridge sends no samples.
    fn unused_rates(&mut self, bridge: &Bridge, path: &Path) {
        for (port, path) in ports(bridge, path) {
            if port.sampling_rate.is_some() {
                let message = "the bridge has neither `sflow` nor `ipfix`, so that nobody gets samples: expected one of them \
                               with `collectors` in the bridge";
                self.conflict(path.key("sampling_rate"), message.to_owned());
            }
        }
    }

    fn collectors(&mut self, sflow: &Sflow, path: &Path) {
        let mut unique = Unique::new("collector");
        for (index, collector) in sflow.collectors.iter().enumerate() {
            let path = path.key("collectors").index(index);
            unique.check(*collector, collector, path.clone(), &mut self.issues);
            if let Some(source) = sflow.source
                && source.is_ipv4() != collector.address().is_ipv4()
            {
                let message = format!(
                    "{collector} and `source`, {source}, are of different families: expected two IPv4 or two IPv6 addresses"
                );
                self.conflict(path, message);
            }
        }
        let count = sflow.collectors.len();
        if count == 0 || count > COLLECTORS_MAX {
            let message = format!("{count} collectors: expected 1 to {COLLECTORS_MAX}");
            self.conflict(path.key("collectors"), message);
        }
        if sflow.agent.is_unspecified() {
            let message = format!(
                "{} identifies no switch: expected an address of this machine",
                sflow.agent
            );
            self.conflict(path.key("agent"), message);
        }
    }
}
