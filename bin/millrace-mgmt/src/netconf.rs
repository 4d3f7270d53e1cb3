//! Sessions of NETCONF: one thread for each connection of the subsystem's program.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use millrace_api::client::Client as Rest;
use millrace_api::view::{ChangeKind, format_utc};
use millrace_netconf::{ConfigChange, Session, Shared};
use millrace_yang::datastore::Client;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;

use crate::settings::Settings;
use crate::{access, socket, switch};

/// The number of sessions in all, and of one user.
const SESSIONS_MAX: usize = 256;
const SESSIONS_OF_USER_MAX: usize = 128;
/// The longest time for which a client may not take its replies.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The size of a read, in bytes.
const READ_SIZE: usize = 16 << 10;
/// The stack of a session's thread, in bytes: a message has 64 levels at most.
const STACK_SIZE: usize = 2 << 20;

/// The number of notifications that wait for a session. One that waits for more is ended, because it would miss some.
const NOTIFICATIONS_MAX: usize = 64;
/// The pause before the stream of events is opened again.
const RECONNECT: Duration = Duration::from_millis(500);

/// A session that waits for notifications.
struct Waiting {
    queue: SyncSender<Arc<ConfigChange>>,
    /// A byte for each notification, which ends the wait of the session's thread.
    wake: UnixStream,
    stream: UnixStream,
}

/// The sessions by number.
type Hub = Arc<Mutex<BTreeMap<u32, Waiting>>>;

/// The number of sessions of each user.
type Counts = Arc<Mutex<BTreeMap<u32, usize>>>;

/// The place of a session among those of its user, given back when it is dropped: also if no thread can be started.
struct Place {
    counts: Counts,
    uid: u32,
}

