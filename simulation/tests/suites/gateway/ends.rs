//! A gateway that is dropped ends: no background task keeps it alive.
//!
//! `outcomes.rs` has the orderly stop. A world of many processes relies on this: a replaced process
//! must not beat on.

use std::sync::Arc;

use simulation::peers::LinkMode;
use tokio::time::sleep;

use super::bench::{Bench, ms, served, until};

#[test]
fn a_dropped_gateway_ends_its_loops() {
    served(Bench::start(1), async |bench, [eu, ..]| {
        for links in [LinkMode::Up, LinkMode::Refuse] {
            bench.links(&eu, links);
            let second = bench.process(&eu);
            sleep(ms(3_000)).await;
            let weak = Arc::downgrade(&second);
            drop(second);
            until("the loops end", ms(1_000), async || weak.strong_count() == 0).await;
        }
    });
}
