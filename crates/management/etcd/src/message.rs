//! The JSON of the gateway: bytes in Base64, numbers of 64 bits as text, values of zero left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::{Map, Value as Json, json};

use crate::types::{Compare, KeyValue, Keys, Lease, Op, Read, Txn, TxnDone};

fn coded(bytes: impl AsRef<[u8]>) -> Json {
    Json::String(STANDARD.encode(bytes))
}

fn select(keys: &Keys) -> Map<String, Json> {
    let mut body = Map::from_iter([("key".to_owned(), coded(keys.first()))]);
    if let Some(end) = keys.end() {
        body.insert("range_end".to_owned(), coded(end));
    }
    body
}

/// Returns a transaction that reads selections of keys at one revision.
pub(crate) fn read(selections: &[Keys], values: bool) -> Json {
    let range = |keys: &Keys| {
        let mut body = select(keys);
        if !values {
            body.insert("keys_only".to_owned(), Json::Bool(true));
        }
        json!({ "request_range": body })
    };
    json!({ "success": selections.iter().map(range).collect::<Vec<_>>() })
}

/// Returns the request of a transaction.
pub(crate) fn txn(txn: &Txn) -> Json {
    let compare = |compare: &Compare| match compare {
        Compare::Created(key, revision) => json!({
            "target": "CREATE", "result": "EQUAL", "key": coded(key), "create_revision": revision.to_string(),
        }),
        Compare::Modified(key, revision) => json!({
            "target": "MOD", "result": "EQUAL", "key": coded(key), "mod_revision": revision.to_string(),
        }),
    };
    let op = |op: &Op| match op {
        Op::Put(key, value, lease) => {
            let mut body = json!({ "key": coded(key), "value": coded(value) });
            if let (Some(Lease(lease)), Json::Object(body)) = (lease, &mut body) {
                body.insert("lease".to_owned(), Json::String(lease.to_string()));
            }
            json!({ "request_put": body })
        }
        Op::Delete(keys) => json!({ "request_delete_range": select(keys) }),
    };
    json!({
        "compare": txn.compare.iter().map(compare).collect::<Vec<_>>(),
        "success": txn.ops.iter().map(op).collect::<Vec<_>>(),
    })
}

/// Returns the request of a watch.
pub(crate) fn watch(keys: &Keys, from: u64) -> Json {
    let mut body = select(keys);
    body.insert("start_revision".to_owned(), Json::String(from.to_string()));
    json!({ "create_request": body })
}

