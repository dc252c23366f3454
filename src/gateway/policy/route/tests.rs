//! Tests of routes, as plain values: matching, meanings, and rules for doubts on a path.

use http::{HeaderName, HeaderValue};

use super::*;
use crate::ports::upstream::ForwardKey;
use crate::protocol::key::{KeyError, Syntax};
use crate::protocol::record::Recovery;

fn matches(pattern: &str, path: &str) -> bool {
    PathPattern::parse(pattern).unwrap().matches(path)
}

#[test]
fn patterns_match_bytes_and_whole_segments() {
    assert!(matches("/v1/charges", "/v1/charges"));
    assert!(!matches("/v1/charges", "/v1/charges/"));
    assert!(!matches("/v1/charges", "/v1//charges"));
    assert!(!matches("/v1/charges", "/v1/%63harges"));
    assert!(matches("/v1/charges/{id}/refunds", "/v1/charges/ch_1/refunds"));
    assert!(!matches("/v1/charges/{id}/refunds", "/v1/charges//refunds"));
    assert!(matches("/v1/*", "/v1/"));
    assert!(matches("/v1/*", "/v1/a/b"));
    assert!(matches("/*", "/"));
    assert!(!matches("/v1/*", "/v2/a"));
    assert!(matches("/", "/"));
    assert!(!matches("/", "*"));
}

#[test]
fn bad_patterns_are_refused() {
    for bad in ["v1", "", "/v1/*/x", "/v1/a*", "/v1/{id", "/v1?x"] {
        assert!(PathPattern::parse(bad).is_err(), "{bad}");
    }
}

fn find<'a>(routes: &'a Routes, method: &str, path: &str) -> Matched<'a> {
    routes.find(&Method::from_bytes(method.as_bytes()).unwrap(), path, &HeaderMap::new())
}

#[test]
fn state_changing_methods_without_a_route_are_refused() {
    let routes = Routes::default();
    for refused in ["POST", "PATCH", "post", "Patch", "MKCOL"] {
        let matched = find(&routes, refused, "/x");
        assert!(matches!(matched, Matched::Refused(Refused::NoRoute)), "{refused}");
    }
    for passes in ["GET", "DELETE"] {
        assert!(matches!(find(&routes, passes, "/x"), Matched::PassThrough), "{passes}");
    }
}

#[test]
fn a_path_has_a_policy_only_if_routes_agree() {
    let (all, other) = (routes(&[("/a", "required"), ("/a", "required"), ("/*", "off")]), "/b");
    assert!(all.of_path("/a").is_some() && all.of_path(other).is_none() && all.of_path("").is_none());
    // What a route before it takes is never the second one's, unless by other methods.
    let (rerun, park) = (Recovery::Rerun { max_attempts: 9 }, Recovery::Park);
    let other_way = Policy { recovery: rerun, ..Policy::usual() };
    let with = |methods: &[Method], taken: &[Method]| {
        let mut all = all.clone();
        all.0[0].methods = taken.to_vec();
        all.0[1].methods = methods.to_vec();
        all.0[1].terms = Arc::new(other_way.clone());
        all
    };
    let (post, patch) = (Method::POST, Method::PATCH);
    let is_first = |all: &Routes| all.of_path("/a").is_some_and(|found| found.recovery == park);
    assert!(is_first(&with(&[], &[])));
    let shadowed = with(std::slice::from_ref(&post), &[post.clone(), patch.clone()]);
    assert!(is_first(&shadowed));
    assert!(with(&[patch], &[post]).of_path("/a").is_none());
}

