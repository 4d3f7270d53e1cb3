//! Contacts of accounts with their roles. IX-API has the same contacts, and assigns roles by resources of their own.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use millrace_ix_model::{AccountId, OperationKind};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::access::Principal;
use crate::app::App;
use crate::idempotency::RequestMark;
use crate::problem::{Problem, ProblemKind};
use crate::render::ViewContext;
use crate::request::{Body, PageParams, Query};
use crate::v2::contacts::{AssignmentRequest, ContactRequest, ROLES, find, forget};
use crate::v2::orders::{check_room, require};
use crate::v2::view::Owned;
use crate::view::{AccountName, List};

/// The prefix of a role's identifier in IX-API: `role-noc`.
const ROLE_PREFIX: &str = "role-";

/// A contact: a person or a department of an account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccountContact)]
pub(crate) struct ContactView {
    /// The identifier.
    id: String,
    /// The account.
    account: AccountName,
    /// The name.
    #[schema(required)]
    name: Option<String>,
    /// The mail address.
    #[schema(required)]
    email: Option<String>,
    /// The telephone number (E.164).
    #[schema(required)]
    telephone: Option<String>,
    /// The roles: `abuse`, `billing`, `implementation`, `legal`, `noc`, `peering`.
    roles: Vec<String>,
    /// The operations that are permitted on it.
    can: Vec<String>,
}

/// A contact with its roles, new or changed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ContactOrder {
    /// The account; by default your own. The account of a contact does not change.
    #[serde(default)]
    account: Option<String>,
    /// The name.
    #[serde(default)]
    #[schema(max_length = 128)]
    name: Option<String>,
    /// The mail address.
    #[serde(default)]
    #[schema(max_length = 80)]
    email: Option<String>,
    /// The telephone number (E.164).
    #[serde(default)]
    #[schema(max_length = 40)]
    telephone: Option<String>,
    /// The roles. All but `legal` need a mail address, `noc` also a telephone number.
    roles: Vec<String>,
}

/// Returns the roles of a contact.
pub(crate) fn roles_of(app: &App, contact: &str) -> Vec<String> {
    let assignments = app.records.all::<AssignmentRequest>().into_iter();
    let own = assignments.filter(|(_, assignment)| assignment.contact == contact);
    let mut roles: Vec<String> = own
        .map(|(_, assignment)| assignment.role.trim_start_matches(ROLE_PREFIX).to_owned())
        .collect();
    roles.sort();
    roles.dedup();
    roles
}

/// Returns the mail addresses of an account's contacts with one of these roles.
pub(crate) fn addresses(app: &App, account: AccountId, roles: &[&str]) -> Vec<String> {
    let contacts = app.records.all::<ContactRequest>().into_iter();
    let own = contacts.filter(|(_, contact)| contact.account() == Some(account));
    let named = own.filter(|(id, _)| {
        roles_of(app, id)
            .iter()
            .any(|role| roles.contains(&role.as_str()))
    });
    named.filter_map(|(_, contact)| contact.email).collect()
}

fn view(
    app: &App,
    principal: &Principal,
    id: String,
    contact: ContactRequest,
    account: AccountId,
) -> ContactView {
    let can = principal.may(OperationKind::WriteContact, account);
    ContactView {
        roles: roles_of(app, &id),
        account: ViewContext::new(principal, app.now()).account_name(account),
        name: contact.name,
        email: contact.email,
        telephone: contact.telephone,
        can: can.then(|| "write_contact".to_owned()).into_iter().collect(),
        id,
    }
}

/// Refuses roles that do not exist, or whose properties the contact lacks.
pub(crate) fn check_roles(roles: &[String], contact: &ContactRequest) -> Result<(), Problem> {
    let fields = json!(contact);
    for role in roles {
        let found = ROLES.iter().find(|(name, _)| name == role);
        let Some((_, required)) = found else {
            let shown: String = role.chars().take(40).collect();
            let names = ROLES.map(|(name, _)| name).join(", ");
            let detail = format!("there is no role \"{shown}\": expected {names}");
            return Err(Problem::invalid("/roles", detail));
        };
        if let Some(missing) = required.iter().find(|field| !fields[**field].is_string()) {
            let detail = format!("a contact with the role {role} needs the property {missing}");
            let problem = Problem::new(ProblemKind::Invalid, detail).with_code("contact-incomplete");
            return Err(problem.with_error(format!("/{missing}"), "missing"));
        }
    }
    Ok(())
}

