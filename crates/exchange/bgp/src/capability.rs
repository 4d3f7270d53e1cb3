//! Capabilities of OPEN (RFC 5492).

use std::collections::BTreeMap;

use crate::family::{Family, FamilySet};
use crate::reader::Reader;

/// The type of the optional parameter Capabilities of OPEN (RFC 5492, section 4).
pub(crate) const CAPABILITIES: u8 = 2;

const MULTIPROTOCOL: u8 = 1;
const ROUTE_REFRESH: u8 = 2;
const EXTENDED_MESSAGE: u8 = 6;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_OCTET_AS: u8 = 65;
const ADD_PATH: u8 = 69;

/// The Restart State bit of a graceful restart (RFC 4724, section 3).
const RESTART_STATE: u16 = 0x8000;
/// The mask of the restart time of a graceful restart.
const RESTART_TIME: u16 = 0x0fff;
/// The Forwarding State bit of a family in a graceful restart.
const FORWARDING_STATE: u8 = 0x80;

/// The Send/Receive field of Add-Path (RFC 7911, section 4), by its number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AddPathMode {
    /// The speaker receives several paths.
    Receive = 1,
    /// The speaker sends several paths.
    Send = 2,
    /// The speaker does both.
    Both = 3,
}

impl AddPathMode {
    /// Returns the mode with this number; `None` for a number that is to be ignored.
    const fn from_number(number: u8) -> Option<AddPathMode> {
        match number {
            1 => Some(AddPathMode::Receive),
            2 => Some(AddPathMode::Send),
            3 => Some(AddPathMode::Both),
            _ => None,
        }
    }

    /// Returns true if the speaker sends several paths.
    pub(crate) const fn sends(self) -> bool {
        matches!(self, AddPathMode::Send | AddPathMode::Both)
    }
}

/// The graceful restart of a speaker (RFC 4724).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GracefulRestart {
    /// True if the speaker has restarted.
    pub has_restarted: bool,
    /// The restart time in seconds, 12 bits. The speaker's stale routes are removed after that time.
    pub restart_secs: u16,
    /// The families with graceful restart.
    pub families: FamilySet,
    /// The families for which the speaker has preserved the forwarding state.
    pub preserved: FamilySet,
}

/// The capabilities in an OPEN that the receiver knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// The address families (RFC 4760).
    pub families: FamilySet,
    /// True if the speaker also offers address families that the receiver does not know.
    pub has_other_families: bool,
    /// True if the speaker answers ROUTE-REFRESH (RFC 2918).
    pub route_refresh: bool,
    /// True if the speaker accepts messages of up to 65,535 bytes (RFC 8654).
    pub extended_messages: bool,
    pub graceful_restart: Option<GracefulRestart>,
    /// The speaker's AS number in four octets (RFC 6793).
    pub four_octet_asn: Option<u32>,
    /// The Add-Path mode of each family (RFC 7911).
    pub add_path: BTreeMap<Family, AddPathMode>,
}

impl Capabilities {
    /// Reads the capabilities in one optional parameter. Returns `None` if a length is wrong.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        while let Some(code) = reader.u8() {
            let len = reader.u8()?;
            let mut value = Reader(reader.take(usize::from(len))?);
            match code {
                MULTIPROTOCOL => {
                    let (afi, _reserved, safi) = (value.u16()?, value.u8()?, value.u8()?);
                    match Family::from_numbers(afi, safi) {
                        Some(family) => self.families = self.families.with(family),
                        None => self.has_other_families = true,
                    }
                }
                ROUTE_REFRESH => self.route_refresh = true,
                EXTENDED_MESSAGE => self.extended_messages = true,
                FOUR_OCTET_AS => self.four_octet_asn = Some(value.u32()?),
                GRACEFUL_RESTART => {
                    let first = value.u16()?;
                    let mut restart = GracefulRestart {
                        has_restarted: first & RESTART_STATE != 0,
                        restart_secs: first & RESTART_TIME,
                        ..GracefulRestart::default()
                    };
                    while !value.is_empty() {
                        let (afi, safi, flags) = (value.u16()?, value.u8()?, value.u8()?);
                        if let Some(family) = Family::from_numbers(afi, safi) {
                            restart.families = restart.families.with(family);
                            restart.preserved = if flags & FORWARDING_STATE == 0 {
                                restart.preserved.without(family)
                            } else {
                                restart.preserved.with(family)
                            };
                        }
                    }
                    self.graceful_restart = Some(restart);
                }
                ADD_PATH => {
                    while !value.is_empty() {
                        let (afi, safi, mode) = (value.u16()?, value.u8()?, value.u8()?);
                        if let Some(family) = Family::from_numbers(afi, safi)
                            && let Some(mode) = AddPathMode::from_number(mode)
                        {
                            self.add_path.insert(family, mode);
                        }
                    }
                }
                // A capability that is not known is ignored (RFC 5492, section 3).
                _ => {}
            }
        }
        Some(())
    }

    /// Returns the capabilities as one optional parameter.
    pub(crate) fn parameter(&self) -> Vec<u8> {
        let mut value = Vec::new();
        let mut put = |code: u8, body: &[u8]| {
            value.extend([code, body.len() as u8]);
            value.extend(body);
        };
        for family in self.families.iter() {
            let (afi, safi) = family.numbers();
            let [high, low] = afi.to_be_bytes();
            put(MULTIPROTOCOL, &[high, low, 0, safi]);
        }
        if self.route_refresh {
            put(ROUTE_REFRESH, &[]);
        }
        if self.extended_messages {
            put(EXTENDED_MESSAGE, &[]);
        }
        if let Some(restart) = &self.graceful_restart {
            let state = if restart.has_restarted { RESTART_STATE } else { 0 };
            let mut body = (state | restart.restart_secs & RESTART_TIME)
                .to_be_bytes()
                .to_vec();
            for family in restart.families.iter() {
                let (afi, safi) = family.numbers();
                let is_preserved = restart.preserved.contains(family);
                body.extend(afi.to_be_bytes());
                body.extend([safi, if is_preserved { FORWARDING_STATE } else { 0 }]);
            }
            put(GRACEFUL_RESTART, &body);
        }
        if let Some(asn) = self.four_octet_asn {
            put(FOUR_OCTET_AS, &asn.to_be_bytes());
        }
        if !self.add_path.is_empty() {
            let mut body = Vec::new();
            for (family, mode) in &self.add_path {
                let (afi, safi) = family.numbers();
                body.extend(afi.to_be_bytes());
                body.extend([safi, *mode as u8]);
            }
            put(ADD_PATH, &body);
        }
        let mut parameter = vec![CAPABILITIES, value.len() as u8];
        parameter.extend(value);
        parameter
    }
}
