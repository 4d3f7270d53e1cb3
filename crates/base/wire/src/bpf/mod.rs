//! Classic BPF: the filter programs that libpcap compiles its expressions to (McCanne and Jacobson, "The BSD Packet
//! Filter", USENIX Winter 1993).
//!
//! A [`Program`] is verified when it is parsed. A verified program runs without checks and always ends: jumps
//! go forward only and stay inside the program, scratch memory is addressed by constants in range, constants
//! neither divide by zero nor shift too far, and the last instruction returns. A load beyond the end of the
//! packet rejects the packet, as in libpcap.
//!
//! The machine has an accumulator A, an index register X and sixteen words of scratch memory M, all zero at the
//! start. An instruction is 64 bits:
//!
//! ```text
//!   63            48 47     40 39     32 31                             0
//!  +----------------+---------+---------+-------------------------------+
//!  |      code      |   jt    |   jf    |               k               |
//!  +----------------+---------+---------+-------------------------------+
//!   code:  15 .. 8 = 0,  7 .. 3 = mode, size, operation, source,  2 .. 0 = class
//! ```

mod instruction;
mod text;
mod verify;

use instruction::{Alu, MEMORY_LEN, Op, Size, Source, Test};
pub use instruction::{INSTRUCTIONS_MAX, Instruction};
pub use text::ParseError;
pub use verify::VerifyError;

/// A verified filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program(Box<[Op]>);

impl Program {
    /// Verifies instructions.
    ///
    /// # Errors
    /// [`VerifyError`] for the first invalid instruction.
    pub fn new(instructions: &[Instruction]) -> Result<Program, VerifyError> {
        verify::verify(instructions).map(Program)
    }

    /// Returns true if the filter accepts a packet of `size` bytes whose first bytes are `head`. A load beyond `head`
    /// rejects the packet.
    pub fn accepts(&self, head: &[u8], size: usize) -> bool {
        self.run(head, size) != 0
    }

    /// Returns the number of bytes of the packet that the filter accepts; 0 if it rejects the packet. Executes each
    /// instruction at most once.
    pub fn run(&self, head: &[u8], size: usize) -> u32 {
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY_LEN]);
        let mut next = 0;
        // Verification keeps `next` and memory indices in range; this handles the cases that the compiler cannot
        // exclude.
        while let Some(op) = self.0.get(next) {
            next += 1;
            match *op {
                Op::LoadAbsolute(bytes, k) => match load(head, bytes, k) {
                    Some(value) => a = value,
                    None => return 0,
                },
                Op::LoadIndirect(bytes, k) => match x.checked_add(k).and_then(|at| load(head, bytes, at)) {
                    Some(value) => a = value,
                    None => return 0,
                },
                Op::LoadImmediate(k) => a = k,
                Op::LoadMemory(at) => a = memory.get(at).copied().unwrap_or(0),
                Op::LoadLength => a = size,
                Op::LoadXImmediate(k) => x = k,
                Op::LoadXMemory(at) => x = memory.get(at).copied().unwrap_or(0),
                Op::LoadXLength => x = size,
                Op::LoadXHeaderSize(k) => match load(head, Size::Byte, k) {
                    Some(byte) => x = (byte & 0xf) << 2,
                    None => return 0,
                },
                Op::Store(at) => store(&mut memory, at, a),
                Op::StoreX(at) => store(&mut memory, at, x),
                Op::Alu(alu, source) => match alu.of(a, operand(source, x)) {
                    Some(value) => a = value,
                    None => return 0,
                },
                Op::Negate => a = a.wrapping_neg(),
                Op::Jump(over) => next += over,
                Op::Branch { test, with, jt, jf } => {
                    next += if test.holds(a, operand(with, x)) { jt } else { jf };
                }
                Op::Return(k) => return k,
                Op::ReturnA => return a,
                Op::ToX => x = a,
                Op::FromX => a = x,
            }
        }
        0
    }
}

fn operand(source: Source, x: u32) -> u32 {
    match source {
        Source::K(k) => k,
        Source::X => x,
    }
}

