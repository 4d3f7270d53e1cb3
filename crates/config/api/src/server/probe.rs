//! Checks of a configuration against this machine: files, socket and address that the server would need.

use std::io::ErrorKind;
use std::net::TcpListener;

use millrace_model::{Api, ConfigError, Path};

use super::socket;
use super::tls::{Tls, TlsError};
use super::token::Token;

/// Returns the errors of the configuration `api` on this machine: unreadable files, a token that other users can read,
/// a key that does not belong to its certificate, or a socket or address that cannot be served. `state_dir` is the
/// directory of the generated token. `running` is the configuration of the running daemon; the socket and address in
/// it may be in use.
pub fn probe(api: &Api, state_dir: &std::path::Path, running: Option<&Api>) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    if !api.enabled {
        return errors;
    }
    let mut unavailable = |key: &str, message: String| {
        errors.push(ConfigError::unavailable(
            Path::default().key("api").key(key),
            message,
        ));
    };
    if let Some(path) = &api.token_file
        && let Err(error) = Token::from_file(path)
    {
        unavailable("token_file", format!("{}: {error}", path.display()));
    }
    if let (Some(cert), Some(key)) = (&api.tls_cert, &api.tls_key)
        && let Err(error) = Tls::from_files(cert, key)
    {
        match &error {
            TlsError::File { path, .. } if path == cert => unavailable("tls_cert", error.to_string()),
            _ => unavailable("tls_key", error.to_string()),
        }
    }
    if let Some(Err(error)) = api.group.as_ref().map(|group| socket::group_id(group.as_str())) {
        unavailable("group", error.to_string());
    }
    let running = running.filter(|running| running.enabled);
    let path = &api.socket;
    if let Err(error) = socket::probe(
        path.as_ref(),
        running.is_some_and(|running| running.socket == *path),
    ) {
        unavailable("socket", format!("{path} cannot be served: {error}"));
    }
    let Some(listen) = api.listen else {
        return errors;
    };
    let generated = state_dir.join(crate::TOKEN_FILE);
    if api.token_file.is_none()
        && let Err(error) = Token::generated_before(&generated)
    {
        unavailable("listen", format!("{}: {error}", generated.display()));
    }
    let is_ours = running
        .and_then(|running| running.listen)
        .is_some_and(|running| running.port() == listen.port());
    match TcpListener::bind(listen) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_ours => {}
        Err(error) => unavailable(
            "listen",
            format!(
                "{listen} cannot be listened on ({error}): expected an address of this machine and a free port (`ss -ltn` \
                 lists those in use)",
            ),
        ),
        Ok(_) => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::net::SocketAddr;
    use std::os::unix::fs::PermissionsExt as _;

    const NO_STATE: &str = "/nowhere";

    fn pointers(api: &Api, running: Option<&Api>) -> Vec<String> {
        let errors = probe(api, NO_STATE.as_ref(), running);
        errors.iter().map(|error| error.path.pointer()).collect()
    }

    fn on_a_free_port(directory: &std::path::Path) -> Api {
        Api {
            socket: directory.join("api.sock").to_str().unwrap().parse().unwrap(),
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            ..Api::default()
        }
    }

    #[test]
    fn what_cannot_be_read_or_does_not_fit_is_named_by_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            Some(path)
        };
        let made = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (one, other) = (made(), made());
        let good = Api {
            tls_cert: file("cert.pem", &one.cert.pem()),
            tls_key: file("key.pem", &one.signing_key.serialize_pem()),
            token_file: file("token", "0123456789abcdef\n"),
            ..on_a_free_port(directory.path())
        };
        assert_eq!(probe(&good, NO_STATE.as_ref(), None), Vec::new());
        let missing = Some(directory.path().join("nope"));
        let wrong = Api {
            tls_cert: missing.clone(),
            token_file: missing.clone(),
            ..good.clone()
        };
        assert_eq!(pointers(&wrong, None), ["/api/token_file", "/api/tls_cert"]);
        assert!(
            probe(&wrong, NO_STATE.as_ref(), None)[0]
                .to_string()
                .contains("/nope: cannot read")
        );
        let garbled = Api {
            tls_cert: file("garbled.pem", "hello"),
            token_file: file("short", "abc\n"),
            ..good.clone()
        };
        assert_eq!(pointers(&garbled, None), ["/api/token_file", "/api/tls_cert"]);
        let shared = file("shared", "0123456789abcdef\n");
        std::fs::set_permissions(shared.as_ref().unwrap(), Permissions::from_mode(0o646)).unwrap();
        let shared = Api {
            token_file: shared,
            ..good.clone()
        };
        assert_eq!(pointers(&shared, None), ["/api/token_file"]);
        let foreign = Api {
            tls_key: file("other.pem", &other.signing_key.serialize_pem()),
            ..good.clone()
        };
        assert_eq!(pointers(&foreign, None), ["/api/tls_key"]);
        let switched_off = Api {
            enabled: false,
            ..wrong
        };
        assert_eq!(probe(&switched_off, NO_STATE.as_ref(), None), Vec::new());
    }

    #[test]
    fn a_generated_token_that_others_can_read_is_refused_where_the_next_start_would_use_it() {
        let directory = tempfile::tempdir().unwrap();
        let api = on_a_free_port(directory.path());
        let token = directory.path().join(crate::TOKEN_FILE);
        assert_eq!(probe(&api, directory.path(), None), Vec::new());
        assert!(!token.exists(), "a probe generates nothing");
        std::fs::write(&token, "0123456789abcdef\n").unwrap();
        for (mode, is_refused) in [(0o600, false), (0o640, true)] {
            std::fs::set_permissions(&token, Permissions::from_mode(mode)).unwrap();
            let errors = probe(&api, directory.path(), None);
            let pointers: Vec<String> = errors.iter().map(|error| error.path.pointer()).collect();
            let expected: &[&str] = if is_refused { &["/api/listen"] } else { &[] };
            assert_eq!(pointers, expected, "{mode:o}");
        }
        let without_listen = Api { listen: None, ..api };
        assert_eq!(probe(&without_listen, directory.path(), None), Vec::new());
    }

    #[test]
    fn an_address_and_a_socket_must_be_free_unless_they_are_ours() {
        let directory = tempfile::tempdir().unwrap();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = Api {
            listen: Some(taken.local_addr().unwrap()),
            ..on_a_free_port(directory.path())
        };
        assert_eq!(pointers(&api, None), ["/api/listen"]);
        let _serving = std::os::unix::net::UnixListener::bind(api.socket.as_str()).unwrap();
        assert_eq!(pointers(&api, None), ["/api/socket", "/api/listen"]);
        assert_eq!(pointers(&api, Some(&api)), [""; 0]);
        let elsewhere = on_a_free_port(std::path::Path::new("/nope/nope"));
        assert_eq!(pointers(&elsewhere, None), ["/api/socket"]);
        // TEST-NET-1 (RFC 5737) is not an address of any machine.
        let foreign = Api {
            listen: Some(SocketAddr::from(([192, 0, 2, 1], 8080))),
            ..api.clone()
        };
        assert_eq!(pointers(&foreign, Some(&foreign)), ["/api/listen"]);
    }
}
