//! Transfers as the C interface offers them, without pointers.

use millrace_courier::identity::Identity;
use millrace_courier::local::{LocalSource, LocalStore, PlaceOptions, ScanOptions};
use millrace_courier::target::{Url, config_directory, known_receivers, parse, remember};
use millrace_courier::{
    Event, Outcome, ReceiveOptions, SendOptions, Session, SessionHandle, Target, exit_status,
};
use millrace_types::BitRate;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::Mutex;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The reason of a transfer that ended before it had an outcome.
const STOPPED: &str = "stopped before any transfer began";

/// The status of a transfer that could not continue.
pub(crate) const FAILED: i32 = 1;

pub(crate) const DELTA: u32 = 1;
pub(crate) const ALL_AT_ONCE: u32 = 2;
pub(crate) const KEEP_EXISTING: u32 = 4;
pub(crate) const MODES_AND_TIMES: u32 = 8;
pub(crate) const STOP_ON_CHANGE: u32 = 16;

/// The options of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) identity: Option<PathBuf>,
    pub(crate) listen: Option<String>,
    pub(crate) rate_bps: u64,
    pub(crate) silence_ms: u64,
    pub(crate) patience_ms: u64,
    pub(crate) flags: u32,
    pub(crate) name: Option<Vec<u8>>,
}

impl Options {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns the identity in the file that the options name; without one, that of this user.
    pub(crate) fn identity(&self) -> Result<Identity, String> {
        let path = self
            .identity
            .clone()
            .or_else(|| config_directory().map(|directory| directory.join("identity")));
        let path = path.ok_or("neither HOME nor XDG_CONFIG_HOME is set; give options.identity")?;
        Identity::load_or_create(&path).map_err(text)
    }

    fn receive_options(&self) -> Result<ReceiveOptions, String> {
        let mut options = ReceiveOptions {
            once: true,
            ..ReceiveOptions::default()
        };
        if let Some(listen) = &self.listen {
            options.listen = listen.parse().map_err(|_| {
                format!("options.listen `{listen}` is no address; expected IP:PORT, such as 0.0.0.0:7800")
            })?;
        }
        set(&mut options.silence, self.silence_ms);
        set(&mut options.patience, self.patience_ms);
        Ok(options)
    }

    fn store(&self, directory: &Path) -> Result<Box<LocalStore>, String> {
        if !directory.is_dir() {
            return Err(format!(
                "{} is no directory; create it first",
                directory.display()
            ));
        }
        let place = PlaceOptions {
            all_at_once: self.has(ALL_AT_ONCE),
            keep_existing: self.has(KEEP_EXISTING),
            delta: self.has(DELTA),
            modes_and_times: self.has(MODES_AND_TIMES),
            preserve: false,
            symlinks_beneath: false,
        };
        Ok(Box::new(LocalStore::new(directory, place)))
    }
}

