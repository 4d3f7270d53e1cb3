//! What tables can do, and what controllers want them to do.

use millrace_datapath::io::Backend;
use millrace_flow::{Field, FieldSet};
use millrace_openflow::multipart::table_features::{Property, PropertyList, PropertyType, TableFeatures};
use millrace_openflow::{ActionType, ErrorCode, InstructionType, TableMod};
use millrace_types::TableId;

use crate::control::BridgeControl;

/// Accepts a table_mod for a table that exists: version 1.3 defines nothing that it could change.
pub(super) fn table_mod<B: Backend>(bridge: &BridgeControl<B>, asked: TableMod) -> Result<(), ErrorCode> {
    let exists = asked.table.0 < bridge.tables.config().tables;
    if exists || asked.table == TableId::ALL {
        Ok(())
    } else {
        Err(ErrorCode::OFPTMFC_BAD_TABLE)
    }
}

/// What every table can do (section 7.3.5.5). All tables are alike, except that the last cannot go on to
/// another.
pub(super) fn features<B: Backend>(bridge: &BridgeControl<B>) -> impl Iterator<Item = TableFeatures> + '_ {
    let tables = bridge.tables.config().tables;
    let max_entries = bridge.tables.config().max_entries;
    (0..tables).map(move |table| TableFeatures {
        table: TableId(table),
        // Of tables without a name peers print the number.
        name: bridge
            .table_names
            .get(&TableId(table))
            .cloned()
            .unwrap_or_default(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries,
        properties: properties(table, tables),
    })
}

/// Every instruction that 1.3 has.
const INSTRUCTIONS: [InstructionType; 6] = [
    InstructionType::GotoTable,
    InstructionType::WriteMetadata,
    InstructionType::WriteActions,
    InstructionType::ApplyActions,
    InstructionType::ClearActions,
    InstructionType::Meter,
];

fn properties(table: u8, tables: u8) -> Vec<Property> {
    use PropertyType as P;
    let is_last = table + 1 == tables;
    let instructions: Vec<_> = INSTRUCTIONS
        .into_iter()
        .filter(|type_| !is_last || *type_ != InstructionType::GotoTable)
        .collect();
    let next: Vec<_> = (table + 1..tables).map(TableId).collect();
    let actions = ActionType::ALL.to_vec();
    let all: FieldSet = Field::ALL.into_iter().collect();
    let maskable: FieldSet = Field::ALL
        .into_iter()
        .filter(|field| field.is_maskable())
        .collect();
    let settable: FieldSet = Field::ALL
        .into_iter()
        .filter(|field| field.is_settable())
        .collect();
    let mut properties = Vec::new();
    let mut add = |type_, list| properties.push(Property { type_, list });
    for type_ in [P::Instructions, P::InstructionsMiss] {
        add(type_, PropertyList::Instructions(instructions.clone()));
    }
    for type_ in [P::NextTables, P::NextTablesMiss] {
        add(type_, PropertyList::Tables(next.clone()));
    }
    for type_ in [
        P::WriteActions,
        P::WriteActionsMiss,
        P::ApplyActions,
        P::ApplyActionsMiss,
    ] {
        add(type_, PropertyList::Actions(actions.clone()));
    }
    properties.push(Property::fields(P::Match, all, maskable));
    properties.push(Property::fields(P::Wildcards, all, FieldSet::EMPTY));
    for type_ in [
        P::WriteSetField,
        P::WriteSetFieldMiss,
        P::ApplySetField,
        P::ApplySetFieldMiss,
    ] {
        properties.push(Property::fields(type_, settable, FieldSet::EMPTY));
    }
    properties
}

/// Takes the features that a controller wants, all or none. Every table can do all that the switch can,
/// whatever less a controller asks for, which section 7.3.5.5 allows: so only the names change. What the
/// switch cannot is refused.
pub(super) fn set_features<B: Backend>(
    bridge: &mut BridgeControl<B>,
    wanted: &[TableFeatures],
) -> Result<(), ErrorCode> {
    check_features(bridge, wanted)?;
    for table in wanted {
        bridge.table_names.insert(table.table, table.name.clone());
    }
    Ok(())
}

fn check_features<B: Backend>(bridge: &BridgeControl<B>, wanted: &[TableFeatures]) -> Result<(), ErrorCode> {
    let config = bridge.tables.config();
    for table in wanted {
        if table.table.0 >= config.tables {
            return Err(ErrorCode::OFPTFFC_BAD_TABLE);
        }
        if table.max_entries > config.max_entries {
            return Err(ErrorCode::OFPTFFC_BAD_ARGUMENT);
        }
        let is_possible = |property: &Property| match &property.list {
            PropertyList::Instructions(types) => types.iter().all(|type_| INSTRUCTIONS.contains(type_)),
            PropertyList::Tables(next) => next
                .iter()
                .all(|next| *next > table.table && next.0 < config.tables),
            // Every action is possible everywhere.
            PropertyList::Actions(_) => true,
            PropertyList::Fields(headers) => headers.iter().all(|header| {
                let settable = !matches!(property.type_, PropertyType::Match | PropertyType::Wildcards);
                header
                    .field()
                    .is_some_and(|field| !settable || field.is_settable())
            }),
        };
        if !table.properties.iter().all(is_possible) {
            return Err(ErrorCode::OFPTFFC_BAD_ARGUMENT);
        }
    }
    Ok(())
}
