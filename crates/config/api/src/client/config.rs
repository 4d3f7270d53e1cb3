//! The configuration, its revisions and its change stream.

use std::io::{BufRead, BufReader};

use serde_json::Value as Json;
use ureq::Body;
use ureq::http::Response;

use super::connection::{Client, RESPONSE_TIMEOUT};
use super::error::ClientError;
use super::query::Params;
use crate::view::{
    Committed, Confirmation, Diff, OwnRequest, Ownership, Revision, RevisionConfig, Revisions,
};

/// The options of a change of the configuration.
#[derive(Debug, Clone, Default)]
pub struct ChangeOptions {
    /// Only check the change, and return the differences.
    pub dry_run: bool,
    /// The number of seconds after which the change is rolled back unless it is confirmed.
    pub confirm_within: Option<u64>,
    /// The author of the change.
    pub author: String,
    /// The reason for the change.
    pub comment: String,
    /// Let objects of other origins that the configuration lacks stay as they are.
    pub keep_others: bool,
    /// The front end that makes the change; `local` unless given.
    pub origin: Option<String>,
    /// The number that the desired state has at its origin.
    pub external: Option<u64>,
}

/// An event of the change stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// `revision`, `confirmation` or `gap`.
    pub name: String,
    /// The number of the revision, for `revision` only.
    pub id: Option<String>,
    /// The content, as JSON.
    pub data: String,
}

impl Client {
    /// Returns the configuration and its revision.
    pub fn config(&self) -> Result<(Json, u64), ClientError> {
        let response = self.get_with("/api/v1/config", Some(RESPONSE_TIMEOUT));
        let mut response = self.check(response)?;
        let tag = response
            .headers()
            .get("etag")
            .and_then(|tag| tag.to_str().ok())
            .unwrap_or("");
        let revision = tag.trim_matches('"').parse().map_err(|_| {
            self.not_millrace(
                response.status(),
                "the ETag of the configuration is not a revision".to_owned(),
            )
        })?;
        let status = response.status();
        let text = self.text(&mut response)?;
        let json =
            serde_json::from_str(&text).map_err(|error| self.not_millrace(status, error.to_string()))?;
        Ok((json, revision))
    }

    /// Replaces the configuration. `expected` is the revision that the change is based on; `None` replaces
    /// any revision.
    pub fn replace_config(
        &self,
        config: &Json,
        expected: Option<u64>,
        options: &ChangeOptions,
    ) -> Result<Committed, ClientError> {
        let mut params = Params::default();
        params.maybe("dry_run", options.dry_run.then_some(true));
        params.maybe("confirm_within", options.confirm_within);
        params.maybe("keep_others", options.keep_others.then_some(true));
        params.maybe("origin", options.origin.as_deref());
        params.maybe("external", options.external);
        params.add("author", &options.author);
        params.add("comment", &options.comment);
        let request = self.agent.put(format!("{}/api/v1/config{}", self.base, params.0));
        let request = request.config().timeout_global(Some(RESPONSE_TIMEOUT)).build();
        let tag = expected.map_or_else(|| "*".to_owned(), |revision| format!("\"{revision}\""));
        self.json(self.with_token(request).header("if-match", tag).send_json(config))
    }

    /// Returns the revision that waits for a confirmation, if any.
    pub fn confirmation(&self) -> Result<Confirmation, ClientError> {
        self.get("/api/v1/config/confirm")
    }

    /// Confirms the pending revision.
    pub fn confirm(&self, revision: Option<u64>) -> Result<Revision, ClientError> {
        let mut params = Params::default();
        params.maybe("revision", revision);
        let request = self
            .agent
            .post(format!("{}/api/v1/config/confirm{}", self.base, params.0));
        self.json(
            self.with_token(request.config().timeout_global(Some(RESPONSE_TIMEOUT)).build())
                .send_empty(),
        )
    }

