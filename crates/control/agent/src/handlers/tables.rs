//! Table features (OpenFlow 1.3.5, section 7.3.5.5): the capabilities of tables, which controllers can read and
//! set.

use millrace_datapath::io::Backend;
use millrace_flow::{Field, FieldSet};
use millrace_openflow::multipart::table_features::{Property, PropertyList, PropertyType, TableFeatures};
use millrace_openflow::{ActionType, ErrorCode, InstructionType, OxmHeader, TableMod};
use millrace_pipeline::{
    ActionCapabilities, ControlConfig, EntryCapabilities, TableCapabilities, TableSet, TypeSet,
};
use millrace_types::TableId;

use super::replies::error_code;
use crate::control::BridgeControl;

/// Accepts a table_mod for a table that exists: version 1.3 defines nothing that it could change.
pub(super) fn table_mod<B: Backend>(bridge: &BridgeControl<B>, asked: TableMod) -> Result<(), ErrorCode> {
    if bridge.tables.has_table(asked.table) || asked.table == TableId::ALL {
        Ok(())
    } else {
        Err(ErrorCode::OFPTMFC_BAD_TABLE)
    }
}

/// Returns the features of every existing table: the features that a controller set, or else all that the
/// switch supports.
pub(crate) fn features<B: Backend>(bridge: &BridgeControl<B>) -> impl Iterator<Item = TableFeatures> + '_ {
    let tables = (0..bridge.tables.config().tables).map(TableId);
    tables
        .filter(|table| bridge.tables.has_table(*table))
        .map(move |table| {
            let capabilities = bridge
                .tables
                .table_capabilities(table)
                .copied()
                .unwrap_or_else(|| {
                    everything(table, bridge.tables.config(), |next| {
                        bridge.tables.has_table(next)
                    })
                });
            TableFeatures {
                table,
                // Controllers print the number of a table without a name.
                name: bridge.table_name(table).unwrap_or_default(),
                metadata_match: capabilities.metadata_match,
                metadata_write: capabilities.metadata_write,
                config: 0,
                max_entries: bridge.tables.max_entries(table),
                properties: properties(&capabilities),
            }
        })
}

/// Returns all capabilities that the switch supports in a table: every instruction, every action, every field
/// that the bridge permits in matches, and every later table that exists.
fn everything(table: TableId, config: &ControlConfig, exists: impl Fn(TableId) -> bool) -> TableCapabilities {
    let all = config.match_extensions;
    let fields = Field::ALL.into_iter();
    let matches: FieldSet = fields.filter(|field| all || !field.is_extension()).collect();
    let settable: FieldSet = Field::ALL
        .into_iter()
        .filter(|field| field.is_settable())
        .collect();
    let actions = ActionCapabilities {
        types: ActionType::ALL.iter().map(|type_| type_.raw()).collect(),
        set_fields: settable,
    };
    let next: Vec<TableId> = (0..=TableId::MAX.0)
        .map(TableId)
        .filter(|next| *next > table && exists(*next))
        .collect();
    // The last table has no later table to go to.
    let instructions = InstructionType::ALL
        .iter()
        .filter(|type_| !next.is_empty() || **type_ != InstructionType::GotoTable);
    let entries = EntryCapabilities {
        instructions: instructions.map(|type_| type_.raw()).collect(),
        next_tables: next.into_iter().collect(),
        write: actions,
        apply: actions,
    };
    TableCapabilities {
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        matches,
        maskable: matches
            .iter()
            .filter(|field| field.is_maskable_in_standard() || all && field.is_maskable())
            .collect(),
        optional: matches,
        entries,
        miss: entries,
    }
}

fn properties(capabilities: &TableCapabilities) -> Vec<Property> {
    use PropertyType as P;
    let instructions = |set: TypeSet| {
        let types = InstructionType::ALL.iter().copied();
        PropertyList::Instructions(types.filter(|type_| set.contains(type_.raw())).collect())
    };
    let tables = |entries: &EntryCapabilities| {
        let tables = (0..=TableId::MAX.0).map(TableId);
        PropertyList::Tables(
            tables
                .filter(|table| entries.next_tables.contains(*table))
                .collect(),
        )
    };
    let actions = |set: TypeSet| {
        let types = ActionType::ALL.iter().copied();
        PropertyList::Actions(types.filter(|type_| set.contains(type_.raw())).collect())
    };
    let TableCapabilities { entries, miss, .. } = capabilities;
    let lists = [
        (P::Instructions, instructions(entries.instructions)),
        (P::InstructionsMiss, instructions(miss.instructions)),
        (P::NextTables, tables(entries)),
        (P::NextTablesMiss, tables(miss)),
        (P::WriteActions, actions(entries.write.types)),
        (P::WriteActionsMiss, actions(miss.write.types)),
        (P::ApplyActions, actions(entries.apply.types)),
        (P::ApplyActionsMiss, actions(miss.apply.types)),
    ];
    let fields = [
        (P::Match, capabilities.matches, capabilities.maskable),
        (P::Wildcards, capabilities.optional, FieldSet::EMPTY),
        (P::WriteSetField, entries.write.set_fields, FieldSet::EMPTY),
        (P::WriteSetFieldMiss, miss.write.set_fields, FieldSet::EMPTY),
        (P::ApplySetField, entries.apply.set_fields, FieldSet::EMPTY),
        (P::ApplySetFieldMiss, miss.apply.set_fields, FieldSet::EMPTY),
    ];
    lists
        .into_iter()
        .map(|(type_, list)| Property { type_, list })
        .chain(
            fields
                .into_iter()
                .map(|(type_, fields, maskable)| Property::fields(type_, fields, maskable)),
        )
        .collect()
}

