//! Webhooks of the caller's account.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millrace_ix_model::{AccountId, OperationKind, Reason, reason};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::access::Principal;
use crate::app::App;
use crate::idempotency::RequestMark;
use crate::problem::{Problem, ProblemKind};
use crate::request::{Body, PageParams, Query};
use crate::session::random;
use crate::view::List;
use crate::webhooks::address::is_public;
use crate::webhooks::{Delivery, PURPOSE, Webhook};

/// The largest number of webhooks of an account.
const WEBHOOKS_MAX: usize = 20;

/// A webhook.
#[derive(Serialize, ToSchema)]
#[schema(as = Webhook)]
pub(crate) struct WebhookView {
    /// The identifier.
    id: String,
    /// The URL to which events are sent.
    url: String,
    /// The user whose permissions the webhook has.
    user: String,
    /// The time of its creation.
    created: String,
    /// The reason why nothing is sent any more; null for a webhook that works. Events that are sent again enable it.
    #[schema(required)]
    disabled: Option<String>,
    /// The last delivery.
    #[schema(required)]
    last: Option<Delivery>,
}

fn view(app: &App, id: String, webhook: &Webhook) -> WebhookView {
    WebhookView {
        url: webhook.url.clone(),
        user: webhook.user.to_string(),
        created: webhook.created.to_string(),
        disabled: webhook.disabled.clone(),
        last: app.webhooks.deliveries(&id).into_iter().next(),
        id,
    }
}

/// Returns the account of a webhook's user.
fn account_of(principal: &Principal, webhook: &Webhook) -> Option<AccountId> {
    let user = principal.snapshot.exchange.users.get(&webhook.user)?;
    Some(user.account)
}

