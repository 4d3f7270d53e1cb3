//! The encoding of events in the messages of a function's outbox. Numbers are big-endian; a list, a text and
//! an option begin with their number of elements.
//!
//! A process may be hostile: decoding any bytes fails or returns an event, in bounded memory.

mod fields;

use core::net::{IpAddr, Ipv4Addr};

use millrace_types::Time;

/// Limit of the bytes of a text, and of the elements of a list; the rest is cut.
const TEXT_MAX: usize = 1024;
const LIST_MAX: usize = 32;

/// Writes to a buffer of fixed capacity.
pub(crate) struct Output<'a> {
    buffer: &'a mut Vec<u8>,
    limit: usize,
    is_cut: bool,
}

impl<'a> Output<'a> {
    /// Returns an output that appends to `buffer` until it has `limit` bytes.
    pub(crate) fn new(buffer: &'a mut Vec<u8>, limit: usize) -> Output<'a> {
        Output {
            buffer,
            limit,
            is_cut: false,
        }
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.is_cut || self.buffer.len() + bytes.len() > self.limit {
            self.is_cut = true;
            return;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether everything was written.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_cut
    }
}

/// A value that is written as bytes, and read from them.
pub(crate) trait Codec: Sized {
    fn encode(&self, out: &mut Output<'_>);
    /// Reads a value, or returns `None` if the bytes do not begin with a value.
    fn decode(input: &mut &[u8]) -> Option<Self>;
}

/// A value that is written as bytes.
pub(crate) trait Encode {
    fn write(&self, out: &mut Output<'_>);
}

impl<T: Codec> Encode for T {
    fn write(&self, out: &mut Output<'_>) {
        self.encode(out);
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl Codec for $number {
            #[inline]
            fn encode(&self, out: &mut Output<'_>) {
                out.put(&self.to_be_bytes());
            }

            fn decode(input: &mut &[u8]) -> Option<$number> {
                let (bytes, rest) = input.split_first_chunk()?;
                *input = rest;
                Some(<$number>::from_be_bytes(*bytes))
            }
        })*
    };
}
numbers!(u8 u16 u32 u64 i64);

impl Codec for bool {
    #[inline]
    fn encode(&self, out: &mut Output<'_>) {
        u8::from(*self).encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<bool> {
        u8::decode(input).map(|byte| byte != 0)
    }
}

/// A text of bytes.
impl Codec for Vec<u8> {
    fn encode(&self, out: &mut Output<'_>) {
        let bytes = &self[..self.len().min(TEXT_MAX)];
        (bytes.len() as u16).encode(out);
        out.put(bytes);
    }

    fn decode(input: &mut &[u8]) -> Option<Vec<u8>> {
        let size = u16::decode(input)?;
        let (bytes, rest) = input.split_at_checked(size.into())?;
        *input = rest;
        Some(bytes.to_vec())
    }
}

/// Encodes a list whose elements are not bytes.
pub(crate) fn encode_list<T: Codec>(list: &[T], out: &mut Output<'_>) {
    let list = &list[..list.len().min(LIST_MAX)];
    (list.len() as u8).encode(out);
    list.iter().for_each(|element| element.encode(out));
}

pub(crate) fn decode_list<T: Codec>(input: &mut &[u8]) -> Option<Vec<T>> {
    (0..u8::decode(input)?).map(|_| T::decode(input)).collect()
}

impl Codec for Vec<Vec<u8>> {
    fn encode(&self, out: &mut Output<'_>) {
        encode_list(self, out);
    }

    fn decode(input: &mut &[u8]) -> Option<Vec<Vec<u8>>> {
        decode_list(input)
    }
}

impl<T: Codec> Codec for Option<T> {
    #[inline]
    fn encode(&self, out: &mut Output<'_>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(input: &mut &[u8]) -> Option<Option<T>> {
        match bool::decode(input)? {
            true => T::decode(input).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Codec> Codec for Box<T> {
    fn encode(&self, out: &mut Output<'_>) {
        (**self).encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<Box<T>> {
        T::decode(input).map(Box::new)
    }
}

impl<A: Codec, B: Codec> Codec for (A, B) {
    fn encode(&self, out: &mut Output<'_>) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<(A, B)> {
        Some((A::decode(input)?, B::decode(input)?))
    }
}

impl<A: Codec, B: Codec, C: Codec> Codec for (A, B, C) {
    fn encode(&self, out: &mut Output<'_>) {
        self.0.encode(out);
        self.1.encode(out);
        self.2.encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<(A, B, C)> {
        Some((A::decode(input)?, B::decode(input)?, C::decode(input)?))
    }
}

impl<T: Codec + Default, const N: usize> Codec for [T; N] {
    fn encode(&self, out: &mut Output<'_>) {
        self.iter().for_each(|element| element.encode(out));
    }

    fn decode(input: &mut &[u8]) -> Option<[T; N]> {
        let mut array = core::array::from_fn(|_| T::default());
        for element in &mut array {
            *element = T::decode(input)?;
        }
        Some(array)
    }
}

impl Codec for Time {
    fn encode(&self, out: &mut Output<'_>) {
        self.nanos().encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<Time> {
        u64::decode(input).map(Time::from_nanos)
    }
}

impl Codec for Ipv4Addr {
    fn encode(&self, out: &mut Output<'_>) {
        self.octets().encode(out);
    }

    fn decode(input: &mut &[u8]) -> Option<Ipv4Addr> {
        <[u8; 4]>::decode(input).map(Ipv4Addr::from)
    }
}

impl Codec for IpAddr {
    fn encode(&self, out: &mut Output<'_>) {
        match self {
            IpAddr::V4(address) => {
                4_u8.encode(out);
                out.put(&address.octets());
            }
            IpAddr::V6(address) => {
                6_u8.encode(out);
                out.put(&address.octets());
            }
        }
    }

    fn decode(input: &mut &[u8]) -> Option<IpAddr> {
        match u8::decode(input)? {
            4 => <[u8; 4]>::decode(input).map(IpAddr::from),
            6 => <[u8; 16]>::decode(input).map(IpAddr::from),
            _ => None,
        }
    }
}

/// Implements [`Codec`] for a structure, field by field.
macro_rules! structures {
    ($($name:ident { $($field:ident),* $(,)? })*) => {
        $(impl Codec for $name {
            fn encode(&self, out: &mut Output<'_>) {
                $(self.$field.encode(out);)*
            }

            fn decode(input: &mut &[u8]) -> Option<$name> {
                $(let $field = Codec::decode(input)?;)*
                Some($name { $($field),* })
            }
        })*
    };
}

/// Implements [`Codec`] for an enumeration without fields, by the order of its variants.
macro_rules! choices {
    ($($name:ident [$($variant:ident),* $(,)?])*) => {
        $(impl Codec for $name {
            fn encode(&self, out: &mut Output<'_>) {
                const ALL: &[$name] = &[$($name::$variant),*];
                // A variant that the list lacks is an error of the compiler.
                match self {
                    $($name::$variant)|* => {}
                }
                let index = ALL.iter().position(|variant| variant == self);
                (index.unwrap_or(usize::MAX) as u8).encode(out);
            }

            fn decode(input: &mut &[u8]) -> Option<$name> {
                const ALL: &[$name] = &[$($name::$variant),*];
                ALL.get(usize::from(u8::decode(input)?)).copied()
            }
        })*
    };
}

pub(crate) use choices;
pub(crate) use structures;
