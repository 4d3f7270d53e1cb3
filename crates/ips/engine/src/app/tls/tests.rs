//! Scenarios of TLS connections, each in several segmentations.

use millrace_ips_rules::buffers::Buffer;
use proptest::prelude::*;

use super::Tls;
use crate::app::AppSettings;
use crate::app::parser::{Outcome, Parser};
use crate::app::record::{Record, TlsRecord};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

const UP: Direction = Direction::ToServer;
const DOWN: Direction = Direction::ToClient;

fn sized16(body: &[u8]) -> Vec<u8> {
    let mut out = u16::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(body);
    out
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &sized16(body)].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    extension(0, &sized16(&[&[0], &sized16(name)[..]].concat()))
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[kind], &size[1..], body].concat()
}

/// Puts bytes into records of at most `size` bytes.
fn records(kind: u8, body: &[u8], size: usize) -> Vec<u8> {
    body.chunks(size)
        .flat_map(|chunk| [&[kind, 3, 1][..], &sized16(chunk)].concat())
        .collect()
}

fn client_hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0],
        &sized16(&[0x1a, 0x1a, 0x13, 0x01, 0x00, 0x2f]),
        &[1, 0],
        &sized16(&extensions.concat()),
    ];
    handshake(1, &body.concat())
}

fn server_hello() -> Vec<u8> {
    handshake(2, &[&[3, 3][..], &[9; 32], &[0], &[0x00, 0x2f], &[0]].concat())
}

fn parsed(messages: &[(Direction, Vec<u8>)], step: usize) -> Transactions {
    let mut tls = Tls::new(AppSettings::default());
    let mut out = Transactions::default();
    for (direction, bytes) in messages {
        for bytes in bytes.chunks(step) {
            tls.data(StreamChunk::of(*direction, bytes), &mut out);
        }
    }
    out
}

fn record(out: &Transactions) -> &TlsRecord {
    let Record::Tls(record) = &out.list[0].record else {
        panic!("a TLS record")
    };
    record
}

#[test]
fn chains_of_certificates_behind_the_first_are_not_kept() {
    let size = u32::try_from(100_000).unwrap().to_be_bytes();
    let total = u32::try_from(100_003).unwrap().to_be_bytes();
    let chain = handshake(11, &[&total[1..], &size[1..], &[0x30; 100_000]].concat());
    let messages = [server_hello(), chain.repeat(20)].concat();
    let out = parsed(&[(DOWN, records(22, &messages, 16_384))], 4096);
    assert!(out.size() < 110_000, "{}", out.size());
    assert!(out.list[0].events.contains(&"tls.invalid_handshake_message"));
}

#[test]
fn a_hello_over_many_records_and_segments_has_its_name() {
    let hello = client_hello(&[
        server_name(b"www.example.org"),
        extension(16, &sized16(b"\x02h2")),
    ]);
    for (size, step) in [(1, 1), (3, 7), (50, 2), (16_000, 16_000)] {
        let out = parsed(&[(UP, records(22, &hello, size))], step);
        assert_eq!(
            out.list[0].buffer(Buffer::TlsSni, UP),
            Some(&b"www.example.org"[..])
        );
        assert_eq!(record(&out).client_alpns, [b"h2"]);
        assert_eq!(
            out.list[0].buffer(Buffer::Ja3String, UP),
            Some(&b"771,4865-47,0-16,,"[..])
        );
    }
}

#[test]
fn a_hello_without_name_has_no_name_buffer() {
    let out = parsed(
        &[(UP, records(22, &client_hello(&[extension(0x2a2a, b"")]), 100))],
        9,
    );
    assert_eq!(out.list[0].buffer(Buffer::TlsSni, UP), None);
    assert!(record(&out).state.client_hello);
    assert!(
        out.list[0]
            .buffer(Buffer::Ja4Hash, UP)
            .unwrap()
            .starts_with(b"t12i020000_")
    );
}

#[test]
fn two_names_are_an_event_and_the_first_counts() {
    let hello = client_hello(&[server_name(b"first.example"), server_name(b"second.example")]);
    let out = parsed(&[(UP, records(22, &hello, 100))], 9);
    assert_eq!(
        out.list[0].buffer(Buffer::TlsSni, UP),
        Some(&b"first.example"[..])
    );
    assert_eq!(out.list[0].events, ["tls.multiple_sni_extensions"]);
}

