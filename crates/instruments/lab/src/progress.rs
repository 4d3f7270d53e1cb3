//! Progress messages of `up` and `down`.

use std::fmt;
use std::time::Duration;

use crate::guest::Accelerator;
use crate::topology::{Host, Link};

/// A completed step. Its [`Display`](fmt::Display) is one line of text.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A host has its interfaces and addresses.
    Host(&'a Host),
    /// A link was created.
    Link(&'a Link),
    /// A switch is being started.
    Starting {
        /// The name of the switch.
        switch: &'a str,
        /// The kind of switch, and the device if there is a choice.
        what: &'a str,
    },
    /// A switch forwards.
    Ready {
        /// The name of the switch.
        switch: &'a str,
        /// The time since its start.
        took: Duration,
    },
    /// A switch could not use its first device and is restarted with the second.
    Fallback {
        /// The name of the switch.
        switch: &'a str,
        /// The first device and the second.
        from_to: (&'a str, &'a str),
        /// The reason of the failure.
        reason: &'a str,
    },
    /// The accelerator of guests was selected.
    Accelerator {
        accelerator: Accelerator,
        /// The reason of the selection.
        why: &'a str,
    },
    /// A guest accepts commands.
    Guest {
        /// The name of the guest.
        guest: &'a str,
        /// The time since its start.
        took: Duration,
    },
    /// An emulated path forwards.
    Path {
        /// The node of the path, `wan.1`.
        wan: &'a str,
        /// The time since its start.
        took: Duration,
    },
    /// `up` has failed, and the created resources are being removed.
    RollingBack,
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
                link.rate.map_or(Ok(()), |rate| write!(f, " at {rate}"))?;
                link.wan.as_ref().map_or(Ok(()), |wan| {
                    write!(f, " through {}: {}", wan.node, wan.options.join(" "))
                })
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
                    "switch {switch}: {from} does not work here, using {to} instead ({reason})"
                )
            }
            Progress::Accelerator { accelerator, why } => {
                write!(f, "guests run under {} ({why})", accelerator.keyword())
            }
            Progress::Guest { guest, took } => {
                write!(f, "guest {guest}: ready after {:.2} s", took.as_secs_f64())
            }
            Progress::Path { wan, took } => {
                write!(f, "path {wan}: ready after {:.2} s", took.as_secs_f64())
            }
            Progress::RollingBack => write!(f, "removing the created resources"),
        }
    }
}
