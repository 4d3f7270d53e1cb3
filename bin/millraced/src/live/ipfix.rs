//! IPFIX of a bridge, from the agent's values to those of REST.

use millrace_agent::control::IpfixStatus;
use millrace_api::view;

/// Returns the state of IPFIX.
pub(super) fn view(status: &IpfixStatus) -> view::Ipfix {
    let collectors = status.collectors.iter().map(|collector| view::IpfixCollector {
        target: collector.target.to_string(),
        connected: collector.is_connected,
        messages: collector.messages,
        records: collector.records,
        bytes: collector.bytes,
        not_sent: collector.not_sent,
        last_error: collector.last_error.clone(),
    });
    view::Ipfix {
        domain: status.domain,
        content: status.config.records.to_string(),
        collectors: collectors.collect(),
        flows: status.flows as u64,
        samples: status.samples,
        pool: status.pool,
        lost: status.lost,
        records: status.records,
        evicted: status.evicted,
    }
}
