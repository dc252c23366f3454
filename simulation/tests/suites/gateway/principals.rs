//! Keys that are bound to the principal who claimed them: for every other principal of the tenant
//! they are another request's.
//!
//! The bench has the route `bound`, and four tokens: two of ann's, one of bob's, one without a
//! name.

use super::bench::*;

async fn send(bench: &Bench, to: &RegionName, token: &str, key: &str, text: &str) -> ClientAnswer {
    let request = request_with("/bound", key, text, ("authorization", &format!("Bearer {token}")));
    read_answer(bench.gateway(to).handle(request).await).await
}

#[test]
fn only_the_principal_gets_the_answer() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        let key = key_of(&eu, "mine");
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
    served(Bench::start(2), async |bench, [eu, us, _]| {
        let key = key_of(&eu, "copied");
        let first = send(&bench, &eu, "sk_ann", &key, "{}").await;
        until("the copy", ms(5_000), async || bench.state(&us, &key).await == "settled").await;
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
    served(Bench::start(3), async |bench, [eu, us, _]| {
        let key = key_of(&eu, "forwarded");
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
fn another_principal_neither_waits_for_an_attempt_nor_recovers_a_doubt() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        let key = key_of(&eu, "doubtful");
        bench.upstream(&eu, UpstreamMode::Hang);
        let first = {
            let (bench, eu, key) = (bench.clone(), eu.clone(), key.clone());
            tokio::spawn(async move { send(&bench, &eu, "sk_ann", &key, "{}").await })
        };
        until("the attempt", ms(2_000), async || bench.arrived(&eu) == 1).await;
        assert_eq!(send(&bench, &eu, "sk_bob", &key, "{}").await.said(), (422, "key-reused"));
        assert!(!first.is_finished(), "bob was told at once");
        assert_eq!(first.await.unwrap().said(), (504, "outcome-unknown"));
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(50) });
        assert_eq!(send(&bench, &eu, "sk_bob", &key, "{}").await.said(), (422, "key-reused"));
        assert_eq!(bench.arrived(&eu), 1, "only ann's retry may recover the key");
        assert_eq!(send(&bench, &eu, "sk_ann_next", &key, "{}").await.status, 201);
        assert_eq!(bench.arrived(&eu), 2);
    });
}

#[test]
fn a_bound_route_refuses_requests_without_a_principal() {
    served(Bench::start(5), async |bench, [eu, us, _]| {
        let key = key_of(&eu, "nobody");
        for at in [&eu, &us] {
            assert_eq!(send(&bench, at, "sk", &key, "{}").await.said(), (401, "credential-invalid"));
        }
        assert_eq!((bench.arrived(&eu), bench.arrived(&us)), (0, 0));
        assert_eq!(bench.state(&eu, &key).await, "absent");
    });
}
