//! Requests to etcd and their answers, as values.

/// The number of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease(pub i64);

/// A selection of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// One key.
    One(String),
    /// All keys that begin with this text.
    Prefix(String),
}

impl Keys {
    /// Returns the first key.
    pub fn first(&self) -> &str {
        match self {
            Keys::One(key) | Keys::Prefix(key) => key,
        }
    }

    /// Returns the first key after those of a prefix; `None` for one key.
    pub fn end(&self) -> Option<Vec<u8>> {
        let Keys::Prefix(prefix) = self else {
            return None;
        };
        let mut end = prefix.as_bytes().to_vec();
        // A byte of UTF-8 is less than 255, so the last one has a successor.
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        Some(end)
    }
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    pub key: String,
    pub value: Vec<u8>,
    /// The revision of the store at which the key came to be. It differs after a key was deleted and made again.
    pub create_revision: u64,
    /// The revision of the store at which the value was written.
    pub mod_revision: u64,
}

/// Keys that were read, at one revision of the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// The cluster, in 16 hexadecimal digits.
    pub cluster: String,
    /// The revision of the store.
    pub revision: u64,
    /// The keys with their values, in order of keys.
    pub kvs: Vec<KeyValue>,
}

impl Read {
    /// Returns a key that was read.
    pub fn get(&self, key: &str) -> Option<&KeyValue> {
        self.kvs.iter().find(|kv| kv.key == key)
    }
}

/// A condition of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key came to be at this revision; 0: there is no such key.
    Created(String, u64),
    /// The value was written at this revision; 0: there is no such key.
    Modified(String, u64),
}

/// A write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Write a value, which goes with the lease if there is one.
    Put(String, Vec<u8>, Option<Lease>),
    /// Delete keys.
    Delete(Keys),
}

/// Writes that happen all or not at all, if all conditions hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Txn {
    pub compare: Vec<Compare>,
    pub ops: Vec<Op>,
}

/// The outcome of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxnDone {
    /// True if the conditions held, and the writes happened.
    pub succeeded: bool,
    /// The revision of the store afterwards: that of the writes, if they happened.
    pub revision: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_first_key_after_all_that_begin_with_it() {
        assert_eq!(Keys::Prefix("/m/".to_owned()).end(), Some(b"/m0".to_vec()));
        assert_eq!(Keys::One("/m/".to_owned()).end(), None);
    }
}
