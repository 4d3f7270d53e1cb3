//! Table features that controllers set: they are enforced, and read back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use crate::harness::{Controller, PATIENCE, SILENCE, TestSwitch, config, flow, output, packet, patch};
use millrace_flow::{Action, Field, FieldSet, Instructions, Match, SetField, WriteMetadata};
use millrace_openflow::multipart::flow::FlowStatsRequest;
use millrace_openflow::multipart::table_features::{Property, PropertyList, PropertyType, TableFeatures};
use millrace_openflow::multipart::{MultipartReply, MultipartRequest, ReplyBody, RequestBody};
use millrace_openflow::*;
use millrace_types::*;

/// Sends table features, or requests them if the list is empty. Returns the features in the reply, or the error.
pub(crate) fn exchange(
    controller: &mut Controller,
    wanted: Vec<TableFeatures>,
) -> Result<Vec<TableFeatures>, ErrorCode> {
    let request = MultipartRequest::new(RequestBody::TableFeatures(wanted));
    let xid = controller.send(&Message::MultipartRequest(request));
    let mut tables = Vec::new();
    loop {
        match controller.receive().unwrap() {
            (header, _) if header.xid != xid => {}
            (_, Message::Error(error)) => return Err(error.code),
            (_, Message::MultipartReply(MultipartReply { more, body })) => {
                let ReplyBody::TableFeatures(mut part) = body else {
                    panic!()
                };
                tables.append(&mut part);
                if !more {
                    return Ok(tables);
                }
            }
            (_, other) => panic!("{other}"),
        }
    }
}

fn set(fields: &[Field]) -> FieldSet {
    fields.iter().copied().collect()
}

/// Returns a table that matches `in_port` and, optionally masked, `ipv4_dst`; outputs; and goes to table 2.
pub(crate) fn narrow(table: u8) -> TableFeatures {
    use PropertyType as P;
    let matches = set(&[Field::InPort, Field::EthType, Field::Ipv4Dst]);
    let instructions = vec![
        InstructionType::ApplyActions,
        InstructionType::GotoTable,
        InstructionType::WriteMetadata,
    ];
    let lists = [
        (P::Instructions, PropertyList::Instructions(instructions)),
        (
            P::InstructionsMiss,
            PropertyList::Instructions(vec![InstructionType::ApplyActions]),
        ),
        (P::NextTables, PropertyList::Tables(vec![TableId(2)])),
        (P::NextTablesMiss, PropertyList::Tables(vec![])),
        (
            P::ApplyActions,
            PropertyList::Actions(vec![ActionType::Output, ActionType::SetField]),
        ),
    ];
    let mut properties: Vec<_> = lists.map(|(type_, list)| Property { type_, list }).into();
    properties.extend([
        Property::fields(P::Match, matches, set(&[Field::Ipv4Dst])),
        Property::fields(
            P::Wildcards,
            set(&[Field::EthType, Field::Ipv4Dst]),
            FieldSet::EMPTY,
        ),
        Property::fields(P::ApplySetField, set(&[Field::EthDst]), FieldSet::EMPTY),
    ]);
    TableFeatures {
        table: TableId(table),
        name: format!("narrow {table}"),
        metadata_match: 0xff,
        metadata_write: 0xf0,
        config: 0,
        max_entries: 1000,
        properties,
    }
}

/// Returns a table with a name and no properties.
pub(crate) fn named(table: u8, name: &str) -> TableFeatures {
    TableFeatures {
        table: TableId(table),
        name: name.to_owned(),
        properties: Vec::new(),
        ..narrow(table)
    }
}

fn error_of(controller: &mut Controller, entry: FlowMod) -> ErrorCode {
    controller.error_of(&Message::FlowMod(entry))
}

