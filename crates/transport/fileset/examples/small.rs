//! Measures small files: makes N files of SIZE bytes in a scratch directory, and carries them from a source to a sink in one
//! thread, without a network. Prints seconds and files a second for scan and transfer.
//!
//! `cargo run --release -p millrace-fileset --example small -- [N] [SIZE] [DIRECTORY]`
#![allow(clippy::print_stdout, reason = "the result of the example")]

use millrace_fileset::fs::Root;
use millrace_fileset::scan::resolve_arguments;
use millrace_fileset::{Scan, ScanOptions, Sink, SinkOptions, Source, SourceOptions};
use millrace_types::Time;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Payload of a packet at an MTU of 1,500 bytes.
const PAYLOAD: u64 = 1_428;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let files: u32 = arguments.next().map_or(Ok(10_000), |text| text.parse())?;
    let size: usize = arguments.next().map_or(Ok(4_096), |text| text.parse())?;
    let scratch = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let scratch = scratch.join(format!("millrace-small-{}", std::process::id()));
    let result = measure(&scratch, files, size);
    fs::remove_dir_all(&scratch)?;
    result
}

fn measure(scratch: &std::path::Path, files: u32, size: usize) -> Result<(), Box<dyn Error>> {
    let (from, to) = (scratch.join("from"), scratch.join("to"));
    fs::create_dir_all(&to)?;
    for file in 0..files {
        let directory = from.join(format!("{:04}", file / 1_000));
        if file % 1_000 == 0 {
            fs::create_dir_all(&directory)?;
        }
        fs::write(
            directory.join(format!("{file:08}")),
            file.to_le_bytes().repeat(size / 4),
        )?;
    }

    let begin = Instant::now();
    let root = Root::open("/")?;
    let mut scan = Scan::new(&root, &resolve_arguments(&[&from])?, ScanOptions::default())?;
    let mut encoded = 0;
    while scan.next_item(&root)?.is_some() {
        encoded += scan.take_encoded().len();
    }
    let (manifest, paths) = scan.finish().ok_or("the scan did not end")?;
    let scanned = begin.elapsed().as_secs_f64();
    println!(
        "scan      {files} files in {scanned:.2} s, {:.0} files/s, manifest of {:.1} bytes a file",
        f64::from(files) / scanned,
        encoded as f64 / f64::from(files)
    );

    let begin = Instant::now();
    let manifest = Arc::new(manifest);
    let mut source = Source::new(root, Arc::clone(&manifest), paths, SourceOptions::default());
    let mut sink = Sink::open(Root::open(&to)?, Arc::clone(&manifest), SinkOptions::default())?;
    sink.start()?;
    let now = || Time::from_nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    for extent in 0..manifest.layout().extents() {
        let (mut at, end) = manifest.layout().bounds(extent);
        while at < end {
            let len = PAYLOAD.min(end - at);
            sink.write(at, source.read(at, len)?)?;
            at += len;
        }
        while let Some(value) = source.poll_value() {
            sink.on_value(value)?;
        }
        sink.poll(now())?;
        while sink.poll_event().is_some() {}
    }
    sink.poll(now())?;
    let (complete, committed) = (sink.is_complete(), sink.progress().files);
    sink.close()?;
    let seconds = begin.elapsed().as_secs_f64();
    if !complete || committed != u64::from(files) {
        return Err("the transfer is not complete".into());
    }
    println!(
        "transfer  {files} files of {size} bytes in {seconds:.2} s, {:.0} files/s",
        f64::from(files) / seconds
    );
    Ok(())
}
