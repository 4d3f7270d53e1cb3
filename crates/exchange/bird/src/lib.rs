//! A reader of a route server that runs BIRD 2: its BGP sessions, and the routes that it rejects, with their causes.
//!
//! ```text
//!   bytes of the control socket ──► Lines ──► Line ──► Client ──► SessionParser, RouteParser ──► Report
//!                                                     │  ▲
//!   commands to send, deadline ◄──────────────────────┘  └── time
//! ```
//!
//! BIRD documents the protocol in `doc/reply_codes` and in `nest/cli.c` of its source. The client sends `restrict` first, after
//! which BIRD refuses every command of the connection but those that show something.
//!
//! A route server holds rejected routes in one of two forms, and the client asks for both:
//!
//! | form | made by | command |
//! | --- | --- | --- |
//! | a route of a table with a cause in its communities | arouteserver with `reject_policy: tag`, IXP Manager | `show route ... where` |
//! | a filtered route | a filter that ends in `reject`, with `import keep filtered` | `show route ... filtered` |
//!
//! Pure: no IO, no clock ([`millrace_types::Time`] is an argument), no randomness. Lines, sessions, routes and the bytes of an
//! answer are bounded by [`limits`].

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

/// The bounds of memory and time: a route server is another process, perhaps on another machine.
pub mod limits {
    use millrace_types::Duration;

    /// The longest line, in bytes; a longer one is skipped. A message of 64 KiB (RFC 8654) has 16,000 communities.
    pub const LINE_SIZE: usize = 256 * 1024;
    /// The bytes of all answers of one round. A round that has more ends early, and its report is truncated.
    pub const ROUND_SIZE: usize = 64 * 1024 * 1024;
    /// The number of BGP sessions.
    pub const SESSIONS: usize = 10_000;
    /// The number of rejected routes of one session.
    pub const SESSION_ROUTES: usize = 1_000;
    /// The number of rejected routes of all sessions.
    pub const ROUTES: usize = 100_000;
    /// The number of causes of one route.
    pub const CAUSES: usize = 16;
    /// The longest text of a route or a session, in bytes: name, AS path, error.
    pub const TEXT_SIZE: usize = 512;
    /// The time for one answer.
    pub const ANSWER_TIME: Duration = Duration::from_secs(60);
}

/// Returns the text without control characters, and not longer than [`limits::TEXT_SIZE`].
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
