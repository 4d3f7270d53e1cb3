//! Constraints on IPFIX: collectors, domains that collectors can tell apart, and one sampler for each port.

use super::checks::{Checks, Unique};
use super::walk::bridges;
use crate::config::Config;

/// The limit of collectors of a bridge.
const COLLECTORS_MAX: usize = 8;

impl Checks {
    /// Checks the IPFIX settings of all bridges.
    pub(super) fn ipfix(&mut self, config: &Config) {
        let mut domains = Unique::new("IPFIX domain");
        for (bridge, path) in bridges(config) {
            let Some(ipfix) = &bridge.ipfix else { continue };
            let path = path.key("ipfix");
            let domain = bridge.ipfix_domain(ipfix);
            domains.check(domain, &domain, path.key("domain"), &mut self.issues);
            let mut unique = Unique::new("collector");
            for (index, collector) in ipfix.collectors.iter().enumerate() {
                let path = path.key("collectors").index(index);
                unique.check(*collector, collector, path, &mut self.issues);
            }
            let count = ipfix.collectors.len();
            if count == 0 || count > COLLECTORS_MAX {
                let message = format!("{count} collectors: expected 1 to {COLLECTORS_MAX}");
                self.conflict(path.key("collectors"), message);
            }
            if let Some(sflow) = &bridge.sflow
                && sflow.sampling_rate != ipfix.sampling_rate
            {
                let message = format!(
                    "{} and {} in `sflow`: a port has one sampler; expected equal rates",
                    ipfix.sampling_rate, sflow.sampling_rate
                );
                self.conflict(path.key("sampling_rate"), message);
            }
        }
    }
}
