//! The position of a packet on a service path (RFC 8300, section 2.3).

use core::fmt;
use core::str::FromStr;

/// A service path identifier and a service index, written `42/255`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServicePath {
    path: u32,
    index: u8,
}

/// The error for text that is not a service path and index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServicePathError;

impl fmt::Display for ServicePathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected PATH/INDEX, of which PATH is 0 to 16777215 and INDEX 1 to 255")
    }
}

impl std::error::Error for ServicePathError {}

impl ServicePath {
    /// The largest service path identifier: 24 bits.
    pub const PATH_MAX: u32 = 0xff_ffff;

    /// Decodes a service path header of 32 bits: the path identifier, then the index.
    #[inline]
    pub const fn from_header(header: u32) -> ServicePath {
        ServicePath {
            path: header >> 8,
            index: header as u8,
        }
    }

    /// Encodes the service path header of 32 bits.
    #[inline]
    pub const fn header(self) -> u32 {
        self.path << 8 | self.index as u32
    }

    /// Returns the service path identifier (SPI).
    #[inline]
    pub const fn path(self) -> u32 {
        self.path
    }

    /// Returns the service index (SI). Each service function decrements it; a packet whose index is zero is dropped.
    #[inline]
    pub const fn index(self) -> u8 {
        self.index
    }
}

impl fmt::Display for ServicePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.path, self.index)
    }
}

impl FromStr for ServicePath {
    type Err = ServicePathError;

    fn from_str(text: &str) -> Result<ServicePath, ServicePathError> {
        let (path, index) = text.split_once('/').ok_or(ServicePathError)?;
        let path = path.parse().ok().filter(|path| *path <= ServicePath::PATH_MAX);
        let index = index.parse().ok().filter(|index| *index != 0);
        match (path, index) {
            (Some(path), Some(index)) => Ok(ServicePath { path, index }),
            _ => Err(ServicePathError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_on_a_path_is_a_path_of_24_bits_and_an_index() {
        let place: ServicePath = "16777215/254".parse().unwrap();
        assert_eq!(
            (place.path(), place.index(), place.header()),
            (0xff_ffff, 254, 0xffff_fffe)
        );
        assert_eq!(ServicePath::from_header(0x0000_2aff).to_string(), "42/255");
        for wrong in ["", "42", "42/", "/255", "16777216/1", "1/256", "1/0", "-1/1"] {
            assert_eq!(wrong.parse::<ServicePath>(), Err(ServicePathError), "{wrong}");
        }
    }
}
