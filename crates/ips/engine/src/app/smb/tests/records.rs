//! Records of files, calls, pipes and users.

use super::files::{answer, create, created, numbered, read_at, utf_16, write_at};
use super::*;
use crate::app::record::{Fields, Value};

const UP: Direction = Direction::ToServer;
const DOWN: Direction = Direction::ToClient;

/// Returns the records of messages.
fn records(messages: &[(Direction, Vec<u8>)]) -> Vec<SmbRecord> {
    let settings = AppSettings {
        keeps_records: true,
        ..AppSettings::default()
    };
    let (mut smb, mut out) = (Smb::new(settings), Transactions::default());
    for (direction, bytes) in messages {
        smb.data(StreamChunk::of(*direction, bytes), &mut out);
    }
    let of = |transaction: &Transaction| match &transaction.record {
        Record::Smb(record) => Some((**record).clone()),
        _ => None,
    };
    out.list.iter().filter_map(of).collect()
}

fn text<'a>(fields: &'a mut Fields, name: &str) -> Option<&'a [u8]> {
    match fields.value(name)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

#[test]
fn what_is_read_and_written_of_a_file_is_a_record_with_its_name_and_identifier() {
    let messages = [
        (UP, numbered(5, 1, 7, &create("evil.exe"))),
        (DOWN, numbered(5, 1, 7, &created(3))),
        (UP, numbered(9, 2, 7, &write_at(3, 0, b"written"))),
        (UP, numbered(8, 3, 7, &read_at(3, 0))),
        (DOWN, numbered(8, 3, 7, &answer(b"read"))),
    ];
    let found = records(&messages);
    for command in ["SMB2_COMMAND_WRITE", "SMB2_COMMAND_READ"] {
        let of = |record: &&SmbRecord| record.command == command.as_bytes();
        let mut record = found.iter().find(of).unwrap().clone();
        assert_eq!(record.filename.as_deref(), Some(&b"evil.exe"[..]));
        assert_eq!((record.tree_id, record.status), (7, Some(0)));
        assert_eq!(
            text(&mut record.more, "fuid"),
            Some(&b"00000003-0000-0000-0000-000000000000"[..])
        );
    }
}

#[test]
fn a_bind_and_a_call_in_a_pipe_are_records_with_the_tree_of_their_message() {
    let bind = dcerpc::tests::message(11, 3, &[0; 4]);
    let call = dcerpc::tests::message(0, 3, b"stub data");
    let messages = [
        (UP, numbered(3, 1, 0, &tree("\\\\host\\IPC$"))),
        (DOWN, numbered(3, 1, 5, &[0; 16])),
        (UP, numbered(5, 2, 5, &create("srvsvc"))),
        (DOWN, numbered(5, 2, 5, &created(1))),
        (UP, numbered(9, 3, 5, &write_at(1, 0, &bind))),
        (UP, numbered(9, 4, 5, &write_at(1, 0, &call))),
    ];
    let mut found = records(&messages);
    let pipe = found
        .iter_mut()
        .find(|record| record.command == b"SMB2_COMMAND_TREE_CONNECT");
    let pipe = pipe.unwrap();
    assert_eq!(
        (text(&mut pipe.more, "named_pipe"), &pipe.share),
        (Some(&b"\\\\host\\IPC$"[..]), &None)
    );
    let calls: Vec<&SmbRecord> = found.iter().filter(|record| record.dcerpc.is_some()).collect();
    assert_eq!(calls.len(), 2);
    for call in calls {
        assert_eq!((&call.command[..], call.tree_id), (&b"SMB2_COMMAND_WRITE"[..], 5));
    }
}

#[test]
fn the_user_of_a_session_has_a_host_and_a_version() {
    let mut message = vec![0; 72];
    message[..9].copy_from_slice(b"NTLMSSP\0\x03");
    message[60..64].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    message[64..72].copy_from_slice(&[10, 0, 0x61, 0x4a, 0, 0, 0, 15]);
    for (field, name) in [(28, "REALM"), (36, "alice"), (44, "HOST")] {
        let (at, name) = (message.len() as u8, utf_16(name));
        (message[field], message[field + 2], message[field + 4]) = (name.len() as u8, name.len() as u8, at);
        message.extend(name);
    }
    let mut body = vec![0; 24];
    (body[0], body[12], body[14]) = (25, (HEADER_2 + 24) as u8, message.len() as u8);
    let mut found = records(&[(UP, numbered(1, 1, 0, &[body, message].concat()))]);
    let ntlmssp = &mut found
        .iter_mut()
        .find(|record| record.ntlmssp != Fields::default())
        .unwrap()
        .ntlmssp;
    for (name, expected) in [
        ("domain", &b"REALM"[..]),
        ("user", b"alice"),
        ("host", b"HOST"),
        ("version", b"10.0 build 19041 rev 15"),
    ] {
        assert_eq!(text(ntlmssp, name), Some(expected), "{name}");
    }
}
