//! A client of etcd's JSON gateway whose calls block.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use thiserror::Error;
use ureq::http::Response;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::message::{self, LeaseAnswer, Line, Refusal, Watched};
use crate::settings::{Settings, SettingsError};
use crate::types::{Keys, Lease, Read, Txn, TxnDone};

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest wait for an answer of a member.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// The largest answer, in bytes.
const ANSWER_SIZE_MAX: u64 = 64 << 20;
/// The largest message of a watch, in bytes.
const LINE_SIZE_MAX: u64 = 16 << 20;
/// The status of gRPC for a caller that has no valid token.
const UNAUTHENTICATED: i64 = 16;

/// Errors of a request.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// The settings are refused.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A file of the settings cannot be used.
    #[error("{path}: {detail}")]
    File { path: String, detail: String },
    /// No member answered.
    #[error("{endpoint} does not answer: {detail}")]
    Away { endpoint: String, detail: String },
    /// A member refused the request.
    #[error("{endpoint}: {detail}")]
    Refused {
        endpoint: String,
        detail: String,
        /// The status of gRPC.
        code: i64,
    },
    /// The answer is not one of etcd.
    #[error("{endpoint}: the answer is not one of etcd's gateway: {detail}")]
    Strange { endpoint: String, detail: String },
}

/// How a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Something was written, or revisions are gone: read again.
    Changed,
    /// Nothing happened in the given time.
    Quiet,
}

/// A client of a cluster. A clone has a connection of its own.
#[derive(Debug)]
pub struct Client {
    config: ureq::config::Config,
    agent: Agent,
    endpoints: Vec<String>,
    /// The member that the next request asks.
    current: usize,
    credentials: Option<Credentials>,
    token: Option<String>,
}

