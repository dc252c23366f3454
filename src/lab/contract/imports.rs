//! The promises of [`Imports`]. Each run of the suite needs a new bench.

use super::bench::*;

pub async fn suite(bench: &impl ImportBench) {
    rows_are_handed_over_whole(bench).await;
    rows_come_in_pages_in_the_order_of_keys(bench).await;
    the_later_of_two_rows_of_one_origin_counts(bench).await;
    imported_rows_stand_in_the_way_of_claims(bench).await;
    a_claim_supersedes_only_the_row_that_counts(bench).await;
    the_later_of_two_rows_is_handed_on(bench).await;
    the_answer_with_the_highest_token_stays(bench).await;
    no_import_passes_an_unapproved_boot(bench).await;
    rows_after_the_newest_heartbeat_are_found(bench).await;
    own_rows_are_restored_before_the_boot_is_approved(bench).await;
    an_imported_row_goes_once_it_is_not_needed(bench).await;
}

async fn rows_are_handed_over_whole(bench: &impl ImportBench) {
    open(bench).await;
    let origin = bench.peers()[1].clone();
    let (past, body) = (Duration::ZERO, AnswerBody::Kept(b"{\"status\":\"made\"}".repeat(100)));
    let states = [
        running(),
        State::InDoubt { status: Some(502), left: LONG, past },
        State::InDoubt { status: None, left: LONG, past },
        State::Released,
        State::Settled { answer: Arc::new(Answer { body, ..answer() }), age: SHORT, expired: false },
        State::Tombstone,
    ];
    let row_in = |(at, state)| copied(bench, &origin, &format!("import-whole-{at}"), 3, state);
    let rows_in: Vec<CopiedRow> = (0..).zip(states).map(row_in).collect();
    import(bench, &origin, &rows_in).await;
    import(bench, &origin, &[]).await;
    restart_and_approve(bench).await;
    for copied in &rows_in {
        let shown = row(bench, &copied.id).await;
        assert_eq!(untimed(&shown), untimed(&copied.row), "import: shown otherwise than handed over");
    }
    let mut out = bench.store().rows_of(&origin, None, 1_000).await.expect("import: rows_of failed");
    out.retain(|copied| rows_in.iter().any(|known| known.id == copied.id));
    assert_eq!(out.len(), rows_in.len(), "import: all of them are handed on");
    for (out, known) in out.iter().zip(&rows_in) {
        assert_eq!((&out.id, untimed(&out.row)), (&known.id, untimed(&known.row)));
        assert_eq!((out.hold, out.tombstone), (known.hold, known.tombstone));
        assert_eq!((&out.route, &out.path), (&known.route, &known.path));
        let late = known.lives.saturating_sub(out.lives);
        assert!(out.lives <= known.lives && late < LONG / 2, "import: {:?} of {:?}", out.lives, known.lives);
    }
    let own = bench.store().import(&bench.origin(), &rows_in).await;
    assert!(own.is_err(), "import: the own rows are written by claims only");
}

async fn rows_come_in_pages_in_the_order_of_keys(bench: &impl ImportBench) {
    open(bench).await;
    let origin = bench.peers()[0].clone();
    let name = |at: u32| format!("import-page-{at:02}");
    for at in (1..10).rev() {
        if at % 2 == 0 {
            bench.arrives(&id(bench, &name(at)), Foreign::Settled).await;
        }
        if at % 3 != 0 {
            import(bench, &origin, &[copied(bench, &origin, &name(at), 1, State::Released)]).await;
        }
    }
    let is_there = |at: &u32| at.is_multiple_of(2) || !at.is_multiple_of(3);
    let want: Vec<KeyId> = (1..10).filter(is_there).map(|at| id(bench, &name(at))).collect();
    let (mut found, mut after) = (Vec::new(), Some(id(bench, "import-page-")));
    while found.len() < want.len() {
        let page = bench.store().rows_of(&origin, after.as_ref(), 2).await.expect("import: rows_of failed");
        assert_eq!(page.len(), 2.min(page.len().max(1)), "import: a page is full or the last");
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        found.extend(page.into_iter().map(|copied| copied.id));
    }
    found.truncate(want.len());
    assert_eq!(found, want, "import: each key once, in order");
}

