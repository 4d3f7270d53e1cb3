//! XDR (RFC 4506): shapes of arguments and results, and a walk over bytes by a shape, which collects what files need.

use crate::app::framed::{number, take};

/// A part of a message. Each part has at least four bytes, so a walk is linear in its bytes whatever the counts say.
#[derive(Debug, Clone, Copy)]
pub(super) enum Xdr {
    U32,
    U64,
    /// Opaque data of a fixed size in bytes.
    Fixed(usize),
    /// Opaque data or a text of variable size.
    Opaque,
    /// The name of a file in a directory.
    Name,
    /// A file handle of variable size, or of a fixed one.
    Handle,
    FixedHandle(usize),
    /// The offset of the bytes that follow, or that are asked for, of 64 or 32 bits.
    Offset,
    Offset32,
    /// The size of the file.
    Size32,
    /// True if the bytes that follow are the last of the file.
    Eof,
    /// Bytes of the file.
    Data,
    /// A number, and as many repetitions. An optional part is one with the number 0 or 1.
    Array(&'static [Xdr]),
    /// Repetitions, each behind the number 1; the number 0 ends them.
    List(&'static [Xdr]),
    /// A number, and the parts that it selects. Another number has no known form.
    Union(&'static [(u32, &'static [Xdr])]),
}

/// Bytes of a file in a message.
#[derive(Debug)]
pub(super) struct Data<'a> {
    /// The offset in the file, if the message tells it.
    pub(super) offset: Option<u64>,
    pub(super) bytes: &'a [u8],
    /// Number of bytes of the file, and then of padding, that follow behind the end of those that were walked over.
    pub(super) missing: usize,
    pub(super) padding: usize,
}

/// The values that a walk collects.
#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    /// The first handle.
    pub(super) handle: Option<&'a [u8]>,
    pub(super) names: Vec<&'a [u8]>,
    pub(super) offset: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) is_eof: bool,
    pub(super) data: Vec<Data<'a>>,
}

/// Removes opaque data or a text with its size and its padding (RFC 4506, section 4.10).
pub(super) fn opaque<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let size = number(bytes, 4)? as usize;
    let data = take(bytes, size)?;
    take(bytes, padding(size))?;
    Some(data)
}

fn padding(size: usize) -> usize {
    size.wrapping_neg() % 4
}

impl<'a> Found<'a> {
    /// Removes parts from the front of the bytes; `None` if they have another form, or end before.
    pub(super) fn walk(&mut self, bytes: &mut &'a [u8], shape: &[Xdr]) -> Option<()> {
        for part in shape {
            self.part(bytes, part)?;
        }
        Some(())
    }

    fn part(&mut self, bytes: &mut &'a [u8], part: &Xdr) -> Option<()> {
        match part {
            Xdr::U32 => {
                number(bytes, 4)?;
            }
            Xdr::U64 => {
                number(bytes, 8)?;
            }
            Xdr::Fixed(size) => {
                take(bytes, *size)?;
            }
            Xdr::Opaque => {
                opaque(bytes)?;
            }
            Xdr::Name => self.names.push(opaque(bytes)?),
            Xdr::Handle => {
                let handle = opaque(bytes)?;
                self.handle.get_or_insert(handle);
            }
            Xdr::FixedHandle(size) => {
                let handle = take(bytes, *size)?;
                self.handle.get_or_insert(handle);
            }
            Xdr::Offset => self.offset = Some(number(bytes, 8)?),
            Xdr::Offset32 => self.offset = Some(number(bytes, 4)?),
            Xdr::Size32 => self.size = Some(number(bytes, 4)?),
            Xdr::Eof => self.is_eof = number(bytes, 4)? != 0,
            Xdr::Data => self.data(bytes)?,
            Xdr::Array(shape) => {
                for _ in 0..number(bytes, 4)? {
                    self.walk(bytes, shape)?;
                }
            }
            Xdr::List(shape) => {
                while number(bytes, 4)? == 1 {
                    self.walk(bytes, shape)?;
                }
            }
            Xdr::Union(cases) => {
                let selected = number(bytes, 4)?;
                let (_, shape) = cases.iter().find(|(case, _)| u64::from(*case) == selected)?;
                self.walk(bytes, shape)?;
            }
        }
        Some(())
    }

    /// Removes bytes of the file, as many of them as there are.
    fn data(&mut self, bytes: &mut &'a [u8]) -> Option<()> {
        let size = number(bytes, 4)? as usize;
        let present = take(bytes, size.min(bytes.len()))?;
        let missing = size - present.len();
        let skipped = padding(size).min(bytes.len());
        take(bytes, skipped)?;
        self.data.push(Data {
            offset: self.offset,
            bytes: present,
            missing,
            padding: padding(size) - skipped,
        });
        (missing == 0).then_some(())
    }
}
