//! Identifiers of OpenFlow 1.3.5 objects.

use core::fmt;
use core::str::FromStr;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// A flow table, `0..=254`; [`TableId::ALL`] is the wildcard (`OFPTT_ALL`).
    TableId(u8)
}
id! {
    /// A group, `0..=0xffff_ff00` (OpenFlow 1.3.5, section 7.3.4.2).
    GroupId(u32)
}
id! {
    /// A meter, `1..=0xffff_0000`, or one of the virtual meters (OpenFlow 1.3.5, section 7.3.4.4).
    MeterId(u32)
}
id! {
    /// An egress queue of a port (OpenFlow 1.3.5, section 7.2.2).
    QueueId(u32)
}
id! {
    /// A packet that the switch keeps for its controller (OpenFlow 1.3.5, section 7.4.1).
    BufferId(u32)
}
id! {
    /// The priority of a flow entry in its table: the highest matching entry wins.
    Priority(u16)
}
id! {
    /// A transaction identifier: a reply has the identifier of its request.
    Xid(u32)
}

impl TableId {
    /// `OFPTT_MAX`: the highest table that can hold entries.
    pub const MAX: TableId = TableId(0xfe);
    /// `OFPTT_ALL`: every table, in requests that delete or count flows.
    pub const ALL: TableId = TableId(0xff);
}

impl GroupId {
    /// `OFPG_MAX`: the highest group that can exist.
    pub const MAX: GroupId = GroupId(0xffff_ff00);
    /// `OFPG_ALL`: every group, in group_mod delete.
    pub const ALL: GroupId = GroupId(0xffff_fffc);
    /// `OFPG_ANY`: no constraint, in requests that delete or count flows.
    pub const ANY: GroupId = GroupId(0xffff_ffff);
}

impl MeterId {
    /// `OFPM_MAX`: the highest meter that a controller can define.
    pub const MAX: MeterId = MeterId(0xffff_0000);
    /// `OFPM_SLOWPATH`: the virtual meter of the slow datapath.
    pub const SLOWPATH: MeterId = MeterId(0xffff_fffd);
    /// `OFPM_CONTROLLER`: the virtual meter of the controller connection.
    pub const CONTROLLER: MeterId = MeterId(0xffff_fffe);
    /// `OFPM_ALL`: every meter, in statistics requests.
    pub const ALL: MeterId = MeterId(0xffff_ffff);
}

impl BufferId {
    /// `OFP_NO_BUFFER`: the whole packet travels in the message.
    pub const NONE: BufferId = BufferId(0xffff_ffff);
}

impl QueueId {
    /// `OFPQ_ALL`: every queue, in statistics requests.
    pub const ALL: QueueId = QueueId(0xffff_ffff);
}

/// An opaque value that the controller attaches to a flow entry (OpenFlow 1.3.5, section 5.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Cookie(pub u64);

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A datapath identifier: the 64-bit name by which controllers know a bridge (OpenFlow 1.3.5, section 7.3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dpid(pub u64);

impl fmt::Display for Dpid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Dpid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error for text that is not a datapath identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DpidParseError(String);

impl fmt::Display for DpidParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a datapath id: expected 1 to 16 hex digits as in 0000000000000001",
            self.0
        )
    }
}

impl core::error::Error for DpidParseError {}

impl FromStr for Dpid {
    type Err = DpidParseError;

    /// Parses one to sixteen hex digits, with or without `0x`.
    fn from_str(text: &str) -> Result<Dpid, DpidParseError> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(DpidParseError(text.to_owned()));
        }
        u64::from_str_radix(digits, 16)
            .map(Dpid)
            .map_err(|_| DpidParseError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dpid_prints_as_sixteen_hex_digits_and_parses_back() {
        let dpid = Dpid(0x2a);
        assert_eq!(dpid.to_string(), "000000000000002a");
        assert_eq!(dpid.to_string().parse(), Ok(dpid));
        assert_eq!("0x2a".parse(), Ok(dpid));
        assert!("".parse::<Dpid>().is_err());
        assert!("12345678123456789".parse::<Dpid>().is_err());
        assert!("+1".parse::<Dpid>().is_err());
    }
}
