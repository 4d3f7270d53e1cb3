//! Sign-in by an OpenID Connect provider.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use millrace_ix_model::{Operation, UserId};
use millrace_ix_service::OrderRequest;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::session::{add_cookie, busy, client, principal_of, whoami};
use crate::app::App;
use crate::oidc::member::{self, Link};
use crate::oidc::{self, COOKIE, Callback, Identity, Oidc, OidcError};
use crate::problem::{Problem, ProblemKind};
use crate::request::Body;
use crate::session::{Failure, load_json, save_json};
use crate::view::Whoami;

/// The exchange and its provider for sign-ins, as everybody may read them.
#[derive(Serialize, ToSchema)]
pub(crate) struct SignInProvider {
    /// The name of the exchange.
    exchange: String,
    /// The name of the provider; null if there is none.
    #[schema(required)]
    name: Option<String>,
    /// True if the exchange sends mail: people who have lost the password can ask for a link.
    mail: bool,
}

/// The start of a sign-in by the provider.
#[derive(Serialize, ToSchema)]
pub(crate) struct SignInStarted {
    /// The address to which the browser must go.
    location: String,
}

impl From<OidcError> for Problem {
    fn from(error: OidcError) -> Problem {
        let detail = error.to_string();
        match error {
            OidcError::Internal(_) => {
                tracing::error!(%error, "a sign-in by the provider");
                Problem::new(
                    ProblemKind::Internal,
                    "an error of this exchange prevents the sign-in",
                )
            }
            // Anybody may begin a sign-in. The addresses of the provider and the words of the resolver are for the staff.
            OidcError::Unreachable { .. } | OidcError::Answer { .. } | OidcError::Insecure { .. } => {
                tracing::warn!(%error, "the provider of sign-ins");
                Problem::new(
                    ProblemKind::Unavailable,
                    "the provider does not answer as expected",
                )
                .with_code("provider-away")
                .retry_after(30)
            }
            OidcError::Denied { .. } => {
                Problem::new(ProblemKind::Unauthorized, detail).with_code("provider-refused")
            }
            _ => Problem::new(ProblemKind::Unauthorized, detail).with_code("wrong-answer"),
        }
    }
}

fn provider(app: &App) -> Result<&Oidc, Problem> {
    app.oidc.as_ref().ok_or_else(|| {
        Problem::new(
            ProblemKind::NotFound,
            "this exchange has no provider for sign-ins",
        )
    })
}

/// Runs a part of a sign-in that sends requests to the provider. Limits the number of concurrent runs.
async fn with_provider<T: Send + 'static>(
    app: &App,
    part: impl FnOnce(&App, &Oidc) -> Result<T, OidcError> + Send + 'static,
) -> Result<T, Problem> {
    let _permit = provider(app)?
        .under_way
        .try_acquire()
        .map_err(|_| Problem::new(ProblemKind::Busy, "many people sign in at the moment").retry_after(5))?;
    let asked = app.clone();
    let done = tokio::task::spawn_blocking(move || match &asked.oidc {
        Some(oidc) => part(&asked, oidc).map_err(Problem::from),
        None => Err(Problem::new(ProblemKind::NotFound, "there is no provider")),
    });
    done.await
        .map_err(|_| Problem::new(ProblemKind::Internal, "the sign-in was not completed"))?
}

