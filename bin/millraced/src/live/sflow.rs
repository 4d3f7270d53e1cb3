//! sFlow of a bridge, from the agent's values to those of REST.

use std::collections::BTreeMap;

use millrace_agent::control::{PortStatus, SflowStatus};
use millrace_api::view;
use millrace_types::PortNo;

/// Returns the state of sFlow; the ports have the names of `ports`.
pub(super) fn view(status: &SflowStatus, ports: &BTreeMap<PortNo, PortStatus>) -> view::Sflow {
    let collectors = status.collectors.iter().map(|collector| view::SflowCollector {
        address: collector.address.to_string(),
        datagrams: collector.datagrams,
        errors: collector.errors,
        last_error: collector.last_error.clone(),
    });
    let samples = status.ports.iter().filter_map(|(number, samples)| {
        Some(view::SflowPort {
            port: ports.get(number)?.model.name.to_string(),
            number: number.raw(),
            rate: samples.rate,
            samples: samples.samples,
            pool: samples.pool,
            lost: samples.lost,
            counter_samples: samples.counter_samples,
        })
    });
    view::Sflow {
        agent: status.config.agent.to_string(),
        sub_agent: status.config.sub_agent.get(),
        collectors: collectors.collect(),
        ports: samples.collect(),
        discards: status.discards,
        discards_lost: status.discards_lost,
    }
}
