//! Messages that are compressed by permessage-deflate (RFC 7692, section 7): raw deflate, whose window may go on from a message to
//! the next one of its direction.

use flate2::{Decompress, FlushDecompress, Status};

use crate::app::heap::Heap;

/// The bytes that a sender removes from the end of a message (section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// Memory of a decompressor in bytes: a window of 32 KiB and the tables of codes.
const INFLATE_SIZE: usize = 48 << 10;
/// Largest size in bytes to which a message is decompressed (1 MiB). Bytes behind those that are kept fill the window only.
const MESSAGE_SIZE: usize = 1 << 20;
/// Bytes for which each start of compressed data counts (32 KiB): the decompressor clears its window.
const BEGIN_SIZE: usize = 32 << 10;
/// Size of the buffer into which one step of decompression writes, in bytes.
const STEP: usize = 8192;

/// The decompressor of a direction; `None` before the first message, and when the window is lost.
#[derive(Debug, Default)]
pub(super) struct Inflater(Option<Box<Decompress>>);

impl Heap for Inflater {
    fn heap(&self) -> usize {
        self.0.as_ref().map_or(0, |_| INFLATE_SIZE)
    }
}

/// A message that was decompressed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Inflated {
    /// The first bytes of the message.
    pub(super) bytes: Vec<u8>,
    /// True if the message has more bytes.
    pub(super) has_more: bool,
}

impl Inflater {
    /// Decompresses a message, of which at most `kept` bytes are returned; `None` if it is not compressed. Without its end
    /// (`is_whole`), the window is lost: later messages that need it cannot be read.
    pub(super) fn message(&mut self, message: &[u8], is_whole: bool, kept: usize) -> Option<Inflated> {
        let mut inflate = self.0.take().unwrap_or_else(|| Box::new(Decompress::new(false)));
        let tail: &[u8] = if is_whole { &TAIL } else { &[] };
        let mut out = Inflated::default();
        let mut size = 0;
        let result = [message, tail]
            .into_iter()
            .try_for_each(|input| inflate_all(&mut inflate, input, kept, &mut out, &mut size));
        if result.is_ok() && is_whole {
            self.0 = Some(inflate);
        }
        out.has_more |= result == Err(Problem::TooLong);
        let is_other = result == Err(Problem::Invalid) && out.bytes.is_empty();
        (!is_other).then_some(out)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Invalid,
    TooLong,
}

/// Inflates all of the input. Keeps up to `kept` bytes in `out`, and counts all in `size`, with [`BEGIN_SIZE`] for each start.
fn inflate_all(
    inflate: &mut Decompress,
    mut input: &[u8],
    kept: usize,
    out: &mut Inflated,
    size: &mut usize,
) -> Result<(), Problem> {
    let mut step = [0; STEP];
    loop {
        let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
        let status = inflate.decompress(input, &mut step, FlushDecompress::None);
        let consumed = usize::try_from(inflate.total_in() - before_in).unwrap_or(0);
        let made = usize::try_from(inflate.total_out() - before_out).unwrap_or(0);
        input = &input[consumed..];
        let taken = made.min(kept.saturating_sub(out.bytes.len()));
        out.bytes.extend_from_slice(&step[..taken]);
        out.has_more |= taken < made;
        *size += made;
        if *size > MESSAGE_SIZE {
            return Err(Problem::TooLong);
        }
        match status {
            Err(_) => return Err(Problem::Invalid),
            // A final block ends the data; an empty one follows (section 7.2.3.4).
            Ok(Status::StreamEnd) => {
                *size += BEGIN_SIZE;
                inflate.reset(false);
                if input.is_empty() {
                    return Ok(());
                }
            }
            // If the output filled the buffer, more output may follow.
            Ok(_) if input.is_empty() && made < STEP => return Ok(()),
            Ok(_) if consumed == 0 && made == 0 => return Ok(()),
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Option<Inflated> {
        Some(Inflated {
            bytes: bytes.to_vec(),
            has_more: false,
        })
    }

    /// Compresses messages one after the other, with one window.
    fn compressed(messages: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut compress = flate2::Compress::new(flate2::Compression::default(), false);
        let one = |message: &&[u8]| {
            let mut out = Vec::with_capacity(message.len() + 1024);
            compress
                .compress_vec(message, &mut out, flate2::FlushCompress::Sync)
                .unwrap();
            assert!(out.ends_with(&TAIL));
            out.truncate(out.len() - TAIL.len());
            out
        };
        messages.iter().map(one).collect()
    }

    #[test]
    fn the_examples_of_the_specification_are_read() {
        // Sections 7.2.3.1, 7.2.3.2 (the window goes on), 7.2.3.3, 7.2.3.4 (a final block) and 7.2.3.5 (two blocks).
        let messages: [&[u8]; 5] = [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
            &[0xf2, 0x00, 0x11, 0x00, 0x00],
            &[0x00, 0x05, 0x00, 0xfa, 0xff, b'H', b'e', b'l', b'l', b'o', 0x00],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            &[
                0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00,
            ],
        ];
        let mut inflater = Inflater::default();
        for message in messages {
            assert_eq!(
                inflater.message(message, true, 100),
                whole(b"Hello"),
                "{message:x?}"
            );
        }
        assert_eq!(inflater.message(&[0], true, 100), whole(b""));
    }

    #[test]
    fn bytes_that_are_not_compressed_are_none_and_the_next_message_is_read() {
        let mut inflater = Inflater::default();
        assert_eq!(inflater.message(b"\xffplain text", true, 100), None);
        let [message] = &compressed(&[b"word"])[..] else {
            panic!();
        };
        assert_eq!(inflater.message(message, true, 100), whole(b"word"));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_window_goes_on_behind_it() {
        let noise: Vec<u8> = (0..40_000u32).map(|at| ((at * at) >> 7) as u8).collect();
        let messages = compressed(&[&noise, &noise[10_000..]]);
        let mut inflater = Inflater::default();
        let cut = Some(Inflated {
            bytes: noise[..100].to_vec(),
            has_more: true,
        });
        assert_eq!(inflater.message(&messages[0], true, 100), cut);
        assert_eq!(
            inflater.message(&messages[1], true, 1 << 20),
            whole(&noise[10_000..])
        );
        assert!(inflater.heap() > 32 << 10);
    }

    #[test]
    fn a_message_without_its_end_or_of_any_size_ends_the_window() {
        let zeros = vec![0; 8 << 20];
        let messages = compressed(&[b"abcdefgh", &zeros]);
        let mut inflater = Inflater::default();
        let part = inflater.message(&messages[0][..5], false, 100);
        assert!(part.is_some_and(|part| b"abcdefgh".starts_with(&part.bytes)));
        assert_eq!(inflater.heap(), 0);
        let bomb = inflater.message(&messages[1], true, 100).unwrap();
        assert_eq!((bomb.bytes, bomb.has_more), (vec![0; 100], true));
        assert_eq!(inflater.heap(), 0);
        // Streams of two bytes each: every start counts.
        let starts = inflater.message(&[3, 0].repeat(1000), true, 100);
        assert_eq!((starts.unwrap().bytes.len(), inflater.heap()), (0, 0));
    }
}
