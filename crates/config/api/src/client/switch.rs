//! The switch as a whole: version, status, log, workers, drops.

use super::connection::{Client, RESPONSE_TIMEOUT};
use super::error::ClientError;
use crate::view::{Drop, Lag, Log, LogChange, Ovsdb, Ready, Status, Version, WanPath, Worker};

impl Client {
    /// Returns the versions of the program and its libraries.
    ///
    /// # Errors
    /// [`ClientError`], as in every method below.
    pub fn version(&self) -> Result<Version, ClientError> {
        self.get("/api/v1/version")
    }

    /// Returns the desired revision, the running one, and the problems between them.
    pub fn status(&self) -> Result<Status, ClientError> {
        self.get("/api/v1/status")
    }

    /// Returns the filter, the levels and the targets of the log.
    pub fn log(&self) -> Result<Log, ClientError> {
        self.get("/api/v1/log")
    }

    /// Replaces the filter of the log.
    pub fn set_log(&self, filter: &str) -> Result<Log, ClientError> {
        let change = LogChange {
            filter: filter.to_owned(),
        };
        let request = self.agent.put(format!("{}/api/v1/log", self.base));
        let request = request.config().timeout_global(Some(RESPONSE_TIMEOUT)).build();
        self.json(self.with_token(request).send_json(&change))
    }

    /// Returns the readiness of the switch, with the reasons why it is not ready.
    pub fn ready(&self) -> Result<Ready, ClientError> {
        self.get("/ready")
    }

    /// Returns the LAGs of all bridges.
    pub fn lags(&self) -> Result<Vec<Lag>, ClientError> {
        self.get("/api/v1/lags")
    }

    /// Returns the emulated paths.
    pub fn wans(&self) -> Result<Vec<WanPath>, ClientError> {
        self.get("/api/v1/wans")
    }

    /// Returns the Open vSwitch database that the switch follows.
    pub fn ovsdb(&self) -> Result<Ovsdb, ClientError> {
        self.get("/api/v1/ovsdb")
    }

    /// Returns the workers.
    pub fn workers(&self) -> Result<Vec<Worker>, ClientError> {
        self.get("/api/v1/workers")
    }

    /// Returns the drop reasons with their counts.
    pub fn drops(&self) -> Result<Vec<Drop>, ClientError> {
        self.get("/api/v1/drops")
    }
}
