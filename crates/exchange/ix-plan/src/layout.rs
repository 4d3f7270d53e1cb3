//! The layout of tables, metadata, cookies and derived numbers.
//!
//! ```text
//! metadata   63            40 39 38             20 19             0
//!           +----------------+--+-----------------+----------------+
//!           | service 24     |R | in 19           | out 20         |   R: arrived by trunk
//!           +----------------+--+-----------------+----------------+
//!            in: the index of the end by which the frame entered; on frames by trunk the parity of the generation
//!            out: the index of the end by which it leaves; bit 19: several ends, or none that is known yet
//!
//! cookie     63     56 55  52 51              20 19             0
//!           +---------+------+------------------+----------------+
//!           | owner 8 |kind 4| object 32        | generation 20  |
//!           +---------+------+------------------+----------------+
//! ```

use millrace_ix_model::{Config, FilterId, PoolKind, Service, ServiceIndex, TrunkId};
use millrace_types::{Cookie, GroupId, Mac, MeterId, TableId};

/// The table that finds the end or trunk by which a frame arrived, and its service.
pub const PORT: TableId = TableId(0);
/// The table that matches the second tag of frames with two tags.
pub const INNER: TableId = TableId(1);
/// The table of admission: addresses, EtherTypes, ARP and neighbour discovery.
pub const ADMIT: TableId = TableId(2);
/// The table that polices the contracted rate.
pub const POLICE: TableId = TableId(3);
/// The table that finds the end by which a frame leaves.
pub const FORWARD: TableId = TableId(4);
/// The table with the filters of the end by which a frame leaves.
pub const PROTECT: TableId = TableId(5);
/// The table that writes tags and sends the frame.
pub const EGRESS: TableId = TableId(6);
/// The first table that the planner does not use.
pub const TABLES_END: u8 = 7;

/// The VID of the tag that every frame has between table 0 and table 6.
pub const INTERNAL_VID: u16 = 1;
/// The VID instead of [`INTERNAL_VID`] of frames that a leaf of a `p2mp_vc` sent: copies of them go to roots only.
pub const LEAF_VID: u16 = 2;

/// The destination of the engine's probes on trunks. It is not a reserved address, because bridges in the
/// underlay of a trunk would drop such addresses.
pub const PROBE_MAC: Mac = Mac([0x02, 0x4d, 0x49, 0x58, 0x00, 0x02]);
/// The EtherType of LLDP, which the probes have.
pub const LLDP: u16 = 0x88cc;

/// The metadata of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Metadata {
    /// The index of the service, 24 bits. Between tables 0 and 1: the outer VID.
    pub service: u32,
    /// True if the frame arrived by a trunk.
    pub by_trunk: bool,
    /// The index of the end by which the frame entered, 19 bits.
    pub ingress_end: u32,
    /// The index of the end by which the frame leaves, 20 bits.
    pub egress_end: u32,
}

impl Metadata {
    /// The mask of the service.
    pub const SERVICE: u64 = 0xff_ffff << 40;
    /// The mask of the trunk bit.
    pub const TRUNK: u64 = 1 << 39;
    /// The mask of the end by which a frame entered.
    pub const INGRESS_END: u64 = 0x7_ffff << 20;
    /// The mask of the end by which a frame leaves.
    pub const EGRESS_END: u64 = 0xf_ffff;
    /// The bit in the index of the end that marks a frame that leaves by several ends, or whose end is not known yet. Until
    /// then, the field keeps the priority of a frame of a peering LAN.
    pub const COPIES: u32 = 1 << 19;

    /// Returns the word. Values that are too wide lose their high bits.
    pub const fn word(self) -> u64 {
        let service = (self.service as u64 & 0xff_ffff) << 40;
        let ingress_end = (self.ingress_end as u64 & 0x7_ffff) << 20;
        service | (self.by_trunk as u64) << 39 | ingress_end | self.egress_end as u64 & Self::EGRESS_END
    }

    /// Returns the fields of a word.
    pub const fn from_word(word: u64) -> Metadata {
        Metadata {
            service: (word >> 40) as u32,
            by_trunk: word & Self::TRUNK != 0,
            ingress_end: (word >> 20) as u32 & 0x7_ffff,
            egress_end: (word & Self::EGRESS_END) as u32,
        }
    }
}

/// The tag of entries of the exchange, in the highest byte of the cookie.
pub const OWNER: u8 = 0x58;

/// The type of the object that an entry belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum CookieKind {
    /// Entries of the switch itself.
    Base = 0,
    /// Entries of a service; the object is its index.
    Service = 1,
    /// Entries of an end: ingress; the object is the number of its identifier.
    End = 2,
    /// The policing of an end. Its counter less the drops of its meter gives the ingress accounting.
    Police = 3,
    /// The egress of an end. Its counter gives the egress accounting.
    Egress = 4,
    /// Filters; the object is the number of the identifier.
    Filter = 5,
    /// Entries that drop frames of a service and count them; the object is the service's index.
    Drop = 6,
    /// Frames of a connection with an end in quarantine that belong to no end; the object is the number of the
    /// connection's identifier.
    UnassignedFrames = 7,
    /// Probes of a trunk; the object is the number of the trunk's identifier, the generation field is the
    /// position of the end in the trunk.
    Probe = 8,
}

impl CookieKind {
    const ALL: [CookieKind; 9] = [
        CookieKind::Base,
        CookieKind::Service,
        CookieKind::End,
        CookieKind::Police,
        CookieKind::Egress,
        CookieKind::Filter,
        CookieKind::Drop,
        CookieKind::UnassignedFrames,
        CookieKind::Probe,
    ];
}

