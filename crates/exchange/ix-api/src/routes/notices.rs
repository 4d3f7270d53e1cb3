//! Notices of maintenance and incidents: the staff announces them, members read what touches them, calendars follow them.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_ix_model::{ObjectId, OperationKind, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::access::Principal;
use crate::app::App;
use crate::idempotency::RequestMark;
use crate::mail::Letter;
use crate::mail::calendar::lines;
use crate::mail::words::{Language, Version};
use crate::notices::{
    Notice, NoticeKind, Touched, calendar, concerned, letters, name_of, names, text, touched,
};
use crate::problem::{Problem, ProblemKind};
use crate::render::ViewContext;
use crate::request::{Body, PageParams, Query, one_line};
use crate::view::{AccountName, List};

/// The largest number of characters of a title and of a text.
const TITLE_MAX: usize = 120;
const ABOUT_MAX: usize = 4000;
/// The largest number of objects of a notice.
const OBJECTS_MAX: usize = 100;

/// A notice.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Notice)]
pub(crate) struct NoticeView {
    /// The identifier.
    id: String,
    /// The kind.
    kind: NoticeKind,
    /// The title.
    title: String,
    /// The text.
    about: String,
    /// The begin.
    begins: String,
    /// The end; null while it is not known.
    #[schema(required)]
    ends: Option<String>,
    /// `planned`, `running`, `over` or `cancelled`.
    state: &'static str,
    /// True if the public status page shows it.
    public: bool,
    /// The names of the reader's connections and services that it can interrupt.
    touches: Vec<String>,
    /// The objects of the fabric; for the staff.
    objects: Vec<NoticeObject>,
    /// The accounts that it concerns; for the staff.
    members: Vec<AccountName>,
    /// The number of changes since the first announcement.
    sequence: u32,
    /// The operations that are permitted on it.
    can: Vec<String>,
}

/// An object of the fabric by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NoticeObject {
    /// The identifier.
    id: String,
    /// The name; the identifier of one that was deleted.
    name: String,
}

/// A notice, new or changed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct NoticeOrder {
    /// The kind.
    kind: NoticeKind,
    /// The title: 1 to 120 characters.
    title: String,
    /// The text: at most 4,000 characters.
    #[serde(default)]
    about: String,
    /// The begin, RFC 3339.
    begins: String,
    /// The end, RFC 3339; null while it is not known. Maintenance has one.
    #[serde(default)]
    ends: Option<String>,
    /// Sites, switches, trunks, connections and services; without any, the notice concerns every member. A notice that is replaced may
    /// keep those that were deleted since.
    #[serde(default)]
    objects: Vec<String>,
    /// True if the public status page shows it.
    #[serde(default)]
    public: bool,
}

/// The letters that a notice would send.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NoticePreview {
    /// The accounts that it concerns.
    members: Vec<AccountName>,
    /// The number of letters; 0 for an exchange without mail.
    letters: usize,
    /// The letter in each language, as a member reads it that has nothing.
    texts: Vec<PreviewText>,
}

/// A letter in one language.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewText {
    /// `en`, `ja` or `ko`.
    language: &'static str,
    /// The subject.
    subject: String,
    /// The text.
    body: String,
}

