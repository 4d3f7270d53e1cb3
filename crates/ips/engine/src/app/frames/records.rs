//! Frames of messages that begin with their size, in protocols where the messages before them decide what they are.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;

use super::binary::{big, message};
use super::units::{Found, Step, Units};
use crate::app::heap::heap;
use crate::flow::Direction;

/// TLS: records (RFC 8446, section 5.1), and those of SSL 2 with which a connection may begin.
#[derive(Debug, Default)]
pub(super) struct Tls {
    /// True by [`Direction::index`] after the first record of TLS.
    has_record: [bool; 2],
}

heap!(Tls {});

impl Units for Tls {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        const ALERT: u8 = 21;
        const HEARTBEAT: u8 = 24;
        const HEADER: u64 = 5;
        let &[kind, major, third, ..] = bytes else {
            return Step::More;
        };
        let side = direction.index();
        if !(20..=24).contains(&kind) || major != 3 {
            // A hello of SSL 2: two bytes of size, with the highest bit set, and the type of the message.
            if self.has_record[side] || kind & 0x80 == 0 || third > 8 {
                return Step::Stop;
            }
            let size = 2 + (u64::from(kind & 0x7f) << 8 | u64::from(major));
            found.frame(Buffer::FrameTlsSsl2Hdr, 0, 2);
            found.frame(Buffer::FrameTlsSsl2Pdu, 0, size);
            return Step::Unit(size);
        }
        let Some(size) = big(bytes, 3, 2) else {
            return Step::More;
        };
        self.has_record[side] = true;
        let data = match kind {
            ALERT => Some(Buffer::FrameTlsAlert),
            HEARTBEAT => Some(Buffer::FrameTlsHeartbeat),
            _ => None,
        };
        if let Some(data) = data {
            found.frame(data, HEADER, size);
        }
        let kinds = [Buffer::FrameTlsPdu, Buffer::FrameTlsHdr, Buffer::FrameTlsData];
        message(found, kinds, (HEADER, HEADER + size))
    }
}

/// SMB: messages of NetBIOS (RFC 1002, section 4.3), and in them messages of SMB 1, 2 and 3.
#[derive(Debug, Default)]
pub(super) struct Smb {
    /// Bytes of the NetBIOS message that follow, by [`Direction::index`].
    left: [u64; 2],
}

heap!(Smb {});

impl Units for Smb {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        const HEADER: u64 = 4;
        /// Offset and end of the field NextCommand in the header of SMB 2 (MS-SMB2, section 2.2.1).
        const NEXT_COMMAND: core::ops::Range<usize> = 20..24;
        let left = &mut self.left[direction.index()];
        if *left == 0 {
            let Some(size) = big(bytes, 1, 3) else {
                return Step::More;
            };
            let kinds = [
                Buffer::FrameSmbNbssPdu,
                Buffer::FrameSmbNbssHdr,
                Buffer::FrameSmbNbssData,
            ];
            message(found, kinds, (HEADER, HEADER + size));
            if bytes[0] == 0 {
                *left = size;
                return Step::Unit(HEADER);
            }
            return Step::Unit(HEADER + size);
        }
        let needed = (*left).min(NEXT_COMMAND.end as u64) as usize;
        if bytes.len() < needed {
            return Step::More;
        }
        let all = *left;
        let (kinds, header, size) = match *bytes {
            [0xff, b'S', b'M', b'B', ..] => (
                [
                    Buffer::FrameSmbSmb1Pdu,
                    Buffer::FrameSmbSmb1Hdr,
                    Buffer::FrameSmbSmb1Data,
                ],
                32,
                all,
            ),
            [0xfe, b'S', b'M', b'B', ..] => {
                let next = bytes.get(NEXT_COMMAND).unwrap_or_default();
                let next = next
                    .iter()
                    .rev()
                    .fold(0, |value, byte| value << 8 | u64::from(*byte));
                let size = if (64..all).contains(&next) { next } else { all };
                (
                    [
                        Buffer::FrameSmbSmb2Pdu,
                        Buffer::FrameSmbSmb2Hdr,
                        Buffer::FrameSmbSmb2Data,
                    ],
                    64,
                    size,
                )
            }
            [0xfd, b'S', b'M', b'B', ..] => (
                [
                    Buffer::FrameSmbSmb3Pdu,
                    Buffer::FrameSmbSmb3Hdr,
                    Buffer::FrameSmbSmb3Data,
                ],
                52,
                all,
            ),
            _ => {
                *left = 0;
                return Step::Unit(all);
            }
        };
        *left -= size;
        message(found, kinds, (header, size))
    }
}

