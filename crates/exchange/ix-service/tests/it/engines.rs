//! Two services on one PostgreSQL database: one leads, the other shows what it does, and takes over.

use std::time::{Duration, Instant};

use millrace_ix_engine::Event;
use millrace_ix_model::Actor;
use millrace_ix_service::{Core, EventKind, Handle, OrderError, OrderOptions, Output, Service, Settings};
use millrace_ix_store::{Leader, Postgres, PostgresSettings, Role, Store};
use millrace_testing::{postgres_database, postgres_sql};
use serde_json::json;

use crate::world::{World, operation};

/// A bound far above the time of any step of these tests.
const BOUND: Duration = Duration::from_secs(60);

fn open(connection: &str, name: &str) -> Box<dyn Store> {
    let settings = PostgresSettings {
        connection: connection.to_owned(),
        password: None,
        ca_certificate: None,
        name: name.to_owned(),
        address: String::new(),
    };
    Box::new(Postgres::open(settings).unwrap())
}

fn start(store: Box<dyn Store>) -> Service {
    let settings = Settings {
        engine: millrace_ix_engine::Settings::default(),
        extensions: false,
        audit_key: None,
    };
    Service::start(store, settings, drop).unwrap()
}

fn order(handle: &Handle, name: &str) -> Result<(), OrderError> {
    let site = vec![operation(json!({"operation": "create_site", "name": name}))];
    handle
        .order_blocking(site, Actor::system(), OrderOptions::default())
        .map(drop)
}

