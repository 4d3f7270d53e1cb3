//! The lease: which engine leads, and whether it lives.
//!
//! ```text
//!                      the leader's beat has not changed for LEASE, or it has released the lease
//!     follows  ----------------------------------------------------------------------------->  leads: epoch + 1
//!              <-----------------------------------------------------------------------------
//!                      another engine holds the lease, or a write has found another epoch
//! ```
//!
//! The lease is liveness only: two engines may believe to lead for a while. The fence is the epoch, at each write in the
//! database and at each switch. A follower measures the silence of the leader by its own monotonic clock, while the database
//! answers: neither the clock of the server, nor a pause of the database or of the follower itself, makes a leader look dead.

use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::failure::{Failure, refused};
use super::link::{Connector, PostgresSettings};
use super::read::unsigned;
use crate::error::StoreError;
use crate::standing::{Leader, Role};

/// The silence of a leader after which another engine leads.
const LEASE: Duration = Duration::from_secs(6);
/// The time between two beats of a leader.
const BEAT: Duration = Duration::from_secs(2);
/// The time between two looks of a follower.
const LOOK: Duration = Duration::from_secs(1);
/// The time until the next attempt after a failure. A leader must beat soon after a pause of the database, before the follower
/// that looks at it takes over.
const RETRY: Duration = Duration::from_millis(500);
/// The longest time between two looks that still counts as silence of the leader.
const GAP_MAX: Duration = Duration::from_secs(3);
/// The longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// The role of this engine, with what the last look has shown.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Grows with each change of the role.
    pub(super) term: u64,
    pub(super) role: Role,
    /// The newest revision in the database.
    pub(super) revision: u64,
}

/// This engine's part in the election of leaders.
#[derive(Debug)]
pub(super) struct Lease {
    /// A random number that no other process has.
    holder: String,
    this: Leader,
    state: Mutex<State>,
}

/// The beats of the leader that a follower has seen.
#[derive(Debug, Default)]
pub(super) struct Observer {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    holder: String,
    beat: i64,
    /// The time of the first look that showed this beat.
    since: Instant,
    /// The time of the last look.
    last: Instant,
}

impl Observer {
    /// Notes a look. Returns true if the leader has been silent for too long.
    fn look(&mut self, holder: String, beat: i64, now: Instant) -> bool {
        let since = match &self.seen {
            Some(seen) if seen.holder == holder && seen.beat == beat && now - seen.last <= GAP_MAX => {
                seen.since
            }
            _ => now,
        };
        self.seen = Some(Seen {
            holder,
            beat,
            since,
            last: now,
        });
        now - since >= LEASE
    }
}

impl Lease {
    pub(super) fn new(settings: &PostgresSettings) -> Result<Lease, StoreError> {
        if settings.name.trim().is_empty() {
            return Err(refused(
                "each engine of a shared database needs its own engine.name".to_owned(),
            ));
        }
        let mut random = [0; 16];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| StoreError::Database("the system has no random numbers".to_owned()))?;
        Ok(Lease {
            holder: HEXLOWER.encode(&random),
            this: Leader {
                name: settings.name.clone(),
                address: settings.address.clone(),
            },
            state: Mutex::new(State {
                term: 0,
                role: Role::Follows {
                    leader: Leader::default(),
                    epoch: 0,
                },
                revision: 0,
            }),
        })
    }

    pub(super) fn state(&self) -> State {
        self.state.lock().clone()
    }

    /// Notes the epoch that this engine has raised.
    pub(super) fn raised(&self, epoch: u64) {
        if let Role::Leads { epoch: mine } = &mut self.state.lock().role {
            *mine = epoch;
        }
    }

    /// Notes that a write in the epoch `mine` has found the epoch `found`.
    pub(super) fn fenced(&self, found: u64, mine: u64) {
        let mut state = self.state.lock();
        if state.role == (Role::Leads { epoch: mine }) {
            tracing::warn!(mine, found, "another engine leads: this one follows");
            state.term += 1;
            state.role = Role::Follows {
                leader: Leader::default(),
                epoch: found,
            };
        }
    }

    /// Looks at the lease as a follower, and begins to lead if nobody does.
    pub(super) async fn follow(&self, client: &Client, observer: &mut Observer) -> Result<(), StoreError> {
        let sql = "SELECT holder, name, address, beat, released, epoch, revision FROM lease, engine";
        let row = client.query_typed_one(sql, &[]).await.map_err(Failure::from)?;
        let (holder, name, address): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let (beat, released): (i64, bool) = (row.get(3), row.get(4));
        let (epoch, revision) = (unsigned(&row, 5), unsigned(&row, 6));
        {
            let mut state = self.state.lock();
            state.revision = revision;
            if holder == self.holder && !released {
                // The answer to this engine's election was lost.
                state.term += 1;
                state.role = Role::Leads { epoch };
                return Ok(());
            }
            let leader = Leader { name, address };
            state.role = Role::Follows { leader, epoch };
        }
        if !observer.look(holder.clone(), beat, Instant::now()) && !released {
            return Ok(());
        }
        self.begin_to_lead(client, &holder, beat)
            .await
            .map_err(StoreError::from)
    }

    /// Takes the lease from a holder that is silent or has released it, unless it was taken or has beaten meanwhile.
    async fn begin_to_lead(&self, client: &Client, holder: &str, beat: i64) -> Result<(), Failure> {
        // The update of engine waits for an open transaction of the old leader, which the server ends if it stays idle.
        let sql = "WITH taken AS (
                UPDATE lease SET holder = $1, name = $2, address = $3, beat = beat + 1, released = false
                WHERE holder = $4 AND beat = $5 RETURNING id
            ) UPDATE engine SET epoch = epoch + 1 FROM taken RETURNING epoch, revision";
        let Leader { name, address } = &self.this;
        let taken = client
            .query_typed_opt(
                sql,
                &[
                    (&self.holder, Type::TEXT),
                    (name, Type::TEXT),
                    (address, Type::TEXT),
                    (&holder, Type::TEXT),
                    (&beat, Type::INT8),
                ],
            )
            .await?;
        let Some(row) = taken else {
            return Ok(());
        };
        let epoch = unsigned(&row, 0);
        tracing::warn!(epoch, "this engine leads");
        let mut state = self.state.lock();
        state.term += 1;
        state.role = Role::Leads { epoch };
        state.revision = unsigned(&row, 1);
        Ok(())
    }

    /// Shows that this leader lives, or notes that another engine leads.
    async fn beat(&self, client: &Client) -> Result<(), Failure> {
        let sql = "UPDATE lease SET beat = beat + 1 WHERE holder = $1 AND NOT released";
        let held = client.execute_typed(sql, &[(&self.holder, Type::TEXT)]).await?;
        if held == 0 {
            let mut state = self.state.lock();
            if let Role::Leads { epoch } = state.role {
                tracing::warn!(epoch, "another engine holds the lease: this one follows");
                state.term += 1;
                state.role = Role::Follows {
                    leader: Leader::default(),
                    epoch,
                };
            }
        }
        Ok(())
    }

    /// Lets another engine lead at once.
    pub(super) async fn release(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let sql = "UPDATE lease SET released = true WHERE holder = $1";
        client
            .execute_typed(sql, &[(&self.holder, Type::TEXT)])
            .await
            .map(|_| ())
    }
}

