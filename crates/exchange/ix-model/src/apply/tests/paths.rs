//! Paths over trunks: admission of contracted rates, transit, and other paths around trunks that are down or drained.

use super::*;

impl World {
    fn order(&mut self, operation: Operation) -> Applied {
        self.apply(&Actor::system(), operation).unwrap()
    }

    fn trunk_between(
        &mut self,
        name: &str,
        kind: TrunkKind,
        ends: [PortId; 2],
        capacity_mbps: u32,
    ) -> TrunkId {
        let trunk = Operation::CreateTrunk {
            name: name.to_owned(),
            kind,
            ends,
            cost: 10,
            capacity_mbps,
            mtu: 9000,
            risk_group: None,
            contract_percent: 100,
        };
        self.order(trunk).first().unwrap()
    }

    /// Adds a third site that is joined with both others by trunks of a type.
    fn third_site(&mut self, kind: TrunkKind) -> (SwitchId, [TrunkId; 2]) {
        let site = self
            .order(Operation::CreateSite {
                name: "site 3".to_owned(),
            })
            .first()
            .unwrap();
        let third: SwitchId = self
            .order(Operation::CreateSwitch {
                name: "switch 3".to_owned(),
                site,
                dpid: Dpid(3),
                ports: [1, 100, 101].map(port).into(),
            })
            .first()
            .unwrap();
        let switches: Vec<SwitchId> = self.exchange.switches.keys().copied().collect();
        let trunks = [
            self.trunk_between("west", kind, [at(switches[0], 101), at(third, 100)], 1000),
            self.trunk_between("south", kind, [at(switches[1], 101), at(third, 101)], 1000),
        ];
        (third, trunks)
    }

    /// Orders a circuit of one member between its two connections.
    fn own_circuit(&mut self, name: &str, vlan: u16, mbps: Option<u32>) -> Result<ServiceId, Refusal> {
        let actor = self.members[0].clone();
        // The trunks are the bound of these tests, and not the connections.
        let limits = Limits {
            connection_percent: 1000,
            ..Limits::default()
        };
        let raise = Operation::UpdateAccount {
            account: actor.account.unwrap(),
            name: None,
            asns: None,
            discoverable: None,
            as_set: None,
            limits: Some(limits),
        };
        self.apply(&Actor::system(), raise)?;
        let service: ServiceId = self.apply(&actor, order_p2p(name, None))?.first().unwrap();
        for connection in self.connections[0] {
            self.apply(
                &actor,
                Operation::ConfigureEnd {
                    service,
                    connection,
                    vlan: tag(vlan),
                    capacity_mbps: mbps,
                    role: EndRole::Root,
                    asns: BTreeSet::new(),
                    external_ref: None,
                },
            )?;
        }
        Ok(service)
    }

    /// Marks all wire ids for S-tags as released, except `free` of them. Switches may still have the released
    /// ones.
    fn fill_s_tags(&mut self, free: u32) {
        let pool = self.exchange.pools.entry(PoolKind::WireId).or_default();
        pool.released
            .extend((2 + free..=4094).map(|number| (number, NumberHold::InSwitches)));
    }

    fn via(&self, service: ServiceId) -> &[SwitchId] {
        &self.exchange.services[&service].via
    }
}

