//! Sends the messages of functions to the targets of their `export` settings: datagrams to a collector, or bytes to a file or
//! a Unix socket. Each chain has a thread for this, since files may block.
//!
//! ```text
//!  Outbox of each function ─▶ Formatter of the hop, if its kind has one ─▶ Sink of the hop
//! ```

mod pipe;
mod sink;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrace_nf::{Counters, Formatter, Outbox, SharedValue};
use millrace_wire::Packet;

use crate::control::Chain;
use sink::Sink;

/// The interval at which outboxes are emptied.
const PERIOD: Duration = Duration::from_millis(20);
/// The interval of the formatters' reports, and of the check for files that were moved.
const SECOND: Duration = Duration::from_secs(1);
/// Time limit for the reader of a pipe to take the rest of the last message before the pipe is closed.
const LAST_FLUSH: Duration = Duration::from_millis(100);
/// Formatted bytes are written once there are this many.
const WRITE_SIZE: usize = 256 << 10;

/// The number of calls of [`reopen_exports`].
static REOPENED: AtomicU64 = AtomicU64::new(0);

/// Makes all exporters open their files again, after log rotation. The daemon calls this on SIGHUP.
pub fn reopen_exports() {
    REOPENED.fetch_add(1, Ordering::Release);
}

/// The functions of a hop, and the target of their messages.
pub(crate) struct Route {
    pub(crate) to: String,
    pub(crate) outboxes: Vec<Outbox>,
    pub(crate) counters: Vec<Counters>,
    pub(crate) formatter: Option<Box<dyn Formatter>>,
    pub(crate) value: Option<SharedValue>,
    /// Set when the formatter has the shared value. Functions get the value after that.
    pub(crate) has_value: Arc<AtomicBool>,
}

/// A route with its target, which is open unless opening failed.
struct OpenRoute {
    route: Route,
    sink: Sink,
    /// Formatted bytes that wait to be written.
    text: Vec<u8>,
}

/// The exporter of one chain. Its thread starts when a function exports, and ends when the exporter is dropped.
pub struct Exporter {
    chain: String,
    routes: Option<mpsc::Sender<Vec<Route>>>,
}

impl Exporter {
    /// Returns an exporter without routes.
    pub fn new(chain: &str) -> Exporter {
        Exporter {
            chain: chain.to_owned(),
            routes: None,
        }
    }

    /// Exports the messages of a chain's functions from now on, with the shared values that they have now.
    pub fn export<P: Packet + 'static>(&mut self, chain: &Chain<P>) {
        let routes = chain.routes();
        if routes.is_empty() && self.routes.is_none() {
            return;
        }
        let sent = match &self.routes {
            Some(sender) => sender.send(routes),
            None => {
                let (sender, receiver) = mpsc::channel();
                let chain = self.chain.clone();
                let body = move || run(&chain, &receiver);
                let name = format!("nf-{}", self.chain);
                if let Err(error) = std::thread::Builder::new().name(name).spawn(body) {
                    tracing::warn!(chain = %self.chain, %error, "the exporter thread of the chain cannot be started");
                }
                let sent = sender.send(routes);
                self.routes = Some(sender);
                sent
            }
        };
        if sent.is_err() {
            self.routes = None;
        }
    }
}

fn run(chain: &str, routes: &mpsc::Receiver<Vec<Route>>) {
    let mut open: Vec<OpenRoute> = Vec::new();
    let (mut reopened, mut last_second) = (REOPENED.load(Ordering::Acquire), Instant::now());
    loop {
        match routes.recv_timeout(PERIOD) {
            Ok(wanted) => {
                open.iter_mut().for_each(|open| open.empty(chain));
                // Targets that stay are not opened again.
                let mut before = core::mem::take(&mut open);
                open.extend(wanted.into_iter().map(|route| {
                    let held = before.iter().position(|held| held.route.to == route.to);
                    let sink = match held {
                        Some(at) => before.swap_remove(at).sink,
                        None => Sink::open(chain, &route.to),
                    };
                    OpenRoute::new(route, sink)
                }));
                finish(chain, &mut before);
            }
            Err(RecvTimeoutError::Timeout) => open.iter_mut().for_each(|open| open.empty(chain)),
            Err(RecvTimeoutError::Disconnected) => {
                open.iter_mut().for_each(|open| open.empty(chain));
                return finish(chain, &mut open);
            }
        }
        let now_reopened = REOPENED.load(Ordering::Acquire);
        if now_reopened != reopened || last_second.elapsed() >= SECOND {
            let is_asked = core::mem::replace(&mut reopened, now_reopened) != now_reopened;
            last_second = Instant::now();
            for open in &mut open {
                open.report(chain);
                open.sink.maintain(chain, is_asked);
            }
        }
    }
}

/// Writes the rest of the last message of each route. The targets are closed next.
fn finish(chain: &str, routes: &mut [OpenRoute]) {
    let deadline = Instant::now() + LAST_FLUSH;
    routes
        .iter_mut()
        .for_each(|route| route.sink.finish(chain, deadline));
}

impl OpenRoute {
    fn new(mut route: Route, sink: Sink) -> OpenRoute {
        if let (Some(formatter), Some(value)) = (&mut route.formatter, &route.value) {
            formatter.share(value);
        }
        route.has_value.store(true, Ordering::Release);
        OpenRoute {
            route,
            sink,
            text: Vec::new(),
        }
    }

    /// Sends all messages in the outboxes.
    fn empty(&mut self, chain: &str) {
        let OpenRoute { route, sink, text } = self;
        let datagrams = sink.is_datagrams();
        sink.flush();
        for outbox in &route.outboxes {
            while outbox.receive(|message| match &mut route.formatter {
                Some(formatter) => formatter.format(message, text),
                None => text.extend_from_slice(message),
            }) {
                if datagrams || text.len() >= WRITE_SIZE {
                    sink.write(chain, text);
                    text.clear();
                }
            }
        }
        if !text.is_empty() {
            sink.write(chain, text);
            text.clear();
        }
    }

    /// Sends the periodic report of the formatter.
    fn report(&mut self, chain: &str) {
        let Some(formatter) = &mut self.route.formatter else {
            return;
        };
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        for counters in &self.route.counters {
            let values = counters.read();
            match sums.is_empty() {
                true => sums = values,
                false => sums
                    .iter_mut()
                    .zip(values)
                    .for_each(|(sum, (_, value))| sum.1 += value),
            }
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix = unix.map_or(0, |unix| unix.as_millis() as u64);
        formatter.report(unix, &sums, &mut self.text);
        if !self.text.is_empty() {
            self.sink.write(chain, &self.text);
            self.text.clear();
        }
    }
}
