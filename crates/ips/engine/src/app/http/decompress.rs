//! Decompression of HTTP bodies: gzip and deflate, two layers, with bounded output.

use crate::app::heap::{Heap, heap};
use flate2::{Decompress, FlushDecompress, Status};

/// Largest number of content codings that are undone.
pub(super) const LAYERS: usize = 2;
/// Output after which the ratio of output to input is checked (1 MiB).
const BOMB_SIZE: u64 = 1 << 20;
/// Ratio of output to input above which a body is a decompression bomb.
const BOMB_RATIO: u64 = 2048;
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

#[derive(Debug)]
enum State {
    /// The header is not complete.
    Header(Vec<u8>),
    /// Compressed data.
    Data(Box<Decompress>),
    /// The data are complete.
    Ended,
    /// The data do not have the format of the coding and pass unchanged.
    Verbatim,
}

/// Memory of the decompression of one layer in bytes: a window of 32 KiB and the tables of codes.
const INFLATE_SIZE: usize = 48 << 10;

impl Heap for State {
    fn heap(&self) -> usize {
        match self {
            State::Header(bytes) => bytes.heap(),
            State::Data(_) => INFLATE_SIZE,
            State::Ended | State::Verbatim => 0,
        }
    }
}

/// Decodes one content coding.
#[derive(Debug)]
struct Layer {
    coding: Coding,
    state: State,
}

heap!(Layer { state });

/// Largest size of a gzip header, in bytes; its end is searched within this size.
const GZIP_HEADER: usize = 4096;

impl Layer {
    fn new(coding: Coding) -> Layer {
        Layer {
            coding,
            state: State::Header(Vec::new()),
        }
    }

    /// Decodes `input` into `out`, at most `room` bytes.
    fn decode(&mut self, input: &[u8], out: &mut Vec<u8>, room: usize) -> Result<(), DecodeError> {
        let mut owned = Vec::new();
        let mut input = input;
        if let State::Header(seen) = &mut self.state {
            seen.extend_from_slice(input);
            match header(self.coding, seen) {
                Header::Incomplete if seen.len() < GZIP_HEADER => return Ok(()),
                Header::Found {
                    size,
                    has_zlib_header,
                } => {
                    owned.extend_from_slice(&seen[size..]);
                    self.state = State::Data(Box::new(Decompress::new(has_zlib_header)));
                }
                Header::Incomplete | Header::Invalid => {
                    owned = core::mem::take(seen);
                    self.state = State::Verbatim;
                    out.extend_from_slice(&owned[..owned.len().min(room)]);
                    return Err(DecodeError::Invalid);
                }
            }
            input = &owned;
        }
        match &mut self.state {
            State::Header(_) | State::Ended => Ok(()),
            State::Verbatim => {
                out.extend_from_slice(&input[..input.len().min(room)]);
                Ok(())
            }
            State::Data(inflate) => {
                let result = inflate_all(inflate, input, out, room);
                match result {
                    Ok(true) | Err(_) => self.state = State::Ended,
                    Ok(false) => {}
                }
                result.map(|_| ())
            }
        }
    }
}

/// Inflates all of the input, and returns true at the end of the compressed data.
fn inflate_all(
    inflate: &mut Decompress,
    input: &[u8],
    out: &mut Vec<u8>,
    room: usize,
) -> Result<bool, DecodeError> {
    let mut at = 0;
    let mut step = [0; STEP];
    loop {
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(&input[at..], &mut step, FlushDecompress::None);
        let consumed = usize::try_from(inflate.total_in() - before_in).unwrap_or(0);
        let made = usize::try_from(inflate.total_out() - before_out).unwrap_or(0);
        at += consumed;
        let taken = made.min(room.saturating_sub(out.len()));
        out.extend_from_slice(&step[..taken]);
        if inflate.total_out() > BOMB_SIZE && inflate.total_out() / BOMB_RATIO > inflate.total_in() {
            return Err(DecodeError::Bomb);
        }
        match status {
            Err(_) => return Err(DecodeError::Invalid),
            Ok(Status::StreamEnd) => return Ok(true),
            Ok(_) if taken < made => return Err(DecodeError::Bomb),
            // If the output filled the buffer, more output may follow.
            Ok(_) if at >= input.len() && made < STEP => return Ok(false),
            Ok(_) if consumed == 0 && made == 0 => return Ok(false),
            Ok(_) => {}
        }
    }
}

