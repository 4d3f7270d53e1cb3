//! The engine of `millrace-ix-service` behind the traits of the API.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use http_body_util::BodyExt as _;
use millrace_ix_api::engine::{Engine, EngineCredentials};
use millrace_ix_api::session::{ApiKeyRecord, CredentialStore, KeyScope, Sealer, Stored};
use millrace_ix_api::{App, router};
use millrace_ix_engine::Event;
use millrace_ix_model::{Actor, ConfigId, ObjectId, Operation, SwitchId, Timestamp, UserId};
use millrace_ix_plan::layout::{CookieFields, CookieKind};
use millrace_ix_series::{Key, Measure, Shared, Subject, TimeZone};
use millrace_ix_service::{Handle, OrderOptions, Service, Settings};
use millrace_ix_store::Sqlite;
use millrace_sflow::{CounterSample, Datagram, InterfaceCounters, OpenFlowPort, Sample};
use millrace_types::Cookie;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tower::ServiceExt as _;

const SESSION: u64 = 1;
/// A bound far above the time of any request.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A running engine and an end of a peering LAN in quarantine. The switch of the end is connected and answers
/// nothing.
struct World {
    handle: Handle,
    engine: Arc<Engine>,
    switch: SwitchId,
    end: ConfigId,
}

async fn order(handle: &Handle, operations: &[Value]) {
    let operation = |value: &Value| serde_json::from_value::<Operation>(value.clone()).unwrap();
    let operations = operations.iter().map(operation).collect();
    let options = OrderOptions::default();
    handle.order(operations, Actor::system(), options).await.unwrap();
}

impl World {
    async fn new() -> World {
        let settings = Settings {
            engine: millrace_ix_engine::Settings::default(),
            extensions: false,
            audit_key: None,
        };
        let store = Box::new(Sqlite::in_memory().unwrap());
        let handle = Service::start(store, settings, drop).unwrap().handle();
        order(
            &handle,
            &[
                json!({"operation": "create_site", "name": "Otemachi"}),
                json!({"operation": "create_switch", "name": "ote-1", "site": "st-0", "dpid": "0000000000000001",
                    "ports": [{"number": 1, "speed_mbps": 10000}]}),
            ],
        )
        .await;
        let switch = *handle.snapshot().exchange.switches.keys().next().unwrap();
        let policy = json!({"name": "lan", "ethertypes": [0x0800, 0x0806, 0x86dd], "macs_max": 4, "broadcast_pps": 100,
            "multicast_pps": 100, "arp": "unicast", "quarantine_secs": 3600});
        order(
            &handle,
            &[
                json!({"operation": "create_account", "name": "A", "kind": "member"}),
                json!({"operation": "create_connection", "account": "ac-0", "name": "a1", "kind": "standalone",
                    "ports": [format!("{switch}:1")]}),
                json!({"operation": "create_policy", "policy": policy}),
            ],
        )
        .await;
        let exchange = Arc::clone(&handle.snapshot().exchange);
        let account = exchange.accounts.keys().next().unwrap();
        let connection = exchange.connections.keys().next().unwrap();
        let policy = exchange.policies.keys().next().unwrap();
        order(
            &handle,
            &[
                json!({"operation": "create_service", "account": account, "kind": "exchange_lan", "name": "lan",
                    "policy": policy, "networks": ["192.0.2.0/24"]}),
                json!({"operation": "configure_end", "service": "sv-0", "connection": connection, "vlan": {"type": "port"}}),
            ],
        )
        .await;
        let end = *handle.snapshot().exchange.configs.keys().next().unwrap();
        order(
            &handle,
            &[
                json!({"operation": "add_mac", "config": end, "address": "02:00:00:00:01:01"}),
                json!({"operation": "add_ip", "config": end, "address": "192.0.2.1"}),
            ],
        )
        .await;
        let engine = Engine::new(handle.clone());
        handle.fabric().event(Event::Connected {
            switch: switch.0,
            session: SESSION,
        });
        World {
            handle,
            engine,
            switch,
            end,
        }
    }

    /// Passes a frame of the end to the engine, and waits until the engine has judged the frame.
    async fn arrive(&self, frame: Vec<u8>) {
        let cookie: Cookie = CookieFields {
            kind: CookieKind::End,
            object: self.end.0,
            generation: 0,
        }
        .cookie();
        self.handle
            .fabric()
            .packet_in(self.switch, SESSION, cookie, frame);
        self.handle.audit(0, 1).await.unwrap();
    }

    fn findings(&self) -> Vec<u64> {
        let snapshot = self.engine.snapshot();
        let list = snapshot.quarantine.get(&self.end);
        list.map(|list| list.findings.iter().map(|finding| finding.count).collect())
            .unwrap_or_default()
    }
}

