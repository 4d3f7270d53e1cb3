//! Decompression of HTTP bodies: gzip and deflate, in several layers, with bounded output.
//!
//! ```text
//!  Gzip ── header ──▶ Data ── end ──▶ Trailer ──▶ Gzip: the next member (RFC 1952, section 2.2) ── other bytes ──▶ Ended
//!  Zlib ── 2 bytes ──▶ Data ── end ──▶ Zlib: further data, which some recipients join ── other bytes ──▶ Ended
//! ```

use std::borrow::Cow;

use crate::app::heap::{Heap, heap};
use flate2::{Decompress, FlushDecompress, Status};

/// Output of a layer, in bytes, up to which its ratio to the input is not checked (1 MiB).
const BOMB_SIZE: u64 = 1 << 20;
/// Ratio of the output of a layer to the compressed body above which the body is a decompression bomb. Deflate alone
/// reaches 1,032.
const BOMB_RATIO: u64 = 2048;
/// Bytes of output for which each start of compressed data counts (32 KiB): the decompressor clears its window.
const BEGIN_SIZE: u64 = 32 << 10;
/// Size of the trailer of a gzip member, in bytes (RFC 1952, section 2.3.1).
const GZIP_TRAILER: usize = 8;
/// Size of the buffer into which one step of decompression writes, in bytes.
const STEP: usize = 8192;

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// gzip (RFC 1952).
    Gzip,
    /// zlib or raw deflate (RFC 1950, RFC 1951); servers send either as "deflate".
    Deflate,
}

/// The reason why a decoder stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// The bytes do not have the format of the coding.
    Invalid,
    /// The output is too large in proportion to the input.
    Bomb,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// In the header of a gzip member.
    Gzip(GzipHeader),
    /// Before the first two bytes, which distinguish zlib from raw deflate. Holds the first byte, once it is known.
    Zlib(Option<u8>),
    /// In compressed data.
    Data,
    /// In the trailer of a gzip member, with the number of its bytes that are still to come.
    Trailer(usize),
    /// After the data.
    Ended,
    /// The body does not have the coding, and its bytes pass unchanged.
    Verbatim,
}

/// Decodes one content coding.
#[derive(Debug)]
struct Layer {
    coding: Coding,
    state: State,
    /// The decompressor, from the first compressed data until the layer ends.
    inflate: Option<Box<Decompress>>,
    /// Output so far in bytes, plus [`BEGIN_SIZE`] for each start of compressed data.
    made: u64,
    /// The first bytes of a body whose coding is "deflate", at most [`KEPT`]: raw deflate has no header, so only an error
    /// shows that a body does not have it. `None` once the body is longer.
    kept: Option<Vec<u8>>,
    /// True in compressed data behind the end of those of a body whose coding is "deflate".
    is_later: bool,
    /// True once such data had output.
    is_joined: bool,
}

/// Bytes of a body after which an error of raw deflate shows that the body is damaged, and not that it is plain.
const KEPT: usize = 4096;

/// Memory of the decompression of one layer in bytes: a window of 32 KiB and the tables of codes.
const INFLATE_SIZE: usize = 48 << 10;

impl Heap for Layer {
    fn heap(&self) -> usize {
        self.inflate.as_ref().map_or(0, |_| INFLATE_SIZE) + self.kept.as_ref().map_or(0, Vec::capacity)
    }
}

/// The limits of a step.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Largest output of a layer for the bytes of this step, in bytes.
    room: usize,
    /// Largest value of [`Layer::made`] after this step.
    total: u64,
}

impl Layer {
    fn new(coding: Coding) -> Layer {
        Layer {
            coding,
            state: match coding {
                Coding::Gzip => State::Gzip(GzipHeader::default()),
                Coding::Deflate => State::Zlib(None),
            },
            inflate: None,
            made: 0,
            kept: (coding == Coding::Deflate).then(Vec::new),
            is_later: false,
            is_joined: false,
        }
    }

