//! Sessions: a random token in a cookie, its SHA-256 in the store. A session ends 12 hours after sign-in,
//! after 2 hours without a request, or when the user signs out. A session survives a restart of the engine:
//! the store has the time of the last request with a precision of five minutes.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_ix_model::{Timestamp, UserId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::credentials::{CredentialError, CredentialStore, parse, save_json};
use super::{NoRandom, fingerprint, random};

/// The name of the cookie. Browsers accept the prefix only with `Secure`, `Path=/` and without `Domain`
/// (RFC 6265bis, section 4.1.3.2), so that no other host can set it.
pub const COOKIE: &str = "__Host-millrace";

/// The maximum lifetime of a session.
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// The maximum time without a request.
const IDLE: Duration = Duration::from_secs(2 * 3600);
/// The minimum time between two writes of the time of a session's last request.
const STORED_EVERY: Duration = Duration::from_secs(300);
/// The largest number of sessions of one user. At the maximum, a new session ends the oldest one.
const PER_USER: usize = 16;
/// The prefix of the keys of sessions in the store.
pub const PREFIX: &str = "session/";

/// A signed-in browser: the user, and when the session began and was last used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub user: UserId,
    /// The AS numbers that the sign-in proved.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub proven_asns: BTreeSet<u32>,
    /// The time of the sign-in.
    pub began: Timestamp,
    /// The time of the last request. The stored value may be up to [`STORED_EVERY`] older.
    pub seen: Timestamp,
}

impl Session {
    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.began) >= LIFE || now.since(self.seen) >= IDLE
    }
}

/// A session, and the time of its last request as stored.
#[derive(Debug)]
struct CachedSession {
    session: Session,
    stored: Timestamp,
}

impl From<Session> for CachedSession {
    fn from(session: Session) -> CachedSession {
        CachedSession {
            stored: session.seen,
            session,
        }
    }
}

/// The session of a request.
enum Use {
    /// The session has ended, and is removed.
    Over,
    Open {
        session: Session,
        /// True if the time of the request is to be stored.
        is_due: bool,
    },
}

/// All sessions.
pub struct Sessions {
    store: Arc<dyn CredentialStore>,
    open: Mutex<HashMap<String, CachedSession>>,
}

impl Sessions {
    /// Returns the sessions in the store.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub async fn load(store: Arc<dyn CredentialStore>) -> Result<Sessions, CredentialError> {
        let open = Mutex::new(stored(&*store).await?);
        Ok(Sessions { store, open })
    }

    /// Replaces all sessions by those in the store.
    ///
    /// # Errors
    /// [`CredentialError`]; the sessions are as before then.
    pub async fn read_again(&self) -> Result<(), CredentialError> {
        let found = stored(&*self.store).await?;
        *self.open.lock() = found;
        Ok(())
    }

    /// Begins a session and returns the value of the `Set-Cookie` header.
    ///
    /// # Errors
    /// [`CredentialError`], also if the system has no random numbers.
    pub async fn begin(&self, user: UserId, now: Timestamp) -> Result<String, CredentialError> {
        self.begin_proving(user, BTreeSet::new(), now).await
    }

    /// Begins a session of a person whose sign-in proved AS numbers, and returns the value of the `Set-Cookie` header.
    ///
    /// # Errors
    /// [`CredentialError`], also if the system has no random numbers.
    pub async fn begin_proving(
        &self,
        user: UserId,
        proven_asns: BTreeSet<u32>,
        now: Timestamp,
    ) -> Result<String, CredentialError> {
        let bytes = random::<32>().map_err(|error: NoRandom| CredentialError {
            reason: error.to_string(),
            follows: None,
        })?;
        let token = URL_SAFE_NO_PAD.encode(bytes);
        let session = Session {
            user,
            proven_asns,
            began: now,
            seen: now,
        };
        let key = fingerprint(&token);
        save_json(&*self.store, &format!("{PREFIX}{key}"), &session).await?;
        let ended = {
            let mut open = self.open.lock();
            open.insert(key, CachedSession::from(session));
            excess(&mut open, user, now)
        };
        for key in ended {
            self.store.save(&format!("{PREFIX}{key}"), None).await?;
        }
        Ok(format!(
            "{COOKIE}={token}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={}",
            LIFE.as_secs()
        ))
    }

    /// Returns the session of the token in a request's cookie.
    pub async fn find(&self, headers: &HeaderMap, now: Timestamp) -> Option<Session> {
        let key = fingerprint(token(headers)?);
        let (session, is_due) = match self.use_session(&key, now)? {
            Use::Over => {
                self.remove(&key).await;
                return None;
            }
            Use::Open { session, is_due } => (session, is_due),
        };
        if is_due {
            if let Err(error) = save_json(&*self.store, &format!("{PREFIX}{key}"), &session).await {
                tracing::warn!(%error, "the time of a session's last request is not stored");
            }
            if !self.open.lock().contains_key(&key) {
                // The session ended during the write, and the write may have stored it again after its removal.
                self.remove(&key).await;
                return None;
            }
        }
        Some(session)
    }

    /// Notes a request of a session; `None` if there is no such session.
    fn use_session(&self, key: &str, now: Timestamp) -> Option<Use> {
        let mut open = self.open.lock();
        let found = open.get_mut(key)?;
        if found.session.is_over(now) {
            open.remove(key);
            return Some(Use::Over);
        }
        found.session.seen = now;
        let is_due = now.since(found.stored) >= STORED_EVERY;
        if is_due {
            found.stored = now;
        }
        Some(Use::Open {
            session: found.session.clone(),
            is_due,
        })
    }

    /// Removes a session that has ended from the store.
    async fn remove(&self, key: &str) {
        if let Err(error) = self.store.save(&format!("{PREFIX}{key}"), None).await {
            tracing::warn!(%error, "a session that is over stays in the store until the next start");
        }
    }

    /// Returns the session of the token in a request's cookie, if the session is not over. The request does
    /// not prolong the session.
    pub(crate) fn peek(&self, headers: &HeaderMap, now: Timestamp) -> Option<Session> {
        let key = fingerprint(token(headers)?);
        let open = self.open.lock();
        let found = open.get(&key).map(|open| &open.session);
        found.filter(|session| !session.is_over(now)).cloned()
    }

    /// Ends the session of a request. Returns the `Set-Cookie` header that removes the cookie.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub async fn end(&self, headers: &HeaderMap) -> Result<String, CredentialError> {
        if let Some(token) = token(headers) {
            let key = fingerprint(token);
            self.open.lock().remove(&key);
            self.store.save(&format!("{PREFIX}{key}"), None).await?;
        }
        Ok(format!(
            "{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0"
        ))
    }

    /// Ends all sessions of a user, as after a change of the password.
    ///
    /// # Errors
    /// [`CredentialError`].
    pub async fn end_all(&self, user: UserId) -> Result<(), CredentialError> {
        let ended: Vec<String> = self
            .open
            .lock()
            .extract_if(|_, open| open.session.user == user)
            .map(|(key, _)| key)
            .collect();
        for key in ended {
            self.store.save(&format!("{PREFIX}{key}"), None).await?;
        }
        Ok(())
    }
}