#[test]
fn entries_that_a_written_table_does_not_take_are_refused_each_with_its_error() {
    let switch = TestSwitch::start(&config(2, "tables = 4"));
    let mut controller = switch.controller();
    exchange(&mut controller, vec![narrow(0), named(2, "rest")]).unwrap();
    let to = |table| Instructions::goto(TableId(table));
    let port = || Match::exact(&[(Field::InPort, 1)]).unwrap();
    let add = |match_: Match, instructions| FlowMod::add(TableId(0), Priority(5), match_, instructions);
    let set_field = |field, value| Action::SetField(SetField::new(field, value).unwrap());
    let metadata = |mask| Instructions {
        write_metadata: Some(WriteMetadata { value: 0, mask }),
        ..Instructions::default()
    };
    let masked = |text: &str| text.parse::<Match>().unwrap();
    use ErrorCode as E;
    for (entry, expected) in [
        (
            flow(5, &[(Field::InPort, 1), (Field::EthDst, 1)], &[]),
            E::OFPBMC_BAD_FIELD,
        ),
        (flow(5, &[(Field::EthType, 0x800)], &[]), E::OFPBMC_BAD_WILDCARDS),
        (add(port(), to(3)), E::OFPBIC_BAD_TABLE_ID),
        (add(port(), metadata(0x1ff)), E::OFPBIC_UNSUP_METADATA_MASK),
        (
            add(
                port(),
                Instructions {
                    clear_actions: true,
                    ..Instructions::default()
                },
            ),
            E::OFPBIC_UNSUP_INST,
        ),
        (
            flow(5, &[(Field::InPort, 1)], &[Action::Group(GroupId(1))]),
            E::OFPBAC_BAD_TYPE,
        ),
        (
            flow(5, &[(Field::InPort, 1)], &[set_field(Field::EthSrc, 1)]),
            E::OFPBAC_BAD_SET_TYPE,
        ),
        (
            FlowMod::add(TableId(0), Priority(0), Match::any(), to(2)),
            E::OFPBIC_UNSUP_INST,
        ),
        (
            FlowMod::add(TableId(1), Priority(0), Match::any(), to(2)),
            E::OFPFMFC_BAD_TABLE_ID,
        ),
        (
            FlowMod::add(TableId(2), Priority(0), Match::any(), to(3)),
            E::OFPBIC_BAD_TABLE_ID,
        ),
    ] {
        assert_eq!(error_of(&mut controller, entry), expected);
    }
    controller.add([
        add(masked("in_port=1,ip,nw_dst=10.0.0.0/8"), to(2)),
        add(port(), metadata(0xf0)),
        flow(0, &[], &[output(2)]),
        flow(
            5,
            &[(Field::InPort, 2)],
            &[set_field(Field::EthDst, 1), output(1)],
        ),
        FlowMod::add(
            TableId(2),
            Priority(9),
            Match::exact(&[(Field::EthSrc, 1)]).unwrap(),
            Instructions::default(),
        ),
    ]);
    // A modify is checked in the same way.
    let modify = FlowMod {
        command: FlowModCommand::ModifyStrict,
        ..add(
            port(),
            Instructions {
                clear_actions: true,
                ..Instructions::default()
            },
        )
    };
    assert_eq!(error_of(&mut controller, modify), E::OFPBIC_UNSUP_INST);
}

#[test]
fn features_are_read_back_as_set_and_tables_left_out_are_removed_until_they_are_set_again() {
    let switch = TestSwitch::start(&config(2, "tables = 4"));
    let mut controller = switch.controller();
    let before = exchange(&mut controller, Vec::new()).unwrap();
    assert_eq!(before.len(), 4);
    let after = exchange(&mut controller, vec![narrow(0), named(2, "rest")]).unwrap();
    let numbers: Vec<u8> = after.iter().map(|table| table.table.0).collect();
    assert_eq!(numbers, [0, 2]);
    assert_eq!((&after[0].name[..], &after[1].name[..]), ("narrow 0", "rest"));
    for property in narrow(0).properties {
        let held = after[0]
            .properties
            .iter()
            .find(|held| held.type_ == property.type_)
            .unwrap();
        let sorted = |list: &PropertyList| match list {
            PropertyList::Instructions(types) => {
                let mut types = types.clone();
                types.sort_by_key(|type_| type_.raw());
                PropertyList::Instructions(types)
            }
            other => other.clone(),
        };
        assert_eq!(sorted(&held.list), sorted(&property.list), "{}", property.type_);
    }
    assert_eq!((after[0].metadata_match, after[0].metadata_write), (0xff, 0xf0));
    assert_eq!(exchange(&mut controller, Vec::new()).unwrap(), after);
    // The request equals the present state, and changes nothing.
    let again = exchange(&mut controller, before.clone()).unwrap();
    assert_eq!(again, before);
}

