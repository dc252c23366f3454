//! Tests of decisions over one snapshot: each fact alone changes the answer.
//!
//! The views come from `examples`: three regions, this one is b.

use super::super::authority::{Boot, Pending};
use super::super::change::Change;
use super::super::examples::{
    SEALED, abc, draft, drained, first, key, lose, meaning, name, next, origin, resumed,
};
use super::*;

const NOW: Moment = Moment::from_nanos(5);
const TENURE: Tenure = Tenure(3);
const DRIFT: Drift = Drift { ppm: 500, margin: Duration::from_millis(50) };

fn open(version: u64, state: Option<GateState>) -> Arc<StoreHealth> {
    let boot = Boot { system: 1, timeline: 1, started: 1 };
    let epoch = state.as_ref().map_or(1, |state| state.view.epoch());
    let version = GateVersion(version);
    Arc::new(StoreHealth::Open(Gate { version, epoch, state, approved: Some(boot.clone()), running: boot }))
}

fn held(view: &View) -> Leased {
    let held = Held { view: Arc::new(view.clone()), until: Moment::from_nanos(6) };
    Leased { tenure: TENURE, held: Some(held), last: Moment::from_nanos(6) }
}

/// Region b, after these views, with a lease under the last of them and a gate that follows it.
fn after(chain: &[View]) -> Snapshot {
    let me = origin("b#1");
    let site = Site { me, lease: Duration::from_secs(3), drift: DRIFT, speaks: Versions::OURS };
    let lease = Lease::new(site.lease, DRIFT);
    let last = chain.last().unwrap();
    let mut gate = GateState::founded(Arc::new(chain[0].clone()));
    let closed = StoreHealth::Closed { why: "starting".to_owned(), since: NOW };
    let mut known = Snapshot::first(site, Arc::new(View::unfounded(last.ring().clone())), closed, &lease);
    for view in chain.iter().cloned().map(Arc::new) {
        assert!(known.learn(&view, NOW));
        gate = gate.adopt(view);
    }
    known.given = None;
    Snapshot { store: open(7, Some(gate)), lease: held(last), judged: last.epoch(), ..known }
}

fn said(here: Here) -> String {
    match here {
        Here::Run(Permit { gate, tenure, view, .. }) => {
            format!("run {} {} {}", gate.0, tenure.0, view.epoch())
        }
        Here::Closed(closed) => format!("{closed:?}"),
        Here::Elsewhere(region) => format!("at {region}"),
        Here::Nobody => "nobody".to_owned(),
        Here::Unfit(why) => why.reason().to_owned(),
    }
}

fn closed(why: &str) -> Arc<StoreHealth> {
    Arc::new(StoreHealth::Closed { why: why.to_owned(), since: NOW })
}

type Turned = fn(&mut Snapshot);

#[test]
fn each_fact_alone_decides_if_a_key_runs_here() {
    let table: [(&str, Turned, &str); 13] = [
        ("all is well", |_| {}, "run 7 3 1"),
        ("an unknown version", |known| known.beyond = Some(9), "the regions go by protocol version 9"),
        ("not founded", |known| newest(known, View::unfounded(abc())), NOT_FOUNDED),
        (
            "not founded, as far as a closed store says",
            |known| {
                newest(known, View::unfounded(abc()));
                known.store = closed("no answer");
            },
            "no answer",
        ),
        ("a closed store", |known| known.store = closed("no answer"), "no answer"),
        (
            "a replaced store",
            |known| known.site = Arc::new(Site { me: origin("b#2"), ..(*known.site).clone() }),
            REPLACED,
        ),
        ("a gate without a view", |known| known.store = open(7, None), "Moving"),
        ("another region's key by the newest view", |known| newest(known, drained(&first(), "b", 1)), "at c"),
        (
            "this region's key again, while the gate is behind",
            |known| {
                let away = drained(&first(), "b", 1);
                known.store = open(7, Some(GateState::founded(Arc::new(away.clone()))));
                newest(known, resumed(&away, "b", 1));
            },
            "Moving",
        ),
        (
            "a key that is being given up",
            |known| {
                let target = Arc::new(draft(&known.view, &[("b", SEALED)]));
                let gate = GateState::founded(known.view.clone());
                known.store = open(8, Some(gate.give_up(Some(Pending { target, seal: None }))));
            },
            "Moving",
        ),
        ("no lease", |known| known.lease.held = None, "NoLease"),
        (
            "no lease yet",
            |known| {
                known.lease.held = None;
                known.given = Some(NOW);
            },
            "Moving",
        ),
        ("a lease of a newer view", |known| known.lease = held(&next(&first(), Change::Kill)), "NoLease"),
    ];
    let of_b = key(&first(), &["b", "c"]);
    for (case, turn, expected) in table {
        let mut known = after(&[first()]);
        turn(&mut known);
        let found = said(Arc::new(known).here(&of_b, NOW));
        assert!(found.starts_with(expected), "{case}: {found}");
    }
    let known = Arc::new(after(&[first()]));
    assert_eq!(said(known.here(&key(&first(), &["a"]), NOW)), "at a");
    assert_eq!(said(known.here(&of_b, Moment::from_nanos(6))), "NoLease");
    assert_eq!(said(Arc::new(after(&[all_sealed()])).here(&of_b, NOW)), "nobody");
}

