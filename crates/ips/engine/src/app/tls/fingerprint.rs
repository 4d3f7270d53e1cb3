//! Fingerprints of hellos: JA3 and JA3S (salesforce/ja3, BSD), JA4 of the client (FoxIO-LLC/ja4, BSD).

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::hello::{Hello, is_grease};

/// Joins numbers with hyphens, without the reserved ones.
fn numbers(values: &[u16]) -> String {
    let texts: Vec<String> = values
        .iter()
        .filter(|&&value| !is_grease(value))
        .map(u16::to_string)
        .collect();
    texts.join("-")
}

/// Returns the JA3 text of a client hello: version, ciphers, extensions, groups, point formats.
pub(super) fn ja3(hello: &Hello) -> String {
    let formats: Vec<u16> = hello
        .point_formats
        .iter()
        .map(|&format| u16::from(format))
        .collect();
    let parts = [
        hello.legacy_version.to_string(),
        numbers(&hello.ciphers),
        numbers(&hello.extensions),
        numbers(&hello.groups),
        numbers(&formats),
    ];
    parts.join(",")
}

/// Returns the JA3S text of a server hello: version, cipher, extensions.
pub(super) fn ja3s(hello: &Hello) -> String {
    let cipher = hello.ciphers.first().copied().unwrap_or(0);
    let extensions: Vec<String> = hello.extensions.iter().map(u16::to_string).collect();
    format!("{},{cipher},{}", hello.legacy_version, extensions.join("-"))
}

/// Returns the JA4 fingerprint of a client hello over TCP or QUIC.
pub(super) fn ja4(hello: &Hello, transport: char) -> String {
    let plain = |values: &[u16]| -> Vec<u16> {
        values
            .iter()
            .copied()
            .filter(|&value| !is_grease(value))
            .collect()
    };
    let version = plain(&hello.versions)
        .into_iter()
        .max()
        .unwrap_or(hello.legacy_version);
    let version = match version {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        0xfeff => "d1",
        0xfefd => "d2",
        0xfefc => "d3",
        _ => "00",
    };
    let name = if hello.extensions.contains(&0) { 'd' } else { 'i' };
    let mut ciphers = plain(&hello.ciphers);
    let extensions = plain(&hello.extensions);
    let (cipher_count, extension_count) = (ciphers.len().min(99), extensions.len().min(99));
    let alpn = match hello.alpns.first().map(Vec::as_slice) {
        None | Some([]) => "00".to_owned(),
        Some([first, .., last]) if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() => {
            format!("{}{}", char::from(*first), char::from(*last))
        }
        Some([only]) if only.is_ascii_alphanumeric() => format!("{0}{0}", char::from(*only)),
        Some(value) => {
            let digits = HEXLOWER.encode(value);
            format!("{}{}", &digits[..1], &digits[digits.len() - 1..])
        }
    };
    ciphers.sort_unstable();
    let mut sorted: Vec<u16> = extensions
        .into_iter()
        .filter(|kind| ![0, 16].contains(kind))
        .collect();
    sorted.sort_unstable();
    let list = |values: &[u16]| {
        values
            .iter()
            .map(|value| format!("{value:04x}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let mut tail = list(&sorted);
    let signatures = plain(&hello.signatures);
    if !signatures.is_empty() {
        tail = format!("{tail}_{}", list(&signatures));
    }
    let digest = |text: &str, is_empty: bool| {
        if is_empty {
            "0".repeat(12)
        } else {
            HEXLOWER.encode(&Sha256::digest(text.as_bytes())[..6])
        }
    };
    let ciphers_hash = digest(&list(&ciphers), ciphers.is_empty());
    let tail_hash = digest(&tail, sorted.is_empty());
    format!(
        "{transport}{version}{name}{cipher_count:02}{extension_count:02}{alpn}_{ciphers_hash}_{tail_hash}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::md5_text;
    use super::*;

    #[test]
    fn ja3_has_the_text_and_hash_of_its_documentation() {
        // The example in the README of salesforce/ja3.
        let hello = Hello {
            legacy_version: 769,
            ciphers: vec![47, 53, 5, 10, 49161, 49162, 49171, 49172, 50, 56, 19, 4],
            extensions: vec![0, 10, 11],
            groups: vec![23, 24, 25],
            point_formats: vec![0],
            ..Hello::default()
        };
        assert_eq!(
            ja3(&hello),
            "769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0"
        );
        assert_eq!(
            md5_text(ja3(&hello).as_bytes()),
            "ada70206e40642a3e4461f35503241d5"
        );
    }

    #[test]
    fn ja4_has_the_value_of_its_documentation() {
        // The example in FoxIO-LLC/ja4, technical_details/JA4.md.
        let hello = Hello {
            legacy_version: 0x0303,
            versions: vec![0x3a3a, 0x0304, 0x0303],
            ciphers: vec![
                0x1a1a, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
                0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
            ],
            extensions: vec![
                0x1a1a, 0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023,
                0x0012, 0x002b, 0xff01, 0x000b, 0x000a, 0x0015,
            ],
            signatures: vec![0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601],
            alpns: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            ..Hello::default()
        };
        assert_eq!(ja4(&hello, 't'), "t13d1516h2_8daaf6152771_e5627efa2ab1");
    }

    #[test]
    fn reserved_values_do_not_count() {
        assert!(is_grease(0x0a0a) && is_grease(0xfafa));
        assert!(!is_grease(0x0a1a) && !is_grease(0x1301));
    }
}
