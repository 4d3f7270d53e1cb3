//! A session with a master agent that this test plays.

use millrace_agentx::pdu::{Content, HEADER_SIZE, Header, Pdu, Range};
use millrace_agentx::{Objects, Oid, Session, SessionError, Value};

const TREE: [u32; 3] = [1, 3, 6];

fn oid(rest: &[u32]) -> Oid {
    Oid::new(&TREE).with(rest)
}

/// Returns the PDUs that a session sent.
fn sent(session: &mut Session) -> Vec<Pdu> {
    let bytes = session.take_output();
    let (mut rest, mut found) = (bytes.as_slice(), Vec::new());
    while let Some(head) = rest.first_chunk::<HEADER_SIZE>() {
        let header = Header::parse(head).unwrap();
        let end = HEADER_SIZE + header.size;
        found.push(Pdu::parse(header, &rest[HEADER_SIZE..end]).unwrap());
        rest = &rest[end..];
    }
    found
}

fn pdu(context: &str, content: Content) -> Vec<u8> {
    let pdu = Pdu {
        session: 42,
        transaction: 5,
        packet: 6,
        context: context.to_owned(),
        content,
    };
    pdu.emit()
}

fn response(error: u16) -> Vec<u8> {
    pdu(
        "",
        Content::Response {
            error,
            index: 0,
            bindings: vec![],
        },
    )
}

/// Returns the answer of snmpd to a registration, which has the subtree without a value.
fn registered(subtree: Oid) -> Vec<u8> {
    pdu(
        "",
        Content::Response {
            error: 0,
            index: 0,
            bindings: vec![(subtree, Value::Null)],
        },
    )
}

fn objects() -> Objects {
    let mut objects = Objects::default();
    for (rest, value) in [(&[1, 1][..], 11), (&[1, 2], 12), (&[2, 1], 21), (&[2, 2], 22)] {
        objects.insert(oid(rest), Value::Integer(value));
    }
    objects
}

/// Returns a session that is open, in the context `sw`.
fn open() -> Session {
    let mut session = Session::new("test", "sw", &[oid(&[1]), oid(&[2])]);
    assert!(matches!(sent(&mut session)[0].content, Content::Open { .. }));
    session.receive(&response(0), &objects()).unwrap();
    for at in [1, 2] {
        let pdus = sent(&mut session);
        assert_eq!((pdus[0].session, pdus[0].context.as_str()), (42, "sw"));
        assert_eq!(
            pdus[0].content,
            Content::Register {
                priority: 127,
                subtree: oid(&[at])
            }
        );
        assert!(!session.is_open());
        session.receive(&registered(oid(&[at])), &objects()).unwrap();
    }
    assert!(session.is_open());
    session
}

fn range(start: &[u32], end: &[u32]) -> Range {
    Range {
        start: oid(start),
        includes: false,
        end: if end.is_empty() { Oid::default() } else { oid(end) },
    }
}

fn asked(session: &mut Session, content: Content) -> (u16, Vec<(Oid, Value)>) {
    // In pieces, as a socket may deliver it.
    let bytes = pdu("sw", content);
    for piece in bytes.chunks(7) {
        session.receive(piece, &objects()).unwrap();
    }
    let answers = sent(session);
    assert_eq!((answers[0].transaction, answers[0].packet), (5, 6));
    match &answers[0].content {
        Content::Response { error, bindings, .. } => (*error, bindings.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn objects_are_found_by_get_get_next_and_get_bulk() {
    let mut session = open();
    let get = Content::Get(vec![range(&[1, 1], &[]), range(&[1, 9], &[])]);
    assert_eq!(
        asked(&mut session, get),
        (
            0,
            vec![
                (oid(&[1, 1]), Value::Integer(11)),
                (oid(&[1, 9]), Value::NoSuchInstance)
            ]
        )
    );
    let next = Content::GetNext(vec![
        range(&[1, 1], &[2]),
        range(&[1, 2], &[2]),
        range(&[1], &[]),
        range(&[9], &[]),
    ]);
    assert_eq!(
        asked(&mut session, next).1,
        [
            (oid(&[1, 2]), Value::Integer(12)),
            (oid(&[1, 2]), Value::EndOfMibView),
            (oid(&[1, 1]), Value::Integer(11)),
            (oid(&[9]), Value::EndOfMibView)
        ]
    );
    let bulk = Content::GetBulk {
        non_repeaters: 1,
        repetitions: 9,
        ranges: vec![range(&[2], &[]), range(&[1], &[2]), range(&[2, 1], &[3])],
    };
    let found: Vec<_> = asked(&mut session, bulk)
        .1
        .into_iter()
        .map(|(_, value)| value)
        .collect();
    assert_eq!(
        found,
        [
            Value::Integer(21),
            Value::Integer(11),
            Value::Integer(22),
            Value::Integer(12),
            Value::EndOfMibView,
            Value::EndOfMibView,
            Value::EndOfMibView
        ]
    );
}

#[test]
fn nothing_can_be_written_and_another_context_is_not_known() {
    let mut session = open();
    assert_eq!(asked(&mut session, Content::TestSet).0, 17);
    session
        .receive(&pdu("", Content::Get(vec![range(&[1, 1], &[])])), &objects())
        .unwrap();
    let answers = sent(&mut session);
    assert!(
        matches!(answers[0].content, Content::Response { error: 262, .. }),
        "{answers:?}"
    );
    // A request that cannot be read fails alone.
    let mut bytes = pdu("sw", Content::Get(vec![range(&[1, 1], &[])]));
    bytes[32] = 200;
    session.receive(&bytes, &objects()).unwrap();
    assert!(matches!(
        sent(&mut session)[0].content,
        Content::Response { error: 266, .. }
    ));
    assert_eq!(asked(&mut session, Content::Get(vec![range(&[1, 1], &[])])).0, 0);
}

#[test]
fn a_subtree_that_another_agent_has_is_named_with_the_remedy() {
    let mut session = Session::new("test", "", &[oid(&[1])]);
    session.receive(&response(0), &objects()).unwrap();
    let error = session.receive(&response(263), &objects()).unwrap_err();
    assert_eq!(error, SessionError::Duplicate { subtree: oid(&[1]) });
    assert!(error.to_string().contains("ifXTable"), "{error}");
    let mut session = open();
    let error = session
        .receive(&pdu("", Content::Close { reason: 5 }), &objects())
        .unwrap_err();
    assert_eq!(error, SessionError::Closed(5));
    let error = Session::new("test", "", &[])
        .receive(&[9; 40], &objects())
        .unwrap_err();
    assert!(error.to_string().contains("version 9: expected 1"), "{error}");
}