/// Sets the table features that a controller requests, all or none. The pipeline then has exactly these
/// tables with exactly these capabilities. A request without properties, as ovs-ofctl sends it, only names
/// tables.
///
/// # Errors
/// The code for the first feature that the switch does not have.
pub(crate) fn set_features<B: Backend>(
    bridge: &mut BridgeControl<B>,
    wanted: &[TableFeatures],
) -> Result<(), ErrorCode> {
    let tables = check_features(bridge, wanted)?;
    if wanted.iter().any(|table| !table.properties.is_empty()) {
        let is_wanted = |next: TableId| tables.contains(next);
        let pipeline = wanted
            .iter()
            .map(|table| {
                let all = everything(table.table, bridge.tables.config(), is_wanted);
                let capabilities = capabilities(table, all);
                (table.table, (capabilities != all).then_some(capabilities))
            })
            .collect();
        let now = bridge.datapath.now();
        bridge
            .tables
            .set_pipeline(pipeline, now, &mut bridge.ops)
            .map_err(|error| error_code(error.code()))?;
    }
    for table in wanted {
        bridge.table_names.insert(table.table, table.name.clone());
    }
    Ok(())
}

/// Returns the capabilities that a request asks for. A property that the request omits has its value from `all`.
/// An omitted property of the table-miss entry has the value of the same property of other entries.
fn capabilities(wanted: &TableFeatures, all: TableCapabilities) -> TableCapabilities {
    use PropertyType as P;
    let mut capabilities = TableCapabilities {
        metadata_match: wanted.metadata_match,
        metadata_write: wanted.metadata_write,
        ..all
    };
    let list = |type_| {
        let mut properties = wanted.properties.iter();
        properties
            .find(|property| property.type_ == type_)
            .map(|property| &property.list)
    };
    let types = |type_, otherwise: TypeSet| match list(type_) {
        Some(PropertyList::Instructions(types)) => types.iter().map(|type_| type_.raw()).collect(),
        Some(PropertyList::Actions(types)) => types.iter().map(|type_| type_.raw()).collect(),
        _ => otherwise,
    };
    let tables = |type_, otherwise| match list(type_) {
        Some(PropertyList::Tables(tables)) => tables.iter().copied().collect(),
        _ => otherwise,
    };
    let fields = |type_, otherwise: FieldSet| match list(type_) {
        Some(PropertyList::Fields(_)) => wanted.fields(type_).collect(),
        _ => otherwise,
    };
    let entries = EntryCapabilities {
        instructions: types(P::Instructions, all.entries.instructions),
        next_tables: tables(P::NextTables, all.entries.next_tables),
        write: ActionCapabilities {
            types: types(P::WriteActions, all.entries.write.types),
            set_fields: fields(P::WriteSetField, all.entries.write.set_fields),
        },
        apply: ActionCapabilities {
            types: types(P::ApplyActions, all.entries.apply.types),
            set_fields: fields(P::ApplySetField, all.entries.apply.set_fields),
        },
    };
    capabilities.miss = EntryCapabilities {
        instructions: types(P::InstructionsMiss, entries.instructions),
        next_tables: tables(P::NextTablesMiss, entries.next_tables),
        write: ActionCapabilities {
            types: types(P::WriteActionsMiss, entries.write.types),
            set_fields: fields(P::WriteSetFieldMiss, entries.write.set_fields),
        },
        apply: ActionCapabilities {
            types: types(P::ApplyActionsMiss, entries.apply.types),
            set_fields: fields(P::ApplySetFieldMiss, entries.apply.set_fields),
        },
    };
    capabilities.entries = entries;
    capabilities.matches = fields(P::Match, all.matches);
    if let Some(PropertyList::Fields(headers)) = list(P::Match) {
        let masked = headers.iter().filter(|header| header.has_mask);
        capabilities.maskable = masked.filter_map(OxmHeader::field).collect();
    }
    capabilities.optional = fields(P::Wildcards, capabilities.matches);
    capabilities
}

/// Checks that the switch supports the features in a request, and that the request names each table at most
/// once. Returns the tables.
fn check_features<B: Backend>(
    bridge: &BridgeControl<B>,
    wanted: &[TableFeatures],
) -> Result<TableSet, ErrorCode> {
    let config = bridge.tables.config();
    let mut tables = TableSet::default();
    for table in wanted {
        if table.table.0 >= config.tables || tables.contains(table.table) {
            return Err(ErrorCode::OFPTFFC_BAD_TABLE);
        }
        tables.insert(table.table);
        if table.max_entries > config.max_entries {
            return Err(ErrorCode::OFPTFFC_BAD_ARGUMENT);
        }
        let is_possible = |property: &Property| match &property.list {
            // Every table has every instruction and action of OpenFlow 1.3.
            PropertyList::Instructions(_) | PropertyList::Actions(_) => true,
            PropertyList::Tables(next) => next
                .iter()
                .all(|next| *next > table.table && next.0 < config.tables),
            PropertyList::Fields(headers) => headers.iter().all(|header| {
                let settable = !matches!(property.type_, PropertyType::Match | PropertyType::Wildcards);
                header.field().is_some_and(|field| {
                    let is_known = config.match_extensions || !field.is_extension();
                    is_known && (!settable || field.is_settable())
                })
            }),
        };
        if !table.properties.iter().all(is_possible) {
            return Err(ErrorCode::OFPTFFC_BAD_ARGUMENT);
        }
        let types = table.properties.iter().map(|property| property.type_);
        if types
            .enumerate()
            .any(|(at, type_)| table.properties[..at].iter().any(|before| before.type_ == type_))
        {
            return Err(ErrorCode::OFPTFFC_BAD_TYPE);
        }
    }
    Ok(tables)
}
