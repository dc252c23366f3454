//! Round trips over every question and every answer, and a table of malformed messages that must be
//! refused.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::adapters::views::tests::{RINGS_TRIED, accepted, ballots, digests, names, origins, views};
use crate::ports::authority::{CopiedRow, Lodged, Lodging};
use crate::ports::peers::Proof;
use crate::ports::store::{Attempt, Terms};
use crate::protocol::change::Report;
use crate::protocol::digest::Digest32;
use crate::protocol::examples::name;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::job::JobState;
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::lifetime::{Lifetime, Retention};
use crate::protocol::opening;
use crate::protocol::record::{Answer, AnswerBody, Nonce, Recovery, RequestId, Row, State, Token};
use crate::protocol::register::{DOES_NOT_SERVE, HELD_BY_ANOTHER_START, Message, Reply};
use crate::protocol::time::Date;
use crate::protocol::view::{AcceptorId, Release, View};
use crate::protocol::written::LONGEST;

fn spans() -> impl Strategy<Value = Duration> {
    (0..LONGEST.as_secs(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos))
}

fn ids() -> impl Strategy<Value = KeyId> {
    ("[A-Za-z0-9_.-]{1,64}", "[!-~]{1,255}")
        .prop_map(|(tenant, key)| KeyId::new(Tenant::parse(&tenant).unwrap(), Key::parse(&key).unwrap()))
}

fn tokens() -> impl Strategy<Value = Token> {
    (any::<u64>(), any::<u32>()).prop_map(|(epoch, attempt)| Token { epoch, attempt })
}

fn nonces() -> impl Strategy<Value = Nonce> {
    any::<u128>().prop_map(Nonce)
}

fn fingerprints() -> impl Strategy<Value = Fingerprint> {
    (digests(), option::of(digests())).prop_map(|(raw, canonical)| Fingerprint { raw, canonical })
}

fn answers() -> impl Strategy<Value = Answer> {
    let value = vec(prop_oneof![0x20_u8..0x7f, 0x80_u8..=0xff], 0..12);
    let body = option::of(vec(any::<u8>(), 0..64));
    (100..1000_u16, vec(("[a-z0-9-]{1,12}", value), 0..4), body).prop_map(|(status, headers, body)| Answer {
        status,
        headers,
        body: body.map_or(AnswerBody::NotKept, AnswerBody::Kept),
    })
}

fn states() -> impl Strategy<Value = State> {
    prop_oneof![
        (spans(), spans()).prop_map(|(left, past)| State::Claimed { left, past }),
        (option::of(100..600_u16), spans(), spans()).prop_map(|(status, left, past)| State::InDoubt {
            status,
            left,
            past
        }),
        Just(State::Released),
        (answers(), spans(), any::<bool>()).prop_map(|(answer, age, expired)| State::Settled {
            answer: Arc::new(answer),
            age,
            expired
        }),
        Just(State::Tombstone),
    ]
}

fn rules() -> impl Strategy<Value = Recovery> {
    prop_oneof![
        Just(Recovery::Park),
        Just(Recovery::Probe),
        (1..=Recovery::MOST_ATTEMPTS).prop_map(|max_attempts| Recovery::Rerun { max_attempts })
    ]
}

prop_compose! {
    fn rows()(
        origin in origins(),
        token in tokens(),
        nonce in nonces(),
        fingerprint in fingerprints(),
        state in states(),
        over in vec((origins(), tokens()), 0..3),
        risk in vec(names(), 0..3),
        request_id in any::<u128>(),
        expires in any::<i64>(),
        principal in option::of(digests()),
        accepted in any::<bool>(),
        rest in (0..9u32, spans(), rules()),
    ) -> Row {
        let request_id = RequestId(request_id);
        let (doubted, settle_time, recovery) = (rest.0.min(token.attempts()), rest.1, rest.2);
        Row {
            origin, token, nonce, fingerprint, state, over, risk, request_id, principal, accepted, doubted, settle_time,
            recovery,
            expires: Date(expires),
        }
    }
}

prop_compose! {
    fn copied()(
        id in ids(),
        row in rows(),
        hold in spans(),
        lives in spans(),
        tombstone in spans(),
        route in "[a-z ]{0,12}",
        path in "/[ -~]{0,12}",
    ) -> CopiedRow {
        CopiedRow { id, row, hold, lives, tombstone, route: route.into(), path }
    }
}

