//! A receiver in a thread, and senders to it.

use crate::memory::MemorySource;
use millrace_courier::files::{Source, Store};
use millrace_courier::identity::{Identity, PublicKey};
use millrace_courier::io::{DatagramIo, UdpIo};
use millrace_courier::ticket::Ticket;
use millrace_courier::{Event, KeptTicket, Outcome, ReceiveOptions, SendOptions, Target, receive_over, send};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) struct ReceiverThread {
    pub(crate) ticket: Ticket,
    events: Receiver<Event>,
    stop: UnixStream,
    thread: JoinHandle<Vec<Outcome>>,
}

pub(crate) struct ReceiverSpec {
    pub(crate) once: bool,
    pub(crate) allow: Vec<PublicKey>,
    pub(crate) expiry: Duration,
    pub(crate) patience: Duration,
    pub(crate) silence: Duration,
    /// The receiver's identity, and the file of its ticket.
    pub(crate) identity: Option<Identity>,
    pub(crate) kept_ticket: Option<KeptTicket>,
}

impl Default for ReceiverSpec {
    fn default() -> ReceiverSpec {
        ReceiverSpec {
            once: true,
            allow: Vec::new(),
            expiry: Duration::from_secs(60),
            patience: Duration::from_secs(60),
            silence: Duration::from_secs(20),
            identity: None,
            kept_ticket: None,
        }
    }
}

impl ReceiverThread {
    pub(crate) fn start(store: impl Store + 'static, spec: ReceiverSpec) -> ReceiverThread {
        let io = UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        ReceiverThread::start_over(Box::new(io), Vec::new(), store, spec)
    }

    /// Starts a receiver on any backend, whose ticket has the given addresses.
    pub(crate) fn start_over(
        io: Box<dyn DatagramIo>,
        addresses: Vec<IpAddr>,
        store: impl Store + 'static,
        spec: ReceiverSpec,
    ) -> ReceiverThread {
        let (stop, stopped) = UnixStream::pair().unwrap();
        let (sender, events) = channel();
        let options = ReceiveOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            addresses: addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect(),
            once: spec.once,
            allow: spec.allow,
            expiry: spec.expiry,
            patience: spec.patience,
            silence: spec.silence,
            key_log: None,
            kept_ticket: spec.kept_ticket,
        };
        let thread = std::thread::spawn(move || {
            let identity = spec.identity.unwrap_or_else(|| Identity::generate().unwrap());
            let mut on_event = |event| {
                let _ = sender.send(event);
            };
            receive_over(
                io,
                &store,
                &identity,
                options,
                Some(stopped.as_fd()),
                &mut on_event,
            )
            .unwrap()
        });
        let ticket = match events.recv_timeout(Duration::from_secs(60)) {
            Ok(Event::Listening { ticket, .. }) => ticket.parse().unwrap(),
            other => panic!("no ticket: {other:?}"),
        };
        ReceiverThread {
            ticket,
            events,
            stop,
            thread,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.ticket.addresses[0]
    }

    /// Returns the target of the ticket.
    pub(crate) fn target(&self, name: &str) -> Target {
        Target {
            name: name.into(),
            addresses: self.ticket.addresses.clone(),
            key: self.ticket.key,
            secret: Some(self.ticket.secret),
            into: Vec::new(),
        }
    }

    /// Waits for an event.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&Event) -> bool) {
        while !wanted(&self.events.recv_timeout(Duration::from_secs(60)).unwrap()) {}
    }

    /// Waits until the receiver ends: with `--once`, or after a stop. Returns the outcomes.
    pub(crate) fn join(self) -> Vec<Outcome> {
        self.thread.join().unwrap()
    }

    pub(crate) fn stop(self) -> Vec<Outcome> {
        drop(self.stop);
        self.thread.join().unwrap()
    }
}

/// Sends and returns the outcomes with all events.
pub(crate) fn send_all(
    source: &mut MemorySource,
    identity: &Identity,
    targets: Vec<Target>,
    options: SendOptions,
) -> (Vec<Outcome>, Vec<Event>) {
    send_all_of(source, identity, targets, options)
}

/// Sends any source and returns the outcomes with all events.
pub(crate) fn send_all_of(
    source: &mut dyn Source,
    identity: &Identity,
    targets: Vec<Target>,
    options: SendOptions,
) -> (Vec<Outcome>, Vec<Event>) {
    send_with(source, identity, targets, options, |_| {})
}

/// Sends any source; the sender waits while `on_event` handles an event. Returns the outcomes with all events.
pub(crate) fn send_with(
    source: &mut dyn Source,
    identity: &Identity,
    targets: Vec<Target>,
    options: SendOptions,
    mut on_event: impl FnMut(&Event),
) -> (Vec<Outcome>, Vec<Event>) {
    let mut events = Vec::new();
    let outcomes = send(source, identity, targets, options, None, &mut |event| {
        on_event(&event);
        events.push(event);
    })
    .unwrap();
    (outcomes, events)
}
