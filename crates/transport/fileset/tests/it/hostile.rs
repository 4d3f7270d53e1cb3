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
