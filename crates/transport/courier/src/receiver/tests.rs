//! Links of a key with few rights do not affect other peers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use super::state::LINKS_OF_KEY_MAX;
use super::*;
use crate::access::{Access, DirectoryEntry, ReadAccess, Refusal, WriteAccess};
use crate::clock::wait;
use crate::control::{CODE_DONE, Control, LinkEvent, LinkId};
use crate::files::Requests;
use crate::identity::{Identity, PublicKey};
use crate::inbox::{Command, Inbox, Outbox};
use crate::io::{DatagramIo, UdpIo};
use crate::message::{Message, Offer, VERSION};
use crate::refusal::RefuseCode;
use crate::request;
use crate::sender::Target;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time after which a test fails.
const BOUND: Duration = Duration::from_secs(60);

/// Access rules that let every key list directories, and do nothing else.
struct ListOnly;

impl Access for ListOnly {
    fn admit(&self, _: PublicKey) -> Result<(), Refusal> {
        Ok(())
    }
    fn may_write(&self, _: PublicKey, _: &[u8]) -> Result<(), Refusal> {
        Err(Refusal::not_admitted("list only"))
    }
    fn write(&self, _: PublicKey, _: &[u8]) -> Result<WriteAccess, Refusal> {
        panic!("a sender that may not write was asked for its manifest");
    }
    fn read(&self, _: PublicKey, _: &[u8]) -> Result<ReadAccess, Refusal> {
        Err(Refusal::not_admitted("list only"))
    }
    fn list(&self, _: PublicKey, _: &[u8]) -> Result<Vec<DirectoryEntry>, Refusal> {
        Ok(Vec::new())
    }
}

/// A daemon in a thread.
struct Daemon {
    address: SocketAddr,
    key: PublicKey,
    silence: Duration,
    outbox: Outbox,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    fn start(silence: Duration) -> Daemon {
        let io = Box::new(UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap());
        let address = io.local_address().unwrap();
        let identity = Identity::generate().unwrap();
        let key = identity.public_key();
        let (outbox, inbox) = Inbox::new().unwrap();
        let options = ReceiveOptions {
            silence,
            ..ReceiveOptions::default()
        };
        let thread = std::thread::spawn(move || {
            let spec = ReceiverSpec {
                io,
                identity: &identity,
                options,
                fetch: None,
            };
            spec.run(FileDestination::Access(&ListOnly), None, &inbox, &mut |_| {})
                .unwrap();
        });
        Daemon {
            address,
            key,
            silence,
            outbox,
            thread: Some(thread),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.outbox.send(Command::Stop);
        let result = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            result.unwrap().unwrap();
        }
    }
}

/// A peer with one key and any number of links.
struct Client {
    io: UdpIo,
    control: Control,
    identity: Identity,
}

impl Client {
    fn new(daemon: &Daemon) -> Client {
        let identity = Identity::generate().unwrap();
        Client {
            io: UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap(),
            control: Control::new(&identity, false, daemon.silence, None).unwrap(),
            identity,
        }
    }

    fn dial(&mut self, daemon: &Daemon) {
        self.control
            .connect(Instant::now(), &self.identity, daemon.address, daemon.key)
            .unwrap();
    }

    /// Sends HELLO and another message.
    fn ask(&mut self, link: LinkId, message: &Message) {
        let hello = Message::Hello {
            version: VERSION,
            secret: Vec::new(),
        };
        self.control.send(link, &hello);
        self.control.send(link, message);
    }

    /// Waits shortly, then sends and receives the pending datagrams; returns the events.
    fn step(&mut self) -> Vec<(LinkId, LinkEvent)> {
        while let Some((to, datagram)) = self.control.poll_transmit(Instant::now()) {
            self.io.send(to, &datagram).unwrap();
        }
        self.io.flush().unwrap();
        let until = Instant::now() + Duration::from_millis(5);
        wait(&[Some(self.io.descriptor()), None, None], until).unwrap();
        while let Some(mut burst) = self.io.receive().unwrap() {
            let from = burst.from;
            for datagram in burst.datagrams() {
                self.control.handle_datagram(Instant::now(), from, datagram);
            }
        }
        self.control.on_timeout(Instant::now());
        std::iter::from_fn(|| self.control.poll_event()).collect()
    }

    /// Calls [`Client::step`] until an event leads to a result. `act` may dial again.
    fn until<T>(&mut self, mut act: impl FnMut(&mut Client, LinkId, LinkEvent) -> Option<T>) -> T {
        let until = Instant::now() + BOUND;
        while Instant::now() < until {
            for (link, event) in self.step() {
                if let Some(result) = act(self, link, event) {
                    return result;
                }
            }
        }
        panic!("no such event");
    }

    /// Lists until the daemon has answered.
    fn list(&mut self, daemon: &Daemon, others: &mut [Client]) {
        self.dial(daemon);
        self.until(|client, link, event| {
            others.iter_mut().for_each(|other| drop(other.step()));
            match event {
                LinkEvent::Connected => client.ask(link, &Message::List(Vec::new())),
                LinkEvent::Message(Message::EntriesEnd) => {
                    client.control.close(Instant::now(), link, CODE_DONE, "");
                    client.step();
                    return Some(());
                }
                LinkEvent::Message(_) | LinkEvent::Moved(_) => {}
                LinkEvent::Closed { .. } => client.dial(daemon),
            }
            None
        });
    }
}

