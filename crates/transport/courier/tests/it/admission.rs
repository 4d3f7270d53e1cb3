//! Admission of senders, and the replies that unknown peers get.

use crate::memory::{MemorySource, MemoryStore, content, next};
use crate::testbed::{ReceiverSpec, ReceiverThread, send_all, send_with};
use millrace_courier::identity::Identity;
use millrace_courier::{Event, KeptTicket, Outcome, SendOptions, Target};
use std::net::UdpSocket;
use std::time::Duration;

fn refused(outcomes: &[Outcome], part: &str) {
    match outcomes {
        [
            Outcome::Refused {
                code: "not_admitted",
                reason,
            },
        ] if reason.contains(part) => {}
        other => panic!("expected a refusal with `{part}`, not {other:?}"),
    }
}

#[test]
fn a_sender_without_the_right_ticket_is_refused_by_name() {
    let store = MemoryStore::default();
    let known = Identity::generate().unwrap();
    let spec = ReceiverSpec {
        allow: vec![known.public_key()],
        ..ReceiverSpec::default()
    };
    let receiver = ReceiverThread::start(store.clone(), spec);
    let mut source = MemorySource::new(content(1 << 20, 1));
    let unknown = Identity::generate().unwrap();
    let mut target = receiver.target("a");
    target.secret = Some([1; 16]);
    let send = |source: &mut MemorySource, identity, target| {
        send_all(source, identity, vec![target], SendOptions::default()).0
    };
    refused(
        &send(&mut source, &unknown, target.clone()),
        "not of this receiver",
    );
    target.secret = None;
    refused(
        &send(&mut source, &unknown, target.clone()),
        "not on the receiver's list",
    );
    assert!(store.0.lock().bytes.is_empty(), "unknown peers write nothing");
    assert_eq!(send(&mut source, &known, target), [Outcome::Delivered]);
    assert_eq!(
        receiver.join(),
        [Outcome::Delivered],
        "refused peers do not end --once"
    );
}

#[test]
fn a_ticket_belongs_to_the_first_sender_and_ends() {
    let store = MemoryStore::default();
    let spec = ReceiverSpec {
        once: false,
        ..ReceiverSpec::default()
    };
    let receiver = ReceiverThread::start(store, spec);
    let mut source = MemorySource::new(content(1 << 20, 1));
    let (first, second) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let mut send = |identity, target| send_all(&mut source, identity, vec![target], SendOptions::default()).0;
    assert_eq!(send(&first, receiver.target("a")), [Outcome::Delivered]);
    refused(&send(&second, receiver.target("a")), "belongs to another sender");
    receiver.stop();
    let spec = ReceiverSpec {
        once: false,
        expiry: Duration::ZERO,
        ..ReceiverSpec::default()
    };
    let receiver = ReceiverThread::start(MemoryStore::default(), spec);
    refused(&send(&first, receiver.target("a")), "expired");
    receiver.stop();
}

#[test]
fn a_receiver_that_is_started_again_goes_on_with_the_owner_of_its_ticket_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let spec = || ReceiverSpec {
        identity: Some(Identity::load_or_create(&dir.path().join("identity")).unwrap()),
        kept_ticket: Some(KeptTicket::of_directory(dir.path(), dir.path()).unwrap()),
        ..ReceiverSpec::default()
    };
    let store = MemoryStore::default();
    let mut source = MemorySource::new(content(4 << 20, 1));
    let (owner, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let first = ReceiverThread::start(store.clone(), spec());
    let target = first.target("a");
    let mut first = Some(first);
    let options = SendOptions::default();
    let (outcomes, _) = send_with(&mut source, &owner, vec![target.clone()], options, |event| {
        if matches!(event, Event::Accepted { .. }) {
            // The receiver ends before the sender has sent any bytes.
            first.take().map(ReceiverThread::stop);
        }
    });
    assert!(
        matches!(&outcomes[..], [Outcome::Resumable { .. }]),
        "{outcomes:?}"
    );
    expire_kept_ticket(dir.path());
    let second = ReceiverThread::start(store.clone(), spec());
    let again = Target {
        addresses: vec![second.address()],
        ..target
    };
    assert_ne!(again.secret, Some(second.ticket.secret), "its own ticket is new");
    let mut send = |identity, target: &Target| {
        send_all(
            &mut source,
            identity,
            vec![target.clone()],
            SendOptions::default(),
        )
        .0
    };
    refused(&send(&other, &again), "belongs to another sender");
    assert_eq!(send(&owner, &again), [Outcome::Delivered]);
    assert_eq!(second.join(), [Outcome::Delivered]);
    let third = ReceiverThread::start(MemoryStore::default(), spec());
    let again = Target {
        addresses: vec![third.address()],
        ..again
    };
    refused(&send(&owner, &again), "not of this receiver");
    third.stop();
}

