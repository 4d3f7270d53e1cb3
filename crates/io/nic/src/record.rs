//! Records that drive a simulator on its standard input, and those that it writes to its standard output.
//!
//! ```text
//! record: length u32 (of what follows) | type u8 | body
//!
//! input                                             output
//!  0x01 FRAME    port u8, flags u8, stall u16,      0x81 COMPLETION  queue u8, completion (32 bytes)
//!                bytes of the frame without FCS     0x82 DROP        counter u8, queue u8
//!  0x02 COMMAND  stall u16, command (64 bytes)      0x83 COMMAND     completion (16 bytes)
//!  0x03 BUFFERS  queue u8, numbers u16 each         0x84 COUNT       counter u8, queue u8, value u64
//!  0x04 TAKE     queue u8, number u16               0x85 SYNCED      number u32
//!  0x05 STALL    queue u8, cycles u16
//!  0x06 FLIP     way u8, row u32, bit u16
//!  0x07 CONFIG   offset u16, value u32
//!  0x08 END
//!  0x09 SYNC     number u32
//! ```
//! All integers are little endian. The order of input is the order in which the device sees it.
//! * `stall` is the number of cycles that the input is idle before the record. In FRAME, bit 15 asks for random idle cycles
//!   between beats, and bit 14 for a last beat without bytes where the one before it is full, as a MAC gives it that cuts the
//!   FCS off. It changes no output.
//! * Bit 0 of the flags of a FRAME says that its FCS is wrong.
//! * BUFFERS posts free buffers to a queue, TAKE frees completions of a queue (the driver has read them), and FLIP inverts
//!   one bit of a row of the exact table. They take effect when everything before them has been put out.
//! * STALL lets a queue accept no output for some cycles. It changes no output, only its time.
//! * CONFIG writes a register. CONTROL.enable is written last, before the first FRAME. A device that is disabled loses what is
//!   inside, with its tables, counters, buffers and completions.
//! * END asks for all COUNT records, and ends the program.
//! * SYNC asks for SYNCED with its number, behind everything that the records before it cause.
//!
//! Completions have phase 0 and time 0. Records of one queue are in order, and so are those of commands; between queues and
//! commands any order is right. A queue of the simulator has [`COMPLETIONS`] completions, of which
//! [`FENCE_RESERVE`](crate::FENCE_RESERVE) are for fences, and at most [`COMPLETIONS`] free buffers; more are ignored.

use crate::completion;
use crate::register::by_name;
use crate::{command, command_completion};

/// Number of completions of each queue of a simulator.
pub const COMPLETIONS: usize = 256;
/// Longest record in bytes, with its type.
pub const SIZE_MAX: usize = 16 * 1024;

/// A record of input.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the module's drawing documents each")]
pub enum Input {
    Frame {
        port: u8,
        bad_fcs: bool,
        stall: u16,
        bytes: Vec<u8>,
    },
    Command {
        stall: u16,
        bytes: [u8; command::SIZE],
    },
    Buffers {
        queue: u8,
        buffers: Vec<u16>,
    },
    Take {
        queue: u8,
        number: u16,
    },
    Stall {
        queue: u8,
        cycles: u16,
    },
    Flip {
        way: u8,
        row: u32,
        bit: u16,
    },
    Config {
        offset: u16,
        value: u32,
    },
    End,
    Sync {
        number: u32,
    },
}

/// A record of output.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the module's drawing documents each")]
pub enum Output {
    Completion {
        queue: u8,
        bytes: [u8; completion::SIZE],
    },
    Drop {
        counter: u8,
        queue: u8,
    },
    Command {
        bytes: [u8; command_completion::SIZE],
    },
    Count {
        counter: u8,
        queue: u8,
        value: u64,
    },
    Synced {
        number: u32,
    },
}

/// The reason why bytes are no record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The length is 0 or too large.
    #[error(
        "a record has length {0}, expected 1 to {SIZE_MAX}: the simulator wrote something else to its standard output"
    )]
    Length(u32),
    /// The type is unknown, or the body does not have the size of the type.
    #[error("a record of type {kind:#04x} has a body of {size} bytes, which no such record has")]
    Body {
        kind: u8,
        /// The size of the body in bytes.
        size: usize,
    },
}

