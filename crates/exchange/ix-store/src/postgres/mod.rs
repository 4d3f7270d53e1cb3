//! The database on a PostgreSQL server, which several engines share. One of them leads at a time.
//!
//! ```text
//!   engine's thread ---- block_on, at most ANSWER_MAX ----> connection of the store ----+
//!                                                                                       +---> PostgreSQL
//!   one thread of this store ---- lease, each 1 or 2 s ---> connection of the lease ----+
//! ```
//!
//! Each write locks the row of `engine` and compares its epoch with the engine's: that is the fence. The row of `lease` only says
//! whether the leader lives ([`lease`]). An engine that waited for an answer in vain gives the connection up; until another one
//! is made, its calls fail at once with [`StoreError::Away`], so that its thread goes on to serve the switches.

mod copy;
mod failure;
mod lease;
mod link;
mod read;
mod schema;
mod series;
mod store;
mod tls;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

pub use link::PostgresSettings;
pub use series::SharedSeries;

use crate::error::StoreError;
use crate::standing::{Role, Standing};
use crate::transaction::Revision;
use failure::{Failure, is_lost, text};
use lease::Lease;
use link::{ANSWER_MAX, Connector, Link};

/// The longest wait for the release of the lease at the end.
const RELEASE_MAX: Duration = Duration::from_secs(1);

/// The newest state of the row `engine` that this engine has read or written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Known {
    revision: u64,
    audit_hash: String,
}

/// A database on a PostgreSQL server.
#[derive(Debug)]
pub struct Postgres {
    link: Link,
    lease: Arc<Lease>,
    /// The epoch in which this engine writes.
    epoch: u64,
    /// The term of the lease that `epoch` belongs to.
    term: u64,
    /// The number of times that the database had other contents than expected.
    surprises: u64,
    /// `None` before the contents are loaded.
    known: std::cell::RefCell<Option<Known>>,
    /// The state after the open group of transactions; `None` if no group is open.
    group: Option<Option<Known>>,
    runtime: Option<Runtime>,
}

impl Postgres {
    /// Connects, brings the tables to the newest form, and begins to lead if no other engine does.
    ///
    /// # Errors
    /// [`StoreError::Open`] if the settings cannot be used or the server refuses them, [`StoreError::Newer`] for a newer schema.
    pub fn open(settings: PostgresSettings) -> Result<Postgres, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("ix-database")
            .enable_all()
            .build()
            .map_err(|error| StoreError::Database(error.to_string()))?;
        let lease = Arc::new(Lease::new(&settings)?);
        let connector = Connector::new(settings)?;
        let client = runtime.block_on(async {
            let mut client = connector.connect().await?;
            schema::migrate(&mut client).await?;
            Ok::<_, StoreError>(client)
        })?;
        let mut observer = lease::Observer::default();
        runtime.block_on(lease.follow(&client, &mut observer))?;
        runtime.spawn(lease::keep(Arc::clone(&lease), connector.clone(), observer));
        let link = Link::new(connector, client, runtime.handle().clone());
        let mut store = Postgres {
            link,
            lease,
            epoch: 0,
            term: u64::MAX,
            surprises: 0,
            known: std::cell::RefCell::new(None),
            group: None,
            runtime: Some(runtime),
        };
        store.take_role();
        Ok(store)
    }

    /// Adopts the epoch of a new term.
    fn take_role(&mut self) -> lease::State {
        let state = self.lease.state();
        if state.term != self.term {
            self.term = state.term;
            self.known.replace(None);
            self.group = None;
            if let Role::Leads { epoch } = state.role {
                self.epoch = epoch;
            }
        }
        state
    }

    fn standing_now(&mut self) -> Standing {
        self.look_again();
        let state = self.take_role();
        Standing {
            term: state.term.wrapping_add(self.surprises),
            role: state.role,
            revision: Revision(state.revision),
            silent: self.link.silent(),
            shared: true,
        }
    }

    /// Compares a database that answers again with what this engine knows of it: another engine may lead since, a commit may
    /// have succeeded although its answer was lost, and the database may be a backup.
    fn look_again(&mut self) {
        if !self.link.take_fresh() {
            return;
        }
        let found = self.run(async |sql| {
            let row = sql
                .query_typed_one("SELECT revision, audit_hash, epoch FROM engine", &[])
                .await?;
            let known = Known {
                revision: read::unsigned(&row, 0),
                audit_hash: row.try_get(1)?,
            };
            Ok((known, read::unsigned(&row, 2)))
        });
        match found {
            Ok((found, epoch)) => {
                if epoch != self.epoch {
                    self.lease.fenced(epoch, self.epoch);
                }
                let is_other = self.known.borrow().as_ref().is_some_and(|known| *known != found);
                if is_other {
                    self.surprises += 1;
                    self.known.replace(None);
                }
            }
            Err(_) => self.link.set_fresh(),
        }
    }

    /// Returns the error of a write by an engine that follows.
    fn check_leads(&self) -> Result<(), StoreError> {
        match self.lease.state().role {
            Role::Leads { .. } => Ok(()),
            Role::Follows { leader, .. } => Err(StoreError::Follows { leader }),
        }
    }

    /// Runs statements on the connection, and waits for their answers.
    fn run<T>(
        &self,
        work: impl AsyncFnOnce(&tokio_postgres::Client) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let client = self.link.client()?;
        let Some(runtime) = &self.runtime else {
            return Err(StoreError::Away("the connection is closed".to_owned()));
        };
        let done = runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, work(&client)).await });
        let failure = match done {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(Failure::Store(error))) => return Err(error),
            Ok(Err(Failure::Sql(error))) => {
                if !is_lost(&error) && !client.is_closed() {
                    return Err(StoreError::from(Failure::Sql(error)));
                }
                text(&error)
            }
            Err(_) => format!("no answer within {} s", ANSWER_MAX.as_secs()),
        };
        Err(self.link.lose(failure))
    }

    /// Notes that this engine does not lead any more, if a write has found another epoch.
    fn note_fence<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Fenced { found, mine }) = &result {
            self.lease.fenced(*found, *mine);
        }
        result
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        if let (Ok(client), Role::Leads { .. }) = (self.link.client(), self.lease.state().role) {
            let released = runtime
                .block_on(async { tokio::time::timeout(RELEASE_MAX, self.lease.release(&client)).await });
            // Without the release, another engine leads when the lease has run out.
            let _later = released;
        }
        runtime.shutdown_background();
    }
}
