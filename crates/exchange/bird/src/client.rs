//! The client of one control socket. In each round, it reads the sessions and the rejected routes.
//!
//! ```text
//!   connected ─► Greeting ─► Restrict ─► Sessions ─► Tagged ─► Filtered ─► Report
//!                                           ▲                                 │
//!                                           └──────── Waiting ◄───────────────┘
//! ```

use millrace_types::{Duration, Time};

use crate::cause::{CausePattern, Causes};
use crate::limits::{ANSWER_TIME, ROUND_SIZE};
use crate::reply::{Line, Lines};
use crate::route::{Form, Rejected, RouteParser};
use crate::session::{Session, SessionParser};

/// The reply code of the greeting.
const READY: u16 = 1;
/// The reply code of `restrict`.
const RESTRICTED: u16 = 16;
/// The lowest reply code of an error: 8xxx are errors of commands, 9xxx are syntax errors.
const ERRORS: u16 = 8000;
/// The reply codes for "no such route" and "no such protocol", which count as an empty answer.
const NOTHING: [u16; 2] = [8001, 8003];

/// The settings of a client.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The autonomous system of the route server.
    pub asn: u32,
    /// The communities in which causes are written, in addition to those of Euro-IX.
    pub reject_cause: CausePattern,
    /// The time from the end of one round to the start of the next.
    pub interval: Duration,
}

/// The state of a route server at the end of a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The version of BIRD, such as `BIRD 2.0.12`.
    pub version: String,
    /// The sessions in the order of BIRD's configuration.
    pub sessions: Vec<Session>,
    /// True if the answers exceeded [`limits::ROUND_SIZE`](crate::limits::ROUND_SIZE), or BIRD has more
    /// sessions than `sessions` lists.
    pub is_truncated: bool,
    /// The number of lines that could not be parsed.
    pub skipped_lines: u64,
}

/// The error for a conversation that cannot continue. The connection must be closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    #[error("the first line is {line:?}: expected the greeting of BIRD, such as \"0001 BIRD 2.0.12 ready.\"")]
    NotBird { line: String },
    #[error("BIRD answered {code:04} {text:?} to `restrict`: expected \"0016 Access restricted\"")]
    NotRestricted { code: u16, text: String },
    #[error("BIRD answered {code:04} {text:?} to `{command}`: expected its data, as BIRD 2 and 3 give it")]
    Refused {
        command: String,
        code: u16,
        text: String,
    },
    #[error("no greeting came within {} s: expected a line such as \"0001 BIRD 2.0.12 ready.\"", ANSWER_TIME.as_secs())]
    NoGreeting,
    #[error("more than {} MiB came that no command asked for: expected lines of answers only", ROUND_SIZE >> 20)]
    Unasked,
    #[error("BIRD did not answer `{command}` within {} s", ANSWER_TIME.as_secs())]
    NoAnswer { command: String },
}

/// The current phase of the conversation.
#[derive(Clone, Debug)]
enum Phase {
    Disconnected,
    Greeting,
    Restrict,
    Sessions(SessionParser),
    Routes(RouteParser),
    /// The client waits for the next round.
    Waiting,
}

/// A client of a BIRD control socket.
#[derive(Clone, Debug)]
pub struct Client {
    settings: Settings,
    causes: Causes,
    lines: Lines,
    phase: Phase,
    /// The time of the next round while the client waits; otherwise the time by which the answer must be
    /// complete.
    deadline: Time,
    output: Vec<u8>,
    version: String,
    round: Round,
}

/// The results of the current round.
#[derive(Clone, Default, Debug)]
struct Round {
    sessions: Vec<Session>,
    rejected: Rejected,
    is_truncated: bool,
    skipped: u64,
    /// The size of the answers so far, in bytes.
    size: usize,
}

impl Client {
    /// Returns a client without a connection.
    pub fn new(settings: Settings) -> Client {
        Client {
            causes: Causes::new(settings.asn, settings.reject_cause),
            settings,
            lines: Lines::default(),
            phase: Phase::Disconnected,
            deadline: Time::ZERO,
            output: Vec::new(),
            version: String::new(),
            round: Round::default(),
        }
    }

    /// Starts a conversation, in which BIRD sends the first line.
    pub fn connected(&mut self, now: Time) {
        self.lines = Lines::default();
        self.output.clear();
        self.round = Round::default();
        self.phase = Phase::Greeting;
        self.deadline = now + ANSWER_TIME;
    }

    /// Ends the conversation.
    pub fn connection_lost(&mut self) {
        self.phase = Phase::Disconnected;
        self.round = Round::default();
        self.output.clear();
    }

    /// Returns and removes the bytes to send.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Returns the time at which the next call of [`poll`](Client::poll) is due; `None` without a connection.
    pub fn deadline(&self) -> Option<Time> {
        (!matches!(self.phase, Phase::Disconnected)).then_some(self.deadline)
    }

    /// Starts a round if it is due.
    ///
    /// # Errors
    /// [`Error::NoGreeting`] and [`Error::NoAnswer`] if an answer is overdue.
    pub fn poll(&mut self, now: Time) -> Result<(), Error> {
        match self.phase {
            Phase::Disconnected => Ok(()),
            _ if now < self.deadline => Ok(()),
            Phase::Waiting => {
                self.begin_round(now);
                Ok(())
            }
            Phase::Greeting => Err(Error::NoGreeting),
            _ => Err(Error::NoAnswer {
                command: self.command(),
            }),
        }
    }

