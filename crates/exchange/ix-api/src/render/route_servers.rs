//! Converts sessions with route servers, and rejected routes, into values of the API.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use millrace_bird::{Cause, Report, Route, Scheme, Session};
use millrace_ix_filter::{FoundRoute, Validity};
use millrace_ix_model::{Config, ConfigId, Prefix, Reason, Timestamp, reason};

use super::ViewContext;
use crate::route_servers::{RouteServer, RouteServerStatus};
use crate::view;

/// A route server of the LAN of an end, with its newest status.
#[derive(Clone)]
pub(crate) struct RouteServerReading<'a> {
    pub(crate) server: &'a RouteServer,
    pub(crate) status: RouteServerStatus,
}

/// The addresses and AS numbers by which the sessions of an end are recognised.
pub(crate) struct EndIdentity {
    pub(crate) addresses: Vec<IpAddr>,
    /// The AS numbers of the end; if it has none, those of its account.
    asns: BTreeSet<u32>,
}

impl EndIdentity {
    /// Returns true if a session belongs to the end. A route server may still list the session of a member
    /// that used the address earlier.
    fn owns(&self, session: &Session) -> bool {
        self.asns.is_empty() || session.asn.is_none_or(|asn| self.asns.contains(&asn))
    }
}

/// A rejected route, with its route server and session.
pub(crate) struct RejectedRouteRef<'a> {
    server: &'a RouteServer,
    read_at: Timestamp,
    address: IpAddr,
    route: &'a Route,
}

impl RouteServerReading<'_> {
    /// Returns the sessions with this neighbor address.
    fn sessions(&self, address: IpAddr) -> impl Iterator<Item = &Session> {
        let report: Option<&Arc<Report>> = self.status.report.as_ref().map(|(_, report)| report);
        report
            .into_iter()
            .flat_map(|report| &report.sessions)
            .filter(move |session| session.neighbor == address)
    }
}

impl ViewContext<'_> {
    /// Returns the addresses and the AS numbers of an end.
    pub(crate) fn owner(&self, id: ConfigId, end: &Config) -> EndIdentity {
        let exchange = &self.snapshot.exchange;
        let ips = self.snapshot.index().ips.get(&id).into_iter().flatten();
        EndIdentity {
            addresses: ips.filter_map(|ip| Some(exchange.ips.get(ip)?.address)).collect(),
            asns: exchange.asns_of(end),
        }
    }

    /// Returns the sessions of an end at each route server. An address without a session gets an `absent`
    /// session.
    pub(crate) fn route_server_sessions(
        &self,
        readings: &[RouteServerReading<'_>],
        owner: &EndIdentity,
    ) -> Vec<view::RouteServerSession> {
        let pairs = readings
            .iter()
            .flat_map(|reading| owner.addresses.iter().map(move |address| (reading, *address)));
        let mut all = Vec::new();
        for (reading, address) in pairs {
            let found: Vec<_> = reading
                .sessions(address)
                .filter(|session| owner.owns(session))
                .map(|session| self.route_server_session(reading, address, Some(session)))
                .collect();
            if found.is_empty() {
                all.push(self.route_server_session(reading, address, None));
            }
            all.extend(found);
        }
        all
    }

    fn route_server_session(
        &self,
        RouteServerReading { server, status }: &RouteServerReading<'_>,
        address: IpAddr,
        session: Option<&Session>,
    ) -> view::RouteServerSession {
        let failure = status.failure.as_ref();
        let report = status.report.as_ref();
        let without = if report.is_some() { "absent" } else { "unknown" };
        view::RouteServerSession {
            server: server.fqdn.clone(),
            server_asn: server.asn,
            freshness: status.freshness(server, self.now).name().to_owned(),
            read_at: report.map(|(at, _)| at.to_string()),
            failing_since: failure.map(|failure| failure.since.to_string()),
            // The error text contains paths on the exchange's machines, so only operators see it.
            failure: failure
                .filter(|_| self.principal.actor.is_operator())
                .map(|failure| failure.error.clone()),
            address: address.to_string(),
            name: session.map(|session| session.name.clone()),
            asn: session.and_then(|session| session.asn),
            state: session.map_or(without, |session| session.state.name()).to_owned(),
            imported: session.and_then(|session| session.imported),
            rejected: session.map_or(0, |session| session.rejected.len()),
            truncated: session.is_some_and(|session| session.is_truncated)
                || report.is_some_and(|(_, report)| report.is_truncated),
            error: session.and_then(|session| session.last_error.clone()),
        }
    }
}

