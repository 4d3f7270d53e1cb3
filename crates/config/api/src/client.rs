//! Asks a server: blocking, for the command line and for tests.

mod unix;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use ureq::http::{Response, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, RequestBuilder};

use crate::view::{
    Bridge, Chain, Committed, Confirmation, Controller, CountersReset, Diff, Drop, EgressQueue, FlowMods,
    FlowModsDone, FlowPage, Group, Log, LogChange, MacEntry, Meter, Port, Problem, Ready, ResetFlowCounters,
    ResetPortCounters, Restarted, Revision, RevisionConfig, Revisions, Status, Table, Trace,
    TraceLiveRequest, TraceRequest, Version, Worker,
};

/// How long to wait for a connection: the server is near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is read whole.
const ANSWER_MAX_SIZE: u64 = 64 << 20;

/// Why the server gave no useful answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody answers at the address.
    #[error("no answer at {url}: {detail}")]
    Unreachable {
        /// The address.
        url: String,
        /// What the system said.
        detail: String,
    },
    /// The Unix socket is not for this user.
    #[error("no access to {}: only {may} may connect", path.display())]
    Denied {
        /// The socket.
        path: PathBuf,
        /// Who may: `root`, or `root and user 997`.
        may: String,
    },
    /// The server refused, and said why.
    #[error("{0}")]
    Problem(Problem),
    /// The answer is not of a Millrace server.
    #[error("{url} gave an answer that is not Millrace's (HTTP {status}): {detail}")]
    Foreign {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What is odd about it.
        detail: String,
    },
    /// The address cannot be used.
    #[error(
        "`{url}` is not the address of a server: expected unix:/run/millrace/millraced.sock or the form http://127.0.0.1:8080"
    )]
    BadUrl {
        /// The address.
        url: String,
    },
    /// The file with the authority's certificate cannot be used.
    #[error("{path}: {detail}: expected a PEM certificate")]
    BadCa {
        /// The file.
        path: String,
        /// What is wrong.
        detail: String,
    },
}

/// How a change of the configuration is to be made.
#[derive(Debug, Clone, Default)]
pub struct ChangeOptions {
    /// Only check, and show what would change.
    pub dry_run: bool,
    /// Take it back after so many seconds unless it is confirmed.
    pub confirm_within: Option<u64>,
    /// Who.
    pub author: String,
    /// Why.
    pub comment: String,
}

/// What to capture.
#[derive(Debug, Clone, Default)]
pub struct CaptureOptions {
    /// Only of this port, by name or number.
    pub port: Option<String>,
    /// Only `rx` or `tx`.
    pub direction: Option<String>,
    /// Only packets that match, in the syntax of flows.
    pub matching: Option<String>,
    /// Only packets that this program of classic BPF accepts, in the form of `tcpdump -ddd` with commas for line ends.
    pub bpf: Option<String>,
    /// Size of each packet to keep in bytes.
    pub snap: Option<u32>,
    /// End after so many packets.
    pub count: Option<u64>,
}

/// Which flow entries.
#[derive(Debug, Clone, Default)]
pub struct FlowOptions {
    /// Only of this table.
    pub table: Option<u8>,
    /// Only entries whose match is this one or narrower.
    pub matching: Option<String>,
    /// Only entries with this cookie, `VALUE` or `VALUE/MASK`.
    pub cookie: Option<String>,
    /// Where the page before ended.
    pub after: Option<String>,
    /// Entries on a page.
    pub limit: Option<usize>,
}

/// One event of the change stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// `revision`, `confirmation` or `gap`.
    pub name: String,
    /// The number of the revision, if it is one.
    pub id: Option<String>,
    /// JSON.
    pub data: String,
}

/// A server to ask.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    /// Where the server is, as the caller says it.
    url: String,
    /// What paths are appended to.
    base: String,
    /// The Unix socket, if it is one.
    socket: Option<PathBuf>,
    token: Option<String>,
}

/// The parameters of a query, escaped.
#[derive(Default)]
struct Params(String);

impl Params {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        let separator = if self.0.is_empty() { '?' } else { '&' };
        let _ = write!(self.0, "{separator}{name}={}", escape(&value.to_string()));
    }

    fn maybe(&mut self, name: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }
}