async fn the_later_of_two_rows_of_one_origin_counts(bench: &impl ImportBench) {
    open(bench).await;
    let origin = bench.peers()[0].clone();
    let key = copied(bench, &origin, "import-behind", 1, running());
    bench.arrives(&key.id, Foreign::Settled).await;
    import(bench, &origin, std::slice::from_ref(&key)).await;
    assert!(is_settled(bench, &key.id).await, "import: an earlier state of the attempt hides its answer");

    let key = copied(bench, &origin, "import-ahead", 1, answered());
    bench.arrives(&key.id, Foreign::Claimed).await;
    import(bench, &origin, std::slice::from_ref(&key)).await;
    assert!(is_settled(bench, &key.id).await, "import: the answer that a survivor has must be shown");
    let earlier = CopiedRow { row: Row { state: running(), ..key.row.clone() }, ..key.clone() };
    import(bench, &origin, &[earlier]).await;
    assert!(is_settled(bench, &key.id).await, "import: an earlier state replaced a later one");

    for (attempt, state, shown, why) in [
        (2, running(), 2, "the higher token must be shown"),
        (1, answered(), 2, "a lower token replaced a higher"),
        (3, answered(), 3, "a higher token must replace a lower"),
    ] {
        let key = copied(bench, &origin, "import-higher", attempt, state);
        if attempt == 2 {
            bench.arrives(&key.id, Foreign::Settled).await;
        }
        import(bench, &origin, std::slice::from_ref(&key)).await;
        let token = row(bench, &key.id).await.token;
        assert_eq!(token, Token { attempt: shown, ..key.row.token }, "import: {why}");
    }
}

async fn imported_rows_stand_in_the_way_of_claims(bench: &impl ImportBench) {
    let origin = bench.peers()[1].clone();
    let mut ask = asks(bench, &id(bench, "import-claim"), 1).await;
    let doubt = State::InDoubt { status: None, left: LONG, past: Duration::ZERO };
    let known = copied(bench, &origin, "import-claim", 2, doubt);
    import(bench, &origin, std::slice::from_ref(&known)).await;
    let found = finds(bench, &ask, "an imported doubt stands there").await;
    assert_eq!((&found.origin, found.token), (&origin, known.row.token));
    let older = Token { attempt: 1, ..known.row.token };
    ask.basis = Basis::Known { own: None, over: vec![(origin.clone(), older)], attempt: 2 };
    finds(bench, &ask, "it is of a newer attempt than the one seen").await;
    ask.basis = Basis::Known { own: None, over: vec![(origin.clone(), known.row.token)], attempt: 2 };
    assert_eq!(wins(bench, &ask).await.0.token.attempt, 3, "import: what was seen is superseded");
}

async fn a_claim_supersedes_only_the_row_that_counts(bench: &impl ImportBench) {
    let origin = bench.peers()[0].clone();
    let mut ask = asks(bench, &id(bench, "import-overtaken"), 1).await;
    let replicated = bench.arrives(&ask.id, Foreign::Claimed).await;
    let imported = copied(bench, &origin, "import-overtaken", replicated.attempt, State::Released);
    import(bench, &origin, &[imported]).await;
    ask.basis = Basis::Known { own: None, over: Vec::new(), attempt: replicated.attempt };
    match claim(bench, &ask).await {
        ClaimReply::Won { token, .. } => assert_eq!(token.attempt, replicated.attempt + 1),
        other => panic!("import: the attempt was released, but {other:?}"),
    }
}

/// The later is that of the higher epoch, then of the higher attempt, then of the later state.
async fn the_later_of_two_rows_is_handed_on(bench: &impl ImportBench) {
    open(bench).await;
    let origin = bench.peers()[0].clone();
    for (name, replicated, epochs, attempt, state, is_settled) in [
        ("ahead", Foreign::Claimed, 0, 1, answered(), true),
        ("behind", Foreign::Settled, 0, 1, running(), true),
        ("attempt", Foreign::Settled, 0, 2, running(), false),
        ("epoch", Foreign::Settled, 1, 1, running(), false),
    ] {
        let mut imported = copied(bench, &origin, &format!("import-later-{name}"), attempt, state);
        let arrived = bench.arrives(&imported.id, replicated).await;
        imported.row.token.epoch = arrived.epoch + epochs;
        import(bench, &origin, std::slice::from_ref(&imported)).await;
        let all = bench.store().rows_of(&origin, None, 1_000).await.expect("import: rows_of failed");
        let out: Vec<_> = all.iter().filter(|copied| copied.id == imported.id).collect();
        let [out] = out.as_slice() else { panic!("import: {name}: a key is handed on once: {out:?}") };
        assert_eq!(
            (out.row.token, matches!(out.row.state, State::Settled { .. })),
            (arrived.max(imported.row.token), is_settled),
            "import: {name}: the later row must be handed on"
        );
    }
}

