//! Answers for everybody, without a sign-in: the status of the exchange, its notices, and the looking glass of its route servers.
//!
//! None of these names a member's connection or service, a switch, a trunk or an identifier. The looking glass has the sessions and
//! routes of members that are on the member list; who does not want to be found is not in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use millrace_bird::SessionState;
use millrace_ix_model::{AccountId, Config, ConfigId, Exchange, Prefix, ServiceKind, SiteId};
use serde::Serialize;
use tokio::sync::SemaphorePermit;
use utoipa::ToSchema;

use super::documents::public_document;
use crate::app::App;
use crate::mail::calendar::xml;
use crate::notices::{Notice, NoticeKind, calendar, host};
use crate::problem::{Problem, ProblemKind};
use crate::render::validity;
use crate::request::Query;
use crate::service::{Snapshot, SwitchState};
use crate::v2::is_listed;
use crate::view::RejectCause;

/// The time for which past notices are shown.
const SHOWN_FOR: Duration = Duration::from_secs(90 * 86_400);

/// The status of the exchange.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PublicStatus {
    /// The name of the exchange.
    exchange: String,
    /// The time of this status.
    at: String,
    /// `ok`, `degraded`, or `unknown` while the exchange's controller does not reach all switches.
    state: &'static str,
    /// The sites.
    sites: Vec<PublicSite>,
    /// The peering LANs.
    lans: Vec<PublicLan>,
    /// The public notices of the next time and the last 90 days, newest first.
    notices: Vec<PublicNotice>,
}

/// A site.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PublicSite {
    /// The name.
    name: String,
    /// `ok`, `degraded` if no trunk to another site carries traffic, or `unknown`.
    state: &'static str,
}

/// A peering LAN.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PublicLan {
    /// The name.
    name: String,
    /// The number of members.
    members: usize,
}

/// A public notice.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PublicNotice {
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
}

/// Returns the state of a site.
fn site_state(snapshot: &Snapshot, site: SiteId) -> &'static str {
    let exchange = &snapshot.exchange;
    let site_of = |switch| exchange.switches.get(&switch).map(|found| found.site);
    let mut switches = exchange
        .switches
        .iter()
        .filter(|(_, switch)| switch.site == site && !switch.retired);
    let is_away = switches.any(|(id, _)| {
        let health = snapshot.switches.get(id);
        health.is_none_or(|health| health.state == SwitchState::Unreachable)
    });
    if is_away {
        return "unknown";
    }
    let out = exchange.trunks.values().filter(|trunk| {
        let [a, b] = trunk.ends.map(|end| site_of(end.switch));
        a != b && (a == Some(site) || b == Some(site))
    });
    let mut is_joined = None;
    for trunk in out {
        let is_up = trunk.ends.iter().all(|end| snapshot.is_up(*end) == Some(true));
        is_joined = Some(is_joined == Some(true) || is_up);
    }
    if is_joined == Some(false) {
        "degraded"
    } else {
        "ok"
    }
}

/// Returns the public notices that are shown, newest first.
fn notices(app: &App) -> Vec<(String, Notice)> {
    let now = app.now();
    let mut shown = app.records.all::<Notice>();
    shown.retain(|(_, notice)| {
        let last = notice.ends.unwrap_or(now);
        notice.public && now.since(last) < SHOWN_FOR
    });
    shown.sort_by_key(|(_, notice)| std::cmp::Reverse(notice.begins));
    shown
}

