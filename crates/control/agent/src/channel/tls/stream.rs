//! A TLS connection that is read and written like a non-blocking socket.

use std::io::{self, Read, Write};
use std::sync::Arc;

use millrace_model as model;
use rustls::Connection;
use tokio::net::TcpStream;

use super::error::explain;

/// Size of the buffers of plaintext and of ciphertext, in bytes.
const BUFFER_SIZE: usize = 64 * 1024;

/// A connection after its handshake.
#[derive(Debug)]
pub(in crate::channel) struct TlsStream {
    tcp: TcpStream,
    tls: Connection,
    /// True if the next read may return plaintext without reading the socket.
    has_plaintext: bool,
    files: Arc<model::Tls>,
}

impl TlsStream {
    pub(in crate::channel) fn new(tcp: TcpStream, mut tls: Connection, files: Arc<model::Tls>) -> TlsStream {
        tls.set_buffer_limit(Some(BUFFER_SIZE));
        TlsStream {
            tcp,
            tls,
            // The first message may have arrived with the end of the handshake.
            has_plaintext: true,
            files,
        }
    }

    /// Returns the socket.
    pub(in crate::channel) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(in crate::channel) fn has_plaintext(&self) -> bool {
        self.has_plaintext
    }

    /// Returns true if [`TlsStream::try_write`] accepted bytes that are not sent to the socket yet.
    pub(in crate::channel) fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Reads plaintext, as [`TcpStream::try_read`] does.
    pub(in crate::channel) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.has_plaintext = false;
            match self.tls.reader().read(buffer) {
                Ok(size) => {
                    self.has_plaintext = size == buffer.len();
                    return Ok(size);
                }
                // The end of the stream without close_notify is a normal end: OpenFlow messages have their own length.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => {}
            }
            self.tls.read_tls(&mut Socket(&self.tcp))?;
            if let Err(error) = self.tls.process_new_packets() {
                // Sends the alert; the peer may have closed the connection.
                let _closed = self.flush();
                return Err(explain(
                    io::Error::new(io::ErrorKind::InvalidData, error),
                    &self.files,
                ));
            }
        }
    }

    /// Writes plaintext, as [`TcpStream::try_write`] does. The bytes may wait for [`TlsStream::flush`].
    pub(in crate::channel) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.flush()?;
        match self.tls.writer().write(bytes)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            size => {
                self.flush()?;
                Ok(size)
            }
        }
    }

    /// Sends buffered bytes until the socket accepts no more.
    pub(in crate::channel) fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Socket(&self.tcp)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends close_notify, if the socket accepts it now.
    pub(in crate::channel) fn close_notify(&mut self) {
        self.tls.send_close_notify();
        let _unsent = self.flush();
    }
}

/// The non-blocking socket, as rustls uses it.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
