//! Texts that configure: a model's config.json, addresses, and the file of keys.

use warptop::engine::model_config::kv_bytes;
use warptop::engine::options::Kv;
use warptop::net::access::AuthFile;
use warptop::net::endpoint::Endpoint;

/// A model's config.json.
pub fn model(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(bytes) = kv_bytes(&text, &Kv::default(), false) {
        assert!(bytes.per_token.is_finite() && bytes.per_token > 0.0);
    }
}

/// An address that a user or a process gives.
pub fn address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(endpoint) = Endpoint::parse(&text) {
        let shown = endpoint.shown();
        assert!(!shown.contains('@'), "{shown}");
        let _ = (endpoint.is_local(), endpoint.authority(), endpoint.url("/metrics"), endpoint.place());
        assert!(endpoint.covers(&endpoint));
    }
}

/// A file of keys.
pub fn keys(data: &[u8]) {
    let _ = AuthFile::parse(&String::from_utf8_lossy(data)).map_err(|error| error.to_string().len());
}
