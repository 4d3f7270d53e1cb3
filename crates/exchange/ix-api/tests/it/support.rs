//! The API without a socket: requests go to the router.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use millrace_ix_api::demo::{PASSWORD, RouteServerReads, Script, World, demo};
use millrace_ix_api::session::{ApiKeyRecord, CredentialStore, KeyScope, MemoryCredentials, Sealer};
use millrace_ix_api::{App, Page, Settings, router};
use millrace_ix_model::{Timestamp, UserId};
use millrace_ix_service::simulation::SimulatedClocks;
use tower::ServiceExt as _;

/// Returns the answer of the store in memory, which does not wait.
pub(crate) fn ready<T>(answer: impl Future<Output = T>) -> T {
    futures::FutureExt::now_or_never(answer).unwrap()
}

/// The API over a running engine with the exchange of the demonstrations.
pub(crate) struct Api {
    pub(crate) world: World,
    pub(crate) app: App,
    credentials: Arc<MemoryCredentials>,
    router: Router,
}

/// A response of the server, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn etag(&self) -> String {
        self.headers["etag"].to_str().unwrap().to_owned()
    }
}

/// Returns the settings of the test exchange.
fn settings() -> Settings {
    Settings {
        name: "Test IX".to_owned(),
        page: Page::default(),
        route_servers: vec![millrace_ix_api::RouteServer {
            lan: "Tokyo peering LAN".to_owned(),
            fqdn: "rs1.ix.example".to_owned(),
            asn: 64_999,
            ip_v4: "192.0.2.250".parse().unwrap(),
            ip_v6: "2001:db8::fa".parse().unwrap(),
            looking_glass_url: None,
            control: Some("/run/bird/rs1.ctl".into()),
            reject_cause: "65520:*".parse().unwrap(),
            poll_secs: 30,
        }],
        webhooks_to_private: true,
        oidc: None,
        mail: None,
        ixf_id: None,
    }
}

impl Api {
    pub(crate) async fn new() -> Api {
        Api::over(demo().unwrap()).await
    }

    pub(crate) async fn over(exchange: millrace_ix_model::Exchange) -> Api {
        Api::build(exchange, |_| {}, |store| store).await
    }

    /// Returns the API over another store of credentials, which keeps them in the given one.
    pub(crate) async fn with_store(
        wrap: impl FnOnce(Arc<MemoryCredentials>) -> Arc<dyn CredentialStore>,
    ) -> Api {
        Api::build(demo().unwrap(), |_| {}, wrap).await
    }

