//! Styles, icons and scripts. The name of each has the first digits of its hash, so that browsers may keep it.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::access::hex;
use crate::http::Problem;

/// Digits of the hash in a name.
const DIGITS: usize = 12;
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file that pages refer to.
pub(super) struct Asset {
    /// Its name in the source.
    pub(super) name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    /// Its name in addresses.
    served: String,
}

macro_rules! assets {
    ($($name:literal $kind:ident),+ $(,)?) => {
        vec![$(Asset::new($name, $kind, include_bytes!(concat!("assets/", $name)))),+]
    };
}

static ALL: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    assets![
        "console.css" CSS,
        "icons.svg" SVG,
        "favicon.svg" SVG,
        "theme.js" JS,
        "copy.js" JS,
        "find.js" JS,
        "form.js" JS,
        "json.js" JS,
        "list.js" JS,
        "live.js" JS,
        "time.js" JS,
        "timeline.js" JS,
    ]
});

impl Asset {
    fn new(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        let hash = hex(&Sha256::digest(bytes));
        Self { name, kind, bytes, served: format!("{}-{name}", &hash[..DIGITS]) }
    }
}

/// Address of an asset.
pub(super) fn address(name: &str) -> String {
    let asset = ALL.iter().find(|asset| asset.name == name).expect("a page names assets that exist");
    format!("/assets/{}", asset.served)
}

/// `GET /assets/{name}`.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    let Some(asset) = ALL.iter().find(|asset| asset.served == name) else {
        return Problem::not_found("there is no such file; reload the page").into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ];
    ([("cross-origin-resource-policy", "same-origin")], headers, asset.bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(ending: &str) -> usize {
        ALL.iter().filter(|asset| asset.name.ends_with(ending)).map(|asset| asset.bytes.len()).sum()
    }

    #[test]
    fn all_pages_together_load_little() {
        const KIB: usize = 1024;
        assert!(size(".css") <= 24 * KIB, "{} bytes of styles", size(".css"));
        assert!(size(".js") <= 24 * KIB, "{} bytes of scripts", size(".js"));
        assert!(size(".svg") <= 8 * KIB, "{} bytes of icons", size(".svg"));
    }

    #[test]
    fn scripts_never_make_markup_of_values_and_load_nothing_from_elsewhere() {
        for asset in ALL.iter() {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            for banned in ["innerHTML", "eval(", "JSON.parse(text", "insertAdjacentHTML", "document.write"] {
                assert!(!text.contains(banned), "{} has {banned}", asset.name);
            }
            let foreign =
                text.match_indices("http").filter(|(at, _)| !text[*at..].starts_with("http://www.w3.org/"));
            assert_eq!(foreign.count(), 0, "{} names another server", asset.name);
        }
    }
}