#[derive(Clone)]
struct Credentials {
    user: String,
    password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Clone for Client {
    fn clone(&self) -> Client {
        Client {
            config: self.config.clone(),
            agent: self.config.new_agent(),
            endpoints: self.endpoints.clone(),
            current: self.current,
            credentials: self.credentials.clone(),
            token: None,
        }
    }
}

fn pem(path: &Path) -> Result<Vec<u8>, EtcdError> {
    std::fs::read(path).map_err(|error| said(path, &error))
}

fn said(path: &Path, error: &dyn std::fmt::Display) -> EtcdError {
    EtcdError::File {
        path: path.display().to_string(),
        detail: error.to_string(),
    }
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, EtcdError> {
    let bytes = pem(path)?;
    let mut found = Vec::new();
    for item in ureq::tls::parse_pem(&bytes) {
        if let ureq::tls::PemItem::Certificate(one) = item.map_err(|error| said(path, &error))? {
            found.push(one);
        }
    }
    match found.is_empty() {
        true => Err(said(
            path,
            &"no certificate: expected a PEM file with certificates",
        )),
        false => Ok(found),
    }
}

impl Client {
    /// Returns a client. Reads the files of the settings, and connects with the first request.
    ///
    /// # Errors
    /// [`EtcdError::Settings`], [`EtcdError::File`].
    pub fn new(settings: &Settings) -> Result<Client, EtcdError> {
        settings.check()?;
        let mut tls = TlsConfig::builder();
        if let Some(path) = &settings.ca {
            tls = tls.root_certs(RootCerts::new_with_certs(&certificates(path)?));
        }
        if let (Some(cert), Some(key)) = (&settings.cert, &settings.key) {
            let chain = certificates(cert)?;
            let key = PrivateKey::from_pem(&pem(key)?).map_err(|error| said(key, &error))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        let credentials = match (&settings.user, &settings.password_file) {
            (Some(user), Some(path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| said(path, &error))?;
                let line = text.lines().next().unwrap_or_default().trim();
                if line.is_empty() {
                    return Err(said(path, &"the first line is empty: expected a password"));
                }
                Some(Credentials {
                    user: user.clone(),
                    password: line.to_owned(),
                })
            }
            _ => None,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .tls_config(tls.build())
            .user_agent(concat!("millrace/", env!("CARGO_PKG_VERSION")))
            .build();
        let endpoints = settings.endpoints.iter();
        Ok(Client {
            agent: config.new_agent(),
            config,
            endpoints: endpoints
                .map(|endpoint| endpoint.trim_end_matches('/').to_owned())
                .collect(),
            current: 0,
            credentials,
            token: None,
        })
    }

    /// Closes all connections: the next request opens a new one.
    pub fn reconnect(&mut self) {
        self.agent = self.config.new_agent();
    }

    fn endpoint(&self) -> String {
        self.endpoints.get(self.current).cloned().unwrap_or_default()
    }

    fn next_endpoint(&mut self) {
        self.current = (self.current + 1) % self.endpoints.len().max(1);
        self.token = None;
    }

    fn send(&mut self, path: &str, body: &Json, timeout: Duration) -> Result<Response<Body>, EtcdError> {
        let endpoint = self.endpoint();
        let request = self.agent.post(format!("{endpoint}{path}"));
        let request = request.config().timeout_global(Some(timeout)).build();
        // A member that has no leader refuses at once.
        let request = request.header("grpc-metadata-hasleader", "true");
        let request = match &self.token {
            Some(token) => request.header("authorization", token),
            None => request,
        };
        request.send_json(body).map_err(|error| {
            let detail = error.to_string();
            self.next_endpoint();
            EtcdError::Away { endpoint, detail }
        })
    }

    /// Returns the body of a successful answer.
    fn checked(&mut self, mut response: Response<Body>) -> Result<Response<Body>, EtcdError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let endpoint = self.endpoint();
        let text = self.text(&mut response)?;
        let Ok(refusal) = serde_json::from_str::<Refusal>(&text) else {
            let detail = format!(
                "HTTP {}: {}",
                status.as_u16(),
                text.chars().take(200).collect::<String>()
            );
            return Err(EtcdError::Strange { endpoint, detail });
        };
        let code = refusal.code;
        if status.is_server_error() {
            self.next_endpoint();
        }
        Err(EtcdError::Refused {
            endpoint,
            detail: refusal.text(),
            code,
        })
    }

    fn text(&mut self, response: &mut Response<Body>) -> Result<String, EtcdError> {
        let body = response.body_mut().with_config().limit(ANSWER_SIZE_MAX);
        body.read_to_string().map_err(|error| {
            let endpoint = self.endpoint();
            self.next_endpoint();
            EtcdError::Away {
                endpoint,
                detail: error.to_string(),
            }
        })
    }

    fn strange(&self, error: &serde_json::Error) -> EtcdError {
        EtcdError::Strange {
            endpoint: self.endpoint(),
            detail: error.to_string(),
        }
    }

    /// Gets a token for the user, if there is one and it has none.
    fn authenticate(&mut self) -> Result<(), EtcdError> {
        let Some(Credentials { user, password }) = self.credentials.clone() else {
            return Ok(());
        };
        if self.token.is_some() {
            return Ok(());
        }
        let body = json!({ "name": user, "password": password });
        let response = self.send("/v3/auth/authenticate", &body, ANSWER_TIMEOUT)?;
        let mut response = self.checked(response)?;
        let text = self.text(&mut response)?;
        let answer: Json = serde_json::from_str(&text).map_err(|error| self.strange(&error))?;
        self.token = answer.get("token").and_then(Json::as_str).map(str::to_owned);
        Ok(())
    }

    /// Returns the response to a request, with a new token if the old one is over.
    fn respond(&mut self, path: &str, body: &Json, timeout: Duration) -> Result<Response<Body>, EtcdError> {
        self.authenticate()?;
        let response = self.send(path, body, timeout)?;
        match self.checked(response) {
            Err(EtcdError::Refused {
                code: UNAUTHENTICATED,
                ..
            }) if self.token.take().is_some() => {
                self.authenticate()?;
                let response = self.send(path, body, timeout)?;
                self.checked(response)
            }
            other => other,
        }
    }

    fn call(&mut self, path: &str, body: &Json) -> Result<String, EtcdError> {
        let mut response = self.respond(path, body, ANSWER_TIMEOUT)?;
        self.text(&mut response)
    }

    /// Reads selections of keys at one revision, linearizably. A member that is away is passed over.
    ///
    /// # Errors
    /// [`EtcdError`] of the last member that was asked.
    pub fn read(&mut self, selections: &[Keys]) -> Result<Read, EtcdError> {
        self.read_with(selections, true)
    }

    /// As [`Client::read`], with empty values.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn keys(&mut self, selections: &[Keys]) -> Result<Read, EtcdError> {
        self.read_with(selections, false)
    }

    fn read_with(&mut self, selections: &[Keys], values: bool) -> Result<Read, EtcdError> {
        let body = message::read(selections, values);
        let mut asked = 1;
        loop {
            let before = self.current;
            match self.call("/v3/kv/txn", &body) {
                Ok(text) => return message::read_answer(&text).map_err(|error| self.strange(&error)),
                // Passed over: the request went on to the next member.
                Err(_) if self.current != before && asked < self.endpoints.len() => asked += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Performs a transaction. It is not repeated if its answer is lost.
    ///
    /// # Errors
    /// [`EtcdError`]. With [`EtcdError::Away`], the writes may have happened.
    pub fn txn(&mut self, txn: &Txn) -> Result<TxnDone, EtcdError> {
        let text = self.call("/v3/kv/txn", &message::txn(txn))?;
        message::txn_answer(&text).map_err(|error| self.strange(&error))
    }

    /// Returns a new lease of this number of seconds.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn grant(&mut self, seconds: u64) -> Result<Lease, EtcdError> {
        let text = self.call("/v3/lease/grant", &json!({ "TTL": seconds.to_string() }))?;
        let answer: LeaseAnswer = serde_json::from_str(&text).map_err(|error| self.strange(&error))?;
        Ok(Lease(answer.id))
    }

    /// Renews a lease. Returns false if it is over.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn keep_alive(&mut self, lease: Lease) -> Result<bool, EtcdError> {
        let text = self.call("/v3/lease/keepalive", &json!({ "ID": lease.0.to_string() }))?;
        let line = text.lines().next().unwrap_or_default();
        let answer: Line<LeaseAnswer> = serde_json::from_str(line).map_err(|error| self.strange(&error))?;
        match (answer.result, answer.error) {
            (Some(lease), _) => Ok(lease.ttl > 0),
            (None, error) => Err(EtcdError::Refused {
                endpoint: self.endpoint(),
                detail: error.map_or_else(|| "no answer".to_owned(), |error| error.to_string()),
                code: 0,
            }),
        }
    }

    /// Ends a lease, and removes its keys.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn revoke(&mut self, lease: Lease) -> Result<(), EtcdError> {
        self.call("/v3/lease/revoke", &json!({ "ID": lease.0.to_string() }))
            .map(drop)
    }

    /// Waits until something is written after revision `seen`, at most for `time`.
    ///
    /// # Errors
    /// [`EtcdError`]: the member went away.
    pub fn watch(&mut self, keys: &Keys, seen: u64, time: Duration) -> Result<Woken, EtcdError> {
        let began = Instant::now();
        let response = self.respond("/v3/watch", &message::watch(keys, seen + 1), time)?;
        let mut lines = BufReader::new(response.into_body().into_reader().take(LINE_SIZE_MAX));
        let mut line = String::new();
        loop {
            line.clear();
            let read = lines.read_line(&mut line);
            if let (Ok(1..), Ok(answer)) = (&read, serde_json::from_str::<Line<Watched>>(&line)) {
                match answer.result {
                    Some(watched) if watched.canceled || !watched.events.is_empty() => {
                        return Ok(Woken::Changed);
                    }
                    Some(_) => continue,
                    // The reason is learned by reading again.
                    None => return Ok(Woken::Changed),
                }
            }
            // The stream ended: because the time is over, or the member is away.
            if began.elapsed() >= time {
                return Ok(Woken::Quiet);
            }
            let endpoint = self.endpoint();
            self.next_endpoint();
            return Err(EtcdError::Away {
                endpoint,
                detail: match read {
                    Err(error) => error.to_string(),
                    Ok(_) => "the watch ended".to_owned(),
                },
            });
        }
    }

    /// Returns the alarms of the cluster in words: no space is left in the database.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn alarms(&mut self) -> Result<Vec<String>, EtcdError> {
        let text = self.call("/v3/maintenance/alarm", &json!({ "action": "GET" }))?;
        let answer: Json = serde_json::from_str(&text).map_err(|error| self.strange(&error))?;
        let alarms = answer.get("alarms").and_then(Json::as_array);
        let name = |alarm: &Json| {
            alarm
                .get("alarm")
                .and_then(Json::as_str)
                .unwrap_or("unknown")
                .to_owned()
        };
        Ok(alarms.into_iter().flatten().map(name).collect())
    }
}
