//! Frames do not depend on segmentation, and keep their bounds.

use super::*;

/// The complete frames of a flow, in the order of their numbers: kind, offset, bytes.
fn frames_of(
    app: AppProtocol,
    messages: &[(Direction, Vec<u8>)],
    step: usize,
) -> Vec<(Buffer, u64, Vec<u8>)> {
    let mut frames = Frames::new(app, false, FrameSet::ALL, false).unwrap();
    let mut found = Vec::new();
    let mut offsets = [0; 2];
    let mut take = |frames: &mut Frames| {
        for direction in Direction::BOTH {
            for transaction in frames.pending(direction) {
                let view = transaction.frame.unwrap();
                if view.is_complete {
                    found.push((view.kind, view.begin.unwrap(), transaction.bytes(0).to_vec()));
                }
            }
            frames.remove_inspected(direction);
        }
    };
    for (direction, bytes) in messages {
        for bytes in bytes.chunks(step) {
            let offset = &mut offsets[direction.index()];
            let chunk = StreamChunk {
                offset: *offset,
                ..StreamChunk::of(*direction, bytes)
            };
            *offset += bytes.len() as u64;
            frames.data(&chunk);
            assert!(!frames.has_lost);
            take(&mut frames);
        }
    }
    frames.stop();
    take(&mut frames);
    found.sort();
    found
}

/// Returns bytes that begin like a message of the protocol, followed by others.
fn messages(first: &[u8]) -> Vec<(Direction, Vec<u8>)> {
    let noise: Vec<u8> = (0..700u32).map(|at| (at * at % 251) as u8).collect();
    vec![
        (Direction::ToServer, first.to_vec()),
        (Direction::ToClient, [first, b"\r\n220 x\r\n"].concat()),
        (Direction::ToServer, [first, first, &noise].concat()),
        (Direction::ToClient, noise),
    ]
}

const FIRST: &[(AppProtocol, &[u8])] = &[
    (AppProtocol::Http, b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
    (AppProtocol::Http, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n"),
    (AppProtocol::Http2, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x02\x04\0\0\0\0\0ab"),
    (AppProtocol::Smb, b"\0\0\0\x48\xfeSMB\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0abcdefgh"),
    (AppProtocol::Telnet, b"\xff\xfd\x18ab\r\nc\xff\xfa\x01\xff\xff\x02\xff\xf0d"),
    (AppProtocol::Tls, b"\x16\x03\x01\0\x04abcd\x15\x03\x01\0\x02\x01\0"),
    (AppProtocol::Sip, b"INVITE a SIP/2.0\r\nl: 2\r\nVia: x\r\n\r\nab"),
    (AppProtocol::Sip, b"SIP/2.0 200 OK\r\n\r\n"),
    (AppProtocol::Nfs, b"\x80\0\0\x2c\0\0\0\x09\0\0\0\0\0\0\0\x02\0\x01\x86\xa3\0\0\0\x03\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0abcd"),
    (AppProtocol::Dns, b"\0\x03abc"),
    (AppProtocol::Ssh, b"SSH-2.0-x\r\n\0\0\0\x0c\x0a\x14abcdefghij\0\0\0\x0c\x0a\x15abcdefghij"),
    (AppProtocol::Smtp, b"DATA\r\nabc\r\n.\r\nBDAT 4 LAST\r\nabcdQUIT\r\n"),
    (AppProtocol::Ftp, b"USER x\r\nPASS y\r\n"),
    (AppProtocol::Dcerpc, b"\x05\0\x0b\x03\x10\0\0\0\x14\0\0\0\x01\0\0\0abcd"),
    (AppProtocol::Modbus, b"\0\x07\0\0\0\x06\x01\x05\0\xac\xff\0"),
    (AppProtocol::Mqtt, b"\x10\x04abcd"),
    (AppProtocol::Enip, b"\x63\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0ab"),
    (AppProtocol::Ldap, b"\x30\x81\x03\x02\x01\x02"),
    (AppProtocol::Pgsql, b"\0\0\0\x08\x04\xd2\x16\x2f"),
    (AppProtocol::WebSocket, b"\x81\x83\x01\x02\x03\x04abc"),
    (AppProtocol::Enip, b"\x6f\0\x16\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\xb2\0\x06\0\x4c\x02\x20\x72\x24\x01"),
    (AppProtocol::Rfb, b"RFB 003.008\n\x01\x01"),
];

#[test]
fn frames_do_not_depend_on_segmentation() {
    for (app, first) in FIRST {
        let messages = messages(first);
        let whole = frames_of(*app, &messages, usize::MAX);
        assert!(!whole.is_empty(), "{app:?}");
        for step in [1, 2, 3, 7, 64] {
            assert_eq!(
                frames_of(*app, &messages, step),
                whole,
                "{app:?}, segments of {step}"
            );
        }
    }
}

#[test]
fn frames_keep_their_bound_for_messages_that_never_end() {
    for (app, first) in FIRST {
        for fill in [0, b'a', b'\n', 0xff] {
            let mut frames = Frames::new(*app, false, FrameSet::ALL, false).unwrap();
            for at in 0..100 {
                let bytes = [&first[..first.len().min(at)], &[fill; 2048]].concat();
                for direction in Direction::BOTH {
                    frames.data(&StreamChunk::of(direction, &bytes));
                    let size = frames.heap();
                    assert!(size <= 8 << 20, "{app:?} {fill}: {size} bytes");
                    if frames.is_full() {
                        frames.remove_inspected(direction);
                    }
                }
            }
            assert!(!frames.has_lost, "{app:?} {fill}");
        }
    }
}

#[test]
fn a_gap_inside_of_a_frame_drops_the_frame_and_the_next_one_is_found() {
    let mut frames = Frames::new(AppProtocol::Tls, false, FrameSet::ALL, false).unwrap();
    let record = b"\x17\x03\x03\0\x0aaaaaa";
    frames.data(&StreamChunk::of(Direction::ToServer, record));
    let next = StreamChunk {
        offset: 15,
        gap_before: 5,
        ..StreamChunk::of(Direction::ToServer, b"\x15\x03\x03\0\x02\x02\x28")
    };
    frames.data(&next);
    let kinds = |frames: &mut Frames| -> Vec<Buffer> {
        let complete = frames
            .pending(Direction::ToServer)
            .filter_map(|transaction| transaction.frame);
        complete
            .filter(|view| view.is_complete)
            .map(|view| view.kind)
            .collect()
    };
    let found = kinds(&mut frames);
    assert!(found.contains(&Buffer::FrameTlsAlert), "{found:?}");
    assert_eq!(
        found.iter().filter(|kind| **kind == Buffer::FrameTlsPdu).count(),
        1
    );
    let last = StreamChunk {
        gap_before: 1,
        ..next
    };
    let before = kinds(&mut frames).len();
    frames.data(&last);
    assert_eq!(kinds(&mut frames).len(), before);
}
