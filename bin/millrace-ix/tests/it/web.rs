//! The API of a running engine over HTTP: people that the command line gave a password, and a restart.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{Engine, PROGRAM};

/// Sends a request and returns status, headers and body as text.
fn http(address: SocketAddr, request: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_user_signs_in_orders_and_stays_signed_in_over_a_restart_of_the_engine() {
    // The port may be taken between this line and the start of the engine: then the start fails, and with it the test.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut engine = Engine::new();
    let config = engine.at("exchange.toml");
    let settings = std::fs::read_to_string(&config).unwrap();
    std::fs::write(
        &config,
        format!("{settings}[api]\nlisten = \"{address}\"\nname = \"Test IX\"\n"),
    )
    .unwrap();
    engine.start();
    engine.ok(&[
        "order",
        r#"{"operation": "create_account", "name": "Aoba", "kind": "member"}"#,
        r#"{"operation": "create_user", "name": "ann", "account": "ac-0", "roles": ["member_admin"]}"#,
    ]);
    let password = |password: &str| {
        let mut command = Command::new(PROGRAM)
            .arg("--socket")
            .arg(engine.at("control.sock"))
            .args(["user", "password", "ann"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        command
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{password}\n").as_bytes())
            .unwrap();
        command.wait().unwrap().success()
    };
    assert!(!password("short"), "a short password is refused");
    assert!(password("correct horse battery"));
    let body = r#"{"name": "ann", "password": "correct horse battery"}"#;
    let answer = http(address, "POST /api/v1/session", "", body);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let cookie = answer
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap();
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().unwrap());
    let me = http(address, "GET /api/v1/session", &cookie, "");
    assert!(me.contains(r#""exchange":"Test IX""#), "{me}");
    let order = r#"{"name": "path", "end": {"connection": "cn-99", "vlan": {"type": "port"}}}"#;
    let refused = http(address, "POST /api/v1/services", &cookie, order);
    assert!(
        refused.starts_with("HTTP/1.1 404") && refused.contains("there is no cn-99"),
        "{refused}"
    );
    let audit = http(address, "GET /api/v1/audit", &cookie, "");
    assert!(audit.contains(r#""action":"sign_in""#), "{audit}");
    engine.kill();
    engine.start();
    let again = http(address, "GET /api/v1/session", &cookie, "");
    assert!(
        again.starts_with("HTTP/1.1 200"),
        "the session is in the database: {again}"
    );
}
