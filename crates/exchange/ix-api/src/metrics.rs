//! The state of the exchange as metrics, in the text format of Prometheus (version 0.0.4).
//!
//! The metrics name switches and trunks, and therefore need the permission to read the fabric: the scraper sends an API key of
//! an operator as bearer token.

use std::fmt::Write as _;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{OperationKind, Quarantine};

use crate::access::Principal;
use crate::app::App;
use crate::problem::Problem;
use crate::render::{ViewContext, word};
use crate::service::SwitchState;
use crate::view::Count;

/// The states of a switch, each with a value of 0 or 1.
const SWITCH_STATES: [SwitchState; 4] = [
    SwitchState::InSync,
    SwitchState::Syncing,
    SwitchState::Drifted,
    SwitchState::Unreachable,
];

/// The text of the metrics so far.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Begins a gauge.
    fn gauge(&mut self, name: &str, help: &str) {
        self.begin(name, help, "gauge");
    }

    fn begin(&mut self, name: &str, help: &str, kind: &str) {
        let _always = writeln!(
            self.0,
            "# HELP millrace_ix_{name} {help}\n# TYPE millrace_ix_{name} {kind}"
        );
    }

    /// Adds a counter.
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.begin(name, help, "counter");
        self.value(name, &[], value);
    }

    /// Adds a value with its labels.
    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, text)| format!("{name}=\"{}\"", escaped(text)))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _always = writeln!(self.0, "millrace_ix_{name}{labels} {value}");
    }

    /// Adds a gauge with one value.
    fn single(&mut self, name: &str, help: &str, value: u64) {
        self.gauge(name, help);
        self.value(name, &[], value);
    }

    /// Adds a gauge of objects by state.
    fn by_state(&mut self, name: &str, help: &str, counts: &[Count]) {
        self.gauge(name, help);
        for count in counts {
            self.value(name, &[("state", &count.state)], count.count as u64);
        }
    }
}

/// Returns the text of a label with the escapes of the format.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Returns the metrics of the exchange.
pub(crate) async fn metrics(State(app): State<App>, principal: Principal) -> Result<Response, Problem> {
    principal.require(OperationKind::ReadFabric)?;
    let scope = ViewContext::new(&principal, app.now());
    let snapshot = &principal.snapshot;
    let exchange = &snapshot.exchange;
    let mut text = Text::default();
    text.single(
        "read_only",
        "1 while the engine sends nothing, because a switch has entries newer than the database.",
        u64::from(snapshot.read_only().is_some()),
    );
    text.single(
        "database_silent_seconds",
        "The time since the database has answered last; 0 while it answers.",
        snapshot
            .silent_since
            .map_or(0, |since| app.now().since(since).as_secs()),
    );
    text.single("revision", "The revision of the database.", snapshot.revision);
    text.gauge(
        "switch_state",
        "1 for the state of the switch, 0 for each other state.",
    );
    for (id, switch) in &exchange.switches {
        let found = snapshot.switches.get(id).map(|health| health.state);
        for state in SWITCH_STATES {
            let labels = [("switch", switch.name.as_str()), ("state", state.name())];
            text.value("switch_state", &labels, u64::from(found == Some(state)));
        }
    }
    text.gauge(
        "switch_entries",
        "The flow entries that the plan has for the switch.",
    );
    for (id, switch) in &exchange.switches {
        let entries = snapshot.switches.get(id).map_or(0, |health| health.entries);
        text.value(
            "switch_entries",
            &[("switch", switch.name.as_str())],
            entries as u64,
        );
    }
    text.gauge(
        "trunk_up",
        "1 if both ends of the trunk are up. An unknown state is left out.",
    );
    for (id, trunk) in &exchange.trunks {
        if let Some(up) = scope.trunk_up(*id) {
            text.value("trunk_up", &[("trunk", trunk.name.as_str())], u64::from(up));
        }
    }
    let services = exchange.services.iter();
    let services = services.map(|(id, service)| word(&scope.shown(*id, service).state));
    text.by_state("services", "Services by state.", &ViewContext::count(services));
    let connections = exchange.connections.values();
    let connections = connections.map(|found| scope.connection_state(found).to_owned());
    text.by_state(
        "connections",
        "Connections by state.",
        &ViewContext::count(connections),
    );
    let in_quarantine = exchange.configs.values();
    let in_quarantine = in_quarantine.filter(|end| matches!(end.quarantine, Quarantine::Running { .. }));
    text.single(
        "ends_in_quarantine",
        "Ends of peering LANs in quarantine.",
        in_quarantine.count() as u64,
    );
    text.single(
        "changes_open",
        "Changes that are under way.",
        app.engine.changes_open().len() as u64,
    );
    text.single(
        "letters_waiting",
        "Letters that the mail relay has not taken yet.",
        app.mail.waiting() as u64,
    );
    if let Some(receiver) = app.engine.sample_receiver() {
        let help = "Samples of packets that the switches sent by sFlow.";
        text.counter("sflow_samples_total", help, receiver.samples);
        let help = "UDP packets from switches that were no valid sFlow datagrams.";
        text.counter("sflow_malformed_total", help, receiver.malformed);
        let help = "UDP packets to the sFlow receiver from addresses that are not those of switches.";
        text.counter("sflow_refused_total", help, receiver.refused);
    }
    if let Some(series) = app.engine.series() {
        let help = "Values of time series that were refused, because an hour had too many series.";
        text.counter("series_refused_total", help, series.refused());
    }
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, text.0).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_escaped_and_a_gauge_has_help_and_type() {
        let mut text = Text::default();
        text.gauge("trunk_up", "Help.");
        text.value("trunk_up", &[("trunk", "a\"b\\c\nd")], 1);
        assert_eq!(
            text.0,
            "# HELP millrace_ix_trunk_up Help.\n# TYPE millrace_ix_trunk_up gauge\n\
             millrace_ix_trunk_up{trunk=\"a\\\"b\\\\c\\nd\"} 1\n"
        );
    }
}