fn store(memory: &mut [u32; MEMORY_LEN], at: usize, value: u32) {
    if let Some(word) = memory.get_mut(at) {
        *word = value;
    }
}

/// Returns the value at an offset of the packet, or `None` if the value is not completely inside the packet.
fn load(head: &[u8], size: Size, at: u32) -> Option<u32> {
    let rest = head.get(at as usize..)?;
    match size {
        Size::Byte => rest.first().map(|byte| u32::from(*byte)),
        Size::Half => rest
            .first_chunk()
            .map(|bytes| u32::from(u16::from_be_bytes(*bytes))),
        Size::Word => rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)),
    }
}

impl Alu {
    /// Returns the result; `None` for a division by zero, which rejects the packet. A shift by more than 31 bits
    /// gives zero.
    fn of(self, a: u32, b: u32) -> Option<u32> {
        Some(match self {
            Alu::Add => a.wrapping_add(b),
            Alu::Sub => a.wrapping_sub(b),
            Alu::Mul => a.wrapping_mul(b),
            Alu::Div => a.checked_div(b)?,
            Alu::Mod => a.checked_rem(b)?,
            Alu::Or => a | b,
            Alu::And => a & b,
            Alu::Xor => a ^ b,
            Alu::Lsh => a.checked_shl(b).unwrap_or(0),
            Alu::Rsh => a.checked_shr(b).unwrap_or(0),
        })
    }
}

impl Test {
    fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Test::Equal => a == b,
            Test::Greater => a > b,
            Test::GreaterOrEqual => a >= b,
            Test::AnyBit => a & b != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(text: &str) -> Program {
        text.parse().unwrap()
    }

    /// A filter for UDP from or to port 53, without IPv4 fragments.
    const UDP_53: &str = "13,40 0 0 12,21 0 10 2048,48 0 0 23,21 0 8 17,40 0 0 20,69 6 0 8191,177 0 0 14,\
                          72 0 0 14,21 2 0 53,72 0 0 16,21 0 1 53,6 0 0 65535,6 0 0 0";

    fn udp(from: u16, to: u16) -> Vec<u8> {
        crate::Builder::ethernet(millrace_types::Mac([2; 6]), millrace_types::Mac([4; 6]))
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2])
            .udp(from, to)
            .payload(b"x")
            .build()
    }

    #[test]
    fn a_compiled_expression_accepts_what_it_says() {
        let filter = program(UDP_53);
        let accepts = |frame: &[u8]| filter.accepts(frame, frame.len());
        assert!(accepts(&udp(4000, 53)) && accepts(&udp(53, 4000)));
        assert!(!accepts(&udp(4000, 54)));
        assert!(!accepts(&udp(4000, 53)[..30]), "cut off before the ports");
        assert!(!accepts(&[]));
    }

    #[test]
    fn operations_follow_the_paper_at_the_edges() {
        for (text, result) in [
            // A = 7 - 9
            ("3,0 0 0 7,20 0 0 9,22 0 0 0", 7_u32.wrapping_sub(9)),
            // A = 1 / X with X = 0 rejects.
            ("3,0 0 0 1,60 0 0 0,6 0 0 9", 0),
            // A = 1 << X with X = 32
            ("4,1 0 0 32,0 0 0 1,108 0 0 0,22 0 0 0", 0),
            // M[15] = 5, X = M[15], A = X
            ("5,0 0 0 5,2 0 0 15,97 0 0 15,135 0 0 0,22 0 0 0", 5),
            // A = -1 % 10
            ("4,0 0 0 1,132 0 0 0,148 0 0 10,22 0 0 0", u32::MAX % 10),
            // A = length of the packet
            ("2,128 0 0 0,22 0 0 0", 99),
            // An indirect load that overflows rejects.
            ("3,1 0 0 4294967295,80 0 0 1,6 0 0 9", 0),
        ] {
            assert_eq!(program(text).run(&[1, 2, 3], 99), result, "{text}");
        }
    }
}
