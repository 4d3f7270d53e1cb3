//! Row T13 of docs/gates.md: an unknown peer gets at most three bytes for each byte that it sent, and leaves
//! no state.

use super::*;
use crate::files::Requests;
use crate::message::{GREETING_MAX, Offer, VERSION};

const SILENCE: Duration = Duration::from_secs(20);

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// A server, a client that dials it, and the first packet of the client.
struct Bed {
    now: Instant,
    server: Control,
    key: PublicKey,
}

impl Bed {
    fn new() -> Bed {
        let identity = Identity::generate().unwrap();
        Bed {
            now: Instant::now(),
            server: Control::new(&identity, true, SILENCE, None).unwrap(),
            key: identity.public_key(),
        }
    }

    fn dial(&self) -> (Control, Vec<u8>) {
        let unknown = Identity::generate().unwrap();
        let mut client = Control::new(&unknown, false, SILENCE, None).unwrap();
        client
            .connect(self.now, &unknown, address(7_800), self.key)
            .unwrap();
        let (_, first) = client.poll_transmit(self.now).unwrap();
        (client, first)
    }

    /// Passes a datagram to the server. Returns the server's answers to the address from which it came.
    fn answers(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<Vec<u8>> {
        self.server.handle_datagram(self.now, from, datagram);
        let mut answers = Vec::new();
        while let Some((to, answer)) = self.server.poll_transmit(self.now) {
            assert_eq!(to, from);
            answers.push(answer);
        }
        let bytes: usize = answers.iter().map(Vec::len).sum();
        assert!(
            bytes <= 3 * datagram.len(),
            "{bytes} bytes for {}",
            datagram.len()
        );
        answers
    }
}

/// Connects a client, lets it send messages before it is admitted, and returns the events of the server.
fn events_of(messages: &[Message]) -> Vec<LinkEvent> {
    let mut bed = Bed::new();
    let (mut client, first) = bed.dial();
    let link = *client.links.keys().next().unwrap();
    let (mut to_server, mut events, mut sent) = (vec![first], Vec::new(), false);
    while !to_server.is_empty() {
        let mut to_client = Vec::new();
        for datagram in to_server.drain(..) {
            bed.server.handle_datagram(bed.now, address(1), &datagram);
            while let Some((_, answer)) = bed.server.poll_transmit(bed.now) {
                to_client.push(answer);
            }
        }
        while let Some((_, event)) = bed.server.poll_event() {
            events.push(event);
        }
        for datagram in to_client {
            client.handle_datagram(bed.now, address(7_800), &datagram);
        }
        if !sent && matches!(client.poll_event(), Some((_, LinkEvent::Connected))) {
            sent = true;
            for message in messages {
                client.send(link, message);
            }
        }
        while let Some((_, datagram)) = client.poll_transmit(bed.now) {
            to_server.push(datagram);
        }
    }
    events
}

#[test]
fn a_peer_that_is_not_admitted_may_send_its_greeting_and_no_more() {
    let path = Message::Into(vec![b'a'; 4_095]);
    let greeting = [
        Message::Hello {
            version: VERSION,
            secret: vec![1; 16],
        },
        path.clone(),
        Message::Offer(Offer {
            payload: 1_424,
            chacha: false,
            secret: [3; 32],
            requests: Requests::default(),
        }),
    ];
    let events = events_of(&greeting);
    let messages: Vec<&Message> = events
        .iter()
        .filter_map(|event| match event {
            LinkEvent::Message(message) => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(messages, greeting.iter().collect::<Vec<_>>(), "{events:?}");
    let events = events_of(&vec![path; 100]);
    let closed = events.iter().filter(|event| {
        matches!(event, LinkEvent::Closed { reason, end: LinkEnd::Closed } if reason.contains("before it was admitted"))
    });
    assert_eq!(closed.count(), 1);
    assert!(
        events.len() <= 2 + GREETING_MAX / 4_095,
        "{} events",
        events.len()
    );
}

#[test]
fn any_number_of_unknown_peers_that_dial_leave_no_state_until_their_address_is_validated() {
    let mut bed = Bed::new();
    let mut last = None;
    // The number of peers that dial is above the maximum number of links.
    for port in 1..=2 * LIMITS.pending as u16 {
        let (client, first) = bed.dial();
        let retry = bed.answers(address(port), &first);
        assert_eq!(
            (retry.len(), bed.server.links.len()),
            (1, 0),
            "a retry, and no link"
        );
        last = Some((client, port, retry.concat()));
    }
    let (mut client, port, retry) = last.unwrap();
    client.handle_datagram(bed.now, address(7_800), &retry);
    let (_, second) = client.poll_transmit(bed.now).unwrap();
    // A token is valid only at the address to which it was sent.
    bed.answers(address(9), &second);
    assert_eq!(bed.server.links.len(), 0);
    assert!(!bed.answers(address(port), &second).is_empty());
    assert_eq!(bed.server.links.len(), 1, "the address is validated");
}

#[test]
fn a_peer_that_does_not_complete_its_handshake_in_time_is_closed() {
    let mut bed = Bed::new();
    let (mut client, first) = bed.dial();
    let retry = bed.answers(address(1), &first).concat();
    client.handle_datagram(bed.now, address(7_800), &retry);
    let (_, second) = client.poll_transmit(bed.now).unwrap();
    bed.answers(address(1), &second);
    let closing = |server: &Control| server.links.values().filter(|link| link.closing).count();
    let end = bed.now + HANDSHAKE;
    bed.server.end_handshakes(end - Duration::from_nanos(1));
    assert_eq!((bed.server.links.len(), closing(&bed.server)), (1, 0));
    bed.server.end_handshakes(end);
    assert_eq!(closing(&bed.server), 1);
    while let Some(at) = bed.server.next_timeout() {
        bed.server.on_timeout(at);
    }
    assert_eq!(bed.server.links.len(), 0);
}

#[test]
fn a_link_that_is_closed_says_so_three_times_and_is_then_finished() {
    let mut bed = Bed::new();
    let (mut client, first) = bed.dial();
    let link = *client.links.keys().next().unwrap();
    let retry = bed.answers(address(1), &first).concat();
    client.handle_datagram(bed.now, address(7_800), &retry);
    let (_, second) = client.poll_transmit(bed.now).unwrap();
    assert!(!client.is_finished());
    // All datagrams to the server but the last are lost.
    client.close(bed.now, link, CODE_DONE, "done");
    let mut closes = Vec::new();
    while !client.is_finished() {
        while let Some((_, datagram)) = client.poll_transmit(bed.now) {
            closes.push(datagram);
        }
        if let Some(at) = client.next_timeout() {
            bed.now = bed.now.max(at);
            client.on_timeout(bed.now);
        }
        assert!(closes.len() <= 3);
    }
    assert_eq!(closes.len(), 3);
    assert!(closes.iter().all(|datagram| *datagram == closes[0]));
    bed.answers(address(1), &second);
    assert_eq!(bed.server.links.len(), 1);
    bed.answers(address(1), &closes[2]);
    assert!(bed.server.is_finished());
}

/// Returns the address of a host.
fn host(number: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, number], 5_000))
}

