//! The shared value of a hop on the control side: read and compiled by a thread of its own, while the functions work with the
//! value that they have. Processes get its source, and compile it again.
//!
//! ```text
//!            begin                  poll: a value                  lanes: Change::Share
//!  (nothing) ─────▶ Compiling ─────────────────▶ in use ──────────────────────────────▶ functions
//!                       │ failed                   ▲ │
//!                       └─▶ the old value stays ───┘ └─ reload, changed settings, changed files ─▶ Compiling
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};

use millrace_nf::{Compiled, InputFile, Settings, SharedKind, SharedValue, Source, SourceFile, SourceHead};
use millrace_types::{Duration, Time};

/// Time limit for an exporter to take a value. Functions get the value after this time in any case.
const EXPORTERS: Duration = Duration::from_secs(1);
/// The interval at which the files are checked for changes after a compilation has failed.
const RETRY: Duration = Duration::from_secs(5);

/// The state of a hop's shared value, for operators.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedStatus {
    /// True while a value is read and compiled, and until all functions have it.
    pub is_compiling: bool,
    /// True if the functions have a value.
    pub is_in_use: bool,
    /// A line about the value in use; empty if there is none.
    pub summary: String,
    /// The reason why the last value could not be compiled; empty if it could.
    pub failure: String,
    /// The number of values that were compiled.
    pub compilations: u64,
}

/// The result of a compilation.
struct Outcome {
    /// The files that the value depends on; `None` if they could not be read.
    files: Option<Vec<InputFile>>,
    compiled: Result<Compiled, String>,
    /// The head of the source, which processes do not see yet.
    staged: Option<SourceHead>,
}

impl Outcome {
    fn failed(reason: String) -> Outcome {
        Outcome {
            files: None,
            compiled: Err(reason),
            staged: None,
        }
    }
}

/// The shared value of one hop.
pub(crate) struct HopValue {
    kind: &'static SharedKind,
    /// The settings from which the value is compiled, without other settings of the hop.
    settings: Settings,
    value: Option<SharedValue>,
    /// The value, until functions get it; `None` afterwards.
    unshared: Option<SharedValue>,
    /// Set by the exporter when its formatter has the value, and so knows the rules that a message names.
    with_exporter: Arc<AtomicBool>,
    /// The time at which functions get the value even if the exporter does not have it.
    share_by: Time,
    /// The file from which the hop's processes read the source; `None` for functions in the worker.
    source: Option<Arc<SourceFile>>,
    /// The head of the value's source, until processes see it; `None` afterwards.
    staged: Option<SourceHead>,
    /// The number of the source that processes see.
    generation: u64,
    files: Vec<InputFile>,
    /// The last attempt did not read the files.
    is_unread: bool,
    compiling: Option<Receiver<Outcome>>,
    /// Another compilation was requested while one ran.
    is_outdated: bool,
    next_look: Time,
    status: SharedStatus,
}

impl HopValue {
    /// Begins to compile the value of a hop with these settings.
    pub(crate) fn begin(
        kind: &'static SharedKind,
        settings: &Settings,
        source: Option<Arc<SourceFile>>,
    ) -> HopValue {
        let mut value = HopValue {
            kind,
            settings: kind.own(settings),
            value: None,
            unshared: None,
            with_exporter: Arc::default(),
            share_by: Time::ZERO,
            source,
            staged: None,
            generation: 0,
            files: Vec::new(),
            is_unread: false,
            compiling: None,
            is_outdated: false,
            next_look: Time::ZERO,
            status: SharedStatus::default(),
        };
        value.reload();
        value
    }

    /// Returns the value in use.
    pub(crate) fn value(&self) -> Option<&SharedValue> {
        self.value.as_ref()
    }

    /// Returns the state for operators. `processes` has two source numbers for each working process of the
    /// hop: that of the value in use, and that of the last source that the process could not compile.
    pub(crate) fn status(&self, processes: &[[u64; 2]]) -> SharedStatus {
        let mut status = SharedStatus {
            is_compiling: self.compiling.is_some() || self.unshared.is_some(),
            is_in_use: self.value.is_some(),
            ..self.status.clone()
        };
        if self.source.is_some() && status.is_in_use {
            let is_behind =
                |[value, failed]: &[u64; 2]| *value != self.generation && *failed != self.generation;
            status.is_compiling |= processes.iter().any(is_behind);
            status.is_in_use = processes.iter().all(|[value, _]| *value != 0);
            if self.generation != 0 && processes.iter().any(|[_, failed]| *failed == self.generation) {
                status.failure =
                    "a process could not compile what the switch could: raise `memory_mib` of the hop"
                        .to_owned();
            }
        }
        status
    }

