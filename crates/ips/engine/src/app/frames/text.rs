//! Frames of protocols of lines: Telnet, SIP, SMTP, FTP.

use millrace_ips_rules::buffers::Buffer;

use super::line::{Line, blanks, decimal, header};
use super::units::{Found, Step, Units};
use crate::app::heap::heap;
use crate::flow::Direction;

/// Telnet: commands (RFC 854), and lines of text between them.
#[derive(Debug, Default)]
pub(super) struct Telnet {
    /// True by [`Direction::index`] while a line is open.
    in_line: [bool; 2],
    /// True by [`Direction::index`] while the parameters of a negotiation are open.
    in_parameters: [bool; 2],
}

heap!(Telnet {});

/// "Interpret as command": the byte with which a command begins (RFC 854).
const IAC: u8 = 255;

impl Units for Telnet {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        /// Subnegotiation of an option follows.
        const SB: u8 = 250;
        /// Subnegotiation ends.
        const SE: u8 = 240;
        const WILL: u8 = 251;
        const DONT: u8 = 254;
        let side = direction.index();
        let command = |found: &mut Found<'_>, size: u64| {
            found.frame(Buffer::FrameTelnetPdu, 0, size);
            found.frame(Buffer::FrameTelnetCtl, 0, size);
            Step::Unit(size)
        };
        if self.in_parameters[side] {
            let Some(at) = memchr::memchr(IAC, bytes) else {
                return Step::Unit(bytes.len() as u64);
            };
            if at > 0 {
                return Step::Unit(at as u64);
            }
            return match bytes.get(1) {
                None => Step::More,
                Some(&SE) => {
                    self.in_parameters[side] = false;
                    found.close(Buffer::FrameTelnetPdu, 2);
                    found.close(Buffer::FrameTelnetCtl, 2);
                    Step::Unit(2)
                }
                Some(_) => Step::Unit(2),
            };
        }
        if bytes[0] == IAC {
            if core::mem::take(&mut self.in_line[side]) {
                found.close(Buffer::FrameTelnetPdu, 0);
                found.close(Buffer::FrameTelnetData, 0);
            }
            return match bytes.get(1) {
                None => Step::More,
                Some(&SB) => {
                    self.in_parameters[side] = true;
                    found.frame(Buffer::FrameTelnetPdu, 0, None);
                    found.frame(Buffer::FrameTelnetCtl, 0, None);
                    Step::Unit(2)
                }
                Some(WILL..=DONT) => command(found, 3),
                Some(_) => command(found, 2),
            };
        }
        if !core::mem::replace(&mut self.in_line[side], true) {
            found.frame(Buffer::FrameTelnetPdu, 0, None);
            found.frame(Buffer::FrameTelnetData, 0, None);
        }
        match memchr::memchr2(b'\n', IAC, bytes) {
            Some(at) if bytes[at] == b'\n' => {
                self.in_line[side] = false;
                found.close(Buffer::FrameTelnetPdu, at as u64 + 1);
                found.close(Buffer::FrameTelnetData, at as u64 + 1);
                Step::Unit(at as u64 + 1)
            }
            Some(at) => Step::Unit(at as u64),
            None => Step::Unit(bytes.len() as u64),
        }
    }
}

/// The part of a SIP message that is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SipPart {
    #[default]
    FirstLine,
    Headers,
}

/// The SIP messages of one direction.
#[derive(Debug, Default)]
struct SipSide {
    part: SipPart,
    line: Line,
    is_response: bool,
    /// True after the first header.
    has_header: bool,
    /// Size of the body, in bytes.
    body: Option<u64>,
}

heap!(SipSide { line });

/// SIP: a first line, headers and a body (RFC 3261, section 7).
#[derive(Debug, Default)]
pub(super) struct Sip {
    sides: [SipSide; 2],
}

heap!(Sip { sides });