/// Dials from an address with a key of its own, up to the first packet of the validated handshake, a millisecond after
/// the last one. Returns the client, and the server's answers by address.
fn dial_from(bed: &mut Bed, from: SocketAddr) -> (Control, HashMap<SocketAddr, Vec<Vec<u8>>>) {
    bed.now += Duration::from_millis(1);
    let (mut client, first) = bed.dial();
    bed.server.handle_datagram(bed.now, from, &first);
    let (_, retry) = bed.server.poll_transmit(bed.now).unwrap();
    client.handle_datagram(bed.now, address(7_800), &retry);
    let (_, second) = client.poll_transmit(bed.now).unwrap();
    bed.server.handle_datagram(bed.now, from, &second);
    let mut answers: HashMap<SocketAddr, Vec<Vec<u8>>> = HashMap::new();
    while let Some((to, answer)) = bed.server.poll_transmit(bed.now) {
        answers.entry(to).or_default().push(answer);
    }
    (client, answers)
}

fn link_from(server: &Control, from: SocketAddr) -> Option<LinkId> {
    let mut links = server.links.keys().copied();
    links.find(|id| server.remote(*id) == Some(from))
}

#[test]
fn a_flood_of_one_host_takes_the_links_of_that_host_and_never_one_of_another() {
    let mut bed = Bed::new();
    let honest = host(1);
    dial_from(&mut bed, honest);
    let flood = |number: usize| SocketAddr::from(([198, 51, 100, 2], 5_000 + number as u16));
    for number in 0..2 * LIMITS.pending {
        dial_from(&mut bed, flood(number));
    }
    assert!(link_from(&bed.server, honest).is_some());
    assert_eq!(bed.server.links.len(), LIMITS.pending_of_source + 1);
    assert!(
        link_from(&bed.server, flood(2 * LIMITS.pending - 1)).is_some(),
        "a new peer always has a link, whatever the age of the others"
    );
}

