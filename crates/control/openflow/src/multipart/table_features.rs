//! TABLE_FEATURES: the capabilities of tables (OpenFlow 1.3.5, section 7.3.5.5). A request without a body
//! reads them; a request with a body sets them.

use millrace_flow::{Field, FieldSet, OxmId};
use millrace_types::TableId;

use super::{MultipartType, ReplyPart};
use crate::action::ActionType;
use crate::bytes::{PutBytes, Reader};
use crate::codes::wire_enum;
use crate::decode_error::DecodeError;
use crate::instruction::InstructionType;
use crate::oxm::OxmHeader;

wire_enum! {
    /// `ofp_table_feature_prop_type`, without the types of experimenters.
    PropertyType(u16) {
        /// Instructions of entries.
        Instructions = 0 "instructions",
        /// Instructions of the table-miss entry.
        InstructionsMiss = 1 "instructions_miss",
        /// Tables that entries can go to.
        NextTables = 2 "next_tables",
        /// Tables that the table-miss entry can go to.
        NextTablesMiss = 3 "next_tables_miss",
        /// Actions that entries can write.
        WriteActions = 4 "write_actions",
        /// Actions that the table-miss entry can write.
        WriteActionsMiss = 5 "write_actions_miss",
        /// Actions that entries can apply.
        ApplyActions = 6 "apply_actions",
        /// Actions that the table-miss entry can apply.
        ApplyActionsMiss = 7 "apply_actions_miss",
        /// Fields that entries can match.
        Match = 8 "match",
        /// Fields that entries can leave out.
        Wildcards = 10 "wildcards",
        /// Fields that entries can set in the action set.
        WriteSetField = 12 "write_setfield",
        /// Fields that the table-miss entry can set in the action set.
        WriteSetFieldMiss = 13 "write_setfield_miss",
        /// Fields that entries can set at once.
        ApplySetField = 14 "apply_setfield",
        /// Fields that the table-miss entry can set at once.
        ApplySetFieldMiss = 15 "apply_setfield_miss",
    }
}

/// `OFPTFPT_EXPERIMENTER` and `OFPTFPT_EXPERIMENTER_MISS`.
const EXPERIMENTERS: [u16; 2] = [0xfffe, 0xffff];

/// The list in a property.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum PropertyList {
    /// Types of instructions.
    Instructions(Vec<InstructionType>),
    Tables(Vec<TableId>),
    /// Types of actions.
    Actions(Vec<ActionType>),
    /// Fields; the mask bit is set for a field that can be masked.
    Fields(Vec<OxmHeader>),
}

/// One property of a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Property {
    /// The type of the property.
    pub type_: PropertyType,
    /// The list of the property.
    pub list: PropertyList,
}