    /// Handles received bytes. Returns a report if they end a round. A round whose answers are too long also
    /// ends the conversation: [`deadline`](Client::deadline) then returns `None`, and the connection must be
    /// closed.
    ///
    /// # Errors
    /// An [`Error`] if BIRD refuses a command, or if the other side is not BIRD.
    pub fn receive(&mut self, bytes: &[u8], now: Time) -> Result<Option<Report>, Error> {
        self.round.size = self.round.size.saturating_add(bytes.len());
        let mut report = None;
        let lines = self.lines.receive(bytes);
        if let (Phase::Greeting, Some(line)) = (&self.phase, self.lines.first_skipped()) {
            let line = line.to_owned();
            return Err(Error::NotBird { line });
        }
        for line in lines {
            if let Some(ended) = self.line(&line, now)? {
                report = Some(ended);
            }
        }
        if report.is_none() && self.round.size > ROUND_SIZE {
            match self.phase {
                Phase::Sessions(_) | Phase::Routes(_) => report = Some(self.cut_round()),
                _ => return Err(Error::Unasked),
            }
        }
        Ok(report)
    }

    /// Returns the command of the current phase.
    fn command(&self) -> String {
        match &self.phase {
            Phase::Disconnected | Phase::Greeting | Phase::Waiting => String::new(),
            Phase::Restrict => "restrict".to_owned(),
            Phase::Sessions(_) => "show protocols all".to_owned(),
            Phase::Routes(parser) => match parser.form() {
                Form::Tagged => format!("show route table all all where {}", self.causes.condition()),
                Form::Filtered => "show route table all all filtered".to_owned(),
            },
        }
    }

    fn begin(&mut self, phase: Phase, now: Time) {
        self.phase = phase;
        self.output.extend(self.command().bytes());
        self.output.push(b'\n');
        self.deadline = now + ANSWER_TIME;
    }

    fn begin_round(&mut self, now: Time) {
        self.round = Round::default();
        self.begin(Phase::Sessions(SessionParser::default()), now);
    }

    fn begin_routes(&mut self, form: Form, now: Time) {
        self.begin(Phase::Routes(RouteParser::new(self.causes, form)), now);
    }

    fn line(&mut self, line: &Line, now: Time) -> Result<Option<Report>, Error> {
        match &mut self.phase {
            // The line belongs to no answer.
            Phase::Disconnected | Phase::Waiting => self.round.skipped += 1,
            Phase::Greeting => {
                let version = line
                    .text
                    .strip_suffix(" ready.")
                    .filter(|text| text.starts_with("BIRD "));
                let Some(version) = version.filter(|_| line.code == READY && line.is_last) else {
                    let line = format!("{:04} {}", line.code, crate::bounded(&line.text));
                    return Err(Error::NotBird { line });
                };
                self.version = crate::bounded(version);
                self.begin(Phase::Restrict, now);
            }
            Phase::Restrict if line.code == RESTRICTED && line.is_last => self.begin_round(now),
            Phase::Restrict => {
                let text = crate::bounded(&line.text);
                return Err(Error::NotRestricted {
                    code: line.code,
                    text,
                });
            }
            Phase::Sessions(_) | Phase::Routes(_) if line.code >= ERRORS && !NOTHING.contains(&line.code) => {
                return Err(Error::Refused {
                    command: self.command(),
                    code: line.code,
                    text: crate::bounded(&line.text),
                });
            }
            Phase::Sessions(parser) => {
                parser.read(line);
                if line.is_last {
                    self.end_answer();
                    self.begin_routes(Form::Tagged, now);
                }
            }
            Phase::Routes(parser) => {
                parser.read(line, &mut self.round.rejected);
                let form = parser.form();
                if line.is_last {
                    self.end_answer();
                    if form == Form::Filtered {
                        self.deadline = now + self.settings.interval;
                        return Ok(Some(self.report()));
                    }
                    self.begin_routes(Form::Filtered, now);
                }
            }
        }
        Ok(None)
    }

    /// Adds the results of the current answer to the round.
    fn end_answer(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Sessions(parser) => {
                let sessions = parser.finish();
                let names = sessions.list.iter().map(|session| session.name.clone());
                self.round.rejected = Rejected::new(names);
                self.round.sessions = sessions.list;
                self.round.is_truncated |= sessions.is_truncated;
            }
            Phase::Routes(parser) => self.round.skipped += parser.finish(&mut self.round.rejected),
            _ => {}
        }
    }

    /// Ends a round whose answers are too long. Returns the results so far.
    fn cut_round(&mut self) -> Report {
        self.end_answer();
        self.round.is_truncated = true;
        let report = self.report();
        self.connection_lost();
        report
    }

    fn report(&mut self) -> Report {
        let mut round = std::mem::take(&mut self.round);
        for session in &mut round.sessions {
            let found = round.rejected.take(&session.name);
            session.rejected = found.routes.into_iter().collect();
            session.is_truncated = found.is_truncated;
        }
        Report {
            version: self.version.clone(),
            sessions: round.sessions,
            is_truncated: round.is_truncated,
            skipped_lines: round.skipped + self.lines.take_skipped(),
        }
    }
}
