//! Texts of exchanges.

use crate::apply::tests::{NOW, World, end, tag};
use crate::*;

/// Returns an exchange with one of everything.
fn exchange() -> Exchange {
    let mut world = World::new();
    let (a, b) = (world.members[0].clone(), world.members[1].clone());
    let service = world.circuit();
    world
        .apply(&a, end(service, world.connections[0][0], tag(100)))
        .unwrap();
    world
        .apply(&b, end(service, world.connections[1][1], VlanRequest::Port))
        .unwrap();
    let lan = world.lan();
    let config = world
        .apply(&a, end(lan, world.connections[0][1], tag(7)))
        .unwrap()
        .first()
        .unwrap();
    let system = Actor::system();
    let address = "02:00:00:00:00:01".parse().unwrap();
    world
        .apply(
            &system,
            Operation::AddMac {
                config,
                address,
                valid_from: None,
                valid_until: None,
            },
        )
        .unwrap();
    for address in ["192.0.2.1", "2001:db8::1"] {
        let address = address.parse().unwrap();
        world
            .apply(
                &system,
                Operation::AddIp {
                    config,
                    address,
                    valid_until: None,
                },
            )
            .unwrap();
    }
    let mut matching = FilterMatch::to("192.0.2.1/32".parse().unwrap());
    matching.protocol = Some(17);
    matching.source_ports = vec![Ports {
        first: 123,
        last: 123,
    }];
    world
        .apply(
            &system,
            Operation::CreateFilter {
                account: a.account,
                matching,
                peers: [b.account.unwrap()].into(),
                action: FilterAction::Shape { rate_kbps: 1000 },
                origin: FilterOrigin::Page,
                rank: 3,
                state: FilterState::Active,
                valid_until: None,
                comment: Some("NTP".to_owned()),
                external_ref: None,
            },
        )
        .unwrap();
    world
        .apply(
            &a,
            Operation::Lock {
                target: service.into(),
            },
        )
        .unwrap();
    world.exchange
}

#[test]
fn the_text_of_an_exchange_read_for_it_changes_nothing() {
    let exchange = exchange();
    let text = text::export(&exchange).unwrap();
    assert_eq!(text::parse(&text, &exchange, NOW).unwrap(), exchange, "{text}");
}

#[test]
fn read_for_an_empty_exchange_the_text_is_the_same_but_for_identifiers() {
    let text = text::export(&exchange()).unwrap();
    let new = text::parse(&text, &Exchange::default(), NOW).unwrap();
    assert_eq!(text::export(&new).unwrap(), text);
    assert_eq!(
        text::parse(&text, &new, NOW).unwrap(),
        new,
        "a second time changes nothing"
    );
}

#[test]
fn a_changed_line_changes_its_object_and_what_is_gone_gives_its_numbers_back() {
    let before = exchange();
    let text = text::export(&before).unwrap();
    let (service, found) = before
        .services
        .iter()
        .find(|(_, service)| service.kind == ServiceKind::P2pVc)
        .unwrap();
    let changed = text::parse(&text.replace("vlan = 100", "vlan = 101"), &before, NOW).unwrap();
    assert_ne!(
        changed.services[service].wire_id, found.wire_id,
        "another way is another wire id"
    );
    assert_eq!(changed.services[service].generation, found.generation + 1);
    assert_eq!(changed.pools[&PoolKind::WireId].released.len(), 1);
    let rest: Vec<_> = before
        .services
        .keys()
        .map(|id| changed.services[id].index == before.services[id].index)
        .collect();
    assert!(rest.into_iter().all(|same| same));
    let empty = text::parse("", &before, NOW).unwrap();
    assert_eq!((empty.services.len(), empty.last_id), (0, before.last_id));
    assert_eq!(empty.pools[&PoolKind::ServiceIndex].released.len(), 2);
}

#[test]
fn a_mistake_is_named_by_line_and_key() {
    let exchange = exchange();
    let text = text::export(&exchange).unwrap();
    let check = |from: &str, to: &str, key: &str, words: &str| {
        assert!(text.contains(from), "{from} is not in {text}");
        let wrong = text.replacen(from, to, 1);
        let line = 1 + text[..text.find(from).unwrap()].lines().count()
            - usize::from(!text[..text.find(from).unwrap()].ends_with('\n'));
        let error = text::parse(&wrong, &Exchange::default(), NOW).unwrap_err();
        assert_eq!((error.key.as_str(), error.line), (key, line), "{error}\n{wrong}");
        assert!(error.message.contains(words), "{error}");
    };
    check("site = \"site 2\"", "site = \"site 9\"", "switch.site", "site 9");
    check("kind = \"vxlan\"", "kind = \"gre\"", "text", "gre");
    check(
        "connection = \"a/a0\"",
        "connection = \"a/a9\"",
        "service.end.connection",
        "a/a9",
    );
    check("name = \"site 2\"", "name = \"site 1\"", "site.name", "twice");
    check("peer = \"b\"", "peer = \"nobody\"", "service.peer", "nobody");
}