#[test]
fn tables_that_change_lose_their_entries_and_others_keep_them() {
    let switch = TestSwitch::start(&config(2, "tables = 4"));
    let mut controller = switch.controller();
    let all = exchange(&mut controller, Vec::new()).unwrap();
    let reported = FlowMod {
        flags: FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(TableId(1), Priority(5), Match::any(), Instructions::default())
    };
    controller.add([patch(1, 2), reported]);
    let frame = packet(100);
    let forwards = |patience| {
        switch.peer(1).send(&frame);
        switch.peer(2).receive_within(patience).is_some()
    };
    assert!(forwards(PATIENCE));
    // The request has only names.
    exchange(&mut controller, vec![named(0, "first")]).unwrap();
    assert!(forwards(PATIENCE));
    // The request changes table 1, and repeats table 0 as it is.
    let mut wanted = vec![all[0].clone(), narrow(1), all[2].clone(), all[3].clone()];
    exchange(&mut controller, wanted.clone()).unwrap();
    controller.barrier();
    assert!(forwards(PATIENCE));
    assert!(controller.unasked().is_none(), "no flow_removed");
    wanted[0] = narrow(0);
    exchange(&mut controller, wanted).unwrap();
    controller.barrier();
    assert!(!forwards(SILENCE));
}

/// Returns the tables and priorities of all entries.
fn entries(controller: &mut Controller) -> Vec<(u8, u16)> {
    let asked = RequestBody::Flow(FlowStatsRequest::all());
    let reply = controller.ask(&Message::MultipartRequest(MultipartRequest::new(asked)));
    let Message::MultipartReply(MultipartReply {
        body: ReplyBody::Flow(entries),
        ..
    }) = reply
    else {
        panic!("{reply}")
    };
    let mut entries: Vec<_> = entries
        .iter()
        .map(|entry| (entry.table.0, entry.priority.0))
        .collect();
    entries.sort_unstable();
    entries
}

#[test]
fn entries_that_go_to_a_removed_table_are_removed_with_it() {
    let switch = TestSwitch::start(&config(2, "tables = 4"));
    let mut controller = switch.controller();
    let all = exchange(&mut controller, Vec::new()).unwrap();
    let entry = |table, priority, to| {
        let instructions = Instructions::goto(TableId(to));
        FlowMod::add(TableId(table), Priority(priority), Match::any(), instructions)
    };
    // The later tables of table 0 change, and those of table 3 do not.
    let last = FlowMod::add(TableId(3), Priority(4), Match::any(), Instructions::default());
    controller.add([entry(0, 1, 2), entry(0, 2, 1), last]);
    let without_2 = |table: usize| TableFeatures {
        properties: all[table]
            .properties
            .iter()
            .map(|property| match &property.list {
                PropertyList::Tables(next) => {
                    let next = next.iter().copied().filter(|next| next.0 != 2).collect();
                    Property {
                        list: PropertyList::Tables(next),
                        ..property.clone()
                    }
                }
                _ => property.clone(),
            })
            .collect(),
        ..all[table].clone()
    };
    let features = exchange(&mut controller, vec![without_2(0), without_2(1), all[3].clone()]).unwrap();
    assert_eq!(features.len(), 3);
    assert_eq!(entries(&mut controller), [(3, 4)]);

    // A table that names a removed table in its written features has not changed, and keeps its other entries.
    exchange(&mut controller, vec![narrow(0), named(2, "rest")]).unwrap();
    let to_2 = FlowMod::add(
        TableId(0),
        Priority(5),
        Match::exact(&[(Field::InPort, 1)]).unwrap(),
        Instructions::goto(TableId(2)),
    );
    controller.add([to_2, flow(6, &[(Field::InPort, 2)], &[output(1)])]);
    exchange(&mut controller, vec![narrow(0)]).unwrap();
    assert_eq!(entries(&mut controller), [(0, 6)]);
}

#[test]
fn an_impossible_pipeline_is_refused_and_changes_nothing() {
    let switch = TestSwitch::start(&config(2, "tables = 4"));
    let mut controller = switch.controller();
    let before = exchange(&mut controller, Vec::new()).unwrap();
    let with = |property: Property| TableFeatures {
        properties: vec![property],
        ..narrow(0)
    };
    let list = |type_, list| Property { type_, list };
    let settable = Property::fields(
        PropertyType::ApplySetField,
        set(&[Field::InPort]),
        FieldSet::EMPTY,
    );
    let twice = TableFeatures {
        properties: [narrow(0).properties, narrow(0).properties].concat(),
        ..narrow(0)
    };
    use ErrorCode as E;
    for (wanted, expected) in [
        (vec![narrow(0), narrow(4)], E::OFPTFFC_BAD_TABLE),
        (vec![narrow(0), narrow(0)], E::OFPTFFC_BAD_TABLE),
        (vec![narrow(1)], E::OFPTFFC_BAD_TABLE),
        (vec![twice], E::OFPTFFC_BAD_TYPE),
        (
            vec![with(list(
                PropertyType::NextTables,
                PropertyList::Tables(vec![TableId(0)]),
            ))],
            E::OFPTFFC_BAD_ARGUMENT,
        ),
        (
            vec![with(list(
                PropertyType::NextTables,
                PropertyList::Tables(vec![TableId(9)]),
            ))],
            E::OFPTFFC_BAD_ARGUMENT,
        ),
        (vec![with(settable)], E::OFPTFFC_BAD_ARGUMENT),
        (
            vec![TableFeatures {
                max_entries: u32::MAX,
                ..narrow(0)
            }],
            E::OFPTFFC_BAD_ARGUMENT,
        ),
    ] {
        assert_eq!(exchange(&mut controller, wanted), Err(expected));
    }
    assert_eq!(exchange(&mut controller, Vec::new()).unwrap(), before);
}

