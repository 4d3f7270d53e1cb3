//! Messages to the service manager (sd_notify(3)).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells the service manager, if there is one, that the daemon's state changed: `READY=1`, `RELOADING=1`,
/// `STOPPING=1`.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = UnixDatagram::unbound()
        .and_then(|socket| address.and_then(|address| socket.send_to_addr(state.as_bytes(), &address)));
    if let Err(error) = sent {
        tracing::warn!(%error, "the service manager was not told: {state}");
    }
}
