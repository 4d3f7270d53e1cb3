//! Damaged and invented files: a reader refuses them or finds something, and what it prints is valid.

use millrace_import::{ImportError, Imported, lagopus, linux, ovs};

use crate::is_valid;
use crate::peer::Random;

/// The number of damaged files of each kind.
const FILES: u64 = 600;

/// Replaces, removes and repeats bytes.
fn damaged(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.next() % 4 {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        let end = at + random.below((bytes.len() - at).min(24));
        match random.next() % 4 {
            0 => bytes[at] = b"\"'{}[]\\-=:,$ \n0x"[random.below(16)],
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, part);
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

fn damage(file: &[u8], read: impl Fn(&[u8]) -> Result<Imported, ImportError>) {
    let mut random = Random(7);
    is_valid(&read(file).unwrap());
    let mut accepted = 0;
    for _ in 0..FILES {
        let bytes = damaged(file, &mut random);
        match read(&bytes) {
            Ok(imported) => {
                is_valid(&imported);
                accepted += 1;
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    assert!(accepted > 10, "{accepted}");
}

#[test]
fn damaged_scripts_are_refused_or_valid() {
    damage(crate::silence::BASE.as_bytes(), |bytes| ovs::read("s", bytes));
}

#[test]
fn damaged_files_of_lagopus_are_refused_or_valid() {
    damage(crate::lagopus::FILE.as_bytes(), |bytes| lagopus::read("l", bytes));
}

#[test]
fn damaged_outputs_of_iproute2_are_refused_or_valid() {
    damage(crate::linux::LINKS.as_bytes(), |bytes| {
        linux::read(&[("l", bytes)])
    });
}
