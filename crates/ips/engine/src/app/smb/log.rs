//! Commands of SMB as records: a transaction for each request with its response, for EVE alone. Rules have the transactions of
//! tree connects, session setups, calls and files; a tree connect and a session setup are recorded in theirs.

use std::collections::VecDeque;

use super::fields::{HEADER_1, HEADER_2, narrow, slice, u16_at, u32_at, u64_at};
use super::kerberos;
use super::names::{command_1, command_2};
use super::transfer::{File, file_at};
use crate::app::AppProtocol;
use crate::app::heap::{flat, heap};
use crate::app::record::{FIELD_LIST, FIELD_SIZE, Fields, Record, SmbRecord};
use crate::app::transaction::{Progress, Transactions};
use crate::flow::Direction;

/// Largest number of requests whose responses are expected.
const PENDING: usize = 256;
/// Seconds from 1601 to 1970 (MS-DTYP, section 2.3.3).
const FROM_1601_TO_1970: u64 = 11_644_473_600;

/// A request that waits for its response.
#[derive(Debug, Clone, Copy)]
struct Request {
    message: u64,
    command: u16,
    transaction: u64,
}

flat!(Request);

/// The records of a connection.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) is_on: bool,
    /// The dialect that the server chose; empty before.
    dialect: Vec<u8>,
    /// The dialects of SMB 1 that the client offers.
    offered: Vec<Vec<u8>>,
    pending: VecDeque<Request>,
    /// Session and tree of the newest message, by [`Direction::index`].
    newest: [(u64, u32); 2],
}

heap!(Log {
    dialect,
    offered,
    pending
});

/// The identifiers of a message.
struct Header {
    message: u64,
    command: u16,
    status: u32,
    session: u64,
    tree: u32,
}

/// Returns the text of a GUID or of a file identifier, in the order of bytes that Suricata's documentation shows.
fn guid(bytes: &[u8]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 9, 8, 11, 10, 15, 14, 13, 12];
    let mut text = String::with_capacity(36);
    for (at, from) in ORDER.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{:02x}", bytes.get(from).copied().unwrap_or(0));
    }
    text
}

/// Returns the text of a file identifier of SMB 1, in the order of its bytes.
fn fuid_1(low: u8, high: u8) -> String {
    format!("{low:02x}{high:02x}")
}

/// Returns a time of Windows in seconds since 1970; 0 for no time.
fn seconds(time: u64) -> u64 {
    (time / 10_000_000).saturating_sub(FROM_1601_TO_1970)
}

/// Returns the name of a dialect of SMB 2 (MS-SMB2, section 2.2.4).
fn dialect_2(number: usize) -> String {
    match number {
        0x0202 => "2.02".to_owned(),
        0x0210 => "2.10".to_owned(),
        0x02ff => "2.??".to_owned(),
        0x0300 => "3.00".to_owned(),
        0x0302 => "3.02".to_owned(),
        0x0310 => "3.10".to_owned(),
        0x0311 => "3.11".to_owned(),
        other => format!("{other:x}"),
    }
}

/// Returns true for a command of SMB 1 that is a record of its own: not one that transfers bytes.
fn is_recorded_1(command: u16) -> bool {
    !matches!(command, 0x25 | 0x2e | 0x2f | 0x32)
}

/// Returns true for a command of SMB 2 that is a record of its own.
fn is_recorded_2(command: u16) -> bool {
    !matches!(command, 8 | 9 | 16)
}

impl Log {
    pub(super) fn new(is_on: bool) -> Log {
        Log {
            is_on,
            ..Log::default()
        }
    }

    /// Notes session and tree of a message, for the calls and the bytes of files that it carries.
    pub(super) fn note(&mut self, data: &[u8], direction: Direction) {
        if !self.is_on {
            return;
        }
        let ids = match data.first_chunk::<4>() {
            Some(b"\xfeSMB") => u64_at(data, 40).zip(u32_at(data, 36)),
            _ => u16_at(data, 28).map(|id| id as u64).zip(u16_at(data, 24)),
        };
        if let Some((session, tree)) = ids {
            self.newest[direction.index()] = (session, tree as u32);
        }
    }

