//! A worked example of the tables that the README of this crate draws: p2p 77 from connection 5 (site 1, port 3,
//! VLAN 100) to connection 6 (site 2, port 9, untagged), 200 Mbit/s, wire id 0x1a001, trunks are ports 100 and 101.

use millrace_flow::text::{FlowCommand, FlowModText};
use millrace_flow::{Action, Field};
use millrace_ix_model::{
    ConnectionIndex, GroupNumber, MeterNumber, ServiceIndex, ServiceKind, TrunkKind, VlanRequest, WireId,
};
use millrace_ix_plan::layout::{CookieFields, CookieKind};
use millrace_ix_plan::{Entry, EntryId, GroupKind, Matching, Meter, RateUnit, Settings, plan};
use millrace_types::{GroupId, MeterId};

use crate::world::{NOW, World, c_tag};

/// Returns metadata in the notation of the example: service, trunk bit, in and out.
fn word(service: u64, by_trunk: u64, entered: u64, leaves: u64) -> u64 {
    service << 40 | by_trunk << 39 | entered << 20 | leaves
}

#[test]
fn the_entries_are_those_of_the_example_line_by_line() {
    let mut world = World::new(2, TrunkKind::Vxlan);
    let account = world.account("a");
    let ports = [world.port(0, 3), world.port(1, 9)];
    let connections = ports.map(|port| world.connection(account, vec![port]));
    let service = world.service(account, ServiceKind::P2pVc, None);
    world.end(service, connections[0], c_tag(100)).unwrap();
    world.end(service, connections[1], VlanRequest::Port).unwrap();
    // The exchange gets the numbers of the example.
    let exchange = &mut world.exchange;
    let found = exchange.services.get_mut(&service).unwrap();
    found.index = ServiceIndex::new(77).unwrap();
    found.wire_id = WireId::new(0x1a001).ok();
    found.generation = 0;
    for (connection, index) in connections.iter().zip([5, 6]) {
        exchange.connections.get_mut(connection).unwrap().index = ConnectionIndex::new(index).unwrap();
        let config = exchange
            .configs
            .values_mut()
            .find(|config| config.connection == *connection)
            .unwrap();
        config.index = ConnectionIndex::new(index).unwrap();
        config.capacity_mbps = Some(200);
        config.meter = MeterNumber::new(496 + index).unwrap();
    }
    for (switch, group) in world.switches.iter().zip([1, 2]) {
        exchange.switches.get_mut(switch).unwrap().group = GroupNumber::new(group).unwrap();
    }
    let plan = plan(
        exchange,
        &Settings {
            now: NOW,
            extensions: false,
        },
    );
    let all = u64::MAX;
    let meta = |value: u64| format!("write_metadata:{value:#x}/{all:#x}");
    let service_in = word(0xff_ffff, 0, 0x7_ffff, 0);
    let service_out = word(0xff_ffff, 0, 0, 0xf_ffff);
    let service_trunk_out = word(0xff_ffff, 1, 0, 0xf_ffff);
    let out = |end: u64| format!("write_metadata:{end:#x}/0xfffff");
    let site_1 = [
        "table=0,priority=60000,dl_dst=01:80:c2:00:00:00/ff:ff:ff:ff:ff:f0,actions=drop".to_owned(),
        format!(
            "table=0,priority=100,in_port=3,dl_vlan=100,actions=set_field:4097->vlan_vid,{},goto_table:3",
            meta(word(77, 0, 5, 0))
        ),
        format!(
            "table=0,priority=200,tun_id=0x1a001,actions={},goto_table:6",
            meta(word(77, 1, 0, 5))
        ),
        format!(
            "table=3,priority=100,metadata={:#x}/{service_in:#x},actions=meter:501,{},goto_table:5",
            word(77, 0, 5, 0),
            out(6)
        ),
        format!(
            "table=5,priority=65000,metadata={:#x}/{:#x},actions=goto_table:6",
            word(0, 1, 0, 0),
            word(0, 1, 0, 0)
        ),
        "table=5,priority=1,actions=goto_table:6".to_owned(),
        format!(
            "table=6,priority=100,metadata={:#x}/{service_trunk_out:#x},actions=set_field:0x1a001->tun_id,group:2",
            word(77, 0, 0, 6)
        ),
        format!(
            "table=6,priority=100,metadata={:#x}/{service_out:#x},dl_vlan=1,actions=set_field:4196->vlan_vid,output:3",
            word(77, 0, 0, 5)
        ),
    ];
    let state = &plan.switches[&world.switches[0]];
    // The probes of the two trunks have an entry each.
    let is_probe = |flow: &millrace_ix_plan::Flow| {
        let fields = CookieFields::from_cookie(flow.cookie);
        fields.is_some_and(|fields| fields.kind == CookieKind::Probe)
    };
    let flows = state
        .values()
        .filter(|entry| matches!(entry, Entry::Flow(flow) if !is_probe(flow)))
        .count();
    assert_eq!(flows, site_1.len());
    for line in &site_1 {
        let text =
            FlowModText::parse(FlowCommand::Add, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let id = EntryId::Flow(millrace_ix_plan::FlowId {
            table: text.table,
            priority: text.priority,
            matching: Matching::from(&text.matching),
        });
        let Some(Entry::Flow(flow)) = state.get(&id) else {
            panic!("there is no {line}");
        };
        assert_eq!(flow.instructions, text.instructions, "{line}");
    }
    let Entry::Group(group) = &state[&EntryId::Group(GroupId(2))] else {
        panic!()
    };
    assert_eq!(group.kind, GroupKind::FastFailover);
    let watched: Vec<_> = group
        .buckets
        .iter()
        .map(|bucket| bucket.watch_port.raw())
        .collect();
    assert_eq!(watched, [100, 101], "100, then 101");
    let meter = Meter {
        unit: RateUnit::Kbps,
        rate: 200_000,
        burst: 40_000,
    };
    assert_eq!(
        state[&EntryId::Meter(MeterId(501))],
        Entry::Meter(meter),
        "200,000 kbit/s, 200 ms"
    );
    // The entries of site 2 mirror those of site 1: its egress pops the tag.
    let far = &plan.switches[&world.switches[1]];
    let pops = far.iter().any(|(id, entry)| match (id, entry) {
        (EntryId::Flow(id), Entry::Flow(flow)) => {
            id.table.0 == 6
                && id.matching.field(Field::Metadata)
                    == Some((word(77, 0, 0, 6).into(), Some(service_out.into())))
                && flow.instructions.actions().next() == Some(&Action::PopVlan)
        }
        _ => false,
    });
    assert!(pops);
}