fn lodgings() -> impl Strategy<Value = Lodging> {
    let life = (option::of(spans()), spans(), spans());
    (copied(), life).prop_map(
        |(CopiedRow { id, row, hold, route, path, .. }, (retention, skew, tombstone))| {
            let retention = retention.map_or(Retention::Never, Retention::For);
            Lodging {
                id,
                origin: row.origin,
                token: row.token,
                terms: Terms {
                    nonce: row.nonce,
                    fingerprint: row.fingerprint,
                    request_id: row.request_id,
                    hold,
                    settle_time: row.settle_time,
                    recovery: row.recovery,
                    lifetime: Lifetime { retention, skew, tombstone },
                    route,
                    path,
                    principal: row.principal,
                },
            }
        },
    )
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        Just(Message::Read),
        ballots().prop_map(|ballot| Message::Prepare { ballot }),
        (ballots(), views()).prop_map(|(ballot, view)| Message::Accept { ballot, view }),
        (names(), digests(), views(), spans()).prop_map(|(region, boot, view, ttl)| Message::Renew {
            holder: u64::MAX - 3,
            starts: u32::MAX,
            region,
            boot,
            view,
            ttl
        }),
        (ballots(), views()).prop_map(|(ballot, view)| Message::Found { ballot, view }),
    ]
}

fn replies() -> impl Strategy<Value = Reply> {
    let holds = (any::<u128>(), option::of(ballots()), accepted(), vec(names(), 0..3));
    prop_oneof![
        any::<u128>().prop_map(|id| Reply::NotFounded(AcceptorId(id))),
        any::<u128>().prop_map(|id| Reply::OtherAcceptor(AcceptorId(id))),
        Just(Reply::NotAdmitted),
        holds.prop_map(|(id, promised, accepted, running)| Reply::Holds {
            id: AcceptorId(id),
            promised,
            accepted,
            running: running.into_iter().collect(),
        }),
        accepted().prop_map(Reply::Promised),
        ballots().prop_map(Reply::Outbid),
        Just(Reply::Accepted),
        names().prop_map(Reply::Blocked),
        any::<u64>().prop_map(Reply::Granted),
        Just(Reply::Newer),
        Just(Reply::NotGranted(DOES_NOT_SERVE)),
        Just(Reply::NotGranted(HELD_BY_ANOTHER_START)),
    ]
}

fn questions() -> impl Strategy<Value = Question> {
    let attempts = || (ids(), tokens(), nonces()).prop_map(|(id, token, nonce)| Attempt { id, token, nonce });
    let answered = (attempts(), answers().prop_map(Arc::new));
    let rows = (origins(), option::of(ids()), any::<u32>());
    let latest = (origins(), any::<u64>(), any::<u32>());
    let jobs = option::of(prop_oneof![Just(JobState::Waiting), Just(JobState::Dead)]);
    prop_oneof![
        (option::of(any::<u128>()), messages())
            .prop_map(|(to, message)| Question::Acceptor { to: to.map(AcceptorId), message }),
        any::<u64>().prop_map(|after| Question::Views { after }),
        views().prop_map(|view| Question::Adopt { view }),
        views().prop_map(|target| Question::Release { target }),
        (origins(), any::<u64>()).prop_map(|(origin, at)| Question::Frontier { origin, at }),
        rows.prop_map(|(origin, after, most)| Question::Rows { origin, after, most }),
        latest.prop_map(|(origin, from, most)| Question::Latest { origin, from, most }),
        lodgings().prop_map(|lodging| Question::Lodge(Box::new(lodging))),
        answered.prop_map(|(attempt, answer)| Question::LodgeAnswer { attempt, answer }),
        attempts().prop_map(Question::Void),
        (names(), any::<u64>(), ".{0,20}", ".{0,20}")
            .prop_map(|(region, at, actor, reason)| { Question::AcceptRisk { region, at, actor, reason } }),
        ids().prop_map(|id| Question::Key { id }),
        (option::of(ids()), any::<u32>()).prop_map(|(after, most)| Question::Doubts { after, most }),
        jobs.prop_map(|state| Question::Jobs { state }),
        (".{0,20}", ".{0,20}", ".{0,20}", option::of(".{0,20}")).prop_map(
            |(path, body, authorization, approval)| {
                Question::Act { path, body, proof: Proof { authorization, approval } }
            }
        ),
    ]
}

