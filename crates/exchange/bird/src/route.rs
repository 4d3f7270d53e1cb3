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
use crate::cause::{Cause, Causes, settle};
use crate::limits::{ROUTES, SESSION_ROUTES};
use crate::reply::Line;

/// The code of a route's first line.
const ROUTE: u16 = 1007;
/// The code of its attributes.
const ATTRIBUTES: u16 = 1012;

/// A route that a route server rejects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Route {
    pub prefix: Prefix,
    /// The next hop; `None` if BIRD told none.
    pub next_hop: Option<IpAddr>,
    /// The AS path as BIRD writes it: numbers, sets in braces.
    pub as_path: String,
    /// The causes, ordered; empty if the route server gives none.
    pub causes: Vec<Cause>,
}

/// The rejected routes of one session.
#[derive(Clone, Default, Debug)]
pub(crate) struct SessionRoutes {
    pub(crate) routes: BTreeSet<Route>,
    /// True if there are more than are kept.
    pub(crate) is_truncated: bool,
}

/// The rejected routes of the sessions of one route server, by the names of the sessions.
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

    /// Adds a route of a known session. A pipe between tables shows the same route in both: it is added once.
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

    /// Takes the routes of a session.
    pub(crate) fn take(&mut self, session: &str) -> SessionRoutes {
        self.sessions.remove(session).unwrap_or_default()
    }
}

/// The form in which a route server holds rejected routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// In its tables, with a cause in the communities.
    Tagged,
    /// Filtered, with or without a cause.
    Filtered,
}

/// Reads an answer to `show route all`.
#[derive(Clone, Debug)]
pub(crate) struct RouteParser {
    causes: Causes,
    form: Form,
    /// The prefix of the last route's line; the lines of further routes with it have none.
    prefix: Option<Prefix>,
    begun: Option<(String, Route)>,
    /// The lines that should have begun a route, and did not.
    skipped: u64,
}

impl RouteParser {
    pub(crate) fn new(causes: Causes, form: Form) -> RouteParser {
        RouteParser {
            causes,
            form,
            prefix: None,
            begun: None,
            skipped: 0,
        }
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Reads a line, and adds the route that ends before it to `rejected`.
    pub(crate) fn read(&mut self, line: &Line, rejected: &mut Rejected) {
        match line.code {
            ROUTE if line.text.starts_with('\t') => {}
            ROUTE => {
                self.end(rejected);
                self.route(&line.text);
            }
            ATTRIBUTES => {
                if let Some((_, route)) = &mut self.begun {
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
        let Some((session, mut route)) = self.begun.take() else {
            return;
        };
        let has_cause = !route.causes.is_empty();
        settle(&mut route.causes);
        if has_cause || self.form == Form::Filtered {
            rejected.add(&session, route);
        }
    }

    /// Begins a route with its first line.
    fn route(&mut self, text: &str) {
        let Some((before, after)) = text.split_once('[') else {
            // An empty line, or the name of a table.
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
                self.begun = Some((bounded(session), route));
            }
            _ => self.skipped += 1,
        }
    }
}

/// Reads an attribute `key: value` into a route.
fn attribute(text: &str, causes: &Causes, route: &mut Route) {
    let Some((key, value)) = text.split_once(':') else {
        return;
    };
    match key {
        "BGP.as_path" => route.as_path = bounded(value),
        // A link-local address may follow the global one.
        "BGP.next_hop" => {
            route.next_hop = value.split_whitespace().next().and_then(|text| text.parse().ok());
        }
        "BGP.community" | "BGP.large_community" => causes.read(value, &mut route.causes),
        _ => {}
    }
}

fn parse_prefix(text: &str) -> Option<Prefix> {
    let (address, len) = text.split_once('/')?;
    Prefix::new(IpAddr::from_str(address).ok()?, len.parse().ok()?)
}
