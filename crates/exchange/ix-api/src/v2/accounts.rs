//! The collection `accounts` of IX-API.

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use millrace_ix_model::{AccountId, AccountKind, Exchange, Key as _, Operation, OperationKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::orders::{check_reference, created, ix_api_properties, order, put_properties, renewed};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::view::{self, Address, BillingInformation, State, Stateful, check_text, invalid, nullable};
use crate::access::{Access, Principal};
use crate::app::App;
use crate::problem::Problem;
use crate::request::{Body, Conditions};

/// An account. Only identifier, name and presence are shown of a discoverable account that the caller may
/// not read.
#[derive(Serialize, ToSchema)]
#[schema(as = IxAccount)]
pub(crate) struct Account {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    stateful: Stateful,
    /// The name.
    name: String,
    /// The account that manages this one.
    managing_account: Option<String>,
    /// The legal name, if it differs.
    legal_name: Option<String>,
    /// The address.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<Address>,
    /// The recipient of invoices.
    #[serde(skip_serializing_if = "Option::is_none")]
    billing_information: Option<BillingInformation>,
    /// The reference of the orderer.
    external_ref: Option<String>,
    /// True if other accounts find this one.
    discoverable: bool,
    /// The metro area networks in which the account is present.
    metro_area_network_presence: Vec<String>,
}

fn view(app: &App, principal: &Principal, id: AccountId, account: &millrace_ix_model::Account) -> Account {
    let full = principal.may_read(id);
    let properties = ix_api_properties(app, id);
    let external_ref = properties
        .reference(account.external_ref.as_ref())
        .filter(|_| full);
    Account {
        id: id.to_string(),
        stateful: Stateful::plain(State::Production),
        name: account.name.clone(),
        managing_account: account.parent.filter(|_| full).map(|parent| parent.to_string()),
        legal_name: properties.legal_name.filter(|_| full),
        address: properties.address.filter(|_| full),
        billing_information: properties.billing_information.filter(|_| full),
        external_ref,
        discoverable: account.discoverable,
        metro_area_network_presence: properties.presence,
    }
}

fn view_of(app: &App, principal: &Principal, id: AccountId) -> Result<Json<Account>, Problem> {
    let found = id
        .stored(&principal.snapshot.exchange)
        .ok_or_else(|| Problem::absent(id))?;
    Ok(Json(view(app, principal, id, found)))
}

/// List accounts: the caller's account, the accounts below it, and discoverable accounts
#[utoipa::path(get, path = "/api/v2/accounts", tag = "accounts", operation_id = "accounts_list", params(FilterParams),
    responses((status = 200, body = Vec<Account>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = principal.snapshot.exchange.accounts.iter();
    let seen = all.filter(|(id, account)| {
        let is_public = account.discoverable && account.kind != AccountKind::Authority;
        principal.may_read(**id) || is_public && principal.may_somewhere(OperationKind::ReadPresence)
    });
    let mut seen: Vec<Account> = seen
        .map(|(id, account)| view(&app, &principal, *id, account))
        .collect();
    if let Some(billable) = filters.flag("billable")? {
        seen.retain(|account| account.billing_information.is_some() == billable);
    }
    filters.list(seen)
}

/// Read the caller's account
#[utoipa::path(get, path = "/api/v2/account", tag = "accounts", operation_id = "account_read",
    responses((status = 200, body = Account), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn own(Shared(app): Shared<App>, principal: Principal) -> Result<Json<Account>, Problem> {
    let id = principal
        .actor
        .account
        .ok_or_else(|| Problem::absent("account"))?;
    view_of(&app, &principal, id)
}

/// Read an account
#[utoipa::path(get, path = "/api/v2/accounts/{id}", tag = "accounts", operation_id = "accounts_read", params(("id" = String, Path, description = "The account")),
    responses((status = 200, body = Account), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    Shared(app): Shared<App>,
    access: Access<AccountId>,
) -> Result<Json<Account>, Problem> {
    view_of(&app, access.principal(), access.id())
}

/// A new account.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AccountRequest {
    /// The name.
    #[schema(max_length = 80)]
    name: String,
    /// The account that manages it: a reseller; null for an account of the exchange itself.
    #[serde(default)]
    managing_account: Option<String>,
    /// The legal name.
    #[serde(default)]
    legal_name: Option<String>,
    /// The address.
    address: Address,
    /// The recipient of invoices.
    #[serde(default)]
    billing_information: Option<BillingInformation>,
    /// The reference of the orderer.
    #[serde(default)]
    external_ref: Option<String>,
    /// True if other accounts may find it.
    #[serde(default)]
    discoverable: bool,
    /// The metro area networks in which the account is present.
    #[serde(default)]
    metro_area_network_presence: Vec<String>,
}

/// Returns the accounts below an account, or those below none, with the references of their orders.
fn siblings(
    exchange: &Exchange,
    parent: Option<AccountId>,
) -> impl Iterator<Item = (AccountId, Option<&String>)> {
    let all = exchange.accounts.iter();
    let own = all.filter(move |(_, found)| found.parent == parent);
    own.map(|(id, found)| (*id, found.external_ref.as_ref()))
}

/// Add an account
#[utoipa::path(post, path = "/api/v2/accounts", tag = "accounts", operation_id = "accounts_create", request_body = AccountRequest,
    responses((status = 201, body = Account), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    Shared(app): Shared<App>,
    principal: Principal,
    conditions: Conditions,
    Body(given): Body<AccountRequest>,
) -> Result<(StatusCode, Json<Account>), Problem> {
    check_text("name", &given.name, 80)?;
    check_text(
        "external_ref",
        given.external_ref.as_deref().unwrap_or_default(),
        80,
    )?;
    given.address.check("address")?;
    if let Some(billing) = &given.billing_information {
        billing.check("billing_information")?;
    }
    let parent = match &given.managing_account {
        Some(text) => Some(view::account(&principal, "managing_account", text)?),
        None => None,
    };
    // The exchange's account is no parent: accounts that its staff create have no managing account.
    let is_staff = principal.actor.is_operator() && parent == principal.actor.account;
    let parent = parent.filter(|_| !is_staff);
    let others = siblings(&principal.snapshot.exchange, parent).map(|(other, _)| (other, None));
    check_reference(&app, given.external_ref.as_ref(), others)?;
    let operation = Operation::CreateAccount {
        name: given.name.trim().to_owned(),
        kind: AccountKind::Member,
        parent,
        asns: std::collections::BTreeSet::new(),
        discoverable: given.discoverable,
        as_set: None,
        external_ref: given.external_ref.clone(),
    };
    let applied = order(&app, &principal, &conditions, vec![operation], &given).await?;
    let id: AccountId = created(&applied)?;
    let mut facts = ix_api_properties(&app, id);
    facts.legal_name = given.legal_name;
    facts.address = Some(given.address);
    facts.billing_information = given.billing_information;
    facts.presence = given.metro_area_network_presence;
    put_properties(&app, &principal, id, &facts).await?;
    Ok((
        StatusCode::CREATED,
        view_of(&app, &renewed(&app, &principal), id)?,
    ))
}

/// Changes of an account; absent properties stay.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct AccountUpdate {
    /// The name.
    #[serde(default)]
    #[schema(max_length = 80)]
    name: Option<String>,
    /// The account that manages it, which cannot change.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    managing_account: Option<Option<String>>,
    /// The reference of the orderer, unique among the accounts of the managing account.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>, max_length = 128)]
    external_ref: Option<Option<String>>,
    /// The legal name.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    legal_name: Option<Option<String>>,
    /// The address.
    #[serde(default)]
    address: Option<Address>,
    /// The recipient of invoices.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<BillingInformation>)]
    billing_information: Option<Option<BillingInformation>>,
    /// True if other accounts may find it.
    #[serde(default)]
    discoverable: Option<bool>,
    /// The metro area networks in which the account is present.
    #[serde(default)]
    metro_area_network_presence: Option<Vec<String>>,
}

async fn change(
    app: &App,
    access: &Access<AccountId>,
    conditions: &Conditions,
    given: AccountUpdate,
) -> Result<Json<Account>, Problem> {
    let (id, principal) = (access.id(), access.principal());
    access.require(OperationKind::UpdateAccount)?;
    let account = access.object()?;
    if let Some(managing) = &given.managing_account
        && *managing != account.parent.map(|parent| parent.to_string())
    {
        return Err(invalid(
            "managing_account",
            "the managing account of an account cannot change",
        ));
    }
    check_text("name", given.name.as_deref().unwrap_or_default(), 80)?;
    if let Some(address) = &given.address {
        address.check("address")?;
    }
    if let Some(Some(billing)) = &given.billing_information {
        billing.check("billing_information")?;
    }
    if let Some(reference) = &given.external_ref {
        let others = siblings(&principal.snapshot.exchange, account.parent);
        check_reference(app, reference.as_ref(), others.filter(|(other, _)| *other != id))?;
    }
    let mut facts = ix_api_properties(app, id);
    if given.name.is_some() || given.discoverable.is_some() {
        let operation = Operation::UpdateAccount {
            account: id,
            name: given.name.as_deref().map(|name| name.trim().to_owned()),
            asns: None,
            discoverable: given.discoverable,
            as_set: None,
            limits: None,
        };
        order(app, principal, conditions, vec![operation], &given).await?;
    }
    if let Some(reference) = given.external_ref {
        facts.external_ref = Some(reference.unwrap_or_default());
    }
    if let Some(legal_name) = given.legal_name {
        facts.legal_name = legal_name;
    }
    if given.address.is_some() {
        facts.address = given.address;
    }
    if let Some(billing) = given.billing_information {
        facts.billing_information = billing;
    }
    if let Some(presence) = given.metro_area_network_presence {
        facts.presence = presence;
    }
    put_properties(app, principal, id, &facts).await?;
    view_of(app, &renewed(app, principal), id)
}

/// Change an account
#[utoipa::path(patch, path = "/api/v2/accounts/{id}", tag = "accounts", operation_id = "accounts_partial_update", request_body = AccountUpdate, params(("id" = String, Path, description = "The account")),
    responses((status = 200, body = Account), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update(
    Shared(app): Shared<App>,
    access: Access<AccountId>,
    conditions: Conditions,
    Body(given): Body<AccountUpdate>,
) -> Result<Json<Account>, Problem> {
    change(&app, &access, &conditions, given).await
}

/// Change an account; absent properties stay
#[utoipa::path(put, path = "/api/v2/accounts/{id}", tag = "accounts", operation_id = "accounts_update", request_body = AccountUpdate, params(("id" = String, Path, description = "The account")),
    responses((status = 200, body = Account), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    Shared(app): Shared<App>,
    access: Access<AccountId>,
    conditions: Conditions,
    Body(given): Body<AccountUpdate>,
) -> Result<Json<Account>, Problem> {
    change(&app, &access, &conditions, given).await
}

/// Delete an account that nothing refers to
#[utoipa::path(delete, path = "/api/v2/accounts/{id}", tag = "accounts", operation_id = "accounts_destroy", params(("id" = String, Path, description = "The account")),
    responses((status = 200, body = Account), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    Shared(app): Shared<App>,
    access: Access<AccountId>,
    conditions: Conditions,
) -> Result<Json<Account>, Problem> {
    access.require(OperationKind::DeleteAccount)?;
    let id = access.id();
    let Json(mut gone) = view_of(&app, access.principal(), id)?;
    let target = id.into();
    order(
        &app,
        access.principal(),
        &conditions,
        vec![Operation::Delete { target }],
        &(),
    )
    .await?;
    gone.stateful = Stateful::plain(State::Decommissioned);
    super::contacts::forget_account(&app, id).await?;
    Ok(Json(gone))
}