    /// Adds session, tree and dialect to the calls among the transactions from `begun` on.
    pub(super) fn calls(&self, begun: u64, direction: Direction, out: &mut Transactions) {
        if !self.is_on {
            return;
        }
        for id in begun..out.begun() {
            let Some(transaction) = out.by_id(id) else {
                continue;
            };
            if let Record::Smb(record) = &mut transaction.record
                && record.dcerpc.is_some()
            {
                record.dialect = self.named_dialect();
                (record.session_id, record.tree_id) = self.newest[direction.index()];
            }
        }
    }

    /// Records the transaction of one direction of a file, with the identifier of the file once it is known.
    pub(super) fn file(
        &self,
        (id, name): (u64, &[u8]),
        file: File,
        command: &[u8],
        direction: Direction,
        out: &mut Transactions,
    ) {
        let Some(transaction) = out.by_id(id) else { return };
        if !matches!(transaction.record, Record::Smb(_)) {
            let (session_id, tree_id) = self.newest[direction.index()];
            transaction.record = Record::Smb(Box::new(SmbRecord {
                dialect: self.named_dialect(),
                command: command.to_vec(),
                status: Some(0),
                session_id,
                tree_id,
                filename: (!name.is_empty()).then(|| name.to_vec()),
                ..SmbRecord::default()
            }));
        }
        let Record::Smb(record) = &mut transaction.record else {
            return;
        };
        if !file.is_temporary() && record.more.value("fuid").is_none() {
            let bytes = file.0.to_le_bytes();
            let text = match command.starts_with(b"SMB1") {
                true => fuid_1(bytes[0], bytes[1]),
                false => guid(&bytes),
            };
            record.more.text("fuid", text.as_bytes());
        }
    }

    /// Records a command of SMB 2. `begun` is the number of transactions before it was parsed.
    pub(super) fn command_2(
        &mut self,
        data: &[u8],
        direction: Direction,
        begun: u64,
        out: &mut Transactions,
    ) -> Option<()> {
        const STATUS_PENDING: usize = 0x103;
        let header = Header {
            message: u64_at(data, 24)?,
            command: u16_at(data, 12)? as u16,
            status: u32_at(data, 8)? as u32,
            session: u64_at(data, 40)?,
            tree: u32_at(data, 36)? as u32,
        };
        if !is_recorded_2(header.command) {
            return None;
        }
        match direction {
            Direction::ToServer => {
                let record = self.begin(&header, &command_2(header.command), begun, out)?;
                request_2(header.command, data, record);
                Some(())
            }
            Direction::ToClient if header.status as usize == STATUS_PENDING => None,
            Direction::ToClient => {
                if header.command == 0 && header.status == 0 {
                    self.dialect = dialect_2(u16_at(data, HEADER_2 + 4)?).into_bytes();
                }
                let record = self.finish(&header, out)?;
                response_2(header.command, data, record);
                Some(())
            }
        }
    }