/// Read the status of the exchange
#[utoipa::path(get, path = "/api/v1/status", tag = "public", security(()), responses((status = 200, body = PublicStatus)))]
pub(crate) async fn status(State(app): State<App>) -> Json<PublicStatus> {
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let sites: Vec<PublicSite> = exchange
        .sites
        .iter()
        .map(|(id, site)| PublicSite {
            name: site.name.clone(),
            state: site_state(&snapshot, *id),
        })
        .collect();
    let lans = exchange
        .services
        .iter()
        .filter(|(_, service)| service.kind == ServiceKind::ExchangeLan);
    let lans = lans.map(|(id, service)| {
        let ends = snapshot.index().by_service.get(id).into_iter().flatten();
        let accounts = ends.filter_map(|end| Some(exchange.configs.get(end)?.account));
        PublicLan {
            name: service.name.clone(),
            members: accounts.collect::<std::collections::BTreeSet<_>>().len(),
        }
    });
    let worst = ["degraded", "unknown"]
        .into_iter()
        .find(|state| sites.iter().any(|site| site.state == *state));
    let now = app.now();
    Json(PublicStatus {
        exchange: app.settings.name.clone(),
        at: now.to_string(),
        state: worst.unwrap_or("ok"),
        lans: lans.collect(),
        sites,
        notices: notices(&app)
            .into_iter()
            .map(|(_, notice)| PublicNotice {
                kind: notice.kind,
                state: notice.state(now),
                begins: notice.begins.to_string(),
                ends: notice.ends.map(|ends| ends.to_string()),
                title: notice.title,
                about: notice.about,
            })
            .collect(),
    })
}

/// Read the public notices as a calendar (iCalendar, RFC 5545)
#[utoipa::path(get, path = "/api/v1/status.ics", tag = "public", security(()), responses((status = 200, body = String, content_type = "text/calendar")))]
pub(crate) async fn status_calendar(State(app): State<App>, headers: HeaderMap) -> Response {
    let shown = notices(&app);
    let body = calendar(&app, shown.iter().map(|(id, notice)| (id.as_str(), notice)));
    public_document(&headers, "text/calendar; charset=utf-8", body.clone(), &body)
}

/// Read the public notices as a feed (Atom, RFC 4287; its identifiers are tags, RFC 4151)
#[utoipa::path(get, path = "/api/v1/status.atom", tag = "public", security(()), responses((status = 200, body = String, content_type = "application/atom+xml")))]
pub(crate) async fn status_feed(State(app): State<App>, headers: HeaderMap) -> Response {
    let (shown, host) = (notices(&app), host(&app));
    let newest = shown.iter().map(|(_, notice)| notice.changed).max();
    // The feed of an exchange without notices never changes.
    let updated = newest.unwrap_or_default();
    let name = xml(&app.settings.name);
    // Without the address of the page, readers complete addresses with the one that they read.
    let address = |path: &str| {
        let mail = app.settings.mail.as_ref();
        xml(&mail.map_or_else(|| path.to_owned(), |mail| mail.page(path)))
    };
    let (itself, page) = (address("/api/v1/status.atom"), address("/status"));
    let page = format!("<link rel=\"alternate\" type=\"text/html\" href=\"{page}\"/>");
    let mut feed = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\"><title>{name}</title>\
         <id>tag:{host},2026:status</id><link rel=\"self\" type=\"application/atom+xml\" href=\"{itself}\"/>{page}\
         <updated>{updated}</updated><author><name>{name}</name></author>\n",
        host = xml(&host)
    );
    let now = app.now();
    for (id, notice) in &shown {
        // Writing to a string does not fail.
        let _ = writeln!(
            feed,
            "<entry><id>tag:{host},2026:{id}</id><title>{title}</title><updated>{updated}</updated>{page}\
             <content type=\"text\">{state}, {begins}: {about}</content></entry>",
            host = xml(&host),
            id = id.replace("no-", "notice-"),
            title = xml(&notice.title),
            updated = notice.changed,
            state = notice.state(now),
            begins = notice.begins,
            about = xml(&notice.about),
        );
    }
    feed.push_str("</feed>\n");
    let media_type = "application/atom+xml; charset=utf-8";
    public_document(&headers, media_type, feed.clone(), &feed)
}

/// The route servers and their sessions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LookingGlass {
    /// The name of the exchange.
    exchange: String,
    /// The route servers that the exchange reads.
    route_servers: Vec<GlassServer>,
}

/// A route server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GlassServer {
    /// The DNS name.
    name: String,
    /// The AS number.
    asn: u32,
    /// The name of the peering LAN.
    lan: String,
    /// `fresh`, `stale`, `unreachable` or `pending`.
    state: &'static str,
    /// The time of the last reading.
    #[schema(required)]
    read_at: Option<String>,
    /// The sessions of members on the member list, ordered by AS number and address.
    sessions: Vec<GlassSession>,
}

