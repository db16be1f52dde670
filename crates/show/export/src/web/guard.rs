//! Checks requests, and restricts what a browser may do with answers.
//!
//! The server has no log-in, so other web sites must not reach it through the browsers of their
//! visitors. They cannot read answers, because no cross-origin header is sent, unless they rebind
//! their own name to the address of this server (DNS rebinding). Requests with a host name that is
//! not configured are therefore refused. Addresses are accepted, because they cannot be rebound.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, StatusCode};

/// A refusal: status and text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal(pub StatusCode, pub String);

/// Headers of every answer. Style, script and data come from this server only.
const HEADERS: [(&str, &str); 8] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    (
        "permissions-policy",
        "camera=(), geolocation=(), microphone=()",
    ),
    ("cache-control", "no-store"),
];

/// Accepts GET and HEAD with an accepted host.
pub(super) fn check<B>(request: &Request<B>, hosts: &[String]) -> Result<(), Refusal> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = format!(
            "method {} is not allowed: use GET or HEAD",
            request.method()
        );
        return Err(Refusal(StatusCode::METHOD_NOT_ALLOWED, text));
    }
    let mut named = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        let text = "the request needs exactly one Host header".to_owned();
        return Err(Refusal(StatusCode::BAD_REQUEST, text));
    };
    let host = host.to_str().unwrap_or_default();
    let line = request.uri().authority();
    if !is_accepted(host, hosts) || line.is_some_and(|line| !is_accepted(line.as_str(), hosts)) {
        let text = format!(
            "host {host:?} is not accepted: use localhost or an address, or add the name to [web] hosts"
        );
        return Err(Refusal(StatusCode::MISDIRECTED_REQUEST, text));
    }
    Ok(())
}

fn is_accepted(host: &str, hosts: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    if host.contains('@') {
        return false;
    }
    let name = authority.host();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let name = name.strip_suffix('.').unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|host| name.eq_ignore_ascii_case(host))
}

/// Adds the headers of every answer.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &str, hosts: &[&str]) -> Option<u16> {
        let mut request = Request::builder().method(method).uri("/");
        for host in hosts {
            request = request.header("host", *host);
        }
        let names = ["router.example".to_owned()];
        check(&request.body(()).unwrap(), &names)
            .err()
            .map(|Refusal(status, _)| status.as_u16())
    }

    #[test]
    fn configured_names_and_addresses_are_accepted() {
        for host in [
            "localhost",
            "localhost:9469",
            "LOCALHOST",
            "localhost.",
            "127.0.0.1:9469",
            "[::1]:9469",
            "[::1]",
            "192.0.2.1",
            "Router.Example:80",
        ] {
            assert_eq!(status("GET", &[host]), None, "{host}");
        }
        assert_eq!(status("HEAD", &["localhost"]), None);
    }

    #[test]
    fn other_names_are_refused() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "localhost@evil.example",
            "evil.example@localhost",
            "notlocalhost",
            "127.0.0.1:80:evil",
            "",
        ] {
            assert_eq!(status("GET", &[host]), Some(421), "{host}");
        }
    }

    #[test]
    fn other_methods_and_repeated_hosts_are_refused() {
        for method in [
            "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "FAIRPATH",
        ] {
            assert_eq!(status(method, &["localhost"]), Some(405), "{method}");
        }
        assert_eq!(status("GET", &[]), Some(400));
        assert_eq!(status("GET", &["localhost", "evil.example"]), Some(400));
    }
}