    /// Records a command of SMB 1, whose parameters are at `words`.
    pub(super) fn command_1(
        &mut self,
        (command, words): (u8, usize),
        data: &[u8],
        direction: Direction,
        begun: u64,
        out: &mut Transactions,
    ) -> Option<()> {
        let header = Header {
            message: u16_at(data, 30)? as u64,
            command: u16::from(command),
            status: u32_at(data, 5)? as u32,
            session: u16_at(data, 28)? as u64,
            tree: u16_at(data, 24)? as u32,
        };
        if !is_recorded_1(header.command) {
            return None;
        }
        let is_unicode = u16_at(data, 10)? & 0x8000 != 0;
        match direction {
            Direction::ToServer => {
                if command == 0x72 {
                    let names = data
                        .get(HEADER_1 + 3..)
                        .unwrap_or_default()
                        .split(|byte| *byte == 0);
                    let names = names.filter_map(|name| name.strip_prefix(&[2]));
                    let cut = |name: &[u8]| name[..name.len().min(64)].to_vec();
                    self.offered = names.take(FIELD_LIST).map(cut).collect();
                }
                let offered = core::mem::take(&mut self.offered);
                if let Some(record) = self.begin(&header, &command_1(command), begun, out) {
                    request_1(command, words, data, is_unicode, record);
                    if command == 0x72 {
                        record
                            .more
                            .texts("client_dialects", offered.iter().map(Vec::as_slice));
                    }
                }
                self.offered = offered;
            }
            Direction::ToClient => {
                if command == 0x72 {
                    // The index of the dialect that the server chose (MS-CIFS, section 2.2.4.52.2).
                    let chosen = u16_at(data, words).and_then(|at| self.offered.get(at));
                    self.dialect = chosen.cloned().unwrap_or_default();
                }
                let record = self.finish(&header, out)?;
                response_1(command, words, data, is_unicode, record);
            }
        }
        Some(())
    }

    /// Records that the server answers a negotiation of SMB 1 with a dialect of SMB 2.
    pub(super) fn negotiated_2(&mut self, data: &[u8], out: &mut Transactions) -> Option<()> {
        let first = self
            .pending
            .front()
            .copied()
            .filter(|request| request.command == 0x72)?;
        self.dialect = dialect_2(u16_at(data, HEADER_2 + 4)?).into_bytes();
        let header = Header {
            message: first.message,
            command: first.command,
            status: u32_at(data, 8)? as u32,
            session: 0,
            tree: 0,
        };
        let record = self.finish(&header, out)?;
        if let Some(bytes) = slice(data, HEADER_2 + 8, 16) {
            record.more.text("server_guid", guid(bytes).as_bytes());
        }
        Some(())
    }

    /// Returns the record of a request: that of the transaction that it began, or of one for the record alone.
    fn begin<'a>(
        &mut self,
        header: &Header,
        name: &str,
        begun: u64,
        out: &'a mut Transactions,
    ) -> Option<&'a mut SmbRecord> {
        let is_own = out.begun() == begun;
        let id = match is_own {
            true => out.start(AppProtocol::Smb).id,
            false => begun,
        };
        let transaction = out.by_id(id)?;
        if let Record::Smb(record) = &transaction.record
            && record.dcerpc.is_some()
        {
            return None;
        }
        if !transaction.files.is_empty() {
            return None;
        }
        transaction.advance(Direction::ToServer, Progress::Complete);
        // The record waits for the response.
        transaction.progress[Direction::ToClient.index()] = Progress::Idle;
        if !matches!(transaction.record, Record::Smb(_)) {
            transaction.record = Record::Smb(Box::default());
        }
        if self.pending.len() >= PENDING
            && let Some(oldest) = self.pending.pop_front()
            && let Some(transaction) = out.by_id(oldest.transaction)
        {
            transaction.advance(Direction::ToClient, Progress::Complete);
        }
        self.pending.push_back(Request {
            message: header.message,
            command: header.command,
            transaction: id,
        });
        let transaction = out.by_id(id)?;
        let Record::Smb(record) = &mut transaction.record else {
            return None;
        };
        record.dialect = self.named_dialect();
        record.command = name.as_bytes().to_vec();
        record.session_id = header.session;
        record.tree_id = header.tree;
        Some(record)
    }

    fn named_dialect(&self) -> Vec<u8> {
        match self.dialect.is_empty() {
            true => b"unknown".to_vec(),
            false => self.dialect.clone(),
        }
    }

    /// Returns the record of the request that a message answers. Its transaction is complete.
    fn finish<'a>(&mut self, header: &Header, out: &'a mut Transactions) -> Option<&'a mut SmbRecord> {
        let is_it =
            |request: &Request| request.message == header.message && request.command == header.command;
        let at = self.pending.iter().position(is_it)?;
        let request = self.pending.remove(at)?;
        let transaction = out.by_id(request.transaction)?;
        transaction.advance(Direction::ToClient, Progress::Complete);
        let Record::Smb(record) = &mut transaction.record else {
            return None;
        };
        record.dialect = self.named_dialect();
        record.status = Some(header.status);
        if header.session != 0 {
            record.session_id = header.session;
        }
        if header.tree != 0 {
            record.tree_id = header.tree;
        }
        Some(record)
    }
}

