//! pcap filter expressions, compiled to classic BPF by libpcap.
//!
//! Only the command line uses this crate, so that libpcap's parser runs with the rights of the user and not in the daemon.
//! The daemon receives the instructions, and [`millrace_wire::bpf`] verifies and runs them.

#![deny(unsafe_code)] // except in `libpcap`

mod libpcap;

use std::ffi::CString;

use millrace_wire::bpf::Instruction;
use thiserror::Error;

use libpcap::Ethernet;

/// The reason why an expression cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompileError {
    /// libpcap rejects the expression.
    #[error("`{expression}`: {reason}: expected an expression as in `man pcap-filter`")]
    Refused {
        expression: String,
        /// The message of libpcap.
        reason: String,
    },
    /// The expression contains a zero byte.
    #[error("the expression contains a zero byte")]
    ZeroByte,
    /// libpcap has no memory for a handle.
    #[error("libpcap has no memory")]
    NoMemory,
}

/// Compiles an expression for Ethernet frames (`man pcap-filter`). An empty expression accepts every frame.
///
/// # Errors
/// [`CompileError`].
pub fn compile(expression: &str) -> Result<Vec<Instruction>, CompileError> {
    let text = CString::new(expression).map_err(|_| CompileError::ZeroByte)?;
    let mut handle = Ethernet::open().ok_or(CompileError::NoMemory)?;
    let program = handle.compile(&text).map_err(|reason| CompileError::Refused {
        expression: expression.to_owned(),
        reason,
    })?;
    Ok(program.instructions())
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_wire::Builder;
    use millrace_wire::bpf::Program;

    /// Frames of several protocols, and one of them cut off after some bytes.
    fn frames() -> Vec<Vec<u8>> {
        let mac = |last| millrace_types::Mac([2, 0, 0, 0, 0, last]);
        let ethernet = || Builder::ethernet(mac(2), mac(1));
        let ip = || ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
        let udp = ip().udp(53, 4000).payload(&[7; 100]).build();
        let cut = [0, 13, 14, 23, 30, 35, 37].map(|size| udp[..size].to_vec());
        let mut frames = vec![
            udp,
            ip().udp(4000, 80).payload(b"GET / HTTP/1.0").build(),
            ethernet()
                .ipv4([192, 168, 1, 1], [224, 0, 0, 1])
                .udp(5, 6)
                .build(),
            vec![0xff; 60],
        ];
        frames.extend(cut);
        frames
    }

    #[test]
    fn programs_accept_in_our_interpreter_what_they_accept_in_that_of_libpcap() {
        let expressions = [
            "",
            "udp",
            "udp port 80",
            "udp and not port 53",
            "host 10.0.0.2",
            "net 192.168.0.0/16 or arp",
            "ether multicast",
            "greater 100",
            "less 60",
            "ip[8] > 5 and ip6 or ip",
            "tcp[tcpflags] & (tcp-syn|tcp-ack) != 0",
            "udp[((udp[4] & 0xf0) >> 2) + 8:4] = 0x47455420",
            "vlan 5 and ip",
            "ip proto \\sctp or portrange 50-90",
            "len % 7 = 3",
            "(ip[0] & 0xf) * 4 != 20 or ether[100] = 7",
        ];
        let mut accepted = 0;
        for expression in expressions {
            let ours = Program::new(&compile(expression).unwrap()).unwrap();
            let text = CString::new(expression).unwrap();
            let mut handle = Ethernet::open().unwrap();
            let theirs = handle.compile(&text).unwrap();
            for frame in frames() {
                let expected = theirs.run(&frame);
                assert_eq!(
                    ours.run(&frame, frame.len()),
                    expected,
                    "{expression}: {frame:02x?}"
                );
                accepted += u32::from(expected != 0);
            }
        }
        assert!(accepted > 20, "{accepted}");
    }

    #[test]
    fn an_expression_that_libpcap_refuses_is_refused_with_its_words() {
        let refused = |text: &str| compile(text).unwrap_err().to_string();
        assert!(
            refused("udp prot 80").contains("syntax error"),
            "{}",
            refused("udp prot 80")
        );
        assert!(refused("udp port nonsense").contains("nonsense"));
        assert_eq!(compile("a\0b"), Err(CompileError::ZeroByte));
    }
}
