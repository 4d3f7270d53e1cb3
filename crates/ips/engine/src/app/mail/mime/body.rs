//! The body of a mail for rules: its digest, and the URLs in its text (`email.body_md5`, `email.url`).

use md5::{Digest, Md5};

use crate::app::framed::hex;
use crate::app::heap::heap;

/// Largest number of URLs that are kept.
const URLS: usize = 64;
/// Largest size of a URL in bytes; what follows is cut.
const URL_SIZE: usize = 1024;
/// The schemes of URLs that are found.
const SCHEMES: [&[u8]; 3] = [b"http://", b"https://", b"ftp://"];

/// The body of a mail so far.
#[derive(Debug, Default)]
pub(in crate::app) struct MailBody {
    digest: Md5,
    /// The end of the last line, which belongs to the body if another line follows.
    end: Vec<u8>,
    has_line: bool,
    /// URLs without their schemes.
    pub(in crate::app) urls: Vec<Vec<u8>>,
}

heap!(MailBody { end, urls });

impl MailBody {
    /// Adds a line, or a part of one, as sent. `is_text` is true outside of headers and files.
    pub(super) fn line(&mut self, text: &[u8], end: &[u8], is_text: bool) {
        self.has_line = true;
        self.digest.update(&self.end);
        self.digest.update(text);
        self.end.clear();
        self.end.extend_from_slice(end);
        if is_text {
            self.find_urls(text);
        }
    }

    fn find_urls(&mut self, text: &[u8]) {
        let mut from = 0;
        while let Some(at) = memchr::memmem::find(&text[from..], b"://").map(|at| from + at) {
            from = at + 3;
            let has_scheme = SCHEMES.iter().any(|scheme| {
                let before = text.get(from.wrapping_sub(scheme.len())..from);
                before.is_some_and(|before| before.eq_ignore_ascii_case(scheme))
            });
            let is_end = |byte: &u8| !byte.is_ascii_graphic() || b"<>\"'`{}|\\^".contains(byte);
            let size = text[from..].iter().position(is_end).unwrap_or(text.len() - from);
            if has_scheme && size > 0 && self.urls.len() < URLS {
                let url = text[from..from + size.min(URL_SIZE)].to_vec();
                self.urls.push(url);
            }
            from += size;
        }
    }

    /// Returns the MD5 of the body without the end of its last line, in hexadecimal digits; `None` without a body.
    pub(in crate::app) fn md5(&self) -> Option<Vec<u8>> {
        self.has_line.then(|| hex(&self.digest.clone().finalize()))
    }
}
