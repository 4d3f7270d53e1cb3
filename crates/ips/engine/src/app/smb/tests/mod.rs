//! Messages of SMB 1 and 2: chained, split, large, with calls in pipes, and with files.

mod files;
mod records;

use super::*;
use crate::app::transaction::Transaction;

fn session(body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0], &size[1..], body].concat()
}

/// Returns a command of SMB 2, padded to eight bytes if another follows.
fn command(number: u16, body: &[u8], is_followed: bool) -> Vec<u8> {
    let mut out = vec![0; HEADER_2];
    out[..4].copy_from_slice(b"\xfeSMB");
    out[12..14].copy_from_slice(&number.to_le_bytes());
    out.extend_from_slice(body);
    if is_followed {
        out.resize(out.len().next_multiple_of(8), 0);
        let next = u32::try_from(out.len()).unwrap().to_le_bytes();
        out[20..24].copy_from_slice(&next);
    }
    out
}

fn tree(path: &str) -> Vec<u8> {
    let path: Vec<u8> = path.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let size = u16::try_from(path.len()).unwrap().to_le_bytes();
    [&[9, 0, 0, 0, 72, 0][..], &size, &path].concat()
}

fn write(data: &[u8]) -> Vec<u8> {
    write_to(0, data)
}

fn write_to(file: u8, data: &[u8]) -> Vec<u8> {
    let size = u32::try_from(data.len()).unwrap().to_le_bytes();
    let mut out = vec![49, 0, 112, 0];
    out.extend_from_slice(&size);
    out.resize(48, 0);
    out[16] = file;
    out.extend_from_slice(data);
    out
}

/// Returns the stub data of the calls in messages of the client, each with a command of SMB 2.
fn stubs(writes: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut smb, mut out) = (Smb::new(AppSettings::default()), Transactions::default());
    for write in writes {
        let bytes = session(&command(9, write, false));
        smb.data(StreamChunk::of(Direction::ToServer, &bytes), &mut out);
    }
    let stub = |transaction: &Transaction| {
        let stub = transaction.buffer(Buffer::DceStubData, Direction::ToServer);
        stub.unwrap_or_default().to_vec()
    };
    out.list.iter().map(stub).collect()
}

#[test]
fn a_call_that_is_cut_anywhere_into_two_writes_is_whole() {
    // The stub data look like another call.
    let inner = dcerpc::tests::message(0, 3, b"inner");
    let call = dcerpc::tests::message(0, 3, &[&b"stub "[..], &inner].concat());
    for at in 1..call.len() {
        let found = stubs(&[write(&call[..at]), write(&call[at..])]);
        assert!(found.contains(&call[24..].to_vec()), "{at}");
    }
}

#[test]
fn calls_of_pipes_between_each_other_do_not_mix() {
    let call = |flags, stub: &[u8]| dcerpc::tests::message(0, flags, stub);
    let (first, second) = (call(1, b"one "), call(1, b"two "));
    let found = stubs(&[
        write_to(1, &first[..20]),
        write_to(2, &second),
        write_to(1, &first[20..]),
        write_to(2, &call(2, b"end")),
        write_to(1, &call(2, b"END")),
    ]);
    assert_eq!(found, [b"two end".to_vec(), b"one END".to_vec()]);
}

#[test]
fn the_answers_of_pipes_are_those_of_their_calls() {
    let numbered = |number: u16, body: &[u8], message: u8| {
        let mut out = command(number, body, false);
        out[24] = message;
        session(&out)
    };
    let read = |file: u8| {
        let mut out = vec![0; 48];
        out[16] = file;
        out
    };
    let answer = |data: &[u8]| [&[17, 0, 80, 0, data.len() as u8, 0, 0, 0][..], &[0; 8], data].concat();
    let (request, response) = (
        dcerpc::tests::message(0, 3, b"call"),
        dcerpc::tests::message(2, 3, b"answer"),
    );
    let (up, down) = (Direction::ToServer, Direction::ToClient);
    let (mut smb, mut out) = (Smb::new(AppSettings::default()), Transactions::default());
    for (direction, bytes) in [
        (up, numbered(9, &write_to(1, &request), 1)),
        (up, numbered(9, &write_to(2, &request), 2)),
        (up, numbered(8, &read(1), 3)),
        (up, numbered(8, &read(2), 4)),
        (down, numbered(8, &answer(&response[..9]), 3)),
        (up, numbered(8, &read(1), 5)),
        (down, numbered(8, &answer(&response), 4)),
        (down, numbered(8, &answer(&response[9..]), 5)),
    ] {
        smb.data(StreamChunk::of(direction, &bytes), &mut out);
    }
    assert_eq!(out.list.len(), 2);
    for transaction in &out.list {
        assert_eq!(
            transaction.buffer(Buffer::DceStubData, down),
            Some(&b"answer"[..])
        );
    }
}

