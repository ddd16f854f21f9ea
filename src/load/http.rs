//! HTTP/1.1 to one endpoint, stamped where bytes arrive.

use std::sync::Arc;

use crate::model::Clock;
use crate::net::endpoint::Endpoint;
use crate::net::tls::Authorities;

use super::exchange::{Answer, Call, Exchange, Fault, Lane, Stamp, Transport};

/// Connections to one endpoint.
#[derive(Clone)]
pub struct Wire;

/// One of them.
pub struct Connection;

impl Wire {
    /// For this endpoint.
    ///
    /// # Errors
    /// When TLS cannot be had, in words.
    pub fn new(endpoint: &Endpoint, authorities: &Authorities, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let _ = (endpoint, authorities, clock);
        todo!()
    }
}

impl Transport for Wire {
    type Lane = Connection;
    fn lane(&self) -> Self::Lane {
        todo!()
    }
}

impl Lane for Connection {
    async fn stream(&mut self, _: Call, _: &mut Vec<Stamp>) -> Exchange {
        todo!()
    }
    async fn whole(&mut self, _: Call) -> Result<Answer, Fault> {
        todo!()
    }
}
