//! The web page: the files that `make portal` has built, embedded in this crate or read from a folder at
//! start.
//!
//! Each path that is not a file and not below `/api` gets `index.html`, because the page itself interprets
//! such paths.
//! Files with a digest in their name never change. Clients revalidate other files by ETag at each use.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use data_encoding::HEXLOWER;

static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The Content-Security-Policy of every answer: nothing inline, nothing from other hosts, no frames.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self'; font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; \
    form-action 'self'; frame-ancestors 'none'";

/// A file of the page.
#[derive(Debug, Clone)]
struct File {
    content: Cow<'static, [u8]>,
    gzip: Option<Cow<'static, [u8]>>,
    /// The digest of the content, from which the ETags of both representations are made.
    tag: String,
}

/// The files of the page by path.
#[derive(Debug, Clone, Default)]
pub struct Page {
    files: BTreeMap<String, File>,
}

impl Page {
    /// Returns the page that was built before this crate; an empty page if there is none.
    pub fn embedded() -> Page {
        Page::new(
            EMBEDDED
                .iter()
                .map(|(path, content)| ((*path).to_owned(), Cow::Borrowed(*content)))
                .collect(),
        )
    }

    /// Returns the page from the files in a folder.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn from_folder(folder: &Path) -> io::Result<Page> {
        let mut files = BTreeMap::new();
        read(folder, "", &mut files)?;
        Ok(Page::new(files))
    }

    fn new(mut contents: BTreeMap<String, Cow<'static, [u8]>>) -> Page {
        let paths: Vec<String> = contents
            .keys()
            .filter(|path| !path.ends_with(".gz"))
            .cloned()
            .collect();
        let mut files = BTreeMap::new();
        for path in paths {
            let gzip = contents.remove(&format!("{path}.gz"));
            let Some(content) = contents.remove(&path) else {
                continue;
            };
            let digest = ring::digest::digest(&ring::digest::SHA256, &content);
            let tag = HEXLOWER.encode(digest.as_ref().get(..12).unwrap_or_default());
            files.insert(path, File { content, gzip, tag });
        }
        Page { files }
    }

    /// Returns true if the page has no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the answer to a request for a file, or for a path of the page.
    pub(crate) fn answer(&self, uri: &Uri, headers: &HeaderMap) -> Response {
        let path = uri.path().trim_start_matches('/');
        if let Some(file) = self.files.get(path) {
            return respond(path, file, headers);
        }
        // A missing file below `assets/` gets an error, because an old page may ask for scripts of its own
        // build.
        let is_address = !path.starts_with("assets/");
        match self.files.get("index.html").filter(|_| is_address) {
            Some(file) => respond("index.html", file, headers),
            None => (
                StatusCode::NOT_FOUND,
                "no page is built into this program: the API is below /api/v1\n",
            )
                .into_response(),
        }
    }
}

fn read(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Cow<'static, [u8]>>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.insert(name, Cow::Owned(fs::read(entry.path())?));
        }
    }
    Ok(())
}

fn respond(path: &str, file: &File, headers: &HeaderMap) -> Response {
    let cache = if path.starts_with("assets/") {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let (body, encoding) = match &file.gzip {
        Some(gzip) if takes_gzip(headers) => (&**gzip, Some("gzip")),
        _ => (&*file.content, None),
    };
    // Two representations have two ETags (RFC 9110, section 8.8.3.3).
    let etag = match encoding {
        Some(encoding) => format!("\"{}-{encoding}\"", file.tag),
        None => format!("\"{}\"", file.tag),
    };
    let (status, body, encoding) = if is_known(headers, &etag) {
        (StatusCode::NOT_MODIFIED, &b""[..], None)
    } else {
        (StatusCode::OK, body, encoding)
    };
    let mut response = (status, body.to_vec()).into_response();
    let answer = response.headers_mut();
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
    answer.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    answer.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        answer.insert(header::ETAG, etag);
    }
    if let Some(encoding) = encoding {
        answer.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    response
}

/// Returns the members of a header that is a list, in order.
fn list(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',').map(str::trim))
}

