//! Serves the API and the page for an engine between simulated switches: `portal ADDRESS [FOLDER_OF_THE_PAGE]`.
//!
//! The users and their password are defined in `millrace_ix_api::demo::demo`; operators have the TOTP secret
//! `GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ`. `POST /test/...` changes what surrounds the engine: switches, clocks, the database; the
//! tests of the page use it. `GET /test/mail` answers with the letters that the exchange has sent. The environment variables `OIDC_ISSUER`, `OIDC_SECRET` and `OIDC_REDIRECT` configure a
//! provider for sign-ins.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get, post};
use millrace_ix_api::demo::{Mailbox, PASSWORD, RouteServerReads, Script, World, WorldError, demo};
use millrace_ix_api::engine::EngineCredentials;
use millrace_ix_api::route_servers::{usual_poll_secs, usual_reject_cause};
use millrace_ix_api::session::{Sealer, TotpSecret};
use millrace_ix_api::{App, MailSettings, OidcSettings, Page, RouteServer, Settings, router};
use millrace_ix_model::{Connection, Operation, Role, TagType, Timestamp, VlanId, VlanRequest};
use millrace_ix_plan::layout::EGRESS;
use millrace_ix_service::{FabricKey, OrderRequest};
use millrace_types::PortNo;

/// Returns the provider that the environment configures; `None` if a variable is missing.
fn provider() -> Option<OidcSettings> {
    Some(OidcSettings {
        issuer: std::env::var("OIDC_ISSUER").ok()?,
        name: "PeeringDB".to_owned(),
        client_id: "millrace".to_owned(),
        client_secret: std::env::var("OIDC_SECRET").ok(),
        redirect_uri: std::env::var("OIDC_REDIRECT").ok()?,
        scopes: ["openid", "profile", "networks"].map(str::to_owned).to_vec(),
    })
}

/// Returns the route server of the peering LAN in the demonstration.
fn route_server() -> Result<RouteServer, Box<dyn std::error::Error>> {
    Ok(RouteServer {
        lan: "Tokyo peering LAN".to_owned(),
        fqdn: "rs1.ix.example".to_owned(),
        asn: 64_999,
        ip_v4: "198.51.100.250".parse()?,
        ip_v6: "2001:db8:7f::fa".parse()?,
        looking_glass_url: None,
        control: Some("/run/bird/rs1.ctl".into()),
        reject_cause: usual_reject_cause(),
        poll_secs: usual_poll_secs(),
    })
}

/// The time between two deliveries of what the switches have sampled.
const SAMPLING: Duration = Duration::from_millis(200);
/// The error of a switch that refuses to remove entries.
const NOT_REMOVED: &str = "OFPBFC_MSG_FAILED: the entries are not removed";

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// Lets the switches send samples, for ever.
async fn measure(world: Arc<World>) {
    let mut script = Script::attack(now());
    loop {
        world.sample(&mut script, now());
        tokio::time::sleep(SAMPLING).await;
    }
}

/// Changes the first switch.
fn set_switch(world: &World, state: &str) {
    let Some(switch) = world.first_switch() else {
        return;
    };
    if state == "drifted" {
        // An operator's hand on the switch: the entry of an end is gone, which the engine finds and puts back.
        world.fabric.change_by_another(switch, |model| {
            let is_egress =
                |found: &&FabricKey| matches!(found, FabricKey::Flow(flow) if flow.table == EGRESS);
            let gone = model.content.keys().find(is_egress).cloned();
            gone.map(|gone| model.content.remove(&gone));
        });
        return;
    }
    if state == "unreachable" {
        world.fabric.disconnect(switch);
        return;
    }
    let down = PortNo::ordinary(100).ok().filter(|_| state == "trunk-down");
    world.fabric.set_down(switch, down.as_slice());
    if !world.fabric.is_connected(switch) {
        world.fabric.connect(switch);
    }
}