/// SSH: a banner, then packets until the keys change (RFC 4253, sections 4.2 and 6).
#[derive(Debug, Default)]
pub(super) struct Ssh {
    /// True by [`Direction::index`] after the banner.
    has_banner: [bool; 2],
    /// True by [`Direction::index`] after the message with which the keys change: what follows is encrypted.
    is_encrypted: [bool; 2],
}

heap!(Ssh {});

impl Units for Ssh {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        const NEWKEYS: u8 = 21;
        /// Largest size of the banner (RFC 4253, section 4.2).
        const BANNER: usize = 255;
        /// Largest size of a packet before encryption that implementations accept.
        const LARGEST: u64 = 256 << 10;
        const HEADER: u64 = 6;
        let side = direction.index();
        if self.is_encrypted[side] {
            return Step::Stop;
        }
        if !self.has_banner[side] {
            let end = memchr::memchr(b'\n', &bytes[..bytes.len().min(BANNER)]);
            if end.is_none() && bytes.len() >= BANNER {
                return Step::Stop;
            }
            // Lines before the banner do not begin with "SSH-" (RFC 4253, section 4.2).
            self.has_banner[side] = end.is_some() && bytes.starts_with(b"SSH-");
            return end.map_or(Step::More, |end| Step::Unit(end as u64 + 1));
        }
        let (Some(size), Some(code)) = (big(bytes, 0, 4), bytes.get(5)) else {
            return Step::More;
        };
        if !(2..=LARGEST).contains(&size) {
            return Step::Stop;
        }
        self.is_encrypted[side] = *code == NEWKEYS;
        let kinds = [
            Buffer::FrameSshRecordPdu,
            Buffer::FrameSshRecordHdr,
            Buffer::FrameSshRecordData,
        ];
        message(found, kinds, (HEADER, 4 + size))
    }
}

/// PostgreSQL: messages with a type in front, except the first one of the client (PostgreSQL 17, section 53.7).
#[derive(Debug, Default)]
pub(super) struct Pgsql {
    /// True after the message with which the client begins, or after it has asked for encryption only.
    has_begun: bool,
    /// True while the server answers a question for encryption with one byte.
    awaits_byte: bool,
}

heap!(Pgsql {});

impl Units for Pgsql {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        /// The codes with which a client asks for encryption.
        const ENCRYPTION: [u64; 2] = [80_877_103, 80_877_104];
        if direction == Direction::ToClient && core::mem::take(&mut self.awaits_byte) {
            found.frame(Buffer::FramePgsqlPdu, 0, 1);
            return Step::Unit(1);
        }
        let has_type = self.has_begun || direction == Direction::ToClient;
        let at = usize::from(has_type);
        let Some(size) = big(bytes, at, 4) else {
            return Step::More;
        };
        if size < 4 {
            return Step::Stop;
        }
        if !has_type {
            let Some(code) = big(bytes, 4, 4) else {
                return Step::More;
            };
            self.awaits_byte = ENCRYPTION.contains(&code);
            self.has_begun = !self.awaits_byte;
        }
        let size = at as u64 + size;
        found.frame(Buffer::FramePgsqlPdu, 0, size);
        Step::Unit(size)
    }
}

/// HTTP/2: the preface of the client, then frames (RFC 9113, sections 3.4 and 4.1).
#[derive(Debug, Default)]
pub(super) struct Http2 {
    has_preface: bool,
}

heap!(Http2 {});

impl Units for Http2 {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        const HEADER: u64 = 9;
        if direction == Direction::ToServer && !self.has_preface {
            if bytes.len() < PREFACE.len() {
                return Step::More;
            }
            self.has_preface = true;
            if bytes.starts_with(PREFACE) {
                return Step::Unit(PREFACE.len() as u64);
            }
        }
        let Some(size) = big(bytes, 0, 3) else {
            return Step::More;
        };
        let kinds = [
            Buffer::FrameHttp2Pdu,
            Buffer::FrameHttp2Hdr,
            Buffer::FrameHttp2Data,
        ];
        message(found, kinds, (HEADER, HEADER + size))
    }
}

