//! Sessions and routes over time.

use millrace_bgp::{Change, Family, Peer, RouteKey};
use millrace_types::{Duration, Time};

use crate::speaker::{ATTRIBUTES, connect, counts, established, message, messages, open, settings, update};

fn secs(secs: u64) -> Time {
    Time::from_secs(secs)
}

#[test]
fn a_session_is_established_by_open_and_keepalive_and_announces_nothing_but_end_of_rib() {
    let mut peer = Peer::new(settings(), secs(0));
    peer.accept(secs(0)).unwrap();
    let sent = messages(&peer.take_output());
    assert_eq!((sent.len(), sent[0].0), (1, 1));
    assert_eq!(sent[0].1[..9], [4, 0xfb, 0xf4, 0, 90, 192, 0, 2, 1]);
    // The OPEN arrives byte by byte.
    for byte in open(&[]) {
        peer.receive(&[byte], secs(1));
    }
    assert_eq!(messages(&peer.take_output()), [(4, vec![])]);
    assert_eq!(peer.state().session, "open_confirm");
    peer.receive(&message(4, &[]), secs(1));
    let sent = messages(&peer.take_output());
    let end = |afi, safi| (2, vec![0, 0, 0, 6, 0x80, 15, 3, 0, afi, safi]);
    assert_eq!(sent, [(2, vec![0; 4]), end(2, 1), end(1, 133), end(2, 133)]);
}

#[test]
fn keepalives_are_sent_and_their_absence_ends_the_session_with_its_routes() {
    let mut peer = established(secs(0), &[]);
    peer.receive(&update(&[], ATTRIBUTES, &[24, 203, 0, 113]), secs(0));
    assert_eq!(peer.take_changes().len(), 1);
    assert_eq!(peer.deadline(), Some(secs(30)));
    for time in [30, 60] {
        peer.poll(secs(time));
        assert_eq!(messages(&peer.take_output()), [(4, vec![])]);
    }
    peer.receive(&message(4, &[]), secs(80));
    peer.poll(secs(169));
    assert!(peer.is_open());
    peer.poll(secs(170));
    let sent = messages(&peer.take_output());
    assert_eq!(sent.last(), Some(&(3, vec![4, 0])));
    assert!(!peer.is_open());
    assert!(matches!(
        peer.take_changes()[..],
        [Change::Withdrawn(RouteKey::Unicast { .. })]
    ));
    assert_eq!(
        peer.state().last_error.as_deref(),
        Some("Hold Timer Expired (4/0)")
    );
}

#[test]
fn messages_in_the_wrong_state_end_the_session_by_their_subcode() {
    let notification = |sent: &[Vec<u8>]| {
        let mut peer = Peer::new(settings(), secs(0));
        peer.accept(secs(0)).unwrap();
        for message in sent {
            peer.receive(message, secs(0));
        }
        messages(&peer.take_output()).pop().unwrap()
    };
    assert_eq!(notification(&[message(4, &[])]), (3, vec![5, 1, 4]));
    assert_eq!(notification(&[open(&[]), open(&[])]), (3, vec![5, 2, 1]));
    assert_eq!(
        notification(&[open(&[]), message(4, &[]), open(&[])]),
        (3, vec![5, 3, 1])
    );
    let mut foreign = open(&[]);
    foreign[21] = 0xf6;
    let at = foreign
        .windows(4)
        .position(|four| four == [0, 0, 0xfb, 0xf5])
        .unwrap();
    foreign[at + 3] = 0xf6;
    assert_eq!(notification(&[foreign]), (3, vec![2, 2]));
}

#[test]
fn a_peer_that_offers_only_unknown_families_is_refused_and_one_that_offers_none_has_ipv4() {
    let session = |capabilities: &[u8]| {
        let mut body = vec![4, 0xfb, 0xf5, 0, 90, 192, 0, 2, 2];
        body.extend([capabilities.len() as u8 + 2, 2, capabilities.len() as u8]);
        body.extend(capabilities);
        let mut peer = Peer::new(settings(), secs(0));
        peer.accept(secs(0)).unwrap();
        peer.receive(&message(1, &body), secs(0));
        peer.receive(&message(4, &[]), secs(0));
        (peer.is_open(), messages(&peer.take_output()).pop().unwrap())
    };
    // The labelled VPN routes of RFC 4364.
    let (is_open, last) = session(&[1, 4, 0, 1, 0, 128]);
    assert_eq!((is_open, last.0, &last.1[..2]), (false, 3, &[2, 7][..]));
    assert!(session(&[1, 4, 0, 1, 0, 128, 1, 4, 0, 1, 0, 133]).0);
    assert!(session(&[65, 4, 0, 0, 0xfb, 0xf5]).0);
}

