//! BGP messages, sessions over time, and the RPKI to router protocol.

use millrace_bgp::rtr::Client;
use millrace_bgp::{
    Afi, Family, FamilySet, FlowRule, Limits, MessageType, Negotiated, Nlri, Notification, Open, Peer,
    PeerSettings, RouteCounts, SessionSettings, Update, write_message,
};
use millrace_types::{Duration, Time};

/// Decodes the bytes after the first as the body of each message; the first byte gives the properties of the session.
///
/// Properties: what is decoded and encoded is decoded to the same value; a rule is what its components are.
pub(crate) fn messages(bytes: &[u8]) {
    let Some((flags, body)) = bytes.split_first() else {
        return;
    };
    if let Ok(open) = Open::decode(body) {
        // Capabilities that are not known are not encoded, and a number above 16 bits needs its capability.
        if open.capabilities.four_octet_asn.is_some() {
            assert_eq!(Open::decode(&open.body()), Ok(open));
        }
    }
    if let Some(notification) = Notification::decode(body) {
        assert_eq!(
            Notification::decode(&notification.body()),
            Some(notification.clone())
        );
        let _text = notification.to_string();
    }
    for afi in [Afi::Ipv4, Afi::Ipv6] {
        if let Ok(rule) = FlowRule::decode(afi, body) {
            rule_is_its_components(&rule);
        }
    }
    let session = Negotiated {
        families: FamilySet::ALL,
        add_path: if flags & 1 == 0 {
            FamilySet::default()
        } else {
            FamilySet::ALL
        },
        has_four_octets: flags & 2 == 0,
        has_extended_messages: true,
        is_internal: flags & 4 != 0,
        first_as: (flags & 8 != 0).then_some(64_501),
    };
    let Ok(update) = Update::decode(body, &session) else {
        return;
    };
    for reach in &update.announced {
        for route in &reach.routes {
            if let Nlri::Flowspec { rule, .. } = route {
                rule_is_its_components(rule);
            }
        }
    }
    let withdrawn: Vec<Nlri> = update
        .withdrawn
        .iter()
        .filter(|(family, _)| *family == Family::Ipv4Unicast)
        .map(|(_, route)| route.clone())
        .collect();
    let routes = Update::encode_routes(&withdrawn, session.add_path.contains(Family::Ipv4Unicast));
    if let Ok(len) = u16::try_from(routes.len()) {
        let mut again = len.to_be_bytes().to_vec();
        again.extend(routes);
        again.extend([0, 0]);
        let again: Vec<Nlri> = Update::decode(&again, &session)
            .unwrap()
            .withdrawn
            .into_iter()
            .map(|(_, route)| route)
            .collect();
        assert_eq!(again, withdrawn);
    }
}

fn rule_is_its_components(rule: &FlowRule) {
    let again = FlowRule::new(rule.afi(), &rule.components()).unwrap();
    // Operators have unused bits, and prefixes bits past their length: they are zero in the second rule.
    assert_eq!(again.components(), rule.components());
    let _texts = (rule.to_string(), rule.order_key());
}

/// Feeds a peer: a chunk begins with a byte that advances the time or changes the connection, and one that is its length.
///
/// Properties: the routes stay within their limits, the deadline is not in the past after a poll, an end without routes is
/// an end of all memory.
pub(crate) fn peer(bytes: &[u8]) {
    let mut now = Time::ZERO;
    let limits = Limits {
        unicast: 50,
        flowspec: 20,
        bytes: 1 << 16,
    };
    let settings = PeerSettings {
        session: SessionSettings {
            local_as: 64_500,
            router_id: [192, 0, 2, 1].into(),
            peer_as: 64_501,
            hold_secs: 9,
            families: FamilySet::ALL,
            add_path: false,
            enforce_first_as: true,
            restart_secs: 20,
        },
        limits,
    };
    let mut peer = Peer::new(settings, now);
    let _first = peer.accept(now);
    let mut rest = bytes;
    while let [action, len, more @ ..] = rest {
        let (chunk, after) = more.split_at(usize::from(*len).min(more.len()));
        rest = after;
        match action {
            0 => {
                let _second = peer.accept(now);
            }
            1 => peer.connection_lost(now),
            2 => peer.refresh(),
            // A whole message, so that the fuzzer need not find marker and length.
            3..=7 => {
                let kind = match action {
                    3 => MessageType::Open,
                    4 => MessageType::Update,
                    5 => MessageType::Notification,
                    6 => MessageType::Keepalive,
                    _ => MessageType::RouteRefresh,
                };
                let mut message = Vec::new();
                write_message(kind, chunk, &mut message);
                peer.receive(&message, now);
            }
            8..=127 => peer.receive(chunk, now),
            _ => now = now + Duration::from_millis(u64::from(*action) * 50),
        }
        peer.poll(now);
        let _sent = peer.take_output();
        let _changes = peer.take_changes();
        assert!(peer.deadline().is_none_or(|deadline| deadline > now));
        let counts = peer.rib().counts();
        assert!(counts.unicast <= limits.unicast && counts.flowspec <= limits.flowspec);
        assert!(peer.rib().bytes() <= limits.bytes);
        if counts == RouteCounts::default() {
            assert_eq!(peer.rib().bytes(), 0);
        }
    }
}

/// Feeds a client of a cache: each chunk of 40 bytes is received after a byte that advances the time.
pub(crate) fn rtr(bytes: &[u8]) {
    let mut now = Time::ZERO;
    let mut client = Client::new(100);
    client.connected(now);
    for chunk in bytes.chunks(40) {
        now = now + Duration::from_secs(u64::from(chunk[0]));
        if client.poll(now).is_err() || client.receive(&chunk[1..], now).is_err() {
            client.connection_lost();
            client.connected(now);
        }
        assert!(client.vrps(now).is_none_or(|vrps| vrps.len() <= 100));
        let _sent = client.take_output();
    }
}