fn tellings() -> impl Strategy<Value = PeerReply> {
    let seen = vec((origins(), any::<u64>()), 0..3);
    prop_oneof![
        replies().prop_map(PeerReply::Acceptor),
        vec(views(), 0..3).prop_map(PeerReply::Views),
        any::<u64>().prop_map(PeerReply::Adopted),
        (any::<u32>(), any::<(u64, u64)>(), digests(), seen).prop_map(
            |(generation, (seal, base), target, seen)| PeerReply::Released(Report {
                generation,
                seal,
                release: Release { base, target },
                seen: seen.into_iter().collect(),
            })
        ),
        any::<(u64, u64)>()
            .prop_map(|(applied, seal)| PeerReply::Frontier(opening::Frontier { applied, seal })),
        vec(copied(), 0..3).prop_map(PeerReply::Rows),
        (vec(copied(), 0..3), any::<Option<u64>>()).prop_map(|(rows, next)| PeerReply::Latest { rows, next }),
        Just(PeerReply::Lodged(Lodged::Done)),
        Just(PeerReply::Lodged(Lodged::GateMoved)),
        Just(PeerReply::Lodged(Lodged::Superseded)),
        ".{0,40}".prop_map(PeerReply::Key),
        ".{0,40}".prop_map(PeerReply::Doubts),
        ".{0,40}".prop_map(PeerReply::Jobs),
        (any::<u16>(), ".{0,40}").prop_map(|(status, body)| PeerReply::Acted { status, body }),
        Just(PeerReply::Done),
        ".{0,40}".prop_map(PeerReply::Refused),
    ]
}

proptest! {
    #[test]
    fn a_question_is_read_as_it_was_written(question in questions()) {
        prop_assert_eq!(read_question(&write(&question)), Ok(question));
    }

    #[test]
    fn a_copied_row_fits_a_store_whatever_its_sender_says(row in copied()) {
        let reply = write(&PeerReply::Rows(vec![row.clone()]));
        let reply = str::from_utf8(&reply).unwrap();
        let many = reply.replace(&format!("\"doubted\":{},", row.row.doubted), "\"doubted\":4294967295,");
        let Ok(PeerReply::Rows(read)) = read_reply(many.as_bytes()) else { panic!("{many}") };
        prop_assert_eq!(read[0].row.doubted, row.row.token.attempts());
        let zero = reply.replace("\"path\":\"/", "\"path\":\"/\\u0000");
        prop_assert!(read_reply(zero.as_bytes()).is_err());
    }

    #[test]
    fn a_peers_reply_is_read_as_it_was_written(reply in tellings()) {
        prop_assert_eq!(read_reply(&write(&reply)), Ok(reply));
    }
}

