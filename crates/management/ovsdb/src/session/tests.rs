//! A server that is a script: what the session asks, and what it makes of the answers.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use super::*;
use crate::value::Datum;

const SETTINGS: Settings = Settings {
    database: "Open_vSwitch",
    lock: "ovs_vswitchd",
    monitored: &[("Bridge", &["name", "no_such_column"]), ("No_Such_Table", &["x"])],
    message_size_max: 10_000,
    replica_size_max: 100_000,
    probe_interval: Duration::from_secs(5),
};

const ROW: &str = "00000000-0000-0000-0000-00000000000b";

fn requests(session: &mut Session) -> Vec<Json> {
    let mut splitter = Splitter::new(100_000, 50);
    splitter.push(&session.take_output());
    std::iter::from_fn(|| splitter.next_message().unwrap())
        .map(|bytes| serde_json::from_slice(&bytes).unwrap())
        .collect()
}

fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.next_event()).collect()
}

fn say(session: &mut Session, message: &Json) -> Result<(), Violation> {
    session.receive(message.to_string().as_bytes(), Time::ZERO)
}

fn answer(session: &mut Session, request: &Json, result: &Json) -> Result<(), Violation> {
    say(
        session,
        &json!({"id": request["id"], "result": result, "error": null}),
    )
}

/// Returns a session that has the schema, and its request to monitor.
fn until_monitor(is_locked: bool) -> (Session, Json) {
    let mut session = Session::new(SETTINGS, Time::ZERO);
    let [lock, schema] = requests(&mut session).try_into().unwrap();
    assert_eq!(
        (&lock["method"], &lock["params"]),
        (&json!("lock"), &json!(["ovs_vswitchd"]))
    );
    answer(&mut session, &lock, &json!({"locked": is_locked})).unwrap();
    let columns = json!({"name": {"type": "string"}});
    answer(
        &mut session,
        &schema,
        &json!({"version": "8.3.1", "tables": {"Bridge": {"columns": columns}}}),
    )
    .unwrap();
    let [monitor] = requests(&mut session).try_into().unwrap();
    (session, monitor)
}

fn synchronised() -> Session {
    let (mut session, monitor) = until_monitor(true);
    let rows = json!({"Bridge": {ROW: {"initial": {"name": "br0"}}}});
    answer(&mut session, &monitor, &json!([false, "0", rows])).unwrap();
    assert_eq!(
        events(&mut session),
        [Event::Lock { is_owned: true }, Event::Synchronised]
    );
    session
}

#[test]
fn a_session_monitors_what_the_schema_has_by_the_newest_method() {
    let (_, monitor) = until_monitor(true);
    assert_eq!(monitor["method"], "monitor_cond_since");
    assert_eq!(monitor["params"][2], json!({"Bridge": [{"columns": ["name"]}]}));
    let session = synchronised();
    assert_eq!(
        session.replica().row("Bridge", ROW.parse().unwrap()).unwrap()["name"],
        Datum::from("br0")
    );
}

#[test]
fn an_older_server_is_asked_by_older_methods() {
    let (mut session, mut monitor) = until_monitor(true);
    for method in ["monitor_cond", "monitor"] {
        let error = json!({"error": "unknown method", "details": "…"});
        say(
            &mut session,
            &json!({"id": monitor["id"], "result": null, "error": error}),
        )
        .unwrap();
        [monitor] = requests(&mut session).try_into().unwrap();
        assert_eq!(monitor["method"], method);
    }
    answer(
        &mut session,
        &monitor,
        &json!({"Bridge": {ROW: {"new": {"name": "br0"}}}}),
    )
    .unwrap();
    assert!(session.is_synchronised() && session.replica().len() == 1);
    say(
        &mut session,
        &json!({"id": null, "method": "update", "params": ["rows", {"Bridge": {ROW: {"old": {}}}}]}),
    )
    .unwrap();
    assert!(session.replica().is_empty());
}

