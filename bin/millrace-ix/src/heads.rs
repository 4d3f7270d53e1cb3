//! Signed heads of the audit chain, sent to places that the operator of the database does not control. Who keeps a head can prove
//! later that the chain was cut or changed (docs/audit-chain.md).
//!
//! ```text
//!   engine signs --> log (journal)
//!               \--> [audit] webhook: POST, repeated until 2xx; a newer head replaces one that waits
//!                \-> [audit] command: standard input, at most once in command_every_secs
//! ```

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use millrace_ix_service::Handle;
use millrace_ix_store::SignedHead;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::settings::Audit;

/// The time limit of one request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// The time limit of one run of the program.
const COMMAND_TIME: Duration = Duration::from_secs(60);
/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

type Heads = watch::Receiver<Option<SignedHead>>;

/// Starts the tasks that send heads, in the current runtime.
///
/// # Errors
/// A setting cannot be used.
pub(crate) async fn start(settings: &Audit, handle: &Handle) -> Result<()> {
    if let Some(url) = &settings.webhook {
        if !url.starts_with("https://") && !is_loopback(url) {
            bail!("audit.webhook {url}: expected https://");
        }
        tokio::spawn(post_all(url.clone(), handle.newest_head()));
    }
    if let Some((program, arguments)) = settings.command.split_first() {
        let every = Duration::from_secs(settings.command_every_secs);
        let command = (program.clone(), arguments.to_vec());
        tokio::spawn(run_all(command, every, handle.newest_head()));
    }
    Ok(())
}

fn is_loopback(url: &str) -> bool {
    let hosts = ["http://127.0.0.1:", "http://[::1]:"];
    hosts.iter().any(|host| url.starts_with(host))
}

/// Returns the newest head.
fn newest(heads: &mut Heads) -> Option<SignedHead> {
    heads.borrow_and_update().clone()
}

/// Sends heads to a URL until the engine ends.
async fn post_all(url: String, mut heads: Heads) {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(REQUEST_TIME))
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("millrace-ix/", env!("CARGO_PKG_VERSION")))
        .build();
    let agent = ureq::Agent::new_with_config(config);
    heads.mark_changed();
    while heads.changed().await.is_ok() {
        let mut pause = PAUSES.0;
        while let Some(head) = newest(&mut heads) {
            let (request, body) = (agent.post(&url), head.to_string());
            let sent = tokio::task::spawn_blocking(move || {
                request.header("content-type", "application/json").send(body)
            });
            let failure = match sent.await {
                Ok(Ok(_)) => break,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::warn!(
                serial = head.serial,
                failure,
                "audit.webhook: the head is sent again"
            );
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

/// Runs the program for the newest head until the engine ends.
async fn run_all(command: (String, Vec<String>), every: Duration, mut heads: Heads) {
    heads.mark_changed();
    while heads.changed().await.is_ok() {
        let begin = Instant::now();
        let mut pause = PAUSES.0;
        while let Some(head) = newest(&mut heads) {
            match run(&command, &head).await {
                Ok(()) => break,
                Err(error) => {
                    let (serial, error) = (head.serial, format!("{error:#}"));
                    tracing::warn!(serial, error, "audit.command: the program is run again");
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        sleep_until(begin + every).await;
    }
}

async fn run((program, arguments): &(String, Vec<String>), head: &SignedHead) -> Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{program} cannot be started"))?;
    let mut stdin = child.stdin.take().context("there is no standard input")?;
    let ended = async {
        // A program that does not read its input decides the outcome by its exit status.
        let _unread = stdin.write_all(format!("{head}\n").as_bytes()).await;
        drop(stdin);
        child.wait().await
    };
    let status = timeout(COMMAND_TIME, ended)
        .await
        .with_context(|| format!("{program} runs longer than {} s", COMMAND_TIME.as_secs()))??;
    ensure!(status.success(), "{program}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// A bound far above the time of any step of these tests.
    const BOUND: Duration = Duration::from_secs(20);

    fn head(serial: u64) -> SignedHead {
        SignedHead {
            serial,
            hash: "0".repeat(64),
            at: millrace_ix_store::UnixMillis(7),
            public_key: "1".repeat(64),
            signature: "2".repeat(128),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_head_is_posted_until_the_witness_accepts_it_and_a_newer_one_replaces_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/heads", listener.local_addr().unwrap());
        let (heads, newest) = watch::channel(Some(head(1)));
        let witness = tokio::task::spawn_blocking(move || {
            let mut seen = Vec::new();
            for status in ["503 Busy", "204 Kept", "204 Kept"] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(BOUND)).unwrap();
                let (mut text, mut chunk) = (String::new(), [0; 4096]);
                while !text.ends_with('}') {
                    let size = stream.read(&mut chunk).unwrap();
                    assert!(size > 0, "{text}");
                    text.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
                }
                let (_, body) = text.split_once("\r\n\r\n").unwrap();
                seen.push(body.parse::<SignedHead>().unwrap().serial);
                // The second head is signed while the first one waits, and the third one after that.
                heads.send_replace(Some(head(seen.len() as u64 + 1)));
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                stream.write_all(answer.as_bytes()).unwrap();
            }
            seen
        });
        let posting = tokio::spawn(post_all(url, newest));
        assert_eq!(timeout(BOUND, witness).await.unwrap().unwrap(), [1, 2, 3]);
        posting.abort();
    }

    #[tokio::test]
    async fn the_program_gets_the_newest_head_on_its_standard_input() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("heads");
        let arguments = ["-c".to_owned(), format!("cat >>{}", kept.display())];
        let (heads, newest) = watch::channel(None);
        let running = tokio::spawn(run_all(
            ("sh".to_owned(), arguments.into()),
            Duration::ZERO,
            newest,
        ));
        let lines = || std::fs::read_to_string(&kept).unwrap_or_default().lines().count();
        for serial in 1..=2 {
            heads.send_replace(Some(head(serial)));
            let written = async {
                while lines() < usize::try_from(serial).unwrap() {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(BOUND, written).await.unwrap();
        }
        running.abort();
        let text = std::fs::read_to_string(&kept).unwrap();
        assert_eq!(
            text.lines().last().unwrap().parse::<SignedHead>().unwrap(),
            head(2)
        );
        let refused = run(&("false".to_owned(), Vec::new()), &head(3))
            .await
            .unwrap_err();
        assert!(refused.to_string().starts_with("false: "), "{refused}");
    }

    #[tokio::test]
    async fn heads_are_not_sent_in_clear() {
        let folder = tempfile::tempdir().unwrap();
        let store = millrace_ix_store::Sqlite::open(&folder.path().join("exchange.db")).unwrap();
        let settings = millrace_ix_service::Settings {
            engine: millrace_ix_engine::Settings::default(),
            extensions: false,
            audit_key: None,
        };
        let service = millrace_ix_service::Service::start(Box::new(store), settings, drop).unwrap();
        for (url, is_right) in [
            ("https://witness.example/heads", true),
            ("http://127.0.0.1:9/heads", true),
            ("http://witness.example/heads", false),
            ("ftp://witness.example", false),
        ] {
            let audit = Audit {
                webhook: Some(url.to_owned()),
                ..Audit::default()
            };
            assert_eq!(start(&audit, &service.handle()).await.is_ok(), is_right, "{url}");
        }
        service.stop();
    }
}
