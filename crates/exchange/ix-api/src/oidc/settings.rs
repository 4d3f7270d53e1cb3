//! The settings of an OpenID Connect provider.

/// The settings of a provider.
#[derive(Clone)]
pub struct OidcSettings {
    /// The issuer: an address with TLS, exactly as the provider writes it in its tokens.
    pub issuer: String,
    /// The name of the provider on the page.
    pub name: String,
    /// The identifier of this exchange at the provider.
    pub client_id: String,
    /// The secret of this exchange at the provider; `None` for a public client.
    pub client_secret: Option<String>,
    /// The address to which the provider returns the browser, a path of the page:
    /// `https://ix.example/sign-in/callback`.
    pub redirect_uri: String,
    /// The scopes to request.
    pub scopes: Vec<String>,
}

impl std::fmt::Debug for OidcSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OidcSettings")
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}