fn offer() -> Message {
    Message::Offer(Offer {
        payload: 1_424,
        chacha: false,
        secret: [3; 32],
        requests: Requests::default(),
    })
}

#[test]
fn links_that_send_hello_and_no_more_end_and_leave_their_places_to_other_keys() {
    let daemon = Daemon::start(Duration::from_secs(1));
    // The number of links is the maximum of a receiver.
    let mut idle: Vec<Client> = (0..64 / LINKS_OF_KEY_MAX).map(|_| Client::new(&daemon)).collect();
    for client in &mut idle {
        (0..LINKS_OF_KEY_MAX).for_each(|_| client.dial(&daemon));
    }
    let (mut connected, mut closed) = (HashSet::new(), 0);
    let until = Instant::now() + BOUND;
    while connected.len() < 64 || closed < 64 {
        assert!(
            Instant::now() < until,
            "{} links connected, {closed} closed",
            connected.len()
        );
        for (at, client) in idle.iter_mut().enumerate() {
            for (link, event) in client.step() {
                match event {
                    LinkEvent::Connected => {
                        connected.insert((at, link));
                        // A path is no offer.
                        client.ask(link, &Message::Into(b"x".to_vec()));
                    }
                    LinkEvent::Closed { .. } if connected.contains(&(at, link)) => closed += 1,
                    // The handshake took longer than the limit on silence, because the machine is busy.
                    LinkEvent::Closed { .. } => client.dial(&daemon),
                    LinkEvent::Message(_) | LinkEvent::Moved(_) => {}
                }
            }
        }
    }
    Client::new(&daemon).list(&daemon, &mut idle);
}

#[test]
fn a_key_has_a_few_links_without_a_session_and_other_keys_have_the_rest() {
    let daemon = Daemon::start(Duration::from_secs(20));
    let mut greedy = Client::new(&daemon);
    (0..=LINKS_OF_KEY_MAX).for_each(|_| greedy.dial(&daemon));
    let reason = greedy.until(|client, link, event| match event {
        LinkEvent::Connected => {
            client.ask(link, &Message::Into(b"x".to_vec()));
            None
        }
        LinkEvent::Closed { reason, .. } => Some(reason),
        other => panic!("{other:?}"),
    });
    assert!(reason.contains("16 connections of this key"), "{reason}");
    Client::new(&daemon).list(&daemon, &mut [greedy]);
}

#[test]
fn a_key_whose_links_were_answered_and_not_closed_gets_further_ones() {
    let daemon = Daemon::start(Duration::from_secs(20));
    let mut client = Client::new(&daemon);
    client.dial(&daemon);
    let mut answers = 0;
    client.until(|client, link, event| {
        match event {
            LinkEvent::Connected => client.ask(link, &Message::List(Vec::new())),
            LinkEvent::Message(Message::EntriesEnd) => {
                answers += 1;
                client.dial(&daemon);
            }
            LinkEvent::Message(other) => panic!("{other:?}"),
            LinkEvent::Moved(address) => panic!("the daemon has moved to {address}"),
            // A link ends by itself some seconds after its answer.
            LinkEvent::Closed { reason, .. } => {
                assert!(
                    ["closed by the peer", "the session is over"].contains(&&*reason),
                    "{reason}"
                );
            }
        }
        (answers == 2 * LINKS_OF_KEY_MAX).then_some(())
    });
}

#[test]
fn a_sender_that_may_not_write_is_refused_at_its_offer() {
    let daemon = Daemon::start(Duration::from_secs(20));
    let mut sender = Client::new(&daemon);
    sender.dial(&daemon);
    let (code, text) = sender.until(|client, link, event| match event {
        LinkEvent::Connected => {
            client.ask(link, &offer());
            client.control.send(link, &Message::Manifest(vec![0; 1_000]));
            None
        }
        LinkEvent::Message(Message::Refuse { code, text }) => Some((code, text)),
        other => panic!("{other:?}"),
    });
    assert_eq!((code, &*text), (RefuseCode::NotAdmitted, "list only"));
}

#[test]
fn an_honest_peer_is_served_beside_hundreds_of_handshakes_a_second_from_its_own_address() {
    let daemon = Daemon::start(Duration::from_secs(20));
    let target = Target {
        name: "daemon".into(),
        addresses: vec![daemon.address],
        key: daemon.key,
        secret: None,
        into: Vec::new(),
    };
    let stop = AtomicBool::new(false);
    let connected = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut hostile = Client::new(&daemon);
            let mut connected = 0;
            while !stop.load(Ordering::Relaxed) {
                (0..4).for_each(|_| hostile.dial(&daemon));
                let events = hostile.step();
                connected += events
                    .iter()
                    .filter(|(_, event)| matches!(event, LinkEvent::Connected))
                    .count();
            }
            connected
        });
        let results: Vec<_> = (0..5)
            .map(|_| request::list(&Identity::generate().unwrap(), &target, b""))
            .collect();
        stop.store(true, Ordering::Relaxed);
        let connected = flood.join().unwrap();
        for result in results {
            assert!(result.is_ok(), "{result:?}");
        }
        connected
    });
    assert!(connected > 0, "the flood completes handshakes");
}
