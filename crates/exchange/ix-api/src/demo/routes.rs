//! The BGP sessions of the demonstration with their routes, ROAs, and the registry: Aoba Networks announces its prefix to the
//! route server and a part of it to the exchange alone, and 청담 호스팅 a prefix of somebody else.

use std::net::{IpAddr, Ipv4Addr};

use millrace_bgp::rtr::Vrp;
use millrace_bgp::{FamilySet, Limits, MessageType, PeerSettings, SessionSettings, write_message};
use millrace_ix_filter::{FilterController, PeerInfo, RouteObjects, SessionKind, Settings, Shared, VrpState};
use millrace_ix_model::{AccountId, Exchange, Prefix, Timestamp};
use millrace_types::Time;

/// The AS numbers of the engine and of the route server.
const ENGINE_ASN: u32 = 64_998;
const ROUTE_SERVER_ASN: u32 = 64_999;
const ROUTE_SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 254));
const AOBA: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 10));
/// The AS number of Aoba Networks.
const AOBA_ASN: u32 = 64_500;

fn bgp(text: &str) -> Option<millrace_bgp::Prefix> {
    let prefix: Prefix = text.parse().ok()?;
    millrace_bgp::Prefix::new(prefix.address(), prefix.len())
}

/// Returns the account with an AS number.
fn account(exchange: &Exchange, asn: u32) -> Option<AccountId> {
    let mut accounts = exchange.accounts.iter();
    accounts
        .find(|(_, account)| account.asns.contains(&asn))
        .map(|(id, _)| *id)
}

/// Returns the evidence of the exchange: sessions that are established, and their routes.
pub(super) fn filters(exchange: &Exchange, now: Timestamp) -> Shared {
    let settings = Settings {
        extensions: true,
        ..Settings::default()
    };
    let mut controller = FilterController::new(settings, true, Time::ZERO, now);
    let roas = [
        ("203.0.113.0/24", 24, AOBA_ASN),
        ("2001:db8:100::/40", 40, AOBA_ASN),
        ("198.18.0.0/15", 15, 64_610),
    ];
    let payloads = roas.iter().filter_map(|(prefix, max_len, asn)| {
        Some(Vrp {
            prefix: bgp(prefix)?,
            max_len: *max_len,
            asn: *asn,
        })
    });
    controller.set_vrps(VrpState::Fresh(payloads.collect()));
    for (id, account) in &exchange.accounts {
        let origins = account
            .asns
            .contains(&AOBA_ASN)
            .then(|| "203.0.113.0/24".parse().ok());
        let origins = origins.flatten().map(|prefix| (prefix, [AOBA_ASN].into()));
        let objects = RouteObjects {
            asns: account.asns.clone(),
            origins: origins.into_iter().collect(),
            expires: now.after(std::time::Duration::from_secs(365 * 86_400)),
        };
        controller.set_route_objects(*id, objects);
    }
    let mut peers = vec![(ROUTE_SERVER, ROUTE_SERVER_ASN, SessionKind::RouteServer, None)];
    let aoba = account(exchange, AOBA_ASN);
    peers.extend(aoba.map(|aoba| (AOBA, AOBA_ASN, SessionKind::Member, Some(aoba))));
    for (address, asn, kind, account) in peers {
        let info = PeerInfo { kind, account, asn };
        establish(&mut controller, address, info);
    }
    announce(&mut controller, ROUTE_SERVER, "203.0.113.0/24", AOBA_ASN, 10);
    announce(&mut controller, ROUTE_SERVER, "198.18.0.0/15", 64_502, 12);
    if aoba.is_some() {
        announce(&mut controller, AOBA, "203.0.113.128/25", AOBA_ASN, 10);
    }
    Shared::new(controller)
}

/// Adds a peer whose session is established.
fn establish(controller: &mut FilterController, address: IpAddr, info: PeerInfo) {
    let asn = info.asn;
    let settings = PeerSettings {
        session: SessionSettings {
            local_as: ENGINE_ASN,
            router_id: Ipv4Addr::new(198, 51, 100, 253),
            peer_as: asn,
            hold_secs: 0,
            families: FamilySet::ALL,
            add_path: false,
            enforce_first_as: info.kind == SessionKind::Member,
            restart_secs: 120,
        },
        limits: Limits::default(),
    };
    controller.put_peer(address, info, settings, Time::ZERO);
    let families = [(1, 1), (2, 1), (1, 133), (2, 133)].map(|(afi, safi)| [1, 4, 0, afi, 0, safi]);
    let capabilities = [&families.concat()[..], &[65, 4], &asn.to_be_bytes()].concat();
    // RFC 4271, section 4.2, with the placeholder for AS numbers of four bytes (RFC 6793) and no hold time.
    let head: &[u8] = &[4, 0x5b, 0xa0, 0, 0, 192, 0, 2, 9];
    let len = capabilities.len() as u8;
    let open = [head, &[len + 2, 2, len], &capabilities].concat();
    if let Some(peer) = controller.peer(address) {
        // The peer is new, so it accepts the connection.
        let _accepted = peer.accept(Time::ZERO);
    }
    send(controller, address, MessageType::Open, &open);
    send(controller, address, MessageType::Keepalive, &[]);
}

/// Sends an UPDATE (RFC 4271, section 4.3) with one IPv4 route.
fn announce(controller: &mut FilterController, peer: IpAddr, prefix: &str, origin: u32, next_hop: u8) {
    let mut routes = Vec::new();
    if let Some(prefix) = bgp(prefix) {
        prefix.write(&mut routes);
    }
    let path = [&[0x40, 2, 6, 2, 1][..], &origin.to_be_bytes()].concat();
    let attributes = [&[0x40, 1, 1, 0][..], &path, &[0x40, 3, 4, 198, 51, 100, next_hop]].concat();
    let len = (attributes.len() as u16).to_be_bytes();
    let body = [&[0, 0][..], &len, &attributes, &routes].concat();
    send(controller, peer, MessageType::Update, &body);
}

fn send(controller: &mut FilterController, address: IpAddr, kind: MessageType, body: &[u8]) {
    let mut bytes = Vec::new();
    write_message(kind, body, &mut bytes);
    if let Some(peer) = controller.peer(address) {
        peer.receive(&bytes, Time::ZERO);
    }
    controller.collect(address);
}
