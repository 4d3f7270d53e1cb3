//! Manifests from senders that need not be trusted.

use crate::support::{contents, tree};
use millrace_fileset::{ManifestError, ManifestLimits, ManifestReader, Scan, ScanOptions};
use millrace_transport::random::Random;

fn encoded() -> Vec<u8> {
    let fs = tree();
    let mut scan = Scan::new(&fs, &contents(), ScanOptions::default()).unwrap();
    while scan.next_item(&fs).unwrap().is_some() {}
    scan.take_encoded()
}

fn read(bytes: &[u8], limits: ManifestLimits) -> Result<(), ManifestError> {
    let mut reader = ManifestReader::new(limits);
    reader.feed(bytes)?;
    reader.finish().map(drop)
}

#[test]
fn a_manifest_with_any_wrong_byte_is_refused() {
    let (bytes, mut random) = (encoded(), Random::new(1));
    assert_eq!(read(&bytes, ManifestLimits::default()), Ok(()));
    for at in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[at] ^= 1 << random.below(8);
        assert!(read(&wrong, ManifestLimits::default()).is_err(), "byte {at}");
        let error = read(&bytes[..at], ManifestLimits::default()).unwrap_err();
        assert!(matches!(error, ManifestError::Truncated { .. }), "{error}");
    }
    let trailing = [&bytes[..], b"x"].concat();
    assert_eq!(
        read(&trailing, ManifestLimits::default()),
        Err(ManifestError::Trailing(1))
    );
}

#[test]
fn limits_are_named() {
    let bytes = encoded();
    let none = ManifestLimits::default();
    for (limits, expected) in [
        (ManifestLimits { entries: 3, ..none }, "entries"),
        (ManifestLimits { segments: 3, ..none }, "segments"),
        (ManifestLimits { memory: 30, ..none }, "bytes of names"),
        (ManifestLimits { bytes: 1_000, ..none }, "bytes of data"),
    ] {
        match read(&bytes, limits) {
            Err(ManifestError::Limit { name, .. }) => assert_eq!(name, expected),
            result => panic!("{expected}: {result:?}"),
        }
    }
}

/// Returns a manifest of one file with this path, whatever it is.
fn manifest_of(path: &[u8]) -> Vec<u8> {
    let mut bytes = b"MRFS\x01\0\x02\0".to_vec();
    let mut len = path.len();
    while len >= 0x80 {
        bytes.push(len as u8 & 0x7f | 0x80);
        len >>= 7;
    }
    bytes.push(len as u8);
    bytes.extend_from_slice(path);
    // Mode 644, times and size zero, no holes; the end after one entry.
    bytes.extend_from_slice(&[0xa4, 0x03, 0, 0, 0, 0, 0, 0, 0, 1]);
    let digest = *blake3::hash(&bytes).as_bytes();
    [&bytes[..], &digest].concat()
}

/// Gate T13 (docs/gates.md): whatever a sender calls its files, the path is refused by the name of the rule that it
/// violates.
#[test]
fn five_hundred_hostile_paths_are_refused_by_name() {
    let long = "n".repeat(256);
    let names: [(&str, &str); 10] = [
        ("..", "contains . or .."),
        (".", "contains . or .."),
        ("", "empty name"),
        ("a\0b", "NUL"),
        ("\0", "NUL"),
        (".millrace-", "begins with .millrace-"),
        (".millrace-0123456789abcdef.journal", "begins with .millrace-"),
        (&long, "longer than 255"),
        ("../..", "contains . or .."),
        ("/etc", "empty name"),
    ];
    let places = [
        "x", "..x", "x..", "...", " ", "~", "-rf", "C:", "\\..", "%2e%2e", "\u{202e}", "x\ny",
    ];
    let mut paths = Vec::new();
    for (name, rule) in names {
        paths.push((name.to_owned(), rule));
        for before in places {
            paths.push((format!("{before}/{name}"), rule));
            paths.push((format!("{name}/{before}"), rule));
            paths.push((format!("{before}/{name}/{before}"), rule));
            paths.push((format!("{before}/{before}/{name}"), rule));
        }
    }
    // The root is no name of a file.
    paths.retain(|(path, _)| !path.is_empty());
    assert!(paths.len() >= 480, "{}", paths.len());
    // The length of a path is checked before its bytes.
    for index in 0..50 {
        paths.push(("x/".repeat(2_040 + index) + "abcdefghijklmnop", "invalid number"));
    }
    assert!(paths.len() >= 500);
    assert_eq!(read(&manifest_of(b"x"), ManifestLimits::default()), Ok(()));
    for (path, rule) in &paths {
        let error = read(&manifest_of(path.as_bytes()), ManifestLimits::default()).unwrap_err();
        let text = error.to_string();
        // A name that is reserved is refused where its directory is, or the directory is missing.
        let named = text.contains(rule) || text.contains("is in no directory");
        assert!(named, "{path:?}: {text}");
        assert!(!text.chars().any(char::is_control), "{text:?} reaches a terminal");
    }
}
