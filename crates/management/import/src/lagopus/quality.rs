//! Queues and policers of Lagopus as those of a port.

use serde_json::{Map, Value as Json, json};

use super::objects::{Object, number};
use crate::finding::Findings;

/// The highest weight of a queue here.
const WEIGHT_MAX: u64 = 255;
/// The smallest rate here, in bit/s.
const RATE_MIN: u64 = 1_000;

/// Returns a queue. Lagopus marks packets by a meter of one or two rates and drops red ones; here a queue has a guaranteed and a
/// maximum rate.
pub(super) fn queue(name: &str, queue: &Object, findings: &mut Findings) -> Option<Json> {
    let place = &queue.place;
    let mut table = Map::new();
    table.insert("place".to_owned(), json!(place));
    let is_two_rate = queue.value("type") == Some("two-rate");
    for (option, values) in queue.options() {
        let value = values.first().map_or("", String::as_str);
        let parsed = number(value);
        match (option, parsed) {
            ("type", _) => {}
            ("id", Some(id)) => drop(table.insert("id".to_owned(), json!(id))),
            ("priority", Some(priority)) => {
                let weight = priority.clamp(1, WEIGHT_MAX);
                if weight != priority {
                    findings.difference(place, format!("queue {name}: -priority {priority}, a weight, is {weight} here: expected 1 to {WEIGHT_MAX}"));
                }
                table.insert("weight".to_owned(), json!(weight));
            }
            ("committed-information-rate", Some(rate)) if rate >= RATE_MIN => {
                table.insert("min_rate".to_owned(), json!(format!("{rate}bps")));
                if !is_two_rate {
                    table.insert("max_rate".to_owned(), json!(format!("{rate}bps")));
                }
            }
            ("peak-information-rate", Some(rate)) if rate >= RATE_MIN && is_two_rate => {
                table.insert("max_rate".to_owned(), json!(format!("{rate}bps")));
            }
            ("color", _) if value == "color-blind" => {}
            ("committed-burst-size" | "excess-burst-size" | "peak-burst-size" | "color", _) => findings.note(
                place,
                format!("queue {name}: -{option} {value}: a queue delays packets above its rate, and marks none"),
            ),
            _ => findings.difference(place, format!("queue {name}: -{option} {value}: no counterpart: expected rates of at least {RATE_MIN} bit/s")),
        }
    }
    match table.contains_key("id") {
        true => Some(Json::Object(table)),
        false => {
            findings.difference(place, format!("queue {name} has no -id, and is left out"));
            None
        }
    }
}

/// Returns a policer: packets above the rate are dropped.
pub(super) fn policer(
    name: &str,
    policer: &Object,
    action: Option<&Object>,
    findings: &mut Findings,
) -> Option<Json> {
    let place = &policer.place;
    let mut table = Map::from_iter([("kind".to_owned(), json!("srtcm"))]);
    for (option, values) in policer.options() {
        let value = values.first().map_or("", String::as_str);
        match (option, number(value)) {
            ("action", _) | ("bandwidth-percent", Some(0 | 100)) => {}
            ("bandwidth-limit", Some(rate)) => {
                drop(table.insert("cir".to_owned(), json!(format!("{rate}bps"))));
            }
            ("burst-size-limit", Some(size)) => {
                table.insert("cbs".to_owned(), json!(size));
                // One bucket, as in Lagopus.
                table.insert("ebs".to_owned(), json!(64));
            }
            _ => findings.difference(
                place,
                format!("policer {name}: -{option} {value}: expected a rate: `cir`"),
            ),
        }
    }
    if let Some(kind) = action
        .and_then(|action| action.value("type"))
        .filter(|kind| *kind != "discard")
    {
        findings.difference(
            place,
            format!("policer {name}: action {kind}: packets above the rate are dropped here"),
        );
    }
    if !table.contains_key("cir") {
        findings.difference(
            place,
            format!("policer {name} has no -bandwidth-limit, and is left out"),
        );
        return None;
    }
    Some(Json::Object(table))
}
