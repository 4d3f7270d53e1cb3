//! The BGP sessions of `show protocols all`.
//!
//! ```text
//!   1002-AS64500_1  BGP        ---        up     05:33:14.409  Established
//!   1006-  Description:    Aoba Networks
//!      BGP state:          Established
//!        Neighbor address: 192.0.2.10
//!        Neighbor AS:      64500
//!        Last error:       BGP Error: Bad peer AS
//!      Channel ipv4
//!        Routes:         1 imported, 1 filtered, 3 exported, 0 preferred
//! ```

use core::net::IpAddr;

use crate::bounded;
use crate::limits::SESSIONS;
use crate::reply::Line;
use crate::route::Route;

/// The reply code of the first line of a protocol.
const PROTOCOL: u16 = 1002;
/// The reply code of the details of a protocol.
const DETAILS: u16 = 1006;

/// The state of a session, from `BGP state` in BIRD's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionState {
    Idle,
    Connect,
    Active,
    OpenSent,
    OpenConfirm,
    Established,
    /// The connection is being closed.
    Close,
    /// The session is disabled.
    Down,
    /// The route server waits for the neighbor's connection.
    Passive,
    /// BIRD gave no state, or a state that is unknown here.
    Unknown,
}

impl SessionState {
    /// Returns the name of the state in the API.
    pub const fn name(self) -> &'static str {
        match self {
            SessionState::Idle => "idle",
            SessionState::Connect => "connect",
            SessionState::Active => "active",
            SessionState::OpenSent => "open_sent",
            SessionState::OpenConfirm => "open_confirm",
            SessionState::Established => "established",
            SessionState::Close => "close",
            SessionState::Down => "down",
            SessionState::Passive => "passive",
            SessionState::Unknown => "unknown",
        }
    }

    fn parse(text: &str) -> SessionState {
        match text {
            "Idle" => SessionState::Idle,
            "Connect" => SessionState::Connect,
            "Active" => SessionState::Active,
            "OpenSent" => SessionState::OpenSent,
            "OpenConfirm" => SessionState::OpenConfirm,
            "Established" => SessionState::Established,
            "Close" => SessionState::Close,
            "Down" => SessionState::Down,
            "Passive" => SessionState::Passive,
            _ => SessionState::Unknown,
        }
    }
}

/// A BGP session of a route server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The name of the protocol in BIRD's configuration.
    pub name: String,
    pub state: SessionState,
    /// The address of the neighbor.
    pub neighbor: IpAddr,
    /// The autonomous system of the neighbor; `None` if any is allowed.
    pub asn: Option<u32>,
    /// The number of imported routes in the table; `None` while the session is down.
    pub imported: Option<u64>,
    /// The number of routes that BIRD has filtered and kept; `None` without `import keep filtered`.
    pub filtered: Option<u64>,
    pub last_error: Option<String>,
    /// The rejected routes, ordered by prefix.
    pub rejected: Vec<Route>,
    /// True if the session has more rejected routes than `rejected` lists.
    pub is_truncated: bool,
}

/// A session with more lines to come.
#[derive(Clone, Debug)]
struct PartialSession {
    session: Session,
    has_neighbor: bool,
}

/// Reads the answer to `show protocols all`.
#[derive(Clone, Default, Debug)]
pub(crate) struct SessionParser {
    sessions: Sessions,
    partial: Option<PartialSession>,
}

/// The sessions of a route server.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sessions {
    pub(crate) list: Vec<Session>,
    /// True if BIRD has more sessions than are kept.
    pub(crate) is_truncated: bool,
}

impl SessionParser {
    /// Reads a line.
    pub(crate) fn read(&mut self, line: &Line) {
        match line.code {
            PROTOCOL => {
                self.end();
                let mut columns = line.text.split_whitespace();
                if let (Some(name), Some("BGP")) = (columns.next(), columns.next()) {
                    self.partial = Some(PartialSession::new(name));
                }
            }
            DETAILS => {
                if let Some(partial) = &mut self.partial {
                    partial.detail(line.text.trim());
                }
            }
            _ => {}
        }
    }

    /// Returns the sessions with a neighbor.
    pub(crate) fn finish(mut self) -> Sessions {
        self.end();
        self.sessions
    }

    fn end(&mut self) {
        // A template for sessions with a range of neighbors has no neighbor address.
        let Some(partial) = self.partial.take().filter(|partial| partial.has_neighbor) else {
            return;
        };
        if self.sessions.list.len() < SESSIONS {
            self.sessions.list.push(partial.session);
        } else {
            self.sessions.is_truncated = true;
        }
    }
}

impl PartialSession {
    fn new(name: &str) -> PartialSession {
        PartialSession {
            session: Session {
                name: bounded(name),
                state: SessionState::Unknown,
                neighbor: IpAddr::from([0, 0, 0, 0]),
                asn: None,
                imported: None,
                filtered: None,
                last_error: None,
                rejected: Vec::new(),
                is_truncated: false,
            },
            has_neighbor: false,
        }
    }

    /// Reads a line `key: value`.
    fn detail(&mut self, text: &str) {
        let Some((key, value)) = text.split_once(':') else {
            return;
        };
        let (session, value) = (&mut self.session, value.trim());
        match key {
            "BGP state" => session.state = SessionState::parse(value),
            "Neighbor address" => {
                // The interface follows a link-local address: fe80::1%eth0.
                let address = value.split('%').next().and_then(|address| address.parse().ok());
                if let Some(address) = address {
                    session.neighbor = address;
                    self.has_neighbor = true;
                }
            }
            "Neighbor AS" => session.asn = value.parse().ok(),
            "Last error" => session.last_error = Some(bounded(value)),
            "Routes" => {
                // Each channel has its own line of route counts.
                for (count, kind) in value.split(',').filter_map(|part| part.trim().split_once(' ')) {
                    let total = match kind {
                        "imported" => &mut session.imported,
                        "filtered" => &mut session.filtered,
                        _ => continue,
                    };
                    if let Ok(count) = count.parse::<u64>() {
                        *total = Some(total.unwrap_or(0).saturating_add(count));
                    }
                }
            }
            _ => {}
        }
    }
}