/// A settlement finds answers of several other origins. The one with the highest token stays the
/// key's: first the epoch counts, then the attempt, never the origin.
async fn the_answer_with_the_highest_token_stays(bench: &impl ImportBench) {
    let token = |epoch, attempt| Token { epoch, attempt };
    let pairs = [(token(1, 1), token(1, 2)), (token(1, 9), token(2, 1))];
    for (at, (lower, higher)) in pairs.into_iter().enumerate() {
        for turned in [false, true] {
            let name = format!("import-answers-{at}-{turned}");
            let attempt = claimed(bench, &name, 1).await;
            let tokens = if turned { [higher, lower] } else { [lower, higher] };
            for (origin, token) in bench.peers().iter().zip(tokens) {
                let theirs = Answer { status: if token == higher { 210 } else { 220 }, ..answer() };
                let state = State::Settled { answer: Arc::new(theirs), age: Duration::ZERO, expired: false };
                let mut there = copied(bench, origin, &name, 1, state);
                there.row.token = token;
                import(bench, origin, &[there]).await;
            }
            assert_eq!(settle(bench, &attempt, &answer()).await, Lost, "import: theirs was first");
            let State::Settled { answer, .. } = own(bench, &attempt.id).await.state else {
                panic!("import: it must be settled")
            };
            assert_eq!(answer.status, 210, "import: the answer of {higher} must stay, not that of {lower}");
        }
    }
}

/// A store that restarted may have lost rows: none is added, and none is forgotten.
async fn no_import_passes_an_unapproved_boot(bench: &impl ImportBench) {
    open(bench).await;
    let origin = bench.peers()[1].clone();
    let over = briefly(copied(bench, &origin, "import-kept", 3, State::Tombstone));
    import(bench, &origin, &[over]).await;
    let rows_in = [copied(bench, &origin, "import-closed", 1, State::Released)];
    bench.pass(SHORT).await;
    bench.restart().await;
    let refused = bench.store().import(&origin, &rows_in).await;
    refused.expect_err("import: passed though the boot is not approved");
    assert_eq!(rows(bench, &rows_in[0].id).await, [], "import: it was refused, but the row is here");
    assert_eq!(reap(bench).await, 0, "import: reaped before the approval");
    open(bench).await;
    assert_eq!(reap(bench).await, 1, "import: its life is over, and the boot is approved");
    import(bench, &origin, &rows_in).await;
    assert_eq!(rows(bench, &rows_in[0].id).await.len(), 1, "import: the boot is approved");
}

/// A row counts as later than the heartbeat until the next one: as it came, whatever its dates say.
/// All of them are found, however small the pages.
async fn rows_after_the_newest_heartbeat_are_found(bench: &impl ImportBench) {
    open(bench).await;
    let [origin, other] = [bench.peers()[0].clone(), bench.peers()[1].clone()];
    let before = id(bench, "latest-before");
    bench.arrives(&before, Foreign::Settled).await;
    bench.beats().await;
    let mut wanted = Vec::new();
    for at in 0..5 {
        let id = id(bench, &format!("latest-{at}"));
        bench.arrives(&id, if at == 0 { Foreign::Settled } else { Foreign::Claimed }).await;
        wanted.push(id);
    }
    let imported = copied(bench, &origin, "latest-imported", 1, answered());
    import(bench, &origin, std::slice::from_ref(&imported)).await;
    import(bench, &other, &[copied(bench, &other, "latest-other", 1, answered())]).await;
    wanted.push(imported.id.clone());
    wanted.sort();
    for most in [1, 2, 100] {
        let found = latest(bench, &origin, most).await;
        let mut ids: Vec<KeyId> = found.iter().map(|copied| copied.id.clone()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids, wanted, "latest: in pages of {most}");
        let whole = found.iter().find(|copied| copied.id == imported.id).expect("it is among them");
        assert_eq!((untimed(&whole.row), whole.hold), (untimed(&imported.row), imported.hold));
        assert!(whole.lives <= imported.lives && whole.lives > imported.lives / 2, "latest: {whole:?}");
    }
    bench.beats().await;
    assert_eq!(latest(bench, &origin, 100).await, [], "latest: all of it came before this heartbeat");
}

