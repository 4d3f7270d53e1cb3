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

/// Returns an element of BER.
fn of(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&[tag, u8::try_from(content.len()).unwrap()][..], &content].concat()
}

fn octets(text: &str) -> Vec<u8> {
    of(4, &[text.as_bytes()])
}

/// Returns the fields of an operation, by name and value.
fn written(number: u8, parts: &[&[u8]]) -> String {
    let message = of(0x30, &[&[2, 1, 9], &of(number, parts)]);
    let (_, found) = read(&message).unwrap();
    let text = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
    fn line(fields: &Fields, text: &impl Fn(&[u8]) -> String) -> String {
        let one = |(name, value): &(&str, Value)| match value {
            Value::Number(number) => format!("{name}={number}"),
            Value::Flag(flag) => format!("{name}={flag}"),
            Value::Text(value) => format!("{name}={}", text(value)),
            Value::Texts(list) => {
                let list: Vec<_> = list.iter().map(|value| text(value)).collect();
                format!("{name}=[{}]", list.join(" "))
            }
            Value::Object(fields) => format!("{name}=({})", line(fields, text)),
            Value::Objects(list) => {
                let list: Vec<_> = list.iter().map(|fields| line(fields, text)).collect();
                format!("{name}=[{}]", list.join(" | "))
            }
            other => format!("{other:?}"),
        };
        fields.list.iter().map(one).collect::<Vec<_>>().join(" ")
    }
    line(&found.fields, &text)
}

#[test]
fn operations_have_the_fields_of_their_standard() {
    let values = |kind: &str, values: &[&str]| {
        let values: Vec<u8> = values.iter().flat_map(|value| octets(value)).collect();
        of(0x30, &[&octets(kind), &of(0x31, &[&values])])
    };
    let result = |code: u8| [&[10, 1, code][..], &octets(""), &octets("done")].concat();
    let change = |number: u8, attribute: &[u8]| of(0x30, &[&[10, 1, number], attribute]);
    let added = values("mail", &["a@b", "c@d"]);
    for (tag, parts, expected) in [
        (
            0x60,
            vec![
                vec![2, 1, 3],
                octets("cn=x"),
                of(0xa3, &[&octets("GSSAPI"), &octets("token")]),
            ],
            "version=3 name=cn=x sasl=(mechanism=GSSAPI credentials=token)",
        ),
        (
            0x60,
            vec![vec![2, 1, 3], octets("cn=x"), of(0x80, &[b"secret"])],
            "version=3 name=cn=x",
        ),
        (
            0x64,
            vec![octets("cn=x"), of(0x30, &[&added])],
            "base_object=cn=x attributes=[type=mail values=[a@b c@d]]",
        ),
        (
            0x68,
            vec![octets("cn=x"), of(0x30, &[&added])],
            "entry=cn=x attributes=[name=mail values=[a@b c@d]]",
        ),
        (
            0x66,
            vec![
                octets("cn=x"),
                of(
                    0x30,
                    &[
                        &change(0, &added),
                        &change(1, &values("sn", &[])),
                        &change(9, &values("a", &["b"])),
                    ],
                ),
            ],
            "object=cn=x changes=[operation=add modification=(attribute_type=mail attribute_values=[a@b c@d]) | \
             operation=delete modification=(attribute_type=sn attribute_values=[]) | \
             operation=unknown modification=(attribute_type=a attribute_values=[b])]",
        ),
        (
            0x6c,
            vec![
                octets("cn=x"),
                octets("cn=y"),
                vec![1, 1, 0xff],
                of(0x80, &[b"ou=z"]),
            ],
            "entry=cn=x new_rdn=cn=y delete_old_rdn=true new_superior=ou=z",
        ),
        (
            0x6e,
            vec![octets("cn=x"), of(0x30, &[&octets("sn"), &octets("y")])],
            "entry=cn=x attribute_value_assertion=(description=sn value=y)",
        ),
        (
            0x77,
            vec![of(0x80, &[b"1.2.3"]), of(0x81, &[b"v"])],
            "name=1.2.3 value=v",
        ),
        (0x79, vec![of(0x80, &[b"1.2.3"])], "name=1.2.3"),
        (
            0x6f,
            vec![result(6)],
            "result_code=compare_true matched_dn= message=done",
        ),
        (
            0x6f,
            vec![result(200)],
            "result_code=unknown-200 matched_dn= message=done",
        ),
        (
            0x61,
            vec![result(0), of(0x87, &[b"t"])],
            "result_code=success matched_dn= message=done server_sasl_creds=t",
        ),
        (
            0x78,
            vec![
                result(0),
                of(0xa3, &[&octets("ldap://a")]),
                of(0x8a, &[b"1.2.3"]),
                of(0x8b, &[b"v"]),
            ],
            "result_code=success matched_dn= message=done name=1.2.3 value=v",
        ),
    ] {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        assert_eq!(written(tag, &parts), expected, "{tag:#x}");
        // A cut operation has the fields in front of the cut.
        let whole = parts.concat();
        for size in 0..whole.len() {
            written(tag, &[&whole[..size]]);
        }
    }
}