/// Text as a part of a path or of a query (RFC 3986, section 2).
fn escape(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

impl Client {
    /// A server at `url`, `unix:PATH` or `http://HOST:PORT`, which is asked when a method is called. `ca` names a PEM file with the
    /// certificate of the authority that a server behind `https:` is trusted by.
    ///
    /// # Errors
    /// [`ClientError::BadUrl`], [`ClientError::BadCa`].
    pub fn new(url: &str, token: Option<String>, ca: Option<&Path>) -> Result<Client, ClientError> {
        let bad_url = || ClientError::BadUrl { url: url.to_owned() };
        let socket = url.strip_prefix("unix:").map(PathBuf::from);
        if socket.as_ref().is_some_and(|path| !path.is_absolute()) {
            return Err(bad_url());
        }
        let base = match socket {
            // The name in the `Host` header; nobody looks it up.
            Some(_) => "http://localhost",
            None => url.trim_end_matches('/'),
        };
        let rest = base
            .strip_prefix("http://")
            .or_else(|| base.strip_prefix("https://"));
        if rest.is_none_or(|rest| rest.is_empty() || rest.contains(['/', '?', '#', ' '])) {
            return Err(bad_url());
        }
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .user_agent(concat!("millrace/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = ca {
            let bad = |detail: String| ClientError::BadCa {
                path: path.display().to_string(),
                detail,
            };
            let pem = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
            let certificate = Certificate::from_pem(&pem).map_err(|error| bad(error.to_string()))?;
            let roots = RootCerts::new_with_certs(&[certificate]);
            config = config.tls_config(TlsConfig::builder().root_certs(roots).build());
        }
        let agent = match &socket {
            Some(path) => unix::agent(config.build(), path),
            None => config.build().new_agent(),
        };
        Ok(Client {
            agent,
            url: socket.as_ref().map_or(base, |_| url).to_owned(),
            base: base.to_owned(),
            socket,
            token,
        })
    }

    /// Returns the address of the server: `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn with_token<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> ClientError {
        if let (Some(path), ureq::Error::Io(io)) = (&self.socket, error)
            && io.kind() == std::io::ErrorKind::PermissionDenied
        {
            let path = path.clone();
            return ClientError::Denied {
                may: unix::who_may(&path),
                path,
            };
        }
        ClientError::Unreachable {
            url: self.url.clone(),
            detail: error.to_string(),
        }
    }

    /// The answer if it is a success, else the problem in it.
    fn accept(&self, answer: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, ClientError> {
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        if status.is_success() || (status == StatusCode::SERVICE_UNAVAILABLE && !is_problem(&answer)) {
            return Ok(answer);
        }
        let text = self.text(&mut answer)?;
        match serde_json::from_str(&text) {
            Ok(problem) => Err(ClientError::Problem(problem)),
            Err(_) => Err(self.foreign(status, text.chars().take(200).collect())),
        }
    }

    fn foreign(&self, status: StatusCode, detail: String) -> ClientError {
        ClientError::Foreign {
            url: self.url.clone(),
            status: status.as_u16(),
            detail,
        }
    }

    fn text(&self, answer: &mut Response<Body>) -> Result<String, ClientError> {
        let body = answer.body_mut().with_config().limit(ANSWER_MAX_SIZE);
        body.read_to_string().map_err(|error| self.unreachable(&error))
    }

    fn json<T: DeserializeOwned>(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<T, ClientError> {
        let mut answer = self.accept(answer)?;
        let status = answer.status();
        let text = self.text(&mut answer)?;
        serde_json::from_str(&text).map_err(|error| self.foreign(status, error.to_string()))
    }

    fn get_with(&self, path: &str, timeout: Option<Duration>) -> Result<Response<Body>, ureq::Error> {
        let request = self
            .agent
            .get(format!("{}{path}", self.base))
            .config()
            .timeout_global(timeout)
            .build();
        self.with_token(request).call()
    }

    /// Returns the JSON at a path.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(self.get_with(path, Some(ANSWER_TIMEOUT)))
    }

    fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl serde::Serialize,
        timeout: Duration,
    ) -> Result<T, ClientError> {
        let request = self
            .agent
            .post(format!("{}{path}", self.base))
            .config()
            .timeout_global(Some(timeout))
            .build();
        self.json(self.with_token(request).send_json(body))
    }

    /// What the server is.
    ///
    /// # Errors
    /// [`ClientError`], as in every method below.
    pub fn version(&self) -> Result<Version, ClientError> {
        self.get("/api/v1/version")
    }

    /// What is configured, what runs, and what stands between.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.get("/api/v1/status")
    }

    /// Returns the log of the daemon.
    pub fn log(&self) -> Result<Log, ClientError> {
        self.get("/api/v1/log")
    }

    /// Puts another filter of the log in force.
    pub fn set_log(&self, filter: &str) -> Result<Log, ClientError> {
        let change = LogChange {
            filter: filter.to_owned(),
        };
        let request = self.agent.put(format!("{}/api/v1/log", self.base));
        let request = request.config().timeout_global(Some(ANSWER_TIMEOUT)).build();
        self.json(self.with_token(request).send_json(&change))
    }

    /// Whether the switch forwards as configured.
    pub fn ready(&self) -> Result<Ready, ClientError> {
        self.get("/ready")
    }

    /// Returns the bridges that run.
    pub fn bridges(&self) -> Result<Vec<Bridge>, ClientError> {
        self.get("/api/v1/bridges")
    }

    fn of_bridge<T: DeserializeOwned>(&self, bridge: &str, what: &str) -> Result<T, ClientError> {
        self.get(&format!("/api/v1/bridges/{}/{what}", escape(bridge)))
    }

    /// Returns the ports of a bridge.
    pub fn ports(&self, bridge: &str) -> Result<Vec<Port>, ClientError> {
        self.of_bridge(bridge, "ports")
    }

    /// Returns a page of flow entries.
    pub fn flows(&self, bridge: &str, options: &FlowOptions) -> Result<FlowPage, ClientError> {
        let mut params = Params::default();
        params.maybe("table", options.table);
        params.maybe("match", options.matching.as_ref());
        params.maybe("cookie", options.cookie.as_ref());
        params.maybe("after", options.after.as_ref());
        params.maybe("limit", options.limit);
        self.of_bridge(bridge, &format!("flows{}", params.0))
    }

    /// Adds, changes or removes flow entries, all or none.
    pub fn flow_mods(&self, bridge: &str, request: &FlowMods) -> Result<FlowModsDone, ClientError> {
        self.post_to(bridge, "flow-mods", request)
    }

    /// Sets counters of flow entries to zero.
    pub fn reset_flow_counters(
        &self,
        bridge: &str,
        request: &ResetFlowCounters,
    ) -> Result<CountersReset, ClientError> {
        self.post_to(bridge, "reset-flow-counters", request)
    }

    /// Sets counters of ports to zero.
    pub fn reset_port_counters(
        &self,
        bridge: &str,
        request: &ResetPortCounters,
    ) -> Result<CountersReset, ClientError> {
        self.post_to(bridge, "reset-port-counters", request)
    }

    fn post_to<T: DeserializeOwned>(
        &self,
        bridge: &str,
        what: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, ClientError> {
        let path = format!("/api/v1/bridges/{}/{what}", escape(bridge));
        self.post(&path, body, ANSWER_TIMEOUT)
    }

    /// Returns the tables of a bridge.
    pub fn tables(&self, bridge: &str) -> Result<Vec<Table>, ClientError> {
        self.of_bridge(bridge, "tables")
    }

    /// Returns the controllers of a bridge.
    pub fn controllers(&self, bridge: &str) -> Result<Vec<Controller>, ClientError> {
        self.of_bridge(bridge, "controllers")
    }

    /// What a bridge learned.
    pub fn macs(&self, bridge: &str) -> Result<Vec<MacEntry>, ClientError> {
        self.of_bridge(bridge, "macs")
    }

    /// Returns the groups of a bridge.
    pub fn groups(&self, bridge: &str) -> Result<Vec<Group>, ClientError> {
        self.of_bridge(bridge, "groups")
    }

    /// Returns the meters of a bridge.
    pub fn meters(&self, bridge: &str) -> Result<Vec<Meter>, ClientError> {
        self.of_bridge(bridge, "meters")
    }

    /// Returns the queues of the ports of a bridge.
    pub fn queues(&self, bridge: &str) -> Result<Vec<EgressQueue>, ClientError> {
        self.of_bridge(bridge, "queues")
    }

    /// Returns the chains of a bridge.
    pub fn chains(&self, bridge: &str) -> Result<Vec<Chain>, ClientError> {
        self.of_bridge(bridge, "chains")
    }

    /// Has the functions of a hop made anew.
    pub fn restart_hop(&self, bridge: &str, chain: &str, hop: &str) -> Result<Restarted, ClientError> {
        let [bridge, chain, hop] = [bridge, chain, hop].map(escape);
        let path = format!("/api/v1/bridges/{bridge}/chains/{chain}/hops/{hop}/restart");
        self.post(&path, &serde_json::json!({}), ANSWER_TIMEOUT)
    }

    /// Returns the workers.
    pub fn workers(&self) -> Result<Vec<Worker>, ClientError> {
        self.get("/api/v1/workers")
    }

    /// Why packets were dropped.
    pub fn drops(&self) -> Result<Vec<Drop>, ClientError> {
        self.get("/api/v1/drops")
    }

    /// What would happen to a packet.
    pub fn trace(&self, bridge: &str, request: &TraceRequest) -> Result<Trace, ClientError> {
        self.post(
            &format!("/api/v1/bridges/{}/trace", escape(bridge)),
            request,
            ANSWER_TIMEOUT,
        )
    }

    /// What happens to the next live packet that matches.
    pub fn trace_live(&self, bridge: &str, request: &TraceLiveRequest) -> Result<Trace, ClientError> {
        let wait = Duration::from_secs_f64(request.timeout_seconds.unwrap_or(10.0).clamp(0.0, 60.0));
        self.post(
            &format!("/api/v1/bridges/{}/trace-live", escape(bridge)),
            request,
            wait + ANSWER_TIMEOUT,
        )
    }

    /// A capture as pcapng, until the server ends it or the reader is dropped.
    pub fn capture(&self, bridge: &str, options: &CaptureOptions) -> Result<impl Read + use<>, ClientError> {
        let mut params = Params::default();
        params.maybe("port", options.port.as_ref());
        params.maybe("direction", options.direction.as_ref());
        params.maybe("match", options.matching.as_ref());
        params.maybe("bpf", options.bpf.as_ref());
        params.maybe("snap", options.snap);
        params.maybe("count", options.count);
        let path = format!("/api/v1/bridges/{}/capture{}", escape(bridge), params.0);
        Ok(self.accept(self.get_with(&path, None))?.into_body().into_reader())
    }

    /// Returns the configuration and its revision.
    pub fn config(&self) -> Result<(Json, u64), ClientError> {
        let answer = self.get_with("/api/v1/config", Some(ANSWER_TIMEOUT));
        let mut answer = self.accept(answer)?;
        let tag = answer
            .headers()
            .get("etag")
            .and_then(|tag| tag.to_str().ok())
            .unwrap_or("");
        let revision = tag.trim_matches('"').parse().map_err(|_| {
            self.foreign(
                answer.status(),
                "the ETag of the configuration is not a revision".to_owned(),
            )
        })?;
        let status = answer.status();
        let text = self.text(&mut answer)?;
        let json = serde_json::from_str(&text).map_err(|error| self.foreign(status, error.to_string()))?;
        Ok((json, revision))
    }

    /// Replaces the configuration. `expected` is the revision that it was made from; `None` replaces
    /// whatever is there.
    pub fn replace_config(
        &self,
        config: &Json,
        expected: Option<u64>,
        options: &ChangeOptions,
    ) -> Result<Committed, ClientError> {
        let mut params = Params::default();
        params.maybe("dry_run", options.dry_run.then_some(true));
        params.maybe("confirm_within", options.confirm_within);
        params.add("author", &options.author);
        params.add("comment", &options.comment);
        let request = self.agent.put(format!("{}/api/v1/config{}", self.base, params.0));
        let request = request.config().timeout_global(Some(ANSWER_TIMEOUT)).build();
        let tag = expected.map_or_else(|| "*".to_owned(), |revision| format!("\"{revision}\""));
        self.json(self.with_token(request).header("if-match", tag).send_json(config))
    }

    /// Whether a revision waits to be confirmed.
    pub fn confirmation(&self) -> Result<Confirmation, ClientError> {
        self.get("/api/v1/config/confirm")
    }

    /// Keeps the revision that waits.
    pub fn confirm(&self, revision: Option<u64>) -> Result<Revision, ClientError> {
        let mut params = Params::default();
        params.maybe("revision", revision);
        let request = self
            .agent
            .post(format!("{}/api/v1/config/confirm{}", self.base, params.0));
        self.json(
            self.with_token(request.config().timeout_global(Some(ANSWER_TIMEOUT)).build())
                .send_empty(),
        )
    }

    /// Takes the revision that waits back at once.
    pub fn cancel(&self, revision: Option<u64>, options: &ChangeOptions) -> Result<Revision, ClientError> {
        let mut params = Params::default();
        params.maybe("revision", revision);
        params.add("author", &options.author);
        params.add("comment", &options.comment);
        let request = self
            .agent
            .delete(format!("{}/api/v1/config/confirm{}", self.base, params.0));
        self.json(
            self.with_token(request.config().timeout_global(Some(ANSWER_TIMEOUT)).build())
                .call(),
        )
    }

    /// Returns the newest revisions.
    pub fn revisions(&self, limit: usize) -> Result<Revisions, ClientError> {
        self.get(&format!("/api/v1/revisions?limit={limit}"))
    }

    /// Returns a revision with its content.
    pub fn revision(&self, number: u64) -> Result<RevisionConfig, ClientError> {
        self.get(&format!("/api/v1/revisions/{number}"))
    }

    /// What changed from one revision to another, or to the newest.
    pub fn diff(&self, from: u64, to: Option<u64>) -> Result<Diff, ClientError> {
        let mut params = Params::default();
        params.maybe("to", to);
        self.get(&format!("/api/v1/revisions/{from}/diff{}", params.0))
    }

    /// Goes back to the content of a revision.
    pub fn rollback(&self, to: u64, options: &ChangeOptions) -> Result<Committed, ClientError> {
        let mut params = Params::default();
        params.maybe("dry_run", options.dry_run.then_some(true));
        params.add("author", &options.author);
        params.add("comment", &options.comment);
        let request = self.agent.post(format!(
            "{}/api/v1/revisions/{to}/rollback{}",
            self.base, params.0
        ));
        self.json(
            self.with_token(request.config().timeout_global(Some(ANSWER_TIMEOUT)).build())
                .send_empty(),
        )
    }

    /// Returns the change stream from the revision after `seen`, until the server closes.
    pub fn events(&self, seen: Option<u64>) -> Result<impl Iterator<Item = Event> + use<>, ClientError> {
        let request = self.with_token(self.agent.get(format!("{}/api/v1/events", self.base)));
        let request = match seen {
            Some(seen) => request.header("last-event-id", seen.to_string()),
            None => request,
        };
        let body = self.accept(request.call())?.into_body();
        let mut lines = BufReader::new(body.into_reader()).lines();
        Ok(std::iter::from_fn(move || {
            let mut event = Event::default();
            for line in lines.by_ref() {
                let line = line.ok()?;
                match line.split_once(':') {
                    None if line.is_empty() && !event.name.is_empty() => return Some(event),
                    Some(("event", value)) => value.trim_start().clone_into(&mut event.name),
                    Some(("id", value)) => event.id = Some(value.trim_start().to_owned()),
                    Some(("data", value)) => event.data.push_str(value.trim_start()),
                    _ => {}
                }
            }
            None
        }))
    }
}

fn is_problem(answer: &Response<Body>) -> bool {
    let kind = answer
        .headers()
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or("");
    kind.starts_with("application/problem+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_for_paths_and_queries() {
        let mut params = Params::default();
        params.add("match", "tcp,nw_dst=10.0.0.0/8");
        params.maybe("limit", Some(3));
        assert_eq!(params.0, "?match=tcp%2Cnw_dst%3D10.0.0.0%2F8&limit=3");
        assert_eq!(escape("a/ä"), "a%2F%C3%A4");
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        for url in [
            "",
            "localhost:8080",
            "http://",
            "ftp://x",
            "http://x/y",
            "http://a b",
            "unix:",
            "unix:run/x.sock",
        ] {
            assert!(
                matches!(Client::new(url, None, None), Err(ClientError::BadUrl { .. })),
                "{url}"
            );
        }
        assert_eq!(
            Client::new("http://127.0.0.1:8080/", None, None).unwrap().url(),
            "http://127.0.0.1:8080"
        );
    }
}
