//! `millrace show sflow`.

use std::fmt::Write as _;

use millrace_api::view::Sflow;

use crate::table::Table;

/// Returns the agent and the collectors of a bridge, and a row for each port.
pub(super) fn text(list: &[Sflow]) -> String {
    let Some(sflow) = list.first() else {
        return "no sFlow\n".to_owned();
    };
    let mut text = format!(
        "agent {}, sub-agent {}: {} notifications of dropped packets, {} left out\n",
        sflow.agent, sflow.sub_agent, sflow.discards, sflow.discards_lost
    );
    let mut collectors = Table::new(
        &["COLLECTOR", ">DATAGRAMS", ">ERRORS", "LAST ERROR"],
        "no collector",
    );
    for collector in &sflow.collectors {
        collectors.row([
            collector.address.clone(),
            collector.datagrams.to_string(),
            collector.errors.to_string(),
            collector.last_error.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    let mut ports = Table::new(
        &[
            "PORT",
            ">RATE",
            ">SAMPLES",
            ">OF PACKETS",
            ">LOST",
            ">COUNTER SAMPLES",
        ],
        "no port",
    );
    for port in &sflow.ports {
        ports.row([
            port.port.clone(),
            match port.rate {
                0 => "-".to_owned(),
                rate => format!("1:{rate}"),
            },
            port.samples.to_string(),
            port.pool.to_string(),
            port.lost.to_string(),
            port.counter_samples.to_string(),
        ]);
    }
    // Writing to a String cannot fail.
    let _written = write!(text, "{collectors}\n{ports}");
    text
}
