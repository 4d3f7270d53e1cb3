//! Receivers that ask for more than they need, have no room, or send no feedback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use super::*;
use crate::clock::wait;
use crate::control::{BUSY, CODE_BUSY, Control, LinkEvent};
use crate::event::{Event, Outcome};
use crate::files::{FilesError, Source, Value};
use crate::identity::Identity;
use crate::io::{DatagramIo, UdpIo};
use crate::message::Message;
use millrace_transport::extent::{ExtentSize, Layout};
use millrace_transport::ranges::RangeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The time after which the test fails.
const BOUND: Duration = Duration::from_secs(60);

/// One extent of zeros. Each request for its group values is counted and waits for a permission.
struct Slow {
    permitted: Receiver<()>,
    asked: usize,
    bytes: Vec<u8>,
}

impl Source for Slow {
    fn manifest(&self) -> &[u8] {
        &[]
    }
    fn layout(&self) -> Layout {
        Layout::new(1 << 20, ExtentSize::Small).unwrap()
    }
    fn check_have(&mut self, _: u64, _: &Value) -> Result<bool, FilesError> {
        Ok(true)
    }
    fn read(&mut self, _: u64, len: usize) -> Result<&[u8], FilesError> {
        Ok(&self.bytes[..len])
    }
    fn poll_value(&mut self) -> Option<(u64, Value)> {
        None
    }
    fn value(&self, _: u64) -> Option<Value> {
        None
    }
    fn group_values(&mut self, _: u64) -> Result<Vec<Value>, FilesError> {
        let _ = self.permitted.recv_timeout(BOUND);
        self.asked += 1;
        Ok(vec![[0; 32]; 64])
    }
    fn poll_withdrawn(&mut self) -> Option<(u64, String)> {
        None
    }
    fn root(&self) -> Option<Value> {
        None
    }
}

/// Sends and receives the datagrams of the control channel that are due, for a few milliseconds.
fn exchange(io: &mut UdpIo, control: &mut Control) {
    while let Some((to, datagram)) = control.poll_transmit(Instant::now()) {
        io.send(to, &datagram).unwrap();
    }
    io.flush().unwrap();
    let soon = Instant::now() + Duration::from_millis(5);
    wait(&[Some(io.descriptor()), None, None], soon).unwrap();
    while let Some(mut burst) = io.receive().unwrap() {
        let from = burst.from;
        for datagram in burst.datagrams() {
            control.handle_datagram(Instant::now(), from, datagram);
        }
    }
    control.on_timeout(Instant::now());
}

/// Accepts a sender, requests the same values a thousand times, and ends the session once it has them. The
/// sender's event for a file shows that it has read all requests; only then the source answers.
fn receive(mut io: UdpIo, mut control: Control, read: &Receiver<()>, permit: &Sender<()>) {
    let until = Instant::now() + BOUND;
    let mut permitted = false;
    while Instant::now() < until {
        exchange(&mut io, &mut control);
        if !permitted && read.try_recv().is_ok() {
            permitted = true;
            // If the sender had queued several requests, it would ask the source for each.
            (0..1_000).for_each(|_| permit.send(()).unwrap());
        }
        while let Some((link, event)) = control.poll_event() {
            match event {
                LinkEvent::Connected => control.admit(Instant::now(), link),
                LinkEvent::Message(Message::ManifestEnd) => control.send(link, &Message::HaveEnd),
                LinkEvent::Message(Message::Keep(_)) => {
                    let mut have = RangeSet::new();
                    have.insert(0..1);
                    control.send(
                        link,
                        &Message::Accept {
                            connection: 7,
                            pool: 1 << 20,
                            have,
                        },
                    );
                    for _ in 0..1_000 {
                        control.send(link, &Message::NeedGroupValues(0));
                    }
                    control.send(link, &Message::Committed { file: 0 });
                }
                LinkEvent::Message(Message::GroupValues { .. }) => {
                    let text = "enough".into();
                    control.send(link, &Message::Failed { text });
                }
                LinkEvent::Message(_) | LinkEvent::Moved(_) => {}
                LinkEvent::Closed { .. } => return,
            }
        }
    }
    panic!("the sender did not end the session");
}

#[test]
fn an_extent_whose_values_are_computed_is_not_asked_for_again() {
    let io = UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address: SocketAddr = io.local_address().unwrap();
    let identity = Identity::generate().unwrap();
    let silence = Duration::from_secs(20);
    let control = Control::new(&identity, true, silence, None).unwrap();
    let target = Target {
        name: "hostile".into(),
        addresses: vec![address],
        key: identity.public_key(),
        secret: None,
        into: Vec::new(),
    };
    let ((permit, permitted), (read, all_read)) = (channel(), channel());
    let mut source = Slow {
        permitted,
        asked: 0,
        bytes: vec![0; 1 << 20],
    };
    let outcomes = std::thread::scope(|scope| {
        scope.spawn(move || receive(io, control, &all_read, &permit));
        let own = Identity::generate().unwrap();
        let mut on_event = |event| {
            if matches!(event, Event::File { .. }) {
                let _ = read.send(());
            }
        };
        let options = SendOptions::default();
        send(&mut source, &own, vec![target], options, None, &mut on_event).unwrap()
    });
    assert!(
        matches!(&outcomes[..], [Outcome::Resumable { reason }] if reason == "enough"),
        "{outcomes:?}"
    );
    assert_eq!(source.asked, 1, "a thousand questions, one answer");
}

