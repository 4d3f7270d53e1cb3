//! A mail relay that keeps what it gets (RFC 5321), for tests of letters.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// The letters of a relay, as messages with their headers. Encoded words and parts in base 64 are decoded.
#[derive(Debug, Clone)]
pub struct Mailbox {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    letters: Mutex<Vec<String>>,
    arrived: Notify,
    /// The answer to RCPT instead of 250.
    refusal: Mutex<Option<&'static str>>,
    /// True if the relay hangs up without a greeting.
    is_away: AtomicBool,
}

impl Mailbox {
    /// Starts a relay on a free port of loopback.
    ///
    /// # Errors
    /// The error of the socket.
    pub async fn start() -> std::io::Result<Mailbox> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mailbox = Mailbox {
            address: listener.local_addr()?,
            shared: Arc::default(),
        };
        let shared = Arc::clone(&mailbox.shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                // A client that breaks off leaves no letter.
                tokio::spawn(async move { converse(stream, &shared).await });
            }
        });
        Ok(mailbox)
    }

    /// Returns the address of the relay for the settings.
    pub fn relay(&self) -> SocketAddr {
        self.address
    }

    /// Sets the answer to recipients instead of 250, such as `451 later`; `None` for 250.
    pub fn refuse(&self, answer: Option<&'static str>) {
        *self.shared.refusal.lock() = answer;
    }

    /// Ends all further conversations before they begin, or no longer.
    pub fn set_away(&self, is_away: bool) {
        self.shared.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Returns all letters so far.
    pub fn letters(&self) -> Vec<String> {
        self.shared.letters.lock().clone()
    }

    /// Waits until there are this many letters, and returns them all. The caller bounds the wait.
    pub async fn wait(&self, count: usize) -> Vec<String> {
        loop {
            let arrived = self.shared.arrived.notified();
            let letters = self.letters();
            if letters.len() >= count {
                return letters;
            }
            arrived.await;
        }
    }
}

async fn converse(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    if shared.is_away.load(Ordering::Relaxed) {
        return Ok(());
    }
    stream.write_all(b"220 relay.example ESMTP\r\n").await?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let verb = line.get(..4).unwrap_or_default().to_ascii_uppercase();
        let refusal = *shared.refusal.lock();
        match verb.as_str() {
            "EHLO" => stream.write_all(b"250-relay.example\r\n250 8BITMIME\r\n").await?,
            "RCPT" if let Some(refusal) = refusal => {
                stream.write_all(format!("{refusal}\r\n").as_bytes()).await?;
            }
            "DATA" => {
                stream.write_all(b"354 go on\r\n").await?;
                let mut letter = String::new();
                loop {
                    let mut line = String::new();
                    if stream.read_line(&mut line).await? == 0 {
                        return Ok(());
                    }
                    match line.strip_prefix('.') {
                        Some("\r\n") => break,
                        // RFC 5321, section 4.5.2: a leading dot was doubled.
                        Some(rest) => letter.push_str(rest),
                        None => letter.push_str(&line),
                    }
                }
                shared.letters.lock().push(decoded(&letter));
                shared.arrived.notify_waiters();
                stream.write_all(b"250 taken\r\n").await?;
            }
            "QUIT" => {
                stream.write_all(b"221 bye\r\n").await?;
                return Ok(());
            }
            _ => stream.write_all(b"250 yes\r\n").await?,
        }
    }
}

/// Returns base 64 as text; nothing if it is none.
fn text_of(encoded: &str) -> String {
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

/// Returns a message with its encoded words (RFC 2047) and its parts in base 64 (RFC 2045) as text.
fn decoded(letter: &str) -> String {
    let mut text = String::new();
    let (mut is_encoded, mut encoded) = (false, None::<String>);
    for line in letter.lines().chain([""]) {
        if let Some(part) = &mut encoded {
            if line.is_empty() || line.starts_with("--") {
                text.push_str(&text_of(part));
                (is_encoded, encoded) = (false, None);
            } else {
                part.push_str(line);
                continue;
            }
        }
        if line == "Content-Transfer-Encoding: base64" {
            is_encoded = true;
        } else if line.is_empty() && is_encoded {
            encoded = Some(String::new());
        }
        match line.find("=?utf-8?B?") {
            Some(at) => {
                let (before, word) = line.split_at(at);
                let word = word.trim_start_matches("=?utf-8?B?");
                let (word, after) = word.split_once("?=").unwrap_or((word, ""));
                text.push_str(before.trim_start_matches(' '));
                text.push_str(&text_of(word));
                text.push_str(after);
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}
