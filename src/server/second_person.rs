//! A second person for weighty acts: the request of the first one, and the approval of it.
//!
//! A request holds the act as it was posted, its operator, and what the act finds. An approval is a
//! name, an end, and a seal over both and the request. This process drew the seal's key, so nothing
//! is stored. It is for that act alone, as long as that act finds the same.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use http::StatusCode;
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Gateway;
use super::admin_http::{Acted, Answer, Case, Key, Posted, bad, forbidden, json, with};
use crate::gateway::credentials::operators::Weighty;
use crate::protocol::region::RegionName;
use crate::protocol::time::Date;

/// Duration of an approval, in milliseconds.
const LASTS: i64 = 15 * 60 * 1_000;

/// An act that is approved, whole.
#[derive(Serialize, Deserialize)]
struct Request {
    region: String,
    path: String,
    act: Value,
    actor: String,
    /// The key's records or the epoch, as the act finds them.
    finds: String,
}

#[derive(Serialize, Deserialize)]
struct Approval {
    by: String,
    until_ms: i64,
    seal: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApproveRequest {
    request: String,
    /// If set, shows what would be approved.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Approved {
    #[serde(flatten)]
    request: Request,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<String>,
    until_ms: i64,
    dry_run: bool,
}

impl Case<'_> {
    pub(super) fn needs(&self, what: Weighty) -> bool {
        self.key.operators.now().second_person.contains(&what)
    }

    /// The name for the journal: `actor`, or both persons. `finds` is what the act is about now.
    /// The error is an answer that says how to go on, if nobody approved the act.
    pub(super) fn judge(
        &self,
        what: Weighty,
        actor: String,
        finds: String,
        (region, now): (&RegionName, Date),
    ) -> Result<String, Box<Answer>> {
        if !self.needs(what) {
            return Ok(actor);
        }
        if self.by.name() != Some(&*actor) {
            let why = "this act asks for a second person, so its first one must have a name: use a token of your own";
            return Err(forbidden(why));
        }
        let (region, path, mut act) = (region.to_string(), self.path.to_owned(), self.body.clone());
        // The name that the act claims means nothing.
        act.as_object_mut().and_then(|act| act.remove("actor"));
        let request = encoded(&Request { region, path, act, actor: actor.clone(), finds });
        let refused = |why: &str| {
            let more = json!({ "code": "needs-approval", "request": &request });
            Err(Box::new(with(StatusCode::FORBIDDEN, why, more)))
        };
        let Some(given) = &self.approval else {
            return refused(
                "this act asks for a second person: have one whose role is \"approve\" run `onceway approve REQUEST`, then act again with --approval",
            );
        };
        let Some(approval) = decoded::<Approval>(given) else {
            return refused("this is no approval: give --approval what `onceway approve` printed");
        };
        let Approval { by, until_ms, seal } = &approval;
        let seal = BASE64.decode(seal).unwrap_or_default();
        if hmac::verify(&self.key.drawn, &sealed(&request, by, *until_ms), &seal).is_err() {
            return refused(
                "this approval is not one of this act: the act differs, what it finds has changed, or this gateway was started anew; ask for another one",
            );
        }
        let left = until_ms - now.as_millis();
        if !(0..=LASTS).contains(&left) {
            return refused("this approval ended: ask for another one");
        }
        let operators = self.key.operators.now();
        let may = |name: &str| operators.named.values().any(|one| one.name == name && one.may_approve());
        if *by == actor || !may(by) {
            return refused("whoever gave this approval may not approve this act: ask for another one");
        }
        Ok(format!("{actor}, approved by {by}"))
    }
}

/// Approves the act of another operator, or shows it only.
pub(super) async fn approve(gateway: &Gateway, posted: Posted<'_>) -> Acted {
    let (ApproveRequest { request: text, dry_run }, case) = posted.read().await?;
    let request: Request = decoded(&text).ok_or_else(|| {
        bad("this is no request: give `onceway approve` the one that the refused act printed")
    })?;
    let by = case.by.may_approve().map_err(forbidden)?;
    if by == request.actor {
        return Err(forbidden(format!("{by} asked for this act: another person has to approve it")));
    }
    if request.region != gateway.region().as_str() {
        return Err(bad(&format!("this request is for {}: ask there", request.region)));
    }
    let until_ms = gateway.date().as_millis() + LASTS;
    let approval = (!dry_run).then(|| {
        // The last word names the act: the others may hold a key.
        let act = request.path.rsplit('/').next().unwrap_or_default();
        tracing::info!(by, actor = request.actor, act, "approved an act");
        // As the act will say it again: another spelling of the same request would not fit.
        given(case.key, &encoded(&request), by, until_ms)
    });
    Ok(json(StatusCode::OK, &Approved { request, approval, until_ms, dry_run }))
}

fn given(key: &Key, request: &str, by: &str, until_ms: i64) -> String {
    let seal = hmac::sign(&key.drawn, &sealed(request, by, until_ms));
    encoded(&Approval { by: by.to_owned(), until_ms, seal: BASE64.encode(seal) })
}

fn sealed(request: &str, by: &str, until_ms: i64) -> Vec<u8> {
    json!(["onceway/approval/1", request, by, until_ms]).to_string().into_bytes()
}

