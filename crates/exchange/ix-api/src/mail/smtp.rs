//! A client of the Simple Mail Transfer Protocol (RFC 5321) for one letter to one recipient.
//!
//! ```text
//!  220 --> EHLO 250 --> MAIL FROM 250 | --> RCPT TO 250 --> DATA 354 --> message, "." 250 --> QUIT
//!  another answer: the relay is away  | 5xx: refused; 4xx: deferred
//! ```
//! Before RCPT an answer is about the exchange and not about the letter: a relay that does not serve the exchange, for example because
//! of its configuration, ends no letter.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// The largest number of bytes of a reply (RFC 5321, section 4.5.3.1.5: 512 for a line; a reply has few).
const REPLY_MAX: u64 = 16 * 1024;

/// The outcome of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Sent,
    /// The relay takes this letter at no later try either.
    Refused(String),
    /// The relay does not take this letter now.
    Deferred(String),
    /// The relay takes no letter now: it does not answer, or not as a relay of this exchange.
    Away(String),
}

/// The party that a reply is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// The exchange, which the relay serves or not.
    Exchange,
    /// This letter and its recipient.
    Letter,
}

/// Sends a message. Addresses are ASCII without control characters, spaces and angle brackets.
pub(crate) async fn send(relay: SocketAddr, from: &str, to: &str, message: &str) -> Outcome {
    match converse(relay, from, to, message).await {
        Ok(()) => Outcome::Sent,
        Err(outcome) => outcome,
    }
}

impl From<std::io::Error> for Outcome {
    fn from(error: std::io::Error) -> Outcome {
        Outcome::Away(error.to_string())
    }
}

async fn converse(relay: SocketAddr, from: &str, to: &str, message: &str) -> Result<(), Outcome> {
    let mut stream = BufReader::new(TcpStream::connect(relay).await?);
    expect(&mut stream, "220", About::Exchange).await?;
    let here = if relay.is_ipv6() { "IPv6:::1" } else { "127.0.0.1" };
    for (command, code, about) in [
        (format!("EHLO [{here}]"), "250", About::Exchange),
        (format!("MAIL FROM:<{from}>"), "250", About::Exchange),
        // 251 and 252 also take the recipient (RFC 5321, section 4.2.2).
        (format!("RCPT TO:<{to}>"), "25", About::Letter),
        ("DATA".to_owned(), "354", About::Letter),
    ] {
        stream.write_all(format!("{command}\r\n").as_bytes()).await?;
        expect(&mut stream, code, about).await?;
    }
    stream.write_all(stuffed(message).as_bytes()).await?;
    expect(&mut stream, "250", About::Letter).await?;
    // The relay has the letter, whatever it answers to this.
    let _ = stream.write_all(b"QUIT\r\n").await;
    Ok(())
}

/// Reads a reply, which may have several lines, and compares the beginning of its code.
async fn expect(stream: &mut BufReader<TcpStream>, code: &str, about: About) -> Result<(), Outcome> {
    let mut lines = stream.take(REPLY_MAX);
    let mut reply = Vec::new();
    loop {
        let start = reply.len();
        if lines.read_until(b'\n', &mut reply).await? == 0 {
            let reply = String::from_utf8_lossy(&reply);
            return Err(Outcome::Away(format!(
                "the relay ended the connection after {reply:?}"
            )));
        }
        // The last line of a reply has a space behind its code (RFC 5321, section 4.2.1).
        if reply.get(start + 3) != Some(&b'-') {
            break;
        }
    }
    let reply = String::from_utf8_lossy(&reply).trim_end().to_owned();
    if reply.starts_with(code) {
        return Ok(());
    }
    Err(match (about, reply.as_bytes().first()) {
        (About::Letter, Some(b'5')) => Outcome::Refused(reply),
        (About::Letter, Some(b'4')) => Outcome::Deferred(reply),
        _ => Outcome::Away(reply),
    })
}