fn wait(what: &str, is_true: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < BOUND, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn sites(handle: &Handle) -> Vec<String> {
    let snapshot = handle.snapshot();
    snapshot
        .exchange
        .sites
        .values()
        .map(|site| site.name.clone())
        .collect()
}

#[test]
fn a_follower_shows_what_the_leader_does_refuses_orders_by_its_name_and_takes_over() {
    let Some(database) = postgres_database() else {
        return;
    };
    let first = start(open(&database, "ix-1"));
    order(&first.handle(), "Otemachi").unwrap();
    let second = start(open(&database, "ix-2"));
    let handle = second.handle();
    assert_eq!(sites(&handle), ["Otemachi"]);
    let mut events = handle.subscribe();
    order(&first.handle(), "Makuhari").unwrap();
    wait("the follower shows the second site", || {
        sites(&handle) == ["Otemachi", "Makuhari"]
    });
    let told = events.try_recv().unwrap();
    assert!(
        matches!(
            told.kind,
            millrace_ix_service::EventKind::Object { deleted: false, .. }
        ),
        "{told:?}"
    );
    assert!(
        handle
            .snapshot()
            .follows
            .as_ref()
            .is_some_and(|leader| leader.name == "ix-1")
    );
    let refused = order(&handle, "Dojima").unwrap_err();
    assert!(
        matches!(&refused, OrderError::Follows(text) if text.contains("ix-1")),
        "{refused:?}"
    );

    let standing = handle.standing();
    let term = standing.borrow().term;
    drop(first.stop());
    wait("another term has begun", || standing.borrow().term != term);
    let store = second.stop().unwrap();
    let leads = start(store);
    assert_eq!(leads.handle().standing().borrow().epoch(), Some(2));
    order(&leads.handle(), "Dojima").unwrap();
    assert_eq!(sites(&leads.handle()), ["Otemachi", "Makuhari", "Dojima"]);
    leads.stop();
}

#[test]
fn a_leader_that_another_one_has_replaced_accepts_nothing_and_says_that_its_term_is_over() {
    let Some(database) = postgres_database() else {
        return;
    };
    let service = start(open(&database, "ix-1"));
    let handle = service.handle();
    order(&handle, "Otemachi").unwrap();
    let standing = handle.standing();
    postgres_sql(
        &database,
        "UPDATE lease SET holder = 'other', name = 'ix-2', beat = beat + 1; UPDATE engine SET epoch = epoch + 1",
    );
    let refused = order(&handle, "Makuhari").unwrap_err();
    assert!(
        matches!(refused, OrderError::Unavailable(_) | OrderError::Follows(_)),
        "{refused:?}"
    );
    wait("the term is over", || {
        matches!(standing.borrow().role, Role::Follows { .. })
    });
    assert!(matches!(order(&handle, "Makuhari"), Err(OrderError::Follows(_))));
    assert_eq!(
        postgres_sql(&database, "SELECT count(*) FROM object WHERE kind = 'st'"),
        "1"
    );
    assert_eq!(
        service.standing().epoch(),
        Some(1),
        "the part that it has begun, whatever came since"
    );
    service.stop();
}

#[test]
fn an_engine_that_follows_asks_nothing_of_a_switch_that_is_connected_to_it() {
    let mut world = World::new();
    world.circuit("first", [(0, 100), (2, 100)]);
    world.run(millrace_types::Duration::from_secs(5));
    let now = world.now();
    let switches = std::mem::take(&mut world.switches);
    assert!(!switches.is_empty() && switches.values().all(|switch| !switch.content.is_empty()));
    let store = world.core.take().unwrap().into_store();
    let settings = millrace_ix_engine::Settings::default();
    let mut core = Core::follow(store, settings, false, Leader::default(), now).unwrap();
    assert_eq!(core.exchange().services.len(), 1);
    for (id, switch) in switches {
        let session = u64::from(id.0) + 1000;
        core.handle(
            Event::Connected {
                switch: id.0,
                session,
            },
            now,
        );
        let content = Ok(switch.content);
        core.handle(
            Event::Dumped {
                switch: id.0,
                session,
                content,
            },
            now,
        );
    }
    core.tick(now);
    let asked: Vec<Output> = core
        .outputs()
        .into_iter()
        .filter(|output| matches!(output, Output::Request(_)))
        .collect();
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn a_database_that_is_away_is_told_and_stops_orders_until_it_is_back() {
    let Some(database) = postgres_database() else {
        return;
    };
    let service = start(open(&database, "ix-1"));
    let handle = service.handle();
    order(&handle, "Otemachi").unwrap();
    let (term, mut events) = (handle.standing().borrow().term, handle.subscribe());
    let mut told = |read_only: bool| {
        let begin = Instant::now();
        while !events
            .try_recv()
            .is_ok_and(|event| event.kind == EventKind::Mode { read_only })
        {
            assert!(begin.elapsed() < BOUND, "subscribers are told");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let (server, name) = database.split_once("dbname=").unwrap();
    let elsewhere = format!("{server}dbname=postgres");
    let end =
        format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name}'");
    postgres_sql(
        &elsewhere,
        &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false; {end}"),
    );
    told(true);
    let refused = order(&handle, "Makuhari").unwrap_err();
    assert!(
        matches!(&refused, OrderError::Unavailable(text) if text.contains("does not answer")),
        "{refused:?}"
    );
    let snapshot = handle.snapshot();
    assert!(snapshot.silent_since.is_some() && snapshot.follows.is_none());
    assert_eq!(sites(&handle), ["Otemachi"], "the engine shows what it remembers");
    postgres_sql(
        &elsewhere,
        &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"),
    );
    wait("orders are accepted", || order(&handle, "Makuhari").is_ok());
    told(false);
    assert_eq!(sites(&handle), ["Otemachi", "Makuhari"]);
    assert_eq!(handle.standing().borrow().term, term, "the leader stays");
    service.stop();
}

#[test]
fn circuits_of_an_exchange_in_postgresql_are_as_those_of_a_file_and_survive_the_engine() {
    let Some(database) = postgres_database() else {
        return;
    };
    let mut world = World::with(open(&database, "ix-1"));
    let (service, _) = world.circuit("first", [(0, 100), (2, 100)]);
    world.run(millrace_types::Duration::from_secs(5));
    assert!(world.is_settled() && world.services() == [service]);
    let mut file = World::new();
    file.circuit("first", [(0, 100), (2, 100)]);
    file.run(millrace_types::Duration::from_secs(5));
    for (number, switch) in &world.switches {
        assert_eq!(switch.content, file.switches[number].content);
    }
    let exchange = world.core().exchange().clone();
    assert_eq!(exchange, *file.core().exchange());
    // The engine ends while a change is in progress, and another one continues it.
    world.circuit("second", [(1, 100), (3, 100)]);
    drop(world.kill(false));
    world.start(open(&database, "ix-2"));
    world.run(millrace_types::Duration::from_secs(5));
    assert!(world.is_settled() && world.services().len() == 2);
}
