//! Runs captures through the engine: files in, events out.
//!
//! [`read`] begins each capture without flows, and ends with a last inspection of the remaining flows.
//! [`read_part`] keeps the flows for the next capture, and [`finish`] ends them. The engine's clock is the
//! time of the packets.

#![forbid(unsafe_code)]

mod capture;
mod comparison;
pub mod mixes;
mod rate;
mod summary;

pub use capture::{CaptureError, CaptureReader, CapturedFrame};
pub use comparison::comparison_line;
pub use rate::{CONNECTIONS, RateSummary, rate};
pub use summary::CaptureSummary;

use std::path::Path;
use std::time::{Duration, Instant};

use millrace_ips_engine::detect::{Ruleset, TraceRecord};
use millrace_ips_engine::{Engine, Events, Frame, LinkType, Verdict};
use millrace_types::Time;

/// The first time in seconds that a signed 32-bit field cannot hold (2038-01-19). A frame with this or a
/// later time gets the time of the previous frame, so that one wrong time does not end every flow.
const IMPLAUSIBLE: Time = Time::from_secs(1 << 31);

/// Passes the frames of a capture through an engine. `each` gets each frame that has events, with its events.
/// At the end, `each` gets the events of flows that end with the capture, without a frame.
///
/// # Errors
/// [`CaptureError`] for a file that cannot be opened or is not a capture. A capture that is cut within a
/// packet is read up to this packet, and the error, with the summary up to there, is returned after the events.
pub fn read(
    path: &Path,
    engine: &mut Engine,
    rules: &Ruleset,
    mut each: impl FnMut(&Events, Option<&CapturedFrame>),
) -> Result<CaptureSummary, CaptureError> {
    let result = read_part(path, engine, rules, &mut each);
    let last = finish(engine, rules, each);
    result.map(|summary| CaptureSummary {
        engine: summary.engine + last,
        ..summary
    })
}

/// Passes the frames of one capture through an engine, and keeps the flows for the next capture of the same
/// recording. `each` gets each frame that has events, with its events.
///
/// # Errors
/// As [`read`].
pub fn read_part(
    path: &Path,
    engine: &mut Engine,
    rules: &Ruleset,
    mut each: impl FnMut(&Events, Option<&CapturedFrame>),
) -> Result<CaptureSummary, CaptureError> {
    pass(path, engine, rules, false, |_, events, frame| {
        each(events, Some(frame));
    })
}

/// Ends all flows of an engine. `each` gets the events of the last inspection, if there are any. Returns the
/// time spent in the engine.
pub fn finish(
    engine: &mut Engine,
    rules: &Ruleset,
    mut each: impl FnMut(&Events, Option<&CapturedFrame>),
) -> Duration {
    let mut events = Events::default();
    let start = Instant::now();
    engine.finish(rules, &mut events);
    let time = start.elapsed();
    if !events.list.is_empty() {
        each(&events, None);
    }
    time
}

/// Passes the frames of a capture through an engine that traces a rule. `each` gets the trace records in
/// order.
///
/// # Errors
/// As [`read`].
pub fn trace(
    path: &Path,
    engine: &mut Engine,
    rules: &Ruleset,
    mut each: impl FnMut(TraceRecord),
) -> Result<CaptureSummary, CaptureError> {
    let result = pass(path, engine, rules, true, |engine, _, _| {
        engine.detector().take_trace().into_iter().for_each(&mut each);
    });
    let last = finish(engine, rules, |_, _| {});
    engine.detector().take_trace().into_iter().for_each(each);
    result.map(|summary| CaptureSummary {
        engine: summary.engine + last,
        ..summary
    })
}

/// Number of frames of a file that are read at a time, so that the clock is not read twice for each. Those of a pipe are
/// inspected as they come.
const FRAMES_AT_ONCE: usize = 64;

/// Passes the frames of a capture through an engine, and calls `each` after each frame that has events; with `is_traced`, after each
/// frame.
fn pass(
    path: &Path,
    engine: &mut Engine,
    rules: &Ruleset,
    is_traced: bool,
    mut each: impl FnMut(&mut Engine, &Events, &CapturedFrame),
) -> Result<CaptureSummary, CaptureError> {
    let mut reader = CaptureReader::open(path)?;
    let mut summary = CaptureSummary::default();
    let mut events = Events::default();
    let mut bytes = Vec::new();
    let at_once = if reader.is_file() { FRAMES_AT_ONCE } else { 1 };
    let mut frames = vec![CapturedFrame::default(); at_once];
    loop {
        let mut end = Ok(());
        let mut len = 0;
        while len < at_once {
            match reader.read_frame(&mut frames[len]) {
                Ok(true) => len += 1,
                Ok(false) => break,
                Err(error) => {
                    end = Err(error);
                    break;
                }
            }
        }
        let mut start = Instant::now();
        for captured in &frames[..len] {
            bytes.clear();
            bytes.extend_from_slice(&captured.bytes);
            summary.frames += 1;
            summary.bytes += bytes.len() as u64;
            if captured.time < IMPLAUSIBLE || summary.frames == 1 {
                summary.last = captured.time;
            }
            let frame = Frame {
                bytes: &mut bytes,
                link: LinkType(captured.link),
                time: summary.last,
                number: summary.frames,
            };
            let verdict = engine.frame(rules, frame, &mut events);
            summary.dropped += u64::from(matches!(verdict, Verdict::Drop(_) | Verdict::Reject { .. }));
            if is_traced || !events.list.is_empty() {
                summary.engine += start.elapsed();
                each(engine, &events, captured);
                events.list.clear();
                start = Instant::now();
            }
        }
        summary.engine += start.elapsed();
        if let Err(mut error) = end {
            if let CaptureError::Format { read, .. } = &mut error {
                **read = summary;
            }
            return Err(error);
        }
        if len < at_once {
            return Ok(summary);
        }
    }
}
