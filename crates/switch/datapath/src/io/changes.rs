//! Reports of devices whose properties may have changed. The control thread of a bridge looks at these devices only, and at
//! once: it sleeps otherwise.
//!
//! ```text
//!   device, or its thread ── report ──▶ ports that changed ── take ──▶ control thread: Device::info
//!                               └──── unpark ──────────────────────────────▲
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use millrace_types::PortNo;
use parking_lot::Mutex;

/// The ports of a bridge whose devices may have changed.
#[derive(Debug)]
pub(crate) struct ChangedPorts {
    /// The control thread.
    thread: Thread,
    has_any: AtomicBool,
    ports: Mutex<BTreeSet<PortNo>>,
}

impl ChangedPorts {
    /// Returns a set without ports, whose reports wake `thread`.
    pub(crate) fn new(thread: Thread) -> Arc<ChangedPorts> {
        Arc::new(ChangedPorts {
            thread,
            has_any: AtomicBool::new(false),
            ports: Mutex::default(),
        })
    }

    /// Adds a port, and wakes the control thread.
    pub(crate) fn add(&self, port: PortNo) {
        self.ports.lock().insert(port);
        self.has_any.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Returns true if there may be ports.
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Takes the ports out.
    pub(crate) fn take(&self) -> BTreeSet<PortNo> {
        // A port that is added in between is taken now, and costs one more call.
        match self.has_any.swap(false, Ordering::AcqRel) {
            true => core::mem::take(&mut self.ports.lock()),
            false => BTreeSet::new(),
        }
    }
}

/// Reports that the properties of one device may have changed. Clones report for the same device, from any thread.
#[derive(Clone, Debug)]
pub struct ChangeReporter {
    port: PortNo,
    changed: Arc<ChangedPorts>,
}

impl ChangeReporter {
    /// Returns the reporter for the device of a port.
    pub(crate) fn new(port: PortNo, changed: &Arc<ChangedPorts>) -> ChangeReporter {
        ChangeReporter {
            port,
            changed: Arc::clone(changed),
        }
    }

    /// Reports a change that the device shows already.
    pub fn report(&self) {
        self.changed.add(self.port);
    }
}

/// The reporter of a device, which has one once it is that of a port.
#[derive(Default, Debug)]
pub(super) struct ReporterSlot(Mutex<Option<ChangeReporter>>);

impl ReporterSlot {
    pub(super) fn set(&self, reporter: &ChangeReporter) {
        *self.0.lock() = Some(reporter.clone());
    }

    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }

    /// Reports a change, if somebody listens.
    pub(super) fn report(&self) {
        if let Some(reporter) = &*self.0.lock() {
            reporter.report();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_wakes_the_control_thread_and_a_port_is_taken_once() {
        let changed = ChangedPorts::new(std::thread::current());
        let (slot, port) = (ReporterSlot::default(), PortNo::from_raw(7));
        slot.report();
        assert!(!changed.has_any(), "nobody listens yet");
        slot.set(&ChangeReporter::new(port, &changed));
        std::thread::spawn(move || {
            slot.report();
            slot.report();
        });
        while !changed.has_any() {
            std::thread::park();
        }
        let mut taken = changed.take();
        while taken.is_empty() {
            taken = changed.take();
        }
        assert_eq!(taken, BTreeSet::from([port]));
    }
}
