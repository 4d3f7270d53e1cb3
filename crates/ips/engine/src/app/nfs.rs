//! NFS 2 to 4 over ONC RPC (RFC 1094, RFC 1813, RFC 7530; RFC 5531): a call with its reply is a transaction.

use std::collections::VecDeque;

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::framed::{Framed, Size, fields, number, take};
use super::parser::{Outcome, Parser};
use super::record::Record;
use super::transaction::{Progress, Transactions};
use super::{AppProtocol, Transport};
use crate::app::heap::heap;
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// The number of the program (RFC 1813, section 2.1), and the version of RPC.
const NFS: u64 = 100_003;
const RPC: u64 = 2;
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
    // Credential and verifier.
    for _ in 0..2 {
        number(&mut bytes, 4)?;
        opaque(&mut bytes)?;
    }
    let mut names = Vec::new();
    // Arguments that do not have their form leave the call without names.
    let _ = arguments(version, procedure, bytes, &mut names);
    Some(Call {
        identifier,
        version,
        procedure,
        names,
    })
}

fn arguments<'a>(version: u64, procedure: u64, mut bytes: &'a [u8], names: &mut Vec<&'a [u8]>) -> Option<()> {
    /// Size of a file handle of version 2 in bytes.
    const HANDLE_2: usize = 32;
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

/// Returns the identifier and the status of a reply: that of NFS, if the call was accepted.
fn reply(mut bytes: &[u8]) -> Option<(u32, Option<u64>)> {
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
    Some((identifier, is_accepted.then(|| status(bytes)).flatten()))
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
                if let Some((identifier, status)) = reply(bytes) {
                    self.reply(identifier, status, out);
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
            out.number("id", call.identifier);
        });
        transaction.advance(direction, Progress::Complete);
        let id = transaction.id;
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((call.identifier, id));
    }

    fn reply(&mut self, identifier: u32, status: Option<u64>, out: &mut Transactions) {
        let Some(at) = self
            .waiting
            .iter()
            .position(|(waiting, _)| *waiting == identifier)
        else {
            return;
        };
        let Some(transaction) = self.waiting.remove(at).and_then(|(_, id)| out.by_id(id)) else {
            return;
        };
        fields(transaction, |out| {
            out.text("type", b"response");
            match status {
                Some(0) => {
                    out.text("status", b"OK");
                }
                Some(status) => {
                    out.text("status", format!("ERR_{status}").as_bytes());
                }
                None => {}
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