/// A number that the gateway writes as text, and other encoders as a number.
fn number<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: std::str::FromStr + Deserialize<'de>,
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either<'a, T> {
        Text(std::borrow::Cow<'a, str>),
        Number(T),
    }
    match Either::<T>::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(|_| D::Error::custom("expected a number")),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    STANDARD
        .decode(text.as_bytes())
        .map_err(|_| D::Error::custom("expected Base64"))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Header {
    #[serde(deserialize_with = "number")]
    pub(crate) cluster_id: u64,
    #[serde(deserialize_with = "number")]
    pub(crate) revision: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Kv {
    #[serde(deserialize_with = "bytes")]
    key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    create_revision: u64,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Range {
    kvs: Vec<Kv>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TxnResponse {
    header: Header,
    succeeded: bool,
    responses: Vec<OpResponse>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OpResponse {
    response_range: Option<Range>,
}

/// Returns the answer to a transaction that reads.
///
/// # Errors
/// The text is not an answer of etcd.
pub fn read_answer(text: &str) -> Result<Read, serde_json::Error> {
    let answer: TxnResponse = serde_json::from_str(text)?;
    let kvs = answer
        .responses
        .into_iter()
        .filter_map(|one| one.response_range)
        .flat_map(|range| range.kvs);
    let kv = |kv: Kv| KeyValue {
        // Keys of others need not be text; ours are.
        key: String::from_utf8_lossy(&kv.key).into_owned(),
        value: kv.value,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
    };
    Ok(Read {
        cluster: format!("{:016x}", answer.header.cluster_id),
        revision: answer.header.revision,
        kvs: kvs.map(kv).collect(),
    })
}

/// Returns the answer to a transaction that writes.
///
/// # Errors
/// The text is not an answer of etcd.
pub fn txn_answer(text: &str) -> Result<TxnDone, serde_json::Error> {
    let answer: TxnResponse = serde_json::from_str(text)?;
    Ok(TxnDone {
        succeeded: answer.succeeded,
        revision: answer.header.revision,
    })
}

/// The answer to the grant of a lease; within `result`, to its renewal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseAnswer {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(crate) id: i64,
    /// The seconds that it lives on; 0 for a lease that is over.
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(crate) ttl: i64,
}

/// One line of a stream.
#[derive(Debug, Deserialize)]
pub(crate) struct Line<T> {
    pub(crate) result: Option<T>,
    pub(crate) error: Option<Json>,
}

/// A message of a watch.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Watched {
    pub(crate) canceled: bool,
    pub(crate) events: Vec<Json>,
}

/// An error of the gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) error: String,
    /// The status of gRPC.
    pub(crate) code: i64,
}

impl Refusal {
    pub(crate) fn text(self) -> String {
        match self.message.is_empty() {
            true => self.error,
            false => self.message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_a_real_member_is_read() {
        let text = r#"{"header":{"cluster_id":"324952591200643719","member_id":"3319814642761637952","revision":"2","raft_term":"2"},
            "succeeded":true,"responses":[{"response_range":{"header":{"revision":"2"},"kvs":[{"key":"L20vbGVhZGVy",
            "create_revision":"2","mod_revision":"2","version":"1","value":"aGk=","lease":"2324035696219823623"}],"count":"1"}},
            {"response_range":{"header":{"revision":"2"}}}]}"#;
        let read = read_answer(text).unwrap();
        assert_eq!((read.cluster.as_str(), read.revision), ("048276a8f75b6a87", 2));
        let kv = read.get("/m/leader").unwrap();
        assert_eq!(
            (kv.value.as_slice(), kv.create_revision, kv.mod_revision),
            (&b"hi"[..], 2, 2)
        );
        assert_eq!(read.get("/m/other"), None);
        let done = txn_answer(r#"{"header":{"revision":"7"},"responses":[]}"#).unwrap();
        assert_eq!(
            done,
            TxnDone {
                succeeded: false,
                revision: 7
            }
        );
    }

    #[test]
    fn a_key_that_is_no_text_and_a_value_without_bytes_are_read_and_other_bytes_are_refused() {
        let of = |kv: &str| {
            let text = format!(r#"{{"responses":[{{"response_range":{{"kvs":[{kv}]}}}}]}}"#);
            read_answer(&text)
        };
        let read = of(r#"{"key":"/w==","mod_revision":9}"#).unwrap();
        assert_eq!(
            (read.kvs[0].key.as_str(), read.kvs[0].mod_revision),
            ("\u{fffd}", 9)
        );
        assert!(read.kvs[0].value.is_empty());
        for bad in [
            r#"{"key":"?"}"#,
            r#"{"mod_revision":"-1"}"#,
            r#"{"mod_revision":"x"}"#,
            "7",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_transaction_names_its_conditions_and_writes() {
        let request = txn(&Txn {
            compare: vec![
                Compare::Created("k".to_owned(), 0),
                Compare::Modified("l".to_owned(), 7),
            ],
            ops: vec![
                Op::Put("k".to_owned(), b"v".to_vec(), Some(Lease(5))),
                Op::Delete(Keys::Prefix("p/".to_owned())),
            ],
        });
        let expected = json!({
            "compare": [
                {"target": "CREATE", "result": "EQUAL", "key": "aw==", "create_revision": "0"},
                {"target": "MOD", "result": "EQUAL", "key": "bA==", "mod_revision": "7"},
            ],
            "success": [
                {"request_put": {"key": "aw==", "value": "dg==", "lease": "5"}},
                {"request_delete_range": {"key": "cC8=", "range_end": "cDA="}},
            ],
        });
        assert_eq!(request, expected);
    }
}
