//! Random forged histories: looks at each entry, some looks, or one look find the same breaches.
//!
//! It must not forge entries that a look could come too early for, as views that are chosen later.
//! No look finds too much there, but the findings differ.

use simulation::dice::SimDice;

use super::*;

/// One forged entry of a random history at this time. With three keys, three regions and few
/// tokens, many entries are wrong.
fn random_entry(at: u64, views: &[Arc<View>; 2], ids: &[KeyId; 3], dice: &SimDice) -> News {
    let pick = |count: u64| usize::try_from(dice.bits() % count).unwrap();
    let (id, store) = (&ids[pick(3)], pick(3));
    let (region, number) = (NAMES[store], store as u64 + 1);
    let attempt = token([1, 1, 2][pick(3)], [1, 2, 3][pick(3)]);
    match pick(10) {
        0 => {
            let state = GateState::founded(views[0].clone());
            let state = match pick(4) {
                0 => state,
                1 => state.adopt(views[1].clone()),
                2 => state.adopt(views[1].clone()).open(),
                _ => state.give_up(Some(Pending { target: views[1].clone(), seal: None })),
            };
            gates(number, region, [gated(at, state, &[("c", 4 + pick(2) as u64)])])
        }
        1 => {
            let lodgment = Lodgment { at: ms(at), id: id.clone(), origin: origin("a"), token: attempt };
            stores([StoreNews { lodged: vec![lodgment], ..of_store(number, region) }])
        }
        2 => News {
            votes: vec![(
                Voter::Store(number),
                vec![held(number.into(), 3 + pick(3) as u64, Some((2, &views[1])))],
            )],
            ..News::default()
        },
        3..6 => {
            use Standing::{Claimed, InDoubt, Released, Settled, Tombstone};
            let standing = [Claimed, Claimed, InDoubt, Released, Settled, Tombstone][pick(6)];
            let (route, risk, over) = (["park", "strict", "rerun"][pick(3)], pick(4) == 0, pick(3) == 0);
            let unsent = pick(6) == 0;
            let lives = (Duration::from_secs(pick(2) as u64 * 10), Duration::from_secs(10));
            let change = |record: &mut Record| {
                record.route = route.into();
                record.risk = risk.then(|| name("b")).into_iter().collect();
                record.over = over.then(|| (origin("b"), token(2, 3))).into_iter().collect();
                record.hold = if unsent { Duration::ZERO } else { record.hold };
                record.lives = lives;
            };
            let written = recorded(write(at, id, attempt, standing), change);
            let written = Write { approved: pick(9) > 0, beside_open: pick(2) == 0, ..written };
            let gone = Write { record: None, ..written.clone() };
            writes(number, region, [if pick(12) == 0 { gone } else { written }])
        }
        6 => {
            let view = &views[usize::from(pick(6) == 0)];
            leases::granted(region, at..at + pick(40) as u64, &[pick(3) as u128 + 1], view)
        }
        7 | 8 => {
            let body = ["{}", "{\"other\":1}"][pick(2)].into();
            arrives([Attempted { body, ..sent(at, region, id, attempt) }])
        }
        _ => happens([sent(at, region, id, attempt)]),
    }
}

/// Both in one, with the entries of `all` first.
fn together(mut all: News, more: News) -> News {
    for store in more.stores {
        match all.stores.iter_mut().find(|known| known.number == store.number) {
            Some(known) => {
                known.gates.extend(store.gates);
                known.lodged.extend(store.lodged);
                known.writes.extend(store.writes);
            }
            None => all.stores.push(store),
        }
    }
    for (voter, history) in more.votes {
        match all.votes.iter_mut().find(|(known, _)| *known == voter) {
            Some((_, known)) => known.extend(history),
            None => all.votes.push((voter, history)),
        }
    }
    all.granted.extend(more.granted);
    all.arrivals.extend(more.arrivals);
    all.effects.extend(more.effects);
    all
}

#[test]
fn findings_do_not_depend_on_how_often_we_look() {
    let one = first();
    let two = lost(&one, "c");
    let owner = key(&one);
    let other =
        |number: u32| KeyId::new(Tenant::parse("t").unwrap(), Key::parse(&format!("o-{number}")).unwrap());
    let (views, ids) = ([one, two.clone()], [owner, other(1), other(2)]);
    let mut broken = BTreeSet::new();
    for seed in 0..200 {
        let dice = SimDice::new(seed, 0);
        let begin = || founded().into_iter().chain([majority_accepts(2, &two)]);
        let history: Vec<News> = (10..130).map(|at| random_entry(at, &views, &ids, &dice)).collect();
        let find = |looks: Vec<News>| {
            let mut checker = checker();
            let answer = begin().chain(looks).flat_map(|news| checker.judge(news));
            answer.map(|breach| (breach.invariant, breach.text)).collect::<BTreeSet<_>>()
        };
        let each = find(history.clone());
        let mut looks = vec![News::default()];
        for entry in history.clone() {
            if dice.bits().is_multiple_of(10) {
                looks.push(News::default());
            }
            let last = looks.pop().unwrap_or_default();
            looks.push(together(last, entry));
        }
        assert_eq!(find(looks), each, "seed {seed}");
        assert_eq!(find(vec![history.into_iter().fold(News::default(), together)]), each, "seed {seed}");
        broken.extend(each.into_iter().map(|(invariant, _)| invariant));
    }
    // Views, new voters, agreed leases and journals are not forged here.
    let rest = [
        Invariant::OneViewPerEpoch,
        Invariant::DoublesJournalled,
        Invariant::DoublesFound,
        Invariant::AlarmsAreTrue,
        Invariant::MarksStay,
        Invariant::SilentAtFirst,
        Invariant::GrantsAgreed,
    ];
    let all = Invariant::ALL.iter().copied().filter(|invariant| !rest.contains(invariant));
    assert_eq!(broken, all.collect(), "each breaks in some seed");
}
