//! The token that a daemon on this machine generated.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use millrace_model::System;

/// Returns the generated token for `url`, if that is a loopback address on which only root or the token's owner
/// listens. Another user's program that took the port while the daemon is down therefore does not get the token.
pub(crate) fn of_this_machine(url: &str) -> Option<String> {
    let address = loopback(url)?;
    let path = System::default().state_dir.join(millrace_api::TOKEN_FILE);
    let owner = std::fs::metadata(&path).ok()?.uid();
    let is_trusted = |uid: u32| uid == 0 || uid == owner;
    if !listeners(address.port()).into_iter().all(is_trusted) {
        return None;
    }
    first_line(&path)
}

fn first_line(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// Returns the address in `http://127.0.0.1:8080` or `http://localhost:8080`, if it is a loopback address. For an
/// `https` address the operator configures the token.
fn loopback(url: &str) -> Option<SocketAddr> {
    let authority = url.strip_prefix("http://")?.trim_end_matches('/');
    let authority = match authority.strip_prefix("localhost") {
        Some(port) => format!("127.0.0.1{port}"),
        None => authority.to_owned(),
    };
    let address = authority
        .parse()
        .or_else(|_| authority.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 80)))
        .ok()?;
    address.ip().is_loopback().then_some(address)
}

/// Returns the users that listen on a TCP port of any address (proc(5), `/proc/net/tcp`).
fn listeners(port: u16) -> Vec<u32> {
    const LISTEN: &str = "0A";
    let of_line = |line: &str| {
        // The columns: sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid …
        let mut words = line.split_ascii_whitespace();
        let (_, local_port) = words.nth(1)?.rsplit_once(':')?;
        let is_listening = words.nth(1)? == LISTEN;
        let uid = words.nth(3)?.parse().ok()?;
        (is_listening && u16::from_str_radix(local_port, 16) == Ok(port)).then_some(uid)
    };
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .flat_map(|text| text.lines().filter_map(of_line).collect::<Vec<u32>>())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may fail")]

    use super::*;

    #[test]
    fn only_a_loopback_address_gets_the_token_of_this_machine() {
        for (url, is_loopback) in [
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080/", true),
            ("http://localhost:8080", true),
            ("http://127.0.0.1", true),
            ("http://localhost.evil.example:8080", false),
            ("http://127.0.0.1.evil.example:8080", false),
            ("http://10.0.0.1:8080", false),
            ("https://127.0.0.1:8080", false),
            ("unix:/run/millrace/millraced.sock", false),
        ] {
            assert_eq!(loopback(url).is_some(), is_loopback, "{url}");
        }
    }

    #[test]
    fn the_user_who_listens_on_a_port_is_known() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(listeners(port), [rustix::process::geteuid().as_raw()]);
        drop(listener);
        assert_eq!(listeners(port), [0; 0]);
    }
}
