//! Metrics of the Open vSwitch database that the switch follows.

use crate::server::exposition::Family;
use crate::server::live::Live;
use crate::view::OvsdbState;

/// Writes the metrics of the database; none if no database is configured.
pub(super) fn ovsdb(out: &mut String, live: &dyn Live) {
    let ovsdb = live.ovsdb();
    if ovsdb.state == OvsdbState::Off {
        return;
    }
    let help = "1 if the switch realises the database, else 0.";
    Family::gauge(out, "millrace_ovsdb_following", help)
        .sample(&[], u8::from(ovsdb.state == OvsdbState::Following));
    let help = "The number of the desired state that the database has (next_cfg).";
    Family::gauge(out, "millrace_ovsdb_next_cfg", help).sample(&[], ovsdb.next_cfg.unwrap_or(0));
    let help = "The number of the desired state that the switch has reached (cur_cfg).";
    Family::gauge(out, "millrace_ovsdb_cur_cfg", help).sample(&[], ovsdb.cur_cfg.unwrap_or(0));
    Family::gauge(out, "millrace_ovsdb_rows", "Monitored rows.").sample(&[], ovsdb.rows);
    Family::counter(
        out,
        "millrace_ovsdb_connections_total",
        "Connections with the server.",
    )
    .sample(&[], ovsdb.connections);
    Family::counter(
        out,
        "millrace_ovsdb_transactions_total",
        "Transactions that the server committed.",
    )
    .sample(&[], ovsdb.transactions);
    let refused = ovsdb.faults.iter().filter(|fault| fault.refused).count();
    let help = "Differences between rows and the switch, by severity.";
    let mut faults = Family::gauge(out, "millrace_ovsdb_faults", help);
    faults.sample(&[("severity", "refused")], refused);
    faults.sample(&[("severity", "ignored")], ovsdb.faults.len() - refused);
}
