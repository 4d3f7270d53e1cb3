//! NFS 2 to 4 over ONC RPC (RFC 1094, RFC 1813, RFC 7530; RFC 5531): a call with its reply is a transaction.

use std::collections::VecDeque;

use flate2::Crc;
use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::framed::{Framed, Size, fields, number, take};
use super::parser::{Outcome, Parser};
use super::record::{Fields, Record, Value};
use super::transaction::{Progress, Transactions};
use super::{AppProtocol, Transport};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The number of the program (RFC 1813, section 2.1), and the version of RPC.
const NFS: u64 = 100_003;
const RPC: u64 = 2;
/// Size of a file handle of version 2 in bytes (RFC 1094, section 2.3.3).
const HANDLE_2: usize = 32;
/// Largest number of calls that wait for replies.
const WAITING: usize = 256;

/// Names of procedures of version 3 (RFC 1813, section 3).
const PROCEDURES_3: [&str; 22] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
];
/// Names of procedures of version 2 (RFC 1094, section 2.2).
const PROCEDURES_2: [&str; 18] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "ROOT",
    "LOOKUP",
    "READLINK",
    "READ",
    "WRITECACHE",
    "WRITE",
    "CREATE",
    "REMOVE",
    "RENAME",
    "LINK",
    "SYMLINK",
    "MKDIR",
    "RMDIR",
    "READDIR",
    "STATFS",
];

/// The parser of a flow.
#[derive(Debug)]
pub(super) struct Nfs {
    transport: Transport,
    framed: Framed,
    /// Identifiers of calls without a reply, with the transaction.
    waiting: VecDeque<(u32, u64)>,
}

heap!(Nfs { framed, waiting });

/// Returns the size of a fragment of a record (RFC 5531, section 11).
fn size(bytes: &[u8]) -> Size {
    match bytes.first_chunk::<4>() {
        Some(header) => Size::Known(4 + (u32::from_be_bytes(*header) & 0x7fff_ffff) as usize),
        None => Size::Incomplete,
    }
}

/// A call of NFS.
struct Call<'a> {
    identifier: u32,
    version: u64,
    procedure: u64,
    /// The kind of the credential, and its body (RFC 5531, section 8.2).
    credential: (u64, &'a [u8]),
    /// The first file handle of the arguments.
    handle: Option<&'a [u8]>,
    names: Vec<&'a [u8]>,
}

/// Removes opaque data or a text with its size and its padding (RFC 4506, section 4.10).
fn opaque<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = number(bytes, 4)? as usize;
    let data = take(bytes, size)?;
    take(bytes, size.wrapping_neg() % 4)?;
    Some(data)
}

/// Reads a call; `None` if the bytes are no call of NFS.
fn call(mut bytes: &[u8]) -> Option<Call<'_>> {
    let identifier = number(&mut bytes, 4)? as u32;
    let (kind, rpc, program) = (
        number(&mut bytes, 4)?,
        number(&mut bytes, 4)?,
        number(&mut bytes, 4)?,
    );
    let (version, procedure) = (number(&mut bytes, 4)?, number(&mut bytes, 4)?);
    if kind != 0 || rpc != RPC || program != NFS {
        return None;
    }
    let credential = (number(&mut bytes, 4)?, opaque(&mut bytes)?);
    // The verifier.
    number(&mut bytes, 4)?;
    opaque(&mut bytes)?;
    let mut names = Vec::new();
    // Arguments that do not have their form leave the call without names.
    let _ = arguments(version, procedure, bytes, &mut names);
    Some(Call {
        identifier,
        version,
        procedure,
        credential,
        handle: handle(version, procedure, bytes),
        names,
    })
}

/// Returns the file handle with which the arguments of a call begin, if it names a file or a directory.
fn handle(version: u64, procedure: u64, mut bytes: &[u8]) -> Option<&[u8]> {
    match (version, procedure) {
        // Those about a file system are left out.
        (3, 1..=17 | 21) => opaque(&mut bytes),
        (2, 1 | 2 | 4..=6 | 8..=16) => take(&mut bytes, HANDLE_2),
        _ => None,
    }
}

