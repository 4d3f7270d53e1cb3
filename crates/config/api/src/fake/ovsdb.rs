//! The database of the fake switch.

use crate::view::{Ovsdb, OvsdbFault, OvsdbState};

/// Returns a database with a row that the switch refuses.
pub(super) fn ovsdb() -> Ovsdb {
    Ovsdb {
        server: Some("unix:/run/openvswitch/db.sock".to_owned()),
        state: OvsdbState::Following,
        since_seconds: 60.0,
        last_error: None,
        waits_for: None,
        next_cfg: Some(7),
        cur_cfg: Some(7),
        rows: 12,
        memory_bytes: 4096,
        connections: 1,
        transactions: 9,
        faults: vec![OvsdbFault {
            row: "Interface gnv0".to_owned(),
            refused: true,
            reason: "type geneve is not available".to_owned(),
        }],
    }
}