enum Header {
    Incomplete,
    Invalid,
    Found { size: usize, has_zlib_header: bool },
}

/// Returns the size of the header at the front of compressed data.
fn header(coding: Coding, data: &[u8]) -> Header {
    match coding {
        Coding::Gzip => gzip_header(data),
        Coding::Deflate => match data {
            [] | [_] => Header::Incomplete,
            [first, second, ..] => {
                let check = u16::from(*first) << 8 | u16::from(*second);
                Header::Found {
                    size: 0,
                    has_zlib_header: first & 0x0f == 8 && check % 31 == 0,
                }
            }
        },
    }
}

/// Returns the size of a gzip header (RFC 1952, section 2.3).
fn gzip_header(data: &[u8]) -> Header {
    const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
    let seen = data.len().min(MAGIC.len());
    if data[..seen] != MAGIC[..seen] {
        return Header::Invalid;
    }
    let Some(&flags) = data.get(3) else {
        return Header::Incomplete;
    };
    let mut size = 10;
    if flags & 4 != 0 {
        let Some(extra) = data.get(10..12) else {
            return Header::Incomplete;
        };
        size += 2 + usize::from(u16::from_le_bytes([extra[0], extra[1]]));
    }
    // File name and comment are texts that end with a zero byte.
    for flag in [8, 16] {
        if flags & flag != 0 {
            let Some(rest) = data.get(size..) else {
                return Header::Incomplete;
            };
            let Some(end) = rest.iter().position(|&byte| byte == 0) else {
                return Header::Incomplete;
            };
            size += end + 1;
        }
    }
    if flags & 2 != 0 {
        size += 2;
    }
    if data.len() < size {
        Header::Incomplete
    } else {
        Header::Found {
            size,
            has_zlib_header: false,
        }
    }
}

/// Decodes the content codings of one body.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    layers: Vec<Layer>,
    is_stopped: bool,
}

heap!(Decoder { layers });

impl Decoder {
    /// Returns a decoder for codings in the order in which they were applied.
    pub(super) fn new(codings: &[Coding]) -> Decoder {
        Decoder {
            layers: codings.iter().rev().map(|&coding| Layer::new(coding)).collect(),
            is_stopped: false,
        }
    }

    /// Decodes the next bytes of the body. Output beyond `room` bytes is a bomb. After an error the output so far is
    /// valid and nothing more is decoded.
    pub(super) fn decode(&mut self, input: &[u8], room: usize) -> (Vec<u8>, Option<DecodeError>) {
        if self.is_stopped {
            return (Vec::new(), None);
        }
        let mut data = input.to_vec();
        let mut problem = None;
        for layer in &mut self.layers {
            let mut out = Vec::new();
            if let Err(error) = layer.decode(&data, &mut out, room) {
                problem = Some(error);
                self.is_stopped = error == DecodeError::Bomb;
            }
            data = out;
        }
        (data, problem)
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
    fn a_body_that_is_not_compressed_passes_with_an_error() {
        let (out, errors) = decoded(&[Coding::Gzip], b"plain text", 3);
        assert_eq!(out, b"plain text");
        assert_eq!(errors, [DecodeError::Invalid]);
    }

    #[test]
    fn a_bomb_stops_the_decoder() {
        let bomb = gzip(&gzip(&vec![0; 64 << 20]));
        let (out, errors) = decoded(&[Coding::Gzip, Coding::Gzip], &bomb, 1024);
        assert!(errors.contains(&DecodeError::Bomb), "{errors:?}");
        assert!(out.len() < 16 << 20, "{}", out.len());
    }
}