/// Makes the roles of a contact equal to the given ones.
pub(crate) async fn set_roles(
    app: &App,
    contact: &str,
    given: &[String],
    mark: &RequestMark,
) -> Result<(), Problem> {
    let present = roles_of(app, contact);
    for (id, assignment) in app.records.all::<AssignmentRequest>() {
        let role = assignment.role.trim_start_matches(ROLE_PREFIX);
        if assignment.contact == contact && !given.iter().any(|other| other == role) {
            app.records.delete(&id).await?;
        }
    }
    for role in given.iter().filter(|role| !present.contains(role)) {
        let assignment = AssignmentRequest {
            role: format!("{ROLE_PREFIX}{role}"),
            contact: contact.to_owned(),
        };
        // Several records of one request cannot share its mark.
        let unmarked = RequestMark {
            mark: None,
            now: mark.now,
        };
        app.records.create(&assignment, &unmarked).await?;
    }
    Ok(())
}

/// List contacts
#[utoipa::path(get, path = "/api/v1/contacts", tag = "accounts", params(PageParams),
    responses((status = 200, body = List<ContactView>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<PageParams>,
) -> Result<Json<List<ContactView>>, Problem> {
    principal.require(OperationKind::ReadContact)?;
    let readable = app.records.all::<ContactRequest>().into_iter();
    let readable = readable.filter_map(|(id, contact)| {
        let account = contact.account()?;
        let may = principal.may(OperationKind::ReadContact, account);
        may.then_some((id, contact, account))
    });
    params
        .records(
            readable.collect(),
            |(id, _, _)| id,
            |(id, contact, account)| view(&app, &principal, id, contact, account),
        )
        .map(Json)
}

/// Add a contact with its roles
#[utoipa::path(post, path = "/api/v1/contacts", tag = "accounts", request_body = ContactOrder,
    responses((status = 201, body = ContactView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    mark: RequestMark,
    Body(given): Body<ContactOrder>,
) -> Result<(StatusCode, Json<ContactView>), Problem> {
    let account = super::filters::account(&principal, given.account.as_deref(), "/account")?;
    require(&principal, OperationKind::WriteContact, account)?;
    let contact = ContactRequest {
        owned: Owned {
            managing_account: account.to_string(),
            consuming_account: account.to_string(),
            external_ref: None,
        },
        name: given.name.clone(),
        email: given.email.clone(),
        telephone: given.telephone.clone(),
    };
    contact.check()?;
    check_roles(&given.roles, &contact)?;
    check_room(&app, |other: &ContactRequest| other.account() == Some(account))?;
    app.record(
        &principal.audit_name(),
        "create_contact",
        account,
        json!({ "roles": given.roles }),
    )
    .await?;
    let id = app.records.create(&contact, &mark).await?;
    set_roles(&app, &id, &given.roles, &mark).await?;
    Ok((
        StatusCode::CREATED,
        Json(view(&app, &principal, id, contact, account)),
    ))
}

/// Replace a contact and its roles
#[utoipa::path(put, path = "/api/v1/contacts/{id}", tag = "accounts", request_body = ContactOrder, params(("id" = String, Path, description = "The contact")),
    responses((status = 200, body = ContactView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    State(app): State<App>,
    principal: Principal,
    mark: RequestMark,
    Path(id): Path<String>,
    Body(given): Body<ContactOrder>,
) -> Result<Json<ContactView>, Problem> {
    let (mut contact, account) = find(&app, &principal, &id)?;
    require(&principal, OperationKind::WriteContact, account)?;
    contact.name.clone_from(&given.name);
    contact.email.clone_from(&given.email);
    contact.telephone.clone_from(&given.telephone);
    contact.check()?;
    check_roles(&given.roles, &contact)?;
    app.record(
        &principal.audit_name(),
        "update_contact",
        &id,
        json!({ "roles": given.roles }),
    )
    .await?;
    app.records.put(&id, &contact).await?;
    set_roles(&app, &id, &given.roles, &mark).await?;
    Ok(Json(view(&app, &principal, id, contact, account)))
}

/// Delete a contact
#[utoipa::path(delete, path = "/api/v1/contacts/{id}", tag = "accounts", params(("id" = String, Path, description = "The contact")),
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let (_, account) = find(&app, &principal, &id)?;
    require(&principal, OperationKind::WriteContact, account)?;
    app.record(&principal.audit_name(), "delete_contact", &id, json!({}))
        .await?;
    forget(&app, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
