//! Contacts, the roles that they may have, and the assignments of roles.

use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use millrace_ix_model::{AccountId, OperationKind, is_mail_address};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::orders::{check_room, require};
use super::problem::IxProblem;
use super::query::{FilterParams, Filters};
use super::records::Record;
use super::view::{Owned, OwnedUpdate, check_text, invalid, nullable};
use crate::access::Principal;
use crate::app::App;
use crate::idempotency::RequestMark;
use crate::problem::Problem;
use crate::request::Body;

/// The roles of contacts, with the properties that a contact with the role must have.
pub(crate) const ROLES: [(&str, &[&str]); 6] = [
    ("abuse", &["name", "email"]),
    ("billing", &["name", "email"]),
    ("implementation", &["name", "email"]),
    ("legal", &["name"]),
    ("noc", &["name", "email", "telephone"]),
    ("peering", &["name", "email"]),
];

/// A new contact: a person or a department of an account.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ContactRequest {
    #[serde(flatten)]
    pub(crate) owned: Owned,
    /// The name.
    #[serde(default)]
    #[schema(max_length = 128)]
    pub(crate) name: Option<String>,
    /// The mail address.
    #[serde(default)]
    #[schema(max_length = 80)]
    pub(crate) email: Option<String>,
    /// The telephone number (E.164).
    #[serde(default)]
    #[schema(max_length = 40)]
    pub(crate) telephone: Option<String>,
}

impl Record for ContactRequest {
    const PREFIX: &'static str = "ct";
}

/// A contact.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Contact {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    contact: ContactRequest,
}

impl ContactRequest {
    pub(crate) fn account(&self) -> Option<AccountId> {
        self.owned.consuming_account.parse().ok()
    }

    pub(crate) fn check(&self) -> Result<(), Problem> {
        check_text("name", self.name.as_deref().unwrap_or_default(), 128)?;
        check_text("telephone", self.telephone.as_deref().unwrap_or_default(), 40)?;
        let email = self.email.as_deref().unwrap_or("noc@example.net");
        check_text("email", email, 80)?;
        if !is_mail_address(email) {
            return Err(invalid(
                "email",
                "expected a mail address, such as noc@example.net",
            ));
        }
        Ok(())
    }
}

