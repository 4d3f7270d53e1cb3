//! Tests of the parser of LDAP.

use super::*;

fn feed(
    parser: &mut Ldap,
    out: &mut Transactions,
    direction: Direction,
    bytes: &[u8],
    step: usize,
) -> Outcome {
    for piece in bytes.chunks(step) {
        let chunk = StreamChunk::of(direction, piece);
        if parser.data(chunk, out) == Outcome::Failed {
            return Outcome::Failed;
        }
    }
    Outcome::Continue
}

#[test]
fn messages_are_counted_for_any_segmentation() {
    // A bind request, an unbind request, and a message with a length of two bytes.
    let mut bytes =
        b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00\x30\x05\x02\x01\x02\x42\x00".to_vec();
    bytes.extend(b"\x30\x82\x01\x00");
    bytes.resize(bytes.len() + 256, 0);
    for step in 1..bytes.len() {
        let (mut parser, mut out) = (Ldap::new(Transport::Tcp), Transactions::default());
        let outcome = feed(&mut parser, &mut out, Direction::ToServer, &bytes, step);
        assert_eq!(outcome, Outcome::Continue);
        assert_eq!(out.list.len(), 3, "{step}");
    }
}

#[test]
fn responses_belong_to_their_request() {
    let search = b"\x30\x25\x02\x01\x02\x63\x20\x04\x04dc=a\x0a\x01\x02\x0a\x01\x00\x02\x01\x00\x02\x01\x00\x01\x01\x00\x87\x01x\x30\x03\x04\x01m";
    let search = &search[..search.len()];
    let mut search = search.to_vec();
    search[1] = (search.len() - 2) as u8;
    search[6] = (search.len() - 7) as u8;
    let entry = b"\x30\x0d\x02\x01\x02\x64\x08\x04\x04dc=b\x30\x00";
    let done = b"\x30\x0c\x02\x01\x02\x65\x07\x0a\x01\x20\x04\x00\x04\x00";
    let (mut parser, mut out) = (Ldap::new(Transport::Tcp), Transactions::default());
    feed(&mut parser, &mut out, Direction::ToServer, &search, 3);
    feed(
        &mut parser,
        &mut out,
        Direction::ToClient,
        &[&entry[..], done].concat(),
        3,
    );
    assert_eq!(out.list.len(), 1);
    let transaction = &out.list[0];
    assert_eq!(
        transaction.buffer(Buffer::LdapRequestDn, Direction::ToServer),
        Some(&b"dc=a"[..])
    );
    assert_eq!(
        transaction.buffer(Buffer::LdapRequestAttribute, Direction::ToServer),
        Some(&b"m"[..])
    );
    assert_eq!(
        transaction.buffer(Buffer::LdapResponsesDn, Direction::ToClient),
        Some(&b"dc=b"[..])
    );
    let numbers = |field| transaction.numbers(field, Direction::ToClient);
    assert_eq!(numbers(NumberField::LdapResponsesOperation), [4, 5]);
    assert_eq!(numbers(NumberField::LdapResponsesResultCode), [32]);
    assert_eq!(numbers(NumberField::LdapResponsesCount), [2]);
    assert!(transaction.is_complete());
}

#[test]
fn bytes_that_are_no_message_are_refused() {
    for bytes in [&b"\x31\x00"[..], b"\x30\x80", b"\x30\x84\xff\xff\xff\xff"] {
        let (mut parser, mut out) = (Ldap::new(Transport::Tcp), Transactions::default());
        let outcome = feed(&mut parser, &mut out, Direction::ToServer, bytes, 2);
        assert_eq!(outcome, Outcome::Failed);
    }
}
