//! Orders of cross-connects and their letters of authorisation.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Json;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{AccountId, ConnectionId, OperationKind, SiteId, Timestamp, UserId, reason};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::filters::account;
use super::session::{busy, client};
use crate::access::Principal;
use crate::app::App;
use crate::cross_connects::{
    Authorisation, CrossConnect, CrossConnectState, LetterFacts, Made, Step, letter as letter_text,
};
use crate::idempotency::RequestMark;
use crate::problem::{Problem, ProblemKind};
use crate::render::ViewContext;
use crate::request::{Body, PageParams, Query, one_line};
use crate::session::{fingerprint, random};
use crate::v2::orders::{check_room, require};
use crate::view::{AccountName, List};

/// The largest number of characters of a text in an order.
const TEXT_MAX: usize = 200;
/// The validity of a letter without another end.
const VALID_FOR: Duration = Duration::from_secs(30 * 86_400);
/// The longest validity of a letter.
const VALID_MAX: Duration = Duration::from_secs(366 * 86_400);

/// An order of a cross-connect.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CrossConnect)]
pub(crate) struct CrossConnectView {
    /// The identifier.
    id: String,
    /// The number of the order, for people.
    number: String,
    /// The account.
    account: AccountName,
    /// The name of the site.
    site: String,
    /// The name of the connection; null before there is one.
    #[schema(required)]
    connection: Option<String>,
    /// The member's side: cage, rack, panel and position.
    member_side: String,
    /// The medium.
    medium: String,
    /// The number of the order at the data centre.
    #[schema(required)]
    order_number: Option<String>,
    /// The state.
    state: CrossConnectState,
    /// The letter; null before it is issued.
    #[schema(required)]
    letter: Option<LetterView>,
    /// The steps, oldest first.
    history: Vec<MadeView>,
    /// The steps that the reader may make now.
    steps: Vec<Step>,
}

/// A letter of authorisation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LetterView {
    /// The code by which the data centre verifies the letter.
    code: String,
    /// The exchange's side: rack, panel and position.
    demarcation: String,
    /// The time of issue.
    issued: String,
    /// The end of validity.
    valid_until: String,
}

/// A step that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MadeView {
    /// The state after it.
    state: CrossConnectState,
    /// The time of the step.
    at: String,
    /// The name of the person, for people of the same account and the staff; otherwise the name of the exchange.
    by: String,
    /// A note in words.
    #[schema(required)]
    note: Option<String>,
}

fn view(app: &App, principal: &Principal, id: String, order: &CrossConnect) -> CrossConnectView {
    let exchange = &principal.snapshot.exchange;
    let now = app.now();
    let state = order.state(now);
    let may = |step: &Step| step.after(state).is_some() && principal.may(step_kind(*step), order.account);
    CrossConnectView {
        number: number(&id),
        account: ViewContext::new(principal, now).account_name(order.account),
        site: exchange
            .sites
            .get(&order.site)
            .map(|site| site.name.clone())
            .unwrap_or_default(),
        connection: order
            .connection
            .and_then(|id| Some(exchange.connections.get(&id)?.name.clone())),
        member_side: order.member_side.clone(),
        medium: order.medium.clone(),
        order_number: order.order_number.clone(),
        state,
        letter: order.letter.as_ref().map(|letter| LetterView {
            code: letter.code.clone(),
            demarcation: letter.demarcation.clone(),
            issued: letter.issued.to_string(),
            valid_until: letter.valid_until.to_string(),
        }),
        history: order
            .history
            .iter()
            .map(|made| MadeView {
                state: made.state,
                at: made.at.to_string(),
                by: made
                    .by
                    .and_then(|user| own_person(principal, user))
                    .unwrap_or_else(|| app.settings.name.clone()),
                note: made.note.clone(),
            })
            .collect(),
        steps: Step::ALL.into_iter().filter(may).collect(),
        id,
    }
}

/// Returns the name of a person of the principal's accounts, or for the staff of all accounts.
fn own_person(principal: &Principal, user: UserId) -> Option<String> {
    let exchange = &principal.snapshot.exchange;
    let user = exchange.users.get(&user)?;
    let is_own = |own: AccountId| exchange.descendants(own).contains(&user.account);
    let is_seen = principal.actor.is_operator() || principal.actor.account.is_some_and(is_own);
    is_seen.then(|| user.name.clone())
}

/// Returns the number of an order, for people: `7` of `xc-7`.
fn number(id: &str) -> String {
    id.rsplit('-').next().unwrap_or_default().to_owned()
}

/// Returns the row of the permission table for a step.
const fn step_kind(step: Step) -> OperationKind {
    if step.is_of_staff() {
        OperationKind::CreateConnection
    } else {
        OperationKind::OrderCrossConnect
    }
}

