//! Messages of an OVSDB server, and rows of its database.

use millrace_model::Config;
use millrace_ovs::{Context, DATABASE, LOCK, MONITORED, Numbers, State, Written, settle, translate};
use millrace_ovsdb::{Replica, Session, Settings};
use millrace_types::{Duration, Time};
use serde_json::Value as Json;

const SETTINGS: Settings = Settings {
    database: DATABASE,
    lock: LOCK,
    monitored: MONITORED,
    message_size_max: 1 << 16,
    replica_size_max: 1 << 20,
    probe_interval: Duration::from_secs(5),
};

/// Feeds a session in pieces of different sizes, and makes a configuration of its rows.
///
/// Properties: any bytes end the session or are taken; the replica stays within its limit; the bytes that a session sends are
/// bounded by those that it received.
pub(crate) fn session(bytes: &[u8]) {
    let mut session = Session::new(SETTINGS, Time::ZERO);
    let mut sent = session.take_output().len();
    let mut rest = bytes;
    let mut size = 1;
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(size.min(rest.len()));
        rest = tail;
        size = size % 97 * 2 + 1;
        if session.receive(piece, Time::ZERO).is_err() {
            return;
        }
        sent += session.take_output().len();
        assert!(session.replica().size() <= SETTINGS.replica_size_max);
    }
    // Each of the few requests is sent once, and an echo is answered with its own parameters, escaped.
    assert!(sent <= 16_384 + bytes.len() * 8);
    while session.next_event().is_some() {}
    configuration(session.replica());
}

/// Makes a configuration of rows: `{"Bridge": {"UUID": {"name": "br0", …}}}`.
///
/// Properties: translation and validation end; the result is valid, or the base was not; what is written again is nothing.
pub(crate) fn rows(bytes: &[u8]) {
    let Ok(Json::Object(tables)) = serde_json::from_slice::<Json>(bytes) else {
        return;
    };
    let mut replica = Replica::default();
    for (table, rows) in tables {
        for (uuid, row) in rows.as_object().into_iter().flatten() {
            if let (Ok(uuid), Ok(row)) = (uuid.parse(), Replica::row_from_json(&table, row)) {
                replica.insert(&table, uuid, row);
            }
        }
    }
    configuration(&replica);
}

fn configuration(replica: &Replica) {
    let mut numbers = Numbers::default();
    let mut context = Context {
        run_dir: Some("/run/openvswitch"),
        numbers: &mut numbers,
    };
    let mut translation = translate(replica, &mut context);
    if let Ok(config) = settle(&Config::new(), &mut translation, |_| String::new()) {
        assert!(config.validate().is_ok());
        // A configuration of the store is JSON.
        assert_eq!(Config::from_json(&config.to_json()).unwrap(), config);
    }
    let mut written = Written::default();
    written.changes(&translation, &State::default(), None, "8.3.1");
    assert!(
        written
            .changes(&translation, &State::default(), None, "8.3.1")
            .is_empty()
    );
}