    /// Returns the API with other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Api {
        Api::build(demo().unwrap(), change, |store| store).await
    }

    /// Returns the API of an engine whose system clock is ahead of that of the rest by a time, or behind, at its start.
    pub(crate) async fn by(clocks: SimulatedClocks) -> Api {
        let world = World::start_with(demo().unwrap(), clocks).await.unwrap();
        let credentials = Arc::new(MemoryCredentials::default());
        Api::start(world, credentials.clone(), credentials, settings())
    }

    async fn build(
        exchange: millrace_ix_model::Exchange,
        change: impl FnOnce(&mut Settings),
        wrap: impl FnOnce(Arc<MemoryCredentials>) -> Arc<dyn CredentialStore>,
    ) -> Api {
        let world = World::start(exchange).await.unwrap();
        let credentials = Arc::new(MemoryCredentials::default());
        let mut settings = settings();
        change(&mut settings);
        let store = wrap(credentials.clone());
        Api::start(world, credentials, store, settings)
    }

    fn start(
        world: World,
        credentials: Arc<MemoryCredentials>,
        store: Arc<dyn CredentialStore>,
        settings: Settings,
    ) -> Api {
        let sealer = Sealer::new(&[7; 32]).unwrap();
        for server in settings
            .route_servers
            .iter()
            .filter(|server| server.control.is_some())
        {
            world.read_route_server(server, RouteServerReads::Succeed);
        }
        let app = ready(App::new(Arc::clone(&world.engine), store, sealer, settings)).unwrap();
        Api {
            world,
            router: router(app.clone()),
            app,
            credentials,
        }
    }

    /// Starts the API again over the same exchange and the same stored values.
    pub(crate) fn restart(self) -> Api {
        self.restart_with(|_| {})
    }

    /// Starts the API again with other settings.
    pub(crate) fn restart_with(self, change: impl FnOnce(&mut Settings)) -> Api {
        let store = self.credentials.clone();
        let mut settings = settings();
        change(&mut settings);
        Api::start(self.world, self.credentials, store, settings)
    }

    /// Returns the exchange as it is now.
    pub(crate) fn exchange(&self) -> Arc<millrace_ix_model::Exchange> {
        Arc::clone(&self.world.engine.snapshot().exchange)
    }

    /// Sets the outcomes of reading the route server.
    pub(crate) fn read_route_server(&self, reads: RouteServerReads) {
        self.world.read_route_server(&settings().route_servers[0], reads);
    }

    /// Lets the switches send samples of the last minute.
    pub(crate) fn measure_traffic(&self) {
        let now = Timestamp::from(SystemTime::now());
        self.world.sample(&mut Script::quiet(now), now);
    }

    /// Lets the switches send samples up to now, with an attack against an address of Aoba Networks.
    pub(crate) fn measure_attack(&self) {
        let now = Timestamp::from(SystemTime::now());
        self.world.sample(&mut Script::attack(now), now);
    }

    /// Returns the stored values whose keys begin with `prefix`.
    pub(crate) fn values(&self, prefix: &str) -> Vec<Vec<u8>> {
        let found = ready(self.credentials.list(prefix)).unwrap();
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// Returns the identifier of a user.
    pub(crate) fn user(&self, name: &str) -> UserId {
        let users = &self.exchange().users;
        users
            .iter()
            .find(|(_, user)| user.name == name)
            .map(|(id, _)| *id)
            .unwrap()
    }

    /// Gives a user an API key without a sign-in. The key is the user's name.
    pub(crate) fn key(&self, name: &str) -> String {
        self.key_of(self.user(name), name, KeyScope::Write)
    }

    /// Gives a user an API key without a sign-in.
    pub(crate) fn key_of(&self, user: UserId, key: &str, scope: KeyScope) -> String {
        let record = ApiKeyRecord {
            user,
            name: "test".to_owned(),
            scope,
            created: Timestamp::from_secs(0),
            last_used: None,
        };
        let digest = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
        let print: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let value = serde_json::to_vec(&record).unwrap();
        ready(self.credentials.save(&format!("key/{print}"), Some(&value))).unwrap();
        key.to_owned()
    }

    /// Returns the number of stored values whose key begins with `prefix`.
    pub(crate) fn stored(&self, prefix: &str) -> usize {
        ready(self.credentials.list(prefix)).unwrap().len()
    }

    /// Waits until no stored value's key begins with `prefix`.
    pub(crate) async fn nothing_stored(&self, prefix: &str) {
        let wait = async {
            while self.stored(prefix) > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(60), wait).await;
        waited.unwrap_or_else(|_| panic!("{prefix} stays in the store"));
    }

    /// Signs a member in, and returns the cookie of the session.
    pub(crate) async fn session(&self, name: &str) -> String {
        self.app.set_password(self.user(name), PASSWORD).await.unwrap();
        let body = serde_json::json!({ "name": name, "password": PASSWORD });
        let answer = self
            .send(Method::POST, "/api/v1/session", "", &[], Some(body))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let cookie = answer.headers["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    /// Has a member make an API key on the page, and returns the answer.
    pub(crate) async fn made_key(&self, name: &str, key: &str, scope: &str) -> serde_json::Value {
        let cookie = self.session(name).await;
        let headers = [("cookie", cookie.as_str())];
        let body = serde_json::json!({ "name": key, "scope": scope });
        let made = self
            .send(Method::POST, "/api/v1/api-keys", "", &headers, Some(body))
            .await;
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()
    }

    /// Sends a request as the holder of a key, or without a signed-in user if the key is empty.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        key: &str,
        headers: &[(&str, &str)],
        body: Option<serde_json::Value>,
    ) -> Answer {
        self.send_from("192.0.2.1:5000", method, path, key, headers, body)
            .await
    }

    /// Sends a request of a client through the proxy in front of the API.
    pub(crate) async fn send_over_proxy(
        &self,
        method: Method,
        path: &str,
        key: &str,
        client: &str,
        body: serde_json::Value,
    ) -> Answer {
        let headers = [("x-forwarded-for", client)];
        self.send_from("127.0.0.1:5000", method, path, key, &headers, Some(body))
            .await
    }

    async fn send_from(
        &self,
        peer: &str,
        method: Method,
        path: &str,
        key: &str,
        headers: &[(&str, &str)],
        body: Option<serde_json::Value>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "ix.example");
        if !key.is_empty() {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = match body {
            Some(body) => request
                .header("content-type", "application/json")
                .body(Body::from(body.to_string())),
            None => request.body(Body::empty()),
        }
        .unwrap();
        let peer: SocketAddr = peer.parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(peer));
        let is_order = request.method() != Method::GET;
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        if is_order {
            // The switches follow an order a moment after its answer.
            self.world.settle().await.unwrap();
        }
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body,
        }
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> Answer {
        self.send(Method::GET, path, key, &[], None).await
    }

    /// Opens a stream, and skips its first event, `begin`.
    pub(crate) async fn stream(&self, key: &str, after: Option<&str>) -> axum::body::BodyDataStream {
        let mut stream = self.whole_stream(key, after).await;
        assert_eq!(crate::events::next(&mut stream).await.1, "begin");
        stream
    }

    /// Opens a stream, whose first event is `begin`.
    pub(crate) async fn whole_stream(&self, key: &str, after: Option<&str>) -> axum::body::BodyDataStream {
        let mut request = Request::builder()
            .uri("/api/v1/events")
            .header("host", "ix.example")
            .header("authorization", format!("Bearer {key}"));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = self
            .router
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().into_data_stream()
    }
}