/// Returns the sessions in a store.
async fn stored(store: &dyn CredentialStore) -> Result<HashMap<String, CachedSession>, CredentialError> {
    let mut open = HashMap::new();
    for (key, value) in store.list(PREFIX).await? {
        if let Some(fingerprint) = key.strip_prefix(PREFIX) {
            open.insert(
                fingerprint.to_owned(),
                CachedSession::from(parse::<Session>(&value)?),
            );
        }
    }
    Ok(open)
}

/// Removes sessions that are over, and the oldest of a user who has too many. Returns the removed keys.
fn excess(open: &mut HashMap<String, CachedSession>, user: UserId, now: Timestamp) -> Vec<String> {
    let mut ended: Vec<String> = open
        .extract_if(|_, open| open.session.is_over(now))
        .map(|(key, _)| key)
        .collect();
    let mut own: Vec<(Timestamp, String)> = open
        .iter()
        .filter(|(_, open)| open.session.user == user)
        .map(|(key, open)| (open.session.began, key.clone()))
        .collect();
    own.sort();
    for (_, key) in own.iter().take(own.len().saturating_sub(PER_USER)) {
        open.remove(key);
        ended.push(key.clone());
    }
    ended
}

/// Returns the token in the cookie of a request.
fn token(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, COOKIE)
}