/// Moves an end, whose old entries the first switch does not remove, or lets it remove them.
async fn set_stuck(world: &World, is_stuck: bool) -> Result<(), WorldError> {
    let Some(switch) = world.first_switch() else {
        return Ok(());
    };
    let refuses = is_stuck.then_some(NOT_REMOVED);
    world
        .fabric
        .change(switch, |model| model.refuses_removals = refuses);
    if !is_stuck {
        // The engine compares the switch at once, and need not wait for its next attempt.
        world.fabric.connect(switch);
        return world.settle().await;
    }
    let exchange = Arc::clone(&world.engine.snapshot().exchange);
    let is_there = |connection| {
        let found = exchange.connections.get(connection);
        found.and_then(Connection::switch) == Some(switch)
    };
    let mut services = exchange.services.iter();
    let korea = services.find(|(_, service)| service.name == "private-korea");
    let mut ends = korea.into_iter().flat_map(|(id, _)| exchange.ends(*id));
    if let Some((config, end)) = ends.find(|(_, end)| is_there(&end.connection)) {
        let order = OrderRequest::of_system(vec![Operation::MoveEnd {
            config,
            connection: end.connection,
            vlan: VlanRequest::Dot1q {
                vlan: VlanId::new(78).ok(),
                ethertype: TagType::CTag,
            },
        }]);
        world.engine.order(order).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .ok_or("expected an address, such as 127.0.0.1:8080")?;
    let page = match arguments.next() {
        Some(folder) => Page::from_folder(std::path::Path::new(&folder))?,
        None => Page::embedded(),
    };
    let listener = tokio::net::TcpListener::bind(address).await?;
    let mailbox = Mailbox::start().await?;
    let here = format!("http://localhost:{}", listener.local_addr()?.port());
    let world = Arc::new(World::start(demo()?).await?);
    world.record_series()?;
    let server = route_server()?;
    world.read_route_server(&server, RouteServerReads::Succeed);
    tokio::spawn(measure(Arc::clone(&world)));
    let settings = Settings {
        name: "Millrace IX".to_owned(),
        page,
        route_servers: vec![server.clone()],
        webhooks_to_private: false,
        oidc: provider(),
        mail: Some(MailSettings::new(mailbox.relay(), "noc@ix.example", &here, "en")?),
        ixf_id: None,
    };
    let credentials = Arc::new(EngineCredentials::new(world.handle.clone()));
    let app = App::new(
        Arc::clone(&world.engine),
        credentials,
        Sealer::new(&[7; 32])?,
        settings,
    )
    .await?;
    let secret =
        TotpSecret::from_base32("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ").ok_or("the secret is no Base32")?;
    for (id, user) in &demo()?.users {
        app.set_password(*id, PASSWORD).await?;
        if user.roles.iter().any(|role| role.is_operator()) || user.roles.contains(&Role::Regulator) {
            app.set_totp(*id, &secret).await?;
        }
    }
    let test =
        conditions(&world, server).route("/test/mail", get(async move || axum::Json(mailbox.letters())));
    let line = format!("serving http://{}\n", listener.local_addr()?);
    std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes())?;
    let all = test
        .merge(router(app))
        .into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, all).await?;
    Ok(())
}

/// The answer to a condition that could not be set.
type Failure = (StatusCode, String);

fn failure(error: &WorldError) -> Failure {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// Returns the routes by which the tests of the page set conditions.
fn conditions(world: &Arc<World>, server: RouteServer) -> Router {
    let worlds = [0; 6].map(|_| Arc::clone(world));
    let [switch, quarantine, change, confirmation, reads, database] = worlds;
    Router::new()
        .route(
            "/test/switch/{state}",
            post(async move |Path(state): Path<String>| set_switch(&switch, &state)),
        )
        .route(
            "/test/quarantine/{state}",
            post(async move |Path(state): Path<String>| {
                let done = match state.as_str() {
                    "passed" => quarantine.pass_quarantine().await,
                    _ => quarantine.offend().await,
                };
                done.map_err(|error| failure(&error))
            }),
        )
        .route(
            "/test/change/{state}",
            post(async move |Path(state): Path<String>| {
                let done = set_stuck(&change, state == "stuck").await;
                done.map_err(|error| failure(&error))
            }),
        )
        .route(
            "/test/confirmation/over",
            post(async move || {
                let over = confirmation.pass(Duration::from_secs(601)).await;
                over.map_err(|error| failure(&error))
            }),
        )
        .route(
            "/test/route-server/{state}",
            post(async move |Path(state): Path<String>| {
                reads.read_route_server(
                    &server,
                    match state.as_str() {
                        "stale" => RouteServerReads::Fail,
                        "unreachable" => RouteServerReads::NeverSucceeded,
                        _ => RouteServerReads::Succeed,
                    },
                );
            }),
        )
        .route(
            "/test/database/{state}",
            post(async move |Path(state): Path<String>| database.set_full(state == "away")),
        )
}