impl Property {
    /// Returns a property that lists `fields`. The fields in `maskable` have the mask bit.
    pub fn fields(type_: PropertyType, fields: FieldSet, maskable: FieldSet) -> Property {
        let headers = fields
            .iter()
            .map(|field| OxmHeader {
                has_mask: maskable.contains(field),
                ..OxmHeader::of(field, false)
            })
            .collect();
        Property {
            type_,
            list: PropertyList::Fields(headers),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Option<Property>, DecodeError> {
        let bad_length = |_| DecodeError::TableFeatureLength;
        let type_ = reader.u16().map_err(bad_length)?;
        let length = usize::from(reader.u16().map_err(bad_length)?);
        let rest = length.checked_sub(4).ok_or(DecodeError::TableFeatureLength)?;
        let mut body = Reader::new(reader.take(rest).map_err(bad_length)?);
        reader
            .skip(length.next_multiple_of(8) - length)
            .map_err(bad_length)?;
        if EXPERIMENTERS.contains(&type_) {
            return Ok(None);
        }
        let type_ = PropertyType::from_raw(type_).ok_or(DecodeError::TableFeatureType { type_ })?;
        let list = match type_ {
            PropertyType::Instructions | PropertyType::InstructionsMiss => {
                PropertyList::Instructions(decode_ids(&mut body, InstructionType::from_raw)?)
            }
            PropertyType::NextTables | PropertyType::NextTablesMiss => {
                PropertyList::Tables(body.drain().iter().map(|table| TableId(*table)).collect())
            }
            PropertyType::WriteActions
            | PropertyType::WriteActionsMiss
            | PropertyType::ApplyActions
            | PropertyType::ApplyActionsMiss => {
                PropertyList::Actions(decode_ids(&mut body, ActionType::from_raw)?)
            }
            _ => PropertyList::Fields(decode_fields(&mut body)?),
        };
        Ok(Some(Property { type_, list }))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(self.type_.raw());
        out.u16(0);
        match &self.list {
            PropertyList::Instructions(types) => {
                for type_ in types {
                    out.u16(type_.raw());
                    out.u16(4);
                }
            }
            PropertyList::Tables(tables) => tables.iter().for_each(|table| out.u8(table.0)),
            PropertyList::Actions(types) => {
                for type_ in types {
                    out.u16(type_.raw());
                    out.u16(4);
                }
            }
            PropertyList::Fields(headers) => headers.iter().for_each(|header| header.encode(out)),
        }
        out.length_at(start + 2, start);
        out.pad_from(start);
    }
}

/// Reads a list of instruction or action headers (type and length, four bytes). Skips those of experimenters, which are
/// longer.
fn decode_ids<T>(body: &mut Reader<'_>, from_raw: impl Fn(u16) -> Option<T>) -> Result<Vec<T>, DecodeError> {
    let bad_length = |_| DecodeError::TableFeatureLength;
    let mut types = Vec::new();
    while !body.is_empty() {
        let type_ = body.u16().map_err(bad_length)?;
        let length = usize::from(body.u16().map_err(bad_length)?);
        let rest = length.checked_sub(4).ok_or(DecodeError::TableFeatureLength)?;
        body.skip(rest).map_err(bad_length)?;
        if type_ == crate::action::EXPERIMENTER {
            continue;
        }
        types.push(from_raw(type_).ok_or(DecodeError::TableFeatureArgument)?);
    }
    Ok(types)
}

/// Reads OXM headers without values. Skips unknown fields of experimenters.
fn decode_fields(body: &mut Reader<'_>) -> Result<Vec<OxmHeader>, DecodeError> {
    let bad_length = |_| DecodeError::TableFeatureLength;
    let mut headers = Vec::new();
    while !body.is_empty() {
        let header = OxmHeader::decode(body).map_err(bad_length)?;
        if header.id.class != OxmId::EXPERIMENTER || header.field().is_some() {
            headers.push(header);
        }
    }
    Ok(headers)
}

/// `ofp_table_features`: one table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TableFeatures {
    pub table: TableId,
    /// The name of the table, at most 31 bytes.
    pub name: String,
    /// Metadata bits that entries can match.
    pub metadata_match: u64,
    /// Metadata bits that entries can write.
    pub metadata_write: u64,
    /// `OFPTC_*`; version 1.3 defines only bits 0 and 1, as deprecated.
    pub config: u32,
    /// The maximum number of entries.
    pub max_entries: u32,
    /// The properties, without properties of experimenters.
    pub properties: Vec<Property>,
}

/// Size of the part before the properties, in bytes.
const FIXED_SIZE: usize = 64;

impl TableFeatures {
    /// Returns the known fields in the properties of this type.
    pub fn fields(&self, type_: PropertyType) -> impl Iterator<Item = Field> + '_ {
        self.properties
            .iter()
            .filter(move |property| property.type_ == type_)
            .filter_map(|property| match &property.list {
                PropertyList::Fields(headers) => Some(headers),
                _ => None,
            })
            .flatten()
            .filter_map(OxmHeader::field)
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<TableFeatures, DecodeError> {
        let length = usize::from(reader.u16()?);
        if length < FIXED_SIZE {
            return Err(DecodeError::TableFeatureLength);
        }
        let mut body = Reader::new(
            reader
                .take(length - 2)
                .map_err(|_| DecodeError::TableFeatureLength)?,
        );
        let table = TableId(body.u8()?);
        body.skip(5)?;
        let mut features = TableFeatures {
            table,
            name: body.text(32)?,
            metadata_match: body.u64()?,
            metadata_write: body.u64()?,
            config: body.u32()?,
            max_entries: body.u32()?,
            properties: Vec::new(),
        };
        while !body.is_empty() {
            features.properties.extend(Property::decode(&mut body)?);
        }
        Ok(features)
    }
}

impl ReplyPart for TableFeatures {
    const TYPE: MultipartType = MultipartType::TableFeatures;

    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.u16(0);
        out.u8(self.table.0);
        out.zeros(5);
        out.text(&self.name, 32);
        out.u64(self.metadata_match);
        out.u64(self.metadata_write);
        out.u32(self.config);
        out.u32(self.max_entries);
        for property in &self.properties {
            property.encode(out);
        }
        out.length_at(start, start);
    }
}