/// Returns the disposition of a command that opens a file (MS-SMB2, section 2.2.13).
fn disposition(number: usize) -> &'static str {
    match number {
        0 => "FILE_SUPERSEDE",
        1 => "FILE_OPEN",
        2 => "FILE_CREATE",
        3 => "FILE_OPEN_IF",
        4 => "FILE_OVERWRITE",
        5 => "FILE_OVERWRITE_IF",
        _ => "UNKNOWN",
    }
}

/// Writes how a file is opened.
fn opened(name: &[u8], create: usize, options: usize, out: &mut Fields) {
    const DIRECTORY: usize = 1;
    const DELETE_ON_CLOSE: usize = 0x1000;
    out.text("disposition", disposition(create).as_bytes());
    let access: &[u8] = match options & DELETE_ON_CLOSE {
        0 => b"normal",
        _ => b"delete on close",
    };
    out.text("access", access);
    if options & DIRECTORY != 0 && !name.is_empty() {
        out.text("directory", name);
    }
}

fn cut(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(FIELD_SIZE);
    text
}

fn request_2(command: u16, data: &[u8], record: &mut SmbRecord) -> Option<()> {
    let (body, more) = (HEADER_2, &mut record.more);
    match command {
        0 => {
            let len = u16_at(data, body + 2)?.min(FIELD_LIST);
            let dialects: Vec<String> = (0..len)
                .filter_map(|at| u16_at(data, body + 36 + 2 * at))
                .map(dialect_2)
                .collect();
            more.texts("client_dialects", dialects.iter().map(String::as_bytes));
            more.text("client_guid", guid(slice(data, body + 12, 16)?).as_bytes());
        }
        5 => {
            let name = slice(data, u16_at(data, body + 44)?, u16_at(data, body + 46)?)?;
            let name = narrow(name);
            let shown: &[u8] = if name.is_empty() { b"<share_root>" } else { &name };
            record.filename = Some(cut(shown.to_vec()));
            opened(&name, u32_at(data, body + 36)?, u32_at(data, body + 40)?, more);
        }
        1 => kerberos::names(
            slice(data, u16_at(data, body + 12)?, u16_at(data, body + 14)?)?,
            more,
        )?,
        17 => {
            // Rename is a class of information of files (MS-FSCC, section 2.4.42).
            const RENAME: u8 = 10;
            if *data.get(body + 3)? == RENAME {
                let buffer = slice(data, u16_at(data, body + 8)?, u32_at(data, body + 4)?)?;
                let to = narrow(slice(buffer, 20, u32_at(buffer, 16)?)?);
                more.object("rename", |out| {
                    out.text("to", &to);
                });
            }
        }
        _ => {}
    }
    Some(())
}

fn response_2(command: u16, data: &[u8], record: &mut SmbRecord) -> Option<()> {
    let (body, more) = (HEADER_2, &mut record.more);
    if record.status != Some(0) {
        return None;
    }
    match command {
        0 => {
            more.text("server_guid", guid(slice(data, body + 8, 16)?).as_bytes());
            more.number("max_read_size", u32_at(data, body + 32)? as u64)
                .number("max_write_size", u32_at(data, body + 36)? as u64);
        }
        3 => {
            let kind: &[u8] = match data.get(body + 2)? {
                1 => b"FILE",
                2 => b"PIPE",
                3 => b"PRINT",
                _ => b"UNKNOWN",
            };
            more.text("share_type", kind);
        }
        5 => {
            for (name, at) in [
                ("created", 8),
                ("accessed", 16),
                ("modified", 24),
                ("changed", 32),
            ] {
                more.number(name, seconds(u64_at(data, body + at)?));
            }
            more.number("size", u64_at(data, body + 48)?);
            file_at(data, body + 64)?;
            more.text("fuid", guid(slice(data, body + 64, 16)?).as_bytes());
        }
        _ => {}
    }
    Some(())
}

