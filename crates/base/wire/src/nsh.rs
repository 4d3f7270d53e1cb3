//! The network service header: the position of a packet on a service path (RFC 8300).
//!
//! A view begins after the EtherType 0x894f. Metadata of fixed length (MD type 1) is parsed and emitted; metadata of
//! variable length (MD type 2) is ignored and emitted empty.

use arrayvec::ArrayVec;
use millrace_types::ServicePath;

use crate::HeaderError;
use crate::bytes::{be32, split};

/// Size of a header without metadata in bytes.
pub const MIN_SIZE: usize = 8;
/// Size of the longest header that [`Repr`] writes, in bytes.
pub const SIZE_MAX: usize = MIN_SIZE + CONTEXT_SIZE;
/// Size of metadata of a fixed length in bytes.
pub const CONTEXT_SIZE: usize = 16;
/// Next protocol: an Ethernet frame.
pub const ETHERNET: u8 = 3;
/// The largest time to live, and the initial one (RFC 8300, section 2.2).
pub const TTL_MAX: u8 = 63;

/// MD type 1: metadata of a fixed length.
const MD_FIXED: u8 = 1;
/// MD type 2: metadata of a variable length.
const MD_VARIABLE: u8 = 2;
/// The O bit, which marks OAM messages.
const OAM: u8 = 0x20;

/// A complete header, of a version and metadata type that RFC 8300 defines.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: &'a [u8; MIN_SIZE],
    context: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Returns a view of the header at the front of `bytes`, which follow the EtherType.
    ///
    /// # Errors
    /// [`HeaderError::Truncated`]; [`HeaderError::Invalid`] if the version is not 0, the type of the metadata is
    /// neither 1 nor 2, or the length is invalid for the type (RFC 8300, sections 2.2, 2.4, 2.5).
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<View<'a>, HeaderError> {
        let (header, rest) = split::<MIN_SIZE>("NSH", bytes)?;
        let invalid = |field, value: u8| HeaderError::Invalid {
            header: "NSH",
            field,
            value: value.into(),
        };
        let (version, words, kind) = (header[0] >> 6, header[1] & 0x3f, header[2] & 0x0f);
        if version != 0 {
            return Err(invalid("version", version));
        }
        match kind {
            MD_FIXED if usize::from(words) * 4 == SIZE_MAX => {}
            MD_VARIABLE if usize::from(words) * 4 >= MIN_SIZE => {}
            MD_FIXED | MD_VARIABLE => return Err(invalid("length", words)),
            _ => return Err(invalid("MD type", kind)),
        }
        let size = usize::from(words) * 4 - MIN_SIZE;
        let Some((context, payload)) = rest.split_at_checked(size) else {
            return Err(HeaderError::Truncated {
                header: "NSH",
                needed: size + MIN_SIZE,
                size: bytes.len(),
            });
        };
        Ok(View {
            header,
            context,
            payload,
        })
    }

    /// Returns true for a message of operations, administration and maintenance (OAM). A receiver without OAM
    /// support discards it (RFC 8300, section 2.2).
    #[inline]
    pub fn is_oam(&self) -> bool {
        self.header[0] & OAM != 0
    }

    /// Returns the time to live, 6 bits.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.header[0] << 2 & 0x3c | self.header[1] >> 6
    }

    /// Returns the type of the payload, for example [`ETHERNET`].
    #[inline]
    pub fn next_protocol(&self) -> u8 {
        self.header[3]
    }

    /// Returns the service path identifier and index.
    #[inline]
    pub fn path(&self) -> ServicePath {
        ServicePath::from_header(be32(self.header, 4))
    }

    /// Returns the context headers, which hold metadata.
    #[inline]
    pub fn context(&self) -> &'a [u8] {
        self.context
    }

    /// Returns the size of the header in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        MIN_SIZE + self.context.len()
    }

    /// Returns the payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fields of a network service header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Time to live, 0 to [`TTL_MAX`]; larger values are clamped.
    pub ttl: u8,
    /// Type of the payload.
    pub next_protocol: u8,
    /// Service path identifier and index.
    pub path: ServicePath,
    /// Metadata of fixed length; without it, the header has type 2 and no metadata.
    pub context: Option<[u8; CONTEXT_SIZE]>,
}

