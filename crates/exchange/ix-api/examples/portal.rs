//! Serves the API and the page for an exchange in memory: `portal ADDRESS [FOLDER_OF_THE_PAGE]`.
//!
//! The users and their password are defined in `millrace_ix_api::fake::demo`; operators have the TOTP secret
//! `GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ`. `POST /test/...` changes state that an engine would observe; the tests
//! of the page use it. `GET /test/mail` answers with the letters that the exchange has sent. The environment variables `OIDC_ISSUER`, `OIDC_SECRET` and `OIDC_REDIRECT` configure a
//! provider for sign-ins.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use millrace_ix_api::fake::{FakeExchange, Mailbox, PASSWORD, RouteServerReads, demo};
use millrace_ix_api::observed::Check;
use millrace_ix_api::route_servers::{usual_poll_secs, usual_reject_cause};
use millrace_ix_api::service::SwitchState;
use millrace_ix_api::session::{MemoryCredentials, Sealer, TotpSecret};
use millrace_ix_api::{App, MailSettings, OidcSettings, Page, RouteServer, Settings, router};
use millrace_ix_model::Role;

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

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .ok_or("expected an address, such as 127.0.0.1:8080")?;
    let page = match arguments.next() {
        Some(folder) => Page::from_folder(Path::new(&folder))?,
        None => Page::embedded(),
    };
    let listener = tokio::net::TcpListener::bind(address).await?;
    let mailbox = Mailbox::start().await?;
    let here = format!("http://localhost:{}", listener.local_addr()?.port());
    let service = FakeExchange::new(demo()?);
    let settings = Settings {
        name: "Millrace IX".to_owned(),
        page,
        route_servers: vec![route_server()?],
        webhooks_to_private: false,
        oidc: provider(),
        mail: Some(MailSettings::new(mailbox.relay(), "noc@ix.example", &here, "en")?),
        ixf_id: None,
    };
    let credentials = Arc::new(MemoryCredentials::default());
    let app = App::new(service.clone(), credentials, Sealer::new(&[7; 32])?, settings)?;
    let secret =
        TotpSecret::from_base32("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ").ok_or("the secret is no Base32")?;
    for (id, user) in &demo()?.users {
        app.set_password(*id, PASSWORD)?;
        if user.roles.iter().any(|role| role.is_operator()) || user.roles.contains(&Role::Regulator) {
            app.set_totp(*id, &secret)?;
        }
    }
    let test = Router::new()
        .route(
            "/test/switch/{state}",
            post({
                let service = Arc::clone(&service);
                async move |axum::extract::Path(state): axum::extract::Path<String>| {
                    let (state, down): (_, &[u32]) = match state.as_str() {
                        "unreachable" => (SwitchState::Unreachable, &[]),
                        "trunk-down" => (SwitchState::InSync, &[100]),
                        _ => (SwitchState::InSync, &[]),
                    };
                    let switches =
                        demo().map(|exchange| exchange.switches.keys().copied().collect::<Vec<_>>());
                    for switch in switches.unwrap_or_default().into_iter().take(1) {
                        service.set_switch(switch, state, down);
                    }
                }
            }),
        )
        .route(
            "/test/quarantine/{state}",
            post({
                let service = Arc::clone(&service);
                async move |axum::extract::Path(state): axum::extract::Path<String>| match state.as_str() {
                    "passed" => service.pass_quarantine(),
                    _ => {
                        let frame = [
                            0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0x64, 1, 0x88, 0xcc, 2, 7, 4,
                        ];
                        service.offend(
                            Check::Lldp,
                            &millrace_ix_model::reason::frame_protocol("LLDP"),
                            &frame,
                        );
                    }
                }
            }),
        )
        .route("/test/mail", get(async move || axum::Json(mailbox.letters())))
        .route(
            "/test/change/{state}",
            post({
                let service = Arc::clone(&service);
                async move |axum::extract::Path(state): axum::extract::Path<String>| {
                    service.set_stuck_change(state == "stuck");
                }
            }),
        )
        .route(
            "/test/confirmation/over",
            post({
                let service = Arc::clone(&service);
                async move || service.expire_unconfirmed()
            }),
        )
        .route(
            "/test/route-server/{state}",
            post({
                let service = Arc::clone(&service);
                async move |axum::extract::Path(state): axum::extract::Path<String>| {
                    service.set_route_server(match state.as_str() {
                        "stale" => RouteServerReads::Fail,
                        "unreachable" => RouteServerReads::NeverSucceeded,
                        _ => RouteServerReads::Succeed,
                    });
                }
            }),
        )
        .route(
            "/test/database/{state}",
            post(
                async move |axum::extract::Path(state): axum::extract::Path<String>| {
                    service.set_unavailable(state == "away");
                },
            ),
        );
    let line = format!("serving http://{}\n", listener.local_addr()?);
    std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes())?;
    let all = test
        .merge(router(app))
        .into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, all).await?;
    Ok(())
}