/// Returns the texts behind the data of a message of SMB 1, each up to its zero.
fn texts_1(data: &[u8], at: usize, is_unicode: bool) -> Vec<Vec<u8>> {
    let rest = data.get(at..).unwrap_or_default();
    let mut found = Vec::new();
    if !is_unicode {
        let parts = rest.split(|byte| *byte == 0).map(|text| cut(text.to_vec()));
        return parts.take(4).collect();
    }
    let mut rest = rest.get(at & 1..).unwrap_or_default();
    while found.len() < 4 && rest.len() >= 2 {
        let end = rest.chunks_exact(2).position(|unit| unit == [0, 0]);
        let size = end.map_or(rest.len(), |units| 2 * units);
        found.push(cut(narrow(&rest[..size])));
        rest = rest.get(size + 2..).unwrap_or_default();
    }
    found
}

/// Writes the system and the LAN manager that an end of SMB 1 names.
fn native(name: &'static str, texts: &[Vec<u8>], out: &mut Fields) {
    if let [os, manager, ..] = texts {
        out.object(name, |out| {
            out.text("native_os", os).text("native_lm", manager);
        });
    }
}

fn request_1(command: u8, words: usize, data: &[u8], is_unicode: bool, record: &mut SmbRecord) -> Option<()> {
    let word_len = usize::from(*data.get(words - 1)?);
    let bytes = words + 2 * word_len + 2;
    match command {
        // SESSION_SETUP_ANDX: with extended security, a blob precedes the texts.
        0x73 => {
            let blob = match word_len {
                12 => u16_at(data, words + 14)?,
                13 => u16_at(data, words + 14)? + u16_at(data, words + 16)?,
                _ => return None,
            };
            let mut texts = texts_1(data, bytes + blob, is_unicode);
            if word_len == 13 {
                // The account and the domain precede them.
                texts = texts.into_iter().skip(2).collect();
            }
            native("request", &texts, &mut record.more);
        }
        // NT_CREATE_ANDX.
        0xa2 => {
            let name = texts_1(data, bytes, is_unicode)
                .into_iter()
                .next()
                .unwrap_or_default();
            record.filename = Some(name.clone());
            opened(
                &name,
                u32_at(data, words + 35)?,
                u32_at(data, words + 39)?,
                &mut record.more,
            );
        }
        _ => {}
    }
    Some(())
}

fn response_1(
    command: u8,
    words: usize,
    data: &[u8],
    is_unicode: bool,
    record: &mut SmbRecord,
) -> Option<()> {
    let word_len = usize::from(*data.get(words - 1)?);
    let bytes = words + 2 * word_len + 2;
    match command {
        0x73 => {
            let blob = if word_len == 4 {
                u16_at(data, words + 6)?
            } else {
                0
            };
            let texts = texts_1(data, bytes + blob, is_unicode);
            native("response", &texts, &mut record.more);
        }
        0x75 => {
            let service = data.get(bytes..)?.split(|byte| *byte == 0).next()?;
            let kind: &[u8] = match service {
                b"A:" => b"FILE",
                b"IPC" => b"PIPE",
                b"LPT1:" => b"PRINT",
                _ => b"UNKNOWN",
            };
            record.more.text("share_type", kind);
        }
        0xa2 if record.status == Some(0) => {
            for (name, at) in [
                ("created", 11),
                ("accessed", 19),
                ("modified", 27),
                ("changed", 35),
            ] {
                record.more.number(name, seconds(u64_at(data, words + at)?));
            }
            record.more.number("size", u64_at(data, words + 55)?);
            let file = data.get(words + 5..words + 7)?;
            record.more.text("fuid", fuid_1(file[0], file[1]).as_bytes());
        }
        _ => {}
    }
    Some(())
}