fn set(time: &mut Duration, milliseconds: u64) {
    if milliseconds > 0 {
        *time = Duration::from_millis(milliseconds);
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Parses the URL of a path at a daemon.
pub(crate) fn url(word: &str) -> Result<Url, String> {
    let wrong = || format!("`{word}` is no path of a daemon; expected millrace://HOST/GRANT/PATH");
    Url::parse(word).ok_or_else(wrong)?.map_err(text)
}

/// Stores the key of a receiver, which has proved that it holds the key. Errors are ignored: the transfer is
/// complete either way.
pub(crate) fn note(peer: &Target) {
    if let Some(known) = known_receivers() {
        let _ = remember(&known, peer);
    }
}

/// An event as C sees it.
#[derive(Debug, Default)]
pub(crate) struct EventTexts {
    pub(crate) event: CString,
    pub(crate) peer: CString,
    pub(crate) text: CString,
    pub(crate) json: CString,
    pub(crate) verified: u64,
    pub(crate) bytes: u64,
    pub(crate) rate_bps: u64,
    pub(crate) rtt_ms: f64,
    pub(crate) loss: f64,
}

impl EventTexts {
    fn new(event: &Event) -> EventTexts {
        let value = serde_json::to_value(event).unwrap_or_default();
        let string = |names: &[&str]| {
            let found = names.iter().find_map(|name| value[*name].as_str());
            c_text(found.unwrap_or_default())
        };
        let number = |name: &str| value[name].as_u64().unwrap_or(0);
        EventTexts {
            event: string(&["event"]),
            peer: string(&["peer"]),
            text: string(&["ticket", "reason", "problem", "limit"]),
            verified: number("verified"),
            bytes: number("bytes"),
            rate_bps: number("rate_bps"),
            rtt_ms: value["rtt_ms"].as_f64().unwrap_or(0.0),
            loss: value["loss"].as_f64().unwrap_or(0.0),
            json: c_text(&value.to_string()),
        }
    }
}

/// Returns a text as a C string, cut off at its first NUL.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

struct State {
    session: Option<Session>,
    event: EventTexts,
    /// The reason of the last peer that did not get everything.
    reason: String,
    /// How the transfer ended.
    status: Option<Result<i32, String>>,
}

/// A transfer. All its functions may be called from any thread.
pub(crate) struct Transfer {
    handle: SessionHandle,
    /// The descriptor of the events; -1 once [`Transfer::join`] was called. It is outside of the lock, which `next`
    /// holds while it waits and while `act` runs.
    descriptor: AtomicI32,
    state: Mutex<State>,
    /// The receivers, or the daemon, in the order of the outcomes; empty if any sender may connect.
    peers: Vec<Target>,
}

impl Transfer {
    fn new(session: Session, peers: Vec<Target>) -> Transfer {
        Transfer {
            handle: session.handle(),
            descriptor: AtomicI32::new(session.descriptor().as_raw_fd()),
            state: Mutex::new(State {
                session: Some(session),
                event: EventTexts::default(),
                reason: String::new(),
                status: None,
            }),
            peers,
        }
    }

    pub(crate) fn send(
        sources: &[PathBuf],
        targets: &[String],
        options: &Options,
    ) -> Result<Transfer, String> {
        if sources.is_empty() || targets.is_empty() {
            return Err("expected one source and one target at least".into());
        }
        let scan = ScanOptions {
            stop_on_change: options.has(STOP_ON_CHANGE) || options.has(ALL_AT_ONCE),
            preserve: false,
        };
        let source = match (&options.name, sources) {
            (None, _) => LocalSource::scan(sources, &scan),
            (Some(name), [source]) => LocalSource::scan_as(source, name, &scan),
            (Some(_), _) => return Err("options.name names one source; expected no other".into()),
        };
        let source = source.map_err(text)?;
        let known = known_receivers();
        let targets: Result<Vec<_>, _> = targets.iter().map(|word| parse(word, known.as_deref())).collect();
        let targets = targets.map_err(text)?;
        let mut send = SendOptions {
            rate: (options.rate_bps > 0).then(|| BitRate::from_bps(options.rate_bps)),
            ..SendOptions::default()
        };
        send.requests.delta = options.has(DELTA);
        send.requests.all_at_once = options.has(ALL_AT_ONCE);
        set(&mut send.silence, options.silence_ms);
        set(&mut send.patience, options.patience_ms);
        let session = Session::send(Box::new(source), options.identity()?, targets.clone(), send);
        Ok(Transfer::new(session.map_err(text)?, targets))
    }

    pub(crate) fn receive(directory: &Path, options: &Options) -> Result<Transfer, String> {
        let store = options.store(directory)?;
        let session = Session::receive(store, options.identity()?, options.receive_options()?);
        Ok(Transfer::new(session.map_err(text)?, Vec::new()))
    }

    pub(crate) fn fetch(word: &str, directory: &Path, options: &Options) -> Result<Transfer, String> {
        let (mut store, url) = (options.store(directory)?, url(word)?);
        if let Some(name) = url.entry_name() {
            *store = store.only(name.as_bytes());
        }
        let from = url.target(known_receivers().as_deref()).map_err(text)?;
        let (identity, receive) = (options.identity()?, options.receive_options()?);
        let session = Session::fetch(store, identity, from.clone(), url.path.into_bytes(), receive);
        Ok(Transfer::new(session.map_err(text)?, vec![from]))
    }

    /// Waits for the next event, at most `timeout` (`None`: forever), and passes it to `act`. Returns 1 for an event, 0 if none
    /// came in time, and -1 after the last one.
    pub(crate) fn next(&self, timeout: Option<Duration>, act: impl FnOnce(&EventTexts)) -> i32 {
        let mut state = self.state.lock();
        let State {
            session,
            event,
            reason,
            ..
        } = &mut *state;
        let Some(session) = session else { return -1 };
        if let Some(timeout) = timeout {
            let started = Instant::now();
            loop {
                let left = timeout.saturating_sub(started.elapsed());
                let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                let mut fds = [PollFd::new(session.descriptor(), PollFlags::POLLIN)];
                match poll(&mut fds, left) {
                    Ok(ready) if ready > 0 => break,
                    Err(Errno::EINTR) => {}
                    _ => return 0,
                }
            }
        }
        // If the descriptor is readable, an event or the end is available at once.
        let Some(next) = session.next() else { return -1 };
        *event = EventTexts::new(&next);
        if let Event::Done { .. } = next
            && !event.text.is_empty()
        {
            *reason = event.text.to_string_lossy().into_owned();
        }
        act(event);
        1
    }

    /// Returns the descriptor of the events.
    pub(crate) fn descriptor(&self) -> i32 {
        self.descriptor.load(Ordering::Relaxed)
    }

    /// Waits for the end, and returns the status.
    pub(crate) fn join(&self) -> Result<i32, String> {
        let mut state = self.state.lock();
        if let Some(session) = state.session.take() {
            self.descriptor.store(-1, Ordering::Relaxed);
            let outcomes = session.join().map_err(text);
            for (peer, outcome) in self.peers.iter().zip(outcomes.iter().flatten()) {
                if *outcome == Outcome::Delivered {
                    note(peer);
                }
            }
            if outcomes.as_ref().is_ok_and(Vec::is_empty) {
                STOPPED.clone_into(&mut state.reason);
            }
            state.status = Some(outcomes.map(|outcomes| status(&outcomes)));
        }
        state.status.clone().unwrap_or(Ok(FAILED))
    }

    /// Returns the reason why a peer did not get everything, from the events that were read so far.
    pub(crate) fn reason(&self) -> String {
        self.state.lock().reason.clone()
    }

    /// Ends the transfer.
    pub(crate) fn cancel(&self) {
        self.handle.cancel();
    }
}

fn status(outcomes: &[Outcome]) -> i32 {
    // A receiver that was cancelled before any sender connected has no outcome.
    if outcomes.is_empty() {
        6
    } else {
        exit_status(outcomes).into()
    }
}
