//! Filters: orders, explanations for packets, traffic to a destination, BGP sessions.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use millrace_ix_filter::{Packet, SessionKind};
use millrace_ix_model::{
    AccountId, Filter, FilterAction, FilterId, FilterMatch, FilterOrigin, FilterState, FragmentMatch,
    Operation, OperationKind, Ports, Prefix, TcpFlagsMatch, filter_rank, reason,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ends::order_object;
use super::objects::{Tagged, readable, tagged};
use super::orders::{Additions, order_with};
use crate::access::{Access, Principal, bearer};
use crate::app::App;
use crate::names::Names;
use crate::problem::{Problem, ProblemKind};
use crate::render::{ViewContext, target as target_view, word};
use crate::request::{Body, Conditions, OrderParams, PageParams, Query};
use crate::view::{self, List, NewFilter, Ordered, PortRange, coded};

/// The minimum time between two requested checks of an account: each check queries the routing registry.
const RECHECK_EVERY: Duration = Duration::from_secs(5);
/// The default time to live of a filter, in minutes.
const MINUTES: u32 = 60;
/// The default rate of a `shape` filter, in kbit/s.
const RATE_KBPS: u32 = 1_000;
/// The default protocol of a packet to explain: UDP (RFC 768).
const UDP: u8 = 17;
/// The default flags of a TCP packet to explain: SYN (RFC 9293, section 3.1).
const SYN: u16 = 0x002;

/// Parses a prefix. An address without a length is a prefix of its full length.
fn prefix(text: &str, pointer: &str) -> Result<Prefix, Problem> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Prefix::host(address));
    }
    text.parse::<Prefix>()
        .map_err(|error| Problem::invalid(pointer, error))
}

fn ports(ranges: &[PortRange]) -> Vec<Ports> {
    let range = |range: &PortRange| Ports {
        first: range.first,
        last: range.last,
    };
    ranges.iter().map(range).collect()
}

fn fragment(text: &str) -> Result<FragmentMatch, Problem> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|_| {
        Problem::invalid(
            "/fragment",
            format!("`{text}`: expected not, any, first or later"),
        )
    })
}

/// Returns the match of a new filter.
fn packets(given: &NewFilter) -> Result<FilterMatch, Problem> {
    let mut matching = FilterMatch::to(prefix(&given.destination, "/destination")?);
    let source = given.source.as_deref().filter(|text| !text.trim().is_empty());
    matching.source = source.map(|text| prefix(text, "/source")).transpose()?;
    matching.protocol = given.protocol;
    matching.source_ports = ports(&given.source_ports);
    matching.destination_ports = ports(&given.destination_ports);
    matching.icmp_type = given.icmp_type;
    matching.icmp_code = given.icmp_code;
    matching.fragment = given.fragment.as_deref().map(fragment).transpose()?;
    matching.tcp_flags = given.tcp_flags.map(|flags| TcpFlagsMatch {
        mask: flags.mask,
        value: flags.value,
    });
    matching.dscp = given.dscp;
    if let Some((field, reason)) = matching.contradiction() {
        let problem = Problem::because(ProblemKind::Invalid, reason);
        return Err(problem.with_error(format!("/{field}"), "invalid"));
    }
    Ok(matching)
}

fn action(given: &NewFilter) -> Result<FilterAction, Problem> {
    match given.action.as_str() {
        "drop" => Ok(FilterAction::Drop),
        "shape" => Ok(FilterAction::Shape {
            rate_kbps: given.rate_kbps.unwrap_or(RATE_KBPS),
        }),
        "count" => Ok(FilterAction::Count),
        other => Err(Problem::invalid(
            "/action",
            format!("`{other}`: expected drop, shape or count"),
        )),
    }
}