/// Returns a contact that the principal may read, with its account.
pub(crate) fn find(
    app: &App,
    principal: &Principal,
    id: &str,
) -> Result<(ContactRequest, AccountId), Problem> {
    let found: Option<ContactRequest> = app.records.find(id);
    found
        .and_then(|contact| Some((contact.account()?, contact)))
        .filter(|(account, _)| principal.may(OperationKind::ReadContact, *account))
        .map(|(account, contact)| (contact, account))
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// List contacts
#[utoipa::path(get, path = "/api/v2/contacts", tag = "contacts", operation_id = "contacts_list", params(FilterParams),
    responses((status = 200, body = Vec<Contact>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = app.records.all::<ContactRequest>().into_iter();
    let seen = all.filter(|(_, contact)| {
        contact
            .account()
            .is_some_and(|account| principal.may(OperationKind::ReadContact, account))
    });
    filters.list(seen.map(|(id, contact)| Contact { id, contact }).collect())
}

/// Read a contact
#[utoipa::path(get, path = "/api/v2/contacts/{id}", tag = "contacts", operation_id = "contacts_read", params(("id" = String, Path, description = "The contact")),
    responses((status = 200, body = Contact), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<Contact>, Problem> {
    let (contact, _) = find(&app, &principal, &id)?;
    Ok(Json(Contact { id, contact }))
}

/// Add a contact
#[utoipa::path(post, path = "/api/v2/contacts", tag = "contacts", operation_id = "contacts_create", request_body = ContactRequest,
    responses((status = 201, body = Contact), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    Shared(app): Shared<App>,
    principal: Principal,
    mark: RequestMark,
    Body(contact): Body<ContactRequest>,
) -> Result<(StatusCode, Json<Contact>), Problem> {
    let account = contact.owned.check(&principal)?;
    contact.check()?;
    require(&principal, OperationKind::WriteContact, account)?;
    check_room(&app, |other: &ContactRequest| other.account() == Some(account))?;
    app.record(&principal.audit_name(), "create_contact", account, json!({}))
        .await?;
    let id = app.records.create(&contact, &mark).await?;
    Ok((StatusCode::CREATED, Json(Contact { id, contact })))
}

/// Changes of a contact; absent properties stay.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ContactUpdate {
    #[serde(flatten)]
    owned: OwnedUpdate,
    /// The name.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    name: Option<Option<String>>,
    /// The mail address.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    email: Option<Option<String>>,
    /// The telephone number.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<String>)]
    telephone: Option<Option<String>>,
}

async fn change(
    app: &App,
    principal: &Principal,
    id: String,
    given: ContactUpdate,
) -> Result<Json<Contact>, Problem> {
    let (mut contact, account) = find(app, principal, &id)?;
    require(principal, OperationKind::WriteContact, account)?;
    given.owned.apply(&mut contact.owned)?;
    if let Some(name) = given.name {
        contact.name = name;
    }
    if let Some(email) = given.email {
        contact.email = email;
    }
    if let Some(telephone) = given.telephone {
        contact.telephone = telephone;
    }
    contact.owned.check(principal)?;
    contact.check()?;
    app.record(&principal.audit_name(), "update_contact", &id, json!({}))
        .await?;
    app.records.put(&id, &contact).await?;
    Ok(Json(Contact { id, contact }))
}

/// Change a contact
#[utoipa::path(patch, path = "/api/v2/contacts/{id}", tag = "contacts", operation_id = "contacts_partial_update", request_body = ContactUpdate, params(("id" = String, Path, description = "The contact")),
    responses((status = 200, body = Contact), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn update(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<ContactUpdate>,
) -> Result<Json<Contact>, Problem> {
    change(&app, &principal, id, given).await
}

/// Change a contact; absent properties stay
#[utoipa::path(put, path = "/api/v2/contacts/{id}", tag = "contacts", operation_id = "contacts_update", request_body = ContactUpdate, params(("id" = String, Path, description = "The contact")),
    responses((status = 200, body = Contact), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<ContactUpdate>,
) -> Result<Json<Contact>, Problem> {
    change(&app, &principal, id, given).await
}

/// Delete a contact and its assignments
#[utoipa::path(delete, path = "/api/v2/contacts/{id}", tag = "contacts", operation_id = "contacts_destroy", params(("id" = String, Path, description = "The contact")),
    responses((status = 200, body = Contact), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<Contact>, Problem> {
    let (contact, account) = find(&app, &principal, &id)?;
    require(&principal, OperationKind::WriteContact, account)?;
    app.record(&principal.audit_name(), "delete_contact", &id, json!({}))
        .await?;
    forget(&app, &id).await?;
    Ok(Json(Contact { id, contact }))
}

/// Removes a contact and its assignments.
pub(crate) async fn forget(app: &App, id: &str) -> Result<(), Problem> {
    for (assignment, found) in app.records.all::<AssignmentRequest>() {
        if found.contact == id {
            app.records.delete(&assignment).await?;
        }
    }
    Ok(app.records.delete(id).await?)
}

/// Removes the contacts of an account that is deleted.
pub(crate) async fn forget_account(app: &App, account: AccountId) -> Result<(), Problem> {
    for (id, contact) in app.records.all::<ContactRequest>() {
        if contact.account() == Some(account) {
            forget(app, &id).await?;
        }
    }
    Ok(())
}

/// A role that contacts may have.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Role {
    /// The identifier.
    id: String,
    /// The name.
    name: String,
    /// The properties that a contact with the role must have.
    required_fields: Vec<String>,
}

fn all_roles() -> Vec<Role> {
    let roles = ROLES.iter().map(|(name, fields)| Role {
        id: format!("role-{name}"),
        name: (*name).to_owned(),
        required_fields: fields.iter().map(|field| (*field).to_owned()).collect(),
    });
    roles.collect()
}

/// List the roles of contacts
#[utoipa::path(get, path = "/api/v2/roles", tag = "roles", operation_id = "roles_list", params(FilterParams),
    responses((status = 200, body = Vec<Role>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn roles(_: Principal, filters: Filters) -> Result<Json<Vec<Value>>, Problem> {
    filters.list(all_roles())
}

/// Read a role of contacts
#[utoipa::path(get, path = "/api/v2/roles/{id}", tag = "roles", operation_id = "roles_read", params(("id" = String, Path, description = "The role")),
    responses((status = 200, body = Role), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn role(_: Principal, Path(id): Path<String>) -> Result<Json<Role>, Problem> {
    let found = all_roles().into_iter().find(|role| role.id == id);
    found
        .map(Json)
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// A new assignment of a role to a contact.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct AssignmentRequest {
    /// The role.
    pub(crate) role: String,
    /// The contact.
    pub(crate) contact: String,
}

impl Record for AssignmentRequest {
    const PREFIX: &'static str = "ra";
}

/// An assignment of a role to a contact.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RoleAssignment {
    /// The identifier.
    id: String,
    #[serde(flatten)]
    assignment: AssignmentRequest,
}

/// Returns an assignment that the principal may read.
fn find_assignment(app: &App, principal: &Principal, id: &str) -> Result<AssignmentRequest, Problem> {
    let found: Option<AssignmentRequest> = app.records.find(id);
    found
        .filter(|assignment| find(app, principal, &assignment.contact).is_ok())
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// Refuses assignments that the principal cannot read.
pub(crate) fn check_assignments(app: &App, principal: &Principal, ids: &[String]) -> Result<(), Problem> {
    for id in ids {
        find_assignment(app, principal, id)
            .map_err(|problem| invalid("role_assignments", problem.detail.to_string()))?;
    }
    Ok(())
}

/// List assignments of roles
#[utoipa::path(get, path = "/api/v2/role-assignments", tag = "role-assignments", operation_id = "role_assignments_list", params(FilterParams),
    responses((status = 200, body = Vec<RoleAssignment>), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn assignments(
    Shared(app): Shared<App>,
    principal: Principal,
    filters: Filters,
) -> Result<Json<Vec<Value>>, Problem> {
    let all = app.records.all::<AssignmentRequest>().into_iter();
    let seen = all.filter(|(_, assignment)| find(&app, &principal, &assignment.contact).is_ok());
    filters.list(
        seen.map(|(id, assignment)| RoleAssignment { id, assignment })
            .collect(),
    )
}

/// Read an assignment of a role
#[utoipa::path(get, path = "/api/v2/role-assignments/{id}", tag = "role-assignments", operation_id = "role_assignments_read", params(("id" = String, Path, description = "The assignment")),
    responses((status = 200, body = RoleAssignment), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn assignment(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<RoleAssignment>, Problem> {
    let assignment = find_assignment(&app, &principal, &id)?;
    Ok(Json(RoleAssignment { id, assignment }))
}

/// Assign a role to a contact
#[utoipa::path(post, path = "/api/v2/role-assignments", tag = "role-assignments", operation_id = "role_assignments_create", request_body = AssignmentRequest,
    responses((status = 201, body = RoleAssignment), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn assign(
    Shared(app): Shared<App>,
    principal: Principal,
    mark: RequestMark,
    Body(assignment): Body<AssignmentRequest>,
) -> Result<(StatusCode, Json<RoleAssignment>), Problem> {
    let (contact, account) = find(&app, &principal, &assignment.contact)
        .map_err(|problem| invalid("contact", problem.detail.to_string()))?;
    require(&principal, OperationKind::WriteContact, account)?;
    let role = all_roles().into_iter().find(|role| role.id == assignment.role);
    let role = role.ok_or_else(|| invalid("role", "there is no such role: see /api/v2/roles"))?;
    let fields = json!(contact);
    if let Some(missing) = role
        .required_fields
        .iter()
        .find(|field| !fields[field].is_string())
    {
        let detail = format!(
            "a contact with the role {} needs the property {missing}",
            role.name
        );
        return Err(invalid("contact", detail));
    }
    check_room(&app, |other: &AssignmentRequest| {
        other.contact == assignment.contact
    })?;
    app.record(
        &principal.audit_name(),
        "assign_role",
        &assignment.contact,
        json!({ "role": role.name }),
    )
    .await?;
    let id = app.records.create(&assignment, &mark).await?;
    Ok((StatusCode::CREATED, Json(RoleAssignment { id, assignment })))
}

/// Remove the assignment of a role to a contact
#[utoipa::path(delete, path = "/api/v2/role-assignments/{id}", tag = "role-assignments", operation_id = "role_assignments_destroy", params(("id" = String, Path, description = "The assignment")),
    responses((status = 200, body = RoleAssignment), (status = "default", body = IxProblem, content_type = "application/problem+json")))]
pub(crate) async fn unassign(
    Shared(app): Shared<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<RoleAssignment>, Problem> {
    let assignment = find_assignment(&app, &principal, &id)?;
    let (_, account) = find(&app, &principal, &assignment.contact)?;
    require(&principal, OperationKind::WriteContact, account)?;
    app.record(&principal.audit_name(), "unassign_role", &id, json!({}))
        .await?;
    app.records.delete(&id).await?;
    Ok(Json(RoleAssignment { id, assignment }))
}
