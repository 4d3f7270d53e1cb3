//! The rows of a database that commands change, and the line that wrote each.

use std::collections::BTreeMap;

use millrace_ovsdb::{Atom, Datum, Replica, Row, Uuid};

use super::schema::{self, Type};

/// The name of the table with one row.
pub(super) const ROOT: &str = "Open_vSwitch";

/// The rows of a database.
#[derive(Debug, Clone, Default)]
pub(super) struct Database {
    pub(super) replica: Replica,
    /// The line of a script that wrote the row last.
    lines: BTreeMap<Uuid, usize>,
    /// The number of the row that was made last.
    last: u128,
    /// The line of the script that is executed.
    pub(super) line: usize,
}

impl Database {
    /// Returns a database with the root row, as `ovs-vsctl init` leaves it.
    pub(super) fn new() -> Database {
        let mut database = Database::default();
        database.create(ROOT, Row::new());
        database
    }

    /// Returns true if there is no bridge.
    pub(super) fn is_empty(&self) -> bool {
        self.replica.rows("Bridge").next().is_none()
    }

    /// Returns the place of a row for findings.
    pub(super) fn place(&self, name: &str, row: Uuid) -> String {
        match self.lines.get(&row) {
            Some(line) => format!("{name}:{line}"),
            None => name.to_owned(),
        }
    }

    /// Adds a row.
    pub(super) fn create(&mut self, table: &str, row: Row) -> Uuid {
        self.last += 1;
        let uuid = Uuid::from_u128(self.last);
        self.put(table, uuid, row);
        uuid
    }

    /// Adds or replaces a row.
    pub(super) fn put(&mut self, table: &str, uuid: Uuid, row: Row) {
        if self.line > 0 {
            self.lines.insert(uuid, self.line);
        }
        self.replica.insert(table, uuid, row);
    }

    pub(super) fn root(&self) -> Option<Uuid> {
        self.replica.rows(ROOT).next().map(|(uuid, _)| uuid)
    }

    /// Sets a column.
    pub(super) fn set(&mut self, table: &str, uuid: Uuid, column: &str, value: Datum) {
        let mut row = self.replica.row(table, uuid).cloned().unwrap_or_default();
        row.insert(column.to_owned(), value);
        self.put(table, uuid, row);
    }

    /// Returns a column; an empty set if it has no value.
    pub(super) fn column(&self, table: &str, uuid: Uuid, column: &str) -> Datum {
        let row = self.replica.row(table, uuid);
        row.and_then(|row| row.get(column))
            .cloned()
            .unwrap_or_else(|| Datum::Set(Default::default()))
    }

    /// Returns the text of a column.
    pub(super) fn text(&self, table: &str, uuid: Uuid, column: &str) -> Option<String> {
        match self.column(table, uuid, column) {
            Datum::Set(atoms) => atoms.into_iter().find_map(|atom| match atom {
                Atom::Text(text) => Some(text),
                _ => None,
            }),
            Datum::Map(_) => None,
        }
    }

    /// Returns the rows that a column refers to.
    pub(super) fn refers(&self, table: &str, uuid: Uuid, column: &str) -> Vec<Uuid> {
        references(&self.column(table, uuid, column))
    }

    /// Adds a reference to a set.
    pub(super) fn add_reference(&mut self, table: &str, uuid: Uuid, column: &str, to: Uuid) {
        let mut rows = self.refers(table, uuid, column);
        rows.push(to);
        self.refer(table, uuid, column, Datum::set(rows));
    }

    /// Sets a column of references. The line of a row is that of its settings, and not that of a port in a bridge.
    fn refer(&mut self, table: &str, uuid: Uuid, column: &str, value: Datum) {
        let line = std::mem::take(&mut self.line);
        self.set(table, uuid, column, value);
        self.line = line;
    }

    /// Returns the row of a table whose text column has this value.
    pub(super) fn find(&self, table: &str, column: &str, value: &str) -> Option<Uuid> {
        let has_value = |row: &Row| match row.get(column) {
            Some(Datum::Set(atoms)) => atoms
                .iter()
                .any(|atom| matches!(atom, Atom::Text(text) if text == value)),
            _ => false,
        };
        self.replica
            .rows(table)
            .find(|(_, row)| has_value(row))
            .map(|(uuid, _)| uuid)
    }

    /// Removes a row, and the references to it.
    pub(super) fn remove(&mut self, table: &str, uuid: Uuid) {
        self.replica.remove(table, uuid);
        let holders: Vec<_> = schema::references_to(table)
            .flat_map(|(holder, column)| {
                self.replica
                    .rows(holder)
                    .map(move |(row, _)| (holder, row, column))
            })
            .collect();
        for (holder, row, column) in holders {
            let value = self.column(holder, row, column);
            if references(&value).contains(&uuid) {
                let without = match value {
                    Datum::Set(atoms) => Datum::Set(
                        atoms
                            .into_iter()
                            .filter(|atom| *atom != Atom::Uuid(uuid))
                            .collect(),
                    ),
                    Datum::Map(pairs) => Datum::Map(
                        pairs
                            .into_iter()
                            .filter(|(_, value)| *value != Atom::Uuid(uuid))
                            .collect(),
                    ),
                };
                self.refer(holder, row, column, without);
            }
        }
    }

    /// Removes the rows that no row refers to, in tables whose rows exist only as parts of others (RFC 7047, section 3.2,
    /// `isRoot`).
    pub(super) fn collect_garbage(&mut self) {
        loop {
            let referred: std::collections::BTreeSet<Uuid> = schema::TABLES
                .iter()
                .flat_map(|table| {
                    let columns = table
                        .columns
                        .iter()
                        .filter(|column| matches!(column.stored(), Type::Uuid(_)) && !column.is_weak);
                    columns.flat_map(|column| {
                        self.replica
                            .rows(table.name)
                            .filter_map(|(_, row)| row.get(column.name))
                            .flat_map(references)
                    })
                })
                .collect();
            let garbage: Vec<_> = schema::TABLES
                .iter()
                .filter(|table| !table.is_root)
                .flat_map(|table| self.replica.rows(table.name).map(|(uuid, _)| (table.name, uuid)))
                .filter(|(_, uuid)| !referred.contains(uuid))
                .collect();
            if garbage.is_empty() {
                return;
            }
            for (table, uuid) in garbage {
                self.remove(table, uuid);
            }
        }
    }
}

/// Returns the rows that a value refers to.
pub(super) fn references(value: &Datum) -> Vec<Uuid> {
    let uuid = |atom: &Atom| match atom {
        Atom::Uuid(uuid) => Some(*uuid),
        _ => None,
    };
    match value {
        Datum::Set(atoms) => atoms.iter().filter_map(uuid).collect(),
        Datum::Map(pairs) => pairs.values().filter_map(uuid).collect(),
    }
}