/// Returns the account that a request names; by default, the principal's own account.
pub(super) fn account(
    principal: &Principal,
    text: Option<&str>,
    pointer: &str,
) -> Result<AccountId, Problem> {
    match text.filter(|text| !text.is_empty()) {
        Some(text) => text
            .parse::<AccountId>()
            .map_err(|error| Problem::invalid(pointer, error)),
        None => principal
            .actor
            .account
            .ok_or_else(|| Problem::new(ProblemKind::Unauthorized, "there is no session")),
    }
}

/// Create a filter for packets to your own addresses
///
/// Only the owner of a destination may filter packets to it. A refusal has the code `not-owner`, and its next
/// step names the missing object.
#[utoipa::path(post, path = "/api/v1/filters", tag = "filters", request_body = NewFilter, params(OrderParams,
        ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 201, body = Ordered), (status = 200, body = Ordered, description = "Dry run"), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(
    State(app): State<App>,
    principal: Principal,
    headers: HeaderMap,
    conditions: Conditions,
    Body(given): Body<NewFilter>,
) -> Result<Response, Problem> {
    principal.require(OperationKind::WriteFilter)?;
    let account = account(&principal, given.account.as_deref(), "/account")?;
    if !principal.may(OperationKind::WriteFilter, account) {
        return Err(Problem::absent(account));
    }
    let matching = packets(&given)?;
    let peers = given.peers.iter().map(|text| {
        text.parse::<AccountId>()
            .map_err(|error| Problem::invalid("/peers", error))
    });
    let peers = peers.collect::<Result<BTreeSet<_>, _>>()?;
    let verdict = app.engine.check_filter(account, &matching, &peers);
    if !verdict.allowed {
        let mut problem = Problem::because(ProblemKind::Invalid, verdict.reason.unwrap_or_default());
        if let Some(missing) = verdict.missing {
            problem.next_step = Some(format!("missing: {missing}").into());
            problem.coded.extend(coded(&missing.coded));
        }
        let problem = problem.with_error("/destination", "not-owner");
        return Err(problem.with_code("not-owner"));
    }
    let minutes = u64::from(given.minutes.unwrap_or(MINUTES));
    let action = action(&given)?;
    let origin = if bearer(&headers).is_some() {
        FilterOrigin::Api
    } else {
        FilterOrigin::Page
    };
    let filter = Filter {
        account,
        matching,
        alternatives: Vec::new(),
        peers,
        action,
        origin,
        rank: filter_rank(origin, action),
        order: String::new(),
        exempt_until: None,
        state: FilterState::Active,
        valid_until: Some(app.now().after(Duration::from_secs(minutes * 60))),
        comment: given.comment.clone(),
        external_ref: None,
    };
    let additions = Additions {
        conflicts: conflicts(&principal, &filter),
        ..Additions::default()
    };
    let operation = Operation::CreateFilter {
        account: Some(account),
        matching: filter.matching,
        alternatives: filter.alternatives,
        peers: filter.peers,
        action: filter.action,
        origin: filter.origin,
        rank: filter.rank,
        order: filter.order,
        exempt_until: filter.exempt_until,
        state: filter.state,
        valid_until: filter.valid_until,
        comment: filter.comment,
        external_ref: filter.external_ref,
    };
    let steps = (additions, vec![(operation, "")]);
    order_with(&app, &principal, &conditions, None, steps, &given).await
}

/// Returns the conflicts of a new filter with the active ones of its account, in words.
fn conflicts(principal: &Principal, filter: &Filter) -> Vec<view::Conflict> {
    let others = principal.snapshot.exchange.filters.iter();
    let found = others.filter_map(|(id, other)| Some((*id, filter.conflict_with(other)?)));
    let told = found.map(|(id, conflict)| {
        let reason = Names(principal).reason(conflict.reason(id));
        view::Conflict {
            relation: conflict.name().to_owned(),
            filter: id.to_string(),
            text: reason.text,
            coded: coded(&reason.coded),
        }
    });
    told.collect()
}

/// A time to live.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct FilterEnd {
    /// The time to live from now on, in minutes.
    minutes: u32,
}

