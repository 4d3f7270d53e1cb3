//! The operations of a COMPOUND of NFS 4 (RFC 7530, section 16; RFC 8881, section 16), one by one.
//!
//! ```text
//!  call:  PUTFH ─▶ current handle ─▶ OPEN, LOOKUP: name ─▶ READ: a note with its offset ─▶ WRITE: bytes of the file
//!                      ▲  │ SAVEFH                               │
//!            RESTOREFH │  ▼                                      ▼ notes, by the position of the operation
//!                    saved handle              reply: GETFH: handle of the name, READ: bytes of the file
//! ```
//!
//! A message that is too large to be kept is read in parts: the walk ends in the bytes of a file, and continues behind them.

use millrace_ips_rules::buffers::Buffer;
use millrace_ips_rules::options::number::NumberField;

use super::Nfs;
use super::bytes::Bytes;
use super::handles::{Handle, Name};
use super::operations as op;
use super::records::{numbers, record, rpc_of};
use super::rpc::Call;
use super::waiting::{Answer, COMPOUND, Waiting};
use super::walks::{CallWalk, Current, Expected, Note, Read, ReplyWalk};
use super::xdr::{Found, opaque};
use crate::app::AppProtocol;
use crate::app::framed::number;
use crate::app::record::Record;
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;

/// Largest number of operations of a message that are read. Servers refuse more than about 200.
const OPERATIONS: u32 = 1024;
/// Largest number of operations of a call whose results are expected.
const NOTES: usize = 8;

impl Nfs {
    /// Reads a call COMPOUND.
    pub(super) fn compound(&mut self, call: &Call<'_>, is_end: bool, out: &mut Transactions) -> Read {
        let direction = Direction::ToServer;
        let mut bytes = call.arguments;
        let head = |bytes: &mut &[u8]| {
            // The tag, and the minor version.
            opaque(bytes)?;
            number(bytes, 4)?;
            number(bytes, 4)
        };
        let left = head(&mut bytes).unwrap_or_default() as u32;
        let transaction = out.start(AppProtocol::Nfs);
        transaction.number(NumberField::NfsVersion, direction, call.version);
        let walk = CallWalk {
            transaction: transaction.id,
            identifier: call.identifier,
            protection: call.protection,
            rpc: call.record(),
            left,
            position: 0,
            current: Current::default(),
            saved: Current::default(),
            expected: Vec::new(),
            seen: 0,
            main: None,
            main_file: Current::default(),
            names: Default::default(),
        };
        self.call_operations(walk, bytes, is_end, out)
    }

    /// Reads the operations of a call in a part of its bytes. `is_end` is false if others follow.
    pub(super) fn call_operations(
        &mut self,
        mut walk: CallWalk,
        mut bytes: &[u8],
        is_end: bool,
        out: &mut Transactions,
    ) -> Read {
        while walk.left > 0 {
            if walk.position >= OPERATIONS {
                out.has_lost = true;
                break;
            }
            let Some(code) = number(&mut bytes, 4) else { break };
            let code = code as u32;
            let Some(shape) = op::arguments(code) else { break };
            let mut found = Found::default();
            let is_whole = found.walk(&mut bytes, shape).is_some();
            walk.left -= 1;
            let bytes = self.call_operation(&mut walk, code, found, is_whole, out);
            walk.position += 1;
            if let Some(bytes) = bytes {
                self.describe(&walk, out);
                self.walks.call = Some(walk);
                return Read::Bytes(bytes);
            }
            if !is_whole {
                break;
            }
        }
        // Operations behind the part are not read.
        out.has_lost |= !is_end && walk.left > 0;
        self.end_call(walk, out);
        Read::Whole
    }

