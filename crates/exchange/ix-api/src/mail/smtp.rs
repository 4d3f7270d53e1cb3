//! A client of the Simple Mail Transfer Protocol (RFC 5321) for one letter to one recipient.
//!
//! ```text
//!  220 --> EHLO 250 --> MAIL FROM 250 | --> RCPT TO 250 --> DATA 354 --> message, "." 250 --> QUIT
//!  another answer: the relay is away  | 5xx: refused; 4xx: deferred
//! ```
//! Before RCPT an answer is about the exchange and not about the letter: a relay that does not serve the exchange, for example because
//! of its configuration, ends no letter.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// The largest number of bytes of a reply (RFC 5321, section 4.5.3.1.5: 512 for a line; a reply has few).
const REPLY_MAX: u64 = 16 * 1024;

/// The time for all up to DATA. The relay is on this machine.
const DIALOGUE_TIME: Duration = Duration::from_secs(60);
/// The time for the message and the answer to its end: a relay that delivers before it answers must not get the letter twice (RFC 5321,
/// sections 4.5.3.2.5 and 4.5.3.2.6).
const MESSAGE_TIME: Duration = Duration::from_secs(600);

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
    let sent = send_within(relay, [from, to], message, tokio::time::sleep).await;
    sent.map_or_else(|outcome| outcome, |()| Outcome::Sent)
}

/// Sends a message. `wait` is the clock.
async fn send_within<W: Future<Output = ()>>(
    relay: SocketAddr,
    [from, to]: [&str; 2],
    message: &str,
    wait: impl Fn(Duration) -> W,
) -> Result<(), Outcome> {
    let late = |what: &str| Outcome::Away(format!("the relay does not answer {what} in time"));
    let mut stream = tokio::select! {
        ready = converse(relay, from, to) => ready?,
        () = wait(DIALOGUE_TIME) => return Err(late("a command")),
    };
    tokio::select! {
        sent = deliver(&mut stream, message) => sent,
        () = wait(MESSAGE_TIME) => Err(late("the letter")),
    }
}

impl From<std::io::Error> for Outcome {
    fn from(error: std::io::Error) -> Outcome {
        Outcome::Away(error.to_string())
    }
}

/// Converses up to DATA. Returns the connection, on which the relay waits for the message.
async fn converse(relay: SocketAddr, from: &str, to: &str) -> Result<BufReader<TcpStream>, Outcome> {
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
    Ok(stream)
}

/// Sends a message, and waits until the relay has taken it.
async fn deliver(stream: &mut BufReader<TcpStream>, message: &str) -> Result<(), Outcome> {
    stream.write_all(stuffed(message).as_bytes()).await?;
    expect(stream, "250", About::Letter).await?;
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

    /// Converses with a relay that takes `replies` to answer, and then a time of `over` by the sender's clock before it says `last`.
    async fn try_slow(replies: &[&str], over: Duration, last: &str) -> Result<(), Outcome> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = listener.local_addr().unwrap();
        let passed = tokio::sync::Notify::new();
        let wait = |time: Duration| {
            let passed = &passed;
            async move {
                if time == over {
                    passed.notified().await;
                } else {
                    std::future::pending().await
                }
            }
        };
        let answer = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            for reply in replies {
                stream.write_all(reply.as_bytes()).await.unwrap();
                let mut line = String::new();
                stream.read_line(&mut line).await.unwrap();
            }
            passed.notify_one();
            let _ = stream.write_all(last.as_bytes()).await;
            // The client ends the connection.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let sent = send_within(relay, ["a@b.example", "c@d.example"], "x", wait);
        let (outcome, ()) = tokio::join!(sent, answer);
        outcome
    }

    #[tokio::test]
    async fn the_relay_has_a_minute_for_the_commands_and_ten_for_the_letter() {
        const OK: &str = "250 ok\r\n";
        const TO_DATA: &[&str] = &["220 hello\r\n", OK, OK, OK, "354 go on\r\n"];
        assert_eq!(
            [DIALOGUE_TIME, MESSAGE_TIME].map(|time| time.as_secs()),
            [60, 600]
        );
        // A minute is over behind the message: that matters no more.
        assert_eq!(try_slow(TO_DATA, DIALOGUE_TIME, OK).await, Ok(()));
        for (replies, over, about) in [
            (TO_DATA, MESSAGE_TIME, "the letter"),
            (&TO_DATA[..2], DIALOGUE_TIME, "a command"),
        ] {
            let late = format!("the relay does not answer {about} in time");
            assert_eq!(try_slow(replies, over, "").await, Err(Outcome::Away(late)));
        }
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
