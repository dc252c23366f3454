//! Settling and releasing a key on the console: the page shows the act once more, then does it.
//!
//! [`super::key`] has the forms. [`crate::server::admin_acts`] makes the same act of a form as of
//! the admin API's JSON. `gateway::operator` decides and journals. An act is for the records that
//! its operator saw: if they have changed, nothing is done. This file must not do anything when a
//! form is sent for the first time.

use http::StatusCode;
use maud::{Markup, html};

use super::frame::{self, mark};
use super::lists::place;
use super::{Answer, Form, Visit, elsewhere, page};
use crate::gateway::credentials::operators::Weighty;
use crate::gateway::operator::{Refusal, well_formed};
use crate::ports::Ports;
use crate::ports::upkeep::{Act, Ruling};
use crate::protocol::key::KeyId;
use crate::protocol::record::AnswerBody;
use crate::server::admin_acts::{self, ActRequest, Verb};

struct Refused {
    status: StatusCode,
    why: String,
}

impl Refused {
    fn bad(why: impl ToString) -> Self {
        Self { status: StatusCode::BAD_REQUEST, why: why.to_string() }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { status: admin_acts::status_of(&refusal), why: refusal.to_string() }
    }
}

/// Takes a form: shows what it would do, or does it if the operator confirmed it.
pub(super) async fn act<P: Ports>(visit: &Visit<'_, P>, verb: &str, form: &Form) -> Answer {
    match taken(visit, verb, form).await {
        Ok(answer) => answer,
        Err(Refused { status, why }) => {
            let main = html! {
                h1 { "Nothing was done" }
                p.notice.bad role="alert" { (mark("bad", &why)) }
                p { a href=(place(&form.get("tenant"), &form.get("key"))) { "Back to the key" } }
            };
            page(
                status,
                frame::page(visit.gateway.region().as_str(), "nothing was done", visit.signed_in(), &main),
            )
        }
    }
}

async fn taken<P: Ports>(visit: &Visit<'_, P>, verb: &str, form: &Form) -> Result<Answer, Refused> {
    let (tenant, key) = (form.get("tenant"), form.get("key"));
    let id = admin_acts::id(&tenant, &key).map_err(Refused::bad)?;
    visit.visitor.may_act().map_err(|why| Refused { status: StatusCode::FORBIDDEN, why })?;
    if verb == "release" && visit.key.needs(Weighty::Release) {
        let why = "a release asks for a second person here: `onceway key release` says how".to_owned();
        return Err(Refused { status: StatusCode::FORBIDDEN, why });
    }
    let mut act = read(verb, form)?;
    act.actor = visit.visitor.actor(act.actor);
    well_formed(&act)?;
    if form.get("confirmed") != "yes" {
        let main = look_over(verb, &id, &act, form);
        return Ok(page(
            StatusCode::OK,
            frame::page(visit.gateway.region().as_str(), "look it over", visit.signed_in(), &main),
        ));
    }
    let found = visit.gateway.key_status(&id).await.map_err(Refusal::Store)?;
    if admin_acts::seen(&serde_json::to_value(&found).unwrap_or_default()) != form.get("seen") {
        return Err(Refusal::Changed.into());
    }
    visit.gateway.rule(&id, &act).await?;
    Ok(elsewhere(&format!("{}&done={verb}", place(&tenant, &key))))
}

fn read(verb: &str, form: &Form) -> Result<Act, Refused> {
    let (reason, actor) = (form.get("reason"), form.get("actor"));
    let none = ActRequest { reason, actor, status: None, headers: Vec::new(), body: None, dry_run: false };
    let (verb, said) = match verb {
        "settle" => {
            let status = form.get("status");
            let status =
                status.trim().parse().map_err(|_| Refused::bad("an answer's status is 200 to 599"))?;
            let headers = headers(&form.get("headers"))?;
            (Verb::Settle, ActRequest { status: Some(status), headers, body: Some(form.get("body")), ..none })
        }
        _ => (Verb::Release, none),
    };
    admin_acts::act(verb, said).map_err(Refused::bad)
}