    /// Applies one operation. Returns the bytes of a file that follow behind the part.
    fn call_operation(
        &mut self,
        walk: &mut CallWalk,
        code: u32,
        found: Found<'_>,
        is_whole: bool,
        out: &mut Transactions,
    ) -> Option<Bytes> {
        let direction = Direction::ToServer;
        let has_bytes = found.data.iter().any(|data| !data.bytes.is_empty());
        if is_whole && !has_bytes {
            // An operation that writes is one of the file, which has its number.
            self.number(walk, code, out);
        }
        let names: Vec<Name> = found.names.iter().map(|name| Name::new(name)).collect();
        if let Some(transaction) = out.by_id(walk.transaction) {
            for name in &found.names {
                transaction.publish(Buffer::FileName, direction, *name);
            }
        }
        let rank = op::rank(code);
        if walk.main.is_none_or(|(known, _)| rank > known) {
            walk.main = Some((rank, code));
            walk.names = match names.as_slice() {
                [from, to, ..] => [from.clone(), to.clone()],
                [name] => [name.clone(), Name::default()],
                [] => [walk.current.name.clone(), Name::default()],
            };
            walk.main_file = walk.current.clone();
        }
        let mut expects = None;
        match code {
            op::PUTFH => {
                let handle = found.handle.map(Handle::of);
                let name = handle.map(|handle| self.names.of(handle.key)).unwrap_or_default();
                walk.current = Current { handle, name };
                if walk.main_file.handle.is_none() {
                    walk.main_file = walk.current.clone();
                }
            }
            op::PUTROOTFH | op::PUTPUBFH => {
                walk.current = Current {
                    handle: Some(Handle::named(None, b"/")),
                    name: Name::default(),
                };
            }
            op::LOOKUPP | op::OPENATTR => walk.current = Current::default(),
            op::SAVEFH => walk.saved = walk.current.clone(),
            op::RESTOREFH => walk.current = walk.saved.clone(),
            op::LOOKUP | op::OPEN | op::CREATE => {
                if let Some(name) = names.into_iter().next() {
                    walk.current = Current {
                        handle: Some(Handle::named(walk.current.handle, name.bytes())),
                        name,
                    };
                }
            }
            op::GETFH if !walk.current.name.bytes().is_empty() => {
                expects = Some(Note::Handle(walk.current.handle(), walk.current.name.clone()));
            }
            op::READ | op::READ_PLUS => {
                let offset = found.offset.unwrap_or_default();
                expects = Some(Note::Read(
                    walk.current.handle(),
                    offset,
                    walk.current.name.clone(),
                ));
            }
            op::CLOSE => expects = Some(Note::Close(walk.current.handle())),
            op::COMMIT => expects = Some(Note::Commit(walk.current.handle())),
            op::WRITE => {
                let data = found.data.into_iter().next()?;
                let file = (walk.current.handle(), data.offset.unwrap_or_default());
                let procedure = ((4, u64::from(op::WRITE)), &walk.rpc);
                return self.bytes(file, &walk.current.name, &data, procedure, direction, out);
            }
            _ => {}
        }
        if let Some(note) = expects {
            match walk.expected.len() < NOTES {
                true => walk.expected.push(Expected {
                    position: walk.position,
                    note,
                }),
                false => out.has_lost = true,
            }
        }
        None
    }

    /// Adds the number of an operation to the transaction, once.
    fn number(&self, walk: &mut CallWalk, code: u32, out: &mut Transactions) {
        let bit = 1_u128.checked_shl(code).unwrap_or_default();
        if walk.seen & bit != 0 {
            return;
        }
        walk.seen |= bit;
        if let Some(transaction) = out.by_id(walk.transaction) {
            numbers(transaction, (4, u64::from(code)), Direction::ToServer);
        }
    }

    /// Writes the record of a call.
    fn describe(&self, walk: &CallWalk, out: &mut Transactions) {
        let procedure = walk.main.and_then(|(_, code)| op::name(code));
        let [name, to] = &walk.names;
        let names: &[&[u8]] = match walk.main {
            Some((_, op::RENAME)) => &[name.bytes(), to.bytes()],
            _ if name.bytes().is_empty() => &[],
            _ => &[name.bytes()],
        };
        let handle = walk.main_file.handle.and_then(Handle::text);
        let procedure = (4, procedure.unwrap_or("COMPOUND"));
        let fields = record(procedure, names, handle.as_deref(), false, &walk.rpc);
        if let Some(transaction) = out.by_id(walk.transaction) {
            transaction.record = Record::Fields(Box::new(fields));
        }
    }