#[test]
fn configured_names_and_limits_hold_and_change_while_the_switch_runs() {
    let settings = |max: u32| {
        let tables = format!("table = [{{ number = 1, name = \"acl\", max_entries = {max} }}]");
        config(2, &format!("tables = 4\n{tables}"))
    };
    let mut switch = TestSwitch::start(&settings(2));
    let mut controller = switch.controller();
    let features = exchange(&mut controller, Vec::new()).unwrap();
    assert_eq!((&features[1].name[..], features[1].max_entries), ("acl", 2));
    assert_eq!((&features[0].name[..], features[0].max_entries), ("", 4_000_000));
    let entry = |priority| {
        FlowMod::add(
            TableId(1),
            Priority(priority),
            Match::any(),
            Instructions::default(),
        )
    };
    controller.add([entry(1), entry(2), entry(2)]);
    assert_eq!(error_of(&mut controller, entry(3)), ErrorCode::OFPFMFC_TABLE_FULL);
    controller.add([FlowMod::add(
        TableId(0),
        Priority(3),
        Match::any(),
        Instructions::default(),
    )]);
    switch.apply(&settings(3));
    controller.add([entry(3)]);
    switch.apply(&settings(1));
    assert_eq!(error_of(&mut controller, entry(4)), ErrorCode::OFPFMFC_TABLE_FULL);
    exchange(&mut controller, vec![named(1, "mine")]).unwrap();
    assert_eq!(exchange(&mut controller, Vec::new()).unwrap()[1].name, "mine");
}

#[test]
fn a_full_table_that_evicts_takes_one_more_and_reports_the_evicted_entry() {
    let tables = "table = [{ number = 1, max_entries = 2, when_full = \"evict\" }]";
    let switch = TestSwitch::start(&config(2, &format!("tables = 4\n{tables}")));
    let mut controller = switch.controller();
    let entry = |priority, idle_timeout| FlowMod {
        idle_timeout,
        flags: FlowModFlags::SEND_FLOW_REM,
        ..FlowMod::add(
            TableId(1),
            Priority(priority),
            Match::any(),
            Instructions::default(),
        )
    };
    for mod_ in [entry(1, 0), entry(2, 600), entry(3, 300)] {
        controller.send(&Message::FlowMod(mod_));
    }
    let (_, Message::FlowRemoved(removed)) = controller.receive().unwrap() else {
        panic!("no flow_removed");
    };
    assert_eq!(
        (removed.priority, removed.reason),
        (Priority(2), FlowRemovedReason::Delete)
    );
    controller.add([entry(4, 0)]);
    assert_eq!(
        error_of(&mut controller, entry(5, 0)),
        ErrorCode::OFPFMFC_TABLE_FULL
    );
}

#[test]
fn a_table_mod_must_name_an_existing_table_and_no_unknown_bit() {
    let switch = TestSwitch::start(&config(2, "tables = 4"));
    let mut controller = switch.controller();
    let table_mod = |table, config| Message::TableMod(TableMod { table, config });
    for deprecated in 0..=3 {
        controller.send(&table_mod(TableId(3), deprecated));
        controller.send(&table_mod(TableId::ALL, deprecated));
    }
    controller.barrier();
    let code = controller.error_of(&table_mod(TableId(4), 0));
    assert_eq!(code, ErrorCode::OFPTMFC_BAD_TABLE);
    let code = controller.error_of(&table_mod(TableId(0), 4));
    assert_eq!(code, ErrorCode::OFPTMFC_BAD_CONFIG);
}