/// List orders of cross-connects
#[utoipa::path(get, path = "/api/v1/cross-connects", tag = "connections", params(PageParams),
    responses((status = 200, body = List<CrossConnectView>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<PageParams>,
) -> Result<Json<List<CrossConnectView>>, Problem> {
    principal.require(OperationKind::ReadConnection)?;
    let all = app.records.all::<CrossConnect>().into_iter();
    let own = all.filter(|(_, order)| principal.may(OperationKind::ReadConnection, order.account));
    params
        .records(
            own.collect(),
            |(id, _)| id,
            |(id, order)| view(&app, &principal, id, &order),
        )
        .map(Json)
}

/// A new order of a cross-connect.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NewCrossConnect {
    /// The account; by default your own.
    #[serde(default)]
    account: Option<String>,
    /// The name of the site.
    site: String,
    /// The connection that it is for.
    #[serde(default)]
    connection: Option<String>,
    /// The member's side: cage, rack, panel and position.
    member_side: String,
    /// The medium, such as `single-mode LC`.
    medium: String,
    /// A note in words.
    #[serde(default)]
    note: Option<String>,
}

/// Ask for a cross-connect
#[utoipa::path(post, path = "/api/v1/cross-connects", tag = "connections", request_body = NewCrossConnect,
    responses((status = 201, body = CrossConnectView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    mark: RequestMark,
    Body(given): Body<NewCrossConnect>,
) -> Result<(StatusCode, Json<CrossConnectView>), Problem> {
    let account = account(&principal, given.account.as_deref(), "/account")?;
    require(&principal, OperationKind::OrderCrossConnect, account)?;
    let exchange = &principal.snapshot.exchange;
    let site = exchange.sites.iter().find(|(_, site)| site.name == given.site);
    let site: SiteId = site.map(|(id, _)| *id).ok_or_else(|| {
        let shown: String = given.site.chars().take(100).collect();
        Problem::invalid("/site", format!("there is no site \"{shown}\""))
    })?;
    let connection = given.connection.as_deref().map(|text| {
        let found = text.parse::<ConnectionId>().ok();
        let is_own = |id: &ConnectionId| {
            exchange
                .connections
                .get(id)
                .is_some_and(|found| found.account == account)
        };
        found.filter(is_own).ok_or_else(|| {
            let detail = "the account has no such connection";
            Problem::invalid("/connection", detail)
        })
    });
    let note = one_line(given.note.as_deref().unwrap_or_default(), "/note", 0..=TEXT_MAX)?;
    let order = CrossConnect {
        account,
        site,
        connection: connection.transpose()?,
        member_side: one_line(&given.member_side, "/member_side", 1..=TEXT_MAX)?,
        medium: one_line(&given.medium, "/medium", 1..=TEXT_MAX)?,
        order_number: None,
        letter: None,
        history: vec![Made {
            state: CrossConnectState::Requested,
            at: mark.now,
            by: principal.actor.user,
            note: Some(note).filter(|note| !note.is_empty()),
        }],
    };
    check_room(&app, |other: &CrossConnect| other.account == account)?;
    app.record(
        &principal.audit_name(),
        "request_cross_connect",
        account,
        json!({ "site": given.site }),
    )
    .await?;
    let id = app.records.create(&order, &mark).await?;
    Ok((StatusCode::CREATED, Json(view(&app, &principal, id, &order))))
}

/// A step of an order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NextStep {
    /// The step.
    step: Step,
    /// The exchange's side: rack, panel and position; for `authorise`.
    #[serde(default)]
    demarcation: Option<String>,
    /// The end of validity of the letter, RFC 3339; for `authorise`. 30 days if it is absent.
    #[serde(default)]
    valid_until: Option<String>,
    /// The number of the order at the data centre; for `place`.
    #[serde(default)]
    order_number: Option<String>,
    /// A note in words.
    #[serde(default)]
    note: Option<String>,
}

fn wrong_state() -> Problem {
    Problem::because(ProblemKind::Conflict, reason::letter_state()).with_code("letter-state")
}

/// Returns an order that the principal may read.
fn find(app: &App, principal: &Principal, id: &str) -> Result<CrossConnect, Problem> {
    let found: Option<CrossConnect> = app.records.find(id);
    found
        .filter(|order| principal.may(OperationKind::ReadConnection, order.account))
        .ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))
}

/// Returns a code that nobody guesses, in groups of four for reading aloud: 80 bits.
fn code() -> Result<String, Problem> {
    let bytes = random::<10>().map_err(|error| Problem::new(ProblemKind::Unavailable, error.to_string()))?;
    let digits: Vec<char> = crate::session::base32(&bytes).chars().collect();
    let groups: Vec<String> = digits.chunks(4).map(|group| group.iter().collect()).collect();
    Ok(groups.join("-"))
}

