//! A gateway whose loop died breaks its run. It must not look at anything else that a judge sees.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use super::Judge;
use crate::deployment::Deployment;
use crate::play::log::Log;
use crate::points::Point;
use crate::scenario::{self, find};

#[test]
fn the_death_of_a_loop_is_a_breach_once() {
    let scenario = Arc::new(scenario::load(&find::find("swarm").unwrap(), &[]).unwrap());
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let deployment = Deployment::start(&scenario, 1).await.unwrap();
        let mut judge = Judge::new(deployment.clone(), Arc::new(Log::default()), Instant::now(), false);
        judge.look();
        assert_eq!(judge.breaches, []);

        deployment.node(&deployment.regions()[0]).process.panics_at(&[Point::Reap]);
        sleep(Duration::from_secs(60)).await;
        judge.look();
        judge.look();
        let broke: Vec<_> = judge.breaches.iter().map(|breach| (&*breach.invariant, &*breach.text)).collect();
        let first = &deployment.regions()[0];
        assert_eq!(broke, [("panic", &*format!("the loop `reaper` of a gateway of {first} died"))]);
        deployment.world.network.unplug_all();
    });
}
