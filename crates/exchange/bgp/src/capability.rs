//! Capabilities of OPEN (RFC 5492).

use std::collections::BTreeMap;

use crate::family::{Family, FamilySet};
use crate::reader::Reader;

const MULTIPROTOCOL: u8 = 1;
const ROUTE_REFRESH: u8 = 2;
const EXTENDED_MESSAGE: u8 = 6;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_OCTET_AS: u8 = 65;
const ADD_PATH: u8 = 69;

/// The graceful restart of a speaker (RFC 4724).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GracefulRestart {
    /// True if the speaker has restarted.
    pub has_restarted: bool,
    /// The restart time in seconds, 12 bits. The speaker's stale routes are removed after that time.
    pub restart_secs: u16,
    /// The families with graceful restart. The value is true if the speaker preserved the forwarding state.
    pub families: BTreeMap<Family, bool>,
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
    /// The Add-Path mode of each family (RFC 7911): 1 receives, 2 sends, 3 does both.
    pub add_path: BTreeMap<Family, u8>,
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
                        has_restarted: first & 0x8000 != 0,
                        restart_secs: first & 0x0fff,
                        families: BTreeMap::new(),
                    };
                    while !value.is_empty() {
                        let (afi, safi, flags) = (value.u16()?, value.u8()?, value.u8()?);
                        if let Some(family) = Family::from_numbers(afi, safi) {
                            restart.families.insert(family, flags & 0x80 != 0);
                        }
                    }
                    self.graceful_restart = Some(restart);
                }
                ADD_PATH => {
                    while !value.is_empty() {
                        let (afi, safi, direction) = (value.u16()?, value.u8()?, value.u8()?);
                        if let Some(family) = Family::from_numbers(afi, safi)
                            && (1..=3).contains(&direction)
                        {
                            self.add_path.insert(family, direction);
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
            let flag = if restart.has_restarted { 0x8000 } else { 0 };
            let mut body = (flag | restart.restart_secs & 0xfff).to_be_bytes().to_vec();
            for (family, preserved) in &restart.families {
                let (afi, safi) = family.numbers();
                body.extend(afi.to_be_bytes());
                body.extend([safi, if *preserved { 0x80 } else { 0 }]);
            }
            put(GRACEFUL_RESTART, &body);
        }
        if let Some(asn) = self.four_octet_asn {
            put(FOUR_OCTET_AS, &asn.to_be_bytes());
        }
        if !self.add_path.is_empty() {
            let mut body = Vec::new();
            for (family, direction) in &self.add_path {
                let (afi, safi) = family.numbers();
                body.extend(afi.to_be_bytes());
                body.extend([safi, *direction]);
            }
            put(ADD_PATH, &body);
        }
        let mut parameter = vec![2, value.len() as u8];
        parameter.extend(value);
        parameter
    }
}