#[test]
fn a_certificate_gives_its_fields() {
    let mut parameters = rcgen::CertificateParams::new(vec!["alt.example".to_owned()]).unwrap();
    let mut name = rcgen::DistinguishedName::new();
    name.push(rcgen::DnType::CountryName, "US");
    name.push(rcgen::DnType::OrganizationName, "Example, Inc");
    name.push(rcgen::DnType::CommonName, "www.example.org");
    parameters.distinguished_name = name;
    parameters.serial_number = Some(rcgen::SerialNumber::from_slice(&[0x0a, 0xbc, 0xde]));
    let key = rcgen::KeyPair::generate().unwrap();
    let der = parameters.self_signed(&key).unwrap().der().to_vec();
    let entry = |der: &[u8]| [&u32::try_from(der.len()).unwrap().to_be_bytes()[1..], der].concat();
    let chain = handshake(11, &entry(&[entry(&der), entry(b"junk")].concat()));
    let server = records(22, &[server_hello(), chain].concat(), 100);
    for step in [1, 10, 10_000] {
        let out = parsed(
            &[(UP, records(22, &client_hello(&[]), 100)), (DOWN, server.clone())],
            step,
        );
        let transaction = &out.list[0];
        let subject = transaction.buffer(Buffer::TlsCertSubject, DOWN).unwrap();
        assert_eq!(
            String::from_utf8_lossy(subject),
            "C=US, O=Example, Inc, CN=www.example.org"
        );
        assert_eq!(transaction.buffer(Buffer::TlsCertIssuer, DOWN), Some(subject));
        assert_eq!(
            transaction.buffer(Buffer::TlsCertSerial, DOWN),
            Some(&b"0A:BC:DE"[..])
        );
        assert_eq!(
            transaction
                .buffer(Buffer::TlsCertFingerprint, DOWN)
                .unwrap()
                .len(),
            59
        );
        assert_eq!(transaction.buffers(Buffer::TlsCerts, DOWN).count(), 2);
        // Raw stream data are inspected after the certificates.
        assert_eq!(transaction.progress[DOWN.index()], Progress::Body);
        assert_eq!(record(&out).alternative_names, [b"alt.example"]);
        assert_eq!(
            transaction.buffer(Buffer::Ja3sString, DOWN),
            Some(&b"771,47,"[..])
        );
    }
}

#[test]
fn data_behind_the_handshake_are_skipped_and_mark_the_flow_as_encrypted() {
    let mut tls = Tls::new(AppSettings::default());
    let mut out = Transactions::default();
    let up = [
        records(22, &client_hello(&[]), 100),
        records(20, &[1], 1),
        records(22, &[0xff; 40], 100),
        records(23, &[0; 3000], 1000),
    ];
    let down = [records(22, &server_hello(), 100), records(23, &[0; 300], 100)];
    for bytes in up.concat().chunks(77) {
        let chunk = StreamChunk::of(UP, bytes);
        assert_eq!(tls.data(chunk, &mut out), Outcome::Continue);
    }
    assert!(tls.encrypted_from() == [None; 2], "the server has not agreed");
    for bytes in down.concat().chunks(77) {
        let chunk = StreamChunk::of(DOWN, bytes);
        assert_eq!(tls.data(chunk, &mut out), Outcome::Continue);
    }
    assert_eq!(tls.encrypted_from(), [Some(0); 2]);
    assert!(out.list[0].events.is_empty());
    assert!(tls.sides[0].pending.is_empty());
    tls.data(StreamChunk::of(UP, b"plain text"), &mut out);
    assert!(tls.encrypted_from() == [None; 2], "bytes that are no record");
}

#[test]
fn records_without_hellos_are_no_encryption() {
    let mut tls = Tls::new(AppSettings::default());
    let mut out = Transactions::default();
    for direction in [UP, DOWN, UP] {
        tls.data(StreamChunk::of(direction, b"\x17\x03\x03\0\0"), &mut out);
        assert!(tls.encrypted_from() == [None; 2]);
    }
}

#[test]
fn plain_text_behind_a_hello_is_an_event_and_ends_the_side() {
    let bytes = [
        records(22, &client_hello(&[]), 100),
        b"GET /evil HTTP/1.1\r\n".to_vec(),
    ]
    .concat();
    let out = parsed(&[(UP, bytes)], 5);
    assert_eq!(out.list[0].events, ["tls.invalid_record_type"]);
}

#[test]
fn an_sslv2_hello_has_its_version() {
    let body = [&[1, 3, 1, 0, 3, 0, 0, 0, 16][..], &[0, 0, 47], &[5; 16]].concat();
    let hello = [&[0x80, u8::try_from(body.len()).unwrap()][..], &body].concat();
    let out = parsed(&[(UP, hello)], 1);
    assert_eq!(record(&out).version, 0x0301);
    assert!(record(&out).state.client_hello);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Damaged hellos in segments of any size give the same transaction, and never panic.
    #[test]
    fn segmentation_does_not_change_transactions(
        flips in prop::collection::vec((0_usize..120, any::<u8>()), 0..4),
        step in 1_usize..30,
        size in 1_usize..60,
    ) {
        let mut bytes = [
            records(22, &client_hello(&[server_name(b"a.example"), server_name(b"b.example")]), size),
            records(23, b"data", 4),
        ].concat();
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let essence = |out: Transactions| format!("{:?}", out.list);
        let whole = essence(parsed(&[(UP, bytes.clone())], usize::MAX));
        prop_assert_eq!(essence(parsed(&[(UP, bytes)], step)), whole);
    }
}