/// Returns an ARP request of the router for its own address.
fn arp() -> Vec<u8> {
    millrace_ix_service::simulation::arp_announcement([2, 0, 0, 0, 1, 1], [192, 0, 2, 1])
}

/// Returns a frame of LLDP.
fn lldp() -> Vec<u8> {
    let destination: &[u8] = &[0x01, 0x80, 0xc2, 0, 0, 0x0e];
    [destination, &[2, 0, 0, 0, 1, 1], &[0x88, 0xcc], &[0; 46]].concat()
}

#[tokio::test]
async fn the_first_good_frame_of_an_end_in_quarantine_is_told_and_shown() {
    let world = World::new().await;
    let mut events = world.engine.subscribe();
    let is_seen = |world: &World| {
        let snapshot = world.engine.snapshot();
        snapshot.quarantine.get(&world.end).is_some_and(|list| list.seen)
    };
    assert!(!is_seen(&world));
    world.arrive(arp()).await;
    assert!(is_seen(&world));
    loop {
        let event = tokio::time::timeout(PATIENCE, events.recv()).await;
        match event.expect("an event comes in time") {
            Ok(event) if event.objects.contains(&ObjectId::from(world.end)) => break,
            Ok(_) => {}
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    world.handle.stop();
}

/// The store of the engine. It reports each reading before it begins.
struct Reported {
    store: EngineCredentials,
    readings: mpsc::Sender<()>,
}

impl CredentialStore for Reported {
    fn load<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Vec<u8>>> {
        self.readings.send(()).unwrap();
        self.store.load(key)
    }

    fn save<'a>(&'a self, key: &'a str, value: Option<&'a [u8]>) -> Stored<'a, ()> {
        self.store.save(key, value)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<(String, Vec<u8>)>> {
        self.store.list(prefix)
    }
}

fn settings() -> millrace_ix_api::Settings {
    millrace_ix_api::Settings {
        name: "Test IX".to_owned(),
        page: millrace_ix_api::Page::default(),
        route_servers: Vec::new(),
        webhooks_to_private: true,
        oidc: None,
        mail: None,
        ixf_id: None,
    }
}

/// Returns the router of the API over the engine of a world.
async fn api(world: &World, credentials: Arc<dyn CredentialStore>) -> axum::Router {
    let sealer = Sealer::new(&[7; 32]).unwrap();
    let app = App::new(Arc::clone(&world.engine), credentials, sealer, settings())
        .await
        .unwrap();
    router(app)
}

/// Gives a user an API key.
async fn give_key(store: &dyn CredentialStore, user: UserId, key: &str) {
    let record = ApiKeyRecord {
        user,
        name: "test".to_owned(),
        scope: KeyScope::Write,
        created: Timestamp::from_secs(0),
        last_used: None,
    };
    let digest = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    let print: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let record = serde_json::to_vec(&record).unwrap();
    let key = format!("key/{print}");
    store.save(&key, Some(&record)).await.unwrap();
}

async fn send(
    router: axum::Router,
    method: &str,
    path: &str,
    key: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "ix.example")
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .body(Body::from(body.map(|body| body.to_string()).unwrap_or_default()))
        .unwrap();
    let peer: SocketAddr = "192.0.2.1:5000".parse().unwrap();
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = router.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn requests_that_wait_for_the_database_do_not_stop_others() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let world = runtime.block_on(World::new());
    let (readings, read) = mpsc::channel();
    let store = EngineCredentials::new(world.handle.clone());
    let router = runtime.block_on(api(&world, Arc::new(Reported { store, readings })));
    while read.try_recv().is_ok() {}
    // The engine's thread is busy until the end of the test, or gives up.
    let (open, gate) = mpsc::channel::<()>();
    let handle = world.handle.clone();
    let busy = runtime.spawn(async move {
        let wait = move |_: &mut dyn millrace_ix_store::Store, _| Ok(gate.recv_timeout(PATIENCE).is_ok());
        handle.store(wait).await
    });
    let waiting: Vec<_> = (0..4)
        .map(|number| {
            let router = router.clone();
            runtime.spawn(async move {
                let key = format!("mx_{number}");
                send(router, "GET", "/api/v1/services", &key, None).await.0
            })
        })
        .collect();
    for _ in &waiting {
        read.recv_timeout(PATIENCE).expect("the requests are executed");
    }
    let (answered, answer) = mpsc::channel();
    runtime.spawn(async move {
        let (status, _) = send(router, "GET", "/api/v1/health", "", None).await;
        answered.send(status).unwrap();
    });
    assert!(answer.recv_timeout(PATIENCE).is_ok());
    open.send(())
        .expect("the other request did not wait for the database");
    assert!(runtime.block_on(busy).unwrap().unwrap());
    for request in waiting {
        assert_eq!(runtime.block_on(request).unwrap(), 401);
    }
    world.handle.stop();
}