/// Returns a webhook that the principal may read.
fn find(app: &App, principal: &Principal, id: &str) -> Result<(Webhook, AccountId), Problem> {
    let found: Option<Webhook> = app.records.find(id);
    found
        .and_then(|webhook| Some((account_of(principal, &webhook)?, webhook)))
        .filter(|(account, _)| principal.may(OperationKind::ReadWebhook, *account))
        .map(|(account, webhook)| (webhook, account))
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// Returns all webhooks with the accounts of their users.
fn all(app: &App, principal: &Principal) -> impl Iterator<Item = (String, Webhook, AccountId)> {
    let all = app.records.all::<Webhook>().into_iter();
    all.filter_map(|(id, webhook)| {
        let account = account_of(principal, &webhook)?;
        Some((id, webhook, account))
    })
}

/// List webhooks
#[utoipa::path(get, path = "/api/v1/webhooks", tag = "webhooks", params(PageParams),
    responses((status = 200, body = List<WebhookView>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<PageParams>,
) -> Result<Json<List<WebhookView>>, Problem> {
    principal.require(OperationKind::ReadWebhook)?;
    params.limit()?;
    let items: Vec<WebhookView> = all(&app, &principal)
        .filter(|(_, _, account)| principal.may(OperationKind::ReadWebhook, *account))
        .map(|(id, webhook, _)| view(&app, id, &webhook))
        .collect();
    Ok(Json(List {
        total: items.len(),
        items,
        next: None,
    }))
}

/// A new webhook.
#[derive(Deserialize, ToSchema)]
pub(crate) struct NewWebhook {
    /// The URL: `https://` and a host with a public address.
    url: String,
}

/// A new webhook with its secret, which is shown once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedWebhook {
    /// The webhook.
    webhook: WebhookView,
    /// The secret with which requests are signed: `whsec_` and base 64.
    secret: String,
}

fn refused(reason: Reason) -> Problem {
    Problem::because(ProblemKind::Invalid, reason).with_error("/url", "invalid")
}

/// Refuses URLs to which events must not be sent. Host names are checked again at each resolution.
fn check_url(app: &App, url: &str) -> Result<(), Problem> {
    if url.len() > 2000 {
        return Err(refused(reason::url_long()));
    }
    let uri: axum::http::Uri = url.parse().map_err(|_| refused(reason::url_malformed()))?;
    let permits_private = app.settings.webhooks_to_private;
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "https" && !(permits_private && scheme == "http") {
        return Err(refused(reason::url_scheme()));
    }
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    if authority.contains('@') {
        return Err(refused(reason::url_with_user()));
    }
    let host = uri.host().unwrap_or_default();
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<std::net::IpAddr> = literal.parse().ok();
    let is_private =
        address.is_some_and(|address| !is_public(address)) || host.eq_ignore_ascii_case("localhost");
    if host.is_empty() || is_private && !permits_private {
        return Err(refused(reason::url_private(host)));
    }
    Ok(())
}

/// Add a webhook: events that the caller may know of are signed and sent to a URL
#[utoipa::path(post, path = "/api/v1/webhooks", tag = "webhooks", request_body = NewWebhook,
    responses((status = 201, body = CreatedWebhook), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    mark: RequestMark,
    Body(given): Body<NewWebhook>,
) -> Result<(StatusCode, Json<CreatedWebhook>), Problem> {
    let (Some(user), Some(account)) = (principal.actor.user, principal.actor.account) else {
        return Err(Problem::new(ProblemKind::Unauthorized, "there is no session"));
    };
    if !principal.may(OperationKind::WriteWebhook, account) {
        return Err(Problem::because(ProblemKind::Forbidden, reason::forbidden()).with_code("forbidden"));
    }
    check_url(&app, &given.url)?;
    let own = all(&app, &principal).filter(|(_, _, of)| *of == account);
    if own.count() >= WEBHOOKS_MAX {
        return Err(Problem::because(
            ProblemKind::Conflict,
            reason::webhooks_full(WEBHOOKS_MAX),
        ));
    }
    let failed = |error: &dyn std::fmt::Display| Problem::new(ProblemKind::Internal, error.to_string());
    let secret = random::<24>().map_err(|error| failed(&error))?;
    let webhook = Webhook {
        user,
        url: given.url,
        sealed: app
            .sealer
            .seal(PURPOSE, &secret)
            .map_err(|error| failed(&error))?,
        created: app.now(),
        disabled: None,
    };
    app.record(
        &principal.audit_name(),
        "create_webhook",
        account,
        json!({ "url": webhook.url }),
    )
    .await?;
    let id = app.records.create(&webhook, &mark).await?;
    app.webhooks
        .start(&app, &id, webhook.clone(), app.events.newest());
    Ok((
        StatusCode::CREATED,
        Json(CreatedWebhook {
            webhook: view(&app, id, &webhook),
            secret: format!("whsec_{}", STANDARD.encode(secret)),
        }),
    ))
}

/// Delete a webhook
#[utoipa::path(delete, path = "/api/v1/webhooks/{id}", tag = "webhooks", params(("id" = String, Path, description = "The webhook")),
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (_, account) = find(&app, &principal, &id)?;
    require(&principal, account)?;
    app.record(&principal.audit_name(), "delete_webhook", &id, json!({}))
        .await?;
    app.webhooks.stop(&id);
    app.records.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn require(principal: &Principal, account: AccountId) -> Result<(), Problem> {
    if principal.may(OperationKind::WriteWebhook, account) {
        return Ok(());
    }
    Err(Problem::because(ProblemKind::Forbidden, reason::forbidden()).with_code("forbidden"))
}

/// Read the last deliveries of a webhook, newest first
#[utoipa::path(get, path = "/api/v1/webhooks/{id}/deliveries", tag = "webhooks", params(("id" = String, Path, description = "The webhook")),
    responses((status = 200, body = Vec<Delivery>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn deliveries(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<Vec<Delivery>>, Problem> {
    find(&app, &principal, &id)?;
    Ok(Json(app.webhooks.deliveries(&id)))
}

/// The position from which events are sent again.
#[derive(Deserialize, ToSchema)]
pub(crate) struct Replay {
    /// The serial number of the last event that is not sent again; 0 for all stored events.
    after: u64,
}

/// Send events again, also by a webhook that is disabled; a delivery in progress is cancelled
#[utoipa::path(post, path = "/api/v1/webhooks/{id}/replay", tag = "webhooks", request_body = Replay, params(("id" = String, Path, description = "The webhook")),
    responses((status = 202), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn replay(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<Replay>,
) -> Result<StatusCode, Problem> {
    let (mut webhook, account) = find(&app, &principal, &id)?;
    require(&principal, account)?;
    let oldest = app.events.oldest();
    let after = given.after.max(oldest.saturating_sub(1)).min(app.events.newest());
    app.record(
        &principal.audit_name(),
        "replay_webhook",
        &id,
        json!({ "after": after }),
    )
    .await?;
    if webhook.disabled.take().is_some() {
        let enable = |webhook: &mut Webhook| {
            webhook.disabled = None;
            Ok::<(), Problem>(())
        };
        app.records.change(&id, enable).await?;
    }
    app.webhooks.start(&app, &id, webhook, after);
    Ok(StatusCode::ACCEPTED)
}