impl NoticeOrder {
    /// Returns the notice that the order describes. `known` are the objects of the notice that it replaces: those of them that were
    /// deleted may stay, because without any object it would concern every member.
    fn notice(&self, principal: &Principal, now: Timestamp, known: &[ObjectId]) -> Result<Notice, Problem> {
        let title = one_line(&self.title, "/title", 1..=TITLE_MAX)?;
        if self.about.chars().count() > ABOUT_MAX {
            return Err(Problem::invalid(
                "/about",
                format!("expected at most {ABOUT_MAX} characters"),
            ));
        }
        let time = |text: &str, pointer: &str| {
            text.parse::<Timestamp>()
                .map_err(|error| Problem::invalid(pointer, error))
        };
        let begins = time(&self.begins, "/begins")?;
        let ends = self.ends.as_deref().map(|text| time(text, "/ends")).transpose()?;
        if ends.is_some_and(|ends| ends <= begins) {
            return Err(Problem::invalid("/ends", "the end is not after the begin"));
        }
        if ends.is_none() && self.kind == NoticeKind::Maintenance {
            return Err(Problem::invalid("/ends", "maintenance has an end: expected one"));
        }
        if self.objects.len() > OBJECTS_MAX {
            return Err(Problem::invalid(
                "/objects",
                format!("expected at most {OBJECTS_MAX} objects"),
            ));
        }
        let objects = self.objects.iter().map(|text| {
            let object = text.parse::<ObjectId>().ok().filter(|object| {
                let is_kind = matches!(
                    object,
                    ObjectId::Site(_)
                        | ObjectId::Switch(_)
                        | ObjectId::Trunk(_)
                        | ObjectId::Connection(_)
                        | ObjectId::Service(_)
                );
                is_kind && (known.contains(object) || principal.may_read(*object))
            });
            let shown: String = text.chars().take(40).collect();
            object.ok_or_else(|| {
                Problem::invalid(
                    "/objects",
                    format!("there is no site, switch, trunk, connection or service {shown}"),
                )
            })
        });
        Ok(Notice {
            kind: self.kind,
            title,
            about: lines(self.about.trim()),
            begins,
            ends,
            objects: objects.collect::<Result<Vec<_>, Problem>>()?,
            public: self.public,
            cancelled: false,
            sequence: 0,
            changed: now,
        })
    }
}

/// Returns whom a notice concerns now.
fn members(app: &App, principal: &Principal, notice: &Notice) -> Touched {
    let scope = ViewContext::new(principal, app.now());
    let found = touched(&scope, &principal.snapshot, &notice.objects);
    concerned(&principal.snapshot, notice, found)
}

/// Returns a notice as the principal may see it; `None` if it does not concern the principal.
fn view(app: &App, principal: &Principal, id: String, notice: &Notice) -> Option<NoticeView> {
    let scope = ViewContext::new(principal, app.now());
    let snapshot = &principal.snapshot;
    let found = members(app, principal, notice);
    let is_staff = principal.may_somewhere(OperationKind::ReadFabric);
    let own = principal
        .actor
        .account
        .map(|account| snapshot.exchange.descendants(account))
        .unwrap_or_default();
    let mine = found.iter().filter(|(account, _)| own.contains(*account));
    let mine: Vec<_> = mine.collect();
    if !is_staff && !notice.public && mine.is_empty() {
        return None;
    }
    let mut touches: Vec<String> = mine
        .iter()
        .flat_map(|(_, objects)| names(snapshot, objects))
        .collect();
    touches.sort();
    touches.dedup();
    let objects = notice.objects.iter().filter(|_| is_staff);
    let can = principal.may_somewhere(OperationKind::WriteNotice) && !notice.cancelled;
    Some(NoticeView {
        kind: notice.kind,
        title: notice.title.clone(),
        about: notice.about.clone(),
        begins: notice.begins.to_string(),
        ends: notice.ends.map(|ends| ends.to_string()),
        state: notice.state(app.now()),
        public: notice.public,
        touches,
        objects: objects
            .map(|object| NoticeObject {
                id: object.to_string(),
                name: name_of(snapshot, *object).unwrap_or_else(|| object.to_string()),
            })
            .collect(),
        members: found
            .keys()
            .filter(|_| is_staff)
            .map(|account| scope.account_name(*account))
            .collect(),
        sequence: notice.sequence,
        can: can.then(|| "write_notice".to_owned()).into_iter().collect(),
        id,
    })
}

