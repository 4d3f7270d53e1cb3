//! Metrics in the text format of Prometheus (version 0.0.4), and the status as JSON.

use crate::activity::{OUTCOMES, REFUSALS, RunningTransfer};
use crate::config::Verb;
use crate::grants::Grants;
use crate::transfer::Direction;
use serde::Serialize;
use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// The properties of the daemon that do not change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Daemon {
    pub(crate) address: String,
    pub(crate) key: String,
    pub(crate) version: &'static str,
    /// Seconds since 1970.
    pub(crate) started: f64,
}

/// A page of metrics while it is written.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// Begins a metric.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds a sample.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::Write, Direction::Read];

/// Returns the page of metrics.
pub(crate) fn render(daemon: &Daemon, grants: &Grants, draining: bool) -> String {
    let mut page = Page::default();
    let all = grants.all();
    page.metric(
        "millrace_courier_build_info",
        "gauge",
        "The version of the daemon.",
    );
    page.sample("millrace_courier_build_info", &[("version", daemon.version)], 1);
    page.metric(
        "process_start_time_seconds",
        "gauge",
        "Start of the process, in seconds since 1970.",
    );
    page.sample("process_start_time_seconds", &[], daemon.started);
    page.metric(
        "millrace_courier_draining",
        "gauge",
        "1 if no further transfer is admitted.",
    );
    page.sample("millrace_courier_draining", &[], u8::from(draining));
    page.metric(
        "millrace_courier_transfers_running",
        "gauge",
        "Transfers that run.",
    );
    for grant in &all {
        let name = grant.config().name;
        for direction in DIRECTIONS {
            let running = grant.counters[direction as usize].running.load(Ordering::Relaxed);
            let labels = [("grant", &*name), ("direction", direction.name())];
            page.sample("millrace_courier_transfers_running", &labels, running);
        }
    }
    page.metric(
        "millrace_courier_transfers_total",
        "counter",
        "Transfers that ended, by outcome.",
    );
    for grant in &all {
        let name = grant.config().name;
        for direction in DIRECTIONS {
            let outcomes = &grant.counters[direction as usize].outcomes;
            for (outcome, counter) in OUTCOMES.iter().zip(outcomes) {
                let labels = [
                    ("grant", &*name),
                    ("direction", direction.name()),
                    ("outcome", outcome),
                ];
                page.sample("millrace_courier_transfers_total", &labels, counter.value());
            }
        }
    }
    for (name, direction, help) in [
        (
            "millrace_courier_received_bytes_total",
            Direction::Write,
            "Verified bytes that peers wrote.",
        ),
        (
            "millrace_courier_sent_bytes_total",
            Direction::Read,
            "Verified bytes that peers read.",
        ),
    ] {
        page.metric(name, "counter", help);
        for grant in &all {
            let value = grant.counters[direction as usize].bytes.value();
            page.sample(name, &[("grant", &grant.config().name)], value);
        }
    }
    quotas(&mut page, grants);
    rates(&mut page, grants);
    page.metric(
        "millrace_courier_refusals_total",
        "counter",
        "Refusals, by reason.",
    );
    for (code, counter) in REFUSALS.iter().zip(&grants.activity.refusals) {
        page.sample(
            "millrace_courier_refusals_total",
            &[("reason", code.name())],
            counter.value(),
        );
    }
    page.metric(
        "millrace_courier_reloads_total",
        "counter",
        "Loads of the configuration after the first.",
    );
    for (result, counter) in ["success", "failure"].iter().zip(&grants.activity.reloads) {
        page.sample(
            "millrace_courier_reloads_total",
            &[("result", result)],
            counter.value(),
        );
    }
    page.text
}

