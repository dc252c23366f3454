//! The search for keys on the console: a form, and a page of keys that fit it.
//!
//! The admin API reads its parameters here, too.

use http::StatusCode;
use maud::{Markup, html};

use super::frame::{Row, mark, or_nothing, section, table};
use super::key;
use super::lists::{encoded, link, silent};
use super::session::Visit;
use crate::gateway::operator::export::{FoundKey, FoundPage, STATES, Wanted};
use crate::gateway::operator::instant;
use crate::protocol::key::{KeyId, Tenant};
use crate::server::admin_acts;
use crate::server::admin_http::Answer;

const MOST: u32 = 100;
const FIELDS: [&str; 5] = ["tenant", "route", "state", "from", "before"];

/// Reads the properties, the key behind which the page begins, and the most keys on it.
pub(in crate::server) fn read(pairs: &[(String, String)]) -> Result<(Wanted, Option<KeyId>, u32), String> {
    let (mut wanted, mut after, mut most) = (Wanted::default(), None, MOST);
    let date = |name: &str, value: &str| {
        instant::parse(value)
            .ok_or_else(|| format!("{name} is a date in UTC, such as 2026-01-31T10:00 or 2026-01-31"))
    };
    for (name, value) in pairs {
        let value = value.trim();
        match name.as_str() {
            _ if value.is_empty() => {}
            "tenant" => wanted.tenant = Some(Tenant::parse(value).map_err(|error| error.to_string())?),
            "route" => wanted.route = Some(value.to_owned()),
            "state" if STATES.contains(&value) => wanted.state = Some(value.to_owned()),
            "state" => return Err(format!("state is one of {}", STATES.join(", "))),
            "from" => wanted.from_ms = Some(date("from", value)?),
            "before" => wanted.before_ms = Some(date("before", value)?),
            "after" => {
                let (tenant, key) = value.split_once('/').ok_or("after is TENANT/KEY")?;
                after = Some(admin_acts::id(tenant, key)?);
            }
            "limit" => match value.parse() {
                Ok(limit @ 1..=MOST) => most = limit,
                Ok(_) | Err(_) => return Err(format!("limit is 1 to {MOST}")),
            },
            _ => return Err(format!("the parameters are {}, after and limit", FIELDS.join(", "))),
        }
    }
    Ok((wanted, after, most))
}

pub(super) async fn search(visit: &Visit<'_>) -> Answer {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(visit.query.as_bytes()).into_owned().collect();
    let (status, result) = match read(&pairs) {
        Err(why) => (StatusCode::BAD_REQUEST, html! { p.notice.bad role="alert" { (why) } }),
        Ok((wanted, after, most)) => match visit.gateway.search(&wanted, after.as_ref(), most).await {
            Ok(found) => (StatusCode::OK, shown(&pairs, &found)),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, silent(&error)),
        },
    };
    let main = html! {
        h1 { "Keys" }
        (form(&pairs))
        (result)
        (section("look-up", "Look one key up in all regions", None, &key::form("", "")))
    };
    visit.page(status, "keys", &main)
}

