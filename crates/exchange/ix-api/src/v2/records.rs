//! Facts that IX-API clients keep at the exchange and that no switch depends on: contacts, who has which role, joining rules,
//! route-server sessions, addresses that no end has yet, purchase orders. They are JSON in the store of credentials, and
//! in memory for readers; the model knows nothing of them.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::session::{CredentialError, CredentialStore, parse, save_json};

/// The key prefix in the store.
const PREFIX: &str = "record/";
/// The record that holds the number of the last identifier.
const LAST: &str = "last";

/// A kind of record.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// The prefix of identifiers: `ct` for `ct-7`.
    const PREFIX: &'static str;
}

/// All records.
pub(crate) struct Records {
    store: Arc<dyn CredentialStore>,
    all: RwLock<BTreeMap<String, Value>>,
}

impl Records {
    /// Returns the records in the store.
    pub(crate) fn load(store: Arc<dyn CredentialStore>) -> Result<Records, CredentialError> {
        let mut all = BTreeMap::new();
        for (key, value) in store.list(PREFIX)? {
            all.insert(key.trim_start_matches(PREFIX).to_owned(), parse(&value)?);
        }
        Ok(Records {
            store,
            all: RwLock::new(all),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Value>> {
        self.all.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Value>> {
        self.all
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns a record.
    pub(crate) fn find<T: Record>(&self, id: &str) -> Option<T> {
        let is_kind = id
            .strip_prefix(T::PREFIX)
            .is_some_and(|rest| rest.starts_with('-'));
        let value = self.read().get(id).filter(|_| is_kind).cloned()?;
        serde_json::from_value(value).ok()
    }

    /// Returns all records of a kind, in the order of their creation.
    pub(crate) fn all<T: Record>(&self) -> Vec<(String, T)> {
        let prefix = format!("{}-", T::PREFIX);
        let all = self.read();
        let mut found: Vec<(String, T)> = all
            .range(prefix.clone()..)
            .take_while(|(id, _)| id.starts_with(&prefix))
            .filter_map(|(id, value)| Some((id.clone(), serde_json::from_value(value.clone()).ok()?)))
            .collect();
        found.sort_by_key(|(id, _)| {
            id.rsplit('-')
                .next()
                .and_then(|number| number.parse::<u64>().ok())
        });
        found
    }

    /// Adds a record under a new identifier.
    pub(crate) fn create<T: Record>(&self, record: &T) -> Result<String, CredentialError> {
        let mut all = self.write();
        let number = all.get(LAST).and_then(Value::as_u64).unwrap_or(0) + 1;
        self.save(&mut all, LAST, &number)?;
        let id = format!("{}-{number}", T::PREFIX);
        self.save(&mut all, &id, record)?;
        Ok(id)
    }

    /// Writes a record.
    pub(crate) fn put<T: Serialize>(&self, id: &str, record: &T) -> Result<(), CredentialError> {
        self.save(&mut self.write(), id, record)
    }

    /// Removes a record.
    pub(crate) fn delete(&self, id: &str) -> Result<(), CredentialError> {
        let mut all = self.write();
        self.store.save(&format!("{PREFIX}{id}"), None)?;
        all.remove(id);
        Ok(())
    }

    fn save<T: Serialize>(
        &self,
        all: &mut BTreeMap<String, Value>,
        id: &str,
        record: &T,
    ) -> Result<(), CredentialError> {
        let value = serde_json::to_value(record).map_err(|error| CredentialError {
            reason: error.to_string(),
        })?;
        save_json(&*self.store, &format!("{PREFIX}{id}"), &value)?;
        all.insert(id.to_owned(), value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::MemoryCredentials;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Note(String);

    impl Record for Note {
        const PREFIX: &'static str = "no";
    }

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Other(String);

    impl Record for Other {
        const PREFIX: &'static str = "ot";
    }

    #[test]
    fn records_outlive_a_restart_and_identifiers_are_not_used_twice() {
        let store: Arc<dyn CredentialStore> = Arc::new(MemoryCredentials::default());
        let records = Records::load(Arc::clone(&store)).unwrap();
        for number in 1..=12 {
            assert_eq!(
                records.create(&Note(number.to_string())).unwrap(),
                format!("no-{number}")
            );
        }
        records.delete("no-12").unwrap();
        let again = Records::load(store).unwrap();
        assert_eq!(again.create(&Other(String::new())).unwrap(), "ot-13");
        let texts: Vec<String> = again.all::<Note>().into_iter().map(|(_, note)| note.0).collect();
        assert_eq!(texts, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"]);
        assert_eq!(again.find::<Note>("no-3"), Some(Note("3".to_owned())));
        assert_eq!(again.find::<Note>("ot-13"), None);
        assert_eq!(again.find::<Note>("last"), None);
    }
}