/// Returns true if `If-None-Match` has an ETag, compared weakly (RFC 9110, section 13.1.2).
pub(crate) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let strong = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
    list(headers, header::IF_NONE_MATCH).any(|known| known == "*" || strong(known) == strong(etag))
}

/// Returns true if the client takes gzip: `Accept-Encoding` names it, or `*`, with a weight other than 0 (RFC 9110, section 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let weight = |wanted: &str| {
        list(headers, header::ACCEPT_ENCODING).find_map(|member| {
            let mut parts = member.split(';').map(str::trim);
            let coding = parts.next()?;
            let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let weight = weight.map_or(Some(1.0), |weight| weight.parse::<f32>().ok());
            coding
                .eq_ignore_ascii_case(wanted)
                .then_some(weight.unwrap_or(0.0))
        })
    };
    weight("gzip")
        .or_else(|| weight("*"))
        .is_some_and(|weight| weight > 0.0)
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json") => "application/json",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let file = |text: &'static str| Cow::Borrowed(text.as_bytes());
        Page::new(BTreeMap::from([
            ("index.html".to_owned(), file("<!doctype html>")),
            ("assets/a-1.js".to_owned(), file("let a;")),
            ("assets/a-1.js.gz".to_owned(), file("zipped")),
        ]))
    }

    fn get(path: &'static str, headers: &[(header::HeaderName, &str)]) -> Response {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect();
        page().answer(&Uri::from_static(path), &headers)
    }

    #[test]
    fn addresses_of_the_page_give_its_document_and_missing_files_are_missing() {
        for path in ["/", "/services/sv-7", "/fabric?at=1"] {
            let response = get(path, &[]);
            assert_eq!(response.status(), 200, "{path}");
            assert_eq!(response.headers()["content-type"], "text/html; charset=utf-8");
            assert_eq!(response.headers()["cache-control"], "no-cache");
        }
        assert_eq!(get("/assets/old-0.js", &[]).status(), 404);
        assert_eq!(
            Page::default()
                .answer(&Uri::from_static("/"), &HeaderMap::new())
                .status(),
            404
        );
    }

    #[test]
    fn files_are_compressed_cached_and_validated() {
        let plain = get("/assets/a-1.js", &[]);
        assert!(plain.headers().get("content-encoding").is_none());
        assert!(
            plain.headers()["cache-control"]
                .to_str()
                .unwrap()
                .contains("immutable")
        );
        let zipped = get("/assets/a-1.js", &[(header::ACCEPT_ENCODING, "gzip, br")]);
        assert_eq!(zipped.headers()["content-encoding"], "gzip");
        let tag = |response: &Response| response.headers()["etag"].to_str().unwrap().to_owned();
        assert_ne!(tag(&plain), tag(&zipped), "two representations have two ETags");
        let gzip = (header::ACCEPT_ENCODING, "gzip");
        for (known, accepted, status) in [
            (tag(&plain), None, 304),
            (format!("W/{}", tag(&plain)), None, 304),
            (format!("\"x\", {}", tag(&plain)), None, 304),
            ("*".to_owned(), None, 304),
            (tag(&zipped), None, 200),
            (tag(&zipped), Some(gzip.clone()), 304),
            (tag(&plain), Some(gzip), 200),
        ] {
            let mut headers = vec![(header::IF_NONE_MATCH, known.as_str())];
            headers.extend(accepted);
            assert_eq!(get("/assets/a-1.js", &headers).status(), status, "{headers:?}");
        }
        for (accepted, is_zipped) in [
            ("GZIP", true),
            ("*", true),
            ("br, gzip;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, *", false),
            ("*;q=0", false),
            ("gzipped", false),
            ("br", false),
        ] {
            let found = get("/assets/a-1.js", &[(header::ACCEPT_ENCODING, accepted)]);
            assert_eq!(
                found.headers().contains_key("content-encoding"),
                is_zipped,
                "{accepted}"
            );
        }
        assert_eq!(get("/assets/a-1.js.gz", &[]).status(), 404, "only as an encoding");
    }
}
