//! Address families (RFC 4760): the four families that the receiver supports.

use core::fmt;
use core::net::IpAddr;

/// An address family, by its number (AFI).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum Afi {
    Ipv4 = 1,
    Ipv6 = 2,
}

impl Afi {
    /// Returns the family of an address.
    pub const fn of(address: IpAddr) -> Afi {
        match address {
            IpAddr::V4(_) => Afi::Ipv4,
            IpAddr::V6(_) => Afi::Ipv6,
        }
    }
}

/// The subsequent address families (SAFI): unicast (RFC 4760) and flow specifications (RFC 8955, section 4).
const SAFI_UNICAST: u8 = 1;
const SAFI_FLOWSPEC: u8 = 133;

/// A pair of address family (AFI) and subsequent address family (SAFI).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// IPv4 unicast, 1/1.
    Ipv4Unicast,
    /// IPv6 unicast, 2/1.
    Ipv6Unicast,
    /// Flow specification for IPv4, 1/133 (RFC 8955).
    Ipv4Flowspec,
    /// Flow specification for IPv6, 2/133 (RFC 8956).
    Ipv6Flowspec,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 4] = [
        Family::Ipv4Unicast,
        Family::Ipv6Unicast,
        Family::Ipv4Flowspec,
        Family::Ipv6Flowspec,
    ];

    /// Returns the AFI and the SAFI of the family.
    pub const fn numbers(self) -> (u16, u8) {
        let safi = if self.is_flowspec() {
            SAFI_FLOWSPEC
        } else {
            SAFI_UNICAST
        };
        (self.afi() as u16, safi)
    }

    /// Returns the address family.
    pub const fn afi(self) -> Afi {
        match self {
            Family::Ipv4Unicast | Family::Ipv4Flowspec => Afi::Ipv4,
            Family::Ipv6Unicast | Family::Ipv6Flowspec => Afi::Ipv6,
        }
    }

    /// Returns the family with this AFI and SAFI; `None` if the receiver does not support it.
    pub fn from_numbers(afi: u16, safi: u8) -> Option<Family> {
        Family::ALL
            .into_iter()
            .find(|family| family.numbers() == (afi, safi))
    }

    /// Returns true for families of flow specifications.
    pub const fn is_flowspec(self) -> bool {
        matches!(self, Family::Ipv4Flowspec | Family::Ipv6Flowspec)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Family::Ipv4Unicast => "ipv4 unicast",
            Family::Ipv6Unicast => "ipv6 unicast",
            Family::Ipv4Flowspec => "ipv4 flowspec",
            Family::Ipv6Flowspec => "ipv6 flowspec",
        })
    }
}

/// A set of families.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FamilySet(u8);

impl FamilySet {
    /// The set of all families.
    pub const ALL: FamilySet = FamilySet(0b1111);

    /// Returns the set with one more family.
    #[must_use]
    pub const fn with(self, family: Family) -> FamilySet {
        FamilySet(self.0 | 1 << family as u8)
    }

    /// Returns the set without a family.
    #[must_use]
    pub const fn without(self, family: Family) -> FamilySet {
        FamilySet(self.0 & !(1 << family as u8))
    }

    /// Returns true if the family is in the set.
    pub const fn contains(self, family: Family) -> bool {
        self.0 & 1 << family as u8 != 0
    }

    /// Returns the families that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: FamilySet) -> FamilySet {
        FamilySet(self.0 & other.0)
    }

    /// Returns true if the set has no family.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the families, in the order of [`Family::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::ALL
            .into_iter()
            .filter(move |family| self.contains(*family))
    }
}

impl FromIterator<Family> for FamilySet {
    fn from_iter<I: IntoIterator<Item = Family>>(families: I) -> FamilySet {
        families.into_iter().fold(FamilySet::default(), FamilySet::with)
    }
}