    /// Changes the settings of the value and the file for processes, and compiles the value again if they differ.
    pub(crate) fn set(&mut self, settings: &Settings, source: Option<Arc<SourceFile>>) {
        let wanted = self.kind.own(settings);
        let is_same_file = match (&self.source, &source) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (_, None) => true,
            (None, Some(_)) => false,
        };
        self.source = source;
        if wanted != self.settings || !is_same_file {
            self.settings = wanted;
            self.reload();
        }
    }

    /// Compiles the value again, if one of its files has changed, or if its files could not be read.
    pub(crate) fn reload_changed(&mut self) {
        let has_changed = || self.files.iter().any(InputFile::has_changed);
        if self.compiling.is_none() && (self.is_unread || has_changed()) {
            self.reload();
        }
    }

    /// Reads the files and compiles the value, in a thread. While a compilation runs, another one is started after it.
    pub(crate) fn reload(&mut self) {
        if self.compiling.is_some() {
            self.is_outdated = true;
            return;
        }
        self.is_outdated = false;
        let (sender, receiver) = mpsc::channel();
        let (kind, settings, previous) = (self.kind, self.settings.clone(), self.value.clone());
        let file = self.source.clone();
        let body = move || {
            let outcome = compile(kind, &settings, previous.as_ref(), file.as_deref());
            // Without a receiver the hop has been removed.
            let _removed = sender.send(outcome);
        };
        match std::thread::Builder::new()
            .name("nf-compile".to_owned())
            .spawn(body)
        {
            Ok(_) => self.compiling = Some(receiver),
            Err(error) => {
                // `poll` tries again.
                self.is_unread = true;
                self.status.failure = format!("no thread can be started: {error}");
            }
        }
    }

    /// Returns the flag that the exporter sets when its formatter has the value in use.
    pub(crate) fn with_exporter(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.with_exporter)
    }

    /// Returns, once, the value that functions do not have yet, and publishes its source to processes. If the hop
    /// `exports`, the exporter gets it first.
    pub(crate) fn take_unshared(&mut self, now: Time, exports: bool) -> Option<SharedValue> {
        if exports && !self.with_exporter.load(Ordering::Acquire) && now < self.share_by {
            return None;
        }
        if let (Some(file), Some(head)) = (&self.source, self.staged.take()) {
            match file.publish(head) {
                Ok(()) => self.generation = head.generation(),
                Err(error) => self.status.failure = format!("processes do not get the new value: {error}"),
            }
        }
        self.unshared.take()
    }

    /// Takes the result of a finished compilation. Returns whether there is a new value. After a failure, checks the files
    /// for changes every [`RETRY`].
    pub(crate) fn poll(&mut self, now: Time) -> bool {
        let Some(receiver) = &self.compiling else {
            if !self.status.failure.is_empty() && now >= self.next_look {
                self.next_look = now + RETRY;
                self.reload_changed();
            }
            return false;
        };
        let outcome = match receiver.try_recv() {
            Err(TryRecvError::Empty) => return false,
            Ok(outcome) => outcome,
            Err(TryRecvError::Disconnected) => Outcome::failed("the compilation panicked".to_owned()),
        };
        self.compiling = None;
        self.next_look = now + RETRY;
        self.is_unread = outcome.files.is_none();
        if let Some(files) = outcome.files {
            self.files = files;
        }
        let is_outdated = core::mem::take(&mut self.is_outdated);
        let is_new = match outcome.compiled {
            Ok(compiled) => {
                self.status.summary = compiled.summary;
                self.status.failure.clear();
                self.status.compilations += 1;
                let old = self.value.replace(compiled.value.clone());
                if let Some(old) = old {
                    drop_elsewhere(old);
                }
                self.unshared = Some(compiled.value);
                self.with_exporter = Arc::default();
                self.share_by = now + EXPORTERS;
                self.staged = outcome.staged;
                true
            }
            Err(reason) => {
                self.status.failure = reason;
                false
            }
        };
        if is_outdated {
            self.reload();
        }
        is_new
    }
}

fn compile(
    kind: &SharedKind,
    settings: &Settings,
    previous: Option<&SharedValue>,
    source: Option<&SourceFile>,
) -> Outcome {
    let Source { bytes, files } = match (kind.read)(settings) {
        Ok(source) => source,
        Err(reason) => return Outcome::failed(reason),
    };
    let mut compiled = (kind.compile)(&bytes, previous);
    let mut staged = None;
    if let (Ok(_), Some(source)) = (&compiled, source) {
        match source.stage(&bytes) {
            Ok(head) => staged = Some(head),
            Err(error) => compiled = Err(format!("processes cannot get it: {error}")),
        }
    }
    Outcome {
        files: Some(files),
        compiled,
        staged,
    }
}

/// Drops values in a thread of its own: freeing a large one takes longer than the control side may wait.
pub(crate) fn drop_elsewhere<T: Send + 'static>(values: T) {
    if core::mem::needs_drop::<T>() {
        // If no thread can be started, the closure is dropped here, with the values.
        let _thread = std::thread::Builder::new()
            .name("nf-drop".to_owned())
            .spawn(move || drop(values));
    }
}
