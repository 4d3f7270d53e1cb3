//! `millrace show ipfix`.

use std::fmt::Write as _;

use millrace_api::view::Ipfix;

use crate::table::Table;

/// Returns the records and the collectors of a bridge.
pub(super) fn text(list: &[Ipfix]) -> String {
    let Some(ipfix) = list.first() else {
        return "no IPFIX\n".to_owned();
    };
    let mut text = format!(
        "domain {}, records of {}: {} records of {} samples of {} packets, {} samples lost, {} flows kept, {} sent early\n",
        ipfix.domain,
        ipfix.content,
        ipfix.records,
        ipfix.samples,
        ipfix.pool,
        ipfix.lost,
        ipfix.flows,
        ipfix.evicted
    );
    let mut collectors = Table::new(
        &[
            "COLLECTOR",
            "CONNECTED",
            ">MESSAGES",
            ">RECORDS",
            ">NOT SENT",
            "LAST ERROR",
        ],
        "no collector",
    );
    for collector in &ipfix.collectors {
        collectors.row([
            collector.target.clone(),
            if collector.connected { "yes" } else { "no" }.to_owned(),
            collector.messages.to_string(),
            collector.records.to_string(),
            collector.not_sent.to_string(),
            collector.last_error.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    // Writing to a String cannot fail.
    let _written = write!(text, "{collectors}");
    text
}
