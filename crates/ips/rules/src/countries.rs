//! The countries of addresses (`geoip`), from a database in MaxMind's format (MaxMind DB File Format Specification 2.0), such
//! as GeoLite2-Country. A database is a file among the rule files.

use core::fmt;
use core::net::IpAddr;
use std::sync::Arc;

use maxminddb::{Reader, path};

use crate::refusal::Reason;

/// The bytes before the metadata of a database, which are at its end.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// Largest size of the metadata with its marker, in bytes.
const METADATA: usize = 128 << 10;

/// A code of a country in capital letters (ISO 3166-1 alpha-2).
pub type Country = [u8; 2];

/// The countries of addresses; without a database, no address has one.
#[derive(Clone, Default)]
pub struct Countries(Option<Arc<Reader<Vec<u8>>>>);

impl Countries {
    /// Returns true if the bytes of a file are a database.
    pub(crate) fn is_database(bytes: &[u8]) -> bool {
        let end = &bytes[bytes.len().saturating_sub(METADATA)..];
        end.windows(MARKER.len()).any(|window| window == MARKER)
    }

    /// Reads a database.
    ///
    /// # Errors
    /// The reason for which it is none.
    pub(crate) fn read(bytes: &[u8]) -> Result<Countries, Reason> {
        match Reader::from_source(bytes.to_vec()) {
            Ok(reader) => Ok(Countries(Some(Arc::new(reader)))),
            Err(error) => Err(Reason::Invalid {
                problem: format!("the database is damaged: {error}"),
                expected: "a database in MaxMind's format, such as GeoLite2-Country.mmdb",
            }),
        }
    }

    /// Returns true if there is no database.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the country of an address; `None` if the database has none for it.
    pub fn of(&self, address: IpAddr) -> Option<Country> {
        let found = self.0.as_ref()?.lookup(address).ok()?;
        let code: Option<&str> = found.decode_path(&path!["country", "iso_code"]).ok()?;
        code?.as_bytes().try_into().ok()
    }
}

impl fmt::Debug for Countries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0.as_ref().map(|reader| &reader.metadata().database_type);
        f.debug_tuple("Countries").field(&kind).finish()
    }
}

impl PartialEq for Countries {
    /// Databases are equal if they are the same one in memory.
    fn eq(&self, other: &Countries) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Countries {}
