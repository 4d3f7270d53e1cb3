//! The program that sshd starts for `Subsystem netconf`: bytes between the SSH channel and the server's socket. It parses nothing,
//! and runs as the user who logged in; the server sees that user at the socket.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// The size of a read, in bytes.
const READ_SIZE: usize = 16 << 10;

/// Copies until one side ends.
pub(crate) fn run(socket: &Path) -> Result<()> {
    let stream = UnixStream::connect(socket).with_context(|| {
        format!(
            "{}: no NETCONF server there (systemctl status millrace-mgmt)",
            socket.display()
        )
    })?;
    let to_server = stream.try_clone()?;
    std::thread::spawn(move || {
        let _ = copy(&mut std::io::stdin().lock(), &mut &to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    let received = copy(&mut &stream, &mut std::io::stdout().lock())?;
    if received == 0 {
        bail!(
            "the server closed the connection: the user has no role there, or too many sessions (docs/netconf.md#users)"
        );
    }
    Ok(())
}

/// Copies with a flush after each read, because a reply is waited for.
fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<u64> {
    let mut buffer = vec![0; READ_SIZE];
    let mut copied = 0;
    loop {
        let size = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(size) => size,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(buffer.get(..size).unwrap_or_default())?;
        to.flush()?;
        copied += size as u64;
    }
}