/// Read the name of the exchange and its provider for sign-ins
#[utoipa::path(get, path = "/api/v1/oidc", tag = "session", security(()),
    responses((status = 200, body = SignInProvider), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(State(app): State<App>) -> Json<SignInProvider> {
    Json(SignInProvider {
        exchange: app.settings.name.clone(),
        mail: app.settings.mail.is_some(),
        name: app.oidc.as_ref().map(|oidc| oidc.settings.name.clone()),
    })
}

/// Begin a sign-in by the provider
///
/// The answer sets a cookie, and contains the address at the provider to which the browser must go. The
/// provider then sends the browser to the redirect address of the exchange, with the parameters for `POST
/// /api/v1/oidc/callback`.
#[utoipa::path(post, path = "/api/v1/oidc", tag = "session", security(()),
    responses((status = 200, body = SignInStarted), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn begin(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    provider(&app)?;
    app.attempts
        .begin_from(client(peer.ip(), &headers), app.uptime())
        .map_err(busy)?;
    let started = with_provider(&app, |app, oidc| {
        oidc.begin(&app.sealer, app.wall(), app.uptime())
    })
    .await?;
    let mut response = Json(SignInStarted {
        location: started.location,
    })
    .into_response();
    add_cookie(&mut response, &started.cookie)?;
    Ok(response)
}

/// Complete a sign-in by the provider, with the parameters of the redirect address
///
/// The answer sets a session cookie. A person who signs in for the first time gets a user in the account of
/// the network that the provider names. A person without a network at this exchange gets no user (403,
/// `unknown-network`).
#[utoipa::path(post, path = "/api/v1/oidc/callback", tag = "session", security(()), request_body = Callback,
    responses((status = 200, body = Whoami), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn finish(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Body(given): Body<Callback>,
) -> Result<Response, Problem> {
    let oidc = provider(&app)?;
    let address = client(peer.ip(), &headers);
    app.attempts.begin_from(address, app.uptime()).map_err(busy)?;
    let cookie = cookie(&headers);
    // A callback without a sign-in that began here is refused, and adds no entry to the audit chain.
    oidc::check_cookie(&app.sealer, cookie.as_deref(), app.wall())?;
    let asked = with_provider(&app, move |app, oidc| {
        oidc.finish(&app.sealer, cookie.as_deref(), &given, app.wall(), app.uptime())
    });
    let signed_in = match asked.await {
        Ok(identity) => user_of(&app, oidc, &identity).await.map(|user| (user, identity)),
        Err(problem) => Err(problem),
    };
    let (user, identity) = match signed_in {
        Ok(done) => done,
        Err(problem) => {
            tracing::warn!(%address, reason = %problem.detail, "a sign-in by the provider failed");
            let detail = [
                ("provider", json!(oidc.settings.issuer)),
                ("reason", json!(problem.detail)),
            ];
            app.record_failure(Failure {
                name: None,
                address,
                detail: detail
                    .map(|(name, value)| (name.to_owned(), value))
                    .into_iter()
                    .collect(),
            })
            .await?;
            let mut response = problem.into_response();
            add_cookie(&mut response, &oidc::set_cookie("", 0))?;
            return Ok(response);
        }
    };
    let detail = json!({
        "provider": oidc.settings.issuer,
        "subject": identity.subject,
        "address": address.to_string(),
    });
    app.record(&user.to_string(), "sign_in", user, detail).await?;
    let proven = member::administered(&identity.networks);
    let session = app.sessions.begin_proving(user, proven, app.now()).await?;
    let principal = principal_of(&app.snapshot(), user)?;
    let mut response = Json(whoami(&app, &principal)?).into_response();
    add_cookie(&mut response, &session)?;
    add_cookie(&mut response, &oidc::set_cookie("", 0))?;
    Ok(response)
}

/// Returns the sign-in cookie of a request.
fn cookie(headers: &HeaderMap) -> Option<String> {
    crate::session::cookie(headers, COOKIE).map(str::to_owned)
}

/// Returns the user of a person, and creates one at the first sign-in. The user gets the roles that the
/// provider gives now.
async fn user_of(app: &App, oidc: &Oidc, identity: &Identity) -> Result<UserId, Problem> {
    let _linking = oidc.linking.lock().await;
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let Some((account, role)) = member::membership(exchange, &identity.networks) else {
        let asns: Vec<String> = identity
            .networks
            .iter()
            .take(20)
            .map(|network| format!("AS{}", network.asn))
            .collect();
        let named = if asns.is_empty() {
            "none".to_owned()
        } else {
            asns.join(", ")
        };
        let detail = format!(
            "no network of yours is a member of this exchange; {} names {named}",
            oidc.settings.name
        );
        return Err(Problem::new(ProblemKind::Forbidden, detail).with_code("unknown-network"));
    };
    let key = member::link_key(&oidc.settings.issuer, &identity.subject, account);
    let linked = load_json::<Link>(&*app.credentials, &key).await?;
    let found = linked.and_then(|link| {
        let user = exchange.users.get(&link.user)?;
        (user.account == account).then_some((link.user, user))
    });
    let roles = member::roles(role);
    match found {
        Some((_, user)) if user.deactivated => {
            let detail = "your user is deactivated: ask an administrator of your account";
            Err(Problem::new(ProblemKind::Forbidden, detail).with_code("user-deactivated"))
        }
        Some((id, user)) if user.roles == roles => Ok(id),
        Some((id, _)) => {
            let update = Operation::UpdateUser {
                user: id,
                roles: Some(roles),
                email: None,
                language: None,
                deactivated: None,
            };
            app.engine.order(OrderRequest::of_system(vec![update])).await?;
            Ok(id)
        }
        None => {
            let name = member::name(
                exchange,
                identity.username.as_deref(),
                &identity.subject,
                &oidc.settings.name,
            );
            let create = Operation::CreateUser {
                name,
                account: Some(account),
                roles,
                email: None,
                language: None,
            };
            let ordered = app.engine.order(OrderRequest::of_system(vec![create])).await?;
            let user: UserId = ordered
                .applied
                .first()
                .ok_or_else(|| Problem::new(ProblemKind::Internal, "the order created no user"))?;
            save_json(&*app.credentials, &key, &Link { user }).await?;
            Ok(user)
        }
    }
}
