//! The thread that compiles the shared value of a function, such as rules, from the source that the switch has written.
//!
//! ```text
//!  thread of the function                       compiler thread
//!  user of its own, filter of system calls ───▶ filter of system calls
//!  poll loop, every 100 ms:  ◀── new value ──── reads the source when it has changed, compiles it
//!                            ─── old value ───▶ drops it
//! ```
//!
//! The compiler thread has the lowest priority: packets come first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use millrace_nf::{NewValue, SharedKind, SharedValue, SourceReader, Values};

use crate::sandbox;

/// The interval at which the compiler thread checks whether the source has changed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The increment of the thread's niceness, nice(2).
const NICENESS: i32 = 19;

/// The handle of the compiler thread, which the function's thread holds.
pub(crate) struct Compiler {
    start: Sender<&'static SharedKind>,
    /// The result of installing the compiler thread's own filter of system calls.
    started: Receiver<Result<()>>,
    values: Receiver<NewValue>,
    retired: Sender<SharedValue>,
}

impl Compiler {
    /// Starts the thread, which waits for [`Compiler::start`]. No thread can be started once the rights are dropped.
    ///
    /// # Errors
    /// The source cannot be opened, or no thread can be started.
    pub(crate) fn new(source: &Path) -> Result<Compiler> {
        let mut reader =
            SourceReader::open(source).with_context(|| format!("the source {}", source.display()))?;
        let (start, starting) = mpsc::channel::<&'static SharedKind>();
        let (starter, started) = mpsc::channel();
        let (compiled, values) = mpsc::channel();
        let (retired, old) = mpsc::channel();
        let body = move || {
            let Ok(kind) = starting.recv() else { return };
            let _lower = rustix::process::nice(NICENESS);
            let outcome = sandbox::before_compiling(reader.as_raw_fd());
            let is_confined = outcome.is_ok();
            if starter.send(outcome).is_ok() && is_confined {
                run(kind, &mut reader, &compiled, &old);
            }
        };
        std::thread::Builder::new()
            .name("nf-compile".to_owned())
            .spawn(body)
            .context("no thread can be started")?;
        Ok(Compiler {
            start,
            started,
            values,
            retired,
        })
    }

    /// Lets the thread compile values of a kind, after it has dropped the rights that it does not need.
    ///
    /// # Errors
    /// The rights cannot be dropped.
    pub(crate) fn start(&self, kind: &'static SharedKind) -> Result<()> {
        let ended = || anyhow!("the compiler thread ended");
        self.start.send(kind).map_err(|_| ended())?;
        self.started.recv().map_err(|_| ended())?
    }
}

/// Compiles each source, until the function's thread ends.
fn run(
    kind: &SharedKind,
    reader: &mut SourceReader,
    compiled: &Sender<NewValue>,
    old: &Receiver<SharedValue>,
) {
    let mut previous: Option<SharedValue> = None;
    loop {
        while old.try_recv().is_ok() {}
        match reader.read() {
            Ok(Some((generation, bytes))) => {
                let compile = || (kind.compile)(&bytes, previous.as_ref());
                let outcome = catch_unwind(AssertUnwindSafe(compile));
                let outcome = outcome.unwrap_or_else(|_| Err("the compilation panicked".to_owned()));
                let value = match outcome {
                    Ok(value) => Some(value.value),
                    Err(reason) => {
                        eprintln!("millrace-nf: {reason}");
                        None
                    }
                };
                if value.is_some() {
                    previous.clone_from(&value);
                }
                if compiled.send(NewValue { generation, value }).is_err() {
                    return;
                }
            }
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
            Err(error) => {
                eprintln!("millrace-nf: the source of the shared value cannot be read: {error}");
                return;
            }
        }
    }
}

impl Values for Compiler {
    fn take(&mut self) -> Option<NewValue> {
        self.values.try_recv().ok()
    }

    fn retire(&mut self, value: SharedValue) {
        // If the compiler thread has ended, the value is dropped here.
        let _ended = self.retired.send(value);
    }
}
