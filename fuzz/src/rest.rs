//! REST: the rest of the path and the body, for every resource with an argument.

use std::sync::OnceLock;

use millrace_api::fake::FakeService;

/// The resources; the first byte selects one. Streams are left out, because they do not end.
const RESOURCES: [(&str, &str, &str); 10] = [
    ("PUT", "/api/v1/config?dry_run=true", "application/json"),
    (
        "PATCH",
        "/api/v1/config?dry_run=true",
        "application/merge-patch+json",
    ),
    (
        "PUT",
        "/api/v1/config/bridges/br0?dry_run=true",
        "application/json",
    ),
    (
        "PUT",
        "/api/v1/config/bridges/br0/ports/h1?dry_run=true",
        "application/json",
    ),
    ("POST", "/api/v1/bridges/br0/trace", "application/json"),
    ("GET", "/api/v1/bridges/br0/flows?match=", ""),
    ("GET", "/api/v1/bridges/br0/flows?after=", ""),
    ("GET", "/api/v1/revisions/", ""),
    ("GET", "/api/v1/bridges/", ""),
    ("GET", "/", ""),
];

/// Sends the bytes as a body, or as the rest of the path.
///
/// Property: the answer is a success, or a problem document with a client error.
pub(crate) fn rest(bytes: &[u8]) {
    static SERVICE: OnceLock<FakeService> = OnceLock::new();
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let (method, path, content_type) = RESOURCES[usize::from(*choice) % RESOURCES.len()];
    let (path, body) = if method == "GET" {
        (path.to_owned() + &String::from_utf8_lossy(rest), Vec::new())
    } else {
        (path.to_owned(), rest.to_vec())
    };
    if path.contains("/events") || path.contains("/capture") {
        return;
    }
    let service = SERVICE.get_or_init(|| FakeService::new().expect("a service of fixed values"));
    // An invalid path does not reach a handler.
    let Ok((status, kind)) = service.request(method, &path, content_type, body) else {
        return;
    };
    assert!(status < 500, "{method} {path} gave {status}");
    assert!(
        status < 400 || kind == "application/problem+json",
        "{method} {path} gave {status} as {kind}"
    );
}
