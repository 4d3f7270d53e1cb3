//! The object `email`: the mail that an SMTP transaction carries.

use core::net::{Ipv4Addr, Ipv6Addr};

use data_encoding::HEXLOWER;
use md5::{Digest, Md5};
use millrace_ips_engine::app::record::{MailStatus, SmtpRecord};

use crate::Layout;
use crate::object::Object;

/// The names of the truths about the URLs of a mail.
const KINDS: [&str; 3] = ["has_ipv4_url", "has_ipv6_url", "has_exe_url"];

pub(crate) fn fields(out: &mut Object<'_>, fields: &SmtpRecord, status: MailStatus, layout: &Layout) {
    let status = match status {
        MailStatus::InHeaders => "HEADER_STARTED",
        MailStatus::InBody => "BODY_STARTED",
        MailStatus::Complete => "PARSE_DONE",
    };
    out.field("status", status)
        .optional("from", fields.from.as_ref())
        .texts("to", &fields.to)
        .texts("cc", &fields.cc)
        .optional("subject", fields.subject.as_ref())
        .optional("date", fields.date.as_ref())
        .optional("message_id", fields.message_id.as_ref())
        .optional("x_mailer", fields.x_mailer.as_ref())
        .texts("received", &fields.received)
        .texts("attachment", &fields.attachments)
        .texts("url", &fields.urls)
        .optional("body_md5", fields.body_md5.as_ref());
    if !layout.details {
        return;
    }
    if let Some(subject) = &fields.subject {
        out.field("subject_md5", HEXLOWER.encode(&Md5::digest(subject)));
    }
    for (at, name) in KINDS.into_iter().enumerate() {
        if fields.urls.iter().any(|url| kinds(url)[at]) {
            out.field(name, true);
        }
    }
}

/// Returns whether the host of a URL without its scheme is an address of IPv4 or of IPv6, and whether it names a Windows program.
fn kinds(url: &[u8]) -> [bool; 3] {
    let url = String::from_utf8_lossy(url);
    let url = url.split_once("://").map_or(&*url, |(_, rest)| rest);
    let end = url.find(['/', '?', '#']).unwrap_or(url.len());
    let (host, path) = url.split_at(end);
    let is_v6 = host
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok());
    let name = host.split(':').next().unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_program = path.len() > 4 && path.to_ascii_lowercase().ends_with(".exe");
    [name.parse::<Ipv4Addr>().is_ok(), is_v6, is_program]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_of_their_kinds() {
        for (url, expected) in [
            ("example.com/a.html", [false, false, false]),
            ("192.0.2.1/a", [true, false, false]),
            ("http://192.0.2.1:8080", [true, false, false]),
            ("[2001:db8::1]:80/a.EXE?x=1", [false, true, true]),
            ("example.com/.exe", [false, false, true]),
            ("example.com/?a.exe", [false, false, false]),
            ("", [false, false, false]),
        ] {
            assert_eq!(kinds(url.as_bytes()), expected, "{url}");
        }
    }
}
