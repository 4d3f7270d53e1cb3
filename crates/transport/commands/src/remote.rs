//! Receivers on other machines, which are started over ssh: `HOST:DIRECTORY`, as with scp.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use millrace_courier::identity::PublicKey;
use millrace_courier::ticket::Ticket;
use millrace_courier::{Interrupts, Target};
use millrace_types::shell::quoted;

use crate::args::{Commit, Send};
use crate::display::Result;
use crate::error::CommandError;
use crate::ports::PortRange;

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

/// Returns the value of `--listen` for a receiver on a machine with these addresses. A socket at `[::]` also receives
/// IPv4 packets (ipv6(7)). A machine without an IPv6 address may lack IPv6, so its receiver listens at `0.0.0.0`.
fn listen(resolved: &[IpAddr], ports: Option<PortRange>) -> String {
    let ports = ports.map_or_else(|| "0".to_owned(), |ports| ports.to_string());
    if resolved.iter().any(IpAddr::is_ipv6) {
        format!("[{}]:{ports}", Ipv6Addr::UNSPECIFIED)
    } else {
        format!("{}:{ports}", Ipv4Addr::UNSPECIFIED)
    }
}

/// Returns the command line that starts a receiver.
fn command(directory: &str, listen: &str, args: &Send) -> String {
    let mut words = vec![args.remote_program.as_str(), "--json", "receive"];
    words.extend(["--once", "--listen", listen]);
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
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
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
        // A name that only ssh knows (ssh_config(5)) does not resolve here; `resolved` is then empty.
        let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
        let resolved = (name, 0).to_socket_addrs();
        let resolved: Vec<IpAddr> = resolved
            .into_iter()
            .flatten()
            .map(|address| address.ip())
            .collect();
        let command = command(directory, &listen(&resolved, args.port), args);
        let mut ssh = args.ssh.split_whitespace();
        let program = ssh.next().unwrap_or("ssh");
        let mut child = Command::new(program)
            .args(ssh)
            .arg(host)
            .arg(command)
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
            ports: args.port,
        };
        let output = child.stdout.take().ok_or_else(no_ticket)?;
        let mut remote = Remote {
            child,
            key: PublicKey::new([0; 32]),
            output: BufReader::new(output),
        };
        let ticket = remote.ticket()?.ok_or_else(no_ticket)?;
        remote.key = ticket.key;
        let mut target = Target::from_ticket(&ticket);
        target.name = format!("{host}:{directory}");
        // ssh may have reached the machine at an address that the machine does not know and the ticket lacks.
        let port = ticket.addresses.first().map_or(0, SocketAddr::port);
        let known = std::mem::take(&mut target.addresses);
        let reached = resolved.iter().map(|ip| SocketAddr::new(*ip, port));
        let mut seen = HashSet::new();
        let addresses = reached.chain(known).filter(|address| seen.insert(*address));
        target.addresses = addresses.collect();
        Ok((remote, target))
    }

    /// Returns the receiver's key.
    pub(crate) fn key(&self) -> PublicKey {
        self.key
    }

    /// Reads events until the receiver listens. Returns its ticket; `None` if the receiver ends earlier.
    fn ticket(&mut self) -> Result<Option<Ticket>> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let event: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(ticket) = event["ticket"].as_str() {
                return Ok(Some(ticket.parse()?));
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
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        send: Send,
    }

    #[test]
    fn a_receiver_listens_at_the_ports_of_the_option_and_over_ipv6_if_its_machine_has_it() {
        let started = |resolved: &[&str], options: &[&str]| {
            let words = ["send", "data", "site:/in"].iter().chain(options);
            let args = Cli::try_parse_from(words).unwrap().send;
            let resolved: Vec<IpAddr> = resolved.iter().map(|ip| ip.parse().unwrap()).collect();
            command("/in", &listen(&resolved, args.port), &args)
        };
        let with = |listen: &str| format!("millrace --json receive --once --listen {listen} -- /in");
        assert_eq!(started(&[], &[]), with("0.0.0.0:0"));
        assert_eq!(started(&["192.0.2.1"], &["--port", "7800"]), with("0.0.0.0:7800"));
        let both = ["192.0.2.1", "2001:db8::1"];
        assert_eq!(started(&both, &[]), with("'[::]:0'"));
        assert_eq!(
            started(&both[1..], &["--port", "7800:7809"]),
            with("'[::]:7800:7809'")
        );
        assert!(Cli::try_parse_from(["send", "data", "site:/in", "--port", "0"]).is_err());
    }

    #[test]
    fn the_error_of_a_receiver_that_did_not_start_gives_advice_about_its_port() {
        let error = |ports| {
            let host = "site".to_owned();
            CommandError::Remote { host, ports }.to_string()
        };
        assert!(!error(None).contains("--port"));
        let text = error(Some(PortRange::parse("7800").unwrap()));
        assert!(
            text.contains("the receiver on site") && text.contains("UDP port 7800 is in use there"),
            "{text}"
        );
        assert!(text.contains("--port 7800:7809"), "{text}");
    }

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
