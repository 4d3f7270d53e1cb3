//! Prints the rate of each back end over the content patterns of a rule file and the bytes of a second file.
//!
//! `cargo run --release -p millrace-ips-scan --example scan_rate -- PATTERNS BYTES`: PATTERNS has one pattern a line.

use std::time::Instant;

use millrace_ips_scan::{Backend, Pattern, build};

#[expect(clippy::print_stdout, reason = "the figures are the purpose of the program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, patterns, bytes] = &arguments[..] else {
        return Err("expected two files: PATTERNS (one a line) and BYTES".into());
    };
    let patterns: Vec<Pattern> = std::fs::read(patterns)?
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .enumerate()
        .map(|(id, line)| Pattern {
            id: id as u32,
            bytes: line.to_vec(),
            nocase: true,
        })
        .collect();
    let bytes = std::fs::read(bytes)?;
    for backend in [Backend::Automaton, Backend::Windows] {
        let scanner = build(backend, &patterns)?;
        let mut best = f64::MAX;
        let mut hits = 0u64;
        for _ in 0..5 {
            hits = 0;
            let start = Instant::now();
            for block in bytes.chunks(1460) {
                scanner.scan(block, &mut |_, _| hits += 1);
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!(
            "{backend:?}: {} patterns, {} bytes, {:.0} Mbit/s, {hits} hits, {} KiB",
            patterns.len(),
            bytes.len(),
            bytes.len() as f64 * 8e-6 / best,
            scanner.memory() >> 10,
        );
    }
    Ok(())
}
