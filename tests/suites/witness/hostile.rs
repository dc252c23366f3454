//! Each forbidden cell of the table of the peer plane, tried at a real witness process with a real
//! certificate.
//!
//! `failures.rs` tries the same at gateways. This file must not send an allowed message: the other
//! tests of the suite do.

use super::*;
use onceway::protocol::view::{Member, Standing};

#[tokio::test(flavor = "multi_thread")]
async fn every_forbidden_message_is_refused_and_logged_once() {
    let house = house();
    house.init();
    let log = house.path("witness.log");
    let _running = house.start_logging(&log).await;
    let id = house.acceptor().await;
    // One region has left the two others, while rows of it live.
    let mut content = view(1, id.0).content();
    let standing = Standing::Sealed { drained: true };
    let member = Member { generation: 1, standing, mark: 7, release: None };
    content.members.insert(region("left"), member);
    let left_behind = Arc::new(View::from_content(content));
    assert_eq!(house.message(found_by(&left_behind)).await, Reply::Accepted);
    let before = fs::read(house.path("witness.state")).unwrap();

    let senders = [
        ("mallory", Sender::Stranger),
        ("witness-1", Sender::Witness),
        ("ap-south", Sender::Joining),
        ("left", Sender::Former),
        ("us-east", Sender::Region),
    ];
    let (to, mut refused) = (region("witness-1"), 0);
    for (name, sender) in senders {
        let identity = house.pki.identity(name);
        let twice = async || said::forbidden(&identity, sender, &to, &house.peer).await;
        twice().await;
        refused += twice().await;
    }
    let cells =
        Kind::ALL.iter().map(|message| Sender::ALL.len() - message.list_senders().len()).sum::<usize>();
    assert_eq!(refused, cells, "each cell that forbids");
    // A region, in the name of another one.
    let identity = house.pki.identity("us-east");
    refused += said::in_anothers_name(&identity, &region("eu-west"), &to, &house.peer).await;
    assert_eq!(fs::read(house.path("witness.state")).unwrap(), before, "nothing was promised");
    let counted: usize = house.gauge("onceway_witness_refusals_total").await.parse().unwrap();
    assert!(counted > refused, "{counted}: each is counted, the second one too");
    // Whoever may say nothing at all is not heard beyond its first word.
    let mute = |sender: &&Sender| Kind::ALL.iter().all(|message| !message.list_senders().contains(sender));
    let mute = Sender::ALL.iter().filter(mute).count();
    let lines = refused - mute * (Kind::ALL.len() - 1);
    assert_eq!(mute, 2);
    // The last message is told, too: by then, a repetition would have been.
    let refusals = || fs::read_to_string(&log).unwrap().matches("a peer may not say this").count();
    until("each to be told, and its repetition not", async || refusals() == lines).await;
    // It votes as before, for whoever may ask.
    let asked = Question::Acceptor { to: Some(id), message: prepare(7) };
    assert!(matches!(house.ask(asked).await, PeerReply::Acceptor(Reply::Promised(_))));
}