#[tokio::test]
async fn a_page_of_the_audit_chain_before_a_number_beyond_its_end_is_the_newest_page() {
    let world = World::new().await;
    let newest = world.engine.audit(None, 2).await.unwrap();
    assert_eq!(newest.len(), 2);
    let head = newest[0].serial;
    for before in [head + 1, head + 2, head + 1000, i64::MAX as u64, u64::MAX] {
        let page = world.engine.audit(Some(before), 2).await.unwrap();
        assert_eq!(page, newest, "before {before}");
    }
    let older = world.engine.audit(Some(head), 1).await.unwrap();
    assert_eq!(older, newest[1..]);
    world.handle.stop();
}

#[tokio::test]
async fn a_replay_from_a_position_that_no_event_has_is_taken() {
    let world = World::new().await;
    let store = Arc::new(EngineCredentials::new(world.handle.clone()));
    let account = *world.handle.snapshot().exchange.accounts.keys().next().unwrap();
    order(
        &world.handle,
        &[json!({"operation": "create_user", "name": "ann", "account": account, "roles": ["member_admin"]})],
    )
    .await;
    let user = *world.handle.snapshot().exchange.users.keys().next().unwrap();
    give_key(&*store, user, "mx_ann").await;
    let router = api(&world, store).await;
    let webhook = json!({ "url": "http://127.0.0.1:9/" });
    let (status, made) = send(
        router.clone(),
        "POST",
        "/api/v1/webhooks",
        "mx_ann",
        Some(webhook),
    )
    .await;
    assert_eq!(status, 201, "{made}");
    let path = format!(
        "/api/v1/webhooks/{}/replay",
        made["webhook"]["id"].as_str().unwrap()
    );
    for after in [9_007_199_254_740_992_u64, u64::MAX] {
        let replay = Some(json!({ "after": after }));
        let (status, problem) = send(router.clone(), "POST", &path, "mx_ann", replay).await;
        assert_eq!(status, 202, "{problem}");
    }
    world.handle.stop();
}

#[tokio::test]
async fn a_repeated_fault_of_an_end_in_quarantine_is_shown_although_nothing_is_written() {
    let world = World::new().await;
    world.arrive(lldp()).await;
    assert_eq!(world.findings(), [1]);
    world.arrive(lldp()).await;
    assert_eq!(world.findings(), [2]);
    world.handle.stop();
}

/// Returns the counters of port 9 of a switch, 30 s times `reading` after the start of its agent.
fn counters(dpid: u64, reading: u32, out_octets: u64) -> Datagram {
    let counters = InterfaceCounters {
        out_octets,
        ..InterfaceCounters::default()
    };
    let sample = CounterSample {
        sequence: reading,
        source: 9,
        counters: Some(counters),
        ethernet: None,
        openflow: Some(OpenFlowPort { dpid, number: 9 }),
        name: None,
    };
    Datagram {
        agent: [192, 0, 2, 1].into(),
        sub_agent: 0,
        sequence: reading,
        uptime_ms: 30_000 * reading,
        samples: vec![Sample::Counters(sample)],
        skipped: 0,
    }
}

#[tokio::test]
async fn the_load_of_a_trunk_is_that_of_the_port_at_its_first_end() {
    let world = World::new().await;
    let port = json!([{"number": 9, "speed_mbps": 10000}]);
    let ports = json!([{"number": 1, "speed_mbps": 10000}, {"number": 9, "speed_mbps": 10000}]);
    order(
        &world.handle,
        &[
            json!({"operation": "set_ports", "switch": world.switch, "ports": ports}),
            json!({"operation": "create_site", "name": "Inzai"}),
            json!({"operation": "create_switch", "name": "inz-1", "site": "st-0", "dpid": "0000000000000002", "ports": port}),
            json!({"operation": "create_trunk", "name": "east", "kind": "vxlan", "ends": [format!("{}:9", world.switch), "sw-0:9"],
                "cost": 10, "capacity_mbps": 10000, "mtu": 1700, "contract_percent": 100}),
            json!({"operation": "create_account", "name": "IX", "kind": "exchange"}),
            json!({"operation": "create_user", "name": "noc", "account": "ac-0", "roles": ["operator_noc"]}),
        ],
    )
    .await;
    let store = Arc::new(EngineCredentials::new(world.handle.clone()));
    let user = *world.handle.snapshot().exchange.users.keys().next().unwrap();
    give_key(&*store, user, "mx_noc").await;
    let router = api(&world, store).await;
    let load = async || {
        let (status, trunks) = send(router.clone(), "GET", "/api/v1/trunks", "mx_noc", None).await;
        assert_eq!(status, 200, "{trunks}");
        trunks["items"][0]["load"].clone()
    };
    assert_eq!(load().await, Value::Null, "nothing is measured");
    let samples = millrace_ix_samples::Shared::new(1);
    world.engine.set_samples(samples.clone());
    let now = world.engine.now();
    samples.take(&counters(1, 1, 0), now);
    assert_eq!(load().await, Value::Null, "one reading is no rate");
    samples.take(&counters(1, 2, 30_000_000), now);
    assert_eq!(load().await, json!({"in_bps": 8_000_000, "out_bps": 0}));
    world.handle.stop();
}

