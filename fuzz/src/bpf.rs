//! Classic BPF programs of capture filters.

use millrace_wire::bpf::{Instruction, Program};

/// Parses the bytes as the text of a program, and as instructions of eight bytes each in front of a packet; runs
/// accepted programs on the packet.
///
/// Properties: no accepted program runs for ever or reads outside of the packet; the result depends only on the bytes
/// that the program may read; a program prints to a text that parses to the same program.
pub(crate) fn bpf(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(program) = text.parse::<Program>()
    {
        run(&program, bytes);
    }
    let Some((count, rest)) = bytes.split_first() else {
        return;
    };
    let (code, packet) = rest.split_at(rest.len().min(8 * usize::from(*count)));
    let instructions: Vec<Instruction> = code
        .chunks_exact(8)
        .map(|part| Instruction {
            code: u16::from_be_bytes([part[0], part[1]]),
            jt: part[2],
            jf: part[3],
            k: u32::from_be_bytes([part[4], part[5], part[6], part[7]]),
        })
        .collect();
    let Ok(program) = Program::new(&instructions) else {
        return;
    };
    let texts = instructions.iter().map(|instruction| format!(",{instruction}"));
    let text = instructions.len().to_string() + &texts.collect::<String>();
    assert_eq!(text.parse(), Ok(program.clone()));
    run(&program, packet);
}

fn run(program: &Program, packet: &[u8]) {
    let accepted = program.run(packet, packet.len());
    assert_eq!(program.accepts(packet, packet.len()), accepted != 0);
    let copy = packet.to_vec();
    assert_eq!(program.run(&copy, packet.len()), accepted);
    program.run(&packet[..packet.len() / 2], packet.len());
    program.run(packet, usize::MAX);
}