impl Repr {
    /// Returns the fields of a header. Metadata of a variable length is left out.
    pub fn parse(view: &View<'_>) -> Repr {
        Repr {
            ttl: view.ttl(),
            next_protocol: view.next_protocol(),
            path: view.path(),
            context: view
                .context()
                .try_into()
                .ok()
                .filter(|_| view.header[2] & 0x0f == MD_FIXED),
        }
    }

    /// Returns the header on the wire, without the EtherType in front of it.
    pub fn to_bytes(&self) -> ArrayVec<u8, SIZE_MAX> {
        let ttl = self.ttl.min(TTL_MAX);
        let (kind, size) = match self.context {
            Some(_) => (MD_FIXED, SIZE_MAX),
            None => (MD_VARIABLE, MIN_SIZE),
        };
        let mut bytes: ArrayVec<u8, SIZE_MAX> =
            [ttl >> 2, ttl << 6 | (size / 4) as u8, kind, self.next_protocol]
                .into_iter()
                .collect();
        bytes.extend(self.path.header().to_be_bytes());
        bytes.extend(self.context.into_iter().flatten());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // scapy 2.8: bytes(NSH(mdtype=1, nextproto=3, ttl=63, spi=42, si=255, context_header=bytes(range(16))))
    const FIXED: &[u8] = &[
        0x0f, 0xc6, 0x01, 0x03, 0x00, 0x00, 0x2a, 0xff, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    ];
    // scapy 2.8: bytes(NSH(mdtype=2, nextproto=3, ttl=7, spi=0xfffffe, si=1))
    const EMPTY: &[u8] = &[0x01, 0xc2, 0x02, 0x03, 0xff, 0xff, 0xfe, 0x01];

    #[test]
    fn headers_are_those_of_scapy_and_back() {
        let view = View::new(FIXED).unwrap();
        assert_eq!(
            (view.ttl(), view.next_protocol(), view.is_oam()),
            (63, ETHERNET, false)
        );
        assert_eq!((view.path().to_string().as_str(), view.size()), ("42/255", 24));
        for bytes in [FIXED, EMPTY] {
            let repr = Repr::parse(&View::new(bytes).unwrap());
            assert_eq!(repr.to_bytes().as_slice(), bytes);
        }
        assert_eq!(View::new(EMPTY).unwrap().ttl(), 7);
    }

    #[test]
    fn metadata_of_a_variable_length_is_passed_over() {
        let mut bytes = EMPTY.to_vec();
        bytes[1] = 0xc4;
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let view = View::new(&bytes).unwrap();
        assert_eq!(
            (view.size(), view.context().len(), view.payload()),
            (16, 8, &[9][..])
        );
        assert_eq!(Repr::parse(&view).context, None);
    }

    #[test]
    fn what_no_header_has_is_refused() {
        let with = |at: usize, value: u8| {
            let mut bytes = FIXED.to_vec();
            bytes[at] = value;
            View::new(&bytes).unwrap_err().to_string()
        };
        assert!(with(0, 0x4f).contains("version is 1"));
        assert!(
            with(1, 0xc5).contains("length is 5"),
            "fixed metadata has one length"
        );
        assert!(with(2, 0).contains("MD type is 0"));
        assert!(with(2, 15).contains("MD type is 15"));
        let mut short = EMPTY.to_vec();
        short[1] = 0xc1;
        assert!(View::new(&short).unwrap_err().to_string().contains("length is 1"));
        for size in 0..FIXED.len() {
            let error = View::new(&FIXED[..size]).unwrap_err();
            assert!(matches!(error, HeaderError::Truncated { .. }), "{size}: {error}");
        }
    }
}
