//! The state of a fleet as metrics of Prometheus (text format 0.0.4): gauges of each switch, and of the fleet.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::rollout::{NodeView, Rollout};
use crate::summary::{Relation, row};

/// A fleet, as etcd knows it.
#[derive(Debug, Clone, Copy)]
pub struct Overview<'a> {
    /// True if a master holds the lease.
    pub has_master: bool,
    /// The number of alarms of etcd.
    pub alarms: usize,
    /// The switches, each with the `mod_revision` of its document.
    pub nodes: &'a BTreeMap<&'a str, (Option<u64>, &'a NodeView)>,
    pub rollouts: &'a [Rollout],
}

/// Returns the metrics as text.
pub fn metrics(fleet: &Overview<'_>) -> String {
    let mut text = String::new();
    let mut family = |name: &str, help: &str, samples: Vec<(String, u64)>| {
        let _ = writeln!(
            text,
            "# HELP millrace_fleet_{name} {help}\n# TYPE millrace_fleet_{name} gauge"
        );
        for (labels, value) in samples {
            let _ = writeln!(text, "millrace_fleet_{name}{labels} {value}");
        }
    };
    let of_nodes = |value: &dyn Fn(&str, Option<u64>, &NodeView) -> Option<u64>| -> Vec<(String, u64)> {
        let nodes = fleet.nodes.iter();
        let sample = |(name, (document, view)): (&&str, &(Option<u64>, &NodeView))| {
            Some((format!("{{switch=\"{name}\"}}"), value(name, *document, view)?))
        };
        nodes.filter_map(sample).collect()
    };
    let flag = |is_true: bool| Some(u64::from(is_true));
    family(
        "master",
        "1 if a master holds the lease",
        vec![(String::new(), u64::from(fleet.has_master))],
    );
    family(
        "etcd_alarms",
        "Alarms of etcd: writes fail",
        vec![(String::new(), fleet.alarms as u64)],
    );
    family(
        "switch_present",
        "1 if the switch has renewed its lease of 15 s",
        of_nodes(&|_, _, view| flag(view.status.is_some())),
    );
    family(
        "switch_healthy",
        "1 if all of its configuration runs; 0 also if it is away",
        of_nodes(&|_, _, view| flag(view.status.as_ref().is_some_and(|status| status.healthy))),
    );
    family(
        "switch_detached",
        "1 if people have taken the switch out of the fleet",
        of_nodes(&|_, _, view| flag(view.status.as_ref().is_some_and(|status| status.detached))),
    );
    family(
        "switch_in_sync",
        "1 if the switch runs its document; 0 if it has not answered, refuses it or took it back",
        of_nodes(&|name, document, view| flag(row(name, document, view).relation == Relation::InSync)),
    );
    family(
        "document_revision",
        "The revision of etcd at which the document was written",
        of_nodes(&|_, document, _| document),
    );
    family(
        "answered_revision",
        "The revision of the document that the switch has answered last",
        of_nodes(&|_, _, view| view.ack.as_ref().map(|ack| ack.mod_revision)),
    );
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    for rollout in fleet.rollouts {
        *states.entry(rollout.state.name()).or_default() += 1;
    }
    let states = states.into_iter();
    family(
        "rollouts",
        "Roll-outs that are kept, by their state",
        states
            .map(|(state, count)| (format!("{{state=\"{state}\"}}"), count))
            .collect(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Ack, Outcome, Status};

    #[test]
    fn each_switch_has_its_gauges_and_one_that_is_away_is_not_healthy() {
        let ack = Ack {
            schema: 1,
            cluster: "a".to_owned(),
            mod_revision: 7,
            seen: 7,
            seen_epoch: 1,
            tag: None,
            revision: None,
            outcome: Outcome::Applied,
            errors: Vec::new(),
        };
        let here = NodeView {
            ack: Some(ack),
            status: Some(Status {
                healthy: true,
                ..Status::default()
            }),
        };
        let away = NodeView::default();
        let nodes = BTreeMap::from([("sw1", (Some(7), &here)), ("sw2", (Some(9), &away))]);
        let text = metrics(&Overview {
            has_master: true,
            alarms: 0,
            nodes: &nodes,
            rollouts: &[],
        });
        for line in [
            "# TYPE millrace_fleet_switch_in_sync gauge",
            "millrace_fleet_master 1",
            "millrace_fleet_switch_in_sync{switch=\"sw1\"} 1",
            "millrace_fleet_switch_in_sync{switch=\"sw2\"} 0",
            "millrace_fleet_switch_present{switch=\"sw2\"} 0",
            "millrace_fleet_switch_healthy{switch=\"sw1\"} 1",
            "millrace_fleet_document_revision{switch=\"sw2\"} 9",
            "millrace_fleet_answered_revision{switch=\"sw1\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("answered_revision{switch=\"sw2\"}"));
    }
}
