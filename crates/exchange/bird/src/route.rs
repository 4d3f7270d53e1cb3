//! The routes of `show route all`. Attributes begin with a tab.
//!
//! ```text
//!   1007-Table master4:
//!    203.0.113.0/24  unicast [AS64500_1 05:33:14.518 from 192.0.2.10] (100) [AS64500i]
//!       via 192.0.2.10 on lan
//!   1008-    Type: BGP univ
//!   1012-    BGP.as_path: 64500 4200000001
//!        BGP.next_hop: 192.0.2.10
//!        BGP.community: (65520,0) (65520,2)
//!   1007-                unicast [AS64501_1 ...      another route with the same prefix
//! ```

use core::net::IpAddr;
use core::str::FromStr as _;
use std::collections::{BTreeMap, BTreeSet};

use millrace_bgp::Prefix;

use crate::bounded;
use crate::cause::{Cause, Causes, sort_causes};
use crate::limits::{ROUTES, SESSION_ROUTES};
use crate::reply::Line;

/// The reply code of the first line of a route.
const ROUTE: u16 = 1007;
/// The reply code of the attributes of a route.
const ATTRIBUTES: u16 = 1012;

/// A route that a route server rejects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Route {
    pub prefix: Prefix,
    /// The next hop; `None` if BIRD gives none.
    pub next_hop: Option<IpAddr>,
    /// The AS path as BIRD prints it: AS numbers, and sets in braces.
    pub as_path: String,
    /// The causes, sorted; empty if the route server gives none.
    pub causes: Vec<Cause>,
}

/// The rejected routes of one session.
#[derive(Clone, Default, Debug)]
pub(crate) struct SessionRoutes {
    pub(crate) routes: BTreeSet<Route>,
    /// True if the session has more rejected routes than are kept.
    pub(crate) is_truncated: bool,
}

/// The rejected routes of one route server, by the names of its sessions.
#[derive(Clone, Default, Debug)]
pub(crate) struct Rejected {
    sessions: BTreeMap<String, SessionRoutes>,
    len: usize,
}

impl Rejected {
    /// Returns an empty collection for sessions with these names.
    pub(crate) fn new(names: impl Iterator<Item = String>) -> Rejected {
        Rejected {
            sessions: names.map(|name| (name, SessionRoutes::default())).collect(),
            len: 0,
        }
    }

    /// Adds a route of a known session. A route that a pipe copies is in two tables, and is added once.
    fn add(&mut self, session: &str, route: Route) {
        let Some(found) = self.sessions.get_mut(session) else {
            return;
        };
        if found.routes.contains(&route) {
            return;
        }
        if found.routes.len() < SESSION_ROUTES && self.len < ROUTES {
            found.routes.insert(route);
            self.len += 1;
        } else {
            found.is_truncated = true;
        }
    }

    /// Returns and removes the routes of a session.
    pub(crate) fn take(&mut self, session: &str) -> SessionRoutes {
        self.sessions.remove(session).unwrap_or_default()
    }
}

/// The form in which a route server stores rejected routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Rejected routes are in the tables, with a cause in their communities.
    Tagged,
    /// Rejected routes are filtered, with or without a cause.
    Filtered,
}

/// A route with more lines to come.
#[derive(Clone, Debug)]
struct PartialRoute {
    /// The name of its session.
    session: String,
    route: Route,
}

/// Reads an answer to `show route all`.
#[derive(Clone, Debug)]
pub(crate) struct RouteParser {
    causes: Causes,
    form: Form,
    /// The prefix in the last line that has one. Further routes with the same prefix follow in lines without
    /// a prefix.
    prefix: Option<Prefix>,
    partial: Option<PartialRoute>,
    /// The number of lines that could not be parsed as the first line of a route.
    skipped: u64,
}

impl RouteParser {
    pub(crate) fn new(causes: Causes, form: Form) -> RouteParser {
        RouteParser {
            causes,
            form,
            prefix: None,
            partial: None,
            skipped: 0,
        }
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Reads a line. If it begins a new route, adds the previous route to `rejected`.
    pub(crate) fn read(&mut self, line: &Line, rejected: &mut Rejected) {
        match line.code {
            ROUTE if line.text.starts_with('\t') => {}
            ROUTE => {
                self.end(rejected);
                self.route(&line.text);
            }
            ATTRIBUTES => {
                if let Some(PartialRoute { route, .. }) = &mut self.partial {
                    attribute(line.text.trim(), &self.causes, route);
                }
            }
            _ => {}
        }
    }

    /// Adds the last route to `rejected`. Returns the number of lines that were skipped.
    pub(crate) fn finish(mut self, rejected: &mut Rejected) -> u64 {
        self.end(rejected);
        self.skipped
    }

    fn end(&mut self, rejected: &mut Rejected) {
        let Some(PartialRoute { session, mut route }) = self.partial.take() else {
            return;
        };
        let has_cause = !route.causes.is_empty();
        sort_causes(&mut route.causes);
        if has_cause || self.form == Form::Filtered {
            rejected.add(&session, route);
        }
    }

    /// Starts a route from its first line.
    fn route(&mut self, text: &str) {
        let Some((before, after)) = text.split_once('[') else {
            // The line is empty, or names a table.
            self.prefix = None;
            return;
        };
        if !before.starts_with(' ') {
            self.prefix = before.split_whitespace().next().and_then(parse_prefix);
        }
        let session = after.split([' ', ']']).next().filter(|name| !name.is_empty());
        match (self.prefix, session) {
            (Some(prefix), Some(session)) => {
                let route = Route {
                    prefix,
                    next_hop: None,
                    as_path: String::new(),
                    causes: Vec::new(),
                };
                self.partial = Some(PartialRoute {
                    session: bounded(session),
                    route,
                });
            }
            _ => self.skipped += 1,
        }
    }
}

/// Reads an attribute `key: value` into a route. BIRD 3 names attributes as its filters do.
fn attribute(text: &str, causes: &Causes, route: &mut Route) {
    let Some((key, value)) = text.split_once(':') else {
        return;
    };
    match key {
        "BGP.as_path" | "bgp_path" => route.as_path = bounded(value),
        // A link-local address may follow the global address.
        "BGP.next_hop" | "bgp_next_hop" => {
            route.next_hop = value.split_whitespace().next().and_then(|text| text.parse().ok());
        }
        "BGP.community" | "BGP.large_community" | "bgp_community" | "bgp_large_community" => {
            causes.read(value, &mut route.causes);
        }
        _ => {}
    }
}

fn parse_prefix(text: &str) -> Option<Prefix> {
    let (address, len) = text.split_once('/')?;
    Prefix::new(IpAddr::from_str(address).ok()?, len.parse().ok()?)
}
