//! Three gateways of one region share its store behind one address, under load, while one of them
//! is killed or cut off from the store. Requests go to the region's address, as clients send them.

use crate::support::*;
use onceway_lab::drill::load::{CLASSES, End, Field, Load, Recovery};
use onceway_lab::drill::watching::Watching;

/// The region with three gateways, by number, and the one of them that is killed.
const SHARED: usize = 0;
const VICTIM: usize = 1;

struct Site {
    three: Deployment,
    field: Arc<Field>,
    watching: Watching,
}

impl Site {
    async fn start() -> Site {
        // As long as by default: a busy machine must not look like a dead region.
        let failover = "\n[failover]\nlease = \"10s\"\nstable_for = \"100ms\"\n";
        let options = Options { gateways: vec![3], ..options(Duration::from_millis(10), None, failover) };
        let _room = room(3).await;
        let three = Deployment::start(&options, &|_| {}).await.expect("three regions start");
        let ring = onceway::config::load_ring(&three.dir().join("ring.toml")).expect("a ring file").ring;
        let field = Field::new(&three, ring, key("load")).expect("clients");
        let watching = Watching::start(&three);
        Site { three, field, watching }
    }

    fn key(&self, word: &str) -> String {
        std::iter::repeat_with(|| key(word)).find(|key| self.field.order(key)[0] == SHARED).expect("a key")
    }

    async fn settled(&self, request: Ask) -> Answer {
        let answer = async || request.send(PATIENCE).await.ok().filter(|answer| answer.status == 201);
        found("a key to be settled", answer).await
    }

    /// Settles twelve keys at each of these addresses. Returns the number of those that were at once.
    async fn at_once(&self, publics: &[&str]) -> usize {
        let mut at_once = 0;
        for public in publics.repeat(12) {
            let request = post(public, "/v1/charges", &self.key("beside"), BODY);
            at_once += usize::from(ask(request.clone()).await.status == 201);
            self.settled(request).await;
        }
        at_once
    }

    async fn status(&self, gateway: usize) -> Value {
        ask(Ask::get(format!("{}/v1/status", self.three.regions[SHARED].gateways[gateway].admin())))
            .await
            .json()
    }
}

/// One gateway dies with running requests. Their keys end through the others; new ones go on.
async fn one_dies(site: &Site) {
    let region = &site.three.regions[SHARED];
    let keys: Vec<String> = (0..6).map(|_| site.key("killed")).collect();
    let (mut begun, victim) = (JoinSet::new(), region.gateways[VICTIM].public());
    for key in &keys {
        let charge = post(&victim, "/v1/charges", key, BODY).with("Demo-Behave", "slow=2s");
        begun.spawn(charge.send_owned(PATIENCE));
    }
    let run = async || site.status(VICTIM).await["in_flight"].as_u64().is_some_and(|count| count >= 6);
    until("the requests to run", run).await;
    region.act_on(VICTIM, Action::Kill).await.unwrap();
    assert!(begun.join_all().await.iter().all(Result::is_err), "nobody answers for a dead gateway");
    let at_once = site.at_once(&[&region.public()]).await;
    assert!(at_once >= 9, "{at_once} of 12 requests were run at once beside a dead gateway");
    let again = keys.iter().map(|key| site.settled(post(&region.public(), "/v1/charges", key, BODY)));
    for (key, again) in keys.iter().zip(again) {
        again.await;
        assert_eq!(effects(&site.three.ledger, key), 1, "{key}");
    }
    region.act_on(VICTIM, Action::Start).await.unwrap();
    region.serves().await.unwrap();
}

/// Its address and forwards from other regions soon avoid a gateway without the store.
async fn one_is_cut_off(site: &Site) {
    let region = &site.three.regions[SHARED];
    let detour = Detour::take(&site.three, SHARED, VICTIM).await;
    detour.way.freeze(Direction::Forward);
    until("the gateway not to be ready", async || {
        let readiness = site.status(VICTIM).await["readiness"].clone();
        readiness["ready"] == false && readiness["forwards_to"].as_array().is_some_and(|to| to.len() == 2)
    })
    .await;
    let elsewhere = site.three.regions[SHARED + 1].public();
    let moved = async || ask(post(&elsewhere, "/v1/charges", &site.key("moved"), BODY)).await.status == 201;
    until("a forward to come to another gateway", moved).await;
    let at_once = site.at_once(&[&region.public(), &elsewhere]).await;
    // One of three would have had eight of them.
    assert!(at_once >= 20, "{at_once} of 24 requests were run at once beside a gateway without a store");
    detour.way.thaw(Direction::Forward);
    detour.end().await;
}

#[test]
fn a_region_survives_the_loss_of_one_gateway() {
    run(async {
        let _alone = alone().await;
        let site = Site::start().await;
        let load = Load::start(&site.field, 8.0);
        one_dies(&site).await;
        one_is_cut_off(&site).await;
        let events = site.watching.events();
        let lapsed: Vec<_> = events.iter().filter(|event| event.what.contains("us-east lost")).collect();
        assert!(lapsed.is_empty(), "the region lost its lease: {lapsed:?}");
        load.end(BOUND).await.unwrap();

        let lives = site.field.lives().clone();
        assert!(lives.len() > 60, "hardly any load: {} keys", lives.len());
        for life in &lives {
            let parks = CLASSES[life.class].recovery == Recovery::Park;
            assert!(life.end == End::Definite || parks && life.end == End::InDoubt, "{life:?}");
            let booked = effects(&site.three.ledger, &life.key);
            let again = matches!(CLASSES[life.class].recovery, Recovery::Rerun { .. });
            assert!(booked <= 1 || again, "{} had {booked} effects: {life:?}", life.key);
        }
        for total in site.three.ledger.totals(None).iter().filter(|total| !total.key.starts_with("load")) {
            assert_eq!(total.effects, 1, "{}", total.key);
        }
        site.three.shut_down().await.unwrap();
    });
}

/// A gateway whose way to its region's store is a relay: it alone can be cut off from the store.
pub struct Detour<'a> {
    fleet: &'a Deployment,
    region: &'a Region,
    gateway: usize,
    file: String,
    direct: String,
    pub way: Relay,
}

impl<'a> Detour<'a> {
    pub async fn take(fleet: &'a Deployment, region: usize, gateway: usize) -> Self {
        let region = &fleet.regions[region];
        let port = region.cluster.port();
        let way = Relay::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.unwrap();
        let file = format!("{}-{}.toml", region.name, gateway + 1);
        let direct = fs::read_to_string(fleet.dir().join(&file)).unwrap();
        let at = |port: u16| format!("\nurl = \"postgres://{GATEWAY_ROLE}@127.0.0.1:{port}/");
        let relayed = direct.replace(&at(port), &at(way.local_addr().port()));
        assert_ne!(relayed, direct, "the store's address is found");
        let detour = Self { fleet, region, gateway, file, direct, way };
        detour.restart(&relayed).await;
        detour
    }

    async fn restart(&self, text: &str) {
        self.region.act_on(self.gateway, Action::Stop).await.unwrap();
        files::replace(self.fleet.dir(), &self.file, text).unwrap();
        self.region.act_on(self.gateway, Action::Start).await.unwrap();
        self.region.serves().await.unwrap();
    }

    pub async fn end(self) {
        self.restart(&self.direct).await;
    }
}
