//! Orders for new accounts, users and connections.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use millrace_ix_model::{
    AccountId, AccountKind, ConnectionId, ConnectionKind, Operation, OperationKind, PortId, Role, UserId,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ends::order_object;
use super::links;
use super::orders::{expected_revision, order, order_about};
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{Body, Conditions, OrderParams};
use crate::view::Ordered;

/// Parses a word in the body as a value of the model.
fn parse<T: serde::de::DeserializeOwned>(word: &str, pointer: &str) -> Result<T, Problem> {
    serde_json::from_value(serde_json::Value::String(word.to_owned()))
        .map_err(|error| Problem::invalid(pointer, error))
}

/// A new account.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewAccount {
    /// The name.
    name: String,
    /// The kind: `exchange`, `reseller`, `member` or `authority`.
    kind: String,
    /// The account that manages the new account.
    #[serde(default)]
    parent: Option<String>,
    /// The AS numbers.
    #[serde(default)]
    asns: BTreeSet<u32>,
    /// True if other accounts may find the account.
    #[serde(default)]
    discoverable: bool,
}

/// Add an account
#[utoipa::path(post, path = "/api/v1/accounts", tag = "accounts", request_body = NewAccount, params(OrderParams,
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_account(
    State(app): State<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<NewAccount>,
) -> Result<Response, Problem> {
    let operation = Operation::CreateAccount {
        name: given.name.trim().to_owned(),
        kind: parse::<AccountKind>(&given.kind, "/kind")?,
        parent: given
            .parent
            .as_deref()
            .map(|text| parse::<AccountId>(text, "/parent"))
            .transpose()?,
        asns: given.asns.clone(),
        discoverable: given.discoverable,
        as_set: None,
        external_ref: None,
    };
    order(&app, &principal, &conditions, None, vec![(operation, "")], &given).await
}

/// Changes of an account; absent properties stay.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct AccountChange {
    /// The name. The staff or the account above changes it.
    #[serde(default)]
    name: Option<String>,
    /// True if other accounts may find the account.
    #[serde(default)]
    discoverable: Option<bool>,
}

/// Change an account; absent properties stay
#[utoipa::path(put, path = "/api/v1/accounts/{id}", tag = "accounts", request_body = AccountChange, params(OrderParams, ("id" = String, Path, description = "The account"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn update_account(
    State(app): State<App>,
    access: Access<AccountId>,
    conditions: Conditions,
    Body(given): Body<AccountChange>,
) -> Result<Response, Problem> {
    let operation = Operation::UpdateAccount {
        account: access.id(),
        name: given.name.as_deref().map(|name| name.trim().to_owned()),
        asns: None,
        discoverable: given.discoverable,
        as_set: None,
        limits: None,
    };
    order_object(&app, &access, &conditions, operation, &given).await
}

/// Delete an account that has nothing any more
#[utoipa::path(delete, path = "/api/v1/accounts/{id}", tag = "accounts", params(OrderParams, ("id" = String, Path, description = "The account"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_account(
    State(app): State<App>,
    access: Access<AccountId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let id = access.id();
    let target = id.into();
    let answer = order_object(&app, &access, &conditions, Operation::Delete { target }, &()).await?;
    if !app.snapshot().exchange.accounts.contains_key(&id) {
        crate::v2::contacts::forget_account(&app, id).await?;
    }
    Ok(answer)
}

/// The networks for which an account speaks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct AccountNetworks {
    /// The AS numbers. They replace the present ones.
    asns: BTreeSet<u32>,
    /// The AS-SET in a routing registry, such as `RIPE::AS-EXAMPLE` or `AS64500:AS-CUSTOMERS`; the present one stays if it is
    /// absent.
    #[serde(default)]
    as_set: Option<String>,
}

/// Replace the AS numbers and the AS-SET of an account
///
/// The exchange's staff may set all of them. Others may give numbers up, and may add the numbers of networks of which the
/// provider of their sign-in names them administrator. Their AS-SET must begin with one of the account's numbers.
#[utoipa::path(put, path = "/api/v1/accounts/{id}/networks", tag = "accounts", request_body = AccountNetworks, params(OrderParams, ("id" = String, Path, description = "The account"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn set_networks(
    State(app): State<App>,
    access: Access<AccountId>,
    conditions: Conditions,
    Body(given): Body<AccountNetworks>,
) -> Result<Response, Problem> {
    access.require(OperationKind::UpdateAccount)?;
    let expected = expected_revision(&access, &conditions)?;
    let operation = Operation::UpdateAccount {
        account: access.id(),
        name: None,
        asns: Some(given.asns.clone()),
        discoverable: None,
        as_set: given.as_set.clone(),
        limits: None,
    };
    order_about(
        &app,
        &access,
        &conditions,
        expected,
        vec![(operation, "")],
        &given,
    )
    .await
}

/// A new user.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewUser {
    /// The name that the user signs in with.
    name: String,
    /// The account; by default your own.
    #[serde(default)]
    account: Option<String>,
    /// The roles.
    roles: Vec<String>,
    /// The mail address.
    #[serde(default)]
    email: Option<String>,
    /// The language of pages and mails: `en`, `ja` or `ko`.
    #[serde(default)]
    language: Option<String>,
}

