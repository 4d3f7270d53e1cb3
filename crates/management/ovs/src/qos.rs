//! QoS rows and their queues as rates and egress queues of a port.

use millrace_model as model;
use millrace_types::QueueId;

use crate::fault::{Faults, RowName};
use crate::keys;
use crate::one::One;
use crate::rows::View;
use crate::unread;
use crate::values::rate;

/// The highest priority of a queue in the model; 0 is the highest in linux-htb.
const PRIORITY_MAX: u8 = 7;

/// Sets the rate and the queues of a port.
pub(crate) fn port(one: &mut One<'_, '_>, view: &View<'_>, row: &RowName, port: &mut model::Port) {
    let Some(qos) = view.refer(one.replica, "qos", "QoS").into_iter().next() else {
        return;
    };
    let row = qos.named(&format!("of port {}", row.name));
    let read = match qos.text("type") {
        Some("linux-htb" | "linux-hfsc") => "max-rate",
        Some("egress-policer") => "cir",
        _ => "",
    };
    keys::check(&qos, "other_config", &row, |key| key == read, one.faults);
    let other = qos.map("other_config");
    match qos.text("type").unwrap_or("") {
        "linux-htb" | "linux-hfsc" => {}
        "linux-noop" => return,
        kind @ ("linux-sfq" | "linux-codel" | "linux-fq_codel") => {
            one.faults.ignore(
                &row,
                format!("type {kind} has no effect: expected linux-htb or linux-hfsc; without queues, packets leave in their order"),
            );
            return;
        }
        "egress-policer" => {
            if qos.has("queues") {
                one.faults
                    .ignore(&row, "queues has no effect with type egress-policer");
            }
            // `cir` counts bytes a second.
            match other.get("cir").map(|text| (text, text.parse::<u64>())) {
                Some((_, Ok(bytes))) => set_rate(port, bytes.saturating_mul(8), &row, one.faults),
                Some((text, Err(_))) => one
                    .faults
                    .refuse(&row, format!("other_config:cir={text}: expected bytes a second")),
                None => one
                    .faults
                    .refuse(&row, "egress-policer without other_config:cir, bytes a second"),
            }
            return;
        }
        kind => {
            one.faults.refuse(
                &row,
                format!("type \"{kind}\" is not available: expected linux-htb or linux-hfsc"),
            );
            return;
        }
    }
    if let Some(text) = other.get("max-rate") {
        match text.parse::<u64>() {
            Ok(bps) => set_rate(port, bps, &row, one.faults),
            Err(_) => one
                .faults
                .refuse(&row, format!("other_config:max-rate={text}: expected bit/s")),
        }
    }
    for (number, queue) in qos.numbered(one.replica, "queues", "Queue") {
        let row = queue.named(&format!("{number} {}", row.name));
        let Some(id) = u32::try_from(number).ok() else {
            continue;
        };
        unread::check(&queue, &row, one.faults);
        let mut made = model::Queue::new(QueueId(id));
        let other = queue.map("other_config");
        let mut read = |key: &str| {
            let text = other.get(key)?;
            match text
                .parse::<u64>()
                .map_err(|_| "expected bit/s".to_owned())
                .and_then(rate)
            {
                Ok(rate) => Some(rate),
                Err(reason) => {
                    one.faults
                        .refuse(&row, format!("other_config:{key}={text}: {reason}"));
                    None
                }
            }
        };
        made.min_rate = read("min-rate");
        // As in Open vSwitch, a rate above that of the port, or below the guaranteed one, is brought to it.
        made.max_rate = read("max-rate").map(|max| max.min(port.rate.unwrap_or(max)));
        if let (Some(min), Some(max)) = (made.min_rate, made.max_rate) {
            made.max_rate = Some(max.max(min));
        }
        let priority = match other.get("priority").map(|text| (text, text.parse::<u32>())) {
            None => 0,
            Some((_, Ok(priority))) if priority <= PRIORITY_MAX.into() => {
                u8::try_from(priority).unwrap_or(PRIORITY_MAX)
            }
            Some((_, Ok(priority))) => {
                one.faults.ignore(
                    &row,
                    format!("other_config:priority={priority} is not available: {PRIORITY_MAX} is in effect, the lowest"),
                );
                PRIORITY_MAX
            }
            Some((text, Err(_))) => {
                one.faults.ignore(
                    &row,
                    format!("other_config:priority={text} has no effect: expected 0 to {PRIORITY_MAX}"),
                );
                0
            }
        };
        let priority = PRIORITY_MAX - priority;
        made.priority = model::QueuePriority::new(priority).unwrap_or(made.priority);
        if queue.has("dscp") {
            one.faults.ignore(
                &row,
                "dscp has no effect: expected the action set_field:N->ip_dscp",
            );
        }
        port.egress_queues.push(made);
    }
}

fn set_rate(port: &mut model::Port, bps: u64, row: &RowName, faults: &mut Faults) {
    match rate(bps) {
        Ok(rate) => port.rate = Some(rate),
        Err(reason) => faults.refuse(row, format!("the rate: {reason}")),
    }
}