/// Closes the first links of a sender for want of room, and ends the session of the next one. Returns the number of links.
fn be_busy(mut io: UdpIo, mut control: Control, refusals: usize) -> usize {
    let until = Instant::now() + BOUND;
    let mut links = 0;
    while Instant::now() < until {
        exchange(&mut io, &mut control);
        while let Some((link, event)) = control.poll_event() {
            match event {
                LinkEvent::Connected => {
                    links += 1;
                    if links <= refusals {
                        control.close(Instant::now(), link, CODE_BUSY, BUSY);
                    } else {
                        let text = "enough".into();
                        control.send(link, &Message::Failed { text });
                    }
                }
                LinkEvent::Closed { .. } if links > refusals => return links,
                _ => {}
            }
        }
    }
    panic!("the sender dialled {links} times");
}

#[test]
fn a_sender_dials_a_receiver_without_room_again_after_its_usual_pause() {
    let io = UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address: SocketAddr = io.local_address().unwrap();
    let identity = Identity::generate().unwrap();
    let control = Control::new(&identity, true, Duration::from_secs(20), None).unwrap();
    let target = Target {
        name: "busy".into(),
        addresses: vec![address],
        key: identity.public_key(),
        secret: None,
        into: Vec::new(),
    };
    let mut source = Slow {
        permitted: channel().1,
        asked: 0,
        bytes: vec![0; 1 << 20],
    };
    let begun = Instant::now();
    let (outcomes, links) = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || be_busy(io, control, 2));
        let own = Identity::generate().unwrap();
        let options = SendOptions::default();
        let outcomes = send(&mut source, &own, vec![target], options, None, &mut |_| {}).unwrap();
        (outcomes, receiver.join().unwrap())
    });
    assert!(
        matches!(&outcomes[..], [Outcome::Resumable { reason }] if reason == "enough"),
        "{outcomes:?}"
    );
    assert_eq!(links, 3);
    // 500 ms, and then a second.
    assert!(begun.elapsed() >= BACKOFF * 3);
}

/// Accepts a sender, acknowledges its control channel and sends no feedback. Ends the session after this many PING frames
/// of the control channel, or after [`BOUND`]. Returns the number of those that arrived.
fn send_no_feedback(mut io: UdpIo, mut control: Control, expected: u64) -> u64 {
    let until = Instant::now() + BOUND;
    let (mut running, mut pings) = (None, 0);
    loop {
        exchange(&mut io, &mut control);
        if let Some(link) = running {
            pings = control.pings(link);
            if pings >= expected || Instant::now() >= until {
                let text = "enough".into();
                control.send(link, &Message::Failed { text });
                running = None;
            }
        }
        while let Some((link, event)) = control.poll_event() {
            match event {
                LinkEvent::Connected => control.admit(Instant::now(), link),
                LinkEvent::Message(Message::ManifestEnd) => control.send(link, &Message::HaveEnd),
                LinkEvent::Message(Message::Keep(_)) => {
                    let accept = Message::Accept {
                        connection: 7,
                        pool: 1 << 20,
                        have: RangeSet::new(),
                    };
                    control.send(link, &accept);
                    running = Some(link);
                }
                LinkEvent::Message(_) | LinkEvent::Moved(_) => {}
                LinkEvent::Closed { .. } => return pings,
            }
        }
    }
}

#[test]
fn a_sender_whose_feedback_is_overdue_probes_by_the_control_channel_again_and_again() {
    // The keep-alive of the control channel is due after a quarter of this, long after the test has ended.
    let silence = BOUND * 40;
    let io = UdpIo::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address: SocketAddr = io.local_address().unwrap();
    let identity = Identity::generate().unwrap();
    let control = Control::new(&identity, true, silence, None).unwrap();
    let target = Target {
        name: "silent".into(),
        addresses: vec![address],
        key: identity.public_key(),
        secret: None,
        into: Vec::new(),
    };
    let mut source = Slow {
        permitted: channel().1,
        asked: 0,
        bytes: vec![0; 1 << 20],
    };
    let (outcomes, pings) = std::thread::scope(|scope| {
        let receiver = scope.spawn(move || send_no_feedback(io, control, 5));
        let own = Identity::generate().unwrap();
        let options = SendOptions {
            silence,
            ..SendOptions::default()
        };
        let outcomes = send(&mut source, &own, vec![target], options, None, &mut |_| {}).unwrap();
        (outcomes, receiver.join().unwrap())
    });
    assert!(
        pings >= 5,
        "{pings} probes of the control channel within {BOUND:?}"
    );
    assert!(
        matches!(&outcomes[..], [Outcome::Resumable { reason }] if reason == "enough"),
        "{outcomes:?}"
    );
}

#[test]
fn a_closed_port_is_refused_long_before_the_wait_for_an_answer_ends() {
    let closed = UdpIo::bind("127.0.0.1:0".parse().unwrap())
        .unwrap()
        .local_address()
        .unwrap();
    let identity = Identity::generate().unwrap();
    let target = Target {
        name: "absent".into(),
        addresses: vec![closed],
        key: identity.public_key(),
        secret: None,
        into: Vec::new(),
    };
    let refused = |reason: &str| reason.contains(&format!("nothing listens at UDP port {closed}"));
    let mut source = Slow {
        permitted: channel().1,
        asked: 0,
        bytes: vec![0; 1 << 20],
    };
    let (own, options) = (Identity::generate().unwrap(), SendOptions::default());
    let outcomes = send(
        &mut source,
        &own,
        vec![target.clone()],
        options,
        None,
        &mut |_| {},
    )
    .unwrap();
    assert!(
        matches!(&outcomes[..], [Outcome::Resumable { reason }] if refused(reason)),
        "{outcomes:?}"
    );
    let error = crate::request::list(&own, &target, b"").unwrap_err().to_string();
    assert!(refused(&error), "{error}");
}
