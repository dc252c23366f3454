//! Each forbidden cell of the table of the peer plane, tried at a real witness process with a real
//! certificate.
//!
//! `failures.rs` tries the same at gateways. This file must not send an allowed message: the other
//! tests of the suite do.

use std::fs;

use onceway::ports::peers::Question;
use onceway::protocol::register::{Message, Reply};
use onceway::protocol::speakers::{Kind, Sender};
use onceway::protocol::view::{Member, Standing};

use super::*;
use crate::net::support::region;
use crate::said;

/// A view of the two regions that another one has left, while rows of it live.
fn left_behind(witness: u128) -> Arc<View> {
    let mut content = view(1, witness).content();
    let standing = Standing::Sealed { drained: true };
    let member = Member { generation: 1, standing, mark: 7, release: None };
    content.members.insert(region("left"), member);
    Arc::new(View::from_content(content))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cell_that_forbids_is_answered_and_each_is_told_once() {
    let house = house();
    assert_eq!(house.ended(&["--init"]).0, Some(0));
    let log = house.path("witness.log");
    let _running = house.start_logging(&log).await;
    let Reply::NotFounded(id) = house.message(Message::Read).await else { panic!("it is new") };
    let found = Message::Found { ballot: ballot(1), view: left_behind(id.0) };
    assert_eq!(house.message(found).await, Reply::Accepted);
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
        for (kind, request) in said::all(&region(name), &to) {
            let message = *Kind::ALL.iter().find(|message| message.name() == kind).unwrap();
            if message.who().contains(&sender) {
                continue;
            }
            for request in [request.clone(), request] {
                let (status, code) = said::say(&identity, &to, &house.peer, request).await.unwrap();
                assert_eq!((status.as_u16(), code.as_str()), (403, "peer-forbidden"), "{kind} of {name}");
            }
            refused += 1;
        }
    }
    let cells = Kind::ALL.iter().map(|message| Sender::ALL.len() - message.who().len()).sum::<usize>();
    assert_eq!(refused, cells, "each cell that forbids");
    // A region, in the name of another one.
    for (kind, request) in said::all(&region("eu-west"), &to) {
        let message = *Kind::ALL.iter().find(|message| message.name() == kind).unwrap();
        if message.is_of_its_sender() {
            let identity = house.pki.identity("us-east");
            let mut request = request;
            request.headers_mut().insert("onceway-peer-from", "us-east".parse().unwrap());
            let (status, code) = said::say(&identity, &to, &house.peer, request).await.unwrap();
            assert_eq!((status.as_u16(), code.as_str()), (403, "peer-forbidden"), "{kind} for eu-west");
            refused += 1;
        }
    }
    assert_eq!(fs::read(house.path("witness.state")).unwrap(), before, "nothing was promised");
    let counted: usize = house.gauge("onceway_witness_refusals_total").await.parse().unwrap();
    assert!(counted > refused, "{counted}: each is counted, the second one too");
    let text = fs::read_to_string(&log).unwrap();
    let told = text.lines().filter(|line| line.contains("a peer may not say this")).count();
    // Whoever may say nothing at all is not heard beyond its first word.
    let mute = |sender: &&Sender| Kind::ALL.iter().all(|message| !message.who().contains(sender));
    let mute = Sender::ALL.iter().filter(mute).count();
    let lines = refused - mute * (Kind::ALL.len() - 1);
    assert_eq!((told, mute), (lines, 2), "each is told, and its repetition is not:\n{text}");
    // It votes as before, for whoever may ask.
    let asked = Question::Acceptor { to: Some(id), message: Message::Prepare { ballot: ballot(7) } };
    assert!(matches!(house.ask(asked).await, Told::Acceptor(Reply::Promised(_))));
}
