//! Whether a server could start as the configuration says: what no value tells of itself, but the machine does.

use std::io::ErrorKind;
use std::net::TcpListener;

use millrace_model::{Api, ConfigError, Path};

use super::guard::Token;
use super::tls::{Tls, TlsError};

/// What of `api` does not work on this machine: files that cannot be read or do not fit each other, an address that
/// cannot be listened on. `is_taken_by_us` allows the address to be in use.
pub fn probe(api: &Api, is_taken_by_us: bool) -> Vec<ConfigError> {
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
    match TcpListener::bind(api.listen) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_taken_by_us => {}
        Err(error) => unavailable(
            "listen",
            format!(
                "{} cannot be listened on ({error}): expected an address of this machine and a free port (`ss -ltn` \
                 lists those in use)",
                api.listen
            ),
        ),
        Ok(_) => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn pointers(api: &Api, is_taken_by_us: bool) -> Vec<String> {
        let errors = probe(api, is_taken_by_us);
        errors.iter().map(|error| error.path.pointer()).collect()
    }

    fn on_a_free_port() -> Api {
        Api {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            ..Api::default()
        }
    }

    #[test]
    fn what_cannot_be_read_or_does_not_fit_is_named_by_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let made = || rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (one, other) = (made(), made());
        let good = Api {
            tls_cert: file("cert.pem", &one.cert.pem()),
            tls_key: file("key.pem", &one.signing_key.serialize_pem()),
            token_file: file("token", "0123456789abcdef\n"),
            ..on_a_free_port()
        };
        assert_eq!(probe(&good, false), Vec::new());
        let missing = Some(directory.path().join("nope"));
        let wrong = Api {
            tls_cert: missing.clone(),
            token_file: missing.clone(),
            ..good.clone()
        };
        assert_eq!(pointers(&wrong, false), ["/api/token_file", "/api/tls_cert"]);
        assert!(probe(&wrong, false)[0].to_string().contains("/nope: cannot read"));
        let garbled = Api {
            tls_cert: file("garbled.pem", "hello"),
            token_file: file("short", "abc\n"),
            ..good.clone()
        };
        assert_eq!(pointers(&garbled, false), ["/api/token_file", "/api/tls_cert"]);
        let foreign = Api {
            tls_key: file("other.pem", &other.signing_key.serialize_pem()),
            ..good.clone()
        };
        assert_eq!(pointers(&foreign, false), ["/api/tls_key"]);
        let switched_off = Api {
            enabled: false,
            ..wrong
        };
        assert_eq!(probe(&switched_off, false), Vec::new());
    }

    #[test]
    fn an_address_must_be_free_unless_it_is_ours() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = Api {
            listen: taken.local_addr().unwrap(),
            ..Api::default()
        };
        assert_eq!(pointers(&api, false), ["/api/listen"]);
        assert_eq!(probe(&api, true), Vec::new());
        // TEST-NET-1 (RFC 5737) is nobody's.
        let foreign = Api {
            listen: SocketAddr::from(([192, 0, 2, 1], 8080)),
            ..Api::default()
        };
        assert_eq!(pointers(&foreign, true), ["/api/listen"]);
    }
}
