//! The RTL in its simulator (`rtl/`), as a process that gets each record that the model gets.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, anyhow};
use millrace_nic::record::{Input, Output, SIZE_MAX};
use millrace_nic_model::Twin;

/// A simulator that runs.
#[derive(Debug)]
pub(crate) struct Simulator {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    /// The input so far, with which the simulator does the same again.
    records: Option<File>,
    /// Output that was read, and is no whole record yet.
    unread: Vec<u8>,
    /// The number of the last SYNC.
    synced: u32,
}

impl Simulator {
    /// Starts the program. Its input is written to `records`, too.
    pub(crate) fn start(program: &Path, records: Option<&Path>) -> Result<Simulator> {
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("--records {}: it cannot be written", path.display()))
        };
        let records = records.map(create).transpose()?;
        let child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.with_context(|| {
            format!(
                "--rtl {}: expected the simulator that `make -C rtl` builds",
                program.display()
            )
        })?;
        let (input, output) = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .context("the simulator has no pipes")?;
        Ok(Simulator {
            child,
            input,
            output,
            records,
            unread: Vec::new(),
            synced: 0,
        })
    }

    /// Returns the records up to the next SYNCED.
    fn answers(&mut self) -> Result<Vec<Output>> {
        let mut found = Vec::new();
        let mut bytes = [0; SIZE_MAX];
        loop {
            while let Some((record, size)) = Output::parse(&self.unread)? {
                self.unread.drain(..size);
                match record {
                    Output::Synced { number } if number == self.synced => return Ok(found),
                    record => found.push(record),
                }
            }
            match self.output.read(&mut bytes)? {
                0 => return Err(anyhow!("it has ended: {}", self.child.wait()?)),
                read => self.unread.extend_from_slice(&bytes[..read]),
            }
        }
    }
}

impl Twin for Simulator {
    fn run(&mut self, inputs: &[Input]) -> Result<Vec<Output>, String> {
        self.synced = self.synced.wrapping_add(1);
        let mut bytes = Vec::new();
        for input in inputs {
            input.emit(&mut bytes);
        }
        Input::Sync { number: self.synced }.emit(&mut bytes);
        let written = self
            .records
            .iter_mut()
            .try_for_each(|file| file.write_all(&bytes))
            .and_then(|()| self.input.write_all(&bytes));
        written
            .map_err(anyhow::Error::from)
            .and_then(|()| self.answers())
            .map_err(|error| format!("the simulator of the RTL: {error:#}"))
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
