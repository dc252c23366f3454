//! Duplicates of a running attempt: all regions, all processes, one effect, one first answer.

use super::bench::*;

#[test]
fn fifty_duplicates_over_three_regions_have_one_effect() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(500) });
        let key = key_of(&eu, "fifty");
        let mut copies = Vec::new();
        for number in 0..50 {
            copies.push(bench.begin(&regions()[number % 3], "/park", &key));
            sleep(ms(number as u64 % 7)).await;
        }
        let mut answer: Vec<ClientAnswer> = Vec::new();
        for copy in copies {
            answer.push(copy.await.unwrap());
        }
        assert_eq!((bench.effects(&key).len(), bench.arrived(&eu)), (1, 1));
        let receipt = &bench.effects(&key)[0].body;
        assert!(answer.iter().all(|answer| answer.status == 201 && answer.body == *receipt), "{answer:?}");
        assert_eq!(answer.iter().filter(|answer| !answer.replayed).count(), 1);
    });
}

/// The attempt runs in one gateway of eu, and only the poller wakes duplicates in another.
#[test]
fn duplicates_in_another_process_of_the_region_are_woken() {
    served(Bench::start(2), async |bench, [eu, ..]| {
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(700) });
        let second = bench.process(settings(&eu));
        until("the second process serves", ms(2_000), async || second.readiness().serves).await;
        let key = key_of(&eu, "two-processes");
        let begun = Instant::now();
        let first = bench.begun(&eu, "/park", &key, ms(100)).await;
        let copies: Vec<_> = (0..5)
            .map(|_| {
                let (second, key) = (second.clone(), key.clone());
                tokio::spawn(async move { ask(&second, "/park", &key, "{}").await })
            })
            .collect();
        let first = first.await.unwrap();
        assert_eq!((first.status, first.replayed), (201, false));
        for copy in copies {
            let answer = copy.await.unwrap();
            assert_eq!((answer.status, answer.replayed, &answer.body), (201, true, &first.body));
        }
        assert!(begun.elapsed() < ms(900), "{:?}", begun.elapsed());
        assert_eq!(bench.arrived(&eu), 1);
    });
}

/// The wait ends before the attempt does: the answer asks the client to come back. The hold does
/// not depend on when the client gave up.
#[test]
fn a_duplicate_waits_no_longer_than_its_route_allows() {
    served(Bench::start(3), async |bench, [eu, ..]| {
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(2_800) });
        let key = key_of(&eu, "long");
        let first = bench.begun(&eu, "/park", &key, ms(100)).await;
        let begun = Instant::now();
        assert_eq!(bench.send(&eu, "/park", &key).await.said(), (409, "in-progress"));
        assert!(begun.elapsed() >= ms(2_000) && begun.elapsed() < ms(2_100), "{:?}", begun.elapsed());
        assert_eq!(first.await.unwrap().status, 201);
        assert_eq!(bench.arrived(&eu), 1);
    });
}

/// The attempt ends as "nothing happened": one waiting duplicate runs it for the others.
#[test]
fn waiting_duplicates_run_a_released_attempt_once() {
    served(Bench::start(4), async |bench, [eu, ..]| {
        let busy =
            UpstreamMode::Answer { after: ms(300), status: 429, body: Default::default(), effect: false };
        bench.upstream(&eu, busy);
        let key = key_of(&eu, "freed");
        let first = bench.begun(&eu, "/park", &key, ms(100)).await;
        let copies: Vec<_> = (0..10).map(|_| bench.begin(&eu, "/park", &key)).collect();
        sleep(ms(100)).await;
        bench.upstream(&eu, UpstreamMode::Receipt { after: ms(300) });
        assert_eq!(first.await.unwrap().status, 429);
        let mut firsts = 0;
        for copy in copies {
            let answer = copy.await.unwrap();
            assert_eq!(answer.status, 201, "{answer:?}");
            firsts += usize::from(!answer.replayed);
        }
        assert_eq!((firsts, bench.effects(&key).len(), bench.arrived(&eu)), (1, 1, 2));
    });
}