#[test]
fn a_second_connection_is_refused_while_the_first_is_established() {
    let mut peer = established(secs(0), &[]);
    let farewell = peer.accept(secs(1)).unwrap_err();
    assert_eq!(messages(&farewell), [(3, vec![6, 7])]);
    assert_eq!(peer.state().session, "established");
    // With graceful restart, a second connection means that the peer has restarted.
    let mut peer = established(secs(0), RESTART);
    peer.receive(&update(&[], ATTRIBUTES, &[24, 203, 0, 113]), secs(0));
    peer.take_changes();
    assert_eq!(peer.accept(secs(1)), Ok(Some(vec![])));
    assert_eq!(peer.state().session, "open_sent");
    assert_eq!((peer.take_changes(), peer.rib().counts()), (vec![], counts(1, 0)));
}

#[test]
fn of_two_connections_in_open_confirm_that_of_the_greater_identifier_is_kept() {
    let mut peer = Peer::new(settings(), secs(0));
    peer.accept(secs(0)).unwrap();
    peer.receive(&open(&[]), secs(0));
    peer.take_output();
    // The peer's 192.0.2.2 is greater: its new connection replaces the first.
    let farewell = peer.accept(secs(1)).unwrap().unwrap();
    assert_eq!(messages(&farewell), [(3, vec![6, 7])]);
    let mut settings = settings();
    settings.session.router_id = "192.0.2.3".parse().unwrap();
    let mut peer = Peer::new(settings, secs(0));
    peer.accept(secs(0)).unwrap();
    peer.receive(&open(&[]), secs(0));
    assert!(peer.accept(secs(1)).is_err());
}

/// Graceful restart of 60 s with preserved state for 1/1.
const RESTART: &[u8] = &[64, 6, 0, 60, 0, 1, 1, 0x80];

#[test]
fn routes_outlive_a_restart_and_go_if_they_are_not_announced_again() {
    let mut peer = established(secs(0), RESTART);
    peer.receive(
        &update(&[], ATTRIBUTES, &[24, 203, 0, 113, 24, 203, 0, 112]),
        secs(0),
    );
    peer.take_changes();
    peer.connection_lost(secs(10));
    assert_eq!((peer.take_changes(), peer.rib().counts()), (vec![], counts(2, 0)));
    connect(&mut peer, secs(20), RESTART);
    peer.receive(&update(&[], ATTRIBUTES, &[24, 203, 0, 113]), secs(20));
    assert_eq!(peer.take_changes(), []);
    peer.receive(&update(&[], &[], &[]), secs(21));
    let changes = peer.take_changes();
    assert!(
        matches!(
            changes[..],
            [Change::Withdrawn(_), Change::EndOfRib(Family::Ipv4Unicast)]
        ),
        "{changes:?}"
    );
    assert_eq!(peer.rib().counts(), counts(1, 0));
    // The peer does not connect again.
    peer.connection_lost(secs(30));
    peer.poll(secs(89));
    assert_eq!(peer.rib().counts(), counts(1, 0));
    peer.poll(secs(90));
    assert_eq!(
        (peer.take_changes().len(), peer.rib().counts()),
        (1, counts(0, 0))
    );
}

