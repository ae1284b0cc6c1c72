//! The console: static files that are embedded in the binary. They give no access; the API
//! authorises requests.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use rust_embed::{EmbeddedFile, RustEmbed};

/// The file at `/`.
const INDEX: &str = "index.html";

/// Everything is loaded from this broker, except that MQTT may be at another port or, behind a
/// proxy, at another name.
const POLICY: &str =
    "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; style-src 'self'; frame-ancestors 'none'";

/// Browsers ask each time whether a file is still the same, so that an update of the broker is seen
/// at once.
const CACHING: &str = "no-cache";

/// Media type of bytes of unknown type.
const UNKNOWN: &str = "application/octet-stream";

/// Bytes of a file's hash that its ETag shows.
const TAG_BYTES: usize = 16;

#[derive(RustEmbed)]
#[folder = "../../console/"]
struct Files;

/// Serves the files, each at its own path, and the first page at `/`: for paths without another
/// route.
pub(crate) fn pages() -> MethodRouter {
    get(|uri: Uri, headers: HeaderMap| async move {
        let path = uri.path().trim_start_matches('/');
        answer(if path.is_empty() { INDEX } else { path }, &headers)
    })
}

fn answer(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = Files::get(path) else {
        return (StatusCode::NOT_FOUND, "there is no such page\n").into_response();
    };
    let tag = tag(&file);
    let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|known| names(known, &tag));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let body = match file.data {
            Cow::Borrowed(bytes) => Body::from(bytes),
            Cow::Owned(bytes) => Body::from(bytes),
        };
        ([(CONTENT_TYPE, media_type(path).unwrap_or(UNKNOWN))], body).into_response()
    };
    let fixed = [
        (CACHE_CONTROL, CACHING),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    let headers = response.headers_mut();
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.insert(ETAG, HeaderValue::try_from(tag).expect("hexadecimal digits in quotes"));
    response
}

/// The ETag of a file's content.
fn tag(file: &EmbeddedFile) -> String {
    let digits: String = file.metadata.sha256_hash()[..TAG_BYTES].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{digits}\"")
}

/// Whether a list of ETags has this one, weak or not.
fn names(list: &HeaderValue, tag: &str) -> bool {
    let tags = list.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.map(|known| known.strip_prefix("W/").unwrap_or(known)).any(|known| known == tag || known == "*")
}

/// The media type of a path; `None` if its ending is not known.
fn media_type(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let known = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "geojson" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("bin") => UNKNOWN,
        // Licences have no ending.
        Some("txt" | "md") | None => "text/plain; charset=utf-8",
        Some(_) => return None,
    };
    Some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header<'a>(response: &'a Response, name: &str) -> &'a str {
        response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
    }

    #[test]
    fn the_first_page_is_there_with_all_that_protects_it_and_is_not_sent_twice() {
        let mut asked = HeaderMap::new();
        let first = answer(INDEX, &asked);
        assert_eq!((first.status(), header(&first, "content-type")), (StatusCode::OK, "text/html; charset=utf-8"));
        assert!(header(&first, "content-security-policy").contains("frame-ancestors 'none'"));
        assert_eq!(header(&first, "x-content-type-options"), "nosniff");
        assert_eq!(header(&first, "referrer-policy"), "no-referrer");
        let tag = header(&first, "etag").to_owned();
        asked.insert(IF_NONE_MATCH, HeaderValue::try_from(format!("\"other\", W/{tag}")).expect("a header"));
        let second = answer(INDEX, &asked);
        assert_eq!((second.status(), header(&second, "etag")), (StatusCode::NOT_MODIFIED, &*tag));
        asked.insert(IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert_eq!(answer(INDEX, &asked).status(), StatusCode::OK);
    }

    #[test]
    fn no_other_files_are_there() {
        for path in ["../Cargo.toml", "/etc/passwd", "nothing", "", "index.html/"] {
            assert_eq!(answer(path, &HeaderMap::new()).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn every_file_of_the_console_has_a_type() {
        for path in Files::iter() {
            assert!(media_type(&path).is_some(), "{path}: name its type in `media_type`");
        }
    }

    /// The policy lets no page run inline code, or load from elsewhere.
    #[test]
    fn pages_bring_nothing_that_the_policy_forbids() {
        for path in Files::iter().filter(|path| path.ends_with(".html")) {
            let text = String::from_utf8(Files::get(&path).expect("it is there").data.into_owned()).expect("text");
            for forbidden in ["<style", " style=", " onclick=", "src=\"http", "href=\"http"] {
                assert!(!text.contains(forbidden), "{path} has {forbidden}");
            }
        }
    }
}
