//! A BGP peer for tests. Its messages are written as bytes, without the encoder of the crate.

use millrace_bgp::{FamilySet, Limits, Peer, PeerSettings, RouteCounts, SessionSettings};
use millrace_types::Time;

pub(crate) const MARKER: [u8; 16] = [0xff; 16];

/// Returns a message with its header.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = MARKER.to_vec();
    bytes.extend((19 + body.len() as u16).to_be_bytes());
    bytes.push(kind);
    bytes.extend(body);
    bytes
}

/// Returns the OPEN of AS 64501: hold time 90 s, four families, four-octet AS numbers, and the capabilities
/// in `more`.
pub(crate) fn open(more: &[u8]) -> Vec<u8> {
    let mut capabilities = Vec::new();
    for (afi, safi) in [(1, 1), (2, 1), (1, 133), (2, 133)] {
        capabilities.extend([1, 4, 0, afi, 0, safi]);
    }
    capabilities.extend([65, 4, 0, 0, 0xfb, 0xf5]);
    capabilities.extend(more);
    let mut body = vec![4, 0xfb, 0xf5, 0, 90, 192, 0, 2, 2];
    body.push(capabilities.len() as u8 + 2);
    body.extend([2, capabilities.len() as u8]);
    body.extend(capabilities);
    message(1, &body)
}

/// Returns an UPDATE with withdrawn routes, attributes and announced routes.
pub(crate) fn update(withdrawn: &[u8], attributes: &[u8], routes: &[u8]) -> Vec<u8> {
    let mut body = (withdrawn.len() as u16).to_be_bytes().to_vec();
    body.extend(withdrawn);
    body.extend((attributes.len() as u16).to_be_bytes());
    body.extend(attributes);
    body.extend(routes);
    message(2, &body)
}

/// ORIGIN IGP, AS_PATH 64501, NEXT_HOP 192.0.2.2.
pub(crate) const ATTRIBUTES: &[u8] = &[
    0x40, 1, 1, 0, 0x40, 2, 6, 2, 1, 0, 0, 0xfb, 0xf5, 0x40, 3, 4, 192, 0, 2, 2,
];

/// Returns the settings of a receiver with AS 64500.
pub(crate) fn settings() -> PeerSettings {
    PeerSettings {
        session: SessionSettings {
            local_as: 64_500,
            router_id: "192.0.2.1".parse().unwrap(),
            peer_as: 64_501,
            hold_secs: 90,
            families: FamilySet::ALL,
            add_path: false,
            enforce_first_as: true,
            restart_secs: 120,
        },
        limits: Limits::default(),
    }
}

/// Returns a peer with an established session and an empty output.
pub(crate) fn established(now: Time, more: &[u8]) -> Peer {
    let mut peer = Peer::new(settings(), now);
    connect(&mut peer, now, more);
    peer
}

/// Establishes a session.
pub(crate) fn connect(peer: &mut Peer, now: Time, more: &[u8]) {
    peer.accept(now).unwrap();
    peer.receive(&open(more), now);
    peer.receive(&message(4, &[]), now);
    assert_eq!(peer.state().session, "established", "{:?}", peer.state());
    peer.take_output();
}

/// Returns a number of unicast routes and of flow specifications.
pub(crate) const fn counts(unicast: usize, flowspec: usize) -> RouteCounts {
    RouteCounts { unicast, flowspec }
}

/// Returns the type and the body of each message.
pub(crate) fn messages(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..16], MARKER);
        let size = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
        found.push((bytes[18], bytes[19..size].to_vec()));
        bytes = &bytes[size..];
    }
    found
}
