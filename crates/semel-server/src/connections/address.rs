//! Which addresses `http` may call without a connection: those of the public internet, and of these what the operator allows.
//!
//! What is not known to be public is refused. A name is judged by the addresses that are connected to, so it cannot point elsewhere
//! between the check and the call.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::members::ConnectionProblem;

/// Networks of IPv4 that are not the public internet (IANA's registry of special addresses, and addresses by which clouds serve
/// credentials to their machines).
const NOT_PUBLIC: [(Ipv4Addr, u8); 18] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];
/// Networks of IPv6 that are inside of `2000::/3` and not the public internet: among them those that carry an address of IPv4.
const NOT_PUBLIC_V6: [(Ipv6Addr, u8); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// All that is allocated to the public internet: what is outside is loopback, link-local, private, mapped, translated or unused.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Whether an address belongs to the public internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            !NOT_PUBLIC.iter().any(|(network, length)| contains_v4(*network, *length, address))
        }
        IpAddr::V6(address) => {
            contains_v6(GLOBAL_V6.0, GLOBAL_V6.1, address)
                && !NOT_PUBLIC_V6.iter().any(|(network, length)| contains_v6(*network, *length, address))
        }
    }
}

fn contains_v4(network: Ipv4Addr, length: u8, address: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
    u32::from(network) & mask == u32::from(address) & mask
}

fn contains_v6(network: Ipv6Addr, length: u8, address: Ipv6Addr) -> bool {
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    u128::from(network) & mask == u128::from(address) & mask
}

/// What the operator's lists name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AddressPlace {
    /// One host, by its name.
    Host(String),
    /// All names below a domain, written `*.example.com`.
    Below(String),
    /// An address, or a network of addresses.
    Network(IpAddr, u8),
}

impl AddressPlace {
    fn read(text: &str) -> Option<Self> {
        let lower = text.trim().trim_end_matches('.').to_ascii_lowercase();
        let (address, length) = lower.split_once('/').map_or((lower.as_str(), None), |(a, l)| (a, Some(l)));
        if let Ok(address) = address.trim_matches(['[', ']']).parse::<IpAddr>() {
            let most = if address.is_ipv4() { 32 } else { 128 };
            let length = length.map_or(Some(most), |length| length.parse().ok())?;
            return (length <= most).then_some(Self::Network(address, length));
        }
        let (below, host) = lower.strip_prefix("*.").map_or((false, lower.as_str()), |host| (true, host));
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_host = !host.is_empty() && host.chars().all(letters) && length.is_none();
        is_host.then(|| if below { Self::Below(format!(".{host}")) } else { Self::Host(host.to_owned()) })
    }

    fn names(&self, host: &str) -> bool {
        match self {
            Self::Host(name) => host == name,
            Self::Below(domain) => host.ends_with(domain.as_str()),
            Self::Network(..) => false,
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::Network(IpAddr::V4(network), length), IpAddr::V4(address)) => {
                contains_v4(*network, *length, address)
            }
            (Self::Network(IpAddr::V6(network), length), IpAddr::V6(address)) => {
                contains_v6(*network, *length, address)
            }
            _ => false,
        }
    }
}

/// Decides which addresses may be called without a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressPolicy {
    allow: Vec<AddressPlace>,
    deny: Vec<AddressPlace>,
    /// Whether this machine itself may be called.
    loopback: bool,
}

impl AddressPolicy {
    /// Reads the operator's lists.
    pub(super) fn read(config: &crate::config::Outbound) -> Result<Self, Vec<ConnectionProblem>> {
        let mut problems = Vec::new();
        let mut places = |member: &str, texts: &[String]| {
            let mut places = Vec::new();
            for text in texts {
                match AddressPlace::read(text) {
                    Some(place) => places.push(place),
                    None => problems.push(ConnectionProblem {
                        member: format!("http.{member}"),
                        message: format!(
                            "`{text}` is no host and no network; write `api.example.com`, `*.example.com` or `203.0.113.0/24`"
                        ),
                    }),
                }
            }
            places
        };
        let (allow, deny) = (places("allow", &config.allow), places("deny", &config.deny));
        if problems.is_empty() { Ok(Self { allow, deny, loopback: config.loopback }) } else { Err(problems) }
    }

    /// Whether this address, to which this host leads, may be called.
    pub(super) fn allows(&self, host: &str, address: IpAddr) -> bool {
        let lower = host.trim_end_matches('.').to_ascii_lowercase();
        let is_named = |place: &AddressPlace| place.names(&lower) || place.contains(address);
        let is_reachable = is_public(address) || (self.loopback && address.is_loopback());
        is_reachable
            && !self.deny.iter().any(is_named)
            && (self.allow.is_empty() || self.allow.iter().any(is_named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Outbound;

    #[test]
    fn only_the_public_internet_is_public() {
        for address in
            ["1.1.1.1", "8.8.8.8", "93.184.216.34", "223.255.255.1", "2606:4700::1111", "2a00:1450:4001::1"]
        {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    fn policy(allow: &[&str], deny: &[&str], loopback: bool) -> AddressPolicy {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        AddressPolicy::read(&Outbound { allow: own(allow), deny: own(deny), loopback }).unwrap()
    }

    #[test]
    fn lists_narrow_and_never_widen() {
        let public: IpAddr = "93.184.216.34".parse().unwrap();
        let private: IpAddr = "10.0.0.1".parse().unwrap();
        let narrow = policy(&["*.example.com", "api.example.org"], &["bad.example.com"], false);
        for (host, allowed) in [
            ("a.example.com", true),
            ("A.Example.COM.", true),
            ("api.example.org", true),
            ("bad.example.com", false),
            ("example.com", false),
            ("example.org", false),
            ("evilexample.com", false),
        ] {
            assert_eq!(narrow.allows(host, public), allowed, "{host}");
            assert!(!narrow.allows(host, private), "{host}");
        }
        assert!(!policy(&["10.0.0.0/8"], &[], false).allows("x", private), "a list widens nothing");
        assert!(!policy(&[], &["93.184.0.0/16"], false).allows("x", public));
        assert!(policy(&[], &[], true).allows("localhost", "127.0.0.1".parse().unwrap()));
        assert!(!policy(&[], &[], true).allows("x", private));
    }

    #[test]
    fn an_entry_that_is_no_place_is_refused() {
        for text in ["http://x", "a b", "", "10.0.0.0/33", "::1/129", "*", "x/8"] {
            let refused =
                AddressPolicy::read(&Outbound { allow: vec![text.to_owned()], ..Outbound::default() });
            assert!(refused.unwrap_err()[0].member == "http.allow", "{text}");
        }
    }
}
