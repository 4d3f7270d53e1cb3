//! Incremental plans of changed filters: the result equals a plan of all filters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millrace_ix_model::{
    AccountId, FilterAction, FilterId, FilterMatch, FilterOrigin, FilterState, Operation, Ports, Prefix,
    Reason, ServiceKind, SwitchId, TrunkKind,
};
use millrace_ix_plan::{Settings, SwitchState, phases_between, plan};

use crate::circuits::number;
use crate::world::{NOW, Random, World, c_tag};

/// The entries of all switches. Only the modifications of phases change them.
#[derive(Default)]
struct Followed(BTreeMap<SwitchId, SwitchState>);

impl Followed {
    /// Applies modifications. Each must find the entry that it changes.
    fn apply(&mut self, phases: millrace_ix_plan::Phases) {
        for (switch, modifications) in phases.stage.into_iter().chain(phases.flip).chain(phases.clean) {
            let state = self.0.entry(switch).or_default();
            for change in modifications {
                let before = match change.to {
                    Some(entry) => state.insert(change.key, entry),
                    None => state.remove(&change.key),
                };
                assert_eq!(before, change.from);
            }
        }
        self.0.retain(|_, state| !state.is_empty());
    }
}

/// Returns a prefix within 10.0.0.0/13, with many others that contain it or that it contains.
fn destination(random: &mut Random) -> Prefix {
    let len = *random.pick(&[13, 15, 16, 20, 24, 24, 30, 32, 32]);
    let address = [
        10,
        random.below(8) as u8,
        (random.below(3) * 16) as u8,
        random.below(6) as u8,
    ];
    Prefix::host(address.into()).truncated(len)
}

fn random_filter(account: AccountId, accounts: &[AccountId], random: &mut Random) -> Operation {
    let wide = destination(random);
    let mut matching = FilterMatch::to(wide);
    matching.protocol = *random.pick(&[None, Some(6), Some(17)]);
    if matching.protocol.is_some() && random.below(2) == 0 {
        let first = random.below(4) as u16 * 20;
        matching.source_ports = vec![Ports {
            first,
            last: first + random.below(40) as u16,
        }];
    }
    let mut alternatives = Vec::new();
    if random.below(4) == 0 {
        let narrow = Prefix::host(wide.address());
        alternatives.push(FilterMatch {
            destination: narrow,
            ..matching.clone()
        });
    }
    let peers: BTreeSet<_> = match random.below(3) {
        0 => BTreeSet::from([*random.pick(accounts)]),
        _ => BTreeSet::new(),
    };
    let action = match random.below(4) {
        0 => FilterAction::Count,
        1 => FilterAction::Shape { rate_kbps: 500 },
        _ => FilterAction::Drop,
    };
    Operation::CreateFilter {
        account: Some(account),
        matching,
        alternatives,
        peers,
        action,
        origin: FilterOrigin::Api,
        rank: random.below(4) as u32 * 100,
        order: format!("{}", random.below(5)),
        state: FilterState::Active,
        valid_until: (random.below(4) == 0).then(|| NOW.after(Duration::from_secs(1 + random.below(200)))),
        exempt_until: None,
        comment: None,
        external_ref: None,
    }
}

/// Makes a random order. An order that the model refuses changes nothing.
fn random_order(world: &mut World, accounts: &[AccountId], random: &mut Random) {
    let filters: Vec<FilterId> = world.exchange.filters.keys().copied().collect();
    let configs: Vec<_> = world.exchange.configs.keys().copied().collect();
    let connections: Vec<_> = world.exchange.connections.keys().copied().collect();
    let services: Vec<_> = world.exchange.services.keys().copied().collect();
    match random.below(12) {
        0 | 1 if !filters.is_empty() => {
            let filter = *random.pick(&filters);
            let _ = world.apply(Operation::DeleteFilter { filter });
        }
        2 | 3 if !filters.is_empty() => {
            let state = random
                .pick(&[FilterState::Active, FilterState::Suspended(Reason::default())])
                .clone();
            let rank = (random.below(2) == 0).then(|| random.below(400) as u32);
            let filter = *random.pick(&filters);
            let _ = world.apply(Operation::UpdateFilter {
                filter,
                state: Some(state),
                rank,
                valid_until: None,
            });
        }
        4 if !configs.is_empty() => {
            let target = (*random.pick(&configs)).into();
            let _ = world.apply(Operation::Delete { target });
        }
        5 => {
            let service = *random.pick(&services);
            let _ = world.end(
                service,
                *random.pick(&connections),
                c_tag(2 + random.below(4000) as u16),
            );
        }
        _ => {
            let account = *random.pick(accounts);
            let _ = world.apply(random_filter(account, accounts, random));
        }
    }
}

#[test]
fn switches_that_follow_every_change_have_the_plan_of_the_whole_exchange() {
    let mut most = 0;
    for seed in 0..number("MILLRACE_EXCHANGES", 6) {
        let mut random = Random(seed ^ 0xf117e5);
        let mut world = World::new(1 + random.below(2) as u32, TrunkKind::Vxlan);
        let accounts: Vec<_> = (0..3)
            .map(|number| world.account(&format!("member {number}")))
            .collect();
        for (at, account) in (1..).zip(&accounts) {
            let port = world.port(0, at);
            world.connection(*account, vec![port]);
            world.service(*account, ServiceKind::P2pVc, None);
        }
        let extensions = random.below(2) == 0;
        let mut settings = Settings { now: NOW, extensions };
        let mut followed = Followed::default();
        let mut old = millrace_ix_model::Exchange::default();
        for step in 0..120 {
            let then = settings;
            if random.below(4) == 0 {
                settings.now = settings.now.after(Duration::from_secs(random.below(30)));
            }
            for _ in 0..1 + random.below(3) {
                random_order(&mut world, &accounts, &mut random);
            }
            followed.apply(phases_between((&old, &then), (&world.exchange, &settings)));
            let whole = plan(&world.exchange, &settings);
            assert!(followed.0 == whole.switches, "seed {seed}, step {step}");
            old = world.exchange.clone();
        }
        let filters = followed
            .0
            .values()
            .map(|state| state.keys().filter(|id| is_filter(id)).count());
        most = most.max(filters.max().unwrap_or(0));
    }
    assert!(most > 50, "{most} entries of filters");
}

fn is_filter(id: &millrace_ix_plan::EntryId) -> bool {
    matches!(id, millrace_ix_plan::EntryId::Flow(flow) if flow.table.0 == 5 && flow.priority.0 > 50_000)
}

#[test]
fn no_switch_ends_a_filter_by_itself() {
    let mut world = World::new(2, TrunkKind::Vxlan);
    let accounts: Vec<_> = (0..2)
        .map(|number| world.account(&format!("member {number}")))
        .collect();
    for (at, account) in (1..).zip(&accounts) {
        let port = world.port(0, at);
        let connection = world.connection(*account, vec![port]);
        let service = world.service(*account, ServiceKind::P2pVc, None);
        world.end(service, connection, c_tag(100)).unwrap();
    }
    let mut random = Random(7);
    for _ in 0..30 {
        let _ = world.apply(random_filter(accounts[0], &accounts, &mut random));
    }
    let settings = Settings {
        now: NOW,
        extensions: true,
    };
    let mut filters = 0;
    for (id, entry) in plan(&world.exchange, &settings).switches.values().flatten() {
        if let millrace_ix_plan::Entry::Flow(flow) = entry {
            filters += usize::from(is_filter(id));
            assert_eq!((flow.idle_timeout, flow.hard_timeout), (0, 0), "{id:?}");
        }
    }
    assert!(filters > 20, "{filters} entries of filters");
}
