//! Free TCP ports for the programs that an instrument starts.

use std::path::Path;

use crate::error::ProcessError;

/// Returns a TCP port of 127.0.0.1 that is not in use at the moment.
///
/// # Errors
/// [`ProcessError::File`] if no port is free.
pub fn free_port() -> Result<u16, ProcessError> {
    let path = Path::new("127.0.0.1:0");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(ProcessError::file(path))?;
    Ok(listener.local_addr().map_err(ProcessError::file(path))?.port())
}
