//! What `up` and `down` tell while they work.

use std::fmt;
use std::time::Duration;

use crate::guest::Accelerator;
use crate::topology::{Host, Link};

/// A step that was taken. Its [`Display`](fmt::Display) is one line for a person.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A host has its interfaces and addresses.
    Host(&'a Host),
    /// A link is there.
    Link(&'a Link),
    /// A switch is being started.
    Starting {
        /// Its name.
        switch: &'a str,
        /// Its kind, and the device where there is a choice.
        what: &'a str,
    },
    /// A switch forwards.
    Ready {
        /// Its name.
        switch: &'a str,
        /// From its start.
        took: Duration,
    },
    /// A switch could not use its first choice of device and is started anew with the second.
    Fallback {
        /// Its name.
        switch: &'a str,
        /// What it tried, and what it tries now.
        from_to: (&'a str, &'a str),
        /// Why.
        reason: &'a str,
    },
    /// How guests are run.
    Accelerator {
        /// By what.
        accelerator: Accelerator,
        /// Why by that.
        why: &'a str,
    },
    /// A guest takes commands.
    Guest {
        /// Its name.
        guest: &'a str,
        /// From its start.
        took: Duration,
    },
    /// `up` has failed, and what was made is being removed.
    Undoing,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Progress::Host(host) => {
                write!(f, "host {}", host.name)?;
                for interface in &host.interfaces {
                    let separator = if interface.name == "eth0" { ":" } else { "," };
                    write!(f, "{separator} {}", interface.name)?;
                    interface
                        .addresses
                        .iter()
                        .try_for_each(|address| write!(f, " {address}"))?;
                }
                Ok(())
            }
            Progress::Link(link) => {
                write!(
                    f,
                    "link {} ({}) - {} ({})",
                    link.a.node, link.a.interface, link.b.node, link.b.interface
                )?;
                link.rate.map_or(Ok(()), |rate| write!(f, " at {rate}"))
            }
            Progress::Starting { switch, what } => write!(f, "switch {switch}: starting {what}"),
            Progress::Ready { switch, took } => {
                write!(f, "switch {switch}: ready after {:.2} s", took.as_secs_f64())
            }
            Progress::Fallback {
                switch,
                from_to: (from, to),
                reason,
            } => {
                write!(
                    f,
                    "switch {switch}: {from} does not work here, taking {to} instead ({reason})"
                )
            }
            Progress::Accelerator { accelerator, why } => {
                write!(f, "guests run under {} ({why})", accelerator.word())
            }
            Progress::Guest { guest, took } => {
                write!(f, "guest {guest}: ready after {:.2} s", took.as_secs_f64())
            }
            Progress::Undoing => write!(f, "removing what was made"),
        }
    }
}