fn emit(kind: u8, body: &[&[u8]], out: &mut Vec<u8>) {
    let size = 1 + body.iter().map(|part| part.len()).sum::<usize>();
    out.extend((size as u32).to_le_bytes());
    out.push(kind);
    body.iter().for_each(|part| out.extend_from_slice(part));
}

/// A record's type, its body, and the size of the whole in bytes.
type Split<'a> = (u8, &'a [u8], usize);

/// Returns the record at the front of `bytes`; `None` if it is not there in full.
///
/// # Errors
/// Returns [`RecordError::Length`].
fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, RecordError> {
    let Some(length) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length);
    if length == 0 || length as usize > SIZE_MAX {
        return Err(RecordError::Length(length));
    }
    let size = 4 + length as usize;
    Ok(bytes.get(4..size).and_then(|record| {
        let (kind, body) = record.split_first()?;
        Some((*kind, body, size))
    }))
}

impl Input {
    /// Returns the record that writes CONTROL: 1 enables the device, 0 resets it.
    #[must_use]
    pub fn control(value: u32) -> Input {
        let offset = by_name("CONTROL").map_or(0, |register| register.offset as u16);
        Input::Config { offset, value }
    }

    /// Appends the bytes of the record.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Input::Frame {
                port,
                bad_fcs,
                stall,
                bytes,
            } => {
                emit(
                    0x01,
                    &[&[*port, (*bad_fcs).into()], &stall.to_le_bytes(), bytes],
                    out,
                );
            }
            Input::Command { stall, bytes } => emit(0x02, &[&stall.to_le_bytes(), bytes], out),
            Input::Buffers { queue, buffers } => {
                let buffers: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.to_le_bytes()).collect();
                emit(0x03, &[&[*queue], &buffers], out);
            }
            Input::Take { queue, number } => emit(0x04, &[&[*queue], &number.to_le_bytes()], out),
            Input::Stall { queue, cycles } => emit(0x05, &[&[*queue], &cycles.to_le_bytes()], out),
            Input::Flip { way, row, bit } => {
                emit(0x06, &[&[*way], &row.to_le_bytes(), &bit.to_le_bytes()], out);
            }
            Input::Config { offset, value } => {
                emit(0x07, &[&offset.to_le_bytes(), &value.to_le_bytes()], out);
            }
            Input::End => emit(0x08, &[], out),
            Input::Sync { number } => emit(0x09, &[&number.to_le_bytes()], out),
        }
    }

    /// Returns the record at the front of `bytes` and its size; `None` if it is not there in full.
    ///
    /// # Errors
    /// Returns [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Option<(Input, usize)>, RecordError> {
        let Some((kind, body, size)) = split(bytes)? else {
            return Ok(None);
        };
        let half = |at: usize| u16::from_le_bytes([body[at], body[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let record = match (kind, body.len()) {
            (0x01, 4..) => Input::Frame {
                port: body[0],
                bad_fcs: body[1] & 1 == 1,
                stall: half(2),
                bytes: body[4..].to_vec(),
            },
            (0x02, 66) => {
                let mut bytes = [0; command::SIZE];
                bytes.copy_from_slice(&body[2..]);
                Input::Command {
                    stall: half(0),
                    bytes,
                }
            }
            (0x03, size @ 1..) if size % 2 == 1 => {
                let buffers = body[1..]
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|bytes| u16::from_le_bytes(*bytes));
                Input::Buffers {
                    queue: body[0],
                    buffers: buffers.collect(),
                }
            }
            (0x04, 3) => Input::Take {
                queue: body[0],
                number: half(1),
            },
            (0x05, 3) => Input::Stall {
                queue: body[0],
                cycles: half(1),
            },
            (0x06, 7) => Input::Flip {
                way: body[0],
                row: word(1),
                bit: half(5),
            },
            (0x07, 6) => Input::Config {
                offset: half(0),
                value: word(2),
            },
            (0x08, 0) => Input::End,
            (0x09, 4) => Input::Sync { number: word(0) },
            (kind, size) => return Err(RecordError::Body { kind, size }),
        };
        Ok(Some((record, size)))
    }
}