    /// Rolls back the pending revision at once.
    pub fn cancel(&self, revision: Option<u64>, options: &ChangeOptions) -> Result<Revision, ClientError> {
        let mut params = Params::default();
        params.maybe("revision", revision);
        params.add("author", &options.author);
        params.add("comment", &options.comment);
        let request = self
            .agent
            .delete(format!("{}/api/v1/config/confirm{}", self.base, params.0));
        self.json(
            self.with_token(request.config().timeout_global(Some(RESPONSE_TIMEOUT)).build())
                .call(),
        )
    }

    /// Returns all objects of the configuration with their owners.
    pub fn owners(&self) -> Result<Ownership, ClientError> {
        self.get("/api/v1/owners")
    }

    /// Gives objects to another owner.
    pub fn own(&self, request: &OwnRequest, options: &ChangeOptions) -> Result<Revision, ClientError> {
        let mut params = Params::default();
        params.add("author", &options.author);
        params.add("comment", &options.comment);
        self.post(&format!("/api/v1/owners{}", params.0), request, RESPONSE_TIMEOUT)
    }

    /// Returns the newest revisions.
    pub fn revisions(&self, limit: usize) -> Result<Revisions, ClientError> {
        self.get(&format!("/api/v1/revisions?limit={limit}"))
    }

    /// Returns a revision with its configuration.
    pub fn revision(&self, number: u64) -> Result<RevisionConfig, ClientError> {
        self.get(&format!("/api/v1/revisions/{number}"))
    }

    /// Returns the differences between two revisions; `None` stands for the newest.
    pub fn diff(&self, from: u64, to: Option<u64>) -> Result<Diff, ClientError> {
        let mut params = Params::default();
        params.maybe("to", to);
        self.get(&format!("/api/v1/revisions/{from}/diff{}", params.0))
    }

    /// Rolls back to the configuration of a revision.
    pub fn rollback(&self, to: u64, options: &ChangeOptions) -> Result<Committed, ClientError> {
        let mut params = Params::default();
        params.maybe("dry_run", options.dry_run.then_some(true));
        params.add("author", &options.author);
        params.add("comment", &options.comment);
        let request = self.agent.post(format!(
            "{}/api/v1/revisions/{to}/rollback{}",
            self.base, params.0
        ));
        self.json(
            self.with_token(request.config().timeout_global(Some(RESPONSE_TIMEOUT)).build())
                .send_empty(),
        )
    }

    /// Returns the events of the change stream from the revision after `seen`, until the server closes.
    pub fn events(&self, seen: Option<u64>) -> Result<impl Iterator<Item = Event> + use<>, ClientError> {
        let request = self.with_token(self.agent.get(format!("{}/api/v1/events", self.base)));
        let request = match seen {
            Some(seen) => request.header("last-event-id", seen.to_string()),
            None => request,
        };
        Ok(events_of(self.check(request.call())?))
    }
}

impl Client {
    /// Returns the events of the state from now on, until the server closes. `kinds` are names of `StateKind`, separated by
    /// commas.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn state_events(&self, kinds: &str) -> Result<impl Iterator<Item = Event> + use<>, ClientError> {
        let mut params = Params::default();
        params.add("kinds", kinds);
        let request = self.agent.get(format!("{}/api/v1/events{}", self.base, params.0));
        Ok(events_of(self.check(self.with_token(request).call())?))
    }
}

/// Returns the server-sent events of a response, until it ends.
pub(super) fn events_of(response: Response<Body>) -> impl Iterator<Item = Event> + use<> {
    let mut lines = BufReader::new(response.into_body().into_reader()).lines();
    std::iter::from_fn(move || {
        let mut event = Event::default();
        for line in lines.by_ref() {
            let line = line.ok()?;
            match line.split_once(':') {
                None if line.is_empty() && !event.name.is_empty() => return Some(event),
                Some(("event", value)) => value.trim_start().clone_into(&mut event.name),
                Some(("id", value)) => event.id = Some(value.trim_start().to_owned()),
                Some(("data", value)) => event.data.push_str(value.trim_start()),
                _ => {}
            }
        }
        None
    })
}
