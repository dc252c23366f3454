//! A region that left the ring: its ties to a store are removed once its rows are here, and a
//! stored note keeps it covered. The order of the steps is that of docs/operate/regions.md.

use crate::store::support::*;
use onceway::protocol::view::{Content, Member, Standing};

const SEALED: u64 = 5;

fn left(report: &Report) -> Option<&Status> {
    report.lines.iter().find(|line| line.what == "rows of us#1, which left the ring").map(|line| &line.status)
}

fn waits_for(report: &Report, words: &str) -> bool {
    matches!(left(report), Some(Status::Pending(why)) if why.contains(words))
}

/// A view of eu alone, that still lists us, drained, with its last seal.
fn without_us(eu: &Region, us: &Region, votes: bool) -> View {
    let mut content: Content = view_of_one(&eu.origin.region, 2).content();
    let standing = Standing::Sealed { drained: true };
    let member = Member { generation: 1, standing, mark: SEALED, release: None };
    content.members.insert(us.origin.region.clone(), member);
    if votes {
        content.voters.insert(us.origin.region.clone(), AcceptorId(2));
    }
    View::from_content(content)
}

#[tokio::test]
async fn a_former_region_is_untied_once_its_rows_arrived() {
    let (eu, us) = tokio::join!(Region::start("eu-west#1"), Region::start("us#1"));
    let (both, us_plan) = (eu.plan(&[&us], &[]), us.plan(&[&eu], &[]));
    tokio::join!(init_until_complete(&both), init_until_complete(&us_plan));
    let (eu_store, us_store) = (eu.store(), us.store());
    let gate = open(&eu_store).await;
    open(&us_store).await;

    // A file that lacks it is no reason: the register says which region left.
    let alone = eu.plan(&[], &[]);
    assert_eq!(left(&init(&alone).await), None);
    let adopt = async |view: View| {
        let gate = eu_store.gate().await.unwrap();
        eu_store.set_gate(gate.version, &GateState::founded(Arc::new(view))).await.unwrap()
    };
    assert!(gate.is_open());
    adopt(without_us(&eu, &us, true)).await;
    assert!(waits_for(&init(&alone).await, "still votes"));
    adopt(without_us(&eu, &us, false)).await;
    // Files that name the region count: it is about to come back.
    assert_eq!(left(&init(&both).await), None);

    let shown = init(&alone).await;
    assert!(waits_for(&shown, "it sealed 5"), "{shown}");
    assert_eq!(eu_store.subscriptions().await.unwrap().len(), 1);
    while seq(&us_store).await.unwrap() < SEALED {}
    let shown = found("the last seal", || async {
        let shown = init(&alone).await;
        waits_for(&shown, "all its rows are here").then_some(shown)
    })
    .await;
    assert!(waits_for(&shown, "still follows eu-west: switch it off"), "{shown}");
    assert!(eu_store.subscriptions().await.unwrap().is_empty());
    // Without a subscription its heartbeat proves nothing any more: the stored note does.
    let memory = eu_store.recall().await.unwrap();
    assert!(memory.iter().any(|past| past.origin == us.origin && past.imported >= SEALED), "{memory:?}");

    us.cluster.stop(Duration::from_secs(10)).await.unwrap();
    let done = init_until_complete(&alone).await;
    assert!(matches!(left(&done), Some(Status::Fine | Status::Changed)), "{done}");
    assert_eq!(eu.cluster.ties_to(DATABASE, "us").await.unwrap(), 0);
    whole(&check(&alone).await);
    eu.admin().await.batch_execute("update onceway.peer_memory set imported = 0").await.unwrap();
    let shown = check(&alone).await;
    assert!(waits_for(&shown, "up to heartbeat 0"), "its heartbeat is here, and no copy: {shown}");
}