    /// Decodes `input` into `out`. A body that does not have the coding passes unchanged.
    fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, limits: Limits) -> Result<(), DecodeError> {
        if let Some(kept) = &mut self.kept {
            kept.extend_from_slice(input);
        }
        let (before, result) = (out.len(), self.decode_coding(input, out, limits));
        if result == Err(DecodeError::Invalid)
            && let Some(kept) = self.kept.take()
        {
            // The output of the last bytes, if there was any, was noise.
            out.truncate(before);
            out.extend_from_slice(&kept[..kept.len().min(limits.room)]);
            self.inflate = None;
            self.state = State::Verbatim;
        }
        self.kept = self.kept.take().filter(|kept| kept.len() <= KEPT);
        result
    }

    fn decode_coding(&mut self, input: &[u8], out: &mut Vec<u8>, limits: Limits) -> Result<(), DecodeError> {
        let mut input = input;
        loop {
            match &mut self.state {
                State::Gzip(header) => match header.read(&mut input) {
                    HeaderEnd::Incomplete => return Ok(()),
                    HeaderEnd::Complete => self.begin(false, limits)?,
                    // Recipients ignore bytes after the last member.
                    HeaderEnd::Invalid if self.inflate.is_some() => self.end(),
                    HeaderEnd::Invalid => {
                        let size = header.size;
                        self.state = State::Verbatim;
                        out.extend_from_slice(&GZIP_MAGIC[..size]);
                        out.extend_from_slice(&input[..input.len().min(limits.room)]);
                        return Err(DecodeError::Invalid);
                    }
                },
                State::Zlib(first) => {
                    let Some((&byte, rest)) = input.split_first() else {
                        return Ok(());
                    };
                    let Some(first) = *first else {
                        self.state = State::Zlib(Some(byte));
                        input = rest;
                        continue;
                    };
                    let check = u16::from_be_bytes([first, byte]);
                    self.is_later = self.made > 0;
                    self.begin(first & 0x0f == 8 && check % 31 == 0, limits)?;
                    self.inflate(&[first], out, limits)?;
                }
                State::Data if input.is_empty() => return Ok(()),
                State::Data => input = self.inflate(input, out, limits)?,
                State::Trailer(left) => {
                    let size = input.len().min(*left);
                    input = &input[size..];
                    *left -= size;
                    if *left > 0 {
                        return Ok(());
                    }
                    self.state = State::Gzip(GzipHeader::default());
                }
                State::Ended => return Ok(()),
                State::Verbatim => {
                    out.extend_from_slice(&input[..input.len().min(limits.room)]);
                    return Ok(());
                }
            }
        }
    }

    /// Begins compressed data.
    fn begin(&mut self, has_zlib_header: bool, limits: Limits) -> Result<(), DecodeError> {
        self.made += BEGIN_SIZE;
        if self.made > limits.total {
            return Err(DecodeError::Bomb);
        }
        match &mut self.inflate {
            Some(inflate) => inflate.reset(has_zlib_header),
            None => self.inflate = Some(Box::new(Decompress::new(has_zlib_header))),
        }
        self.state = State::Data;
        Ok(())
    }

    /// Inflates bytes. Returns those after the end of the compressed data.
    fn inflate<'a>(
        &mut self,
        input: &'a [u8],
        out: &mut Vec<u8>,
        limits: Limits,
    ) -> Result<&'a [u8], DecodeError> {
        let Some(inflate) = &mut self.inflate else {
            return Ok(&[]);
        };
        let before = out.len();
        let ended = inflate_all(inflate, input, out, &mut self.made, limits);
        self.is_joined |= self.is_later && out.len() > before;
        match ended {
            Ok(None) => Ok(&[]),
            Ok(Some(size)) => {
                self.state = match self.coding {
                    Coding::Gzip => State::Trailer(GZIP_TRAILER),
                    Coding::Deflate => State::Zlib(None),
                };
                self.kept = None;
                Ok(&input[size..])
            }
            // Other bytes follow the compressed data.
            Err(DecodeError::Invalid) if self.is_later => {
                self.end();
                Ok(&[])
            }
            Err(error) => {
                self.end();
                Err(error)
            }
        }
    }

    fn end(&mut self) {
        self.state = State::Ended;
        self.inflate = None;
    }
}

