//! The surroundings of an engine, in memory: switches, a database, and clocks. Simulations, tests and demonstrations run the engine
//! between them.

mod clocks;
mod fabric;
mod medium;
mod switch;

use millrace_ix_model::Exchange;
use millrace_ix_store::{Committed, Store, StoreError, Transaction, UnixMillis};

pub use clocks::SimulatedClocks;
pub use fabric::SimulatedFabric;
pub use medium::{Controls, Medium};
pub use switch::ModelSwitch;

use crate::rows;

/// Returns the settings of an engine that waits for nothing between the steps of a change.
pub fn hasty() -> millrace_ix_engine::Settings {
    millrace_ix_engine::Settings {
        coalesce: millrace_types::Duration::ZERO,
        drain_min: millrace_types::Duration::ZERO,
        ..millrace_ix_engine::Settings::default()
    }
}

/// Writes all objects of an exchange to an empty database, as if orders had made them.
///
/// # Errors
/// [`StoreError`] if the database cannot be written.
pub fn fill(store: &mut dyn Store, exchange: &Exchange, now: UnixMillis) -> Result<Committed, StoreError> {
    let objects = exchange
        .ids()
        .filter_map(|id| Some(rows::row(id, &exchange.object(id)?)));
    let transaction = Transaction {
        puts: objects.chain([rows::pools(exchange)]).collect(),
        ..Transaction::default()
    };
    store.commit(&transaction, now)
}

/// Returns an ARP request of a router for its own IPv4 address.
pub fn arp_announcement(mac: [u8; 6], address: [u8; 4]) -> Vec<u8> {
    let header: &[u8] = &[0, 1, 8, 0, 6, 4, 0, 1];
    [
        &[0xff; 6][..],
        &mac,
        &[8, 6],
        header,
        &mac,
        &address,
        &[0; 6],
        &address,
    ]
    .concat()
}