/// Add a user
#[utoipa::path(post, path = "/api/v1/users", tag = "accounts", request_body = NewUser, params(OrderParams,
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_user(
    State(app): State<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<NewUser>,
) -> Result<Response, Problem> {
    let roles = given
        .roles
        .iter()
        .map(|role| parse::<Role>(role, "/roles"))
        .collect::<Result<BTreeSet<_>, _>>()?;
    let operation = Operation::CreateUser {
        name: given.name.trim().to_owned(),
        account: given
            .account
            .as_deref()
            .map(|text| parse::<AccountId>(text, "/account"))
            .transpose()?,
        roles,
        email: given.email.clone(),
        language: given.language.clone(),
    };
    order(&app, &principal, &conditions, None, vec![(operation, "")], &given).await
}

/// Changes of a user; absent properties stay.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct UserUpdate {
    /// The roles.
    #[serde(default)]
    roles: Option<Vec<String>>,
    /// The mail address.
    #[serde(default)]
    email: Option<String>,
    /// The language of pages and mails: `en`, `ja` or `ko`.
    #[serde(default)]
    language: Option<String>,
    /// True to keep the user from signing in: the user's sessions and links in letters end, and API keys permit nothing meanwhile.
    #[serde(default)]
    deactivated: Option<bool>,
}

/// Change a user, deactivate or activate a user; absent properties stay
///
/// Nobody deactivates the own user.
#[utoipa::path(put, path = "/api/v1/users/{id}", tag = "accounts", request_body = UserUpdate, params(OrderParams, ("id" = String, Path, description = "The user"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn update_user(
    State(app): State<App>,
    access: Access<UserId>,
    conditions: Conditions,
    Body(given): Body<UserUpdate>,
) -> Result<Response, Problem> {
    let roles = given.roles.as_ref().map(|roles| {
        let parsed = roles.iter().map(|role| parse::<Role>(role, "/roles"));
        parsed.collect::<Result<BTreeSet<_>, _>>()
    });
    let operation = Operation::UpdateUser {
        user: access.id(),
        roles: roles.transpose()?,
        email: given.email.clone(),
        language: given.language.clone(),
        deactivated: given.deactivated,
    };
    // A hidden user can only be the object of a repeated order, which changes nothing more.
    let before = access.object().ok().cloned();
    let answer = order_object(&app, &access, &conditions, operation, &given).await?;
    if let Some(before) = before.filter(|_| !conditions.dry_run) {
        let snapshot = app.snapshot();
        let after = snapshot.exchange.users.get(&access.id());
        if after.is_some_and(|after| after.email != before.email) {
            links::tell_of_new_address(&app, access.id(), &before).await;
        }
        if after.is_none_or(|after| after.deactivated) {
            forget(&app, access.id()).await;
        }
    }
    Ok(answer)
}

/// Removes the sessions of a user and the links in letters. They permit nothing while the user is deactivated or removed, and are
/// not there again when the user is activated.
async fn forget(app: &App, id: UserId) {
    let ended = async {
        app.sessions.end_all(id).await?;
        links::forget_user(app, id).await
    };
    if let Err(error) = ended.await {
        tracing::warn!(%error, "the sessions and links of a user stay in the store until they are over");
    }
}

/// Remove a user, who is signed out at once
///
/// An administrator of the account may remove its users, and one of the exchange all users. The audit log keeps what the
/// user has done.
#[utoipa::path(delete, path = "/api/v1/users/{id}", tag = "accounts", params(OrderParams, ("id" = String, Path, description = "The user"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_user(
    State(app): State<App>,
    access: Access<UserId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let id = access.id();
    let target = id.into();
    let answer = order_object(&app, &access, &conditions, Operation::Delete { target }, &()).await?;
    if !app.snapshot().exchange.users.contains_key(&id) {
        forget(&app, id).await;
    }
    Ok(answer)
}

/// A new connection.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewConnection {
    /// The account that uses the connection.
    account: String,
    /// The name.
    name: String,
    /// The kind: `standalone`, `lag_static` or `lag_lacp`.
    kind: String,
    /// The ports, such as `sw-1:3`.
    ports: Vec<String>,
}

/// Add a connection
#[utoipa::path(post, path = "/api/v1/connections", tag = "connections", request_body = NewConnection, params(OrderParams,
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create_connection(
    State(app): State<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<NewConnection>,
) -> Result<Response, Problem> {
    let ports = given
        .ports
        .iter()
        .map(|port| parse::<PortId>(port, "/ports"))
        .collect::<Result<Vec<_>, _>>()?;
    let operation = Operation::CreateConnection {
        account: Some(parse::<AccountId>(&given.account, "/account")?),
        name: given.name.trim().to_owned(),
        kind: parse::<ConnectionKind>(&given.kind, "/kind")?,
        ports,
        external_ref: None,
    };
    order(&app, &principal, &conditions, None, vec![(operation, "")], &given).await
}

/// Delete a connection without services
#[utoipa::path(delete, path = "/api/v1/connections/{id}", tag = "connections", params(OrderParams, ("id" = String, Path, description = "The connection"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete_connection(
    State(app): State<App>,
    access: Access<ConnectionId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let target = access.id().into();
    order_object(&app, &access, &conditions, Operation::Delete { target }, &()).await
}