/// Makes the ticket that a receiver kept one that has expired long ago: a transfer that has begun continues all the same.
fn expire_kept_ticket(configuration: &std::path::Path) {
    let entries = std::fs::read_dir(configuration.join("tickets")).unwrap();
    for entry in entries {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let (ticket, owner) = text.split_once('\n').unwrap();
        let mut ticket: millrace_courier::ticket::Ticket = ticket.parse().unwrap();
        ticket.expires = std::time::UNIX_EPOCH + Duration::from_secs(1);
        std::fs::write(&path, format!("{ticket}\n{owner}")).unwrap();
    }
}

#[test]
fn a_receiver_with_another_key_gets_nothing() {
    let receiver = ReceiverThread::start(
        MemoryStore::default(),
        ReceiverSpec {
            once: false,
            ..ReceiverSpec::default()
        },
    );
    let mut target = receiver.target("a");
    target.key = Identity::generate().unwrap().public_key();
    let mut source = MemorySource::new(content(1 << 20, 1));
    let (outcomes, _) = send_all(
        &mut source,
        &Identity::generate().unwrap(),
        vec![target],
        SendOptions::default(),
    );
    let is_named = matches!(&outcomes[..], [Outcome::Refused { code: "wrong_key", reason }] if reason.contains("presents the key"));
    assert!(is_named, "{outcomes:?}");
    assert_eq!(source.reads, 0);
    receiver.stop();
}

/// Sends random bytes, data packets of no connection, and the start of a connection that cannot be decrypted.
/// The receiver replies to a datagram with at most three times its bytes. `control::tests` has handshakes of
/// unknown peers.
#[test]
fn unknown_peers_get_at_most_three_bytes_for_one() {
    let receiver = ReceiverThread::start(MemoryStore::default(), ReceiverSpec::default());
    let mut state = 9;
    let mut datagrams: Vec<Vec<u8>> = (0..=255_u8)
        .map(|first| {
            let size = 1 + (next(&mut state) % 1_400) as usize;
            let mut datagram: Vec<u8> = (0..size).map(|_| next(&mut state) as u8).collect();
            datagram[0] = first;
            datagram
        })
        .collect();
    // A long header of QUIC version 1, type Initial, with connection IDs of 8 bytes, no token, and a body
    // that cannot be decrypted.
    let mut initial = vec![
        0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0x44, 0x9e,
    ];
    initial.resize(1_200, 0x5a);
    datagrams.push(initial);
    // The port of each socket tells which datagram an answer is to.
    let unknown: Vec<(UdpSocket, usize)> = datagrams
        .iter()
        .map(|datagram| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let sent = socket.send_to(datagram, receiver.address()).unwrap();
            (socket, sent)
        })
        .collect();
    // The receiver still serves known senders.
    let mut source = MemorySource::new(content(1 << 20, 1));
    let identity = Identity::generate().unwrap();
    let (outcomes, _) = send_all(
        &mut source,
        &identity,
        vec![receiver.target("a")],
        SendOptions::default(),
    );
    assert_eq!(outcomes, [Outcome::Delivered]);
    receiver.join();
    // The answers to unknown peers were sent before those to the sender.
    let mut buffer = [0; 2_000];
    for (socket, sent) in unknown {
        socket.set_nonblocking(true).unwrap();
        let mut received = 0;
        while let Ok(size) = socket.recv(&mut buffer) {
            received += size;
        }
        assert!(received <= 3 * sent, "{received} bytes for {sent}");
    }
}
