//! The routes' rules for keys and bodies: key policies, business signatures, which requests are the
//! same one, and keys that are bound to a principal.
//!
//! The tests of `onceway::gateway::policy::canonical` have the traps that JSON sets.

use super::bench::*;

/// With two types, each reader takes the one it likes, so not all readers see JSON. The body is
/// compared byte by byte, and never signed.
#[test]
fn a_body_of_two_types_is_not_json() {
    served(Bench::start(46), async |bench, [eu, ..]| {
        let gateway = bench.gateway(&eu);
        let send = async |path: &str, key: &str, text: &str| {
            let mut request = request(path, key, text);
            request.headers_mut().append("content-type", "text/plain".parse().unwrap());
            read_answer(gateway.handle(request).await).await
        };
        let (signed, whole) = (key_of(&eu, "two-signed"), key_of(&eu, "two-whole"));
        assert_eq!(send("/include", &signed, "{\"amount\":1}").await.said(), (422, "fingerprint-impossible"));
        assert_eq!(send("/park", &whole, "[1]").await.status, 201);
        assert_eq!(send("/park", &whole, "[1.0]").await.said(), (422, "key-reused"));
        assert!(send("/park", &whole, "[1]").await.replayed);
    });
}

#[test]
fn json_requests_are_compared_by_their_values() {
    served(Bench::start(43), async |bench, [eu, ..]| {
        let gateway = bench.gateway(&eu);
        let table: &[(&str, &str, bool)] = &[
            ("[100]", "[1e2]", true),
            (r#"{"a":1,"b":2}"#, r#"{ "b" : 2, "a" : 1 }"#, true),
            (r#"["1"]"#, "[1]", false),
        ];
        for (index, (first, second, same)) in table.iter().enumerate() {
            let key = key_of(&eu, &format!("values-{index}"));
            assert_eq!(ask(&gateway, "/park", &key, first).await.status, 201);
            let answer = ask(&gateway, "/park", &key, second).await;
            let wanted = if *same { (201, "") } else { (422, "key-reused") };
            assert_eq!((answer.said(), answer.replayed), (wanted, *same), "{first} and {second}");
        }
    });
}

#[test]
fn requests_are_compared_by_their_signature_fields() {
    served(Bench::start(44), async |bench, [eu, ..]| {
        let gateway = bench.gateway(&eu);
        let first = r#"{"amount":5,"lines":[{"price":1,"note":"a"}],"metadata":{"at":1}}"#;
        // (path, another body, true if the same); a mismatch is 409 if the route says so.
        let table: &[(&str, &str, bool)] = &[
            ("/include", r#"{"lines":[{"price":1}],"amount":5.0}"#, true),
            ("/include", r#"{"amount":5,"lines":[{"price":1}],"metadata":{"at":2},"more":true}"#, true),
            ("/include", r#"{"amount":6,"lines":[{"price":1}]}"#, false),
            ("/exclude", r#"{"amount":5,"lines":[{"note":"b","price":1}],"metadata":{"at":2}}"#, true),
            ("/exclude", r#"{"amount":5,"lines":[{"price":2}]}"#, false),
        ];
        for (index, (path, other, same)) in table.iter().enumerate() {
            let key = key_of(&eu, &format!("signed-{index}"));
            assert_eq!(ask(&gateway, path, &key, first).await.status, 201);
            // The second region judges by its own copy.
            let us = region("us");
            bench.until_state(&us, &key, "settled", ms(2_000)).await;
            for region in [&region("eu"), &region("us")] {
                let answer = ask(&bench.gateway(region), path, &key, other).await;
                let refused = if *path == "/include" { 409 } else { 422 };
                let wanted = if *same { (201, "") } else { (refused, "key-reused") };
                assert_eq!((answer.said(), answer.replayed), (wanted, *same), "{path} {other}");
            }
            assert_eq!(bench.effects(&key).len(), 1);
        }
        // Method and target always count.
        let key = key_of(&eu, "signed-target");
        assert_eq!(ask(&gateway, "/include?x=1", &key, first).await.status, 201);
        assert_eq!(ask(&gateway, "/include?x=2", &key, first).await.said(), (409, "key-reused"));
        assert_eq!(ask(&gateway, "/exclude?x=1", &key, first).await.said(), (422, "key-reused"));
    });
}

#[test]
fn a_bad_key_is_refused_before_reading_the_body() {
    served(Bench::start(45), async |bench, [eu, ..]| {
        let gateway = bench.gateway(&eu);
        for (key, code) in [
            ("a-9Xk2", "key-malformed"),
            (&"8e03978e".repeat(9), "key-malformed"),
            ("order-1001", "key-weak"),
            ("aaaaaaaa", "key-weak"),
        ] {
            // The body is over the route's limit: a gateway that read it first would report that.
            let answer = gateway.handle(request("/picky", key, &"x".repeat(1 << 17))).await;
            let link = answer.headers()["link"].to_str().unwrap().to_owned();
            assert_eq!(link, format!("</.well-known/onceway/problems#{code}>; rel=\"describedby\""));
            assert_eq!(answer.headers()["idempotency-key"], key);
            assert_eq!(read_answer(answer).await.said(), (400, code), "{key}");
            assert_eq!(bench.state(&eu, key).await, "absent");
        }
        // A peer that knows the rules less well cannot talk the owner out of them.
        let twice = b"{\"a\":1,\"a\":2}".to_vec();
        for (path, word, body, wanted) in [
            ("/picky", "orders", twice.clone(), (400, "key-weak")),
            ("/include", "unsigned-forward", twice, (422, "fingerprint-impossible")),
            ("/bound", "nobody-forward", Vec::new(), (401, "credential-invalid")),
            ("/park", "large-forward", vec![b'x'; 1 << 17], (413, "body-too-large")),
            ("/elsewhere", "lost-forward", Vec::new(), (404, "no-route")),
        ] {
            let key = key_of(&eu, word);
            let mut forward = forward(path, &key);
            forward.body = body.into();
            let ForwardReply::Answer(answer) = Region::forward(&gateway, region("us"), forward).await else {
                panic!("{path}: not the owner")
            };
            assert_eq!(read_answer(answer).await.said(), wanted);
            assert_eq!(bench.state(&eu, &key).await, "absent");
        }
        assert_eq!(ask(&gateway, "/picky", &key_of(&eu, "8e03978e-40d5-43dd-bc93"), "{}").await.status, 201);
    });
}

async fn send(bench: &Bench, to: &RegionName, token: &str, key: &str, text: &str) -> ClientAnswer {
    let request = request_with("/bound", key, text, ("authorization", &format!("Bearer {token}")));
    read_answer(bench.gateway(to).handle(request).await).await
}

#[test]
fn only_the_principal_gets_the_answer() {
    keyed(Bench::start(1), async |bench, [eu, ..], key| {
        let first = send(&bench, &eu, "sk_ann", &key, "{}").await;
        assert!(first.status == 201 && !first.replayed, "{first:?}");
        for token in ["sk_ann", "sk_ann_next"] {
            let again = send(&bench, &eu, token, &key, "{}").await;
            assert!(again.replayed && again.body == first.body, "{token}: {again:?}");
        }
        let mismatch = send(&bench, &eu, "sk_ann", &key, "{\"other\":1}").await;
        assert_eq!(mismatch.said(), (422, "key-reused"));
        for text in ["{}", "{\"other\":1}", "{\"guess\":2}"] {
            assert_eq!(send(&bench, &eu, "sk_bob", &key, text).await, mismatch, "{text}");
        }
        assert_eq!(bench.arrived(&eu), 1);
    });
}

#[test]
fn a_copy_is_bound_like_the_record() {
    keyed(Bench::start(2), async |bench, [eu, us, _], key| {
        let first = send(&bench, &eu, "sk_ann", &key, "{}").await;
        bench.until_state(&us, &key, "settled", ms(5_000)).await;
        bench.links(&us, LinkMode::Refuse);
        let copy = send(&bench, &us, "sk_ann_next", &key, "{}").await;
        assert!(copy.replayed && copy.body == first.body, "{copy:?}");
        let mismatch = send(&bench, &us, "sk_ann", &key, "{\"other\":1}").await;
        assert_eq!(mismatch.said(), (422, "key-reused"));
        assert_eq!(send(&bench, &us, "sk_bob", &key, "{}").await, mismatch);
    });
}

#[test]
fn the_owner_learns_from_a_forward_who_asks() {
    keyed(Bench::start(3), async |bench, [eu, us, _], key| {
        let first = send(&bench, &us, "sk_ann", &key, "{}").await;
        assert_eq!((first.status, first.by.as_str()), (201, "eu"));
        assert_eq!(send(&bench, &eu, "sk_bob", &key, "{}").await.said(), (422, "key-reused"));
        assert_eq!(send(&bench, &us, "sk_bob", &key, "{}").await.said(), (422, "key-reused"));
        assert!(send(&bench, &eu, "sk_ann", &key, "{}").await.replayed);
        assert!(send(&bench, &us, "sk_ann", &key, "{}").await.replayed);
        assert_eq!(bench.arrived(&eu), 1);
    });
}

#[test]
fn a_bound_route_refuses_requests_without_a_principal() {
    keyed(Bench::start(5), async |bench, [eu, us, _], key| {
        for at in [&eu, &us] {
            assert_eq!(send(&bench, at, "sk", &key, "{}").await.said(), (401, "credential-invalid"));
        }
        assert_eq!((bench.arrived(&eu), bench.arrived(&us)), (0, 0));
        assert_eq!(bench.state(&eu, &key).await, "absent");
    });
}