    /// Ends a call: its reply is expected.
    pub(super) fn end_call(&mut self, walk: CallWalk, out: &mut Transactions) {
        self.describe(&walk, out);
        if let Some(transaction) = out.by_id(walk.transaction) {
            transaction.advance(Direction::ToServer, Progress::Complete);
        }
        self.wait(Waiting {
            identifier: walk.identifier,
            transaction: Some(walk.transaction),
            protection: walk.protection,
            procedure: (4, COMPOUND),
            answer: Answer::Compound(walk.expected),
        });
    }

    /// Reads the results of a reply to a COMPOUND behind its status.
    pub(super) fn compound_reply(
        &mut self,
        (transaction, expected): (Option<u64>, Vec<Expected>),
        mut bytes: &[u8],
        is_end: bool,
        out: &mut Transactions,
    ) -> Read {
        let head = |bytes: &mut &[u8]| {
            // The tag.
            opaque(bytes)?;
            number(bytes, 4)
        };
        let left = head(&mut bytes).unwrap_or_default() as u32;
        let rpc = rpc_of(transaction, out);
        let walk = ReplyWalk {
            transaction,
            rpc,
            left,
            position: 0,
            expected,
        };
        self.reply_operations(walk, bytes, is_end, out)
    }

    /// Reads the results of a reply in a part of its bytes.
    pub(super) fn reply_operations(
        &mut self,
        mut walk: ReplyWalk,
        mut bytes: &[u8],
        is_end: bool,
        out: &mut Transactions,
    ) -> Read {
        while walk.left > 0 && walk.position < OPERATIONS {
            let head = |bytes: &mut &[u8]| Some((number(bytes, 4)? as u32, number(bytes, 4)?));
            let Some((code, status)) = head(&mut bytes) else {
                break;
            };
            let shape = match (code, status) {
                (op::SETATTR, _) | (_, 0) => op::results(code),
                // The operations behind one that failed were not done.
                _ => None,
            };
            let Some(shape) = shape else { break };
            let mut found = Found::default();
            let is_whole = found.walk(&mut bytes, shape).is_some();
            let rest = self.reply_operation(&mut walk, code, &found, out);
            (walk.left, walk.position) = (walk.left - 1, walk.position + 1);
            if let Some(rest) = rest {
                self.walks.reply = Some(walk);
                return Read::Bytes(rest);
            }
            if !is_whole {
                break;
            }
        }
        // Bytes of a file behind the part are not read.
        let is_read = |expected: &Expected| matches!(expected.note, Note::Read(..));
        out.has_lost |= !is_end && walk.left > 0 && walk.expected.iter().any(is_read);
        self.end_reply(&walk, out);
        Read::Whole
    }

    /// Applies the result of one operation. Returns the bytes of a file that follow behind the part.
    fn reply_operation(
        &mut self,
        walk: &mut ReplyWalk,
        code: u32,
        found: &Found<'_>,
        out: &mut Transactions,
    ) -> Option<Bytes> {
        let at = walk
            .expected
            .iter()
            .position(|expected| expected.position == walk.position)?;
        let note = walk.expected.swap_remove(at).note;
        match (code, note) {
            (op::GETFH, Note::Handle(temporary, name)) => {
                let handle = Handle::of(found.handle?);
                self.open.identify(handle.key, temporary.key);
                self.names.set(handle.key, name);
            }
            (op::CLOSE, Note::Close(handle)) => self.open.close(handle.key, out),
            (op::COMMIT, Note::Commit(handle)) => {
                self.open.end_direction(handle.key, Direction::ToServer, out);
            }
            (op::READ | op::READ_PLUS, Note::Read(handle, offset, name)) => {
                let procedure = ((4, u64::from(code)), &walk.rpc);
                let rest = self.read((handle, offset), &name, found, procedure, out);
                if rest.is_some() && code == op::READ_PLUS {
                    // The pieces behind this one are not read.
                    out.has_lost = true;
                    walk.left = 1;
                }
                return rest;
            }
            _ => {}
        }
        None
    }

    /// Notes that the reply of a call is read.
    pub(super) fn end_reply(&mut self, walk: &ReplyWalk, out: &mut Transactions) {
        if let Some(transaction) = walk.transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(Direction::ToClient, Progress::Complete);
        }
    }
}
