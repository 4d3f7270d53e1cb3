//! The manifest of a set of files, from a sender that need not be trusted.

use millrace_fileset::digest::ExtentValue;
use millrace_fileset::entry::EntryKind;
use millrace_fileset::manifest::ManifestReader;
use millrace_fileset::{Manifest, ManifestError, ManifestLimits};

/// Decodes the bytes as a manifest, whole and in two pieces, and as control messages.
///
/// The digest at the end is mended, so that the fuzzer gets past it. Properties: both ways give the same manifest or error;
/// paths stay below the root, ascend and are not reserved; addresses of files do not overlap and lie in the address space.
pub(crate) fn manifest(bytes: &[u8]) {
    let _ = ExtentValue::decode(&mut &bytes[..]);
    let mut mended = bytes.to_vec();
    mended.extend_from_slice(blake3::hash(bytes).as_bytes());
    let whole = decode(&[&mended]);
    let (first, second) = mended.split_at(bytes.first().map_or(0, |byte| usize::from(*byte) % mended.len()));
    assert_eq!(whole, decode(&[first, second]));
    if let Ok(manifest) = whole {
        check(&manifest);
    }
}

fn decode(parts: &[&[u8]]) -> Result<Manifest, ManifestError> {
    let limits = ManifestLimits {
        entries: 1_000,
        segments: 10_000,
        memory: 1 << 20,
        ..ManifestLimits::default()
    };
    let mut reader = ManifestReader::new(limits);
    for part in parts {
        reader.feed(part)?;
    }
    reader.finish()
}

fn check(manifest: &Manifest) {
    let paths: Vec<Vec<&[u8]>> = manifest
        .entries()
        .iter()
        .map(|entry| entry.path.names().collect())
        .collect();
    assert!(paths.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(
        paths
            .iter()
            .flatten()
            .all(|name| !name.is_empty() && *name != b"." && *name != b"..")
    );
    assert!(manifest.entries().iter().all(|entry| !entry.path.is_reserved()));
    let mut end = 0;
    for file in 0..manifest.files() {
        let addresses = manifest.addresses(file);
        if !addresses.is_empty() {
            assert!(addresses.start >= end && addresses.end <= manifest.layout().bytes());
            end = addresses.end;
        }
        let (_, content) = manifest.file(file).unwrap();
        assert!(
            content
                .segments
                .iter()
                .all(|segment| segment.offset + segment.len <= content.size)
        );
    }
    assert_eq!(end, manifest.layout().bytes());
    for entry in manifest.entries() {
        if let EntryKind::HardLink(file) = entry.kind {
            assert!(manifest.file(file).is_some());
        }
    }
}