/// Writes the credential of a call: its kind, and of AUTH_SYS machine, user and group (RFC 5531, appendix A).
fn credential((kind, mut body): (u64, &[u8]), out: &mut Fields) -> Option<()> {
    const SYS: u64 = 1;
    let name = match kind {
        0 => "NULL".to_owned(),
        SYS => "UNIX".to_owned(),
        6 => "GSS".to_owned(),
        other => other.to_string(),
    };
    out.text("auth_type", name.as_bytes());
    if kind != SYS {
        return None;
    }
    // The stamp.
    number(&mut body, 4)?;
    let machine = opaque(&mut body)?;
    let (user, group) = (number(&mut body, 4)?, number(&mut body, 4)?);
    out.object("creds", |out| {
        out.text("machine_name", machine)
            .number("uid", user)
            .number("gid", group);
    });
    Some(())
}

fn arguments<'a>(version: u64, procedure: u64, mut bytes: &'a [u8], names: &mut Vec<&'a [u8]>) -> Option<()> {
    let pairs = match (version, procedure) {
        (3, 3 | 8..=13) | (2, 4 | 9 | 10 | 13..=15) => 1,
        (3, 14) | (2, 11) => 2,
        _ => 0,
    };
    for _ in 0..pairs {
        match version {
            2 => take(&mut bytes, HANDLE_2)?,
            _ => opaque(&mut bytes)?,
        };
        names.push(opaque(&mut bytes)?);
    }
    Some(())
}

/// A reply of the server, as far as records tell it.
struct Reply {
    identifier: u32,
    is_accepted: bool,
    /// The status of NFS, if the call was executed.
    status: Option<u64>,
}

/// Reads a reply; `None` if the bytes are none.
fn reply(mut bytes: &[u8]) -> Option<Reply> {
    let identifier = number(&mut bytes, 4)? as u32;
    if number(&mut bytes, 4)? != 1 {
        return None;
    }
    let is_accepted = number(&mut bytes, 4)? == 0;
    let status = |mut bytes: &[u8]| {
        number(&mut bytes, 4)?;
        opaque(&mut bytes)?;
        (number(&mut bytes, 4)? == 0)
            .then(|| number(&mut bytes, 4))
            .flatten()
    };
    Some(Reply {
        identifier,
        is_accepted,
        status: is_accepted.then(|| status(bytes)).flatten(),
    })
}

/// Names of the status of a reply (RFC 1813, section 2.6; RFC 1094, section 2.3.1).
const STATUS: &[(u64, &str)] = &[
    (0, "OK"),
    (1, "ERR_PERM"),
    (2, "ERR_NOENT"),
    (5, "ERR_IO"),
    (6, "ERR_NXIO"),
    (13, "ERR_ACCES"),
    (17, "ERR_EXIST"),
    (18, "ERR_XDEV"),
    (19, "ERR_NODEV"),
    (20, "ERR_NOTDIR"),
    (21, "ERR_ISDIR"),
    (22, "ERR_INVAL"),
    (27, "ERR_FBIG"),
    (28, "ERR_NOSPC"),
    (30, "ERR_ROFS"),
    (31, "ERR_MLINK"),
    (63, "ERR_NAMETOOLONG"),
    (66, "ERR_NOTEMPTY"),
    (69, "ERR_DQUOT"),
    (70, "ERR_STALE"),
    (71, "ERR_REMOTE"),
    (10_001, "ERR_BADHANDLE"),
    (10_002, "ERR_NOT_SYNC"),
    (10_003, "ERR_BAD_COOKIE"),
    (10_004, "ERR_NOTSUPP"),
    (10_005, "ERR_TOOSMALL"),
    (10_006, "ERR_SERVERFAULT"),
    (10_007, "ERR_BADTYPE"),
    (10_008, "ERR_JUKEBOX"),
];

fn status_name(status: u64) -> String {
    let known = STATUS.iter().find(|(number, _)| *number == status);
    known.map_or_else(|| format!("ERR_{status}"), |(_, name)| (*name).to_owned())
}

