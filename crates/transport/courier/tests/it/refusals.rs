//! Manifests that a receiver refuses before it allocates anything for them.

use millrace_courier::RefuseCode;
use millrace_courier::files::{Requests, Store};
use millrace_courier::identity::PublicKey;
use millrace_courier::local::{LocalStore, PlaceOptions};
use std::fs;

const SENDER: PublicKey = PublicKey::new([7; 32]);

/// Returns the manifest of one file with a size of 2^55 bytes. `holes` is the encoding of its holes and
/// segments.
fn huge(holes: &[u8]) -> Vec<u8> {
    let size = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40];
    let path_mode_and_time = [2, 0, 1, b'x', 0xa4, 0x03, 0, 0];
    let mut bytes = [
        b"MRFS\x01\0",
        &path_mode_and_time[..],
        &size,
        &[0, 0],
        holes,
        &[0, 1],
    ]
    .concat();
    let digest = *blake3::hash(&bytes).as_bytes();
    bytes.extend_from_slice(&digest);
    bytes
}

#[test]
fn a_manifest_that_announces_more_than_the_disk_has_is_refused_before_memory_is_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::new(dir.path(), PlaceOptions::default());
    let refused = store
        .open(SENDER, &huge(&[0]), Requests::default())
        .err()
        .unwrap();
    assert_eq!(refused.code, RefuseCode::Files);
    let text = refused.to_string();
    assert!(
        text.contains("34359738368 MiB") && text.contains(" free"),
        "{text}"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // Holes take no space.
    let sparse = store
        .open(SENDER, &huge(&[2, 0, 7]), Requests::default())
        .unwrap();
    assert_eq!(sparse.layout().bytes(), 7);
}
