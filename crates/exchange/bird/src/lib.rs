//! Reads the BGP sessions and the rejected routes, with the causes, from a route server that runs BIRD 2 or 3.
//!
//! ```text
//!   bytes of the control socket ──► Lines ──► Line ──► Client ──► SessionParser, RouteParser ──► Report
//!                                                     │  ▲
//!   commands to send, deadline ◄──────────────────────┘  └── time
//! ```
//!
//! BIRD documents the protocol in `doc/reply_codes` and in `nest/cli.c` of its source. The client first sends
//! `restrict`. On this connection, BIRD then accepts only commands that change nothing.
//!
//! A route server stores rejected routes in one of two forms, and the client asks for both:
//!
//! | form | made by | command |
//! | --- | --- | --- |
//! | a route of a table with a cause in its communities | arouteserver with `reject_policy: tag`, IXP Manager | `show route ... where` |
//! | a filtered route | a filter that ends in `reject`, with `import keep filtered` | `show route ... filtered` |
//!
//! This crate is pure: no IO, no clock ([`millrace_types::Time`] is an argument), no randomness. The
//! [`limits`] apply to lines, sessions, routes and the bytes of an answer.

#![forbid(unsafe_code)]

mod cause;
mod client;
mod reply;
mod route;
mod session;

pub use cause::{Cause, CauseParseError, CausePattern, Scheme};
pub use client::{Client, Error, Report, Settings};

pub use route::Route;
pub use session::{Session, SessionState};

/// The limits of memory and time, because a route server is another process, perhaps on another machine.
pub mod limits {
    use millrace_types::Duration;

    /// The maximum length of a line, in bytes; a longer line is skipped. A message of 64 KiB (RFC 8654) has fewer
    /// than 16,384 communities, each of up to 14 characters with its blank.
    pub const LINE_SIZE: usize = 256 * 1024;
    /// The maximum size of all answers in a round, in bytes. A larger round ends early, and its report is
    /// truncated.
    pub const ROUND_SIZE: usize = 64 * 1024 * 1024;
    /// The maximum number of BGP sessions.
    pub const SESSIONS: usize = 10_000;
    /// The maximum number of rejected routes of one session.
    pub const SESSION_ROUTES: usize = 1_000;
    /// The maximum number of rejected routes of all sessions.
    pub const ROUTES: usize = 100_000;
    /// The maximum number of causes of one route.
    pub const CAUSES: usize = 16;
    /// The maximum length of a text of a route or a session (name, AS path, error), in bytes.
    pub const TEXT_SIZE: usize = 512;
    /// The maximum time for one answer.
    pub const ANSWER_TIME: Duration = Duration::from_secs(60);
}

/// Returns the text without control characters and without blanks at its ends. A text longer than
/// [`limits::TEXT_SIZE`] is truncated to that size, and an ellipsis is appended.
fn bounded(text: &str) -> String {
    let mut bounded = String::new();
    for character in text.trim().chars().filter(|character| !character.is_control()) {
        if bounded.len() + character.len_utf8() > limits::TEXT_SIZE {
            bounded.push('…');
            break;
        }
        bounded.push(character);
    }
    bounded
}
