//! The experiment `transport`: bulk transfers to one and more receivers against gates T1 to T15
//! (docs/gates.md).
//!
//! ```text
//!  virtual time   Flow -> emulated path -> Receiver          one thread; cases of the simulator               (virtual_time)
//!  live           h0 --- bridge == millrace-wan == bridge --- r1 … r10   namespaces; emulator on the last core (test_bed)
//!                 millrace send, iperf3, uftp, …   millrace receive, iperf3 -s, uftpd, …                       (millrace, peers)
//! ```
//!
//! With two cores, few of the live rows reach the rates to which the gates refer. The gates of the other rows
//! apply in virtual time, and the live figure is shown next to the virtual one.

mod arguments;
mod calibrate;
pub mod cli;
mod error;
mod files;
mod library_peers;
mod live;
mod millrace;
mod peers;
mod record;
mod recorder;
mod rows;
pub(crate) mod section;
mod test_bed;
mod virtual_time;

use crate::record::Record;
pub use arguments::{Experiment, RowNumber};
pub use error::TransportBenchError;
pub use record::{Transferred, TransportRecord};
pub use recorder::{Recorder, RunLength};

impl Experiment {
    /// Measures all rows. The failure of a row is recorded, and the others continue.
    ///
    /// # Errors
    /// [`TransportBenchError`]: the records cannot be written, or SIGINT was received.
    pub fn run(&self, recorder: &mut Recorder<'_>) -> Result<(), TransportBenchError> {
        millrace_process::interrupt::install_handler();
        self.record_run(recorder)?;
        for row in &self.rows {
            virtual_time::measure(recorder, row.number())?;
            millrace_process::pause(std::time::Duration::ZERO)?;
        }
        if self.live {
            live::measure(self, recorder)?;
        }
        Ok(())
    }

    /// Records the run and its systems.
    fn record_run(&self, recorder: &mut Recorder<'_>) -> Result<(), TransportBenchError> {
        recorder.begin(recorder.length.quick)?;
        recorder.log(Record::System {
            system: "millrace".to_owned(),
            version: millrace_process::version(&self.program),
            configuration: "millrace send, millrace receive --once; files in memory".to_owned(),
        })?;
        let mut systems = peers::systems().chain(library_peers::systems());
        systems.try_for_each(|system| recorder.log(system))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gated::recorder::rows_of;
    use crate::record::Log;

    #[test]
    fn rows_in_virtual_time_have_gates_and_need_neither_root_nor_programs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("transport.jsonl");
        let mut log = Log::create(&path).unwrap();
        let experiment = Experiment {
            rows: vec![RowNumber::T6],
            program: "/nonexistent/millrace".into(),
            receive_path: "/nonexistent/receive_path".into(),
            live: false,
            link_bps: None,
            core: 0,
        };
        let mut progress = |_: &str| {};
        let recorder = &mut Recorder::new(RunLength::QUICK, &mut log, &mut progress);
        experiment.run(recorder).unwrap();
        let rows = rows_of::<TransportRecord>(log.records());
        assert_eq!(rows.len(), 6);
        assert!(rows.iter().all(|row| row.met == Some(true)), "{rows:#?}");
        // The report is made from the file alone.
        assert_eq!(crate::record::read(&path).unwrap(), log.records());
    }
}