fn all_sealed() -> View {
    let mut content = first().content();
    content.members.values_mut().for_each(|member| member.standing = SEALED);
    View::from_content(content)
}

fn newest(known: &mut Snapshot, view: View) {
    known.view = Arc::new(view);
}

fn meanings() -> Meanings {
    ["pay", "other"].map(|route| (route.into(), meaning(route))).into()
}

/// b has adopted the loss of a. All that a claimed under the view before is lodged at b.
fn after_a_loss() -> Snapshot {
    let mut known = after(&[first(), lose(&first(), "a", 0)]);
    Arc::make_mut(&mut known.applied).epochs.insert(origin("a#1"), 1);
    known
}

#[test]
fn an_unknown_key_runs_early_only_where_each_fact_allows_it() {
    let table: [(&str, Turned, bool); 13] = [
        ("the absence is proven", |_| {}, true),
        ("no heartbeat came since", |known| known.applied = Arc::default(), false),
        ("hindrances of an older view", |known| known.judged = 1, false),
        (
            "a newer view, not adopted",
            |known| newest(known, next(&lose(&first(), "a", 0), Change::Kill)),
            false,
        ),
        ("a view in between is not known", |known| known.views = Arc::default(), false),
        ("rows of the lost store", |known| missing(known, not_covered("a#1")), true),
        ("rows that others handed on", |known| missing(known, not_covered("c#1")), false),
        ("claims that are no records", |known| missing(known, Hindrance::Escrow(origin("a#1"))), false),
        ("a gap", |known| missing(known, Hindrance::Gap(origin("a#1"))), false),
        ("the window", |known| missing(known, Hindrance::Unmeasured(origin("a#1"))), true),
        ("no lease", |known| known.lease.held = None, false),
        ("a closed store", |known| known.store = closed("no answer"), false),
        ("a version that is not spoken", |known| known.beyond = Some(9), false),
    ];
    let of_a = key(&first(), &["a", "b"]);
    for (case, turn, runs) in table {
        let mut known = after_a_loss();
        turn(&mut known);
        let permit = Arc::new(known).early(&of_a, "pay", &meanings(), NOW);
        let permit = permit.map(|permit| (permit.gate.0, permit.view.epoch()));
        assert_eq!(permit, runs.then_some((7, 2)), "{case}");
    }
    let known = Arc::new(after_a_loss());
    assert!(matches!(known.here(&of_a, NOW), Here::Closed(Closed::CatchingUp)));
    assert!(known.early(&of_a, "other", &meanings(), NOW).is_none(), "not under escrow");
    assert!(known.early(&of_a, "pay", &Meanings::new(), NOW).is_none(), "another meaning here");
    assert!(known.early(&key(&first(), &["b"]), "pay", &meanings(), NOW).is_none(), "nothing was lost");
}

fn missing(known: &mut Snapshot, hindrance: Hindrance) {
    known.hindrances = Arc::new(vec![hindrance]);
}

fn not_covered(text: &str) -> Hindrance {
    Hindrance::NotCovered { origin: origin(text), mark: 9, applied: 1 }
}