impl Place {
    fn take(counts: &Counts, uid: u32) -> Option<Place> {
        let mut taken = counts.lock();
        let of_user = taken.get(&uid).copied().unwrap_or_default();
        if taken.values().sum::<usize>() >= SESSIONS_MAX || of_user >= SESSIONS_OF_USER_MAX {
            return None;
        }
        taken.insert(uid, of_user + 1);
        Some(Place {
            counts: Arc::clone(counts),
            uid,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
        }
        counts.retain(|_, count| *count > 0);
    }
}

/// Accepts connections for the rest of the process's life.
pub(crate) fn serve(listener: &UnixListener, settings: &Arc<Settings>, rest: &Rest) {
    let shared = Arc::new(Shared::default());
    let counts = Counts::default();
    let hub = Hub::default();
    let (follower, of_hub) = (rest.clone(), Arc::clone(&hub));
    let spawned = std::thread::Builder::new()
        .name("notifications".to_owned())
        .spawn(move || follow(&follower, &of_hub));
    if let Err(error) = spawned {
        tracing::error!(%error, "NETCONF: no thread for notifications");
    }
    loop {
        let accepted = listener.accept().context("accept");
        let begun = accepted.and_then(|(stream, _)| begin(stream, settings, rest, &shared, &counts, &hub));
        if let Err(error) = begun {
            tracing::warn!("NETCONF: {error:#}");
            std::thread::sleep(ACCEPT_PAUSE);
        }
    }
}

fn begin(
    stream: UnixStream,
    settings: &Arc<Settings>,
    rest: &Rest,
    shared: &Arc<Shared>,
    counts: &Counts,
    hub: &Hub,
) -> Result<()> {
    let uid = socket::peer(&stream)?;
    let Some(place) = Place::take(counts, uid) else {
        tracing::warn!(uid, "NETCONF: too many sessions: the connection is closed");
        return Ok(());
    };
    let (settings, rest) = (Arc::clone(settings), rest.clone());
    let shared = Arc::clone(shared);
    let hub = Arc::clone(hub);
    let run = move || {
        let _place = place;
        if let Err(error) = session(&stream, uid, &settings, &rest, &shared, &hub) {
            tracing::debug!("NETCONF: a session ended: {error:#}");
        }
        let _ = stream.shutdown(Shutdown::Both);
    };
    // The thread also looks up the role, because a directory of users may answer late.
    std::thread::Builder::new()
        .name("netconf".to_owned())
        .stack_size(STACK_SIZE)
        .spawn(run)
        .context("a thread for a session")?;
    Ok(())
}

fn session(
    mut stream: &UnixStream,
    uid: u32,
    settings: &Settings,
    rest: &Rest,
    shared: &Arc<Shared>,
    hub: &Hub,
) -> Result<()> {
    let Some(client) = access::of_user(uid, &settings.access) else {
        tracing::warn!(uid, "NETCONF: the user has no role: the connection is closed");
        return Ok(());
    };
    let Client { name, role } = client.clone();
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let ended = stream.try_clone()?;
    let end = Box::new(move || drop(ended.shutdown(Shutdown::Both)));
    let mut store = switch::Session::new(rest, &name);
    let login = UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let mut session = Session::new(client, &rfc_3339(login), Arc::clone(shared), end);
    tracing::info!(session = session.id(), user = %name, role = role.name(), "NETCONF session begins");
    let id = session.id();
    let (queue, notifications) = sync_channel(NOTIFICATIONS_MAX);
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let waiting = Waiting {
        queue,
        wake,
        stream: stream.try_clone()?,
    };
    hub.lock().insert(id, waiting);
    let outcome = exchange(&mut stream, &mut session, &mut store, &notifications, &woken);
    hub.lock().remove(&id);
    session.end(&mut store);
    tracing::info!(session = session.id(), user = %name, "NETCONF session ends");
    outcome
}

fn exchange(
    stream: &mut &UnixStream,
    session: &mut Session,
    store: &mut switch::Session,
    notifications: &Receiver<Arc<ConfigChange>>,
    mut woken: &UnixStream,
) -> Result<()> {
    stream.write_all(&session.hello())?;
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let mut fds = [
            PollFd::new(stream.as_fd(), PollFlags::POLLIN),
            PollFd::new(woken.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let [of_client, of_hub] = fds.map(|fd| fd.any().unwrap_or(true));
        if of_hub {
            let _ = woken.read(&mut buffer);
            for change in notifications.try_iter() {
                if let Some(bytes) = session.notification(&change) {
                    stream.write_all(&bytes)?;
                }
            }
        }
        if !of_client {
            continue;
        }
        let size = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(size) => size,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let outcome = session.receive(buffer.get(..size).unwrap_or_default(), store);
        stream.write_all(&outcome.output)?;
        if outcome.closes {
            return Ok(());
        }
    }
}

/// Tells all sessions of each new revision, for the rest of the process's life.
fn follow(rest: &Rest, hub: &Hub) {
    let mut last = rest.config().ok().map(|(_, revision)| revision);
    loop {
        for event in rest.state_events("revisions").into_iter().flatten() {
            if event.name != "revisions" {
                continue;
            }
            let Ok((_, head)) = rest.config() else { break };
            let first = last.map_or(head, |last| last + 1);
            last = Some(head);
            for number in first..=head {
                if let Some(change) = change(rest, number) {
                    tell(hub, &Arc::new(change));
                }
            }
        }
        std::thread::sleep(RECONNECT);
    }
}

/// Returns a revision with its differences; `None` if a later one of the same machine has replaced it.
fn change(rest: &Rest, number: u64) -> Option<ConfigChange> {
    let revision = rest.revision(number).ok()?.revision;
    let before = number
        .checked_sub(1)
        .and_then(|before| rest.diff(before, Some(number)).ok());
    let changes = before.map(|diff| diff.changes).unwrap_or_default();
    let edit = |change: &millrace_api::view::Change| {
        let operation = match change.kind {
            ChangeKind::Added => "create",
            ChangeKind::Removed => "delete",
            ChangeKind::Changed => "replace",
        };
        (change.path.clone(), operation)
    };
    Some(ConfigChange {
        time: rfc_3339(revision.time),
        user: revision.author,
        edits: changes.iter().map(edit).collect(),
    })
}

fn rfc_3339(unix: u64) -> String {
    format_utc(unix).replace(' ', "T")
}

fn tell(hub: &Hub, change: &Arc<ConfigChange>) {
    for waiting in hub.lock().values() {
        if waiting.queue.try_send(Arc::clone(change)).is_err() {
            let _ = waiting.stream.shutdown(Shutdown::Both);
        }
        let _ = (&waiting.wake).write(&[0]);
    }
}