impl Output {
    /// Appends the bytes of the record.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Output::Completion { queue, bytes } => emit(0x81, &[&[*queue], bytes], out),
            Output::Drop { counter, queue } => emit(0x82, &[&[*counter, *queue]], out),
            Output::Command { bytes } => emit(0x83, &[bytes], out),
            Output::Count {
                counter,
                queue,
                value,
            } => emit(0x84, &[&[*counter, *queue], &value.to_le_bytes()], out),
            Output::Synced { number } => emit(0x85, &[&number.to_le_bytes()], out),
        }
    }

    /// Returns the record at the front of `bytes` and its size; `None` if it is not there in full.
    ///
    /// # Errors
    /// Returns [`RecordError`].
    pub fn parse(bytes: &[u8]) -> Result<Option<(Output, usize)>, RecordError> {
        let Some((kind, body, size)) = split(bytes)? else {
            return Ok(None);
        };
        let record = match (kind, body.len()) {
            (0x81, 33) => {
                let mut bytes = [0; completion::SIZE];
                bytes.copy_from_slice(&body[1..]);
                Output::Completion {
                    queue: body[0],
                    bytes,
                }
            }
            (0x82, 2) => Output::Drop {
                counter: body[0],
                queue: body[1],
            },
            (0x83, 16) => {
                let mut bytes = [0; command_completion::SIZE];
                bytes.copy_from_slice(body);
                Output::Command { bytes }
            }
            (0x84, 10) => {
                let mut value = [0; 8];
                value.copy_from_slice(&body[2..]);
                Output::Count {
                    counter: body[0],
                    queue: body[1],
                    value: u64::from_le_bytes(value),
                }
            }
            (0x85, 4) => Output::Synced {
                number: u32::from_le_bytes([body[0], body[1], body[2], body[3]]),
            },
            (kind, size) => return Err(RecordError::Body { kind, size }),
        };
        Ok(Some((record, size)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_their_bytes_and_wait_for_their_end() {
        let all = [
            Input::Frame {
                port: 3,
                bad_fcs: true,
                stall: 0x8002,
                bytes: vec![7; 60],
            },
            Input::Command {
                stall: 1,
                bytes: [9; command::SIZE],
            },
            Input::Buffers {
                queue: 31,
                buffers: vec![1, 0x203],
            },
            Input::Take {
                queue: 1,
                number: 300,
            },
            Input::Stall { queue: 2, cycles: 77 },
            Input::Flip {
                way: 1,
                row: 70_000,
                bit: 575,
            },
            Input::Config {
                offset: 0x90,
                value: 0x1_8100,
            },
            Input::End,
            Input::Sync { number: 0x0102_0304 },
        ];
        for record in all {
            let mut bytes = Vec::new();
            record.emit(&mut bytes);
            for size in 0..bytes.len() {
                assert_eq!(Input::parse(&bytes[..size]), Ok(None));
            }
            let size = bytes.len();
            bytes.push(0xaa);
            assert_eq!(Input::parse(&bytes), Ok(Some((record, size))));
        }
        let all = [
            Output::Completion {
                queue: 4,
                bytes: [1; 32],
            },
            Output::Drop { counter: 6, queue: 4 },
            Output::Command { bytes: [2; 16] },
            Output::Count {
                counter: 0,
                queue: 0,
                value: u64::MAX,
            },
            Output::Synced { number: 7 },
        ];
        for record in all {
            let mut bytes = Vec::new();
            record.emit(&mut bytes);
            let size = bytes.len();
            assert_eq!(Output::parse(&bytes), Ok(Some((record, size))));
        }
        assert_eq!(Output::parse(&[0, 0, 0, 0]), Err(RecordError::Length(0)));
        assert!(matches!(
            Input::parse(&[2, 0, 0, 0, 9, 9]),
            Err(RecordError::Body { kind: 9, size: 1 })
        ));
    }
}
