//! Files that commands of SMB 1 and 2 write and read.

use super::*;
use crate::app::file::FileState;

const UP: Direction = Direction::ToServer;
const DOWN: Direction = Direction::ToClient;

/// Returns a command of SMB 2 in a message of its own.
pub(super) fn numbered(number: u16, message: u8, tree: u8, body: &[u8]) -> Vec<u8> {
    let mut out = command(number, body, false);
    (out[24], out[36]) = (message, tree);
    session(&out)
}

pub(super) fn utf_16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

pub(super) fn create(name: &str) -> Vec<u8> {
    let name = utf_16(name);
    let mut out = vec![0; 56];
    out[44..46].copy_from_slice(&120_u16.to_le_bytes());
    out[46..48].copy_from_slice(&(name.len() as u16).to_le_bytes());
    [out, name].concat()
}

pub(super) fn created(file: u8) -> Vec<u8> {
    let mut out = vec![0; 88];
    out[64] = file;
    out
}

pub(super) fn write_at(file: u8, offset: u64, data: &[u8]) -> Vec<u8> {
    let mut out = write_to(file, data);
    out[8..16].copy_from_slice(&offset.to_le_bytes());
    out
}

pub(super) fn read_at(file: u8, offset: u64) -> Vec<u8> {
    let mut out = vec![0; 48];
    out[8..16].copy_from_slice(&offset.to_le_bytes());
    out[16] = file;
    out
}

pub(super) fn answer(data: &[u8]) -> Vec<u8> {
    let size = (data.len() as u32).to_le_bytes();
    [&[17, 0, 80, 0][..], &size, &[0; 8], data].concat()
}

fn close(file: u8) -> Vec<u8> {
    let mut out = vec![0; 24];
    out[8] = file;
    out
}

/// Parses messages in chunks of a size, and returns name, data and state of each file.
fn files(messages: &[(Direction, Vec<u8>)], size: usize) -> Vec<(String, Vec<u8>, FileState)> {
    let (mut smb, mut out) = (Smb::new(AppSettings::default()), Transactions::default());
    for (direction, bytes) in messages {
        for bytes in bytes.chunks(size) {
            smb.data(StreamChunk::of(*direction, bytes), &mut out);
        }
    }
    let of = |transaction: &Transaction| {
        let file = transaction.files.first()?;
        let data = transaction
            .buffer(Buffer::FileData, file.direction)
            .unwrap_or_default();
        let name = transaction
            .buffer(Buffer::FileName, file.direction)
            .unwrap_or_default();
        assert_eq!(name, file.name);
        Some((
            String::from_utf8_lossy(name).into_owned(),
            data.to_vec(),
            file.state,
        ))
    };
    out.list.iter().filter_map(of).collect()
}

fn file(name: &str, data: &[u8], state: FileState) -> (String, Vec<u8>, FileState) {
    (name.to_owned(), data.to_vec(), state)
}

#[test]
fn a_file_that_is_written_or_read_has_its_name_and_bytes() {
    let messages = [
        (UP, numbered(5, 1, 7, &create("evil.exe"))),
        (DOWN, numbered(5, 1, 7, &created(3))),
        (UP, numbered(9, 2, 7, &write_at(3, 0, b"MZ first "))),
        (UP, numbered(9, 3, 7, &write_at(3, 9, b"second"))),
        (UP, numbered(8, 4, 7, &read_at(3, 0))),
        (DOWN, numbered(8, 4, 7, &answer(b"what it had"))),
        (UP, numbered(6, 5, 7, &close(3))),
        (DOWN, numbered(6, 5, 7, &[0; 60])),
    ];
    for size in [1, 7, 100_000] {
        let expected = [
            file("evil.exe", b"MZ first second", FileState::Closed),
            file("evil.exe", b"what it had", FileState::Closed),
        ];
        assert_eq!(files(&messages, size), expected, "chunks of {size}");
    }
}

#[test]
fn pieces_in_any_order_are_inspected_in_the_order_of_the_file() {
    let pieces: [(u64, &[u8]); 4] = [(0, b"needle "), (7, b"in the "), (14, b"hay"), (17, b"stack")];
    let orders = (0..24).map(|number| {
        let mut left: Vec<usize> = (0..4).collect();
        let (mut rest, mut order) = (number, Vec::new());
        for len in (1..=4).rev() {
            order.push(left.remove(rest % len));
            rest /= len;
        }
        order
    });
    for order in orders {
        let mut written = vec![
            (UP, numbered(5, 1, 7, &create("a"))),
            (DOWN, numbered(5, 1, 7, &created(1))),
        ];
        let mut read = written.clone();
        for (message, piece) in order.iter().enumerate() {
            let ((offset, data), message) = (pieces[*piece], message as u8 + 10);
            written.push((UP, numbered(9, message, 7, &write_at(1, offset, data))));
            read.push((UP, numbered(8, message, 7, &read_at(1, offset))));
            read.push((DOWN, numbered(8, message, 7, &answer(data))));
        }
        for messages in [written, read] {
            let found = files(&messages, 100_000);
            assert_eq!(found[0].1, b"needle in the haystack", "{order:?}");
        }
    }
}

