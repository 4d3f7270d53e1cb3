//! Instructions as libpcap creates them, and the operations that verification makes of them.

/// The largest number of instructions of a program (Linux, `BPF_MAXINSNS`).
pub const INSTRUCTIONS_MAX: usize = 4096;

/// Number of words of scratch memory (`BPF_MEMWORDS`).
pub(super) const MEMORY_LEN: usize = 16;

/// An instruction as libpcap creates it, not yet verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Number of instructions to skip if a comparison holds.
    pub jt: u8,
    /// Number of instructions to skip if a comparison does not hold.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// The second operand of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    K(u32),
    X,
}

/// The size of a load, in network byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Byte,
    Half,
    Word,
}

/// An operation of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Or,
    And,
    Xor,
    Lsh,
    Rsh,
}

/// A comparison of A with an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

/// A verified instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// A = packet[k]
    LoadAbsolute(Size, u32),
    /// A = packet[X + k]
    LoadIndirect(Size, u32),
    /// A = k
    LoadImmediate(u32),
    /// A = M[k]
    LoadMemory(usize),
    /// A = length of the packet
    LoadLength,
    /// X = k
    LoadXImmediate(u32),
    /// X = M[k]
    LoadXMemory(usize),
    /// X = length of the packet
    LoadXLength,
    /// X = 4 * (packet[k] & 0xf), the size of an IPv4 header
    LoadXHeaderSize(u32),
    /// M[k] = A
    Store(usize),
    /// M[k] = X
    StoreX(usize),
    /// A = A op operand
    Alu(Alu, Source),
    /// A = -A
    Negate,
    /// Skips instructions.
    Jump(usize),
    /// Skips `jt` instructions if the comparison holds, else `jf`.
    Branch {
        test: Test,
        with: Source,
        jt: usize,
        jf: usize,
    },
    /// Accepts `k` bytes of the packet; zero rejects the packet.
    Return(u32),
    /// Accepts A bytes of the packet; zero rejects the packet.
    ReturnA,
    ToX,
    FromX,
}
