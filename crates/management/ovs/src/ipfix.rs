//! IPFIX rows: records of sampled flows of a bridge.

use millrace_model as model;

use crate::fault::RowName;
use crate::one::One;
use crate::rows::View;
use crate::unread;
use crate::values::bounded;

/// The default of Open vSwitch.
const SAMPLING: u32 = 400;

/// Sets IPFIX of a bridge whose sFlow is set.
pub(crate) fn bridge(one: &mut One<'_, '_>, view: &View<'_>, row: &RowName, bridge: &mut model::Bridge) {
    let Some(ipfix) = view.refer(one.replica, "ipfix", "IPFIX").into_iter().next() else {
        return;
    };
    let row = ipfix.named(&row.name);
    unread::check(&ipfix, &row, one.faults);
    let mut collectors = Vec::new();
    for target in ipfix.texts("targets") {
        // Open vSwitch sends over UDP only.
        match format!("udp:{target}").parse::<model::IpfixCollector>() {
            Ok(collector) => collectors.push(collector),
            Err(_) => one
                .faults
                .refuse(&row, format!("targets: {target}: expected IP or IP:PORT")),
        }
    }
    if collectors.is_empty() {
        return one.faults.refuse(
            &row,
            "targets: no collector: expected IP:PORT, as in 192.0.2.1:4739",
        );
    }
    let mut made = model::Ipfix::new(collectors);
    let number = |column: &str| ipfix.integer(column).and_then(|value| u32::try_from(value).ok());
    let id = |column: &str| model::ObservationId::new(number(column).unwrap_or(0)).ok();
    made.domain = id("obs_domain_id");
    made.point = id("obs_point_id").unwrap_or(made.point);
    let wanted = bounded(&ipfix, "sampling", SAMPLING, 16_777_215, &row, one.faults);
    made.sampling_rate = model::SamplingRate::new(wanted).unwrap_or(made.sampling_rate);
    if let Some(sflow) = &bridge.sflow
        && sflow.sampling_rate != made.sampling_rate
    {
        one.faults.refuse(
            &row,
            format!(
                "sampling={}: a port has one sampler; expected that of sFlow, {}, which is in effect",
                made.sampling_rate, sflow.sampling_rate
            ),
        );
        made.sampling_rate = sflow.sampling_rate;
    }
    let timeout = bounded(&ipfix, "cache_active_timeout", 0, 3600, &row, one.faults);
    made.active_timeout_s =
        model::FlowTimeout::new(u16::try_from(timeout).unwrap_or(0)).unwrap_or(made.active_timeout_s);
    match bounded(&ipfix, "cache_max_flows", 0, 1_000_000, &row, one.faults) {
        // Without a cache, each sample is a record.
        0 => made.active_timeout_s = model::FlowTimeout::MIN,
        flows => made.max_flows = model::FlowCacheSize::new(flows).unwrap_or(made.max_flows),
    }
    bridge.ipfix = Some(made);
}