#[test]
fn bytes_behind_a_hole_are_inspected_when_the_file_is_closed() {
    let messages = [
        (UP, numbered(5, 1, 7, &create("a"))),
        (DOWN, numbered(5, 1, 7, &created(1))),
        (UP, numbered(9, 2, 7, &write_at(1, 100, b"behind"))),
        (UP, numbered(6, 3, 7, &close(1))),
        (DOWN, numbered(6, 3, 7, &[0; 60])),
    ];
    assert_eq!(files(&messages[..3], 4096)[0].1, b"");
    assert_eq!(
        files(&messages, 4096),
        [file("a", b"behind", FileState::Truncated)]
    );
}

#[test]
fn pieces_behind_holes_take_bounded_memory() {
    let (mut smb, mut out) = (Smb::new(AppSettings::default()), Transactions::default());
    for piece in 0..1000_u64 {
        let bytes = numbered(9, 1, 7, &write_at(1, 1 + piece * 100_000, &[b'x'; 30_000]));
        smb.data(StreamChunk::of(UP, &bytes), &mut out);
        assert!(crate::app::heap::Heap::heap(&smb.files) < 3 << 20);
    }
}

#[test]
fn a_file_in_a_large_message_is_inspected() {
    let data: Vec<u8> = (0..MESSAGE_SIZE + 5000)
        .map(|at| b'a' + (at % 23) as u8)
        .collect();
    let opened = [
        (UP, numbered(5, 1, 7, &create("big"))),
        (DOWN, numbered(5, 1, 7, &created(9))),
    ];
    let written = [
        (UP, numbered(9, 2, 7, &write_at(9, 0, &data))),
        (UP, numbered(9, 3, 7, &write_at(9, data.len() as u64, b"end"))),
    ];
    let read = [
        (UP, numbered(8, 2, 7, &read_at(9, 0))),
        (DOWN, numbered(8, 2, 7, &answer(&data))),
    ];
    let limit = AppSettings::default().attachment_limit;
    for messages in [written, read] {
        for size in [1000, 1460, 1 << 20] {
            let found = files(&[&opened[..], &messages].concat(), size);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].0, "big");
            assert!(found[0].1 == data[..limit], "{} bytes", found[0].1.len());
        }
    }
}

#[test]
fn pipes_are_no_files() {
    let call = dcerpc::tests::message(0, 3, b"stub data");
    let messages = [
        (UP, numbered(3, 1, 0, &tree("\\\\host\\IPC$"))),
        (DOWN, numbered(3, 1, 5, &[0; 16])),
        (UP, numbered(5, 2, 5, &create("srvsvc"))),
        (DOWN, numbered(5, 2, 5, &created(1))),
        (UP, numbered(9, 3, 5, &write_at(1, 0, &call))),
        (UP, numbered(8, 4, 5, &read_at(1, 0))),
        (DOWN, numbered(8, 4, 5, &answer(&call))),
    ];
    assert_eq!(files(&messages, 4096), []);
}

#[test]
fn a_file_of_smb_1_is_inspected() {
    let message = |number: u8, mid: u8, words: &[u8], bytes: &[u8]| {
        let mut out = vec![0; HEADER_1];
        out[..4].copy_from_slice(b"\xffSMB");
        (out[4], out[30]) = (number, mid);
        out.push((words.len() / 2) as u8);
        out.extend_from_slice(words);
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(bytes);
        session(&out)
    };
    let mut opened = vec![0xff; 1];
    opened.resize(68, 0);
    opened[5] = 4;
    let mut write = vec![0; 28];
    (write[0], write[4], write[20]) = (0xff, 4, 6);
    write[22] = (HEADER_1 + 1 + 28 + 2) as u8;
    let mut read = vec![0; 24];
    (read[0], read[4]) = (0xff, 4);
    let mut answer = vec![0; 24];
    (answer[0], answer[10], answer[12]) = (0xff, 6, (HEADER_1 + 1 + 24 + 2) as u8);
    let messages = [
        (
            UP,
            message(0xa2, 1, &[&[0xff][..], &[0; 47]].concat(), b"evil.exe\0"),
        ),
        (DOWN, message(0xa2, 1, &opened, b"")),
        (UP, message(0x2f, 2, &write, b"needle")),
        (UP, message(0x2e, 3, &read, b"")),
        (DOWN, message(0x2e, 3, &answer, b"haysta")),
        (UP, message(0x04, 4, &[4, 0, 0, 0, 0, 0], b"")),
        (DOWN, message(0x04, 4, b"", b"")),
    ];
    for size in [1, 4096] {
        let expected = [
            file("evil.exe", b"needle", FileState::Closed),
            file("evil.exe", b"haysta", FileState::Closed),
        ];
        assert_eq!(files(&messages, size), expected);
    }
}