#[test]
fn the_key_comes_from_its_first_header_only() {
    let own = HeaderName::from_static("idempotency-key");
    let from = vec![own.clone(), HeaderName::from_static("x-request-key")];
    let both = KeyHeaders { from, to: ForwardKey::default() };
    let headers = |lines: &[(&'static str, &'static str)]| -> HeaderMap {
        let line = |&(name, text)| (HeaderName::from_static(name), HeaderValue::from_static(text));
        lines.iter().map(line).collect()
    };
    let read = |lines: &[(&'static str, &'static str)]| {
        both.read(&headers(lines), Syntax::Lenient).map(|(key, written)| (key.as_str().to_owned(), written))
    };
    let written = |key: &str, written: &'static str| Ok((key.to_owned(), HeaderValue::from_static(written)));
    assert_eq!(read(&[("x-request-key", "\"a\"")]), written("a", "\"a\""));
    assert_eq!(read(&[("x-request-key", "\"a\""), ("idempotency-key", "a")]), written("a", "a"));
    assert_eq!(read(&[("x-request-key", "b"), ("idempotency-key", "a")]), Err(KeyError::Repeated));
    assert_eq!(read(&[("x-request-key", "a"), ("x-request-key", "a")]), Err(KeyError::Repeated));
    assert_eq!(read(&[("x-request-key", ""), ("idempotency-key", "a")]), Err(KeyError::Empty));
    assert_eq!(read(&[("x_request_key", "a")]), Err(KeyError::Missing));
    let all = [("x-request-key", "a"), ("idempotency-key", "a"), ("x_request_key", "b"), ("x-other", "c")];
    let mut left = headers(&all);
    both.move_into(&mut left, &own, HeaderValue::from_static("a"));
    assert_eq!(left, headers(&[("x-other", "c"), ("idempotency-key", "a")]));
    let mut left = headers(&all);
    KeyHeaders::default().move_into(&mut left, &own, HeaderValue::from_static("a"));
    assert_eq!(left, headers(&all), "other headers are the client's own");
}

/// Routes of these paths and with these words for keys, which take any method.
fn routes(all: &[(&str, &str)]) -> Routes {
    let route = |(path, key): &(&str, &str)| Route {
        name: (*path).into(),
        methods: vec![],
        path: PathPattern::parse(path).unwrap(),
        protection: match *key {
            "off" => Protection::Off,
            "optional" => Protection::Optional,
            _ => Protection::Required,
        },
        terms: Arc::new(Policy::usual()),
        allow_overrides: *key == "allows",
    };
    Routes(all.iter().map(route).collect())
}

fn is_other_spelling(routes: &Routes, path: &str) -> bool {
    matches!(find(routes, "PUT", path), Matched::Refused(Refused::Spelling))
}

#[test]
fn alternative_spellings_of_keyed_paths_are_refused() {
    let keyed = ("/v1/transfers/{id}", "required");
    for rest in [&[][..], &[("/*", "off")], &[("/*", "optional")], &[("/*", "required")]] {
        let routes = routes(&[&[("/v1/notes", "off"), keyed, ("/V2/Pay%2f", "required")], rest].concat());
        for other in ["//v1/transfers/1", "/v1/%74ransfers/1", "/v1;a/transfers/1", "/v1/transfers/1/"] {
            assert!(is_other_spelling(&routes, other), "{rest:?} {other}");
        }
        assert!(is_other_spelling(&routes, "/v2/p%61y"), "a pattern has a plain spelling, too");
        for plain in ["/v1/transfers/1", "/v1/transfers/%31", "/v1/notes", "/v1/transfers", "/v1"] {
            assert!(!is_other_spelling(&routes, plain), "{rest:?} {plain}");
        }
        assert!(!matches!(find(&routes, "GET", "//v1/transfers/1"), Matched::Refused(_)), "{rest:?}");
    }
}