/// The fields of a cookie. A cookie narrows listings and deletions; it is not the identity of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CookieFields {
    /// The type of the object.
    pub kind: CookieKind,
    /// The number of the object.
    pub object: u32,
    /// The generation of the service, 20 bits.
    pub generation: u32,
}

impl CookieFields {
    /// Returns the cookie.
    pub const fn cookie(self) -> Cookie {
        let owner = (OWNER as u64) << 56;
        let kind = (self.kind as u64) << 52;
        Cookie(owner | kind | (self.object as u64) << 20 | self.generation as u64 & 0xf_ffff)
    }

    /// Returns the fields of a cookie, or `None` if it is not one of the exchange's.
    pub fn from_cookie(Cookie(word): Cookie) -> Option<CookieFields> {
        let kind = CookieKind::ALL
            .into_iter()
            .find(|kind| *kind as u64 == word >> 52 & 0xf)?;
        (word >> 56 == u64::from(OWNER)).then_some(CookieFields {
            kind,
            object: (word >> 20) as u32,
            generation: (word & 0xf_ffff) as u32,
        })
    }
}

/// Returns the parity that frames by trunk carry instead of an end, so that the frames of two generations meet different
/// entries.
pub(crate) const fn parity(service: &Service) -> u32 {
    service.generation & 1
}

/// The type of an end's packets that a separate meter limits, in addition to the contracted rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RateLimitedTraffic {
    Broadcast,
    Multicast,
    PacketIn,
}

/// Returns the meter of an end for broadcast, multicast or packet-in.
pub(crate) const fn storm_meter(config: &Config, traffic: RateLimitedTraffic) -> MeterId {
    MeterId(0x0100_0000 | config.meter.raw() << 2 | traffic as u32)
}

/// Returns the meter of a filter that limits.
pub(crate) const fn filter_meter(filter: FilterId) -> MeterId {
    MeterId(0x0200_0000 + filter.0 % 0x1000_0000)
}

/// Returns the meter of the probes that arrive by a trunk.
pub(crate) const fn probe_meter(trunk: TrunkId) -> MeterId {
    MeterId(0x2000_0000 | trunk.0 & 0x0fff_ffff)
}

/// Returns the group that copies frames from trunks to all local ends.
pub(crate) const fn copies_group(service: ServiceIndex) -> GroupId {
    GroupId(0x0100_0000 | service.raw())
}

/// Returns the group that copies frames that a leaf sent, and that arrived by trunk, to the local roots.
pub(crate) const fn root_copies_group(service: ServiceIndex) -> GroupId {
    GroupId(0x0200_0000 | service.raw())
}

/// Returns the group that pushes the outer tag of copies to an end with two tags; `is_hairpin` is true for
/// copies that leave by the ports by which they arrived.
pub(crate) const fn outer_tag_group(config: &Config, is_hairpin: bool) -> GroupId {
    GroupId(0x0300_0000 | (is_hairpin as u32) << 20 | config.meter.raw())
}

/// Returns the number of an end's meter from which a meter is derived, if it is.
pub(crate) const fn pool_of_meter(MeterId(raw): MeterId) -> Option<u32> {
    match raw >> 24 {
        0 => Some(raw),
        1 => Some((raw & 0xff_ffff) >> 2),
        _ => None,
    }
}

/// Returns the pool and the number from which a group is derived.
pub(crate) const fn pool_of_group(GroupId(raw): GroupId) -> (PoolKind, u32) {
    match raw >> 24 {
        1 | 2 => (PoolKind::ServiceIndex, raw & 0xff_ffff),
        3 => (PoolKind::Meter, raw & 0xf_ffff),
        _ => (PoolKind::Group, raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_metadata_fill_the_word_without_overlap() {
        let masks = [
            Metadata::SERVICE,
            Metadata::TRUNK,
            Metadata::INGRESS_END,
            Metadata::EGRESS_END,
        ];
        assert_eq!(masks.iter().sum::<u64>(), u64::MAX);
        assert_eq!(masks.map(u64::count_ones), [24, 1, 19, 20]);
        let metadata = Metadata {
            service: 77,
            by_trunk: true,
            ingress_end: 5,
            egress_end: 6,
        };
        assert_eq!(metadata.word(), 77 << 40 | 1 << 39 | 5 << 20 | 6);
        assert_eq!(Metadata::from_word(metadata.word()), metadata);
        let widest = Metadata::from_word(u64::MAX);
        assert_eq!(
            (widest.service, widest.ingress_end, widest.egress_end),
            (0xff_ffff, 0x7_ffff, 0xf_ffff)
        );
        assert_eq!(widest.word(), u64::MAX);
    }

    #[test]
    fn a_cookie_has_owner_kind_object_and_generation() {
        let fields = CookieFields {
            kind: CookieKind::Egress,
            object: u32::MAX,
            generation: 0xf_ffff,
        };
        assert_eq!(fields.cookie(), Cookie(0x584f_ffff_ffff_ffff));
        assert_eq!(CookieFields::from_cookie(fields.cookie()), Some(fields));
        assert_eq!(CookieFields::from_cookie(Cookie(4 << 52)), None, "another owner");
        for kind in CookieKind::ALL {
            let fields = CookieFields {
                kind,
                object: 7,
                generation: 1 << 20 | 3,
            };
            let back = CookieFields::from_cookie(fields.cookie())
                .map(|back| (back.kind, back.object, back.generation));
            assert_eq!(back, Some((kind, 7, 3)), "20 bits of generation");
        }
    }
}
