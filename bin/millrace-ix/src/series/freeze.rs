//! The figures of months that have ended: into the audit chain, and into a file beside the series.

use std::collections::{BTreeMap, BTreeSet};

use millrace_ix_model::{ConnectionId, Exchange};
use millrace_ix_series::{Figure, Month, Shared};
use millrace_ix_service::Handle;
use millrace_ix_store::AuditEntry;
use serde_json::json;

/// The time after the end of a month at which it is frozen, in seconds: its last five minutes are complete then.
const FREEZE_AFTER_SECS: u64 = 600;

/// The months that need nothing any more.
#[derive(Default)]
pub(super) struct Months(BTreeSet<Month>);

impl Months {
    /// Freezes the last two months, if that has not been done: the engine may not have run at the end of a month. Points of
    /// 5 minutes are kept for 100 days, so that both are complete.
    pub(super) async fn freeze(&mut self, series: &Shared, exchange: &Exchange, handle: &Handle, now: u64) {
        let last = series.month_of(now.saturating_sub(FREEZE_AFTER_SECS)).previous();
        for month in [last.previous(), last] {
            if !self.0.contains(&month) && freeze(series, exchange, handle, month, now).await {
                self.0.insert(month);
            }
        }
    }
}

/// Returns the figures of the connections that were measured in a month, also of those that were deleted since; `None` if the
/// month is frozen.
fn figures(
    series: &Shared,
    existing: &BTreeSet<u32>,
    month: Month,
    now: u64,
) -> Option<BTreeMap<u32, Figure>> {
    if series.frozen(month).is_some() {
        return None;
    }
    let ids: BTreeSet<u32> = existing.union(&series.connections(month)).copied().collect();
    let figures = ids.into_iter().map(|id| (id, series.figure(id, month, now)));
    let measured = figures.filter(|(_, figure)| figure.coverage_permille() > 0 || figure.billed().is_some());
    Some(measured.collect())
}

/// Freezes a month. Returns true if nothing is left to do for it.
async fn freeze(series: &Shared, exchange: &Exchange, handle: &Handle, month: Month, now: u64) -> bool {
    let existing: BTreeSet<u32> = exchange.connections.keys().map(|id| id.0).collect();
    let reader = series.clone();
    let computed = tokio::task::spawn_blocking(move || figures(&reader, &existing, month, now));
    let figures = match computed.await {
        Ok(Some(figures)) if !figures.is_empty() => figures,
        // It is frozen, or nothing was measured.
        Ok(_) => return true,
        // The computation panicked, and would again.
        Err(error) => {
            tracing::error!(%error, %month, "the figures of the month are not frozen");
            return true;
        }
    };
    for (connection, figure) in &figures {
        // Those that were deleted have their account and name in earlier entries of the chain.
        let present = exchange.connections.get(&ConnectionId(*connection));
        let detail = json!({
            "month": month.to_string(),
            "account": present.map(|connection| connection.account.to_string()),
            "name": present.map(|connection| &connection.name),
            "in_bps": figure.incoming.value,
            "out_bps": figure.outgoing.value,
            "billed_bps": figure.billed(),
            "coverage_permille": figure.coverage_permille(),
            "billable": figure.is_billable(),
        });
        let entry = AuditEntry {
            actor: "engine".to_owned(),
            action: "freeze_billing".to_owned(),
            object: ConnectionId(*connection).to_string(),
            detail,
        };
        if let Err(error) = handle.record(entry).await {
            // It is tried again with the next interval. Entries that the chain has already come again, with the same figures.
            tracing::error!(%error, %month, "the figures of the month are not frozen");
            return false;
        }
    }
    match series.freeze(month, &figures) {
        Ok(()) => {
            tracing::info!(%month, connections = figures.len(), "the figures of the month are frozen");
            true
        }
        Err(error) => {
            tracing::error!(%error, %month, "the figures of the month are not frozen");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use millrace_ix_series::{Key, Measure, Subject, TimeZone};

    use super::*;

    /// 2026-11-01T00:00:00Z.
    const NOVEMBER: u64 = 1_793_491_200;

    #[test]
    fn a_month_has_the_figures_of_connections_that_were_deleted_in_it_and_is_frozen_once() {
        let folder = tempfile::tempdir().unwrap();
        let series = Shared::open(folder.path(), TimeZone::UTC).unwrap();
        let push = |at: u64, connections: &[u32]| {
            let of = |id: &u32| {
                [Measure::In, Measure::Out].map(|measure| {
                    let key = Key::new(Subject::Connection(*id), measure);
                    (key, u64::from(*id) * 1_000)
                })
            };
            let values: Vec<_> = connections.iter().flat_map(of).collect();
            series.push(at, &values).unwrap();
        };
        push(NOVEMBER + 10, &[7, 9]);
        push(NOVEMBER + 3 * 86_400, &[7]);
        // Connection 11 begins in the next month.
        let december = NOVEMBER + 30 * 86_400;
        push(december + 10, &[7, 11]);
        let (month, now) = (series.month_of(NOVEMBER), december + 700);
        let existing = BTreeSet::from([7, 11]);
        let found = figures(&series, &existing, month, now).unwrap();
        let billed: Vec<_> = found.iter().map(|(id, figure)| (*id, figure.billed())).collect();
        assert_eq!(billed, [(7, Some(7_000)), (9, Some(9_000))]);
        assert!(!found[&9].is_billable(), "it was measured for ten seconds");
        series.freeze(month, &found).unwrap();
        assert_eq!(figures(&series, &existing, month, now), None);
        assert_eq!(series.frozen(month), Some(found));
        assert_eq!(
            figures(&series, &existing, month.previous(), now),
            Some(BTreeMap::new()),
            "nothing was measured"
        );
    }
}