/// Inflates all of the input. Returns the number of bytes up to the end of the compressed data; `None` if the end is
/// not reached.
fn inflate_all(
    inflate: &mut Decompress,
    input: &[u8],
    out: &mut Vec<u8>,
    total: &mut u64,
    limits: Limits,
) -> Result<Option<usize>, DecodeError> {
    let mut at = 0;
    let mut step = [0; STEP];
    loop {
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(&input[at..], &mut step, FlushDecompress::None);
        let consumed = usize::try_from(inflate.total_in() - before_in).unwrap_or(0);
        let made = usize::try_from(inflate.total_out() - before_out).unwrap_or(0);
        at += consumed;
        let taken = made.min(limits.room.saturating_sub(out.len()));
        out.extend_from_slice(&step[..taken]);
        *total += made as u64;
        if *total > limits.total {
            return Err(DecodeError::Bomb);
        }
        match status {
            Err(_) => return Err(DecodeError::Invalid),
            Ok(_) if taken < made => return Err(DecodeError::Bomb),
            Ok(Status::StreamEnd) => return Ok(Some(at)),
            // If the output filled the buffer, more output may follow.
            Ok(_) if at >= input.len() && made < STEP => return Ok(None),
            Ok(_) if consumed == 0 && made == 0 => return Ok(None),
            Ok(_) => {}
        }
    }
}

/// The first bytes of a gzip member: the magic number, and deflate as its method.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// The fields of the header of a gzip member (RFC 1952, section 2.3), in their order. All but the first are optional,
/// by the flags of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Field {
    #[default]
    Fixed,
    ExtraSize,
    Extra,
    Name,
    Comment,
    Check,
}

/// The position in the header of a gzip member.
#[derive(Debug, Clone, Copy, Default)]
struct GzipHeader {
    field: Field,
    /// Bytes of the field so far.
    size: usize,
    flags: u8,
    extra_size: usize,
}

enum HeaderEnd {
    Incomplete,
    /// The bytes are no header. The bytes that were read before this one are the beginning of [`GZIP_MAGIC`].
    Invalid,
    Complete,
}

impl GzipHeader {
    /// Takes bytes of the header from the front of the input.
    fn read(&mut self, input: &mut &[u8]) -> HeaderEnd {
        loop {
            let has = |flag: u8| self.flags & flag != 0;
            // File name and comment are texts that end with a zero byte.
            let (size, next) = match self.field {
                Field::Fixed => (Some(10), Some(Field::ExtraSize)),
                Field::ExtraSize => (Some(if has(4) { 2 } else { 0 }), Some(Field::Extra)),
                Field::Extra => (Some(self.extra_size), Some(Field::Name)),
                Field::Name => ((!has(8)).then_some(0), Some(Field::Comment)),
                Field::Comment => ((!has(16)).then_some(0), Some(Field::Check)),
                Field::Check => (Some(if has(2) { 2 } else { 0 }), None),
            };
            let mut is_end = size == Some(self.size);
            if !is_end {
                let Some((&byte, rest)) = input.split_first() else {
                    return HeaderEnd::Incomplete;
                };
                match (self.field, self.size) {
                    (Field::Fixed, at @ 0..=2) if byte != GZIP_MAGIC[at] => return HeaderEnd::Invalid,
                    (Field::Fixed, 3) => self.flags = byte,
                    (Field::ExtraSize, 0) => self.extra_size = usize::from(byte),
                    (Field::ExtraSize, _) => self.extra_size |= usize::from(byte) << 8,
                    _ => {}
                }
                *input = rest;
                self.size += 1;
                is_end = size.is_none() && byte == 0;
            }
            if is_end {
                self.size = 0;
                match next {
                    Some(next) => self.field = next,
                    None => return HeaderEnd::Complete,
                }
            }
        }
    }
}

/// Decodes the content codings of one body.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    layers: Vec<Layer>,
    /// Size of the compressed body so far, in bytes.
    input: u64,
    is_stopped: bool,
}

