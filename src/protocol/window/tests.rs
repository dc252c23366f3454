//! Tests of the window: its length, and its end (docs/protocol.md#rule-31).

use super::super::examples::at;
use super::*;

const RULE: WindowRule =
    WindowRule { percent: 200, floor: Duration::from_secs(1), beyond: Duration::from_secs(60) };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn window(lag: Option<u64>) -> Window {
    Window::begin(3, lag.map(ms), 7, at(10_000))
}

#[test]
fn the_window_is_a_multiple_of_the_lag() {
    assert_eq!(window(Some(800)).length(&RULE), Some(ms(1_600)));
    assert_eq!(window(Some(100)).length(&RULE), Some(ms(1_000)));
    let longer = window(Some(1_001)).length(&WindowRule { percent: 150, ..RULE });
    assert_eq!(longer, Some(Duration::from_micros(1_501_500)));
    assert_eq!((window(None).length(&RULE), window(Some(1)).at()), (None, 3));
}

#[test]
fn the_window_counts_from_the_adopted_loss() {
    let window = window(Some(800));
    assert_eq!(window.standing(&RULE, at(10_000)), Standing::Runs(ms(1_600)));
    assert_eq!(window.standing(&RULE, at(11_599)), Standing::Runs(ms(1)));
    assert_eq!(window.standing(&RULE, at(11_600)), Standing::Over);
}

#[test]
fn an_overlong_or_unmeasured_window_waits_for_an_operator() {
    let standing = |window: Window, ms| window.standing(&RULE, at(ms));
    assert_eq!(standing(window(None), 999_999), Standing::Unmeasured);
    assert_eq!(standing(window(Some(30_000)), 70_000), Standing::Over, "as long as that is not too long");
    let beyond = Standing::Beyond(ms(60_002));
    assert_eq!(standing(window(Some(30_001)), 999_999), beyond, "it never ends by itself");
    let endless = Window::begin(3, Some(Duration::MAX), 7, at(0));
    assert_eq!(standing(endless, 1), Standing::Beyond(Duration::MAX / 100));
}

#[test]
fn a_late_heartbeat_extends_the_window() {
    let mut window = window(Some(800));
    window.saw(7, at(11_500));
    assert_eq!(window.standing(&RULE, at(11_600)), Standing::Over, "known before");
    window.saw(8, at(11_500));
    assert_eq!(window.standing(&RULE, at(11_600)), Standing::Runs(ms(700)));
    window.saw(8, at(12_000));
    assert_eq!(window.standing(&RULE, at(12_300)), Standing::Over, "one lag after the last that moved");
    let mut early = self::window(Some(800));
    early.saw(8, at(10_001));
    let standing = early.standing(&RULE, at(10_802));
    assert_eq!(standing, Standing::Runs(ms(798)), "it only ever waits longer");
}