#[test]
fn many_updates_are_one_event() {
    let mut session = synchronised();
    for name in ["br1", "br2"] {
        let rows = json!({"Bridge": {ROW: {"modify": {"name": name}}}});
        say(
            &mut session,
            &json!({"id": null, "method": "update3", "params": ["rows", "0", rows]}),
        )
        .unwrap();
    }
    assert_eq!(events(&mut session), [Event::Changed]);
}

#[test]
fn a_session_without_the_lock_learns_when_it_gets_and_loses_it() {
    let (mut session, _) = until_monitor(false);
    assert!(!session.owns_lock() && events(&mut session).is_empty());
    say(
        &mut session,
        &json!({"id": null, "method": "locked", "params": ["ovs_vswitchd"]}),
    )
    .unwrap();
    say(
        &mut session,
        &json!({"id": null, "method": "stolen", "params": ["ovs_vswitchd"]}),
    )
    .unwrap();
    assert_eq!(
        events(&mut session),
        [Event::Lock { is_owned: true }, Event::Lock { is_owned: false }]
    );
}

#[test]
fn every_transaction_asserts_the_lock_and_reports_the_error_of_an_operation() {
    let mut session = synchronised();
    let columns = crate::replica::Row::from([("name".to_owned(), Datum::from("x"))]);
    let update = Operation::Update {
        table: "Bridge",
        rows: crate::RowRef::Uuid(ROW.parse().unwrap()),
        columns,
    };
    let id = session.transact(std::slice::from_ref(&update));
    let [request] = requests(&mut session).try_into().unwrap();
    assert_eq!(
        request["params"][1],
        json!({"op": "assert", "lock": "ovs_vswitchd"})
    );
    assert_eq!(
        request["params"][2]["where"],
        json!([["_uuid", "==", ["uuid", ROW]]])
    );
    answer(
        &mut session,
        &request,
        &json!([{}, {"error": "not owner", "details": "d"}]),
    )
    .unwrap();
    let outcome = Outcome::Refused("not owner: d".to_owned());
    assert_eq!(events(&mut session), [Event::Transaction { id, outcome }]);
    let id = session.transact(&[update]);
    let [request] = requests(&mut session).try_into().unwrap();
    answer(&mut session, &request, &json!([{}, {"count": 0}])).unwrap();
    let outcome = Outcome::Committed;
    assert_eq!(
        events(&mut session),
        [Event::Transaction { id, outcome }],
        "a row that is gone makes no error"
    );
}

#[test]
fn echoes_are_answered_and_silence_ends_the_session() {
    let mut session = synchronised();
    say(
        &mut session,
        &json!({"id": "echo", "method": "echo", "params": [1]}),
    )
    .unwrap();
    assert_eq!(
        requests(&mut session),
        [json!({"id": "echo", "result": [1], "error": null})]
    );
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    session.handle_timeout(at(4)).unwrap();
    assert!(session.take_output().is_empty());
    session.handle_timeout(at(5)).unwrap();
    let [echo] = requests(&mut session).try_into().unwrap();
    assert_eq!((&echo["method"], session.timeout()), (&json!("echo"), at(10)));
    assert_eq!(
        session.handle_timeout(at(10)),
        Err(Violation::Silent(Duration::from_secs(10)))
    );
    answer(&mut session, &echo, &json!([])).unwrap();
    session.handle_timeout(at(4)).unwrap();
}

#[test]
fn a_server_that_breaks_the_protocol_ends_the_session() {
    for message in [
        json!({"id": 99, "result": {}}),
        json!({"id": null, "method": "steal", "params": []}),
        json!({"id": null, "method": "update3", "params": []}),
        json!({"id": null, "method": "monitor_canceled", "params": []}),
        json!({"id": null, "method": "update3", "params": ["rows", "0", {"Bridge": {ROW: {"insert": {"name": {}}}}}]}),
        json!({}),
    ] {
        assert!(say(&mut synchronised(), &message).is_err(), "{message}");
    }
    assert!(synchronised().receive(b"{\"a\":}", Time::ZERO).is_err());
    let (mut session, _) = until_monitor(true);
    let early = json!({"id": null, "method": "update3", "params": ["rows", "0", {}]});
    assert!(say(&mut session, &early).is_err(), "an update before the rows");
}