/// Keeps the lease, or waits for it, until the store ends.
pub(super) async fn keep(lease: std::sync::Arc<Lease>, connector: Connector, mut observer: Observer) {
    let mut client: Option<Client> = None;
    loop {
        let leads = matches!(lease.state().role, Role::Leads { .. });
        let pause = match (&client, leads) {
            (None, _) => RETRY,
            (Some(_), true) => BEAT,
            (Some(_), false) => LOOK,
        };
        tokio::time::sleep(pause).await;
        let connected = match client.take().filter(|client| !client.is_closed()) {
            Some(client) => Ok(client),
            None => connector.connect().await,
        };
        let connected = match connected {
            Ok(connected) => connected,
            Err(error) => {
                tracing::debug!(%error, "the lease is not kept");
                continue;
            }
        };
        let leads = matches!(lease.state().role, Role::Leads { .. });
        let look = async {
            if leads {
                lease.beat(&connected).await.map_err(StoreError::from)
            } else {
                lease.follow(&connected, &mut observer).await
            }
        };
        match tokio::time::timeout(ANSWER_MAX, look).await {
            Ok(Ok(())) => client = Some(connected),
            Ok(Err(error)) => tracing::debug!(%error, "the lease is not kept"),
            Err(_) => tracing::debug!("the lease is not kept: no answer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_leader_that_beats_is_never_silent_and_one_that_does_not_is_after_six_seconds() {
        let (start, mut observer) = (Instant::now(), Observer::default());
        for second in 0..20 {
            let beat = i64::try_from(second / 2).unwrap_or_default();
            assert!(!observer.look("a".to_owned(), beat, at(start, second * 1000)));
        }
        let mut silent = (20..30).map(|second| observer.look("a".to_owned(), 9, at(start, second * 1000)));
        // The last beat was first seen at second 18.
        assert_eq!(silent.position(|is_silent| is_silent), Some(4));
    }

    #[test]
    fn a_pause_of_the_database_or_of_the_follower_is_no_silence_of_the_leader() {
        let (start, mut observer) = (Instant::now(), Observer::default());
        for second in [0, 1, 2, 3, 4, 120, 121, 122, 123, 124, 125] {
            assert!(
                !observer.look("a".to_owned(), 7, at(start, second * 1000)),
                "{second}"
            );
        }
        assert!(observer.look("a".to_owned(), 7, at(start, 126_000)));
    }

    #[test]
    fn a_new_leader_with_the_same_beat_is_another_one() {
        let (start, mut observer) = (Instant::now(), Observer::default());
        for second in 0..6 {
            assert!(!observer.look("a".to_owned(), 7, at(start, second * 1000)));
        }
        assert!(!observer.look("b".to_owned(), 7, at(start, 6000)));
    }
}
