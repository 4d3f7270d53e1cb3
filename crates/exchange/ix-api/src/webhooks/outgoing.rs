//! Requests of webhooks: to permitted addresses only, and a bounded number at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use ureq::Agent;
use ureq::unversioned::transport::DefaultConnector;

use super::address::PublicResolver;

/// The timeout of one request, including its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of concurrent requests of all webhooks.
const UNDER_WAY_MAX: usize = 16;

/// Returns the HTTP agent for webhook requests. It follows no redirects, ignores proxies of the environment,
/// and connects only to permitted addresses.
pub(crate) fn agent(permits_private: bool) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .max_redirects(0)
        .http_status_as_error(false)
        .proxy(None)
        .user_agent(concat!("millrace-ix/", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::with_parts(
        config,
        DefaultConnector::default(),
        PublicResolver::new(permits_private),
    )
}

/// The part of the application's state that sends requests.
pub(crate) struct Outgoing {
    pub(crate) agent: Agent,
    pub(super) permits: Arc<Semaphore>,
}

impl Outgoing {
    pub(crate) fn new(permits_private: bool) -> Outgoing {
        Outgoing {
            agent: agent(permits_private),
            permits: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
        }
    }
}