#[test]
fn a_risk_is_named_unless_the_absence_disproves_it() {
    let (of_a, of_c) = (key(&first(), &["a", "b"]), key(&first(), &["c", "b"]));
    let known = after_a_loss();
    assert_eq!(known.at_risk(&of_a), [name("a")]);
    assert!(known.at_risk_unproven(&of_a, "pay", &meanings()).is_empty());
    assert_eq!(known.at_risk_unproven(&of_a, "other", &meanings()), [name("a")]);
    assert!(known.at_risk(&of_c).is_empty());
    assert!(after(&[first()]).at_risk(&of_a).is_empty());
}

#[test]
pub fn a_send_needs_the_lease_and_the_tenure_of_its_claim() {
    let known = after(&[first()]);
    assert!(known.may_send(TENURE, NOW));
    assert!(!known.may_send(TENURE, Moment::from_nanos(6)), "the lease is over");
    assert!(!known.may_send(Tenure(2), NOW), "it lapsed since the claim");
    let given_up = Snapshot { lease: Leased { held: None, ..known.lease.clone() }, ..known };
    assert!(!given_up.may_send(TENURE, NOW));
}

/// Process one adopts a view that gives this region keys, and opens them; process two looks only
/// then. Their former owner may be running one.
#[test]
fn claims_of_others_are_counted_out_anew_under_each_view() {
    let mut known = after(&[first()]);
    let (before, later) = (Moment::from_nanos(1_000), Moment::from_nanos(9_000));
    let since = |known: &Snapshot| known.reader(later).ended.get(&origin("a#1")).copied();
    known.opened(&first(), before);
    known.opened(&first(), later);
    assert_eq!(since(&known), Some(later.since(before)));
    known.opened(&next(&first(), Change::Kill), later);
    assert_eq!(since(&known), Some(Duration::ZERO));
    known.closed();
    assert_eq!(since(&known), None);
}

#[test]
fn a_reader_counts_lost_origins_as_over_once_everything_may_start() {
    let mut known = after_a_loss();
    assert!(known.reader(NOW).over.is_empty(), "an outcome may be on the way here");
    let (_, state) = known.gate().unwrap();
    known.store = open(8, Some(state.open()));
    assert_eq!(known.reader(NOW).over, [origin("a#1")].into());
}

#[test]
fn only_newer_views_and_gates_replace_known_ones() {
    let (one, two) = (Arc::new(first()), Arc::new(drained(&first(), "b", 1)));
    let mut known = after(&[first()]);
    assert!(!known.learn(&one, NOW));
    assert!(known.learn(&two, NOW));
    assert_eq!((known.given, known.views.len()), (None, 2));
    assert!(known.learn(&Arc::new(resumed(&two, "b", 1)), NOW));
    assert_eq!(known.given, Some(NOW), "it serves again");
    let version = |known: &Snapshot| known.gate().map(|(gate, _)| gate.version.0);
    let gate = |version| match &*open(version, Some(GateState::founded(one.clone()))) {
        StoreHealth::Open(gate) => gate.clone(),
        StoreHealth::Closed { .. } => unreachable!(),
    };
    known.renew_gate(gate(6));
    assert_eq!(version(&known), Some(7));
    known.renew_gate(Gate { approved: None, ..gate(9) });
    assert_eq!(version(&known), Some(7), "not approved");
    known.renew_gate(gate(9));
    assert_eq!(version(&known), Some(9));
    assert!(known.close("no answer", NOW) && !known.close("no answer", NOW));
    known.renew_gate(gate(10));
    assert_eq!(version(&known), None, "only the heartbeat opens a store");
}

#[test]
fn views_so_old_that_their_keys_are_forgotten_end_a_risk() {
    let mut known = after(&[first()]);
    let two = Arc::new(next(&first(), Change::Kill));
    let kept = vec![(Arc::new(first()), Duration::from_secs(9)), (two, Duration::from_secs(5))];
    known.recall(kept.clone(), |ago| ago > Duration::from_secs(7));
    assert_eq!((known.outlived, known.views.len()), (1, 2));
    known.recall(kept, |_| false);
    assert_eq!(known.outlived, 0);
}
