//! IMAP (RFC 9051): commands, responses with literals, the mails that FETCH delivers and APPEND stores, STARTTLS.
//!
//! A line may end in `{SIZE}`: that number of bytes follows, and then the line continues. A literal of the item
//! `BODY[]`, `RFC822` or of APPEND is a mail, whose attachments are files. A literal of `BODY[]<ORIGIN>` is a piece of
//! a mail; consecutive pieces are parsed as one mail.
//!
//! ```text
//!  line ──{SIZE}──▶ Literal(left) ──0──▶ line continues
//!    └───line end──▶ next line
//! ```
//!
//! A command is a transaction, complete with the tagged response.

use super::lines;
use super::mime::Mime;
use super::retrieval::word;
use crate::app::heap::heap;
use crate::app::parser::{Outcome, Parser};
use crate::app::transaction::{Progress, Transactions};
use crate::app::{AppProtocol, AppSettings};
use crate::flow::Direction;
use crate::tcp::StreamChunk;

/// Largest number of commands that wait for a tagged response.
const COMMANDS: usize = 256;
/// Largest size of a tag; longer ones are cut.
const TAG_SIZE: usize = 64;
/// Largest size of a literal.
const LITERAL_SIZE: u64 = 1 << 32;

/// A command without its tagged response.
#[derive(Debug)]
struct Command {
    tag: Vec<u8>,
    transaction: u64,
    is_start_tls: bool,
}

heap!(Command { tag });

/// A mail that the server sends in pieces, between two of them.
#[derive(Debug)]
struct Piece {
    /// The message sequence number of the mail (RFC 9051, section 2.3.1.2).
    message: u64,
    /// The offset of the next piece in bytes.
    next: u64,
    mail: Box<Mime>,
}

heap!(Piece { mail });

/// A literal in progress.
#[derive(Debug)]
struct Literal {
    left: u64,
    /// For a piece of a mail: the message sequence number, and the offset in the mail after the piece.
    piece: Option<(u64, u64)>,
    /// True until the first byte of a synchronizing literal, which the server must permit (RFC 9051, section 4.3).
    waits: bool,
    /// The parser of the mail, if the literal is a mail.
    mail: Option<Box<Mime>>,
    transaction: Option<u64>,
    /// True if no known command requested the mail. The transaction then ends with the literal.
    is_unasked: bool,
}

heap!(Literal { mail });

/// The state of a direction.
#[derive(Debug, Default)]
struct Side {
    pending: Vec<u8>,
    literal: Option<Literal>,
    /// True if the next bytes continue a line, after a literal or a piece of a long line.
    is_in_line: bool,
    has_failed: bool,
}

heap!(Side { pending, literal });

/// The parser of a connection.
#[derive(Debug)]
pub(in crate::app) struct Imap {
    settings: AppSettings,
    sides: [Side; 2],
    waiting: Vec<Command>,
    /// The message sequence number in the server's response in progress; 0 if there is none.
    message: u64,
    /// The mail whose next piece may follow.
    mail: Option<Piece>,
    starts_tls: bool,
}

heap!(Imap { sides, waiting, mail });

/// Returns the size of the literal that a line announces at its end, as `{12}` or `{12+}` (RFC 7888).
fn literal(text: &[u8]) -> Option<u64> {
    let inner = text.strip_suffix(b"}")?;
    let start = inner.iter().rposition(|&byte| byte == b'{')?;
    let digits = inner[start + 1..]
        .strip_suffix(b"+")
        .unwrap_or(&inner[start + 1..]);
    let size = core::str::from_utf8(digits).ok()?.parse().ok()?;
    (size <= LITERAL_SIZE).then_some(size)
}

/// Returns the data item to which the literal after a line belongs, such as `BODY[]`.
fn item(text: &[u8]) -> &[u8] {
    text.rsplit(|&byte| byte == b'(' || byte == b' ')
        .find(|item| !item.is_empty() && !item.starts_with(b"{"))
        .unwrap_or_default()
}

