//! A message in progress and its readings, which contain one another.

use super::body::MailBody;
use super::headers::Headers;
use super::part::Part;
use super::summary::Summary;
use crate::app::AppSettings;
use crate::app::heap::{Heap, heap};
use crate::app::mail::decode::Decoder;
use crate::flow::Direction;

/// Largest number of encoded messages and multiparts of a mail that are read as declared at the same time. Each of them has half of
/// what is left for those inside of it, so four can be one in another, and at most 16 further parsers work, however readings multiply.
const READINGS: usize = 16;

#[derive(Debug)]
pub(super) enum State {
    /// The headers of the message or of a part.
    Headers(Headers),
    /// Bytes that belong to no file.
    Text,
    /// Bytes of a file.
    File(Part),
}

impl Heap for State {
    fn heap(&self) -> usize {
        match self {
            State::Headers(headers) => headers.heap(),
            State::Text => 0,
            State::File(part) => part.heap(),
        }
    }
}

/// A message or an encoded multipart around the part in progress.
#[derive(Debug)]
pub(super) struct Message {
    /// The message as a file, if it has a name.
    pub(super) file: Option<Part>,
    /// Number of boundaries around it.
    pub(super) around: usize,
    /// The bytes as declared, if it declares an encoding.
    pub(super) decoded: Option<Decoded>,
}

heap!(Message { file, decoded });

/// A message in progress.
#[derive(Debug)]
pub(in crate::app) struct Mime {
    pub(super) direction: Direction,
    pub(super) state: State,
    pub(super) boundaries: Vec<Vec<u8>>,
    /// The messages that are files or encoded, and the encoded multiparts, outermost first.
    pub(super) enclosing: Vec<Message>,
    /// Number of encoded messages and multiparts that may still be read as declared.
    pub(super) readings: usize,
    /// True if this is one of two readings of the message, so that its lines may be none.
    pub(super) is_guess: bool,
    pub(super) is_top: bool,
    /// True if the last piece did not end its line.
    pub(super) is_in_line: bool,
    /// The end of the last piece that is not parsed yet: an incomplete header line, or bytes that may begin a boundary
    /// or a line end.
    pub(super) held: Vec<u8>,
    pub(in crate::app) summary: Summary,
    /// The body of the message itself for rules; `None` if they ask nothing of it.
    pub(in crate::app) body: Option<Box<MailBody>>,
}

heap!(Mime {
    state,
    boundaries,
    enclosing,
    held,
    summary,
    body
});

impl Mime {
    pub(in crate::app) fn new(direction: Direction) -> Mime {
        Mime {
            direction,
            state: State::Headers(Headers::default()),
            boundaries: Vec::new(),
            enclosing: Vec::new(),
            readings: READINGS,
            is_guess: false,
            is_top: true,
            is_in_line: false,
            held: Vec::new(),
            summary: Summary::default(),
            body: None,
        }
    }
}

/// The message as declared.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) decoder: Decoder,
    pub(super) reading: Reading,
    /// Number of encoded messages inside that may be read as declared.
    pub(super) readings: usize,
    pub(super) settings: AppSettings,
}

heap!(Decoded { decoder, reading });

#[derive(Debug)]
pub(super) enum Reading {
    /// The message so far is what this decoder, which changes nothing, makes of it.
    Same(Decoder),
    Other {
        mime: Box<Mime>,
        /// Decoded bytes of an incomplete line.
        rest: Vec<u8>,
    },
}

impl Heap for Reading {
    fn heap(&self) -> usize {
        match self {
            Reading::Same(decoder) => decoder.heap(),
            Reading::Other { mime, rest } => mime.heap() + rest.heap(),
        }
    }
}
