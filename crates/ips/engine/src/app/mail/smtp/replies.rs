//! Replies of SMTP. They decide how the bytes after a command are parsed.

use super::pipeline::Command;
use super::{Smtp, State, begins_tls};
use crate::app::transaction::Transactions;

impl Smtp {
    /// Handles a line of a reply. `client` holds the pending bytes of the client.
    pub(super) fn reply(&mut self, text: &[u8], client: &[u8], out: &mut Transactions) {
        let Some(code) = text
            .get(..3)
            .and_then(|code| core::str::from_utf8(code).ok()?.parse::<u16>().ok())
        else {
            self.raise(out, "smtp.invalid_reply");
            return;
        };
        if text.get(3) == Some(&b'-') {
            return;
        }
        if !core::mem::replace(&mut self.has_banner, true) && code == 220 {
            return;
        }
        out.has_lost |= self.waiting.has_overflowed();
        match self.waiting.pop() {
            None if self.state == State::Data && self.may_have_ended => self.end_at_bare_stop(out),
            None => {
                self.raise(out, "smtp.unable_to_match_reply_with_request");
                self.begins_data_by_reply(code);
            }
            Some(Command::Data(at)) => self.data_reply(code, at, out),
            Some(Command::StartTls(at)) => self.tls_reply(code, at, client, out),
            // A server without BDAT takes the bytes that follow as commands. A server with BDAT takes them as
            // the chunk, whatever it replies (RFC 3030, section 2).
            Some(Command::Bdat) if matches!(code, 500 | 502) && matches!(self.state, State::Bdat(..)) => {
                self.state = State::Command;
                self.partial.clear();
            }
            Some(Command::Bdat | Command::Other) => self.begins_data_by_reply(code),
        }
    }

    /// Begins a mail if the server asks for one: the server took a line as DATA that the parser did not.
    fn begins_data_by_reply(&mut self, code: u16) {
        if code == 354 && self.state == State::Command {
            self.begin_data();
        }
    }

    /// Handles the reply to DATA; `at` is the offset of bytes that were parsed as a mail before it.
    fn data_reply(&mut self, code: u16, at: Option<u64>, out: &mut Transactions) {
        let Some(at) = at else {
            if self.state == State::WaitData {
                if code == 354 {
                    self.begin_data();
                } else {
                    self.state = State::Command;
                    self.raise(out, "smtp.data_command_rejected");
                }
            }
            return;
        };
        if code == 354 || self.state == State::Failed {
            return;
        }
        match self.offset_of(at) {
            // The bytes after DATA are commands.
            Some(offset) => {
                if offset < self.parsed {
                    self.finish(out, false);
                    self.waiting.clear();
                    self.parsed = offset;
                }
                self.state = State::Command;
            }
            None if self.state == State::Data => {
                self.finish(out, false);
                self.state = State::Command;
            }
            None => {}
        }
        self.raise(out, "smtp.data_command_rejected");
    }

    /// Handles the reply to STARTTLS; `at` is the offset of bytes that were parsed as commands before it.
    fn tls_reply(&mut self, code: u16, at: Option<u64>, client: &[u8], out: &mut Transactions) {
        let is_waiting = self.state == State::WaitTls;
        let rest = match at {
            Some(at) => self.offset_of(at),
            None => is_waiting.then_some(self.parsed),
        };
        if code != 220 {
            if is_waiting {
                self.state = State::Command;
            }
            if rest.is_some() {
                self.raise(out, "smtp.tls_rejected");
            }
        } else if let Some(offset) = rest {
            self.parsed = offset;
            if offset < client.len() && !begins_tls(&client[offset..]) {
                self.raise(out, "smtp.invalid_pipelined_sequence");
            }
            self.starts_tls = true;
        }
    }

    /// Returns the index of a byte in the client's pending bytes from its offset in the stream; `None` if the
    /// byte is no longer kept.
    pub(super) fn offset_of(&self, at: u64) -> Option<usize> {
        at.checked_sub(self.base).map(|offset| offset as usize)
    }

    /// Ends the mail at the last full stop next to a bare line feed: the server has answered it.
    fn end_at_bare_stop(&mut self, out: &mut Transactions) {
        self.may_have_ended = false;
        match self.smuggled.take() {
            Some(second) => {
                let first = self.mime.replace(second);
                if let Some(mut first) = first
                    && let Some(transaction) = self.transaction.and_then(|id| out.by_id(id))
                {
                    first.end(transaction, true);
                }
            }
            None => {
                self.state = State::Command;
                self.finish(out, true);
            }
        }
    }
}
