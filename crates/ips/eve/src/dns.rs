//! Names of DNS numbers (IANA, Domain Name System Parameters).

use std::borrow::Cow;

/// The flags of a DNS header, with their names in EVE.
pub(crate) const FLAGS: [(&str, u16); 6] = [
    ("qr", 1 << 15),
    ("aa", 1 << 10),
    ("tc", 1 << 9),
    ("rd", 1 << 8),
    ("ra", 1 << 7),
    ("z", 1 << 6),
];

const TYPES: [(u16, &str); 41] = [
    (1, "A"),
    (2, "NS"),
    (3, "MD"),
    (4, "MF"),
    (5, "CNAME"),
    (6, "SOA"),
    (7, "MB"),
    (8, "MG"),
    (9, "MR"),
    (10, "NULL"),
    (11, "WKS"),
    (12, "PTR"),
    (13, "HINFO"),
    (14, "MINFO"),
    (15, "MX"),
    (16, "TXT"),
    (17, "RP"),
    (18, "AFSDB"),
    (24, "SIG"),
    (25, "KEY"),
    (28, "AAAA"),
    (29, "LOC"),
    (33, "SRV"),
    (35, "NAPTR"),
    (37, "CERT"),
    (39, "DNAME"),
    (41, "OPT"),
    (43, "DS"),
    (44, "SSHFP"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (48, "DNSKEY"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (52, "TLSA"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (99, "SPF"),
    (250, "TSIG"),
    (252, "AXFR"),
    (255, "ANY"),
];

const RCODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
    "NOTAUTH", "NOTZONE",
];

/// Returns the name of a record type, or its number.
pub(crate) fn type_name(number: u16) -> Cow<'static, str> {
    match TYPES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => Cow::Borrowed(name),
        None => Cow::Owned(number.to_string()),
    }
}

/// Returns the name of a response code, or its number.
pub(crate) fn rcode_name(number: u16) -> Cow<'static, str> {
    match RCODES.get(usize::from(number)) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(number.to_string()),
    }
}
