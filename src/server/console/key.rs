//! One key on the console: each region's records, its journal, and the forms that end its doubt.
//!
//! Answers of peers are their JSON, so every field may be missing.

use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::frame::{NOTHING, Place, ago, date, forms, mark, or_nothing, section, span, table};
use super::lists;
use super::session::Visit;
use crate::gateway::credentials::operators::Visitor;
use crate::gateway::operator::key::{KeyLife, LifeEvent};
use crate::server::admin_acts;
use crate::server::admin_http::Answer;

pub(super) fn form(tenant: &str, key: &str) -> Markup {
    html! {
        form.look-up method="get" action="/console/key" role="search" {
            div { label for="tenant" { "Tenant" } input #tenant name="tenant" value=(tenant) required maxlength="64" spellcheck="false" autocapitalize="none" autocomplete="off"; }
            div.wide { label for="key" { "Key" } input #key name="key" value=(key) required maxlength="255" spellcheck="false" autocapitalize="none" autocomplete="off"; }
            button type="submit" { "Look it up in all regions" }
        }
    }
}

pub(super) async fn look_up(visit: &Visit<'_>) -> Answer {
    let (tenant, key) = (visit.asked("tenant").unwrap_or_default(), visit.asked("key").unwrap_or_default());
    let (tenant, key) = (tenant.trim(), key.trim());
    let failed = |status, why: &str| {
        let main = html! { h1 { "Key" } p.notice.bad role="alert" { (why) } (form(tenant, key)) };
        visit.page(status, "key", &main)
    };
    let id = match admin_acts::id(tenant, key) {
        Ok(id) => id,
        Err(why) => return failed(StatusCode::BAD_REQUEST, &why),
    };
    if lists::asking(visit).is_err() {
        let why = "Shadow mode: nothing is decided, so no key is known.";
        return failed(StatusCode::SERVICE_UNAVAILABLE, why);
    }
    match visit.gateway.key_life(&id).await {
        Ok(life) => {
            let main = render_life(visit, tenant, id.key().as_str(), &life);
            visit.page(StatusCode::OK, "key", &main)
        }
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &format!("The store does not answer: {error}")),
    }
}

/// Writes a field of a peer's answer as a word.
pub(super) fn word(value: &Value) -> String {
    match value {
        Value::Null => NOTHING.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn render_life(visit: &Visit<'_>, tenant: &str, key: &str, life: &KeyLife) -> Markup {
    let me = visit.region();
    let now_ms = visit.gateway.date().as_millis();
    let own = life.regions.get(me).cloned().unwrap_or_default();
    let others = life.regions.iter().filter(|(name, _)| *name != me);
    let order: Vec<String> = own["order"].as_array().into_iter().flatten().map(word).collect();
    let done = match (visit.asked("done").as_deref(), own["state"].as_str()) {
        (Some("settle"), Some("settled")) => Some("settled: every retry is given this answer from now on"),
        (Some("release"), Some("released")) => {
            Some("released: nothing was sent; a retry of the client runs again")
        }
        _ => None,
    };
    html! {
        h1 { "Key " code.key { (key) } " of " code { (tenant) } }
        @if let Some(done) = done { p.notice.good role="status" { (mark("good", done)) } }
        dl.facts {
            div { dt { "Reads as" } dd { (state(&own["state"])) } }
            div { dt { "Owner now" } dd { (word(&own["owner"])) } }
            div { dt { "Order" } dd { (order.join(", ")) } }
            div { dt { "Arc" } dd { (word(&own["arc"])) } }
            div { dt { "Digest in logs" } dd { code { (word(&own["digest"])) } } }
        }
        (decide(&visit.visitor, me, (tenant, key), life))
        (lived(life, now_ms))
        (of_region(me, &own, now_ms))
        @for (name, status) in others { (of_region(name, status, now_ms)) }
        @for (name, why) in &life.silent {
            (section(&format!("in-{name}"), name, None, &html! {
                p.notice.bad { (mark("bad", &format!("did not answer ({why}): what it knows is missing here"))) }
            }))
        }
        (section("look-up", "Another key", None, &form(tenant, "")))
        p { a href="/console#doubts" { "Back to the keys in doubt" } }
    }
}

pub(super) fn state(state: &Value) -> Markup {
    match state.as_str() {
        Some("settled") => mark("good", "settled"),
        Some("in-doubt") => mark("bad", "in doubt"),
        Some("in-progress") => mark("warn", "in progress"),
        Some(other) => mark("none", other),
        None => html! { (NOTHING) },
    }
}

pub(super) fn since(at_ms: Option<i64>, now_ms: i64) -> Markup {
    at_ms.map_or(html! { (NOTHING) }, |at| ago(at, now_ms))
}

fn lived(life: &KeyLife, now_ms: i64) -> Markup {
    let row = |event: &LifeEvent| {
        vec![
            ("When", since(event.at_ms, now_ms)),
            ("Where", html! { (event.region) }),
            ("Attempt", html! { (or_nothing(event.token.as_ref())) }),
            ("What", html! { (event.what) }),
            ("More", html! { (event.text) }),
        ]
    };
    if life.life.is_empty() {
        return html! {};
    }
    section("life", "Its life", None, &table("What happened, oldest first", life.life.iter().map(row)))
}

fn of_region(name: &str, status: &Value, now_ms: i64) -> Markup {
    let list = |field: &str| status[field].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| html! { (word(value)) };
    let (rows, acts) = (list("rows"), list("journal"));
    let row = |row: &Value| {
        let left = row["hold_left_ms"].as_u64().map(span);
        let fingerprint: String = word(&row["fingerprint"]).chars().take(16).collect();
        vec![
            ("Record of", text(&row["origin"])),
            ("State", text(&row["state"])),
            ("Token", text(&row["token"])),
            ("Status", text(&row["status"])),
            ("Hold left", html! { (or_nothing(left)) }),
            ("Remembered until", html! { (or_nothing(row["expires_ms"].as_i64().map(date))) }),
            ("Request", html! { code { (word(&row["request_id"])) } }),
            ("Fingerprint", html! { code { (fingerprint) } }),
        ]
    };
    let act = |entry: &Value| {
        vec![
            ("Kind", text(&entry["kind"])),
            ("When", since(entry["at_ms"].as_i64(), now_ms)),
            ("Token", text(&entry["token"])),
            ("Who", text(&entry["actor"])),
            ("Why", text(&entry["reason"])),
        ]
    };
    let body = html! {
        @if rows.is_empty() { p { "It has no record: as far as its copies have come, nothing was ever claimed." } }
        @else { (table(&format!("Records in {name}"), rows.iter().map(row))) }
        @if !acts.is_empty() {
            h3 { "Its journal" }
            (table(&format!("Journal of {name}"), acts.iter().map(act)))
        }
    };
    let state = word(&status["state"]);
    section(&format!("in-{name}"), &format!("In {name}: {state}"), None, &body)
}

/// Makes the forms, if the key's owner has it in doubt.
fn decide(visitor: &Visitor, me: &str, (tenant, key): (&str, &str), life: &KeyLife) -> Markup {
    let owner = life.regions.get(me).map_or(String::new(), |own| word(&own["owner"]));
    let Some(status) = life.regions.get(&owner) else {
        let body =
            html! { p { "Its owner is " b { (owner) } ", which did not answer: nobody else may decide." } };
        return html! { @if life.silent.contains_key(&owner) { (section("decide", "Decide", None, &body)) } };
    };
    if status["state"] != "in-doubt" {
        return html! {};
    }
    let answer = html! {
        label for="status" { "Status that clients are given" }
        input #status name="status" type="number" min="200" max="599" required inputmode="numeric";
        label for="headers" { "Headers, one a line " span.soft { "name: value" } }
        textarea #headers name="headers" rows="2" spellcheck="false" { "content-type: application/json" }
        label for="body" { "Body" }
        textarea #body name="body" rows="4" spellcheck="false" {}
    };
    let seen = admin_acts::seen(status);
    forms(
        visitor,
        me,
        &Place { region: &owner, tenant, key, seen: &seen },
        &html! { p { "Ask the provider first: by the key, or by a request's id. The upstream is not asked here, and neither act can be taken back." } },
        &[
            (
                "settle",
                "It happened: settle",
                "Store this answer, which every retry is given from now on.",
                answer,
            ),
            (
                "release",
                "It did not happen: release",
                "Nothing is sent now, but a retry of the client runs again. If the effect did happen after all, that retry performs it a second time.",
                html! {},
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_from_outside_is_escaped_on_the_page() {
        let evil = "\"><img src=x onerror=alert(1)>";
        let row = json!({ "origin": evil, "state": evil, "token": evil, "request_id": evil, "fingerprint": evil, "status": evil });
        let entry = json!({ "at_ms": evil, "kind": evil, "token": evil, "actor": evil, "reason": evil });
        let status = json!({ "state": evil, "owner": evil, "rows": [row], "journal": [entry] });
        let doubt = json!({ "state": "in-doubt", "owner": evil, "rows": [row] });
        let all = html! {
            (of_region(evil, &status, 0)) (decide(&Visitor::Local, evil, (evil, evil), &life(evil, &doubt))) (form(evil, evil)) (state(&status["state"]))
        };
        let text = all.into_string();
        assert!(!text.contains("<img") && !text.contains("\"&gt;&lt;img"), "{text}");
        assert!(text.contains("&lt;img"));
    }

    #[test]
    fn a_peer_that_says_something_else_breaks_nothing() {
        for odd in [
            json!(null),
            json!([1]),
            json!({ "rows": 7, "journal": { "a": 1 } }),
            json!({ "rows": [null, "x"] }),
        ] {
            assert!(of_region("a", &odd, 0).into_string().contains("In a"), "{odd}");
        }
    }

    fn life(name: &str, status: &Value) -> KeyLife {
        let regions = [("a", status), (name, status)].map(|(name, status)| (name.to_owned(), status.clone()));
        let silent = [("c".to_owned(), "late".to_owned())].into();
        KeyLife { regions: regions.into(), silent, life: Vec::new() }
    }

    /// A region knows the operators of another one by nothing but their tokens.
    #[test]
    fn a_ruling_form_appears_only_if_the_owner_accepts() {
        let doubt = |owner: &str| json!({ "state": "in-doubt", "owner": owner, "rows": [] });
        let forms = |visitor: &Visitor, owner: &str| {
            let text = decide(visitor, "a", ("acme", "k"), &life("b", &doubt(owner))).into_string();
            (text.matches("<form").count(), text.contains("asked for your token"))
        };
        let (local, shared) = (Visitor::Local, Visitor::Shared { beside_named: false });
        assert_eq!((forms(&local, "a"), forms(&shared, "a")), ((2, false), (2, false)));
        assert_eq!((forms(&local, "b"), forms(&shared, "b")), ((0, false), (2, true)));
        assert_eq!((forms(&local, "c"), forms(&shared, "c")), ((0, false), (0, false)));
        let settled = json!({ "state": "settled", "owner": "a", "rows": [] });
        assert_eq!(decide(&local, "a", ("acme", "k"), &life("b", &settled)).into_string(), "");
    }

    #[test]
    fn the_seen_state_names_each_record() {
        let row =
            |origin: &str, token: &str| json!({ "origin": origin, "token": token, "state": "in-doubt" });
        let status = json!({ "rows": [row("a#1", "3.1"), row("b#1", "2.1")] });
        assert_eq!(admin_acts::seen(&status), "a#1 3.1 in-doubt, b#1 2.1 in-doubt");
        assert_eq!(admin_acts::seen(&json!({})), "");
    }
}
