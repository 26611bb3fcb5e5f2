//! Addresses of mails, as people write them: `ann@example.com` or `Ann <ann@example.com>`.

use std::fmt;

/// Maximum length of the part before the `@`, by RFC 5321.
const LOCAL: usize = 64;
/// Maximum length of a domain, by RFC 1035.
const DOMAIN: usize = 253;
/// Maximum length of a name in characters.
const NAME: usize = 200;

/// The address of a mail, perhaps with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailAddress {
    /// Name of the person or office; absent if only an address was given.
    pub name: Option<String>,
    /// The address itself: ASCII, with one `@`.
    pub email: String,
}

impl MailAddress {
    /// Reads an address. The error says what is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| {
            let shown: String = text.chars().take(80).collect::<String>().escape_debug().to_string();
            Err(format!("`{shown}` is no address of a mail: {why}"))
        };
        if text.chars().any(char::is_control) {
            return refuse("it has a line break or another control character");
        }
        let (name, email) = match text.trim().strip_suffix('>').and_then(|text| text.split_once('<')) {
            Some((name, email)) => (name.trim(), email.trim()),
            None => ("", text.trim()),
        };
        let name = match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\\\"", "\"").replace("\\\\", "\\"),
            None => name.to_owned(),
        };
        if name.chars().count() > NAME || name.contains(['<', '>']) {
            return refuse("write `Name <name@example.com>`, with a name of at most 200 characters");
        }
        match email.rsplit_once('@') {
            Some((local, domain)) if is_local(local) && is_domain(domain) => {
                Ok(Self { name: Some(name).filter(|name| !name.is_empty()), email: email.to_owned() })
            }
            Some((_, domain)) if !domain.is_ascii() => refuse("write the domain in its ASCII form, `xn--…`"),
            _ => refuse("write one such as `ann@example.com` or `Ann <ann@example.com>`"),
        }
    }

    /// The domain: the part after the `@`.
    pub fn domain(&self) -> &str {
        self.email.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

impl fmt::Display for MailAddress {
    /// As a header has it, except that letters outside of ASCII stay as they are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let email = &self.email;
        match &self.name {
            None => f.write_str(email),
            Some(name) if name.contains(|c: char| c.is_ascii_punctuation()) => {
                write!(f, "\"{}\" <{email}>", name.replace('\\', "\\\\").replace('"', "\\\""))
            }
            Some(name) => write!(f, "{name} <{email}>"),
        }
    }
}

fn is_local(local: &str) -> bool {
    let is_atom = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    };
    local.len() <= LOCAL && local.split('.').all(is_atom)
}

/// Whether a text is the name of a host.
pub(super) fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    domain.len() <= DOMAIN && domain.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, name, email, written) in [
            ("ann@example.com", None, "ann@example.com", "ann@example.com"),
            (" <ann@example.com> ", None, "ann@example.com", "ann@example.com"),
            (
                "Ann Öst <a.b+c@x-y.example>",
                Some("Ann Öst"),
                "a.b+c@x-y.example",
                "Ann Öst <a.b+c@x-y.example>",
            ),
            ("Shop, Inc. <s@localhost>", Some("Shop, Inc."), "s@localhost", "\"Shop, Inc.\" <s@localhost>"),
            (r#""A \"B\"" <a@b.example>"#, Some(r#"A "B""#), "a@b.example", r#""A \"B\"" <a@b.example>"#),
        ] {
            let read = MailAddress::read(text).unwrap();
            assert_eq!(
                (read.name.as_deref(), &*read.email, &*read.to_string()),
                (name, email, written),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("{}@example.com", "a".repeat(65));
        for text in [
            "",
            "ann",
            "@example.com",
            "ann@",
            "ann@example..com",
            "ann@-a.example",
            "a b@example.com",
            ".a@example.com",
            "ann@exämple.com",
            "ann@example.com\r\nBcc: eve@example.com",
            "Ann\n <ann@example.com>",
            "Ann <ann@example.com> Ben",
            "Ann <<ann@example.com>>",
            "ann@example.com, ben@example.com",
            "ann@[127.0.0.1]",
            &long,
        ] {
            assert!(MailAddress::read(text).is_err(), "{text:?}");
        }
    }
}
