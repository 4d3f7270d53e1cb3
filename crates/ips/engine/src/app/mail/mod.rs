//! Mail: SMTP, POP3, IMAP and the messages that they carry.

pub(super) mod decode;
pub(super) mod imap;
pub(super) mod lines;
pub(super) mod mime;
pub(super) mod pop3;
mod retrieval;
pub(super) mod smtp;
#[cfg(test)]
mod tests;
