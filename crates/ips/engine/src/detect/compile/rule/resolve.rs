//! Endpoints and thresholds of a rule, resolved with the variables and the threshold table.

use std::sync::Arc;

use millrace_ips_rules::Reason;
use millrace_ips_rules::address::{Spec, Value};
use millrace_ips_rules::files::ThresholdEffect;
use millrace_ips_rules::header::Endpoints;
use millrace_ips_rules::variables::Ranges;

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

/// Compiles the rows of the threshold table that name the rule.
pub(super) fn thresholds(
    gid: u32,
    sid: u32,
    settings: &CompileSettings,
) -> Result<Vec<ThresholdTest>, Reason> {
    let mut tests = Vec::new();
    for row in &settings.thresholds {
        if (row.gid != 0 && row.gid != gid) || (row.sid != 0 && row.sid != sid) {
            continue;
        }
        tests.push(match &row.effect {
            ThresholdEffect::Suppress(None) => ThresholdTest::Suppress(None),
            ThresholdEffect::Suppress(Some((track, addresses))) => {
                let ranges = settings.variables.resolve_addresses(addresses)?;
                ThresholdTest::Suppress(Some((*track, Arc::new(ranges))))
            }
            ThresholdEffect::Limit(rate) => ThresholdTest::Limit(*rate),
            ThresholdEffect::RateFilter {
                rate,
                new_action,
                timeout,
            } => ThresholdTest::RateFilter {
                rate: *rate,
                new_action: *new_action,
                timeout: *timeout,
            },
        });
    }
    Ok(tests)
}
