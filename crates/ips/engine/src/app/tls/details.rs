//! Details of records of TLS: the hellos in numbers, and the certificates.

use super::hello::Hello;
use crate::app::record::{Fields, TlsRecord};
use crate::flow::Direction;

/// Largest number of certificates of a chain in a record, and largest size of one in bytes.
const CHAIN: usize = 8;
const CERTIFICATE_SIZE: usize = 16 << 10;
/// Largest number of numbers in a list.
const NUMBERS: usize = 256;

/// Returns the name of a version of TLS.
pub fn version_name(version: u16) -> String {
    match version {
        0 => "UNDETERMINED".to_owned(),
        0x0002 => "SSLv2".to_owned(),
        0x0300 => "SSLv3".to_owned(),
        0x0301 => "TLSv1".to_owned(),
        0x0302 => "TLS 1.1".to_owned(),
        0x0303 => "TLS 1.2".to_owned(),
        0x0304 => "TLS 1.3".to_owned(),
        other => format!("0x{other:04x}"),
    }
}

/// Adds the numbers of a hello: those of a client are lists, a server chooses one cipher suite. A second hello, after a retry,
/// changes nothing.
pub(super) fn hello(record: &mut TlsRecord, hello: &Hello, direction: Direction) {
    let out = &mut record.details.get_or_insert_default().hellos[direction.index()];
    if !out.list.is_empty() {
        return;
    }
    let list = |out: &mut Fields, name, numbers: &[u16]| {
        if !numbers.is_empty() {
            let numbers = numbers.iter().take(NUMBERS).map(|number| u64::from(*number));
            out.numbers(name, numbers.collect());
        }
    };
    out.text("version", version_name(hello.legacy_version).as_bytes());
    match direction {
        Direction::ToServer => {
            list(out, "ciphers", &hello.ciphers);
            list(out, "exts", &hello.extensions);
            list(out, "sig_algs", &hello.signatures);
        }
        Direction::ToClient => {
            if let Some(cipher) = hello.ciphers.first() {
                out.number("cipher", *cipher);
            }
            list(out, "exts", &hello.extensions);
        }
    }
}

/// Adds a certificate to the chain of a direction; larger ones than usual are left out.
pub(super) fn certificate(record: &mut TlsRecord, der: &[u8], direction: Direction) {
    let chain = &mut record.details.get_or_insert_default().chains[direction.index()];
    if chain.len() < CHAIN && der.len() <= CERTIFICATE_SIZE {
        chain.push(der.to_vec());
    }
}