fn procedure_name(version: u64, procedure: u64) -> String {
    let names: &[&str] = match version {
        2 => &PROCEDURES_2,
        3 => &PROCEDURES_3,
        _ => &["NULL", "COMPOUND"],
    };
    let found = usize::try_from(procedure).ok().and_then(|at| names.get(at));
    found.map_or_else(|| procedure.to_string(), |name| (*name).to_owned())
}

impl Nfs {
    pub(super) fn new(transport: Transport) -> Nfs {
        Nfs {
            transport,
            framed: Framed::default(),
            waiting: VecDeque::new(),
        }
    }

    fn message(&mut self, direction: Direction, bytes: &[u8], out: &mut Transactions) {
        match direction {
            Direction::ToServer => {
                if let Some(call) = call(bytes) {
                    self.call(&call, out);
                }
            }
            Direction::ToClient => {
                if let Some(reply) = reply(bytes) {
                    self.reply(&reply, out);
                }
            }
        }
    }

    fn call(&mut self, call: &Call<'_>, out: &mut Transactions) {
        let direction = Direction::ToServer;
        let transaction = out.start(AppProtocol::Nfs);
        transaction.record = Record::Fields(Box::default());
        transaction.number(NumberField::NfsProcedure, direction, call.procedure);
        transaction.number(NumberField::NfsVersion, direction, call.version);
        for name in &call.names {
            transaction.publish(Buffer::FileName, direction, *name);
        }
        fields(transaction, |out| {
            out.number("version", call.version).text(
                "procedure",
                procedure_name(call.version, call.procedure).as_bytes(),
            );
            match call.names[..] {
                [] => {
                    out.text("filename", b"");
                }
                [name] => {
                    out.text("filename", name);
                }
                [from, to] => {
                    out.text("filename", from).object("rename", |out| {
                        out.text("from", from).text("to", to);
                    });
                }
                _ => {}
            }
            if let Some(handle) = call.handle {
                let mut sum = Crc::new();
                sum.update(handle);
                out.text("hhash", format!("{:08x}", sum.sum()).as_bytes());
            }
            out.flag("file_tx", false).object("rpc", |out| {
                out.number("xid", call.identifier);
                let _is_of_system = credential(call.credential, out);
            });
        });
        transaction.advance(direction, Progress::Complete);
        let id = transaction.id;
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((call.identifier, id));
    }

    fn reply(&mut self, reply: &Reply, out: &mut Transactions) {
        let Some(at) = self
            .waiting
            .iter()
            .position(|(waiting, _)| *waiting == reply.identifier)
        else {
            return;
        };
        let Some(transaction) = self.waiting.remove(at).and_then(|(_, id)| out.by_id(id)) else {
            return;
        };
        fields(transaction, |out| {
            out.text("type", b"response");
            if let Some(status) = reply.status {
                out.text("status", status_name(status).as_bytes());
            }
            if let Some(Value::Object(rpc)) = out.value("rpc") {
                let status: &[u8] = match reply.is_accepted {
                    true => b"ACCEPTED",
                    false => b"DENIED",
                };
                rpc.text("status", status);
            }
        });
        transaction.advance(Direction::ToClient, Progress::Complete);
    }
}

impl Parser for Nfs {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let direction = chunk.direction;
        if self.transport == Transport::Udp {
            self.message(direction, chunk.bytes, out);
            return Outcome::Continue;
        }
        let mut framed = core::mem::take(&mut self.framed);
        let outcome = framed.add(chunk, size, |message| {
            self.message(direction, message.get(4..).unwrap_or_default(), out);
            true
        });
        self.framed = framed;
        outcome
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        if direction == Direction::ToClient {
            for (_, id) in self.waiting.drain(..) {
                if let Some(transaction) = out.by_id(id) {
                    transaction.advance(direction, Progress::Complete);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
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
            let (mut nfs, mut out) = (Nfs::new(Transport::Udp), Transactions::default());
            nfs.data(StreamChunk::of(Direction::ToServer, &call), &mut out);
            nfs.data(StreamChunk::of(Direction::ToClient, &reply), &mut out);
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
}
