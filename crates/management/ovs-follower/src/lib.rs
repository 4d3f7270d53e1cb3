//! The part of ovs-vswitchd: bridges of an Open vSwitch database become commits of the store, and the state of the switch is
//! written back.
//!
//! ```text
//!  ovsdb-server ── updates ──▶ replica ── translate, settle ──▶ commit of origin `ovsdb` ──▶ agent
//!       ▲                                                                                      │
//!       └──────── one transaction: columns of state that changed, and cur_cfg ◀── state ◀──────┘
//! ```
//!
//! A cycle begins when the socket is idle, so that many updates cost one. The task of the connection never waits for the
//! store or the switch, and answers echo requests meanwhile.

#![forbid(unsafe_code)]

mod connection;
mod cycle;
mod session;
mod status;
mod switch;
mod tls;
mod unixctl;

use std::sync::Arc;
use std::time::Duration;

use millrace_model::{Ovsdb, OvsdbTarget};
use millrace_ovs::Numbers;
use millrace_store::{Snapshot, Store};
use tokio::sync::{Notify, watch};

use session::Following;
use status::Shared;

pub use status::{Phase, Status};
pub use switch::Switch;

/// The shortest and the longest pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// Returns the longest pause. A server on this machine is asked as often as it can be: it costs no more than a system call.
fn pause_max(target: &OvsdbTarget) -> Duration {
    match target {
        OvsdbTarget::Unix(_) => PAUSE_MIN,
        OvsdbTarget::Tcp(_) | OvsdbTarget::Tls { .. } => PAUSE_MAX,
    }
}

/// A follower of a database. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Follower {
    shared: Arc<Shared>,
    woken: Arc<Notify>,
}

impl Follower {
    /// Returns the state of the follower.
    pub fn status(&self) -> Status {
        self.shared.read()
    }

    /// Reports that the state of the switch changed: a link, a port. Never blocks.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// Follows the database that the newest revision names, until `stopping` is true.
    pub async fn run(self, store: Store, switch: Arc<dyn Switch>, mut stopping: watch::Receiver<bool>) {
        let mut head = store.watch();
        let mut pause = PAUSE_MIN;
        let mut numbers = Numbers::default();
        let mut unixctl = None;
        loop {
            let settings = head.borrow_and_update().config.ovsdb.clone();
            let changed = changed(store.watch(), settings.clone());
            let Some(target) = settings.connect.clone() else {
                self.shared.off();
                unixctl = None;
                tokio::select! {
                    _ = stopping.wait_for(|stop| *stop) => return,
                    () = changed => continue,
                }
            };
            self.shared.connecting(&target.to_string());
            let following = Following {
                settings: &settings,
                store: &store,
                switch: &switch,
                shared: &self.shared,
                woken: &self.woken,
                numbers: &mut numbers,
                unixctl: &mut unixctl,
            };
            tokio::pin!(changed);
            let end = tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => return,
                () = &mut changed => {
                    // The new settings may have another directory.
                    unixctl = None;
                    pause = PAUSE_MIN;
                    continue;
                }
                end = following.run(&target) => end,
            };
            if end.was_synchronised {
                pause = PAUSE_MIN;
            }
            if self.shared.failed(&end.reason) {
                tracing::warn!(server = %target, reason = end.reason, "the database is not followed: its bridges stay as they are");
            }
            tokio::select! {
                _ = stopping.wait_for(|stop| *stop) => return,
                () = &mut changed => pause = PAUSE_MIN,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(pause_max(&target)),
            }
        }
    }
}

/// Waits until the newest revision has other settings.
async fn changed(mut head: watch::Receiver<Arc<Snapshot>>, settings: Ovsdb) {
    if head
        .wait_for(|snapshot| snapshot.config.ovsdb != settings)
        .await
        .is_err()
    {
        // The store is gone: the daemon ends.
        std::future::pending::<()>().await;
    }
}
