//! Verification: from instructions to operations that are safe to run.

use super::instruction::{Alu, INSTRUCTIONS_MAX, Instruction, MEMORY_LEN, Op, Size, Source, Test};

/// The error of verifying a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The program is empty or too long.
    #[error("{len} instructions: expected 1 to {INSTRUCTIONS_MAX}")]
    Length {
        /// Number of instructions of the program.
        len: usize,
    },
    /// No instruction has this code.
    #[error("instruction {at}: there is no operation {code:#06x}")]
    UnknownCode {
        /// The index of the instruction.
        at: usize,
        /// The code of the instruction.
        code: u16,
    },
    /// A jump leaves the program.
    #[error("instruction {at} jumps past the end of the program")]
    Jump {
        /// The index of the instruction.
        at: usize,
    },
    /// The word of scratch memory does not exist.
    #[error("instruction {at}: there is no memory word {k}: expected 0 to 15")]
    Memory {
        /// The index of the instruction.
        at: usize,
        /// The index of the word.
        k: u32,
    },
    /// A constant divides by zero, or shifts by the width of a register or more.
    #[error("instruction {at} divides by zero or shifts by more than 31 bits")]
    Constant {
        /// The index of the instruction.
        at: usize,
    },
    /// The program does not end with a return.
    #[error("the last instruction is not a return")]
    NoReturn,
}

pub(super) fn verify(instructions: &[Instruction]) -> Result<Box<[Op]>, VerifyError> {
    let len = instructions.len();
    if !(1..=INSTRUCTIONS_MAX).contains(&len) {
        return Err(VerifyError::Length { len });
    }
    let ops = instructions.iter().enumerate();
    let ops: Box<[Op]> = ops
        .map(|(at, instruction)| op(at, len, *instruction))
        .collect::<Result<_, _>>()?;
    match ops.last() {
        Some(Op::Return(_) | Op::ReturnA) => Ok(ops),
        _ => Err(VerifyError::NoReturn),
    }
}

/// Returns the operation of the instruction at an index of a program of `len` instructions.
fn op(at: usize, len: usize, given: Instruction) -> Result<Op, VerifyError> {
    let Instruction { code, jt, jf, k } = given;
    let unknown = VerifyError::UnknownCode { at, code };
    let word = || match usize::try_from(k) {
        Ok(word) if word < MEMORY_LEN => Ok(word),
        _ => Err(VerifyError::Memory { at, k }),
    };
    // A jump counts from the next instruction.
    let target = |over: usize| match at.checked_add(1).and_then(|next| next.checked_add(over)) {
        Some(to) if to < len => Ok(over),
        _ => Err(VerifyError::Jump { at }),
    };
    let source = if code & 0x08 == 0 { Source::K(k) } else { Source::X };
    Ok(match (code & 7, code & 0xfff8) {
        (0, 0x00) => Op::LoadImmediate(k),
        (0, 0x20) => Op::LoadAbsolute(Size::Word, k),
        (0, 0x28) => Op::LoadAbsolute(Size::Half, k),
        (0, 0x30) => Op::LoadAbsolute(Size::Byte, k),
        (0, 0x40) => Op::LoadIndirect(Size::Word, k),
        (0, 0x48) => Op::LoadIndirect(Size::Half, k),
        (0, 0x50) => Op::LoadIndirect(Size::Byte, k),
        (0, 0x60) => Op::LoadMemory(word()?),
        (0, 0x80) => Op::LoadLength,
        (1, 0x00) => Op::LoadXImmediate(k),
        (1, 0x60) => Op::LoadXMemory(word()?),
        (1, 0x80) => Op::LoadXLength,
        (1, 0xb0) => Op::LoadXHeaderSize(k),
        (2, 0x00) => Op::Store(word()?),
        (3, 0x00) => Op::StoreX(word()?),
        (4, 0x80) => Op::Negate,
        (4, mode) => Op::Alu(alu(at, code, mode & !0x08, source)?, source),
        (5, 0x00) => Op::Jump(target(usize::try_from(k).map_err(|_| VerifyError::Jump { at })?)?),
        (5, mode) => Op::Branch {
            test: match mode & !0x08 {
                0x10 => Test::Equal,
                0x20 => Test::Greater,
                0x30 => Test::GreaterOrEqual,
                0x40 => Test::AnyBit,
                _ => return Err(unknown),
            },
            with: source,
            jt: target(jt.into())?,
            jf: target(jf.into())?,
        },
        (6, 0x00) => Op::Return(k),
        (6, 0x10) => Op::ReturnA,
        (7, 0x00) => Op::ToX,
        (7, 0x80) => Op::FromX,
        _ => return Err(unknown),
    })
}

fn alu(at: usize, code: u16, mode: u16, source: Source) -> Result<Alu, VerifyError> {
    let alu = match mode {
        0x00 => Alu::Add,
        0x10 => Alu::Sub,
        0x20 => Alu::Mul,
        0x30 => Alu::Div,
        0x40 => Alu::Or,
        0x50 => Alu::And,
        0x60 => Alu::Lsh,
        0x70 => Alu::Rsh,
        0x90 => Alu::Mod,
        0xa0 => Alu::Xor,
        _ => return Err(VerifyError::UnknownCode { at, code }),
    };
    match (alu, source) {
        (Alu::Div | Alu::Mod, Source::K(0)) | (Alu::Lsh | Alu::Rsh, Source::K(32..)) => {
            Err(VerifyError::Constant { at })
        }
        _ => Ok(alu),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Program;
    use super::*;

    #[test]
    fn what_could_run_on_or_touch_what_is_not_there_is_refused() {
        let refused = |text: &str| text.parse::<Program>().unwrap_err().to_string();
        for (text, words) in [
            ("1,0 0 0 1", "not a return"),
            ("2,5 0 0 1,6 0 0 0", "instruction 0 jumps past"),
            ("2,21 0 1 5,6 0 0 0", "instruction 0 jumps past"),
            ("2,5 0 0 4294967295,6 0 0 0", "jumps past"),
            ("2,2 0 0 16,6 0 0 0", "no memory word 16"),
            ("2,52 0 0 0,6 0 0 0", "divides by zero"),
            ("2,148 0 0 0,6 0 0 0", "divides by zero"),
            ("2,100 0 0 32,6 0 0 0", "more than 31"),
            ("2,65535 0 0 0,6 0 0 0", "no operation 0xffff"),
            ("2,262 0 0 0,6 0 0 0", "no operation"),
            ("0", "0 instructions"),
        ] {
            let error = refused(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        let long = vec![
            Instruction {
                code: 6,
                jt: 0,
                jf: 0,
                k: 0
            };
            INSTRUCTIONS_MAX + 1
        ];
        assert_eq!(
            Program::new(&long),
            Err(VerifyError::Length {
                len: INSTRUCTIONS_MAX + 1
            })
        );
        assert!(Program::new(&long[1..]).is_ok());
    }
}