#[test]
fn stale_routes_outlive_connections_that_end_before_they_are_established() {
    let stale = || {
        let mut peer = established(secs(0), RESTART);
        peer.receive(
            &update(&[], ATTRIBUTES, &[24, 203, 0, 113, 24, 203, 0, 112]),
            secs(0),
        );
        peer.take_changes();
        peer.connection_lost(secs(10));
        peer.accept(secs(11)).unwrap();
        peer
    };
    // The connections end in turn: replaced in OpenSent, by a KEEPALIVE in OpenSent, by a NOTIFICATION of the
    // peer, replaced in OpenConfirm.
    let mut peer = stale();
    let farewell = peer.accept(secs(12)).unwrap().unwrap();
    assert_eq!(messages(&farewell).last(), Some(&(3, vec![6, 7])));
    peer.receive(&message(4, &[]), secs(13));
    assert!(!peer.is_open());
    peer.accept(secs(14)).unwrap();
    peer.receive(&message(3, &[6, 5]), secs(14));
    peer.accept(secs(15)).unwrap();
    peer.receive(&open(RESTART), secs(15));
    peer.accept(secs(16)).unwrap();
    assert_eq!((peer.take_changes(), peer.rib().counts()), (vec![], counts(2, 0)));
    // The restart time counts from the loss of the session.
    peer.poll(secs(69));
    assert_eq!(peer.rib().counts(), counts(2, 0));
    peer.poll(secs(70));
    assert_eq!(
        (peer.take_changes().len(), peer.rib().counts()),
        (2, counts(0, 0))
    );

    let mut peer = stale();
    connect(&mut peer, secs(20), RESTART);
    peer.receive(&update(&[], ATTRIBUTES, &[24, 203, 0, 113]), secs(20));
    assert_eq!(peer.take_changes(), []);
    peer.receive(&update(&[], &[], &[]), secs(21));
    assert!(matches!(
        peer.take_changes()[..],
        [Change::Withdrawn(_), Change::EndOfRib(Family::Ipv4Unicast)]
    ));
    assert_eq!(peer.rib().counts(), counts(1, 0));
}

#[test]
fn a_notification_ends_the_routes_in_spite_of_graceful_restart() {
    let mut peer = established(secs(0), RESTART);
    peer.receive(&update(&[], ATTRIBUTES, &[24, 203, 0, 113]), secs(0));
    peer.receive(&message(3, &[6, 2, 4, b'b', b'y', b'e', b'!']), secs(1));
    assert_eq!(peer.rib().counts(), counts(0, 0));
    let error = peer.state().last_error.unwrap();
    assert_eq!(
        error,
        "the peer ended the session: Cease, Administrative Shutdown (6/2): bye!"
    );
}

#[test]
fn too_many_prefixes_end_the_session_and_the_peer_waits_a_minute() {
    let mut settings = settings();
    settings.limits.unicast = 1;
    let mut peer = Peer::new(settings, secs(0));
    connect(&mut peer, secs(0), &[]);
    peer.receive(
        &update(&[], ATTRIBUTES, &[24, 203, 0, 113, 24, 203, 0, 112]),
        secs(0),
    );
    assert_eq!(messages(&peer.take_output()), [(3, vec![6, 1])]);
    assert_eq!(peer.rib().counts(), counts(0, 0));
    assert_eq!(peer.state().last_error.as_deref(), Some("more than 1 prefixes"));
    assert_eq!(
        peer.accept(secs(59)).map_err(|bytes| messages(&bytes)),
        Err(vec![(3, vec![6, 1])])
    );
    let later = secs(0) + Duration::from_secs(60);
    assert!(peer.accept(later).is_ok());
}

#[test]
fn flow_specifications_are_routes_of_their_family() {
    let mut peer = established(secs(0), &[]);
    // MP_REACH_NLRI 1/133 without next hop: destination 203.0.113.0/24, protocol UDP; traffic-rate-bytes 0.
    let rule = [1, 24, 203, 0, 113, 3, 0x81, 17];
    let mut attributes = ATTRIBUTES[..13].to_vec();
    attributes.extend([0x80, 14, 5 + 9, 0, 1, 133, 0, 0, 8]);
    attributes.extend(rule);
    attributes.extend([0xc0, 16, 8, 0x80, 6, 0, 0, 0, 0, 0, 0]);
    peer.receive(&update(&[], &attributes, &[]), secs(0));
    assert_eq!(peer.state().problems, []);
    let [
        Change::Announced(RouteKey::Flowspec {
            rule: announced,
            path_id: 0,
        }),
    ] = &peer.take_changes()[..]
    else {
        panic!("expected one rule")
    };
    assert_eq!(announced.to_string(), "destination 203.0.113.0/24; protocol =17");
    let mut withdrawal = vec![0x80, 15, 3 + 9, 0, 1, 133, 8];
    withdrawal.extend(rule);
    peer.receive(&update(&[], &withdrawal, &[]), secs(0));
    assert_eq!(
        (peer.take_changes().len(), peer.rib().counts()),
        (1, counts(0, 0))
    );
}