#[test]
fn a_rate_that_exceeds_the_trunk_is_refused_with_both_numbers() {
    let mut world = World::new();
    world.own_circuit("first", 100, Some(6000)).unwrap();
    let refusal = world.own_circuit("second", 101, Some(4001)).unwrap_err();
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (RefusalCode::Exhausted, Some("capacity_mbps"))
    );
    assert_eq!(refusal.object, Some(world.trunk.into()));
    for number in ["10000 Mbit/s", "have 6000", "4001 Mbit/s", "at most 4000"] {
        assert!(refusal.message.contains(number), "{number}: {refusal}");
    }
    let second = world.own_circuit("third", 102, Some(4000)).unwrap();
    // A change of the rate is an order as well; a lower rate always fits.
    let (end, _) = world.exchange.ends(second).next().unwrap();
    let actor = world.members[0].clone();
    let rate = |mbps| Operation::SetRate {
        config: end,
        capacity_mbps: Some(mbps),
    };
    assert_eq!(world.refused(&actor, rate(4001)).code, RefusalCode::Exhausted);
    world.apply(&actor, rate(1000)).unwrap();
    // Each direction counts separately: 6,000 and 4,000 in one, 6,000 and 1,000 in the other.
    let contracts: Vec<u64> = crate::path::contracts_of(&world.exchange).into_values().collect();
    assert_eq!(contracts, [7000, 10_000]);
    // A circuit without a rate reserves nothing, and neither does one at a single switch.
    world.own_circuit("best effort", 103, None).unwrap();
}

#[test]
fn circuits_go_through_a_third_switch_where_no_trunk_joins_two() {
    let mut world = World::new();
    let (third, [west, south]) = world.third_site(TrunkKind::Vxlan);
    let direct = world.own_circuit("direct", 100, Some(500)).unwrap();
    assert_eq!(world.via(direct), []);
    let before = world.exchange.services[&direct].clone();
    // The only direct trunk fails: the circuit goes through the third site under a new wire id.
    let trunks = vec![world.trunk];
    world.order(Operation::ReportTrunksDown {
        trunks: trunks.clone(),
    });
    let after = world.exchange.services[&direct].clone();
    assert_eq!(after.via, [third]);
    assert_eq!(after.generation, before.generation + 1);
    assert_ne!(after.wire_id, before.wire_id);
    // The circuit stays there when the trunk is back: a path changes only if it is broken or drained, or by an
    // order.
    world.order(Operation::ReportTrunksDown { trunks: Vec::new() });
    assert_eq!(world.exchange.services[&direct], after);
    // A second report changes nothing.
    let same = world.order(Operation::ReportTrunksDown { trunks });
    assert_eq!(same, Applied::default());
    // A drain of a trunk on the path moves the circuit back.
    let contracts = crate::path::contracts_of(&world.exchange);
    assert_eq!(contracts.len(), 4, "two hops in both directions: {contracts:?}");
    world.order(Operation::DrainTrunk {
        trunk: west,
        drained: true,
    });
    assert_eq!(world.via(direct), []);
    let _ = south;
}

#[test]
fn a_circuit_takes_the_way_that_has_room() {
    let mut world = World::new();
    let (third, _) = world.third_site(TrunkKind::Vxlan);
    world.own_circuit("large", 100, Some(9500)).unwrap();
    let detour = world.own_circuit("detour", 101, Some(800)).unwrap();
    assert_eq!(world.via(detour), [third]);
    let direct = world.own_circuit("small", 102, Some(400)).unwrap();
    assert_eq!(world.via(direct), []);
    let refusal = world.own_circuit("none", 103, Some(300)).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Exhausted, "{refusal}");
}

#[test]
fn the_last_trunk_of_a_way_cannot_be_deleted_under_a_circuit() {
    let mut world = World::new();
    world.own_circuit("first", 100, Some(100)).unwrap();
    let [ann, bob] = world.operators.clone();
    let trunk = world.trunk;
    let target = trunk.into();
    let approval: ApprovalId = world
        .apply(&ann, Operation::Delete { target })
        .unwrap()
        .first()
        .unwrap();
    let refusal = world.refused(&bob, Operation::Approve { approval });
    assert!(refusal.message.contains("no trunk joins"), "{refusal}");
    // With another path, the circuit moves.
    let (third, _) = world.third_site(TrunkKind::Vxlan);
    world.apply(&bob, Operation::Approve { approval }).unwrap();
    assert!(!world.exchange.trunks.contains_key(&trunk));
    let service = *world.exchange.services.keys().next().unwrap();
    assert_eq!(world.via(service), [third]);
}