/// Returns the value of a cookie of a request.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::super::credentials::{MemoryCredentials, Stored};
    use super::super::ready;
    use super::*;

    fn request(set_cookie: &str) -> HeaderMap {
        let pair = set_cookie.split(';').next().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, format!("theme=dark; {pair}").parse().unwrap());
        headers
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(1_000_000 + seconds)
    }

    #[test]
    fn a_look_at_a_session_does_not_prolong_it() {
        let sessions = ready(Sessions::load(Arc::new(MemoryCredentials::default()))).unwrap();
        let headers = request(&ready(sessions.begin(UserId(1), at(0))).unwrap());
        let last = at(IDLE.as_secs() - 1);
        assert!(sessions.peek(&headers, last).is_some());
        assert!(sessions.peek(&headers, at(IDLE.as_secs())).is_none());
        assert!(ready(sessions.find(&headers, last)).is_some());
        assert!(sessions.peek(&headers, at(IDLE.as_secs())).is_some());
    }

    #[test]
    fn a_session_outlives_a_restart_and_ends_by_sign_out() {
        let store: Arc<dyn CredentialStore> = Arc::new(MemoryCredentials::default());
        let sessions = ready(Sessions::load(Arc::clone(&store))).unwrap();
        let headers = request(&ready(sessions.begin(UserId(3), at(0))).unwrap());
        let again = ready(Sessions::load(Arc::clone(&store))).unwrap();
        assert_eq!(ready(again.find(&headers, at(60))).unwrap().user, UserId(3));
        assert!(ready(again.end(&headers)).unwrap().contains("Max-Age=0"));
        assert_eq!(ready(again.find(&headers, at(61))), None);
        let last = ready(Sessions::load(store)).unwrap();
        assert_eq!(ready(last.find(&headers, at(61))), None);
    }

    #[test]
    fn a_session_that_is_in_use_outlives_a_restart_later_than_two_hours_after_its_sign_in() {
        let store: Arc<dyn CredentialStore> = Arc::new(MemoryCredentials::default());
        let sessions = ready(Sessions::load(Arc::clone(&store))).unwrap();
        let headers = request(&ready(sessions.begin(UserId(3), at(0))).unwrap());
        for minute in 1..=180 {
            assert!(ready(sessions.find(&headers, at(minute * 60))).is_some());
        }
        let again = ready(Sessions::load(Arc::clone(&store))).unwrap();
        assert_eq!(ready(again.find(&headers, at(181 * 60))).unwrap().began, at(0));
        ready(again.end(&headers)).unwrap();
        let last = ready(Sessions::load(store)).unwrap();
        assert_eq!(ready(last.find(&headers, at(182 * 60))), None);
    }

    /// A store in which the session of a user ends before each write of a session.
    struct EndBeforeWrite {
        store: MemoryCredentials,
        sessions: std::sync::OnceLock<Arc<Sessions>>,
    }

    impl CredentialStore for EndBeforeWrite {
        fn load<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Vec<u8>>> {
            self.store.load(key)
        }

        fn save<'a>(&'a self, key: &'a str, value: Option<&'a [u8]>) -> Stored<'a, ()> {
            Box::pin(async move {
                if let (Some(sessions), Some(_)) = (self.sessions.get(), value) {
                    sessions.end_all(UserId(3)).await?;
                }
                self.store.save(key, value).await
            })
        }

        fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<(String, Vec<u8>)>> {
            self.store.list(prefix)
        }
    }

    #[test]
    fn a_session_that_ends_while_its_last_request_is_stored_does_not_come_back() {
        let store = Arc::new(EndBeforeWrite {
            store: MemoryCredentials::default(),
            sessions: std::sync::OnceLock::new(),
        });
        let sessions = Arc::new(ready(Sessions::load(store.clone())).unwrap());
        let headers = request(&ready(sessions.begin(UserId(3), at(0))).unwrap());
        assert!(store.sessions.set(Arc::clone(&sessions)).is_ok());
        assert_eq!(ready(sessions.find(&headers, at(STORED_EVERY.as_secs()))), None);
        assert_eq!(ready(store.list(PREFIX)).unwrap(), []);
    }

    #[test]
    fn a_session_ends_after_two_idle_hours_and_after_twelve_in_all() {
        let sessions = ready(Sessions::load(Arc::new(MemoryCredentials::default()))).unwrap();
        let headers = request(&ready(sessions.begin(UserId(3), at(0))).unwrap());
        for hour in 1..12 {
            assert!(
                ready(sessions.find(&headers, at(hour * 3600))).is_some(),
                "{hour}"
            );
        }
        assert_eq!(ready(sessions.find(&headers, at(12 * 3600))), None);
        let headers = request(&ready(sessions.begin(UserId(3), at(0))).unwrap());
        assert_eq!(ready(sessions.find(&headers, at(2 * 3600))), None);
        assert_eq!(
            ready(sessions.store.list(PREFIX)).unwrap(),
            [],
            "nothing is left in the store"
        );
    }

    #[test]
    fn the_store_holds_no_token_and_the_cookie_is_bound_to_the_host() {
        let store = Arc::new(MemoryCredentials::default());
        let sessions = ready(Sessions::load(store.clone())).unwrap();
        let cookie = ready(sessions.begin(UserId(3), at(0))).unwrap();
        assert!(cookie.starts_with("__Host-"), "{cookie}");
        for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
            assert!(cookie.contains(attribute), "{attribute}");
        }
        let headers = request(&cookie);
        let token = token(&headers).unwrap();
        for (key, value) in ready(store.list("")).unwrap() {
            assert!(!key.contains(token) && !String::from_utf8_lossy(&value).contains(token));
        }
    }

    #[test]
    fn a_user_has_at_most_sixteen_sessions() {
        let sessions = ready(Sessions::load(Arc::new(MemoryCredentials::default()))).unwrap();
        let all: Vec<HeaderMap> = (0..17)
            .map(|second| request(&ready(sessions.begin(UserId(3), at(second))).unwrap()))
            .collect();
        assert_eq!(ready(sessions.find(&all[0], at(20))), None);
        assert!(
            all[1..]
                .iter()
                .all(|headers| ready(sessions.find(headers, at(20))).is_some())
        );
        ready(sessions.end_all(UserId(3))).unwrap();
        assert!(
            all.iter()
                .all(|headers| ready(sessions.find(headers, at(21))).is_none())
        );
    }
}