#[tokio::test]
async fn graphs_and_figures_are_those_of_the_series_and_a_deleted_connection_stays_in_the_figures() {
    let world = World::new().await;
    let store = Arc::new(EngineCredentials::new(world.handle.clone()));
    order(
        &world.handle,
        &[
            json!({"operation": "create_account", "name": "IX", "kind": "exchange"}),
            json!({"operation": "create_user", "name": "noc", "account": "ac-0", "roles": ["operator_noc"]}),
        ],
    )
    .await;
    let exchange = Arc::clone(&world.handle.snapshot().exchange);
    let user = *exchange.users.keys().next().unwrap();
    let connection = *exchange.connections.keys().next().unwrap();
    give_key(&*store, user, "mx_noc").await;
    let sealer = Sealer::new(&[7; 32]).unwrap();
    let app = App::new(Arc::clone(&world.engine), store, sealer, settings())
        .await
        .unwrap();
    let router = router(app.clone());
    let path = format!("/api/v1/series/connections/{connection}");
    let graph = async || send(router.clone(), "GET", &path, "mx_noc", None).await;
    let (status, none) = graph().await;
    assert_eq!(
        (status, &none["measured"], &none["lines"]),
        (200, &json!(false), &json!([]))
    );
    assert!(!app.billing(None).await.measured);

    let folder = tempfile::tempdir().unwrap();
    let series = Shared::open(folder.path(), TimeZone::UTC).unwrap();
    let now = world.engine.now().millis() / 1000;
    let values = |number: u32| {
        let key = |measure| Key::new(Subject::Connection(number), measure);
        [(key(Measure::In), 1000), (key(Measure::Out), 2000)]
    };
    // Connection 999 was deleted.
    series
        .push(now, &[values(connection.0), values(999)].concat())
        .unwrap();
    world.engine.set_series(series.clone());
    let (status, found) = graph().await;
    assert_eq!((status, &found["measured"]), (200, &json!(true)));
    let newest = |name: &str| -> Vec<Value> {
        let lines = found["lines"].as_array().unwrap().iter();
        let own = lines.filter(|line| line["measure"] == name);
        own.flat_map(|line| line["average"].as_array().unwrap().clone())
            .filter(|value| !value.is_null())
            .collect()
    };
    assert_eq!(
        (newest("in"), newest("out")),
        (vec![json!(1000)], vec![json!(2000)])
    );
    // A graph that was read before an interval was written has its values at once. Both intervals are in one five minutes.
    let key = Key::new(Subject::Connection(connection.0), Measure::In);
    let other = if now % 300 < 290 { now + 10 } else { now - 10 };
    series.push(other, &[(key, 3000)]).unwrap();
    let (_, renewed) = graph().await;
    let averages = renewed["lines"][0]["average"].as_array().unwrap();
    let known: Vec<&Value> = averages.iter().filter(|value| !value.is_null()).collect();
    assert_eq!(known, [&json!(2000)], "the average of 1,000 and 3,000");

    let month = series.month_of(now);
    let figures = [connection.0, 999].map(|number| (number, series.figure(number, month, now + 600)));
    series.freeze(month, &figures.into()).unwrap();
    let rows = app.billing(Some(month)).await.rows;
    let shown: Vec<_> = rows
        .iter()
        .map(|row| (&*row.connection, &*row.connection_name, row.billed_bps))
        .collect();
    let own = connection.to_string();
    assert_eq!(shown, [(&*own, "a1", Some(2000)), ("cn-999", "", Some(2000))]);
    let (_, by_rest) = send(
        router.clone(),
        "GET",
        &format!("/api/v1/billing?month={month}"),
        "mx_noc",
        None,
    )
    .await;
    assert_eq!(by_rest["rows"].as_array().unwrap().len(), 1, "{by_rest}");
    assert_eq!(
        (&by_rest["frozen"], &by_rest["rows"][0]["billed_bps"]),
        (&json!(true), &json!(2000))
    );
    world.handle.stop();
}
