//! Filters: their ends, and the accounts that they name.

use core::time::Duration;

use super::*;

/// Returns an order of a filter that ends after some seconds.
fn filter_of(account: AccountId, origin: FilterOrigin, ends_after: u64) -> Operation {
    Operation::CreateFilter {
        account: Some(account),
        matching: FilterMatch::to("192.0.2.1/32".parse().unwrap()),
        alternatives: Vec::new(),
        peers: BTreeSet::new(),
        action: FilterAction::Drop,
        origin,
        rank: 100,
        order: String::new(),
        state: FilterState::Active,
        valid_until: Some(NOW.after(Duration::from_secs(ends_after))),
        exempt_until: None,
        comment: None,
        external_ref: None,
    }
}

impl World {
    fn expire_at(&mut self, after: u64) {
        let now = NOW.after(Duration::from_secs(after));
        self.exchange
            .apply(&Actor::system(), now, Operation::Expire)
            .unwrap();
    }

    fn order_filter(&mut self, account: AccountId, origin: FilterOrigin, ends_after: u64) -> FilterId {
        let order = filter_of(account, origin, ends_after);
        self.apply(&Actor::system(), order).unwrap().first().unwrap()
    }
}

#[test]
fn an_ended_filter_is_shown_for_seven_days_and_one_of_bgp_until_its_withdrawal() {
    let mut world = World::new();
    let account = world.members[0].account.unwrap();
    let of_page = world.order_filter(account, FilterOrigin::Page, 60);
    let of_bgp = world.order_filter(account, FilterOrigin::Rtbh, 60);
    let week = 7 * 86_400;
    for after in [60, 60 + week - 1] {
        world.expire_at(after);
        assert_eq!(world.exchange.filters[&of_page].state, FilterState::Expired);
    }
    world.expire_at(60 + week);
    assert!(!world.exchange.filters.contains_key(&of_page));
    assert_eq!(world.exchange.filters[&of_bgp].state, FilterState::Expired);
}

#[test]
fn an_account_has_at_most_five_hundred_ended_filters_and_the_oldest_go() {
    let mut world = World::new();
    let account = world.members[0].account.unwrap();
    let other = world.members[1].account.unwrap();
    let of_other = world.order_filter(other, FilterOrigin::Api, 1);
    let oldest = world.order_filter(account, FilterOrigin::Api, 1);
    for _ in 1..500 {
        world.order_filter(account, FilterOrigin::Api, 2);
    }
    world.expire_at(2);
    assert_eq!(world.exchange.filters.len(), 501);
    let newest = world.order_filter(account, FilterOrigin::Page, 3);
    world.expire_at(3);
    assert_eq!(world.exchange.filters.len(), 501);
    assert!(!world.exchange.filters.contains_key(&oldest));
    for kept in [newest, of_other] {
        assert_eq!(world.exchange.filters[&kept].state, FilterState::Expired);
    }
}

#[test]
fn a_filter_names_no_account_that_its_owner_does_not_know() {
    let mut world = World::new();
    let member = world.members[0].clone();
    let [known, hidden] = [1, 2].map(|at: usize| world.members[at].account.unwrap());
    let hide = Operation::UpdateAccount {
        account: hidden,
        name: None,
        asns: None,
        discoverable: Some(false),
        as_set: None,
        limits: None,
    };
    world.apply(&Actor::system(), hide).unwrap();
    let order = |peer| {
        let mut order = filter_of(member.account.unwrap(), FilterOrigin::Page, 60);
        if let Operation::CreateFilter { peers, .. } = &mut order {
            peers.insert(peer);
        }
        order
    };
    let absent = AccountId(9_999);
    for peer in [hidden, absent] {
        let refusal = world.refused(&member, order(peer));
        assert_eq!(refusal.code, RefusalCode::NotFound);
        assert_eq!(refusal.field.as_deref(), Some("peers"));
    }
    world.apply(&member, order(known)).unwrap();
    let operator = world.operators[0].clone();
    world.apply(&operator, order(hidden)).unwrap();
}

#[test]
fn nobody_but_the_engine_changes_a_filter_that_has_ended() {
    let mut world = World::new();
    let account = world.members[0].account.unwrap();
    let filter = world.order_filter(account, FilterOrigin::Page, 60);
    let noc = Actor {
        roles: [Role::MemberNoc].into(),
        ..world.members[0].clone()
    };
    let longer = Operation::UpdateFilter {
        filter,
        state: None,
        rank: None,
        valid_until: Some(NOW.after(Duration::from_secs(3600))),
    };
    world.apply(&noc, longer.clone()).unwrap();
    world.expire_at(3600);
    let refusal = world.refused(&noc, longer.clone());
    assert_eq!(
        (refusal.code, refusal.object),
        (RefusalCode::Conflict, Some(filter.into()))
    );
    assert!(refusal.message.contains("the filter has ended"), "{refusal}");
    world.apply(&Actor::system(), longer).unwrap();
}
