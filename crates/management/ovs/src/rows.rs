//! Columns of a row by type. The schema of the server guarantees the types; a value of another type counts as unset, and a
//! column that an older schema lacks, too.

use std::collections::BTreeMap;

use millrace_ovsdb::{Atom, Datum, Replica, Row, Uuid};

use crate::fault::RowName;

/// Returns a row with these columns.
pub(crate) fn row<const N: usize>(columns: [(&str, Datum); N]) -> Row {
    columns
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// A row of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) table: &'static str,
    pub(crate) uuid: Uuid,
    row: &'a Row,
}

impl<'a> View<'a> {
    /// Returns the row; `None` if the replica does not have it.
    pub(crate) fn of(replica: &'a Replica, table: &'static str, uuid: Uuid) -> Option<View<'a>> {
        let row = replica.row(table, uuid)?;
        Some(View { table, uuid, row })
    }

    /// Returns the rows that a column refers to, in the order of their names: a set has that of its UUIDs, which are random, and
    /// the numbers of ports would differ between two databases with the same rows.
    pub(crate) fn refer(&self, replica: &'a Replica, column: &str, table: &'static str) -> Vec<View<'a>> {
        let uuids = self.atoms(column).filter_map(|atom| match atom {
            Atom::Uuid(uuid) => Some(*uuid),
            _ => None,
        });
        let mut rows: Vec<_> = uuids.filter_map(|uuid| View::of(replica, table, uuid)).collect();
        rows.sort_by_key(View::name);
        rows
    }

    /// Returns the rows that the values of a map from integers refer to.
    pub(crate) fn numbered(
        &self,
        replica: &'a Replica,
        column: &str,
        table: &'static str,
    ) -> Vec<(i64, View<'a>)> {
        let Some(Datum::Map(pairs)) = self.row.get(column) else {
            return Vec::new();
        };
        let pair = |(key, value): (&Atom, &Atom)| match (key, value) {
            (Atom::Integer(number), Atom::Uuid(uuid)) => Some((*number, View::of(replica, table, *uuid)?)),
            _ => None,
        };
        pairs.iter().filter_map(pair).collect()
    }

    fn atoms(&self, column: &str) -> impl Iterator<Item = &'a Atom> + use<'a> {
        let set = match self.row.get(column) {
            Some(Datum::Set(atoms)) => Some(atoms),
            _ => None,
        };
        set.into_iter().flatten()
    }

    /// Returns true if the column has a value.
    pub(crate) fn has(&self, column: &str) -> bool {
        match self.row.get(column) {
            Some(Datum::Set(atoms)) => !atoms.is_empty(),
            Some(Datum::Map(pairs)) => !pairs.is_empty(),
            None => false,
        }
    }

    /// Returns true if the column has a value that is not the default: no zero, no false and no empty text.
    pub(crate) fn is_set(&self, column: &str) -> bool {
        match self.row.get(column) {
            Some(Datum::Map(pairs)) => !pairs.is_empty(),
            Some(Datum::Set(atoms)) => atoms.iter().any(|atom| match atom {
                Atom::Integer(value) => *value != 0,
                Atom::Real(value) => *value != 0.0,
                Atom::Boolean(value) => *value,
                Atom::Text(text) | Atom::Named(text) => !text.is_empty(),
                Atom::Uuid(_) => true,
            }),
            None => false,
        }
    }

    /// Returns the text; an empty one counts as unset.
    pub(crate) fn text(&self, column: &str) -> Option<&'a str> {
        self.texts(column).next().filter(|text| !text.is_empty())
    }

    pub(crate) fn texts(&self, column: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.atoms(column).filter_map(|atom| match atom {
            Atom::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    pub(crate) fn integer(&self, column: &str) -> Option<i64> {
        self.integers(column).next()
    }

    pub(crate) fn integers(&self, column: &str) -> impl Iterator<Item = i64> + use<'a> {
        self.atoms(column).filter_map(|atom| match atom {
            Atom::Integer(value) => Some(*value),
            _ => None,
        })
    }

    pub(crate) fn is_true(&self, column: &str) -> bool {
        self.boolean(column) == Some(true)
    }

    pub(crate) fn boolean(&self, column: &str) -> Option<bool> {
        self.atoms(column).find_map(|atom| match atom {
            Atom::Boolean(value) => Some(*value),
            _ => None,
        })
    }

    /// Returns the pairs of a map of texts.
    pub(crate) fn map(&self, column: &str) -> BTreeMap<&'a str, &'a str> {
        let Some(Datum::Map(pairs)) = self.row.get(column) else {
            return BTreeMap::new();
        };
        let pair = |(key, value): (&'a Atom, &'a Atom)| match (key, value) {
            (Atom::Text(key), Atom::Text(value)) => Some((key.as_str(), value.as_str())),
            _ => None,
        };
        pairs.iter().filter_map(pair).collect()
    }

    /// Returns the name of the row for messages.
    pub(crate) fn row_name(&self) -> RowName {
        self.named(self.name())
    }

    /// Returns the name, or the target of a row that has none, as a controller.
    fn name(&self) -> &'a str {
        self.text("name").or_else(|| self.text("target")).unwrap_or("")
    }

    /// Returns the name of a row that has no name of its own.
    pub(crate) fn named(&self, name: &str) -> RowName {
        RowName {
            table: self.table,
            uuid: self.uuid,
            name: name.to_owned(),
        }
    }
}
