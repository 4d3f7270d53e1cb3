//! OPEN (RFC 4271, section 4.2; RFC 9072 for long lists of parameters).

use core::net::Ipv4Addr;

use crate::aspath::AS_TRANS;
use crate::capability::{CAPABILITIES, Capabilities};
use crate::notification::{Notification, OpenError};
use crate::reader::Reader;

/// The version of the protocol.
const VERSION: u8 = 4;
/// The type that marks parameters with lengths of two bytes (RFC 9072, section 2).
const EXTENDED_LENGTH: u8 = 255;

/// The contents of OPEN, the first message of a speaker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// The speaker's AS number; the four-octet AS number capability, if there is one, takes precedence.
    pub asn: u32,
    /// The hold time in seconds; 0 means none.
    pub hold_secs: u16,
    /// The BGP Identifier.
    pub router_id: Ipv4Addr,
    pub capabilities: Capabilities,
}

impl Open {
    /// Decodes the body of an OPEN.
    ///
    /// # Errors
    /// The [`Notification`] that ends the session.
    pub fn decode(body: &[u8]) -> Result<Open, Notification> {
        // The length in the header was checked to be at least 29, so the fixed part is complete.
        let unspecific = || Notification::open(OpenError::Unspecific);
        let mut reader = Reader(body);
        let version = reader.u8().ok_or_else(unspecific)?;
        if version != VERSION {
            let supported = u16::from(VERSION).to_be_bytes();
            return Err(Notification::open(OpenError::UnsupportedVersionNumber).with_data(&supported));
        }
        let asn = u32::from(reader.u16().ok_or_else(unspecific)?);
        let hold_secs = reader.u16().ok_or_else(unspecific)?;
        let router_id = Ipv4Addr::from(reader.array::<4>().ok_or_else(unspecific)?);
        let short = reader.u8().ok_or_else(unspecific)?;
        let mut capabilities = Capabilities::default();
        let parameters = read_parameters(&mut reader, short).ok_or_else(unspecific)?;
        for (kind, value) in parameters {
            // The only other parameter that was ever defined, Authentication, is deprecated (RFC 4271, appendix A).
            if kind != CAPABILITIES {
                return Err(Notification::open(OpenError::UnsupportedOptionalParameter));
            }
            capabilities.read(value).ok_or_else(unspecific)?;
        }
        let asn = capabilities.four_octet_asn.unwrap_or(asn);
        if asn == 0 || asn == AS_TRANS {
            return Err(Notification::open(OpenError::BadPeerAs));
        }
        if router_id.is_unspecified() {
            return Err(Notification::open(OpenError::BadBgpIdentifier));
        }
        if matches!(hold_secs, 1 | 2) {
            return Err(Notification::open(OpenError::UnacceptableHoldTime));
        }
        Ok(Open {
            asn,
            hold_secs,
            router_id,
            capabilities,
        })
    }

    /// Returns the body of an OPEN.
    pub fn body(&self) -> Vec<u8> {
        let mut body = vec![VERSION];
        let asn = u16::try_from(self.asn).unwrap_or(AS_TRANS as u16);
        body.extend(asn.to_be_bytes());
        body.extend(self.hold_secs.to_be_bytes());
        body.extend(self.router_id.octets());
        let parameter = self.capabilities.parameter();
        body.push(parameter.len() as u8);
        body.extend(parameter);
        body
    }
}

/// Reads all optional parameters as (type, value). Returns `None` if a length is wrong or bytes follow the
/// parameters.
fn read_parameters<'a>(reader: &mut Reader<'a>, short: u8) -> Option<Vec<(u8, &'a [u8])>> {
    // A length other than 0, followed by the type 255, means that lengths are two bytes long. A speaker writes 255 as
    // that length, and a receiver does not look at it (RFC 9072, section 2).
    let is_extended = short != 0 && reader.0.first() == Some(&EXTENDED_LENGTH);
    let len = if is_extended {
        reader.u8()?;
        usize::from(reader.u16()?)
    } else {
        usize::from(short)
    };
    let mut list = Reader(reader.take(len)?);
    if !reader.is_empty() {
        return None;
    }
    let mut parameters = Vec::new();
    while let Some(kind) = list.u8() {
        let len = if is_extended {
            usize::from(list.u16()?)
        } else {
            usize::from(list.u8()?)
        };
        parameters.push((kind, list.take(len)?));
    }
    Some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{AddPathMode, GracefulRestart};
    use crate::family::{Family, FamilySet};

    fn open() -> Open {
        Open {
            asn: 4_200_000_000,
            hold_secs: 90,
            router_id: Ipv4Addr::new(192, 0, 2, 1),
            capabilities: Capabilities {
                families: FamilySet::ALL,
                has_other_families: false,
                route_refresh: true,
                extended_messages: true,
                graceful_restart: Some(GracefulRestart {
                    has_restarted: true,
                    restart_secs: 120,
                    families: [Family::Ipv4Unicast, Family::Ipv6Flowspec].into_iter().collect(),
                    preserved: FamilySet::default().with(Family::Ipv4Unicast),
                }),
                four_octet_asn: Some(4_200_000_000),
                add_path: [(Family::Ipv4Unicast, AddPathMode::Receive)].into(),
            },
        }
    }

    #[test]
    fn an_open_is_read_as_it_is_written() {
        let body = open().body();
        assert_eq!(body[1..3], [0x5b, 0xa0], "AS_TRANS stands for four octets");
        assert_eq!(Open::decode(&body), Ok(open()));
    }

    #[test]
    fn long_parameters_are_read() {
        let body = open().body();
        let mut long = body[..9].to_vec();
        let capabilities = &body[12..];
        long.extend([255, 255]);
        long.extend((capabilities.len() as u16 + 3).to_be_bytes());
        long.push(2);
        long.extend((capabilities.len() as u16).to_be_bytes());
        long.extend(capabilities);
        for ignored in [255, 1, 30] {
            long[9] = ignored;
            assert_eq!(Open::decode(&long), Ok(open()), "{ignored}");
        }
        // Without parameters there is nothing behind the length.
        long[9] = 0;
        assert_eq!(
            Open::decode(&long),
            Err(Notification::open(OpenError::Unspecific))
        );
    }

    #[test]
    fn unacceptable_opens_are_refused_by_their_subcodes() {
        let body = Open {
            asn: 64_500,
            capabilities: Capabilities::default(),
            ..open()
        }
        .body();
        let refused = |at: usize, bytes: &[u8]| {
            let mut changed = body.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            Open::decode(&changed).unwrap_err()
        };
        let version = Notification::open(OpenError::UnsupportedVersionNumber).with_data(&[0, 4]);
        assert_eq!(refused(0, &[3]), version);
        for (at, bytes, error) in [
            (1, &[0, 0][..], OpenError::BadPeerAs),
            (3, &[0, 2], OpenError::UnacceptableHoldTime),
            (5, &[0; 4], OpenError::BadBgpIdentifier),
            (9, &[200], OpenError::Unspecific),
            (10, &[1], OpenError::UnsupportedOptionalParameter),
        ] {
            assert_eq!(refused(at, bytes), Notification::open(error), "{bytes:?} at {at}");
        }
    }
}