/// Returns the rejected routes of an end, ordered by route server, address and prefix.
pub(crate) fn rejections<'a>(
    readings: &'a [RouteServerReading<'a>],
    owner: &EndIdentity,
) -> Vec<RejectedRouteRef<'a>> {
    let mut all = Vec::new();
    for reading in readings {
        let Some((read_at, _)) = reading.status.report else {
            continue;
        };
        for address in &owner.addresses {
            let own = reading.sessions(*address).filter(|session| owner.owns(session));
            let routes = own.flat_map(|session| &session.rejected);
            all.extend(routes.map(|route| RejectedRouteRef {
                server: reading.server,
                read_at,
                address: *address,
                route,
            }));
        }
    }
    all
}

impl RejectedRouteRef<'_> {
    /// Returns the route as a value of the API.
    pub(crate) fn view(&self) -> view::RejectedRoute {
        let route = self.route;
        view::RejectedRoute {
            server: self.server.fqdn.clone(),
            address: self.address.to_string(),
            prefix: route.prefix.to_string(),
            next_hop: route.next_hop.map(|address| address.to_string()),
            as_path: route.as_path.clone(),
            causes: causes(route),
            read_at: self.read_at.to_string(),
        }
    }
}

/// Returns the name of a validity by RPKI in the API.
pub(crate) const fn validity(validity: Validity) -> &'static str {
    match validity {
        Validity::Valid => "valid",
        Validity::Invalid => "invalid",
        Validity::NotFound => "not_found",
    }
}