/// Make the next step of an order of a cross-connect
///
/// The staff authorises, installs and removes; the member places the order at the data centre, or cancels it.
#[utoipa::path(post, path = "/api/v1/cross-connects/{id}/steps", tag = "connections", request_body = NextStep, params(("id" = String, Path, description = "The order")),
    responses((status = 200, body = CrossConnectView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn step(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<NextStep>,
) -> Result<Json<CrossConnectView>, Problem> {
    let order = find(&app, &principal, &id)?;
    require(&principal, step_kind(given.step), order.account)?;
    let now = app.now();
    // A step that is refused is not in the audit chain. The state is checked again when the order changes.
    given.step.after(order.state(now)).ok_or_else(wrong_state)?;
    let note = one_line(given.note.as_deref().unwrap_or_default(), "/note", 0..=TEXT_MAX)?;
    let letter = match given.step {
        Step::Authorise => Some(authorisation(&given, now)?),
        _ => None,
    };
    let order_number = match given.step {
        Step::Place => Some(one_line(
            given.order_number.as_deref().unwrap_or_default(),
            "/order_number",
            1..=TEXT_MAX,
        )?),
        _ => None,
    };
    app.record(
        &principal.audit_name(),
        "step_cross_connect",
        &id,
        json!({ "step": given.step }),
    )
    .await?;
    let order = app
        .records
        .change::<CrossConnect, Problem>(&id, |order| {
            let Some(state) = given.step.after(order.state(now)) else {
                return Err(wrong_state());
            };
            if let Some(letter) = letter {
                order.letter = Some(letter);
            }
            if let Some(number) = order_number {
                order.order_number = Some(number);
            }
            order.history.push(Made {
                state,
                at: now,
                by: principal.actor.user,
                note: Some(note).filter(|note| !note.is_empty()),
            });
            Ok(())
        })
        .await?;
    let order = order.ok_or_else(|| Problem::absent(&id))?;
    Ok(Json(view(&app, &principal, id, &order)))
}

fn authorisation(given: &NextStep, now: Timestamp) -> Result<Authorisation, Problem> {
    let valid_until = match &given.valid_until {
        Some(text) => text
            .parse::<Timestamp>()
            .map_err(|error| Problem::invalid("/valid_until", error))?,
        None => now.after(VALID_FOR),
    };
    if valid_until <= now || valid_until.since(now) > VALID_MAX {
        return Err(Problem::invalid(
            "/valid_until",
            "expected a time in the next 366 days",
        ));
    }
    Ok(Authorisation {
        code: code()?,
        demarcation: one_line(
            given.demarcation.as_deref().unwrap_or_default(),
            "/demarcation",
            1..=TEXT_MAX,
        )?,
        issued: now,
        valid_until,
    })
}

/// Read the letter of authorisation of a cross-connect, for printing
#[utoipa::path(get, path = "/api/v1/cross-connects/{id}/letter", tag = "connections", params(("id" = String, Path, description = "The order")),
    responses((status = 200, body = String, content_type = "text/plain"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn letter(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let order = find(&app, &principal, &id)?;
    let now = app.now();
    let letter = order.letter.as_ref().filter(|_| order.is_authorised(now));
    let letter = letter.ok_or_else(wrong_state)?;
    let exchange = &principal.snapshot.exchange;
    let account = ViewContext::new(&principal, now).account_name(order.account);
    let site = exchange.sites.get(&order.site);
    let verify_at = app
        .settings
        .mail
        .as_ref()
        .map(|mail| mail.page(&format!("/letter#{}", letter.code)));
    let text = letter_text(&LetterFacts {
        exchange: &app.settings.name,
        number: &number(&id),
        member: &account.name,
        asns: &account.asns,
        site: site.map_or("", |site| &site.name),
        medium: &order.medium,
        member_side: &order.member_side,
        letter,
        verify_at: verify_at.as_deref(),
    });
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

/// The code of a letter.
#[derive(Deserialize, ToSchema)]
pub(crate) struct LetterCode {
    /// The code.
    code: String,
}

/// The cross-connect that a valid letter authorises.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VerifiedLetter {
    /// The name of the exchange.
    exchange: String,
    /// The number of the order.
    number: String,
    /// The name of the member.
    member: String,
    /// The name of the site.
    site: String,
    /// The exchange's side: rack, panel and position.
    demarcation: String,
    /// The end of validity.
    valid_until: String,
}

/// Verify a letter of authorisation by its code: for data centres, without a sign-in
#[utoipa::path(post, path = "/api/v1/letters", tag = "public", security(()), request_body = LetterCode,
    responses((status = 200, body = VerifiedLetter), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn verify(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Body(given): Body<LetterCode>,
) -> Result<Json<VerifiedLetter>, Problem> {
    app.attempts
        .begin_from(client(peer.ip(), &headers), app.uptime())
        .map_err(busy)?;
    let now = app.now();
    // Digests are compared, so that the time of an answer tells nothing about codes.
    let wanted = fingerprint(&given.code.trim().to_uppercase());
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let all = app.records.all::<CrossConnect>().into_iter();
    let mut found = all.filter_map(|(id, order)| {
        let letter = order
            .letter
            .clone()
            .filter(|letter| fingerprint(&letter.code) == wanted)?;
        // The exchange authorises no account that has left.
        let account = exchange.accounts.get(&order.account)?;
        let site = exchange.sites.get(&order.site)?;
        order.is_authorised(now).then(|| VerifiedLetter {
            exchange: app.settings.name.clone(),
            number: number(&id),
            member: account.name.clone(),
            site: site.name.clone(),
            demarcation: letter.demarcation,
            valid_until: letter.valid_until.to_string(),
        })
    });
    found.next_back().map(Json).ok_or_else(|| {
        let detail = "no valid letter has this code";
        Problem::new(ProblemKind::NotFound, detail).with_code("no-letter")
    })
}