#[test]
fn a_large_message_that_hides_commands_or_calls_is_an_event() {
    let large = |data: &[u8], next: u8| {
        let mut body = command(9, &write(data), false);
        body.resize(MESSAGE_SIZE + 1000, b'x');
        body[20] = next;
        let mut smb = Smb::new(AppSettings::default());
        let mut out = Transactions::default();
        for bytes in session(&body).chunks(100) {
            smb.data(StreamChunk::of(Direction::ToServer, bytes), &mut out);
        }
        out.events
    };
    assert_eq!(large(b"file", 0), [""; 0]);
    assert_eq!(large(b"file", 200), ["smb.record_overflow"]);
    assert_eq!(large(b"\x05\x00\x00\x03", 0), ["smb.record_overflow"]);
}

#[test]
fn chained_and_split_commands_give_shares_pipes_and_stub_data() {
    let call = dcerpc::tests::message(0, 3, b"stub data");
    let bytes = [
        session(
            &[
                command(3, &tree("\\\\host\\data"), true),
                command(3, &tree("\\\\host\\IPC$"), false),
            ]
            .concat(),
        ),
        session(&command(9, &write(&call), false)),
    ]
    .concat();
    for step in [1, 5, 4096] {
        let mut smb = Smb::new(AppSettings::default());
        let mut out = Transactions::default();
        for bytes in bytes.chunks(step) {
            let chunk = StreamChunk::of(Direction::ToServer, bytes);
            smb.data(chunk, &mut out);
        }
        let first = |index: usize, buffer| out.list[index].buffer(buffer, Direction::ToServer);
        assert_eq!(
            first(0, Buffer::SmbShare),
            Some(&b"\\\\host\\data"[..]),
            "in steps of {step}"
        );
        assert_eq!(first(1, Buffer::SmbNamedPipe), Some(&b"\\\\host\\IPC$"[..]));
        assert_eq!(first(2, Buffer::DceStubData), Some(&b"stub data"[..]));
    }
}

#[test]
fn a_file_with_bytes_like_a_call_does_not_hide_the_calls_behind_it() {
    let call = dcerpc::tests::message(0, 3, b"stub data");
    let mut too_short = call.clone();
    too_short[8] = 4;
    let cut = &dcerpc::tests::message(0, 3, &[0; 1000])[..40];
    for bait in [&too_short[..], cut] {
        let mut smb = Smb::new(AppSettings::default());
        let mut out = Transactions::default();
        for data in [bait, &call] {
            let bytes = session(&command(9, &write(data), false));
            let chunk = StreamChunk::of(Direction::ToServer, &bytes);
            smb.data(chunk, &mut out);
        }
        assert_eq!(out.list.len(), 1);
        assert_eq!(
            out.list[0].buffer(Buffer::DceStubData, Direction::ToServer),
            Some(&b"stub data"[..])
        );
    }
}

#[test]
fn a_tree_connect_of_smb_1_gives_its_share() {
    let mut data = vec![0; HEADER_1];
    data[..5].copy_from_slice(b"\xffSMB\x75");
    data.extend_from_slice(&[4, 0xff, 0, 0, 0, 0, 0, 1, 0, 20, 0, 0]);
    data.extend_from_slice(b"\\\\HOST\\C$\0?????\0");
    let mut out = Transactions::default();
    Smb::new(AppSettings::default()).message(&data, Direction::ToServer, &mut out);
    // The same after a session setup in one message.
    let connect = data.split_off(HEADER_1);
    data[4] = 0x73;
    data.extend_from_slice(&[13, 0x75, 0, HEADER_1 as u8 + 29, 0]);
    data.resize(HEADER_1 + 29, 0);
    data.extend_from_slice(&connect);
    Smb::new(AppSettings::default()).message(&data, Direction::ToServer, &mut out);
    assert_eq!(
        out.list[1].buffer(Buffer::SmbShare, Direction::ToServer),
        Some(&b"\\\\HOST\\C$"[..])
    );
    assert_eq!(
        out.list[0].buffer(Buffer::SmbShare, Direction::ToServer),
        Some(&b"\\\\HOST\\C$"[..])
    );
}