/// Returns the accepted and the rejected routes of an end, by prefix. `accepted` are those that the engine has from route servers;
/// `states` returns the states of the rejected ones by RPKI and in the registry.
pub(crate) fn member_routes(
    readings: &[RouteServerReading<'_>],
    owner: &EndIdentity,
    accepted: Vec<FoundRoute>,
    states: impl FnOnce(&[(Prefix, Option<u32>)]) -> Vec<(Option<Validity>, Option<bool>)>,
) -> Vec<view::MemberRoute> {
    let server = |peer: IpAddr| {
        let named = readings
            .iter()
            .find(|reading| reading.server.addresses().contains(&peer));
        // The only route server of a LAN has no other session with the engine.
        let only = readings.first().filter(|_| readings.len() == 1);
        named.or(only).map(|reading| reading.server.fqdn.clone())
    };
    let mut all: Vec<(Prefix, view::MemberRoute)> = Vec::new();
    all.extend(accepted.into_iter().map(|route| {
        let shown = view::MemberRoute {
            server: server(route.peer),
            prefix: route.prefix.to_string(),
            next_hop: route.next_hop.map(|address| address.to_string()),
            as_path: route.as_path,
            communities: Some(route.communities),
            rpki: route.rpki.map(|state| validity(state).to_owned()),
            irr: route.irr,
            accepted: true,
            causes: Vec::new(),
        };
        (route.prefix, shown)
    }));
    let rejected = rejections(readings, owner);
    let rejected: Vec<_> = rejected
        .iter()
        .filter_map(|found| {
            let prefix = found.route.prefix;
            let prefix = Prefix::new(prefix.address(), prefix.len()).ok()?;
            let last = found.route.as_path.split_whitespace().next_back();
            Some((found, (prefix, last.and_then(|asn| asn.parse::<u32>().ok()))))
        })
        .collect();
    let asked: Vec<_> = rejected.iter().map(|(_, asked)| *asked).collect();
    let states = states(&asked);
    for ((found, (prefix, _)), (rpki, irr)) in rejected.into_iter().zip(states) {
        let told = found.view();
        let shown = view::MemberRoute {
            server: Some(told.server),
            prefix: told.prefix,
            next_hop: told.next_hop,
            as_path: told.as_path,
            communities: None,
            rpki: rpki.map(|state| validity(state).to_owned()),
            irr,
            accepted: false,
            causes: told.causes,
        };
        all.push((prefix, shown));
    }
    all.sort_by_key(|(prefix, _)| *prefix);
    all.into_iter().map(|(_, route)| route).collect()
}

/// Returns the causes for which a route is rejected; one that says so if the route server gives none.
pub(crate) fn causes(route: &Route) -> Vec<view::RejectCause> {
    let given = route.causes.iter();
    let mut causes: Vec<view::RejectCause> = given
        .map(|cause| reject_cause(Some(cause.to_string()), &meaning(cause)))
        .collect();
    if causes.is_empty() {
        causes.push(reject_cause(None, &reason::route_without_cause()));
    }
    causes
}

fn reject_cause(community: Option<String>, reason: &Reason) -> view::RejectCause {
    view::RejectCause {
        community,
        text: reason.text.clone(),
        coded: view::coded(&reason.coded),
    }
}

/// Returns the meaning of a cause, from the tables in arouteserver's documentation ("Reject reasons") and in
/// IXP Manager (`community-filtering-definitions`).
fn meaning(cause: &Cause) -> Reason {
    match (cause.scheme, cause.number) {
        (Scheme::Arouteserver, 1) => reason::route_as_path_length(),
        (Scheme::Arouteserver, 2) | (Scheme::EuroIx, 3) => reason::route_bogon(),
        (Scheme::Arouteserver, 3) => reason::route_blacklisted(),
        (Scheme::Arouteserver, 4) => reason::route_address_family(),
        (Scheme::Arouteserver, 5) | (Scheme::EuroIx, 8) => reason::route_next_hop(),
        (Scheme::Arouteserver, 6) | (Scheme::EuroIx, 7) => reason::route_first_asn(),
        (Scheme::Arouteserver, 7) | (Scheme::EuroIx, 4) => reason::route_bogon_asn(),
        (Scheme::Arouteserver, 8) | (Scheme::EuroIx, 14) => reason::route_transit_free_asn(),
        (Scheme::Arouteserver, 9) | (Scheme::EuroIx, 10) => reason::route_origin_not_in_as_set(),
        (Scheme::Arouteserver, 10) => reason::route_not_global_unicast(),
        (Scheme::Arouteserver, 11) => reason::route_blacklisted_for_client(),
        (Scheme::Arouteserver, 12) | (Scheme::EuroIx, 9) => reason::route_prefix_not_in_as_set(),
        (Scheme::Arouteserver, 13) => reason::route_prefix_length(),
        (Scheme::Arouteserver, 14) | (Scheme::EuroIx, 13) => reason::route_rpki_invalid(),
        (Scheme::Arouteserver, 15) => reason::route_never_via_route_servers(),
        (Scheme::Arouteserver, 65_535) => reason::route_without_cause(),
        (Scheme::EuroIx, 1) => reason::route_prefix_too_long(),
        (Scheme::EuroIx, 2) => reason::route_prefix_too_short(),
        (Scheme::EuroIx, 5) => reason::route_as_path_too_long(),
        (Scheme::EuroIx, 6) => reason::route_as_path_too_short(),
        (Scheme::EuroIx, 11) => reason::route_prefix_not_of_origin(),
        (Scheme::EuroIx, 12) => reason::route_rpki_unknown(),
        (Scheme::EuroIx, 15) => reason::route_too_many_communities(),
        _ => reason::route_cause_unknown(cause),
    }
}