#[test]
fn with_as_many_addresses_as_handshakes_the_oldest_pending_link_makes_room_and_an_accepted_one_stays() {
    let mut bed = Bed::new();
    let hosts: Vec<SocketAddr> = (0..=LIMITS.pending as u16)
        .map(|number| SocketAddr::from(([198, 51, (number >> 8) as u8, number as u8], 5_000)))
        .collect();
    let mut clients = Vec::new();
    for from in &hosts[..LIMITS.pending] {
        clients.push(dial_from(&mut bed, *from).0);
    }
    let first = link_from(&bed.server, hosts[0]).unwrap();
    assert!(
        bed.server.authorize(first),
        "there is room for a peer that is accepted"
    );
    let second = link_from(&bed.server, hosts[1]).unwrap();
    // The accepted link makes room for one; the next one closes the oldest.
    dial_from(&mut bed, host(1));
    let (_, answers) = dial_from(&mut bed, hosts[LIMITS.pending]);
    assert_eq!(bed.server.links.len(), LIMITS.pending + 1);
    assert_eq!(link_from(&bed.server, hosts[0]), Some(first));
    let closed = bed.server.poll_event();
    assert!(
        matches!(closed, Some((id, LinkEvent::Closed { end: LinkEnd::Closed, .. })) if id == second),
        "{closed:?}"
    );
    // The peer that left learns that the receiver is busy.
    for answer in &answers[&hosts[1]] {
        clients[1].handle_datagram(bed.now, address(7_800), answer);
    }
    let closed = clients[1].poll_event();
    assert!(
        matches!(
            closed,
            Some((
                _,
                LinkEvent::Closed {
                    end: LinkEnd::Busy,
                    ..
                }
            ))
        ),
        "{closed:?}"
    );
}

#[test]
fn accepted_peers_have_places_of_their_own_and_more_of_them_are_not_accepted() {
    let mut bed = Bed::new();
    let mut authorized = 0;
    for number in 0..=LIMITS.established {
        dial_from(&mut bed, host(number as u8));
        let link = link_from(&bed.server, host(number as u8)).unwrap();
        authorized += usize::from(bed.server.authorize(link));
    }
    assert_eq!(authorized, LIMITS.established);
    assert_eq!(bed.server.links.len(), LIMITS.established + 1);
}

#[test]
fn datagrams_that_begin_no_connection_leave_no_state_whatever_they_are() {
    let mut bed = Bed::new();
    let (_, first) = bed.dial();
    let mut number = 0;
    let mut try_one = |datagram: &[u8]| {
        number += 1;
        bed.answers(address(number), datagram);
        assert_eq!(bed.server.links.len(), 0, "{datagram:02x?}");
    };
    // The first datagram: cut off at several sizes, with any version, and with any byte changed.
    for size in [1, 7, 20, 100, 1_199] {
        try_one(&first[..size.min(first.len())]);
    }
    for at in (0..first.len()).step_by(5) {
        let mut datagram = first.clone();
        datagram[at] ^= 0x21;
        try_one(&datagram);
    }
    for first in 0..=255 {
        try_one(&[first; 1_200]);
    }
}
