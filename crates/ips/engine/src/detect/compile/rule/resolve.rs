//! Endpoints and thresholds of a rule, resolved with the variables and the threshold table.

use std::sync::Arc;

use millrace_ips_rules::address::{Spec, Value};
use millrace_ips_rules::files::ThresholdEffect;
use millrace_ips_rules::header::Endpoints;
use millrace_ips_rules::options::state::Rate;
use millrace_ips_rules::variables::Ranges;
use millrace_ips_rules::{Reason, Refusal};

use crate::detect::compile::{CompileSettings, Interner};
use crate::detect::program::{Endpoint, ThresholdTest};

/// Compiles the endpoints of a header.
pub(super) fn endpoints(
    ends: &Endpoints,
    settings: &CompileSettings,
    interner: &mut Interner,
) -> Result<[Endpoint; 2], Reason> {
    let variables = &settings.variables;
    let mut addresses = |spec| {
        shared(&mut interner.ranges, "address", spec, |spec| {
            variables.resolve_addresses(spec)
        })
    };
    let (source, destination) = (addresses(&ends.source)?, addresses(&ends.destination)?);
    let mut ports = |spec| {
        shared(&mut interner.ranges, "port", spec, |spec| {
            variables.resolve_ports(spec)
        })
    };
    Ok([
        Endpoint {
            addresses: source,
            ports: ports(&ends.source_ports)?,
        },
        Endpoint {
            addresses: destination,
            ports: ports(&ends.destination_ports)?,
        },
    ])
}

/// Returns the ranges of a set; none if the set contains everything. Rules with the same set share the
/// ranges.
fn shared<T: Value>(
    known: &mut std::collections::HashMap<String, Option<Arc<Ranges>>>,
    kind: &str,
    spec: &Spec<T>,
    resolve: impl Fn(&Spec<T>) -> Result<Ranges, Reason>,
) -> Result<Option<Arc<Ranges>>, Reason> {
    if *spec == Spec::Any {
        return Ok(None);
    }
    let key = format!("{kind} {spec}");
    if let Some(ranges) = known.get(&key) {
        return Ok(ranges.clone());
    }
    let ranges = resolve(spec)?;
    let everything = resolve(&Spec::Any)?;
    let ranges = (ranges != everything).then(|| Arc::new(ranges));
    known.insert(key, ranges.clone());
    Ok(ranges)
}

/// A row of the threshold table, compiled once for all rules.
#[derive(Debug)]
pub(in crate::detect::compile) struct Row {
    gid: u32,
    sid: u32,
    test: ThresholdTest,
}

/// Compiles the rows of the threshold table, and returns a refusal for each row whose addresses have no value.
pub(in crate::detect::compile) fn rows(settings: &CompileSettings) -> (Vec<Row>, Vec<Refusal>) {
    let (mut rows, mut refusals) = (Vec::new(), Vec::new());
    for row in &settings.thresholds {
        let test = match &row.effect {
            ThresholdEffect::Suppress(None) => Ok(ThresholdTest::Suppress(None)),
            ThresholdEffect::Suppress(Some((track, addresses))) => settings
                .variables
                .resolve_addresses(addresses)
                .map(|ranges| ThresholdTest::Suppress(Some((*track, Arc::new(ranges))))),
            ThresholdEffect::Limit(rate) => Ok(ThresholdTest::Limit(*rate)),
            ThresholdEffect::RateFilter {
                rate,
                new_action,
                timeout,
            } => Ok(ThresholdTest::RateFilter {
                rate: *rate,
                new_action: *new_action,
                timeout: *timeout,
            }),
        };
        match test {
            Ok(test) => rows.push(Row {
                gid: row.gid,
                sid: row.sid,
                test,
            }),
            Err(reason) => refusals.push(Refusal {
                file: row.file.clone(),
                position: row.position,
                sid: None,
                option: "suppress".to_owned(),
                reason,
            }),
        }
    }
    (rows, refusals)
}

/// Returns the rates and suppressions of a rule: its own, and those of the table. A threshold of the table that names the rule
/// replaces its own rates; one for all rules applies to rules without a rate (Suricata, "Global thresholds vs rule
/// thresholds").
pub(super) fn thresholds(own: &[Rate], gid: u32, sid: u32, rows: &[Row]) -> Vec<ThresholdTest> {
    let rows = || {
        rows.iter()
            .filter(|row| (row.gid == 0 || row.gid == gid) && (row.sid == 0 || row.sid == sid))
    };
    let is_limit = |row: &&Row| matches!(row.test, ThresholdTest::Limit(_));
    let replacing = rows().filter(|row| row.sid != 0).rfind(is_limit);
    let general = rows().find(is_limit).filter(|_| own.is_empty());
    let is_suppression = |row: &&Row| matches!(row.test, ThresholdTest::Suppress(_));
    let is_filter = |row: &&Row| matches!(row.test, ThresholdTest::RateFilter { .. });
    let mut tests: Vec<ThresholdTest> = Vec::new();
    // Matches of suppressed addresses are not counted.
    tests.extend(rows().filter(is_suppression).map(|row| row.test.clone()));
    match replacing.or(general) {
        Some(row) => tests.push(row.test.clone()),
        None => tests.extend(own.iter().map(|rate| ThresholdTest::Limit(*rate))),
    }
    tests.extend(rows().filter(is_filter).map(|row| row.test.clone()));
    tests
}