/// A restored row is the own row of its key, with a hold of its own. What is here already stays,
/// unless the other is later.
async fn own_rows_are_restored_before_the_boot_is_approved(bench: &impl ImportBench) {
    let settled = settled_key(bench, "restored-settled", 1).await;
    let run = claimed(bench, "restored-running", 2).await;
    let own = |name: &str, attempt, state| copied(bench, &bench.origin(), name, attempt, state);
    let of = |attempt: &Attempt, state| {
        let mut row = own("restored-none", 1, state);
        (row.id, row.row.token, row.row.nonce) = (attempt.id.clone(), attempt.token, attempt.nonce);
        row
    };
    let (lacked, late) = (own("restored-lacked", 2, running()), own("restored-late", 1, running()));
    let (twice, once) = (own("restored-twice", 1, answered()), own("restored-twice", 1, running()));
    let theirs = copied(bench, &bench.peers()[0], "restored-theirs", 1, running());
    let version = open(bench).await.version;
    bench.restart().await;
    let all = [lacked.clone(), of(&settled, running()), of(&run, answered()), once.clone(), twice, once];
    let restore = async |rows: &[CopiedRow]| bench.store().restore(rows).await;
    assert_eq!(restore(&all).await, Ok(Done));
    assert!(restore(&[theirs]).await.is_err(), "restore: the row is of another origin");
    let gate = bench.store().gate().await.expect("restore: gate failed");
    assert!(gate.version == version && !gate.is_open(), "restore: nothing was approved");
    open(bench).await;
    assert_eq!(restore(std::slice::from_ref(&late)).await, Ok(GateMoved));
    assert_eq!(rows(bench, &late.id).await, [], "restore: the boot is approved");
    for id in [&settled.id, &run.id, &all[3].id] {
        assert!(is_settled(bench, id).await, "restore: of two states of one attempt the later one stays");
    }
    let restored = row(bench, &lacked.id).await;
    assert_eq!(untimed(&Row { state: lacked.row.state.clone(), ..restored.clone() }), untimed(&lacked.row));
    let State::Claimed { left, .. } = restored.state else { panic!("restore: {restored:?}") };
    assert!(left > LONG / 2 && left <= LONG, "restore: its hold begins anew: {left:?}");
    let attempt = Attempt { id: lacked.id, token: lacked.row.token, nonce: lacked.row.nonce };
    assert_eq!(settle(bench, &attempt, &answer()).await, Done, "restore: it ends like any other");
}
/// All rows that a store of this origin may lack, read in pages.
pub(super) async fn latest(bench: &impl ImportBench, origin: &Origin, most: u32) -> Vec<CopiedRow> {
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(place) = from {
        let page = bench.store().latest_of(origin, place, most).await.expect("latest: it failed");
        assert!(page.next.is_none_or(|next| next > place), "latest: the pages do not go on");
        found.extend(page.rows.into_iter().map(|(_, row)| row));
        from = page.next;
    }
    found
}