impl Units for Sip {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        if found.is_datagram && found.open.is_empty() && found.at == 0 {
            self.sides[direction.index()] = SipSide::default();
        }
        let side = &mut self.sides[direction.index()];
        if side.part == SipPart::FirstLine && !side.line.is_open {
            // Blank lines keep a connection alive (RFC 5626, section 3.5.1).
            let blanks = blanks(bytes);
            if blanks > 0 {
                return Step::Unit(blanks as u64);
            }
            const RESPONSE: &[u8] = b"SIP/";
            if bytes.len() < RESPONSE.len() && RESPONSE.starts_with(bytes) && !found.is_datagram {
                return Step::More;
            }
            side.is_response = bytes.starts_with(RESPONSE);
            let line = match side.is_response {
                true => Buffer::FrameSipResponseLine,
                false => Buffer::FrameSipRequestLine,
            };
            found.frame(Buffer::FrameSipPdu, 0, None);
            found.frame(line, 0, None);
        }
        let (line, headers, body) = match side.is_response {
            true => (
                Buffer::FrameSipResponseLine,
                Buffer::FrameSipResponseHeaders,
                Buffer::FrameSipResponseBody,
            ),
            false => (
                Buffer::FrameSipRequestLine,
                Buffer::FrameSipRequestHeaders,
                Buffer::FrameSipRequestBody,
            ),
        };
        // The blank line behind the headers is not one of them, so a first carriage return waits for the next byte.
        if side.part == SipPart::Headers && !side.line.is_open && bytes == b"\r" {
            return Step::More;
        }
        let is_blank = side.part == SipPart::Headers
            && !side.line.is_open
            && matches!(bytes, [b'\n', ..] | [b'\r', b'\n', ..]);
        if side.part == SipPart::Headers && !side.line.is_open && !is_blank && !side.has_header {
            side.has_header = true;
            found.frame(headers, 0, None);
        }
        if is_blank {
            found.close(headers, 0);
        }
        let taken = side.line.take(bytes);
        let Some(text) = taken.line else {
            return Step::Unit(taken.size);
        };
        if side.part == SipPart::FirstLine {
            found.close(line, taken.size);
            (side.part, side.has_header, side.body) = (SipPart::Headers, false, None);
            return Step::Unit(taken.size);
        }
        if !is_blank {
            side.body = header(&text, &[b"content-length", b"l"])
                .and_then(decimal)
                .or(side.body);
            return Step::Unit(taken.size);
        }
        side.part = SipPart::FirstLine;
        let all = bytes.len() as u64 - taken.size;
        // The body of a datagram may end with it (RFC 3261, section 18.3).
        let size = match found.is_datagram {
            true => side.body.unwrap_or(all).min(all),
            false => side.body.unwrap_or(0),
        };
        if size > 0 {
            found.frame(body, taken.size, size);
        }
        found.close(Buffer::FrameSipPdu, taken.size + size);
        Step::Unit(taken.size + size)
    }
}

/// The part of SMTP that the client sends next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SmtpPart {
    #[default]
    Command,
    /// A mail, unless the server refuses it.
    AfterData,
    Mail,
}

/// SMTP: commands, mails and replies (RFC 5321).
#[derive(Debug, Default)]
pub(super) struct Smtp {
    part: SmtpPart,
    lines: [Line; 2],
    /// True while the frame of a mail is open.
    in_mail: bool,
}

heap!(Smtp { lines });

impl Smtp {
    /// Finds the parts of a mail: its lines, up to a line with a dot (RFC 5321, section 4.1.1.4).
    fn mail(&mut self, bytes: &[u8], found: &mut Found<'_>) -> Step {
        let line = &mut self.lines[Direction::ToServer.index()];
        if !line.is_open {
            // The line with the dot is not a part of the mail.
            let end: &[u8] = b".\r\n";
            if bytes.len() < end.len() && end.starts_with(bytes) {
                return Step::More;
            }
            if bytes.starts_with(end) || bytes.starts_with(b".\n") {
                if core::mem::take(&mut self.in_mail) {
                    found.close(Buffer::FrameSmtpData, 0);
                }
                self.part = SmtpPart::Command;
                return Step::Unit(if bytes[1] == b'\n' { 2 } else { 3 });
            }
            if !core::mem::replace(&mut self.in_mail, true) {
                found.frame(Buffer::FrameSmtpData, 0, None);
            }
        }
        Step::Unit(line.take(bytes).size)
    }
}

impl Units for Smtp {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        let is_client = direction == Direction::ToServer;
        if is_client && self.part != SmtpPart::Command {
            self.part = SmtpPart::Mail;
            return self.mail(bytes, found);
        }
        let kind = match is_client {
            true => Buffer::FrameSmtpCommandLine,
            false => Buffer::FrameSmtpResponseLine,
        };
        let taken = self.lines[direction.index()].take(bytes);
        if taken.is_first {
            found.frame(kind, 0, None);
        }
        let Some(line) = taken.line else {
            return Step::Unit(taken.size);
        };
        found.close(kind, taken.size);
        if is_client {
            let command = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            if command.eq_ignore_ascii_case(b"DATA") {
                self.part = SmtpPart::AfterData;
            }
            if command.eq_ignore_ascii_case(b"BDAT") {
                let size = line
                    .split(u8::is_ascii_whitespace)
                    .nth(1)
                    .and_then(decimal)
                    .unwrap_or(0);
                found.frame(Buffer::FrameSmtpData, taken.size, size);
                return Step::Unit(taken.size + size);
            }
        } else if self.part == SmtpPart::AfterData && matches!(line.first(), Some(b'4' | b'5')) {
            self.part = SmtpPart::Command;
        }
        Step::Unit(taken.size)
    }
}

/// FTP: commands and lines of replies (RFC 959).
#[derive(Debug, Default)]
pub(super) struct Ftp {
    lines: [Line; 2],
}

heap!(Ftp { lines });

impl Units for Ftp {
    fn unit(&mut self, direction: Direction, bytes: &[u8], found: &mut Found<'_>) -> Step {
        let kind = match direction {
            Direction::ToServer => Buffer::FrameFtpCommandLine,
            Direction::ToClient => Buffer::FrameFtpResponseLine,
        };
        let taken = self.lines[direction.index()].take(bytes);
        if taken.is_first {
            found.frame(kind, 0, None);
        }
        if taken.line.is_some() {
            found.close(kind, taken.size);
        }
        Step::Unit(taken.size)
    }
}
