//! Metrics of the Open vSwitch database that the switch follows.

use crate::server::exposition::{Family, Metric, metrics, write};
use crate::server::live::Live;
use crate::view::{Ovsdb, OvsdbState};

const OVSDB: &[Metric<Ovsdb>] = metrics! {
    gauge "millrace_ovsdb_following", "1 if the switch realises the database, else 0." =>
        |ovsdb| ovsdb.state == OvsdbState::Following;
    gauge "millrace_ovsdb_next_cfg", "The number of the desired state that the database has (next_cfg)." =>
        |ovsdb| ovsdb.next_cfg.unwrap_or(0);
    gauge "millrace_ovsdb_cur_cfg",
        "The number of the desired state that the switch has reached (cur_cfg)." =>
        |ovsdb| ovsdb.cur_cfg.unwrap_or(0);
    gauge "millrace_ovsdb_rows", "Monitored rows." =>
        |ovsdb| ovsdb.rows;
    counter "millrace_ovsdb_connections_total", "Connections with the server." =>
        |ovsdb| ovsdb.connections;
    counter "millrace_ovsdb_transactions_total", "Transactions that the server committed." =>
        |ovsdb| ovsdb.transactions;
};

/// Writes the metrics of the database; none if no database is configured.
pub(super) fn ovsdb(out: &mut String, live: &dyn Live) {
    let ovsdb = live.ovsdb();
    if ovsdb.state == OvsdbState::Off {
        return;
    }
    write(out, OVSDB, &[([], &ovsdb)]);
    let refused = ovsdb.faults.iter().filter(|fault| fault.refused).count();
    let help = "Differences between rows and the switch, by severity.";
    let mut faults = Family::gauge(out, "millrace_ovsdb_faults", help);
    faults.sample(&[("severity", "refused")], refused);
    faults.sample(&[("severity", "ignored")], ovsdb.faults.len() - refused);
}
