//! The settings of the server: its listeners, its token and its certificate.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::limits::Limits;
use super::socket::{self, SocketError};
use super::tls::{Tls, TlsError};
use super::token::{self, Token, TokenError};

/// The listeners of the server, and the limits for clients.
#[derive(Debug)]
pub struct Settings {
    /// The path of the Unix socket.
    pub socket: PathBuf,
    /// The group whose members may connect to the socket, too.
    pub group: Option<u32>,
    /// The TCP address; `None` if the server has only the Unix socket.
    pub tcp: Option<Tcp>,
    /// The limits for clients.
    pub limits: Limits,
}

/// A TCP address to serve.
#[derive(Debug)]
pub struct Tcp {
    /// The address; with port 0 the system chooses a port.
    pub listen: SocketAddr,
    /// The bearer token that requests must carry.
    pub token: Token,
    /// The certificate; `None` for plain HTTP.
    pub tls: Option<Tls>,
}

/// Errors of the start of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The Unix socket cannot be served.
    #[error("the REST API cannot serve the socket {}", path.display())]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        source: SocketError,
    },
    /// The address is in use, does not belong to this machine, or needs rights that the process lacks.
    #[error(
        "the REST API cannot listen on {address}: stop what uses it (`ss -ltnp 'sport = {}'` names it), or set \
         api.listen to another address", address.port()
    )]
    Listen {
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The address can be reached from other machines, and TLS is not configured.
    #[error(
        "api.listen = \"{address}\" can be reached from other machines: expected tls_cert, tls_key and token_file with it"
    )]
    Unprotected { address: SocketAddr },
    /// The token file cannot be used.
    #[error("the token of the REST API, {}", path.display())]
    Token { path: PathBuf, source: TokenError },
    /// The certificate or its key cannot be used.
    #[error("api.tls_cert and api.tls_key: {0}")]
    Tls(#[from] TlsError),
}

impl Settings {
    /// Returns settings for the Unix socket `path` alone.
    pub fn for_socket(path: PathBuf) -> Settings {
        Settings {
            socket: path,
            group: None,
            tcp: None,
            limits: Limits::default(),
        }
    }

    /// Returns the settings of a configuration. Reads the files that it names; generates the token into `state_dir` if
    /// a TCP address is configured without a token.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn from_config(api: &millrace_model::Api, state_dir: &Path) -> Result<Settings, StartError> {
        if let Some(path) = api.tls_key.as_deref().filter(|path| token::is_open_to_all(path)) {
            let path = path.display();
            tracing::warn!(key = "api.tls_key", %path, "every user of this machine can read the secret: expected mode 0600 or 0640");
        }
        let tcp = api.listen.map(|listen| Tcp::from_config(listen, api, state_dir));
        let group = api.group.as_ref().map(|group| socket::group_id(group.as_str()));
        Ok(Settings {
            group: group.transpose().map_err(|source| StartError::Socket {
                path: PathBuf::from(api.socket.as_str()),
                source,
            })?,
            tcp: tcp.transpose()?,
            ..Settings::for_socket(PathBuf::from(api.socket.as_str()))
        })
    }
}

impl Tcp {
    fn from_config(
        listen: SocketAddr,
        api: &millrace_model::Api,
        state_dir: &Path,
    ) -> Result<Tcp, StartError> {
        let (token, path) = match &api.token_file {
            Some(path) => (Token::from_file(path), path.clone()),
            None => {
                let path = state_dir.join(crate::TOKEN_FILE);
                (Token::generated(&path), path)
            }
        };
        let token = token.map_err(|source| StartError::Token { path, source })?;
        let tls = match (&api.tls_cert, &api.tls_key) {
            (Some(cert), Some(key)) => Some(Tls::from_files(cert, key)?),
            _ => None,
        };
        Ok(Tcp { listen, token, tls })
    }
}
