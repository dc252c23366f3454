//! Forged histories: for each invariant one that keeps it and one that breaks it, and the reported
//! breach.
//!
//! The swarm shows that true histories break nothing.

mod ends;
mod leases;
mod random;
mod sends;

use std::sync::LazyLock;

use onceway::protocol::authority::{GateState, Pending};
use onceway::protocol::digest::digest;
use onceway::protocol::view::{Content, Member};
use onceway::protocol::window::WindowRule;
use simulation::checker::{Breach, Checker, Invariant, News, StoreNews, Voter};
use simulation::table::{Gated, Granted, Held, Lodgment, Record, Standing, Truth, Write};
use simulation::upstream::Attempted;

use crate::shared::region as name;
use crate::shared::*;

const RULE: WindowRule = WindowRule { percent: 200, floor: ms(1), beyond: ms(60_000) };

const NAMES: [&str; 3] = ["a", "b", "c"];

fn origin(region: &str) -> Origin {
    Origin { region: name(region), generation: 1 }
}

/// The first view: three regions, each with a voter, and the route `strict` under escrow.
fn first() -> Arc<View> {
    let voters = (1..).zip(NAMES).map(|(id, text)| (name(text), AcceptorId(id))).collect();
    let escrow = [(Arc::from("strict"), digest("route", &[]))].into();
    // Any lease, where nothing else is said.
    let longest_lease = Duration::MAX;
    changed(&View::founding(1, ring(), escrow, voters), |content| content.longest_lease = longest_lease)
}

fn changed(view: &View, change: impl FnOnce(&mut Content)) -> Arc<View> {
    let mut content = view.content();
    change(&mut content);
    Arc::new(View::from_content(content))
}

/// The view in this epoch, with another member.
fn with_member(view: &View, epoch: u64, region: &str, change: impl FnOnce(&mut Member)) -> Arc<View> {
    changed(view, |content| {
        content.epoch = epoch;
        change(content.members.get_mut(&name(region)).unwrap());
    })
}

fn ring() -> Arc<Ring> {
    static RING: LazyLock<Arc<Ring>> = LazyLock::new(|| {
        let regions = NAMES.map(|text| RegionSpec { name: name(text), weight: 1 }).to_vec();
        let spec = RingSpec { seed: 1, place_by: PlaceBy::Key, regions, pins: Vec::new() };
        Arc::new(Ring::build(&spec).unwrap())
    });
    RING.clone()
}

fn after(view: &View, change: &Change) -> Arc<View> {
    Arc::new(view.next(change).unwrap())
}

fn lost(view: &View, region: &str) -> Arc<View> {
    after(view, &Change::Lose { region: name(region), frontier: 5 })
}

/// A key of a's, whose next region is b.
fn key(view: &View) -> KeyId {
    let id =
        |number: u32| KeyId::new(Tenant::parse("t").unwrap(), Key::parse(&format!("k-{number}")).unwrap());
    let is = |id: &KeyId| view.owner(id) == Some(&name("a")) && view.target(id) == Some(&name("b"));
    (0..).map(id).find(is).unwrap()
}

fn ballot(counter: u64) -> Ballot {
    Ballot { counter, region: name("a"), proposer: 1 }
}

fn held(id: u128, promised: u64, accepted: Option<(u64, &Arc<View>)>) -> Held {
    let accepted = accepted.map(|(counter, view)| Accepted { ballot: ballot(counter), view: view.clone() });
    Held { at: Duration::ZERO, id: AcceptorId(id), promised: Some(ballot(promised)), accepted }
}

fn majority_accepts(counter: u64, view: &Arc<View>) -> News {
    let votes =
        [1_u64, 2].map(|id| (Voter::Store(id), vec![held(id.into(), counter, Some((counter, view)))]));
    News { votes: votes.into(), ..News::default() }
}