/// List notices of maintenance and incidents that concern the reader, newest first
#[utoipa::path(get, path = "/api/v1/notices", tag = "notices", params(PageParams),
    responses((status = 200, body = List<NoticeView>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<PageParams>,
) -> Result<Json<List<NoticeView>>, Problem> {
    principal.require(OperationKind::ReadStatus)?;
    let mut all = app.records.all::<Notice>();
    all.sort_by_key(|(_, notice)| std::cmp::Reverse(notice.begins));
    let seen = all
        .into_iter()
        .filter_map(|(id, notice)| view(&app, &principal, id, &notice));
    params
        .records(seen.collect(), |notice| &notice.id, |notice| notice)
        .map(Json)
}

/// Show whom a notice would concern, and its letters in three languages
#[utoipa::path(post, path = "/api/v1/notices/preview", tag = "notices", request_body = NoticeOrder,
    responses((status = 200, body = NoticePreview), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn preview(
    State(app): State<App>,
    principal: Principal,
    Body(given): Body<NoticeOrder>,
) -> Result<Json<NoticePreview>, Problem> {
    principal.require(OperationKind::WriteNotice)?;
    let notice = given.notice(&principal, app.now(), &[])?;
    let found = members(&app, &principal, &notice);
    let scope = ViewContext::new(&principal, app.now());
    let version = Version::New;
    Ok(Json(NoticePreview {
        letters: letters(&app, &principal.snapshot, ("no-0", &notice), version, &found).len(),
        members: found.keys().map(|account| scope.account_name(*account)).collect(),
        texts: Language::ALL
            .into_iter()
            .map(|language| {
                let text = text(&app.settings.name, &notice, version, language, &[]);
                PreviewText {
                    language: language.code(),
                    subject: text.subject,
                    body: text.body,
                }
            })
            .collect(),
    }))
}

/// Returns the letters about a notice.
///
/// # Errors
/// A problem if too many letters wait for the relay. A notice whose letters would not be sent is refused before it is stored.
fn told(
    app: &App,
    principal: &Principal,
    id: &str,
    notice: &Notice,
    version: Version,
) -> Result<Vec<Letter>, Problem> {
    let found = members(app, principal, notice);
    let letters = letters(app, &principal.snapshot, (id, notice), version, &found);
    if !letters.is_empty() {
        app.mail.check_room(app, letters.len())?;
    }
    Ok(letters)
}

/// Posts the letters about a notice.
async fn announce(
    app: &App,
    principal: &Principal,
    id: &str,
    notice: &Notice,
    version: Version,
) -> Result<(), Problem> {
    let letters = told(app, principal, id, notice, version)?;
    if letters.is_empty() {
        return Ok(());
    }
    app.mail.post(app, &letters).await
}

fn shown(app: &App, principal: &Principal, id: &str, notice: &Notice) -> Result<Json<NoticeView>, Problem> {
    let absent = || Problem::absent(id);
    view(app, principal, id.to_owned(), notice)
        .map(Json)
        .ok_or_else(absent)
}

/// Announce maintenance or an incident: members whom it touches get a letter with an event for their calendars
#[utoipa::path(post, path = "/api/v1/notices", tag = "notices", request_body = NoticeOrder,
    responses((status = 201, body = NoticeView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    mark: RequestMark,
    Body(given): Body<NoticeOrder>,
) -> Result<(StatusCode, Json<NoticeView>), Problem> {
    principal.require(OperationKind::WriteNotice)?;
    let notice = given.notice(&principal, app.now(), &[])?;
    told(&app, &principal, "no-0", &notice, Version::New)?;
    app.record(
        &principal.audit_name(),
        "create_notice",
        "",
        json!({ "title": notice.title }),
    )
    .await?;
    let id = app.records.create(&notice, &mark).await?;
    announce(&app, &principal, &id, &notice, Version::New).await?;
    Ok((StatusCode::CREATED, shown(&app, &principal, &id, &notice)?))
}

/// Returns a notice that can be changed.
fn find(app: &App, principal: &Principal, id: &str) -> Result<Notice, Problem> {
    let found: Option<Notice> = app.records.find(id);
    let seen = found.filter(|notice| view(app, principal, id.to_owned(), notice).is_some());
    let notice = seen.ok_or_else(|| Problem::absent(id.chars().take(40).collect::<String>()))?;
    principal.require(OperationKind::WriteNotice)?;
    if notice.cancelled {
        return Err(cancelled());
    }
    Ok(notice)
}

fn cancelled() -> Problem {
    let detail = "the notice is cancelled: announce a new one";
    Problem::new(ProblemKind::Conflict, detail).with_code("cancelled")
}

/// Stores the next version of a notice, and returns it. Of two changes at the same time each has a number of its own, and none
/// follows a cancellation.
async fn store(app: &App, id: &str, next: Notice) -> Result<Notice, Problem> {
    let stored = app.records.change::<Notice, Problem>(id, |notice| {
        if notice.cancelled {
            return Err(cancelled());
        }
        let sequence = notice.sequence + 1;
        *notice = Notice { sequence, ..next };
        Ok(())
    });
    stored.await?.ok_or_else(|| Problem::absent(id))
}

/// Replace a notice; members get a letter about the change
#[utoipa::path(put, path = "/api/v1/notices/{id}", tag = "notices", request_body = NoticeOrder, params(("id" = String, Path, description = "The notice")),
    responses((status = 200, body = NoticeView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn replace(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
    Body(given): Body<NoticeOrder>,
) -> Result<Json<NoticeView>, Problem> {
    let before = find(&app, &principal, &id)?;
    let notice = Notice {
        sequence: before.sequence + 1,
        ..given.notice(&principal, app.now(), &before.objects)?
    };
    told(&app, &principal, &id, &notice, Version::Changed)?;
    app.record(
        &principal.audit_name(),
        "update_notice",
        &id,
        json!({ "title": notice.title }),
    )
    .await?;
    let notice = store(&app, &id, notice).await?;
    announce(&app, &principal, &id, &notice, Version::Changed).await?;
    shown(&app, &principal, &id, &notice)
}

/// Cancel a notice; members get a letter, and calendars drop the event
#[utoipa::path(delete, path = "/api/v1/notices/{id}", tag = "notices", params(("id" = String, Path, description = "The notice")),
    responses((status = 200, body = NoticeView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn cancel(
    State(app): State<App>,
    principal: Principal,
    Path(id): Path<String>,
) -> Result<Json<NoticeView>, Problem> {
    let before = find(&app, &principal, &id)?;
    let notice = Notice {
        cancelled: true,
        sequence: before.sequence + 1,
        changed: app.now(),
        ..before
    };
    told(&app, &principal, &id, &notice, Version::Cancelled)?;
    app.record(
        &principal.audit_name(),
        "cancel_notice",
        &id,
        json!({ "title": notice.title }),
    )
    .await?;
    let notice = store(&app, &id, notice).await?;
    announce(&app, &principal, &id, &notice, Version::Cancelled).await?;
    shown(&app, &principal, &id, &notice)
}

/// Read the notices that concern the reader as a calendar (iCalendar, RFC 5545)
#[utoipa::path(get, path = "/api/v1/notices.ics", tag = "notices",
    responses((status = 200, body = String, content_type = "text/calendar"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn feed(State(app): State<App>, principal: Principal) -> Result<Response, Problem> {
    calendar_of(&app, &principal)
}

/// Returns the notices that concern a principal as a calendar.
pub(super) fn calendar_of(app: &App, principal: &Principal) -> Result<Response, Problem> {
    principal.require(OperationKind::ReadStatus)?;
    let all = app.records.all::<Notice>();
    let seen = all
        .iter()
        .filter(|(id, notice)| view(app, principal, id.clone(), notice).is_some());
    let body = calendar(app, seen.map(|(id, notice)| (id.as_str(), notice)));
    Ok(([(header::CONTENT_TYPE, "text/calendar; charset=utf-8")], body).into_response())
}