heap!(Decoder { layers });

impl Decoder {
    /// Returns a decoder for codings in the order in which they were applied.
    pub(super) fn new(codings: &[Coding]) -> Decoder {
        Decoder {
            layers: codings.iter().rev().map(|&coding| Layer::new(coding)).collect(),
            input: 0,
            is_stopped: false,
        }
    }

    /// Returns true once compressed data followed the end of those of a body whose coding is "deflate": some recipients join
    /// both, and others stop at the end.
    pub(super) fn has_joined(&self) -> bool {
        self.layers.iter().any(|layer| layer.is_joined)
    }

    /// Decodes the next bytes of the body. Output beyond `room` bytes is a bomb. After an error, the output so far is
    /// valid, and later bytes are not decoded: they are discarded, or pass unchanged if the body has no gzip header.
    pub(super) fn decode(&mut self, input: &[u8], room: usize) -> (Vec<u8>, Option<DecodeError>) {
        if self.is_stopped {
            return (Vec::new(), None);
        }
        self.input += input.len() as u64;
        let limits = Limits {
            room,
            total: BOMB_SIZE.max(self.input.saturating_mul(BOMB_RATIO)),
        };
        let mut data = Cow::Borrowed(input);
        let mut problem = None;
        for layer in &mut self.layers {
            let mut out = Vec::new();
            if let Err(error) = layer.decode(&data, &mut out, limits) {
                // A later layer cannot hide a bomb, whatever it makes of the output.
                self.is_stopped |= error == DecodeError::Bomb;
                problem = problem
                    .filter(|earlier| *earlier == DecodeError::Bomb)
                    .or(Some(error));
            }
            data = Cow::Owned(out);
        }
        (data.into_owned(), problem)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn decoded(codings: &[Coding], data: &[u8], step: usize) -> (Vec<u8>, Vec<DecodeError>) {
        let mut decoder = Decoder::new(codings);
        let (mut out, mut errors) = (Vec::new(), Vec::new());
        for chunk in data.chunks(step) {
            let (bytes, error) = decoder.decode(chunk, 1 << 20);
            out.extend(bytes);
            errors.extend(error);
        }
        (out, errors)
    }

    #[test]
    fn gzip_and_deflate_are_undone_in_any_segmentation() {
        let text: Vec<u8> = (0..20_000u32).map(|number| (number % 251) as u8).collect();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(&text).unwrap();
        let zlib = zlib.finish().unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        raw.write_all(&text).unwrap();
        let raw = raw.finish().unwrap();
        for step in [1, 7, 1_000_000] {
            assert_eq!(
                decoded(&[Coding::Gzip], &gzip(&text), step),
                (text.clone(), vec![])
            );
            assert_eq!(decoded(&[Coding::Deflate], &zlib, step), (text.clone(), vec![]));
            assert_eq!(decoded(&[Coding::Deflate], &raw, step), (text.clone(), vec![]));
            assert_eq!(
                decoded(&[Coding::Gzip, Coding::Gzip], &gzip(&gzip(&text)), step),
                (text.clone(), vec![])
            );
        }
    }

    #[test]
    fn all_members_of_gzip_are_undone_in_any_segmentation() {
        let data = [gzip(b"harmless "), gzip(b""), gzip(b"attack")].concat();
        let padded = [&data[..], &[0; 9]].concat();
        let twice = [gzip(&data[..30]), gzip(&data[30..])].concat();
        for step in [1, 7, 1_000_000] {
            let text = b"harmless attack".to_vec();
            assert_eq!(decoded(&[Coding::Gzip], &data, step), (text.clone(), vec![]));
            assert_eq!(decoded(&[Coding::Gzip], &padded, step), (text.clone(), vec![]));
            assert_eq!(decoded(&[Coding::Gzip; 2], &twice, step), (text, vec![]));
        }
    }

    #[test]
    fn a_long_header_of_gzip_is_skipped_in_any_segmentation() {
        let plain = gzip(b"attack");
        let mut data = vec![0x1f, 0x8b, 8, 4 | 8 | 16 | 2, 0, 0, 0, 0, 0, 3, 0xff, 0xff];
        data.resize(data.len() + 0xffff, 0);
        data.resize(data.len() + 5000, b'n');
        data.extend_from_slice(b"\0comment\0cc");
        data.extend_from_slice(&plain[10..]);
        for step in [1, 1000, 16_384, 1_000_000] {
            assert_eq!(
                decoded(&[Coding::Gzip], &data, step),
                (b"attack".to_vec(), vec![])
            );
        }
    }

    #[test]
    fn deflate_behind_the_end_of_deflate_is_joined_and_noted_in_any_segmentation() {
        let deflate = |text: &[u8]| {
            let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            raw.write_all(text).unwrap();
            let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
            zlib.write_all(text).unwrap();
            [raw.finish().unwrap(), zlib.finish().unwrap()]
        };
        for step in [1, 2, 3, 7, 1000] {
            for (first, second) in deflate(b"att").iter().zip(&deflate(b"ack")) {
                for (behind, expected) in [
                    (&second[..], (&b"attack"[..], true)),
                    (&[], (b"att", false)),
                    (b"\r\n", (b"att", false)),
                    (&[0xff; 40], (b"att", false)),
                ] {
                    let mut decoder = Decoder::new(&[Coding::Deflate]);
                    let mut out = Vec::new();
                    for chunk in [first, behind].concat().chunks(step) {
                        let (bytes, error) = decoder.decode(chunk, 1 << 20);
                        out.extend(bytes);
                        assert_eq!(error, None);
                    }
                    assert_eq!((&out[..], decoder.has_joined()), expected, "{step}");
                }
            }
        }
    }

    #[test]
    fn a_body_that_is_not_compressed_passes_with_an_error() {
        let (out, errors) = decoded(&[Coding::Gzip], b"plain text", 3);
        assert_eq!(out, b"plain text");
        assert_eq!(errors, [DecodeError::Invalid]);
    }

    #[test]
    fn an_invalid_layer_does_not_hide_the_bomb_of_an_earlier_one() {
        let bomb = gzip(&vec![b'x'; 16 << 20]);
        let mut decoder = Decoder::new(&[Coding::Gzip, Coding::Gzip]);
        assert_eq!(decoder.decode(&bomb, 1 << 20).1, Some(DecodeError::Bomb));
        assert_eq!(decoder.decode(b"more", 1 << 20), (Vec::new(), None));
    }

    #[test]
    fn a_bomb_stops_the_decoder_in_any_segmentation() {
        let zeros = gzip(&gzip(&vec![0; 16 << 20]));
        let members = gzip(&gzip(b"").repeat(100_000));
        for bomb in [zeros, members] {
            for step in [1, 1024] {
                let (out, errors) = decoded(&[Coding::Gzip, Coding::Gzip], &bomb, step);
                assert!(errors.contains(&DecodeError::Bomb), "{step}: {errors:?}");
                assert!(out.len() < 4 << 20, "{step}: {}", out.len());
            }
        }
    }

    #[test]
    fn output_beyond_the_room_is_a_bomb_even_if_the_stream_ends() {
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        raw.write_all(&[0; 100]).unwrap();
        let raw = raw.finish().unwrap();
        for (room, wanted) in [(99, Err(DecodeError::Bomb)), (100, Ok(Some(raw.len())))] {
            let limits = Limits { room, total: 1000 };
            let mut inflate = Decompress::new(false);
            let ended = inflate_all(&mut inflate, &raw, &mut Vec::new(), &mut 0, limits);
            assert_eq!(ended, wanted, "{room}");
        }
    }

    #[test]
    fn data_of_one_layer_are_no_bomb_in_pieces_of_usual_size() {
        let members = gzip(b"").repeat(10_000);
        assert_eq!(decoded(&[Coding::Gzip], &members, 1460), (vec![], vec![]));
        let zeros = gzip(&vec![0; 2 << 20]);
        let (out, errors) = decoded(&[Coding::Gzip], &zeros, 1);
        assert_eq!((out.len(), errors), (2 << 20, vec![]));
    }
}
