//! Facts that IX-API clients store at the exchange and on which no switch depends: contacts, assignments of
//! roles, joining rules, route-server sessions, addresses that no end has yet, purchase orders. The store of
//! credentials holds the facts as JSON, and readers use a copy in memory. The model does not contain them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use millrace_ix_model::Timestamp;
use parking_lot::RwLock;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::idempotency::RequestMark;
use crate::session::{CredentialError, CredentialStore, parse, save_json};

/// The key prefix in the store.
const PREFIX: &str = "record/";
/// The property of a record that names the request that made it.
const ONCE: &str = "once";
/// The time for which a request can be repeated.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
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
    /// Held while records are written: a writer waits for the store, and readers read on meanwhile.
    writing: tokio::sync::Mutex<()>,
}

impl Records {
    /// Returns the records in the store.
    pub(crate) async fn load(store: Arc<dyn CredentialStore>) -> Result<Records, CredentialError> {
        let mut all = BTreeMap::new();
        for (key, value) in store.list(PREFIX).await? {
            all.insert(key.trim_start_matches(PREFIX).to_owned(), parse(&value)?);
        }
        Ok(Records {
            store,
            all: RwLock::new(all),
            writing: tokio::sync::Mutex::default(),
        })
    }

    /// Returns a record.
    pub(crate) fn find<T: Record>(&self, id: &str) -> Option<T> {
        let is_kind = id
            .strip_prefix(T::PREFIX)
            .is_some_and(|rest| rest.starts_with('-'));
        let value = self.all.read().get(id).filter(|_| is_kind).cloned()?;
        serde_json::from_value(value).ok()
    }

    /// Returns all records of a kind, in the order of their creation.
    pub(crate) fn all<T: Record>(&self) -> Vec<(String, T)> {
        let prefix = format!("{}-", T::PREFIX);
        let all = self.all.read();
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

    /// Adds a record and returns its identifier. A repeated request writes the record of its first execution
    /// again.
    pub(crate) async fn create<T: Record>(
        &self,
        record: &T,
        request: &RequestMark,
    ) -> Result<String, CredentialError> {
        let _writing = self.writing.lock().await;
        let mut value = to_value(record)?;
        let mut found = None;
        if let (Some(mark), Some(fields)) = (&request.mark, value.as_object_mut()) {
            found = self.marked(T::PREFIX, mark, request.now);
            fields.insert(
                ONCE.to_owned(),
                json!({ "mark": mark, "at": request.now.millis() }),
            );
        }
        let id = match found {
            Some(id) => id,
            None => {
                let number = self.all.read().get(LAST).and_then(Value::as_u64).unwrap_or(0) + 1;
                self.save(LAST, number.into()).await?;
                format!("{}-{number}", T::PREFIX)
            }
        };
        self.save(&id, value).await?;
        Ok(id)
    }

    /// Returns the identifier of the record of a kind that a request has created.
    fn marked(&self, prefix: &str, mark: &str, now: Timestamp) -> Option<String> {
        let prefix = format!("{prefix}-");
        let all = self.all.read();
        let mut own = all
            .range(prefix.clone()..)
            .take_while(|(id, _)| id.starts_with(&prefix));
        own.find(|(_, value)| is_marked(&value[ONCE], mark, now))
            .map(|(id, _)| id.clone())
    }

    /// Writes a record.
    pub(crate) async fn put<T: Serialize>(&self, id: &str, record: &T) -> Result<(), CredentialError> {
        let value = to_value(record)?;
        let _writing = self.writing.lock().await;
        self.save(id, value).await
    }

    /// Changes a record while nobody else does. Returns it changed; `None` if there is no such record.
    ///
    /// # Errors
    /// The error of `change`, which then leaves the record as it is, or of the store.
    pub(crate) async fn change<T: Record, E: From<CredentialError>>(
        &self,
        id: &str,
        change: impl FnOnce(&mut T) -> Result<(), E>,
    ) -> Result<Option<T>, E> {
        let _writing = self.writing.lock().await;
        let found = self.all.read().get(id).cloned();
        let Some(mut record) = found.and_then(|value| serde_json::from_value::<T>(value).ok()) else {
            return Ok(None);
        };
        change(&mut record)?;
        self.save(id, to_value(&record)?).await?;
        Ok(Some(record))
    }

    /// Removes a record.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), CredentialError> {
        let _writing = self.writing.lock().await;
        self.store.save(&format!("{PREFIX}{id}"), None).await?;
        self.all.write().remove(id);
        Ok(())
    }