/// NFS: calls and replies of RPC (RFC 5531, sections 9 and 11), and the messages of NFS in them.
#[derive(Debug, Default)]
pub(super) struct Nfs {
    /// Identifier and version of the calls without a reply, oldest first.
    versions: VecDeque<(u32, u32)>,
}

heap!(Nfs { versions });

/// The largest number of calls without a reply.
const CALLS: usize = 64;

/// Returns a size with the bytes that fill it up to a multiple of four (RFC 4506, section 3).
fn filled(size: u64) -> u64 {
    size.next_multiple_of(4)
}

/// Largest size of credentials and verifiers (RFC 5531, section 8.2).
const LARGEST_CREDENTIALS: u64 = 400;

impl Nfs {
    /// Adds the frames of a message of NFS.
    fn nfs(found: &mut Found<'_>, version: u32, (from, size): (u64, u64), is_reply: bool) {
        let (pdu, status) = match version {
            4 => (Buffer::FrameNfs4Pdu, Buffer::FrameNfs4Status),
            2 | 3 => (Buffer::FrameNfsPdu, Buffer::FrameNfsStatus),
            _ => return,
        };
        if size == 0 {
            return;
        }
        found.frame(pdu, from, size);
        if is_reply && size >= 4 {
            found.frame(status, from, 4);
        }
        if version == 4 && size > 8 {
            found.frame(Buffer::FrameNfs4Hdr, from, 8);
            found.frame(Buffer::FrameNfs4Ops, from + 8, size - 8);
        }
    }
}

impl Units for Nfs {
    fn unit(&mut self, _: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        const CALL: u64 = 0;
        const REPLY: u64 = 1;
        const NFS: u64 = 100_003;
        // A message in a stream has its size in front; the highest bit marks the last fragment.
        let base: usize = if found.is_datagram { 0 } else { 4 };
        let size = match found.is_datagram {
            true => bytes.len() as u64,
            false => match big(bytes, 0, 4) {
                Some(mark) => 4 + (mark & 0x7fff_ffff),
                None => return Step::More,
            },
        };
        // A message that is too short has the frame of the whole only.
        let field = |at: usize| (size >= (base + at + 4) as u64).then(|| big(bytes, base + at, 4));
        macro_rules! number {
            ($at:expr) => {
                match field($at) {
                    Some(Some(number)) => number,
                    Some(None) if !found.is_datagram => return Step::More,
                    _ => {
                        found.frame(Buffer::FrameNfsRpcPdu, 0, size);
                        return Step::Unit(size);
                    }
                }
            };
        }
        let xid = number!(0);
        let kind = number!(4);
        let mut end = Vec::new();
        let mut nfs = None;
        match kind {
            CALL => {
                let (program, version) = (number!(12), number!(16));
                let credentials = number!(28).min(LARGEST_CREDENTIALS);
                end.push((Buffer::FrameNfsRpcCreds, (base + 24) as u64, 8 + credentials));
                let verifier_at = 24 + 8 + filled(credentials) as usize;
                let verifier = number!(verifier_at + 4).min(LARGEST_CREDENTIALS);
                let at = base as u64 + verifier_at as u64 + 8 + filled(verifier);
                if program == NFS && size >= at {
                    if self.versions.len() >= CALLS {
                        self.versions.pop_front();
                    }
                    self.versions.push_back((xid as u32, version as u32));
                    nfs = Some((version as u32, (at, size - at), false));
                }
            }
            REPLY => {
                let state = number!(8);
                let call = self
                    .versions
                    .iter()
                    .position(|(known, _)| u64::from(*known) == xid);
                if state == 0
                    && let Some(call) = call
                {
                    let verifier = number!(16).min(LARGEST_CREDENTIALS);
                    let at = base as u64 + 20 + filled(verifier) + 4;
                    let accepted = number!(20 + filled(verifier) as usize);
                    let version = self.versions.remove(call).map_or(0, |(_, version)| version);
                    if accepted == 0 && size >= at {
                        nfs = Some((version, (at, size - at), true));
                    }
                }
            }
            _ => {}
        }
        let kinds = [
            Buffer::FrameNfsRpcPdu,
            Buffer::FrameNfsRpcHdr,
            Buffer::FrameNfsRpcData,
        ];
        let step = message(found, kinds, (base as u64 + 8, size));
        for (kind, from, size) in end {
            found.frame(kind, from, size);
        }
        if let Some((version, part, is_reply)) = nfs {
            Nfs::nfs(found, version, part, is_reply);
        }
        step
    }
}
