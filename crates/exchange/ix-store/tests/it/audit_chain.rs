//! The audit chain: `verify` and a verifier in Python, which was written from the documentation, find the
//! same damage.

use std::path::Path;
use std::process::Command;

use millrace_ix_store::{
    AuditEntry, AuditRecord, BrokenChain, SignedHead, SigningKey, Sqlite, Store as _, StoreError,
    Transaction, UnixMillis, canonical, sha256_hex, verify,
};
use serde_json::json;

use crate::{NOW, entry, stores};

fn is_long() -> bool {
    std::env::var_os("MILLRACE_EXCHANGE_LONG").is_some()
}

/// Returns a chain of `len` entries with a signature after each tenth, and the public key.
fn chain(len: u64) -> (Vec<AuditRecord>, Vec<SignedHead>, String) {
    chain_by("us-1", len, 10)
}

/// Returns a chain of one actor with a signature after each `signed` entries.
fn chain_by(actor: &str, len: u64, signed: u64) -> (Vec<AuditRecord>, Vec<SignedHead>, String) {
    let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    let mut store = Sqlite::in_memory().unwrap();
    for n in 1..=len {
        let detail =
            json!({"n": n, "text": "caf\u{e9} \u{1f600} \"quoted\"\n\u{1}", "z": [null, true, -5], "a": {}});
        let audit = vec![AuditEntry {
            actor: actor.to_owned(),
            ..entry("test", detail)
        }];
        store
            .commit(
                &Transaction {
                    audit,
                    ..Transaction::default()
                },
                UnixMillis(NOW.0 + n),
            )
            .unwrap();
        if n % signed == 0 {
            store.sign_head(&key, UnixMillis(NOW.0 + n)).unwrap();
        }
    }
    (
        store.audit(0, usize::MAX).unwrap(),
        store.signed_heads().unwrap(),
        key.public_key(),
    )
}

#[test]
fn the_newest_signature_is_the_last_one_of_all() {
    let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    for mut store in stores() {
        assert_eq!(store.newest_head().unwrap(), None);
        for n in 1..4 {
            let transaction = Transaction {
                audit: vec![entry("test", json!({ "n": n }))],
                ..Transaction::default()
            };
            store.commit(&transaction, UnixMillis(NOW.0 + n)).unwrap();
            let signed = store.sign_head(&key, UnixMillis(NOW.0 + n)).unwrap();
            assert_eq!(store.newest_head().unwrap(), signed);
        }
        assert_eq!(store.newest_head().unwrap(), store.signed_heads().unwrap().pop());
    }
}

#[test]
fn a_chain_as_written_is_valid() {
    let (records, heads, key) = chain(25);
    let summary = verify(&records, &heads, Some(&key)).unwrap();
    assert_eq!((summary.len, summary.signed_up_to), (25, 20));
    assert_eq!(summary.head, records[24].hash);
}

#[test]
fn no_entry_is_after_a_number_beyond_the_end() {
    for mut store in stores() {
        let transaction = Transaction {
            audit: vec![entry("test", json!({}))],
            ..Transaction::default()
        };
        store.commit(&transaction, NOW).unwrap();
        assert_eq!(store.audit(0, 10).unwrap().len(), 1);
        for after in [1, i64::MAX.cast_unsigned(), 1 << 63, u64::MAX] {
            assert_eq!(store.audit(after, 10).unwrap(), [], "{after}");
        }
    }
}

#[test]
fn a_head_is_signed_once() {
    let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    for mut store in stores() {
        assert_eq!(store.sign_head(&key, NOW).unwrap(), None);
        store
            .commit(
                &Transaction {
                    audit: vec![entry("a", json!({}))],
                    ..Transaction::default()
                },
                NOW,
            )
            .unwrap();
        assert!(store.sign_head(&key, NOW).unwrap().is_some());
        assert_eq!(store.sign_head(&key, NOW).unwrap(), None);
    }
}

/// `make exchange-check` has 1,000 entries.
#[test]
fn each_changed_missing_or_swapped_entry_is_found() {
    let len = if is_long() { 1_000 } else { 100 };
    let (records, heads, key) = chain_by("us-1", len, len / 10);
    for (at, record) in records.iter().enumerate() {
        let (before, after) = (&records[..at], &records[at + 1..]);
        let found = |damaged: &[AuditRecord], after: &[AuditRecord]| {
            verify(before.iter().chain(damaged).chain(after), &heads, Some(&key))
        };
        let serial = record.serial;
        let mut changed = record.clone();
        changed.body["detail"]["n"] = json!(10_000);
        assert_eq!(
            found(&[changed.clone()], after),
            Err(BrokenChain::Contents { serial })
        );
        // One who changes the hash, too, breaks the link of the entry behind, or the signature of the last one.
        changed.hash = sha256_hex(canonical(&changed.body).unwrap().as_bytes());
        let expected = if heads.iter().any(|head| head.serial == serial) {
            BrokenChain::Signature {
                serial,
                at: NOW.0 + serial,
            }
        } else {
            BrokenChain::Link { serial: serial + 1 }
        };
        assert_eq!(found(&[changed], after), Err(expected));
        assert!(found(&[], after).is_err(), "entry {serial} is missing");
        let twice = [record.clone(), record.clone()];
        assert!(found(&twice, after).is_err(), "entry {serial} is there twice");
        if let [next, rest @ ..] = after {
            let swapped = [next.clone(), record.clone()];
            assert!(found(&swapped, rest).is_err(), "entry {serial} is swapped");
        }
    }
}

