//! Changes of columns: `set`, `add` and `remove` of ovs-vsctl(8).

use std::collections::BTreeMap;

use millrace_ovsdb::{Atom, Datum, Uuid};

use super::commands::Call;
use super::rows;
use super::schema::{Column, Table, Type};
use super::value;

impl Call<'_> {
    pub(super) fn on_rows(
        &mut self,
        table: &str,
        record: &str,
        if_exists: bool,
        change: impl Fn(&mut Self, &'static Table, Uuid) -> Result<(), String>,
    ) -> Result<(), String> {
        let table = rows::table(table)?;
        match rows::row(self.database, &self.named, table, record) {
            Err(_) if if_exists => Ok(()),
            row => change(self, table, row?),
        }
    }

    pub(super) fn pairs(&self, table: &str, row: Uuid, column: &str) -> BTreeMap<Atom, Atom> {
        match self.database.column(table, row, column) {
            Datum::Map(pairs) => pairs,
            Datum::Set(_) => BTreeMap::new(),
        }
    }

    fn datum(&self, column: &Column, text: &str) -> Result<Datum, String> {
        value::datum(text, column, &|table, text| {
            rows::row(self.database, &self.named, rows::table(table)?, text)
        })
    }

    fn atom(&self, text: &str, kind: Type) -> Result<Atom, String> {
        value::atom(text, kind, &|table, text| {
            rows::row(self.database, &self.named, rows::table(table)?, text)
        })
    }

    /// Executes `COLUMN[:KEY]=VALUE`.
    pub(super) fn set(&mut self, table: &'static Table, row: Uuid, setting: &str) -> Result<(), String> {
        let form = || format!("{setting}: expected COLUMN=VALUE or COLUMN:KEY=VALUE");
        let name_end = setting.find([':', '=']).ok_or_else(form)?;
        let (name, rest) = setting.split_at(name_end);
        let column = rows::column(table, name)?;
        if column.is_state {
            return Err(format!("{name}: a column that Open vSwitch writes"));
        }
        if let Some(text) = rest.strip_prefix('=') {
            if text.is_empty() {
                return Err(form());
            }
            let value = self.datum(column, text)?;
            self.database.set(table.name, row, column.name, value);
            return Ok(());
        }
        let Some(kind) = column.value else {
            return Err(format!(
                "{setting}: {} has no keys: expected COLUMN=VALUE",
                column.name
            ));
        };
        let pair = &rest[1..];
        let key_end = match pair.strip_prefix('"').and_then(|rest| rest.find('"')) {
            Some(end) => end + 2,
            None => pair.find('=').ok_or_else(form)?,
        };
        let (key, text) = pair.split_at_checked(key_end).ok_or_else(form)?;
        let text = text
            .strip_prefix('=')
            .filter(|text| !text.is_empty())
            .ok_or_else(form)?;
        let (key, value) = (self.atom(key, column.key)?, self.atom(text, kind)?);
        let mut pairs = self.pairs(table.name, row, column.name);
        pairs.insert(key, value);
        self.database.set(table.name, row, column.name, Datum::Map(pairs));
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        table: &'static Table,
        row: Uuid,
        column: &Column,
        text: &str,
    ) -> Result<(), String> {
        let value = match (
            self.database.column(table.name, row, column.name),
            self.datum(column, text)?,
        ) {
            (Datum::Set(mut atoms), Datum::Set(more)) => {
                atoms.extend(more);
                if atoms.len() > column.max {
                    return Err(format!("{}: expected at most {} values", column.name, column.max));
                }
                Datum::Set(atoms)
            }
            (Datum::Map(mut pairs), Datum::Map(more)) => {
                // `add` does not replace the value of a key.
                for (key, value) in more {
                    pairs.entry(key).or_insert(value);
                }
                Datum::Map(pairs)
            }
            (_, more) => more,
        };
        self.database.set(table.name, row, column.name, value);
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        table: &'static Table,
        row: Uuid,
        column: &Column,
        text: &str,
    ) -> Result<(), String> {
        let value = match self.database.column(table.name, row, column.name) {
            Datum::Map(mut pairs) => {
                match column.value.filter(|_| text.contains('=')) {
                    Some(_) => {
                        if let Datum::Map(gone) = self.datum(column, text)? {
                            pairs.retain(|key, value| gone.get(key) != Some(value));
                        }
                    }
                    None => {
                        let key = self.atom(text, column.key)?;
                        pairs.remove(&key);
                    }
                }
                Datum::Map(pairs)
            }
            Datum::Set(mut atoms) if column.value.is_none() => {
                if let Datum::Set(gone) = self.datum(column, text)? {
                    atoms.retain(|atom| !gone.contains(atom));
                }
                Datum::Set(atoms)
            }
            unset @ Datum::Set(_) => unset,
        };
        self.database.set(table.name, row, column.name, value);
        Ok(())
    }
}
