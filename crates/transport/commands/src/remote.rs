//! Receivers on other machines, which are started over ssh: `HOST:DIRECTORY`, as with scp.

use std::io::{BufRead, BufReader};
use std::net::ToSocketAddrs;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_courier::identity::PublicKey;
use millrace_courier::ticket::Ticket;
use millrace_courier::{Interrupts, Target};
use millrace_types::shell::quoted;

use crate::args::{Commit, Send};
use crate::display::Result;
use crate::error::CommandError;

/// The time that a receiver gets to end after its transfer.
const END: Duration = Duration::from_secs(2);

/// A directory on another machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RemoteDirectory<'a> {
    /// The machine as ssh accepts it, perhaps with a user.
    host: &'a str,
    /// The directory; empty: the user's home.
    directory: &'a str,
}

/// Parses `HOST:DIRECTORY` or `USER@HOST:DIRECTORY`. A word with a slash before the colon is a path.
pub(crate) fn parse(word: &str) -> Option<RemoteDirectory<'_>> {
    let (host, directory) = word.split_once(':')?;
    let valid = !host.is_empty() && !host.starts_with(['-', '[']) && !host.contains('/');
    // A directory never begins with a colon; the part of an IPv6 address after its first colon may.
    (valid && !directory.starts_with(':')).then_some(RemoteDirectory { host, directory })
}

/// A receiver that runs on another machine until the transfer ends.
pub(crate) struct Remote {
    child: Child,
    key: PublicKey,
    /// Kept open while the receiver may print.
    output: BufReader<ChildStdout>,
}

impl Remote {
    /// Starts a receiver, and returns it with the target of its ticket. `stop` ends the receiver if the user interrupts its start.
    pub(crate) fn start(
        remote: &RemoteDirectory<'_>,
        args: &Send,
        stop: &Interrupts,
    ) -> Result<(Remote, Target)> {
        let RemoteDirectory { host, directory } = *remote;
        let directory = if directory.is_empty() { "." } else { directory };
        let mut words = vec![args.remote_program.as_str(), "--json", "receive"];
        words.extend(["--once", "--listen", "0.0.0.0:0"]);
        if args.delta {
            words.push("--delta");
        }
        if args.commit == Commit::All {
            words.extend(["--commit", "all"]);
        }
        if args.preserve {
            words.push("--preserve");
        }
        words.extend(["--", directory]);
        let command: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let mut ssh = args.ssh.split_whitespace();
        let program = ssh.next().unwrap_or("ssh");
        let mut child = Command::new(program)
            .args(ssh)
            .arg(host)
            .arg(command.join(" "))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| CommandError::Ssh {
                command: program.to_owned(),
                error,
            })?;
        stop.kill_early(&child);
        let no_ticket = || CommandError::Remote {
            host: host.to_owned(),
        };
        let output = child.stdout.take().ok_or_else(no_ticket)?;
        let mut remote = Remote {
            child,
            key: PublicKey::new([0; 32]),
            output: BufReader::new(output),
        };
        let ticket = remote.ticket(host)?;
        remote.key = ticket.key;
        let mut target = Target::from_ticket(&ticket);
        target.name = format!("{host}:{directory}");
        // ssh may have reached the machine at an address that the machine does not know and the ticket lacks.
        let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
        let port = ticket.addresses.first().map_or(0, std::net::SocketAddr::port);
        if let Ok(addresses) = (name, port).to_socket_addrs() {
            let known = std::mem::take(&mut target.addresses);
            target.addresses = addresses.chain(known).collect();
            target.addresses.dedup();
        }
        Ok((remote, target))
    }

    /// Returns the receiver's key.
    pub(crate) fn key(&self) -> PublicKey {
        self.key
    }

    /// Reads events until the receiver listens.
    fn ticket(&mut self, host: &str) -> Result<Ticket> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                return Err(CommandError::Remote {
                    host: host.to_owned(),
                });
            }
            let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(ticket) = event["ticket"].as_str() {
                return Ok(ticket.parse()?);
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The receiver ends by itself when its sender is done or has closed the session. A receiver without a
        // sender does not end.
        let until = Instant::now() + END;
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_makes_a_word_a_place_unless_a_slash_is_before_it() {
        let remote = |host, directory| Some(RemoteDirectory { host, directory });
        assert_eq!(parse("site:/in"), remote("site", "/in"));
        assert_eq!(parse("user@site:in put"), remote("user@site", "in put"));
        assert_eq!(parse("site:"), remote("site", ""));
        for word in ["./a:b", ":in", "-oProxyCommand=x:/in", "[::1]:/in", "file"] {
            assert_eq!(parse(word), None, "{word}");
        }
    }
}