pub(super) fn form(pairs: &[(String, String)]) -> Markup {
    let get = |name: &str| pairs.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
    html! {
        form.look-up method="get" action="/console/keys" role="search" {
            div { label for="find-tenant" { "Tenant" } input #find-tenant name="tenant" value=(get("tenant")) maxlength="64" spellcheck="false" autocapitalize="none" autocomplete="off"; }
            div { label for="find-route" { "Route" } input #find-route name="route" value=(get("route")) maxlength="64" spellcheck="false" autocapitalize="none" autocomplete="off"; }
            div {
                label for="find-state" { "State" }
                select #find-state name="state" {
                    option value="" { "any" }
                    @for state in STATES { option value=(state) selected[get("state") == state] { (state) } }
                }
            }
            div { label for="find-from" { "Claimed from " span.soft { "UTC" } } input #find-from name="from" value=(get("from")) maxlength="40" placeholder="2026-01-31T10:00" autocomplete="off"; }
            div { label for="find-before" { "before " span.soft { "UTC" } } input #find-before name="before" value=(get("before")) maxlength="40" placeholder="2026-01-31T11:00" autocomplete="off"; }
            button type="submit" { "Find keys" }
        }
    }
}

fn shown(pairs: &[(String, String)], found: &FoundPage) -> Markup {
    let rows = found.keys.iter().map(|key| row(key, found.at_ms));
    let asked: String = pairs
        .iter()
        .filter(|(name, value)| FIELDS.contains(&name.as_str()) && !value.is_empty())
        .map(|(name, value)| format!("{name}={}&", encoded(value)))
        .collect();
    html! {
        @if found.keys.is_empty() { p { (mark("none", "No key fits.")) } }
        @else { (table("Keys that fit", rows)) }
        p.soft {
            (found.looked_at) " keys were looked at, in their order, as the store of " (found.region) " knows them."
            @if found.next.is_some() { " There are more: name the tenant to look at its keys only." }
        }
        @if let Some(next) = &found.next {
            p.pages { a href={ "/console/keys?" (asked) "after=" (encoded(next)) } { "Go on from there" } }
        }
    }
}

fn row(key: &FoundKey, now_ms: i64) -> Row<'static> {
    vec![
        ("Key", link(&key.tenant, &key.key)),
        ("State", key::state(&key.state.into())),
        ("Route", html! { (key.route) " " span.soft { (key.path) } }),
        ("Claimed", key::since(key.claimed_ms, now_ms)),
        ("Status", html! { (or_nothing(key.status)) }),
        ("Records of", html! { (key.origins.join(", ")) }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_search_is_read_completely_or_refused() {
        let all = [
            ("tenant", " acme "),
            ("route", "payouts"),
            ("state", "in-doubt"),
            ("from", "2026-01-31"),
            ("before", "2026-01-31T00:00:01Z"),
            ("after", "acme/a/b"),
        ];
        let (wanted, after, _) = read(&pairs(&all)).unwrap();
        assert_eq!(wanted.tenant.unwrap().as_str(), "acme");
        assert_eq!(wanted.before_ms.unwrap() - wanted.from_ms.unwrap(), 1_000);
        assert_eq!(after.unwrap().key().as_str(), "a/b");
        let (wanted, after, most) = read(&pairs(&[("tenant", ""), ("state", " "), ("limit", "5")])).unwrap();
        assert!(wanted.tenant.is_none() && wanted.state.is_none() && after.is_none() && most == 5);
        for (name, value) in [
            ("tenant", "a c"),
            ("state", "lost"),
            ("from", "yesterday"),
            ("before", "now"),
            ("after", "acme"),
            ("limit", "101"),
            ("order", "time"),
        ] {
            assert!(read(&pairs(&[(name, value)])).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn a_page_keeps_what_was_asked_for_and_escapes_it() {
        let evil = "\"><script>";
        let asked = pairs(&[("tenant", "acme"), ("route", evil), ("state", ""), ("after", "acme/a")]);
        let found = FoundPage {
            region: "us".to_owned(),
            at_ms: 0,
            keys: vec![FoundKey {
                tenant: evil.to_owned(),
                key: evil.to_owned(),
                state: "settled",
                route: evil.to_owned(),
                path: evil.to_owned(),
                claimed_ms: None,
                status: Some(201),
                origins: vec![evil.to_owned()],
            }],
            looked_at: 7,
            next: Some("acme/b".to_owned()),
        };
        let text = html! { (form(&asked)) (shown(&asked, &found)) }.into_string();
        assert!(!text.contains("<script>"), "{text}");
        let next = "/console/keys?tenant=acme&amp;route=%22%3E%3Cscript%3E&amp;after=acme%2Fb";
        assert!(text.contains(next), "{text}");
    }
}