/// Returns true if the literal after a line is a mail, a piece of a mail, or the text of a mail.
fn is_mail(text: &[u8]) -> bool {
    let item = item(text).to_ascii_uppercase();
    item.starts_with(b"BODY[]") || item.starts_with(b"RFC822") && !item.ends_with(b".HEADER")
}

/// Returns the offset in the mail of the piece after a line; `None` if the literal is not a piece (RFC 9051, section
/// 7.5.2).
fn origin(text: &[u8]) -> Option<u64> {
    let (_, origin) = core::str::from_utf8(item(text)).ok()?.split_once("[]<")?;
    origin.strip_suffix('>')?.parse().ok()
}

/// Returns the message sequence number in a response; 0 if there is none.
fn message(text: &[u8]) -> u64 {
    let digits = text.get(2..).map_or(&b""[..], |rest| word(rest).0);
    let digits = core::str::from_utf8(digits).ok();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or_default()
}

impl Imap {
    pub(in crate::app) fn new(settings: AppSettings) -> Imap {
        Imap {
            settings,
            sides: Default::default(),
            waiting: Vec::new(),
            message: 0,
            mail: None,
            starts_tls: false,
        }
    }

    /// Handles a line of the client; returns the transaction of its command, and true if it appends a mail.
    fn command(&mut self, text: &[u8], out: &mut Transactions) -> (Option<u64>, bool) {
        let (tag, rest) = word(text);
        let (verb, _) = word(rest);
        if tag.is_empty() || verb.is_empty() || self.waiting.len() >= COMMANDS {
            return (None, false);
        }
        let transaction = out.start(AppProtocol::Imap);
        transaction.advance(Direction::ToServer, Progress::Started);
        let id = transaction.id;
        self.waiting.push(Command {
            tag: tag[..tag.len().min(TAG_SIZE)].to_vec(),
            transaction: id,
            is_start_tls: verb.eq_ignore_ascii_case(b"STARTTLS"),
        });
        (Some(id), verb.eq_ignore_ascii_case(b"APPEND"))
    }

    /// Handles the first line of a tagged response.
    fn response(&mut self, text: &[u8], out: &mut Transactions) {
        let (tag, rest) = word(text);
        let tag = &tag[..tag.len().min(TAG_SIZE)];
        let Some(at) = self.waiting.iter().position(|command| command.tag == tag) else {
            return;
        };
        let command = self.waiting.remove(at);
        // The server refuses a command instead of permitting its literal, so the client does not send the
        // literal.
        let client = &mut self.sides[Direction::ToServer.index()];
        let is_refused = client
            .literal
            .as_ref()
            .is_some_and(|literal| literal.waits && literal.transaction == Some(command.transaction));
        if is_refused {
            client.literal = None;
            client.is_in_line = false;
        }
        if let Some(transaction) = out.by_id(command.transaction) {
            for side in Direction::BOTH {
                transaction.advance(side, Progress::Complete);
            }
        }
        let (status, _) = word(rest);
        self.starts_tls |= command.is_start_tls && status.eq_ignore_ascii_case(b"OK");
    }