#[test]
fn a_route_means_the_requests_that_come_to_it() {
    let usual = [("/v1/pay", "required"), ("/v1/notes", "required")];
    let means = |all: &[(&str, &str)], name| routes(all).meanings().get(name).copied();
    let pay = means(&usual, "/v1/pay").unwrap();
    let with_more = [usual[0], usual[1], ("/v1/more", "required")];
    assert_eq!(means(&with_more, "/v1/pay"), Some(pay), "what comes after takes nothing from it");
    for other in [
        [("/v1/{any}", "required"), ("/v1/pay", "required")],
        [("/v1/notes", "required"), ("/v1/pay", "required")],
    ] {
        assert_ne!(means(&other, "/v1/pay"), Some(pay), "{other:?}");
    }
    let mut put = routes(&usual);
    put.0[0].methods = vec![Method::PUT];
    assert_ne!(put.meanings()["/v1/pay"], pay);
    let lodged = |escrow, recovery| {
        let mut all = routes(&usual);
        all.0[0].terms = Arc::new(Policy { escrow, recovery, ..Policy::usual() });
        all.meanings()["/v1/pay"]
    };
    let Policy { escrow, recovery, .. } = Policy::usual();
    assert_eq!(lodged(escrow, recovery), pay);
    assert_ne!(lodged(Escrow::Claim(Alone::Refuse), recovery), pay);
    assert_ne!(lodged(escrow, Recovery::Rerun { max_attempts: 77 }), pay);
    let open = routes(&[("/v1/pay", "off")]);
    assert!(open.meanings().is_empty(), "without keys there is nothing to prove");
}

#[test]
fn the_order_of_routes_says_which_of_two_is_meant() {
    let first = routes(&[("/v1/{name}", "off"), ("/v1/pay", "required")]);
    assert!(!is_other_spelling(&first, "/v1/p%61y"), "/v1/pay itself asks for no key");
    let empty = routes(&[("/a/{x}/pay", "off"), ("/a/pay", "required")]);
    assert!(is_other_spelling(&empty, "/a/;/pay"), "the first does not take the plain spelling");
    assert!(!is_other_spelling(&empty, "/a/x/pay"));
    let split = routes(&[("/c/{id}", "required"), ("/c/{id}/refunds", "required")]);
    assert!(is_other_spelling(&split, "/c/1%2frefunds"), "under which of the two policies?");
}

#[test]
fn a_header_that_overrides_is_refused_unless_its_route_allows_it() {
    let routes = routes(&[("/a", "required"), ("/b", "allows"), ("/c", "off")]);
    let overridden = |method: &str, path: &str, name: &str| {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_static("/a"))]);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        matches!(routes.find(&method, path, &headers), Matched::Refused(Refused::Override))
    };
    for name in METHOD_OVERRIDES.iter().chain(&PATH_OVERRIDES) {
        for path in ["/a", "/c", "/unlisted"] {
            assert!(overridden("PUT", path, name), "{path} {name}");
        }
        assert!(!overridden("PUT", "/b", name), "{name}");
    }
    assert!(overridden("GET", "/unlisted", "X_HTTP_Method_Override"));
    assert!(!overridden("GET", "/unlisted", "X-Original-URL"), "it stays a GET");
    assert!(!overridden("PUT", "/c", "X-Other"));
    let name = HeaderName::from_static("x-http-method");
    let headers = HeaderMap::from_iter([(name, HeaderValue::from_static("POST"))]);
    let none = Routes::default();
    let unkeyed = none.find(&Method::GET, "/a", &headers);
    assert!(matches!(unkeyed, Matched::PassThrough), "there is nothing to get past");
}

#[test]
fn a_path_that_climbs_out_of_its_route_changes_nothing() {
    let routes = routes(&[("/v1/notes/*", "off")]);
    // The plain spelling has more of them (`path`).
    for path in ["/v1/notes/../charges", "/v1/notes/%2e%2E/charges", "/v1/notes/..\\charges", "/v1/notes/./x"]
    {
        for method in ["POST", "PUT", "DELETE"] {
            let matched = find(&routes, method, path);
            assert!(matches!(matched, Matched::Refused(Refused::NoRoute)), "{method} {path}");
        }
        assert!(matches!(find(&routes, "GET", path), Matched::Route(_)), "{path}");
    }
    for path in
        ["/v1/notes/a.b", "/v1/notes/...", "/v1/notes/.well-known", "/v1/notes/a%2Fb", "/v1/notes/x;.."]
    {
        assert!(matches!(find(&routes, "POST", path), Matched::Route(_)), "{path}");
    }
}