fn headers(text: &str) -> Result<Vec<(String, String)>, Refused> {
    let one = |line: &str| {
        let split =
            line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        split.ok_or_else(|| Refused::bad(format!("the header {line:?} must be written 'name: value'")))
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(one).collect()
}

/// Makes the page that shows what an act would do. Sending its form does the act.
fn look_over(verb: &str, id: &KeyId, act: &Act, form: &Form) -> Markup {
    let fields = ["tenant", "key", "seen", "reason", "actor", "status", "headers", "body"];
    let (title, then, button) = match act.ruling {
        Ruling::Settled(_) => {
            ("Settle this key?", "Every retry is given this answer from now on.", "Yes, it happened: settle")
        }
        Ruling::Released => (
            "Release this key?",
            "Nothing is sent now; a retry of the client runs again.",
            "Yes, it did not happen: release",
        ),
    };
    html! {
        h1 { (title) }
        p { (mark("warn", then)) " It cannot be taken back." }
        dl.facts.long {
            div { dt { "Key" } dd { code.key { (id.key().as_str()) } " of " code { (id.tenant().as_str()) } } }
            div { dt { "Records" } dd { (form.get("seen")) } }
            @if let Ruling::Settled(answer) = &act.ruling {
                div { dt { "Status" } dd { (answer.status) } }
                div { dt { "Headers" } dd { @for (name, value) in &answer.headers { code { (name) ": " (String::from_utf8_lossy(value)) } br; } } }
                div { dt { "Body" } dd { (body(&answer.body)) } }
            }
            div { dt { "Why" } dd { (act.reason) } }
            div { dt { "Who" } dd { (act.actor) } }
        }
        form.act method="post" action={ "/console/" (verb) } {
            @for field in fields { input type="hidden" name=(field) value=(form.get(field)); }
            button.weighty type="submit" name="confirmed" value="yes" { (button) }
            " "
            a href=(place(id.tenant().as_str(), id.key().as_str())) { "No, go back" }
        }
    }
}

fn body(body: &AnswerBody) -> Markup {
    match body {
        AnswerBody::Kept(bytes) if bytes.is_empty() => html! { span.soft { "empty" } },
        AnswerBody::Kept(bytes) => html! { pre { (String::from_utf8_lossy(bytes)) } },
        AnswerBody::NotKept => html! { span.soft { "not kept" } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(pairs: &[(&str, &str)]) -> Form {
        Form(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_form_says_what_the_command_line_says() {
        let said = [
            ("reason", "po_17"),
            ("actor", "ann"),
            ("status", " 201 "),
            ("headers", "A: b\r\n\r\nC:d:e"),
            ("body", "{\r\n}"),
        ];
        let Ok(act) = read("settle", &form(&said)) else { panic!("an act") };
        let Ruling::Settled(answer) = &act.ruling else { panic!("settled") };
        let headers: Vec<(&str, &[u8])> =
            answer.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!((answer.status, &headers[..]), (201, &[("a", &b"b"[..]), ("c", b"d:e")][..]));
        assert!(matches!(&answer.body, AnswerBody::Kept(bytes) if **bytes == *b"{\n}"));
        let Ok(act) = read("release", &form(&said)) else { panic!("an act") };
        assert!(act.ruling == Ruling::Released && act.reason == "po_17" && act.actor == "ann");
        for (name, value) in [("status", "abc"), ("status", ""), ("status", "99999"), ("headers", "no colon")]
        {
            let wrong = [&[(name, value)][..], &said].concat();
            assert!(read("settle", &form(&wrong)).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn looking_over_escapes_what_was_said() {
        let evil = "\"><script>alert(1)</script>";
        let said = [
            ("reason", evil),
            ("actor", evil),
            ("status", "201"),
            ("headers", "x: \"><b>"),
            ("body", evil),
            ("seen", evil),
        ];
        let Ok(act) = read("settle", &form(&said)) else { panic!("an act") };
        let id = admin_acts::id("acme", "\"><script>").unwrap();
        let text = look_over("settle", &id, &act, &form(&said)).into_string();
        assert!(!text.contains("<script") && !text.contains("<b>"), "{text}");
    }
}
