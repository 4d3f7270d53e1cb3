//! The connection of a store, which is made again in the background when it is lost.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, NoTls};

use super::failure::{Failure, refused, text};
use super::tls::Tls;
use crate::error::StoreError;

/// The longest wait for an answer. A leader that is silent for this long has not lost its lease yet.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The longest attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// The settings of each session. A leader that is stopped inside of a transaction must not keep its locks: the server ends such a
/// session before the lease of the leader has run out.
const SESSION: &str = "SET statement_timeout = '5s'; SET lock_timeout = '3s'; \
    SET idle_in_transaction_session_timeout = '4s'; SET client_min_messages = warning; SHOW synchronous_commit";

/// How to reach the database, and how this engine is called.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// The connection as libpq writes it: `host=/run/postgresql dbname=millrace_ix`. Several hosts may be named.
    pub connection: String,
    pub password: Option<String>,
    /// The authorities that sign the certificates of servers, in PEM. Required for servers on other machines.
    pub ca_certificate: Option<PathBuf>,
    /// The name of this engine, different from that of each other engine of the database.
    pub name: String,
    /// The address of this engine's page, for people at another engine; may be empty.
    pub address: String,
}

/// The maker of connections.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    config: Config,
    tls: Option<Tls>,
}

impl Connector {
    pub(super) fn new(settings: PostgresSettings) -> Result<Connector, StoreError> {
        let mut config = Config::from_str(&settings.connection).map_err(|error| refused(text(&error)))?;
        let is_elsewhere = |host: &Host| match host {
            Host::Unix(_) => false,
            Host::Tcp(name) => {
                let address: Result<IpAddr, _> = name.parse();
                !address.map_or(name == "localhost", |address| {
                    address.to_canonical().is_loopback()
                })
            }
        };
        let elsewhere = config.get_hosts().iter().any(is_elsewhere);
        let tls = match &settings.ca_certificate {
            Some(path) => Some(Tls::read(path)?),
            None if elsewhere => {
                return Err(refused(
                    "a server on another machine is reached by TLS only: set database.postgres_ca_certificate".to_owned(),
                ));
            }
            None => None,
        };
        if config.get_hosts().is_empty() {
            return Err(refused(
                "expected a host, such as host=/run/postgresql".to_owned(),
            ));
        }
        let is_encrypted = tls.is_some() && elsewhere;
        config
            .ssl_mode(if is_encrypted {
                SslMode::Require
            } else {
                SslMode::Disable
            })
            .application_name(format!("millrace-ix {}", settings.name))
            .connect_timeout(CONNECT_MAX)
            .tcp_user_timeout(ANSWER_MAX)
            .keepalives_idle(ANSWER_MAX);
        if let Some(password) = settings.password {
            config.password(password);
        }
        Ok(Connector { config, tls })
    }

    /// Makes a connection, whose task ends with it.
    pub(super) async fn connect(&self) -> Result<Client, StoreError> {
        let connected = tokio::time::timeout(CONNECT_MAX, self.session()).await;
        let late = || StoreError::Away(format!("no connection within {} s", CONNECT_MAX.as_secs()));
        connected.map_err(|_| late())?
    }

    async fn session(&self) -> Result<Client, StoreError> {
        let failed = |error: tokio_postgres::Error| match error.as_db_error() {
            // A server that starts, or ends, is away; one that knows no such user or database needs a person.
            Some(found) if !found.code().code().starts_with("57P") => refused(found.message().to_owned()),
            _ => StoreError::Away(text(&error)),
        };
        let client = match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await.map_err(failed)?;
                tokio::spawn(connection);
                client
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(failed)?;
                tokio::spawn(connection);
                client
            }
        };
        let answers = client.simple_query(SESSION).await.map_err(Failure::from)?;
        let durable = answers.iter().any(|answer| match answer {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0) != Some("off"),
            _ => false,
        });
        if !durable {
            return Err(refused(
                "synchronous_commit is off: what members are told is done could be lost; set it to on for this database"
                    .to_owned(),
            ));
        }
        Ok(client)
    }
}

/// The state of the connection.
#[derive(Debug)]
enum State {
    Connected(Arc<Client>),
    /// It was lost at this time, for this reason; a task makes another one.
    Lost {
        since: Instant,
        reason: String,
    },
}

/// The place where the task leaves a new connection.
type Slot = Arc<Mutex<Option<Client>>>;

/// The connection of a store.
pub(super) struct Link {
    connector: Connector,
    runtime: Handle,
    state: RefCell<State>,
    slot: Slot,
    /// True if the connection is a new one after a loss, and the contents of the database were not compared yet.
    fresh: Cell<bool>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(connector: Connector, client: Client, runtime: Handle) -> Link {
        Link {
            connector,
            runtime,
            state: RefCell::new(State::Connected(Arc::new(client))),
            slot: Slot::default(),
            fresh: Cell::new(false),
        }
    }

    /// Returns the connection.
    ///
    /// # Errors
    /// [`StoreError::Away`] while there is none.
    pub(super) fn client(&self) -> Result<Arc<Client>, StoreError> {
        if let State::Connected(client) = &*self.state.borrow() {
            if !client.is_closed() {
                return Ok(Arc::clone(client));
            }
        } else if let Some(new) = self.slot.lock().take() {
            let client = Arc::new(new);
            self.state.replace(State::Connected(Arc::clone(&client)));
            self.fresh.set(true);
            tracing::info!("the database answers again");
            return Ok(client);
        }
        Err(self.lose("the server has closed the connection".to_owned()))
    }

    /// Gives the connection up and has another one made. Returns the error for the caller.
    pub(super) fn lose(&self, reason: String) -> StoreError {
        let mut state = self.state.borrow_mut();
        if let State::Lost { reason, .. } = &*state {
            return StoreError::Away(reason.clone());
        }
        tracing::warn!(reason, "the database does not answer");
        *state = State::Lost {
            since: Instant::now(),
            reason: reason.clone(),
        };
        let (connector, slot) = (self.connector.clone(), Arc::clone(&self.slot));
        self.runtime.spawn(async move {
            loop {
                match connector.connect().await {
                    Ok(client) => {
                        *slot.lock() = Some(client);
                        return;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "no connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        });
        StoreError::Away(reason)
    }

    /// Returns the time since the loss of the connection. Takes a new connection, if there is one.
    pub(super) fn silent(&self) -> Option<Duration> {
        // The outcome is in the state.
        let _state = self.client();
        match &*self.state.borrow() {
            State::Connected(_) => None,
            State::Lost { since, .. } => Some(since.elapsed()),
        }
    }

    /// Returns true once after a new connection.
    pub(super) fn take_fresh(&self) -> bool {
        let _state = self.client();
        self.fresh.take()
    }

    pub(super) fn set_fresh(&self) {
        self.fresh.set(true);
    }
}
