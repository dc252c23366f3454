//! Acts on a key in doubt and on an accepted request: the page shows the act once more, tries it
//! without effect, then does it.
//!
//! A form becomes the same act as the admin API's JSON, so [`crate::server::admin_acts`] decides.
//! If another region has to act, the form asks for the operator's token: that region knows its
//! operators by nothing else. An act is for what its operator saw: if that has changed, nothing is
//! done.

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::frame::mark;
use super::session::{Form, Visit, elsewhere};
use super::{jobs, lists};
use crate::gateway::credentials::operators::Visitor;
use crate::gateway::operator::dead_letters::JobAct;
use crate::gateway::operator::percent;
use crate::ports::body::full;
use crate::ports::store::StoreError;
use crate::protocol::key::KeyId;
use crate::server::admin_acts::{self, What};
use crate::server::admin_http::{APPROVAL, Answer, Posted};

/// Title, consequence, and the button's text.
fn words(what: What) -> (&'static str, &'static str, &'static str) {
    match what {
        What::Settle => (
            "Settle this key?",
            "Every retry is given this answer from now on. It cannot be taken back.",
            "Yes, it happened: settle",
        ),
        What::Release => (
            "Release this key?",
            "Nothing is sent now; a retry of the client runs again. It cannot be taken back.",
            "Yes, it did not happen: release",
        ),
        What::Job(JobAct::Retry) => {
            ("Run this request again?", "A worker runs it when it is free.", "Yes, run it again")
        }
        What::Job(JobAct::Drop) => {
            ("Drop this request?", "The job and its request go. It cannot be taken back.", "Yes, drop it")
        }
    }
}

/// The fields of a form that its look over hands on.
const FIELDS: [&str; 9] = ["region", "tenant", "key", "seen", "reason", "actor", "status", "headers", "body"];

struct Said<'a> {
    name: &'a str,
    what: What,
    id: KeyId,
    /// The region that has to act.
    region: String,
    /// True if that is another region.
    there: bool,
    form: &'a Form,
}

/// An act's refusal: the text, and the request that a second person has to approve.
struct Refused {
    status: StatusCode,
    why: String,
    request: Option<String>,
}

impl Refused {
    fn new(status: StatusCode, why: impl ToString) -> Self {
        Self { status, why: why.to_string(), request: None }
    }

    fn bad(why: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }
}

/// Takes a form: tries what it says and shows it, or does it if the operator confirmed it.
pub(super) async fn act(visit: &Visit<'_>, (name, what): (&str, What), form: &Form) -> Answer {
    let (tenant, key) = (&form.get("tenant"), &form.get("key"));
    let back = match what {
        What::Settle | What::Release => lists::place(tenant, key),
        What::Job(_) => jobs::place(&form.get("region"), tenant, key),
    };
    let said = match admin_acts::id(tenant, key) {
        Ok(id) => Said::new((name, what, id), form, visit.region()),
        Err(why) => return visit.page(StatusCode::BAD_REQUEST, "nothing was done", &nothing(&why, &back)),
    };
    let who = visit.visitor.actor(form.get("actor"));
    match said.taken(visit).await {
        Ok(Some(tried)) => visit.page(StatusCode::OK, "look it over", &said.look_over(&who, &back, tried)),
        Ok(None) => elsewhere(&format!("{back}&done={name}")),
        Err(Refused { status, why, request: None }) => {
            visit.page(status, "nothing was done", &nothing(&why, &back))
        }
        Err(Refused { status, why, request: Some(request) }) => {
            let tried = html! {
                p.notice.warn role="alert" { (mark("warn", &why)) }
                label for="request" { "The request for the second person" }
                textarea #request rows="4" readonly spellcheck="false" { (request) }
            };
            visit.page(status, "a second person is asked", &said.look_over(&who, &back, tried))
        }
    }
}

fn nothing(why: &str, back: &str) -> Markup {
    html! {
        h1 { "Nothing was done" }
        p.notice.bad role="alert" { (mark("bad", why)) }
        p { a href=(back) { "Back" } }
    }
}