/// A session with a route server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GlassSession {
    /// The AS number of the neighbor; null if any is allowed.
    #[schema(required)]
    asn: Option<u32>,
    /// The name of the member.
    member: String,
    /// The address of the neighbor.
    address: String,
    /// True if the session is established.
    established: bool,
    /// The number of accepted routes; null while the session is down.
    #[schema(required)]
    accepted: Option<u64>,
    /// The rejected prefixes with their causes.
    rejected: Vec<GlassPrefix>,
    /// True if there are more rejected prefixes.
    truncated: bool,
}

/// A prefix that a route server rejects.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GlassPrefix {
    /// The prefix.
    prefix: String,
    /// The AS path.
    as_path: String,
    /// The causes.
    causes: Vec<RejectCause>,
    /// The state by RPKI, if it is a cause: `invalid` or `unknown`.
    #[schema(required)]
    rpki: Option<&'static str>,
    /// The state in the routing registry, if it is a cause: `missing`.
    #[schema(required)]
    irr: Option<&'static str>,
}

/// Returns the ends of peering LANs that are named to everybody, with the names of their members.
fn listed_ends<'a>(app: &App, exchange: &'a Exchange) -> BTreeMap<ConfigId, (&'a Config, &'a str)> {
    let ends = exchange.configs.iter().filter(|(_, end)| {
        let service = exchange.services.get(&end.service);
        service.is_some_and(|service| service.kind == ServiceKind::ExchangeLan)
    });
    let listed = ends.filter_map(|(id, end)| {
        let account = exchange.accounts.get(&end.account)?;
        is_listed(app, *id, account).then_some((*id, (end, account.name.as_str())))
    });
    listed.collect()
}

/// Returns a permit for an answer of the looking glass. Each takes some milliseconds of a core, or holds the lock of all BGP sessions
/// for them.
fn permit(app: &App) -> Result<SemaphorePermit<'_>, Problem> {
    app.lookups.try_acquire().map_err(|_| {
        let detail = "others use the looking glass: try again";
        Problem::new(ProblemKind::Busy, detail).retry_after(1)
    })
}

/// Read the sessions of the route servers, and the prefixes that they reject with the causes
#[utoipa::path(get, path = "/api/v1/looking-glass", tag = "public", security(()),
    responses((status = 200, body = LookingGlass), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn looking_glass(State(app): State<App>) -> Result<Json<LookingGlass>, Problem> {
    let _permit = permit(&app)?;
    let snapshot = app.snapshot();
    let exchange = &snapshot.exchange;
    let ends = listed_ends(&app, exchange);
    let addresses: BTreeMap<std::net::IpAddr, &(&Config, &str)> = exchange
        .ips
        .values()
        .filter_map(|ip| Some((ip.address, ends.get(&ip.config)?)))
        .collect();
    // A route server may still list the session of a member that used the address earlier.
    let member = |session: &millrace_bird::Session| -> Option<String> {
        let (end, name) = addresses.get(&session.neighbor)?;
        let asns = exchange.asns_of(end);
        let is_own = asns.is_empty() || session.asn.is_none_or(|asn| asns.contains(&asn));
        is_own.then(|| (*name).to_owned())
    };
    let servers = app
        .settings
        .route_servers
        .iter()
        .filter(|server| server.control.is_some());
    let route_servers = servers.map(|server| {
        let status = app.engine.route_server_status(server);
        let state = status.freshness(server, app.now()).name();
        let report = status.report.as_ref();
        let mut found: Vec<&millrace_bird::Session> = report
            .into_iter()
            .flat_map(|(_, report)| &report.sessions)
            .collect();
        found.sort_by_key(|session| (session.asn, session.neighbor));
        let sessions = found
            .into_iter()
            .filter_map(|session| {
                Some(GlassSession {
                    asn: session.asn,
                    member: member(session)?,
                    address: session.neighbor.to_string(),
                    established: session.state == SessionState::Established,
                    accepted: session.imported,
                    rejected: session.rejected.iter().map(prefix).collect(),
                    truncated: session.is_truncated,
                })
            })
            .collect();
        GlassServer {
            name: server.fqdn.clone(),
            asn: server.asn,
            lan: server.lan.clone(),
            state,
            read_at: report.map(|(at, _)| at.to_string()),
            sessions,
        }
    });
    Ok(Json(LookingGlass {
        exchange: app.settings.name.clone(),
        route_servers: route_servers.collect(),
    }))
}

fn prefix(route: &millrace_bird::Route) -> GlassPrefix {
    let causes = crate::render::causes(route);
    let has = |codes: &[&str]| {
        let mut all = causes.iter().flat_map(|cause| &cause.coded);
        all.any(|coded| codes.contains(&coded.code.as_str()))
    };
    let rpki = [
        ("route-rpki-invalid", "invalid"),
        ("route-rpki-unknown", "unknown"),
    ];
    let irr = [
        "route-prefix-not-in-as-set",
        "route-origin-not-in-as-set",
        "route-prefix-not-of-origin",
    ];
    GlassPrefix {
        prefix: route.prefix.to_string(),
        as_path: route.as_path.clone(),
        rpki: rpki
            .into_iter()
            .find(|(code, _)| has(&[*code]))
            .map(|(_, state)| state),
        irr: has(&irr).then_some("missing"),
        causes,
    }
}

/// The prefix that is looked up.
#[derive(Debug, Clone, Default, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PrefixParams {
    /// A prefix or an address, such as `203.0.113.0/24`.
    prefix: String,
}