#[test]
fn a_chain_that_was_written_again_does_not_have_the_signatures() {
    let (_, heads, key) = chain(20);
    let (forged, forged_heads, _) = chain_by("us-2", 20, 10);
    assert_eq!(
        verify(&forged, &heads, Some(&key)),
        Err(BrokenChain::Signature {
            serial: 10,
            at: NOW.0 + 10
        })
    );
    assert!(verify(&forged, &forged_heads, None).is_ok());
    assert!(
        verify(&forged, &forged_heads, Some(&key)).is_err(),
        "signatures of another key"
    );
}

#[test]
fn entries_cannot_be_deleted_from_the_end_behind_a_signature() {
    let (records, heads, key) = chain(20);
    assert!(matches!(
        verify(&records[..19], &heads, Some(&key)),
        Err(BrokenChain::Cut {
            len: 19,
            serial: 20,
            ..
        })
    ));
}

#[test]
fn a_chain_that_was_cut_back_to_a_signature_is_valid_except_for_who_kept_a_later_head() {
    let (records, heads, key) = chain(20);
    let (cut, left) = (&records[..10], &heads[..1]);
    assert_eq!(verify(cut, left, Some(&key)).unwrap().signed_up_to, 10);
    // The head travels as text, and is checked beside those of the database.
    let kept: SignedHead = heads[1].to_string().parse().unwrap();
    assert_eq!(kept, heads[1]);
    let with_kept = [left[0].clone(), kept];
    let found = verify(cut, &with_kept, Some(&key));
    assert!(
        matches!(
            found,
            Err(BrokenChain::Cut {
                len: 10,
                serial: 20,
                ..
            })
        ),
        "{found:?}"
    );
    assert!(verify(&records, &with_kept, Some(&key)).is_ok());
    // Entries that were written anew behind the cut do not have the hash that was signed.
    let (_, _, other) = chain(20);
    let mut forged = records.clone();
    forged[19].body["actor"] = json!("us-2");
    assert!(verify(&forged, &with_kept, Some(&other)).is_err());
    for text in [
        "",
        "{}",
        "7",
        &heads[1].to_string().replace("\"hash\":\"", "\"hash\":\"g"),
        "[1]",
    ] {
        assert!(text.parse::<SignedHead>().is_err(), "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, kept) = (folder.path().join("audit.ndjson"), folder.path().join("heads"));
    export(&path, cut, left);
    assert!(python(&path, &key).0);
    std::fs::write(&kept, heads[1].to_string()).unwrap();
    let output = Command::new("python3")
        .arg(VERIFIER)
        .args([path.as_os_str(), key.as_ref(), kept.as_os_str()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success() && text.contains("entry 20 is missing"),
        "{text}"
    );
}

#[test]
fn a_fraction_in_an_entry_is_refused() {
    for mut store in stores() {
        let transaction = Transaction {
            audit: vec![entry("a", json!({"rate": 0.5}))],
            ..Transaction::default()
        };
        assert!(matches!(
            store.commit(&transaction, NOW),
            Err(StoreError::Canonical(_))
        ));
        assert!(store.audit(0, 1).unwrap().is_empty());
    }
}

/// The verifier in Python, which knows nothing but docs/audit-chain.md.
const VERIFIER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/verify_audit.py");

/// Writes a chain as `millrace-ix audit export` does.
fn export(path: &Path, records: &[AuditRecord], heads: &[SignedHead]) {
    let mut lines: Vec<String> = records
        .iter()
        .map(|record| json!({"entry": record.body, "hash": record.hash}).to_string())
        .collect();
    lines.extend(heads.iter().map(|head| {
        json!({"signature": head.signature, "public_key": head.public_key, "serial": head.serial, "hash": head.hash, "time": head.at.0})
            .to_string()
    }));
    std::fs::write(path, lines.join("\n")).unwrap();
}

/// Has the verifier find each damage of each entry of a chain.
const DAMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/damage_audit.py");

fn python(path: &Path, key: &str) -> (bool, String) {
    let output = Command::new("python3")
        .arg(VERIFIER)
        .arg(path)
        .arg(key)
        .output()
        .unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

#[test]
fn a_verifier_in_python_accepts_the_chain_and_finds_each_kind_of_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.ndjson");
    let (records, heads, key) = chain(40);
    export(&path, &records, &heads);
    let (valid, text) = python(&path, &key);
    assert!(valid, "{text}");
    type Damage = fn(&mut Vec<AuditRecord>, &mut Vec<SignedHead>);
    let damages: [(&str, Damage); 5] = [
        ("entry 8", |records, _| records[7].body["actor"] = json!("us-2")),
        ("entry 12", |records, _| drop(records.remove(11))),
        ("entry 3", |records, _| records.swap(2, 3)),
        ("entry 40", |records, _| drop(records.pop())),
        ("signature", |_, heads| {
            heads[1].signature = heads[0].signature.clone();
        }),
    ];
    for (word, damage) in damages {
        let (mut records, mut heads) = (records.clone(), heads.clone());
        damage(&mut records, &mut heads);
        export(&path, &records, &heads);
        let (valid, text) = python(&path, &key);
        assert!(!valid && text.contains(word), "{word}: {text}");
    }
}

/// `make exchange-check` has 100,000 entries, `make test` 500.
#[test]
fn the_verifier_in_python_finds_each_damage_of_each_entry_of_a_long_chain() {
    let len = if is_long() { 100_000 } else { 500 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.ndjson");
    let (records, heads, key) = chain_by("us-1", len, len / 4);
    export(&path, &records, &heads);
    let (valid, text) = python(&path, &key);
    assert!(
        valid && text.contains(&format!("{len} entries, signed up to entry {len}")),
        "{text}"
    );
    let output = Command::new("python3")
        .arg(DAMAGES)
        .arg(&path)
        .arg(&key)
        .output()
        .unwrap();
    let (text, missed) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    print!("{text}");
    assert!(
        output.status.success() && text.contains(&format!("of {len} entries")),
        "{text}{missed}"
    );
}
