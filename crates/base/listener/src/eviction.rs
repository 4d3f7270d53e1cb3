//! The eviction of a connection that has a task, as a future.
//!
//! ```text
//!  Waiting --evicted--> Looking for LAST_LOOK --> Served --+--> the connection must end
//!     ^                                                    |
//!     +---- established, or its request is worked on ------+
//! ```
//!
//! The peer of a pending connection may have sent a complete request that the task has not read yet, because a flood
//! was accepted first. The task of an evicted connection thus gets one more turn before it ends.

use core::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use crate::Source;
use crate::admission::{Admission, Connection, Counted};

/// The time for a last look at the socket. Any duration suffices: tokio's driver delivers what is ready at sockets
/// before timers that expire in the same turn.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// A future that completes when a pending connection must be closed for a newer one.
#[derive(Debug)]
pub struct Eviction {
    /// Notified when the connection is evicted.
    evicted: Arc<Notify>,
    connection: Weak<Counted>,
    stage: Stage,
}

/// The progress of an eviction. It is kept over a future that is dropped before it completes.
#[derive(Debug)]
enum Stage {
    /// The connection is not evicted.
    Waiting,
    /// The task reads what has arrived.
    Looking(Pin<Box<Sleep>>),
    /// The task was polled after all that had arrived was ready to be read.
    Served,
}

impl Admission {
    /// Counts a new connection as pending, for a task. The task must end when the eviction completes.
    pub fn begin_task(&self, source: Source) -> (Connection, Eviction) {
        let evicted = Arc::default();
        let (connection, counted) = self.begin_notified(source, Arc::clone(&evicted));
        let eviction = Eviction {
            evicted,
            connection: counted,
            stage: Stage::Waiting,
        };
        (connection, eviction)
    }
}

impl Eviction {
    /// Returns when the connection must be closed. Never returns once the connection is established, or no
    /// longer counted. A future that is
    /// dropped early loses nothing. Poll it beside the future that serves the connection, in one task.
    pub async fn evicted(&mut self) {
        loop {
            match &mut self.stage {
                Stage::Waiting => {
                    self.evicted.notified().await;
                    self.stage = Stage::Looking(Box::pin(sleep(LAST_LOOK)));
                }
                Stage::Looking(look) => {
                    look.await;
                    self.stage = Stage::Served;
                    // The serving future is polled in this turn, before or after this one.
                    tokio::task::yield_now().await;
                }
                Stage::Served => {
                    if self
                        .connection
                        .upgrade()
                        .is_some_and(|counted| counted.must_end())
                    {
                        return;
                    }
                    self.stage = Stage::Waiting;
                }
            }
        }
    }

    /// Runs a future until it ends or the connection must be closed; `None` in the second case.
    pub async fn bound<T>(mut self, serving: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = serving => Some(done),
            () = self.evicted() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::*;
    use crate::{Admission, Limits, Source};

    const LIMITS: Limits = Limits {
        established: 100,
        established_of_source: 100,
        pending: 4,
        pending_of_source: 4,
    };

    /// The number of connections that arrive at once: four times the places of pending ones.
    const BURST: usize = 16;

    /// Accepts a burst of connections whose peers have sent `sent(number)`, before any task runs. Serves each: reads
    /// one request of a byte, then calls `answer`. Returns the numbers of the connections that were evicted, in order.
    async fn evicted_of<F>(
        sent: impl Fn(usize) -> &'static [u8],
        answer: impl Fn(crate::Connection) -> F,
    ) -> Vec<usize>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let admission = Admission::new(LIMITS, "test");
        let evicted = Arc::new(Mutex::new(Vec::new()));
        let mut peers = Vec::new();
        for number in 0..BURST {
            let (mut theirs, mut ours) = UnixStream::pair().unwrap();
            theirs.write_all(sent(number)).await.unwrap();
            peers.push(theirs);
            let (connection, eviction) = admission.begin_task(Source::Local);
            let answer = answer(connection);
            let serving = async move {
                ours.read_exact(&mut [0]).await.unwrap();
                answer.await;
                core::future::pending::<()>().await;
            };
            let evicted = Arc::clone(&evicted);
            tokio::spawn(async move {
                if eviction.bound(serving).await.is_none() {
                    evicted.lock().push(number);
                }
            });
        }
        tokio::time::sleep(100 * LAST_LOOK).await;
        let mut evicted = core::mem::take(&mut *evicted.lock());
        evicted.sort_unstable();
        evicted
    }

    #[tokio::test]
    async fn requests_that_lie_in_their_sockets_while_a_burst_is_accepted_are_read_before_any_is_closed() {
        let establish = |connection: crate::Connection| async move { connection.establish().unwrap() };
        assert_eq!(evicted_of(|_| b"r", establish).await, Vec::<usize>::new());
    }

    #[tokio::test]
    async fn silent_connections_are_closed_for_newer_ones_and_one_with_a_request_among_them_is_not() {
        let sent = |number| if number == 3 { b"r".as_slice() } else { b"" };
        let establish = |connection: crate::Connection| async move { connection.establish().unwrap() };
        let silent = (0..BURST - LIMITS.pending).filter(|number| *number != 3);
        assert_eq!(evicted_of(sent, establish).await, silent.collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_request_that_is_worked_on_goes_back_to_the_pending_ones_and_a_silent_one_leaves_for_it() {
        let sent = |number| if number == 0 { b"r".as_slice() } else { b"" };
        let work = |connection: crate::Connection| async move {
            let _busy = connection.busy();
            core::future::pending::<()>().await;
        };
        // 0 has its place back, so that 12 has none.
        assert_eq!(evicted_of(sent, work).await, (1..=12).collect::<Vec<_>>());
    }
}