#[test]
fn a_question_of_another_version_is_told_from_a_broken_one() {
    let why = |json: &str| match read_question(json.as_bytes()) {
        Err(WireError::Question(why)) => why,
        other => panic!("{json}: {other:?}"),
    };
    for later in [r#"{"forget":{"id":1}}"#, r#""forget""#] {
        let known = "\"forget\" is not known here: the other end may run another version of onceway: see `onceway status`";
        assert_eq!(why(later), known);
    }
    for broken in
        ["", "{}", "[]", "null", "7", r#"{"views":{"after":1},"key":1}"#, r#"{"Views":{"after":1}}"#]
    {
        assert!(why(broken).starts_with("malformed at byte "), "{broken}: {}", why(broken));
    }
}

#[test]
fn a_malformed_question_is_refused_and_not_echoed() {
    let good = [
        r#"{"views":{"after":7}}"#,
        r#"{"frontier":{"origin":"eu#1","at":3}}"#,
        r#"{"rows":{"origin":"eu#1","after":{"tenant":"acme","key":"canary"},"most":9}}"#,
        r#"{"void":{"id":{"tenant":"acme","key":"canary"},"token":{"epoch":1,"attempt":2},"nonce":"000000000000000000000000000000ff"}}"#,
        r#"{"acceptor":{"to":"000000000000000000000000000000ff","message":"read"}}"#,
        r#"{"lodge_answer":{"id":{"tenant":"acme","key":"canary"},"token":{"epoch":1,"attempt":2},"nonce":"000000000000000000000000000000ff","answer":{"status":200,"headers":[["x","YQ=="]],"body":"YQ=="}}}"#,
    ];
    let bad = [
        (0, "7", "-7"),
        (0, "\"after\":7", ""),
        (0, "7", "18446744073709551616"),
        (1, "eu", "EU"),
        (2, "eu#1", "eu#01"),
        (2, "canary", ""),
        (2, "acme", "ac me"),
        (2, "9", "4294967296"),
        (2, "{\"tenant\":\"acme\",\"key\":\"canary\"}", "\"canary\""),
        (3, "ff\"", "FF\""),
        (3, "00ff\"", "ff\""),
        (3, "\"attempt\":2", "\"attempt\":\"canary\""),
        (4, "00ff\"", "+0ff\""),
        (4, "\"read\"", "\"write\""),
        (5, "200", "99"),
        (5, "\"x\"", "\"X\""),
        (5, "\"x\"", "\"a b\""),
        (5, "YQ==\"]", "AA==\"]"),
        (5, "YQ==\"}", "YQ=\"}"),
        (5, "YQ==\"}", "YR==\"}"),
    ];
    for json in good {
        let question = read_question(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"));
        assert_eq!(write(&question), json.as_bytes());
        // A newer version may send more members than are known here.
        let more = json.replacen("{\"", "{\"more\":[1],\"", 2).replacen("{\"more\":[1],\"", "{\"", 1);
        assert_eq!(read_question(more.as_bytes()), Ok(question), "{more}");
    }
    for (which, from, to) in bad {
        let json = good[which].replacen(from, to, 1);
        assert_ne!(json, good[which], "{from}");
        let error = read_question(json.as_bytes()).expect_err(&json);
        assert!(matches!(error, WireError::Question(_)));
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[test]
fn a_malformed_peer_reply_is_refused() {
    let row = r#"{"id":{"tenant":"acme","key":"canary"},"row":{},"hold":[1,2],"lives":[1,2],"tombstone":[1,2],"route":"r","path":"/"}"#;
    for json in [
        r#""settled""#.to_owned(),
        r#"{"adopted":{"epoch":-1}}"#.to_owned(),
        r#"{"lodged":"perhaps"}"#.to_owned(),
        r#"{"done":1}"#.to_owned(),
        r#"{"acceptor":{"not_granted":{"why":"I would rather not"}}}"#.to_owned(),
        r#"{"acceptor":{"blocked":{"region":"EU"}}}"#.to_owned(),
        r#"{"released":{"generation":1,"seal":2,"release":{"base":1,"target":"00"},"seen":{}}}"#.to_owned(),
        format!(r#"{{"rows":[{row}]}}"#),
    ] {
        let error = read_reply(json.as_bytes()).expect_err(&json);
        assert!(matches!(error, WireError::Answer(_)) && !error.to_string().contains("canary"), "{error}");
    }
}

#[test]
fn a_span_has_one_spelling() {
    let view = Arc::new(View::unfounded(RINGS_TRIED[0].clone()));
    let (boot, ttl) = (Digest32::new([1; 32]), Duration::new(5, 6));
    let message = Message::Renew { region: name("eu"), boot, holder: 9, starts: 1, view, ttl };
    let json = write(&Question::Acceptor { to: None, message });
    let with = |ttl: &str| str::from_utf8(&json).unwrap().replacen("[5,6]", ttl, 1);
    assert!(read_question(with("[5,999999999]").as_bytes()).is_ok());
    let long = LONGEST.as_secs();
    assert!(read_question(with(&format!("[{long},0]")).as_bytes()).is_ok());
    assert!(read_question(with(&format!("[{long},1]")).as_bytes()).is_err());
    for bad in ["[5,1000000000]", "[18446744073709551615,0]", "[5]", "5", "[-5,6]", "\"5s\""] {
        assert!(read_question(with(bad).as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_reply_says_what_its_body_is() {
    let response = encode_reply(&PeerReply::Done);
    assert_eq!(is_told(response.headers()), Ok(true));
    let refused = super::super::encode_refusal(Response::new(full("")));
    assert_eq!(is_told(refused.headers()), Ok(false));
    assert!(is_told(&HeaderMap::new()).is_err());
    let mut answer = Response::new(full(""));
    answer.headers_mut().insert(REPLY, HeaderValue::from_static("answer"));
    assert_eq!(is_told(answer.headers()), Err(WireError::Malformed(REPLY)));
    assert_eq!(read_refusal(br#"{"detail":"why","status":400}"#).as_deref(), Some("why"));
    assert_eq!(read_refusal(b"<html>"), None);
}
