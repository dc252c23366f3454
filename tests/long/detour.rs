//! A gateway whose way to its region's store is a relay: it alone can be cut off from the store.

use crate::support::*;

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