#[test]
fn a_lan_that_grows_over_s_tags_gets_a_wire_id_that_is_a_vid() {
    let mut world = World::new();
    let lan = world.lan();
    for connection in world.connections[0] {
        world.order(end(lan, connection, tag(100)));
    }
    let wire_id = |world: &World| world.exchange.services[&lan].wire_id.map(WireId::raw);
    assert_eq!(wire_id(&world), Some(4096), "no VID");
    let (third, _) = world.third_site(TrunkKind::STag);
    let connect = Operation::CreateConnection {
        account: world.members[1].account,
        name: "third".to_owned(),
        kind: ConnectionKind::Standalone,
        ports: vec![at(third, 1)],
        external_ref: None,
    };
    let connection = world.order(connect).first().unwrap();
    world.order(end(lan, connection, tag(100)));
    let narrow = wire_id(&world).unwrap();
    assert!((2..=4094).contains(&narrow), "{narrow}");
    // The LAN keeps this wire id from then on.
    world.order(end(lan, world.connections[2][0], tag(100)));
    assert_eq!(wire_id(&world), Some(narrow));
}

#[test]
fn a_circuit_for_which_no_wire_id_is_free_keeps_its_path_and_others_move() {
    let mut world = World::new();
    let (third, _) = world.third_site(TrunkKind::STag);
    let circuits = [100, 101, 102].map(|vlan| world.own_circuit(&vlan.to_string(), vlan, None).unwrap());
    world.fill_s_tags(2);
    let before: Vec<Service> = circuits.map(|id| world.exchange.services[&id].clone()).into();
    let trunks = vec![world.trunk];
    world.order(Operation::ReportTrunksDown {
        trunks: trunks.clone(),
    });
    assert_eq!(world.via(circuits[0]), [third]);
    assert_eq!(world.via(circuits[1]), [third]);
    let kept = circuits[2];
    assert_eq!(
        world.exchange.services[&kept], before[2],
        "no wire id is free for the third"
    );
    let old = before[2].wire_id.unwrap().raw();
    assert!(
        !world.exchange.pools[&PoolKind::WireId]
            .released
            .contains_key(&old)
    );
    // The circuit moves as soon as a wire id is free. A drain of a trunk moves circuits in the same way.
    let pool = world.exchange.pools.get_mut(&PoolKind::WireId).unwrap();
    pool.released.remove(&4094);
    world.order(Operation::DrainTrunk {
        trunk: trunks[0],
        drained: true,
    });
    assert_eq!(world.via(kept), [third]);
}

#[test]
fn new_services_leave_wire_ids_for_circuits_whose_path_breaks() {
    let mut world = World::new();
    let (third, _) = world.third_site(TrunkKind::STag);
    let circuit = world.own_circuit("first", 100, None).unwrap();
    world.fill_s_tags(128);
    // A circuit to the third site goes over an S-tag trunk.
    let account = world.members[0].account;
    let connection = Operation::CreateConnection {
        account,
        name: "third".to_owned(),
        kind: ConnectionKind::Standalone,
        ports: vec![at(third, 1)],
        external_ref: None,
    };
    let far: ConnectionId = world.order(connection).first().unwrap();
    let actor = world.members[0].clone();
    let service: ServiceId = world
        .apply(&actor, order_p2p("second", None))
        .unwrap()
        .first()
        .unwrap();
    world
        .apply(&actor, end(service, world.connections[0][0], tag(101)))
        .unwrap();
    let refusal = world.refused(&actor, end(service, far, tag(101)));
    assert_eq!(refusal.code, RefusalCode::Exhausted);
    assert!(
        refusal
            .message
            .contains("128 for circuits that take another path"),
        "{refusal}"
    );
    world.order(Operation::ReportTrunksDown {
        trunks: vec![world.trunk],
    });
    assert_eq!(world.via(circuit), [third]);
}