    /// Handles a line, or a part of one.
    fn line(&mut self, direction: Direction, line: lines::Line<'_>, out: &mut Transactions) {
        let side = &self.sides[direction.index()];
        let continues = side.is_in_line;
        let is_piece = line.end.is_empty();
        let (transaction, is_append) = match (direction, continues) {
            (Direction::ToServer, false) => self.command(line.text, out),
            (Direction::ToServer, true) => (self.waiting.last().map(|command| command.transaction), false),
            (Direction::ToClient, false) => {
                if !line.text.starts_with(b"* ") && !line.text.starts_with(b"+") {
                    self.response(line.text, out);
                }
                self.message = message(line.text);
                // Lines of the server belong to the oldest command.
                (self.waiting.first().map(|command| command.transaction), false)
            }
            (Direction::ToClient, true) => (self.waiting.first().map(|command| command.transaction), false),
        };
        let size = literal(line.text).filter(|_| !is_piece);
        let is_mail = match direction {
            Direction::ToServer => is_append,
            Direction::ToClient => is_mail(line.text),
        };
        // A mail that no known command requested has a separate transaction.
        let is_unasked =
            transaction.is_none() && is_mail && size.is_some() && direction == Direction::ToClient;
        let transaction = match is_unasked {
            true => {
                let own = out.start(AppProtocol::Imap);
                own.advance(Direction::ToServer, Progress::Complete);
                Some(own.id)
            }
            false => transaction,
        };
        let origin = origin(line.text).filter(|_| is_mail && direction == Direction::ToClient);
        let mut mail = (is_mail && size.is_some()).then(|| self.mail(direction, origin));
        let has_command_ended = direction == Direction::ToServer && size.is_none() && !is_piece;
        if let Some(transaction) = transaction.and_then(|id| out.by_id(id)) {
            transaction.advance(direction, Progress::Started);
            if has_command_ended {
                transaction.advance(direction, Progress::Complete);
            }
            if let Some(mail) = &mut mail {
                mail.resume(transaction, &self.settings);
            }
        }
        let message = self.message;
        let side = &mut self.sides[direction.index()];
        side.is_in_line = is_piece || size.is_some();
        side.literal = size.map(|left| Literal {
            left,
            piece: origin.map(|origin| (message, origin.saturating_add(left))),
            waits: direction == Direction::ToServer && !line.text.ends_with(b"+}"),
            is_unasked,
            mail,
            transaction,
        });
    }

    /// Returns the parser of the literal that begins: for the next piece of a mail the parser of the mail, otherwise a
    /// new one.
    fn mail(&mut self, direction: Direction, origin: Option<u64>) -> Box<Mime> {
        let message = self.message;
        let follows = |piece: &mut Piece| piece.message == message && origin == Some(piece.next);
        match self.mail.take_if(follows) {
            Some(piece) => piece.mail,
            None => Box::new(Mime::new(direction)),
        }
    }

    /// Consumes bytes of a literal and returns their number.
    fn literal(&mut self, direction: Direction, data: &[u8], out: &mut Transactions) -> usize {
        let side = &mut self.sides[direction.index()];
        let Some(literal) = &mut side.literal else {
            return 0;
        };
        let size = usize::try_from(literal.left)
            .unwrap_or(usize::MAX)
            .min(data.len());
        let is_last = size as u64 == literal.left;
        literal.waits &= size == 0;
        let mut taken = size;
        if let (Some(mail), Some(transaction)) = (
            &mut literal.mail,
            literal.transaction.and_then(|id| out.by_id(id)),
        ) {
            transaction.advance(direction, Progress::Body);
            let bytes = &data[..size];
            let mut at = 0;
            while let Some(line) = lines::next(&bytes[at..]) {
                mail.line(line.text, line.end, transaction, &self.settings);
                at += line.size;
            }
            if is_last {
                if literal.piece.is_some() {
                    mail.suspend(&bytes[at..], transaction, &self.settings);
                } else {
                    if at < size {
                        mail.line(&bytes[at..], b"", transaction, &self.settings);
                    }
                    mail.end(transaction, true);
                }
                if literal.is_unasked {
                    transaction.advance(direction, Progress::Complete);
                }
            } else {
                taken = at;
            }
        }
        literal.left -= taken as u64;
        if is_last
            && let Some(Literal {
                piece: Some((message, next)),
                mail: Some(mail),
                ..
            }) = side.literal.take()
        {
            self.mail = Some(Piece { message, next, mail });
        }
        taken
    }

    fn abandon(&mut self, direction: Direction, out: &mut Transactions) {
        let side = &mut self.sides[direction.index()];
        side.has_failed = true;
        side.pending = Vec::new();
        if let Some(Literal {
            mail: Some(mut mail),
            transaction,
            is_unasked,
            ..
        }) = side.literal.take()
            && let Some(transaction) = transaction.and_then(|id| out.by_id(id))
        {
            mail.end(transaction, false);
            if is_unasked {
                transaction.advance(direction, Progress::Complete);
            }
        }
    }
}

