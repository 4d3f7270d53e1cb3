//! Check of devices that classify packets for a port: a wrong mark, and entries that the device keeps.

use millrace_api::view::{Offload, Port};

use super::finding::Finding;

/// Returns a line for each thing that is wrong with the device of a port.
fn lines(port: &str, offload: &Offload) -> Vec<String> {
    let mut lines = Vec::new();
    if offload.distrusted {
        lines.push(format!(
            "port {port}: {} of {} compared packets differ from what their mark says: every mark is compared until its offload is set \
             again; report it to the maker of the device, with the rules of its refusals (millrace show offload)",
            offload.mismatches, offload.verified
        ));
    }
    if offload.leaked > 0 {
        lines.push(format!(
            "port {port}: the device did not remove {} entries, whose slots stay unused: reset the device, then restart the port",
            offload.leaked
        ));
    }
    if offload.unknown > 0 {
        lines.push(format!(
            "port {port}: {} packets have a mark that names no entry: an entry of another program is in the device; remove it, for \
             example by a reset",
            offload.unknown
        ));
    }
    lines
}

/// Checks the ports of all bridges. Returns `None` if no device has erred.
pub(super) fn of_ports(ports: &[Port]) -> Option<Finding> {
    let of = |port: &Port| Some(lines(&port.name, port.offload_status.as_ref()?));
    let found: Vec<String> = ports.iter().filter_map(of).flatten().collect();
    finding(&found)
}

fn finding(lines: &[String]) -> Option<Finding> {
    let found = "a device that classifies packets has erred; no packet went a wrong way, but marks save less";
    (!lines.is_empty()).then(|| Finding::note("classifiers", found, lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status of a device: whether a mark was wrong, and the numbers of leaked entries and unknown marks.
    fn offload(distrusted: bool, leaked: u64, unknown: u64) -> Offload {
        let text = format!(
            r#"{{"mode":"auto","level":"verify","by":"audit","distrusted":{distrusted},"entries":4,"pending":0,"leaked":{leaked},"limit":8,
                "operations":9,"operations_per_second":0,"packets":70,"marked":60,"used":50,"verified":40,"mismatches":3,
                "unknown":{unknown},"samples":1,"samples_lost":0,"refusals":[]}}"#
        );
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn a_device_that_erred_is_named_with_the_next_step() {
        assert_eq!(lines("p1", &offload(false, 0, 0)), Vec::<String>::new());
        assert_eq!(finding(&[]).map(|_| ()), None);
        let all = lines("p1", &offload(true, 2, 5));
        assert_eq!(all.len(), 3);
        assert!(
            all[0].starts_with("port p1: 3 of 40 compared packets differ"),
            "{all:?}"
        );
        assert!(all[1].contains("did not remove 2 entries") && all[1].contains("reset the device"));
        assert!(all[2].contains("5 packets have a mark that names no entry"));
        let found = finding(&all);
        assert_eq!(found.and_then(|found| found.next_step), Some(all.join("\n")));
    }
}
