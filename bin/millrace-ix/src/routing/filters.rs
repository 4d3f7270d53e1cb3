//! The task that compares the rules of BGP peers with the filters of the exchange, and orders the differences.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use millrace_ix_model::{AccountId, Actor, Exchange, FilterOrigin, ObjectId, Operation};
use millrace_ix_service::{EventKind, OrderError, OrderOptions, ServiceEvent};
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::{Bgp, Routing};

/// The time in which changes are collected into one order.
const COLLECT: Duration = Duration::from_millis(10);
/// The time between two checks of the timers of peers, and the wait after an order that failed.
const TICK: Duration = Duration::from_secs(1);
/// The time between two comparisons of all rules with all filters.
const FULL: Duration = Duration::from_secs(60);
/// The maximum number of operations in one order.
const OPERATIONS_MAX: usize = 250;

/// Starts the task that compares rules with filters.
pub(super) fn start(bgp: &Bgp, routing: &Routing) {
    let accounts = bgp
        .peer
        .iter()
        .filter_map(|peer| Some((peer.address, peer.account.clone()?)))
        .collect();
    let events = routing.handle.subscribe();
    tokio::spawn(run(accounts, routing.clone(), events));
}

async fn run(
    accounts: BTreeMap<IpAddr, String>,
    routing: Routing,
    mut events: broadcast::Receiver<std::sync::Arc<ServiceEvent>>,
) {
    let mut again = Instant::now();
    let mut full = Instant::now() + FULL;
    loop {
        let mut is_due;
        tokio::select! {
            () = routing.changed.notified() => {
                tokio::time::sleep(COLLECT).await;
                is_due = true;
            }
            () = tokio::time::sleep_until(again.min(Instant::now() + TICK)) => is_due = Instant::now() >= again,
            event = events.recv() => match event {
                Ok(event) => is_due = note(&event, &routing),
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    routing.shared.lock().exchange_changed();
                    is_due = true;
                }
                Err(broadcast::error::RecvError::Closed) => return,
            },
        }
        {
            let mut authority = routing.shared.lock();
            authority.poll(routing.now());
            if Instant::now() >= full {
                full = Instant::now() + FULL;
                authority.exchange_changed();
            }
            is_due |= authority.is_dirty() && Instant::now() >= again;
        }
        if is_due {
            again = Instant::now() + compare(&accounts, &routing).await;
        }
    }
}

/// Processes an event of the exchange. Returns true if filters may have to change.
fn note(event: &ServiceEvent, routing: &Routing) -> bool {
    let EventKind::Object { id, .. } = &event.kind else {
        return false;
    };
    let concerns = match id {
        ObjectId::Account(_) | ObjectId::Ip(_) | ObjectId::Config(_) => true,
        // Filters from BGP are ignored, because only this module changes them.
        ObjectId::Filter(id) => {
            let snapshot = routing.handle.snapshot();
            let filter = snapshot.exchange.filters.get(id);
            filter.is_some_and(|filter| matches!(filter.origin, FilterOrigin::Page | FilterOrigin::Api))
        }
        _ => false,
    };
    if concerns {
        routing.shared.lock().exchange_changed();
    }
    concerns
}

/// Returns the account with a name or an identifier.
fn account(exchange: &Exchange, name: &str) -> Option<AccountId> {
    let by_name = exchange.accounts.iter().find(|(_, account)| account.name == name);
    by_name.map(|(id, _)| *id).or_else(|| {
        let id = name.parse().ok()?;
        exchange.accounts.contains_key(&id).then_some(id)
    })
}

/// Executes the orders that are due, and returns the time until the next comparison.
async fn compare(accounts: &BTreeMap<IpAddr, String>, routing: &Routing) -> Duration {
    let snapshot = routing.handle.snapshot();
    let now = routing.handle.now();
    let round = {
        let mut authority = routing.shared.lock();
        for (peer, name) in accounts {
            authority.set_account(*peer, account(&snapshot.exchange, name));
        }
        authority.reconcile(&snapshot.exchange, now)
    };
    for operations in round.operations.chunks(OPERATIONS_MAX) {
        if let Err(error) = order(operations.to_vec(), routing).await {
            tracing::warn!(%error, "filters of BGP");
            // One operation that is refused must not hold up the others.
            for operation in operations {
                if let Err(error) = order(vec![operation.clone()], routing).await {
                    tracing::warn!(%error, ?operation, "a filter of BGP");
                }
            }
            routing.shared.lock().exchange_changed();
            return TICK;
        }
    }
    round.again_at.map_or(FULL, |at| at.since(now))
}

/// Executes operations. When the function returns, the snapshot contains their results, and the next
/// comparison uses it.
async fn order(operations: Vec<Operation>, routing: &Routing) -> Result<(), OrderError> {
    let options = OrderOptions::default();
    routing.handle.order(operations, Actor::system(), options).await?;
    Ok(())
}