/// Change the time to live of a filter
#[utoipa::path(put, path = "/api/v1/filters/{id}", tag = "filters", request_body = FilterEnd, params(OrderParams, ("id" = String, Path, description = "The filter"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn extend(
    State(app): State<App>,
    access: Access<FilterId>,
    conditions: Conditions,
    Body(given): Body<FilterEnd>,
) -> Result<Response, Problem> {
    let operation = Operation::UpdateFilter {
        filter: access.id(),
        state: None,
        rank: None,
        valid_until: Some(
            app.now()
                .after(Duration::from_secs(u64::from(given.minutes) * 60)),
        ),
    };
    order_object(&app, &access, &conditions, operation, &given).await
}

/// Remove a filter
#[utoipa::path(delete, path = "/api/v1/filters/{id}", tag = "filters", params(OrderParams, ("id" = String, Path, description = "The filter"),
        ("if-match" = String, Header, description = "The ETag that the client has read"), ("idempotency-key" = Option<String>, Header, description = "Makes the order repeatable")),
    responses((status = 200, body = Ordered), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(app): State<App>,
    access: Access<FilterId>,
    conditions: Conditions,
) -> Result<Response, Problem> {
    let operation = Operation::DeleteFilter { filter: access.id() };
    order_object(&app, &access, &conditions, operation, &()).await
}