/// Returns a message as DATA sends it: a dot at the start of a line is doubled (RFC 5321, section 4.5.2), and a dot ends it.
fn stuffed(message: &str) -> String {
    let mut data = String::with_capacity(message.len() + 64);
    for line in message.lines() {
        if line.starts_with('.') {
            data.push('.');
        }
        data.push_str(line);
        data.push_str("\r\n");
    }
    data.push_str(".\r\n");
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_at_the_start_of_a_line_does_not_end_the_message() {
        assert_eq!(stuffed("a\r\n.\r\n..b\nc"), "a\r\n..\r\n...b\r\nc\r\n.\r\n");
    }

    /// Converses with a relay that answers the greeting and each command, up to the end of the message, with one of `replies`.
    async fn try_with(replies: &'static [&'static str]) -> Outcome {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = listener.local_addr().unwrap();
        let answer = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            for (number, reply) in replies.iter().enumerate() {
                stream.write_all(reply.as_bytes()).await.unwrap();
                let mut line = String::new();
                // After 354 the message comes, which ends with a dot.
                while stream.read_line(&mut line).await.unwrap_or(0) > 0 {
                    if number != 4 || line.ends_with("\r\n.\r\n") {
                        break;
                    }
                }
            }
        };
        let (outcome, ()) = tokio::join!(send(relay, "a@b.example", "c@d.example", "x"), answer);
        outcome
    }

    #[tokio::test]
    async fn an_answer_about_the_exchange_ends_no_letter_and_one_about_the_letter_does() {
        const HELLO: &str = "220 hello\r\n";
        const OK: &str = "250 ok\r\n";
        const GO: &str = "354 go on\r\n";
        let away = |reply: &str| Outcome::Away(reply.to_owned());
        let refused = |reply: &str| Outcome::Refused(reply.to_owned());
        let deferred = |reply: &str| Outcome::Deferred(reply.to_owned());
        assert_eq!(
            try_with(&["554 no service here\r\n"]).await,
            away("554 no service here")
        );
        assert_eq!(try_with(&["421 later\r\n"]).await, away("421 later"));
        assert_eq!(try_with(&["nonsense\r\n"]).await, away("nonsense"));
        assert_eq!(try_with(&[HELLO, "502 what\r\n"]).await, away("502 what"));
        assert_eq!(
            try_with(&[HELLO, OK, "550 sender unknown\r\n"]).await,
            away("550 sender unknown")
        );
        assert_eq!(
            try_with(&[HELLO, OK, OK, "550 no such person\r\n"]).await,
            refused("550 no such person")
        );
        assert_eq!(
            try_with(&[HELLO, OK, OK, "451 try later\r\n"]).await,
            deferred("451 try later")
        );
        assert_eq!(
            try_with(&[HELLO, OK, OK, OK, GO, "554 content\r\n"]).await,
            refused("554 content")
        );
        assert_eq!(
            try_with(&[HELLO, OK, OK, OK, GO, "452 no room\r\n"]).await,
            deferred("452 no room")
        );
        // The relay answers in several lines, and forwards to another place (251).
        let replies = &[
            HELLO,
            "250-one\r\n250-two\r\n250 three\r\n",
            OK,
            "251 forwarded\r\n",
            GO,
            OK,
        ];
        assert_eq!(try_with(replies).await, Outcome::Sent);
    }

    #[tokio::test]
    async fn a_relay_that_hangs_up_or_is_not_there_is_away() {
        let Outcome::Away(reason) = try_with(&["220 hello\r\n"]).await else {
            panic!("a relay that hangs up has the letter")
        };
        assert!(reason.contains("the relay ended the connection"), "{reason}");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = listener.local_addr().unwrap();
        drop(listener);
        let outcome = send(relay, "a@b.example", "c@d.example", "x").await;
        assert!(matches!(outcome, Outcome::Away(_)), "{outcome:?}");
    }

    #[tokio::test]
    async fn words_of_a_relay_that_are_no_utf_8_are_a_reply_too() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = listener.local_addr().unwrap();
        let answer = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"421 sp\xe4ter\r\n").await.unwrap();
            // The client's end is read, so that the end of this connection is no reset.
            let _ = stream.read(&mut [0; 64]).await;
        };
        let (outcome, ()) = tokio::join!(send(relay, "a@b.example", "c@d.example", "x"), answer);
        assert_eq!(outcome, Outcome::Away("421 sp\u{fffd}ter".to_owned()));
    }
}