/// The live routes to a prefix.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GlassRoutes {
    /// True if the exchange has BGP sessions; without, there are no routes.
    known: bool,
    /// The routes of route servers from members on the member list, to the longest prefix with routes that covers the asked one, and to its parts; at most 100.
    routes: Vec<GlassRoute>,
}

/// A live route.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GlassRoute {
    /// The prefix.
    prefix: String,
    /// The AS path.
    as_path: String,
    /// The name of the member that announces it.
    member: String,
    /// The validity by RPKI: `valid`, `invalid`, `not_found`; null without a fresh cache.
    #[schema(required)]
    rpki: Option<&'static str>,
    /// True if a route object of the member's AS-SET has prefix and origin; null without fresh objects.
    #[schema(required)]
    irr: Option<bool>,
}

/// Look up the live routes to a prefix, with their states by RPKI and in the routing registry
#[utoipa::path(get, path = "/api/v1/looking-glass/routes", tag = "public", security(()), params(PrefixParams),
    responses((status = 200, body = GlassRoutes), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn routes(
    State(app): State<App>,
    Query(params): Query<PrefixParams>,
) -> Result<Json<GlassRoutes>, Problem> {
    let text = params.prefix.trim();
    let address = text.parse::<std::net::IpAddr>().ok().map(Prefix::host);
    let prefix = address.or_else(|| text.parse().ok()).ok_or_else(|| {
        let detail = "expected a prefix or an address, such as 203.0.113.0/24 or 2001:db8::1";
        Problem::new(ProblemKind::BadRequest, detail).with_code("prefix-malformed")
    })?;
    let _permit = permit(&app)?;
    let snapshot = app.snapshot();
    let ends = listed_ends(&app, &snapshot.exchange);
    let members: BTreeMap<AccountId, &str> = ends.values().map(|(end, name)| (end.account, *name)).collect();
    let found = app.engine.lookup(prefix);
    let known = found.is_some();
    let found = found.unwrap_or_default().into_iter();
    let routes = found.filter_map(|route| {
        Some(GlassRoute {
            prefix: route.prefix.to_string(),
            as_path: route.as_path,
            member: (*members.get(&route.account?)?).to_owned(),
            rpki: route.rpki.map(validity),
            irr: route.irr,
        })
    });
    Ok(Json(GlassRoutes {
        known,
        routes: routes.collect(),
    }))
}
