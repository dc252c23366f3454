//! A gateway whose loop died breaks its run.

use std::sync::Arc;
use std::time::Duration;

use simulation::Deployment;
use simulation::play::judge::Judge;
use simulation::play::log::Log;
use simulation::points::Point;
use simulation::scenario::{self, find};
use tokio::time::{Instant, sleep};

use crate::shared::play;

#[test]
fn the_death_of_a_loop_is_a_breach_once() {
    let scenario = Arc::new(scenario::load(&find::find("swarm").unwrap(), &[]).unwrap());
    play(async {
        let deployment = Deployment::start(&scenario, 1).await.unwrap();
        let mut judge = Judge::new(deployment.clone(), Arc::new(Log::default()), Instant::now(), false);
        judge.look();
        assert_eq!(judge.breaches(), []);

        deployment.node(&deployment.regions()[0]).process.panics_at(&[Point::Reap]);
        sleep(Duration::from_secs(60)).await;
        judge.look();
        judge.look();
        let broke: Vec<_> =
            judge.breaches().iter().map(|breach| (&*breach.invariant, &*breach.text)).collect();
        let first = &deployment.regions()[0];
        assert_eq!(broke, [("panic", &*format!("the loop `reaper` of a gateway of {first} died"))]);
        deployment.world.network.unplug_all();
    });
}