    /// Writes a value to the store, and then for readers. The caller holds `writing`.
    async fn save(&self, id: &str, value: Value) -> Result<(), CredentialError> {
        save_json(&*self.store, &format!("{PREFIX}{id}"), &value).await?;
        self.all.write().insert(id.to_owned(), value);
        Ok(())
    }
}

fn to_value(record: &impl Serialize) -> Result<Value, CredentialError> {
    serde_json::to_value(record).map_err(|error| CredentialError {
        reason: error.to_string(),
        follows: None,
    })
}

/// Returns true if the request with this mark created the record, and its idempotency key has not expired.
fn is_marked(found: &Value, mark: &str, now: Timestamp) -> bool {
    let at = Timestamp::from_millis(found["at"].as_u64().unwrap_or(0));
    found["mark"] == mark && now.since(at) < LIFETIME
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::MemoryCredentials;
    use crate::session::ready;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Note {
        text: String,
    }

    impl Record for Note {
        const PREFIX: &'static str = "no";
    }

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Other(String);

    impl Record for Other {
        const PREFIX: &'static str = "ot";
    }

    fn note(text: &impl ToString) -> Note {
        Note {
            text: text.to_string(),
        }
    }

    fn request_mark(mark: Option<&str>, hours: u64) -> RequestMark {
        RequestMark {
            mark: mark.map(str::to_owned),
            now: Timestamp::from_secs(hours * 3600),
        }
    }

    #[test]
    fn records_outlive_a_restart_and_identifiers_are_not_used_twice() {
        let store: Arc<dyn CredentialStore> = Arc::new(MemoryCredentials::default());
        let records = ready(Records::load(Arc::clone(&store))).unwrap();
        for number in 1..=12 {
            let id = ready(records.create(&note(&number), &request_mark(None, 0))).unwrap();
            assert_eq!(id, format!("no-{number}"));
        }
        ready(records.delete("no-12")).unwrap();
        let again = ready(Records::load(store)).unwrap();
        let other = ready(again.create(&Other(String::new()), &request_mark(None, 0))).unwrap();
        assert_eq!(other, "ot-13");
        let texts: Vec<String> = again
            .all::<Note>()
            .into_iter()
            .map(|(_, note)| note.text)
            .collect();
        assert_eq!(texts, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"]);
        assert_eq!(again.find::<Note>("no-3"), Some(note(&3)));
        assert_eq!(again.find::<Note>("ot-13"), None);
        assert_eq!(again.find::<Note>("last"), None);
    }

    #[test]
    fn a_marked_record_is_made_once_in_24_hours_also_over_a_restart() {
        let store: Arc<dyn CredentialStore> = Arc::new(MemoryCredentials::default());
        let create = |mark: Option<&str>, hours: u64| {
            let records = ready(Records::load(Arc::clone(&store))).unwrap();
            ready(records.create(&note(&"x"), &request_mark(mark, hours))).unwrap()
        };
        assert_eq!(create(Some("a"), 0), "no-1");
        assert_eq!(create(Some("a"), 23), "no-1");
        assert_eq!(create(Some("b"), 23), "no-2");
        assert_eq!(create(None, 23), "no-3");
        assert_eq!(create(Some("a"), 48), "no-4");
    }
}
