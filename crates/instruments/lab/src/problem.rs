//! Errors of a lab file, each with its line and the expected value.

use std::ops::Range;

use millrace_types::{BitRateParseError, Mac, MacParseError};

use crate::topology::IpPrefixParseError;

/// The error of an invalid lab file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {problem}")]
pub struct LabFileError {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// The error at this position.
    pub problem: Problem,
}

impl LabFileError {
    /// Returns the error for `problem` at the byte range `span` of `text`.
    pub(crate) fn at(file: &str, text: &str, span: &Range<usize>, problem: Problem) -> LabFileError {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        LabFileError {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            problem,
        }
    }
}

/// An error and its position in the file, in bytes.
pub(crate) type LocatedProblem = (Range<usize>, Problem);

/// An error in a lab file, without its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("{message}")]
    Toml { message: String },
    #[error("`{name}` is not a name: expected 1 to {max} of a-z, 0-9 and `-`, beginning with a letter")]
    BadName { name: String, max: usize },
    #[error("`{name}` is a reserved name in a namespace: expected another name")]
    ReservedName { name: String },
    #[error("`{name}` is already the name of a host or switch: expected a unique name")]
    DuplicateName { name: String },
    #[error("there is no host or switch `{name}`: expected one of {known}")]
    UnknownNode { name: String, known: String },
    #[error(
        "`{text}` is not the end of a link: expected `HOST`, `SWITCH` or `SWITCH:PORT` with a port from 1 to 65279"
    )]
    BadEnd { text: String },
    #[error("port numbers belong to switches, and `{name}` is a host: expected `{name}` alone")]
    PortOfHost { name: String },
    #[error("port {number} of switch `{switch}` is already taken: expected a unique number")]
    DuplicatePort { switch: String, number: u32 },
    #[error("a link has two ends, found {count}: expected the form ends = [\"h1\", \"br0:4\"]")]
    NotTwoEnds { count: usize },
    #[error("`{name}` is linked to itself: expected two different nodes")]
    SelfLink { name: String },
    #[error("there are more than 99 links between `{a}` and `{b}`: expected fewer")]
    TooManyLinks { a: String, b: String },
    #[error(
        "host `{host}` has too few interfaces for {values} values: expected at most {interfaces}, one for each link"
    )]
    MoreValuesThanInterfaces {
        host: String,
        interfaces: usize,
        values: usize,
    },
    #[error("expected {expected}")]
    WrongType { expected: &'static str },
    #[error(transparent)]
    BadPrefix(#[from] IpPrefixParseError),
    #[error("`{text}` is not an IP address: expected the form 10.0.0.254 or fd00::fe")]
    BadAddress { text: String },
    #[error(transparent)]
    BadMac(#[from] MacParseError),
    #[error("{mac} is a group address: expected one whose first octet is even")]
    GroupMac { mac: Mac },
    #[error("{mac} is already the address of `{node}`: expected a unique address")]
    DuplicateMac { mac: Mac, node: String },
    #[error("`{text}` is not a route: expected the form \"10.9.0.0/16 via 10.0.0.254\", both of one family")]
    BadRoute { text: String },
    #[error(
        "{value} is not an MTU: expected {min} to 9578 (a frame of 9600 bytes; IPv6 needs 1280)",
        min = 68
    )]
    BadMtu { value: i64 },
    #[error(
        "a link of `{switch}` has an MTU of {mtu}, and DPDK's net_af_xdp and net_af_packet carry at most {max}: expected {max} or less at a switch of kind \"millrace\""
    )]
    MtuOfMillrace { switch: String, mtu: u32, max: u32 },
    #[error("{value} is not a VLAN of a host: expected 1 to 4094")]
    BadVlan { value: i64 },
    #[error("{value} is not a number of workers: expected 1 to 128")]
    BadWorkers { value: i64 },
    #[error(transparent)]
    BadRate(#[from] BitRateParseError),
    #[error("the rate {text} is too low for the shaper: expected 8kbps or more")]
    RateTooLow { text: String },
    #[error("`{text}` is not {what}: expected {expected}")]
    BadWord {
        text: String,
        what: &'static str,
        expected: &'static str,
    },
    #[error("`{key}` is not for a switch of kind \"{kind}\": expected it only with {belongs}")]
    KeyOfOtherKind {
        key: &'static str,
        kind: &'static str,
        belongs: &'static str,
    },
    #[error("`{text}` is not {what}: expected the form {expected}")]
    BadTarget {
        text: String,
        what: &'static str,
        expected: &'static str,
    },
    #[error("`{key}` is not for a {kind}: expected it only in a {belongs}")]
    KeyOfOtherNode {
        key: &'static str,
        kind: &'static str,
        belongs: &'static str,
    },
    #[error(
        "guest `{guest}` is linked to `{other}`, which is not a switch of kind \"millrace\" or \"ovs-dpdk\": expected one, because the NICs of a guest are vhost-user"
    )]
    GuestLink { guest: String, other: String },
    #[error("a link of guest `{guest}` cannot have a rate: remove `rate`")]
    GuestRate { guest: String },
    #[error(
        "the link of guest `{guest}` has an emulated path, and a guest has no link: expected `wan` at a link between namespaces"
    )]
    GuestWan { guest: String },
    #[error("`wan.{key}`: {reason}")]
    BadWan { key: String, reason: String },
    #[error("{value} is not the memory of a guest in MiB: expected 96 to 65536")]
    BadMemory { value: i64 },
    #[error("the lab has no host: expected at least one [[host]] or [[guest]]")]
    NoHost,
    #[error("there are more than {max} {what}: expected fewer")]
    TooMany { what: &'static str, max: usize },
}