/// List filters
#[utoipa::path(get, path = "/api/v1/filters", tag = "filters", params(PageParams),
    responses((status = 200, body = List<view::Filter>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::Filter>>, Problem> {
    let scope = ViewContext::new(&principal, app.now()).with_counters(app.engine.filter_counters());
    page.page(&readable::<FilterId>(&principal), |id, filter| {
        scope.filter(id, filter)
    })
    .map(Json)
}

/// Read a filter
#[utoipa::path(get, path = "/api/v1/filters/{id}", tag = "filters", params(("id" = String, Path, description = "The filter")),
    responses((status = 200, body = view::Filter), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(
    State(app): State<App>,
    access: Access<FilterId>,
) -> Result<Tagged<view::Filter>, Problem> {
    let scope = ViewContext::new(access.principal(), app.now()).with_counters(app.engine.filter_counters());
    let view = scope.filter(access.id(), access.object()?);
    Ok(tagged(view.revision, view))
}

/// A packet to explain.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PacketParams {
    /// The destination address.
    destination: String,
    /// The source address; 0.0.0.0 or :: if it is absent.
    source: Option<String>,
    /// The IP protocol; UDP if it is absent.
    protocol: Option<u8>,
    /// The source port; 0 if it is absent.
    source_port: Option<u16>,
    /// The destination port; 0 if it is absent.
    destination_port: Option<u16>,
    /// The ICMP type; 0 if it is absent.
    icmp_type: Option<u8>,
    /// The flags of the TCP header as a number; SYN if they are absent.
    tcp_flags: Option<u16>,
    /// The differentiated services code point; 0 if it is absent.
    dscp: Option<u8>,
    /// `first` or `later` for a fragment.
    fragment: Option<String>,
    /// The account that sends the packet into the exchange.
    from: Option<String>,
}

impl PacketParams {
    fn packet(&self) -> Result<Packet, Problem> {
        let address = |text: &str, pointer: &str| {
            let parsed = text.trim().parse::<IpAddr>();
            parsed
                .map_err(|_| Problem::invalid(pointer, format!("`{text}`: expected an IPv4 or IPv6 address")))
        };
        let destination = address(&self.destination, "/destination")?;
        let given = |text: &&str| !text.trim().is_empty();
        let source = self
            .source
            .as_deref()
            .filter(given)
            .map(|text| address(text, "/source"));
        let unspecified = if destination.is_ipv6() {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        let from = self
            .from
            .as_deref()
            .filter(given)
            .map(str::parse::<AccountId>)
            .transpose();
        Ok(Packet {
            source: source.transpose()?.unwrap_or(unspecified),
            destination,
            protocol: self.protocol.unwrap_or(UDP),
            source_port: self.source_port.unwrap_or(0),
            destination_port: self.destination_port.unwrap_or(0),
            icmp_type: self.icmp_type.unwrap_or(0),
            icmp_code: 0,
            fragment: match self.fragment.as_deref().filter(given) {
                Some(text) => fragment(text)?,
                None => FragmentMatch::Not,
            },
            tcp_flags: self.tcp_flags.unwrap_or(SYN),
            dscp: self.dscp.unwrap_or(0),
            from: from.map_err(|error| Problem::invalid("/from", error))?,
        })
    }
}

/// Explain the treatment of a packet: all active filters, in the order in which switches compare them
#[utoipa::path(get, path = "/api/v1/filters/explain", tag = "filters", params(PacketParams),
    responses((status = 200, body = view::Explanation), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn explain(
    State(app): State<App>,
    principal: Principal,
    Query(given): Query<PacketParams>,
) -> Result<Json<view::Explanation>, Problem> {
    principal.require(OperationKind::ReadFilter)?;
    let packet = given.packet()?;
    let scope = ViewContext::new(&principal, app.now()).with_counters(app.engine.filter_counters());
    let exchange = &principal.snapshot.exchange;
    let readable = readable::<FilterId>(&principal);
    let accounts: BTreeSet<AccountId> = readable.iter().map(|(_, filter)| filter.account).collect();
    let mut steps = Vec::new();
    for account in accounts {
        for step in millrace_ix_filter::explain(exchange, account, &packet, app.now()) {
            let Some(filter) = exchange.filters.get(&step.filter) else {
                continue;
            };
            let why = scope.names().reason(step.why);
            steps.push(view::ExplainedStep {
                filter: scope.filter(step.filter, filter),
                matches: step.matches,
                applies: step.applies,
                coded: coded(&why.coded),
                why: why.text,
            });
        }
    }
    let decisive = steps.iter().find(|step| step.applies);
    Ok(Json(view::Explanation {
        outcome: decisive.map_or_else(|| "pass".to_owned(), |step| step.filter.action.clone()),
        steps,
    }))
}

/// The destination of the traffic to read.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AttackParams {
    /// The destination: an address or a prefix.
    target: Option<String>,
    /// The account; by default your own.
    account: Option<String>,
}

/// Read the destinations with the greatest excess, and the traffic to one destination
#[utoipa::path(get, path = "/api/v1/attack", tag = "filters", params(AttackParams),
    responses((status = 200, body = view::AttackView), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn attack(
    State(app): State<App>,
    principal: Principal,
    Query(params): Query<AttackParams>,
) -> Result<Json<view::AttackView>, Problem> {
    principal.require(OperationKind::ReadSamples)?;
    let account = account(&principal, params.account.as_deref(), "/account")?;
    if !principal.may(OperationKind::ReadSamples, account) {
        return Err(Problem::absent(account));
    }
    let target = params.target.as_deref().filter(|text| !text.trim().is_empty());
    let target = target.map(|text| prefix(text, "/target")).transpose()?;
    if Some(account) != principal.actor.account {
        // Reading the traffic of another account adds an entry to the audit chain.
        let detail = serde_json::json!({ "target": target.map(|target| target.to_string()) });
        app.record(
            &principal.audit_name(),
            &word(&OperationKind::ReadSamples),
            account,
            detail,
        )
        .await?;
    }
    let scope = ViewContext::new(&principal, app.now());
    // The search for rules occupies a core for seconds. Because of the limit, a member with many requests can
    // delay only other searches.
    let permit = std::sync::Arc::clone(&app.searches).acquire_owned().await;
    let permit = permit.map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    let service = std::sync::Arc::clone(&app.engine);
    let search = move || {
        let _permit = permit;
        target.and_then(|target| service.attack(account, target))
    };
    let found = tokio::task::spawn_blocking(search)
        .await
        .map_err(|error| Problem::new(ProblemKind::Internal, error.to_string()))?;
    Ok(Json(view::AttackView {
        targets: app.engine.targets(account).iter().map(target_view).collect(),
        traffic: found.as_ref().map(|found| scope.traffic(found)),
    }))
}

/// Check the filters of an account again, after a new query for its routes and route objects
#[utoipa::path(post, path = "/api/v1/accounts/{id}/recheck", tag = "filters", params(("id" = String, Path, description = "The account")),
    responses((status = 204), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn recheck(
    State(app): State<App>,
    access: Access<AccountId>,
) -> Result<axum::http::StatusCode, Problem> {
    // A repetition gets its stored answer before it reaches this handler, so a hidden account is treated as an
    // absent one.
    access.object()?;
    access.require(OperationKind::WriteFilter)?;
    {
        let mut rechecked = app.rechecked.lock();
        let now = app.uptime();
        if rechecked
            .get(&access.id())
            .is_some_and(|last| now.since(*last) < RECHECK_EVERY)
        {
            let seconds = u32::try_from(RECHECK_EVERY.as_secs()).unwrap_or(u32::MAX);
            return Err(Problem::because(ProblemKind::Busy, reason::recheck_soon()).retry_after(seconds));
        }
        rechecked.insert(access.id(), now);
    }
    app.engine.recheck_filters(access.id());
    Ok(axum::http::StatusCode::NO_CONTENT)
}

/// List BGP sessions: all for operators, those of your own account for members
#[utoipa::path(get, path = "/api/v1/bgp-sessions", tag = "filters", params(PageParams),
    responses((status = 200, body = List<view::BgpSession>), (status = "default", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn sessions(
    State(app): State<App>,
    principal: Principal,
    Query(page): Query<PageParams>,
) -> Result<Json<List<view::BgpSession>>, Problem> {
    principal.require(OperationKind::ReadFilter)?;
    let scope = ViewContext::new(&principal, app.now());
    let mut all = app.engine.bgp_sessions();
    all.retain(|session| {
        principal.actor.is_operator()
            || session
                .account
                .is_some_and(|account| principal.may(OperationKind::ReadFilter, account))
    });
    let numbered: Vec<_> = all.into_iter().enumerate().collect();
    page.page(&numbered, |_, session| view::BgpSession {
        peer: session.peer.to_string(),
        asn: session.asn,
        kind: match session.kind {
            SessionKind::Member => "member".to_owned(),
            SessionKind::RouteServer => "route_server".to_owned(),
        },
        account: session.account.map(|account| scope.account_name(account)),
        state: session.state.to_owned(),
        since: session.since.to_string(),
        routes: session.routes,
        flowspec: session.flowspec,
        error: session.last_error.clone(),
    })
    .map(Json)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::render::new_filter;

    #[test]
    fn the_order_of_a_filter_matches_the_same_packets() {
        let whole = FilterMatch::to("192.0.2.1/32".parse().unwrap());
        let ports = vec![Ports { first: 53, last: 123 }];
        let tcp = FilterMatch {
            source: Some("198.51.100.0/24".parse().unwrap()),
            protocol: Some(6),
            source_ports: ports.clone(),
            destination_ports: ports,
            fragment: Some(FragmentMatch::Not),
            tcp_flags: Some(TcpFlagsMatch {
                mask: 0x12,
                value: 0x02,
            }),
            dscp: Some(46),
            ..whole.clone()
        };
        let icmp = FilterMatch {
            protocol: Some(1),
            icmp_type: Some(3),
            icmp_code: Some(4),
            ..whole
        };
        for matching in [tcp, icmp] {
            let order = new_filter(&matching, FilterAction::Drop);
            assert_eq!(packets(&order).ok(), Some(matching), "{order:?}");
        }
    }
}