impl<'a> Said<'a> {
    fn new((name, what, id): (&'a str, What, KeyId), form: &'a Form, me: &str) -> Self {
        let region = Some(form.get("region")).filter(|region| !region.is_empty());
        let region = region.unwrap_or_else(|| me.to_owned());
        Self { name, what, id, there: region != me, region, form }
    }

    /// Does the act, or tries it: then returns what that showed.
    async fn taken(&self, visit: &Visit<'_>) -> Result<Option<Markup>, Refused> {
        let form = self.form;
        let (there, region) = (self.there, &self.region);
        let (confirmed, token) = (form.get("confirmed") == "yes", form.get("token"));
        visit.visitor.may_act().map_err(|why| Refused::new(StatusCode::FORBIDDEN, why))?;
        if there && visit.visitor == Visitor::Local {
            let why = "another region acts only for an operator whom it knows by a token";
            return Err(Refused::new(StatusCode::FORBIDDEN, why));
        }
        let body = self.body(!confirmed)?;
        if there && form.get("confirmed").is_empty() {
            // Nobody there can try it before the operator shows a token.
            let tried = html! { p { "Nothing was tried yet: " b { (region) } " has to know you first." } };
            return Ok(Some(tried));
        }
        if there && token.trim().is_empty() {
            return Err(Refused::bad("show the token by which the other region knows you"));
        }
        if self.now(visit).await? != form.get("seen") {
            let why = "it has changed since you looked: look at it again";
            return Err(Refused::new(StatusCode::CONFLICT, why));
        }
        let mut headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        if there {
            headers.insert(AUTHORIZATION, header(&format!("Bearer {}", token.trim()))?);
        }
        if !form.get("approval").trim().is_empty() {
            headers.insert(APPROVAL, header(form.get("approval").trim())?);
        }
        self.performed(visit, &headers, body).await?;
        Ok((!confirmed).then(|| html! { p { (mark("good", "Tried without effect: it can be done now.")) } }))
    }

    async fn performed(&self, visit: &Visit<'_>, headers: &HeaderMap, body: Value) -> Result<(), Refused> {
        let [tenant, key] = [self.id.tenant().as_str(), self.id.key().as_str()].map(percent::encode);
        let path = format!("v1/{}/{tenant}/{key}/{}", self.what.list(), self.name);
        let (by, body) = (visit.visitor.clone(), full(body.to_string()));
        let posted = Posted { key: visit.key, by, path: &path, headers, body, passed_on: false };
        let acted = admin_acts::act(visit.gateway, self.what, self.id.clone(), posted).await;
        let (head, body) = acted.unwrap_or_else(|refused| *refused).into_parts();
        if head.status.is_success() {
            return Ok(());
        }
        let Ok(body) = body.collect().await;
        let said: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        let text = |field: &str| said[field].as_str().map(str::to_owned);
        let why = text("detail").or_else(|| text("title"));
        let why = why.unwrap_or_else(|| format!("the answer was {}", head.status));
        let request = text("request").filter(|_| said["code"] == "needs-approval");
        Err(Refused { status: head.status, why, request })
    }

    /// The act as the admin API takes it.
    fn body(&self, dry_run: bool) -> Result<Value, Refused> {
        let form = self.form;
        let mut body =
            json!({ "reason": form.get("reason"), "actor": form.get("actor"), "dry_run": dry_run });
        match self.what {
            What::Settle => {
                let status = form.get("status").trim().parse::<u16>();
                body["status"] = json!(status.map_err(|_| Refused::bad("an answer's status is 200 to 599"))?);
                body["headers"] = json!(headers(&form.get("headers"))?);
                body["body"] = json!(form.get("body"));
            }
            What::Release => {}
            What::Job(_) => body["region"] = json!(self.region),
        }
        Ok(body)
    }

    /// The thing as an operator would see it now.
    async fn now(&self, visit: &Visit<'_>) -> Result<String, Refused> {
        let store = |error: StoreError| {
            let why = format!("The store does not answer: {error}");
            Refused::new(StatusCode::SERVICE_UNAVAILABLE, why)
        };
        let region = &self.region;
        match self.what {
            What::Settle | What::Release => {
                let life = visit.gateway.key_life(&self.id).await.map_err(store)?;
                Ok(life.regions.get(region).map_or(String::new(), admin_acts::seen))
            }
            What::Job(_) => {
                let page = jobs::all(visit).await.map_err(store)?;
                let (tenant, key) = (self.id.tenant().as_str(), self.id.key().as_str());
                let mut all = page.jobs.iter();
                let job = all.find(|job| job.region == *region && job.tenant == tenant && job.key == key);
                Ok(job.map_or(String::new(), jobs::seen))
            }
        }
    }

    /// Makes the page that shows what an act would do. Sending its form does the act.
    fn look_over(&self, who: &str, back: &str, tried: Markup) -> Markup {
        let (form, region) = (self.form, &self.region);
        let (title, then, button) = words(self.what);
        html! {
            h1 { (title) }
            p { (mark("warn", then)) }
            dl.facts.long {
                div { dt { "Key" } dd { code.key { (form.get("key")) } " of " code { (form.get("tenant")) } } }
                div { dt { "Region" } dd { (region) } }
                div { dt { "Seen" } dd { (form.get("seen")) } }
                @if self.what == What::Settle {
                    div { dt { "Status" } dd { (form.get("status")) } }
                    div { dt { "Headers" } dd { pre { (form.get("headers")) } } }
                    div { dt { "Body" } dd {
                        @if form.get("body").is_empty() { span.soft { "empty" } } @else { pre { (form.get("body")) } }
                    } }
                }
                div { dt { "Why" } dd { (form.get("reason")) } }
                div { dt { "Who" } dd { (who) } }
            }
            (tried)
            form.act method="post" action={ "/console/" (self.name) } {
                @for field in FIELDS { input type="hidden" name=(field) value=(form.get(field)); }
                @if self.there {
                    label for="token" { "Your token " span.soft { "for " (region) ", which knows you by it" } }
                    input #token name="token" type="password" required autocomplete="off";
                }
                label for="approval" { "Approval " span.soft { "if a second person is asked for: what `onceway approve` printed" } }
                input #approval name="approval" value=(form.get("approval")) spellcheck="false" autocomplete="off";
                @if self.there { button type="submit" name="confirmed" value="try" { "Try it without effect" } " " }
                button.weighty type="submit" name="confirmed" value="yes" { (button) }
                " "
                a href=(back) { "No, go back" }
            }
        }
    }
}

fn header(text: &str) -> Result<HeaderValue, Refused> {
    HeaderValue::from_str(text).map_err(|_| Refused::bad("a token or an approval is one line of plain text"))
}

fn headers(text: &str) -> Result<Vec<(String, String)>, Refused> {
    let one = |line: &str| {
        let split =
            line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        split.ok_or_else(|| Refused::bad(format!("the header {line:?} must be written 'name: value'")))
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(pairs: &[(&str, &str)]) -> Form {
        Form(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn said<'a>(name: &'a str, form: &'a Form) -> Said<'a> {
        Said::new((name, What::of(name).unwrap(), admin_acts::id("acme", "k").unwrap()), form, "us")
    }

    fn body(name: &str, pairs: &[(&str, &str)]) -> Option<Value> {
        said(name, &form(pairs)).body(false).ok()
    }

    #[test]
    fn a_form_says_what_the_command_line_says() {
        let words = [
            ("region", "eu"),
            ("reason", "po_17"),
            ("actor", "ann"),
            ("status", " 201 "),
            ("headers", "A: b\r\n\r\nC:d:e"),
            ("body", "{\r\n}"),
        ];
        let who = json!({ "reason": "po_17", "actor": "ann", "dry_run": false });
        let with = |more: Value| {
            let mut all = who.clone();
            all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Some(all)
        };
        let answer = json!({ "status": 201, "headers": [["A", "b"], ["C", "d:e"]], "body": "{\n}" });
        assert_eq!(body("settle", &words), with(answer));
        assert_eq!(body("release", &words), with(json!({})));
        assert_eq!(body("retry", &words), with(json!({ "region": "eu" })));
        for (name, value) in [("status", "abc"), ("status", ""), ("status", "99999"), ("headers", "no colon")]
        {
            let wrong = [&[(name, value)][..], &words].concat();
            assert_eq!(body("settle", &wrong), None, "{name} {value}");
        }
    }

    #[test]
    fn looking_over_escapes_what_was_said_and_shows_no_token() {
        let evil = "\"><script>alert(1)</script>";
        let mut words = FIELDS.map(|field| (field, evil)).to_vec();
        words.extend([("approval", evil), ("token", "t0ken")]);
        for name in ["settle", "release", "retry", "drop"] {
            let text = said(name, &form(&words)).look_over(evil, evil, html! {}).into_string();
            assert!(!text.contains("<script") && !text.contains("t0ken"), "{text}");
            assert_eq!(text.contains("<pre>"), name == "settle", "{text}");
        }
    }
}