impl Parser for Imap {
    fn data(&mut self, chunk: StreamChunk<'_>, out: &mut Transactions) -> Outcome {
        let index = chunk.direction.index();
        if chunk.gap_before > 0 {
            self.abandon(chunk.direction, out);
        }
        if self.sides[index].has_failed {
            return Outcome::Continue;
        }
        let mut data = core::mem::take(&mut self.sides[index].pending);
        data.extend_from_slice(chunk.bytes);
        let mut at = 0;
        while !self.starts_tls {
            if self.sides[index].literal.is_some() {
                let has_rest = at < data.len();
                let size = self.literal(chunk.direction, &data[at..], out);
                at += size;
                if size == 0 && (self.sides[index].literal.is_some() || !has_rest) {
                    break;
                }
                continue;
            }
            let Some(line) = lines::next(&data[at..]) else {
                break;
            };
            self.line(chunk.direction, line, out);
            at += line.size;
        }
        data.drain(..at);
        self.sides[index].pending = data;
        if self.starts_tls {
            let [client, server] = &mut self.sides;
            return Outcome::Switch {
                rest: [
                    core::mem::take(&mut client.pending),
                    core::mem::take(&mut server.pending),
                ],
            };
        }
        Outcome::Continue
    }

    fn end(&mut self, direction: Direction, out: &mut Transactions) {
        self.abandon(direction, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::transaction::Transaction;

    #[test]
    fn literals_are_announced_at_the_end_of_a_line() {
        assert_eq!(literal(b"* 1 FETCH (BODY[] {310}"), Some(310));
        assert_eq!(literal(b"a APPEND x {3+}"), Some(3));
        assert_eq!(literal(b"a {x}"), None);
        assert_eq!(literal(b"a {99999999999999999999}"), None);
        assert!(is_mail(b"* 1 FETCH (BODY[] {310}"));
        assert!(is_mail(b"* 1 FETCH (FLAGS (\\Seen) RFC822 {310}"));
        assert!(!is_mail(b"* 1 FETCH (BODY[HEADER] {310}"));
        assert!(!is_mail(b"* 1 FETCH (RFC822.HEADER {310}"));
        assert!(is_mail(b"* 1 FETCH (BODY[]<65536> {310}"));
        assert_eq!(origin(b"* 12 FETCH (UID 7 body[]<65536> {310}"), Some(65_536));
        assert_eq!(origin(b"* 12 FETCH (BODY[] {310}"), None);
        assert_eq!(message(b"* 12 FETCH (BODY[] {310}"), 12);
    }

    #[test]
    fn a_mail_that_is_fetched_in_pieces_is_one_and_its_cut_files_have_no_hash() {
        use crate::app::file::FileState;
        use crate::app::mail::tests::MAIL;
        use millrace_ips_rules::buffers::Buffer;
        let settings = AppSettings {
            hashes_files: true,
            ..AppSettings::default()
        };
        let base64 = MAIL.windows(4).position(|window| window == b"TVpB").unwrap();
        for cut in 1..MAIL.len() {
            for is_one_command in [false, true] {
                let (first, second) = MAIL.split_at(cut);
                let head = |origin: usize, piece: &[u8]| {
                    let line = format!("BODY[]<{origin}> {{{}}}\r\n", piece.len());
                    [line.as_bytes(), piece].concat()
                };
                let between = match is_one_command {
                    true => &b" "[..],
                    false => b")\r\na1 OK\r\n* 5 EXISTS\r\n* 7 FETCH (UID 9 ",
                };
                let replies = [
                    b"* 7 FETCH (UID 9 ",
                    &head(0, first)[..],
                    between,
                    &head(cut, second),
                    b")\r\na2 OK\r\n",
                ];
                let (mut imap, mut out) = (Imap::new(settings), Transactions::default());
                imap.data(
                    StreamChunk::of(Direction::ToServer, b"a1 FETCH 7 x\r\na2 FETCH 7 y\r\n"),
                    &mut out,
                );
                imap.data(StreamChunk::of(Direction::ToClient, &replies.concat()), &mut out);
                let mut found = std::collections::BTreeMap::<Vec<u8>, Vec<u8>>::new();
                for transaction in &out.list {
                    let data = transaction.buffers(Buffer::FileData, Direction::ToClient);
                    let names = transaction.buffers(Buffer::FileName, Direction::ToClient);
                    for (name, data) in names.zip(data) {
                        // The buffer of the second piece begins with the end of the first one.
                        found.insert(name.bytes.to_vec(), data.bytes.to_vec());
                    }
                }
                let found: Vec<_> = found.values().map(Vec::as_slice).collect();
                assert_eq!(found, [&b"MZABCDEFG"[..], b"a=bc\r\n.."], "{cut}");
                let files = out.list.iter().flat_map(|transaction| &transaction.files);
                let states: Vec<_> = files
                    .filter(|file| file.name == b"x.bin")
                    .map(|file| (file.state, file.hashes.is_some()))
                    .collect();
                if (base64..base64 + 10).contains(&cut) {
                    assert_eq!(states, [(FileState::Truncated, false); 2], "{cut}");
                } else if cut < base64 - 60 || cut > base64 + 40 {
                    assert_eq!(states, [(FileState::Closed, true)], "{cut}");
                }
            }
        }
    }

    #[test]
    fn a_boundary_in_several_pieces_of_a_fetched_mail_ends_its_part() {
        use crate::app::mail::tests::MAIL;
        use millrace_ips_rules::buffers::Buffer;
        for size in 1..10 {
            let pieces = MAIL.chunks(size).enumerate();
            let pieces = pieces.flat_map(|(at, piece)| {
                let line = format!(" BODY[]<{}> {{{}}}\r\n", at * size, piece.len());
                [line.as_bytes(), piece].concat()
            });
            let reply = [b"* 7 FETCH (UID 9", &pieces.collect::<Vec<u8>>()[..], b")\r\n"].concat();
            let (mut imap, mut out) = (Imap::new(AppSettings::default()), Transactions::default());
            imap.data(
                StreamChunk::of(Direction::ToServer, b"a1 FETCH 7 x\r\n"),
                &mut out,
            );
            imap.data(StreamChunk::of(Direction::ToClient, &reply), &mut out);
            let names = out.list[0].buffers(Buffer::FileName, Direction::ToClient);
            let data = out.list[0].buffers(Buffer::FileData, Direction::ToClient);
            // The buffer of each piece begins with the end of the previous one.
            let files = names.map(|name| name.bytes).zip(data.map(|data| data.bytes));
            let files: std::collections::BTreeMap<_, _> = files.collect();
            let whole: Vec<_> = files.into_values().collect();
            assert_eq!(whole, [&b"MZABCDEFG"[..], b"a=bc\r\n.."], "{size}");
        }
    }

    #[test]
    fn the_attachments_of_a_fetched_and_of_an_appended_mail_are_files() {
        use crate::app::mail::tests::MAIL;
        use millrace_ips_rules::buffers::Buffer;
        let size = MAIL.len();
        let fetched = [
            format!("* 1 FETCH (FLAGS () BODY[] {{{size}}}\r\n").as_bytes(),
            MAIL,
            b" UID 7)\r\na2 OK done\r\n",
        ]
        .concat();
        let appended = [format!("a3 APPEND box {{{size}}}\r\n").as_bytes(), MAIL, b"\r\n"].concat();
        let messages: &[(Direction, &[u8])] = &[
            (Direction::ToClient, b"* OK ready\r\n"),
            (Direction::ToServer, b"a1 SELECT box\r\na2 FETCH 1 BODY[]\r\n"),
            (Direction::ToClient, b"a1 OK\r\n"),
            (Direction::ToClient, &fetched),
            (Direction::ToServer, &appended),
            (Direction::ToClient, b"a3 OK\r\n"),
        ];
        for step in [1, 11, 5000] {
            let (mut imap, mut out) = (Imap::new(AppSettings::default()), Transactions::default());
            for (direction, bytes) in messages {
                for bytes in bytes.chunks(step) {
                    let chunk = StreamChunk::of(*direction, bytes);
                    assert_eq!(imap.data(chunk, &mut out), Outcome::Continue);
                }
            }
            assert_eq!(out.list.len(), 3);
            assert!(out.list.iter().all(Transaction::is_complete));
            for (at, direction) in [(1, Direction::ToClient), (2, Direction::ToServer)] {
                let files = out.list[at].buffers(Buffer::FileData, direction);
                let data: Vec<&[u8]> = files.map(|view| view.bytes).collect();
                assert_eq!(data, [&b"MZABCDEFG"[..], b"a=bc\r\n.."], "{step}");
            }
        }
    }

    #[test]
    fn a_mail_that_no_command_asked_for_is_a_file() {
        use crate::app::mail::tests::MAIL;
        use millrace_ips_rules::buffers::Buffer;
        let bytes = [
            format!("* OK ready\r\n* 1 FETCH (BODY[] {{{}}}\r\n", MAIL.len()).as_bytes(),
            MAIL,
            b")\r\n",
        ]
        .concat();
        for cut in [bytes.len(), bytes.len() - 40] {
            let (mut imap, mut out) = (Imap::new(AppSettings::default()), Transactions::default());
            for bytes in bytes[..cut].chunks(7) {
                let chunk = StreamChunk::of(Direction::ToClient, bytes);
                assert_eq!(imap.data(chunk, &mut out), Outcome::Continue);
            }
            imap.end(Direction::ToClient, &mut out);
            assert_eq!(out.list.len(), 1);
            assert!(out.list[0].is_complete());
            let files = out.list[0].buffers(Buffer::FileData, Direction::ToClient);
            assert!(files.count() > 0);
        }
    }

    #[test]
    fn a_literal_that_the_server_refuses_hides_no_later_mail() {
        use crate::app::mail::tests::MAIL;
        use millrace_ips_rules::buffers::Buffer;
        let fetched = [
            format!("* 1 FETCH (BODY[] {{{}}}\r\n", MAIL.len()).as_bytes(),
            MAIL,
            b")\r\na2 OK\r\n",
        ]
        .concat();
        let messages: &[(Direction, &[u8])] = &[
            (Direction::ToServer, b"a1 LOGIN {100000}\r\n"),
            (Direction::ToClient, b"a1 BAD too long\r\n"),
            (Direction::ToServer, b"a2 FETCH 1 BODY[]\r\n"),
            (Direction::ToClient, &fetched),
        ];
        let (mut imap, mut out) = (Imap::new(AppSettings::default()), Transactions::default());
        for (direction, bytes) in messages {
            let chunk = StreamChunk::of(*direction, bytes);
            assert_eq!(imap.data(chunk, &mut out), Outcome::Continue);
        }
        assert_eq!(out.list.len(), 2);
        let files = out.list[1].buffers(Buffer::FileData, Direction::ToClient);
        assert_eq!(files.count(), 2);
    }

    #[test]
    fn tls_begins_behind_the_response_to_starttls() {
        let (mut imap, mut out) = (Imap::new(AppSettings::default()), Transactions::default());
        let mut send = |direction, bytes| {
            let chunk = StreamChunk::of(direction, bytes);
            imap.data(chunk, &mut out)
        };
        assert_eq!(send(Direction::ToServer, b"a STARTTLS\r\n"), Outcome::Continue);
        let rest = [Vec::new(), b"x".to_vec()];
        assert_eq!(
            send(Direction::ToClient, b"a OK begin\r\nx"),
            Outcome::Switch { rest }
        );
    }
}