fn of_store(number: u64, region: &str) -> StoreNews {
    let (gates, kept, lodged, writes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    StoreNews { number, origin: origin(region), gates, kept, lodged, writes }
}

fn stores(stores: impl IntoIterator<Item = StoreNews>) -> News {
    News { stores: stores.into_iter().collect(), ..News::default() }
}

fn gated(at: u64, state: GateState, applied: &[(&str, u64)]) -> Gated {
    let applied = applied.iter().map(|(region, seq)| (origin(region), *seq)).collect();
    Gated { at: ms(at), state, applied, lodged: BTreeSet::new(), lags: BTreeMap::new() }
}

fn gates(number: u64, region: &str, gates: impl IntoIterator<Item = Gated>) -> News {
    stores([StoreNews { gates: gates.into_iter().collect(), ..of_store(number, region) }])
}

fn adopts(number: u64, region: &str, at: u64, view: &Arc<View>) -> News {
    gates(number, region, [gated(at, GateState::founded(view.clone()), &[])])
}

fn token(epoch: u64, attempt: u32) -> Token {
    Token { epoch, attempt }
}

fn write(at: u64, id: &KeyId, token: Token, standing: Standing) -> Write {
    let record = Record {
        token,
        standing,
        over: Vec::new(),
        risk: Vec::new(),
        accepted: false,
        request_id: RequestId(1),
        route: Arc::from("park"),
        hold: ms(10_000),
        lives: (Duration::ZERO, Duration::ZERO),
    };
    Write { at: ms(at), id: id.clone(), record: Some(record), approved: true, beside_open: false }
}

fn claim(at: u64, id: &KeyId, token: Token) -> Write {
    write(at, id, token, Standing::Claimed)
}

fn recorded(write: Write, change: impl Fn(&mut Record)) -> Write {
    let record = write.record.map(|mut record| {
        change(&mut record);
        record
    });
    Write { record, ..write }
}

fn writes(number: u64, region: &str, writes: impl IntoIterator<Item = Write>) -> News {
    stores([StoreNews { writes: writes.into_iter().collect(), ..of_store(number, region) }])
}

fn sent(at: u64, by: &str, id: &KeyId, token: Token) -> Attempted {
    Attempted { at: ms(at), by: name(by), id: id.clone(), token, body: Default::default() }
}

fn arrives(sends: impl IntoIterator<Item = Attempted>) -> News {
    News { arrivals: sends.into_iter().collect(), ..News::default() }
}

fn happens(effects: impl IntoIterator<Item = Attempted>) -> News {
    News { effects: effects.into_iter().collect(), ..News::default() }
}

/// A checker that has seen nothing; the route `rerun` runs doubts again.
fn checker() -> Checker {
    Checker::new([Arc::from("rerun")].into(), RULE)
}

fn judged(histories: impl IntoIterator<Item = News>) -> Vec<Invariant> {
    let mut checker = checker();
    histories.into_iter().flat_map(|news| checker.judge(news)).map(|breach| breach.invariant).collect()
}

/// The invariants that only the end shows as broken.
fn ended(checker: &Checker, ledger: &BTreeMap<KeyId, Vec<Happening>>, stores: Vec<Truth>) -> Vec<Invariant> {
    checker.judge_end(ledger, stores, Duration::ZERO).into_iter().map(|breach| breach.invariant).collect()
}

/// The first view is chosen, every region goes by it, and holds a lease of a day.
fn founded() -> Vec<News> {
    let view = first();
    let adopts = |(number, region)| adopts(number, region, 0, &view);
    let leased = NAMES.map(|region| leases::granted(region, 0..86_400_000, &[1, 2, 3], &view));
    [majority_accepts(1, &view)].into_iter().chain(leased).chain((1..).zip(NAMES).map(adopts)).collect()
}

fn after_founding(histories: impl IntoIterator<Item = News>) -> Vec<Invariant> {
    judged(founded().into_iter().chain(histories))
}

#[test]
fn names_are_different_and_a_breach_shows_name_and_rule() {
    let all = Invariant::ALL;
    assert_eq!(all.iter().map(|one| one.name()).collect::<BTreeSet<_>>().len(), all.len());
    assert!(all.is_sorted());
    let breach = Breach { at: ms(5), invariant: Invariant::OneSender, text: "two".to_owned() };
    assert_eq!(breach.to_string(), "one-sender (rule 9) at 5ms: two");
}

#[test]
fn one_view_is_chosen_per_epoch() {
    let (one, other) = (first(), changed(&first(), |content| content.escrow.clear()));
    assert_eq!(judged([majority_accepts(1, &one), majority_accepts(2, &one)]), []);
    let both = [majority_accepts(1, &one), majority_accepts(2, &other)];
    assert_eq!(judged(both), [Invariant::OneViewPerEpoch]);
    // One vote chooses nothing.
    let vote =
        News { votes: vec![(Voter::Witness(0), vec![held(3, 2, Some((2, &other)))])], ..News::default() };
    assert_eq!(judged([majority_accepts(1, &one), vote]), []);
}

#[test]
fn no_epoch_is_left_out() {
    let one = first();
    let two = after(&one, &Change::Kill);
    let three = after(&two, &Change::Kill);
    let chosen = |views: &[&Arc<View>]| -> Vec<News> {
        (1..).zip(views).map(|(counter, view)| majority_accepts(counter, view)).collect()
    };
    assert_eq!(judged(chosen(&[&one, &two, &three])), []);
    assert_eq!(judged(chosen(&[&one, &three])), [Invariant::OneViewPerEpoch]);
}

#[test]
fn adopted_and_kept_views_are_chosen_and_epochs_never_fall() {
    let one = first();
    let two = after(&one, &Change::Kill);
    let kept = stores([StoreNews { kept: vec![two.clone()], ..of_store(1, "a") }]);
    let chosen = || [majority_accepts(1, &one), majority_accepts(2, &two)];
    assert_eq!(
        judged(chosen().into_iter().chain([adopts(1, "a", 1, &one), adopts(1, "a", 2, &two), kept.clone()])),
        []
    );
    assert_eq!(judged([majority_accepts(1, &one), adopts(1, "a", 1, &two)]), [Invariant::AdoptedIsChosen]);
    assert_eq!(judged([majority_accepts(1, &one), kept]), [Invariant::AdoptedIsChosen]);
    let fell = chosen().into_iter().chain([adopts(1, "a", 1, &two), adopts(1, "a", 2, &one)]);
    assert_eq!(judged(fell), [Invariant::AdoptedIsChosen]);
}

/// Two of four voters are a majority of the three that are left, but not of the voters before.
#[test]
fn a_view_is_chosen_by_those_who_voted_before_too() {
    let one = changed(&first(), |content| {
        content.voters.insert(name("d"), AcceptorId(4));
        content.voters_before = content.voters.clone();
    });
    let two = after(&one, &Change::Voters(first().voters().clone()));
    let vote = |id: u64, counter, view| {
        let votes = vec![(Voter::Store(id), vec![held(id.into(), counter, Some((counter, view)))])];
        News { votes, ..News::default() }
    };
    let founded = || [majority_accepts(1, &one), vote(3, 1, &one), adopts(1, "a", 1, &one)];
    let agreed = [majority_accepts(2, &two), vote(4, 2, &two), adopts(1, "a", 2, &two)];
    assert_eq!(judged(founded().into_iter().chain(agreed)), []);
    let early = [majority_accepts(2, &two), adopts(1, "a", 2, &two)];
    assert_eq!(judged(founded().into_iter().chain(early)), [Invariant::AdoptedIsChosen]);
}

#[test]
fn marks_never_go_back_but_with_a_loss() {
    let one = first();
    let two = lost(&one, "c");
    let back = |mark: u64| {
        let standing = onceway::protocol::view::Standing::Sealed { drained: false };
        with_member(&two, 3, "c", |member| (member.mark, member.standing) = (mark, standing))
    };
    let chosen = |mark| {
        judged((1..).zip([&one, &two, &back(mark)]).map(|(counter, view)| majority_accepts(counter, view)))
    };
    assert_eq!(chosen(6), []);
    assert_eq!(chosen(4), [Invariant::MarksStay]);
}

#[test]
fn promises_never_fall_and_nothing_is_accepted_below_them() {
    let view = first();
    let votes =
        |history: Vec<Held>| judged([News { votes: vec![(Voter::Store(1), history)], ..News::default() }]);
    assert_eq!(votes(vec![held(1, 1, None), held(1, 2, None), held(1, 2, Some((2, &view)))]), []);
    // The acceptor of a store that was made anew is another acceptor.
    assert_eq!(votes(vec![held(1, 2, None), held(7, 1, None)]), []);
    assert_eq!(votes(vec![held(1, 2, None), held(1, 1, None)]), [Invariant::PromisesKept]);
    assert_eq!(votes(vec![held(1, 2, None), held(1, 2, Some((1, &view)))]), [Invariant::PromisesKept]);
}

#[test]
fn records_move_along_the_arrows_and_tokens_grow() {
    use Standing::{Claimed, InDoubt, Released, Settled, Tombstone};
    let id = key(&first());
    let moves = |history: &[(Standing, u32)]| {
        let history =
            (1..).zip(history).map(|(at, (standing, attempt))| write(at, &id, token(1, *attempt), *standing));
        after_founding([writes(1, "a", history)])
    };
    let doubted = [(Claimed, 1), (InDoubt, 1), (Claimed, 2), (Released, 2)];
    assert_eq!(moves(&[&doubted[..], &[(Claimed, 3), (Settled, 3), (Tombstone, 3)]].concat()), []);
    assert_eq!(moves(&[(Claimed, 1), (Settled, 1), (InDoubt, 1)]), [Invariant::Arrows]);
    assert_eq!(moves(&[(Claimed, 1), (Tombstone, 1), (Claimed, 2)]), [Invariant::Arrows]);
    assert_eq!(moves(&[(Claimed, 2), (InDoubt, 1)]), [Invariant::Arrows]);
    assert_eq!(moves(&[(Claimed, 1), (Released, 1), (Claimed, 1)]), [Invariant::TokensGrow]);
    assert_eq!(moves(&[(Claimed, 2), (InDoubt, 2), (Claimed, 1)]), [Invariant::TokensGrow]);
    // A forgotten key begins again, under a greater token.
    let anew = |attempt| {
        let gone = Write { record: None, ..write(2, &id, token(1, 1), Claimed) };
        let again = write(3, &id, token(1, attempt), Claimed);
        after_founding([writes(1, "a", [write(1, &id, token(1, 2), Claimed), gone, again])])
    };
    assert_eq!(anew(3), []);
    assert_eq!((anew(2), anew(1)), (vec![Invariant::TokensGrow], vec![Invariant::TokensGrow]));
}

#[test]
fn a_claim_that_nobody_sends_under_says_what_it_is_for() {
    let id = key(&first());
    let by = |standing| {
        let unsent = recorded(write(1, &id, token(1, 1), standing), |record| record.hold = Duration::ZERO);
        after_founding([writes(1, "a", [unsent])])
    };
    assert_eq!(by(Standing::Claimed), [Invariant::WholeAtOnce]);
    assert_eq!(by(Standing::Settled), []);
}

#[test]
fn a_key_is_remembered_for_as_long_as_was_promised() {
    let id = key(&first());
    let promised = |at: u64, standing| {
        let lives = (Duration::from_secs(100), Duration::from_secs(200));
        recorded(write(at, &id, token(1, 1), standing), |record| record.lives = lives)
    };
    let ends = |expired: u64, forgotten: u64| {
        let made = [promised(0, Standing::Claimed), promised(10, Standing::Settled)];
        let gone = Write { record: None, ..promised(forgotten, Standing::Tombstone) };
        let ended = [promised(expired, Standing::Tombstone), gone];
        after_founding([writes(1, "a", made.into_iter().chain(ended))])
    };
    assert_eq!(ends(100_000, 200_000), []);
    // Clocks may run fast by a hundredth and two seconds.
    assert_eq!(ends(97_000, 196_000), []);
    assert_eq!(ends(96_000, 200_000), [Invariant::KeptForItsLife]);
    assert_eq!(ends(100_000, 195_000), [Invariant::KeptForItsLife]);
}

#[test]
fn no_claim_passes_without_an_approved_boot() {
    let id = key(&first());
    let by = |standing| Write { approved: false, ..write(1, &id, token(1, 1), standing) };
    assert_eq!(after_founding([writes(1, "a", [by(Standing::Claimed)])]), [Invariant::BootApproved]);
    assert_eq!(after_founding([writes(1, "a", [by(Standing::InDoubt)])]), []);
}

#[test]
fn a_send_needs_an_earlier_claim_by_its_region() {
    let id = key(&first());
    let claim = || writes(1, "a", [claim(10, &id, token(1, 1))]);
    assert_eq!(after_founding([claim(), arrives([sent(11, "a", &id, token(1, 1))])]), []);
    for bad in
        [sent(9, "a", &id, token(1, 1)), sent(11, "b", &id, token(1, 1)), sent(11, "a", &id, token(1, 2))]
    {
        // Only an owner has a lease that covers the key.
        let broken = after_founding([claim(), arrives([bad])]);
        assert!(broken.ends_with(&[Invariant::ClaimedBeforeSent]), "{broken:?}");
    }
}

#[test]
fn a_send_under_escrow_needs_an_earlier_lodged_claim() {
    let id = key(&first());
    let lodged = |at: u64, route: &str| {
        let claim = recorded(claim(10, &id, token(1, 1)), |record| record.route = route.into());
        let lodgment = Lodgment { at: ms(at), id: id.clone(), origin: origin("a"), token: token(1, 1) };
        let at_b = StoreNews { lodged: vec![lodgment], ..of_store(2, "b") };
        after_founding([writes(1, "a", [claim]), stores([at_b]), arrives([sent(20, "a", &id, token(1, 1))])])
    };
    assert_eq!(lodged(15, "strict"), []);
    assert_eq!(lodged(25, "park"), []);
    assert_eq!(lodged(25, "strict"), [Invariant::ClaimedBeforeSent]);
}

#[test]
fn nothing_is_sent_by_a_region_whose_loss_was_adopted() {
    let one = first();
    let id = key(&one);
    let without_a = lost(&one, "a");
    let adopted =
        |at| gates(2, "b", [gated(at, GateState::founded(one.clone()).adopt(without_a.clone()), &[])]);
    let history = |adopted: News| {
        let claim = writes(1, "a", [claim(10, &id, token(1, 1))]);
        let send = arrives([sent(20, "a", &id, token(1, 1))]);
        after_founding([majority_accepts(2, &without_a), adopted, claim, send])
    };
    assert_eq!(history(adopted(20)), []);
    assert_eq!(history(adopted(19)), [Invariant::OneSender]);
}

#[test]
fn attempts_are_sent_in_order_and_know_of_one_another() {
    let id = key(&first());
    let claims = |over: bool, risk: bool, released: Option<u64>| {
        let second = recorded(claim(20, &id, token(1, 2)), |record| {
            record.over = over.then(|| (origin("b"), token(1, 1))).into_iter().collect();
            record.risk = risk.then(|| name("b")).into_iter().collect();
        });
        let first = claim(10, &id, token(1, 1));
        let released = released.map(|at| write(at, &id, token(1, 1), Standing::Released));
        [writes(2, "b", [first].into_iter().chain(released)), writes(1, "a", [second])]
    };
    let (one, two) = (|| sent(11, "b", &id, token(1, 1)), || sent(30, "a", &id, token(1, 2)));
    // If b is no owner, its gate lets nothing pass and no lease covers the key. The test only looks
    // for breaches by a's send.
    let of_a = |all: Vec<Invariant>| -> Vec<Invariant> {
        let of_b = [Invariant::OpenWhenCovered, Invariant::GrantedWhenSent];
        all.into_iter().filter(|broken| !of_b.contains(broken)).collect()
    };
    let breaks = |claims: [News; 2], sends: [Attempted; 2]| {
        of_a(after_founding(claims.into_iter().chain([arrives(sends)])))
    };
    assert_eq!(breaks(claims(true, false, None), [one(), two()]), []);
    assert_eq!(breaks(claims(false, true, None), [one(), two()]), []);
    assert_eq!(breaks(claims(false, false, Some(25)), [one(), two()]), []);
    assert_eq!(breaks(claims(false, false, None), [one(), two()]), [Invariant::KnewOfOthers]);
    assert_eq!(breaks(claims(false, false, Some(31)), [one(), two()]), [Invariant::KnewOfOthers]);
    assert_eq!(breaks(claims(true, false, None), [two(), one()]), [Invariant::OneSender]);
    // c named b's attempt and ended its own. a names c's attempt, or nothing.
    let between = |over: &[(Origin, Token)]| {
        let over = over.to_vec();
        let third = recorded(claim(15, &id, token(1, 2)), |record| {
            record.over = vec![(origin("b"), token(1, 1))];
        });
        let last = recorded(claim(20, &id, token(1, 3)), |record| record.over = over.clone());
        let first = writes(2, "b", [claim(10, &id, token(1, 1))]);
        let sends = arrives([one(), sent(30, "a", &id, token(1, 3))]);
        of_a(after_founding([first, writes(3, "c", [third]), writes(1, "a", [last]), sends]))
    };
    assert_eq!(between(&[(origin("c"), token(1, 2))]), []);
    assert_eq!(between(&[]), [Invariant::KnewOfOthers]);
}

#[test]
fn a_second_effect_is_allowed_by_its_route_or_ran_at_risk() {
    let id = key(&first());
    let twice = |route: &str, risk: bool| {
        let second = recorded(claim(20, &id, token(1, 2)), |record| {
            (record.route, record.risk) = (route.into(), risk.then(|| name("b")).into_iter().collect());
        });
        let claims = [claim(10, &id, token(1, 1)), second];
        let effects = happens([sent(11, "a", &id, token(1, 1)), sent(21, "a", &id, token(1, 2))]);
        after_founding([writes(1, "a", claims), effects])
    };
    assert_eq!(twice("rerun", false), []);
    assert_eq!(twice("park", true), []);
    assert_eq!(twice("strict", true), []);
    assert_eq!(twice("park", false), [Invariant::SecondEffectAtRisk]);
    assert_eq!(twice("strict", false), [Invariant::OneEffectUnderEscrow]);
    // The key was not claimed.
    let unclaimed = happens([sent(1, "a", &id, token(1, 1)), sent(2, "b", &id, token(1, 1))]);
    assert_eq!(after_founding([unclaimed]), [Invariant::SecondEffectAtRisk]);
}

#[test]
fn the_page_names_each_invariant() {
    let page = include_str!("../../../docs/simulation.md");
    let (_, table) = page.split_once("\n## The invariants\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | [rule "));
    let known: BTreeSet<String> = rows
        .map(|(name, rest)| {
            let (rule, demands) = rest.split_once("](protocol.md#rule-").unwrap();
            assert!(demands.starts_with(&format!("{rule}) | ")) && demands.len() > 20, "{name}: {demands}");
            format!("{name} (rule {rule})")
        })
        .collect();
    let mut all: BTreeSet<String> = Invariant::ALL.iter().map(ToString::to_string).collect();
    all.insert(simulation::play::answers::SAME_ANSWER.to_owned());
    assert_eq!(known, all);
}

#[test]
fn a_breach_names_its_key_and_its_time_as_a_story_does() {
    let mut checker = checker().counting_from(ms(10));
    let (id, token) = (key(&first()), token(1, 1));
    let history = founded().into_iter().chain([arrives([sent(30, "a", &id, token)])]);
    let breaches: Vec<Breach> = history.flat_map(|news| checker.judge(news)).collect();
    let broken = breaches.iter().find(|breach| breach.invariant == Invariant::ClaimedBeforeSent).unwrap();
    let name = format!("{}/{}", id.tenant(), id.key().as_str());
    assert_eq!(broken.text, format!("{name} {token} by a at 0.020000 was sent without a claim"));
}
