//! Files that NFS 2 to 4 carry, in words and messages of our own made from RFC 1094, RFC 1813 and RFC 8881.

use super::{Case, Message, client, server};

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut out = words(&[bytes.len() as u32]);
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// Returns a call and its reply, with marks if they are sent over TCP. The call is in two fragments then.
fn exchange(
    is_udp: bool,
    identifier: u32,
    (version, procedure): (u32, u32),
    arguments: &[Vec<u8>],
    results: &[Vec<u8>],
) -> [Message; 2] {
    let head = words(&[identifier, 0, 2, 100_003, version, procedure, 0, 0, 0, 0]);
    let call = [head, arguments.concat()].concat();
    let reply = [words(&[identifier, 1, 0, 0, 0, 0]), results.concat()].concat();
    if is_udp {
        return [client(call), server(reply)];
    }
    let mark = |bytes: &[u8], last: u32| [&words(&[last | bytes.len() as u32])[..], bytes].concat();
    let (front, rest) = call.split_at(50);
    [
        client([mark(front, 0), mark(rest, 1 << 31)].concat()),
        server(mark(&reply, 1 << 31)),
    ]
}

/// Returns a conversation of version 3: LOOKUP, two WRITE, COMMIT, and two READ.
fn version_3(is_udp: bool) -> Case {
    let handle = || opaque(b"handle");
    let exchange = |identifier, procedure, arguments: &[Vec<u8>], results: &[Vec<u8>]| {
        exchange(is_udp, identifier, (3, procedure), arguments, results)
    };
    let write = |identifier, offset, data: &[u8]| {
        let at = words(&[0, offset, data.len() as u32, 0]);
        exchange(identifier, 7, &[handle(), at, opaque(data)], &[words(&[0])])
    };
    let read = |identifier, offset, is_eof, data: &[u8]| {
        let attributes = [words(&[1]), vec![0; 84]].concat();
        let head = words(&[data.len() as u32, is_eof]);
        exchange(
            identifier,
            6,
            &[handle(), words(&[0, offset, 100])],
            &[words(&[0]), attributes, head, opaque(data)],
        )
    };
    let messages = [
        exchange(
            1,
            3,
            &[opaque(b"directory"), opaque(b"evil.exe")],
            &[words(&[0]), handle(), words(&[0, 0])],
        ),
        write(2, 0, b"MZ first ha"),
        write(3, 11, b"lf of it"),
        exchange(4, 21, &[handle(), words(&[0, 0, 0])], &[words(&[0])]),
        read(5, 0, 0, b"secr"),
        read(6, 4, 1, b"et"),
    ];
    Case {
        protocol: "nfs",
        is_udp,
        port: 2049,
        messages: messages.concat(),
        hold: vec![
            "file.data; content:\"first half of it\";",
            "flow:to_server; file.data; content:\"half\"; nocase;",
            "flow:to_client; file.data; content:\"secret\";",
            "file.name; content:\"evil.exe\"; file.data; content:\"MZ\"; startswith;",
            "filesize:19;",
            "flow:to_client; filesize:6;",
            "nfs_procedure:write; file.data; content:\"half\";",
            "nfs_procedure:7; nfs.version:3; file.data; content:\"half\";",
            "nfs_procedure:read; file.data; content:\"secret\";",
            "nfs_procedure:commit;",
            "nfs_procedure:6-7;",
        ],
        fail: vec![
            "nfs_procedure:open;",
            "nfs_procedure:getattr;",
            "nfs_procedure:1;",
            "flow:to_client; file.data; content:\"half\";",
            "nfs_procedure:read; file.data; content:\"half\";",
            "filesize:7;",
        ],
    }
}

