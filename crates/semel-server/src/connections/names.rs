//! From names of hosts to addresses, for calls without a connection.
//!
//! The client connects to the addresses that passed the check here and to no others: a name that points elsewhere at the next
//! question (DNS rebinding) gains nothing.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::AddressPolicy;

/// Addresses of a host, being looked up.
pub type Looking = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Knows the addresses of hosts.
pub trait HostNames: Send + Sync + fmt::Debug + 'static {
    /// Looks up the addresses of a host.
    fn look_up(&self, host: &str) -> Looking;
}

/// The resolver of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemNames;

impl HostNames for SystemNames {
    fn look_up(&self, host: &str) -> Looking {
        let host = host.to_owned();
        Box::pin(async move {
            Ok(tokio::net::lookup_host((host.as_str(), 0)).await?.map(|address| address.ip()).collect())
        })
    }
}

/// An address that may not be called without a connection.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{host}` is not a public address that may be called without a connection")]
pub(super) struct NotPublic {
    host: String,
}

/// Resolves names, and drops the addresses that may not be called.
#[derive(Clone, Debug)]
pub(super) struct CheckedNames {
    pub(super) names: Arc<dyn HostNames>,
    pub(super) policy: Arc<AddressPolicy>,
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let (host, policy) = (name.as_str().to_owned(), self.policy.clone());
        let looking = self.names.look_up(&host);
        Box::pin(async move {
            let allowed: Vec<_> =
                looking.await?.into_iter().filter(|address| policy.allows(&host, *address)).collect();
            if allowed.is_empty() {
                return Err(NotPublic { host }.into());
            }
            // The port is that of the address that is called.
            Ok(Box::new(allowed.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// Checks an address in which the host is an address itself: these are connected to without a resolver.
pub(super) fn check_literal(policy: &AddressPolicy, url: &reqwest::Url) -> Result<(), NotPublic> {
    let host = url.host_str().unwrap_or_default();
    let literal = host.trim_matches(['[', ']']).parse::<IpAddr>();
    match literal {
        Ok(address) if !policy.allows(host, address) => Err(NotPublic { host: host.to_owned() }),
        _ => Ok(()),
    }
}