fn quotas(page: &mut Page, grants: &Grants) {
    let all: Vec<_> = grants
        .all()
        .iter()
        .map(|grant| (grant.config(), grant.ledger.used()))
        .collect();
    page.metric(
        "millrace_courier_quota_used_bytes",
        "gauge",
        "Bytes in the directory of a grant.",
    );
    for (config, used) in &all {
        page.sample(
            "millrace_courier_quota_used_bytes",
            &[("grant", &config.name)],
            used.bytes,
        );
    }
    page.metric(
        "millrace_courier_quota_limit_bytes",
        "gauge",
        "Bytes that the directory of a grant may hold.",
    );
    for (config, _) in &all {
        if let Some(limit) = config.quota_bytes {
            page.sample(
                "millrace_courier_quota_limit_bytes",
                &[("grant", &config.name)],
                limit.0,
            );
        }
    }
    page.metric(
        "millrace_courier_quota_used_files",
        "gauge",
        "Files, directories and symlinks of a grant.",
    );
    for (config, used) in &all {
        page.sample(
            "millrace_courier_quota_used_files",
            &[("grant", &config.name)],
            used.entries,
        );
    }
    page.metric(
        "millrace_courier_quota_limit_files",
        "gauge",
        "Files, directories and symlinks that a grant may have.",
    );
    for (config, _) in &all {
        if let Some(limit) = config.quota_files {
            page.sample(
                "millrace_courier_quota_limit_files",
                &[("grant", &config.name)],
                limit,
            );
        }
    }
}

/// Returns the rate of all transfers of a grant together, in bits a second.
fn rate_bps(running: &[RunningTransfer], grant: &str) -> u64 {
    let of_grant = running.iter().filter(|transfer| transfer.grant == grant);
    of_grant.map(|transfer| transfer.rate_bps).sum()
}

/// Adds the rates of grants to a page.
fn rates(page: &mut Page, grants: &Grants) {
    let running: Vec<RunningTransfer> = grants.activity.transfers.lock().values().cloned().collect();
    let configs: Vec<_> = grants.all().iter().map(|grant| grant.config()).collect();
    page.metric(
        "millrace_courier_rate_bits_per_second",
        "gauge",
        "Rate of all transfers of a grant together.",
    );
    for config in &configs {
        let rate = rate_bps(&running, &config.name);
        page.sample(
            "millrace_courier_rate_bits_per_second",
            &[("grant", &config.name)],
            rate,
        );
    }
    page.metric(
        "millrace_courier_rate_limit_bits_per_second",
        "gauge",
        "Rate that all transfers of a grant together may have.",
    );
    for config in &configs {
        if let Some(limit) = config.rate {
            page.sample(
                "millrace_courier_rate_limit_bits_per_second",
                &[("grant", &config.name)],
                limit.bps(),
            );
        }
    }
}

/// Returns the status as JSON.
pub(crate) fn status(daemon: &Daemon, grants: &Grants, draining: bool) -> String {
    let running: Vec<RunningTransfer> = grants.activity.transfers.lock().values().cloned().collect();
    let described: Vec<_> = grants
        .all()
        .iter()
        .map(|grant| {
            let (config, used) = (grant.config(), grant.ledger.used());
            let until = config
                .until
                .and_then(|until| until.duration_since(SystemTime::UNIX_EPOCH).ok());
            serde_json::json!({
                "name": config.name,
                "directory": config.directory.to_string_lossy(),
                "keys": config.keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "verbs": config.verbs.iter().copied().map(Verb::name).collect::<Vec<_>>(),
                "used_bytes": used.bytes,
                "quota_bytes": config.quota_bytes.map(|size| size.0),
                "used_files": used.entries,
                "quota_files": config.quota_files,
                "rate_bps": rate_bps(&running, &config.name),
                "rate_limit_bps": config.rate.map(millrace_types::BitRate::bps),
                "transfers_max": config.transfers,
                "until": until.map(|until| until.as_secs()),
            })
        })
        .collect();
    let transfers: Vec<_> = running
        .iter()
        .map(|transfer| {
            let mut value = serde_json::json!(transfer);
            value["seconds"] = transfer.started.elapsed().as_secs_f64().into();
            value
        })
        .collect();
    let mut status = serde_json::json!(daemon);
    status["draining"] = draining.into();
    status["grants"] = described.into();
    status["transfers"] = transfers.into();
    format!("{status}\n")
}
