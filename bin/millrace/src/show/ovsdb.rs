//! `millrace show ovsdb`.

use std::fmt::Write as _;

use millrace_api::view::{Ovsdb, OvsdbState};

use crate::human::{or_dash, span};
use crate::table::Table;

/// Returns the state of the database, and a row for each difference.
pub(super) fn text(ovsdb: &Ovsdb) -> String {
    let Some(server) = &ovsdb.server else {
        return "no database is followed (`connect` of [ovsdb] in the configuration)\n".to_owned();
    };
    let state = match ovsdb.state {
        OvsdbState::Off => "off",
        OvsdbState::Connecting => "connecting",
        OvsdbState::WaitingForLock => "waiting for the lock ovs_vswitchd",
        OvsdbState::Following => "following",
    };
    let mut text = format!(
        "{server}: {state} for {}\nnext_cfg {}, cur_cfg {}, {} rows, {} connections, {} transactions\n",
        span(ovsdb.since_seconds),
        or_dash(ovsdb.next_cfg),
        or_dash(ovsdb.cur_cfg),
        ovsdb.rows,
        ovsdb.connections,
        ovsdb.transactions
    );
    for (what, reason) in [("waits", &ovsdb.waits_for), ("last error", &ovsdb.last_error)] {
        if let Some(reason) = reason {
            // Writing to a String cannot fail.
            let _written = writeln!(text, "{what}: {reason}");
        }
    }
    let mut faults = Table::new(&["ROW", "IN EFFECT", "REASON"], "every row is in effect");
    for fault in &ovsdb.faults {
        let effect = if fault.refused { "no" } else { "in part" };
        faults.row([fault.row.clone(), effect.to_owned(), fault.reason.clone()]);
    }
    let _written = write!(text, "\n{faults}");
    text
}