/// An imported row goes once its life and tombstone are over. No row may be
/// left for which it answers or that has to answer for it.
async fn an_imported_row_goes_once_it_is_not_needed(bench: &impl ImportBench) {
    open(bench).await;
    let (origin, other) = (bench.peers()[1].clone(), bench.peers()[0].clone());
    let (left, past) = (Duration::ZERO, LONG);
    let doubt = || State::InDoubt { status: None, left, past };
    let settled = || State::Settled { answer: Arc::new(answer()), age: SHORT, expired: false };
    let brief = |name: &str, state: State| briefly(copied(bench, &origin, name, 3, state));
    let lives = CopiedRow { lives: LONG, ..brief("import-lives", State::Tombstone) };
    let gone = [
        brief("import-gone-1", State::Tombstone),
        brief("import-gone-2", settled()),
        brief("import-gone-3", State::Released),
        brief("import-gone-4", doubt()),
        brief("import-gone-5", doubt()),
    ];
    let stays = [
        brief("import-stays-1", doubt()),
        brief("import-stays-2", State::Claimed { left, past }),
        brief("import-stays-3", State::Tombstone),
        brief("import-stays-4", State::Released),
        brief("import-stays-5", doubt()),
    ];
    import(bench, &origin, std::slice::from_ref(&lives)).await;
    for copied in gone.iter().chain(&stays) {
        import(bench, &origin, std::slice::from_ref(copied)).await;
    }
    // A final row answers for one doubt, and a released one that named it for another.
    bench.arrives(&gone[3].id, Foreign::Settled).await;
    let over = async |copied: &CopiedRow, nonce| {
        let Token { attempt, .. } = copied.row.token;
        let basis = Basis::Known { own: None, over: vec![(origin.clone(), copied.row.token)], attempt };
        wins(bench, &asks_on(bench, &copied.id, nonce, basis).await).await.0
    };
    assert_eq!(release(bench, &over(&gone[4], 1).await).await, Done);
    // A running row says nothing yet. An open attempt elsewhere needs the final row, or the
    // released one.
    over(&stays[4], 2).await;
    for copied in [&stays[2], &stays[3]] {
        bench.arrives(&copied.id, Foreign::InDoubt).await;
    }
    bench.pass(SHORT).await;
    assert_eq!(reap(bench).await, gone.len() as u64, "import: what is over and not needed must go");
    assert_eq!(reap(bench).await, 0, "import: what must stay was reaped, or looked at over and over");
    let stands =
        async |copied: &CopiedRow| rows(bench, &copied.id).await.iter().any(|row| row.origin == origin);
    for copied in &gone {
        assert!(!stands(copied).await, "import: {:?} stays", copied.row.state);
    }
    for copied in stays.iter().chain([&lives]) {
        assert!(stands(copied).await, "import: {:?} is gone, and {other} may have more", copied.row.state);
    }
}

async fn reap(bench: &impl ImportBench) -> u64 {
    bench.store().reap_imports(100).await.expect("import: reap_imports failed")
}

calls! { ImportBench: pub(super) import = import(origin: &Origin, rows: &[CopiedRow]) -> (); }

/// A row of an origin as a survivor hands it over, with this attempt number at the first epoch.
pub(super) fn copied(
    bench: &impl StoreBench,
    origin: &Origin,
    name: &str,
    attempt: u32,
    state: State,
) -> CopiedRow {
    let row = Row {
        origin: origin.clone(),
        token: Token { epoch: 1, attempt },
        nonce: Nonce(7),
        fingerprint: Fingerprint { raw: fingerprint::raw("POST", "/import", b""), canonical: None },
        state,
        over: vec![(bench.origin(), Token { epoch: 1, attempt: 1 })],
        risk: vec![bench.peers()[0].region.clone()],
        request_id: RequestId(8),
        expires: Date(4_000_000_000_123),
        principal: Some(digest("contract", &[b"principal"])),
        accepted: false,
        doubted: 0,
        settle_time: SHORT,
        recovery: Recovery::Rerun { max_attempts: 4 },
    };
    let (route, path) = ("imported".into(), "/v1/imported".to_owned());
    CopiedRow { id: id(bench, name), row, hold: LONG, lives: LONG, tombstone: LONG * 2, route, path }
}

fn running() -> State {
    State::Claimed { left: LONG, past: Duration::ZERO }
}

pub(super) fn answered() -> State {
    State::Settled { answer: Arc::new(answer()), age: Duration::ZERO, expired: false }
}

fn briefly(copied: CopiedRow) -> CopiedRow {
    let row = Row { over: Vec::new(), ..copied.row };
    CopiedRow { row, lives: Duration::ZERO, tombstone: SHORT / 2, ..copied }
}

fn untimed(row: &Row) -> Row {
    let mut row = row.clone();
    if let State::Settled { age, .. } = &mut row.state {
        *age = Duration::ZERO;
    }
    row
}