fn encoded(value: &impl Serialize) -> String {
    // A value of texts and numbers is always written.
    BASE64.encode(serde_json::to_vec(value).unwrap_or_default())
}

fn decoded<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_json::from_slice(&BASE64.decode(text.trim()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::gateway::credentials::operators::{Operator, Operators, Role};

    const NOW: Date = Date(1_700_000_000_000);

    fn operators(second: &[Weighty]) -> Operators {
        let named = [("ann", Role::Approve, 1), ("bob", Role::Act, 2), ("eve", Role::Look, 3)];
        let named =
            named.map(|(name, role, byte)| ([byte; 32], Operator { name: name.to_owned(), role })).into();
        Operators { shared: Some([9; 32]), named, second_person: BTreeSet::from_iter(second.iter().copied()) }
    }

    fn key() -> Key {
        Key::new(operators(&[Weighty::Release]).into())
    }

    /// Judges a release by the owner of a token.
    fn judged(key: &Key, token: u8, reason: &str, finds: &str, approval: Option<&str>, now: Date) -> Verdict {
        let by = key.operators.now().of(&[token; 32]).unwrap();
        let actor = by.actor("mallory".to_owned());
        let body = json!({ "reason": reason, "actor": "mallory" });
        let approval = approval.map(str::to_owned);
        let case = Case { key, by, path: "v1/keys/acme/k/release", body, approval };
        let region = RegionName::parse("us-east").unwrap();
        case.judge(Weighty::Release, actor, finds.to_owned(), (&region, now))
            .map_err(|refused| (refused.status().as_u16(), refused.into_body()))
            .map_err(|(status, body)| (status, serde_json::from_slice(&whole(body)).unwrap()))
    }

    type Verdict = Result<String, (u16, Value)>;

    fn whole(body: http_body_util::Full<bytes::Bytes>) -> bytes::Bytes {
        use http_body_util::BodyExt;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(body.collect()).unwrap().to_bytes()
    }

    fn refused(verdict: Verdict) -> (String, String) {
        let (status, said) = verdict.unwrap_err();
        assert_eq!((status, &said["code"]), (403, &json!("needs-approval")), "{said}");
        (said["detail"].as_str().unwrap().to_owned(), said["request"].as_str().unwrap().to_owned())
    }

    fn later(ms: i64) -> Date {
        Date(NOW.as_millis() + ms)
    }

    #[test]
    fn an_approval_is_for_one_unchanged_act_and_expires() {
        let key = key();
        let (said, request) = refused(judged(&key, 2, "r", "a#1 3.1 in-doubt", None, NOW));
        assert!(said.contains("onceway approve"), "{said}");
        let until = NOW.as_millis() + LASTS;
        let approval = given(&key, &request, "ann", until);
        let judge = |reason, finds, now| judged(&key, 2, reason, finds, Some(&approval), now);
        assert_eq!(judge("r", "a#1 3.1 in-doubt", NOW).unwrap(), "bob, approved by ann");
        assert_eq!(judge("r", "a#1 3.1 in-doubt", later(LASTS)).unwrap(), "bob, approved by ann");
        for (verdict, expected) in [
            (judge("s", "a#1 3.1 in-doubt", NOW), "not one of this act"),
            (judge("r", "a#1 3.2 in-doubt", NOW), "not one of this act"),
            (judge("r", "a#1 3.1 in-doubt", later(LASTS + 1)), "this approval ended"),
            (judge("r", "a#1 3.1 in-doubt", later(-1)), "this approval ended"),
            (judged(&key, 1, "r", "a#1 3.1 in-doubt", Some(&approval), NOW), "not one of this act"),
            (judged(&key, 2, "r", "a#1 3.1 in-doubt", Some("x"), NOW), "this is no approval"),
        ] {
            let (said, _) = refused(verdict);
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn only_another_operator_with_the_role_can_approve() {
        let key = key();
        let judge = |by: &str, sealer: &Key, token| {
            let (_, request) = refused(judged(&key, token, "r", "f", None, NOW));
            let approval = given(sealer, &request, by, NOW.as_millis() + LASTS);
            judged(&key, token, "r", "f", Some(&approval), NOW)
        };
        assert_eq!(judge("ann", &key, 2).unwrap(), "bob, approved by ann");
        for (by, token) in [("ann", 1), ("bob", 2), ("bob", 1), ("eve", 2), ("mallory", 2)] {
            let (said, _) = refused(judge(by, &key, token));
            assert!(said.contains("may not approve this act"), "{by}: {said}");
        }
        let (said, _) = refused(judge("ann", &self::key(), 2));
        assert!(said.contains("not one of this act"), "{said}");
        // Nobody knows who has the shared token: it could be the one who approves.
        let (status, said) = judged(&key, 9, "r", "f", None, NOW).unwrap_err();
        assert_eq!((status, &said["code"]), (403, &json!("forbidden")));
    }

    #[test]
    fn an_act_without_approval_carries_its_operators_name() {
        let key = Key::new(operators(&[Weighty::BreakGlass]).into());
        assert_eq!(judged(&key, 2, "r", "f", None, NOW).unwrap(), "bob");
        assert_eq!(judged(&key, 9, "r", "f", None, NOW).unwrap(), "mallory (by the shared token)");
    }
}
