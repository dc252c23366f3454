//! A founding that is cut short. `tests/suites` found deployments of real processes.
//!
//! Regions begin with empty stores here: this file must not begin with a founded deployment.

use std::collections::BTreeSet;

use super::settings::{LIFE, failover};
use super::trio::{Trio, a, ms, on, regions};

/// All acceptors have the first view, and its founder dies before it told any region. Each gateway
/// finds it at its own acceptor: nobody has to found anything again.
#[test]
fn a_founding_that_nobody_was_told_of_is_found() {
    for names in [&regions()[..], &[a()]] {
        on(async { Trio::unfounded(1, names, failover(), LIFE) }, async |trio| {
            names.iter().for_each(|name| trio.begin_process(name));
            let unserved = async || trio.send(&a(), "/probe", "early").await.said() == (503, "not-founded");
            trio.until("a request to be told that nothing is founded", ms(5_000), unserved).await;
            let founder = trio.node(&a()).gateway;
            let found = async || founder.found(BTreeSet::new(), None).await.map(|report| report.epoch);
            assert_eq!(trio.ask(found).await, Ok(1));
            names.iter().for_each(|name| trio.node(name).process.kill());
            names.iter().for_each(|name| trio.begin_process(name));
            let serve = async || names.iter().all(|name| trio.serves(name));
            trio.until("all regions serve", ms(20_000), serve).await;
        });
    }
}
