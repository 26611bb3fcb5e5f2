//! Ids: a `UUIDv7`, shown as a prefix and 26 characters of Crockford's base32.
//!
//! There is one spelling per id: lower case, no separators, no leading overflow. Whatever else is refused, so that
//! two texts are the same id exactly if they are the same text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Crockford's base32: no `i`, `l`, `o`, `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Writes bytes as Crockford base32, five bits a character, the first bits first. A last group is padded with zeros.
pub fn base32(bytes: &[u8]) -> String {
    let (mut text, mut bits, mut held) = (String::with_capacity(bytes.len() * 8 / 5 + 1), 0u32, 0u32);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        held += 8;
        while held >= 5 {
            held -= 5;
            text.push(ALPHABET[(bits >> held & 31) as usize] as char);
        }
    }
    if held > 0 {
        text.push(ALPHABET[(bits << (5 - held) & 31) as usize] as char);
    }
    text
}

/// 128 bits as 26 characters, the number right-aligned as ULIDs have it.
struct Digits([u8; 26]);

impl Digits {
    fn of(uuid: Uuid) -> Self {
        let (mut digits, mut number) = ([0; 26], uuid.as_u128());
        for digit in digits.iter_mut().rev() {
            *digit = ALPHABET[(number & 31) as usize];
            number >>= 5;
        }
        Self(digits)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("all of the alphabet is ASCII")
    }
}

fn parse_uuid(text: &str) -> Option<Uuid> {
    if text.len() != 26 || text.as_bytes()[0] > b'7' {
        return None;
    }
    let mut number = 0u128;
    for byte in text.bytes() {
        let digit = ALPHABET.iter().position(|letter| *letter == byte)?;
        number = number << 5 | digit as u128;
    }
    Some(Uuid::from_u128(number))
}

/// The text is not an id of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind} id: expected `{prefix}` and 26 lower-case base32 characters")]
pub struct InvalidId {
    text: String,
    kind: &'static str,
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Whether this is how it is spelled.
            pub fn is_spelled(self, text: &str) -> bool {
                text.strip_prefix($prefix) == Some(Digits::of(self.0).as_str())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(Digits::of(self.0).as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix($prefix)
                    .and_then(parse_uuid)
                    .map(Self)
                    .ok_or_else(|| InvalidId { text: text.to_owned(), kind: $kind, prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <std::borrow::Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// Id of one run.
    RunId, "run", "run_"
);
id!(
    /// A tenant. Keys, tokens and everything else are scoped to it.
    WorkspaceId, "workspace", "ws_"
);
id!(
    /// A process, or a remote worker, that holds claims.
    NodeId, "node", "node_"
);

id!(
    /// A credential of callers of a server.
    ApiKeyId, "API key", "key_"
);
id!(
    /// A question to a person that a run waits for, at a server.
    ApprovalId, "approval", "apr_"
);
id!(
    /// A public address of a hook, at a server.
    AddressId, "address", "adr_"
);

impl WorkspaceId {
    /// The workspace of an embedded engine that has only one.
    pub const DEFAULT: Self = Self(Uuid::nil());

    /// A placeholder in requests that came over a wire: they never name the workspace, the credential does.
    pub(crate) fn unsaid() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = RunId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ff));
        let text = id.to_string();
        assert_eq!(text, "run_01j0000000e00800000000007z");
        assert_eq!(text.len(), 30);
        assert_eq!(text.parse(), Ok(id));
        for wrong in [
            text.to_uppercase(),
            text.replace("run_", "ws_"),
            text.replace("run_", ""),
            format!("{text}0"),
            text.replace("run_0", "run_8"),
            text.replace('j', "i"),
            String::new(),
        ] {
            assert!(wrong.parse::<RunId>().is_err(), "{wrong} must be refused");
        }
    }

    #[test]
    fn base32_is_five_bits_a_character() {
        assert_eq!(base32(&[0xff; 5]), "zzzzzzzz");
        assert_eq!(base32(&[0; 20]).len(), 32);
        assert_eq!(base32(&[0b1000_0100, 0b0010_0001]), "ggg1".replace('1', "g"));
    }
}
