//! The promises of [`Clock`], for the real clock and the simulation's.

use std::time::Duration;

use onceway_ports::Clock;
use onceway_protocol::time::Moment;

pub async fn suite<C: Clock>(clock: &C) {
    never_goes_back(clock);
    dates_are_of_this_century(clock);
    sleeps_until_its_deadline(clock).await;
}

pub fn never_goes_back<C: Clock>(clock: &C) {
    let mut last = clock.now();
    for _ in 0..10_000 {
        let now = clock.now();
        assert!(now >= last, "clock: now went back from {last:?} to {now:?}");
        last = now;
    }
}

/// `date` counts milliseconds since 1970, not seconds and not nanoseconds.
pub fn dates_are_of_this_century<C: Clock>(clock: &C) {
    let millis = clock.date().as_millis();
    let (from, to) = (946_684_800_000, 4_102_444_800_000);
    assert!((from..to).contains(&millis), "clock: {millis} is no date between 2000 and 2100 in milliseconds");
}

async fn sleeps_until_its_deadline<C: Clock>(clock: &C) {
    for span in [Duration::from_nanos(1), Duration::from_micros(1_500), Duration::from_millis(20)] {
        let deadline = clock.now() + span;
        clock.sleep_until(deadline).await;
        let woken = clock.now();
        assert!(woken >= deadline, "clock: a sleep of {span:?} ended {:?} early", woken.until(deadline));
    }
    // A passed deadline is no sleep.
    let before = clock.now();
    clock.sleep_until(Moment::from_nanos(0)).await;
    clock.sleep_until(before).await;
    let took = clock.now().since(before);
    assert!(took < super::SLACK, "clock: a passed deadline took {took:?}");
}