fn version_2() -> Case {
    let handle = |byte: u8| vec![byte; 32];
    let attributes = |size: u32| [vec![0; 20], words(&[size]), vec![0; 44]].concat();
    let messages = [
        exchange(
            true,
            1,
            (2, 9),
            &[handle(1), opaque(b"two.txt"), vec![0; 32]],
            &[words(&[0]), handle(2), attributes(0)],
        ),
        exchange(
            true,
            2,
            (2, 8),
            &[handle(2), words(&[0, 0, 0]), opaque(b"hello world")],
            &[words(&[0]), attributes(11)],
        ),
        exchange(
            true,
            3,
            (2, 6),
            &[handle(2), words(&[0, 100, 100])],
            &[words(&[0]), attributes(11), opaque(b"dlrow olleh")],
        ),
        exchange(true, 4, (2, 17), &[handle(1)], &[words(&[0; 6])]),
    ];
    Case {
        protocol: "nfs",
        is_udp: true,
        port: 2049,
        messages: messages.concat(),
        hold: vec![
            "flow:to_server; file.name; content:\"two.txt\"; file.data; content:\"world\";",
            "flow:to_client; file.data; content:\"olleh\"; filesize:11;",
            "nfs_procedure:statfs;",
            "nfs_procedure:create; nfs.version:2;",
            "nfs_procedure:8; file.data; content:\"hello\";",
        ],
        fail: vec![
            "nfs_procedure:fsstat;",
            "nfs_procedure:lookup;",
            "nfs_procedure:open;",
        ],
    }
}

/// Returns a conversation of version 4.1: OPEN, two WRITE, CLOSE, and READ.
fn version_4() -> Case {
    let state = || words(&[1, 2, 3, 4]);
    let sequence = || words(&[53, 1, 1, 1, 1, 9, 0, 0, 1]);
    let sequence_done = || words(&[53, 0, 1, 1, 1, 1, 9, 0, 0, 0, 0]);
    let put = |handle: &[u8]| [words(&[22]), opaque(handle)].concat();
    let put_done = || words(&[22, 0]);
    let compound = |identifier, len, operations: &[Vec<u8>], results: &[Vec<u8>]| {
        let call = [opaque(b""), words(&[1, len]), sequence(), operations.concat()];
        let reply = [
            words(&[0]),
            opaque(b""),
            words(&[len]),
            sequence_done(),
            results.concat(),
        ];
        exchange(false, identifier, (4, 1), &call, &reply)
    };
    let write = |identifier, offset, data: &[u8]| {
        let operation = [words(&[38]), state(), words(&[0, offset, 2]), opaque(data)].concat();
        compound(
            identifier,
            3,
            &[put(b"handle"), operation],
            &[put_done(), words(&[38, 0, data.len() as u32, 2, 0, 0])],
        )
    };
    let open = [
        words(&[18, 7, 3, 0, 0, 5]),
        opaque(b"owner"),
        words(&[1, 0, 2, 0, 2]),
        opaque(&[0, 0, 1, 0xa4]),
        words(&[0]),
        opaque(b"evil.exe"),
    ]
    .concat();
    let opened = [words(&[18, 0]), state(), words(&[1, 0, 1, 0, 2, 4, 0, 0])].concat();
    let read = [words(&[25]), state(), words(&[0, 0, 100])].concat();
    let messages = [
        compound(
            1,
            4,
            &[put(b"directory"), open, words(&[10])],
            &[put_done(), opened, words(&[10, 0]), opaque(b"handle")],
        ),
        write(2, 0, b"MZ first ha"),
        write(3, 11, b"lf of it"),
        compound(
            4,
            3,
            &[put(b"handle"), words(&[4, 1]), state()],
            &[put_done(), words(&[4, 0]), state()],
        ),
        compound(
            5,
            3,
            &[put(b"handle"), read],
            &[put_done(), words(&[25, 0, 1]), opaque(b"secret")],
        ),
    ];
    Case {
        protocol: "nfs",
        is_udp: false,
        port: 2049,
        messages: messages.concat(),
        hold: vec![
            "flow:to_server; file.data; content:\"first half of it\"; filesize:19;",
            "flow:to_client; file.data; content:\"secret\";",
            "file.name; content:\"evil.exe\"; file.data; content:\"MZ\"; startswith;",
            "nfs_procedure:write; file.data; content:\"half\";",
            "nfs_procedure:open; file.name; content:\"evil\";",
            "nfs_procedure:18;",
            "nfs_procedure:putfh; nfs.version:>=4;",
            "nfs_procedure:sequence;",
            "nfs_procedure:close;",
            "nfs_procedure:read; file.data; content:\"secret\";",
        ],
        // No operation asks for attributes: the procedure COMPOUND has the number that GETATTR has in version 3.
        fail: vec![
            "nfs_procedure:getattr;",
            "nfs_procedure:1;",
            "nfs_procedure:lookup;",
            "nfs_procedure:remove;",
            "nfs_procedure:mkdir;",
        ],
    }
}

pub(super) fn cases() -> Vec<Case> {
    vec![version_2(), version_3(false), version_3(true), version_4()]
}
