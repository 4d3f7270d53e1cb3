use super::*;
use crate::app::file::FileState;
use crate::app::transaction::Transaction;
use millrace_ips_rules::options::enumerations::NFS_NAMED;
use millrace_ips_rules::options::number::NumberField;

const UP: Direction = Direction::ToServer;
const DOWN: Direction = Direction::ToClient;

type Message = (Direction, Vec<u8>);

fn settings() -> AppSettings {
    AppSettings {
        hashes_files: true,
        ..AppSettings::default()
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = words(&[bytes.len() as u32]);
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn call(identifier: u32, version: u32, procedure: u32, arguments: &[Vec<u8>]) -> Message {
    let head = words(&[identifier, 0, 2, 100_003, version, procedure, 0, 0, 0, 0]);
    (UP, [head, arguments.concat()].concat())
}

fn reply(identifier: u32, results: &[Vec<u8>]) -> Message {
    let head = words(&[identifier, 1, 0, 0, 0, 0]);
    (DOWN, [head, results.concat()].concat())
}

/// Returns a call COMPOUND of version 4.1 with a number of operations.
fn compound(identifier: u32, len: u32, operations: &[Vec<u8>]) -> Message {
    let head = [opaque(b"tag"), words(&[1, len])].concat();
    call(identifier, 4, 1, &[head, operations.concat()])
}

/// Returns the reply to a COMPOUND.
fn results(identifier: u32, len: u32, operations: &[Vec<u8>]) -> Message {
    let head = [words(&[0]), opaque(b"tag"), words(&[len])].concat();
    reply(identifier, &[head, operations.concat()])
}

/// Returns a record in fragments of a size.
fn fragments(message: &[u8], size: usize) -> Vec<u8> {
    let count = message.len().div_ceil(size);
    let marked = |(at, bytes): (usize, &[u8])| {
        let last = if at + 1 == count { 0x8000_0000 } else { 0 };
        [words(&[last | bytes.len() as u32]), bytes.to_vec()].concat()
    };
    message.chunks(size).enumerate().flat_map(marked).collect()
}

/// Returns direction, name, bytes and state of each file.
fn files(out: &Transactions) -> Vec<(Direction, String, String, FileState)> {
    let of = |transaction: &Transaction| {
        let file = transaction.files.first()?;
        let text = |buffer| {
            let bytes = transaction.buffer(buffer, file.direction).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        Some((
            file.direction,
            text(Buffer::FileName),
            text(Buffer::FileData),
            file.state,
        ))
    };
    out.list.iter().filter_map(of).collect()
}

/// Parses messages over TCP, in fragments and segments of these sizes.
fn over_tcp(messages: &[Message], fragment: usize, segment: usize) -> Transactions {
    let (mut nfs, mut out) = (Nfs::new(Transport::Tcp, settings()), Transactions::default());
    for (direction, message) in messages {
        for bytes in fragments(message, fragment).chunks(segment) {
            nfs.data(StreamChunk::of(*direction, bytes), &mut out);
        }
    }
    for direction in Direction::BOTH {
        nfs.end(direction, &mut out);
    }
    out
}

fn over_udp(messages: &[Message]) -> Transactions {
    let (mut nfs, mut out) = (Nfs::new(Transport::Udp, settings()), Transactions::default());
    for (direction, message) in messages {
        nfs.data(StreamChunk::of(*direction, message), &mut out);
    }
    for direction in Direction::BOTH {
        nfs.end(direction, &mut out);
    }
    out
}

/// Checks that messages have these files, in any segmentation and in fragments, and returns their transactions.
fn check(messages: &[Message], expected: &[(Direction, &str, &str, FileState)]) -> Transactions {
    let expected: Vec<_> = expected
        .iter()
        .map(|(direction, name, data, state)| (*direction, name.to_string(), data.to_string(), *state))
        .collect();
    for (fragment, segment) in [
        (1 << 20, 1),
        (1 << 20, 3),
        (1 << 20, 7),
        (1 << 20, 1 << 20),
        (10, 1),
        (50, 9),
    ] {
        let out = over_tcp(messages, fragment, segment);
        assert_eq!(
            files(&out),
            expected,
            "fragments of {fragment}, segments of {segment}"
        );
        assert!(!out.has_lost);
    }
    let out = over_udp(messages);
    assert_eq!(files(&out), expected, "UDP");
    out
}

/// Returns the texts of fields of records, those of files included.
fn texts(out: &mut Transactions, name: &str) -> Vec<String> {
    let of = |transaction: &mut Transaction| match &mut transaction.record {
        Record::Fields(fields) => match fields.value(name) {
            Some(Value::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    out.list.iter_mut().map(of).collect()
}

#[test]
fn a_call_and_its_reply_are_a_record_with_those_of_rpc() {
    // A call LOOKUP with a credential of AUTH_SYS of the machine "host", user 7 and group 8.
    let call = [
        &words(&[9, 0, 2, 100_003, 3, 3, 1, 24, 0, 4])[..],
        b"host",
        &words(&[7, 8, 0, 0, 0, 9]),
        b"123456789\0\0\0",
        &words(&[8]),
        b"file.txt",
    ]
    .concat();
    let denied = words(&[9, 1, 1, 1, 5]);
    for (reply, rpc_status, status) in [
        (
            words(&[9, 1, 0, 0, 0, 0, 2]),
            &b"ACCEPTED"[..],
            Some(&b"ERR_NOENT"[..]),
        ),
        (denied, b"DENIED", None),
    ] {
        let out = over_udp(&[(UP, call.clone()), (DOWN, reply)]);
        let mut expected = Fields::default();
        expected
            .number("version", 3_u32)
            .text("procedure", b"LOOKUP")
            .text("filename", b"file.txt")
            // The CRC-32 of the digits 1 to 9, as catalogues of checksums have it.
            .text("hhash", b"cbf43926")
            .flag("file_tx", false)
            .object("rpc", |out| {
                out.number("xid", 9_u32)
                    .text("auth_type", b"UNIX")
                    .object("creds", |out| {
                        out.text("machine_name", b"host")
                            .number("uid", 7_u32)
                            .number("gid", 8_u32);
                    })
                    .text("status", rpc_status);
            })
            .text("type", b"response");
        if let Some(status) = status {
            expected.text("status", status);
        }
        assert_eq!(out.list[0].record, Record::Fields(Box::new(expected)));
    }
}

/// Returns LOOKUP of version 3 and its reply, which gives the handle.
fn lookup_3(identifier: u32, name: &[u8], handle: &[u8]) -> [Message; 2] {
    let arguments = [opaque(b"directory"), opaque(name)];
    [
        call(identifier, 3, 3, &arguments),
        reply(identifier, &[words(&[0]), opaque(handle), words(&[0, 0])]),
    ]
}

fn write_3(identifier: u32, handle: &[u8], offset: u32, data: &[u8]) -> Message {
    let size = data.len() as u32;
    call(
        identifier,
        3,
        7,
        &[opaque(handle), words(&[0, offset, size, 0]), opaque(data)],
    )
}

fn read_3(identifier: u32, handle: &[u8], offset: u32) -> Message {
    call(identifier, 3, 6, &[opaque(handle), words(&[0, offset, 1000])])
}

fn answer_3(identifier: u32, is_eof: bool, data: &[u8]) -> Message {
    let attributes = [words(&[1]), vec![0; 84]].concat();
    let head = words(&[data.len() as u32, u32::from(is_eof)]);
    reply(identifier, &[words(&[0]), attributes, head, opaque(data)])
}

#[test]
fn files_of_version_3_are_written_and_read_in_any_order() {
    let mut messages = Vec::from(lookup_3(1, b"up.exe", b"up"));
    messages.extend(lookup_3(2, b"down.exe", b"down"));
    messages.extend([
        write_3(3, b"up", 4, b"efgh"),
        write_3(4, b"up", 0, b"abcd"),
        call(5, 3, 21, &[opaque(b"up"), words(&[0, 0, 0])]),
        reply(4, &[words(&[0])]),
        reply(3, &[words(&[0])]),
        reply(5, &[words(&[0])]),
        read_3(6, b"down", 0),
        read_3(7, b"down", 3),
        answer_3(7, true, b"456"),
        answer_3(6, false, b"123"),
        // A file that is read to its end is read again.
        read_3(8, b"down", 0),
        answer_3(8, true, b"123456"),
        // A file of an unknown name, to the end of the connection.
        write_3(9, b"other", 0, b"xy"),
    ]);
    let mut out = check(
        &messages,
        &[
            (UP, "up.exe", "abcdefgh", FileState::Closed),
            (DOWN, "down.exe", "123456", FileState::Closed),
            (DOWN, "down.exe", "123456", FileState::Closed),
            (UP, "", "xy", FileState::Closed),
        ],
    );
    let is_file = |out: &Transactions| {
        out.list
            .iter()
            .map(|found| !found.files.is_empty())
            .collect::<Vec<_>>()
    };
    let is_file = is_file(&out);
    let procedures = texts(&mut out, "procedure");
    let names = texts(&mut out, "filename");
    let of_files: Vec<_> = procedures
        .iter()
        .zip(&names)
        .zip(&is_file)
        .filter(|(_, is_file)| **is_file)
        .map(|((procedure, name), _)| (procedure.as_str(), name.as_str()))
        .collect();
    assert_eq!(
        of_files,
        [
            ("WRITE", "up.exe"),
            ("READ", "down.exe"),
            ("READ", "down.exe"),
            ("WRITE", "")
        ]
    );
    // The record of a call that reads has the name of its file, too.
    assert!(
        procedures
            .iter()
            .zip(&names)
            .zip(&is_file)
            .any(|((procedure, name), is_file)| { procedure == "READ" && name == "down.exe" && !is_file })
    );
}

#[test]
fn files_of_version_2_end_at_the_size_that_their_attributes_tell() {
    let handle = |byte: u8| vec![byte; 32];
    let attributes = |size: u32| [vec![0; 20], words(&[size]), vec![0; 44]].concat();
    let messages = [
        call(1, 2, 9, &[handle(1), opaque(b"new.txt"), vec![0; 32]]),
        reply(1, &[words(&[0]), handle(2), attributes(0)]),
        call(2, 2, 8, &[handle(2), words(&[0, 0, 0]), opaque(b"hello")]),
        reply(2, &[words(&[0]), attributes(5)]),
        call(3, 2, 6, &[handle(2), words(&[0, 3, 3])]),
        reply(3, &[words(&[0]), attributes(5), opaque(b"hel")]),
        call(4, 2, 6, &[handle(2), words(&[3, 3, 3])]),
        reply(4, &[words(&[0]), attributes(5), opaque(b"lo")]),
        // The file was read to its end, and this is the begin of another time.
        call(5, 2, 6, &[handle(2), words(&[0, 3, 3])]),
        reply(5, &[words(&[0]), attributes(5), opaque(b"HEL")]),
    ];
    check(
        &messages,
        &[
            (UP, "new.txt", "hello", FileState::Closed),
            (DOWN, "new.txt", "hello", FileState::Closed),
            (DOWN, "new.txt", "HEL", FileState::Closed),
        ],
    );
}

const STATEID: [u32; 4] = [1, 2, 3, 4];

/// Returns SEQUENCE and PUTFH, and their results.
fn with_handle(handle: &[u8]) -> Vec<u8> {
    let sequence = words(&[53, 1, 1, 1, 1, 9, 0, 0, 1]);
    [sequence, words(&[22]), opaque(handle)].concat()
}

fn with_handle_done() -> Vec<u8> {
    words(&[53, 0, 1, 1, 1, 1, 9, 0, 0, 0, 0, 22, 0])
}

fn write_4(offset: u32, data: &[u8]) -> Vec<u8> {
    let head = [&[38][..], &STATEID, &[0, offset, 2]].concat();
    [words(&head), opaque(data)].concat()
}

fn getattr() -> Vec<u8> {
    words(&[9, 2, 0x18, 0x30])
}

/// Returns OPEN of a file that is created in the current directory, with its attributes.
fn open(name: &[u8]) -> Vec<u8> {
    let owner = [words(&[18, 7, 3, 0, 0, 5]), opaque(b"owner")].concat();
    // UNCHECKED, with a mode; CLAIM_NULL.
    let how = [words(&[1, 0, 2, 0, 2]), opaque(&[0, 0, 1, 0xa4]), words(&[0])].concat();
    [owner, how, opaque(name)].concat()
}

#[test]
fn operations_of_version_4_carry_names_and_bytes() {
    // The results of OPEN: a state, what changed, flags, attributes, and a delegation to write with the size as its limit.
    let opened = [
        words(&[18, 0]),
        words(&STATEID),
        words(&[1, 0, 1, 0, 2, 4, 1, 2]),
        words(&[2]),
        words(&STATEID),
        words(&[0, 1, 0, 9, 0, 0, 0]),
        opaque(b"EVERYONE@"),
    ]
    .concat();
    let read = |offset: u32| words(&[&[25][..], &STATEID, &[0, offset, 100]].concat());
    let read_done = |is_eof: u32, data: &[u8]| [words(&[25, 0, is_eof]), opaque(data)].concat();
    let handle_done = [words(&[10, 0]), opaque(b"handle")].concat();
    let attributes = [words(&[9, 0, 1, 0]), opaque(b"")].concat();
    let messages = [
        compound(
            1,
            5,
            &[
                with_handle(b"directory"),
                open(b"evil.exe"),
                words(&[10]),
                getattr(),
            ],
        ),
        results(
            1,
            5,
            &[with_handle_done(), opened, handle_done, attributes.clone()],
        ),
        compound(2, 4, &[with_handle(b"handle"), write_4(0, b"first "), getattr()]),
        compound(3, 4, &[with_handle(b"handle"), write_4(6, b"half"), getattr()]),
        results(
            3,
            4,
            &[
                with_handle_done(),
                words(&[38, 0, 4, 2, 0, 0]),
                attributes.clone(),
            ],
        ),
        results(
            2,
            4,
            &[with_handle_done(), words(&[38, 0, 6, 2, 0, 0]), attributes],
        ),
        compound(4, 3, &[with_handle(b"handle"), read(0)]),
        compound(5, 3, &[with_handle(b"handle"), read(3)]),
        results(5, 3, &[with_handle_done(), read_done(1, b"tail")]),
        results(4, 3, &[with_handle_done(), read_done(0, b"the")]),
        compound(6, 3, &[with_handle(b"handle"), words(&[4, 1]), words(&STATEID)]),
        results(6, 3, &[with_handle_done(), words(&[4, 0]), words(&STATEID)]),
        // A name is looked up and read in one message.
        compound(
            7,
            6,
            &[
                with_handle(b"directory"),
                words(&[32, 31, 15]),
                opaque(b"b.txt"),
                read(0),
            ],
        ),
        results(
            7,
            6,
            &[
                with_handle_done(),
                words(&[32, 0, 31, 0, 15, 0]),
                read_done(1, b"B"),
            ],
        ),
    ];
    let mut out = check(
        &messages,
        &[
            (UP, "evil.exe", "first half", FileState::Closed),
            (DOWN, "evil.exe", "thetail", FileState::Closed),
            (DOWN, "b.txt", "B", FileState::Closed),
        ],
    );
    let opening = &out.list[0];
    assert_eq!(opening.buffer(Buffer::FileName, UP), Some(&b"evil.exe"[..]));
    let mut numbers = opening.numbers(NumberField::NfsProcedure, UP);
    numbers.retain(|number| number & NFS_NAMED == 0);
    // No operation has the number 1, which COMPOUND has as a procedure.
    assert_eq!(numbers, [53, 22, 18, 10, 9]);
    assert_eq!(out.list[0].numbers(NumberField::NfsVersion, UP), [4]);
    let procedures = texts(&mut out, "procedure");
    assert_eq!(
        procedures,
        [
            "OPEN", "WRITE", "WRITE", "WRITE", "READ", "READ", "READ", "CLOSE", "READ", "READ"
        ]
    );
    let status = texts(&mut out, "status");
    assert!(status.iter().filter(|status| *status == "OK").count() >= 7);
    // The CRC-32 of the handle, in the record of the file as in that of its calls.
    let sums = texts(&mut out, "hhash");
    assert_eq!(sums[1], sums[2]);
    assert_eq!(sums[1].len(), 8);
}

#[test]
fn names_of_operations_of_version_4_are_buffers() {
    let rename = [words(&[29]), opaque(b"old"), opaque(b"new")].concat();
    let remove = [words(&[28]), opaque(b"gone")].concat();
    let mut out = over_udp(&[compound(1, 4, &[with_handle(b"d"), rename, remove])]);
    let names: Vec<_> = out.list[0]
        .buffers(Buffer::FileName, UP)
        .map(|view| view.bytes)
        .collect();
    assert_eq!(names, [&b"old"[..], b"new", b"gone"]);
    assert_eq!(texts(&mut out, "procedure"), ["RENAME"]);
    assert_eq!(texts(&mut out, "filename"), ["old"]);
}

#[test]
fn bytes_of_large_messages_are_passed_on_and_operations_behind_them_are_read() {
    let data: Vec<u8> = (0..300_001_u32).map(|at| at as u8).collect();
    let rest = [
        with_handle(b"h"),
        write_4(0, &data),
        words(&[15]),
        opaque(b"behind"),
        words(&[99]),
    ]
    .concat();
    let message = compound(1, 5, &[rest]);
    for (fragment, segment) in [(1 << 20, 1 << 20), (100_000, 1460), (1 << 20, 65_536)] {
        let mut out = over_tcp(std::slice::from_ref(&message), fragment, segment);
        let file = out.list.iter().find_map(|found| found.files.first()).unwrap();
        assert_eq!(
            (file.size, file.has_gaps, file.state),
            (300_001, false, FileState::Closed)
        );
        let mut whole = crate::app::file::File::new(UP, b"", true);
        whole.update(&data);
        whole.close(true);
        assert_eq!(file.hashes, whole.hashes);
        let mut names = out
            .list
            .iter()
            .filter_map(|found| found.buffer(Buffer::FileName, UP));
        assert_eq!(names.next(), Some(&b"behind"[..]), "{fragment} {segment}");
        assert_eq!(texts(&mut out, "procedure"), ["WRITE", "WRITE"]);
    }
    // The reply to READ of version 3.
    let messages = [read_3(1, b"h", 0), answer_3(1, true, &data)];
    let out = over_tcp(&messages, 1 << 20, 1460);
    let file = out.list.iter().find_map(|found| found.files.first()).unwrap();
    assert_eq!(
        (file.direction, file.size, file.state),
        (DOWN, 300_001, FileState::Closed)
    );
}

#[test]
fn lost_bytes_inside_of_a_large_message_are_a_hole_in_the_file() {
    let (_, message) = write_3(1, b"h", 0, &vec![b'x'; 200_000]);
    let record = fragments(&message, 1 << 20);
    let (_, next) = lookup_3(2, b"next", b"n")[0].clone();
    let (mut nfs, mut out) = (Nfs::new(Transport::Tcp, settings()), Transactions::default());
    nfs.data(StreamChunk::of(UP, &record[..100_000]), &mut out);
    let rest = [&record[130_000..], &fragments(&next, 1 << 20)].concat();
    let chunk = StreamChunk {
        gap_before: 30_000,
        ..StreamChunk::of(UP, &rest)
    };
    nfs.data(chunk, &mut out);
    nfs.end(UP, &mut out);
    let file = &out.list[0].files[0];
    assert_eq!(
        (file.size, file.has_gaps, file.state),
        (200_000, true, FileState::Truncated)
    );
    // The next message is found.
    assert_eq!(out.list[1].buffer(Buffer::FileName, UP), Some(&b"next"[..]));
}

#[test]
fn a_million_operations_are_bounded_and_the_loss_is_noted() {
    let many: Vec<u8> = words(&[24]).repeat(1_000_000);
    let out = over_tcp(&[compound(1, 1_000_000, &[many])], 1 << 30, 1 << 20);
    assert!(out.has_lost);
    // The number of an operation is kept once, and that of its name.
    let numbers = out.list[0].numbers(NumberField::NfsProcedure, UP);
    assert_eq!(numbers.len(), 2);
}

#[test]
fn arguments_with_integrity_are_read_and_encrypted_ones_are_not() {
    // A credential of RPCSEC_GSS: version 1, data, sequence 1, a service, and a context.
    for (service, expected) in [(1, 1), (2, 1), (3, 0)] {
        let credential = [words(&[1, 0, 1, service]), opaque(b"context")].concat();
        let head = [
            words(&[1, 0, 2, 100_003, 3, 7, 6]),
            opaque(&credential),
            words(&[6]),
            opaque(b"sum!"),
        ]
        .concat();
        let write = [opaque(b"h"), words(&[0, 0, 4, 0]), opaque(b"data")].concat();
        let wrapped = match service {
            1 => write,
            // The size, and the sequence number.
            2 => [words(&[4 + write.len() as u32, 1]), write, opaque(b"sum!")].concat(),
            _ => opaque(&[0x55; 40]),
        };
        let out = over_udp(&[(UP, [head, wrapped].concat())]);
        assert_eq!(files(&out).len(), expected, "service {service}");
    }
}

#[test]
fn the_memory_of_names_calls_and_files_is_bounded() {
    let (mut nfs, mut out) = (Nfs::new(Transport::Udp, settings()), Transactions::default());
    let name = vec![b'n'; 2000];
    let note = [words(&[15]), opaque(&name), words(&[10])].concat();
    for identifier in 0..2000_u32 {
        let handle = identifier.to_be_bytes();
        for (direction, bytes) in lookup_3(identifier, &name, &handle) {
            nfs.data(StreamChunk::of(direction, &bytes), &mut out);
        }
        let (_, waits) = compound(
            1_000_000 + identifier,
            22,
            &[with_handle(&handle), note.repeat(10)],
        );
        nfs.data(StreamChunk::of(UP, &waits), &mut out);
        let (_, behind) = write_3(2_000_000 + identifier, &handle, 9, &[0; 20_000]);
        nfs.data(StreamChunk::of(UP, &behind), &mut out);
        assert!(
            nfs.heap() <= crate::app::bounds::NFS,
            "{identifier}: {}",
            nfs.heap()
        );
    }
    assert!(out.has_lost);
}
